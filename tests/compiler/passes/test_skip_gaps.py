"""Skipping gaps: sums over strided windows take only the turns that count, and their values stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.compiler.passes.lower_movement import lower_movement
from hcq.compiler.passes.skip_gaps import skip_gaps
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, const, show_index, toposort
from hcq.ir.op import Op
from hcq.ir.verify import verify
from tests.compiler.passes.test_lower_movement import run_kernel
from tests.interpreter.evaluate import evaluate

F = dtypes.float32


def param(number: int, *shape: int, writable: bool = False) -> Node:
    return Node(Op.PARAM, F, (), Param(number, shape, writable))


def node(op: Op, *src: Node, arg=None) -> Node:
    return Node(op, F, src, arg)


def overlapped(x: Node, length: int, step: int, dilation: int) -> Node:
    """Windows (n, size) added up where they lie: (length, 1)."""
    return node(Op.REDUCE_AXIS, node(Op.UNWINDOW, x, arg=(0, length, step, dilation)), arg=(Op.ADD, (1,)))


def gradient(windows: int, size: int, length: int, step: int, dilation: int) -> Node:
    """What flows back through a strided window with a factor for each of its places."""
    return overlapped(node(Op.MUL, param(1, windows, size), param(2, windows, size)), length, step, dilation)


def kernel(value: Node) -> Node:
    store = node(Op.STORE, param(0, *value.shape, writable=True), value)
    return lower_movement.run(node(Op.SINK, store))


def turns(sink: Node) -> int:
    total = 1
    for n in toposort((sink,)):
        if n.op is Op.REDUCE:
            for place in n.src[1:]:
                total *= place.src[0].arg
    return total


def test_a_window_of_three_with_stride_two_takes_two_turns():
    made = skip_gaps.run(kernel(gradient(4, 3, 9, 2, 1)))
    assert 2 == turns(made)
    (index,) = {n.src[1] for n in made.toposort() if n.op is Op.LOAD}
    assert "r0//2*3 - r2 + r0%2" == show_index(index)


def test_windows_side_by_side_leave_no_sum_at_all():
    made = skip_gaps.run(kernel(gradient(4, 2, 8, 2, 1)))
    assert not [n for n in made.toposort() if n.op is Op.REDUCE]


@pytest.mark.parametrize("step", [1, 2])
def test_a_sum_without_gaps_is_left_alone(step: int):
    lowered = kernel(gradient(4, 3, 9, step, 2) if step == 2 else gradient(4, 3, 9, 1, 1))
    assert skip_gaps.run(lowered) is lowered


def test_a_load_shared_by_outputs_stays_shared():
    flowing = node(Op.EXPAND, node(Op.RESHAPE, param(1, 4), arg=(4, 1)), arg=(4, 3))
    weights = node(Op.EXPAND, node(Op.RESHAPE, param(2, 3), arg=(1, 3)), arg=(4, 3))
    lowered = kernel(overlapped(node(Op.MUL, flowing, weights), 9, 2, 1))
    assert skip_gaps.run(lowered) is lowered


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(-2, 3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 2),
    st.booleans(),
)
def test_the_sum_stays(windows: int, size: int, extra: int, step: int, dilation: int, low: int, select: bool):
    length = max(1, (windows - 1) * step + (size - 1) * dilation + 1 + extra)
    value = gradient(windows, size, length, step, dilation)
    if select:
        value = overlapped(node(Op.ADD, param(1, windows, size), const(1.0, F)), length, step, dilation)
    value = node(Op.PAD, value, arg=((low, 1), (0, 0)))
    made = skip_gaps.run(kernel(value))
    verify(made, "kernel")
    flowing, factors = np.arange(1.0, windows * size + 1), np.arange(10.0, windows * size + 10)
    out = np.zeros(length + low + 1)
    run_kernel(made, out, flowing, factors)
    (expected,) = evaluate(
        [value], lambda leaf: (flowing if leaf.arg.index == 1 else factors).reshape(windows, size)
    )
    assert np.array_equal(expected.ravel(), out)


def test_nothing_leaks_from_beyond_the_last_turn():
    made = skip_gaps.run(kernel(overlapped(node(Op.MUL, param(1, 2, 3), const(2.0, F)), 5, 2, 1)))
    out = np.zeros(5)
    run_kernel(made, out, np.array([1.0, 2.0, np.inf, 4.0, 5.0, np.nan]))
    assert np.array_equal([2.0, 4.0, np.inf, 10.0, np.nan], out, equal_nan=True)


def test_the_shorter_range_is_numbered_after_the_others():
    numbers = [n.arg for n in skip_gaps.run(kernel(gradient(4, 3, 9, 2, 1))).toposort() if n.op is Op.RANGE]
    assert numbers == [0, 2]
