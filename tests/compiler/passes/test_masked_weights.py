"""Masked weights: the exponential of -inf says that it is zero, and where."""

from __future__ import annotations

import math

from hcq.compiler.passes.masked_weights import masked_weights
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const, index
from hcq.ir.op import Op
from tests.compiler.building import param

ROW = Node(Op.RANGE, dtypes.index, (index(8),), 0)
KEY = Node(Op.RANGE, dtypes.index, (index(8),), 1)
SEEN = Node(Op.CMPLT, dtypes.bool, (KEY, ROW))


def load(place: Node) -> Node:
    return Node(Op.LOAD, dtypes.float32, (param(1, (8,)), place))


def total(value: Node) -> Node:
    made = Node(Op.REDUCE, dtypes.float32, (value, KEY), Op.ADD)
    return Node(Op.SINK, dtypes.float32, (Node(Op.STORE, dtypes.float32, (param(0, (8,)), ROW, made)),))


def weight(masked: Node, top: Node) -> Node:
    return Node(Op.EXP, dtypes.float32, (masked + top,))


def test_the_condition_of_a_score_becomes_that_of_its_weight() -> None:
    score, top = load(KEY), load(ROW)
    masked = SEEN.where(score, const(-math.inf, dtypes.float32))
    made = masked_weights.run(total(weight(masked, top)))
    assert made is total(SEEN.where(weight(score, top), const(0.0, dtypes.float32)))


def test_a_score_that_is_otherwise_a_number_is_left_alone() -> None:
    masked = SEEN.where(load(KEY), const(-100.0, dtypes.float32))
    kernel = total(weight(masked, load(ROW)))
    assert masked_weights.run(kernel) is kernel
