"""HCQ_PROFILE=1: every dispatch is timed on the device, replays of graphs included."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from hcq import config
from hcq.cpu.device import CpuDevice
from hcq.graph import Symbol
from hcq.observe import observer
from hcq.observe.profile import Profile


def test_every_dispatch_is_timed_once(llvm_object: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    device = CpuDevice("CPU:timed", config=dataclasses.replace(config.current(), profile=True))
    step = device.load(llvm_object, "step", args=("buffer", "int"), name="step")
    jump = device.load(llvm_object, "jump", name="jump")
    out = device.alloc(16)
    out.write(bytes(16))
    unsubmitted = device.queue().dispatch(jump, [out, 1])
    for _ in range(5000):
        device.queue().dispatch(step, [out, 1]).submit()
    graph = device.graph().fill(out, 0, 8)
    for _ in range(3):
        graph.dispatch(step, [Symbol("out"), Symbol("k", "int")])
    for k in range(10):
        graph.replay({"out": out, "k": k})
    assert struct.unpack("<q", out.read(0, 8)) == (13 * 9,)
    profile = observer(device, Profile)
    profile.collect()
    assert {name: calls for name, (calls, _) in profile.totals.items()} == {"step": 5030}
    unsubmitted.submit()
    device.close()
    said = capsys.readouterr().err
    assert "hcq CPU:timed: time on the device" in said
    lines = {line.split()[-1]: line.split() for line in said.splitlines()[2:]}
    assert lines["step"][2] == "5030"
    assert lines["jump"][2] == "1"
    assert float(lines["step"][0]) > 0
