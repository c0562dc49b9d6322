"""Packed instructions (VOP3P): two halves at a time, dot products, mixed-precision fused multiply-add.

In       a Context for one VOP3P instruction
Out      a step that runs it on a Batch
Changes  VGPRs, when the step runs
Next     wmma_ops.py (it shares this format), vector_operands.py
Source   RDNA3 and CDNA3 ISA documents: packed math

op_sel[i] picks the half of source i for the low result, op_sel_hi[i] for the high one; neg_lo and neg_hi negate them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.amd.shader import floats
from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.float_ops import add_like, chained, dot2, dot2_bf16, fused, multiply
from hcq.emu.amd.shader.floats import maximum, maximum_or_nan, minimum, minimum_or_nan
from hcq.emu.amd.shader.integer_ops import dot, i64, saturate
from hcq.emu.amd.shader.matrix_ops import BYTE_FLOATS, OCP
from hcq.emu.amd.shader.operands import (
    TYPES,
    Context,
    Reader,
    Step,
    constant,
    inline_constant,
    put,
    scalar64,
    source,
    vector_write,
    with_modifiers,
)
from hcq.emu.amd.shader.vector_operands import clamp_unit, clamped
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.amd.shader.wmma_ops import compile_wmma

Compute = Callable[..., Array]


def selections(ctx: Context) -> tuple[int, int]:
    """(op_sel, op_sel_hi) with the third source's bit in its place."""
    fields = ctx.inst.fields
    return fields["opsel"], fields["opsel_hi"] | fields["opsel_hi2"] << 2


def word(ctx: Context, index: int, floating: bool) -> Reader:
    """Source `index` as 32 bits. A float constant of a packed f16 operation is a float16 in the low half."""
    code = ctx.inst.fields[f"src{index}"]
    if floating and 240 <= code <= 248:
        return constant(inline_constant(code, "f16").view(np.uint16).astype(np.uint32))
    return source(ctx, code, "u32")


def half(ctx: Context, index: int, kind: str, high: bool) -> Reader:
    """The half of source `index` that goes into the low or high result."""
    fields = ctx.inst.fields
    opsel, opsel_hi = selections(ctx)
    shift = np.uint32(16 * ((opsel_hi if high else opsel) >> index & 1))
    whole = word(ctx, index, kind == "f16")
    dtype = TYPES[kind]

    def read(b: Batch) -> Array:
        return ((whole(b) >> shift) & np.uint32(0xFFFF)).astype(np.uint16).view(dtype)

    neg = fields["neg_hi" if high else "neg_lo"] >> index & 1
    if neg and kind != "f16":
        raise ctx.refuse("neg on integers")
    return with_modifiers(read, bool(neg), False)


def chosen_halves(ctx: Context, index: int, floating: bool) -> Reader:
    """Source `index` with the half for the low product below that for the high one, and of floats their signs."""
    opsel, opsel_hi = selections(ctx)
    whole, fields = word(ctx, index, floating), ctx.inst.fields
    low, high = (np.uint32(16 * (chosen >> index & 1)) for chosen in (opsel, opsel_hi))
    signs = np.uint32(0)
    if floating:
        signs = np.uint32(
            0x8000 * (fields["neg_lo"] >> index & 1) | 0x80000000 * (fields["neg_hi"] >> index & 1)
        )
    if (low, high, signs) == (0, 16, 0):
        return whole
    mask = np.uint32(0xFFFF)

    def read(b: Batch) -> Array:
        x = whole(b)
        return ((x >> low & mask) | (x >> high & mask) << np.uint32(16)) ^ signs

    return read


def plain(compute: Compute) -> Callable[[Context], Compute]:
    """A function that needs no context."""
    return lambda ctx: compute


def shift_by(operation: Any, mask: Any) -> Callable[[Context], Compute]:
    """A shift of the second operand by the low bits of the first."""
    return lambda ctx: lambda a, b: operation(b, a & mask)


def ordered(combine: Callable[[Array, Array, bool], Array]) -> Callable[[Context], Compute]:
    """Minimum or maximum of two, with the NaN rule of MODE."""
    return lambda ctx: lambda a, b: combine(a, b, ctx.mode.ieee)


SUMS: dict[str, Callable[[Array, Array], Array]] = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b}

# name -> (kind, how to make the computation, its saturating form)
PACKED: dict[str, tuple[str, Callable[[Context], Compute], Compute | None]] = {
    "v_pk_mul_lo_u16": ("u16", plain(np.multiply), None),
    "v_pk_lshlrev_b16": ("u16", shift_by(np.left_shift, np.uint16(15)), None),
    "v_pk_lshrrev_b16": ("u16", shift_by(np.right_shift, np.uint16(15)), None),
    "v_pk_ashrrev_i16": ("i16", shift_by(np.right_shift, np.int16(15)), None),
    "v_pk_fma_f16": ("f16", fused("f16"), None),
    "v_pk_add_f16": ("f16", add_like("f16", 1, 1), None),
    "v_pk_mul_f16": ("f16", multiply("f16"), None),
    "v_pk_min_f16": ("f16", ordered(minimum), None),
    "v_pk_max_f16": ("f16", ordered(maximum), None),
    "v_pk_min_num_f16": ("f16", ordered(minimum), None),
    "v_pk_max_num_f16": ("f16", ordered(maximum), None),
    "v_pk_minimum_f16": ("f16", plain(minimum_or_nan), None),
    "v_pk_maximum_f16": ("f16", plain(maximum_or_nan), None),
    "v_pk_minimum3_f16": ("f16", plain(chained(minimum_or_nan, minimum_or_nan)), None),
    "v_pk_maximum3_f16": ("f16", plain(chained(maximum_or_nan, maximum_or_nan)), None),
}
for kind, limits in (("i16", np.int16), ("u16", np.uint16)):
    PACKED[f"v_pk_min_{kind}"] = (kind, plain(np.minimum), None)
    PACKED[f"v_pk_max_{kind}"] = (kind, plain(np.maximum), None)
    for name, total in SUMS.items():
        PACKED[f"v_pk_{name}_{kind}"] = (
            kind,
            plain(total),
            lambda a, b, total=total, limits=limits: saturate(total(i64(a), i64(b)), limits),
        )
    PACKED[f"v_pk_mad_{kind}"] = (
        kind,
        plain(lambda a, b, c: a * b + c),
        lambda a, b, c, limits=limits: saturate(i64(a) * i64(b) + i64(c), limits),
    )

DOTS = {  # name -> (bits, signed, by neg_lo)
    "v_dot4_i32_iu8": (8, True, True),
    "v_dot8_i32_iu4": (4, True, True),
    "v_dot4_u32_u8": (8, False, False),
    "v_dot8_u32_u4": (4, False, False),
    "v_dot4_i32_i8": (8, True, False),
    "v_dot8_i32_i4": (4, True, False),
    "v_dot2_i32_i16": (16, True, False),
    "v_dot2_u32_u16": (16, False, False),
}
PAIRS = {"v_pk_fma_f32": fused("f32"), "v_pk_mul_f32": multiply("f32"), "v_pk_add_f32": add_like("f32", 1, 1)}


def compile_packed(ctx: Context) -> Step:
    """The step of a VOP3P instruction."""
    name = ctx.inst.name
    if name.startswith(("v_wmma_", "v_swmmac_")):
        return compile_wmma(ctx)
    if name in PACKED:
        return halves(ctx, *PACKED[name])
    if name in DOTS:
        return dot_product(ctx, *DOTS[name])
    if name in ("v_dot2_f32_f16", "v_dot2_f32_bf16"):
        return float_dot(ctx, dot2 if name.endswith("_f16") else dot2_bf16)
    if name.startswith("v_dot4_f32_"):
        return byte_float_dot(ctx, *name.split("_")[3:])
    if name.startswith("v_fma_mix"):
        return mixed(ctx)
    if name in PAIRS:
        return register_pairs(ctx, PAIRS[name](ctx))
    if name == "v_pk_mov_b32":
        return move_pair(ctx)
    raise ctx.refuse()


def halves(ctx: Context, kind: str, make: Callable[[Context], Compute], saturating: Compute | None) -> Step:
    """One operation on both halves, with their selections and signs."""
    count = len(ctx.inst.opcode.operands) - 1
    low = [half(ctx, i, kind, False) for i in range(count)]
    high = [half(ctx, i, kind, True) for i in range(count)]
    compute = make(ctx)
    dtype = TYPES[kind]
    clamp = bool(ctx.inst.fields["clamp"])
    if clamp and kind != "f16":
        if saturating is None:
            raise ctx.refuse("clamp has no meaning here")
        compute = saturating
    flush = kind == "f16" and ctx.mode.flush64
    register = ctx.inst.fields["vdst"]

    def one(b: Batch, readers: list[Reader]) -> Array:
        values = [read(b) for read in readers]
        if flush and flush & 1:
            values = [floats.flushed(value) for value in values]
        x = compute(*values)
        if clamp and kind == "f16":
            x = clamp_unit(x, ctx.mode.dx10_clamp)
        if flush and flush & 2:
            x = floats.flushed(x)
        return x.astype(dtype, copy=False).view(np.uint16).astype(np.uint32)

    def run(b: Batch) -> None:
        put(b, b.u32[register], one(b, low) | (one(b, high) << np.uint32(16)))

    return run


def dot_product(ctx: Context, bits: int, signed: bool, by_neg: bool) -> Step:
    """v_dot2, v_dot4, v_dot8: products of parts of words, added to a word."""
    a, c = (chosen_halves(ctx, i, False) if bits == 16 else word(ctx, i, False) for i in range(2))
    addend = word(ctx, 2, False)
    neg = ctx.inst.fields["neg_lo"]
    signed_a, signed_b = (bool(neg & 1), bool(neg & 2)) if by_neg else (signed, signed)
    clamp = bool(ctx.inst.fields["clamp"])
    register = ctx.inst.fields["vdst"]

    def run(b: Batch) -> None:
        added = addend(b)
        total = dot(bits, signed_a, signed_b, a(b), c(b), added.view(np.int32) if signed else added)
        if clamp:
            total = saturate(total, np.int32 if signed else np.uint32)
        put(b, b.u32[register], total.astype(np.uint32))

    return run


def float_dot(ctx: Context, compute: Compute) -> Step:
    """v_dot2_f32: two products of halves, added to a float32."""
    a, c = chosen_halves(ctx, 0, True), chosen_halves(ctx, 1, True)
    fields = ctx.inst.fields
    addend = with_modifiers(
        source(ctx, fields["src2"], "f32"), bool(fields["neg_lo"] & 4), bool(fields["neg_hi"] & 4)
    )
    register = fields["vdst"]

    def value(b: Batch) -> Array:
        return compute(a(b), c(b), addend(b))

    result = clamped(value, ctx.mode.dx10_clamp) if fields["clamp"] else value
    return lambda b: put(b, b.f32[register], result(b))


def byte_float_dot(ctx: Context, kind_a: str, kind_b: str) -> Step:
    """Four products of byte floats and an addend, rounded once (gfx12)."""
    fields = ctx.inst.fields
    a, c = (source(ctx, fields[f"src{index}"], "u32") for index in range(2))
    addend = with_modifiers(
        source(ctx, fields["src2"], "f32"), bool(fields["neg_lo"] & 4), bool(fields["neg_hi"] & 4)
    )
    values_a, values_b = (BYTE_FLOATS[OCP[kind]].values.astype(np.float64) for kind in (kind_a, kind_b))
    register = fields["vdst"]

    def run(b: Batch) -> None:
        x, y = a(b), c(b)
        total = addend(b).astype(np.float64)
        for shift in (0, 8, 16, 24):
            bytes_ = ((word >> np.uint32(shift)) & np.uint32(255) for word in (x, y))
            total = total + values_a[next(bytes_)] * values_b[next(bytes_)]
        put(b, b.f32[register], total.astype(np.float32))

    return run


def mixed(ctx: Context) -> Step:
    """Fused multiply-add of sources that are float32, or a float16 half where op_sel_hi says so."""
    fields = ctx.inst.fields
    opsel, opsel_hi = selections(ctx)
    readers = []
    for index in range(3):
        code = fields[f"src{index}"]
        if opsel_hi >> index & 1:
            narrow = source(ctx, code, "f16", opsel >> index & 1)
            read = widened(narrow)
        else:
            read = source(ctx, code, "f32")
        readers.append(
            with_modifiers(read, bool(fields["neg_lo"] >> index & 1), bool(fields["neg_hi"] >> index & 1))
        )
    compute = fused("f32")(ctx)

    def value(b: Batch) -> Array:
        return compute(*(read(b) for read in readers))

    result = clamped(value, ctx.mode.dx10_clamp) if fields["clamp"] else value
    if ctx.inst.name == "v_fma_mix_f32":
        write = vector_write("f32", fields["vdst"])
        return lambda b: write(b, result(b))
    write_half = vector_write("f16", fields["vdst"], 1 if ctx.inst.name == "v_fma_mixhi_f16" else 0)
    return lambda b: write_half(b, result(b).astype(np.float16))


def widened(read: Reader) -> Reader:
    """A reader's values as float32."""
    return lambda b: read(b).astype(np.float32)


# -- gfx942: pairs of float32 -----------------------------------------------------------------------------------------
def register_half(ctx: Context, index: int, high: bool) -> Reader:
    """The 32-bit half of a 64-bit source that op_sel or op_sel_hi picks; constants are the same in both."""
    code = ctx.inst.fields[f"src{index}"]
    opsel, opsel_hi = selections(ctx)
    chosen = (opsel_hi if high else opsel) >> index & 1
    if code >= 256:
        return source(ctx, code + chosen, "f32")
    if code < 128:
        wide, shift = scalar64(ctx, code), np.uint64(32 * chosen)
        return lambda b: (wide(b) >> shift).astype(np.uint32).view(np.float32)[:, None]
    return source(ctx, code, "f32")


def register_pairs(ctx: Context, compute: Compute) -> Step:
    """v_pk_*_f32: one operation on two registers each."""
    fields = ctx.inst.fields
    count = len(ctx.inst.opcode.operands) - 1
    sides = []
    for high, negs in ((False, fields["neg_lo"]), (True, fields["neg_hi"])):
        sides.append(
            [with_modifiers(register_half(ctx, i, high), bool(negs >> i & 1), False) for i in range(count)]
        )
    register, clamp = fields["vdst"], bool(fields["clamp"])

    def run(b: Batch) -> None:
        low, high = (compute(*(read(b) for read in side)) for side in sides)
        if clamp:
            low, high = (clamp_unit(x, ctx.mode.dx10_clamp) for x in (low, high))
        put(b, b.f32[register], low)
        put(b, b.f32[register + 1], high)

    return run


def move_pair(ctx: Context) -> Step:
    """D.low from S0, D.high from S1, each a half that op_sel picks."""
    register = ctx.inst.fields["vdst"]
    first, second = register_half(ctx, 0, False), register_half(ctx, 1, False)

    def run(b: Batch) -> None:
        low, high = first(b).copy().view(np.uint32), second(b).copy().view(np.uint32)
        put(b, b.u32[register], low)
        put(b, b.u32[register + 1], high)

    return run
