"""Weights of attention by the GPU's instruction: as exact as a narrow result can tell, and maxima that are the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hcq.compiler.passes.weights import scaled_top, weight
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const, toposort
from hcq.ir.op import Op
from tests.interpreter.evaluate import evaluate

DTYPE = dtypes.float32
SCALE = 0.125


def leaf(place: int) -> Node:
    return Node(Op.PARAM, DTYPE, (), place)


def compute(node: Node, *arrays: np.ndarray) -> np.ndarray:
    return evaluate([node], lambda given: arrays[given.arg])[0]


@pytest.mark.parametrize(("most", "bits"), [(30, 17), (1000, 12)])
def test_a_weight_is_exact_to_so_many_bits_for_scores_up_to_that(most: int, bits: int) -> None:
    draw = np.random.default_rng(0)
    scores = draw.uniform(-most / SCALE, most / SCALE, 4096).astype(np.float32)
    top = np.full_like(scores, (scores * np.float32(SCALE)).max())
    x, y = leaf(0), leaf(1)
    found = compute(weight(x * const(SCALE, DTYPE) + Node(Op.NEG, DTYPE, (y,))), scores, top)
    exact = np.exp(scores.astype(np.float64) * SCALE - top.astype(np.float64))
    kept = exact > 2.0**-100
    assert kept.sum() > 10
    assert (np.abs(found[kept] / exact[kept] - 1) < 2.0**-bits).all()


def test_a_weight_without_a_scale_is_one_multiplication_and_the_instruction() -> None:
    made = weight(leaf(0) + leaf(1))
    assert [node.op for node in toposort((made,)) if node.op not in (Op.PARAM, Op.CONST)] == [
        Op.ADD,
        Op.MUL,
        Op.EXP2,
    ]


def test_a_scale_stands_outside_of_a_maximum_where_it_is_greater_than_zero() -> None:
    place = Node(Op.RANGE, dtypes.index, (), (8, 0))
    inner = leaf(0)
    for scale, moves in ((SCALE, True), (-SCALE, False), (math.inf, False)):
        top = Node(Op.REDUCE, DTYPE, (inner * const(scale, DTYPE), place), Op.MAX)
        after = scaled_top(top)
        assert (after is not None) is moves
        if after is not None:
            assert after.op is Op.MUL
            assert after.src[0].src[0] is inner
