"""Arguments at the edge of what a function takes: PyTorch takes them, and so do we."""

from __future__ import annotations

import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def test_a_range_of_integers_rounds_its_bounds_and_not_its_numbers():
    assert Tensor.arange(0.5, 2.7, dtype=dtypes.int64).tolist() == [0, 1]
    with pytest.raises(UsageError, match=r"by step 0 never ends"):
        Tensor.arange(0, 3, 0.5, dtype=dtypes.int64)
    assert Tensor.logspace(1.9, 3.9, 3, dtype=dtypes.int64).tolist() == [10, 100, 1000]


def test_bounds_of_a_range_may_be_tensors_with_gradients():
    end = Tensor(3.0, requires_grad=True)
    line = Tensor.linspace(Tensor(1.0), end, 3)
    assert line.tolist() == [1.0, 2.0, 3.0]
    line.sum().backward()
    assert end.grad.item() == 1.5
    assert Tensor.logspace(0, Tensor(2.0), 2, base=2.0).tolist() == [1.0, 4.0]
    with pytest.raises(UsageError, match=r"\[linspace\] start of shape \(2,\)"):
        Tensor.linspace(Tensor([1.0, 2.0]), 3.0, 2)


def test_averages_of_integers_are_rounded_towards_zero():
    x = hcq.tensor([[[-1, -2, 4, 5]]])
    assert x.avg_pool1d(2).tolist() == [[[-1, 4]]]
    assert x.float().avg_pool1d(2).tolist() == [[[-1.5, 4.5]]]


def test_a_part_that_is_cropped_away_leaves_its_edge_to_replicate():
    x = Tensor([[[1.0, 2.0, 3.0]]])
    assert x.pad((-3, 4), "replicate").tolist() == [[[3.0] * 4]]
    assert x.pad((2, -1), "replicate").tolist() == [[[1.0, 1.0, 1.0, 2.0]]]


def test_values_that_meet_in_one_place_have_its_gradient_each():
    x = Tensor([[[2.0, 2.0, 3.0]]], requires_grad=True)
    y = x.max_unpool1d(hcq.tensor([[[1, 1, 5]]]), 2)
    assert y.tolist() == [[[0.0, 2.0, 0.0, 0.0, 0.0, 3.0]]]
    (y * Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).sum().backward()
    assert x.grad.tolist() == [[[2.0, 2.0, 6.0]]]


def test_a_tensor_without_elements_joins_any_other():
    assert Tensor.cat([Tensor([]), hcq.tensor([[1, 2]])], dim=1).tolist() == [[1.0, 2.0]]
    assert hcq.tensor([5, 6]).gather(0, Tensor([], dtype=dtypes.int64).reshape(2, 0)).shape == (2, 0)
    assert hcq.tensor(5).gather(0, hcq.tensor([0, 0])).tolist() == [5, 5]


def test_a_part_may_begin_where_a_tensor_says():
    assert hcq.tensor([1, 2, 3]).narrow(0, hcq.tensor(1), 2).tolist() == [2, 3]
    with pytest.raises(UsageError, match=r"\[narrow\] start=.*: takes an int"):
        hcq.tensor([1, 2, 3]).narrow(0, Tensor(1.0), 2)


def test_axes_of_size_one_meet_any_other_in_tensordot():
    x, y = Tensor([[2.0]]), Tensor([[1.0], [3.0]])
    assert x.tensordot(y, ([1], [0])).tolist() == [[8.0]]
