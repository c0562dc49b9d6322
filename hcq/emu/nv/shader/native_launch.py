"""Launches like those before, as machine code: their batch stands ready, with its registers and tables.

In       a kernel that is compiled, launches whose blocks are one batch
Out      a Report: the launch has run; whatever compiled code leaves off is interpreted from there
Changes  memory, as the kernel does; the batches that are kept
Next     run.py (who asks), native.py (the machine code of a batch), machine.py (what the interpreter goes on with)

Most launches differ from the one before in their parameters, and in what memory holds. The lanes of their batch, special
registers and tables are the same, and a machine whose threads have not begun is the same, too: compiled code has come
to the end of the kernel before the machine is asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hcq.emu.compiled import threads
from hcq.emu.nv.shader import native_ahead, native_jobs
from hcq.emu.nv.shader.batch import Batch, Launch
from hcq.emu.nv.shader.machine import CHECK_STEPS, Machine
from hcq.emu.nv.shader.memory import Memory
from hcq.emu.nv.shader.native import FUEL, SHARE
from hcq.emu.nv.shader.native_order import EXIT, NOWHERE, PLACES, Point
from hcq.emu.nv.shader.native_state import Compiled
from hcq.emu.nv.shader.pending import Pending
from hcq.emu.nv.shader.program import Program
from hcq.events.waves import Running

MOST_KEPT = 4  # batches of a kernel
MOST_BYTES = 8 << 20  # of one, its registers and memory
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
        return self._run(key, standing, launch)

    def begin(self, key: Any, program: Program, launch: Launch, blocks: int) -> Report | None:
        """The same for the first launch, whose blocks are one batch; None where compiled code does not run all of it."""
        if not native_ahead.may_run(program, launch):
            return None
        compiled: Compiled | None = program.entry.native.get(native_ahead.key_of(launch))
        if compiled is None or compiled.facts.has_copies:
            return None
        standing = _new(program, launch, blocks, compiled)
        return None if standing is None else self._run(key, standing, launch)

    def _run(self, key: Any, standing: Standing, launch: Launch) -> Report:
        blocks = len(standing.machine.batch.blocks)
        launch.pending = Pending(blocks, launch.grid, launch.cluster)
        launch.pending.next = blocks  # all have begun
        steps, is_ready = standing.run(launch)
        if is_ready:
            self._found[key] = standing
            while len(self._found) > MOST_KEPT:
                self._found.pop(next(iter(self._found)), None)
        return Report(steps, blocks, 1)


def _new(program: Program, launch: Launch, blocks: int, compiled: Compiled) -> Standing | None:
    """A batch for launches like this one; None where compiled code does not begin, or end, one."""
    facts = compiled.facts
    end = Point(len(program.entry.blocks), 0)
    if BEGIN not in facts.entries or end not in facts.exits:
        return None
    batch = Batch(launch, np.arange(blocks), 0)
    if batch.count // 32 * facts.size_bytes + batch.shared.size > MOST_BYTES:
        return None
    machine = Machine(program, batch)
    path = machine.begin()
    if machine.native is None or not machine.native.stand(path, compiled):
        return None
    return Standing(machine, path, compiled)


class Standing:
    """A batch whose threads have not begun, and the machine that goes on where compiled code leaves off."""

    def __init__(self, machine: Machine, path: Any, compiled: Compiled) -> None:
        assert machine.native is not None
        self.machine, self.compiled, self.native = machine, compiled, machine.native
        facts = compiled.facts
        count, pcs = machine.batch.count, self.native.pcs
        live = np.ones(count, bool) if path.mask is None else path.mask
        self.is_whole = path.mask is None
        self.begins, self.ends = (np.full(len(pcs), NOWHERE, np.int32) for _ in range(2))
        self.begins[:count][live] = facts.entries[BEGIN]
        self.ends[:count][live] = EXIT + facts.exits.index(Point(len(machine.program.entry.blocks), 0))
        self.like = dataclasses.replace(machine.batch.launch, memory=None, interrupted=None, running=None)  # type: ignore[arg-type]
        self.param_bytes = machine.program.entry.function.param_bytes

    def run(self, launch: Launch) -> tuple[int, bool]:
        """Run a launch. Returns its steps, and whether the batch can take another one."""
        machine, batch = self.machine, self.machine.batch
        batch.launch, batch.memory, batch.params, batch.steps = launch, launch.memory, launch.params, 0
        for memory in (batch.shared, batch.local):
            if memory.size:
                memory.fill(0)
        machine.step_limit, machine.check_at = launch.step_limit, min(launch.step_limit, CHECK_STEPS)
        if launch.running is not None:
            machine.answer_to(launch.running)
        state = self.native.begin_again(launch.memory, launch.params)
        pcs = self.native.pcs
        pcs[:] = self.begins
        warps = self.native.warps
        if self.compiled.longest * warps < threads.ALONE:
            table = self.native.table
            table[PLACES["begin"]], table[PLACES["count"]] = 0, warps
            parts = [native_jobs.Job(self.compiled, table, state.sites, 0, warps)]
        else:
            parts = native_jobs.jobs(self.compiled, self.native.table, state.sites, warps, self.is_whole)
        executed = native_jobs.run(parts, max(1, min(FUEL, (launch.step_limit + 1) * SHARE)))
        batch.steps += -(-executed // SHARE)
        if (pcs == self.ends).all():
            self._let_go()
            return batch.steps, True
        self.native.is_under_way = True
        machine.go_on()
        return batch.steps, False

    def _let_go(self) -> None:
        """What belongs to the launch is nobody's any more."""
        self.machine.batch.launch = self.machine.batch.memory = None  # type: ignore[assignment]
        self.native.let_go()
