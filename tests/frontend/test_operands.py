"""Many operands: joins and sums of hundreds of tensors, and graphs deeper than Python's stack."""

from __future__ import annotations

import numpy as np
import pytest

from hcq import Device, Tensor, jit
from hcq.frontend.core import device as devices
from hcq.frontend.run.realize import schedule_of
from hcq.frontend.schedule.joins import MAX_PIECES
from hcq.frontend.schedule.walk import MAX_ARGUMENTS


def columns(count: int, *shape: int) -> list[np.ndarray]:
    random = np.random.default_rng(count)
    return [random.integers(-9, 9, shape).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("dim", [0, 1])
def test_hundreds_of_tensors_are_joined(dim: int):
    arrays = columns(300, 2, 3)
    tensors = [Tensor(a) for a in arrays]
    assert np.array_equal(np.concatenate(arrays, dim), Tensor.cat(tensors, dim).numpy())
    assert np.array_equal(np.stack(arrays, dim), Tensor.stack(tensors, dim).numpy())


def test_tensors_of_many_sizes_are_joined():
    arrays = [np.full((size % 7, 2), size, np.int32) for size in range(100)]
    arrays += [np.full((size, 2), size, np.int32) for size in range(20, 60)]
    assert np.array_equal(np.concatenate(arrays), Tensor.cat([Tensor(a) for a in arrays]).numpy())


def most_pieces() -> int:
    """That one kernel joins: fewer where a device's launches take few buffers."""
    return min(MAX_PIECES, devices.target(Tensor([1.0]).device).most_arguments)


def test_a_join_reads_each_part_once():
    (plan,) = schedule_of([Tensor.cat([Tensor(a) for a in columns(50, 100)])])
    assert len(plan.launches) == -(-50 // most_pieces())
    assert 2 * 50 * 100 * 4 == sum(launch.traffic_bytes for launch in plan.launches)
    assert sum(launch.flops for launch in plan.launches) == 0


def test_a_join_of_joins_along_one_axis_is_one_join():
    arrays = columns(40, 5)
    tensors = [Tensor(a) for a in arrays]
    whole = tensors[0]
    for tensor in tensors[1:]:
        whole = Tensor.cat([whole, tensor])
    (plan,) = schedule_of([whole])
    assert len(plan.launches) == -(-40 // most_pieces())
    assert np.array_equal(np.concatenate(arrays), whole.numpy())


def test_one_tensor_may_be_many_parts():
    x = Tensor([[1.0, 2.0]])
    assert np.array_equal(np.tile([[1.0, 2.0]], (300, 1)), Tensor.cat([x] * 300).numpy())
    assert sum([x] * 300).tolist() == [[300.0, 600.0]]


def test_thousands_of_tensors_are_added_by_kernels_that_fit_a_launch():
    arrays = columns(3000, 3)
    total = sum([Tensor(a) for a in arrays])
    (plan,) = schedule_of([total])
    assert max(len(launch.arguments) for launch in plan.launches) <= MAX_ARGUMENTS + 1
    assert len({launch.image for launch in plan.launches}) <= 3
    assert np.array_equal(np.sum(arrays, axis=0), total.numpy())


def test_sums_of_many_tensors_keep_the_order_of_additions():
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(8).astype(np.float32) * 10.0**i for i in random.integers(-6, 6, 200)]
    expected = arrays[0]
    for array in arrays[1:]:
        expected = expected + array
    assert np.array_equal(expected, sum([Tensor(a) for a in arrays]).numpy())


@pytest.mark.parametrize("how", ["cat", "stack", "sum", "product"])
def test_gradients_reach_every_one_of_many_operands(how: str):
    arrays = [np.random.default_rng(i).uniform(0.9, 1.1, (2, 2)).astype(np.float32) for i in range(80)]
    leaves = [Tensor(a, requires_grad=True) for a in arrays]
    whole = np.sum(arrays, axis=0) if how == "sum" else np.prod(arrays, axis=0)
    if how == "cat":
        Tensor.cat(leaves, 1).square().sum().backward()
        expected = [2 * a for a in arrays]
    elif how == "stack":
        Tensor.stack(leaves, 1).square().sum().backward()
        expected = [2 * a for a in arrays]
    elif how == "sum":
        sum(leaves).square().sum().backward()
        expected = [2 * whole] * 80
    else:
        product = leaves[0]
        for leaf in leaves[1:]:
            product = product * leaf
        product.sum().backward()
        expected = [whole / a for a in arrays]
    leaves[0].realize(*[leaf.grad for leaf in leaves])
    for leaf, want in zip(leaves, expected):
        np.testing.assert_allclose(leaf.grad.numpy(), want, rtol=1e-4)


def test_a_chain_of_ten_thousand_operations_is_no_recursion():
    x = Tensor(np.ones(4, np.float32))
    y = x
    for _ in range(10_000):
        y = y + x
    assert y.tolist() == [10_001.0] * 4


def test_gradients_go_through_thousands_of_operations():
    x = Tensor([0.5, 2.0], requires_grad=True)
    y = x
    for _ in range(2_000):
        y = y * 0.5 + x
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [2.0, 2.0], rtol=1e-6)


@pytest.mark.parametrize("count", [3, 40])
def test_reductions_of_a_row_follow_each_other_in_any_number(count: int):
    size = 1000 if Device.default == "CPU" else 16  # each thread of a GPU adds up the row by itself
    x = np.linspace(0.1, 1, size).astype(np.float32)
    y, expected = Tensor(x), x.astype(np.float64)
    for _ in range(count):
        y = y / (y.sum() + 1.0) + Tensor(x)
        expected = expected / (expected.sum() + 1.0) + x
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4)


def test_elements_are_picked_again_and_again():
    random = np.random.default_rng(3)
    x = random.standard_normal(20).astype(np.float32)
    y, expected = Tensor(x), x
    for _ in range(40):
        places = random.permutation(20)
        y, expected = y[Tensor(places)] + 1.0, expected[places] + np.float32(1.0)
    assert np.array_equal(expected, y.numpy())


def test_a_recording_may_have_many_operands():
    weights = [Tensor(a).realize() for a in columns(100, 3)]

    @jit
    def total(x: Tensor) -> Tensor:
        return Tensor.cat([w * x for w in weights]).sum() + sum(weights).sum()

    whole = sum(float(w.numpy().sum()) for w in weights)
    for i in range(4):
        assert total(Tensor([float(i)])).item() == pytest.approx(whole * i + whole, rel=1e-5, abs=1e-3)
