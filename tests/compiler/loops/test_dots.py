"""Dot products of processors: any schedule with one computes the same, and says why it refuses."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.dot_units import DOTS, DotUnit, dots_of
from hcq.compiler.loops.heuristic import choose
from hcq.compiler.loops.loop_nest import LoopNest, ScheduleError
from hcq.compiler.render import llvm
from hcq.compiler.target import Target, cpu_target
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from tests.compiler.building import check, conv, kernel, matmul, out, param, permute, run
from tests.compiler.loops.test_loop_nest import nest_of, random_schedule

if TYPE_CHECKING:
    from hcq.device import Device

FLAGS = cpu_target().flags
UNITS = list(DOTS.values())
INTEGERS = (dtypes.int8, dtypes.uint8, dtypes.int16)


def product(a: DType, b: DType, result: DType, shape: tuple[int, int, int], turned: str = "") -> Node:
    """(m, k) @ (k, n); "a" or "b" in `turned` lies in memory the other way round."""
    m, k, n = shape
    x = permute(param(1, (k, m), a), 1, 0) if "a" in turned else param(1, (m, k), a)
    y = permute(param(2, (n, k), b), 1, 0) if "b" in turned else param(2, (k, n), b)
    x, y = (Node(Op.CAST, result, (side,)) for side in (x, y))
    return kernel((out(0, (m, 1, n), result), matmul(x, y)))


def convolution(a: DType, b: DType, result: DType) -> Node:
    x, w = (
        Node(Op.CAST, result, (param(number, shape, dtype),))
        for number, shape, dtype in ((1, (2, 6, 9, 11), a), (2, (20, 6, 3, 3), b))
    )
    value = conv(x, w, padding=0)
    return kernel((out(0, value.shape, result), value))


def random_kernel(unit: DotUnit, rng: random.Random) -> Node:
    a, b = unit.a, unit.b
    if a is dtypes.int16:  # narrower ones are widened
        a, b = rng.choice(INTEGERS), rng.choice(INTEGERS)
    if rng.random() < 0.3:
        return convolution(a, b, unit.result)
    shape = rng.choice([(33, 47, 70), (5, 64, 19), (16, 6, 40)])
    return product(a, b, unit.result, shape, rng.choice(["", "a", "b", "ab"]))


@pytest.mark.sampled(40)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
@pytest.mark.parametrize(
    "seed", [*range(12), *[pytest.param(seed, marks=pytest.mark.thorough) for seed in range(12, 60)]]
)
def test_any_schedule_with_dot_products_computes_the_same(device: Device, unit: DotUnit, seed: int) -> None:
    if not unit.flags <= FLAGS:
        pytest.skip(f"this processor has not all of: {', '.join(sorted(unit.flags))}")
    rng = random.Random(seed)
    sink = random_kernel(unit, rng)

    def begin(nest: LoopNest) -> None:
        deep = rng.choice([axis for axis in nest.axes if axis.is_reduce and axis.size >= unit.depth])
        if deep.size > unit.depth:
            nest.split(deep.name, unit.depth)
        nest.dot(deep.loops[-1].name, unit.name)

    text = random_schedule(nest_of(sink), rng, begin)
    assert check(device, sink, text).choice == text


@pytest.mark.sampled(6)
@pytest.mark.parametrize("turned", ["", "a", "b"])
@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.int8, dtypes.uint8, dtypes.int16])
def test_the_heuristics_products_of_narrow_numbers_are_right(
    device: Device, dtype: DType, turned: str
) -> None:
    result = dtypes.float32 if dtype.is_float else dtypes.int32
    for shape in ((40, 128, 96), (33, 67, 50)):
        check(device, product(dtype, dtype, result, shape, turned))


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8])
def test_products_of_the_largest_bytes_are_exact(device: Device, dtype: DType) -> None:
    sink = product(dtype, dtype, dtypes.int32, (32, 256, 64))
    least, most = (-128, 127) if dtype is dtypes.int8 else (0, 255)
    rng = np.random.default_rng(0)
    kind = np.int8 if dtype is dtypes.int8 else np.uint8
    a, b = (rng.choice([least, most], shape).astype(kind) for shape in ((32, 256), (256, 64)))
    arrays = [np.zeros((32, 1, 64), np.int32), a, b]
    got, _ = run(device, sink, arrays)
    np.testing.assert_array_equal(got[0][:, 0], a.astype(np.int32) @ b.astype(np.int32))


def test_bytes_of_the_same_sign_are_flipped_where_a_unit_wants_two_signs() -> None:
    target = Target("cpu", "x86_64", "vnni", 1, 512, 32, flags=DOTS["vnni512"].flags)
    for dtype in (dtypes.int8, dtypes.uint8):
        nest = choose(nest_of(product(dtype, dtype, dtypes.int32, (64, 64, 64))), target)
        assert "flip" in nest.choice and "dot r2.1 vnni512" in nest.choice


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_unit_has_a_spelling_for_any_number_of_lanes(unit: DotUnit) -> None:
    for lanes in (1, 2, 4, 16, 64):
        nest = nest_of(product(unit.a, unit.b, unit.result, (2, unit.depth, lanes)))
        if lanes > 1:
            nest.vectorize("r1")
        nest.dot(nest.axes[-1].name, unit.name)
        assert "declare" in llvm.render(linearize(nest, "spelt"), cpu_target())


def test_units_are_those_of_the_processor() -> None:
    assert dots_of(frozenset()) == []
    assert [unit.name for unit in dots_of(frozenset({"sse2", "avx2"}))] == ["madd256", "madd128"]


def test_what_is_no_dot_product_is_refused() -> None:
    bytes_only = nest_of(product(dtypes.int8, dtypes.int8, dtypes.int32, (8, 16, 16))).split("r2", 4)
    with pytest.raises(ScheduleError, match="no such unit; there are dpbf16"):
        bytes_only.dot("r2.1", "abacus")
    with pytest.raises(ScheduleError, match="the unit multiplies uint8 by int8"):
        bytes_only.dot("r2.1", "vnni512")
    with pytest.raises(ScheduleError, match="not an innermost, unbound loop of 2 steps"):
        bytes_only.dot("r2.1", "madd128")
    with pytest.raises(ScheduleError, match="only merges, fuses and pads come before"):
        bytes_only.flip(0)
    with pytest.raises(ScheduleError, match="no factor of 8 bits"):
        nest_of(product(dtypes.int16, dtypes.int8, dtypes.int32, (8, 16, 16))).flip(0)
    nest = nest_of(product(dtypes.int16, dtypes.int16, dtypes.int32, (8, 16, 16))).split("r2", 2).stage(0)
    with pytest.raises(ScheduleError, match="comes before stages"):
        nest.dot("r2.1", "madd128")
