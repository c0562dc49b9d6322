"""Blocks that end while others of their cluster may still access their shared memory, where that is looked for.

In       accesses to other blocks' shared memory, what orders blocks, blocks that end
Out      findings, in the Checks of the launch
Changes  itself
Next     clusters.py (accesses, ends), cluster_barrier.py and sync_steps.py (what orders), sync_faults.py (the sister)
Source   CUDA C++ Programming Guide, "Distributed Shared Memory": accesses require that the block exists; PTX ISA,
         "Memory Consistency Model". Clocks as in hcq/emu/shader/order.py, here of blocks, not of warps

Each block has a clock, and knows that of each block of its cluster when something last ordered the two: a barrier of
the cluster, an mbarrier, fences, accesses with .acquire or .release. What the threads of a block do counts as done by
one thread, and all fences meet at one place: nothing is found that is no fault, and some faults are not found.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from hcq.emu.nv.shader.shared_waits import Names
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault, Site

RULE = "cluster-left"
ANYWHERE = -1  # the place where fences meet
WHAT = "an access to the shared memory of a block that may have ended"


class ClusterExits:
    """Of the clusters of a batch. block: of each lane; size: blocks of a cluster."""

    def __init__(self, block: Lanes, size: int, names: Names, checks: Checks) -> None:
        blocks = int(block[-1]) + 1
        self.block, self.size, self.names, self.checks = block, size, names, checks
        self.line = 0  # of the instruction that runs
        self.clock = np.ones(blocks, np.int64)
        self.known = np.zeros((blocks, size), np.int64)  # by each block, of each rank
        # of each block's shared memory, by each rank: when it was accessed last, where, by which lane
        self.accessed = np.zeros((blocks, size), np.int64)
        self.site = np.zeros((blocks, size), np.int64)
        self.lane = np.zeros((blocks, size), np.int64)
        self.told: dict[tuple[int, int], Lanes] = {}  # (cluster, place): what whoever waits there learns
        # what the barrier of a cluster tells: those who have arrived, and once all have, those who wait
        self.arrived, self.over = (np.zeros((blocks // size, size), np.int64) for _ in range(2))

    def access(self, lanes: Lanes, owners: Lanes) -> None:
        """These lanes access the shared memory of these blocks."""
        mine = self.block[lanes]
        others = np.flatnonzero(mine != owners)
        if len(others):
            owner, rank = owners[others], mine[others] % self.size
            self.accessed[owner, rank] = self.clock[mine[others]]
            self.site[owner, rank], self.lane[owner, rank] = self.line, lanes[others]

    def gone(self, lane: int, owner: int) -> None:
        """A lane accesses the shared memory of a block that has ended."""
        self._tell(self.line, lane, owner, "has ended")

    def left(self, blocks: Lanes) -> None:
        """These blocks end."""
        for owner, rank in np.argwhere(self.accessed[blocks] > self.known[blocks]).tolist():
            block = int(blocks[owner])
            site, lane = int(self.site[block, rank]), int(self.lane[block, rank])
            self._tell(site, lane, block, "does not wait for it before it ends")

    # -- what orders

    def arrive(self, lanes: Lanes) -> None:
        """Threads arrive at the barrier of their cluster."""
        for block in np.unique(self.block[lanes]).tolist():
            row = self.arrived[block // self.size]
            np.maximum(row, self._makes_known(block), out=row)

    def met(self, lanes: Lanes) -> None:
        """All threads of the clusters of these have arrived there."""
        clusters = np.unique(self.block[lanes] // self.size)
        self.over[clusters] = self.arrived[clusters]

    def waited(self, lanes: Lanes) -> None:
        """These have waited for that."""
        for block in np.unique(self.block[lanes]).tolist():
            self.known[block] = np.maximum(self.known[block], self.over[block // self.size])

    def release(self, lanes: Lanes, places: Lanes) -> None:
        """These lanes make known, at a place each, what their blocks have done."""
        for block, place in set(zip(self.block[lanes].tolist(), places.tolist())):
            key = block // self.size, place
            self.told[key] = np.maximum(self.told.get(key, 0), self._makes_known(block))

    def acquire(self, lanes: Lanes, places: Lanes) -> None:
        """These lanes learn, at a place each, what others have made known there."""
        for block, place in set(zip(self.block[lanes].tolist(), places.tolist())):
            row = self.told.get((block // self.size, place))
            if row is not None:
                self.known[block] = np.maximum(self.known[block], row)

    def fence(self, lanes: Lanes) -> None:
        """These lanes have a fence, or an access that acquires or releases."""
        places = np.full(len(lanes), ANYWHERE)
        self.acquire(lanes, places)  # not from those that have theirs at the same time
        self.release(lanes, places)

    def _makes_known(self, block: int) -> Lanes:
        row: Lanes = self.known[block].copy()
        row[block % self.size] = self.clock[block]
        self.clock[block] += 1
        return row

    def _tell(self, line: int, lane: int, owner: int, why: str) -> None:
        text = self.names.text(line)
        site = Site("accesses it", text, line, self.names.thread(lane))
        of = self.names.thread(int(np.argmax(self.block == owner))).rpartition(" of ")[2]
        fault = KernelFault(RULE, WHAT, "", 0, (site,), f"{of} {why}")
        self.checks.add((RULE, line, why), 1, partial(_known, fault))


def _known(fault: KernelFault) -> KernelFault:
    return fault
