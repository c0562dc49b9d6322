"""Float arithmetic as the hardware rounds it, on arrays: fused multiply-add, directed rounding, bfloat16, min and max.

In       arrays of float16, float32 or float64
Out      arrays of the same kind, rounded once
Changes  nothing
Next     float_ops.py (which instruction uses what), ../../exact.py (sums and products without a loss)

The device: compute in float64 and round to odd; a number rounded so, with at least two bits to spare, rounds a second
time to float32 or float16 as if it had been exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.exact import round_to_odd, two_sum

NEAREST, UP, DOWN, ZERO = range(4)  # MODE.fp_round

UINT = {2: np.uint16, 4: np.uint32, 8: np.uint64}
QUIET = {2: np.uint16(0x200), 4: np.uint32(0x400000), 8: np.uint64(0x8000000000000)}
SMALLEST_NORMAL = {2: np.float16(2.0**-14), 4: np.float32(2.0**-126), 8: np.float64(2.0**-1022)}


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


def fused_sum(p: Array, c: Array, kind: type, rounding: int = NEAREST) -> Array:
    """p + c, given in float64, rounded once to float32 or float16."""
    total = p + c
    if rounding == NEAREST:
        result: Array = total.astype(kind)
        # rounding twice errs only when the float64 is half-way between two results, or a result is denormal
        below = 29 if kind is np.float32 else 42  # bits that the narrower format has not
        half_way = (total.view(np.int64) & ((1 << below) - 1)) == 1 << (below - 1)
        if not half_way.any():
            tiny = np.abs(result) <= SMALLEST_NORMAL[result.dtype.itemsize]
            if not tiny.any() or not (tiny & (total != 0)).any():
                return result
    return narrow(round_to_odd(*two_sum(p, c)), kind, rounding)


def narrow(x: Array, kind: type, rounding: int = NEAREST) -> Array:
    """float64 (exact or rounded to odd) to float32 or float16 under a rounding mode."""
    y: Array = x.astype(kind)
    if rounding == NEAREST:
        return y
    back = y.astype(np.float64)
    too_high, too_low = back > x, back < x
    if rounding == UP:
        too_high = np.zeros_like(too_high)
    elif rounding == DOWN:
        too_low = np.zeros_like(too_low)
    else:
        too_high, too_low = too_high & (x > 0), too_low & (x < 0)
    y = np.where(too_high, np.nextafter(y, np.array(-np.inf, kind)), y)
    return np.where(too_low, np.nextafter(y, np.array(np.inf, kind)), y)


def fma32(a: Array, b: Array, c: Array, rounding: int = NEAREST) -> Array:
    """a * b + c, rounded once. The product of two float32 is exact in float64."""
    return fused_sum(widen(a) * widen(b), widen(c), np.float32, rounding)


def fma16(a: Array, b: Array, c: Array, rounding: int = NEAREST) -> Array:
    """a * b + c in float16, rounded once."""
    return fused_sum(widen(a) * widen(b), widen(c), np.float16, rounding)


def bf16_to_f32(halves: Array) -> Array:
    """Bits of bfloat16 -> float32, exact."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(x: Array) -> Array:
    """Nearest even; a NaN stays one and is quiet."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


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
    result = np.where(np.isnan(b), quieted(np.array(b)), result)
    return np.where(np.isnan(a), quieted(np.array(a)), result)


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
