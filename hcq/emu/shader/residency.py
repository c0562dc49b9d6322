"""Residency: grids whose blocks wait for each other, and of which a real GPU could not hold all at once.

In       a launch that is about to run, or a workgroup that comes to a barrier of all
Out      a fault in the Checks
Changes  the Checks
Next     hcq/performance/datasheets.py (how much a GPU has room for), checks.py (what was found),
         ../nv/launch.py and ../amd/shader/global_sync.py (who ask)

The emulated GPU runs such a grid all the same: it has room for any.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault, Site
from hcq.performance import datasheets

RULE = "grid-not-resident"


class Needs(NamedTuple):
    """What a launch takes. registers: of a thread; shared_bytes: of a block; units: that the emulated GPU shows."""

    arch: str
    blocks: int
    block: tuple[int, int, int]
    warp_size: int
    registers: int
    shared_bytes: int
    units: int = 0


def look(checks: Checks | None, needs: Needs, site: Site) -> None:
    """All blocks of a grid are to run at once. site: where they wait for each other."""
    chip = datasheets.for_arch(needs.arch)
    if checks is None or "sync" not in checks.words or chip is None or (RULE,) in checks.found:
        return
    threads = prod(needs.block)
    _, tight, each = datasheets.occupancy(chip, needs.registers, needs.shared_bytes, threads, needs.warp_size)
    units = max(chip.units, needs.units)
    most = units * each
    if needs.blocks > most:
        what = f"{needs.blocks} blocks of {threads} threads wait for each other"
        short = f", for {tight} run short" if tight else ""
        why = f"and {chip.name}, with {units} units, runs at most {most} of them at once{short}"
        checks.add((RULE,), 1, lambda: KernelFault(RULE, what, "", 0, (site,), why))
