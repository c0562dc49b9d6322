"""Who executes an instruction: a group of threads of a batch; and what the warps of its threads look like.

In       masks over the lanes of a batch
Out      Group; bits of warps: which threads live, vote, execute
Changes  nothing by themselves
Next     decode.py (steps ask a group who executes), paths.py (a group with a place in the program)
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.errors import BadAccess, KernelFault, MisalignedAccess, PageFault
from hcq.emu.nv.shader.syntax import Instruction
from hcq.emu.nv.shader.types import Lanes


class Group:
    """Threads that execute together. mask: which (None: all of the batch); count: how many.

    is_whole   no other thread needs the registers: results need not be mixed with old values
    """

    __slots__ = ("batch", "mask", "count", "is_whole", "_lanes")

    def __init__(self, batch: Batch, mask: Lanes | None, count: int) -> None:
        self.batch = batch
        self.mask = mask
        self.count = count
        self.is_whole = False
        self._lanes: Lanes | None = None

    @property
    def lanes(self) -> Lanes | None:
        """The numbers of the threads; None for all."""
        if self.mask is None:
            return None
        if self._lanes is None:
            self._lanes = np.flatnonzero(self.mask)
        return self._lanes

    @property
    def full_mask(self) -> Lanes:
        """The mask, one bool for each thread of the batch."""
        return self.batch.all_lanes if self.mask is None else self.mask

    def set_mask(self, mask: Lanes, count: int) -> None:
        """From now on these are the threads."""
        self.mask, self.count, self._lanes = mask, count, None

    def first(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """(block, thread) of the first of the threads."""
        return self.batch.place(int(np.argmax(self.full_mask)))

    def per_block(self, truth: Lanes | None = None) -> Lanes:
        """How many of the threads are in each block of the batch; of those where `truth` holds, if given."""
        mask = self.full_mask if truth is None else self.full_mask & truth
        return np.bincount(self.batch.block_of_lane[mask], minlength=len(self.batch.blocks))

    def fault(self, bad: BadAccess, instruction: Instruction, what: str, lanes: Lanes | None) -> KernelFault:
        """The report of a refused access. lanes: the threads that made it, in the order of their addresses."""
        batch = self.batch
        if lanes is None:
            lanes = self.lanes if self.lanes is not None else batch.every_lane
        block, thread = batch.place(int(lanes[min(bad.index, len(lanes) - 1)]))
        kind = MisalignedAccess if bad.misaligned else PageFault
        error = kind(
            f"kernel {batch.launch.kernel_name}, PTX line {instruction.line} `{instruction}`: {what} at"
            f" {bad.address:#x} by thread {thread} of block {block}: {bad.why}.",
            instruction.line,
            [(block, thread)],
        )
        error.address, error.space = bad.address, bad.space
        error.access, _, size = what.partition(" of ")
        error.size_bytes = int(size.split()[0]) if size[:1].isdigit() else 0
        return error


# -- warps


def by_warp(values: Lanes, batch: Batch) -> Lanes:
    """(warps, 32)"""
    return np.broadcast_to(values, (batch.count,)).reshape(-1, WARP)


def ballots(truth: Lanes, batch: Batch) -> Lanes:
    """For every thread the 32 bits of its warp's truth values."""
    packed = np.packbits(by_warp(truth, batch), axis=1, bitorder="little")
    return np.repeat(packed.view(np.uint32).reshape(-1), WARP)


def active_bits(group: Group) -> Lanes:
    """For every thread which threads of its warp execute."""
    return group.batch.full_warps if group.mask is None else ballots(group.mask, group.batch)
