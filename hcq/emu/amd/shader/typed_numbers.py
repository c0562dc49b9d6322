"""Formats of typed buffers, and what numbers become on their way from memory to registers and back.

In       the number of a format; bits of elements, bits of registers
Out      Element: what its components are; bits of registers, words of elements
Next     typed_buffers.py (who moves them)
Source   CDNA3, RDNA2 and RDNA3 ISA documents: data formats, number formats; LLVM's assembler names all of them

A name lists components from the highest bits down: of 10_11_11, X has the lowest 11 bits. What is stored is clamped to
what the format has. Inferences: uscaled and sscaled are cut off towards 0, and so are floats of 10 and 11 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.amd.shader.arrays import Array

KINDS_GFX9 = ("unorm", "snorm", "uscaled", "sscaled", "uint", "sint", "", "float")
WIDTHS_GFX9: tuple[tuple[int, ...], ...] = (
    (),
    (8,),
    (16,),
    (8, 8),
    (32,),
    (16, 16),
    (11, 11, 10),
    (10, 11, 11),
    (2, 10, 10, 10),
    (10, 10, 10, 2),
    (8, 8, 8, 8),
    (32, 32),
    (16, 16, 16, 16),
    (32, 32, 32),
    (32, 32, 32, 32),
    (),
)
NORMS, SCALES, INTEGERS = ("unorm", "snorm"), ("uscaled", "sscaled"), ("uint", "sint")
EVERY = (*NORMS, *SCALES, *INTEGERS, "float")
Formats = tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]
FORMATS_GFX10: Formats = (
    ((), ("",)),
    ((8,), EVERY[:6]),
    ((16,), EVERY),
    ((8, 8), EVERY[:6]),
    ((32,), EVERY[4:]),
    ((16, 16), EVERY),
    ((11, 11, 10), EVERY),
    ((10, 11, 11), EVERY),
    ((2, 10, 10, 10), EVERY[:6]),
    ((10, 10, 10, 2), EVERY[:6]),
    ((8, 8, 8, 8), EVERY[:6]),
    ((32, 32), EVERY[4:]),
    ((16, 16, 16, 16), EVERY),
    ((32, 32, 32), EVERY[4:]),
    ((32, 32, 32, 32), EVERY[4:]),
)
# of these gfx11 and gfx12 have fewer kinds
FEWER = {(11, 11, 10): EVERY[6:], (10, 11, 11): EVERY[6:], (2, 10, 10, 10): (*NORMS, *INTEGERS)}
FORMATS_GFX11: Formats = tuple((widths, FEWER.get(widths, kinds)) for widths, kinds in FORMATS_GFX10)


class Element(NamedTuple):
    """What lies at one address: widths of X, Y, Z, W, from the lowest bits up, and the kind of numbers."""

    widths: tuple[int, ...]
    kind: str

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return sum(self.widths) // 8

    def one(self, is_short: bool) -> int:
        """What a component that is not there reads as where it is the last."""
        if self.kind in INTEGERS:
            return 1
        return 0x3C00 if is_short else 0x3F800000


# generation -> the elements of its formats that have one number for both
UNIFIED = {
    generation: [Element(widths, kind) for widths, kinds in formats for kind in kinds]
    for generation, formats in ((10, FORMATS_GFX10), (11, FORMATS_GFX11), (12, FORMATS_GFX11))
}


def element_of_gfx9(data: int, number: int) -> Element | None:
    """The element of a data format and a number format; None where there is none."""
    widths, kind = WIDTHS_GFX9[data], KINDS_GFX9[number]
    if not widths or not kind or (kind == "float" and 8 in widths):
        return None
    return Element(widths, kind)


def element_of(generation: int, number: int) -> Element | None:
    """The element of one of the formats that have one number for both."""
    every = UNIFIED[generation]
    return every[number] if 0 < number < len(every) else None


def loaded(element: Element, words: Array, is_short: bool) -> Array:
    """(4, lanes) bits for registers, of (words, lanes) as memory has them."""
    count = words.shape[1]
    rows = [
        _to_register(element.kind, width, _field(words, low, width), is_short)
        for low, width in _places(element)
    ]
    missing = [np.zeros(count, np.uint32)] * 3 + [np.full(count, element.one(is_short), np.uint32)]
    return np.stack([*rows, *missing[len(rows) :]])


def stored(element: Element, components: Array, is_short: bool) -> Array:
    """(words, lanes) for memory, of (components, lanes) bits of registers."""
    words = np.zeros((max(1, element.size_bytes // 4), components.shape[1]), np.uint32)
    for (low, width), row in zip(_places(element), components):
        words[low // 32] |= _to_memory(element.kind, width, row, is_short) << np.uint32(low % 32)
    return words


def _places(element: Element) -> list[tuple[int, int]]:
    """(lowest bit, width) of each component; none lies across a word's end."""
    low, found = 0, []
    for width in element.widths:
        found.append((low, width))
        low += width
    return found


def _field(words: Array, low: int, width: int) -> Array:
    return words[low // 32] >> np.uint32(low % 32) & np.uint32((1 << width) - 1)


def _signed(bits: Array, width: int) -> Array:
    top = np.int64(1 << width - 1)
    return (bits.astype(np.int64) ^ top) - top


def _to_register(kind: str, width: int, bits: Array, is_short: bool) -> Array:
    if kind == "uint":
        return bits & np.uint32(0xFFFF) if is_short else bits
    if kind == "sint":
        return _signed(bits, width).astype(np.uint32) & np.uint32(0xFFFF if is_short else 0xFFFFFFFF)
    if kind == "float" and width == (16 if is_short else 32):
        return bits
    number: Array
    if kind == "float":
        number = FROM_BITS[width](bits)
    elif kind in ("unorm", "uscaled"):
        number = bits.astype(np.float64) / (float((1 << width) - 1) if kind == "unorm" else 1.0)
    else:
        number = _signed(bits, width).astype(np.float64)
        if kind == "snorm":
            number = np.maximum(number / float((1 << width - 1) - 1), -1.0)
    with np.errstate(over="ignore"):
        if is_short:
            return number.astype(np.float16).view(np.uint16).astype(np.uint32)
        return number.astype(np.float32).view(np.uint32)


def _to_memory(kind: str, width: int, bits: Array, is_short: bool) -> Array:
    if kind in INTEGERS:
        if kind == "uint":
            return np.minimum(bits, np.uint32((1 << width) - 1))
        low, high = -(1 << width - 1), (1 << width - 1) - 1
        return np.clip(_signed(bits, 16 if is_short else 32), low, high).astype(np.uint32) & np.uint32(
            (1 << width) - 1
        )
    if kind == "float" and width == (16 if is_short else 32):
        return bits
    number = FROM_BITS[16 if is_short else 32](bits)
    if kind == "float":
        return TO_BITS[width](number)
    number = np.where(np.isnan(number), 0.0, number)
    is_signed = kind in ("snorm", "sscaled")
    high = (1 << width - (1 if is_signed else 0)) - 1
    if kind in NORMS:
        number = np.rint(np.clip(number, -1.0 if is_signed else 0.0, 1.0) * high)
    else:
        number = np.trunc(np.clip(number, -high - 1 if is_signed else 0, high))
    return number.astype(np.int64).astype(np.uint32) & np.uint32((1 << width) - 1)


def _from_small(mantissa: int) -> Callable[[Array], Array]:
    """Floats without a sign, of five bits of exponent: halves without their last bits."""
    shift = np.uint32(10 - mantissa)
    return lambda bits: (bits << shift).astype(np.uint16).view(np.float16).astype(np.float64)


def _to_small(mantissa: int) -> Callable[[Array], Array]:
    shift = 10 - mantissa
    largest = (31 << mantissa) - 1

    def convert(number: Array) -> Array:
        positive = np.where(number > 0, number, 0.0)
        with np.errstate(over="ignore"):
            near = positive.astype(np.float16)
        bits = near.view(np.uint16).astype(np.uint32)
        bits = np.where(near.astype(np.float64) > positive, bits - np.uint32(1), bits) >> np.uint32(shift)
        found = np.where(np.isinf(positive), np.uint32(31 << mantissa), np.minimum(bits, np.uint32(largest)))
        return np.where(np.isnan(number), np.uint32((32 << mantissa) - 1), found).astype(np.uint32)

    return convert


def _to_half(number: Array) -> Array:
    with np.errstate(over="ignore"):
        return number.astype(np.float16).view(np.uint16).astype(np.uint32)


def _to_single(number: Array) -> Array:
    return number.astype(np.float32).view(np.uint32)


FROM_BITS: dict[int, Callable[[Array], Array]] = {
    10: _from_small(5),
    11: _from_small(6),
    16: lambda bits: bits.astype(np.uint16).view(np.float16).astype(np.float64),
    32: lambda bits: np.ascontiguousarray(bits).view(np.float32).astype(np.float64),
}
TO_BITS: dict[int, Callable[[Array], Array]] = {
    10: _to_small(5),
    11: _to_small(6),
    16: _to_half,
    32: _to_single,
}
