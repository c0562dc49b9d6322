"""CDNA2 (gfx90a): where the fields of each format lie, and the instruction set made of them.

In       opcodes/cdna2.txt
Out      CDNA2, an Isa
Changes  nothing
Next     cdna3.py (the next generation), rdna3.py (the sister), matrix_ops.py (what the matrix names mean),
         memory_ops.py (scratch through descriptors)
Source   CDNA2 shader ISA document; mnemonics and encodings checked against LLVM's assembler
"""

from __future__ import annotations

from hcq.emu.amd.shader import rdna3
from hcq.emu.amd.shader.isa import Isa
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


class VOP3(rdna3.VOP3):
    encoding = bits(31, 26, default=52)


class VOP3SD(rdna3.VOP3SD):
    encoding = bits(31, 26, default=52)


class VOP3P(rdna3.VOP3P, without=("encoding_low",)):
    encoding = bits(31, 23, default=0x1A7)


class MAI(VOP3P, without=("clamp", "opsel_hi2", "opsel", "neg_hi", "neg_lo", "opsel_hi")):
    """Matrix instructions. acc picks AccVGPRs for A and B, acc_cd for C and D."""

    acc_cd = bits(15)
    abid = bits(14, 11)
    cbsz = bits(10, 8)
    blgp = bits(63, 61)
    acc = bits(60, 59)


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
    scc = bits(25)
    op = bits(24, 18)
    slc = bits(17)
    glc = bits(16)
    encoding_segment = bits(15, 14, default=0)
    lds = bits(13)
    offset = bits(12, 0)
    vdst = bits(63, 56)
    acc = bits(55)
    saddr = bits(54, 48, default=127)
    data = bits(47, 40)
    addr = bits(39, 32)


class SCRATCH(FLAT):
    """With a scalar address there is no vector address."""

    encoding_segment = bits(15, 14, default=1)


class GLOBAL(FLAT):
    encoding_segment = bits(15, 14, default=2)


class MUBUF(Packet, words=2):
    encoding = bits(31, 26, default=56)
    op = bits(24, 18)
    slc = bits(17)
    lds = bits(16)
    scc = bits(15)
    glc = bits(14)
    idxen = bits(13)
    offen = bits(12)
    offset = bits(11, 0)
    soffset = bits(63, 56, default=128)
    acc = bits(55)
    srsrc = bits(52, 48)  # SGPR number / 4
    vdata = bits(47, 40)
    vaddr = bits(39, 32)


LAYOUTS = (
    *(SOP1, SOPC, SOPP, SOPK, SOP2, VOP1, VOPC, VOP2, VOP3P, MAI, VOP3SD, VOP3),
    *(SMEM, DS, FLAT, SCRATCH, GLOBAL, MUBUF),
)
CDNA2 = Isa(
    "CDNA2",
    "gfx90a",
    LAYOUTS,
    vop1_base=0x140,
    vop3_literals=False,
    has_sdwa=True,
    generation=9,
    scratch_in_memory=True,
)
