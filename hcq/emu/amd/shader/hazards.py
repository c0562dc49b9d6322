"""Hazards: instructions that follow each other too soon, where the hardware does not wait by itself.

In       the instructions of a block, in order, and those that a wave has run before
Out      `Before`: for each wave that comes to a block, Hazards: both instructions, and how many wait states stand
         between them and should
Changes  nothing
Next     wait_steps.py (who asks), register_uses.py (what an instruction reads and writes)
Source   CDNA2 and CDNA3 ISA documents, 4.5: manually inserted wait states; LLVM 22, GCNHazardRecognizer.cpp, for those
         of matrix instructions. Of these the least is taken that an instruction of their size may need

Every instruction is a wait state, s_nop N is N + 1; so is a branch, taken or not.
RDNA waits by itself for nearly all of these; of gfx1100 to gfx1102 the result of a transcendental is looked at, which
needs an s_waitcnt_depctr.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from hcq.emu.amd.shader.classes import SPECIAL
from hcq.emu.amd.shader.control import register_field
from hcq.emu.amd.shader.operands import Context
from hcq.emu.amd.shader.register_uses import uses_of
from hcq.emu.amd.shader.register_waits import Hazard
from hcq.emu.amd.shader.registers import EXEC, VCC, VECTOR, Uses, name_of

VALU = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P", "MAI")
MEMORY = ("FLAT", "GLOBAL", "SCRATCH", "MUBUF")
LANE = re.compile(r"v_(readlane|writelane)")
READS_LANE = re.compile(r"v_read(first)?lane")
PRODUCT = re.compile(r"v_s?mfmac?_(?P<out>f32|f64|i32)_(?P<size>4x4|16x16|32x32)x\d+(_\d+b)?_?(?P<type>\w+)")
# wait states behind a product before its result is used elsewhere
PRODUCT_STATES = {
    "gfx90a": {"4x4": 5, "16x16": 11, "32x32": 19},
    "gfx942": {"4x4": 4, "16x16": 7, "32x32": 11},
}
MOST_STATES = 20  # between two instructions that are a hazard
MOST_ROWS = 4096
VECTORS_BEHIND = 5  # vector instructions behind a transcendental of gfx11 that may not read its result
DOUBLE_STATES = {"4x4": 6, "16x16": 11}


class _Write(NamedTuple):
    """How a register was written: valu, special (a transcendental), product, setreg, or data (read by a store)."""

    kind: str
    at: int
    pc: int
    needed: int = 0


class Before:
    """The instructions that waves ran last, of one program. Each such row has a number; 0: none."""

    def __init__(self) -> None:
        self.rows: list[tuple[Context, ...]] = [()]
        self.number_of: dict[tuple[int, ...], int] = {(): 0}

    def then(self, number: int, block: list[Context]) -> tuple[list[Hazard], int]:
        """A wave that ran this row comes to a block: hazards whose second instruction is there, and its next row."""
        row = self.rows[number]
        together = [*row, *block]
        found = block_hazards(together)[len(block_hazards(list(row))) :]
        states, last = 0, len(together)
        while last and states < MOST_STATES:
            last -= 1
            states += _states(together[last])
        kept = tuple(together[last:])
        key = tuple(ctx.inst.pc for ctx in kept)
        if key not in self.number_of and len(self.rows) == MOST_ROWS:
            return found, 0
        next_number = self.number_of.setdefault(key, len(self.rows))
        if next_number == len(self.rows):
            self.rows.append(kept)
        return found, next_number


def block_hazards(instructions: list[Context]) -> list[Hazard]:
    """Those of some instructions in a row, by their instruction set."""
    if not instructions:
        return []
    isa = instructions[0].isa
    if not isa.waits_for_transcendentals:
        return transcendentals_of(instructions)
    return hazards_of(instructions) if isa.generation == 9 else []


def _states(ctx: Context) -> int:
    return int(ctx.inst.fields["simm16"]) + 1 if ctx.inst.name == "s_nop" else 1


def hazards_of(instructions: list[Context]) -> list[Hazard]:
    """Those of a block."""
    found: list[Hazard] = []
    last: dict[tuple[str, int], _Write] = {}
    at = 0
    for ctx in instructions:
        uses = uses_of(ctx)
        for kind, register, needed, what in _needs(ctx, uses):
            write = last.get((kind, register))
            if write is None:
                continue
            needed = needed or write.needed
            states = at - write.at - 1
            if states < needed:
                name = f"hardware register {register}" if kind == "setreg" else name_of(register)
                found.append(Hazard(write.pc, ctx.inst.pc, f"{name} {what}", states, needed))
        _note(ctx, uses, at, last)
        at += _states(ctx)
    return found


def transcendentals_of(instructions: list[Context]) -> list[Hazard]:
    """On gfx11: results of transcendentals that a vector instruction reads before they are surely there.

    They are behind five other vector instructions, a second transcendental, a memory instruction, or a wait for vector
    results (s_waitcnt_depctr).
    """
    found: list[Hazard] = []
    # register -> what writes it; how many vector instructions, and how many transcendentals, since
    fresh: dict[int, tuple[int, int, int]] = {}
    for ctx in instructions:
        inst = ctx.inst
        is_wait = inst.name == "s_waitcnt_depctr" and inst.fields["simm16"] >> 12 == 0
        if inst.format in (*MEMORY, "DS") or is_wait:
            fresh.clear()
        if inst.format not in (*VALU, "VOPD"):
            continue
        uses, is_special = uses_of(ctx), bool(SPECIAL.match(inst.name))
        for register in uses.reads:
            if register in fresh:
                first, states, _ = fresh.pop(register)
                what = f"{name_of(register)} is read behind a transcendental"
                found.append(Hazard(first, inst.pc, what, states, VECTORS_BEHIND + 1))
        fresh = {
            register: (first, states + 1, others + is_special)
            for register, (first, states, others) in fresh.items()
            if register not in uses.writes and states < VECTORS_BEHIND and others + is_special < 2
        }
        if is_special:
            fresh |= dict.fromkeys((one for one in uses.writes if one >= VECTOR), (inst.pc, 0, 0))
    return found


def _needs(ctx: Context, uses: Uses) -> Iterator[tuple[str, int, int, str]]:
    """(kind of write, register, wait states or 0 for those of the write, what this instruction does with it)."""
    inst = ctx.inst
    name, form = inst.name, inst.format
    is_newer = ctx.isa.arch == "gfx942"
    scalars = [one for one in uses.reads if one < VECTOR]
    vectors = [one for one in uses.reads if one >= VECTOR]
    if form in MEMORY:
        yield from (("valu", one, 5, "is read by a memory instruction") for one in scalars)
    if form in (*MEMORY, "DS") or (form in VALU and form != "MAI"):
        yield from (("product", one, 0, "is used") for one in uses.all if one >= VECTOR)
    if name in ("s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32"):
        yield "setreg", register_field(inst)[0], 2, "is used again"
    if form not in VALU:
        return
    yield from (
        ("data", one, 1, "is overwritten while a store reads it") for one in uses.writes if one >= VECTOR
    )
    if LANE.match(name) and inst.fields["src1"] < VECTOR:
        yield "valu", inst.fields["src1"], 4, "chooses a lane"
    if name.startswith("v_div_fmas"):
        yield "valu", VCC, 4, "is read by v_div_fmas"
    if inst.dpp is not None:
        yield from (("valu", one, 2, "is read across lanes") for one in vectors)
        yield "valu", EXEC, 5, "is used across lanes"
    if not is_newer:
        return
    yield from (("valu", one, 2, "is read by a vector instruction") for one in scalars)
    if READS_LANE.match(name):
        yield from (("valu", one, 1, "is read by lane") for one in vectors)
    if not SPECIAL.match(name):
        yield from (("special", one, 1, "is read behind a transcendental") for one in vectors)


def _note(ctx: Context, uses: Uses, at: int, last: dict[tuple[str, int], _Write]) -> None:
    """What later instructions must wait for."""
    inst = ctx.inst
    if inst.name.startswith("s_setreg"):
        number = register_field(inst)[0]
        last["setreg", number] = _Write("setreg", at, inst.pc)
    if inst.format in MEMORY and "store" in inst.name:
        data = _data_of_store(ctx)
        for register in data if len(data) > 2 else ():
            last["data", register] = _Write("data", at, inst.pc)
    for register in uses.writes:
        for kind in ("valu", "special", "product"):
            last.pop((kind, register), None)
    if inst.format not in VALU:
        return
    product = PRODUCT.match(inst.name)
    if product is not None:
        needed = PRODUCT_STATES[ctx.isa.arch][product["size"]]
        if product["out"] == "f64":
            needed = DOUBLE_STATES[product["size"]]
        for register in uses.writes:
            last["product", register] = _Write("product", at, inst.pc, needed)
        return
    for register in uses.writes:
        last["valu", register] = _Write("valu", at, inst.pc)
        if SPECIAL.match(inst.name):
            last["special", register] = _Write("special", at, inst.pc)


def _data_of_store(ctx: Context) -> list[int]:
    fields = ctx.inst.fields
    if ctx.inst.format == "MUBUF" and fields["soffset"] < VECTOR:
        return []  # it takes longer to issue
    first = fields["vdata" if ctx.inst.format == "MUBUF" else "data"] + (
        ctx.acc_offset if fields.get("acc") else 0
    )
    operand = ctx.inst.opcode.operand("vdata") or ctx.inst.opcode.operand("data")
    return [] if operand is None else list(range(VECTOR + first, VECTOR + first + operand.width // 32))
