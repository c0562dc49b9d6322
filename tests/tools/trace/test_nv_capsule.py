"""capsule: a hang of an NVIDIA device becomes a trace whose replay stops at the same packet."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq import config
from hcq.errors import UsageError, WaitTimeout
from hcq.nv import ring_words
from hcq.nv.abi import host_methods as host
from hcq.nv.abi import methods
from hcq.nv.abi.gpfifo import decode_entry
from hcq.nv.rings import segment
from hcq.observe import report, state
from hcq.system import native
from hcq.tools.trace import capsule, capsule_replay, words_in_reports
from hcq.tools.trace.views import all_packets, submission_view
from hcq.trace.file import Trace
from tests.hcq.nv.conftest import ARCHS
from tests.hcq.nv.conftest import open_nv as open_nv
from tests.hcq.nv.kernels import image

pytestmark = pytest.mark.own_devices

HANGS = """
import hcq
device = hcq.open("NV")
never, weights = device.signal("never"), device.alloc(4096, "weights")
device.queue().fill(weights, 3).submit().wait()
late = device.queue().wait(never, 3).fill(weights, 7).submit()
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


class Waiting:
    """A channel that waits for a semaphore which nobody sets. before: its value meanwhile; behind: more submissions."""

    def __init__(self, device: Any, before: int = 0, behind: int = 0) -> None:
        self.gate, out = device.signal("gate"), device.alloc(4096, "out")
        device.queue().fill(out, 1).submit().wait(50_000)
        self.gate.set(before)
        self.late = device.queue().wait(self.gate, 3).fill(out, 7).submit()
        for _ in range(behind):
            self.late = device.queue().fill(out, 8).submit()
        with pytest.raises(WaitTimeout):
            self.late.wait(timeout_ms=100)

    def end(self) -> None:
        """Set it."""
        self.gate.set(3)
        self.late.wait(50_000)


def stuck_packets(trace: Trace) -> list[dict[str, Any]]:
    """The packets that `show` marks."""
    return [
        packet
        for submission in trace.submissions
        for packet in all_packets(submission_view(submission))
        if "stuck" in packet
    ]


@pytest.mark.parametrize("arch", ARCHS)
def test_the_capsule_of_a_report_shows_lints_and_replays_the_acquire_that_waits(
    arch: str, open_nv: Callable[..., Any], folder: Path, tmp_path: Path, trace: Any
) -> None:
    device = open_nv(arch, timeout_ms=50_000, validate=False)
    hang = Waiting(device)
    (path,) = folder.glob("*.txt")
    fifo = device.channel.fifo
    last = fifo.slots[(fifo.put - 1) % fifo.entries]
    segment = repr(decode_entry(last & 0xFFFFFFFF, last >> 32))
    place = (fifo.put - 1) % fifo.entries
    hang.end()
    out = tmp_path / "hang.hcqtrace"
    done = trace("capsule", path, "-o", out)
    assert done.status == 0, done
    assert f"entry {place} of the GPFIFO of the main channel, {segment}" in done.out
    assert f"waits for the semaphore at {hang.gate.va:#x}, ACQ_STRICT_GEQ 0x3; it holds 0x0" in done.out
    assert "missing:" in done.out and "what is in the buffers of kernels" in done.out
    shown = trace("show", out)
    assert len(re.findall(r"^ +=> ", shown.out, re.M)) == 1 and "it hangs here" in shown.out
    assert trace("lint", out).status == 1
    replayed = trace("replay", out)
    assert replayed.status == 0, replayed
    assert replayed.out.startswith("stops at the same packet"), replayed
    assert "it waits, and nothing here ends that" in replayed.out and f"emulated {arch}" in replayed.out
    (marked,) = stuck_packets(Trace.read(str(out)))
    assert "SEM_EXECUTE(operation=ACQ_STRICT_GEQ" in str(marked)
    # what people paste: a quoted mail, other ends of lines
    quoted = b"> " + path.read_bytes().replace(b"\n", b"\r\n> ")
    assert capsule.capsule(quoted).lines == done.out.splitlines()


def test_segments_behind_the_one_that_waits_are_there_and_not_run(open_nv: Callable[..., Any]) -> None:
    device = open_nv(timeout_ms=50_000, validate=False)
    hang = Waiting(device, before=2, behind=2)
    text = report.describe(device, "asked")
    hang.end()
    made = capsule.capsule(text.encode())
    assert "3 entries" in made.lines[0] and "it holds 0x2" in "\n".join(made.lines)
    stand = capsule_replay.replay(Trace.parse(made.content))
    assert stand.is_same and stand.word == 0 and "SEM_EXECUTE" in stand.packet


def test_a_semaphore_that_the_report_does_not_have_is_taken_to_hold_what_waits(
    open_nv: Callable[..., Any],
) -> None:
    device = open_nv(timeout_ms=50_000, validate=False)
    hang = Waiting(device)
    text = report.describe(device, "asked")
    hang.end()
    without = text[: text.index("words     memory")]
    made = capsule.capsule(without.encode())
    assert "what that holds is not known" in "\n".join(made.lines)
    assert capsule_replay.replay(Trace.parse(made.content)).is_same
    passing = re.sub(rf"(memory {hang.gate.va:#x} .*\nwords     0x0000:) 00000000", r"\1 00000003", text)
    assert passing != text
    stand = capsule_replay.replay(Trace.parse(capsule.capsule(passing.encode()).content))
    assert not stand.is_same and stand.why == "everything was done"


def test_a_graph_that_waits_is_marked_also_where_gp_get_is_late(open_nv: Callable[..., Any]) -> None:
    for options in ("", ":late-get"):
        device = open_nv(options=options, timeout_ms=50_000, validate=False)
        gate, out = device.signal("gate"), device.alloc(4096, "out")
        device.queue().fill(out, 1).submit().wait(50_000)
        graph = device.graph("mine")
        graph.fill(out, 5).wait(gate, 3).fill(out, 7)
        late = graph.submit()
        with pytest.raises(WaitTimeout):
            late.wait(timeout_ms=100)
        text = report.describe(device, "asked")
        gate.set(3)
        late.wait(50_000)
        made = capsule.capsule(text.encode())
        said = "\n".join(made.lines)
        assert f"waits for the semaphore at {gate.va:#x}" in said
        assert ("may be old" in said) == bool(options)
        stand = capsule_replay.replay(Trace.parse(made.content))
        assert stand.is_same and stand.word > 0 and not stand.passed, stand
        device.close(timeout_ms=1000)


def test_a_capsule_replays_on_another_gpu_of_nvidia_and_on_no_other(
    open_nv: Callable[..., Any], tmp_path: Path, trace: Any
) -> None:
    device = open_nv(timeout_ms=50_000, validate=False)
    hang = Waiting(device)
    text = report.describe(device, "asked")
    hang.end()
    out = tmp_path / "hang.hcqtrace"
    out.write_bytes(capsule.capsule(text.encode()).content)
    assert trace("replay", out, "--on", "nv:sm_90").status == 0
    with pytest.raises(UsageError, match=r"^replay: no gfx1100 is emulated"):
        capsule_replay.replay(Trace.read(str(out)), "gfx1100")
    with pytest.raises(UsageError, match="no GPU of NVIDIA's"):
        capsule.capsule(text.encode(), "gfx1100")


SPINS = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 flag, .param .u64 out)
{
 .reg .pred %p; .reg .u64 %rd<4>; .reg .u32 %r<4>;
 ld.param.u64 %rd1,[flag]; ld.param.u64 %rd2,[out];
AGAIN:
 ld.volatile.global.u32 %r1,[%rd1];
 setp.eq.u32 %p,%r1,0;
 @%p bra AGAIN;
 st.global.u32 [%rd2],%r1;
 ret;
}
"""


def spinning(device: Any) -> tuple[str, str]:
    """The report of a kernel that spins on a flag, and one like it that leaves its code out; then it ends."""
    flag, out = device.alloc(64, "flag"), device.alloc(64, "small out")
    flag.write(bytes(64))
    late = device.queue().dispatch(device.load(SPINS.encode(), "spin"), [flag, out]).submit()
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=100)
    whole = report.describe(device, "asked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring_words, "MOST_CODE_WORDS", 8)
        cut = report.describe(device, "asked")
    native.view(flag.address, 4)[:] = b"\1\0\0\0"
    late.wait(50_000)
    return whole, cut


@pytest.mark.parametrize("arch", ARCHS)
def test_a_replay_runs_the_kernel_that_spins_and_names_its_line(
    arch: str, open_nv: Callable[..., Any]
) -> None:
    whole, cut = spinning(open_nv(arch, timeout_ms=50_000, validate=False))
    made = capsule.capsule(whole.encode())
    assert "which may not have ended" in "\n".join(made.lines)
    assert not any("the code of" in line for line in made.lines)
    trace = Trace.parse(made.content)
    names = {one.name for one in trace.memory_at(trace.records[-1]).ranges}
    assert {"unknown memory of flag", "unknown memory of small out"} <= names
    stand = capsule_replay.replay(trace)
    assert stand.is_same and "kernel spin" in stand.why and "PTX line" in stand.why, stand
    made = capsule.capsule(cut.encode())
    assert any("the code of kernels: spin code" in line and "bytes" in line for line in made.lines)
    stand = capsule_replay.replay(Trace.parse(made.content))
    assert stand.is_same and stand.why.endswith("whose code is not in the report")


def test_the_code_of_a_launch_before_the_mark_is_run(open_nv: Callable[..., Any]) -> None:
    device = open_nv(timeout_ms=50_000, validate=False)
    program = device.load(image(device.arch), "increment")
    gate, out = device.signal("gate"), device.alloc(4096, "out")
    queue = device.queue().dispatch(program, [out], block=(32, 1, 1))
    late = queue.wait(gate, 3).submit()
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=100)
    text = report.describe(device, "asked")
    gate.set(3)
    late.wait(50_000)
    stand = capsule_replay.replay(Trace.parse(capsule.capsule(text.encode()).content))
    assert stand.is_same and "SEM_EXECUTE" in stand.packet and not stand.passed
    # were the gate open, the kernel is what may not have ended; on zeros it ends
    opened = re.sub(rf"(memory {gate.va:#x} .*\nwords     0x0000:) 00000000", r"\1 00000003", text)
    made = capsule.capsule(opened.encode())
    assert "which may not have ended" in "\n".join(made.lines)
    stand = capsule_replay.replay(Trace.parse(made.content))
    assert not stand.is_same and stand.why == "everything was done"


def test_damaged_words_are_refused_or_read_within_bounds(open_nv: Callable[..., Any]) -> None:
    device = open_nv(timeout_ms=50_000, validate=False)
    hang = Waiting(device)
    text = report.describe(device, "asked")
    hang.end()
    rows = [row for row in text.splitlines() if row.startswith(("words", "----"))]
    changed = [
        "\n".join(rows).replace(old, new, 1)
        for old, new in (
            ("size 0x2000", "size 0x1fff"),
            ("size 0x2000", "size 0xffffffff"),
            ("get 0x", "get 0xffffff"),
            ("put 0x", "put 0xffffff"),
            ("done 0x", "done 0xffffff"),
            ("gpu sm_90", "gpu gfx1100"),
            ("gpu sm_90", "gpu sm_10"),
            ("GPFIFO", "SDMA"),
            ("20050017", "ffffffff"),
            ("20050017", "3fff0017"),
        )
    ]
    changed += ["\n".join(rows[:cut]) for cut in range(len(rows))]
    refused = 0
    for damaged in changed:
        try:
            content = capsule.capsule(damaged.encode()).content
        except UsageError as error:
            assert "capsule" in str(error)
            refused += 1
        else:
            capsule_replay.replay(Trace.parse(content))
    assert 0 < refused < len(changed)


def test_an_open_device_is_a_capsule(open_nv: Callable[..., Any]) -> None:
    device = open_nv(timeout_ms=50_000, validate=False)
    hang = Waiting(device)
    said = state._device(device, ["words"])
    hang.end()
    found = words_in_reports.of_process({"devices": [said]}, 1)
    assert found.arch == "sm_90" and [ring["name"] for ring in found.rings] == ["main"]
    with pytest.raises(UsageError, match="not done"):
        words_in_reports.of_process({"devices": [state._device(device, ["words"])]}, 1)
    said["words"]["memory"][0]["words"] = "no"
    with pytest.raises(UsageError, match="none of ours"):
        words_in_reports.of_process({"devices": [said]}, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="inspectors are answered on Linux alone")
def test_a_live_process_is_a_capsule(tmp_path: Path, trace: Any) -> None:
    before = config.current()
    config.use(dataclasses.replace(before, cache_dir=tmp_path))
    environ = {**os.environ, "HCQ_INSPECT": "1", "HCQ_EMULATE": "nv:sm_90", "HCQ_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", HANGS], env=environ, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"hangs\n"
            out = tmp_path / "live.hcqtrace"
            done = trace("capsule", "--live", child.pid, "-o", out)
            assert done.status == 0, done
            assert "ACQ_STRICT_GEQ 0x3; it holds 0x0" in done.out
            (marked,) = stuck_packets(Trace.read(str(out)))
            assert "SEM_EXECUTE(operation=ACQ_STRICT_GEQ" in str(marked)
            assert trace("replay", out).out.startswith("stops at the same packet")
        finally:
            child.kill()
            config.use(before)


def test_a_hang_of_the_copy_channel_alone_is_that_of_the_copy_channel(
    open_nv: Callable[..., Any], folder: Path
) -> None:
    """Its wait is put behind what both channels have done; the main channel has nothing to do."""
    device = open_nv(timeout_ms=50_000, validate=False)
    assert device.has_copy_channel(), device.why_no_copies
    gate, page = device.signal("gate"), device.alloc(4096, "page")
    acquire = host.SemExecuteOperation.ACQ_STRICT_GEQ
    execute = host.SemExecute(operation=acquire, acquire_switch_tsg=1, payload_size=1)
    words = methods.incrementing(0, *methods.semaphore(gate.va, 3, execute)).to_bytes()
    page.write(words)
    device.copies.fifo.write([segment(page.address, len(words) // 4)], lambda count: None)
    made = capsule.capsule(report.describe(device, "asked").encode())
    assert made.lines[0].startswith("sm_90: copy channel (")
    assert any("of the GPFIFO of the copy channel" in line for line in made.lines)
    assert any("ACQ_STRICT_GEQ 0x3; it holds 0x0" in line for line in made.lines)
    stand = capsule_replay.replay(Trace.parse(made.content))
    assert stand.is_same and stand.why == "it waits, and nothing here ends that"
    gate.set(3)
