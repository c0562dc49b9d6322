"""Instruction sets: formats and opcodes declared once; the same declaration decodes, encodes and names.

In       Packet layouts with an `encoding` field (formats), opcodes/*.txt (numbers, names, operands)
Out      Isa.decode(words, pc) -> Instruction, Isa.encode(name, fields...) -> words
Next     rdna3.py, rdna2.py, rdna4.py, cdna2.py, cdna3.py (the declarations), operands.py (what a field's code means),
         disassembly.py (text)

A format's `encoding` fields hold the bits that tell it from the others; `op` is the opcode number. An instruction is
one to three words, then a literal, a DPP word or an SDWA word when a source field asks for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hcq.emu.amd.shader.errors import UnknownInstruction
from hcq.errors import UsageError
from hcq.layout import Packet, bits

OPCODES = Path(__file__).parent / "opcodes"
FIRST_WORD = 0xFFFFFFFF
LITERAL, SDWA, DPP, DPP8, DPP8_FI = 255, 249, 250, 233, 234
SOURCE_FIELDS = ("src0", "src1", "src2", "ssrc0", "ssrc1", "src0x", "src0y", "soffset")


@dataclass(frozen=True)
class Operand:
    """A field of the layout, its register file, its width in bits; V16 is half a register.

    V vector, S scalar, A accumulation, I immediate; = for VCC implied
    """

    field: str
    file: str
    width: int


@dataclass(frozen=True)
class Opcode:
    """One instruction of a format: its number, its name and its operands."""

    number: int
    name: str
    operands: tuple[Operand, ...]

    def operand(self, name: str) -> Operand | None:
        """The operand in a field; None when it has none there."""
        return next((operand for operand in self.operands if operand.field == name), None)


def parse_operand(text: str) -> Operand:
    """An operand from its text in the data files."""
    if text == "vcc":
        return Operand("vcc", "=", 64)
    if text in ("simm16", "literal32"):
        return Operand(text, "I", 32)
    name, kind = text.split(":")
    return Operand(name, kind[0], int(kind[1:]))


def read_tables(name: str) -> dict[str, dict[int, Opcode]]:
    """The opcodes of opcodes/NAME.txt: format -> number -> Opcode.

    [FORMAT]        the lines after it are of this format
    vdst:V32 ...    a line at the margin: the operands of those below it, in assembly order; "-" for none
        5 v_name    pairs of number and name
    over NAME       an older generation, of which this one has everything that it does not change
    gone            a line at the margin: the older generation's instructions below it are no more
    """
    tables: dict[str, dict[int, Opcode]] = {}
    table: dict[int, Opcode] = {}
    older: dict[int, Opcode] = {}
    margin = ""
    operands: tuple[Operand, ...] = ()
    for line in (OPCODES / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("over "):
            tables = read_tables(line.split()[1])
        elif line.startswith("["):
            older = tables.get(line[1:-1], {})
            table = tables[line[1:-1]] = dict(older)
        elif line.startswith(" "):
            words = line.split()
            for number, mnemonic in zip(map(int, words[::2]), words[1::2]):
                before = table.pop(number, None)
                if margin == "gone":
                    is_right = before is not None and before.name == mnemonic
                else:
                    is_right = before == older.get(number)  # and not declared twice
                    table[number] = Opcode(number, mnemonic, operands)
                if not is_right:
                    raise UsageError(
                        f"{name}.txt: {margin}: {number} {mnemonic} is {before and before.name} already."
                    )
        elif line and not line.startswith("#"):
            margin = line
            operands = () if line in ("-", "gone") else tuple(parse_operand(word) for word in line.split())
    return tables


def promoted(table: dict[int, Opcode], base: int) -> dict[int, Opcode]:
    """The VOP3 forms of VOP1, VOP2 and VOPC instructions: number moved by `base`, sources widened."""
    out = {}
    for opcode in table.values():
        if opcode.operand("literal32"):
            continue  # fmamk and fmaak have no room for a literal there
        operands = tuple(
            Operand("src1" if o.field == "vsrc1" else o.field, o.file, o.width) for o in opcode.operands
        )
        out[opcode.number + base] = Opcode(opcode.number + base, opcode.name, operands)
    return out


def newer(layouts: Sequence[type[Packet]], *changed: type[Packet]) -> list[type[Packet]]:
    """The formats of an older generation, with these in place of those of the same names."""
    by_name = {layout.__name__: layout for layout in changed}
    return [by_name.get(layout.__name__, layout) for layout in layouts]


class Dpp16(Packet, words=1):
    """The word after an instruction whose src0 is 250: lanes read their neighbours."""

    src0 = bits(7, 0)
    ctrl = bits(16, 8)
    fetch_inactive = bits(18)
    bound_ctrl = bits(19)
    neg0 = bits(20)
    abs0 = bits(21)
    neg1 = bits(22)
    abs1 = bits(23)
    bank_mask = bits(27, 24, default=15)
    row_mask = bits(31, 28, default=15)


class Dpp8(Packet, words=1):
    """The word after an instruction whose src0 is 233 or 234: eight 3-bit lane selectors."""

    src0 = bits(7, 0)
    selectors = bits(31, 8)


class Sdwa(Packet, words=1):
    """The word after an instruction of gfx9 or gfx10 whose src0 is 249: bytes and halves of registers."""

    src0 = bits(7, 0)
    dst_sel = bits(10, 8, default=6)
    dst_unused = bits(12, 11)
    clamp = bits(13)
    omod = bits(15, 14)
    src0_sel = bits(18, 16, default=6)
    sext0 = bits(19)
    neg0 = bits(20)
    abs0 = bits(21)
    s0 = bits(23)
    src1_sel = bits(26, 24, default=6)
    sext1 = bits(27)
    neg1 = bits(28)
    abs1 = bits(29)
    s1 = bits(31)

    @property
    def vopc_sdst(self) -> int | None:
        """For a compare, bits 15..8 name the destination instead: None is VCC."""
        word = self.words[0]
        return (word >> 8) & 0x7F if (word >> 15) & 1 else None


@dataclass(frozen=True)
class Format:
    """A layout, its opcodes, and the first-word bits that tell it from the others."""

    name: str
    layout: type[Packet]
    table: dict[int, Opcode]
    mask: int = field(init=False)
    value: int = field(init=False)

    def __post_init__(self) -> None:
        mask = value = 0
        for name, part in self.layout.fields.items():
            if name.startswith("encoding"):
                mask |= part.mask & FIRST_WORD
                value |= part.encode(part.default) & FIRST_WORD
        object.__setattr__(self, "mask", mask)
        object.__setattr__(self, "value", value)

    def claims(self, word: int) -> bool:
        """Whether a first word is of this format."""
        return word & self.mask == self.value

    def number(self, words: Sequence[int]) -> int:
        """The opcode in an instruction's words; -1 where the word that has it is missing."""
        op = self.layout.fields.get("op")
        if op is None:
            return 0
        at, low = divmod(op.low, 32)
        if at >= len(words):
            return -1
        number = words[at] >> low & (1 << op.width) - 1
        high = self.layout.fields.get("op_high")  # MTBUF of gfx10
        return number | words[1] >> high.low - 32 << op.width & 1 << op.width if high else number

    def fields_of(self, opcode: Opcode) -> dict[str, int]:
        """An opcode's number, by the fields that have it."""
        high = self.layout.fields.get("op_high")
        if high is None:
            return {"op": opcode.number}
        width = self.layout.fields["op"].width
        return {"op": opcode.number & (1 << width) - 1, "op_high": opcode.number >> width}


@dataclass(frozen=True)
class Instruction:
    """One decoded instruction: fields by name, plus the extra word it carries."""

    format: str
    opcode: Opcode
    fields: dict[str, int]
    words: tuple[int, ...]
    pc: int
    literal: int | None = None
    dpp: Dpp16 | Dpp8 | None = None
    sdwa: Sdwa | None = None
    pair: tuple[Opcode, Opcode] | None = None  # VOPD: what X and Y do

    @property
    def name(self) -> str:
        """As the vendor spells it."""
        return self.opcode.name

    @property
    def named_mask(self) -> int | None:
        """The scalar register that a compare names for its mask; None where it is VCC."""
        if self.format == "VOP3" and self.name.startswith("v_cmp"):
            return self.fields["vdst"]
        return self.sdwa.vopc_sdst if self.sdwa is not None and self.format == "VOPC" else None

    @property
    def size_bytes(self) -> int:
        """How long it is, its literal included."""
        return 4 * len(self.words)

    @property
    def next_pc(self) -> int:
        """The address behind it."""
        return self.pc + self.size_bytes


class Isa:
    """An instruction set: opcodes/NAME.txt in these formats. They are tried in order: narrower encodings stand first.

    vop1_base           where VOP3's numbers of VOP1 instructions begin
    has_sdwa            a word behind an instruction may name bytes and halves of its registers
    generation          of the graphics IP: 9, 10, 11, 12
    flat_scratch        the first of two scalar registers that tell where scratch memory of a wave is; 0: hidden ones do
    has_ocp_floats      its floats of eight bits are those of the Open Compute Project, and not FNUZ
    has_wide_loads_to_lds   a lane may load 12 or 16 bytes straight to LDS
    waits_for_transcendentals   vector instructions do, by themselves
    """

    def __init__(
        self,
        name: str,
        arch: str,
        layouts: Sequence[type[Packet]],
        vop1_base: int = 0x180,
        vop3_literals: bool = True,
        has_sdwa: bool = False,
        generation: int = 11,
        flat_scratch: int = 0,
        has_ocp_floats: bool = False,
        has_wide_loads_to_lds: bool = False,
        waits_for_transcendentals: bool = True,
    ) -> None:
        self.name, self.arch, self.generation = name, arch, generation
        self.vop3_literals, self.has_sdwa = vop3_literals, has_sdwa
        self.flat_scratch, self.has_ocp_floats = flat_scratch, has_ocp_floats
        self.has_wide_loads_to_lds = has_wide_loads_to_lds
        self.waits_for_transcendentals = waits_for_transcendentals
        self.is_gfx9, self.has_halves = generation == 9, generation >= 11
        self.null, self.m0 = {9: (-1, 124), 10: (125, 124)}.get(generation, (124, 125))
        self.no_saddr = 127 if self.is_gfx9 else self.null
        self.no_address = (
            127 if generation == 10 else self.no_saddr
        )  # of a scratch access: no register at all
        self.flat_offset_bits = 12 if generation == 10 else 13
        tables = read_tables(name.lower())
        self.dual = tables.pop("VOPD", {})
        promotions = (("VOPC", 0), ("VOP2", 0x100), ("VOP1", vop1_base))
        vop3 = {
            number: one for form, base in promotions for number, one in promoted(tables[form], base).items()
        }
        vop3 |= tables["VOP3"]
        tables["VOP3"] = {number: one for number, one in vop3.items() if number not in tables["VOP3SD"]}
        self.formats = tuple(Format(one.__name__, one, tables.get(one.__name__, {})) for one in layouts)
        self.by_name: dict[str, list[tuple[Format, Opcode]]] = {}
        for one in self.formats:
            for opcode in one.table.values():
                self.by_name.setdefault(opcode.name, []).append((one, opcode))

    def decode(self, words: Sequence[int], pc: int = 0) -> Instruction:
        """The instruction at the start of `words`. Raises UnknownInstruction when no format or opcode claims it."""
        first = words[0]
        for one in self.formats:
            if not one.claims(first):
                continue
            if one.layout.fields.get("op") is None:
                return self.finish(one, Opcode(0, "v_dual", ()), words, pc)
            opcode = one.table.get(one.number(words))
            if opcode is not None:
                return self.finish(one, opcode, words, pc)
        raise UnknownInstruction(self.arch, pc, words[:2])

    def finish(self, one: Format, opcode: Opcode, words: Sequence[int], pc: int) -> Instruction:
        """An instruction of which format and opcode are known. Raises UnknownInstruction when words are missing."""
        length = one.layout.length_words
        if len(words) < length:
            raise UnknownInstruction(self.arch, pc, words[:2])
        packet = one.layout.decode(words)
        fields = packet.values
        pair = None
        if one.name == "VOPD":
            pair = self.pair_of(fields["opx"], fields["opy"], words, pc)
        literal: int | None = None
        dpp: Dpp16 | Dpp8 | None = None
        sdwa: Sdwa | None = None
        if any(fields.get(source) == LITERAL for source in self.used_sources(one, opcode)) or needs_literal(
            opcode, pair
        ):
            literal, length = self.extra(words, length, pc), length + 1
        elif one.name in ("VOP1", "VOP2", "VOPC") or (one.name.startswith("VOP3") and self.has_halves):
            source = fields.get("src0")
            if source == DPP:
                dpp, length = Dpp16.decode([self.extra(words, length, pc)]), length + 1
            elif source in (DPP8, DPP8_FI) and not self.is_gfx9:
                dpp, length = Dpp8.decode([self.extra(words, length, pc)]), length + 1
            elif source == SDWA and self.has_sdwa:
                sdwa, length = Sdwa.decode([self.extra(words, length, pc)]), length + 1
        form = "MUBUF" if one.name == "MTBUF" else one.name  # it differs by where its format is
        return Instruction(form, opcode, fields, tuple(words[:length]), pc, literal, dpp, sdwa, pair)

    def used_sources(self, one: Format, opcode: Opcode) -> tuple[str, ...]:
        """The fields whose code 255 asks for a literal."""
        if one.name == "VOPD":
            return ("src0x", "src0y")
        if one.name.startswith("VOP3") and not self.vop3_literals:
            return ()
        if one.name in ("SMEM", "MUBUF", "MTBUF"):
            return ()
        return tuple(o.field for o in opcode.operands if o.field in SOURCE_FIELDS)

    def pair_of(self, x: int, y: int, words: Sequence[int], pc: int) -> tuple[Opcode, Opcode]:
        """The two opcodes of a VOPD. Raises UnknownInstruction."""
        if x not in self.dual or y not in self.dual or x > 13:
            raise UnknownInstruction(self.arch, pc, words[:2])
        return self.dual[x], self.dual[y]

    def extra(self, words: Sequence[int], length: int, pc: int) -> int:
        """The word behind an instruction. Raises UnknownInstruction when the code ends before it."""
        if len(words) <= length:
            raise UnknownInstruction(self.arch, pc, words[:length])
        return words[length]

    def find(self, name: str, form: str | None = None) -> tuple[Format, Opcode]:
        """The format and opcode of a name; `form` picks one when it has several (VOP2 stands before VOP3)."""
        found = [entry for entry in self.by_name.get(name, ()) if form in (None, entry[0].name)]
        if not found:
            where = f" in format {form}" if form else ""
            raise UsageError(f"{self.arch} has no instruction {name!r}{where}.")
        return min(found, key=lambda entry: entry[0].layout.length_words)

    def encode(
        self,
        name: str,
        form: str | None = None,
        literal: int | None = None,
        extra: Packet | None = None,
        **fields: int,
    ) -> tuple[int, ...]:
        """Words of an instruction from raw field values; `extra` is its DPP or SDWA word."""
        one, opcode = self.find(name, form)
        words = one.layout(**one.fields_of(opcode), **fields).words
        if literal is not None:
            words = (*words, literal)
        if extra is not None:
            words = (*words, *extra.words)
        return words


def wait_counts(bits: int, generation: int) -> tuple[int, int]:
    """How many accesses s_waitcnt leaves under way: of vector memory, of LDS and scalar memory."""
    if generation >= 11:
        return bits >> 10 & 63, bits >> 4 & 63
    return bits & 0xF | bits >> 14 << 4, bits >> 8 & (0x3F if generation == 10 else 0xF)


def needs_literal(opcode: Opcode, pair: tuple[Opcode, Opcode] | None) -> bool:
    """Whether a literal always follows, whatever its operands are."""
    if pair is not None:
        return any("fmaak" in half.name or "fmamk" in half.name for half in pair)
    return opcode.operand("literal32") is not None
