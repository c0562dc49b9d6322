"""Which instruction set each architecture has.

In       an architecture such as "gfx1100"
Out      its Isa, or that of its sisters
Next     isa.py (what an instruction set is), rdna2.py, rdna3.py, rdna35.py, rdna4.py, cdna2.py, cdna3.py, cdna4.py
         (what differs)
"""

from __future__ import annotations

from hcq.emu.amd.shader.cdna2 import CDNA2
from hcq.emu.amd.shader.cdna3 import CDNA3
from hcq.emu.amd.shader.cdna4 import CDNA4
from hcq.emu.amd.shader.isa import Isa
from hcq.emu.amd.shader.rdna2 import RDNA2
from hcq.emu.amd.shader.rdna3 import RDNA3
from hcq.emu.amd.shader.rdna4 import RDNA4
from hcq.emu.amd.shader.rdna35 import RDNA35

ISAS: dict[str, Isa] = {
    "gfx90a": CDNA2,
    "gfx942": CDNA3,
    "gfx950": CDNA4,
    "gfx1030": RDNA2,
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1102"), RDNA3),
    "gfx1151": RDNA35,
    **dict.fromkeys(("gfx1200", "gfx1201"), RDNA4),
}

SISTERS = {"gfx103": RDNA2, "gfx115": RDNA35, "gfx94": CDNA3, "gfx95": CDNA4, "gfx11": RDNA3, "gfx12": RDNA4}


def isa_of(arch: str) -> Isa | None:
    """The instruction set that an architecture's code is read with; of one that is not emulated, its sisters'."""
    return ISAS.get(arch) or SISTERS.get(arch[:6]) or SISTERS.get(arch[:5])
