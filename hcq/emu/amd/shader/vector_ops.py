"""Vector instructions compiled: operands around a meaning, modifiers, EXEC, DPP, SDWA and dual issue.

In       a Context for one VOP1, VOP2, VOPC, VOP3, VOP3SD or VOPD instruction
Out      a step that runs it on a Batch
Changes  registers, when the step runs
Next     integer_ops.py, float_ops.py, convert_ops.py (meanings), compare_ops.py, carry_ops.py, lane_ops.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader import (
    carry_ops,
    compare_ops,
    convert_ops,
    float_ops,
    integer_ops,
    lane_ops,
    scalar_float_ops,
)
from hcq.emu.amd.shader.floats import flushed
from hcq.emu.amd.shader.isa import DPP, DPP8, DPP8_FI, LITERAL, SDWA, Opcode, Sdwa
from hcq.emu.amd.shader.meaning import ALIASES, ALIASES_RDNA4, KEEPS_OTHER_HALF_GFX9, Meaning, Table
from hcq.emu.amd.shader.operands import (
    TYPES,
    Context,
    Reader,
    Step,
    Writer,
    put,
    source,
    vector_source,
    vector_write,
    width_of,
    with_modifiers,
)
from hcq.emu.amd.shader.waves import Array, Batch

MEANINGS: Table = {**integer_ops.INTEGER, **float_ops.FLOAT, **convert_ops.CONVERT}
NOTHING = {"v_nop", "v_pipeflush", "v_clrexcp"}


def canonical(ctx: Context) -> str:
    """The name our tables use."""
    name = ctx.inst.name
    if ctx.is_gfx12:
        return ALIASES_RDNA4.get(name, name.replace("_num_", "_"))
    return ALIASES.get(name, name) if ctx.is_gfx9 else name


def compile_vector(ctx: Context) -> Step:
    name = canonical(ctx)
    if name in NOTHING:
        return lambda b: None
    if ctx.inst.format == "VOPD":
        return compile_dual(ctx)
    if ctx.inst.dpp is not None:
        return lane_ops.with_dpp(ctx, lambda fetch: compile_plain(ctx, name, fetch))
    return compile_plain(ctx, name, None)


def compile_plain(ctx: Context, name: str, fetch: lane_ops.Fetch | None) -> Step:
    """`fetch` reads src0 when a DPP word moves lanes."""
    operands = Sources(ctx, fetch)
    scalar = scalar_float_ops.transcendental(ctx, name)
    if scalar is not None:
        return scalar
    for special in (compare_ops.compile_compare, carry_ops.compile_carry, lane_ops.compile_lanes):
        step = special(ctx, name, operands)
        if step is not None:
            return step
    meaning = MEANINGS.get(name)
    if meaning is None:
        raise ctx.refuse("this emulator does not execute it")
    return compile_meaning(ctx, name, meaning, operands)


class Sources:
    """The source operands of an instruction, in assembly order, read under any kind."""

    def __init__(self, ctx: Context, fetch: lane_ops.Fetch | None = None) -> None:
        self.ctx, self.fetch = ctx, fetch
        operands = ctx.inst.opcode.operands
        self.operands = [o for o in operands if o.field not in ("vdst", "sdst", "vcc")]

    def __len__(self) -> int:
        return len(self.operands)

    def code(self, index: int) -> int:
        """The source code of operand `index`; VGPR fields are moved to 256 and up."""
        operand = self.operands[index]
        if operand.field == "literal32":
            return LITERAL
        code = self.ctx.inst.fields[operand.field]
        return code + 256 if operand.field == "vsrc1" else code

    def read(self, index: int, kind: str) -> Reader:
        """Operand `index` as `kind`, with its half chosen and neg and abs applied."""
        ctx, inst, operand = self.ctx, self.ctx.inst, self.operands[index]
        if inst.sdwa is not None and operand.field != "literal32":
            return self.read_sdwa(index, kind, inst.sdwa)
        if operand.width == 16 and width_of(kind) == 32:
            narrow = self.read(index, kind[0] + "16")
            return lambda b: narrow(b).astype(TYPES[kind])
        code, half = self.code(index), 0
        if inst.format in ("VOP1", "VOP2", "VOPC"):
            if operand.width == 16 and code >= 256:
                code, half = 256 | (code & 127), (code >> 7) & 1
        elif inst.format == "VOP3" and width_of(kind) == 16:
            half = inst.fields["opsel"] >> index & 1
        if operand.file == "A":
            code += ctx.acc_offset
        if operand.field == "src0" and self.fetch is not None:
            read = self.fetch(kind, half)
        else:
            if code in (DPP, DPP8, DPP8_FI, SDWA) and code < 256:
                raise ctx.refuse(f"source code {code} marks a word that is not there")
            read = source(ctx, code, kind, half)
        return self.modified(read, index, kind)

    def modified(self, read: Reader, index: int, kind: str) -> Reader:
        inst = self.ctx.inst
        neg = bool(inst.fields.get("neg", 0) >> index & 1)
        absolute = bool(inst.fields.get("abs", 0) >> index & 1)
        if inst.dpp is not None and index < 2:
            neg |= bool(inst.dpp.values.get(f"neg{index}", 0))
            absolute |= bool(inst.dpp.values.get(f"abs{index}", 0))
        if (neg or absolute) and kind[0] != "f":
            raise self.ctx.refuse(f"neg or abs on an operand of kind {kind}")
        return with_modifiers(read, neg, absolute)

    def read_sdwa(self, index: int, kind: str, word: Sdwa) -> Reader:
        """A byte or half of a register, extended, as `kind`."""
        ctx = self.ctx
        register = word.src0 if index == 0 else ctx.inst.fields["vsrc1"]
        is_scalar = word.s0 if index == 0 else word.s1
        selector, extend = (word.src0_sel, word.sext0) if index == 0 else (word.src1_sel, word.sext1)
        neg, absolute = (word.neg0, word.abs0) if index == 0 else (word.neg1, word.abs1)
        whole = source(ctx, register if is_scalar else 256 + register, "u32")
        dtype = TYPES[kind]
        shift, width = sdwa_part(selector)
        shift_by, mask = np.uint32(shift), np.uint32((1 << width) - 1)
        top = np.uint32(1 << (width - 1))

        def read(b: Batch) -> Array:
            piece = (whole(b) >> shift_by) & mask
            if extend:
                piece = (piece ^ top) - top
            if width_of(kind) == 16:
                return piece.astype(np.uint16).view(dtype)
            return piece.view(dtype)

        return with_modifiers(read, bool(neg), bool(absolute))


def sdwa_part(selector: int) -> tuple[int, int]:
    """(shift, width) of an SDWA selector."""
    if selector < 4:
        return 8 * selector, 8
    return (16 * (selector - 4), 16) if selector < 6 else (0, 32)


def compile_meaning(ctx: Context, name: str, meaning: Meaning, operands: Sources) -> Step:
    compute = value_of(ctx, meaning, operands)
    write = destination(ctx, name, meaning.out)
    return lambda b: write(b, compute(b))


def destination(ctx: Context, name: str, kind: str) -> Writer:
    """Where an instruction's vector result goes, with its half, SDWA placing, or cleared upper half."""
    inst = ctx.inst
    register = inst.fields["vdst"]
    operand = inst.opcode.operand("vdst")
    if operand is not None and operand.file == "A":
        register += ctx.acc_offset
    if inst.sdwa is not None:
        return sdwa_write(inst.sdwa, register, kind)
    if width_of(kind) != 16:
        return vector_write(kind, register)
    half, zero_high = 0, False
    if inst.format in ("VOP1", "VOP2"):
        if ctx.is_gfx9:
            zero_high = True
        else:
            register, half = register & 127, register >> 7
    elif inst.format == "VOP3":
        half = inst.fields["opsel"] >> 3
        zero_high = ctx.is_gfx9 and half == 0 and inst.name not in KEEPS_OTHER_HALF_GFX9
    return vector_write(kind, register, half, zero_high)


def sdwa_write(word: Sdwa, register: int, kind: str) -> Writer:
    shift, width = sdwa_part(word.dst_sel)
    mask = np.uint32(((1 << width) - 1) << shift)
    unsigned = TYPES[f"u{width_of(kind)}"]
    dtype = TYPES[kind]

    def write(b: Batch, x: Array) -> None:
        bits = np.ascontiguousarray(x, dtype).view(unsigned).astype(np.uint32)
        placed = (bits << np.uint32(shift)) & mask
        if width == 32:
            placed = bits
        elif word.dst_unused == 1:  # sign-extend upwards
            top = np.uint32(1 << (shift + width - 1))
            above = ~np.uint32(0) << np.uint32(min(shift + width, 31))
            placed = np.where((placed & top != 0) & (shift + width < 32), placed | above, placed)
        elif word.dst_unused == 2:
            placed = placed | (b.u32[register] & ~mask)
        put(b, b.u32[register], placed)

    return write


def value_of(ctx: Context, meaning: Meaning, operands: Sources) -> Callable[[Batch], Array]:
    """The result of an instruction before it is written: sources read, denormals flushed, clamped and scaled."""
    inst = ctx.inst
    readers = [operands.read(i, kind) for i, kind in enumerate(meaning.ins[: len(operands)])]
    if meaning.accumulates:
        readers.append(old_destination(ctx, meaning.ins[-1]))
    if len(readers) != len(meaning.ins):
        raise ctx.refuse(f"has {len(readers)} sources where its meaning takes {len(meaning.ins)}")
    if meaning.arithmetic:
        readers = [
            flushing(read) if kind[0] == "f" and ctx.mode.flush(kind) & 1 else read
            for read, kind in zip(readers, meaning.ins)
        ]
    compute = meaning.make(ctx)
    clamp = bool(inst.fields.get("clamp", 0)) or (inst.sdwa is not None and bool(inst.sdwa.clamp))
    if clamp and meaning.out[0] != "f":
        if meaning.clamped is None:
            raise ctx.refuse("clamp has no meaning here")
        compute = meaning.clamped
    value = apply(compute, readers)
    if meaning.out[0] != "f":
        return value
    omod = inst.fields.get("omod", 0) or (inst.sdwa.omod if inst.sdwa is not None else 0)
    if omod:
        value = scaled(value, {1: 2.0, 2: 4.0, 3: 0.5}[omod], TYPES[meaning.out])
    if clamp:
        value = clamped(value, ctx.mode.dx10_clamp)
    if meaning.arithmetic and ctx.mode.flush(meaning.out) & 2:
        value = flushing(value)
    return value


def apply(compute: Callable[..., Array], readers: list[Reader]) -> Callable[[Batch], Array]:
    if len(readers) == 1:
        (one,) = readers
        return lambda b: compute(one(b))
    if len(readers) == 2:
        first, second = readers
        return lambda b: compute(first(b), second(b))
    first, second, third = readers
    return lambda b: compute(first(b), second(b), third(b))


def old_destination(ctx: Context, kind: str) -> Reader:
    inst = ctx.inst
    register, half = inst.fields["vdst"], 0
    if width_of(kind) == 16:
        if inst.format == "VOP3":
            half = inst.fields["opsel"] >> 3
        elif not ctx.is_gfx9:
            register, half = register & 127, register >> 7
    return vector_source(kind, register, half)


def flushing(read: Reader) -> Reader:
    return lambda b: flushed(read(b))


def scaled(read: Reader, factor: float, dtype: type) -> Reader:
    by = dtype(factor)
    return lambda b: read(b) * by


def clamped(read: Reader, nan_is_zero: bool) -> Reader:
    return lambda b: clamp_unit(read(b), nan_is_zero)


def clamp_unit(x: Array, nan_is_zero: bool) -> Array:
    """Into [0, 1]."""
    inside = np.clip(x, x.dtype.type(0), x.dtype.type(1))
    return np.where(np.isnan(x), x.dtype.type(0), inside) if nan_is_zero else inside


# -- VOPD: X and Y both read before either writes ---------------------------------------------------------------------


def compile_dual(ctx: Context) -> Step:
    assert ctx.inst.pair is not None
    fields = ctx.inst.fields
    vdst_x = fields["vdstx"]
    vdst_y = 2 * fields["vdsty"] + (1 - (vdst_x & 1))
    x = dual_half(ctx, ctx.inst.pair[0], fields["src0x"], fields["vsrc1x"], vdst_x)
    y = dual_half(ctx, ctx.inst.pair[1], fields["src0y"], fields["vsrc1y"], vdst_y)
    write_x, write_y = vector_write("u32", vdst_x), vector_write("u32", vdst_y)

    def run(b: Batch) -> None:
        first, second = x(b), np.array(y(b))  # a copy: Y may have read a register that X writes
        write_x(b, first)
        write_y(b, second)

    return run


def dual_half(ctx: Context, opcode: Opcode, src0: int, vsrc1: int, vdst: int) -> Reader:
    """One half's result as bits. It is the VOP2 or VOP1 instruction of the same name."""
    name = opcode.name.replace("v_dual_", "v_").replace("_num_", "_")
    if name == "v_cndmask_b32":
        a, c = source(ctx, src0, "u32"), vector_source("u32", vsrc1)
        return lambda b: np.where(b.mask(106), c(b), a(b))
    form = "VOP1" if name == "v_mov_b32" else "VOP2"
    like = "v_mov_b32" if form == "VOP1" else name if "fmaak" in name or "fmamk" in name else "v_add_f32"
    own = Opcode(0, name, ctx.isa.find(like, form)[1].operands)
    inst = dataclasses.replace(
        ctx.inst, format=form, opcode=own, fields={"src0": src0, "vsrc1": vsrc1, "vdst": vdst}, pair=None
    )
    half = dataclasses.replace(ctx, inst=inst)
    value = value_of(half, MEANINGS[name], Sources(half))
    return lambda b: np.ascontiguousarray(value(b)).view(np.uint32)
