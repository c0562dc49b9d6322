"""What is known of masks: which lanes of a condition are alike, whatever the index."""

from __future__ import annotations

import pytest

from hcq.compiler.linear.alignment import Alignment
from hcq.compiler.linear.program import Instruction
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op

LANES = 8


def number(value: int) -> Instruction:
    return Instruction(Op.CONST, dtypes.index, (), value, 0)


def spread(it: Instruction) -> Instruction:
    return Instruction(Op.BROADCAST, it.dtype.vec(LANES), (it,), None, 0)


def below(step: int, end: int) -> Instruction:
    """Whether i * step + lane is less than a number."""
    counter = Instruction(Op.SPECIAL, dtypes.index, (), "thread", 0)
    base = Instruction(Op.MUL, dtypes.index, (counter, number(step)), None, 0)
    lanes = Instruction(Op.VECTOR, dtypes.index.vec(LANES), tuple(number(i) for i in range(LANES)), None, 0)
    ramp = Instruction(Op.ADD, dtypes.index.vec(LANES), (spread(base), lanes), None, 0)
    return Instruction(Op.CMPLT, dtypes.bool.vec(LANES), (ramp, spread(number(end))), None, 0)


@pytest.mark.parametrize(
    ("step", "end", "alike"), [(8, 904, 8), (8, 900, 4), (4, 904, 4), (8, 902, 2), (8, 901, 1), (3, 904, 1)]
)
def test_lanes_are_alike_where_groups_of_them_end_where_the_range_ends(
    step: int, end: int, alike: int
) -> None:
    mask = below(step, end)
    assert Alignment().alike(mask) == alike
    groups = LANES // alike
    for i in range(2 * end // step):
        on = [i * step + lane < end for lane in range(LANES)]
        assert all(len(set(on[g * alike : (g + 1) * alike])) == 1 for g in range(groups))


def test_a_condition_of_all_lanes_leaves_the_other_one_as_it_is() -> None:
    row = Instruction(Op.CMPLT, dtypes.bool, (number(3), number(7)), None, 0)
    both = Instruction(Op.AND, dtypes.bool.vec(LANES), (spread(row), below(8, 900)), None, 0)
    assert Alignment().alike(both) == 4
    assert Alignment().alike(spread(row)) == LANES
