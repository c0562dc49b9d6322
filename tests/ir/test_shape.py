"""Shapes: every tensor-stage op gives the sizes NumPy would, and malformed nodes are refused in a sentence."""

from __future__ import annotations

import re

import pytest

from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, Routine, Shape, const
from hcq.ir.op import Op

F = dtypes.float32


def leaf(*shape: int, dtype=F) -> Node:
    return Node(Op.PARAM, dtype, (), Param(0, shape))


def node(op: Op, *src: Node, arg=None, dtype=F) -> Node:
    return Node(op, dtype, src, arg)


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (const(1.0, F), ()),
        (Node(Op.IOTA, dtypes.int32, (), 5), (5,)),
        (leaf(2, 3), (2, 3)),
        (node(Op.ADD, leaf(2, 3), const(1.0, F)), (2, 3)),
        (node(Op.ADD, const(1.0, F), const(1.0, F)), ()),
        (node(Op.WHERE, leaf(2, dtype=dtypes.bool), const(1.0, F), leaf(2)), (2,)),
        (node(Op.RESHAPE, leaf(2, 3), arg=(6,)), (6,)),
        (node(Op.RESHAPE, leaf(0, 3), arg=(3, 0, 7)), (3, 0, 7)),
        (node(Op.RESHAPE, const(1.0, F), arg=(1, 1)), (1, 1)),
        (node(Op.PERMUTE, leaf(2, 3, 4), arg=(2, 0, 1)), (4, 2, 3)),
        (node(Op.EXPAND, leaf(1, 3), arg=(0, 3)), (0, 3)),
        (node(Op.PAD, leaf(2, 3), arg=((1, 0), (0, 2))), (3, 5)),
        (node(Op.SHRINK, leaf(9, 3), arg=((1, 8, 3), (2, 2, 1))), (3, 0)),
        (node(Op.FLIP, leaf(2, 3), arg=(0, 1)), (2, 3)),
        (node(Op.WINDOW, leaf(10, 4), arg=(0, 3, 2, 2)), (3, 4, 3)),
        (node(Op.WINDOW, leaf(2, 4), arg=(0, 3, 1, 1)), (0, 4, 3)),
        (node(Op.UNWINDOW, leaf(3, 4, 3), arg=(0, 10, 2, 2)), (10, 4, 3)),
        (node(Op.REDUCE_AXIS, leaf(2, 0, 4), arg=(Op.ADD, (0, 1))), (1, 1, 4)),
        (node(Op.GATHER, leaf(2, 9), leaf(2, 5, dtype=dtypes.int32), arg=1), (2, 5)),
        (node(Op.SCATTER_ADD, leaf(2, 9), leaf(2, 5, dtype=dtypes.int32), leaf(2, 5), arg=1), (2, 9)),
        (node(Op.SCATTER, leaf(2, 9), leaf(2, 5, dtype=dtypes.int32), leaf(2, 5), arg=1), (2, 9)),
        (node(Op.CAT, leaf(2, 9), leaf(2, 0), leaf(2, 5), arg=1), (2, 14)),
        (node(Op.SCAN_AXIS, leaf(2, 9), leaf(2, 1), arg=(Op.ADD, 1)), (2, 9)),
        (node(Op.BUCKET, leaf(2, 9, dtype=dtypes.int64), arg=(8, 4)), (2, 9)),
        (
            node(
                Op.BUCKET, leaf(2, 3, 3, dtype=dtypes.int64), leaf(2, 3, 16, dtype=dtypes.int32), arg=(8, 4)
            ),
            (2, 9),
        ),
        (node(Op.ROUTINE, leaf(2, 9), leaf(3), arg=Routine("lu", (2, 5), (2,))), (2, 5)),
        (node(Op.STORE, leaf(2), const(1.0, F)), (2,)),
    ],
)
def test_a_node_has_the_shape_its_op_promises(made: Node, shape: Shape):
    assert shape == made.shape


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (node(Op.ADD, leaf(2, 3), leaf(3)), "ADD((2, 3), (3,)): the sources' shapes differ"),
        (node(Op.RESHAPE, leaf(2, 3), arg=(7,)), "6 elements do not fill 7 places"),
        (node(Op.RESHAPE, leaf(2, 3), arg=(-1,)), "a tuple of sizes, 0 or more"),
        (node(Op.PERMUTE, leaf(2, 3), arg=(0, 0)), "name each of the 2 axes once"),
        (node(Op.EXPAND, leaf(2, 3), arg=(4, 3)), "axis 0 has size 2"),
        (node(Op.EXPAND, leaf(3), arg=(4, 3)), "must have 1 sizes"),
        (node(Op.PAD, leaf(2), arg=((-1, 0),)), "use SHRINK"),
        (node(Op.SHRINK, leaf(2), arg=((0, 3, 1),)), "0:3:1 is not 0 <= start <= stop <= 2"),
        (node(Op.FLIP, leaf(2, 3), arg=(1, 0)), "ascending"),
        (node(Op.WINDOW, leaf(2, 3), arg=(2, 1, 1, 1)), "no axis 2"),
        (node(Op.WINDOW, leaf(2, 3), arg=(1, 0, 1, 1)), "1 or more"),
        (node(Op.UNWINDOW, leaf(2, 3), arg=(1, 4, 1, 1)), "before the last"),
        (node(Op.REDUCE_AXIS, leaf(2, 3), arg=(Op.CMPLT, (0,))), "CMPLT does not reduce"),
        (node(Op.REDUCE_AXIS, leaf(2, 3), arg=(Op.ADD, (2,))), "among 0..1"),
        (node(Op.GATHER, leaf(2, 9), leaf(3, 5, dtype=dtypes.int32), arg=1), "differ outside axis 1"),
        (node(Op.CAT, leaf(2, 9), leaf(3, 9), arg=1), "differ outside axis 1"),
        (node(Op.SCAN_AXIS, leaf(2, 9), arg=(Op.MAX, 1)), "MAX does not scan"),
        (node(Op.SCAN_AXIS, leaf(2, 9), arg=(Op.ADD, 2)), "axis 2 must be one of the 2"),
        (node(Op.SCAN_AXIS, leaf(2, 9), leaf(2, 9), arg=(Op.ADD, 1)), "with size 1 along the axis"),
        (node(Op.BUCKET, leaf(9), arg=(0, 4)), "it needs (rows, n)"),
        (
            node(Op.BUCKET, leaf(2, 3, 3), leaf(2, 3, 8), arg=(0, 4)),
            "the counters are (rows, pieces, 2 ** bits)",
        ),
        (node(Op.CAT, arg=0), "it needs a part"),
        (node(Op.STORE, leaf(2), leaf(3)), "not the target's"),
        (node(Op.IOTA, arg=-1), "a count"),
        (node(Op.LOAD, leaf(2), leaf(3)), "LOAD has no shape"),
    ],
)
def test_a_malformed_node_is_refused_in_a_sentence(made: Node, sentence: str):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        _ = made.shape


def test_a_graph_deeper_than_the_python_stack_has_a_shape():
    deep = leaf(4)
    for _ in range(20_000):
        deep = node(Op.NEG, deep)
    assert (4,) == deep.shape
