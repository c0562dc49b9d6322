"""Unwritten: what is told of uses of what nobody wrote (HCQ_SANITIZE=init).

In       a use, and where what is used was read
Out      a fault in Checks for each pair of a read and a use
Changes  the Checks
Next     shadow_bits.py (which bits), checks.py (what was found), ../nv/shader/shadows.py and ../amd/shader/shadows.py
         (where registers have them)
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault, Site

# how it is used -> what is wrong
USES = {
    "address": "an address is made of what nobody wrote",
    "branch": "a branch depends on what nobody wrote",
    "store": "what nobody wrote is stored to memory",
    "matrix": "a product of matrices is made of what nobody wrote",
    "atomic": "an atomic operation changes what nobody wrote",
}
WRITTEN = 0x00


class Read(NamedTuple):
    """Where something unwritten came from.

    space    "shared", "local", "global"; "register": it was never set, and there is no instruction
    address  of the first byte, in that space; a register's number
    name     a register's, where it has one
    place, text, who   the instruction that read it, and its thread
    is_computed  whether something was computed from it since: a buffer's contents may be moved on, not counted with
    """

    space: str
    address: int = 0
    name: str = ""
    place: int = 0
    text: str = ""
    who: str = ""
    is_computed: bool = False

    @property
    def is_copied(self) -> bool:
        """Whether it is what a buffer had, bit by bit: who stores that has moved it on, and is left alone."""
        return self.space == "global" and not self.is_computed

    def computed(self) -> Read:
        """Of a result."""
        return self._replace(is_computed=True)


def tell(checks: Checks, use: str, read: Read, text: str, place: int, who: str, times: int) -> None:
    """An instruction uses it."""
    site = Site("uses it", text, place, who)

    def fault() -> KernelFault:
        what = USES[use]
        if read.space == "register":
            name = f" {read.name}" if read.name else f" {read.address}"
            return KernelFault("uninitialised-read", f"{what}: of register{name}", "", 0, (site,))
        sites: tuple[Site, ...] = Site("reads it", read.text, read.place, read.who), site
        if use == "atomic":
            sites = (site._replace(verb="changes it"),)
        return KernelFault("uninitialised-read", f"{what}, in", read.space, read.address, sites)

    checks.add(("uninitialised-read", read.place, read.address if not read.place else 0, place), times, fault)
