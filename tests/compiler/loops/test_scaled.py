"""Factors whose blocks have scales: which products matrix units take with them, and which threads do."""

from __future__ import annotations

from typing import Any

import pytest

import hcq
from hcq.compiler.loops.heuristic_gpu import choose
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import units_for
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import build, lower
from hcq.compiler.target import amd_target, nv_target
from hcq.ir.block_scales import BLOCK, scales
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from tests.compiler.building import check, expand, kernel, matmul, out, param, permute, reshape
from tests.compiler.emulated_gpus import machine_of

E4, E5 = dtypes.fp8e4m3, dtypes.fp8e5m2
TARGET = amd_target("gfx950")

machine = machine_of("amd:gfx950:cu=4")


def scaled(number: int, rows: int, k: int, dtype: DType, block: int = BLOCK) -> Node:
    """(rows, k) of narrow floats times the scales of their blocks; parameters `number` and the one after it."""
    wide = Node(Op.CAST, dtypes.float32, (param(number, (rows, k), dtype),))
    exponents = Node(Op.CAST, dtypes.int32, (param(number + 1, (rows, k // block), dtypes.uint8),))
    powers = expand(reshape(scales(exponents), rows, k // block, 1), rows, k // block, block)
    return reshape(reshape(wide, rows, k // block, block) * powers, rows, k)


def product(
    m: int, n: int, k: int, a: DType = E4, b: DType = E4, of_a: int = BLOCK, of_b: int = BLOCK
) -> Node:
    """Of two such; of_a, of_b: the sizes of blocks, 0 for a factor without scales."""
    left = scaled(1, m, k, a, of_a) if of_a else Node(Op.CAST, dtypes.float32, (param(1, (m, k), a),))
    next_one = 3 if of_a else 2
    right = (
        scaled(next_one, n, k, b, of_b)
        if of_b
        else Node(Op.CAST, dtypes.float32, (param(next_one, (n, k), b),))
    )
    return kernel((out(0, (m, 1, n)), matmul(left, permute(right, 1, 0))))


def source_of(sink: Node) -> tuple[str, str]:
    """The schedule and LLVM's text."""
    shown: dict[str, str] = {}
    code = build(sink, TARGET, show=shown.__setitem__)
    return code.choice, shown["code"]


@pytest.mark.parametrize("a,b", [(E4, E4), (E5, E4)], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(70, 90, 288), (256, 256, 512), (16, 40, 64)], ids=str)
def test_scales_of_both_factors_go_into_the_instruction(shape: Any, a: DType, b: DType) -> None:
    choice, text = source_of(product(*shape, a, b))
    assert any(f" {unit.name};" in choice for unit in units_for("gfx950", a, b, frozenset(), True))
    assert "mfma.scale" in text and "ldexp" not in text and "fmul" not in text


@pytest.mark.parametrize("of", [(BLOCK, 0), (0, BLOCK)], ids=["a", "b"])
def test_a_factor_without_scales_has_those_of_one(machine: None, of: tuple[int, int]) -> None:
    sink = product(40, 36, 160, of_a=of[0], of_b=of[1])
    assert "i32 127" in source_of(sink)[1]
    check(hcq.open("AMD"), sink, target=TARGET)


@pytest.mark.parametrize("of", [64, 96], ids=str)
def test_blocks_that_are_several_of_the_units_own_are_taken_too(machine: None, of: int) -> None:
    sink = product(40, 36, 192, of_a=of)
    assert "mfma" in check(hcq.open("AMD"), sink, target=TARGET).choice


def test_smaller_blocks_are_for_threads(machine: None) -> None:
    sink = product(40, 36, 96, of_a=16)
    assert "matrix" not in check(hcq.open("AMD"), sink, target=TARGET).choice
    nest, inner = LoopNest(lower(sink, TARGET)), []
    for outer, _ in zip(
        reduced := [axis.name for axis in nest.axes if axis.is_reduce], range(len(reduced) - 1)
    ):
        nest.join(outer, reduced[-1])
    sizes = {"r0": 16, "r1": 16, reduced[-1]: 128}
    for name, size in sizes.items():
        nest.pad(name, size)
    for name, size in sizes.items():
        if nest.loop(name).size > size:
            nest.split(name, size)
        inner.append(next(axis for axis in nest.axes if axis.name == name).loops[-1].name)
    with pytest.raises(ScheduleError, match=r"not of such blocks as mfma16x128\.e4m3 takes"):
        nest.matrix(*inner, "mfma16x128.e4m3")


def test_gpus_whose_units_take_no_scales_multiply_them_out(machine: None) -> None:
    for target in (amd_target("gfx942"), nv_target("sm_90")):
        assert not units_for(target.arch, E4, E4, target.flags, True)
        assert "matrix" not in choose(LoopNest(lower(product(64, 64, 128), target)), target).choice
