"""The verifier: a graph that breaks a law of its stage is named with the stage, the node and the law."""

from __future__ import annotations

import re

import pytest

from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, Routine, const, index
from hcq.ir.op import Op
from hcq.ir.verify import VerifyError, verify

F, INT, BOOL, INDEX = dtypes.float32, dtypes.int32, dtypes.bool, dtypes.index
A = Node(Op.RANGE, INDEX, (index(4),), 0)
B = Node(Op.RANGE, INDEX, (index(6),), 1)
P = Node(Op.PARAM, F, (), Param(1, (4, 6)))
OUT = Node(Op.PARAM, F, (), Param(0, (4, 6), True))
X = Node(Op.LOAD, F, (P, A * 6 + B))


def node(op: Op, *src: Node, arg=None, dtype=F) -> Node:
    return Node(op, dtype, src, arg)


def kernel(value: Node, place: Node = A * 6 + B, target: Node = OUT) -> Node:
    return node(Op.SINK, node(Op.STORE, target, place, value))


def test_lawful_graphs_pass_without_notes():
    assert [] == verify(kernel(X + 1.0), "kernel")
    assert [] == verify(kernel(node(Op.REDUCE, X, B, arg=Op.ADD), A), "kernel")
    assert [] == verify(node(Op.SINK, node(Op.STORE, OUT, P + 1.0)), "tensor")


@pytest.mark.parametrize(
    ("root", "law"),
    [
        (
            kernel(node(Op.EXPAND, X, arg=(4,))),
            "kernel stage: EXPAND(LOAD) float32 (4,): this op is not allowed here",
        ),
        (kernel(node(Op.ADD, X, const(1, INT))), "the dtype is float32, the source's int32"),
        (kernel(node(Op.ADD, const(1, INT), X)), "the sources' dtypes differ: int32 and float32"),
        (kernel(node(Op.ADD, X)), "takes 2 sources, has 1"),
        (kernel(node(Op.CMPLT, X, X)), "a comparison is bool"),
        (kernel(node(Op.WHERE, X, X, X)), "the condition is float32, not bool"),
        (kernel(node(Op.FLOORDIV, X, X)), "computes with integers"),
        (kernel(node(Op.SQRT, const(1, INT), dtype=INT).cast(F)), "computes with floats"),
        (kernel(node(Op.CONST, arg=81)), "holds a Python float, not 81"),
        (kernel(node(Op.CONST, arg=300, dtype=dtypes.uint8).cast(F)), "300 is not a uint8"),
        (kernel(node(Op.LOAD, P, const(1, INT))), "the index is int32, not index"),
        (kernel(node(Op.LOAD, P, A, A)), "the condition is index, not bool"),
        (kernel(node(Op.LOAD, P, A * 6 + B + 1)), "p1[r0*6 + r1 + 1] may be 1..24 of 24 elements"),
        (kernel(X, A * 7 + B), "may be 0..26 of 24"),
        (kernel(X, target=P), "p1, which is not writable"),
        (kernel(node(Op.LOAD, P, Node(Op.RANGE, INDEX, (index(3),), 0)) + X), "two RANGEs have the number 0"),
        (
            kernel(node(Op.LOAD, node(Op.PARAM, arg=Param(1, (9,))), A) + X),
            "two different PARAMs have the index 1",
        ),
        (kernel(node(Op.REDUCE, X, B, B, arg=Op.ADD), A), "reduces over one RANGE twice"),
        (kernel(node(Op.REDUCE, X, B, arg=Op.ADD)), "depends on a RANGE that is reduced over"),
        (kernel(node(Op.REDUCE, X, B, arg=Op.XOR), A), "XOR does not reduce"),
        (kernel(node(Op.SCAN, X, A, arg=Op.ADD)), "takes a value, an ordered RANGE"),
        (kernel(node(Op.SCAN, X, A, arg=Op.MAX)), "MAX does not scan"),
        (kernel(node(Op.BITCAST, X, dtype=dtypes.int64).cast(F)), "differ in size"),
        (kernel(node(Op.NEG, X.cast(dtypes.fp8e4m3), dtype=dtypes.fp8e4m3).cast(F)), "for storage"),
    ],
)
def test_a_kernel_that_breaks_a_law_is_named(root: Node, law: str):
    with pytest.raises(VerifyError, match=re.escape(law)):
        verify(root, "kernel")


@pytest.mark.parametrize(
    ("root", "law"),
    [
        (node(Op.STORE, P, P), "not a writable PARAM"),
        (node(Op.STORE, OUT, P.cast(INT)), "stores int32 into float32"),
        (node(Op.ADD, P, node(Op.RESHAPE, P, arg=(24,))), "tensor stage: ADD(PARAM, RESHAPE) float32"),
        (node(Op.RESHAPE, P, arg=(24,), dtype=INT), "the dtype is int32, the source's float32"),
        (node(Op.GATHER, P, P, arg=0), "the index is float32"),
        (node(Op.SCATTER, P, P, P, arg=0), "the index is float32"),
        (node(Op.BUCKET, P, arg=(0, 8)), "float32 has no bits 0 to 7"),
        (node(Op.BUCKET, P.cast(INT), arg=(28, 8), dtype=INT), "int32 has no bits 28 to 35"),
        (node(Op.ROUTINE, P, arg="lu"), "has sources, and the argument Routine"),
        (node(Op.ROUTINE, P.cast(INT), arg=Routine("lu", (9,), (1,))), "a source's int32"),
        (A, "this op is not allowed here"),
    ],
)
def test_a_tensor_graph_that_breaks_a_law_is_named(root: Node, law: str):
    with pytest.raises(VerifyError, match=re.escape(law)):
        verify(root, "tensor")


def test_a_condition_may_prove_an_address():
    inside = node(Op.AND, A + B > 0, A + B < 7, dtype=BOOL)
    small = node(Op.PARAM, arg=Param(2, (6,)))
    assert [] == verify(kernel(node(Op.LOAD, small, A + B - 1, inside)), "kernel")


def test_an_address_that_cannot_be_proved_is_a_note():
    small = node(Op.PARAM, arg=Param(2, (6,)))
    notes = verify(kernel(node(Op.LOAD, small, A + B, (A * B < 3))), "kernel")
    assert notes == ["p2[r0 + r1] may be 0..8 of 6 elements if r0*r1 < 3"]


def test_an_unknown_stage_is_refused():
    with pytest.raises(ValueError, match="tensor, kernel, linear"):
        verify(P, "assembly")
