"""hcq.torch.masked: reductions of the elements that a mask takes are those of the elements alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.torch import masked

R = np.random.default_rng(3)
X = R.normal(0, 2, (4, 6)).astype(np.float32)
MASK = R.random((4, 6)) < 0.6
MASK[2] = False  # a row of nothing
MASK[0, 0] = True

ROWS = {
    "sum": (np.sum, 0.0),
    "prod": (np.prod, 1.0),
    "amax": (np.max, -math.inf),
    "amin": (np.min, math.inf),
    "mean": (np.mean, math.nan),
    "var": (lambda row: np.var(row, ddof=1) if len(row) > 1 else math.nan, math.nan),
    "std": (lambda row: np.std(row, ddof=1) if len(row) > 1 else math.nan, math.nan),
    "median": (lambda row: np.sort(row)[(len(row) - 1) // 2], math.nan),
    "logsumexp": (lambda row: np.log(np.exp(row).sum()), -math.inf),
    "norm": (np.linalg.norm, 0.0),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_reduced_to_what_its_elements_alone_give(name):
    reduce, of_none = ROWS[name]
    expected = [reduce(row[mask]) if mask.any() else of_none for row, mask in zip(X, MASK)]
    found = getattr(masked, name)(Tensor(X), dim=1, mask=Tensor(MASK))
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5)


def test_what_keeps_its_shape_leaves_out_what_the_mask_leaves_out():
    x, mask = Tensor(X), Tensor(MASK)
    kept = np.where(MASK, X, 0)
    np.testing.assert_allclose(
        masked.cumsum(x, 1, mask=mask).numpy(), np.cumsum(kept, 1), rtol=1e-5, atol=1e-6
    )
    shares = masked.softmax(x, 1, mask=mask).numpy()
    weights = np.where(MASK, np.exp(X), 0)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(shares, weights / weights.sum(1, keepdims=True), rtol=1e-5)
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    np.testing.assert_allclose(
        masked.normalize(x, 2.0, 1, mask=mask).numpy(), kept / np.maximum(lengths, 1e-12), rtol=1e-5
    )


def test_gradients_pass_where_the_mask_holds():
    x = Tensor(X, requires_grad=True)
    masked.mean(x, 1, mask=Tensor(MASK))[0].backward()
    expected = np.zeros_like(X)
    expected[0] = MASK[0] / MASK[0].sum()
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6)


def test_a_mask_broadcasts_and_is_of_bool():
    assert masked.sum(hcq.tensor([[1, 2], [3, 4]]), 1, mask=hcq.tensor([True, False])).tolist() == [1, 3]
    assert (
        masked.argmax(hcq.tensor([3, 9, 5]), dtype=dtypes.int64, mask=hcq.tensor([True, False, True])).item()
        == 2
    )
    with pytest.raises(UsageError, match=r"\[masked.sum\] a mask of int64"):
        masked.sum(hcq.tensor([1, 2]), mask=hcq.tensor([1, 0]))
