"""Activations against the standard library's functions in float64, and at the numbers where they could break."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

X = np.float32([0.0, 1e-6, -1e-3, 0.3, -0.6, 0.7, 1.0, -1.5, 2.9, -5.0, 8.0, -20.0, 60.0, -85.0])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def softplus(x: float) -> float:
    return x if x > 20 else math.log1p(math.exp(x))


FUNCTIONS = {
    "relu": lambda x: max(x, 0.0),
    "relu6": lambda x: min(max(x, 0.0), 6.0),
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "elu": lambda x: x if x > 0 else math.expm1(x),
    "selu": lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * math.expm1(x)),
    "sigmoid": sigmoid,
    "tanh": math.tanh,
    "erf": math.erf,
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * math.tanh(softplus(x)),
    "softplus": softplus,
    "softsign": lambda x: x / (1 + abs(x)),
    "logsigmoid": lambda x: -softplus(-x) if x > -20 else x,
    "hardtanh": lambda x: min(max(x, -1.0), 1.0),
    "hardsigmoid": lambda x: min(max(x + 3, 0.0), 6.0) / 6,
    "hardswish": lambda x: x * min(max(x + 3, 0.0), 6.0) / 6,
    "expm1": math.expm1,
    "sinh": math.sinh,
    "cosh": math.cosh,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_is_within_a_few_units_of_the_true_value(name):
    expected = np.array([FUNCTIONS[name](float(x)) for x in X])
    np.testing.assert_allclose(
        getattr(Tensor(X), name)().numpy(), np.float32(expected), rtol=1e-6, atol=1e-30
    )


@pytest.mark.parametrize("name", ["erf", "tanh", "sigmoid", "expm1"])
def test_float64_keeps_its_precision(name):
    x = X.astype(np.float64)
    expected = np.array([FUNCTIONS[name](v) for v in x])
    np.testing.assert_allclose(getattr(Tensor(x), name)().numpy(), expected, rtol=2e-14)


def test_erf_is_within_1e_7_of_the_true_value():
    x = np.linspace(-5, 5, 2001, dtype=np.float32)
    expected = np.array([math.erf(float(v)) for v in x])
    assert np.abs(Tensor(x).erf().numpy() - expected).max() <= 1e-7


def test_gelu_is_the_normal_integral_times_x():
    expected = np.array([0.5 * float(x) * math.erfc(-float(x) / math.sqrt(2)) for x in X])
    np.testing.assert_allclose(Tensor(X).gelu().numpy(), expected, rtol=1e-6, atol=4e-7)
    inner = [math.sqrt(2 / math.pi) * (float(x) + 0.044715 * float(x) ** 3) for x in X]
    expected = np.array([0.5 * float(x) * (1 + math.tanh(u)) for x, u in zip(X, inner)])
    np.testing.assert_allclose(Tensor(X).gelu("tanh").numpy(), expected, rtol=1e-6, atol=4e-7)
    with pytest.raises(UsageError, match=r"\[gelu\] approximate='fast'"):
        Tensor(X).gelu("fast")


def test_log1p_is_precise_near_zero():
    x = np.float32([0.0, 1e-10, -1e-10, 1e-4, -0.3, 5.0, 1e30, math.inf])
    np.testing.assert_allclose(Tensor(x).log1p().numpy(), np.log1p(x), rtol=3e-7)
    assert math.isinf(Tensor(-1.0).log1p().item()) and math.isnan(Tensor(-2.0).log1p().item())


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "erf", "softplus", "gelu", "silu", "logsigmoid", "elu"])
def test_infinities_and_nan_go_where_they_should(name):
    low, high, neither = getattr(Tensor([-math.inf, math.inf, math.nan]), name)().tolist()
    limits = {
        "sigmoid": (0, 1),
        "tanh": (-1, 1),
        "erf": (-1, 1),
        "softplus": (0, math.inf),
        "elu": (-1, math.inf),
    }
    limits |= {"logsigmoid": (-math.inf, 0), "gelu": (math.nan, math.inf), "silu": (math.nan, math.inf)}
    np.testing.assert_equal((low, high), limits[name])
    assert math.isnan(neither)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_narrow_floats_are_computed_in_float32_and_rounded_once(dtype):
    x = Tensor(X).cast(dtype)
    assert x.tanh().dtype is dtype
    assert x.tanh().tolist() == x.float().tanh().cast(dtype).tolist()


def test_integers_become_float32():
    assert hcq.tensor([0, 1]).sigmoid().dtype is dtypes.float32
