"""CDNA3 (gfx942): the formats that are not CDNA2's, and the instruction set made of both.

In       opcodes/cdna3.txt
Out      CDNA3, an Isa
Next     cdna2.py (formats that stayed), cdna4.py (the next generation), operands.py (what source codes mean)
Source   CDNA3 shader ISA document; field positions checked against LLVM's assembler
"""

from __future__ import annotations

from hcq.emu.amd.shader import cdna2
from hcq.emu.amd.shader.isa import Isa, newer
from hcq.layout import bits


class FLAT(cdna2.FLAT, without=("scc", "slc", "glc", "lds")):
    sc1 = bits(25)
    nt = bits(17)
    sc0 = bits(16)
    sve = bits(13)


class SCRATCH(FLAT):
    encoding_segment = bits(15, 14, default=1)


class GLOBAL(FLAT):
    encoding_segment = bits(15, 14, default=2)


class MUBUF(cdna2.MUBUF, without=("slc", "scc", "glc")):
    nt = bits(17)
    sc1 = bits(15)
    sc0 = bits(14)


class MTBUF(cdna2.MTBUF, without=("slc", "scc", "glc")):
    nt = bits(54)
    sc1 = bits(53)
    sc0 = bits(14)


LAYOUTS = newer(cdna2.LAYOUTS, FLAT, SCRATCH, GLOBAL, MUBUF, MTBUF)
CDNA3 = Isa("CDNA3", "gfx942", LAYOUTS, vop1_base=0x140, vop3_literals=False, has_sdwa=True, generation=9)
