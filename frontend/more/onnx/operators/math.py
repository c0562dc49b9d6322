"""Arithmetic: one number from one, two or many.

In       tensors
Out      tensors of the broadcast shape
Changes  table.py's table
Next     activation.py (functions of layers), reduction.py (many to one), logic.py (comparisons)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from hcq.frontend.more.onnx.table import operator, operators
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

FLOAT_MAX = 3.4028234663852886e38
# from which version of the operator set on -> methods of a tensor whose operators have the same name
UNARY = {
    6: "abs ceil exp floor log neg reciprocal sqrt tanh sigmoid",
    7: "acos asin atan cos sin tan",
    9: "acosh asinh atanh cosh sinh erf sign isnan",
    11: "round",
    18: "bitwise_not",
}
NAMES = {"isnan": "IsNaN", "bitwise_not": "BitwiseNot"}


def same_dtype(x: Tensor, result: Tensor) -> Tensor:
    """A result in the dtype of its operand: ONNX never widens."""
    return result if result.dtype is x.dtype else result.cast(x.dtype)


def power(a: Tensor, b: Tensor) -> Any:
    """In the dtype of the base, computed in the exponent's where only that has fractions."""
    if a.dtype.is_float and b.dtype.is_float:
        return same_dtype(a, a**b)
    if b.dtype.is_float:
        return (a.cast(b.dtype) ** b).cast(a.dtype)
    return same_dtype(a, a ** b.cast(a.dtype))


@operator("BitShift", since=11)
def bit_shift(a: Tensor, b: Tensor, *, direction: str) -> Any:
    """A shift by as many places as there are, or more, or by less than none, leaves no bit but the sign's copies."""
    bits = a.dtype.itemsize * 8
    fits = (b >= 0) & (b < bits)
    if direction == "LEFT":
        return fits.where(a << b.clamp(0, bits - 1), 0)
    gone = a * 0 if a.dtype.is_unsigned else a >> (bits - 1)
    return fits.where(a >> b.clamp(0, bits - 1), gone)


@operator("Clip", since=11)
def clip(x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Any:
    """Where the least is more than the most, the most holds."""
    if least is not None:
        x = x.maximum(least)
    return x if most is None else x.minimum(most)


def _running(x: Tensor, axis: Any, exclusive: int, reverse: int, method: str, first: int) -> Tensor:
    """Sums or products of what is before along an axis, itself included or not."""
    axis = int(axis.item()) % x.ndim
    if reverse:
        x = x.flip(axis)
    if exclusive and x.shape[axis]:
        pads = [0, 0] * (x.ndim - axis - 1) + [1, 0]
        x = x.narrow(axis, 0, x.shape[axis] - 1).pad(pads, value=first)
    found = same_dtype(x, getattr(x, method)(axis))
    return found.flip(axis) if reverse else found


@operator("BitCast", since=26)
def bit_cast(x: Tensor, *, to: int) -> Any:
    """The same bits as another dtype; a bool is a byte."""
    from hcq.frontend.more.onnx.operators.shape import dtype_of

    kind = dtype_of(to)
    if kind.is_bool or x.dtype.is_bool:  # a byte, 0 or 1
        byte = x.cast(dtypes.uint8) if x.dtype.is_bool else x.bitcast(dtypes.uint8)
        return byte != 0 if kind.is_bool else byte.bitcast(kind)
    return x.bitcast(kind)


@operator("IsInf", since=10)
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    """Whether elements are infinite, of both signs or one."""
    x = x.float() if x.dtype.is_storage_only else x
    if detect_negative and detect_positive:
        return x.isinf()
    if detect_negative:
        return x.isneginf()
    return x.isposinf() if detect_positive else Tensor.zeros(x.shape, device=x.device, dtype=dtypes.bool)


@operator("Trilu", since=14, host="k")
def trilu(x: Tensor, k: Any = None, *, upper: int = 1) -> Any:
    """The part above, or below, a diagonal."""
    diagonal = 0 if k is None else int(k.item())
    size = max(x.shape[-2:], default=0) + 1
    diagonal = max(-size, min(size, diagonal))
    return x.triu(diagonal) if upper else x.tril(diagonal)


def whole(values: Any) -> list[int]:
    """An array of numbers as Python's."""
    return [int(value) for value in np.asarray(values).reshape(-1)]


def _declare_unary(op: str, since: int, method: str) -> None:
    operator(op, since=since)(lambda x: getattr(x, method)())


for _since, _methods in UNARY.items():
    for _method in _methods.split():
        _declare_unary(NAMES.get(_method, _method.capitalize()), _since, _method)

ARITHMETIC: dict[str, tuple[int, Callable[..., Any]]] = {
    "Add": (7, lambda a, b: a + b),
    "Sub": (7, lambda a, b: a - b),
    "Mul": (7, lambda a, b: a * b),
    # integers are divided towards zero, as C does
    "Div": (7, lambda a, b: a / b if a.dtype.is_float else a.div(b, rounding_mode="trunc")),
    "Pow": (7, power),
    # the remainder with the divisor's sign; with fmod the dividend's
    "Mod": (10, lambda a, b, *, fmod=0: a.fmod(b) if fmod else a.remainder(b)),
    "Det": (11, lambda x: x.det()),  # of each matrix, by elimination
    "BitwiseAnd": (18, lambda a, b: a & b),
    "BitwiseOr": (18, lambda a, b: a | b),
    "BitwiseXor": (18, lambda a, b: a ^ b),
    "Max": (6, lambda *tensors: reduce(Tensor.maximum, tensors)),
    "Min": (6, lambda *tensors: reduce(Tensor.minimum, tensors)),
    "Sum": (6, lambda *tensors: reduce(Tensor.__add__, tensors)),
    "Mean": (6, lambda *tensors: reduce(Tensor.__add__, tensors) / len(tensors)),
    "Clip": (6, lambda x, *, min=-FLOAT_MAX, max=FLOAT_MAX: x.clamp(min, max)),  # bounds became inputs
}
operators(ARITHMETIC)


@operator("CumSum", since=11, host="axis")
def cumsum(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    """Sums of what is before along an axis."""
    return _running(x, axis, exclusive, reverse, "cumsum", 0)


@operator("CumProd", since=26, host="axis")
def cumprod(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    """Products of what is before along an axis."""
    return _running(x, axis, exclusive, reverse, "cumprod", 1)
