"""The registers of each field of an instruction: those that it reads, and those that it writes.

In       a decoded instruction
Out      `use_of`: the registers of each of its fields
Next     isa.py (the tables), pointers.py (who follows values through them), register_uses.py (without fields, as a set)
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hcq.emu.amd.shader.isa import Instruction, Operand

VCC, EXEC = 106, 126
SCALARS = 128  # codes below name scalar registers
VECTORS = (
    256  # codes of sources from there on name vector registers; here, all vector registers have such numbers
)
ACCUMULATORS = 1024  # numbers of accumulation registers begin here
RESULTS = ("vdst", "sdst", "vdstx", "vdsty")
SHORT, HALVES = ("VOP1", "VOP2", "VOPC"), 128
SCALAR_FORMATS = ("SOP1", "SOP2", "SOPC", "SOPK", "SOPP")
ONLY_READ = ("s_waitcnt_", "s_cmpk", "s_setreg_b32")  # their sdst is a source
CHANGED = re.compile(r"s_(addk|mulk|bitset|cmov)")  # their sdst is a source, too
READS_OLD = re.compile(
    r"v_(fmac|pk_fmac|mac|dot\w*c_|swap|writelane|smfmac|dual_fmac|dual_dot2acc)|v_dot\w*acc"
)
WITH_ATOMICS = ("FLAT", "GLOBAL", "MUBUF", "SMEM")
MEMORY = ("FLAT", "GLOBAL", "SCRATCH", "MUBUF", "SMEM", "DS")


class Part(NamedTuple):
    """Registers side by side. first: below 128 scalar, from 256 on vector, from 1024 on accumulation registers.

    first  -1: a number, not a register
    """

    field: str
    first: int
    words: int

    @property
    def registers(self) -> range:
        """Their numbers."""
        return range(self.first, self.first + self.words) if self.first >= 0 else range(0)


class Use(NamedTuple):
    """What an instruction reads and writes, in the order of its operands."""

    reads: tuple[Part, ...]
    writes: tuple[Part, ...]

    def read(self, field: str) -> Part | None:
        """The registers of a source."""
        return next((part for part in self.reads if part.field == field), None)


def use_of(inst: Instruction, wave_size: int, has_halves: bool) -> Use:
    """The registers of an instruction. Of an instruction with an SDWA word, source 0 as that says.

    wave_size   in lanes: the bits of a mask
    has_halves  from gfx11 on, instructions of 32 bits name halves of the first 128 vector registers
    """
    if inst.format == "VOPD":
        return _dual(inst)
    reads: list[Part] = []
    writes: list[Part] = []
    is_carry = any(each.field == "vcc" for each in inst.opcode.operands[:2])
    for number, each in enumerate(inst.opcode.operands):
        name, words = each.field, max(1, (wave_size if is_mask(inst, each) else each.width) // 32)
        if inst.format == "MUBUF" and name == "vaddr":
            words = inst.fields["offen"] + inst.fields["idxen"]
        if each.file == "I" or not words:
            continue
        if name == "vcc":
            named = inst.named_mask
            part = Part("vcc", VCC if named is None else named, words)
            is_result = is_carry and number < 2
        else:
            part = Part(name, _first(inst, name, each.file), words)
            if has_halves and each.width == 16 and inst.format in SHORT and part.first >= VECTORS + HALVES:
                part = part._replace(first=part.first - HALVES)
            is_result = name in RESULTS and not inst.name.startswith(ONLY_READ)
            is_result = is_result or (name in ("sdata", "vdata") and "store" not in inst.name)
        (writes if is_result else reads).append(part)
        if (name in ("vdata", "sdata") and "atomic" in inst.name) or (
            name == "sdst" and CHANGED.match(inst.name)
        ):
            reads.append(part)
    if inst.format in ("GLOBAL", "SCRATCH") and inst.fields["saddr"] < VCC + 2:
        reads = [part._replace(words=1) if part.field == "addr" else part for part in reads]
        reads.append(Part("saddr", inst.fields["saddr"], 1 if inst.format == "SCRATCH" else 2))
    if inst.format in WITH_ATOMICS and "atomic" in inst.name:
        if not returns(inst):
            writes = []
        elif (
            not writes and (data := inst.opcode.operand("data")) is not None
        ):  # the tables do not list what comes back
            words = data.width // 32 // (2 if "cmpswap" in inst.name else 1)
            first = (ACCUMULATORS if inst.fields.get("acc") else VECTORS) + inst.fields["vdst"]
            writes.append(Part("vdst", first, words))
    has_base = inst.format == "SMEM" and inst.opcode.operand("sbase") is not None
    if has_base and (register := _scalar_offset(inst, 124 if has_halves else 125)) is not None:
        reads.append(Part("soffset", register, 1))
    if READS_OLD.match(inst.name):
        reads += [part._replace(field="old") for part in writes[:1]]
    if inst.name.startswith("v_swap"):
        writes += [part._replace(field="swapped") for part in reads[:1]]
    return Use(tuple(reads), tuple(writes))


def returns(inst: Instruction) -> bool:
    """Whether an atomic operation of memory gives back what was there."""
    fields = inst.fields
    return bool(fields["th"] & 1 if "th" in fields else fields.get("sc0", fields.get("glc", 0)))


def is_mask(inst: Instruction, one: Operand) -> bool:
    """Whether an operand has a bit for each lane."""
    if one.field == "vcc" or (one.field == "sdst" and inst.format not in SCALAR_FORMATS):
        return True
    has_mask = inst.format == "VOP3SD" or "cndmask" in inst.name
    return one.file == "S" and one.field == "src2" and has_mask


def _first(inst: Instruction, name: str, file: str) -> int:
    """The number of a field's first register; -1 for a number."""
    code = inst.fields.get(name, -1)
    if name == "src0" and inst.sdwa is not None:
        return inst.sdwa.src0 if inst.sdwa.s0 else VECTORS + inst.sdwa.src0
    if name == "vsrc1" and inst.sdwa is not None and inst.sdwa.s1:
        return code
    if name == "src0" and inst.dpp is not None:
        return VECTORS + inst.dpp.src0
    if name == "sbase":
        return 2 * code
    if name == "srsrc":
        return code if inst.fields.get("scope") is not None else 4 * code
    if name in ("sdst", "sdata", "soffset", "saddr") or (name == "vdst" and file == "S"):
        return code if code < SCALARS else -1
    is_accumulator = file == "A" or (
        inst.fields.get("acc")
        and inst.format in MEMORY
        and name in ("vdst", "data", "vdata", "data0", "data1")
    )
    if inst.format == "MAI" and not inst.name.startswith("v_accvgpr"):
        is_accumulator = bool(
            {"src0": inst.fields["acc"] & 1, "src1": inst.fields["acc"] & 2}.get(name, inst.fields["acc_cd"])
        )
    if name.startswith(("src", "ssrc", "scale")):
        if code < SCALARS:
            return code
        if code < VECTORS:
            return -1
        return code - VECTORS + ACCUMULATORS if is_accumulator else code
    return (ACCUMULATORS if is_accumulator else VECTORS) + code


def _scalar_offset(inst: Instruction, null: int) -> int | None:
    """The register that a scalar load adds to its offset."""
    fields = inst.fields
    if "soffset_en" not in fields:
        return fields["soffset"] if fields["soffset"] != null else None
    if fields["soffset_en"]:
        return fields["soffset"]
    return None if fields["imm"] else fields["offset"] & 127


def _dual(inst: Instruction) -> Use:
    """Two instructions in one."""
    fields = inst.fields
    x = VECTORS + fields["vdstx"]
    y = VECTORS + 2 * fields["vdsty"] + (1 - (fields["vdstx"] & 1))
    reads = []
    for name in ("src0x", "src0y"):
        code = fields[name]
        reads.append(Part(name, code if code < SCALARS or code >= VECTORS else -1, 1))
    reads += [Part(name, VECTORS + fields[name], 1) for name in ("vsrc1x", "vsrc1y")]
    reads += [Part("oldx", x, 1), Part("oldy", y, 1), Part("vcc", VCC, 1)]
    return Use(tuple(reads), (Part("vdstx", x, 1), Part("vdsty", y, 1)))
