"""Dispatches: workgroups become waves, waves become batches, batches run blocks until every wave has ended.

In       a Machine (instruction set, memory), a Launch (what the kernel's registers start as), grid and block sizes
Out      Report: instructions and lanes executed; or a ShaderFault
Changes  memory, as the kernel does
Next     program.py (blocks), waves.py (batches), wave_start.py (a Launch from descriptors and register values)

Waves at one program counter run as one batch. A branch that waves disagree on splits their batch; the batch with the
lowest address runs first, so that those ahead wait at the meeting point and are joined there. A batch that has waited
long gets a turn, so that a wave spinning on another's store does not spin for ever. What never ends runs out of budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hcq.emu.amd.shader.errors import IllegalOperation, OutOfBudget
from hcq.emu.amd.shader.isa import Isa
from hcq.emu.amd.shader.memory import Memory, aligned_words
from hcq.emu.amd.shader.program import Block, Program
from hcq.emu.amd.shader.wave_start import Launch, WorkItems
from hcq.emu.amd.shader.waves import Array, Batch, pack_lanes
from hcq.errors import UsageError

LDS_LIMIT = 65536
LANES_AT_ONCE = 16384  # lanes that are resident together: enough to hide Python, few enough for the caches
PATIENCE = 256  # blocks that others may run while a batch that could run waits
MAX_INSTRUCTIONS = 1 << 16  # of all programs that are kept decoded
DEFAULT_BUDGET = 1 << 34  # instructions times waves


@dataclass
class Report:
    """What a dispatch did."""

    waves: int = 0
    instructions: int = 0  # instructions times waves that ran them
    lane_instructions: int = 0  # the same, times the lanes of a wave
    batches: int = 0  # blocks run; few of them for many instructions means that waves stayed together


@dataclass
class Machine:
    """A GPU's shader cores: an instruction set, an address space, and programs already decoded."""

    isa: Isa
    memory: Memory  # as vector instructions see it
    lds_limit: int = LDS_LIMIT
    programs: dict[tuple[int, int, int], Program] = field(default_factory=dict)
    scalar: Memory | None = None  # as scalar instructions see it; None: the same
    code: Memory | None = None  # as instructions are fetched

    def program(self, entry: int, wave_size: int, acc_offset: int) -> Program:
        """The program at an address; decoded again when its bytes have changed."""
        key = (entry, wave_size, acc_offset)
        known = self.programs.pop(key, None)
        if known is None or not known.unchanged():
            known = Program(self.isa, self.code or self.memory, entry, wave_size, acc_offset)
            room = MAX_INSTRUCTIONS - len(known.instructions)
            held = sum(len(program.instructions) for program in self.programs.values())
            while self.programs and held > room:  # the one that ran longest ago stands first
                held -= len(self.programs.pop(next(iter(self.programs))).instructions)
        self.programs[key] = known
        return known


class Residents:
    """The waves that are resident together, with their LDS and scratch."""

    def __init__(self, machine: Machine, launch: Launch, items: WorkItems, groups: Array) -> None:
        self.memory = machine.memory
        self.scalar_memory = machine.scalar or machine.memory
        self.scratch_in_memory = machine.isa.scratch_in_memory
        self.wave_size = launch.wave_size
        self.items, self.launch = items, launch
        waves_per_group = items.waves_per_group(launch.wave_size)
        group_ids, places, active = items.waves(groups, launch.wave_size)
        self.group_of = group_ids  # index among the resident groups
        self.group_ids = groups[group_ids]  # index in the grid
        self.place_in_group = places
        self.lds_size = launch.lds_bytes
        self.lds_stride = -(-max(launch.lds_bytes, 4) // 16) * 16
        self.lds_bytes = np.zeros(len(groups) * self.lds_stride, np.uint8)
        words = aligned_words(0, self.lds_bytes)
        assert words is not None
        self.lds_words: Array = words
        self.scratch_size = 0 if self.scratch_in_memory else -(-launch.scratch_bytes // 4) * 4
        self.scratch_bytes = np.zeros(max(4, len(group_ids) * self.scratch_size * self.wave_size), np.uint8)
        words = aligned_words(0, self.scratch_bytes)
        assert words is not None
        self.scratch_words: Array = words
        self.alive = np.bincount(self.group_of, minlength=len(groups))
        self.arrived = np.zeros(len(groups), np.int64)  # waves at the barrier
        self.phase = np.zeros(len(groups), np.int64)  # how often all have been there
        self.arrived_in = np.zeros(len(group_ids), np.int64)  # the phase in which a wave came last
        self.waves_per_group = waves_per_group
        self.start_lanes = active

    def first_batch(self, machine: Machine) -> Batch:
        launch, waves = self.launch, len(self.group_of)
        s = np.zeros((waves, 128), np.uint32)
        launch.set_scalars(s, self.items.group_coordinates(self.group_ids), self.place_in_group)
        s[:, 126 : 126 + self.wave_size // 32] = pack_lanes(self.start_lanes)
        v = np.zeros((launch.vgprs, waves, self.wave_size), np.uint32)
        v[0] = self.items.packed_ids(
            self.group_ids, self.place_in_group, self.wave_size, launch.id_dimensions
        )
        return Batch(self, launch.entry, launch.mode, np.arange(waves), v, s, np.zeros(waves, np.bool_))

    def arrive(self, b: Batch) -> Array:
        """The waves of a batch come to the barrier. Returns (wave,) booleans: the first one of its workgroup there."""
        groups = b.groups
        _, position = np.unique(groups, return_index=True)
        first = np.zeros(b.waves, np.bool_)
        first[position] = self.arrived[groups[position]] == 0
        self.arrived_in[b.ids] = self.phase[groups]
        np.add.at(self.arrived, groups, 1)
        self.complete()
        return first

    def complete(self) -> None:
        """Where all waves that have not ended are at the barrier, it opens."""
        opens = (self.arrived == self.alive) & (self.arrived > 0)
        self.phase[opens] += 1
        self.arrived[opens] = 0

    def name_of(self, wave: int, lane: int) -> str:
        """A lane as the kernel's author knows it."""
        group = self.items.group_coordinates(self.group_ids[wave : wave + 1])[0]
        linear = int(self.place_in_group[wave]) * self.wave_size + lane
        item = self.items.coordinates_in_block(linear)
        return f"workgroup {tuple(int(x) for x in group)}, work-item {item}"


def run_dispatch(
    machine: Machine,
    launch: Launch,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    *,
    items: tuple[int, int, int] | None = None,
    budget: int = DEFAULT_BUDGET,
    deadline_s: float | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Report:
    """Run a kernel to its end.

    grid, block   workgroups, and work-items per workgroup, as (x, y, z)
    items         work-items in all, when the last workgroups are partial; grid * block without it
    budget        how many instructions, times waves, may run before this is called an endless loop
    deadline_s    seconds it may take; None: as long as it needs
    interrupted   asked now and then; true stops the dispatch with OutOfBudget
    Raises        a ShaderFault with the program counter; UsageError for a launch that no chip could take
    """
    check_launch(machine, launch, grid, block)
    work = WorkItems(grid, block, items or (grid[0] * block[0], grid[1] * block[1], grid[2] * block[2]))
    program = machine.program(launch.entry, launch.wave_size, launch.acc_offset)
    report = Report()
    limits = Limits(budget, None if deadline_s is None else time.monotonic() + deadline_s, interrupted)
    total = work.groups
    waves_per_group = work.waves_per_group(launch.wave_size)
    at_once = max(1, LANES_AT_ONCE // (waves_per_group * launch.wave_size))
    if launch.scratch_waves:
        at_once = max(1, min(at_once, launch.scratch_waves // waves_per_group))
    # floats overflow and divide by zero here as they do on the hardware: silently
    with np.errstate(all="ignore"):
        for first in range(0, total, at_once):
            groups = np.arange(first, min(total, first + at_once))
            home = Residents(machine, launch, work, groups)
            report.waves += len(home.group_of)
            Run(program, home, report, limits).all(home.first_batch(machine))
    return report


def check_launch(
    machine: Machine, launch: Launch, grid: tuple[int, int, int], block: tuple[int, int, int]
) -> None:
    threads = block[0] * block[1] * block[2]
    if min(grid) < 1 or min(block) < 1 or threads > 1024:
        raise UsageError(
            f"run_dispatch(grid={grid}, block={block}): sizes start at 1, and a workgroup has at most 1024 work-items."
        )
    if launch.lds_bytes > machine.lds_limit:
        raise UsageError(
            f"run_dispatch: the kernel at {launch.entry:#x} asks for {launch.lds_bytes} bytes of LDS; "
            f"{machine.isa.arch} has {machine.lds_limit} a workgroup."
        )
    waves = -(-threads // launch.wave_size)
    if launch.scratch_waves and waves > launch.scratch_waves:
        raise UsageError(
            f"run_dispatch(block={block}): {waves} waves of a workgroup need scratch memory at once; there is some for "
            f"{launch.scratch_waves}."
        )
    if launch.wave_size not in (32, 64) or (launch.wave_size == 32 and machine.isa.has_sdwa):
        raise UsageError(f"run_dispatch: {machine.isa.arch} has no waves of {launch.wave_size} lanes.")


@dataclass
class Limits:
    budget: int
    deadline: float | None
    interrupted: Callable[[], bool] | None

    def stop(self) -> str | None:
        if self.deadline is not None and time.monotonic() > self.deadline:
            return "the deadline passed"
        if self.interrupted is not None and self.interrupted():
            return "the dispatch was interrupted"
        return None


class Run:
    """The batches of the resident waves, from their first instruction to their last."""

    def __init__(self, program: Program, home: Residents, report: Report, limits: Limits) -> None:
        self.program, self.home, self.report, self.limits = program, home, report, limits
        self.ready: list[Batch] = []
        self.waiting: list[Batch] = []  # at a barrier
        self.now = 0
        self.pc = 0  # of the step that runs, for reports

    def all(self, first: Batch) -> None:
        self.ready = [first]
        while self.ready:
            b = self.next_batch()
            self.ready += self.step(b)
        if self.waiting:
            stuck = self.waiting[0]
            raise OutOfBudget(
                stuck.pc,
                f"{sum(b.waves for b in self.waiting)} waves wait at a barrier that the others of their workgroup "
                f"will never reach: {stuck.lane_names(0, 0)}.",
            )

    def next_batch(self) -> Batch:
        """The batch at the lowest address, joined with all others there; or one that has waited too long."""
        ready = self.ready
        if len(ready) == 1:
            return ready.pop()
        chosen = min(ready, key=lambda b: (b.pc, b.mode))
        oldest = min(ready, key=lambda b: b.turn)
        if self.now - oldest.turn > PATIENCE:
            chosen = oldest
        there = [b for b in ready if b.pc == chosen.pc and b.mode == chosen.mode]
        self.ready = [b for b in ready if b.pc != chosen.pc or b.mode != chosen.mode]
        return Batch.join(there)

    def step(self, b: Batch) -> list[Batch]:
        """Run one block; returns the batches that can go on at once."""
        self.now += 1
        b.turn = self.now
        block = self.program.block(b.pc, b.mode)
        self.account(block, b)
        try:
            for self.pc, run in zip(block.pcs, block.steps):
                run(b)
        except IndexError:
            raise IllegalOperation(
                self.pc,
                f"{self.program.text(self.pc)!r} names a register that is not there: the kernel's descriptor asks for "
                f"{len(b.u32)} vector registers.",
            ) from None
        going = block.ending.run(b)
        kind = block.ending.kind
        if kind == "go":
            return going
        if kind == "signal":
            return going + self.release() if self.waiting else going
        if kind in ("barrier", "wait"):
            if kind == "barrier":
                self.home.arrive(b)
            self.waiting.append(b)
            return self.release()
        np.subtract.at(self.home.alive, b.groups, 1)
        return self.release() if self.waiting else []

    def account(self, block: Block, b: Batch) -> None:
        report = self.report
        report.batches += 1
        report.instructions += block.length * b.waves
        report.lane_instructions += block.length * b.waves * self.home.wave_size
        why = None
        if report.instructions > self.limits.budget:
            why = f"the budget of {self.limits.budget} instructions is spent"
        elif self.now % 256 == 0:
            why = self.limits.stop()
        if why is not None:
            raise OutOfBudget(
                b.pc,
                f"{why} and {b.waves} waves still run, at {self.program.text(b.pc)!r} "
                f"({b.lane_names(0, 0)}). Look for a loop that does not end.",
            )

    def release(self) -> list[Batch]:
        """The waves whose workgroups have all been at the barrier since they came."""
        home = self.home
        home.complete()
        out, still = [], []
        for b in self.waiting:
            goes = home.phase[b.groups] > home.arrived_in[b.ids]
            if goes.all():
                out.append(b)
            elif not goes.any():
                still.append(b)
            else:
                out.append(b.take(goes))
                still.append(b.take(~goes))
                out[-1].turn = still[-1].turn = b.turn
        self.waiting = still
        return out
