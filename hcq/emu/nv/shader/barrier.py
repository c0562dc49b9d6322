"""A barrier of a block: who has come to it, and in which blocks it opens.

In       threads that arrive, as counts and masks
Out      the blocks in which enough have
Changes  itself
Next     machine.py (who waits at it, and goes on), meetings.py (what a meeting orders)
Source   PTX ISA, "bar, barrier": arrivals are counted by warps
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.split_barriers import SplitBarrier


class Barrier:
    """One barrier number, in all blocks of the batch: who has arrived, how many, and how they voted."""

    def __init__(self, lanes: int, blocks: int) -> None:
        self.here = np.zeros(lanes, bool)
        self.split: SplitBarrier | None = None  # where races are looked for: once somebody has gone on
        self.arrived = np.zeros(blocks, np.int64)
        self.true = np.zeros(blocks, np.int64)
        self.last_arrived = np.zeros(blocks, np.int64)
        self.last_true = np.zeros(blocks, np.int64)

    def complete(self, least: Lanes | int) -> Lanes:
        """The blocks in which so many threads have arrived. There it begins anew, and has the votes of these."""
        complete: Lanes = (self.arrived >= least) & (self.arrived > 0)
        self.last_arrived[complete] = self.arrived[complete]
        self.last_true[complete] = self.true[complete]
        self.arrived[complete] = 0
        self.true[complete] = 0
        return complete

    def not_there(self, batch: Batch, live: Lanes, live_count: int) -> Lanes | int:
        """How many count as arrived in each block without being there. A warp whose threads have all arrived counts as
        32, also if some have ended, or it never had as many.

        live  which threads have not ended; live_count: how many
        """
        warps = -(-batch.threads_per_block // WARP)
        count = warps * len(batch.blocks)
        if live_count == count * WARP:
            return 0
        number = batch.block_of_lane * warps + np.minimum(batch.thread_of_lane // WARP, warps - 1)
        here = np.bincount(number[self.here], minlength=count)
        living = np.bincount(number[live & ~self.here], minlength=count)
        missing: Lanes = np.where((here > 0) & (living == 0), WARP - here, 0).reshape(-1, warps).sum(axis=1)
        return missing
