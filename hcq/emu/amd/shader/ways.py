"""Which way each instruction runs: as machine code of the host, by the interpreter, or not at all.

In       an instruction set
Out      names by way; operands that any instruction takes
Next     native_text.py (what is compiled), program.py (what is interpreted), docs/emulated-amd.md (the lists)
"""

from __future__ import annotations

from hcq.emu.amd.shader.control import BRANCHES, compile_ending
from hcq.emu.amd.shader.errors import IllegalOperation
from hcq.emu.amd.shader.isa import Format, Instruction, Isa, Opcode
from hcq.emu.amd.shader.lane_ops import relative_moves
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.amd.shader.native_text import Translator
from hcq.emu.amd.shader.operands import Context, Mode
from hcq.emu.amd.shader.program import Program

COMPILED, INTERPRETED, REFUSED = "compiled", "interpreted", "refused"
MODE, ACC_OFFSET, ENTRY, REGISTERS = 0x3F0, 256, 0x1000, 512


def some_fields(one: Format, opcode: Opcode) -> dict[str, int]:
    """Registers that every operand may name."""
    out = {}
    for operand in opcode.operands:
        if operand.field not in one.layout.fields or operand.field == "simm16":
            continue
        if operand.field.startswith(("src", "ssrc")):
            out[operand.field] = 4 if operand.file == "S" else 272
            if operand.file == "I":
                out[operand.field] = 131  # the one message that is answered
        elif operand.field in ("sdst", "vdst"):
            out[operand.field] = 8
    if opcode.name == "s_getreg_b32":
        out["simm16"] = 1
    return out


def some_instruction(isa: Isa, one: Format, opcode: Opcode) -> Instruction:
    """An instruction with these operands."""
    literal = 0x3F800000 if opcode.operand("literal32") else None
    words = isa.encode(opcode.name, one.name, literal, None, **some_fields(one, opcode))
    return isa.decode([*words, 0, 0])


def ways(isa: Isa) -> dict[str, str]:
    """name -> way. The end of a program and barriers, where compiled code leaves off anyway, count as compiled."""
    lanes = 64 if isa.is_gfx9 else 32
    program = Program(isa, AddressSpace(), ENTRY, lanes, ACC_OFFSET)
    translator = Translator(program, MODE, REGISTERS)
    found: dict[str, str] = {}
    for one in isa.formats:
        for opcode in one.table.values():
            inst = some_instruction(isa, one, opcode)
            way = _way(translator, inst, Context(isa, inst, Mode(MODE), lanes, ACC_OFFSET))
            order = (COMPILED, INTERPRETED, REFUSED)
            found[opcode.name] = max(way, found.get(opcode.name, COMPILED), key=order.index)
    return found


def _way(translator: Translator, inst: Instruction, ctx: Context) -> str:
    try:
        ending = compile_ending(ctx)
        if ending is not None:
            is_known = inst.name in ("s_branch", *BRANCHES) or ending.kind in (
                "end",
                "barrier",
                "wait",
                "signal",
            )
            return COMPILED if is_known else INTERPRETED
        if relative_moves(ctx, 0) is not None:
            return INTERPRETED
        translator.program.compile_step(ctx)
    except IllegalOperation:
        return REFUSED
    return COMPILED if translator.traces(inst) else INTERPRETED
