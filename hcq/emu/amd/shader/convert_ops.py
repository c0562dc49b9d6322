"""Conversions between number types.

In       arrays of the kinds in each signature
Out      CONVERT, a table of meanings
Changes  nothing
Next     float_ops.py, vector_ops.py (operands, modifiers and EXEC)
Source   instruction descriptions of the RDNA3 and CDNA3 ISA documents
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.floats import to_integer, widen
from hcq.emu.amd.shader.integer_ops import pack
from hcq.emu.amd.shader.meaning import Compute, Table
from hcq.emu.amd.shader.operands import TYPES, Context
from hcq.emu.shader.floats import ZERO, narrow

CONVERT = Table()
define = CONVERT.define


def to_float(kind: str) -> Any:
    """Any number to a float kind under the mode's rounding. Integers of 32 bits are exact in float64."""

    def make(ctx: Context) -> Compute:
        rounding = ctx.mode.rounding(kind)
        return lambda a: narrow(widen(a), TYPES[kind], rounding)

    return make


def toward_zero_f16(a: Array) -> Array:
    """float16 truncated; a finite number too large stays at the largest float16."""
    return narrow(widen(a), np.float16, ZERO)


def normalised(a: Array, kind: Any) -> Array:
    """[-1, 1] or [0, 1] to the whole range of a 16-bit integer, rounded to nearest even."""
    top = np.iinfo(kind).max
    x = np.where(np.isnan(a), 0.0, widen(a))
    low = -1.0 if kind is np.int16 else 0.0
    return np.rint(np.clip(x, low, 1.0) * top).astype(kind)


def insert_byte(a: Array, position: Array, old: Array) -> Array:
    """v_cvt_pk_u8_f32: a float rounded to 0 .. 255, at one of four places."""
    shift = (position & np.uint32(3)) << np.uint32(3)
    x = np.where(np.isnan(a), 0.0, np.clip(np.rint(widen(a)), 0.0, 255.0)).astype(np.uint32)
    return (old & ~(np.uint32(255) << shift)) | (x << shift)


def signed_nibble(a: Array) -> Array:
    """v_cvt_off_f32_i4: four bits with their sign, in sixteenths."""
    low = (a & np.uint32(15)).astype(np.int32)
    return (((low ^ 8) - 8) / 16).astype(np.float32)


def byte_to_f32(shift: int) -> Compute:
    """v_cvt_f32_ubyte0 .. 3: one byte of a word."""
    return lambda a: ((a >> np.uint32(shift)) & np.uint32(255)).astype(np.float32)


@dataclass(frozen=True)
class ByteFloat:
    """A float of eight bits. `values` of all 256 codes; `overflow` is what is too large rounds to."""

    values: Array
    largest: int  # code of the largest finite number
    overflow: int
    nan: int


def fp8_table(exponent_bits: int, mantissa_bits: int) -> Array:
    """All 256 values of an FNUZ byte float: no infinities, no negative zero, 0x80 is the NaN."""
    bias = 1 << (exponent_bits - 1)
    values = []
    for byte in range(256):
        e, m = (byte & 0x7F) >> mantissa_bits, byte & ((1 << mantissa_bits) - 1)
        size = (
            m * 2.0 ** (1 - bias - mantissa_bits)
            if e == 0
            else (1 + m / (1 << mantissa_bits)) * 2.0 ** (e - bias)
        )
        values.append(-size if byte & 0x80 else size)
    values[0x80] = float("nan")
    return np.array(values, np.float32)


def ocp_table(exponent_bits: int, mantissa_bits: int) -> Array:
    """All 256 values of the Open Compute Project's byte floats: E4M3 has one NaN code, E5M2 is a short IEEE format."""
    bias = (1 << (exponent_bits - 1)) - 1
    codes = np.arange(128)
    e, m = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    fraction = m / (1 << mantissa_bits)
    size = np.where(e == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (e - bias))
    if exponent_bits == 4:
        size[0x7F] = np.nan
    else:
        size[0x7C:] = (np.inf, np.nan, np.nan, np.nan)
    return np.concatenate((size, -size)).astype(np.float32)


FP8, BF8 = (ByteFloat(fp8_table(*shape), 0x7F, 0x7F, 0x80) for shape in ((4, 3), (5, 2)))
OCP_FP8 = ByteFloat(ocp_table(4, 3), 0x7E, 0x7F, 0x7F)
OCP_BF8 = ByteFloat(ocp_table(5, 2), 0x7B, 0x7C, 0x7F)


def byte_float(ctx: Context, name: str) -> ByteFloat:
    """The byte float that an instruction's name means on this architecture."""
    if "fp8" in name:
        return OCP_FP8 if ctx.is_gfx12 else FP8
    return OCP_BF8 if ctx.is_gfx12 else BF8


def from_byte_float(name: str) -> Any:
    """From an 8-bit float format to float32, by table."""

    def make(ctx: Context) -> Compute:
        values = byte_float(ctx, name).values
        return lambda a: values[a & np.uint32(255)]

    return make


def to_byte_float(x: Array, kind: ByteFloat) -> Array:
    """The nearest byte float, ties to even. A negative zero stays one where the format has it."""
    finite = kind.values[: kind.largest + 1].astype(np.float64)  # rising
    sizes = np.append(finite, 2 * finite[-1] - finite[-2])  # and what would come next
    size = np.minimum(np.abs(widen(x)), sizes[-1])
    above = np.clip(np.searchsorted(sizes, size), 1, len(sizes) - 1)
    low, high = sizes[above - 1], sizes[above]
    nearer_high = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    code = np.where(nearer_high, above, above - 1).astype(np.uint32)
    code = np.where(code > kind.largest, np.uint32(kind.overflow), code)
    has_minus_zero = kind.nan != 0x80
    code = np.where(np.signbit(x) & ((code != 0) | has_minus_zero), code | 0x80, code)
    return np.where(np.isnan(x), kind.nan, code).astype(np.uint32)


for wide in ("f64", "f32"):
    define(f"v_cvt_i32_{wide}", f"i32 = {wide}", lambda a: to_integer(a, np.int32))
    define(f"v_cvt_u32_{wide}", f"u32 = {wide}", lambda a: to_integer(a, np.uint32))
define("v_cvt_f64_i32", "f64 = i32", widen)
define("v_cvt_f64_u32", "f64 = u32", widen)
define("v_cvt_f64_f32", "f64 = f32", widen, arithmetic=True)
define("v_cvt_f32_f64", "f32 = f64", make=to_float("f32"), arithmetic=True)
define("v_cvt_f32_i32", "f32 = i32", make=to_float("f32"))
define("v_cvt_f32_u32", "f32 = u32", make=to_float("f32"))
define("v_cvt_f32_f16", "f32 = f16", lambda a: a.astype(np.float32), arithmetic=True)
define("v_cvt_f16_f32", "f16 = f32", make=to_float("f16"), arithmetic=True)
define("v_cvt_f16_u16", "f16 = u16", make=to_float("f16"))
define("v_cvt_f16_i16", "f16 = i16", make=to_float("f16"))
define("v_cvt_u16_f16", "u16 = f16", lambda a: to_integer(a, np.uint16))
define("v_cvt_i16_f16", "i16 = f16", lambda a: to_integer(a, np.int16))
define("v_cvt_nearest_i32_f32", "i32 = f32", lambda a: to_integer(np.floor(widen(a) + 0.5), np.int32))
define("v_cvt_floor_i32_f32", "i32 = f32", lambda a: to_integer(np.floor(widen(a)), np.int32))
define("v_cvt_off_f32_i4", "f32 = u32", signed_nibble)
for byte in range(4):
    define(f"v_cvt_f32_ubyte{byte}", "f32 = u32", byte_to_f32(8 * byte))


def define_pair(name: str, kind: str, convert: Compute) -> None:
    """Two numbers of a kind, each made to 16 bits."""
    define(name, f"u32 = {kind} {kind}", lambda a, b: pack(convert(a), convert(b)))


define_pair("v_cvt_pk_rtz_f16_f32", "f32", toward_zero_f16)
define_pair("v_cvt_pk_i16_f32", "f32", lambda a: to_integer(a, np.int16))
define_pair("v_cvt_pk_u16_f32", "f32", lambda a: to_integer(a, np.uint16))
for source in ("f16", "f32"):
    for out, kind in (("i16", np.int16), ("u16", np.uint16)):
        define(f"v_cvt_norm_{out}_{source}", f"{out} = {source}", lambda a, kind=kind: normalised(a, kind))
        define_pair(f"v_cvt_pk_norm_{out}_{source}", source, lambda a, kind=kind: normalised(a, kind))
define("v_cvt_pk_u8_f32", "u32 = f32 u32 u32", insert_byte)
define("v_cvt_pkaccum_u8_f32", "u32 = f32 u32 u32", insert_byte, accumulates=True)
define("v_cvt_f32_fp8", "f32 = u32", make=from_byte_float("fp8"))
define("v_cvt_f32_bf8", "f32 = u32", make=from_byte_float("bf8"))
