"""Schedules with threads: every transform keeps the result on a GPU, and says why it refuses."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from math import prod
from typing import Any

import pytest

import hcq
from hcq import config
from hcq.compiler.loops.loop_nest import LoopNest, ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.target import amd_target, nv_target
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from tests.compiler.building import check, expand, kernel, out, param, reduce
from tests.compiler.loops.test_loop_nest import KERNELS

GPUS = {
    "amd:gfx1100": ("AMD", amd_target("gfx1100")),
    "amd:gfx942": ("AMD:1", amd_target("gfx942")),
    "nv:sm_80": ("NV", nv_target("sm_80")),
}


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    before = config.current()
    config.use(dataclasses.replace(before, emulate=tuple(GPUS)))
    yield
    config.use(before)


@pytest.fixture(params=GPUS)
def gpu(request: pytest.FixtureRequest, machine: None) -> tuple[Any, Any]:
    name, target = GPUS[request.param]
    return hcq.open(name), target


def softmax() -> Node:
    x = param(1, (7, 150))
    e = Node(Op.EXP, x.dtype, (x + Node(Op.NEG, x.dtype, (expand(reduce(x, (1,), Op.MAX), 7, 150),)),))
    return kernel((out(0, (7, 150)), Node(Op.DIV, x.dtype, (e, expand(reduce(e, (1,)), 7, 150)))))


def halves() -> Node:
    x = param(1, (6, 90), dtypes.float16)
    return kernel((out(0, (6, 1), dtypes.float16), reduce(x, (1,), Op.MAX)))


def longs() -> Node:
    x = param(1, (200, 3), dtypes.int64)
    return kernel((out(0, (1, 3), dtypes.int64), reduce(x, (0,), Op.MAX)))


GPU_KERNELS = [*KERNELS, softmax, halves, longs]


def random_schedule(nest: LoopNest, rng: random.Random) -> str:
    """Transforms with threads that the nest accepts, tried at random."""
    for axes in ([a for a in nest.axes if not a.is_reduce], [a for a in nest.axes if a.is_reduce]):
        for a, b in zip(axes, axes[1:], strict=False):
            if rng.random() < 0.3 and nest.can_merge(a, b):
                nest.merge(a.name, b.name)
                break
    shares: dict[str, list[int]] = {}
    for axis in list(nest.axes):
        parts = [rng.choice([1, 1, 2, 4]), rng.choice([2, 4, 8, 32, 64]), rng.choice([1, 1, 2, 4])]
        while prod(parts) >= 2 * axis.size and max(parts) > 1:
            parts[parts.index(max(parts))] //= 2  # padding is not what takes the time
        if rng.random() < 0.8:
            nest.pad(axis.name, parts[0] * parts[1] * parts[2])
            shares[axis.name] = parts
    names = list(shares)
    rng.shuffle(names)
    for name in names:
        copies, threads, lanes = shares[name]
        axis = next(a for a in nest.axes if a.name == name)
        for size in (copies * threads * lanes, threads * lanes, lanes):
            if axis.loops[-1].size > size:
                nest.split(axis.loops[-1].name, size)
        taken = [loop.name for a in nest.axes for loop in a.threads]
        loops = [loop for loop in axis.loops if loop.stride < copies * threads * lanes]
        for loop in reversed(loops):
            tries = [("vectorize",), ("unroll",)] if loop.stride == 1 and lanes > 1 else [("unroll",)]
            if loop.stride == lanes and loop.size > 1:
                tries = [("thread", rng.choice(["", *taken])), ("thread", ""), ("unroll",)]
            for verb, *words in tries:
                try:
                    getattr(nest, verb)(loop.name, *words)
                    break
                except ScheduleError:
                    pass
    for axis in nest.axes:
        if rng.random() < 0.5 and axis.loops[0].kind == "serial" and not axis.is_reduce:
            nest.parallel(axis.loops[0].name)
    return nest.choice


@pytest.mark.parametrize("make", GPU_KERNELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_any_schedule_with_threads_computes_the_same(gpu: tuple[Any, Any], make: Any, seed: int) -> None:
    device, target = gpu
    sink = make()
    text = random_schedule(LoopNest(lower(sink, target)), random.Random(f"{seed} {target.arch}"))
    code = check(device, sink, text, target=target)
    assert code.choice == text
