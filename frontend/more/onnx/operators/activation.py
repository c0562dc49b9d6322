"""Activations: functions that stand behind layers.

In       tensors
Out      tensors of the same shape
Changes  table.py's table
Next     math.py (arithmetic), norm.py (normalisation)
"""

from __future__ import annotations

from math import prod
from typing import Any

from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor


@operator("Relu", since=6)
def relu(x: Tensor) -> Any:
    """max(x, 0)."""
    return x.maximum(0)


@operator("LeakyRelu", since=6)
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Any:
    """x, and alpha * x below zero."""
    return x.leaky_relu(alpha)


@operator("PRelu", since=7)
def prelu(x: Tensor, slope: Tensor) -> Any:
    """x, and slope * x below zero."""
    return (x < 0).where(x * slope, x)


@operator("Elu", since=6)
def elu(x: Tensor, *, alpha: float = 1.0) -> Any:
    """x, and alpha * (exp(x) - 1) below zero."""
    return x.elu(alpha)


@operator("Celu", since=12)
def celu(x: Tensor, *, alpha: float = 1.0) -> Any:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""
    return x.celu(alpha)


@operator("Selu", since=6)
def selu(
    x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Any:
    """gamma * x, and gamma * alpha * (exp(x) - 1) below zero."""
    return (x.maximum(0) + x.minimum(0).expm1() * alpha) * gamma


@operator("Gelu", since=20)
def gelu(x: Tensor, *, approximate: str = "none") -> Any:
    """x times the normal distribution up to x, or its approximation by tanh."""
    return x.gelu(approximate)


@operator("HardSigmoid", since=6)
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    """alpha * x + beta within 0 and 1."""
    return (x * alpha + beta).clamp(0, 1)


@operator("HardSwish", since=14)
def hard_swish(x: Tensor) -> Any:
    """x * hard_sigmoid(x), with 1/6 and 1/2."""
    return x * (x * (1 / 6) + 0.5).clamp(0, 1)


@operator("Mish", since=18)
def mish(x: Tensor) -> Any:
    """x * tanh(softplus(x))."""
    return x.mish()


@operator("Shrink", since=9)
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    """x - bias above lambd, x + bias below -lambd, and 0 between."""
    if not x.dtype.is_float:
        return shrink(x.double(), bias=bias, lambd=lambd).cast(x.dtype)
    return (x < -lambd).where(x + bias, (x > lambd).where(x - bias, x * 0))


@operator("Softplus", since=1)
def softplus(x: Tensor) -> Any:
    """log(1 + exp(x)), without overflow."""
    return x.maximum(0) + (-x.abs()).exp().log1p()


@operator("Softsign", since=1)
def softsign(x: Tensor) -> Any:
    """x / (1 + |x|)."""
    return x / (x.abs() + 1)


@operator("Swish", since=24)
def swish(x: Tensor, *, alpha: float = 1.0) -> Any:
    """x * sigmoid(alpha * x)."""
    return x * (x * alpha).sigmoid()


@operator("SwiGLU", since=28)
def swiglu(gate: Tensor, x: Tensor, *, alpha: float = 1.0) -> Any:
    """swish(gate) * x."""
    return gate * (gate * alpha).sigmoid() * x


@operator("ThresholdedRelu", since=10)
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Any:
    """x above alpha, and else 0."""
    return (x > alpha).where(x, x * 0)


@operator("Softmax", since=13)
def softmax(x: Tensor, *, axis: int = -1) -> Any:
    """exp(x) over its sum along an axis."""
    return x.softmax(axis)


@operator("LogSoftmax", since=13)
def log_softmax(x: Tensor, *, axis: int = -1) -> Any:
    """The logarithm of softmax."""
    return x.log_softmax(axis)


@operator("Hardmax", since=13)
def hardmax(x: Tensor, *, axis: int = -1) -> Any:
    """1 at the first of the greatest, 0 elsewhere."""
    best = x.argmax(axis, keepdim=True)
    places = Tensor.arange(x.shape[axis], device=x.device).reshape(
        tuple(-1 if a == axis % x.ndim else 1 for a in range(x.ndim))
    )
    return (places == best).cast(x.dtype)


@operator("Softmax", since=1)
def softmax_of_rows(x: Tensor, *, axis: int = 1) -> Any:
    """Before 13: over all axes from that one on."""
    return _rows(x, axis).softmax(-1).reshape(x.shape)


@operator("LogSoftmax", since=1)
def log_softmax_of_rows(x: Tensor, *, axis: int = 1) -> Any:
    """Before 13: over all axes from that one on."""
    return _rows(x, axis).log_softmax(-1).reshape(x.shape)


@operator("Hardmax", since=1)
def hardmax_of_rows(x: Tensor, *, axis: int = 1) -> Any:
    """Before 13: over all axes from that one on."""
    return hardmax(_rows(x, axis)).reshape(x.shape)


def _rows(x: Tensor, axis: int) -> Tensor:
    axis = axis % x.ndim if axis < 0 else axis
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))
