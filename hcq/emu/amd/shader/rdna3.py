"""RDNA3 (gfx1100): where the fields of each format lie, and the instruction set made of them.

In       opcodes/rdna3.txt
Out      RDNA3, an Isa
Next     rdna35.py, rdna4.py (the next generations), cdna2.py (the sister), operands.py (what source codes mean)
Source   RDNA3 shader ISA document; field positions checked against LLVM's assembler
"""

from __future__ import annotations

from hcq.emu.amd.shader.isa import Isa
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


class _ThreeSources(Packet, words=2):
    clamp = bits(15)
    vdst = bits(7, 0)
    src2 = bits(58, 50)
    src1 = bits(49, 41)
    src0 = bits(40, 32)


class VOP3(_ThreeSources):
    encoding = bits(31, 26, default=53)
    op = bits(25, 16)
    opsel = bits(14, 11)
    abs = bits(10, 8)
    neg = bits(63, 61)
    omod = bits(60, 59)


class VOP3SD(VOP3, without=("opsel", "abs")):
    sdst = bits(14, 8)


class VOP3P(_ThreeSources):
    encoding = bits(31, 24, default=0xCC)
    encoding_low = bits(23, default=0)
    op = bits(22, 16)
    opsel_hi2 = bits(14, default=1)
    opsel = bits(13, 11)
    neg_hi = bits(10, 8)
    neg_lo = bits(63, 61)
    opsel_hi = bits(60, 59, default=3)


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


class MTBUF(MUBUF):
    """A typed buffer access that says the format itself."""

    encoding = bits(31, 26, default=58)
    op = bits(18, 15)
    format = bits(25, 19)


LAYOUTS = (
    *(SOP1, SOPC, SOPP, SOPK, SOP2, VOP1, VOPC, VOP2, VOP3SD, VOP3, VOP3P, VOPD),
    *(SMEM, DS, FLAT, SCRATCH, GLOBAL, MUBUF, MTBUF),
)
RDNA3 = Isa("RDNA3", "gfx1100", LAYOUTS, waits_for_transcendentals=False)
