"""Convolutions and pooling against loops in NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(math.prod(shape)).standard_normal(shape).astype(np.float32)


def convolved(x, w, stride, padding, dilation, groups):
    """Every window cut out and multiplied, one output place at a time."""
    rank = w.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0)] + [(padding, padding)] * rank)
    reach = [dilation * (k - 1) + 1 for k in w.shape[2:]]
    places = [(size - r) // stride + 1 for size, r in zip(x.shape[2:], reach)]
    out = np.zeros((x.shape[0], w.shape[0], *places))
    per_in, per_out = w.shape[1], w.shape[0] // groups
    for place in itertools.product(*map(range, places)):
        cut = tuple(slice(p * stride, p * stride + r, dilation) for p, r in zip(place, reach))
        window = x[(slice(None), slice(None), *cut)]
        for o in range(w.shape[0]):
            g = o // per_out
            part = window[:, g * per_in : (g + 1) * per_in]
            out[(slice(None), o, *place)] = (part * w[o]).reshape(len(x), -1).sum(1)
    return out


@pytest.mark.parametrize(
    "x, w, stride, padding, dilation, groups",
    [
        ((2, 3, 8, 8), (4, 3, 3, 3), 1, 0, 1, 1),
        ((2, 3, 8, 7), (4, 3, 3, 2), 1, 1, 1, 1),
        ((1, 4, 9, 9), (6, 2, 3, 3), 2, 1, 1, 2),
        ((1, 4, 9, 9), (4, 1, 3, 3), 1, 2, 2, 4),
        ((2, 3, 5, 5), (2, 3, 1, 1), 1, 0, 1, 1),
        ((2, 3, 11), (4, 3, 4), 3, 2, 1, 1),
        ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), 1, 1, 1, 1),
    ],
    ids=str,
)
def test_convolution_multiplies_every_window(x, w, stride, padding, dilation, groups):
    x, w, b = random(*x), random(*w), random(w[0])
    expected = convolved(x, w, stride, padding, dilation, groups) + b.reshape(-1, *(1,) * (w.ndim - 2))
    actual = Tensor(x).conv2d(Tensor(w), Tensor(b), stride, padding, dilation, groups)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_padding_by_name_keeps_the_size_or_adds_nothing():
    x, w = Tensor(random(1, 1, 6, 6)), Tensor(random(1, 1, 3, 3))
    assert x.conv2d(w, padding="same").shape == (1, 1, 6, 6)
    assert x.conv2d(w, padding="valid").shape == (1, 1, 4, 4)
    assert x.squeeze(0).conv2d(w).shape == (1, 4, 4)  # one sample without its batch axis


@pytest.mark.parametrize("stride, padding, extra, groups", [(1, 0, 0, 1), (2, 1, 1, 1), (3, 0, 0, 2)])
def test_a_transposed_convolution_spreads_every_element(stride, padding, extra, groups):
    x, w = random(2, 4, 5, 4), random(4, 3, 3, 2)
    per_in = 4 // groups
    whole = np.zeros((2, 3 * groups, 4 * stride + 3 + extra, 3 * stride + 2 + extra))
    for c, i, j in itertools.product(range(4), range(5), range(4)):
        g = c // per_in
        whole[:, g * 3 : g * 3 + 3, i * stride : i * stride + 3, j * stride : j * stride + 2] += (
            x[:, c, i, j][:, None, None, None] * w[c]
        )
    expected = whole[:, :, padding : whole.shape[2] - padding, padding : whole.shape[3] - padding]
    actual = Tensor(x).conv_transpose2d(Tensor(w), None, stride, padding, extra, groups)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-4, atol=1e-5)


def pooled(x, size, stride, padding, fill, function):
    x = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)], constant_values=fill)
    places = [(n - size) // stride + 1 for n in x.shape[2:]]
    out = np.zeros((*x.shape[:2], *places), np.float32)
    for i, j in itertools.product(*map(range, places)):
        out[:, :, i, j] = function(
            x[:, :, i * stride : i * stride + size, j * stride : j * stride + size], (2, 3)
        )
    return out


@pytest.mark.parametrize("size, stride, padding", [(2, 2, 0), (3, 1, 1), (3, 2, 0), (2, 3, 1)])
def test_pooling_reduces_every_window(size, stride, padding):
    x = random(2, 3, 7, 8)
    largest = Tensor(x).max_pool2d(size, stride, padding).numpy()
    np.testing.assert_array_equal(largest, pooled(x, size, stride, padding, -math.inf, np.max))
    average = Tensor(x).avg_pool2d(size, stride, padding).numpy()
    np.testing.assert_allclose(average, pooled(x, size, stride, padding, 0.0, np.mean), rtol=1e-5, atol=1e-6)
    inside = Tensor(x).avg_pool2d(size, stride, padding, count_include_pad=False).numpy()
    np.testing.assert_allclose(
        inside, pooled(x, size, stride, padding, math.nan, np.nanmean), rtol=1e-5, atol=1e-6
    )


def test_pooling_along_one_axis_and_to_a_given_size():
    x = random(2, 3, 8)
    np.testing.assert_array_equal(Tensor(x).max_pool1d(2).numpy(), x.reshape(2, 3, 4, 2).max(3))
    np.testing.assert_allclose(Tensor(x).avg_pool1d(4).numpy(), x.reshape(2, 3, 2, 4).mean(3), rtol=1e-5)
    y = random(1, 2, 4, 6)
    expected = y.reshape(1, 2, 2, 2, 3, 2).mean((3, 5))
    np.testing.assert_allclose(Tensor(y).adaptive_avg_pool2d((2, 3)).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda x: x.conv2d(Tensor(random(4, 2, 3, 3))), "the input has 3 channels, the weight takes 2 x 1"),
        (
            lambda x: x.conv2d(Tensor(random(4, 3, 9, 9))),
            "axis 2 of size 6 with padding .* is smaller than the window",
        ),
        (lambda x: x.conv2d(Tensor(random(4, 3, 3, 3)), padding="full"), "padding='full' is unknown"),
        (lambda x: x.conv2d(Tensor(random(4, 3, 3, 3)), stride=0), r"\[stride\] 0"),
        (lambda x: x.conv2d(Tensor(random(4, 3))), r"\[conv2d\] input \(1, 3, 6, 6\), weight \(4, 3\)"),
        (lambda x: x.max_pool2d(2, padding=2), "more than half the window"),
    ],
)
def test_a_window_that_does_not_fit_is_refused(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call(Tensor(random(1, 3, 6, 6)))
