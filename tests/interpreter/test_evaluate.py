"""The interpreter computes what NumPy and plain loops compute; kernels give the same in both of their stages."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

from hcq.compiler.passes.lower_movement import lower_movement
from hcq.ir.dtype import ALL, DType, dtypes
from hcq.ir.node import Node, Param, binary, const, index
from hcq.ir.op import Op
from tests.interpreter.arrays import array, from_raw, to_raw
from tests.interpreter.evaluate import evaluate, evaluate_kernel

F = dtypes.float32
I = dtypes.index
X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4) + 1


def param(place: int, shape: tuple[int, ...], dtype: DType = F, writable: bool = False) -> Node:
    return Node(Op.PARAM, dtype, (), Param(place, shape, writable))


def view(op: Op, arg: object, x: Node | None = None) -> Node:
    x = x or param(0, X.shape)
    return Node(op, x.dtype, (x,), arg)


def value(node: Node, *arrays: np.ndarray) -> np.ndarray:
    return evaluate([node], lambda leaf: arrays[leaf.arg.index])[0]


@pytest.mark.parametrize(
    ("op", "arg", "expected"),
    [
        (Op.RESHAPE, (6, 4), X.reshape(6, 4)),
        (Op.PERMUTE, (2, 0, 1), X.transpose(2, 0, 1)),
        (Op.PAD, ((1, 0), (0, 2), (3, 3)), np.pad(X, ((1, 0), (0, 2), (3, 3)))),
        (Op.SHRINK, ((0, 2, 1), (1, 3, 1), (0, 4, 3)), X[0:2, 1:3, 0:4:3]),
        (Op.SHRINK, ((1, 1, 1), (0, 3, 1), (0, 4, 1)), X[1:1]),
        (Op.FLIP, (0, 2), X[::-1, :, ::-1]),
        (Op.WINDOW, (1, 2, 1, 1), np.lib.stride_tricks.sliding_window_view(X, 2, 1)),
        (Op.WINDOW, (2, 2, 1, 2), np.stack([X[:, :, 0:2], X[:, :, 2:4]], -1)),
    ],
    ids=lambda case: case.name if isinstance(case, Op) else None,
)
def test_movement_is_numpys(op: Op, arg: object, expected: np.ndarray):
    assert np.array_equal(value(view(op, arg), X), expected)


def test_expand_repeats_axes_of_size_one():
    assert np.array_equal(
        value(Node(Op.EXPAND, F, (param(0, (3, 1)),), (3, 2)), X[0, :, :1]), X[0, :, [0, 0]].T
    )


@pytest.mark.parametrize(("size", "step", "dilation"), list(itertools.product((1, 2, 3), (1, 2, 3), (1, 2))))
def test_unwindow_puts_every_window_back_where_it_was(size: int, step: int, dilation: int):
    length = 9
    x = np.random.default_rng(1).standard_normal((2, length)).astype(np.float32)
    windows = Node(Op.WINDOW, F, (param(0, x.shape),), (1, size, step, dilation))
    spread = value(Node(Op.UNWINDOW, F, (windows,), (1, length, step, dilation)), x)
    expected = np.zeros((2, length, size), np.float32)
    count = (length - dilation * (size - 1) - 1) // step + 1
    for window, place in itertools.product(range(count), range(size)):
        at = window * step + place * dilation
        expected[:, at, place] = x[:, at]
    assert np.array_equal(spread, expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_reads_zero_outside_and_scatters_drop_it(axis: int):
    random = np.random.default_rng(2)
    base = random.integers(-5, 5, (4, 5)).astype(np.float32)
    places = random.integers(-2, 8, (3, 5) if axis == 0 else (4, 6))
    x = random.integers(-5, 5, places.shape).astype(np.float32)
    gathered, added, written = np.zeros(places.shape, np.float32), base.copy(), base.copy()
    for where in np.ndindex(*places.shape):
        at = list(where)
        at[axis] = int(places[where])
        if 0 <= at[axis] < base.shape[axis]:
            gathered[where] = base[tuple(at)]
            added[tuple(at)] += x[where]
            written[tuple(at)] = x[where]
    leaves = param(0, base.shape), param(1, places.shape, dtypes.int64), param(2, x.shape)
    assert np.array_equal(value(Node(Op.GATHER, F, leaves[:2], axis), base, places, x), gathered)
    assert np.array_equal(value(Node(Op.SCATTER_ADD, F, leaves, axis), base, places, x), added)
    assert np.array_equal(value(Node(Op.SCATTER, F, leaves, axis), base, places, x), written)
    whole = value(Node(Op.CAT, F, (leaves[0], leaves[2]), axis), base, places, x)
    assert np.array_equal(whole, np.concatenate([base, x], axis))


@pytest.mark.parametrize("dtype", [d for d in ALL if not d.is_storage_only], ids=lambda d: d.name)
@pytest.mark.parametrize("how", [Op.ADD, Op.MUL, Op.MAX, Op.MIN], ids=lambda op: op.name)
def test_a_reduction_of_nothing_is_the_neutral_number(how: Op, dtype: DType):
    empty = value(
        Node(Op.REDUCE_AXIS, dtype, (param(0, (2, 0), dtype),), (how, (1,))), array(np.zeros((2, 0)), dtype)
    )
    neutral = {Op.ADD: 0, Op.MUL: 1, Op.MAX: dtype.min, Op.MIN: dtype.max}[how]
    assert empty.shape == (2, 1)
    assert empty.tolist() == array([[neutral], [neutral]], dtype).tolist()


def test_reductions_keep_their_axes_wrap_integers_and_carry_nan():
    small = array([[100, 100], [1, 2]], dtypes.int8)
    total = value(Node(Op.REDUCE_AXIS, dtypes.int8, (param(0, (2, 2), dtypes.int8),), (Op.ADD, (1,))), small)
    assert total.tolist() == [[-56], [3]]
    x = np.array([[1, np.nan], [3, 2]], np.float32)
    assert np.isnan(value(Node(Op.REDUCE_AXIS, F, (param(0, (2, 2)),), (Op.MAX, (0, 1))), x)).all()


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2], ids=lambda d: d.name)
def test_bits_become_values_and_the_same_bits_again(dtype: DType):
    bits = np.arange(1 << dtype.bits).astype(f"uint{dtype.bits}")
    values = from_raw(bits, dtype)
    assert (to_raw(values, dtype) == bits)[~np.isnan(values)].all()


def test_a_deep_graph_does_not_need_a_deep_stack():
    node = param(0, ())
    for _ in range(5000):
        node = binary(Op.ADD, node, 1.0)
    assert value(node, np.array(0, np.float32)) == 5000


# -- kernels -----------------------------------------------------------------------------------------------------------


def sink(*stores: Node) -> Node:
    return Node(Op.SINK, F, stores)


def store(target: Node, result: Node) -> Node:
    return Node(Op.STORE, target.dtype, (target, result))


def both_stages(kernel: Node, *arrays: np.ndarray) -> list[np.ndarray]:
    """The arrays after the kernel as scheduled; the lowered kernel must leave the same."""
    first, second = [a.copy() for a in arrays], [a.copy() for a in arrays]
    evaluate_kernel(kernel, first)
    evaluate_kernel(lower_movement.run(kernel), second)
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a, b)
    return first


def test_a_matrix_product_is_the_same_in_both_stages():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.arange(12, dtype=np.float32).reshape(3, 4)
    left = Node(Op.EXPAND, F, (Node(Op.RESHAPE, F, (param(1, (2, 3)),), (2, 1, 3)),), (2, 4, 3))
    right = Node(Op.PERMUTE, F, (Node(Op.RESHAPE, F, (param(2, (3, 4)),), (1, 3, 4)),), (0, 2, 1))
    right = Node(Op.EXPAND, F, (right,), (2, 4, 3))
    product = Node(Op.REDUCE_AXIS, F, (binary(Op.MUL, left, right),), (Op.ADD, (2,)))
    out = Node(Op.RESHAPE, F, (param(0, (2, 4), writable=True),), (2, 4, 1))
    result = both_stages(sink(store(out, product)), np.zeros((2, 4), np.float32), a, b)[0]
    assert np.array_equal(result, a @ b)


def test_a_store_through_a_view_writes_only_what_the_view_shows():
    out = Node(
        Op.FLIP, F, (Node(Op.SHRINK, F, (param(0, (2, 5), writable=True),), ((0, 2, 1), (1, 4, 2))),), (1,)
    )
    padded = Node(Op.PAD, F, (param(1, (2, 1)),), ((0, 0), (0, 1)))
    given = np.array([[7], [8]], np.float32)
    result = both_stages(sink(store(out, padded)), np.full((2, 5), -1, np.float32), given)[0]
    assert result.tolist() == [[-1, 0, -1, 7, -1], [-1, 0, -1, 8, -1]]


def test_an_in_place_scatter_adds_every_contribution():
    base, places = np.zeros(4, np.float32), np.array([1, 1, 3, 9, 1])
    out = param(0, (4,), writable=True)
    scattered = Node(Op.SCATTER_ADD, F, (out, param(1, (5,), dtypes.int64), param(2, (5,))), 0)
    result = both_stages(sink(store(out, scattered)), base, places, np.arange(1, 6, dtype=np.float32))[0]
    assert result.tolist() == [0, 8, 0, 3]


def test_an_access_outside_its_parameter_is_an_error_that_names_it():
    r = Node(Op.RANGE, I, (index(4),), 0)
    load = Node(Op.LOAD, F, (param(1, (3,)), r))
    kernel = sink(Node(Op.STORE, F, (param(0, (4,), writable=True), r, load)))
    with pytest.raises(IndexError, match=r"LOAD of PARAM 1 at element 3, but it has 3"):
        evaluate_kernel(kernel, [np.zeros(4, np.float32), np.zeros(3, np.float32)])


def test_an_invalid_load_reads_as_zero_and_an_invalid_store_writes_nothing():
    r = Node(Op.RANGE, I, (index(4),), 0)
    load = Node(Op.LOAD, F, (param(1, (3,)), r, r < 3))
    kernel = sink(Node(Op.STORE, F, (param(0, (4,), writable=True), r, load + 1.0, index(0) < r)))
    out = np.zeros(4, np.float32)
    evaluate_kernel(kernel, [out, np.array([5, 6, 7], np.float32)])
    assert out.tolist() == [0, 7, 8, 1]


def test_wrong_roots_and_stages_are_refused_by_name():
    with pytest.raises(ValueError, match=r"the root is CONST"):
        evaluate_kernel(const(1.0, F), [])
    with pytest.raises(ValueError, match=r"RANGE is not an op of the tensor stage"):
        value(Node(Op.RANGE, I, (index(4),), 0))
    with pytest.raises(ValueError, match=r"params\[0\] is not contiguous"):
        evaluate_kernel(
            sink(store(param(0, (2, 2)), const(1.0, F))), [np.zeros((4, 4), np.float32)[::2, ::2]]
        )


def test_importing_what_operations_mean_and_the_compiler_does_not_import_numpy():
    code = "import sys, hcq.ir.meaning, hcq.compiler.pipeline; print('numpy' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
