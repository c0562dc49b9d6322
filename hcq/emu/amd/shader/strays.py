"""LDS accesses beyond what a workgroup has: which instructions made some, and who first.

In       what LDS instructions find outside while a launch runs
Out      Stray, one for each instruction
Changes  itself
Next     lds_ops.py (who adds), ../launch.py (who tells), hcq/strays.py (the record)

Hardware reads zeros there and drops what is stored; so does lds_ops.py, whether anybody wants to know or not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.strays import Stray

MAX_STRAYS = 100  # instructions


class Strays:
    """Those of one launch. `now`: the instruction that runs: its address and its text; a machine sets it."""

    def __init__(self, entry: int, limit: int) -> None:
        self.entry, self.limit = entry, limit
        self.now: Callable[[], tuple[int, str]] = lambda: (0, "")
        self.found: dict[int, Stray] = {}

    def add(self, addresses: Array, inside: Array, size_bytes: int, who: Callable[[int], str]) -> None:
        """Some lanes are not inside. who: a lane's name by its place among them."""
        pc, text = self.now()
        outside = np.nonzero(~inside)[0]
        known = self.found.get(pc)
        if known is not None:
            self.found[pc] = known._replace(count=known.count + len(outside))
        elif len(self.found) < MAX_STRAYS:
            first = int(outside[0])
            at = int(addresses[first])
            made = Stray(self.entry, text, pc, at, size_bytes, self.limit, who(first), len(outside))
            self.found[pc] = made
