"""RDNA4 (gfx1201): where the fields of each format lie, and the instruction set made of them.

In       rdna4_opcodes.py
Out      RDNA4, an Isa
Changes  nothing
Next     rdna4_opcodes.py (numbers and names), rdna3.py (formats that stayed), operands.py (what source codes mean)
Source   RDNA4 shader ISA document; field positions checked against LLVM's assembler

Vector memory instructions have 96 bits, an offset of 24 of them, and name the scope up to which they are coherent.
The formats keep the names that they have in earlier generations: FLAT is the document's VFLAT, MUBUF its VBUFFER.
"""

from __future__ import annotations

from hcq.emu.amd.shader import rdna4_opcodes
from hcq.emu.amd.shader.isa import Format, Isa, Opcode, opcodes, promoted
from hcq.emu.amd.shader.rdna3 import (
    FMA,
    SOP1,
    SOP2,
    SOPC,
    SOPK,
    SOPP,
    VOP1,
    VOP2,
    VOP3,
    VOP3P,
    VOP3SD,
    VOPC,
    VOPD,
)
from hcq.emu.amd.shader.rdna3 import VOPC_TABLE as VOPC_BEFORE
from hcq.layout import Packet, bits


class SMEM(Packet, words=2):
    encoding = bits(31, 26, default=61)
    th = bits(24, 23)  # temporal hint
    scope = bits(22, 21)
    op = bits(18, 13)
    sdata = bits(12, 6)
    sbase = bits(5, 0)  # SGPR number / 2
    soffset = bits(63, 57, default=124)
    offset = bits(55, 32)  # signed


class DS(Packet, words=2):
    encoding = bits(31, 26, default=54)
    op = bits(25, 18)
    offset1 = bits(15, 8)
    offset0 = bits(7, 0)
    vdst = bits(63, 56)
    data1 = bits(55, 48)
    data0 = bits(47, 40)
    addr = bits(39, 32)


class FLAT(Packet, words=3):
    encoding = bits(31, 24, default=0xEC)
    op = bits(21, 14)
    saddr = bits(6, 0, default=124)
    data = bits(62, 55)
    th = bits(54, 52)  # temporal hint; of an atomic, bit 0: return what was there
    scope = bits(51, 50)
    sve = bits(49)
    vdst = bits(39, 32)
    offset = bits(95, 72)  # signed
    addr = bits(71, 64)


class SCRATCH(FLAT):
    encoding = bits(31, 24, default=0xED)


class GLOBAL(FLAT):
    encoding = bits(31, 24, default=0xEE)


class MUBUF(Packet, words=3):
    encoding = bits(31, 26, default=0x31)
    tfe = bits(22)
    op = bits(21, 14)
    soffset = bits(6, 0, default=124)
    idxen = bits(63)
    offen = bits(62)
    format = bits(61, 55)
    th = bits(54, 52)
    scope = bits(51, 50)
    srsrc = bits(49, 41)  # SGPR number
    vdata = bits(39, 32)
    offset = bits(95, 72)  # signed
    vaddr = bits(71, 64)


def is_gone(name: str) -> bool:
    """RDNA3's compares that are always true or always false."""
    return name.split("_")[2] in ("f", "t")


VOPC_TABLE = {number: opcode for number, opcode in VOPC_BEFORE.items() if not is_gone(opcode.name)}
VOP1_TABLE, VOP2_TABLE = opcodes(rdna4_opcodes.VOP1), opcodes(rdna4_opcodes.VOP2)
VOP3_TABLE = {
    **promoted(VOPC_TABLE, 0),
    **promoted(VOP2_TABLE, 0x100),
    **promoted(VOP1_TABLE, 0x180),
    **opcodes(rdna4_opcodes.VOP3),
}
VOP3SD_TABLE = opcodes(rdna4_opcodes.VOP3SD)
for number in VOP3SD_TABLE:
    VOP3_TABLE.pop(number, None)

DUAL_NAMES = [*FMA.split(), "max_num_f32", "min_num_f32", "dot2acc_f32_f16", "dot2acc_f32_bf16"]
DUAL = {
    number: Opcode(number, f"v_dual_{name}", ())
    for number, name in [*enumerate(DUAL_NAMES), (16, "add_nc_u32"), (17, "lshlrev_b32"), (18, "and_b32")]
}

RDNA4 = Isa(
    "RDNA4",
    "gfx1201",
    [
        Format("SOP1", SOP1, opcodes(rdna4_opcodes.SOP1)),
        Format("SOPC", SOPC, opcodes(rdna4_opcodes.SOPC)),
        Format("SOPP", SOPP, opcodes(rdna4_opcodes.SOPP)),
        Format("SOPK", SOPK, opcodes(rdna4_opcodes.SOPK)),
        Format("SOP2", SOP2, opcodes(rdna4_opcodes.SOP2)),
        Format("VOP1", VOP1, VOP1_TABLE),
        Format("VOPC", VOPC, VOPC_TABLE),
        Format("VOP2", VOP2, VOP2_TABLE),
        Format("VOP3SD", VOP3SD, VOP3SD_TABLE),
        Format("VOP3", VOP3, VOP3_TABLE),
        Format("VOP3P", VOP3P, opcodes(rdna4_opcodes.VOP3P)),
        Format("VOPD", VOPD, {}),
        Format("SMEM", SMEM, opcodes(rdna4_opcodes.SMEM)),
        Format("DS", DS, opcodes(rdna4_opcodes.DS)),
        Format("FLAT", FLAT, opcodes(rdna4_opcodes.FLAT)),
        Format("SCRATCH", SCRATCH, opcodes(rdna4_opcodes.SCRATCH)),
        Format("GLOBAL", GLOBAL, opcodes(rdna4_opcodes.GLOBAL)),
        Format("MUBUF", MUBUF, opcodes(rdna4_opcodes.MUBUF)),
    ],
    dual=DUAL,
    generation=12,
)
