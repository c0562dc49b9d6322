"""Hazards: instructions that follow each other too soon, where the hardware does not wait by itself.

In       the instructions of a block, in order, and those that a wave has run before
Out      `Before`: for each wave that comes to a block, Hazards: both instructions, and how many wait states stand
         between them and should
Next     wait_steps.py (who asks), product_hazards.py (matrix products), rdna_hazards.py (gfx11, gfx12),
         register_uses.py (what an instruction reads and writes)
Source   CDNA2 and CDNA3 ISA documents, 4.5: manually inserted wait states; LLVM 22, GCNHazardRecognizer.cpp

On CDNA every instruction is a wait state, s_nop N is N + 1; so is a branch, taken or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from hcq.emu.amd.shader.classes import SPECIAL
from hcq.emu.amd.shader.control import register_field
from hcq.emu.amd.shader.field_registers import SCALAR_FORMATS
from hcq.emu.amd.shader.loads_to_lds import is_load_to_lds
from hcq.emu.amd.shader.operands import Context
from hcq.emu.amd.shader.product_hazards import (
    DOUBLE,
    Product,
    before_addend,
    before_factor,
    before_overwritten,
    before_use,
    product_of,
)
from hcq.emu.amd.shader.rdna_hazards import MEMORY, VALU, Scalars, row_hazards, scalar_hazards
from hcq.emu.amd.shader.register_uses import uses_of
from hcq.emu.amd.shader.register_waits import Hazard
from hcq.emu.amd.shader.registers import EXEC, VCC, VECTOR, Uses, name_of

LANE = re.compile(r"v_(readlane|writelane)")
READS_LANE = re.compile(r"v_read(first)?lane")
DOT = re.compile(r"v_dot\d")
SWAPS_ROWS = re.compile(r"v_permlane\d+_swap")
READS_M0 = re.compile(r"s_movrel|s_sendmsg|ds_.*addtid")
WRITES_PART = re.compile(r"v_cvt_(pk|sr)_(fp8|bf8)_f32")
MOST_STATES = 21  # between two instructions that are a hazard
MOST_ROWS = 4096
WHOLE = 6  # dst_sel of an SDWA word


class _Write(NamedTuple):
    """What a register waits for.

    at       in wait states, from the beginning of the row
    product  that wrote it, or that adds to it
    dot      the instruction, where it is a product of short vectors
    """

    at: int
    pc: int
    product: Product | None = None
    dot: tuple[object, ...] = ()


class Before:
    """What waves ran last, of one program. Each such state has a number; 0: nothing is known."""

    def __init__(self) -> None:
        self.rows: list[tuple[Context, ...]] = [()]
        self.scalars: list[Scalars] = [Scalars()]
        self.number_of: dict[object, int] = {}

    def then(self, number: int, block: list[Context]) -> tuple[list[Hazard], int]:
        """A wave in this state comes to a block: hazards whose second instruction is there, and its next state."""
        row = self.rows[number]
        together = [*row, *block]
        found = block_hazards(together)[len(block_hazards(list(row))) :]
        scalars = self.scalars[number]
        if block and (
            block[0].isa.generation == 12 or (block[0].isa.generation == 11 and block[0].wave_size == 64)
        ):
            more, scalars = scalar_hazards(scalars, block)
            found += more
        states, last = 0, len(together)
        while last and states < MOST_STATES:
            last -= 1
            states += _states(together[last])
        kept = tuple(together[last:])
        key = tuple(ctx.inst.pc for ctx in kept), scalars
        if key not in self.number_of and len(self.rows) == MOST_ROWS:
            return found, 0
        next_number = self.number_of.setdefault(key, len(self.rows))
        if next_number == len(self.rows):
            self.rows.append(kept)
            self.scalars.append(scalars)
        return found, next_number


def block_hazards(instructions: list[Context]) -> list[Hazard]:
    """Those of some instructions in a row, by their generation."""
    if not instructions:
        return []
    generation = instructions[0].isa.generation
    return hazards_of(instructions) if generation == 9 else row_hazards(instructions)


def _states(ctx: Context) -> int:
    return int(ctx.inst.fields["simm16"]) + 1 if ctx.inst.name == "s_nop" else 1


def hazards_of(instructions: list[Context]) -> list[Hazard]:
    """Those of CDNA."""
    found: list[Hazard] = []
    last: dict[tuple[str, int], _Write] = {}
    doubles = _Write(-MOST_STATES, 0)  # the last product of doubles
    at = 0
    for ctx in instructions:
        uses, product = uses_of(ctx), product_of(ctx)
        told: set[tuple[str, int]] = set()
        for kind, register, needed, what in _needs(ctx, uses, product, last):
            write = last[kind, register]
            states = at - write.at - 1
            if states < needed and (kind, write.pc) not in told:
                told.add((kind, write.pc))
                name = f"hardware register {register}" if kind == "setreg" else name_of(register)
                name = "m0" if kind == "m0" else name
                found.append(Hazard(write.pc, ctx.inst.pc, f"{name} {what}", states, needed))
        found += _behind_doubles(ctx, uses, at, doubles, last)
        _note(ctx, uses, product, at, last)
        if product is not None and product.unit == DOUBLE:
            doubles = _Write(at, ctx.inst.pc)
        at += _states(ctx)
    return found


Need = tuple[str, int, int, str]  # kind of write, register, wait states, what is done with it


def _needs(
    ctx: Context, uses: Uses, product: Product | None, last: dict[tuple[str, int], _Write]
) -> Iterator[Need]:
    """What this instruction may not follow too soon."""
    every = _of_vectors(ctx, uses, product, last) if ctx.inst.format in VALU else _of_others(ctx, uses)
    for kind, register, needed, what in every:
        if (kind, register) in last:
            yield kind, register, needed, what
    if product is not None:
        yield from _of_a_product(ctx, product, last)
    elif ctx.inst.format in (*VALU, *MEMORY, "DS"):
        yield from _behind_products(ctx, uses, last)


def _of_others(ctx: Context, uses: Uses) -> Iterator[Need]:
    """Of instructions that are no vector ones."""
    inst = ctx.inst
    if inst.format in MEMORY:
        scalars = (one for one in uses.reads if one < VECTOR)
        yield from (("valu", one, 5, "is read by a memory instruction") for one in scalars)
    if inst.name in ("s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32"):
        yield "setreg", register_field(inst)[0], 2, "is used again"
    if (
        READS_M0.match(inst.name)
        or (inst.format in MEMORY and is_load_to_lds(inst))
        or inst.fields.get("lds")
    ):
        yield "m0", ctx.m0, 1, "is read"


def _of_vectors(
    ctx: Context, uses: Uses, product: Product | None, last: dict[tuple[str, int], _Write]
) -> Iterator[Need]:
    inst = ctx.inst
    name, is_newer = inst.name, ctx.isa.arch != "gfx90a"
    scalars = [one for one in uses.reads if one < VECTOR]
    vectors = [one for one in uses.reads if one >= VECTOR]
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
    if product is not None:
        yield from (("valu", one, 2, "is read by a matrix instruction") for one in vectors)
        yield "valu", EXEC, 4, "is used by a matrix instruction"
    if SWAPS_ROWS.match(name):
        yield from (("valu", one, 2, "is swapped between rows") for one in uses.all if one >= VECTOR)
        yield "valu", EXEC, 4, "is used across rows"
    if not is_newer:
        return
    yield from (("valu", one, 2, "is read by a vector instruction") for one in scalars)
    yield from (("part", one, 1, "is used behind a write to a part of it") for one in uses.all)
    if READS_LANE.match(name):
        yield from (("valu", one, 1, "is read by lane") for one in vectors)
    if READS_LANE.match(name) or LANE.match(name):
        yield "valu", EXEC, 4, "is used by lane"
    if not SPECIAL.match(name):
        yield from (("special", one, 1, "is read behind a transcendental") for one in vectors)


def _of_a_product(ctx: Context, second: Product, last: dict[tuple[str, int], _Write]) -> Iterator[Need]:
    """A matrix product behind another."""
    arch = ctx.isa.arch
    for register in second.factors:
        write = last.get(("product", register))
        if write is not None and write.product is not None:
            yield "product", register, before_factor(write.product, arch), "is multiplied"
    for register in second.addend:
        write = last.get(("product", register))
        if write is not None and write.product is not None:
            yield "product", register, before_addend(write.product, second, arch), "is added to"


def _behind_products(ctx: Context, uses: Uses, last: dict[tuple[str, int], _Write]) -> Iterator[Need]:
    """Another instruction behind a product, of matrices or of short vectors."""
    arch, is_valu = ctx.isa.arch, ctx.inst.format in VALU
    own = _dot_of(ctx)
    adds_to = uses.writes if "c_" in ctx.inst.name or "acc" in ctx.inst.name else ()
    for register in uses.all:
        is_read = register in uses.reads
        write = last.get(("product", register))
        if write is not None and write.product is not None:
            use = "read" if is_read and is_valu else "sent" if is_read else "written"
            yield "product", register, before_use(write.product, arch, use), "is used"
        write = last.get(("dot", register))
        if write is not None and not (write.dot == own and (not is_read or register in adds_to)):
            yield "dot", register, 3, "is used"
    for register in uses.writes:
        write = last.get(("addend", register))
        if write is not None and write.product is not None:
            yield "addend", register, before_overwritten(write.product), "is overwritten while it is added to"


def _dot_of(ctx: Context) -> tuple[object, ...]:
    """A product of short vectors, as it is told from others; () for another instruction."""
    inst = ctx.inst
    return (inst.name, inst.format, inst.dpp is None) if DOT.match(inst.name) else ()


def _behind_doubles(
    ctx: Context, uses: Uses, at: int, doubles: _Write, last: dict[tuple[str, int], _Write]
) -> Iterator[Hazard]:
    """What may not follow a product of doubles too soon, whatever that computes."""
    inst = ctx.inst
    states = at - doubles.at - 1
    if inst.name.startswith(("v_fma_f64", "v_fmac_f64")) and states < 2:
        yield Hazard(doubles.pc, inst.pc, "a sum of doubles is computed behind a matrix of them", states, 2)
    if ctx.isa.arch != "gfx90a" or inst.format not in (*MEMORY, "DS"):
        return
    for register in uses.reads:
        write = last.get(("valu", register))
        if register >= VECTOR and write is not None and write.at < doubles.at and at - write.at - 1 < 2:
            what = f"{name_of(register)} is read behind a matrix of doubles"
            yield Hazard(write.pc, inst.pc, what, at - write.at - 1, 2)


def _note(
    ctx: Context, uses: Uses, product: Product | None, at: int, last: dict[tuple[str, int], _Write]
) -> None:
    """What later instructions must wait for."""
    inst = ctx.inst
    here = _Write(at, inst.pc)
    if inst.name.startswith("s_setreg"):
        last["setreg", register_field(inst)[0]] = here
    if inst.format in SCALAR_FORMATS and ctx.m0 in uses.writes:
        last["m0", ctx.m0] = here
    if inst.format in MEMORY and "store" in inst.name:
        data = _data_of_store(ctx)
        for register in data if len(data) > 2 else ():
            last["data", register] = here
    for register in uses.writes:
        for kind in ("valu", "special", "product", "part", "dot"):
            last.pop((kind, register), None)
    if inst.format not in VALU:
        return
    if product is not None:
        for register in product.result:
            last["product", register] = here._replace(product=product)
        for register in product.addend:
            last["addend", register] = here._replace(product=product)
        return
    is_special, dot = bool(SPECIAL.match(inst.name)), _dot_of(ctx)
    for register in uses.writes:
        if dot:
            last["dot", register] = here._replace(dot=dot)
            continue
        last["valu", register] = here
        if is_special:
            last["special", register] = here
        if _writes_part(ctx):
            last["part", register] = here


def _writes_part(ctx: Context) -> bool:
    """Whether it keeps a part of the register that it writes, or may."""
    inst = ctx.inst
    if inst.sdwa is not None:
        return inst.format != "VOPC" and inst.sdwa.dst_sel != WHOLE
    opsel = inst.fields.get("opsel", 0) if inst.format == "VOP3" else 0
    return bool(opsel & 8) or (bool(WRITES_PART.match(inst.name)) and bool(opsel & 12))


def _data_of_store(ctx: Context) -> list[int]:
    fields = ctx.inst.fields
    if ctx.inst.format == "MUBUF" and fields["soffset"] < VECTOR:
        return []  # it takes longer to issue
    first = fields["vdata" if ctx.inst.format == "MUBUF" else "data"] + (
        ctx.acc_offset if fields.get("acc") else 0
    )
    operand = ctx.inst.opcode.operand("vdata") or ctx.inst.opcode.operand("data")
    return [] if operand is None else list(range(VECTOR + first, VECTOR + first + operand.width // 32))
