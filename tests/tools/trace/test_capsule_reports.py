"""capsule: a report of hcq, or a live process, becomes a trace whose replay stops at the packet that hangs there."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq import config
from hcq.amd.abi import sdma
from hcq.errors import DeviceFault, UsageError, WaitTimeout
from hcq.observe import report, state
from hcq.tools.trace import capsule, capsule_replay, words_in_reports
from hcq.trace.file import Trace
from tests.hcq.amd import kernels
from tests.hcq.amd.conftest import open_amd as open_amd
from tests.hcq.nv.conftest import open_nv as open_nv

pytestmark = pytest.mark.own_devices

FAR = """
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @far(ptr addrspace(1) %out, i64 %n) {
  %p = getelementptr i8, ptr addrspace(1) %out, i64 %n
  store i32 1, ptr addrspace(1) %p
  ret void
}
"""
HANGS = """
import hcq
device = hcq.open("AMD")
never, weights = device.signal("never"), device.alloc(4096, "weights")
device.queue().fill(weights, 3).submit().wait()
late = device.queue().wait(never, 1).fill(weights, 7).submit()
print("hangs", flush=True)
late.wait(60_000)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where reports of this test go."""
    before = config.current()
    config.use(dataclasses.replace(before, report_dir=tmp_path / "reports", validate=False))
    yield tmp_path / "reports"
    config.use(before)


def waiting(device: Any) -> Any:
    """A queue that waits for a signal which nobody sets, and then fills."""
    gate, out = device.signal("gate"), device.alloc(4096, "out")
    device.queue().fill(out, 1).submit().wait()
    late = device.queue().wait(gate, 3).fill(out, 7).submit()
    return gate, late


@pytest.mark.parametrize(
    ("arch", "queue"),
    [("gfx1100", "pm4"), ("gfx1201", "pm4"), ("gfx90a", "pm4"), ("gfx942", "aql"), ("gfx1100", "aql")],
)
def test_the_capsule_of_a_report_shows_lints_and_replays_the_packet_that_waits(
    arch: str, queue: str, open_amd: Callable[..., Any], folder: Path, tmp_path: Path, trace: Any
) -> None:
    device = open_amd(arch, queue=queue, timeout_ms=50_000, validate=False)
    gate, late = waiting(device)
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=100)
    shown = next(ring.packet for ring in device.ring_states() if ring.get != ring.put)
    (path,) = folder.glob("*.txt")
    gate.set(3)
    late.wait(50_000)
    out = tmp_path / "hang.hcqtrace"
    done = trace("capsule", path, "-o", out)
    assert done.status == 0, done
    assert "missing:" in done.out and "is taken for the one that hangs" in done.out
    assert shown.partition("(")[0] in done.out
    assert "it hangs here" in trace("show", out).out
    assert trace("lint", out).status == 1
    replayed = trace("replay", out)
    assert replayed.out.startswith("stops at the same packet"), replayed
    assert Trace.read(str(out)).devices[0].facts["model"] == "from a report of hcq"
    # what people paste: a quoted mail, other ends of lines
    quoted = b"> " + path.read_bytes().replace(b"\n", b"\r\n> ")
    assert capsule.capsule(quoted).lines[0] == done.out.splitlines()[0]


def test_the_capsule_of_a_report_of_a_fault_ends_at_the_same_page(
    open_amd: Callable[..., Any], folder: Path
) -> None:
    device = open_amd(timeout_ms=50_000, validate=False)
    out = device.alloc(64, "out")
    program = device.load(kernels.compile_ir(FAR, device.arch), "far", args=("buffer", "int"))
    with pytest.raises(DeviceFault):
        device.queue().dispatch(program, [out, 1 << 31]).submit().wait(50_000)
    (path,) = folder.glob("*.txt")
    made = capsule.capsule(path.read_bytes())
    trace = Trace.parse(made.content)
    assert any("page fault" in str(one.fields["why"]) for one in trace.faults)
    assert trace.devices[0].facts["capsule"]["fault_page"] == (out.va + (1 << 31)) & -4096
    stand = capsule_replay.replay(trace)
    assert stand.is_same and "whose code is not in the dump" in stand.why


def test_the_graph_that_hangs_is_in_the_capsule(open_amd: Callable[..., Any], folder: Path) -> None:
    device = open_amd(queue="pm4", timeout_ms=50_000, validate=False)
    gate, out = device.signal("gate"), device.alloc(4096, "out")
    graph = device.graph("mine")
    graph.wait(gate, 3).fill(out, 7)
    late = graph.submit()
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=100)
    (path,) = folder.glob("*.txt")
    made = capsule.capsule(path.read_bytes())
    gate.set(3)
    late.wait(50_000)
    assert "1 indirect buffer" in made.lines[0]
    stand = capsule_replay.replay(Trace.parse(made.content))
    assert stand.is_same and stand.block is not None and "WaitRegMem" in stand.packet


@pytest.mark.parametrize("queue", ["pm4", "aql"])
@pytest.mark.parametrize("arch", ["gfx1100", "gfx942", "gfx1201"])
def test_a_hang_of_the_copy_ring_alone_is_that_of_the_copy_ring(
    arch: str, queue: str, open_amd: Callable[..., Any], folder: Path
) -> None:
    device = open_amd(arch, queue, timeout_ms=50_000, validate=False)
    gate, out = device.signal("gate"), device.alloc(4096, "out")
    device.queue().fill(out, 1).submit().wait(50_000)
    layout = device.chip.copies.packets[sdma.Op.POLL_REGMEM]
    wait = layout(address=gate.va, value=3, mask=0xFFFFFFFF, func=5, interval=4, retry_count=0xFFF)
    late = device.queue().packets(wait, ring="copy").submit()
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=100)
    text = report.describe(device, "asked")
    gate.set(3)
    late.wait(50_000)
    assert "PollRegmem" in text.partition("ring      copy")[2].partition("at get: ")[2].splitlines()[0]
    made = capsule.capsule(text.encode())
    assert made.lines[0].startswith(f"{arch}: sdma copy (")
    stand = capsule_replay.replay(Trace.parse(made.content))
    assert stand.is_same and stand.packet.startswith("PollRegmem")
    assert stand.why == "it waits, and nothing here ends that"


def test_a_report_without_words_says_why(open_nv: Callable[..., Any], open_amd: Callable[..., Any]) -> None:
    for device in (open_amd(), open_nv()):
        text = report.describe(device, "asked")
        assert "\nwords     " not in text
        with pytest.raises(UsageError, match="no words of rings"):
            capsule.capsule(text.encode())


def test_damaged_words_are_refused_or_read_within_bounds(open_amd: Callable[..., Any]) -> None:
    device = open_amd(queue="pm4", timeout_ms=50_000, validate=False)
    gate, late = waiting(device)
    text = report.describe(device, "asked")
    gate.set(3)
    late.wait(50_000)
    rows = [row for row in text.splitlines() if row.startswith(("words", "----"))]
    for old, new in (
        ("size 0x40000", "size 0x3fff1"),
        ("size 0x40000", "size 0xffffffff"),
        ("get 0x", "get 0xfffffff"),
        ("put 0x", "put 0xfffffff"),
    ):
        damaged = "\n".join(rows).replace(old, new, 1)
        try:
            capsule.capsule(damaged.encode())
        except UsageError as error:
            assert "capsule" in str(error)
    for cut in range(0, len(rows), 3):
        try:
            capsule.capsule("\n".join(rows[:cut]).encode())
        except UsageError as error:
            assert "capsule" in str(error)


def test_an_open_device_is_a_capsule(open_amd: Callable[..., Any]) -> None:
    device = open_amd("gfx942", queue="pm4", timeout_ms=50_000, validate=False)
    gate, late = waiting(device)
    said = state._device(device, ["words"])
    gate.set(3)
    late.wait(50_000)
    found = words_in_reports.of_process({"devices": [said]}, 1)
    dump = words_in_reports.as_dump(found)
    assert found.arch == "gfx942" and [ring.name for ring in dump.rings] == ["kfd_pm4 compute", "sdma copy"]
    with pytest.raises(UsageError, match="not done"):
        words_in_reports.of_process({"devices": [state._device(device, ["words"])]}, 1)
    for damaged in ({}, {"devices": 3}, {"devices": [{"words": "no"}]}):
        with pytest.raises(UsageError, match="not done"):
            words_in_reports.of_process(damaged, 1)
    said["words"]["rings"][0]["words"] = "no"
    with pytest.raises(UsageError, match="none of ours"):
        words_in_reports.of_process({"devices": [said]}, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="inspectors are answered on Linux alone")
def test_a_live_process_is_a_capsule(tmp_path: Path, trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = config.current()
    config.use(dataclasses.replace(before, cache_dir=tmp_path))
    environ = {**os.environ, "HCQ_INSPECT": "1", "HCQ_EMULATE": "amd:gfx1201", "HCQ_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", HANGS], env=environ, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"hangs\n"
            out = tmp_path / "live.hcqtrace"
            done = trace("capsule", "--live", child.pid, "-o", out)
            assert done.status == 0, done
            assert trace("replay", out).out.startswith("stops at the same packet")
        finally:
            child.kill()
            config.use(before)
    assert trace("capsule", "--live", "x", "-o", out).status != 0
    assert trace("capsule", "-o", out).status != 0
