"""CDNA2 (gfx90a): where its formats' fields lie otherwise than in RDNA3, and the instruction set made of them.

In       opcodes/cdna2.txt
Out      CDNA2, an Isa
Next     cdna3.py (the next generation), rdna3.py (the sister), matrix_ops.py (what the matrix names mean),
         memory_ops.py (scratch through descriptors)
Source   CDNA2 shader ISA document; mnemonics and encodings checked against LLVM's assembler
"""

from __future__ import annotations

from hcq.emu.amd.shader import rdna3
from hcq.emu.amd.shader.isa import Isa
from hcq.emu.amd.shader.rdna3 import SOP1, SOP2, SOPC, SOPK, SOPP, VOP1, VOP2, VOPC
from hcq.layout import bits


class SMEM(rdna3.SMEM, without=("dlc",)):
    encoding = bits(31, 26, default=48)
    imm = bits(17, default=1)
    glc = bits(16)
    nv = bits(15)
    soffset_en = bits(14)
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


class DS(rdna3.DS):
    acc = bits(25)
    op = bits(24, 17)
    gds = bits(16)


class FLAT(rdna3.FLAT, without=("dlc", "sve")):
    scc = bits(25)
    slc = bits(17)
    glc = bits(16)
    encoding_segment = bits(15, 14, default=0)
    lds = bits(13)
    acc = bits(55)
    saddr = bits(54, 48, default=127)


class SCRATCH(FLAT):
    """With a scalar address there is no vector address."""

    encoding_segment = bits(15, 14, default=1)


class GLOBAL(FLAT):
    encoding_segment = bits(15, 14, default=2)


class MUBUF(rdna3.MUBUF, without=("dlc", "tfe")):
    op = bits(24, 18)
    slc = bits(17)
    lds = bits(16)
    scc = bits(15)
    idxen = bits(13)
    offen = bits(12)
    acc = bits(55)


class MTBUF(MUBUF, without=("lds",)):
    """A typed buffer access that says the format itself."""

    encoding = bits(31, 26, default=58)
    op = bits(18, 15)
    dfmt = bits(22, 19)
    nfmt = bits(25, 23)
    scc = bits(53)
    slc = bits(54)


LAYOUTS = (
    *(SOP1, SOPC, SOPP, SOPK, SOP2, VOP1, VOPC, VOP2, VOP3P, MAI, VOP3SD, VOP3),
    *(SMEM, DS, FLAT, SCRATCH, GLOBAL, MUBUF, MTBUF),
)
CDNA2 = Isa(
    "CDNA2",
    "gfx90a",
    LAYOUTS,
    vop1_base=0x140,
    vop3_literals=False,
    has_sdwa=True,
    generation=9,
    flat_scratch=102,
)
