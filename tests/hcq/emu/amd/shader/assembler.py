"""Instructions from text operands: for tests, and for small programs written by hand.

In       a mnemonic and operands as LLVM writes them ("v1", "s[2:3]", "vcc", "exec", "m0", 1, 0.5, 0x1234)
Out      words, by the same declarations that decode them
Next     isa.py (encode), disassembly.py (the way back)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from hcq.emu.amd.shader.isa import LITERAL, Format, Isa, Opcode, Operand
from hcq.errors import UsageError
from hcq.layout import Packet

REGISTER = re.compile(r"([vsa])(?:(\d+)|\[(\d+):\d+\])(?:\.([lh]))?")
NAMED = {"vcc": 106, "vcc_lo": 106, "vcc_hi": 107, "exec": 126, "exec_lo": 126, "exec_hi": 127, "scc": 253}
INLINE_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)
SOURCES = ("src0", "src1", "src2", "ssrc0", "ssrc1", "src0x", "src0y", "soffset")


class Assembler:
    """Collects instructions; `words` is the program."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self.words: list[int] = []

    def __call__(
        self, name: str, *operands: str | int | float, form: str | None = None, **fields: int
    ) -> None:
        self.words += assemble(self.isa, name, operands, form, None, **fields)

    def to_bytes(self) -> bytes:
        return struct.pack(f"<{len(self.words)}I", *self.words)


def assemble(
    isa: Isa,
    name: str,
    operands: Sequence[str | int | float],
    form: str | None = None,
    extra: Packet | None = None,
    **fields: int,
) -> tuple[int, ...]:
    """Words of one instruction. Operands are in the table's order without VCC; `fields` sets modifiers by name."""
    one, opcode = isa.find(name, form)
    wanted = [operand for operand in opcode.operands if operand.field != "vcc"]
    if len(operands) != len(wanted):
        names = ", ".join(operand.field for operand in wanted)
        raise UsageError(f"assemble({name!r}): {len(operands)} operands; it takes {len(wanted)}: {names}.")
    literal = None
    for operand, value in zip(wanted, operands):
        if operand.field == "literal32":
            literal = literal_bits(value, operand.width)
            continue
        if operand.field == "simm16" or operand.file == "I":
            fields[operand.field] = int(value) & 0xFFFF
            continue
        code, extra_literal = encode_operand(isa, one, opcode, operand, value)
        fields[operand.field] = code
        literal = extra_literal if extra_literal is not None else literal
    return isa.encode(name, one.name, literal, extra, **fields)


def encode_operand(
    isa: Isa, one: Format, opcode: Opcode, operand: Operand, value: str | int | float
) -> tuple[int, int | None]:
    """(field code, literal if it needs one)."""
    if isinstance(value, str):
        return register_code(isa, one, operand, value), None
    if operand.field not in SOURCES:
        raise UsageError(f"assemble({opcode.name!r}): {operand.field} takes a register, not {value!r}.")
    if isinstance(value, float) and value in INLINE_FLOATS:
        return 240 + INLINE_FLOATS.index(value), None
    if isinstance(value, int) and 0 <= value <= 64:
        return 128 + value, None
    if isinstance(value, int) and -16 <= value < 0:
        return 192 - value, None
    return LITERAL, literal_bits(value, operand.width)


def literal_bits(value: str | int | float, width: int) -> int:
    if isinstance(value, float):
        if width == 64:
            return int(struct.unpack("<Q", struct.pack("<d", value))[0]) >> 32
        if width == 16:
            return int(struct.unpack("<H", struct.pack("<e", value))[0])
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    return int(value) & 0xFFFFFFFF


def register_code(isa: Isa, one: Format, operand: Operand, text: str) -> int:
    if text == "m0":
        return isa.m0
    if text in ("null", "off"):
        return isa.no_saddr if text == "off" else isa.null
    if text in NAMED:
        return NAMED[text]
    match = REGISTER.fullmatch(text)
    if match is None:
        raise UsageError(f"assemble: {text!r} is no register. Write v1, s[2:3], vcc, exec, m0 or null.")
    file, number = match[1], int(match[2] or match[3])
    if operand.field == "sbase":
        return number // 2
    if operand.field == "srsrc":
        return number if isa.generation == 12 else number // 4
    if match[4] == "h" and one.name in ("VOP1", "VOP2", "VOPC"):
        number += 128
    return number + 256 if file in "va" and operand.field in SOURCES else number
