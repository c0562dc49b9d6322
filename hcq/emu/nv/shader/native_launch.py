"""Launches like those before, as machine code: their batch stands ready, with its registers and tables.

In       a kernel that is compiled, launches and their batches of blocks
Out      a Report: the launch has run; whatever compiled code leaves off is interpreted from there
Changes  memory, as the kernel does; the batches that are kept
Next     run.py (who asks), native.py (the machine code of a batch), machine.py (what the interpreter goes on with)

Most launches differ from the one before in their parameters, and in what memory holds; batches of a launch in the
numbers of their blocks. Lanes, registers and tables are the same. So is a machine whose threads have not begun:
compiled code has mostly come to the end of the kernel before the machine is asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hcq.emu.compiled import threads
from hcq.emu.nv.shader import native_ahead, native_jobs
from hcq.emu.nv.shader.batch import WARP, Batch, Launch
from hcq.emu.nv.shader.machine import CHECK_STEPS, Machine
from hcq.emu.nv.shader.memory import Memory
from hcq.emu.nv.shader.native import FUEL, SHARE
from hcq.emu.nv.shader.native_order import EXIT, NOWHERE, Point
from hcq.emu.nv.shader.native_state import Compiled
from hcq.emu.nv.shader.pending import Pending
from hcq.emu.nv.shader.program import Program
from hcq.emu.nv.shader.types import Lanes
from hcq.events.waves import Running

MOST_KEPT = 4  # batches of a kernel
MOST_BYTES = 64 << 20  # of their registers and memory
OF_BLOCKS = ("%ctaid", "%clusterid")
BEGIN = Point(0, 0)


class Report(NamedTuple):
    """What a launch did: instructions executed (each for all threads of a batch), blocks, batches."""

    steps: int
    blocks: int
    batches: int


class Kept:
    """The batches of a kernel that stand ready, by all that launches of theirs have in common."""

    def __init__(self) -> None:
        self._found: dict[Any, Standing] = {}

    def run(
        self,
        key: Any,
        memory: Memory,
        params: bytes,
        step_limit: int,
        interrupted: Callable[[], bool] | None,
        running: Running | None,
    ) -> Report | None:
        """Run a launch like one before; None where none is known."""
        standing = self._found.pop(key, None)  # nobody else uses it meanwhile
        if standing is None:
            return None
        launch = object.__new__(Launch)
        launch.__dict__.update(standing.like.__dict__)
        size = standing.param_bytes
        if not native_ahead.may_reach(memory) or len(params) < size:
            return None
        launch.memory, launch.params = memory, np.frombuffer(params[:size] + bytes(-size % 16), np.uint8)
        launch.step_limit, launch.interrupted, launch.running = step_limit, interrupted, running
        blocks = standing.machine.batch.blocks
        launch.pending = Pending(len(blocks), launch.grid, launch.cluster)
        launch.pending.next = len(blocks)  # all have begun
        return Report(self._run(key, standing, launch, blocks, 0), len(blocks), 1)

    def batch(self, key: Any, program: Program, launch: Launch, blocks: Lanes, steps: int) -> int | None:
        """Run one batch of a launch, after so many steps of others. Returns the steps of all of them; None where
        compiled code does not begin, or end, such a batch."""
        if not native_ahead.may_run(program, launch):
            return None
        compiled: Compiled | None = program.entry.native.get(native_ahead.key_of(launch))
        if compiled is None or compiled.facts.has_copies:
            return None
        is_all = launch.pending is not None and len(blocks) == launch.pending.blocks
        key = key if is_all else (key, len(blocks))  # a launch that has several is not found by its own key
        standing = self._found.pop(key, None) or _new(program, launch, blocks, compiled)
        return None if standing is None else self._run(key, standing, launch, blocks, steps)

    def _run(self, key: Any, standing: Standing, launch: Launch, blocks: Lanes, steps: int) -> int:
        is_ready = standing.run(launch, blocks, steps)
        if is_ready:
            self._found[key] = standing
            while len(self._found) > MOST_KEPT or sum(one.size for one in self._found.values()) > MOST_BYTES:
                self._found.pop(next(iter(self._found)), None)
        return standing.machine.batch.steps


def _new(program: Program, launch: Launch, blocks: Lanes, compiled: Compiled) -> Standing | None:
    """A batch for launches like this one; None where compiled code does not begin, or end, one."""
    facts = compiled.facts
    end = Point(len(program.entry.blocks), 0)
    if BEGIN not in facts.entries or end not in facts.exits:
        return None
    batch = Batch(launch, blocks, 0)
    machine = Machine(program, batch)
    path = machine.begin()
    if machine.native is None or not machine.native.stand(path, compiled):
        return None
    return Standing(machine, path, compiled)


class Standing:
    """A batch whose threads have not begun, and the machine that goes on where compiled code leaves off."""

    def __init__(self, machine: Machine, path: Any, compiled: Compiled) -> None:
        assert machine.native is not None
        self.machine, self.path, self.compiled, self.native = machine, path, compiled, machine.native
        facts = compiled.facts
        count, pcs = machine.batch.count, self.native.pcs
        live = np.ones(count, bool) if path.mask is None else path.mask
        self.is_whole = path.mask is None
        self.begins, self.ends = (np.full(len(pcs), NOWHERE, np.int32) for _ in range(2))
        self.begins[:count][live] = facts.entries[BEGIN]
        self.ends[:count][live] = EXIT + facts.exits.index(Point(len(machine.program.entry.blocks), 0))
        self.like = dataclasses.replace(machine.batch.launch, memory=None, interrupted=None, running=None)  # type: ignore[arg-type]
        self.size = len(pcs) // WARP * facts.size_bytes + machine.batch.shared.size + machine.batch.local.size
        # special registers that tell blocks apart
        self.moving = [one for one in machine.program.entry.late if one[1].name.startswith(OF_BLOCKS)]
        self.param_bytes = machine.program.entry.function.param_bytes

    def run(self, launch: Launch, blocks: Lanes, steps: int) -> bool:
        """Run these blocks of a launch, after so many steps. Returns whether the batch can take others."""
        machine, batch = self.machine, self.machine.batch
        batch.launch, batch.memory, batch.params, batch.steps = launch, launch.memory, launch.params, steps
        if blocks is not batch.blocks:
            self._move(blocks)
        for memory in (batch.shared, batch.local):
            if memory.size:
                memory.fill(0)
        machine.step_limit = launch.step_limit
        machine.check_at = min(launch.step_limit, steps + CHECK_STEPS)
        if launch.running is not None:
            machine.answer_to(launch.running)
            if launch.running.is_asked:
                launch.running.hurry()
        state = self.native.begin_again(launch.memory, launch.params)
        pcs = self.native.pcs
        pcs[:] = self.begins
        table, warps = self.native.table, self.native.warps
        if self.compiled.longest * warps < threads.ALONE:
            parts = [native_jobs.Job(self.compiled, table, state.sites, 0, warps)]
        else:
            parts = native_jobs.jobs(self.compiled, table, state.sites, warps, self.is_whole)
        executed = native_jobs.run(parts, max(1, min(FUEL, (launch.step_limit - steps + 1) * SHARE)))
        batch.steps += -(-executed // SHARE)
        if batch.steps <= machine.check_at and (pcs == self.ends).all():
            # what belongs to the launch is nobody's any more
            batch.launch = batch.memory = None  # type: ignore[assignment]
            self.native.let_go()
            return True
        self.native.is_under_way = True
        machine.go_on()
        return False

    def _move(self, blocks: Lanes) -> None:
        """Be the batch of other blocks."""
        machine = self.machine
        machine.batch.blocks = blocks
        for slot, symbol in self.moving:
            machine.set_special(self.path.activation, slot, symbol)
