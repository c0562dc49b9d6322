"""Hazards of RDNA: what a wave must wait for by an instruction of its own, where the hardware does not wait.

In       instructions that a wave runs in a row; on gfx12 also its Scalars: what it has read and written since it began
Out      `row_hazards`, `scalar_hazards`
Next     hazards.py (who asks), register_uses.py (what an instruction reads and writes)
Source   RDNA3 ISA document, S_WAITCNT_DEPCTR and dependent WMMA; RDNA4 ISA document, S_WAIT_ALU; LLVM 22,
         GCNHazardRecognizer.cpp and AMDGPUWaitSGPRHazards.cpp

RDNA waits by itself for nearly all results. It does not
- on gfx1100 to gfx1102 for a transcendental's, if a vector instruction reads it within the next few;
- for a WMMA's, if the next vector instruction is a WMMA that multiplies it;
- on gfx12 for a scalar register that a vector instruction has read before, which was written since and is read again:
  vector instructions may see the value that they had; on gfx11 in waves of 64 lanes, of what was read as a mask.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hcq.emu.amd.shader.classes import SPECIAL
from hcq.emu.amd.shader.field_registers import SCALAR_FORMATS
from hcq.emu.amd.shader.operands import Context
from hcq.emu.amd.shader.register_uses import source_registers, uses_of
from hcq.emu.amd.shader.register_waits import Hazard
from hcq.emu.amd.shader.registers import EXEC, VCC, VECTOR, name_of

VALU = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P", "MAI", "VOPD")
MEMORY = ("FLAT", "GLOBAL", "SCRATCH", "MUBUF")
PRODUCT = re.compile(r"v_s?wmma")
TAKES_MASK = re.compile(r"v_(cndmask|(add|sub|subrev)_co_ci|div_fmas)")
WAITS = {11: "s_waitcnt_depctr", 12: "s_wait_alu"}
VECTORS_BEHIND = 5  # vector instructions behind a transcendental of gfx11 that may not read its result
BOTH_VCC = (VCC, VCC + 1)


def row_hazards(instructions: list[Context]) -> list[Hazard]:
    """Of instructions in a row, in their order."""
    found: list[Hazard] = []
    has_slow = not instructions[0].isa.waits_for_transcendentals
    fresh: dict[int, _Fresh] = {}
    product: Context | None = None  # the last vector instruction, where that is a WMMA
    for ctx in instructions:
        if has_slow:
            found += _transcendentals(ctx, fresh)
        if ctx.inst.format in VALU:
            is_product = bool(PRODUCT.match(ctx.inst.name))
            if is_product and product is not None:
                found += _products(product, ctx)
            product = ctx if is_product else None
    return found


class _Fresh(NamedTuple):
    """The result of a transcendental: where that is; how many vector instructions, and transcendentals, came since."""

    first: int
    states: int = 0
    others: int = 0


def _transcendentals(ctx: Context, fresh: dict[int, _Fresh]) -> list[Hazard]:
    """On gfx1100 to gfx1102: results of transcendentals that a vector instruction reads before they are surely there.

    They are behind five other vector instructions, a second transcendental, a memory instruction, or a wait for vector
    results (s_waitcnt_depctr).
    """
    inst = ctx.inst
    is_wait = inst.name == "s_waitcnt_depctr" and inst.fields["simm16"] >> 12 == 0
    if inst.format in (*MEMORY, "DS") or is_wait:
        fresh.clear()
    if inst.format not in VALU:
        return []
    found: list[Hazard] = []
    uses, is_special = uses_of(ctx), bool(SPECIAL.match(inst.name))
    for register in uses.reads:
        if register in fresh:
            one = fresh.pop(register)
            what = f"{name_of(register)} is read behind a transcendental"
            found.append(Hazard(one.first, inst.pc, what, one.states, VECTORS_BEHIND + 1))
    for register, one in list(fresh.items()):
        if register in uses.writes or one.states >= VECTORS_BEHIND or one.others + is_special >= 2:
            del fresh[register]
        else:
            fresh[register] = _Fresh(one.first, one.states + 1, one.others + is_special)
    if is_special:
        fresh |= dict.fromkeys((one for one in uses.writes if one >= VECTOR), _Fresh(inst.pc))
    return found


def _products(before: Context, ctx: Context) -> list[Hazard]:
    """A WMMA that multiplies what the one before computes, with no other vector instruction between."""
    result = uses_of(before).writes
    fields = ("src0", "src1", "src2") if "swmmac" in ctx.inst.name else ("src0", "src1")
    factors = (one for field in fields for one in source_registers(ctx, field))
    register = next((one for one in factors if one in result), None)
    if register is None:
        return []
    what = f"{name_of(register)} is multiplied behind the product that computes it"
    return [Hazard(before.inst.pc, ctx.inst.pc, what, wait="v_nop")]


class Scalars(NamedTuple):
    """Scalar registers of a wave of gfx12, or of gfx11.

    read    pairs that a vector instruction has read, ever; on gfx11 as a mask
    scalar  (register, address of the instruction) of those that a scalar instruction wrote since
    vector  the same of vector instructions
    """

    read: frozenset[int] = frozenset()
    scalar: tuple[tuple[int, int], ...] = ()
    vector: tuple[tuple[int, int], ...] = ()


def scalar_hazards(before: Scalars, block: list[Context]) -> tuple[list[Hazard], Scalars]:
    """Scalar registers that a wave in this state reads in a block before they are there; its next state."""
    found: list[Hazard] = []
    read, scalar, vector = set(before.read), dict(before.scalar), dict(before.vector)
    for ctx in block:
        inst = ctx.inst
        if inst.format in ("SMEM", "MUBUF"):  # they wait for all of it
            scalar.clear()
            vector.clear()
        named = WAITS[ctx.isa.generation]
        if inst.name == named:
            _waited(inst.fields["simm16"], scalar, vector)
            continue
        is_vector = inst.format in VALU
        if not is_vector and inst.format not in SCALAR_FORMATS:
            continue
        uses = uses_of(ctx)
        special = (ctx.m0, ctx.null, EXEC, EXEC + 1)
        reads, writes = (
            [one for one in dict.fromkeys(registers) if one < VECTOR and one not in special]
            for registers in (uses.reads, uses.writes)
        )
        known = [one for one in reads if one // 2 in read]
        if not is_vector:  # for these the hardware waits, and so for others of their kind
            for kind in {one in BOTH_VCC for one in known}:
                for register in [one for one in vector if (one in BOTH_VCC) == kind]:
                    del vector[register]
        for register in known:
            for pending, wait in ((scalar, "sa_sdst(0)"), (vector, "va_sdst(0)")):
                if register not in pending:
                    continue
                if pending is vector and register in BOTH_VCC:
                    wait = "va_vcc(0)"
                what = f"{name_of(register)} is read before it is written"
                found.append(Hazard(pending.pop(register), inst.pc, what, wait=f"{named} {wait}"))
        if is_vector:
            read |= {one // 2 for one in (_masks(ctx) if ctx.isa.generation == 11 else reads)}
        for register in writes:
            if register // 2 not in read:
                continue
            scalar.pop(register, None)
            vector.pop(register, None)
            (vector if is_vector else scalar)[register] = inst.pc
    return found, Scalars(frozenset(read), tuple(sorted(scalar.items())), tuple(sorted(vector.items())))


def _masks(ctx: Context) -> list[int]:
    """The scalar registers that a vector instruction takes a bit of each lane from."""
    if not TAKES_MASK.match(ctx.inst.name):
        return []
    long = ctx.inst.opcode.operand("src2") is not None and not ctx.inst.name.startswith("v_div_fmas")
    return [one for one in source_registers(ctx, "src2") if one < VECTOR] if long else list(BOTH_VCC)


def _waited(bits: int, scalar: dict[int, int], vector: dict[int, int]) -> None:
    """Bit 0: sa_sdst, bit 1: va_vcc, bits 11 to 9: va_sdst. 0: all is there."""
    if not bits & 1:
        scalar.clear()
    for register in list(vector):
        if not (bits >> 1 & 1 if register in BOTH_VCC else bits >> 9 & 7):
            del vector[register]
