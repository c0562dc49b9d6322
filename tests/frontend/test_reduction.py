"""Reductions against NumPy: every axis choice, dtypes, and what ties, NaN and emptiness mean."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

X = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32)
AXES = [None, 0, -1, (0, 2), (0, 1, 2), (1,)]


def close(actual: Tensor, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    expected = np.asarray(expected)
    assert (actual.shape, actual.dtype.name) == (expected.shape, expected.dtype.name)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "amax", "amin"])
def test_reductions_are_numpys(name, axes, keepdim):
    close(getattr(Tensor(X), name)(axes, keepdim), getattr(np, name)(X, axis=axes, keepdims=keepdim))


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("correction", [0, 1])
def test_variance_and_deviation_are_numpys(axes, correction):
    close(Tensor(X).var(axes, correction), X.var(axes, ddof=correction))
    close(Tensor(X).std(axes, correction, keepdim=True), X.std(axes, ddof=correction, keepdims=True))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extremes_are_numpys(name, axis):
    close(getattr(Tensor(X), name)(axis), getattr(np, name)(X, axis))
    close(getattr(Tensor(X), name)(axis, keepdim=True), getattr(np, name)(X, axis, keepdims=True))


def test_the_first_of_equal_extremes_is_found():
    assert hcq.tensor([1, 3, 3, 0, 0]).argmax().item() == 1
    assert hcq.tensor([1, 3, 3, 0, 0]).argmin().item() == 3
    assert hcq.tensor([False, True, True]).argmax().item() == 1
    assert Tensor([-math.inf, -math.inf]).argmax().item() == 0


def test_nan_is_every_extreme():
    x = Tensor([1.0, math.nan, 3.0, math.nan])
    assert math.isnan(x.max().item()) and math.isnan(x.min().item())
    assert (x.argmax().item(), x.argmin().item()) == (1, 1)


def test_max_along_an_axis_gives_values_and_places():
    found = Tensor(X).max(1)
    close(found.values, X.max(1))
    close(found.indices, X.argmax(1))
    values, indices = Tensor(X).min(-1, keepdim=True)
    close(values, X.min(-1, keepdims=True))
    close(indices, X.argmin(-1, keepdims=True))
    close(Tensor(X).max(Tensor(-X)), np.abs(X))


def test_sums_of_integers_and_bools_are_int64():
    assert Tensor([200, 100], dtype=dtypes.uint8).sum().item() == 300
    assert hcq.tensor([True, True]).sum().dtype is dtypes.int64
    assert Tensor([2, 3], dtype=dtypes.int8).prod().item() == 6
    assert Tensor([200, 100], dtype=dtypes.uint8).sum(dtype=dtypes.uint8).item() == 44


def test_narrow_floats_are_summed_in_float32():
    ones = np.ones(5000, np.float16)
    total = Tensor(ones).sum()
    assert (total.dtype, total.item()) == (dtypes.float16, 5000.0)  # in float16 it would stop at 2048
    assert Tensor([1.0] * 500, dtype=dtypes.bfloat16).sum().item() == 500.0
    assert Tensor(ones * 60000).mean().item() == 60000.0


def test_any_and_all_read_zero_as_false():
    x = np.array([[0, 1, 2], [3, 4, 5], [0, 0, 0]])
    for axis in (None, 0, 1):
        close(Tensor(x).any(axis), x.any(axis))
        close(Tensor(x).all(axis), x.all(axis))
    assert Tensor(x).count_nonzero().item() == 5


def test_empty_sums_are_zero_and_empty_products_one():
    x = Tensor.zeros(0, 3)
    assert x.sum().item() == 0.0
    assert x.prod(0).tolist() == [1.0, 1.0, 1.0]
    assert math.isnan(x.mean().item())
    assert x.sum(1).shape == (0,)


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin", "max"])
def test_an_empty_axis_has_no_extreme(name):
    with pytest.raises(UsageError, match="axis 0 is empty"):
        getattr(Tensor.zeros(0, 3), name)(0)


def test_logsumexp_does_not_overflow():
    x = np.float64([[1000.0, 1000.0], [-1000.0, -1001.0], [-math.inf, -math.inf]])
    expected = np.logaddexp.reduce(x, axis=1)
    close(Tensor(x).logsumexp(1), expected, 1e-12)
    close(Tensor(X).logsumexp((0, 2)), np.log(np.exp(X).sum((0, 2))))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_sums_and_products_are_numpys(axis):
    close(Tensor(X).cumsum(axis), X.cumsum(axis))
    close(Tensor(X).cumprod(axis), X.cumprod(axis))
    close(Tensor(np.arange(7)).cumsum(0), np.arange(7).cumsum())


@pytest.mark.parametrize("p", [0, 1, 2, 3, math.inf])
def test_norms_are_numpys(p):
    close(Tensor(X).norm(p, 1), np.linalg.norm(X, p, 1).astype(np.float32))


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_stable_and_puts_nan_last(descending):
    x = np.float32([[3, 1, 2, 1, math.nan], [0, -1, math.inf, -math.inf, 0]])
    values, indices = Tensor(x).sort(1, descending)
    if descending:  # NaN counts as the greatest, so it comes first
        assert indices.tolist() == [[4, 0, 2, 1, 3], [2, 0, 4, 1, 3]]
    else:
        close(values, np.sort(x, 1))
        close(indices, np.argsort(x, 1, kind="stable"))
    close(Tensor(X).argsort(0), np.argsort(X, 0, kind="stable"))


def test_topk_is_the_start_of_the_sorted_axis():
    values, indices = Tensor(X).topk(2, 1)
    close(values, -np.sort(-X, 1)[:, :2])
    close(indices, np.argsort(-X, 1, kind="stable")[:, :2])


def test_a_scalar_reduces_to_itself():
    x = Tensor(3.0)
    assert [x.sum().item(), x.max().item(), x.mean(0).item(), x.argmax().item()] == [3.0, 3.0, 3.0, 0]


def test_softmax_of_shares_beside_another_sum_is_summed():
    rng = np.random.default_rng(0)
    w, a = rng.random(5).astype(np.float32), rng.random((5, 3)).astype(np.float32)
    weights = np.exp(w / w.sum()) / np.exp(w / w.sum()).sum()
    found = (Tensor(a).sum(-1) + (Tensor(w) / Tensor(w).sum()).softmax(-1)).logsumexp(-1)
    np.testing.assert_allclose(found.item(), np.log(np.exp(a.sum(-1) + weights).sum()), rtol=1e-5)
