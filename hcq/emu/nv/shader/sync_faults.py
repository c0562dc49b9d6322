"""Barriers and masks that PTX leaves undefined, or that can never be complete.

In       who comes to a barrier or to an instruction of a warp, with what; what waits when nothing can go on
Out      findings, in the Checks of the launch
Changes  itself
Next     sync_steps.py (who tells it), machine.py (the barriers, and when nothing can go on)
Source   PTX ISA, "bar, barrier": all threads of a warp execute an aligned barrier, counts are multiples of 32;
         "shfl.sync" and its sisters, "bar.warp.sync": the executing thread is in the mask, and all that it names
         execute the same instruction with the same mask. Since sm_70 threads that have exited are not waited for
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader.shared_waits import Names
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault, Site

NOT_REACHED, DIVERGENT, COUNT, MASK = (
    "barrier-not-reached",
    "barrier-divergent",
    "barrier-count",
    "mask-names-absent",
)
WARP = 32


class Waiting(NamedTuple):
    """Threads that wait together.

    lane      the first of them
    threads   how many they are
    is_block  it is a barrier of the block that they wait at
    expected  how many threads it waits for; 0: for all
    """

    line: int
    lane: int
    threads: int
    is_block: bool
    expected: int


class SyncFaults:
    """Of the blocks of a batch.

    block, thread  of each lane
    threads        of a block
    is_cuda        `bar.sync` without a count is CUDA's `__syncthreads()`, which a whole block executes at one place; in
                   PTX itself warps may come to a barrier by different instructions
    """

    def __init__(
        self, block: Lanes, thread: Lanes, threads: int, names: Names, checks: Checks, is_cuda: bool = False
    ) -> None:
        self.is_cuda = is_cuda
        self.block, self.thread, self.threads = block, thread, threads
        self.warps = -(-threads // WARP)
        self.names, self.checks = names, checks
        self.expected: dict[
            int, tuple[int, int, int]
        ] = {}  # by barrier: count, line and a lane of who came last
        # warps whose threads went on without each other by a rule of the emulator's scheduler: no fault of the kernel
        self.is_parted = False

    # -- barriers of the block

    def aligned(self, mask: Lanes, here: Lanes, number: int, line: int) -> None:
        """These lanes come to a barrier that all threads of a warp must execute together.

        here  who waits there already
        """
        known = self.expected.get(number)
        if known is None or self.is_parted:
            return
        warp = self.block * self.warps + self.thread // WARP
        size = int(warp[-1]) + 2  # lanes behind a block's last thread are of one more
        twice = (np.bincount(warp[mask], minlength=size) > 0) & (np.bincount(warp[here], minlength=size) > 0)
        if not twice.any():
            return
        which = int(np.argmax(twice))
        sites = (
            self._site("waits", known[1], int(np.argmax(here & (warp == which)))),
            self._site("comes later", line, int(np.argmax(mask & (warp == which)))),
        )
        what = "threads of one warp come apart from each other to an aligned barrier"
        self._add(DIVERGENT, what, sites, "", int(np.count_nonzero(twice)))

    def counted(self, lane: int, number: int, count: int, is_open: bool, line: int, together: int) -> None:
        """A lane and others come to a barrier with a count of threads; 0: none is given.

        is_open   others have come there already, and wait
        together  how many of a block come at once
        """
        site = self._site("gives the count", line, lane)
        largest = self.warps * WARP
        if count % WARP:
            self._add(COUNT, f"barrier {number} waits for {count} threads", (site,), f"no multiple of {WARP}")
        elif count > largest:
            self._add(
                COUNT, f"barrier {number} waits for {count} threads", (site,), f"and a block has {largest}"
            )
        elif 0 < count < together:
            what = f"barrier {number} waits for {count} threads, and {together} come to it together"
            self._add(COUNT, what, (site,), "so which of them meet is left open")
        known = self.expected.get(number)
        if (
            self.is_cuda
            and is_open
            and known is not None
            and known[0] == count == 0
            and known[1] != line
            and not self.is_parted
        ):
            sites = self._site("waits", known[1], known[2]), self._site("comes later", line, lane)
            self._add(
                DIVERGENT, "threads of one block come to a barrier by different instructions", sites, ""
            )
        if is_open and known is not None and known[0] != count:
            before = self._site("gives the count", known[1], known[2])
            of = [str(one) if one else "all" for one in (known[0], count)]
            self._add(
                COUNT, f"barrier {number} waits for {of[0]} threads and for {of[1]}", (before, site), ""
            )
        self.expected[number] = count, line, lane

    # -- warps

    def masked(self, lanes: Lanes, members: Lanes, line: int) -> None:
        """These lanes execute an instruction of a warp. members: the masks, of each lane of the batch or of all."""
        count = len(self.block)
        lanes = lanes[self.thread[lanes] < self.threads]
        masks = np.broadcast_to(members, (count,))[lanes]
        own = (masks >> (lanes % WARP).astype(np.uint32)) & np.uint32(1)
        if not own.all():
            lane = int(lanes[int(np.argmin(own))])
            mask = int(np.broadcast_to(members, (count,))[lane])
            what = f"the mask {mask:#x} leaves out the thread that executes it"
            self._add(
                MASK, what, (self._site("executes it", line, lane),), "", int(np.count_nonzero(own == 0))
            )
            return
        if len(members) == 1:
            return
        # the first thread of each warp that a thread's mask names and that is here has another mask
        table = np.zeros(count, np.uint32)
        table[lanes] = masks
        rows = table.reshape(-1, WARP)
        bits = (rows[:, :, None] >> np.arange(WARP, dtype=np.uint32)) & np.uint32(1)
        differs = (rows[:, None, :] != rows[:, :, None]) & (bits == 1) & (rows[:, None, :] != 0)
        wrong = np.argwhere(differs)
        if len(wrong):
            warp, mine, other = (int(x) for x in wrong[0])
            start = warp * WARP
            what = (
                f"the mask {int(rows[warp, mine]):#x} names a thread whose own is {int(rows[warp, other]):#x}"
            )
            sites = (self._site("executes it", line, start + mine),)
            self._add(MASK, what, sites, f"which is {self.names.thread(start + other)}", len(wrong))

    # -- nothing can go on

    def stuck(self, waiting: list[Waiting]) -> None:
        """These wait, and nobody can let them go."""
        sites = tuple(self._site("waits", one.line, one.lane) for one in waiting[:4])
        rule, what, first = MASK, "a mask that names threads which never come", waiting[0]
        if all(one.is_block for one in waiting):  # else those at a barrier may be whom a mask waits for
            rule, what = NOT_REACHED, "a barrier that not all threads reach"
            if len(waiting) == 1 and first.expected:
                what = f"a barrier that waits for {first.expected} threads, of which {first.threads} come"
        self._add(rule, what, sites, "and no thread can go on")

    def endless(self, lane: int, line: int, found: str) -> None:
        """A lane and others ask for a phase of an mbarrier that nobody is left to end. found: what they see."""
        what = "a phase of an mbarrier that nobody completes"
        self._add(NOT_REACHED, what, (self._site("waits", line, lane),), f"while {found.rstrip('.')}")

    def _site(self, verb: str, line: int, lane: int) -> Site:
        return Site(verb, self.names.text(line), line, self.names.thread(lane))

    def _add(self, rule: str, what: str, sites: tuple[Site, ...], why: str, times: int = 1) -> None:
        fault = KernelFault(rule, what, "", 0, sites, why)
        self.checks.add((rule, what, *(site.place for site in sites)), times, partial(_known, fault))


def _known(fault: KernelFault) -> KernelFault:
    return fault
