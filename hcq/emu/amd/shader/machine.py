"""The batches of the waves that are resident together: they run blocks, part, meet again, wait and end.

In       a Program, the Residents, a Report to count in, Limits
Out      all waves have ended; or a ShaderFault
Changes  memory, as the kernel does
Next     run.py (from a grid to resident waves), program.py (blocks), waves.py (batches), control.py (how a block ends),
         standing.py (where its waves are, for reports)

Waves at one program counter run as one batch. A branch that waves disagree on splits their batch; the batch with the
lowest address runs first, so that those ahead wait at the meeting point and are joined there. A batch that has waited
long gets a turn, so that a wave spinning on another's store does not spin for ever. What never ends runs out of budget.
With a Schedule any batch runs next, and batches part at random.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hcq.emu.amd.shader.arrays import pack_lanes
from hcq.emu.amd.shader.errors import IllegalOperation, OutOfBudget, ShaderFault
from hcq.emu.amd.shader.native import native_of
from hcq.emu.amd.shader.program import BasicBlock, Program
from hcq.emu.amd.shader.residents import Residents
from hcq.emu.amd.shader.retry import foresee
from hcq.emu.amd.shader.standing import waves_of
from hcq.emu.amd.shader.waves import Batch, room_by_wave
from hcq.emu.shader.schedule import Schedule
from hcq.events.kernel_faults import KernelFault, Site
from hcq.events.waves import Running

PATIENCE = 256  # blocks that others may run while a batch that could run waits
LONG_BLOCK = 512  # instructions: after one of these it is asked at once whether to stop
ROUNDS_TOGETHER = 16  # of a retry loop, before its waves go round one after the other


@dataclass
class Report:
    """What a dispatch did."""

    waves: int = 0
    instructions: int = 0  # instructions times waves that ran them
    lane_instructions: int = 0  # the same, times the lanes of a wave
    batches: int = 0  # blocks run; few of them for many instructions means that waves stayed together


@dataclass
class Limits:
    """When a dispatch is stopped although it is not finished. running: who may ask where its waves are."""

    budget: int
    deadline: float | None
    interrupted: Callable[[], bool] | None
    running: Running | None = None

    def __post_init__(self) -> None:
        self.look_at = (
            self.budget
        )  # after so many instructions there is something to look at: the budget, or who asks
        if self.running is not None:
            self.running.hurry = self._hurry

    def _hurry(self) -> None:
        self.look_at = -1

    def stop(self) -> str | None:
        """Why to stop now; None to go on."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            return "the deadline passed"
        if self.interrupted is not None and self.interrupted():
            return "the dispatch was interrupted"
        return None


def first_batch(residents: Residents, by_wave: bool = False) -> Batch:
    """All of them, before their first instruction. by_wave: as compiled code wants their registers."""
    launch, items, waves = residents.launch, residents.items, len(residents.group_of)
    s = np.zeros((waves, 128), np.uint32)
    launch.set_scalars(s, items.group_coordinates(residents.group_ids), residents.place_in_group)
    s[:, 126 : 126 + residents.wave_size // 32] = pack_lanes(residents.start_lanes)
    shape = launch.vgprs, waves, residents.wave_size
    if by_wave:
        v = room_by_wave(*shape)
        v[...] = 0
    else:
        v = np.zeros(shape, np.uint32)
    packed = items.packed_ids(
        residents.group_ids, residents.place_in_group, residents.wave_size, launch.id_dimensions
    )
    v[: launch.id_registers] = launch.unpacked(packed)
    if residents.unwritten is not None:
        v, s = residents.unwritten.start(v, s, launch.id_registers)
    return Batch(residents, launch.entry, launch.mode, np.arange(waves), v, s, np.zeros(waves, np.bool_))


class Machine:
    """The batches of the resident waves, from their first instruction to their last."""

    def __init__(
        self,
        program: Program,
        residents: Residents,
        report: Report,
        limits: Limits,
        schedule: Schedule | None = None,
    ) -> None:
        self.program, self.residents, self.report, self.limits = program, residents, report, limits
        self.schedule = schedule
        self.ready: list[Batch] = []
        self.waiting: list[Batch] = []  # at a barrier
        self.stepping: Batch | None = None
        self.now = 0
        self.pc = 0  # of the step that runs, for reports
        self.fault: ShaderFault | None = None  # what ended it
        self.native = native_of(program, residents)
        self.rounds: dict[int, int] = {}  # how often each retry loop has gone round
        if residents.strays is not None:
            residents.strays.now = lambda: (self.pc, program.text(self.pc))

    def all(self, first: Batch) -> None:
        """Run these waves, and what they part into, to their end. Raises ShaderFault, which knows where they were."""
        self.ready = [first]
        self.go()

    def go(self) -> None:
        """Run those that are ready, and what they part into, to their end. Raises ShaderFault, as `all`."""
        try:
            while self.ready:
                self.stepping = b = self.next_batch()
                self.ready += self.step(b)
            self.stepping = None
            self.check_waiting()
        except ShaderFault as fault:
            fault.waves, self.fault = waves_of(self, fault.pc), fault
            raise

    def check_waiting(self) -> None:
        """Nothing can go on. Raises OutOfBudget when waves have not ended."""
        if self.waiting:
            stuck = self.waiting[0]
            if self.residents.barrier_checks is not None:
                self.residents.barrier_checks.add(("barrier-not-reached",), 1, self.not_reached)
            raise OutOfBudget(
                stuck.pc,
                f"{sum(b.waves for b in self.waiting)} waves wait at a barrier that the others of their workgroup "
                f"will never reach: {stuck.lane_names(0, 0)}.",
            )

    def not_reached(self) -> KernelFault:
        """The finding that no wave can go on."""
        sites = tuple(
            Site("waits", f"the instruction before {self.program.text(b.pc)}", b.pc, b.lane_names(0, 0))
            for b in self.waiting[:4]
        )
        what, why = "a barrier that not all waves reach", "and no wave can go on"
        return KernelFault("barrier-not-reached", what, "", 0, sites, why)

    def next_batch(self) -> Batch:
        """The batch at the lowest address, joined with all others there; or one that has waited too long."""
        ready = self.ready
        if self.schedule is not None:
            return self.any_batch(self.schedule)
        if len(ready) == 1:
            return ready.pop()
        chosen = min(ready, key=lambda b: (b.is_stuck, b.pc, b.mode))
        oldest = min(ready, key=lambda b: b.turn)
        if self.now - oldest.turn > PATIENCE:
            chosen = oldest
        there = [b for b in ready if b.pc == chosen.pc and b.mode == chosen.mode]
        self.ready = [b for b in ready if b.pc != chosen.pc or b.mode != chosen.mode]
        return Batch.join(there)

    def any_batch(self, schedule: Schedule) -> Batch:
        """Any batch, perhaps joined with others that are where it is, or a part of it."""
        ready = self.ready
        chosen = schedule.pick(ready)
        there = [b for b in ready if b.pc == chosen.pc and b.mode == chosen.mode]
        if len(there) > 1 and not schedule.joins(len(ready)):
            there = [chosen]
        left = [b for b in ready if b not in there]
        b = Batch.join(there)
        part = schedule.part(b.waves, len(left) + 1)
        if part is not None:
            goes = np.array(part)
            left.append(b.take(~goes))
            left[-1].turn = b.turn
            b = b.take(goes)
        self.ready = left
        return b

    def step(self, b: Batch) -> list[Batch]:
        """Run one block; returns the batches that can go on at once."""
        self.now += 1
        b.turn = self.now
        if self.native is not None:
            ran = self.native.step(b, self.limits.budget - self.report.instructions)
            if ran is not None:
                going, executed = ran
                self.stepping, self.ready = None, self.ready + going  # for a report of where waves are
                self.count(going[0], max(1, executed // b.waves), executed)
                del self.ready[len(self.ready) - len(going) :]
                return going
        block = self.program.block(b.pc, b.mode)
        self.account(block, b)
        try:
            if block.retries:
                return self.retry(block, b)
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
                self.residents.arrive(b.ids)
            self.waiting.append(b)
            return self.release()
        np.subtract.at(self.residents.alive, b.groups, 1)
        return self.release() if self.waiting else []

    def retry(self, block: BasicBlock, b: Batch) -> list[Batch]:
        """A round of a retry loop; or many, where that can be foreseen, or wave by wave.

        A guess that fails costs as much as a few rounds: it is made in the second one, and then ever less often.
        """
        count = self.rounds[block.pc] = self.rounds.get(block.pc, 0) + 1
        if count % ROUNDS_TOGETHER == 0 and b.waves > 1:
            return self.wave_by_wave(block, b)
        steps_tell = self.residents.races is not None  # of every round, none of which may be left out then
        if count == 1 or count & (count - 1) or steps_tell or not foresee(block.steps, b):
            before = b.lanes
            for self.pc, run in zip(block.pcs, block.steps):
                run(b)
            b.is_stuck = np.array_equal(b.lanes, before)
        return block.ending.run(b)

    def wave_by_wave(self, block: BasicBlock, b: Batch) -> list[Batch]:
        """Each wave alone goes round until it leaves: its lanes contend with fewer. The rest, once one cannot."""
        out = []
        for number in range(b.waves):
            one = b.take(np.array([number]))
            out.append(one)
            fruitless = 0
            while one.pc == block.pc and fruitless < 2:  # the first may compare with what was found long ago
                self.account(block, one)
                before = one.lanes
                for self.pc, run in zip(block.pcs, block.steps):
                    run(one)
                fruitless = fruitless + 1 if np.array_equal(one.lanes, before) else 0
                block.ending.run(one)
            if fruitless:
                one.is_stuck = True
                if number + 1 < b.waves:
                    out.append(b.take(np.arange(number + 1, b.waves)))
                    out[-1].is_stuck = True
                break
        for one in out:
            one.turn = b.turn
        return out

    def account(self, block: BasicBlock, b: Batch) -> None:
        """Count a block that a batch has run."""
        self.count(b, block.length, block.length * b.waves)

    def count(self, b: Batch, length: int, instructions: int) -> None:
        """Count what a batch has run. length: how many instructions each of its waves did, at least."""
        report = self.report
        report.batches += 1
        report.instructions += instructions
        report.lane_instructions += instructions * self.residents.wave_size
        why, limits = None, self.limits
        if report.instructions > limits.look_at:
            limits.look_at = limits.budget
            if limits.running is not None and limits.running.is_asked:
                limits.running.answer(waves_of(self))
            if report.instructions > limits.budget:
                why = f"the budget of {limits.budget} instructions is spent"
        elif self.now % 256 == 0 or length > LONG_BLOCK:
            why = limits.stop()
        if why is not None:
            raise self._over(b, why)

    def _over(self, b: Batch, why: str) -> OutOfBudget:
        return OutOfBudget(
            b.pc,
            f"{why} and {b.waves} waves still run, at {self.program.text(b.pc)!r} "
            f"({b.lane_names(0, 0)}). Look for a loop that does not end.",
        )

    def look(self) -> None:
        """Between two pieces of a launch: who asks where waves are is told. Raises OutOfBudget when it is over."""
        limits = self.limits
        if limits.running is not None and limits.running.is_asked:
            limits.running.answer(waves_of(self))
        why = limits.stop()
        if self.report.instructions > limits.budget:
            why = f"the budget of {limits.budget} instructions is spent"
        if why is not None and self.ready:
            self.fault = self._over(self.ready[0], why)
            self.fault.waves = waves_of(self)
            raise self.fault

    def release(self) -> list[Batch]:
        """The waves whose workgroups have all been at the barrier since they came."""
        residents = self.residents
        residents.complete()
        out, still = [], []
        for b in self.waiting:
            goes = residents.phase[b.groups] > residents.arrived_in[b.ids]
            if goes.all():
                out.append(b)
            elif not goes.any():
                still.append(b)
            else:
                out.append(b.take(goes))
                still.append(b.take(~goes))
                out[-1].turn = still[-1].turn = b.turn
        self.waiting = still
        for b in out:
            residents.come_back(b.ids)
        return out
