"""capsule: a hang of a Metal device becomes a trace whose replay stops at the same packet."""

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
from hcq.config import Config
from hcq.emu.machine import kernels_for
from hcq.emu.port import EmulatedPort
from hcq.errors import UsageError, WaitTimeout
from hcq.metal import inspection
from hcq.metal.device import MetalDevice
from hcq.observe import report, state
from hcq.system import native
from hcq.tools.trace import capsule, capsule_replay, words_in_reports
from hcq.trace.file import Trace

pytestmark = pytest.mark.own_devices

MSL = b"""#include <metal_stdlib>
using namespace metal;
kernel void spin(device int *flag [[buffer(0)]]) {
    for (int i = 0; flag[0] == 0; ++i) {
        int x = i;
    }
}
kernel void add(device int *out [[buffer(0)]], constant int &n [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    out[i] = out[i] + n;
}
"""
HANGS = """
import hcq
device = hcq.open("METAL")
never, weights = device.signal("never"), device.alloc(4096, "weights")
late = device.queue().wait(never, 3).fill(weights, 7).submit()
print("hangs", flush=True)
late.wait(60_000)
"""


@pytest.fixture
def metal() -> Iterator[MetalDevice]:
    port = EmulatedPort(kernels_for(["metal:m3:kernels=interpreted"]))
    device = MetalDevice("METAL", port, Config.read({"HCQ_VALIDATE": "0"}))
    yield device
    device.close()


def told(device: MetalDevice, late: Any, go_on: Callable[[], Any]) -> str:
    """The report of a submission that does not end, which then may."""
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=100)
    text = report.describe(device, "asked")
    go_on()
    late.wait(50_000)
    return text


def test_the_capsule_of_a_report_shows_lints_and_replays_the_wait_that_does_not_end(
    metal: MetalDevice, tmp_path: Path, trace: Any
) -> None:
    gate, out = metal.signal("gate"), metal.alloc(4096, "out")
    late = metal.queue().fill(out, 1).wait(gate, 3).fill(out, 7).submit()
    text = told(metal, late, lambda: gate.set(3))
    path, made = tmp_path / "report.txt", tmp_path / "hang.hcqtrace"
    path.write_text(text)
    done = trace("capsule", path, "-o", made)
    assert done.status == 0, done
    assert f"it waits for the signal at {gate.va:#x} >= 3; it holds 0" in done.out
    shown = trace("show", made)
    assert len(re.findall(r"^ +=> ", shown.out, re.M)) == 1 and "EncodeWaitForEvent" in shown.out
    assert trace("lint", made).status in (0, 1)
    replayed = trace("replay", made)
    assert replayed.status == 0 and replayed.out.startswith("stops at the same packet"), replayed
    assert "1 packets were done" in replayed.out
    quoted = b"> " + text.encode().replace(b"\n", b"\r\n> ")
    assert capsule.capsule(quoted).lines == done.out.splitlines()
    # were the signal where it should be, all of it is done
    opened = re.sub(rf"(memory {gate.va:#x} .*\nwords     0x0000:) 00000000", r"\1 00000003", text)
    stand = capsule_replay.replay(Trace.parse(capsule.capsule(opened.encode()).content))
    assert not stand.is_same and stand.why == "everything was done"


def test_a_replay_runs_the_kernel_that_spins_and_names_its_line(metal: MetalDevice) -> None:
    flag, sums = metal.alloc(64, "flag"), metal.alloc(256, "sums")
    flag.write(bytes(64))
    queue = metal.queue().dispatch(metal.load(MSL, "add"), [sums, 5], block=(64, 1, 1))
    late = queue.dispatch(metal.load(MSL, "spin"), [flag]).submit()
    text = told(metal, late, lambda: native.view(flag.address, 4).__setitem__(slice(None), b"\1\0\0\0"))
    made = capsule.capsule(text.encode())
    stand = capsule_replay.replay(Trace.parse(made.content))
    # the first launch may be the one that hangs: it ends here, and the second one does not
    assert "kernel spin at MSL line 4" in stand.why and "endless" in stand.why, stand
    assert stand.done == 1 and not stand.passed


def test_a_graph_that_waits_is_marked_inside_its_block(metal: MetalDevice) -> None:
    gate, out = metal.signal("gate"), metal.alloc(4096, "out")
    graph = metal.graph("mine")
    graph.fill(out, 1).wait(gate, 3).fill(out, 7)
    text = told(metal, graph.submit(), lambda: gate.set(3))
    made = capsule.capsule(text.encode())
    assert any("of the block at" in line for line in made.lines), made.lines
    stand = capsule_replay.replay(Trace.parse(made.content))
    assert stand.is_same and stand.block is not None and "EncodeWaitForEvent" in stand.packet


def test_a_text_that_is_too_long_is_left_out_and_said(
    metal: MetalDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "MOST_CODE_WORDS", 4)
    flag = metal.alloc(64, "flag")
    flag.write(bytes(64))
    late = metal.queue().dispatch(metal.load(MSL, "spin"), [flag]).submit()
    text = told(metal, late, lambda: native.view(flag.address, 4).__setitem__(slice(None), b"\1\0\0\0"))
    made = capsule.capsule(text.encode())
    assert any("left out: the text of spin" in line for line in made.lines)
    stand = capsule_replay.replay(Trace.parse(made.content))
    assert stand.is_same and stand.why == "it launches a kernel, whose text is not in the report"


def test_damaged_words_are_refused_or_read_within_bounds(metal: MetalDevice) -> None:
    gate, out = metal.signal("gate"), metal.alloc(4096, "out")
    queue = metal.queue().dispatch(metal.load(MSL, "add"), [out, 5], block=(64, 1, 1))
    text = told(metal, queue.wait(gate, 3).submit(), lambda: gate.set(3))
    rows = [row for row in text.splitlines() if row.startswith(("words", "----"))]
    changed = [
        "\n".join(rows).replace(old, new, 1)
        for old, new in (
            ("size 0x20", "size 0x1f"),
            ("size 0x20", "size 0xffffffff"),
            ("put 0x", "put 0xffffff"),
            ("METAL", "SDMA"),
            ("METAL", "GPFIFO"),
            ("gpu apple9", "gpu gfx1100"),
            ("00000e01", "ffffff01"),
            ("00000e01", "00000007"),
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


def test_a_device_that_is_done_has_no_words(metal: MetalDevice) -> None:
    metal.queue().fill(metal.alloc(64, "out"), 1).submit().wait(50_000)
    with pytest.raises(UsageError, match="not done"):
        words_in_reports.of_process({"devices": [state._device(metal, ["words"])]}, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="inspectors are answered on Linux alone")
def test_a_live_process_is_a_capsule(tmp_path: Path, trace: Any) -> None:
    before = config.current()
    config.use(dataclasses.replace(before, cache_dir=tmp_path))
    environ = {**os.environ, "HCQ_INSPECT": "1", "HCQ_EMULATE": "metal:m3", "HCQ_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", HANGS], env=environ, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"hangs\n"
            out = tmp_path / "live.hcqtrace"
            done = trace("capsule", "--live", child.pid, "-o", out)
            assert done.status == 0 and "hangs at EncodeWaitForEvent" in done.out, done
            assert trace("replay", out).out.startswith("stops at the same packet")
        finally:
            child.kill()
            config.use(before)
