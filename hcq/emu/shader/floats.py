"""Float arithmetic that all shader cores share: sums rounded once, directed rounding, bfloat16.

In       arrays of floats, or the bits of bfloat16
Out      arrays, rounded once
Next     hcq/emu/shader/exact_floats.py (sums without a loss), hcq/emu/amd/shader/floats.py and
         hcq/emu/nv/shader/floats.py (what each vendor makes of NaNs and denormals)
Source   IEEE 754

The device: compute in float64 and round to odd; a number rounded so, with at least two bits to spare, rounds a second
time to float32 or float16 as if it had been exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hcq.emu.shader.bits import contiguous
from hcq.emu.shader.exact_floats import round_to_odd, two_sum

Array = npt.NDArray[Any]

NEAREST, UP, DOWN, ZERO = range(4)
SMALLEST_NORMAL = {2: np.float16(2.0**-14), 4: np.float32(2.0**-126), 8: np.float64(2.0**-1022)}
SPARE_BITS = {2: 42, 4: 29}  # bits of a float64's fraction that the format has no room for


def fused_sum(p: Array, c: Array, kind: type, rounding: int = NEAREST) -> Array:
    """p + c, given in float64, rounded once to float32 or float16. Of p and c one has the shape of the result."""
    fuse = getattr(p, "fuse", None) or getattr(c, "fuse", None)
    # symbols of code that is being compiled
    if fuse is not None and rounding == NEAREST and np.dtype(kind) == np.float32:
        fused: Array = fuse(p, c, kind, rounding)
        return fused
    if fuse is not None or rounding != NEAREST:
        return narrow(round_to_odd(*two_sum(p, c)), kind, rounding)
    total = p + c
    result: Array = total.astype(kind)
    # rounding twice errs only when the float64 is half-way between two results, or a result is denormal
    below = SPARE_BITS[result.dtype.itemsize]
    doubt = (total.view(np.int64) & ((1 << below) - 1)) == 1 << (below - 1)
    doubt |= (np.abs(result) <= SMALLEST_NORMAL[result.dtype.itemsize]) & (total != 0)
    if doubt.any():
        result, doubt = np.atleast_1d(result), np.atleast_1d(doubt)
        where = np.nonzero(doubt)
        p, c = np.broadcast_to(p, doubt.shape)[where], np.broadcast_to(c, doubt.shape)[where]
        result[where] = round_to_odd(*two_sum(p, c)).astype(kind)
    return result


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
    y = np.where(too_low, np.nextafter(y, np.array(np.inf, kind)), y)
    return y


def widen_bf16(bits: Array) -> Array:
    """Bits of bfloat16 to float32, exact."""
    wide: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return wide


def narrow_bf16(x: Array, nan: int | None = None) -> Array:
    """Floats to the bits of bfloat16, to nearest even. A NaN becomes `nan`, or without it a quiet one."""
    bits = contiguous(x.astype(np.float32, copy=False)).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40) if nan is None else np.uint32(nan)
    made: Array = np.where(np.isnan(x), quiet, rounded).astype(np.uint16)
    return made
