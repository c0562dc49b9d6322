"""Normalisation and attention against their formulas in NumPy float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor

X = np.random.default_rng(3).standard_normal((2, 6, 5)).astype(np.float32)


def softmax(x, axis=-1):
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def standard(x, axes, eps=1e-5):
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def close(actual: Tensor, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual.numpy(), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_and_its_logarithm_are_the_formula(axis):
    close(Tensor(X).softmax(axis), softmax(X, axis))
    close(Tensor(X).log_softmax(axis), np.log(softmax(X, axis)))
    close(Tensor(X).softmin(axis), softmax(-X, axis))


def test_softmax_of_large_numbers_does_not_overflow():
    x = Tensor([[1e4, 1e4 - 1.0], [-1e4, -math.inf]])
    close(x.softmax(1), softmax(np.array([[1.0, 0.0], [0.0, -math.inf]])))
    close(x.log_softmax(1)[0], np.log(softmax(np.array([1.0, 0.0]))))


def test_layer_norm_standardises_the_last_axes():
    w, b = np.arange(5.0, dtype=np.float32), np.ones(5, np.float32)
    close(Tensor(X).layer_norm(5, Tensor(w), Tensor(b)), standard(X, -1) * w + b)
    close(Tensor(X).layer_norm((6, 5)), standard(X, (1, 2)))


def test_rms_norm_divides_by_the_root_of_the_mean_square():
    close(
        Tensor(X).rms_norm(5, eps=1e-6),
        X / np.sqrt((X.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6),
    )


def test_group_norm_standardises_groups_of_channels():
    expected = standard(X.reshape(2, 3, 10), 2).reshape(2, 6, 5)
    close(Tensor(X).group_norm(3), expected)
    w = np.arange(6.0, dtype=np.float32)
    close(Tensor(X).group_norm(3, Tensor(w)), expected * w[:, None])
    close(Tensor(X).instance_norm(), standard(X, 2))


def test_batch_norm_uses_the_batchs_statistics_or_the_given_ones():
    w, b = np.arange(6.0, dtype=np.float32), np.ones(6, np.float32)
    close(
        Tensor(X).batch_norm(None, None, Tensor(w), Tensor(b)), standard(X, (0, 2)) * w[:, None] + b[:, None]
    )
    mean, var = X.mean((0, 2)), X.var((0, 2))
    assert Tensor.zeros(0).batch_norm(Tensor.zeros(0), Tensor.zeros(0)).shape == (0,)
    close(Tensor(X).batch_norm(Tensor(mean), Tensor(var)), standard(X, (0, 2)))


def test_attention_is_a_weighted_mean_of_values():
    q, k, v = (np.random.default_rng(s).standard_normal((2, 3, 4, 8)).astype(np.float32) for s in range(3))
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(8)
    tq, tk, tv = Tensor(q), Tensor(k), Tensor(v)
    close(tq.scaled_dot_product_attention(tk, tv), softmax(scores) @ v)
    causal = np.where(np.tril(np.ones((4, 4), bool)), scores, -math.inf)
    close(tq.scaled_dot_product_attention(tk, tv, is_causal=True), softmax(causal) @ v)
    mask = np.tril(np.ones((4, 4), bool))
    close(tq.scaled_dot_product_attention(tk, tv, attn_mask=Tensor(mask)), softmax(causal) @ v)
    bias = np.random.default_rng(9).standard_normal((4, 4)).astype(np.float32)
    close(
        tq.scaled_dot_product_attention(tk, tv, attn_mask=Tensor(bias), scale=0.5),
        softmax(scores * math.sqrt(8) * 0.5 + bias) @ v,
    )


def test_vectors_are_scaled_to_length_one_and_compared_by_angle():
    x, y = X[0], X[1]
    close(Tensor(x).normalize(dim=1), x / np.linalg.norm(x, axis=1, keepdims=True))
    expected = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    close(Tensor(x).cosine_similarity(Tensor(y)), expected)


def test_sizes_that_are_not_the_last_ones_are_refused():
    with pytest.raises(UsageError, match=r"normalized_shape \(6,\) are not the last sizes of \(2, 6, 5\)"):
        Tensor(X).layer_norm(6)
