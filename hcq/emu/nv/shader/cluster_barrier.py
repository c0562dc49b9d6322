"""The barrier of a cluster, in two halves: threads arrive, and later wait until all of their cluster have arrived.

In       threads that arrive, threads that wait; which have not ended
Out      whether those who wait may go on
Changes  itself; paths of the machine
Next     control.py (barrier.cluster), machine.py (who parks threads and lets them go), clusters.py
Source   PTX ISA, "barrier.cluster": threads that have exited count as arrived; each arrives once before it waits
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.clusters import exits_of
from hcq.emu.nv.shader.errors import KernelFault
from hcq.emu.nv.shader.meetings import cluster_met, cluster_waited, gone_on
from hcq.emu.nv.shader.paths import Path
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.split_barriers import SplitBarrier

WAITS = "cluster barrier"
NEVER = -1


class Owner(Protocol):
    """What it needs of a machine."""

    batch: Batch
    kernel_name: str
    live: Lanes
    waiting: list[Path]

    def park(self, path: Path, why: str, line: int) -> None:
        """A path waits."""
        ...

    def let_go(self, path: Path, free: Lanes) -> None:
        """Some of a waiting path's threads may go on."""
        ...


class ClusterBarrier:
    """Of all clusters of a batch: which phase each is in, and in which phase each thread arrived."""

    def __init__(self, batch: Batch) -> None:
        size = 1 if batch.clusters is None else batch.clusters.size
        self.cluster = batch.block_of_lane // size
        self.phase = np.zeros(len(batch.blocks) // size, np.int64)
        self.arrived = np.zeros(batch.count, bool)
        self.split: SplitBarrier | None = None  # where races are looked for
        self.since = np.full(batch.count, NEVER, np.int64)  # NEVER: not since its last wait

    def arrive(self, machine: Owner, path: Path, line: int) -> None:
        """The threads of a path arrive, and do not wait."""
        mask = path.full_mask
        self._refuse(machine, mask & (self.since != NEVER), line, "arrives twice with no wait between")
        self.since[mask] = self.phase[self.cluster[mask]]
        self.arrived |= mask
        self.split = gone_on(machine.batch, self.split, mask)
        if (exits := exits_of(machine.batch)) is not None:
            exits.arrive(np.flatnonzero(mask))
        self.check(machine)

    def wait(self, machine: Owner, path: Path, after: int, line: int) -> bool:
        """The threads of a path wait; whether they need not, for all have arrived."""
        mask = path.full_mask
        self._refuse(machine, mask & (self.since == NEVER), line, "waits and has not arrived before")
        over = self._over()
        if bool(over[mask].all()):
            self._go_on(machine, mask)
            return True
        path.pc, path.free = after, np.zeros(len(mask), bool)
        machine.park(path, WAITS, line)
        self._let_go(machine, path, over)
        return False

    def check(self, machine: Owner) -> None:
        """Threads have arrived, or ended: where all of a cluster have, a phase is over."""
        count = len(self.phase)
        missing = np.bincount(self.cluster[machine.live & ~self.arrived], minlength=count)
        here = np.bincount(self.cluster[self.arrived], minlength=count)
        done = (here > 0) & (missing == 0)
        if not done.any():
            return
        met = self.arrived & done[self.cluster]
        cluster_met(machine.batch, met, self.split)
        if (exits := exits_of(machine.batch)) is not None:
            exits.met(np.flatnonzero(met))
        self.phase[done] += 1
        self.arrived &= ~met
        over = self._over()
        for path in [path for path in machine.waiting if path.waits_for == WAITS]:
            self._let_go(machine, path, over)

    def _over(self) -> Lanes:
        return self.phase[self.cluster] > self.since

    def _let_go(self, machine: Owner, path: Path, over: Lanes) -> None:
        free = over & path.full_mask & (self.since != NEVER)
        self._go_on(machine, free)
        machine.let_go(path, free)

    def _go_on(self, machine: Owner, free: Lanes) -> None:
        self.since[free] = NEVER
        cluster_waited(machine.batch, free, self.split)
        if (exits := exits_of(machine.batch)) is not None:
            exits.waited(np.flatnonzero(free))

    def _refuse(self, machine: Owner, wrong: Lanes, line: int, why: str) -> None:
        if not wrong.any():
            return
        block, thread = machine.batch.place(int(np.argmax(wrong)))
        raise KernelFault(
            f"kernel {machine.kernel_name}, PTX line {line}: thread {thread} of block {block} {why} at the barrier "
            "of its cluster.",
            line,
            [(block, thread)],
        )
