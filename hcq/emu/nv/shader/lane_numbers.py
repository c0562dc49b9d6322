"""Numbers of lanes: of which block and warp each lane of a batch is; batches of one form share them.

In       threads of a block, how many blocks, whether lanes are whole warps
Out      LaneNumbers: arrays that nobody may write to
Changes  what is remembered
Next     batch.py (who asks)
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hcq.emu.nv.shader.types import Lanes

WARP = 32
WARPGROUP = 128
MOST_SHARED = 1 << 17  # lanes of a form that is remembered
MOST_FORMS = 32


class LaneNumbers:
    """The lanes of a batch of one form. width: lanes of a block; live: those that are threads."""

    def __init__(self, threads: int, blocks: int, in_warps: bool) -> None:
        width = self.width = -(-threads // WARP) * WARP if in_warps else threads
        count = self.count = width * blocks
        self.every_lane = np.arange(count)
        self.block_of_lane = np.repeat(np.arange(blocks), width)
        self.thread_of_lane = np.tile(np.arange(width), blocks)
        self.all_lanes = np.ones(count, bool)
        self.live = self.all_lanes if width == threads else self.thread_of_lane < threads
        self.lane_in_warp: Any = None
        self.warp_start: Any = None
        self.full_warps: Any = None
        self.warpgroup_of_lane: Any = None
        if in_warps:
            self.lane_in_warp = self.every_lane & WARP - 1
            self.warp_start = self.every_lane - self.lane_in_warp
            self.full_warps = np.full(count, 0xFFFFFFFF, np.uint32)
            self.warpgroup_of_lane = (
                self.block_of_lane * -(-width // WARPGROUP) + self.thread_of_lane // WARPGROUP
            )
        self._starts: tuple[int, Lanes] = (-1, self.every_lane)
        for array in (value for value in vars(self).values() if isinstance(value, np.ndarray)):
            array.flags.writeable = False

    def starts(self, stride: int) -> Lanes:
        """Where the memory of each lane's block begins, so many bytes a block."""
        if self._starts[0] != stride:
            found = self.block_of_lane * stride
            found.flags.writeable = False
            self._starts = stride, found
        return self._starts[1]


_remembered = functools.lru_cache(MOST_FORMS)(LaneNumbers)


def of_form(threads: int, blocks: int, in_warps: bool) -> LaneNumbers:
    """Those of a form; large ones are made each time."""
    make = _remembered if threads * blocks <= MOST_SHARED else LaneNumbers
    return make(threads, blocks, in_warps)
