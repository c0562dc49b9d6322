"""Clocks: real devices tell time themselves; of an emulated GPU a model says what a real one would need."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from hcq import config
from hcq.compiler.compile import compile_kernel
from hcq.compiler.target import cpu_target, nv_target
from hcq.emu.port import port_for
from hcq.frontend.search.bench import Bench
from hcq.frontend.search.clock import Model, Timeline, clock_of
from hcq.ir.node import Node
from hcq.nv.device import NvDevice
from hcq.performance import counters
from tests.compiler.building import kernel, out, param

if TYPE_CHECKING:
    from hcq.device import Device


@pytest.fixture
def gpu() -> Iterator[Device]:
    before, listeners = config.current(), counters._listeners
    config.use(dataclasses.replace(before, emulate=("nv:sm_80",)))
    opened = NvDevice("NV", port_for(["nv:sm_80"]))
    yield opened
    opened.close()
    config.use(before)
    counters._listeners = listeners


def copy(n: int = 64) -> Node:
    return kernel((out(0, (n, n)), param(1, (n, n)) + 1.0))


def test_the_cpu_tells_the_time_of_each_run(device: Device) -> None:
    sink = copy()
    code = compile_kernel(sink, cpu_target())
    bench = Bench(device, sink, code)
    assert isinstance(bench.clock, Timeline) and bench.clock.runs(5) == 5
    assert bench.one(code) > 0


@pytest.mark.own_devices
def test_a_model_gives_the_same_time_twice_and_a_longer_one_for_scattered_loads(gpu: Device) -> None:
    sink = copy(1024)
    target = nv_target("sm_80")
    good = compile_kernel(sink, target)
    bad = compile_kernel(sink, target, schedule="pad r0 64; pad r1 2; thread r0; split r1 2; parallel r1")
    bench = Bench(gpu, sink, good)
    assert isinstance(clock_of(gpu), Model) and bench.clock.runs(5) == 1
    first, second, scattered = bench.one(good), bench.one(good), bench.one(bad)
    assert 0 < first == second < scattered
