"""A signal's handler that raises inside a submission, at any of its lines: the work is done whole, or not at all."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from hcq.cpu.device import CpuDevice
from hcq.graph import Symbol
from tests.campaigns.interrupts import Alarm, Interrupt
from tests.hcq.gpu.conftest import Open, open_amd, open_gpu, open_nv, vendor  # noqa: F401
from tests.hcq.gpu.kernels import image


def lines_of(act: Callable[[], object]) -> int:
    counting = Interrupt(0)
    with counting:
        act()
    return counting.lines


def is_whole_or_nothing(read: Callable[[], int], act: Callable[[], object], stride: int) -> None:
    """Each act adds one; so does one that is interrupted, or it adds nothing. The next one always does."""
    act()
    lines = lines_of(act)
    value = read()
    for at in range(1, lines + 1, stride):
        interrupt = Interrupt(at)
        try:
            with interrupt:
                act()
        except Alarm:
            pass
        found = read()
        assert found in (value, value + 1), interrupt.where
        act()
        value = read()
        assert value == found + 1, interrupt.where


@pytest.mark.parametrize("stride", [19, pytest.param(5, marks=pytest.mark.thorough)])
def test_a_submission_and_a_replay_on_the_cpu_are_whole_or_nothing(
    cpu: CpuDevice, llvm_object: bytes, stride: int
) -> None:
    out = cpu.alloc(16)
    program = cpu.load(llvm_object, "static_data")  # stores how often it has run

    def read() -> int:
        return int(struct.unpack_from("<q", out.read())[0])

    is_whole_or_nothing(read, lambda: cpu.queue().dispatch(program, [out]).submit(), stride)
    graph = cpu.graph("counted").dispatch(program, [Symbol("out")])
    is_whole_or_nothing(read, lambda: graph.replay({"out": out}), stride)


def test_a_submission_and_a_replay_on_a_gpu_are_whole_or_nothing(open_gpu: Open) -> None:  # noqa: F811
    gpu = open_gpu(validate=False)
    out = gpu.alloc(256)
    out.write(bytes(256))
    program = gpu.load(image(gpu), "increment")

    def read() -> int:
        found = set(struct.unpack("<64I", out.read()))
        assert len(found) == 1
        return int(found.pop())

    is_whole_or_nothing(
        read, lambda: gpu.queue().dispatch(program, [out], block=(64, 1, 1)).submit(), stride=61
    )
    graph = gpu.graph("counted").dispatch(program, [Symbol("out")], block=(64, 1, 1))
    is_whole_or_nothing(read, lambda: graph.replay({"out": out}), stride=61)
