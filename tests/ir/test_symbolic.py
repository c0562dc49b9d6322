"""Index arithmetic: simplest forms are the ones a person would write, and no value ever changes.

The random laws compare with direct evaluation over every value of the ranges.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.ir import affine
from hcq.ir.bounds import bounds
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, const, index, show_index, toposort
from hcq.ir.op import Op
from hcq.ir.symbolic import replace, simplify

BOOL, INDEX = dtypes.bool, dtypes.index


def counter(number: int, size: int) -> Node:
    return Node(Op.RANGE, INDEX, (index(size),), number)


A, B, C = counter(0, 5), counter(1, 4), counter(2, 6)
N = counter(3, 24)


def node(op: Op, *src: Node) -> Node:
    return Node(op, BOOL if op in (Op.AND, Op.OR, Op.NOT, Op.XOR) else INDEX, src)


def no(x: Node) -> Node:
    return node(Op.NOT, x)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (A + B - A, "r1"),
        (A * 2 + A, "r0*3"),
        ((A + 3) * 2 - 6, "r0*2"),
        (index(3) - A, "-r0 + 3"),
        (counter(9, 1) + A, "r0"),
        ((A * 4 + B) // 4, "r0"),
        ((A * 4 + B) % 4, "r1"),
        ((A * 8 + B) // 4, "r0*2"),
        ((A * 24 + C * 4 + B) // 4 % 6, "r2"),
        ((A * 24 + C * 4 + B) // 24, "r0"),
        ((A * 4 + B) // 2, "r0*2 + r1//2"),
        ((A * 12 + B * 3 + 2) // 6, "r0*2 + r1//2"),
        ((A * 6 + 4) // 6, "r0"),
        ((A * 6 + 7) % 6, "1"),
        (N // 4 // 3, "r3//12"),
        (N % 12 // 4, "r3//4%3"),
        (N % 12 % 4, "r3%4"),
        (N // 4 * 4 + N % 4, "r3"),
        (N // 12 * 12 + N // 4 % 3 * 4 + N % 4, "r3"),
        (N // 12 * 120 + N // 4 % 3 * 40 + N % 4 * 10, "r3*10"),
        (N // 4 % 3 * 4 + N % 4, "r3%12"),
        (N - N % 4, "r3//4*4"),
        ((N + 3 - (N + 1) % 4) // 4, "(r3 + 1)//4"),
        ((index(23) - N) // 4, "(-r3 + 23)//4"),
        ((index(23) - N) // 4 * 4 + (index(23) - N) % 4, "-r3 + 23"),
        ((A * 5 + 5) % 6, "-r0 + 5"),
        (A // 0 + A % 0, "0"),
        (A // -1, "-r0"),
        (A * 4 + B < 20, "True"),
        (A * 4 + B < 12, "r0 < 3"),
        (A * 4 + B < 13, "r0*4 + r1 < 13"),
        (index(7) < A * 4 + B, "1 < r0"),
        (A < 0, "False"),
        (A >= 2, "1 < r0"),
        (no(A < 2), "1 < r0"),
        (N // 6 < 2, "r3 < 12"),
        (A.eq(7), "False"),
        ((A * 2).eq(3), "False"),
        ((A * 2).eq(4), "r0 == 2"),
        (A.eq(0), "r0 < 1"),
        (A.ne(A), "False"),
        (node(Op.AND, A < 3, A < 2), "r0 < 2"),
        (node(Op.AND, A < 3, A >= 3), "False"),
        (node(Op.AND, A < 3, A >= 2), "r0 == 2"),
        (node(Op.AND, A < 3, A * 4 + B < 19), "r0 < 3"),
        (node(Op.AND, node(Op.AND, A > 1, A - B > -2), A - B < 1), "1 < r0 and r0 - r1 < 1"),
        ((A * 3 + (index(0) - A) % 12) // 2, "-((-r0 + 12)//12)*6 + r0 + 6"),
        (node(Op.OR, A < 3, A >= 3), "True"),
        (node(Op.OR, A < 3, A < 2), "r0 < 3"),
        (node(Op.OR, A < 3, A >= 4), "r0 != 3"),
        (node(Op.AND, B < 2, node(Op.AND, A < 2, B < 2)), "r0 < 2 and r1 < 2"),
        (node(Op.MAX, A, index(7)), "7"),
        (node(Op.MIN, A, A + 1), "r0"),
        ((A < 9).where(B, C), "r1"),
        ((A < 3).where(B, B), "r1"),
        ((A < 3).where(B, C), "(r0 < 3 ? r1 : r2)"),
    ],
)
def test_it_becomes(raw: Node, text: str):
    assert text == show_index(simplify(raw))


def test_the_order_of_writing_does_not_matter():
    assert simplify(A * 24 + B * 6 + C) is simplify(C + (B * 6 + A * 24))
    assert simplify(node(Op.AND, A < 2, B < 2)) is simplify(node(Op.AND, B < 2, A < 2))


def test_wrapping_integers_are_not_reordered():
    x = Node(Op.LOAD, dtypes.int32, (Node(Op.PARAM, dtypes.int32, (), Param(0, (9,))), A))
    raw = (x + 1) - x
    assert simplify(raw) is raw
    assert simplify(x * 0) is const(0, dtypes.int32)


def test_a_range_that_may_leave_its_format_is_the_whole_format():
    x = Node(Op.LOAD, dtypes.int8, (Node(Op.PARAM, dtypes.int8, (), Param(0, (9,))), A))
    assert (-128, 127) == bounds(x + 1)
    assert (0, 3) == bounds(Node(Op.AND, dtypes.int8, (x, const(3, dtypes.int8))))
    assert (-32, 31) == bounds(Node(Op.SHR, dtypes.int8, (x, const(2, dtypes.int8))))


def test_a_large_uint64_may_be_a_negative_index():
    x = Node(Op.LOAD, dtypes.uint64, (Node(Op.PARAM, dtypes.uint64, (), Param(0, (9,))), A))
    assert bounds(x.cast(INDEX))[0] < 0


def test_floats_have_no_bounds():
    with pytest.raises(ValueError, match="float32"):
        bounds(const(1.0, dtypes.float32))


def test_an_index_and_its_cast_back_are_one():
    assert simplify(N.cast(dtypes.int32).cast(INDEX)) is N
    assert simplify(Node(Op.CAST, INDEX, (counter(0, 300).cast(dtypes.int8),))).op is Op.CAST


def test_ranges_are_replaced_and_what_follows_is_simplified():
    outer, inner = counter(7, 6), counter(8, 4)
    (split,) = replace((simplify(N // 4 * 7 + N % 4),), {N: outer * 4 + inner})
    assert "r7*7 + r8" == show_index(split)


def test_a_load_that_never_happens_is_zero_and_one_that_always_does_has_no_condition():
    p = Node(Op.PARAM, dtypes.float32, (), Param(0, (24,)))
    assert simplify(Node(Op.LOAD, dtypes.float32, (p, N, A < 0))) is const(0.0, dtypes.float32)
    assert 2 == len(simplify(Node(Op.LOAD, dtypes.float32, (p, N, A < 9))).src)


def test_deep_sums_are_simplified():
    total = A
    for _ in range(3_000):
        total = total + B
    assert "r1*3000 + r0" == show_index(simplify(total))


# -- laws -----------------------------------------------------------------------------------------------------------

RANGES = (counter(0, 4), counter(1, 3), counter(2, 6), counter(3, 2))
_NUMBERS = [-12, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 12]
Numbers = np.ndarray  # what a node is at every place of the ranges


def divided(a: Numbers, b: Numbers) -> Numbers:
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def remainder(a: Numbers, b: Numbers) -> Numbers:
    return np.where(b == 0, 0, a % np.where(b == 0, 1, b))


_MEANING = {
    Op.ADD: np.add,
    Op.MUL: np.multiply,
    Op.FLOORDIV: divided,
    Op.MOD: remainder,
    Op.MAX: np.maximum,
    Op.MIN: np.minimum,
    Op.CMPLT: np.less,
    Op.CMPLE: np.less_equal,
    Op.CMPEQ: np.equal,
    Op.CMPNE: np.not_equal,
    Op.AND: np.logical_and,
    Op.OR: np.logical_or,
    Op.XOR: np.not_equal,
    Op.NOT: np.logical_not,
    Op.WHERE: np.where,
}
SHAPE = tuple(r.src[0].arg for r in RANGES)
PLACES = dict(zip(RANGES, np.indices(SHAPE, dtype=np.int64)))  # all of them at once


def evaluate(root: Node) -> Numbers:
    """The node's value at every place, by the meaning of its operations alone."""
    made: dict[Node, Numbers] = dict(PLACES)
    for n in toposort((root,)):
        if n not in made:
            made[n] = np.asarray(n.arg) if n.op is Op.CONST else _MEANING[n.op](*[made[s] for s in n.src])
    return made[root]


@st.composite
def numbers(draw: st.DrawFn, depth: int = 4) -> Node:
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from(RANGES)) if draw(st.integers(0, 4)) else index(draw(st.integers(-7, 13)))
    kind = draw(st.sampled_from(["add", "add", "mul", "div", "div", "mod", "mod", "max", "where"]))
    a = draw(numbers(depth - 1))
    if kind == "mul":
        return a * draw(st.sampled_from(_NUMBERS))
    if kind == "div":
        return a // draw(st.sampled_from(_NUMBERS))
    if kind == "mod":
        return a % draw(st.sampled_from(_NUMBERS))
    if kind == "where":
        return Node(Op.WHERE, INDEX, (draw(conditions(depth - 1)), a, draw(numbers(depth - 1))))
    if kind == "max":
        return Node(draw(st.sampled_from([Op.MAX, Op.MIN])), INDEX, (a, draw(numbers(depth - 1))))
    return a + draw(numbers(depth - 1))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> Node:
    if depth == 0 or draw(st.booleans()):
        which = draw(st.sampled_from([Op.CMPLT, Op.CMPLE, Op.CMPEQ, Op.CMPNE]))
        return Node(which, BOOL, (draw(numbers(depth)), draw(numbers(depth))))
    which = draw(st.sampled_from([Op.AND, Op.OR, Op.AND, Op.OR, Op.XOR, Op.NOT]))
    src = [draw(conditions(depth - 1)) for _ in range(1 if which is Op.NOT else 2)]
    return Node(which, BOOL, tuple(src))


@settings(max_examples=300, deadline=None)
@given(st.one_of(numbers(), conditions()))
def test_no_value_changes_and_every_value_is_within_bounds(raw: Node):
    simple = simplify(raw)
    (low, high), (least, greatest) = bounds(raw), bounds(simple)
    expected = evaluate(raw)
    assert (expected == evaluate(simple)).all()
    assert low <= expected.min() and expected.max() <= high
    assert least <= expected.min() and expected.max() <= greatest


@settings(max_examples=300, deadline=None)
@given(st.one_of(numbers(), conditions()))
def test_the_simplest_form_is_its_own_simplest_form(raw: Node):
    simple = simplify(raw)
    affine.forget()
    assert simplify(simple) is simple


@st.composite
def flattenings(draw: st.DrawFn) -> tuple[Node, list[int]]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    total = 1
    for size in sizes:
        total *= size
    return counter(0, total), sizes


@settings(max_examples=100, deadline=None)
@given(flattenings())
def test_taking_a_number_apart_and_putting_it_together_gives_the_number(case: tuple[Node, list[int]]):
    whole, sizes = case
    parts, stride = [], 1
    for size in reversed(sizes):
        parts.append(whole // stride % size * stride)
        stride *= size
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert simplify(whole) is simplify(total)
