"""Waves that are resident together: which workgroup each belongs to, their LDS and scratch, and who is at a barrier.

In       a Launch, the workgroups that run together, memory as their instructions see it
Out      Residents
Changes  itself: LDS, scratch, and the barriers of its workgroups
Next     waves.py (the registers of these waves), machine.py (runs them), wave_start.py (Launch and WorkItems),
         arrivals.py (loads into LDS that are under way)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.arrivals import Arrivals
from hcq.emu.amd.shader.lds_waits import LdsWaits
from hcq.emu.amd.shader.memory import Bytes, Memory
from hcq.emu.amd.shader.register_waits import RegisterWaits
from hcq.emu.amd.shader.strays import Strays
from hcq.emu.amd.shader.wave_start import Launch, WorkItems
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.memory_checks import MemoryChecks
from hcq.emu.shader.races import Races
from hcq.emu.shader.split_barriers import SplitBarrier
from hcq.emu.shader.traffic import Tally

GLOBAL_BARRIERS = 64


@dataclass
class Barrier:
    """A barrier of global wave sync. `turn` changes whenever all are released."""

    left: int = 0
    turn: int = 0
    here: int = 0  # where races matter, the record (hcq/emu/shader/order.py) of those who wait,
    gone: int = 0  # and of those who were released last
    records: object = None  # of which launch


@dataclass
class GlobalSync:
    """Global wave sync of a process on a GPU: counters that live longer than a dispatch."""

    barriers: dict[int, Barrier] = field(default_factory=dict)

    def of(self, number: int) -> Barrier:
        """A barrier by its number."""
        return self.barriers.setdefault(number % GLOBAL_BARRIERS, Barrier())


class Residents:
    """The waves that are resident together, with their LDS and scratch."""

    def __init__(
        self,
        launch: Launch,
        items: WorkItems,
        groups: Array,
        memory: Memory,
        scalar_memory: Memory,
        flat_scratch: int,
        sync: GlobalSync | None = None,
        tally: Tally | None = None,
        strays: Strays | None = None,
    ) -> None:
        self.strays = strays  # what is found outside of LDS, where somebody wants to know
        self.split: SplitBarrier | None = None  # of waves that do not wait where they arrive, and the same
        self.races: Races | None = None  # what is known of accesses to memory, where somebody wants to know
        self.unwritten: Any = None  # shadows.Unwritten, where somebody wants to know what nobody wrote
        self.watch: MemoryChecks | None = (
            None  # who looks at accesses to memory, where somebody wants to know
        )
        self.waits: RegisterWaits | None = None  # what loads have yet to fill, where somebody wants to know
        self.lds_waits: LdsWaits | None = None  # what is under way to LDS, likewise
        self.barrier_checks: Checks | None = None  # who hears of barriers that nobody can open
        self.skipped: Any = (
            None  # barrier_steps.Skipped, where somebody wants to know who was not at a barrier
        )
        self.tally = tally  # what the launch has done so far, of a program that counts
        self.sync = sync or GlobalSync()
        self.memory, self.scalar_memory = memory, scalar_memory
        self.flat_scratch = flat_scratch
        self.wave_size = launch.wave_size
        self.items, self.launch = items, launch
        waves_per_group = items.waves_per_group(launch.wave_size)
        group_ids, places, active = items.waves(groups, launch.wave_size)
        self.group_of = group_ids  # index among the resident groups
        self.group_ids = groups[group_ids]  # index in the grid
        self.place_in_group = places
        self.lds_size = launch.lds_bytes
        self.lds_stride = -(-max(launch.lds_bytes, 4) // 16) * 16
        self.lds = Bytes.zeros(len(groups) * self.lds_stride)
        self.arrivals = Arrivals(self.lds, len(group_ids))
        self.scratch_size = 0 if self.flat_scratch else -(-launch.scratch_bytes // 4) * 4
        self.scratch = Bytes.zeros(max(4, len(group_ids) * self.scratch_size * self.wave_size))
        self.alive = np.bincount(self.group_of, minlength=len(groups))
        self.arrived = np.zeros(len(groups), np.int64)  # waves at the barrier
        self.phase = np.zeros(len(groups), np.int64)  # how often all have been there
        self.arrived_in = np.zeros(len(group_ids), np.int64)  # the phase in which a wave came last
        self.waits_in = np.full(len(group_ids), -1, np.int64)  # of a barrier of global wave sync: the turn
        self.waves_per_group = waves_per_group
        self.number_of = group_ids * waves_per_group + places  # of a wave: workgroups at the edges lack some
        self.stores = np.zeros(len(group_ids), np.bool_)  # whether some are under way, and the same
        self.written_back = np.zeros(
            len(group_ids), np.bool_
        )  # the L2, since the last wait, where races matter
        self.start_lanes = active

    def arrive(self, waves: Array) -> Array:
        """These waves come to the barrier. Returns (wave,) booleans: the first one of its workgroup there."""
        groups = self.group_of[waves]
        _, position = np.unique(groups, return_index=True)
        first = np.zeros(len(waves), np.bool_)
        first[position] = self.arrived[groups[position]] == 0
        self.arrived_in[waves] = self.phase[groups]
        if self.lds_waits is not None:
            self.lds_waits.arrive(waves)
        np.add.at(self.arrived, groups, 1)
        self.complete()
        return first

    def go_on(self, waves: Array) -> None:
        """These waves come to the barrier, and do not wait there now."""
        if self.races is not None:
            self.split = self.split or SplitBarrier(self.races.order)
            self.split.leave(self.number_of[waves])

    def come_back(self, waves: Array) -> None:
        """These waves have waited for it."""
        if self.split is not None:
            self.split.come_back(self.number_of[waves])

    def complete(self) -> None:
        """Where all waves that have not ended are at the barrier, it opens."""
        opens = (self.arrived == self.alive) & (self.arrived > 0)
        if self.races is not None and opens.any():
            came = self.arrived_in == self.phase[self.group_of]
            met = self.number_of[came & opens[self.group_of]]
            (self.races.order.barrier if self.split is None else self.split.open)(met)
        self.phase[opens] += 1
        self.arrived[opens] = 0

    def name_of(self, wave: int, lane: int) -> str:
        """A lane as the kernel's author knows it."""
        return self.items.name_of(
            int(self.group_ids[wave]), int(self.place_in_group[wave]) * self.wave_size + lane
        )
