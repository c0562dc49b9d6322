"""Bounds under a condition: as narrow as an address proof needs, and never narrower than the truth."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from hcq.ir.conditional_bounds import bounds_given
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, const, index
from hcq.ir.op import Op
from hcq.ir.symbolic import simplify
from tests.ir.test_symbolic import SHAPE, conditions, evaluate, numbers


def counter(number: int, size: int) -> Node:
    return Node(Op.RANGE, dtypes.index, (index(size),), number)


A, B, C = counter(0, 5), counter(1, 4), counter(2, 3)
N = counter(3, 24)


def test_a_limited_sum_is_taken_out_of_a_larger_one():
    inside = (A + B > 0) & (A + B < 5)
    assert (0, 3) == bounds_given(A + B - 1, inside)
    assert (8, 11) == bounds_given(A + B + 7, inside)
    assert (0, 17) == bounds_given(simplify(A * 6 - C * 5 + B), (A - C > -1) & (A - C < 3))


def test_two_limited_sums_are_taken_out_of_one_address():
    height, width = A + C, B + counter(4, 3)
    inside = (height > 0) & (height < 6) & (width > 0) & (width < 5)
    assert (0, 19) == bounds_given(simplify((height - 1) * 4 + width - 1), inside)


def test_a_quotient_is_narrowed_through_what_it_divides():
    assert (1, 2) == bounds_given(N // 6, (N > 5) & (N < 18))
    assert (0, 1) == bounds_given(N // 2 - B, (N - B * 2 > -1) & (N - B * 2 < 4))


def test_each_branch_of_a_select_is_judged_under_its_condition():
    p = Node(Op.PARAM, dtypes.int64, (), Param(0, (24,)))
    loaded = Node(Op.CAST, dtypes.index, (Node(Op.LOAD, dtypes.int64, (p, N)),))
    inside = (loaded > -1) & (loaded < 5)
    shifted = Node(Op.CAST, dtypes.int64, (loaded + 6,))
    chosen = Node(Op.WHERE, dtypes.int64, (inside, shifted, const(0, dtypes.int64)))
    place = Node(Op.CAST, dtypes.index, (chosen + -1,))
    assert (-1, 9) == bounds_given(place, A < 9)


@settings(max_examples=120, deadline=None)
@given(numbers(3), conditions(2))
def test_bounds_hold_wherever_the_condition_does(place: Node, condition: Node):
    place, condition = simplify(place), simplify(condition)
    low, high = bounds_given(place, condition)
    within = np.broadcast_to(evaluate(condition), SHAPE)
    there = np.broadcast_to(evaluate(place), SHAPE)[within]
    assert ((low <= there) & (there <= high)).all()
