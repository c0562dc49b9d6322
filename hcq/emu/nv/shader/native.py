"""Paths run as machine code of the host: a path's warps go through a function's compiled nodes, one after the other.

In       a Machine, a path at a block
Out      the path, or its parts, where they have left compiled code
Changes  registers, memory, paths; the Decoded, which keeps the machine code
Next     native_ahead.py (what is compiled when), native_text.py (the code), machine.py (who asks)

Registers are in the warps' memory while compiled code runs, and come to the interpreter one by one, when it needs them.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np

from hcq.emu.compiled import accesses
from hcq.emu.nv.shader import native_ahead, native_jobs, native_queues
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.decode import Decoded
from hcq.emu.nv.shader.flow import reads_and_writes
from hcq.emu.nv.shader.memory import AddressSpace, Memory
from hcq.emu.nv.shader.native_ahead import LANE_NS, STEP_NS
from hcq.emu.nv.shader.native_order import EXIT, NOWHERE, PLACES, Point
from hcq.emu.nv.shader.native_state import Compiled, Facts, State, Tables
from hcq.emu.nv.shader.paths import Activation, Path, Region
from hcq.emu.nv.shader.program import Program
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.schedule import Schedule

# so many count as one of the interpreter's: a kernel that waits for the host may wait as long as it may there
SHARE = 1 << 10
FUEL = 1 << 14  # instructions that a warp runs before others do, and before anybody asks whether to stop
ASK_STEPS = 1 << 10  # of the interpreter, between two looks at whether a function has become worth it
SPLIT = -1
MOST_STATES = 4  # that a function keeps for its next calls


class Owner(Protocol):
    """What this needs of a Machine."""

    program: Program
    batch: Batch
    schedule: Schedule | None
    step_limit: int
    check_at: int
    live: Lanes
    runnable: list[Path]

    def check_time(self, path: Path, line: int) -> None:
        """Raise when the budget is spent, or nobody wants the kernel any more."""

    def give_way(self, path: Path) -> None:
        """Others go first."""

    def release(self) -> None:
        """Threads that have arrived go on."""

    def take_out(self, path: Path) -> Region:
        """The path ends."""

    def go(self, path: Path, pc: int) -> None:
        """A path begins."""


def native_of(machine: Owner) -> Native | None:
    """What runs a machine's paths as machine code; None where they are interpreted."""
    memory = machine.batch.memory
    if machine.schedule is not None or not native_ahead.may_run(machine.program, machine.batch.launch):
        return None
    return Native(machine, cast(AddressSpace, memory), is_eager=native_ahead.is_eager())


class Native:
    """The machine code of a program, for the threads of one batch."""

    def __init__(self, machine: Owner, memory: AddressSpace, is_eager: bool) -> None:
        batch = machine.batch
        self.machine, self.memory, self.is_eager = machine, memory, is_eager
        self.ask_at = 0  # steps of the batch, at which it is asked again what is compiled
        self.key = native_ahead.key_of(batch.launch)
        self.warps = 0  # until something is compiled
        self.states: list[tuple[Activation, State]] = []
        self.needs: dict[tuple[int, int, int, int], frozenset[int]] = {}
        self.local: Any = None
        self.ranges: Any = None
        self.held: Any = None
        self.is_under_way = False  # compiled code has begun, and left off: it goes on

    # -- batches that stand ready

    def stand(self, path: Path, compiled: Compiled) -> bool:
        """Everything is where compiled code wants it, for a path that has not begun. False where that cannot be."""
        self._arrange()
        return self._prepare(path, compiled, self._state(path.activation, compiled))

    def begin_again(self, memory: Memory, params: Lanes) -> State:
        """The same for another launch, with parameters and memory of its own. Returns the registers."""
        self.memory = cast(AddressSpace, memory)
        ((activation, state),) = self.states
        state.begin(self.machine.batch.count)
        state.push(activation.registers)
        self._look_at_memory(state.compiled, state)
        table = self.table
        table[PLACES["params"]], table[PLACES["parambytes"]] = params.ctypes.data, len(params)
        table[accesses.RANGES], table[accesses.RANGE_COUNT] = state.ranges_address, len(self.ranges)
        return state

    def let_go(self) -> None:
        """The memory of a launch that has ended is its own again."""
        self.memory = self.held = None  # type: ignore[assignment]

    def _arrange(self) -> None:
        """Tables of all threads, when compiled code runs first."""
        batch = self.machine.batch
        self.warps = -(-batch.count // WARP)
        self.tables = Tables.of(self.warps)
        self.table, self.pcs = self.tables.table, self.tables.pcs
        self.locals = self.tables.locals
        if batch.shared_bytes:
            np.add(batch.shared_start, batch.shared.ctypes.data, out=self.tables.starts[: batch.count])
        self.seen_live: Lanes = None

    # -- what there is

    def _compiled(self, decoded: Decoded) -> Compiled | None:
        found = decoded.native.get(self.key)
        if found is not None or self.machine.batch.steps < self.ask_at:
            return found
        known, found = native_ahead.code_of(decoded, self.key, 0.0, self.is_eager)
        if (
            not known
        ):  # a loop may take long: it is compiled when it has, and goes on from the block where it is
            self.ask_at = self.machine.batch.steps + ASK_STEPS
        return found

    def _state(self, activation: Activation, compiled: Compiled) -> State:
        state: State | None = activation.native
        if state is None or state.compiled is not compiled:
            free = next((one for one in list(compiled.states) if one.warps == self.warps), None)
            if free is not None:
                try:
                    compiled.states.remove(free)
                except ValueError:  # another thread was faster
                    free = None
            state = activation.native = free or State(compiled, self.warps)
            state.begin(self.machine.batch.count)
            self.states.append((activation, state))
        return state

    def end(self) -> None:
        """The batch is over: other ones may use what it has used."""
        if self.warps:
            self.tables.give_back()
        for activation, state in self.states:
            activation.native = None
            if len(state.compiled.states) < MOST_STATES:
                state.compiled.states.append(state)
        self.states.clear()

    # -- what the interpreter runs

    def steps(self, path: Path) -> tuple[int, int]:
        """Which steps of its block the interpreter runs now: from, to. Their registers are there for it."""
        activation, number = path.activation, path.pc
        decoded, block = activation.decoded, activation.decoded.blocks[path.pc]
        compiled = decoded.native.get(self.key)
        begin, end = path.step, len(block.steps)
        path.is_left = False
        if compiled is None:
            decoded.spent_ns += block.length * (STEP_NS + LANE_NS * path.count)
            return begin, end
        entries = compiled.facts.entries
        end = next((one for one in range(begin + 1, end) if Point(number, one) in entries), end)
        state: State | None = activation.native
        if state is not None:
            state.pull(activation.registers, self._needed(decoded, number, begin, end))
        return begin, end

    def _needed(self, decoded: Decoded, number: int, begin: int, end: int) -> frozenset[int]:
        """Registers that the interpreter reads, or mixes with new values, in some steps."""
        key = id(decoded), number, begin, end
        if key not in self.needs:
            block = decoded.blocks[number]
            assert block.source is not None
            source, slots = block.source, decoded.slots
            some = list(source.body[begin:end])
            if begin == 0:
                some += source.body[:1]
            if end == len(block.steps) and source.end is not None:
                some.append(source.end)
            found = {slots[name] for one in some for names in reads_and_writes(one) for name in names}
            if source.skip_guard is not None:
                found.add(slots[source.skip_guard.name])
            if decoded.stack is not None:
                found.add(decoded.stack)
            self.needs[key] = frozenset(found)
        return self.needs[key]

    def settle(self) -> None:
        """All registers are where reports look for them."""
        for activation, state in self.states:
            state.pull(activation.registers, state.compiled.facts.written)

    # -- what compiled code runs

    def run(self, path: Path) -> int | None:
        """Run a path as far as compiled code goes.

        Returns the block where it is, SPLIT when its threads have parted, None where nothing is compiled.
        """
        if path.is_left:
            return None
        activation = path.activation
        compiled = self._compiled(activation.decoded)
        node = None if compiled is None else compiled.facts.entries.get(Point(path.pc, path.step))
        if compiled is None or node is None:
            return None
        if not self.warps:
            self._arrange()
        state = self._state(activation, compiled)
        if self.is_under_way:
            self.is_under_way = False
        elif not self._prepare(path, compiled, state):
            return None
        else:
            self._place_at(path, node)
        codes = self._go_on(path, compiled, state)
        if compiled.facts.has_copies:
            native_queues.give(self.tables.queues, self.machine.batch)
        state.stale |= compiled.facts.written
        return self._part(path, compiled, codes)

    def _place_at(self, path: Path, node: int) -> None:
        """Threads of a path are at a node."""
        count = self.machine.batch.count
        if path.mask is None:
            self.pcs[:count], self.pcs[count:] = node, NOWHERE
        else:
            self.pcs[:] = NOWHERE
            self.pcs[:count][path.mask] = node

    def _go_on(self, path: Path, compiled: Compiled, state: State) -> Any:
        """Run until all threads have left, or others have to run."""
        machine, batch = self.machine, self.machine.batch
        jobs = native_jobs.jobs(compiled, self.table, state.sites, self.warps, path.mask is None)
        codes = self.pcs[: batch.count]
        alone = len(machine.runnable) == 1 and path.region.parent is None
        while True:
            left = machine.step_limit - batch.steps + 1
            executed = native_jobs.run(jobs, max(1, min(FUEL, left * SHARE)))
            batch.steps += -(-executed // SHARE)
            here = codes if path.mask is None else codes[path.mask]
            if batch.steps > machine.check_at:
                self._check_time(path, compiled, int(here.min()))
            if not alone or here.max() >= EXIT:
                return codes
            rows = np.where(self.pcs < EXIT, self.pcs, -1).reshape(self.warps, WARP)
            most = rows.max(axis=1, keepdims=True)
            if ((rows >= 0) & (rows != most)).any():
                return codes  # threads of a warp may wait for one another

    def _check_time(self, path: Path, compiled: Compiled, code: int) -> None:
        """Is the budget spent, does anybody ask? For reports the path is where its first threads are."""
        points = compiled.points
        before = path.pc
        path.pc = points[code].block if code < len(points) else before
        self.machine.check_time(path, path.activation.decoded.blocks[path.pc].line)
        path.pc = before

    def _prepare(self, path: Path, compiled: Compiled, state: State) -> bool:
        """Tell compiled code where everything is."""
        machine, batch, table, facts = self.machine, self.machine.batch, self.table, compiled.facts
        activation = path.activation
        registers = activation.registers
        if any(len(registers[slot]) != 1 for slot in facts.numbers):
            return False
        numbers = np.array([int(registers[slot][0]) for slot in facts.numbers] or [0], np.uint64)
        copying = self._take_copies(facts)
        if copying is None:
            return False
        state.push(registers)
        self._look_at_memory(compiled, state)
        if self.local is not batch.local:
            self.local = batch.local
            if batch.local_bytes:
                self.locals[: batch.count] = batch.local_row * batch.local_bytes + batch.local.ctypes.data
        if machine.live is not self.seen_live:
            self.seen_live = machine.live
            self.tables.say_live(machine.live)
        self.numbers = numbers
        addresses = self.tables.addresses
        per_block = batch.numbers.width // WARP if self.key[0] and activation.caller is None else 0
        end = Point(len(activation.decoded.blocks), 0)
        ended = facts.exits.index(end) + EXIT if activation.caller is None and end in facts.exits else -1
        for name, value in (
            ("file", state.address),
            ("pcs", addresses.pcs),
            ("lives", addresses.lives),
            ("numbers", numbers.ctypes.data),
            ("allstarts", addresses.starts),
            ("alllocals", addresses.locals),
            ("sharedsize", batch.shared_bytes),
            ("storedsize", 0 if batch.thread_copies.are_under_way else batch.shared_bytes),
            ("localsize", batch.local_bytes),
            ("params", batch.params.ctypes.data),
            ("parambytes", len(batch.params)),
            ("rejoin", path.region.rejoin),
            ("ended", ended),
            ("perblock", per_block or self.warps),
            ("meets", bool(per_block)),
            ("queues", self.tables.queues.ctypes.data if facts.has_copies else 0),
            ("allended", batch.thread_copies.ended.ctypes.data if facts.has_copies else 0),
            ("copying", copying),
        ):
            table[PLACES[name]] = value
        table[accesses.RANGES], table[accesses.RANGE_COUNT] = state.ranges_address, len(self.ranges)
        return True

    def _take_copies(self, facts: Facts) -> int | None:
        """How many copies of warps are under way in queues; None where they cannot be there."""
        batch = self.machine.batch
        if not facts.has_copies or not batch.thread_copies.are_under_way:
            return 0
        return native_queues.take(self.tables.queues, batch)

    def _look_at_memory(self, compiled: Compiled, state: State) -> None:
        """What is mapped where, as a table; the ranges that accesses found there stay with the registers."""
        self.ranges, self.held = self.memory.rows()
        if state.ranges is not self.ranges:
            state.ranges, state.ranges_address = self.ranges, self.ranges.ctypes.data
            state.sites = np.zeros((max(1, compiled.facts.sites), accesses.SITE_WORDS), np.int64)

    def _part(self, path: Path, compiled: Compiled, codes: Any) -> int:
        """Threads go on where they have left: together, or as paths of their own."""
        facts, machine = compiled.facts, self.machine
        here = codes if path.mask is None else codes[path.mask]
        least, most = int(here.min()), int(here.max())
        found = [least] if least == most else np.unique(here).tolist()
        points = compiled.points
        parts = []
        for code in found:
            point = points[code] if code < EXIT else facts.exits[code - EXIT]
            parts.append((code, point))
        if len(parts) == 1:
            self._place(path, *parts[0], facts)
            if found[0] < EXIT:
                machine.give_way(path)
            return path.pc
        region = machine.take_out(path)
        region.pending += len(parts) - 1
        is_spent = False
        for code, point in parts:
            mask = path.full_mask & (codes == code)
            made = Path(machine.batch, region, point.block, mask, int(np.count_nonzero(mask)), path.turns)
            self._place(made, code, point, facts)
            if code < EXIT:
                made.turns += 1
                is_spent = True
            machine.go(made, point.block)
        if is_spent:
            machine.release()
        return SPLIT

    def _place(self, path: Path, code: int, point: Point, facts: Facts) -> None:
        path.pc, path.step = point.block, point.step
        is_trouble = code >= len(facts.entries) and point in facts.troubles
        path.is_left = is_trouble and code - EXIT not in facts.gathers
