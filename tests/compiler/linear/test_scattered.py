"""Stores along a range that is far apart in memory: a short loop over the lanes, whatever else is read there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import lower
from hcq.compiler.target import cpu_target
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from tests.compiler.building import check, expand, kernel, out, param, permute, reduce, reshape
from tests.compiler.loops.test_loop_nest import stepped_weight

if TYPE_CHECKING:
    from hcq.device import Device

TILES = "split r0 {rows}; unroll r0.1; split r1 {across}; split r1.1 {lanes}; vectorize r1.2; unroll r1.1"


def masked_sum() -> Node:
    """A sum over channels that only counts where something else in memory is above zero: the slope of a relu."""
    x, w, seen = param(1, (5, 40, 7)), param(2, (40, 48)), param(3, (5, 48, 1, 7))
    wide = expand(reshape(x, 5, 1, 40, 7), 5, 48, 40, 7) * expand(
        reshape(permute(w, 1, 0), 1, 48, 40, 1), 5, 48, 40, 7
    )
    value = reduce(wide, (2,))
    above = Node(Op.CMPLT, dtypes.bool, (Node(Op.CONST, dtypes.float32, (), 0.0), seen))
    return kernel((out(0, (5, 48, 1, 7)), above.where(value, 0.0)))


def lines_of(sink: Node, text: str) -> int:
    return len(linearize(LoopNest(lower(sink, cpu_target())).apply(text), "kernel").instructions)


@pytest.mark.parametrize("rows,across,lanes", [(1, 16, 16), (5, 32, 16), (13, 24, 8), (7, 8, 4), (8, 64, 16)])
def test_a_step_behind_a_sum_is_right_for_every_tile(
    device: Device, rows: int, across: int, lanes: int
) -> None:
    check(device, stepped_weight(), TILES.format(rows=rows, across=across, lanes=lanes))


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_rows_along_memory_that_are_shorter_than_the_lanes_are_walked_too(device: Device, lanes: int) -> None:
    check(
        device,
        masked_sum(),
        f"unroll r2; split r1 {2 * lanes}; split r1.1 {lanes}; vectorize r1.2; unroll r1.1",
    )


def test_a_step_behind_a_sum_takes_no_line_for_each_lane() -> None:
    small, large = (lines_of(stepped_weight(), TILES.format(rows=n, across=32, lanes=16)) for n in (3, 11))
    sums = 2 * (
        11 - 3
    )  # more accumulators in the large one: each has some lines of its own, and one to scratch
    assert large - small <= 4 * 8 * sums  # in four copies of the body, for whole and partial tiles
