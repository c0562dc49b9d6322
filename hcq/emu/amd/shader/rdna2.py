"""RDNA2 (gfx1030): where its formats' fields lie otherwise than in RDNA3, and the instruction set made of them.

In       opcodes/rdna2.txt
Out      RDNA2, an Isa
Next     rdna3.py (the next generation), cdna2.py (the sister, whose names of instructions these are), memory_ops.py
         (scratch through descriptors)
Source   RDNA2 shader ISA document; mnemonics and encodings checked against LLVM's assembler

Of its kin it has waves of 32 lanes, a null register and four counters of waits; of the sister's, SDWA and scratch
memory that kernels find by themselves. The pair of hardware registers that hold its address (FLAT_SCR_LO and HI) are
kept here in the place of two trap temporaries, which no kernel can reach.
"""

from __future__ import annotations

from hcq.emu.amd.shader import cdna2, rdna3
from hcq.emu.amd.shader.isa import Isa, newer
from hcq.layout import bits

FLAT_SCR = 122


class SMEM(rdna3.SMEM):
    glc = bits(16)
    dlc = bits(14)
    soffset = bits(63, 57, default=125)


class FLAT(cdna2.FLAT, without=("scc", "acc")):
    dlc = bits(12)
    offset = bits(11, 0)
    saddr = bits(54, 48, default=125)


class SCRATCH(FLAT):
    """With a scalar address there is no vector address; saddr 127: there is neither."""

    encoding_segment = bits(15, 14, default=1)


class GLOBAL(FLAT):
    encoding_segment = bits(15, 14, default=2)


class MUBUF(rdna3.MUBUF):
    lds = bits(16)
    dlc = bits(15)
    idxen = bits(13)
    offen = bits(12)
    tfe = bits(55)
    slc = bits(54)


class MTBUF(MUBUF, without=("lds",)):
    """A typed buffer access that says the format itself."""

    encoding = bits(31, 26, default=58)
    op = bits(18, 16)
    op_high = bits(53)
    format = bits(25, 19)


RDNA2 = Isa(
    "RDNA2",
    "gfx1030",
    newer([one for one in rdna3.LAYOUTS if one is not rdna3.VOPD], SMEM, FLAT, SCRATCH, GLOBAL, MUBUF, MTBUF),
    has_sdwa=True,
    generation=10,
    flat_scratch=FLAT_SCR,
)
