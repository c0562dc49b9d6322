"""Float arithmetic as the hardware rounds it, on arrays: fused multiply-add, NaNs and denormals, min and max.

In       arrays of float16, float32 or float64
Out      arrays of the same kind, rounded once
Next     float_ops.py (which instruction uses what), hcq/emu/shader/floats.py (rounding once, bfloat16)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.shader.floats import NEAREST, SMALLEST_NORMAL, fused_sum

UINT = {2: np.uint16, 4: np.uint32, 8: np.uint64}
QUIET = {2: np.uint16(0x200), 4: np.uint32(0x400000), 8: np.uint64(0x8000000000000)}


def raw(x: Array) -> Array:
    """The bits of floats, as unsigned integers of their size."""
    return x.view(UINT[x.dtype.itemsize])


def widen(x: Array) -> Array:
    """As float64, exact."""
    return x.astype(np.float64)


def is_signaling(x: Array) -> Array:
    """Whether it is a signalling NaN."""
    return np.isnan(x) & ((raw(x) & QUIET[x.dtype.itemsize]) == 0)


def quieted(x: Array) -> Array:
    """NaNs made quiet: their quiet bit set. For NaNs only."""
    return (raw(x) | QUIET[x.dtype.itemsize]).view(x.dtype)


def flushed(x: Array) -> Array:
    """Denormals become zeros of their sign."""
    tiny = np.abs(x) < SMALLEST_NORMAL[x.dtype.itemsize]
    return np.where(tiny, np.copysign(x.dtype.type(0), x), x)


def fma32(a: Array, b: Array, c: Array, rounding: int = NEAREST) -> Array:
    """a * b + c, rounded once. The product of two float32 is exact in float64."""
    return fused_sum(widen(a) * widen(b), widen(c), np.float32, rounding)


def fma16(a: Array, b: Array, c: Array, rounding: int = NEAREST) -> Array:
    """a * b + c in float16, rounded once."""
    return fused_sum(widen(a) * widen(b), widen(c), np.float16, rounding)


def minimum(a: Array, b: Array, ieee: bool) -> Array:
    """The smaller number; -0 is below +0; one NaN gives the other operand, unless IEEE mode sees a signaling one."""
    low = np.where(a == b, (raw(a) | raw(b)).view(a.dtype), np.fmin(a, b))
    return nan_rule(a, b, low, ieee)


def maximum(a: Array, b: Array, ieee: bool) -> Array:
    """The greater one, +0 above -0; a number beats a NaN, but a signalling one under `ieee`."""
    high = np.where(a == b, (raw(a) & raw(b)).view(a.dtype), np.fmax(a, b))
    return nan_rule(a, b, high, ieee)


def minimum_or_nan(a: Array, b: Array) -> Array:
    """The smaller number; -0 is below +0; a NaN if one of them is."""
    return spread_nan(a, b, minimum(a, b, False))


def maximum_or_nan(a: Array, b: Array) -> Array:
    """The greater one; a NaN beats a number."""
    return spread_nan(a, b, maximum(a, b, False))


def spread_nan(a: Array, b: Array, result: Array) -> Array:
    """The result, but a NaN where an operand is one; the first one's where both are."""
    a, b, result = np.broadcast_arrays(a, b, result)
    result = np.where(np.isnan(b), quieted(b), result)
    return np.where(np.isnan(a), quieted(a), result)


def nan_rule(a: Array, b: Array, result: Array, ieee: bool) -> Array:
    """The result of a minimum or maximum, mended where an operand is a NaN."""
    unordered = np.isnan(a) | np.isnan(b)
    if not unordered.any():
        return result
    result = np.where(np.isnan(result), quieted(result), result)
    if ieee:
        result = np.where(is_signaling(b), quieted(np.broadcast_to(b, result.shape).copy()), result)
        result = np.where(is_signaling(a), quieted(np.broadcast_to(a, result.shape).copy()), result)
    return result


def to_integer(x: Array, kind: Any) -> Array:
    """Truncate, saturate, NaN to 0. `kind` is an integer type of at most 32 bits."""
    limits = np.iinfo(kind)
    wide = np.trunc(widen(x))
    wide = np.where(np.isnan(wide), 0.0, np.clip(wide, float(limits.min), float(limits.max)))
    return wide.astype(np.int64).astype(kind)


def exponent_of(x: Array) -> Array:
    """The biased exponent field."""
    width, mantissa = {2: (5, 10), 4: (8, 23), 8: (11, 52)}[x.dtype.itemsize]
    return (raw(x) >> mantissa).astype(np.int64) & ((1 << width) - 1)
