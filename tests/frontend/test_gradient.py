"""Gradients: every rule of the table against finite differences, then whole graphs and the calls on tensors."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.frontend.core.nodes import filled
from hcq.frontend.core.storage import Storage
from hcq.frontend.grad.derivatives import DERIVATIVES, FLAT, Flat
from hcq.frontend.grad.gradient import gradient
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, const
from hcq.ir.op import ARITHMETIC, MOVEMENT, Op
from tests.interpreter.evaluate import evaluate

F = dtypes.float64
TENSOR_OPS = (
    ARITHMETIC
    | MOVEMENT
    | {Op.CONST, Op.BUFFER, Op.PARAM, Op.IOTA, Op.REDUCE_AXIS, Op.GATHER, Op.SCATTER_ADD, Op.SCATTER, Op.CAT}
    | {Op.SCAN_AXIS, Op.BUCKET, Op.ROUTINE}
    | {Op.CONTIGUOUS, Op.DETACH, Op.FUNCTION, Op.FIRST, Op.ASSIGN, Op.COPY}
)


def leaf(place: int, *shape: int, dtype=F) -> Node:
    return Node(Op.PARAM, dtype, (), Param(place, shape))


def value(node: Node, arrays: list[np.ndarray]) -> np.ndarray:
    return evaluate([node], lambda leaf: arrays[leaf.arg.index])[0]


def check(root: Node, arrays: list[np.ndarray], step: float = 1e-6, tolerance: float = 1e-6) -> None:
    """The gradients of sum(root * weights) with respect to each float leaf agree with central differences."""
    weights = np.random.default_rng(1).standard_normal(root.shape)
    seed = leaf(len(arrays), *root.shape)
    leaves = [leaf(i, *a.shape) for i, a in enumerate(arrays) if a.dtype == np.float64]
    found = gradient(root, seed, leaves)
    for target, node in zip(leaves, found):
        place = target.arg.index
        assert node is not None
        assert node.shape == target.shape
        assert node.dtype is target.dtype
        actual = value(node, [*arrays, weights])
        expected = np.zeros(target.shape)
        for where in np.ndindex(*target.shape):
            sides = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[place][where] += sign * step
                sides.append(float((value(root, moved) * weights).sum()))
            expected[where] = (sides[0] - sides[1]) / (2 * step)
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def numbers(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape)


# -- the table ------------------------------------------------------------------------------------------------------


def test_every_op_of_the_tensor_stage_has_an_entry():
    assert set(DERIVATIVES) == TENSOR_OPS


def test_every_entry_has_a_rule_or_a_mark_per_source():
    for rules in DERIVATIVES.values():
        assert all(rule is None or isinstance(rule, Flat) or callable(rule) for rule in rules)


UNARY_RULES = [
    op
    for op, rules in DERIVATIVES.items()
    if op in ARITHMETIC and len(rules) == 1 and callable(rules[0]) and op is not Op.CAST
]
BINARY_RULES = [op for op, rules in DERIVATIVES.items() if op in ARITHMETIC and len(rules) == 2 and rules[0]]


@pytest.mark.parametrize("op", UNARY_RULES, ids=lambda op: op.name)
def test_unary_rules_agree_with_finite_differences(op):
    check(Node(op, F, (leaf(0, 3, 4),)), [numbers(3, 4, low=0.3)])


@pytest.mark.parametrize("op", BINARY_RULES, ids=lambda op: op.name)
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), ()), ((), (3, 4)), ((), ())], ids=str)
def test_binary_rules_agree_with_finite_differences_whichever_side_is_a_scalar(op, shapes):
    arrays = [numbers(*shape, low=0.5, seed=i) for i, shape in enumerate(shapes)]
    check(Node(op, F, (leaf(0, *shapes[0]), leaf(1, *shapes[1]))), arrays)


def test_where_sends_the_gradient_to_the_side_it_took():
    condition = Node(Op.CMPLT, dtypes.bool, (leaf(0, 5), const(0.0, F)))
    root = Node(Op.WHERE, F, (condition, leaf(1, 5), leaf(2)))
    arrays = [numbers(5), numbers(5, seed=1), numbers(seed=2)]
    seed = filled(1.0, (5,), F)
    left, right = gradient(root, seed, [leaf(1, 5), leaf(2)])
    np.testing.assert_array_equal(value(left, arrays), (arrays[0] < 0).astype(float))
    assert value(right, arrays) == (arrays[0] >= 0).sum()
    assert gradient(root, seed, [leaf(0, 5)]) == [None]


def test_equal_sides_of_a_maximum_share_the_gradient():
    root = Node(Op.MAX, F, (leaf(0, 3), leaf(1, 3)))
    arrays = [np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])]
    left, right = gradient(root, filled(1.0, (3,), F), [leaf(0, 3), leaf(1, 3)])
    np.testing.assert_array_equal(value(left, arrays), [0.5, 0.0, 1.0])
    np.testing.assert_array_equal(value(right, arrays), [0.5, 1.0, 0.0])


def test_the_gradient_of_a_rectifier_asks_its_result_and_not_its_source():
    x, zero = leaf(0, 4), const(0.0, F)
    root = Node(Op.WHERE, F, (Node(Op.CMPLE, dtypes.bool, (x, zero)), zero, x))
    (found,) = gradient(root, filled(1.0, (4,), F), [x])
    np.testing.assert_array_equal(value(found, [np.array([-1.0, 0.0, 2.0, np.nan])]), [0, 0, 1, 1])
    assert [node.src[0] for node in found.toposort() if node.op is Op.CMPEQ] == [root]


def test_a_truncation_has_a_gradient_of_zero():
    root = Node(Op.TRUNC, F, (leaf(0, 3),))
    (found,) = gradient(root, filled(1.0, (3,), F), [leaf(0, 3)])
    np.testing.assert_array_equal(value(found, [numbers(3)]), np.zeros(3))


def test_a_cast_between_floats_passes_the_gradient_in_the_format_of_its_source():
    x = leaf(0, 3, dtype=dtypes.float16)
    (found,) = gradient(x.cast(dtypes.float32), filled(2.0, (3,), dtypes.float32), [x])
    assert found.dtype is dtypes.float16
    np.testing.assert_array_equal(value(found, [np.ones(3, np.float16)]), [2, 2, 2])


def test_an_8_bit_float_gets_a_gradient_computed_in_float32():
    x = leaf(0, 3, dtype=dtypes.fp8e4m3)
    twice = Node(Op.ADD, dtypes.float32, (x.cast(dtypes.float32), x.cast(dtypes.float32)))
    (found,) = gradient(twice, filled(1.0, (3,), dtypes.float32), [x])
    assert found.dtype is dtypes.fp8e4m3
    assert found.src[0].dtype is dtypes.float32


@pytest.mark.parametrize(
    ("op", "arg", "shape"),
    [
        (Op.RESHAPE, (4, 3), (2, 6)),
        (Op.PERMUTE, (2, 0, 1), (2, 3, 4)),
        (Op.EXPAND, (2, 5, 3), (2, 1, 3)),
        (Op.PAD, ((1, 2), (0, 3)), (2, 3)),
        (Op.SHRINK, ((1, 4, 1), (0, 3, 1)), (5, 3)),
        (Op.SHRINK, ((1, 8, 3), (2, 3, 2)), (9, 4)),
        (Op.SHRINK, ((3, 3, 1), (0, 2, 1)), (5, 2)),
        (Op.FLIP, (0, 2), (2, 3, 2)),
        (Op.WINDOW, (0, 3, 1, 1), (6,)),
        (Op.WINDOW, (1, 2, 3, 2), (2, 9, 2)),
        (Op.UNWINDOW, (0, 6, 1, 1), (4, 3)),
        (Op.UNWINDOW, (1, 9, 3, 2), (2, 3, 2, 2)),
        (Op.UNWINDOW, (0, 12, 2, 1), (3, 2)),
        (Op.UNWINDOW, (0, 4, 1, 1), (4, 3)),
    ],
    ids=str,
)
def test_movement_rules_agree_with_finite_differences(op, arg, shape):
    check(Node(op, F, (leaf(0, *shape),), arg), [numbers(*shape)])


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX, Op.MIN], ids=lambda op: op.name)
def test_reduction_rules_agree_with_finite_differences(op, axes):
    check(Node(Op.REDUCE_AXIS, F, (leaf(0, 2, 3, 4),), (op, axes)), [numbers(2, 3, 4)])


def test_equal_extremes_of_a_reduction_share_the_gradient():
    root = Node(Op.REDUCE_AXIS, F, (leaf(0, 2, 3),), (Op.MAX, (1,)))
    (found,) = gradient(root, filled(6.0, (2, 1), F), [leaf(0, 2, 3)])
    array = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    np.testing.assert_array_equal(value(found, [array]), [[0, 3, 3], [2, 2, 2]])


@pytest.mark.parametrize("count", [1, 2, 16, 17, 40, 300])
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_the_gradient_of_a_product_is_right_with_zeros(count, zeros):
    array = numbers(2, count, low=0.9, high=1.1)
    array[1, :zeros] = 0
    root = Node(Op.REDUCE_AXIS, F, (leaf(0, 2, count),), (Op.MUL, (1,)))
    (found,) = gradient(root, filled(1.0, (2, 1), F), [leaf(0, 2, count)])
    expected = np.array([[np.prod(np.delete(row, i)) for i in range(count)] for row in array])
    np.testing.assert_allclose(value(found, [array]), expected, rtol=1e-12)


def test_the_second_derivative_of_a_product_is_right_where_two_factors_are_zero():
    x = leaf(0, 1, 3)
    root = Node(Op.REDUCE_AXIS, F, (x,), (Op.MUL, (1,)))
    (first,) = gradient(root, filled(1.0, (1, 1), F), [x])
    pick = Node(Op.SHRINK, F, (first,), ((0, 1, 1), (0, 1, 1)))
    (second,) = gradient(pick, filled(1.0, (1, 1), F), [x])
    np.testing.assert_array_equal(value(second, [np.array([[0.0, 0.0, 5.0]])]), [[0, 5, 0]])


def test_a_gather_sends_the_gradient_back_to_where_it_read():
    index = np.array([[0, 2, 2], [1, -1, 9]], np.int32)
    root = Node(Op.GATHER, F, (leaf(0, 2, 4), leaf(1, 2, 3, dtype=dtypes.int32)), 1)
    check(root, [numbers(2, 4), index])


def test_a_scatter_sends_the_gradient_to_its_base_and_to_its_values():
    index = np.array([[0, 2, 2], [1, -1, 9]], np.int32)
    sources = (leaf(0, 2, 4), leaf(1, 2, 3, dtype=dtypes.int32), leaf(2, 2, 3))
    check(Node(Op.SCATTER_ADD, F, sources, 1), [numbers(2, 4), index, numbers(2, 3, seed=1)])
    check(Node(Op.SCATTER, F, sources, 1), [numbers(2, 4), index, numbers(2, 3, seed=1)])
    for op in (Op.ADD, Op.MUL):
        check(Node(Op.SCAN_AXIS, F, (leaf(0, 2, 5),), (op, 1)), [numbers(2, 5)])


def test_each_part_of_a_join_has_its_stretch_of_the_gradient():
    parts = (leaf(0, 2, 3), leaf(1, 2, 1), leaf(2, 2, 2))
    check(Node(Op.CAT, F, parts, 1), [numbers(2, n, seed=n) for n in (3, 1, 2)])


def test_detach_stops_the_gradient():
    x = leaf(0, 3)
    root = Node(Op.MUL, F, (x, Node(Op.DETACH, F, (x,))))
    (found,) = gradient(root, filled(1.0, (3,), F), [x])
    np.testing.assert_array_equal(value(found, [np.array([2.0, 3.0, 4.0])]), [2, 3, 4])


def test_a_copy_brings_the_gradient_back_to_the_device_of_its_source():
    source = Storage("CPU", F, (3,)).node()
    (found,) = gradient(Node(Op.COPY, F, (source,), "NV:0"), filled(1.0, (3,), F), [source])
    assert found.op is Op.COPY
    assert found.arg == "CPU"


def test_an_assignment_passes_the_gradient_to_the_value():
    target, x = Storage("CPU", F, (3,)).node(), leaf(0, 3)
    found = gradient(Node(Op.ASSIGN, F, (target, x)), filled(1.0, (3,), F), [target, x])
    assert found[0] is None
    assert found[1] is filled(1.0, (3,), F)


# -- graphs ---------------------------------------------------------------------------------------------------------


def random_step(rng: np.random.Generator, x: Node) -> Node:
    """One differentiable op on x, chosen at random among those that keep it small."""
    shape = x.shape
    axis = int(rng.integers(len(shape)))
    size = shape[axis]
    choice = rng.integers(9)
    if choice == 0:
        return Node(Op.PERMUTE, F, (x,), tuple(int(i) for i in rng.permutation(len(shape))))
    if choice == 1:
        return Node(Op.FLIP, F, (x,), (axis,))
    if choice == 2 and np.prod(shape) < 60:
        return Node(Op.PAD, F, (x,), tuple((int(i == axis), int(rng.integers(2))) for i in range(len(shape))))
    if choice == 3 and size > 2:
        step = int(rng.integers(1, 3))
        return Node(
            Op.SHRINK, F, (x,), tuple((1, n, step) if i == axis else (0, n, 1) for i, n in enumerate(shape))
        )
    if choice == 4 and size > 2 and len(shape) < 4:
        return Node(Op.WINDOW, F, (x,), (axis, 2, int(rng.integers(1, 3)), 1))
    if choice == 5 and len(shape) > 1 and axis < len(shape) - 1:
        return Node(Op.UNWINDOW, F, (x,), (axis, size + shape[-1], 1, 1))
    if choice == 6 and len(shape) > 1:
        total = Node(Op.REDUCE_AXIS, F, (x,), (Op.ADD, (axis,)))
        return Node(Op.MUL, F, (x, Node(Op.EXPAND, F, (total,), shape)))
    if choice == 7:
        return Node(Op.MUL, F, (Node(Op.SIN, F, (x,)), x))
    return Node(Op.ADD, F, (Node(Op.COS, F, (x,)), const(0.5, F)))


@pytest.mark.parametrize(
    "seed", [*range(8), *[pytest.param(seed, marks=pytest.mark.thorough) for seed in range(8, 25)]]
)
def test_the_gradient_of_random_chains_agrees_with_finite_differences(seed):
    rng = np.random.default_rng(seed)
    x = root = leaf(0, 3, 4)
    for _ in range(7):
        root = random_step(rng, root)
    assert x in root.toposort()
    check(root, [numbers(3, 4, low=-1, high=1, seed=seed)], tolerance=2e-5)


def test_a_value_used_many_times_sums_its_gradients():
    x = leaf(0, 4)
    y = Node(Op.MUL, F, (Node(Op.EXP, F, (x,)), Node(Op.ADD, F, (x, Node(Op.SIN, F, (x,))))))
    check(Node(Op.ADD, F, (y, Node(Op.MUL, F, (y, x)))), [numbers(4)])


def test_a_target_that_the_root_does_not_use_has_no_gradient():
    assert gradient(Node(Op.EXP, F, (leaf(0, 4),)), filled(1.0, (4,), F), [leaf(1, 4)]) == [None]


def test_the_root_itself_and_nodes_on_the_way_can_be_targets():
    x = leaf(0, 4)
    middle = Node(Op.EXP, F, (x,))
    root = Node(Op.NEG, F, (middle,))
    seed = filled(1.0, (4,), F)
    found = gradient(root, seed, [root, middle, x])
    assert found[0] is seed
    np.testing.assert_array_equal(value(found[1], []), [-1, -1, -1, -1])
    np.testing.assert_allclose(value(found[2], [numbers(4)]), -np.exp(numbers(4)))


def test_graphs_deeper_than_the_python_stack_are_walked_in_time_linear_in_their_size():
    x = root = leaf(0, 2)
    for _ in range(20_000):
        root = Node(Op.ADD, F, (root, root))
    (found,) = gradient(root, filled(1.0, (2,), F), [x])
    assert len(found.toposort()) < 60_000


def test_two_walks_give_the_same_graph():
    x = leaf(0, 4)
    root = Node(Op.MUL, F, (Node(Op.EXP, F, (x,)), Node(Op.SIN, F, (x,))))
    seed = filled(1.0, (4,), F)
    assert gradient(root, seed, [x])[0] is gradient(root, seed, [x])[0]


def test_second_derivatives_agree_with_finite_differences():
    x = leaf(0, 3)
    root = Node(Op.DIV, F, (Node(Op.SIN, F, (x,)), Node(Op.ADD, F, (const(3.0, F), Node(Op.EXP, F, (x,))))))
    (first,) = gradient(root, filled(1.0, (3,), F), [x])
    check(first, [numbers(3)])


def test_the_gradient_goes_through_realized_memory_and_reads_it():
    x = leaf(0, 3)
    middle = Storage("CPU", F, (3,))
    middle.history = Node(Op.EXP, F, (x,))
    root = Node(Op.MUL, F, (middle.node(), middle.node()))
    (found,) = gradient(root, filled(1.0, (3,), F), [x])
    assert middle.node() in found.toposort()
    assert not any(node.op is Op.EXP for node in found.toposort())
    array = numbers(3)
    (actual,) = evaluate([found], lambda leaf: np.exp(array) if leaf.op is Op.BUFFER else array)
    np.testing.assert_allclose(actual, 2 * np.exp(2 * array))


def test_flat_prints_as_its_name():
    assert repr(FLAT) == "FLAT"
