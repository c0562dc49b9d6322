"""Accesses beyond what a launch has, in LDS and behind buffers: which instructions made some, and who first.

In       what LDS instructions find outside while a launch runs; stores to memory, and where that is nobody's
Out      Stray, one for each instruction; Guarded: memory that finds stores to what is nobody's
Changes  itself
Next     lds_ops.py (who adds), ../launch.py (who tells), hcq/events/stray_accesses.py (the record)

Hardware reads zeros there and drops what is stored; so does lds_ops.py, whether anybody wants to know or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.memory import Memory
from hcq.emu.shader.unowned_memory import Gaps
from hcq.events.stray_accesses import Stray

MAX_STRAYS = 100  # instructions


class Strays:
    """Those of one launch. `now`: the instruction that runs: its address and its text; a machine sets it."""

    def __init__(self, entry: int, limit: int) -> None:
        self.entry, self.limit = entry, limit
        self.now: Callable[[], tuple[int, str]] = lambda: (0, "")
        self.found: dict[int, Stray] = {}

    def add(
        self,
        addresses: Array,
        inside: Array,
        size_bytes: int,
        who: Callable[[int], str],
        limit: int | None = None,
    ) -> None:
        """Some lanes are not inside. who: a lane's name by its place among them; limit: else that of LDS."""
        pc, text = self.now()
        outside = np.nonzero(~inside)[0]
        known = self.found.get(pc)
        if known is not None:
            self.found[pc] = known._replace(times=known.times + len(outside))
        elif len(self.found) < MAX_STRAYS:
            first = int(outside[0])
            at = int(addresses[first])
            limit = self.limit if limit is None else limit
            self.found[pc] = Stray(self.entry, text, pc, at, size_bytes, limit, who(first), len(outside))


class Guarded:
    """Memory as it is, whose stores and atomics are looked at first."""

    def __init__(self, memory: Memory, gaps: Gaps, strays: Strays) -> None:
        self.memory, self.gaps, self.strays = memory, gaps, strays
        self.gather, self.gather_bytes = memory.gather, memory.gather_bytes
        self.read, self.acquire = memory.read, memory.acquire

    def scatter(self, addresses: Array, data: Array) -> None:
        """As Memory.scatter."""
        self._look(addresses, 4 * len(data))
        self.memory.scatter(addresses, data)

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        """As Memory.scatter_bytes."""
        self._look(addresses, size_bytes)
        self.memory.scatter_bytes(addresses, data, size_bytes)

    def update(self, addresses: Array, dtype: Any, change: Callable[[Array], Array]) -> Array:
        """As Memory.update."""
        self._look(addresses, np.dtype(dtype).itemsize)
        return self.memory.update(addresses, dtype, change)

    def _look(self, addresses: Array, size_bytes: int) -> None:
        outside = self.gaps.reached(addresses, size_bytes)
        if outside.any():
            self.strays.add(addresses, ~outside, size_bytes, lambda number: "", limit=-1)
