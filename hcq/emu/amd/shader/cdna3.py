"""CDNA3 (gfx942): where the fields of each format lie, and the instruction set made of them.

In       cdna3_opcodes.py
Out      CDNA3, an Isa
Changes  nothing
Next     cdna3_opcodes.py (numbers and names), rdna3.py (the sister), operands.py (what source codes mean)
Source   CDNA3 shader ISA document; field positions checked against LLVM's assembler
"""

from __future__ import annotations

from hcq.emu.amd.shader import cdna3_opcodes
from hcq.emu.amd.shader.isa import Format, Isa, Opcode, opcodes, parse_operand, promoted
from hcq.emu.amd.shader.rdna3 import SOP1, SOP2, SOPC, SOPK, SOPP, VOP1, VOP2, VOPC
from hcq.layout import Packet, bits


class SMEM(Packet, words=2):
    encoding = bits(31, 26, default=48)
    op = bits(25, 18)
    imm = bits(17, default=1)
    glc = bits(16)
    nv = bits(15)
    soffset_en = bits(14)
    sdata = bits(12, 6)
    sbase = bits(5, 0)  # SGPR number / 2
    soffset = bits(63, 57)
    offset = bits(52, 32)  # signed; without imm and soffset_en its low bits name an SGPR


class VOP3(Packet, words=2):
    encoding = bits(31, 26, default=52)
    op = bits(25, 16)
    clamp = bits(15)
    opsel = bits(14, 11)
    abs = bits(10, 8)
    vdst = bits(7, 0)
    neg = bits(63, 61)
    omod = bits(60, 59)
    src2 = bits(58, 50)
    src1 = bits(49, 41)
    src0 = bits(40, 32)


class VOP3SD(Packet, words=2):
    encoding = bits(31, 26, default=52)
    op = bits(25, 16)
    clamp = bits(15)
    sdst = bits(14, 8)
    vdst = bits(7, 0)
    neg = bits(63, 61)
    omod = bits(60, 59)
    src2 = bits(58, 50)
    src1 = bits(49, 41)
    src0 = bits(40, 32)


class VOP3P(Packet, words=2):
    encoding = bits(31, 23, default=0x1A7)
    op = bits(22, 16)
    clamp = bits(15)
    opsel_hi2 = bits(14, default=1)
    opsel = bits(13, 11)
    neg_hi = bits(10, 8)
    vdst = bits(7, 0)
    neg_lo = bits(63, 61)
    opsel_hi = bits(60, 59, default=3)
    src2 = bits(58, 50)
    src1 = bits(49, 41)
    src0 = bits(40, 32)


class MAI(Packet, words=2):
    """Matrix instructions. acc picks AccVGPRs for A and B, acc_cd for C and D."""

    encoding = bits(31, 23, default=0x1A7)
    op = bits(22, 16)
    acc_cd = bits(15)
    abid = bits(14, 11)
    cbsz = bits(10, 8)
    vdst = bits(7, 0)
    blgp = bits(63, 61)
    acc = bits(60, 59)
    src2 = bits(58, 50)
    src1 = bits(49, 41)
    src0 = bits(40, 32)


class DS(Packet, words=2):
    encoding = bits(31, 26, default=54)
    acc = bits(25)
    op = bits(24, 17)
    gds = bits(16)
    offset1 = bits(15, 8)
    offset0 = bits(7, 0)
    vdst = bits(63, 56)
    data1 = bits(55, 48)
    data0 = bits(47, 40)
    addr = bits(39, 32)


class FLAT(Packet, words=2):
    encoding = bits(31, 26, default=55)
    sc1 = bits(25)
    op = bits(24, 18)
    nt = bits(17)
    sc0 = bits(16)
    encoding_segment = bits(15, 14, default=0)
    sve = bits(13)
    offset = bits(12, 0)
    vdst = bits(63, 56)
    acc = bits(55)
    saddr = bits(54, 48, default=127)
    data = bits(47, 40)
    addr = bits(39, 32)


class SCRATCH(FLAT):
    encoding_segment = bits(15, 14, default=1)


class GLOBAL(FLAT):
    encoding_segment = bits(15, 14, default=2)


class MUBUF(Packet, words=2):
    encoding = bits(31, 26, default=56)
    op = bits(24, 18)
    nt = bits(17)
    lds = bits(16)
    sc1 = bits(15)
    sc0 = bits(14)
    idxen = bits(13)
    offen = bits(12)
    offset = bits(11, 0)
    soffset = bits(63, 56, default=128)
    acc = bits(55)
    srsrc = bits(52, 48)  # SGPR number / 4
    vdata = bits(47, 40)
    vaddr = bits(39, 32)


FLOAT_TESTS = "f lt eq le gt lg ge o u nge nlg ngt nle neq nlt tru".split()
INTEGER_TESTS = "f lt eq le gt ne ge t".split()


def compares() -> dict[int, Opcode]:
    """VOPC: sixteen tests per float type with cmpx after them, eight per integer type with cmpx 16 higher."""
    names: dict[int, tuple[str, str, str]] = {}
    for index, kind in enumerate(("f32", "f64", "f16")):
        for x, form in enumerate(("cmp", "cmpx")):
            names[16 + 2 * index + x] = (f"{form}_class_{kind}", kind, "u32")
            base = {"f16": 32, "f32": 64, "f64": 96}[kind] + 16 * x
            names.update(
                (base + i, (f"{form}_{test}_{kind}", kind, kind)) for i, test in enumerate(FLOAT_TESTS)
            )
    for row, width in enumerate(("16", "32", "64")):
        for x, form in enumerate(("cmp", "cmpx")):
            for s, sign in enumerate("iu"):
                base, kind = 160 + 32 * row + 16 * x + 8 * s, sign + width
                for i, test in enumerate(INTEGER_TESTS):
                    names[base + i] = (f"{form}_{test}_{kind}", kind, kind)
    out = {}
    for number, (name, left, right) in names.items():
        widths = [max(int(kind[1:]), 32) for kind in (left, right)]
        sources = (parse_operand(f"src0:V{widths[0]}"), parse_operand(f"vsrc1:V{widths[1]}"))
        out[number] = Opcode(number, f"v_{name}", (parse_operand("vcc"), *sources))
    return out


VOP1_TABLE, VOP2_TABLE, VOPC_TABLE = opcodes(cdna3_opcodes.VOP1), opcodes(cdna3_opcodes.VOP2), compares()
VOP3_TABLE = {
    **promoted(VOPC_TABLE, 0),
    **promoted(VOP2_TABLE, 0x100),
    **promoted(VOP1_TABLE, 0x140),
    **opcodes(cdna3_opcodes.VOP3),
}
VOP3SD_TABLE = opcodes(cdna3_opcodes.VOP3SD)
for number in VOP3SD_TABLE:
    VOP3_TABLE.pop(number, None)

CDNA3 = Isa(
    "CDNA3",
    "gfx942",
    [
        Format("SOP1", SOP1, opcodes(cdna3_opcodes.SOP1)),
        Format("SOPC", SOPC, opcodes(cdna3_opcodes.SOPC)),
        Format("SOPP", SOPP, opcodes(cdna3_opcodes.SOPP)),
        Format("SOPK", SOPK, opcodes(cdna3_opcodes.SOPK)),
        Format("SOP2", SOP2, opcodes(cdna3_opcodes.SOP2)),
        Format("VOP1", VOP1, VOP1_TABLE),
        Format("VOPC", VOPC, VOPC_TABLE),
        Format("VOP2", VOP2, VOP2_TABLE),
        Format("VOP3P", VOP3P, opcodes(cdna3_opcodes.VOP3P)),
        Format("MAI", MAI, opcodes(cdna3_opcodes.VOP3P_MAI)),
        Format("VOP3SD", VOP3SD, VOP3SD_TABLE),
        Format("VOP3", VOP3, VOP3_TABLE),
        Format("SMEM", SMEM, opcodes(cdna3_opcodes.SMEM)),
        Format("DS", DS, opcodes(cdna3_opcodes.DS)),
        Format("FLAT", FLAT, opcodes(cdna3_opcodes.FLAT)),
        Format("SCRATCH", SCRATCH, opcodes(cdna3_opcodes.SCRATCH)),
        Format("GLOBAL", GLOBAL, opcodes(cdna3_opcodes.GLOBAL)),
        Format("MUBUF", MUBUF, opcodes(cdna3_opcodes.MUBUF)),
    ],
    vop3_literals=False,
    has_sdwa=True,
    generation=9,
)
