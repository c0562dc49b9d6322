"""Any legal schedule computes what the kernel means: random ones on emulated GPUs, beside the interpreter."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from hcq.compiler.linear.linearize import linearize
from hcq.compiler.linear.memory import MOST_SHARED
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.target import amd_target, metal_target, nv_target
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from tests.compiler.building import (
    check,
    conv,
    expand,
    kernel,
    matmul,
    out,
    pad,
    param,
    permute,
    reduce,
    window,
)
from tests.compiler.emulated_gpus import gpu_of, machine_of
from tests.compiler.loops.random_gpu_schedules import random_gpu_schedule, without_copies

GPUS = {
    "amd:gfx1100": ("AMD", amd_target("gfx1100")),
    "amd:gfx942": ("AMD:1", amd_target("gfx942")),
    "nv:sm_80": ("NV", nv_target("sm_80")),
    "nv:sm_90": ("NV:1", nv_target("sm_90")),
    "metal:m3": ("METAL", metal_target("apple9")),
}

machine = machine_of(*GPUS)
gpu = gpu_of(GPUS, thorough=["metal:m3"])


def product() -> Node:
    return kernel((out(0, (13, 1, 21)), matmul(param(1, (13, 19)), param(2, (19, 21)))))


def turned_product() -> Node:
    return kernel((out(0, (13, 1, 21)), matmul(param(1, (13, 19)), permute(param(2, (21, 19)), 1, 0))))


def narrow(dtype: DType) -> Node:
    a, b = [
        Node(Op.CAST, dtypes.float32, (param(i, shape, dtype),))
        for i, shape in ((1, (21, 40)), (2, (40, 18)))
    ]
    return kernel((out(0, (21, 1, 18)), matmul(a, b)))


def halves() -> Node:
    return narrow(dtypes.float16)


def brain_floats() -> Node:
    return narrow(dtypes.bfloat16)


def convolution() -> Node:
    value = conv(param(1, (2, 3, 5, 7)), param(2, (6, 3, 3, 3)), padding=1)
    return kernel((out(0, value.shape), value))


def pooling() -> Node:
    x = window(window(param(1, (3, 5, 8, 18)), 2, 2, 2), 3, 2, 2)
    return kernel((out(0, (3, 5, 4, 9, 1, 1)), reduce(x, (4, 5), Op.MAX)))


def spread(x: Node, *shape: int) -> Node:
    return expand(x, *shape)


def exponentials(x: Node) -> Node:
    return Node(Op.EXP, x.dtype, (x + Node(Op.NEG, x.dtype, (spread(reduce(x, (1,), Op.MAX), *x.shape),)),))


def softmax() -> Node:
    e = exponentials(param(1, (7, 50)))
    return kernel((out(0, (7, 50)), Node(Op.DIV, e.dtype, (e, spread(reduce(e, (1,)), 7, 50)))))


def twice_folded() -> Node:
    """A row reduced, and then, with that, reduced again."""
    return kernel((out(0, (9, 1)), reduce(exponentials(param(1, (9, 45))), (1,))))


def centred() -> Node:
    """Two results along a row, with different reductions of it."""
    x = param(1, (6, 33))
    low, high = (spread(reduce(x, (1,), how), 6, 33) for how in (Op.ADD, Op.MAX))
    return kernel((out(0, (6, 33)), x * low), (out(2, (6, 33)), x + high))


def columns() -> Node:
    return kernel((out(0, (1, 45)), reduce(pad(param(1, (30, 40)), (1, 2), (3, 2)), (0,))))


def greatest_longs() -> Node:
    return kernel((out(0, (1, 3), dtypes.int64), reduce(param(1, (100, 3), dtypes.int64), (0,), Op.MAX)))


def turned() -> Node:
    return kernel((out(0, (9, 5, 17)), permute(param(1, (17, 9, 5)), 1, 2, 0) * 2.0))


def updated() -> Node:
    """A sum that goes into what is overwritten, as an optimizer does it."""
    w, g = out(0, (5, 1)), param(1, (5, 70))
    return kernel((w, w + reduce(g, (1,)) * -0.5))


KERNELS: list[Callable[[], Node]] = [
    product, turned_product, halves, brain_floats, convolution, pooling, softmax, twice_folded, centred, columns,
    greatest_longs, turned, updated,
]  # fmt: skip


def run_random(gpu: tuple[Any, Any], make: Callable[[], Node], seed: int) -> None:
    device, target = gpu
    sink = make()
    rng = random.Random(f"{seed} {make.__name__} {target.arch}")
    text = random_gpu_schedule(lambda: LoopNest(lower(sink, target)), target, rng)
    for tried in (text, without_copies(text)):
        try:
            nest = LoopNest(lower(sink, target)).apply(tried)
            linearize(nest, "k", MOST_SHARED, target.wave_copy_bytes)
        except (
            ScheduleError
        ) as refusal:  # tiles that are too large or cut short, ranges that a unit's do not hold
            assert str(refusal).startswith(("stage: ", "matrix: ", "pipeline: "))
            continue
        code = check(device, sink, tried, target=target)
        assert code.choice == tried
        return


@pytest.mark.sampled(14)
@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
def test_a_random_schedule_computes_what_the_kernel_means(
    gpu: tuple[Any, Any], make: Callable[[], Node]
) -> None:
    run_random(gpu, make, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("seed", range(1, 25))
def test_many_random_schedules_compute_what_the_kernel_means(
    gpu: tuple[Any, Any], make: Callable[[], Node], seed: int
) -> None:
    run_random(gpu, make, seed)
