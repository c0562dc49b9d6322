"""Lowering: views leave nothing but minimal indices, and the kernel computes what NumPy computes.

The oracle runs a lowered kernel with NumPy, one grid axis per RANGE, and refuses every address outside its buffer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.compiler.passes.lower_movement import is_ordered, lower_movement
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, Shape, const, range_number, show_index
from hcq.ir.op import Op
from hcq.ir.symbolic import simplify
from hcq.ir.verify import verify

F, INT = dtypes.float32, dtypes.int32
_ARITHMETIC = {
    Op.ADD: np.add,
    Op.MUL: np.multiply,
    Op.FLOORDIV: np.floor_divide,
    Op.MOD: np.mod,
    Op.MAX: np.maximum,
    Op.MIN: np.minimum,
    Op.CMPLT: np.less,
    Op.CMPLE: np.less_equal,
    Op.CMPEQ: np.equal,
    Op.CMPNE: np.not_equal,
    Op.AND: np.logical_and,
    Op.OR: np.logical_or,
    Op.XOR: np.logical_xor,
    Op.NOT: np.logical_not,
    Op.WHERE: np.where,
    Op.EXP: np.exp,
}
_REDUCE = {Op.ADD: np.sum, Op.MUL: np.prod, Op.MAX: np.max, Op.MIN: np.min}


def param(number: int, *shape: int, dtype=F, writable: bool = False) -> Node:
    return Node(Op.PARAM, dtype, (), Param(number, shape, writable))


def node(op: Op, *src: Node, arg: Any = None) -> Node:
    return Node(op, src[-1].dtype, src, arg)


def kernel(value: Node, target: Node | None = None) -> Node:
    target = target if target is not None else param(0, *value.shape, dtype=value.dtype, writable=True)
    sink = Node(Op.SINK, value.dtype, (Node(Op.STORE, value.dtype, (target, value)),))
    verify(sink, "tensor")
    lowered = lower_movement.run(sink)
    verify(lowered, "kernel")
    return lowered


def run_kernel(sink: Node, *buffers: np.ndarray) -> None:
    """Run a lowered kernel on flat arrays, one per PARAM."""
    nodes = sink.toposort()
    ranges = [n for n in nodes if n.op is Op.RANGE]
    assert all(is_ordered(n) or range_number(n) == n.arg for n in ranges)
    axes = {n: axis for axis, n in enumerate(ranges)}
    rank = len(ranges)
    values: dict[Node, Any] = {}
    for n in nodes:
        src = [values.get(s) for s in n.src]
        if n.op is Op.CONST:
            values[n] = np.full((1,) * rank, n.arg)
        elif n.op is Op.RANGE:
            line = [1] * rank
            line[axes[n]] = n.src[0].arg
            values[n] = np.arange(n.src[0].arg).reshape(line)
        elif n.op is Op.LOAD:
            flat, valid = np.broadcast_arrays(src[1], src[2] if len(src) == 3 else True)
            buffer = buffers[n.src[0].arg.index]
            assert np.all(~valid | ((flat >= 0) & (flat < buffer.size))), "load outside its buffer"
            values[n] = np.where(valid, buffer[np.where(valid, flat, 0)], 0)
        elif n.op is Op.REDUCE:
            shape = list(np.shape(src[0]))
            for r in n.src[1:]:
                shape[axes[r]] = r.src[0].arg
            over = tuple(axes[r] for r in n.src[1:])
            values[n] = _REDUCE[n.arg](np.broadcast_to(src[0], shape), axis=over, keepdims=True)
        elif n.op is Op.CAST:
            values[n] = src[0].astype({dtypes.index: np.int64, INT: np.int32, F: np.float64}[n.dtype])
        elif n.op is Op.STORE:
            valid = src[3] if len(src) == 4 else np.array(True)
            flat, value, valid = np.broadcast_arrays(src[1], src[2], valid)
            buffer = buffers[n.src[0].arg.index]
            assert np.all(~valid | ((flat >= 0) & (flat < buffer.size))), "store outside its buffer"
            if any(is_ordered(r) for r in ranges):  # one turn after the other
                if n.src[2].op is Op.ADD:  # what was loaded may just have changed
                    added = np.broadcast_to(values[n.src[2].src[1]], flat.shape)
                    assert n.src[2].src[0].op is Op.LOAD
                    np.add.at(buffer, flat[valid], added[valid])
                else:
                    for place, new in zip(flat[valid], value[valid]):
                        buffer[place] = new
            else:
                assert len(np.unique(flat[valid])) == flat[valid].size, "two turns write one element"
                buffer[flat[valid]] = value[valid]
        elif n.op in _ARITHMETIC:
            values[n] = _ARITHMETIC[n.op](*src)
        else:
            assert n.op in (Op.PARAM, Op.SINK), n.op


def compute(value: Node, *inputs: np.ndarray) -> np.ndarray:
    out = np.full(int(np.prod(value.shape)), 77.0)
    run_kernel(kernel(value), out, *[x.ravel() for x in inputs])
    return out.reshape(value.shape)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1.0, np.prod(shape) + 1).reshape(shape)


def load_index(value: Node) -> str:
    """The indices of the loads of a kernel that stores `value`, as text."""
    loads = [n for n in kernel(value).toposort() if n.op is Op.LOAD]
    return "; ".join(
        show_index(n.src[1]) + (f" if {show_index(n.src[2])}" if len(n.src) == 3 else "") for n in loads
    )


# -- indices come out minimal ---------------------------------------------------------------------------------------


def reshape(x: Node, *shape: int) -> Node:
    return node(Op.RESHAPE, x, arg=shape)


def permute(x: Node, *order: int) -> Node:
    return node(Op.PERMUTE, x, arg=order)


def pad(x: Node, *pads: tuple[int, int]) -> Node:
    return node(Op.PAD, x, arg=pads)


X = param(1, 4, 6)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (X, "r0*6 + r1"),
        (reshape(X, 24), "r0"),
        (reshape(reshape(X, 2, 2, 3, 2), 4, 6), "r0*6 + r1"),
        (reshape(X, 4, 1, 6), "r0*6 + r1"),
        (reshape(X, 2, 12), "r0*12 + r1"),
        (reshape(X, 8, 3), "r0*3 + r1"),
        (permute(X, 1, 0), "r1*6 + r0"),
        (reshape(permute(X, 1, 0), 24), "r0%4*6 + r0//4"),
        (reshape(permute(reshape(X, 4, 2, 3), 1, 0, 2), 2, 12), "r1//3*6 + r0*3 + r1%3"),
        (reshape(reshape(permute(X, 1, 0), 24), 6, 4), "r1*6 + r0"),
        (node(Op.FLIP, node(Op.FLIP, X, arg=(0,)), arg=(0,)), "r0*6 + r1"),
        (node(Op.FLIP, X, arg=(0, 1)), "-r0*6 - r1 + 23"),
        (reshape(node(Op.FLIP, reshape(X, 24), arg=(0,)), 4, 6), "-r0*6 - r1 + 23"),
        (node(Op.SHRINK, X, arg=((1, 4, 2), (0, 6, 1))), "r0*12 + r1 + 6"),
        (node(Op.EXPAND, reshape(X, 4, 1, 6), arg=(4, 5, 6)), "r0*6 + r2"),
        (pad(X, (0, 0), (1, 2)), "r0*6 + r1 - 1 if 0 < r1 and r1 < 7"),
        (reshape(pad(X, (1, 0), (0, 0)), 30), "r0 - 6 if 5 < r0"),
        (pad(reshape(pad(X, (1, 0), (0, 0)), 30), (0, 3)), "r0 - 6 if 5 < r0 and r0 < 30"),
        (node(Op.SHRINK, pad(X, (1, 1), (2, 2)), arg=((1, 5, 1), (2, 8, 1))), "r0*6 + r1"),
        (pad(reshape(permute(X, 1, 0), 24), (1, 0)), "(r0 + 3)%4*6 + (r0 + 3)//4 - 1 if 0 < r0"),
        (node(Op.WINDOW, X, arg=(1, 3, 1, 1)), "r0*6 + r1 + r2"),
        (node(Op.WINDOW, X, arg=(1, 2, 2, 1)), "r0*6 + r1*2 + r2"),
        (reshape(node(Op.WINDOW, X, arg=(1, 2, 2, 1)), 4, 6), "r0*6 + r1"),
        (
            node(Op.UNWINDOW, param(1, 3, 2), arg=(0, 6, 2, 1)),
            "(r0 - r1 + 2)//2*2 + r1 - 2 if (r0 - r1 + 2)%2 < 1 and -1 < r0 - r1",
        ),
    ],
)
def test_an_index_comes_out_minimal(value: Node, text: str):
    assert text == load_index(value)


def test_iota_is_index_arithmetic_and_masks_of_it_are_conditions_on_ranges():
    rows = node(Op.EXPAND, reshape(Node(Op.IOTA, INT, (), 4), 4, 1), arg=(4, 4))
    columns = node(Op.EXPAND, reshape(Node(Op.IOTA, INT, (), 4), 1, 4), arg=(4, 4))
    below = Node(Op.CMPLE, dtypes.bool, (columns, node(Op.ADD, rows, const(1, INT))))
    lowered = kernel(Node(Op.WHERE, F, (below, param(1, 4, 4), const(0.0, F))))
    (where,) = [n for n in lowered.toposort() if n.op is Op.WHERE]
    assert "-2 < r0 - r1" == show_index(where.src[0])
    assert not [n for n in lowered.toposort() if n.op is Op.CAST]


# -- values are NumPy's ---------------------------------------------------------------------------------------------


def test_padding_is_an_exact_zero_whatever_is_padded():
    x = numbers(2, 3)
    value = pad(node(Op.EXP, param(1, 2, 3)), (1, 0), (0, 2))
    assert np.array_equal(np.pad(np.exp(x), ((1, 0), (0, 2))), compute(value, x))


def test_padding_costs_no_select_where_the_loads_already_read_zero():
    def selects(value: Node) -> list[Node]:
        return [n for n in kernel(pad(value, (1, 1))).toposort() if n.op is Op.WHERE]

    a, b = param(1, 3), param(2, 3)
    assert not selects(node(Op.ADD, node(Op.MUL, a, b), a))
    assert not selects(Node(Op.CAST, dtypes.float64, (a,)))
    assert 1 == len(selects(node(Op.EXP, a)))
    assert 1 == len(selects(pad(node(Op.EXP, a), (2, 2))))
    assert 1 == len(selects(node(Op.MUL, a, node(Op.EXPAND, param(3, 1), arg=(3,)))))  # infinity * 0 is not 0


def test_padding_a_constant_or_nothing_reads_zero_outside():
    ones = node(Op.EXPAND, reshape(const(1.0, F), 1), arg=(3,))
    assert np.array_equal([0, 1, 1, 1, 0], compute(pad(ones, (1, 1))))
    empty = node(Op.SHRINK, param(1, 3), arg=((1, 1, 1),))
    assert np.array_equal([0, 0], compute(pad(empty, (2, 0)), numbers(3)))


def test_gather_reads_zero_outside_and_never_an_address_outside():
    x, where = numbers(3, 4), np.array([[0, -1, 3, 2, 9], [3, 3, 3, 3, 3], [4, 1, 0, 0, -9]])
    value = Node(Op.GATHER, F, (param(1, 3, 4), param(2, 3, 5, dtype=INT)), 1)
    inside = (where >= 0) & (where < 4)
    expected = np.where(inside, np.take_along_axis(x, np.where(inside, where, 0), 1), 0)
    assert np.array_equal(expected, compute(value, x, where))
    computed = Node(Op.GATHER, F, (node(Op.EXP, param(1, 3, 4)), param(2, 3, 5, dtype=INT)), 1)
    expected = np.where(inside, np.exp(np.take_along_axis(x, np.where(inside, where, 0), 1)), 0)
    assert np.array_equal(expected, compute(computed, x, where))


def test_scatter_adds_in_place_along_an_ordered_range_and_drops_what_is_outside():
    base, where, x = numbers(2, 4), np.array([[0, 0, 7], [3, -1, 3]]), numbers(2, 3) * 10
    target = param(0, 2, 4, writable=True)
    value = Node(Op.SCATTER_ADD, F, (target, param(1, 2, 3, dtype=INT), param(2, 2, 3)), 1)
    lowered = kernel(value, target)
    ordered = {range_number(n): is_ordered(n) for n in lowered.toposort() if n.op is Op.RANGE}
    assert ordered == {0: False, 1: True}
    out = base.ravel().copy()
    run_kernel(lowered, out, where.ravel(), x.ravel())
    assert np.array_equal([[1 + 10 + 20, 2, 3, 4], [5, 6, 7, 8 + 40 + 60]], out.reshape(2, 4))


def test_of_two_scatters_to_one_place_the_later_turn_stays():
    base, where, x = numbers(2, 4), np.array([[0, 0, 7], [3, -1, 3]]), numbers(2, 3) * 10
    target = param(0, 2, 4, writable=True)
    value = Node(Op.SCATTER, F, (target, param(1, 2, 3, dtype=INT), param(2, 2, 3)), 1)
    lowered = kernel(value, target)
    assert {range_number(n): is_ordered(n) for n in lowered.toposort() if n.op is Op.RANGE} == {
        0: False,
        1: True,
    }
    out = base.ravel().copy()
    run_kernel(lowered, out, where.ravel(), x.ravel())
    assert np.array_equal([[20, 2, 3, 4], [5, 6, 7, 60]], out.reshape(2, 4))


def test_a_store_through_a_view_writes_only_the_view():
    whole = param(0, 4, 6, writable=True)
    view = permute(node(Op.SHRINK, node(Op.FLIP, whole, arg=(0,)), arg=((0, 4, 2), (1, 3, 1))), 1, 0)
    out = np.zeros(24)
    run_kernel(kernel(param(1, 2, 2), view), out, numbers(2, 2).ravel())
    expected = np.zeros((4, 6))
    expected[::-1][0:4:2, 1:3].T[...] = numbers(2, 2)
    assert np.array_equal(expected, out.reshape(4, 6))


def test_reductions_side_by_side_share_ranges_and_nested_ones_of_one_op_are_one():
    x = param(1, 3, 4, 5)
    total = node(Op.REDUCE_AXIS, x, arg=(Op.ADD, (2,)))
    squares = node(Op.REDUCE_AXIS, node(Op.MUL, x, x), arg=(Op.ADD, (2,)))
    lowered = kernel(node(Op.ADD, total, squares))
    first, second = [n for n in lowered.toposort() if n.op is Op.REDUCE]
    assert first.src[1:] == second.src[1:]
    nested = node(Op.REDUCE_AXIS, reshape(total, 3, 4), arg=(Op.ADD, (1,)))
    (only,) = [n for n in kernel(nested).toposort() if n.op is Op.REDUCE]
    assert 2 == len(only.src[1:])
    assert np.allclose(numbers(3, 4, 5).sum((1, 2))[:, None], compute(nested, numbers(3, 4, 5)))


def test_nested_reductions_of_different_ops_keep_ranges_of_their_own():
    x = param(1, 3, 4)
    most = node(Op.EXPAND, node(Op.REDUCE_AXIS, x, arg=(Op.MAX, (1,))), arg=(3, 4))
    value = node(Op.REDUCE_AXIS, node(Op.ADD, x, node(Op.MUL, most, const(-1.0, F))), arg=(Op.ADD, (1,)))
    a = numbers(3, 4)
    assert np.allclose((a - a.max(1, keepdims=True)).sum(1, keepdims=True), compute(value, a))


@pytest.mark.parametrize(
    ("op", "identity"), [(Op.ADD, 0.0), (Op.MUL, 1.0), (Op.MAX, -np.inf), (Op.MIN, np.inf)]
)
def test_a_reduction_of_nothing_is_the_identity(op: Op, identity: float):
    assert np.array_equal(
        [[identity]] * 2, compute(node(Op.REDUCE_AXIS, param(1, 2, 0), arg=(op, (1,))), np.zeros(0))
    )


def test_a_sum_of_repeats_is_a_multiple():
    value = node(Op.REDUCE_AXIS, node(Op.EXPAND, param(1, 3, 1), arg=(3, 7)), arg=(Op.ADD, (1,)))
    assert not [n for n in kernel(value).toposort() if n.op is Op.REDUCE]
    assert np.array_equal(numbers(3, 1) * 7, compute(value, numbers(3, 1)))


def test_a_kernel_without_elements_has_no_stores():
    assert () == kernel(param(1, 3, 0)).src


def test_unwindow_undoes_window():
    x = numbers(7)
    for size, step, dilation in [(3, 1, 1), (2, 2, 1), (2, 3, 1), (3, 1, 2), (2, 2, 3)]:
        windows = node(Op.WINDOW, param(1, 7), arg=(0, size, step, dilation))
        n = windows.shape[0]
        value = node(
            Op.REDUCE_AXIS, node(Op.UNWINDOW, windows, arg=(0, 7, step, dilation)), arg=(Op.ADD, (1,))
        )
        expected = np.zeros(7)
        for o in range(n):
            for k in range(size):
                expected[o * step + k * dilation] += x[o * step + k * dilation]
        assert np.array_equal(expected[:, None], compute(value, x))


def test_a_graph_deeper_than_the_python_stack_is_lowered():
    value = param(1, 4)
    for _ in range(5_000):
        value = node(Op.ADD, value, param(1, 4))
    assert 5_001 <= len(kernel(value).toposort())


def test_what_a_kernel_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="CONTIGUOUS"):
        lower_movement.run(node(Op.SINK, node(Op.STORE, param(0, 4), Node(Op.CONTIGUOUS, F, (param(1, 4),)))))
    with pytest.raises(ValueError, match="one shape"):
        a = node(Op.STORE, param(0, 4, writable=True), param(1, 4))
        b = node(Op.STORE, param(2, 5, writable=True), param(3, 5))
        lower_movement.run(node(Op.SINK, a, b))


# -- chains of movement, any length, compared with NumPy ------------------------------------------------------------


@st.composite
def chains(draw: st.DrawFn) -> tuple[Node, np.ndarray, Shape]:
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3)))
    value, array = param(1, *shape), numbers(*shape)
    for _ in range(draw(st.integers(1, 5))):
        value, array = draw(moved(value, array))
    return value, array, shape


_KINDS = [
    "reshape",
    "permute",
    "pad",
    "shrink",
    "flip",
    "expand",
    "window",
    "unwindow",
    "gather",
    "sum",
    "plus one",
]


@st.composite
def moved(draw: st.DrawFn, x: Node, a: np.ndarray, kinds: list[str] = _KINDS) -> tuple[Node, np.ndarray]:
    rank = a.ndim
    kind = draw(st.sampled_from(kinds))
    if kind == "reshape":
        new = _factor(draw, a.size)
        return reshape(x, *new), a.reshape(new)
    if kind == "permute":
        order = tuple(draw(st.permutations(range(rank))))
        return permute(x, *order), a.transpose(order)
    if kind == "pad" and a.size < 400:
        pads = tuple(draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in range(rank))
        return pad(x, *pads), np.pad(a, pads)
    if kind == "shrink":
        parts = []
        for size in a.shape:
            start = draw(st.integers(0, max(0, size - 1)))
            parts.append((start, draw(st.integers(min(start + 1, size), size)), draw(st.integers(1, 2))))
        return node(Op.SHRINK, x, arg=tuple(parts)), a[tuple(slice(*p) for p in parts)]
    if kind == "flip":
        axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1)))))
        return node(Op.FLIP, x, arg=axes), np.flip(a, axes)
    if kind == "expand" and 1 in a.shape and a.size < 400:
        new = tuple(3 if size == 1 else size for size in a.shape)
        return node(Op.EXPAND, x, arg=new), np.broadcast_to(a, new)
    if kind == "window" and a.size < 400:
        axis = draw(st.integers(0, rank - 1))
        size, step, dilation = draw(st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)))
        if dilation * (size - 1) < a.shape[axis]:
            windows = np.lib.stride_tricks.sliding_window_view(a, dilation * (size - 1) + 1, axis)
            places = (slice(None),) * axis + (slice(None, None, step),)
            windows = windows[places][..., ::dilation]
            return node(Op.WINDOW, x, arg=(axis, size, step, dilation)), windows
    if kind == "unwindow" and rank > 1 and a.size < 400:
        axis = draw(st.integers(0, rank - 2))
        step, dilation = draw(st.tuples(st.integers(1, 3), st.integers(1, 2)))
        reach = (a.shape[axis] - 1) * step + (a.shape[-1] - 1) * dilation + 1
        length = max(1, reach + draw(st.integers(-2, 2)))
        spread = np.zeros((*a.shape[:axis], length, *a.shape[axis + 1 :]))
        for o, k in np.ndindex(a.shape[axis], a.shape[-1]):
            if o * step + k * dilation < length:
                before = (slice(None),) * axis
                spread[(*before, o * step + k * dilation, ..., k)] = a[(*before, o, ..., k)]
        return node(Op.UNWINDOW, x, arg=(axis, length, step, dilation)), spread
    if kind == "sum":
        axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1)))))
        return node(Op.REDUCE_AXIS, x, arg=(Op.ADD, axes)), a.sum(axes, keepdims=True)
    if kind == "plus one":
        return node(Op.ADD, x, const(1.0, F)), a + 1
    if kind == "gather" and a.size < 400:
        axis = draw(st.integers(0, rank - 1))
        size = a.shape[axis]
        line = [1] * rank
        line[axis] = size + 2
        index_shape = (*a.shape[:axis], size + 2, *a.shape[axis + 1 :])
        where = node(Op.MUL, Node(Op.IOTA, INT, (), size + 2), const(-1, INT))
        where = node(Op.ADD, where, const(size, INT))  # size, size - 1, ... 0, -1
        where = node(Op.EXPAND, reshape(where, *line), arg=index_shape)
        flipped = np.flip(np.pad(a, [(1, 1) if d == axis else (0, 0) for d in range(rank)]), axis)
        return Node(Op.GATHER, F, (x, where), axis), flipped
    return x, a


def _factor(draw: st.DrawFn, count: int) -> Shape:
    sizes = []
    while count > 1 and len(sizes) < 4:
        divisors = [d for d in range(2, count + 1) if count % d == 0]
        sizes.append(draw(st.sampled_from(divisors)))
        count //= sizes[-1]
    return (*sizes, count) if count > 1 or draw(st.booleans()) else tuple(sizes) or (1,)


@settings(max_examples=250, deadline=None)
@given(chains())
def test_any_chain_of_movement_computes_what_numpy_computes(chain: tuple[Node, np.ndarray, Shape]):
    value, expected, shape = chain
    assert expected.shape == value.shape
    assert np.array_equal(expected, compute(value, numbers(*shape)))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_view_is_written_where_numpy_writes_it(data: st.DataObject):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3)))
    target, places_count = param(0, *shape, writable=True), int(np.prod(shape))
    places = np.arange(places_count).reshape(shape)
    for _ in range(data.draw(st.integers(1, 4))):
        target, places = data.draw(moved(target, places, ["reshape", "permute", "shrink", "flip"]))
    out, values = np.zeros(places_count), numbers(*places.shape)
    run_kernel(kernel(param(1, *places.shape), target), out, values.ravel())
    expected = np.zeros(places_count)
    expected[places.ravel()] = values.ravel()
    assert np.array_equal(expected, out)


@settings(max_examples=100, deadline=None)
@given(chains())
def test_a_lowered_kernel_is_already_in_simplest_form(chain: tuple[Node, np.ndarray, Shape]):
    lowered = kernel(chain[0])
    assert lowered is simplify(lowered)
