"""Races of volatile accesses in shared memory, between threads of one warp that are not in lock step.

In       volatile loads and stores, as the blocks that run together make them
Out      a fault in Checks for each pair of instructions, as of other races
Changes  itself; no register, no memory
Next     shared_races.py (all other accesses), ../nv/shader/race_steps.py (who tells)
Source   PTX ISA, "Memory Consistency Model" (a volatile access is a strong one, which orders nothing); CUDA C++
         Programming Guide, "Independent Thread Scheduling" (code that takes a warp for synchronous is wrong)

Between warps two volatile accesses are two strong ones, as a flag needs that is polled: no race. Between threads of a
warp they are what was written when warps were in lock step, and what has to have a __syncwarp() now.
"""

from __future__ import annotations

import numpy as np

from hcq.emu.shader.shared_races import Array, SharedRaces, _Marks


class VolatileRaces:
    """Those of the shared memory that `shared` is told of."""

    def __init__(self, shared: SharedRaces) -> None:
        self.shared = shared
        self.unit = shared.unit
        cells = len(shared.writer)
        self.reads, self.writes = _Marks(cells, shared.warps), _Marks(cells, shared.warps)

    def access(
        self, kind: str, warps: Array, lanes: Array, addresses: Array, size_bytes: int, place: int
    ) -> None:
        """A volatile instruction of these lanes, which the SharedRaces were told of before."""
        shared = self.shared
        if self.unit != shared.unit:
            for marks in (self.reads, self.writes):
                marks.split(self.unit // shared.unit)
            self.unit = shared.unit
        addresses = addresses.astype(np.int64)
        inside = addresses + size_bytes <= shared.shared_bytes
        warps, lanes, addresses = warps[inside], lanes[inside], addresses[inside]
        count = size_bytes // self.unit
        first = warps // shared.warps * shared.stride + addresses // self.unit
        cells = (first[:, None] + np.arange(count)).reshape(-1)
        warps, lanes = np.repeat(warps, count), np.repeat(lanes, count)
        own, clocks, site = warps % shared.warps, shared.order.clock[warps], shared._site(place, kind)
        for marks in (self.writes, self.reads) if kind == "store" else (self.writes,):
            theirs = marks.clock[cells, own], marks.lane[cells, own], marks.site[cells, own]
            which = np.flatnonzero((theirs[0] > 0) & (theirs[1] != lanes))
            shared._look_at_threads(
                site, cells[which], warps[which], lanes[which], *(one[which] for one in theirs)
            )
        shared._put(self.writes if kind == "store" else self.reads, site, cells, warps, own, lanes, clocks)
