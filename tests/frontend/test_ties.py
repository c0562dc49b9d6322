"""Ties: which of equal extremes has the gradient. Expected values are PyTorch's."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import hcq
from hcq import Tensor

F = hcq.nn.functional
LINE = [[1.0, 2.0, 2.0, 1.0, 2.0]]
FIRST_OF_THREE, FIRST_OF_TWO = [0.0, 1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]
FIRST = {
    "max": (lambda x: x.max(1)[0], FIRST_OF_THREE),
    "max of a negative axis, kept": (lambda x: x.max(-1, keepdim=True).values, FIRST_OF_THREE),
    "min": (lambda x: x.min(1)[0], FIRST_OF_TWO),
    "max_pool1d": (lambda x: F.max_pool1d(x, 5), FIRST_OF_THREE),
    "max_pool1d with indices": (lambda x: F.max_pool1d(x, 5, return_indices=True)[0], FIRST_OF_THREE),
    "max_pool2d": (lambda x: F.max_pool2d(x[None], (1, 5)), FIRST_OF_THREE),
    "max_pool3d": (lambda x: F.max_pool3d(x[None, None], (1, 1, 5)), FIRST_OF_THREE),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 1), FIRST_OF_THREE),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x[None], 1), FIRST_OF_THREE),
    "cummax": (lambda x: x.cummax(1)[0][:, :2], [1.0, 1.0, 0.0, 0.0, 0.0]),
}
THIRD = 1 / 3
SHARED = {
    "amax": (lambda x: x.amax(1), [0.0, THIRD, THIRD, 0.0, THIRD]),
    "amin": (lambda x: x.amin(1), [0.5, 0.0, 0.0, 0.5, 0.0]),
    "max of all": (lambda x: x.max(), [0.0, THIRD, THIRD, 0.0, THIRD]),
    "min of all": (lambda x: x.min(), [0.5, 0.0, 0.0, 0.5, 0.0]),
    "median of all": (lambda x: x.median(), [0.0, THIRD, THIRD, 0.0, THIRD]),
    "nanmedian of all": (lambda x: x.nanmedian(), [0.0, THIRD, THIRD, 0.0, THIRD]),
    "scatter_reduce with what is there": (
        lambda x: Tensor([[2.0]]).scatter_reduce(1, hcq.tensor([[0] * 5]), x, "amax"),
        [0.0, 0.25, 0.25, 0.0, 0.25],
    ),
}


def slopes(operator):
    x = Tensor(LINE, requires_grad=True)
    operator(x).sum().backward()
    return x.grad.tolist()[0]


@pytest.mark.parametrize("name", FIRST)
def test_the_first_of_equal_extremes_has_the_gradient_where_one_is_chosen(name):
    operator, want = FIRST[name]
    assert slopes(operator) == want


@pytest.mark.parametrize("name", SHARED)
def test_equal_extremes_share_the_gradient_where_a_value_alone_is_asked_for(name):
    operator, want = SHARED[name]
    np.testing.assert_allclose(slopes(operator), want, rtol=1e-6)


def test_the_first_nan_has_the_gradient():
    x = Tensor([[1.0, float("nan"), 3.0, float("nan")]], requires_grad=True)
    x.max(1)[0].sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_the_gradient_of_an_extreme_can_be_differentiated_again():
    x = Tensor([[1.0, 3.0, 3.0]], requires_grad=True)
    (first,) = hcq.torch.autograd.grad(x.max(1)[0].square().sum(), x, create_graph=True)
    (second,) = hcq.torch.autograd.grad(first.sum(), x)
    assert first.tolist() == [[0.0, 6.0, 0.0]] and second.tolist() == [[0.0, 2.0, 0.0]]


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_windows_with_ties_have_pytorchs_gradients(rank):
    import torch

    values = np.random.default_rng(rank).integers(0, 3, (2, 3, *[8] * rank)).astype(np.float32)
    for name, options in (("max_pool", (3, 2, 1)), ("adaptive_max_pool", (3,))):
        x, t = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
        getattr(F, f"{name}{rank}d")(x, *options).square().sum().backward()
        getattr(torch.nn.functional, f"{name}{rank}d")(t, *options).square().sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), t.grad.numpy())
