"""Gradients of composed methods against PyTorch's: another composition, the same derivative."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hcq.frontend.tensor import Tensor

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.torch

R = np.random.default_rng(7)
X = R.standard_normal((2, 4, 6)).astype(np.float32)
IMAGE = R.standard_normal((2, 4, 9, 7)).astype(np.float32)
WEIGHT = R.standard_normal((6, 2, 3, 3)).astype(np.float32)
CLASSES = R.integers(0, 4, (2, 6))
EDGES = np.float32([0.0, 1e-3, -0.4, 0.7, -1.3, 2.0, -6.0, 30.0, -30.0, 100.0, -100.0])


def gradients(ours, theirs, *arrays, tolerance=2e-4):
    """Weigh every element of the result by another number and compare the gradients of all arguments."""
    a = [Tensor(x, requires_grad=True) for x in arrays]
    b = [torch.from_numpy(np.array(x)).requires_grad_() for x in arrays]
    y, z = ours(*a), theirs(*b)
    assert y.shape == tuple(z.shape)
    weights = np.cos(np.arange(z.numel(), dtype=np.float32)).reshape(tuple(z.shape))
    (y * Tensor(weights)).sum().backward()
    (z * torch.from_numpy(weights)).sum().backward()
    for p, q in zip(a, b):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=tolerance, atol=tolerance)


SAME_NAME = (
    "sigmoid tanh erf softplus gelu silu mish elu selu leaky_relu hardswish logsigmoid relu6 expm1 abs sinh"
)


@pytest.mark.parametrize("name", SAME_NAME.split())
def test_activations_slope_as_pytorchs_at_the_edges_too(name):
    edges = EDGES[:9] if name in ("expm1", "sinh") else EDGES
    theirs = getattr(F, name, None) or getattr(torch, name)
    gradients(lambda x: getattr(x, name)(), theirs, edges)


@pytest.mark.parametrize("exponent", [2, 3, -1, 0.5, 1.7, -0.3])
def test_powers_slope_as_pytorchs(exponent):
    x = np.float32([0.3, 1.0, 2.5])
    gradients(lambda x: x**exponent, lambda x: x**exponent, x)
    gradients(lambda x, y: x**y, lambda x, y: x**y, x, np.float32([2.0, 0.5, -1.5]))


@pytest.mark.parametrize("name", ["sign", "floor", "ceil", "round", "trunc"])
def test_steps_slope_nowhere_as_pytorchs(name):
    gradients(lambda x: getattr(x, name)(), getattr(torch, name), EDGES)


def test_a_power_of_zero_slopes_nowhere_as_pytorchs():
    gradients(lambda x: x**0, lambda x: x**0, EDGES)


def test_zero_to_a_power_has_no_nan_slope():
    x = Tensor([0.0, 0.0], requires_grad=True)
    (x**1.5).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


CASES = {
    "softmax": (lambda x: x.softmax(1), lambda x: x.softmax(1), X),
    "log_softmax": (lambda x: x.log_softmax(-1), lambda x: x.log_softmax(-1), X),
    "logsumexp": (lambda x: x.logsumexp((0, 2)), lambda x: x.logsumexp((0, 2)), X),
    "mean": (lambda x: x.mean((0, 2)), lambda x: x.mean((0, 2)), X),
    "var": (lambda x: x.var(1), lambda x: x.var(1), X),
    "std": (lambda x: x.std(), lambda x: x.std(), X),
    "norm": (lambda x: x.norm(2, 1), lambda x: x.norm(2, 1), X),
    "prod": (lambda x: x.prod(2), lambda x: x.prod(2), X),
    "max": (lambda x: x.max(2).values, lambda x: x.max(2).values, X),
    "cumsum": (lambda x: x.cumsum(2), lambda x: x.cumsum(2), X),
    "sort": (lambda x: x.sort(1).values, lambda x: x.sort(1).values, X),
    "layer_norm": (lambda x, w: x.layer_norm(6, w), lambda x, w: F.layer_norm(x, (6,), w), X, X[0, 0]),
    "group_norm": (lambda x: x.group_norm(2), lambda x: F.group_norm(x, 2), X),
    "batch_norm": (lambda x: x.batch_norm(), lambda x: F.batch_norm(x, None, None, training=True), X),
    "rms_norm": (lambda x: x.rms_norm(6), lambda x: F.rms_norm(x, (6,)), X),
    "matmul": (lambda a, b: a @ b, lambda a, b: a @ b, X, X[0].T.copy()),
    "batched matmul": (lambda a, b: a @ b.mT, lambda a, b: a @ b.mT, X, X[::-1].copy()),
    "linear": (lambda x, w: x.linear(w), F.linear, X, X[0]),
    "einsum": (
        lambda a, b: Tensor.einsum("bij,bkj->bik", a, b),
        lambda a, b: torch.einsum("bij,bkj->bik", a, b),
        X,
        X,
    ),
    "attention": (
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        X,
        X * 0.5,
        X + 1,
    ),
    "conv2d": (
        lambda x, w: x.conv2d(w, stride=2, padding=1, groups=2),
        lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=2),
        IMAGE,
        WEIGHT,
    ),
    "dilated conv2d": (
        lambda x, w: x.conv2d(w, dilation=2, groups=2),
        lambda x, w: F.conv2d(x, w, dilation=2, groups=2),
        IMAGE,
        WEIGHT,
    ),
    "conv_transpose2d": (
        lambda x, w: x.conv_transpose2d(w, stride=2, padding=1),
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
        IMAGE,
        WEIGHT[:4],
    ),
    "max_pool2d": (lambda x: x.max_pool2d(3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
    "avg_pool2d": (lambda x: x.avg_pool2d(3, 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE),
    "pad": (lambda x: x.pad((1, 2), "reflect"), lambda x: F.pad(x, (1, 2), "reflect"), X),
    "index": (lambda x: x[:, [0, 3, 0], 1:4], lambda x: x[:, [0, 3, 0], 1:4], X),
    "backwards": (lambda x: x[:, ::-2], lambda x: x.flip(1)[:, ::2], X),
    "cat": (lambda x, y: Tensor.cat([x, y * 2], 1), lambda x, y: torch.cat([x, y * 2], 1), X, X),
    "cross_entropy": (
        lambda x: x.cross_entropy(Tensor(CLASSES), label_smoothing=0.1, ignore_index=1),
        lambda x: F.cross_entropy(x, torch.from_numpy(CLASSES), label_smoothing=0.1, ignore_index=1),
        X,
    ),
    "bce_with_logits": (
        lambda x: x.binary_cross_entropy_with_logits(Tensor((X > 0).astype(np.float32))),
        lambda x: F.binary_cross_entropy_with_logits(x, torch.from_numpy((X > 0).astype(np.float32))),
        X * 50,
    ),
    "huber_loss": (lambda x: x.huber_loss(Tensor(-X)), lambda x: F.huber_loss(x, torch.from_numpy(-X)), X),
    "embedding": (
        lambda w: Tensor(CLASSES).embedding(w),
        lambda w: F.embedding(torch.from_numpy(CLASSES), w),
        X[0],
    ),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), lambda x: x.clamp(-0.5, 0.5), X),
    "where": (lambda x: (x > 0).where(x * x, -x), lambda x: torch.where(x > 0, x * x, -x), X),
    "lerp": (lambda x, y: x.lerp(y, 0.3), lambda x, y: x.lerp(y, 0.3), X, X[::-1].copy()),
}


@pytest.mark.parametrize("name", CASES)
def test_compositions_slope_as_pytorchs(name):
    gradients(*CASES[name])


def test_a_value_set_into_a_lazy_tensor_passes_gradients_to_both():
    def put(x, y):
        z = x * 2
        z[:, 1:3] = y
        return z

    gradients(put, put, X[0], X[1, :, 1:3].copy())


def test_softmax_of_masked_places_has_no_nan_slope():
    scores = np.where(np.tril(np.ones((4, 4), bool)), X[0, :, :4], -math.inf).astype(np.float32)
    gradients(lambda x: x.softmax(1), lambda x: x.softmax(1), scores)
