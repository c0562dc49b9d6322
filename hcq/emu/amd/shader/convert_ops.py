"""Conversions between number types.

In       arrays of the kinds in each signature
Out      CONVERT, a table of meanings
Next     float_ops.py, vector_ops.py (operands, modifiers and EXEC)
Source   instruction descriptions of the RDNA3 and CDNA3 ISA documents
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.floats import to_integer, widen
from hcq.emu.amd.shader.integer_ops import pack
from hcq.emu.amd.shader.meaning import Compute, Table
from hcq.emu.amd.shader.operands import TYPES, Context
from hcq.emu.shader.floats import ZERO, narrow, narrow_bf16, widen_bf16
from hcq.emu.shader.small_floats import E4M3, E4M3_FNUZ, E5M2, E5M2_FNUZ, SmallFloat

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


def byte_float(ctx: Context, name: str) -> SmallFloat:
    """The byte float that an instruction's name means on this architecture."""
    if "fp8" in name:
        return E4M3 if ctx.isa.has_ocp_floats else E4M3_FNUZ
    return E5M2 if ctx.isa.has_ocp_floats else E5M2_FNUZ


def from_byte_float(name: str) -> Any:
    """From an 8-bit float format to float32, by table."""

    def make(ctx: Context) -> Compute:
        return byte_float(ctx, name).widen

    return make


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
define_pair("v_cvt_pk_f16_f32", "f32", lambda a: a.astype(np.float16))
define_pair("v_cvt_pk_bf16_f32", "f32", narrow_bf16)
define("v_cvt_f32_bf16", "f32 = u32", lambda a: widen_bf16(a & np.uint32(0xFFFF)))
define("v_cvt_f32_fp8", "f32 = u32", make=from_byte_float("fp8"))
define("v_cvt_f32_bf8", "f32 = u32", make=from_byte_float("bf8"))
