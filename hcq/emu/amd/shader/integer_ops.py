"""Integer vector instructions: bits, shifts, sums, products, fields, bytes and halves.

In       arrays of the kinds in each signature
Out      INTEGER, a table of meanings
Next     vector_ops.py (operands and EXEC), carry_ops.py (instructions that also write a mask), float_ops.py
Source   instruction descriptions of the RDNA3 and CDNA3 ISA documents
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.meaning import Compute, Table
from hcq.emu.amd.shader.operands import TYPES
from hcq.emu.shader.bits import count_ones, highest_bit, lowest_bit, reversed_bits

INTEGER = Table()
define = INTEGER.define

U5, U6, U4 = np.uint32(31), np.uint64(63), np.uint16(15)


def u64(x: Array) -> Array:
    """As uint64."""
    return x.astype(np.uint64)


def i64(x: Array) -> Array:
    """As int64."""
    return x.astype(np.int64)


def low32(x: Array) -> Array:
    """The low 32 bits."""
    return x.astype(np.uint32)


def saturate(x: Array, kind: Any) -> Array:
    """The nearest number that the type has."""
    limits = np.iinfo(kind)
    return np.clip(x, limits.min, limits.max).astype(kind)


def leading_zeros(x: Array, width: int) -> Array:
    """From the top bit; -1 for zero."""
    found = highest_bit(x)
    return np.where(found < 0, -1, width - 1 - found).astype(np.int32)


def trailing_zeros(x: Array) -> Array:
    """How many zeros end it; -1 for 0."""
    return lowest_bit(x).astype(np.int32)


def leading_signs(x: Array, width: int) -> Array:
    """How many leading bits equal the sign bit; -1 when all do."""
    x = x.astype(np.int64)
    return leading_zeros((x ^ (x >> np.int64(63))).astype(np.uint64) & np.uint64((1 << width) - 1), width)


def field_unsigned(x: Array, offset: Array, width: Array) -> Array:
    """`width` bits from `offset` on."""
    mask = (np.uint64(1) << u64(width)) - np.uint64(1)
    return low32((u64(x) >> u64(offset)) & mask)


def field_signed(x: Array, offset: Array, width: Array) -> Array:
    """The field, sign-extended from its top bit; a field of no bits is 0."""
    raw = field_unsigned(x.view(np.uint32), offset, width).astype(np.int64)
    top = (np.int64(1) << i64(width)) >> np.int64(1)
    return ((raw ^ top) - top).astype(np.int32)


def signed24(x: Array) -> Array:
    """The low 24 bits with their sign."""
    return ((x.astype(np.int64) & 0xFFFFFF) ^ 0x800000) - 0x800000


def unsigned24(x: Array) -> Array:
    """The low 24 bits."""
    return u64(x) & np.uint64(0xFFFFFF)


def bytes_of(x: Array) -> list[Array]:
    """The four bytes of each word, lowest first."""
    return [(x >> np.uint32(8 * i)) & np.uint32(255) for i in range(4)]


def next_random(x: Array) -> Array:
    """v_prng_b32: the next number of a shift register with feedback."""
    return (x << np.uint32(1)) ^ ((x >> np.uint32(31)) * np.uint32(0xC5))


def shifted_pair(kind: Any) -> Compute:
    """v_ashr_pk: two words shifted right and saturated to bytes."""

    def compute(a: Array, b: Array, amount: Array) -> Array:
        low, high = (saturate(x >> (amount & U5).astype(np.int32), kind).view(np.uint8) for x in (a, b))
        return low.astype(np.uint16) | (high.astype(np.uint16) << np.uint16(8))

    return compute


def permute_bytes(high: Array, low: Array, selector: Array) -> Array:
    """v_perm_b32: each byte one of eight, or 0, 255, a sign, as its selector says."""
    both = (u64(high) << np.uint64(32)) | u64(low)
    out: Array = np.zeros(1, np.uint32)
    for position in range(4):
        pick = u64((selector >> np.uint32(8 * position)) & np.uint32(255))
        byte = (both >> ((pick & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
        sign_at = np.uint64(15) + np.uint64(16) * (pick - np.uint64(8))
        sign = ((both >> (sign_at & U6)) & np.uint64(1)) * np.uint64(255)
        byte = np.where(pick < 8, byte, np.where(pick < 12, sign, np.where(pick == 12, 0, 255)))
        out = out | (byte.astype(np.uint32) << np.uint32(8 * position))
    return out


def sad_bytes(a: Array, b: Array, masked: bool = False) -> Array:
    """The sum of the distances of four bytes; masked: of those where the second one is not 0."""
    total: Array = np.zeros(1, np.uint32)
    for x, y in zip(bytes_of(a), bytes_of(b)):
        apart = np.where(x > y, x - y, y - x)
        total = total + (np.where(y == 0, np.uint32(0), apart) if masked else apart)
    return total


def median(a: Array, b: Array, c: Array) -> Array:
    """The middle one of three."""
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def dot(width: int, signed_a: bool, signed_b: bool, a: Array, b: Array, c: Array) -> Array:
    """The sum of products of the 32 / width parts, plus c, modulo 2**32 (as int64)."""
    total = i64(c)
    for shift in range(0, 32, width):
        total = total + part(a, shift, width, signed_a) * part(b, shift, width, signed_b)
    return total


def part(x: Array, shift: int, width: int, signed: bool) -> Array:
    """A part of each word, as int64."""
    piece = (x.view(np.uint32).astype(np.int64) >> shift) & ((1 << width) - 1)
    if signed:
        top = 1 << (width - 1)
        piece = (piece ^ top) - top
    return piece


def pack(low: Array, high: Array) -> Array:
    """Two 16-bit arrays as one 32-bit array."""
    return low32(low.view(np.uint16)) | (low32(high.view(np.uint16)) << np.uint32(16))


def sat_pack_u8(x: Array) -> Array:
    """Two signed halves as two bytes, saturated."""
    low, high = (x & np.uint32(0xFFFF)).astype(np.uint16), (x >> np.uint32(16)).astype(np.uint16)
    a, b = (np.clip(half.view(np.int16), 0, 255).astype(np.uint16) for half in (low, high))
    return a | (b << np.uint16(8))


# -- one source -------------------------------------------------------------------------------------------------------
define("v_mov_b32 v_accvgpr_mov_b32", "u32 = u32", lambda a: a)
define("v_mov_b16", "u16 = u16", lambda a: a)
define("v_mov_b64", "u64 = u64", lambda a: a)
define("v_not_b32", "u32 = u32", np.invert)
define("v_not_b16", "u16 = u16", np.invert)
define("v_bfrev_b32", "u32 = u32", reversed_bits)
define("v_clz_i32_u32", "i32 = u32", lambda a: leading_zeros(a, 32))
define("v_ctz_i32_b32", "i32 = u32", trailing_zeros)
define("v_cls_i32", "i32 = i32", lambda a: leading_signs(a, 32))
define("v_cvt_i32_i16", "i32 = i16", lambda a: a.astype(np.int32))
define("v_cvt_u32_u16", "u32 = u16", low32)
define("v_sat_pk_u8_i16", "u16 = u32", sat_pack_u8)

# -- bits -------------------------------------------------------------------------------------------------------------
for size in ("b32", "b16"):
    kind = "u" + size[1:]
    for name, compute in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        define(f"v_{name}_{size}", f"{kind} = {kind} {kind}", compute)
define("v_xnor_b32", "u32 = u32 u32", lambda a, b: ~(a ^ b))
define("v_lshlrev_b32", "u32 = u32 u32", lambda a, b: b << (a & U5))
define("v_lshrrev_b32", "u32 = u32 u32", lambda a, b: b >> (a & U5))
define("v_ashrrev_i32", "i32 = i32 i32", lambda a, b: b >> (a & np.int32(31)))
define("v_lshlrev_b16", "u16 = u16 u16", lambda a, b: b << (a & U4))
define("v_lshrrev_b16", "u16 = u16 u16", lambda a, b: b >> (a & U4))
define("v_ashrrev_i16", "i16 = i16 i16", lambda a, b: b >> (a & np.int16(15)))
define("v_lshlrev_b64", "u64 = u32 u64", lambda a, b: b << (u64(a) & U6))
define("v_lshrrev_b64", "u64 = u32 u64", lambda a, b: b >> (u64(a) & U6))
define("v_ashrrev_i64", "i64 = u32 i64", lambda a, b: b >> (i64(a) & np.int64(63)))
define("v_bfm_b32", "u32 = u32 u32", lambda a, b: ((np.uint32(1) << (a & U5)) - np.uint32(1)) << (b & U5))
define("v_bcnt_u32_b32", "u32 = u32 u32", lambda a, b: count_ones(a) + b)
define("v_bfe_u32", "u32 = u32 u32 u32", lambda a, b, c: field_unsigned(a, b & U5, c & U5))
define("v_bfe_i32", "i32 = i32 u32 u32", lambda a, b, c: field_signed(a, b & U5, c & U5))
define("v_bfi_b32", "u32 = u32 u32 u32", lambda a, b, c: (a & b) | (~a & c))
define(
    "v_alignbit_b32",
    "u32 = u32 u32 u32",
    lambda a, b, c: low32(((u64(a) << np.uint64(32)) | u64(b)) >> u64(c & U5)),
)
define(
    "v_alignbyte_b32",
    "u32 = u32 u32 u32",
    lambda a, b, c: low32(((u64(a) << np.uint64(32)) | u64(b)) >> u64((c & np.uint32(3)) << np.uint32(3))),
)
define("v_xor3_b32", "u32 = u32 u32 u32", lambda a, b, c: a ^ b ^ c)
define("v_or3_b32", "u32 = u32 u32 u32", lambda a, b, c: a | b | c)
define("v_and_or_b32", "u32 = u32 u32 u32", lambda a, b, c: (a & b) | c)
define("v_lshl_or_b32", "u32 = u32 u32 u32", lambda a, b, c: (a << (b & U5)) | c)
define("v_prng_b32", "u32 = u32", next_random)
define("v_perm_b32", "u32 = u32 u32 u32", permute_bytes)

# -- sums -------------------------------------------------------------------------------------------------------------
SUMS: dict[str, Compute] = {"add": np.add, "sub": np.subtract, "subrev": lambda a, b: b - a}
for kind in ("u16", "i16", "u32", "i32"):
    for name, total in SUMS.items():
        define(
            f"v_{name}_nc_{kind}",
            f"{kind} = {kind} {kind}",
            total,
            clamped=lambda a, b, total=total, kind=kind: saturate(total(i64(a), i64(b)), TYPES[kind]),
        )
define("v_add3_u32", "u32 = u32 u32 u32", lambda a, b, c: a + b + c)
define("v_lshl_add_u32", "u32 = u32 u32 u32", lambda a, b, c: (a << (b & U5)) + c)
define("v_add_lshl_u32", "u32 = u32 u32 u32", lambda a, b, c: (a + b) << (c & U5))
define("v_xad_u32", "u32 = u32 u32 u32", lambda a, b, c: (a ^ b) + c)
define("v_lshl_add_u64", "u64 = u64 u32 u64", lambda a, b, c: (a << (u64(b) & np.uint64(7))) + c)
DISTANCES: dict[str, Compute] = {
    "v_sad_u8": sad_bytes,
    "v_sad_hi_u8": lambda a, b: i64(sad_bytes(a, b)) << np.int64(16),
    "v_msad_u8": lambda a, b: sad_bytes(a, b, masked=True),
    "v_sad_u32": lambda a, b: np.where(a > b, a - b, b - a),
    "v_sad_u16": lambda a, b: sum(np.abs(part(a, s, 16, False) - part(b, s, 16, False)) for s in (0, 16)),
}
for name, apart in DISTANCES.items():
    define(
        name,
        "u32 = u32 u32 u32",
        lambda a, b, c, apart=apart: low32(i64(apart(a, b)) + i64(c)),
        clamped=lambda a, b, c, apart=apart: saturate(i64(apart(a, b)) + i64(c), np.uint32),
    )
define(
    "v_lerp_u8",
    "u32 = u32 u32 u32",
    lambda a, b, c: low32(
        sum(
            ((part(a, s, 8, False) + part(b, s, 8, False) + (part(c, s, 8, False) & 1)) >> 1) << s
            for s in (0, 8, 16, 24)
        )
    ),
)

# -- products ---------------------------------------------------------------------------------------------------------
define("v_mul_lo_u32", "u32 = u32 u32", np.multiply)
define("v_mul_hi_u32", "u32 = u32 u32", lambda a, b: low32((u64(a) * u64(b)) >> np.uint64(32)))
define("v_mul_hi_i32", "u32 = i32 i32", lambda a, b: low32((i64(a) * i64(b)) >> np.int64(32)))
define("v_mul_lo_u16", "u16 = u16 u16", np.multiply)
define("v_mul_i32_i24", "u32 = u32 u32", lambda a, b: low32(signed24(a) * signed24(b)))
define("v_mul_hi_i32_i24", "u32 = u32 u32", lambda a, b: low32((signed24(a) * signed24(b)) >> 32))
define("v_mul_u32_u24", "u32 = u32 u32", lambda a, b: low32(unsigned24(a) * unsigned24(b)))
define(
    "v_mul_hi_u32_u24", "u32 = u32 u32", lambda a, b: low32((unsigned24(a) * unsigned24(b)) >> np.uint64(32))
)


def define_wide(name: str, signature: str, wide: Compute) -> None:
    """`wide` computes in int64; the result is its low bits, or with clamp what the kind has that is nearest to it."""
    kind = TYPES[signature.split()[0]]
    define(name, signature, lambda *x: wide(*x).astype(kind), clamped=lambda *x: saturate(wide(*x), kind))


def product_sum(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in 64 bits."""
    return i64(a) * i64(b) + i64(c)


define_wide("v_mad_i32_i24", "i32 = u32 u32 i32", lambda a, b, c: product_sum(signed24(a), signed24(b), c))
define_wide(
    "v_mad_u32_u24", "u32 = u32 u32 u32", lambda a, b, c: product_sum(unsigned24(a), unsigned24(b), c)
)
define_wide("v_mad_u32_u16", "u32 = u16 u16 u32", product_sum)
define_wide("v_mad_i32_i16", "i32 = i16 i16 i32", product_sum)
define_wide("v_mad_u16", "u16 = u16 u16 u16", product_sum)
define_wide("v_mad_i16", "i16 = i16 i16 i16", product_sum)
for name, width in (("v_dot2c_i32_i16", 16), ("v_dot4c_i32_i8", 8), ("v_dot8c_i32_i4", 4)):
    define(
        name,
        "u32 = u32 u32 u32",
        lambda a, b, c, width=width: low32(dot(width, True, True, a, b, c)),
        accumulates=True,
    )

# -- order ------------------------------------------------------------------------------------------------------------
for kind in ("i32", "u32", "i16", "u16"):
    two, three = f"{kind} = {kind} {kind}", f"{kind} = {kind} {kind} {kind}"
    define(f"v_min_{kind}", two, np.minimum)
    define(f"v_max_{kind}", two, np.maximum)
    define(f"v_min3_{kind}", three, lambda a, b, c: np.minimum(np.minimum(a, b), c))
    define(f"v_max3_{kind}", three, lambda a, b, c: np.maximum(np.maximum(a, b), c))
    define(f"v_med3_{kind}", three, median)
    define(f"v_maxmin_{kind}", three, lambda a, b, c: np.minimum(np.maximum(a, b), c))
    define(f"v_minmax_{kind}", three, lambda a, b, c: np.maximum(np.minimum(a, b), c))

# -- halves and bytes packed ------------------------------------------------------------------------------------------
define("v_cvt_pk_u16_u32", "u32 = u32 u32", lambda a, b: pack(saturate(a, np.uint16), saturate(b, np.uint16)))
define("v_cvt_pk_i16_i32", "u32 = i32 i32", lambda a, b: pack(saturate(a, np.int16), saturate(b, np.int16)))
define("v_pack_b32_f16", "u32 = f16 f16", pack)  # floats for the sake of neg and abs
define("v_ashr_pk_i8_i32", "u16 = i32 i32 u32", shifted_pair(np.int8))
define("v_ashr_pk_u8_i32", "u16 = i32 i32 u32", shifted_pair(np.uint8))
