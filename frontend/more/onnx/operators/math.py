"""Arithmetic: one number from one, two or many.

In       tensors
Out      tensors of the broadcast shape
Changes  table.py's table
Next     activation.py (functions of layers), reduction.py (many to one), logic.py (comparisons)
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

UNARY = {
    "Abs": "abs", "Ceil": "ceil", "Exp": "exp", "Floor": "floor", "Log": "log", "Neg": "neg",
    "Reciprocal": "reciprocal", "Sqrt": "sqrt",
}  # fmt: skip
LATER = {
    "Acos": (7, "acos"), "Acosh": (9, "acosh"), "Asin": (7, "asin"), "Asinh": (9, "asinh"), "Atan": (7, "atan"),
    "Atanh": (9, "atanh"), "Cos": (7, "cos"), "Cosh": (9, "cosh"), "Sin": (7, "sin"), "Sinh": (9, "sinh"),
    "Tan": (7, "tan"), "Erf": (9, "erf"), "Round": (11, "round"), "Sign": (9, "sign"), "IsNaN": (9, "isnan"),
    "BitwiseNot": (18, "bitwise_not"), "Tanh": (6, "tanh"), "Sigmoid": (6, "sigmoid"),
}  # fmt: skip


def _declare_unary(op: str, since: int, method: str) -> None:
    @operator(op, since=since)
    def unary(x: Tensor) -> Any:
        return getattr(x, method)()


for _op, _method in UNARY.items():
    _declare_unary(_op, 6, _method)
for _op, (_since, _method) in LATER.items():
    _declare_unary(_op, _since, _method)


def same_dtype(x: Tensor, result: Tensor) -> Tensor:
    """A result in the dtype of its operand: ONNX never widens."""
    return result if result.dtype is x.dtype else result.cast(x.dtype)


@operator("Add", since=7)
def add(a: Tensor, b: Tensor) -> Any:
    """a + b."""
    return a + b


@operator("Sub", since=7)
def sub(a: Tensor, b: Tensor) -> Any:
    """a - b."""
    return a - b


@operator("Mul", since=7)
def mul(a: Tensor, b: Tensor) -> Any:
    """a * b."""
    return a * b


@operator("Div", since=7)
def div(a: Tensor, b: Tensor) -> Any:
    """Integers are divided towards zero, as C does."""
    return a / b if a.dtype.is_float else a.div(b, rounding_mode="trunc")


@operator("Mod", since=10)
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Any:
    """The remainder with the divisor's sign; with fmod the dividend's."""
    return a.fmod(b) if fmod else a.remainder(b)


@operator("Pow", since=7)
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


@operator("BitwiseAnd", since=18)
def bitwise_and(a: Tensor, b: Tensor) -> Any:
    """a & b."""
    return a & b


@operator("BitwiseOr", since=18)
def bitwise_or(a: Tensor, b: Tensor) -> Any:
    """a | b."""
    return a | b


@operator("BitwiseXor", since=18)
def bitwise_xor(a: Tensor, b: Tensor) -> Any:
    """a ^ b."""
    return a ^ b


@operator("Max", since=6)
def maximum(*tensors: Tensor) -> Any:
    """The greatest of all."""
    return reduce(lambda a, b: a.maximum(b), tensors)


@operator("Min", since=6)
def minimum(*tensors: Tensor) -> Any:
    """The least of all."""
    return reduce(lambda a, b: a.minimum(b), tensors)


@operator("Sum", since=6)
def total(*tensors: Tensor) -> Any:
    """The sum of all."""
    return reduce(lambda a, b: a + b, tensors)


@operator("Mean", since=6)
def mean(*tensors: Tensor) -> Any:
    """The average of all."""
    return reduce(lambda a, b: a + b, tensors) / len(tensors)


@operator("Clip", since=6)
def clip_by_attributes(
    x: Tensor, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38
) -> Any:
    """Before 11: the bounds are attributes."""
    return x.clamp(min, max)


@operator("Clip", since=11)
def clip(x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Any:
    """Where the least is more than the most, the most holds."""
    if least is not None:
        x = x.maximum(least)
    return x if most is None else x.minimum(most)


@operator("CumSum", since=11, host="axis")
def cumsum(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    """Sums of what is before along an axis, itself included or not."""
    return _running(x, int(axis.item()), exclusive, reverse, "cumsum", 0)


@operator("CumProd", since=26, host="axis")
def cumprod(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    """Products of what is before along an axis, itself included or not."""
    return _running(x, int(axis.item()), exclusive, reverse, "cumprod", 1)


def _running(x: Tensor, axis: int, exclusive: int, reverse: int, method: str, first: int) -> Tensor:
    axis %= x.ndim
    if reverse:
        x = x.flip(axis)
    if exclusive and x.shape[axis]:
        pads = [0, 0] * (x.ndim - axis - 1) + [1, 0]
        x = x.narrow(axis, 0, x.shape[axis] - 1).pad(pads, value=first)
    found = same_dtype(x, getattr(x, method)(axis))
    return found.flip(axis) if reverse else found


@operator("Det", since=11)
def det(x: Tensor) -> Any:
    """The determinant of each matrix, by elimination."""
    from hcq.frontend.more.linalg import solving

    return solving.det(x)


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
