"""RDNA4 (gfx1201): the formats that are not RDNA3's, and the instruction set made of both.

In       opcodes/rdna4.txt
Out      RDNA4, an Isa
Next     rdna3.py (formats that stayed), operands.py (what source codes mean)
Source   RDNA4 shader ISA document; field positions checked against LLVM's assembler

Vector memory instructions have 96 bits, an offset of 24 of them, and name the scope up to which they are coherent.
The formats keep the names that they have in earlier generations: FLAT is the document's VFLAT, MUBUF its VBUFFER,
which typed accesses are in, too.
"""

from __future__ import annotations

from hcq.emu.amd.shader import rdna3
from hcq.emu.amd.shader.isa import Isa, newer
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


class DS(rdna3.DS, without=("gds",)):
    pass


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


RDNA4 = Isa(
    "RDNA4",
    "gfx1201",
    newer([one for one in rdna3.LAYOUTS if one is not rdna3.MTBUF], SMEM, DS, FLAT, SCRATCH, GLOBAL, MUBUF),
    generation=12,
    has_ocp_floats=True,
)
