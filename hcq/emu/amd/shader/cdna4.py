"""CDNA4 (gfx950): the one format that CDNA3 has not, and the instruction set made of both.

In       opcodes/cdna4.txt
Out      CDNA4, an Isa
Next     cdna3.py (formats that stayed), scaled_matrix_ops.py and scaled_convert_ops.py (small floats with scales)
Source   CDNA4 shader ISA document; field positions checked against LLVM's assembler
"""

from __future__ import annotations

from hcq.emu.amd.shader import cdna3
from hcq.emu.amd.shader.isa import Isa
from hcq.layout import Packet, bits


class SCALED(Packet, words=4):
    """v_mfma_scale: where the scales are, in two words, and then the words of the same product without them.

    opsel, opsel_hi   of the bytes that are the scales of A and of B: the low bits and the high bits of their numbers
    """

    encoding = bits(31, 16, default=0xD3AC)
    opsel = bits(12, 11)
    opsel_hi = bits(60, 59)
    scale1 = bits(49, 41)
    scale0 = bits(40, 32)
    encoding_product = bits(95, 87, default=0x1A7)
    op = bits(86, 80)
    acc_cd = bits(79)
    abid = bits(78, 75, default=1)
    cbsz = bits(74, 72)
    vdst = bits(71, 64)
    blgp = bits(127, 125)
    acc = bits(124, 123)
    src2 = bits(122, 114)
    src1 = bits(113, 105)
    src0 = bits(104, 96)


CDNA4 = Isa(
    "CDNA4",
    "gfx950",
    (SCALED, *cdna3.LAYOUTS),
    vop1_base=0x140,
    vop3_literals=False,
    has_sdwa=True,
    generation=9,
    has_ocp_floats=True,
    has_wide_loads_to_lds=True,
)
