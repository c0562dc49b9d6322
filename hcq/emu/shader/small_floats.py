"""Float formats of four to eight bits, by tables of what their codes stand for.

In       floats, or codes
Out      codes of the nearest values, ties to even; float32
Next     hcq/emu/amd/shader/convert_ops.py, hcq/emu/nv/shader/convert_ops.py (which instruction uses what)
Source   OCP 8-bit Floating Point Specification; OCP Microscaling Formats; the FNUZ formats of the CDNA3 ISA document
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SmallFloat:
    """A format whose highest bit is the sign.

    values    of all codes, as float32
    largest   the code of the largest finite number
    overflow  what is too large becomes
    nan       what a NaN becomes
    mantissa  its bits
    bias      of the exponent
    """

    values: Array
    largest: int
    overflow: int
    nan: int
    mantissa: int
    bias: int

    @property
    def sign(self) -> int:
        """The bit of a code that is its sign."""
        return len(self.values) // 2

    @cached_property
    def _between(self) -> Array:
        """Half-way between two neighbours, the last one between the largest and what would come next."""
        finite = self.values[: self.largest + 1].astype(np.float64)
        sizes = np.append(finite, 2 * finite[-1] - finite[-2])
        middle: Array = ((sizes[1:] + sizes[:-1]) / 2).astype(np.float32)  # exact
        return middle

    @cached_property
    def _codes(self) -> Array:
        """Of the sizes from 0 to beyond the largest, then of the same below zero."""
        above = np.arange(self.largest + 2)
        above[-1] = self.overflow
        below = above | self.sign
        if self.nan == self.sign:
            below[0] = 0  # there is no negative zero
        return np.concatenate((above, below)).astype(np.uint8)

    @property
    def saturating(self) -> SmallFloat:
        """The same, but what is too large becomes the largest."""
        return replace(self, overflow=self.largest)

    def widen(self, codes: Array) -> Array:
        """float32 of codes; bits above them do not matter."""
        traced = getattr(codes, "lookup", None)  # compiled shader cores look it up in a table of their own
        if traced is not None:
            looked: Array = traced(self.values)
            return looked
        found: Array = self.values[codes & codes.dtype.type(len(self.values) - 1)]
        return found

    def narrow(self, x: Array) -> Array:
        """float32 or float64 to the nearest codes, as uint8. A negative zero stays one where the format has it."""
        if hasattr(x, "lookup") and x.dtype == np.float32:  # compiled shader cores compute it
            return self.computed(x)
        size = np.abs(x)
        between = self._between.astype(x.dtype, copy=False)
        place = between.searchsorted(size)
        place += (between.take(place, mode="clip") == size) & place  # from an odd code to the even one
        found: Array = self._codes[place + np.signbit(x) * (self.largest + 2)]
        is_nan = np.isnan(x)
        return np.where(is_nan, np.uint8(self.nan), found) if is_nan.any() else found

    def computed(self, x: Array) -> Array:
        """The same of float32 without tables."""
        bits, shift, one = x.view(np.uint32), np.uint32(23 - self.mantissa), np.uint32(1)
        size = bits & np.uint32(0x7FFFFFFF)
        half = np.uint32((1 << int(shift) - 1) - 1)
        first = np.uint32(127 - self.bias << self.mantissa)
        normal = ((size + ((size >> shift) & one) + half) >> shift) - first
        # a sum with this has the step of the smallest codes as its last bit
        unit = np.float32(2.0 ** (24 - self.bias - self.mantissa))
        tiny = (size.view(np.float32) + unit).view(np.uint32) - unit.view(np.uint32)
        code = np.where(size < np.uint32(128 - self.bias << 23), tiny, normal)
        code = np.where(code > np.uint32(self.largest), np.uint32(self.overflow), code)
        found = np.where(bits > size, code | np.uint32(self.sign), code)
        if self.nan == self.sign:  # there is no negative zero
            found = np.where(code == np.uint32(0), code, found)
        narrow: Array = np.where(size > np.uint32(0x7F800000), np.uint32(self.nan), found).astype(np.uint8)
        return narrow


def _sizes(bits: int, mantissa: int, bias: int) -> Array:
    """What the codes without their sign stand for, from 0 on, as float64."""
    code = np.arange(1 << (bits - 1))
    field, low = code >> mantissa, code & ((1 << mantissa) - 1)
    tiny = np.ldexp(low, 1 - bias - mantissa)
    sizes: Array = np.where(field == 0, tiny, np.ldexp(low + (1 << mantissa), field - bias - mantissa))
    return sizes


def _signed(sizes: Array) -> Array:
    return np.concatenate((sizes, -sizes)).astype(np.float32)


def _finite(bits: int, mantissa: int, bias: int) -> SmallFloat:
    """Without infinities and NaN, which becomes the largest number."""
    last = (1 << (bits - 1)) - 1
    return SmallFloat(_signed(_sizes(bits, mantissa, bias)), last, last, last, mantissa, bias)


def _fnuz(mantissa: int, bias: int) -> SmallFloat:
    """Of eight bits, without infinities and negative zero, whose code is the NaN."""
    values = _signed(_sizes(8, mantissa, bias))
    values[0x80] = np.nan
    return SmallFloat(values, 0x7F, 0x7F, 0x80, mantissa, bias)


def _e4m3() -> SmallFloat:
    """One code of each sign is a NaN; there are no infinities."""
    sizes = _sizes(8, 3, 7)
    sizes[0x7F] = np.nan
    return SmallFloat(_signed(sizes), 0x7E, 0x7F, 0x7F, 3, 7)


def _e5m2() -> SmallFloat:
    """A short IEEE format."""
    sizes = _sizes(8, 2, 15)
    sizes[0x7C:] = (np.inf, np.nan, np.nan, np.nan)
    return SmallFloat(_signed(sizes), 0x7B, 0x7C, 0x7F, 2, 15)


E4M3, E5M2 = _e4m3(), _e5m2()
E4M3_FNUZ, E5M2_FNUZ = _fnuz(3, 8), _fnuz(2, 16)
E2M1, E2M3, E3M2 = _finite(4, 1, 1), _finite(6, 3, 1), _finite(6, 2, 3)
