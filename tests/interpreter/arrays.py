"""Arrays: how NumPy holds the values of every dtype, also of the formats that NumPy does not have.

In       arrays, a DType
Out      arrays rounded to that dtype, converted between dtypes, or as raw bits
Next     evaluate.py (the interpreter that computes on these arrays), ir/dtype.py (the same for one Python number)
Source   IEEE 754; OCP 8-bit floating point 1.0 (e4m3, e5m2)

bfloat16 and the 8-bit floats are held as float32 whose values the format can represent; everything else is held as
itself, `index` as int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcq.ir.dtype import ALL, DType, Kind, dtypes, float_format, from_bits

Array = NDArray[Any]


def is_held_as_float32(dtype: DType) -> bool:
    """True for the formats NumPy has no type for: bfloat16, fp8e4m3, fp8e5m2."""
    return dtype is dtypes.bfloat16 or dtype.is_storage_only


def numpy_dtype(dtype: DType) -> Any:
    """The NumPy type that holds values of `dtype`."""
    if dtype.kind is Kind.INDEX:
        return np.dtype(np.int64)
    return np.dtype(np.float32 if is_held_as_float32(dtype) else dtype.name)


def raw_dtype(dtype: DType) -> Any:
    """The NumPy type of the bits in memory: uint16 for bfloat16, uint8 for fp8, the type itself otherwise."""
    return np.dtype(f"uint{dtype.bits}") if is_held_as_float32(dtype) else numpy_dtype(dtype)


def array(values: Any, dtype: DType) -> Array:
    """Python numbers or an array as values of `dtype`: integers wrap, floats are rounded."""
    given = np.asarray(values)
    if given.dtype.kind == "O":  # Python integers beyond 64 bits
        given = np.asarray(np.vectorize(lambda value: value & ((1 << 64) - 1), otypes=[np.uint64])(given))
    if dtype.is_float and given.dtype.kind == "f":
        return round_floats(given, dtype)
    return convert(given, dtypes.named(given.dtype.name), dtype)


def convert(values: Array, source: DType, dtype: DType) -> Array:
    """CAST: the values of `source` as values of `dtype`.

    Float to integer truncates and saturates, NaN becomes 0; integer to integer wraps; anything but zero is True.
    Integers reach the formats narrower than float32 by way of float32, as machines and PyTorch do it.
    """
    target = numpy_dtype(dtype)
    if dtype.is_bool:
        return np.asarray(values != 0)
    with np.errstate(all="ignore"):
        if dtype.is_float:
            if not source.is_float:
                values = values.astype(np.float64 if dtype is dtypes.float64 else np.float32)
            return round_floats(values, dtype)
        if not source.is_float:
            return values.astype(target)
        wide = np.trunc(values.astype(np.float64))
        low, high = int(dtype.min), int(dtype.max)
        # both bounds are powers of two or zero: exact
        inside = (wide >= float(low)) & (wide < float(high + 1))
        whole = np.where(inside, wide, 0.0).astype(target)
        saturated = np.where(wide > 0, np.array(high, target), np.array(low, target))
        return np.where(inside, whole, np.where(np.isnan(wide), np.array(0, target), saturated))


def round_floats(values: Array, dtype: DType) -> Array:
    """Floating point values rounded once, to nearest even, to the format `dtype`."""
    target = numpy_dtype(dtype)
    with np.errstate(all="ignore"):
        if not is_held_as_float32(dtype):
            return values.astype(target)
        if dtype is dtypes.bfloat16 and values.dtype.itemsize <= 4:
            return _round_to_bfloat16(values.astype(np.float32))
        exponent_bits, mantissa_bits = float_format(dtype)
        bias = (1 << (exponent_bits - 1)) - 1
        wide = np.asarray(values.astype(np.float64))
        magnitude = np.abs(wide)
        finite = np.isfinite(magnitude)
        magnitude = np.where(finite, magnitude, 0.0)
        exponent = np.maximum(np.frexp(magnitude)[1] - 1, 1 - bias)
        steps = np.rint(np.ldexp(magnitude, mantissa_bits - exponent))  # rint is to nearest even
        rounded = np.ldexp(steps, exponent - mantissa_bits)
        beyond = np.nan if dtype is dtypes.fp8e4m3 else np.inf
        rounded = np.where(rounded > largest_finite(dtype), beyond, rounded)
        rounded = np.where(finite, rounded, np.where(np.isnan(wide), np.nan, beyond))
        return np.copysign(rounded, wide).astype(np.float32)


def largest_finite(dtype: DType) -> float:
    """The largest finite value of a floating point format: 448.0 for fp8e4m3."""
    exponent_bits, mantissa_bits = float_format(dtype)
    top = (1 << exponent_bits) - 1 << mantissa_bits
    pattern = top | (1 << mantissa_bits) - 2 if dtype is dtypes.fp8e4m3 else top - 1
    return float(from_bits(pattern, dtype))


def to_raw(values: Array, dtype: DType) -> Array:
    """The bits as memory holds them: uint16 for bfloat16, uint8 for fp8, else the values themselves."""
    if not is_held_as_float32(dtype):
        return np.ascontiguousarray(values, numpy_dtype(dtype)).reshape(np.shape(values))
    rounded = round_floats(np.asarray(values), dtype)
    if dtype is dtypes.bfloat16:
        return np.asarray(rounded.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    exponent_bits, mantissa_bits = float_format(dtype)
    bias = (1 << (exponent_bits - 1)) - 1
    sign = np.signbit(rounded).astype(np.uint8) << np.uint8(7)
    magnitude = np.abs(rounded)
    finite = np.isfinite(magnitude)
    magnitude = np.where(finite, magnitude, 0)
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, 1 - bias)
    steps = np.ldexp(magnitude, mantissa_bits - exponent).astype(np.int32)
    # a normal number has its implicit bit in steps: adding instead of or-ing carries it into the exponent field
    pattern = np.where(magnitude == 0, 0, steps + ((exponent + bias - 1) << mantissa_bits))
    nan, infinity = (0x7F, 0x7F) if dtype is dtypes.fp8e4m3 else (0x7E, 0x7C)
    pattern = np.where(finite, pattern, np.where(np.isnan(rounded), nan, infinity))
    return np.asarray(sign | pattern.astype(np.uint8))


def from_raw(raw: Array, dtype: DType) -> Array:
    """The values that bits in memory stand for; inverse of `to_raw`."""
    if dtype is dtypes.bfloat16:
        return np.asarray(np.asarray(raw).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype.is_storage_only:
        patterns = np.array([from_bits(bits, dtype) for bits in range(256)], np.float32)
        return np.asarray(patterns[np.asarray(raw)])
    return np.asarray(raw, numpy_dtype(dtype))


def bitcast(values: Array, source: DType, dtype: DType) -> Array:
    """BITCAST: the same bits read as another dtype of the same size."""
    if source.itemsize != dtype.itemsize:
        raise ValueError(
            f"[bitcast] {source.name} has {source.itemsize} bytes and {dtype.name} has {dtype.itemsize}: "
            "the same bits need the same size. Use cast to convert the value."
        )
    bits = np.ascontiguousarray(to_raw(values, source)).reshape(np.shape(values))
    if dtype.is_bool:
        return np.asarray(bits.view(np.uint8) != 0)
    return from_raw(bits.view(raw_dtype(dtype)), dtype)


def _round_to_bfloat16(values: Array) -> Array:
    """float32 to bfloat16: add just under half of the dropped part, and one more when the kept part is odd."""
    bits = np.ascontiguousarray(values).reshape(values.shape).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + (np.uint32(0x7FFF) + odd)) & np.uint32(0xFFFF0000)
    quiet = (bits & np.uint32(0xFFFF0000)) | np.uint32(0x00400000)
    return np.asarray(np.where(np.isnan(values), quiet, rounded)).astype(np.uint32).view(np.float32)


HELD_AS_FLOAT32 = tuple(dtype for dtype in ALL if is_held_as_float32(dtype))
