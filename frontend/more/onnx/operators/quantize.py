"""Quantisation: numbers as small integers with a scale and a zero, and products of such.

In       tensors, scales, zeros
Out      tensors of 8 or 16 bits, or of floats
Changes  table.py's table
Next     product.py, conv.py (the same on floats)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.operators.conv import Windows, conv
from hcq.frontend.more.onnx.operators.math import same_dtype
from hcq.frontend.more.onnx.operators.shape import converted, dtype_of
from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes


def _spread(values: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Scales beside x: one for all, one for each place of an axis, or one for each block of places."""
    if values.numel() == 1 and not block:
        return values.reshape(())
    if block:
        size = x.shape[axis]
        spread = values.repeat_interleave(block, axis)
        return spread.narrow(axis, 0, size) if spread.shape[axis] != size else spread
    if values.ndim > 1:
        return values
    return values.reshape(tuple(-1 if a == axis else 1 for a in range(x.ndim)))


def quantized(x: Tensor, scale: Tensor, zero: Tensor | None, dtype: DType, saturate: int = 1) -> Tensor:
    """round(x / scale) + zero, held within the dtype."""
    ratio = (x / scale).float()
    if dtype.is_float:
        return converted(ratio if zero is None else ratio + zero.float(), dtype, saturate)
    whole = ratio.round()
    if zero is not None:
        whole = whole + zero.float()
    return whole.clamp(float(dtype.min), float(dtype.max)).cast(dtypes.int32).cast(dtype)


@operator("QuantizeLinear", since=10)
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Any:
    """round(x / scale) + zero, held within the dtype."""
    kind = zero.dtype if zero is not None else dtype_of(output_dtype) if output_dtype else dtypes.uint8
    axis = axis % x.ndim if x.ndim and scale.numel() > 1 else 0
    wide = x if x.dtype.is_float else x.float()
    if precision:
        wide = wide.cast(dtype_of(precision))
    spread = _spread(scale, x, axis, block_size).cast(wide.dtype)
    return quantized(
        wide, spread, None if zero is None else _spread(zero, x, axis, block_size), kind, saturate
    )


@operator("DequantizeLinear", since=10)
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    """(x - zero) * scale."""
    axis = axis % x.ndim if x.ndim and scale.numel() > 1 else 0
    kind = dtype_of(output_dtype) if output_dtype else scale.dtype
    wide = x.float() if x.dtype.is_float or x.dtype.itemsize < 4 else x.cast(dtypes.int64)
    if zero is not None:
        other = _spread(zero, x, axis, block_size)
        wide = wide - (other.float() if wide.dtype.is_float else other.cast(dtypes.int64))
    return (wide.float() * _spread(scale, x, axis, block_size).float()).cast(kind)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: Tensor) -> Any:
    """uint8 over the range that the numbers take, with 0 in it."""
    most, least = x.amax().maximum(0.0), x.amin().minimum(0.0)
    scale = (most - least) / 255
    zero = (0 - least / scale).round().clamp(0, 255)
    zero = (scale == 0).where(zero * 0, zero).cast(dtypes.int32).cast(dtypes.uint8)
    return quantized(x, (scale == 0).where(scale + 1, scale), zero, dtypes.uint8), scale, zero


def _without_zero(x: Tensor, zero: Tensor | None, axis: int) -> Tensor:
    """x - zero as int32: one zero for all, or one for each row or column."""
    wide = x.cast(dtypes.int32)
    if zero is None:
        return wide
    other = zero.cast(dtypes.int32)
    if other.numel() == 1:
        return wide - other.reshape(())
    return wide - (
        other if other.ndim > 1 else other.reshape(*(other.shape if axis == -1 else (*other.shape, 1)))
    )


@operator("MatMulInteger", since=10)
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Any:
    """The product of a - zero and b - zero, as int32."""
    return (_without_zero(a, a_zero, -2) @ _without_zero(b, b_zero, -1)).cast(dtypes.int32)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Any:
    """A product of quantised matrices, quantised."""
    if a.dtype.is_float:
        raise UsageError(f"{a.dtype.name}: it is computed for integers")
    product = (_without_zero(a, a_zero, -2) @ _without_zero(b, b_zero, -1)).float()
    if a_scale.numel() > 1 and a_scale.ndim == 1:
        a_scale = a_scale.unsqueeze(-1)
    real = product * (a_scale.float() * b_scale.float())
    return quantized(real, y_scale.float(), y_zero, y_zero.dtype)


@operator("ConvInteger", since=10, attributes_of=conv, windows=Windows)
def conv_integer(
    x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, **attributes: Any
) -> Any:
    """The convolution of x - zero and w - zero, as int32."""
    if w_zero is not None and w_zero.numel() > 1:
        w_zero = w_zero.reshape(-1, *[1] * (w.ndim - 1))
    return conv(_without_zero(x, x_zero, 0), _without_zero(w, w_zero, 0), **attributes).cast(dtypes.int32)


@operator("QLinearConv", since=10, attributes_of=conv, windows=Windows)
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    b: Tensor | None = None,
    **attributes: Any,
) -> Any:
    """A convolution of quantised numbers, quantised."""
    rank = w.ndim - 2
    total = conv_integer(x, w, x_zero, w_zero, **attributes)
    if b is not None:
        total = total + b.reshape(-1, *[1] * rank)
    scale = x_scale * w_scale
    scale = scale.reshape(-1, *[1] * rank) if scale.numel() > 1 else scale.reshape(())
    return quantized(same_dtype(scale, total.float()) * scale, y_scale.reshape(()), y_zero, y_zero.dtype)
