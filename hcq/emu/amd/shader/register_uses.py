"""Which registers an instruction reads and writes, by its words alone.

In       a Context
Out      its Uses; those of one source
Next     registers.py (numbers of registers), wait_steps.py (who asks), isa.py (operands), vector_operands.py and its
         siblings (which read and write them)
Source   RDNA3, RDNA4, CDNA2 and CDNA3 ISA documents: operands of each format

AccVGPRs are vector registers from acc_offset on, as everywhere here. What an index in a register (M0) adds to the
number of another is not known from the words, and left out. So are SCC and the MODE register.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hcq.emu.amd.shader.control import BRANCHES
from hcq.emu.amd.shader.field_registers import CHANGED, ONLY_READ, READS_OLD, SCALAR_FORMATS, is_mask, returns
from hcq.emu.amd.shader.isa import DPP, DPP8, DPP8_FI, SDWA, Instruction, Operand
from hcq.emu.amd.shader.lane_access import Access, parse_access, typed_access
from hcq.emu.amd.shader.lds_ops import pair_access
from hcq.emu.amd.shader.loads_to_lds import is_load_to_lds
from hcq.emu.amd.shader.operands import Context
from hcq.emu.amd.shader.registers import EXEC, VCC, VECTOR, Uses

SOURCES = ("src0", "src1", "src2", "ssrc0", "ssrc1")
ACROSS = re.compile(
    r"v_(readlane|readfirstlane|writelane|permlane|mfma|smfmac|wmma|swmmac|movrel)|ds_(swizzle|b?permute)"
)


def uses_of(ctx: Context) -> Uses:
    """What an instruction reads and writes."""
    inst = ctx.inst
    form = inst.format
    if form in SCALAR_FORMATS:
        return _scalar(ctx)
    if form == "SMEM":
        return _scalar_memory(ctx)
    if form == "DS":
        return _shared(ctx)
    if form == "MUBUF":
        return _buffer(ctx)
    if form in ("FLAT", "GLOBAL", "SCRATCH"):
        return _vector_memory(ctx)
    if form == "VOPD":
        return _dual(ctx)
    return _vector(ctx)


def _span(first: int, bits: int) -> range:
    return range(first, first + max(1, -(-bits // 32)))


def _scalars(ctx: Context, code: int, bits: int) -> Iterable[int]:
    """The SGPRs of a scalar source or destination; none for constants and null."""
    return () if code >= VECTOR or code == ctx.null else _span(code, bits)


def _mask(ctx: Context, code: int) -> Iterable[int]:
    return _scalars(ctx, code, ctx.wave_size)


def _source(ctx: Context, code: int, bits: int) -> Iterable[int]:
    """The registers of a source of a vector instruction."""
    return _span(VECTOR + code - 256, bits) if code >= 256 else _scalars(ctx, code, bits)


# ------------------------------------------------------------ scalar


def _scalar(ctx: Context) -> Uses:
    inst = ctx.inst
    reads: list[int] = []
    writes: list[int] = []
    if inst.name in BRANCHES:
        first = {"vcc": VCC, "exe": EXEC}.get(inst.name.removeprefix("s_cbranch_")[:3])
        return Uses(tuple(_span(first, ctx.wave_size))) if first is not None else Uses()
    for one in inst.opcode.operands:
        if one.field not in inst.fields or one.file != "S":
            continue
        registers = list(_scalars(ctx, inst.fields[one.field], one.width))
        if one.field != "sdst":
            reads += registers
        elif inst.name.startswith(ONLY_READ):
            reads += registers
        else:
            writes += registers
            if CHANGED.match(inst.name):
                reads += registers
    if "_saveexec_" in inst.name or "_wrexec_" in inst.name:
        both = list(_span(EXEC, ctx.wave_size))
        reads, writes = reads + both, writes + both
    return Uses(tuple(reads), tuple(writes))


def _scalar_memory(ctx: Context) -> Uses:
    inst, fields = ctx.inst, ctx.inst.fields
    reads: list[int] = []
    writes: list[int] = []
    base, data = inst.opcode.operand("sbase"), inst.opcode.operand("sdata")
    if base is not None:
        reads += _span(2 * fields["sbase"], base.width)
        if not ctx.is_gfx9:
            reads += _scalars(ctx, fields["soffset"], 32)
        elif fields["soffset_en"]:
            reads += _scalars(ctx, fields["soffset"], 32)
        elif not fields["imm"]:
            reads += _scalars(ctx, fields["offset"] & 127, 32)
    if data is not None and data.file == "S":
        registers = _scalars(ctx, fields["sdata"], data.width)
        if "store" in inst.name or "atomic" in inst.name:
            reads += registers
        if "store" not in inst.name and ("atomic" not in inst.name or returns(inst)):
            writes += registers
    return Uses(tuple(reads), tuple(writes))


# ------------------------------------------------------------ vector


def _vector(ctx: Context) -> Uses:
    inst, fields = ctx.inst, ctx.inst.fields
    reads: list[int] = []
    writes: list[int] = []
    is_source = False  # behind the first of them VCC is one, too
    for one in inst.opcode.operands:
        if one.field == "vcc":
            if is_source:
                reads += _mask(ctx, VCC)
            else:
                writes += _mask(ctx, _compare_result(inst))
        elif one.field in ("vdst", "sdst"):
            writes += _destination(ctx, one)
        elif one.field in SOURCES or one.field == "vsrc1":
            is_source = True
            reads += _vector_source(ctx, one)
    if READS_OLD.match(inst.name):
        reads += [register for register in writes if register >= VECTOR]
    if inst.name.startswith("v_swap"):
        writes += _span(VECTOR + (fields["src0"] - 256 & 255), 32)
    if inst.name.startswith("v_div_fmas"):
        reads += _mask(ctx, VCC)
    if inst.name.startswith("v_mfma_scale"):
        reads += [*_source(ctx, fields["scale0"], 32), *_source(ctx, fields["scale1"], 32)]
    if inst.name.startswith("v_cmpx"):
        writes += _span(EXEC, ctx.wave_size)
    across = bool(ACROSS.match(inst.name)) or inst.dpp is not None
    return Uses(tuple(reads), tuple(writes), across)


def _compare_result(inst: Instruction) -> int:
    return VCC if inst.named_mask is None else inst.named_mask


def _destination(ctx: Context, one: Operand) -> Iterable[int]:
    inst = ctx.inst
    register = inst.fields[one.field]
    if one.field == "sdst":
        return _mask(ctx, register)
    if one.file == "S":
        return _scalars(ctx, register, one.width)
    if one.width == 16 and inst.format in ("VOP1", "VOP2"):
        register &= 127
    if one.file == "A" or (inst.format == "MAI" and inst.fields.get("acc_cd")):
        register += ctx.acc_offset
    return _span(VECTOR + register, one.width)


def _vector_source(ctx: Context, one: Operand) -> Iterable[int]:
    inst = ctx.inst
    code, width = inst.fields[one.field], one.width
    if one.field == "vsrc1":
        code += 256
        if inst.sdwa is not None and inst.sdwa.s1:
            code -= 256
    if code == SDWA and inst.sdwa is not None:
        code = inst.sdwa.src0 + (0 if inst.sdwa.s0 else 256)
    elif code in (DPP, DPP8, DPP8_FI) and inst.dpp is not None:
        code = 256 + inst.dpp.values["src0"]
    if one.width == 16 and code >= 256 and inst.format in ("VOP1", "VOP2", "VOPC"):
        code = 256 | code & 127
    if is_mask(inst, one):
        return _mask(ctx, code)
    if code >= 256 and _is_accumulator(inst, one):
        code += ctx.acc_offset
    return _source(ctx, code, width)


def source_registers(ctx: Context, field: str) -> list[int]:
    """Those of one source of a vector instruction; none where it is a number, or has no such source."""
    operand = ctx.inst.opcode.operand(field)
    return [] if operand is None else list(_vector_source(ctx, operand))


def _is_accumulator(inst: Instruction, one: Operand) -> bool:
    if one.file == "A":
        return True
    if inst.format != "MAI" or "accvgpr" in inst.name:
        return False
    if one.field == "src2":
        return bool(inst.fields["acc_cd"]) and "smfmac" not in inst.name
    return bool(inst.fields["acc"] >> int(one.field[3]) & 1)


def _dual(ctx: Context) -> Uses:
    fields, pair = ctx.inst.fields, ctx.inst.pair
    assert pair is not None
    reads: list[int] = []
    vdst = {"x": fields["vdstx"], "y": 2 * fields["vdsty"] + (1 - (fields["vdstx"] & 1))}
    for half, opcode in zip("xy", pair):
        reads += _source(ctx, fields[f"src0{half}"], 32)
        if opcode.name != "v_dual_mov_b32":
            reads.append(VECTOR + fields[f"vsrc1{half}"])
        if opcode.name == "v_dual_cndmask_b32":
            reads += _mask(ctx, VCC)
        if READS_OLD.match(opcode.name):
            reads.append(VECTOR + vdst[half])
    return Uses(tuple(reads), (VECTOR + vdst["x"], VECTOR + vdst["y"]))


# ------------------------------------------------------------ memory


def _shared(ctx: Context) -> Uses:
    inst, fields = ctx.inst, ctx.inst.fields
    file = ctx.acc_offset if fields.get("acc") else 0
    reads: list[int] = []
    writes: list[int] = []
    for one in inst.opcode.operands:
        if one.field == "addr":
            reads.append(VECTOR + fields["addr"])
        elif one.field in ("data0", "data1"):
            reads += _span(VECTOR + fields[one.field] + file, one.width)
        elif one.field == "vdst":
            writes += _span(VECTOR + fields["vdst"] + file, one.width)
    if "addtid" in inst.name:
        reads.append(ctx.m0)
    return Uses(
        tuple(reads), tuple(writes), bool(ACROSS.match(inst.name)) and pair_access(inst.name[3:]) is None
    )


def _moved(ctx: Context, access: Access, data: int) -> tuple[Iterable[int], Iterable[int]]:
    """(read, written) vector registers of a memory instruction whose data begin there, and whose result at vdst."""
    fields = ctx.inst.fields
    file = ctx.acc_offset if fields.get("acc") else 0
    own = _span(VECTOR + data + file, 32 * access.words)
    result = _span(VECTOR + fields.get("vdst", data) + file, 32 * access.words)
    if access.verb == "load":
        return (), result
    if access.verb == "store":
        return own, ()
    assert access.atomic is not None
    if access.atomic.takes_two:
        own = _span(VECTOR + data + file, 64 * access.words)
    return own, result if returns(ctx.inst) else ()


def _vector_memory(ctx: Context) -> Uses:
    inst, fields = ctx.inst, ctx.inst.fields
    by_thread = "addtid" in inst.name
    to_lds = is_load_to_lds(inst)
    tail = inst.name.split("_", 1)[1].replace("_addtid", "").replace("load_lds_", "load_")
    access = parse_access(tail)
    if access is None or not inst.opcode.operands:
        return Uses()
    reads: list[int] = []
    has_saddr = inst.format != "FLAT" and fields["saddr"] not in (ctx.isa.no_saddr, ctx.isa.no_address)
    if has_saddr:
        reads += _scalars(ctx, fields["saddr"], 64 if inst.format == "GLOBAL" else 32)
    if inst.format == "SCRATCH":
        if fields.get("sve", not has_saddr):
            reads.append(VECTOR + fields["addr"])
    elif not by_thread:
        reads += _span(VECTOR + fields["addr"], 32 if has_saddr else 64)
    if to_lds:
        return Uses((*reads, ctx.m0))
    read, written = _moved(ctx, access, fields["data"])
    return Uses((*reads, *read), tuple(written))


def _buffer(ctx: Context) -> Uses:
    inst, fields = ctx.inst, ctx.inst.fields
    tail = inst.name.split("_", 1)[1]
    access = parse_access(tail) or typed_access(tail)
    if access is None or not inst.opcode.operands:
        return Uses()
    descriptor = fields["srsrc"] if ctx.is_gfx12 else 4 * fields["srsrc"]
    address = fields["idxen"] + fields["offen"]
    reads = [
        *_span(descriptor, 128),
        *_scalars(ctx, fields["soffset"], 32),
        *(_span(VECTOR + fields["vaddr"], 32 * address) if address else ()),
    ]
    if fields.get("lds"):
        return Uses((*reads, ctx.m0))
    read, written = _moved(ctx, access, fields["vdata"])
    return Uses((*reads, *read), tuple(written))
