"""What vector instructions read and write around their meaning: halves, SDWA parts, neg and abs, clamp and flushing.

In       a Context for one VOP1, VOP2, VOPC, VOP3 or VOP3SD instruction
Out      Sources (readers in assembly order), destination() (a writer)
Changes  registers, when a writer is called
Next     operands.py (codes and registers), vector_ops.py and others of its kind (who compile instructions from these)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.floats import flushed
from hcq.emu.amd.shader.isa import DPP, DPP8, DPP8_FI, LITERAL, SDWA, Sdwa
from hcq.emu.amd.shader.meaning import KEEPS_OTHER_HALF_GFX9
from hcq.emu.amd.shader.operands import (
    TYPES,
    Context,
    Reader,
    Writer,
    put,
    source,
    vector_source,
    vector_write,
    width_of,
    with_modifiers,
)
from hcq.emu.amd.shader.waves import Batch

Fetch = Callable[[str, int], Reader]  # (kind, half) -> reader of a src0 that DPP moved


class Sources:
    """The source operands of an instruction, in assembly order, read under any kind."""

    def __init__(self, ctx: Context, fetch: Fetch | None = None) -> None:
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
        """A reader with the operand's absolute value and negation, as the instruction says."""
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
        if ctx.isa.has_halves:
            register, half = register & 127, register >> 7
        zero_high = ctx.is_gfx9
    elif inst.format == "VOP3":
        half = inst.fields["opsel"] >> 3
        zero_high = ctx.is_gfx9 and half == 0 and inst.name not in KEEPS_OTHER_HALF_GFX9
    return vector_write(kind, register, half, zero_high)


def sdwa_write(word: Sdwa, register: int, kind: str) -> Writer:
    """A writer of one part of a register; the rest is zero, a sign, or as it was."""
    shift, width = sdwa_part(word.dst_sel)
    mask = np.uint32(((1 << width) - 1) << shift)
    unsigned = TYPES[f"u{width_of(kind)}"]
    dtype = TYPES[kind]

    def write(b: Batch, x: Array) -> None:
        bits = x.astype(dtype, copy=False).view(unsigned).astype(np.uint32)
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


def old_destination(ctx: Context, kind: str) -> Reader:
    """A reader of what the destination holds before."""
    inst = ctx.inst
    register, half = inst.fields["vdst"], 0
    if width_of(kind) == 16:
        if inst.format == "VOP3":
            half = inst.fields["opsel"] >> 3
        elif ctx.isa.has_halves:
            register, half = register & 127, register >> 7
    return vector_source(kind, register, half)


def flushing(read: Reader) -> Reader:
    """A reader whose subnormals are zeros."""
    return lambda b: flushed(read(b))


def scaled(read: Reader, factor: float, dtype: type) -> Reader:
    """A reader whose values are multiplied by a constant (omod)."""
    by = dtype(factor)
    return lambda b: read(b) * by


def clamped(read: Reader, nan_is_zero: bool) -> Reader:
    """A reader whose values are clamped to 0 .. 1."""
    return lambda b: clamp_unit(read(b), nan_is_zero)


def clamp_unit(x: Array, nan_is_zero: bool) -> Array:
    """Into [0, 1]."""
    inside = np.clip(x, x.dtype.type(0), x.dtype.type(1))
    return np.where(np.isnan(x), x.dtype.type(0), inside) if nan_is_zero else inside
