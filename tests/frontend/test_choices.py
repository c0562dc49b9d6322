"""Statistics, counts, scatters and shapes: against NumPy, and against what they undo."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor

R = np.random.default_rng(3)
X = R.standard_normal((4, 7)).astype(np.float32)


def test_a_median_is_the_lower_middle_and_nan_if_there_is_one():
    rows = X.copy()
    rows[1, 3] = math.nan
    values, indices = Tensor(rows).median(1)
    values.realize(indices)
    assert np.array_equal(
        values.numpy(), np.sort(X, 1)[:, 3] * np.where([0, 1, 0, 0], np.nan, 1), equal_nan=True
    )
    assert np.array_equal(
        np.take_along_axis(rows, indices.numpy()[:, None], 1)[:, 0], values.numpy(), equal_nan=True
    )
    np.testing.assert_array_equal(
        Tensor(rows).nanmedian(1).values.numpy()[[0, 2, 3]], np.sort(X, 1)[[0, 2, 3], 3]
    )


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_a_quantile_is_numpys(interpolation):
    shares = np.array([0.0, 0.3, 0.5, 1.0], np.float32)
    found = Tensor(X).quantile(Tensor(shares), dim=1, interpolation=interpolation)
    np.testing.assert_allclose(
        found.numpy(), np.quantile(X, shares, axis=1, method=interpolation), rtol=1e-5, atol=1e-6
    )


def test_a_running_extreme_says_where_it_was_last():
    values, indices = hcq.tensor([1, 3, 3, 2, 5]).cummax(0)
    assert values.realize(indices).tolist() == [1, 3, 3, 3, 5]
    assert indices.tolist() == [0, 1, 2, 2, 4]
    assert str(Tensor([2.0, math.nan, 1.0]).cummin(0).values.tolist()) == "[2.0, nan, nan]"


def test_a_running_sum_of_exponentials_does_not_overflow():
    large = np.array([1e4, 9.999e3, -1e4, 1e4], np.float32)
    np.testing.assert_allclose(
        Tensor(large).logcumsumexp(0).numpy(), np.logaddexp.accumulate(large), rtol=1e-6
    )


def test_a_place_is_found_where_numpy_finds_it():
    edges, values = np.sort(X[0]), np.append(X[1], X[0])
    for side in ("left", "right"):
        found = Tensor(edges).searchsorted(Tensor(values), side=side)
        assert np.array_equal(found.numpy(), np.searchsorted(edges, values, side))
    assert Tensor(values).bucketize(Tensor(edges)).tolist() == np.searchsorted(edges, values).tolist()


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_what_goes_to_one_place_is_combined(reduce):
    index = np.array([[0, 2, 0, 1, 2, 2, 0]] * 4)
    meaning = {"sum": np.add, "prod": np.multiply, "mean": np.add, "amax": np.maximum, "amin": np.minimum}[
        reduce
    ]
    expected = np.full((4, 3), {"prod": 1.0, "amax": -np.inf, "amin": np.inf}.get(reduce, 0.0), np.float32)
    meaning.at(expected, (np.arange(4)[:, None], index), X)
    expected = expected / [3, 1, 3] if reduce == "mean" else expected
    base = Tensor.zeros(4, 3)
    found = base.scatter_reduce(1, Tensor(index), Tensor(X), reduce, include_self=False)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_a_gradient_of_a_scatter_goes_to_what_stayed():
    source = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    base = Tensor([0.0, 0.0], requires_grad=True)
    base.scatter(0, hcq.tensor([0, 0, 1]), source).sum().backward()
    assert source.grad is not None and base.grad is not None
    assert source.grad.realize(base.grad).tolist() == [0.0, 1.0, 1.0]
    assert base.grad.tolist() == [0.0, 0.0]


def test_what_is_put_at_an_index_stands_there_in_the_shape_that_was():
    rows, columns = np.array([0, 2]), np.array([1, 6])
    for accumulate, expected in ((False, [5.0, 6.0]), (True, [X[0, 1] + 5.0, X[2, 6] + 6.0])):
        found = Tensor(X).index_put((Tensor(rows), Tensor(columns)), Tensor([5.0, 6.0]), accumulate).numpy()
        assert found.shape == X.shape
        np.testing.assert_allclose(found[rows, columns], expected)
        assert np.count_nonzero(found != X) == 2


def test_a_diagonal_that_is_embedded_is_the_diagonal_again():
    for offset in (-2, 0, 1):
        again = Tensor(X).diag_embed(offset, 0, 2).diagonal(offset, 0, 2)
        assert np.array_equal(again.numpy(), X)


def test_parts_that_are_joined_are_the_whole_again():
    assert np.array_equal(hcq.hstack(Tensor(X).tensor_split(3, 1)).numpy(), X)
    assert np.array_equal(hcq.vstack(Tensor(X).tensor_split((1, 3))).numpy(), X)
    assert np.array_equal(Tensor(X).rot90(1).rot90(3).numpy(), X)
    with pytest.raises(UsageError, match=r"\[hsplit\] axis 1 of size 7 has no 2 equal parts"):
        Tensor(X).hsplit(2)


def test_gamma_is_that_of_the_standard_library():
    numbers = [0.1, 0.5, 1.0, 1.5, 2.0, 2.0001, 7.3, 40.0, -0.5, -3.7]
    expected = [math.lgamma(float(np.float32(x))) for x in numbers]
    np.testing.assert_allclose(Tensor(numbers).lgamma().numpy(), expected, rtol=2.4e-7)
    x = Tensor([3.0], requires_grad=True)
    x.lgamma().sum().backward()
    assert x.grad is not None and x.grad.item() == pytest.approx(1.5 - 0.5772156649015329)


def test_erfc_is_precise_where_it_vanishes_and_erfinv_turns_erf_around():
    numbers = np.array([-3.0, -0.4, 0.0, 0.3, 0.6, 2.0, 4.5, 9.0], np.float32)
    np.testing.assert_allclose(
        Tensor(numbers).erfc().numpy(),
        [math.erfc(float(x)) for x in numbers],
        rtol=8 * np.finfo(np.float32).eps,
    )
    shares = np.array([-0.9999, -0.5, 1e-8, 0.2, 0.99], np.float32)
    again = [math.erf(float(x)) for x in Tensor(shares).erfinv().numpy()]
    np.testing.assert_allclose(again, shares, rtol=1e-6)
