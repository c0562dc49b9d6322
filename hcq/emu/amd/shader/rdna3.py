"""RDNA3 (gfx1100): where the fields of each format lie, and the instruction set made of them.

In       rdna3_opcodes.py
Out      RDNA3, an Isa
Changes  nothing
Next     rdna3_opcodes.py (numbers and names), cdna3.py (the sister), operands.py (what source codes mean)
Source   RDNA3 shader ISA document; field positions checked against LLVM's assembler
"""

from __future__ import annotations

from hcq.emu.amd.shader import rdna3_opcodes
from hcq.emu.amd.shader.isa import Format, Isa, Opcode, opcodes, parse_operand, promoted
from hcq.layout import Packet, bits


class SOP1(Packet, words=1):
    encoding = bits(31, 23, default=0x17D)
    sdst = bits(22, 16)
    op = bits(15, 8)
    ssrc0 = bits(7, 0)


class SOP2(Packet, words=1):
    encoding = bits(31, 30, default=2)
    op = bits(29, 23)
    sdst = bits(22, 16)
    ssrc1 = bits(15, 8)
    ssrc0 = bits(7, 0)


class SOPC(Packet, words=1):
    encoding = bits(31, 23, default=0x17E)
    op = bits(22, 16)
    ssrc1 = bits(15, 8)
    ssrc0 = bits(7, 0)


class SOPK(Packet, words=1):
    encoding = bits(31, 28, default=11)
    op = bits(27, 23)
    sdst = bits(22, 16)
    simm16 = bits(15, 0)


class SOPP(Packet, words=1):
    encoding = bits(31, 23, default=0x17F)
    op = bits(22, 16)
    simm16 = bits(15, 0)


class SMEM(Packet, words=2):
    encoding = bits(31, 26, default=61)
    op = bits(25, 18)
    glc = bits(14)
    dlc = bits(13)
    sdata = bits(12, 6)
    sbase = bits(5, 0)  # SGPR number / 2
    soffset = bits(63, 57, default=124)
    offset = bits(52, 32)  # signed


class VOP1(Packet, words=1):
    encoding = bits(31, 25, default=63)
    vdst = bits(24, 17)
    op = bits(16, 9)
    src0 = bits(8, 0)


class VOP2(Packet, words=1):
    encoding = bits(31, default=0)
    op = bits(30, 25)
    vdst = bits(24, 17)
    vsrc1 = bits(16, 9)
    src0 = bits(8, 0)


class VOPC(Packet, words=1):
    encoding = bits(31, 25, default=62)
    op = bits(24, 17)
    vsrc1 = bits(16, 9)
    src0 = bits(8, 0)


class VOP3(Packet, words=2):
    encoding = bits(31, 26, default=53)
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
    encoding = bits(31, 26, default=53)
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
    encoding = bits(31, 24, default=0xCC)
    encoding_low = bits(23, default=0)
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


class VOPD(Packet, words=2):
    """Two instructions in one; the Y destination's lowest bit is the opposite of X's."""

    encoding = bits(31, 26, default=50)
    opx = bits(25, 22)
    opy = bits(21, 17)
    vsrc1x = bits(16, 9)
    src0x = bits(8, 0)
    vdstx = bits(63, 56)
    vdsty = bits(55, 49)
    vsrc1y = bits(48, 41)
    src0y = bits(40, 32)


class DS(Packet, words=2):
    encoding = bits(31, 26, default=54)
    op = bits(25, 18)
    gds = bits(17)
    offset1 = bits(15, 8)
    offset0 = bits(7, 0)
    vdst = bits(63, 56)
    data1 = bits(55, 48)
    data0 = bits(47, 40)
    addr = bits(39, 32)


class FLAT(Packet, words=2):
    encoding = bits(31, 26, default=55)
    op = bits(24, 18)
    encoding_segment = bits(17, 16, default=0)
    slc = bits(15)
    glc = bits(14)
    dlc = bits(13)
    offset = bits(12, 0)
    vdst = bits(63, 56)
    sve = bits(55)
    saddr = bits(54, 48, default=124)
    data = bits(47, 40)
    addr = bits(39, 32)


class SCRATCH(FLAT):
    encoding_segment = bits(17, 16, default=1)


class GLOBAL(FLAT):
    encoding_segment = bits(17, 16, default=2)


class MUBUF(Packet, words=2):
    encoding = bits(31, 26, default=56)
    op = bits(25, 18)
    glc = bits(14)
    dlc = bits(13)
    slc = bits(12)
    offset = bits(11, 0)
    soffset = bits(63, 56, default=128)
    idxen = bits(55)
    offen = bits(54)
    tfe = bits(53)
    srsrc = bits(52, 48)  # SGPR number / 4
    vdata = bits(47, 40)
    vaddr = bits(39, 32)


FLOAT_TESTS = "f lt eq le gt lg ge o u nge nlg ngt nle neq nlt t".split()
INTEGER_TESTS = "f lt eq le gt ne ge t".split()
SHORT_TESTS = " lt eq le gt ne ge ".split(" ")


def compares() -> dict[int, Opcode]:
    """VOPC: sixteen tests per float type, eight per integer type; +128 is the form that writes EXEC."""
    table = {}
    rows = [(0, "f16", FLOAT_TESTS), (16, "f32", FLOAT_TESTS), (32, "f64", FLOAT_TESTS)]
    rows += [(48, "i16", SHORT_TESTS), (56, "u16", SHORT_TESTS)]
    rows += [(64 + 8 * i, name, INTEGER_TESTS) for i, name in enumerate(("i32", "u32", "i64", "u64"))]
    for base, kind, tests in rows:
        for index, test in enumerate(tests):
            if test:
                table[base + index] = (f"{test}_{kind}", kind, kind)
    for number, kind in ((125, "f16"), (126, "f32"), (127, "f64")):
        table[number] = (f"class_{kind}", kind, "f16" if kind == "f16" else "f32")
    out = {}
    for number, (name, left, right) in table.items():
        sources = (parse_operand(f"src0:V{left[1:]}"), parse_operand(f"vsrc1:V{right[1:]}"))
        out[number] = Opcode(number, f"v_cmp_{name}", (parse_operand("vcc"), *sources))
        out[number + 128] = Opcode(number + 128, f"v_cmpx_{name}", sources)
    return out


VOP1_TABLE, VOP2_TABLE, VOPC_TABLE = opcodes(rdna3_opcodes.VOP1), opcodes(rdna3_opcodes.VOP2), compares()
VOP3_TABLE = {
    **promoted(VOPC_TABLE, 0),
    **promoted(VOP2_TABLE, 0x100),
    **promoted(VOP1_TABLE, 0x180),
    **opcodes(rdna3_opcodes.VOP3),
}
VOP3SD_TABLE = opcodes(rdna3_opcodes.VOP3SD)
for number in VOP3SD_TABLE:
    VOP3_TABLE.pop(number, None)

FMA = "fmac_f32 fmaak_f32 fmamk_f32 mul_f32 add_f32 sub_f32 subrev_f32 mul_dx9_zero_f32 mov_b32 cndmask_b32"
DUAL_NAMES = [*FMA.split(), "max_f32", "min_f32", "dot2acc_f32_f16", "dot2acc_f32_bf16"]
DUAL = {
    number: Opcode(number, f"v_dual_{name}", ())
    for number, name in [*enumerate(DUAL_NAMES), (16, "add_nc_u32"), (17, "lshlrev_b32"), (18, "and_b32")]
}

RDNA3 = Isa(
    "RDNA3",
    "gfx1100",
    [
        Format("SOP1", SOP1, opcodes(rdna3_opcodes.SOP1)),
        Format("SOPC", SOPC, opcodes(rdna3_opcodes.SOPC)),
        Format("SOPP", SOPP, opcodes(rdna3_opcodes.SOPP)),
        Format("SOPK", SOPK, opcodes(rdna3_opcodes.SOPK)),
        Format("SOP2", SOP2, opcodes(rdna3_opcodes.SOP2)),
        Format("VOP1", VOP1, VOP1_TABLE),
        Format("VOPC", VOPC, VOPC_TABLE),
        Format("VOP2", VOP2, VOP2_TABLE),
        Format("VOP3SD", VOP3SD, VOP3SD_TABLE),
        Format("VOP3", VOP3, VOP3_TABLE),
        Format("VOP3P", VOP3P, opcodes(rdna3_opcodes.VOP3P)),
        Format("VOPD", VOPD, {}),
        Format("SMEM", SMEM, opcodes(rdna3_opcodes.SMEM)),
        Format("DS", DS, opcodes(rdna3_opcodes.DS)),
        Format("FLAT", FLAT, opcodes(rdna3_opcodes.FLAT)),
        Format("SCRATCH", SCRATCH, opcodes(rdna3_opcodes.SCRATCH)),
        Format("GLOBAL", GLOBAL, opcodes(rdna3_opcodes.GLOBAL)),
        Format("MUBUF", MUBUF, opcodes(rdna3_opcodes.MUBUF)),
    ],
    dual=DUAL,
)
