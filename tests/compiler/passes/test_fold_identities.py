"""Folding: identities disappear, and no value changes in any format, special values included."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hcq.compiler.passes.fold_identities import fold_identities, holds
from hcq.ir.dtype import ALL, DType, Scalar, dtypes, from_bits, to_bits, truncate
from hcq.ir.meaning import apply
from hcq.ir.node import Node, Param, const, toposort
from hcq.ir.op import COMPARE, Op

F, INT, BOOL = dtypes.float32, dtypes.int32, dtypes.bool


def leaf(number: int, dtype: DType = F) -> Node:
    return Node(Op.PARAM, dtype, (), Param(number, ()))


A, B = leaf(0), leaf(1)
I, J = leaf(2, INT), leaf(3, INT)
P, Q = leaf(4, BOOL), leaf(5, BOOL)


def node(op: Op, *src: Node, dtype: DType | None = None) -> Node:
    return Node(op, dtype or src[-1].dtype, src)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (A * 1.0, A),
        (A + -0.0, A),
        (A + 0.0, A + 0.0),
        (A * 0.0, A * 0.0),
        (I * 0, const(0, INT)),
        (I + 0, I),
        (const(0, INT) + I, I),
        (I + 3 + 4, I + 7),
        (I + 2147483647 + 1, I + -2147483648),
        (A + 3.0 + 4.0, A + 3.0 + 4.0),
        (node(Op.DIV, A, const(4.0, F)), A * 0.25),
        (node(Op.DIV, A, const(3.0, F)), node(Op.DIV, A, const(3.0, F))),
        (I // 8, node(Op.SHR, I, const(3, INT))),
        (I % 8, node(Op.AND, I, const(7, INT))),
        (I + node(Op.NEG, I), const(0, INT)),
        (A * -1.0, node(Op.NEG, A)),
        (node(Op.NEG, node(Op.NEG, A)), A),
        (node(Op.NOT, A.eq(B)), A.ne(B)),
        (A < A, const(False, BOOL)),
        (A.eq(A), A.eq(A)),
        (I.eq(I), const(True, BOOL)),
        (P.where(A, A), A),
        (P.where(P.where(A, B), B), P.where(A, B)),
        (node(Op.NOT, P).where(A, B), P.where(B, A)),
        (P.where(const(1, INT), const(0, INT)), P.where(const(1, INT), const(0, INT))),
        (P.where(const(True, BOOL), False), P),
        (P.cast(INT).ne(0), P),
        (I.cast(dtypes.int64).cast(INT), I),
        (I.cast(F).cast(INT), I.cast(F).cast(INT)),
        (
            leaf(6, dtypes.float16).cast(F).cast(dtypes.bfloat16),
            leaf(6, dtypes.float16).cast(dtypes.bfloat16),
        ),
        (node(Op.MAX, node(Op.MAX, A, const(1.0, F)), const(2.0, F)), node(Op.MAX, A, const(2.0, F))),
        (node(Op.SQRT, const(9.0, F)), const(3.0, F)),
    ],
)
def test_it_becomes(before: Node, after: Node):
    assert fold_identities.run(before) is after


def evaluate(root: Node, values: dict[Node, Scalar]) -> Scalar:
    made: dict[Node, Any] = dict(values)
    for n in toposort((root,)):
        if n.op is Op.CONST:
            made[n] = n.arg
        elif n not in made:
            made[n] = apply(n.op, n.dtype, [made[s] for s in n.src], n.src[-1].dtype)
    return made[root]


SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 3.0, 1e-40, 3e38, 2147483648.0]
FORMATS = [F, dtypes.float16, INT, dtypes.int8, dtypes.uint8, BOOL]
_BOTH = [Op.ADD, Op.MUL, Op.MAX, Op.MIN]
_INTEGER = [Op.FLOORDIV, Op.MOD, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR]


@st.composite
def graphs(draw: st.DrawFn, dtype: DType, depth: int = 4) -> Node:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        if draw(st.booleans()):
            return leaf(10 * FORMATS.index(dtype) + draw(st.integers(0, 1)), dtype)
        number = (
            draw(st.sampled_from([0, 1, -1, 2, 3, 8, 0.5, -0.0, math.nan]))
            if dtype.is_float
            else draw(st.sampled_from([0, 1, -1, 2, 3, 8, 64]))
        )
        return const(truncate(number, dtype), dtype)
    kind = draw(st.sampled_from(["binary", "binary", "unary", "where", "cast", "compare"]))
    sub = graphs(dtype, depth - 1)
    if kind == "where":
        return Node(Op.WHERE, dtype, (draw(graphs(BOOL, depth - 1)), draw(sub), draw(sub)))
    if kind == "cast":
        return draw(graphs(draw(st.sampled_from(FORMATS)), depth - 1)).cast(dtype)
    if kind == "compare" and dtype is BOOL:
        operands = graphs(draw(st.sampled_from(FORMATS)), depth - 1)
        return Node(draw(st.sampled_from(sorted(COMPARE, key=repr))), BOOL, (draw(operands), draw(operands)))
    if kind == "unary":
        return node(Op.NOT if dtype.is_bool else Op.NEG, draw(sub))
    ops = (
        [Op.AND, Op.OR, Op.XOR]
        if dtype.is_bool
        else [*_BOTH, Op.DIV]
        if dtype.is_float
        else [*_BOTH, *_INTEGER]
    )
    a = draw(sub)
    return node(draw(st.sampled_from(ops)), a, a if draw(st.integers(0, 5)) == 0 else draw(sub))


def shows_an_open_sign(graph: Node) -> bool:
    """Whether something is divided by what a MAX or MIN may have made: they leave the sign of a zero open."""
    divisors = [n.src[1] for n in toposort((graph,)) if n.op is Op.DIV]
    return any(n.op in (Op.MAX, Op.MIN) and n.dtype.is_float for n in toposort(divisors))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_value_changes(data: st.DataObject):
    before = data.draw(graphs(data.draw(st.sampled_from(FORMATS))))
    assume(not shows_an_open_sign(before))
    after = fold_identities.run(before)
    values = {
        n: truncate(data.draw(st.sampled_from(SPECIAL)), n.dtype)
        if n.dtype.is_float
        else truncate(data.draw(st.integers(-300, 300)), n.dtype)
        for n in toposort((before,))
        if n.op is Op.PARAM
    }
    expected, found = evaluate(before, values), evaluate(after, values)
    if expected != expected:
        assert found != found
    elif expected == 0:  # MAX and MIN leave the sign of zero open
        assert found == 0
    else:
        assert to_bits(expected, before.dtype) == to_bits(found, before.dtype)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_folded_graph_folds_no_further(data: st.DataObject):
    after = fold_identities.run(data.draw(graphs(data.draw(st.sampled_from(FORMATS)))))
    assert fold_identities.run(after) is after


@pytest.mark.parametrize("wide", ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("narrow", [d for d in ALL if d.itemsize <= 2], ids=lambda d: d.name)
def test_a_format_that_holds_another_gives_back_each_of_its_values(narrow: DType, wide: DType):
    if not holds(narrow, wide):
        return
    step = 1 if narrow.itemsize == 1 else 37
    for bits in range(0, 2 if narrow.is_bool else 1 << (8 * narrow.itemsize), step):
        value = from_bits(bits, narrow)
        there = apply(Op.CAST, wide, [value], narrow)
        back = apply(Op.CAST, narrow, [there], wide)
        assert value != value or to_bits(back, narrow) == bits
