"""Activations: functions that stand behind layers.

In       tensors
Out      tensors of the same shape
Changes  table.py's table
Next     math.py (arithmetic), norm.py (normalisation)
"""

from __future__ import annotations

from math import prod
from typing import Any

from hcq.frontend.more.onnx.table import operator, operators
from hcq.frontend.tensor import Tensor

SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}


@operator("Shrink", since=9)
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    """x - bias above lambd, x + bias below -lambd, and 0 between."""
    if not x.dtype.is_float:
        return shrink(x.double(), bias=bias, lambd=lambd).cast(x.dtype)
    return (x < -lambd).where(x + bias, (x > lambd).where(x - bias, x * 0))


@operator("Hardmax", since=13)
def hardmax(x: Tensor, *, axis: int = -1) -> Any:
    """1 at the first of the greatest, 0 elsewhere."""
    best = x.argmax(axis, keepdim=True)
    places = Tensor.arange(x.shape[axis], device=x.device).reshape(
        tuple(-1 if a == axis % x.ndim else 1 for a in range(x.ndim))
    )
    return (places == best).cast(x.dtype)


def _rows(x: Tensor, axis: int) -> Tensor:
    axis = axis % x.ndim if axis < 0 else axis
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


operators(
    {
        "Relu": (6, lambda x: x.maximum(0)),
        "LeakyRelu": (6, lambda x, *, alpha=0.01: x.leaky_relu(alpha)),
        "PRelu": (7, lambda x, slope: (x < 0).where(x * slope, x)),
        "ThresholdedRelu": (10, lambda x, *, alpha=1.0: (x > alpha).where(x, x * 0)),
        "Elu": (6, lambda x, *, alpha=1.0: x.elu(alpha)),
        "Celu": (12, lambda x, *, alpha=1.0: x.celu(alpha)),
        "Selu": (
            6,
            lambda x, *, alpha=SELU["alpha"], gamma=SELU["gamma"]: (
                (x.maximum(0) + x.minimum(0).expm1() * alpha) * gamma
            ),
        ),
        "Gelu": (20, lambda x, *, approximate="none": x.gelu(approximate)),
        "HardSigmoid": (6, lambda x, *, alpha=0.2, beta=0.5: (x * alpha + beta).clamp(0, 1)),
        "HardSwish": (14, lambda x: x * (x * (1 / 6) + 0.5).clamp(0, 1)),
        "Mish": (18, lambda x: x.mish()),
        "Softplus": (1, lambda x: x.maximum(0) + (-x.abs()).exp().log1p()),  # without overflow
        "Softsign": (1, lambda x: x / (x.abs() + 1)),
        "Swish": (24, lambda x, *, alpha=1.0: x * (x * alpha).sigmoid()),
        "SwiGLU": (28, lambda gate, x, *, alpha=1.0: gate * (gate * alpha).sigmoid() * x),
        "Softmax": (13, lambda x, *, axis=-1: x.softmax(axis)),
        "LogSoftmax": (13, lambda x, *, axis=-1: x.log_softmax(axis)),
    }
)
# before 13 over all axes from one on
operators(
    {
        "Softmax": (1, lambda x, *, axis=1: _rows(x, axis).softmax(-1).reshape(x.shape)),
        "LogSoftmax": (1, lambda x, *, axis=1: _rows(x, axis).log_softmax(-1).reshape(x.shape)),
        "Hardmax": (1, lambda x, *, axis=1: hardmax(_rows(x, axis)).reshape(x.shape)),
    }
)
