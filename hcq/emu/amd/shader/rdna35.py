"""RDNA3.5 (gfx1151): RDNA3, and floats of scalars as RDNA4 has them.

In       opcodes/rdna35.txt
Out      RDNA35, an Isa
Next     rdna3.py (all formats), scalar_float_ops.py (what is new), rdna4.py (the next generation)
Source   RDNA3.5 shader ISA document; LLVM's assembler for gfx1151, which writes all of gfx1100's instructions alike
"""

from __future__ import annotations

from hcq.emu.amd.shader import rdna3
from hcq.emu.amd.shader.isa import Isa

RDNA35 = Isa("RDNA35", "gfx1151", rdna3.LAYOUTS)
