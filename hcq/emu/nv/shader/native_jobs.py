"""Jobs of compiled PTX: parts of a batch, each some blocks, that run on several cores.

In       a function's machine code, the table that it is passed, sites of accesses
Out      how many instructions the longest warp has run
Changes  what the kernel changes
Next     native.py (who asks), hcq/emu/compiled/threads.py (on several cores),
         docs/decisions/0016-workgroups-on-all-cores.md
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.emu.compiled import accesses, threads
from hcq.emu.nv.shader.native_order import PLACES
from hcq.emu.nv.shader.native_state import Compiled
from hcq.system import native


class Job:
    """Some warps, from `begin` on, up to `end`."""

    def __init__(self, compiled: Compiled, table: Any, sites: Any, begin: int, end: int) -> None:
        self.compiled, self.table, self.sites = compiled, table, sites
        table[PLACES["begin"]], table[PLACES["count"]] = begin, end
        table[accesses.SITES] = sites.ctypes.data

    def run(self, instructions: int) -> int:
        """Run each warp until it has left, or has used so many instructions. Returns what the longest has used."""
        self.table[PLACES["most"]], self.table[PLACES["executed"]] = instructions, 0
        self.compiled.code.run(native.address_of(self.table.data))
        return int(self.table[PLACES["executed"]])


def jobs(compiled: Compiled, table: Any, sites: Any, warps: int, is_whole: bool) -> list[Job]:
    """What a batch is divided into: one job, unless its blocks run long and nobody can see their order.

    is_whole  all threads of the batch begin together
    """
    parts, per_block = threads.count(), int(table[PLACES["perblock"]])
    work = compiled.longest * warps
    if not is_whole or not compiled.facts.spreads or not table[PLACES["meets"]] or work < threads.ALONE:
        parts = 1
    blocks = -(-warps // per_block)
    parts = max(1, min(parts, blocks))
    ends = [min(warps, -(-blocks * number // parts) * per_block) for number in range(parts + 1)]
    found = [Job(compiled, table, sites, ends[0], ends[1])]
    for begin, end in zip(ends[1:], ends[2:]):
        found.append(Job(compiled, table.copy(), np.zeros_like(sites), begin, end))
    return found


def run(found: list[Job], instructions: int) -> int:
    """Run all of them. Returns what the longest warp has used."""
    if len(found) == 1:
        used = found[0].run(instructions)
    else:
        threads.run(found, instructions)
        used = max(int(one.table[PLACES["executed"]]) for one in found)
    compiled = found[0].compiled
    compiled.longest = max(compiled.longest, used)
    return used
