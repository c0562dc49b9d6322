"""Paths run as machine code of the host: a path's warps go through a function's compiled nodes, one after the other.

In       a Machine, a path at a block
Out      the path, or its parts, where they have left compiled code
Changes  registers, memory, paths; the Decoded, which keeps the machine code
Next     native_text.py (the code), machine.py (who asks), hcq/emu/compiled/assemble.py (LLVM)

A function is compiled once it has taken the interpreter, by estimate, as long as compiling it would take. Kernels that
are looked at while they run (counters, races, debuggers), that run under a schedule or wait for mbarriers, and memory
that is behind emulated caches or of other processes, are always the interpreter's.

Registers are in the warps' memory while compiled code runs, and come to the interpreter one by one, when it needs them.
"""

from __future__ import annotations

import itertools
import operator
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hcq import config
from hcq.emu.compiled import accesses, assemble
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.decode import Decoded, Registers
from hcq.emu.nv.shader.flow import reads_and_writes
from hcq.emu.nv.shader.memory import AddressSpace, Mapping
from hcq.emu.nv.shader.native_order import EXIT, NOWHERE, PLACES, TABLE_WORDS, Point
from hcq.emu.nv.shader.paths import Activation, Path, Region
from hcq.emu.nv.shader.program import Program
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.schedule import Schedule
from hcq.system import native

if TYPE_CHECKING:
    from hcq.emu.nv.shader.native_text import Text

COMPILE_NS = 800_000  # LLVM and this compiler: for each instruction,
BEGIN_NS = 60_000_000  # and for a function
STEP_NS, LANE_NS = 8_000, 1.5  # the interpreter: for each instruction, and for each lane of it
# so many count as one of the interpreter's: a kernel that waits for the host may wait as long as it may there
SHARE = 1 << 10
FUEL = 1 << 14  # instructions that a warp runs before others do, and before anybody asks whether to stop
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


@dataclass
class Compiled:
    """A function's machine code.

    read, written   slots that it has in a warp's memory
    first           of these, by place: the first value where nobody reads it, else None
    states          that are not in use
    """

    text: Text
    code: assemble.Assembled
    read: list[int]
    written: set[int]
    first: list[Any]
    states: list[State] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.place = {slot: number for number, slot in enumerate(self.read)}
        self.late = [self.place[slot] for slot in self.text.layout.late if slot in self.place]


class State:
    """Registers of one call of a function, for compiled code: each warp's side by side."""

    def __init__(self, compiled: Compiled, warps: int) -> None:
        layout = compiled.text.layout
        self.compiled, self.count, self.warps = compiled, 0, warps
        self.size = max(64, layout.size_bytes)
        whole = np.zeros(warps * self.size + 64, np.uint8)
        start = -whole.ctypes.data % 64
        self.file = whole[start : start + warps * self.size].reshape(warps, self.size)
        self.seen = list(compiled.first)  # by place: the array that the file has the same numbers as
        self.stale: set[int] = set()  # slots that only the file is right about
        self.views: dict[int, Any] = {}

    def begin(self, count: int) -> None:
        """A call begins. What others have left is there where the same arrays are; first values are mostly not read."""
        self.count = count
        self.stale.clear()
        seen = list(self.compiled.first)
        for place in self.compiled.late:
            seen[place] = self.seen[place]
        self.seen = seen

    def _rows(self, slot: int, dtype: Any) -> Any:
        rows = self.views.get(slot)
        if rows is None:
            at = self.compiled.text.layout.offsets[slot]
            size = 4 if dtype == np.bool_ else WARP * dtype.itemsize
            rows = self.file[:, at : at + size].view(np.uint32 if dtype == np.bool_ else dtype)
            self.views[slot] = rows
        return rows

    def push(self, registers: Registers) -> None:
        """Give compiled code what the interpreter has changed."""
        read = self.compiled.read
        changed = map(operator.is_not, map(registers.__getitem__, read), self.seen)
        for slot in itertools.compress(read, changed):
            array = registers[slot]
            if slot in self.stale:
                continue
            rows = self._rows(slot, array.dtype)
            if array.dtype == np.bool_:
                if len(array) == 1:
                    rows[:] = 0xFFFFFFFF if array[0] else 0
                else:
                    bits = np.packbits(self._padded(array), bitorder="little").view(np.uint32)
                    rows[:, 0] = bits
            elif len(array) == 1:
                rows[:] = array[0]
            else:
                rows[:] = self._padded(array).reshape(self.warps, WARP)
            self.seen[self.compiled.place[slot]] = array

    def _padded(self, array: Any) -> Any:
        missing = self.warps * WARP - len(array)
        return np.concatenate((array, np.zeros(missing, array.dtype))) if missing else array

    def pull(self, registers: Registers, slots: Any) -> None:
        """Give the interpreter what compiled code has changed of these."""
        for slot in self.stale.intersection(slots):
            rows = self._rows(slot, registers[slot].dtype)
            if registers[slot].dtype == np.bool_:
                flat = np.unpackbits(np.ascontiguousarray(rows).view(np.uint8), bitorder="little").view(
                    np.bool_
                )
            else:
                flat = np.ascontiguousarray(rows).reshape(-1)
            registers[slot] = self.seen[self.compiled.place[slot]] = flat.reshape(-1)[: self.count]
            self.stale.discard(slot)


def native_of(machine: Owner) -> Native | None:
    """What runs a machine's paths as machine code; None where they are interpreted."""
    way, memory = config.current().emu_compiled, machine.batch.memory
    if way == "0" or machine.schedule is not None or machine.batch.launch.tally is not None:
        return None
    if not isinstance(memory, AddressSpace) or not memory.is_plain:
        return None
    if machine.program.entry.lowering is None or machine.program.waits or machine.batch.clusters is not None:
        return None
    return Native(machine, memory, is_eager=way == "always")


class Native:
    """The machine code of a program, for the threads of one batch."""

    def __init__(self, machine: Owner, memory: AddressSpace, is_eager: bool) -> None:
        batch = machine.batch
        self.machine, self.memory, self.is_eager, self.is_late = machine, memory, is_eager, False
        width = batch.count // len(batch.blocks)
        self.key = width % WARP == 0, batch.shared_window, batch.local_window
        self.warps = 0  # until something is compiled
        self.states: list[tuple[Activation, State]] = []
        self.needs: dict[tuple[int, int, int, int], frozenset[int]] = {}

    def _arrange(self) -> None:
        """Tables of all threads, when compiled code runs first."""
        batch = self.machine.batch
        self.warps = -(-batch.count // WARP)
        self.table = np.zeros(TABLE_WORDS, np.int64)
        self.pcs = self._aligned(np.int32)
        self.starts = self._aligned(np.int64)
        self.starts[: batch.count] = batch.shared_start + batch.shared.ctypes.data
        self.locals = self._aligned(np.int64)
        self.local: Any = None
        self.index: Any = None
        self.ranges: Any = None
        self.held: Any = None
        self.sites: dict[int, Any] = {}  # by Compiled

    def _aligned(self, scalar: Any) -> Any:
        count = self.warps * WARP
        whole = np.zeros(count * np.dtype(scalar).itemsize + 64, np.uint8)
        start = -whole.ctypes.data % 64
        return whole[start : start + count * np.dtype(scalar).itemsize].view(scalar)

    # -- what there is

    def _compiled(self, decoded: Decoded) -> Compiled | None:
        if self.is_late:
            return None
        if self.key in decoded.native:
            found: Compiled | None = decoded.native[self.key]
            return found
        length = len(decoded.function.body)
        if not self.is_eager and decoded.spent_ns < BEGIN_NS + COMPILE_NS * length:
            self.is_late = (
                True  # its threads may stand anywhere by the time that it is compiled: the next batch runs it
            )
            return None
        made = decoded.native[self.key] = compile_function(decoded, *self.key)
        return made

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
        entries = compiled.text.entries
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
            state.pull(activation.registers, state.compiled.written)

    # -- what compiled code runs

    def run(self, path: Path) -> int | None:
        """Run a path as far as compiled code goes.

        Returns the block where it is, SPLIT when its threads have parted, None where nothing is compiled.
        """
        if path.is_left:
            return None
        activation = path.activation
        compiled = self._compiled(activation.decoded)
        node = None if compiled is None else compiled.text.entries.get(Point(path.pc, path.step))
        if compiled is None or node is None:
            return None
        if not self.warps:
            self._arrange()
        state = self._state(activation, compiled)
        if not self._prepare(path, compiled, state):
            return None
        count = self.machine.batch.count
        self.pcs[:] = NOWHERE
        if path.mask is None:
            self.pcs[:count] = node
        else:
            self.pcs[:count][path.mask] = node
        codes = self._go_on(path, compiled)
        state.stale |= compiled.written
        return self._part(path, compiled, codes)

    def _go_on(self, path: Path, compiled: Compiled) -> Any:
        """Run until all threads have left, or others have to run."""
        machine, batch, table = self.machine, self.machine.batch, self.table
        codes = self.pcs[: batch.count]
        alone = len(machine.runnable) == 1 and path.region.parent is None
        while True:
            left = machine.step_limit - batch.steps + 1
            table[PLACES["most"]] = max(1, min(FUEL, left * SHARE))
            table[PLACES["executed"]] = 0
            compiled.code.run(native.address_of(table.data))
            batch.steps += -(-int(table[PLACES["executed"]]) // SHARE)
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
        points = list(compiled.text.entries)
        before = path.pc
        path.pc = points[code].block if code < len(points) else before
        self.machine.check_time(path, path.activation.decoded.blocks[path.pc].line)
        path.pc = before

    def _prepare(self, path: Path, compiled: Compiled, state: State) -> bool:
        """Tell compiled code where everything is."""
        machine, batch, table, text = self.machine, self.machine.batch, self.table, compiled.text
        activation = path.activation
        registers = activation.registers
        numbers = np.zeros(max(1, len(text.layout.numbers)), np.uint64)
        for slot, place in text.layout.numbers.items():
            if len(registers[slot]) != 1:
                return False
            numbers[place] = registers[slot][0]
        state.push(registers)
        self._look_at_memory(compiled)
        if self.local is not batch.local:
            self.local = batch.local
            self.locals[: batch.count] = batch.local_row * batch.local_bytes + (
                batch.local.ctypes.data if batch.local_bytes else 0
            )
        lives = np.zeros(self.warps * WARP, np.bool_)
        lives[: batch.count] = machine.live
        self.lives = np.packbits(lives, bitorder="little").view(np.uint32)
        self.numbers = numbers
        end = Point(len(activation.decoded.blocks), 0)
        ended = text.exits.index(end) + EXIT if activation.caller is None and end in text.exits else -1
        for name, value in (
            ("count", self.warps),
            ("file", state.file.ctypes.data),
            ("pcs", self.pcs.ctypes.data),
            ("lives", self.lives.ctypes.data),
            ("numbers", numbers.ctypes.data),
            ("allstarts", self.starts.ctypes.data),
            ("alllocals", self.locals.ctypes.data),
            ("sharedsize", batch.shared_bytes),
            ("storedsize", 0 if batch.thread_copies.are_under_way else batch.shared_bytes),
            ("localsize", batch.local_bytes),
            ("params", batch.params.ctypes.data),
            ("parambytes", len(batch.params)),
            ("rejoin", path.region.rejoin),
            ("ended", ended),
        ):
            table[PLACES[name]] = value
        table[accesses.RANGES], table[accesses.RANGE_COUNT] = self.ranges.ctypes.data, len(self.ranges)
        table[accesses.SITES] = self.sites[id(compiled)].ctypes.data
        return True

    def _look_at_memory(self, compiled: Compiled) -> None:
        """What is mapped where, as a table."""
        index = self.memory.index
        if index is not self.index:
            known = [one for one in index[1] if type(one) is Mapping]
            rows = [
                (one.start, len(one.host), one.host.ctypes.data - one.start, one.is_writable) for one in known
            ]
            wrapped = [[int(number) & 2**64 - 1 for number in row] for row in rows]
            self.ranges = np.array(wrapped, np.uint64).reshape(-1, 4)
            self.index, self.held = index, known
            self.sites.clear()
        if id(compiled) not in self.sites:
            self.sites[id(compiled)] = np.zeros((max(1, compiled.text.sites), accesses.SITE_WORDS), np.int64)

    def _part(self, path: Path, compiled: Compiled, codes: Any) -> int:
        """Threads go on where they have left: together, or as paths of their own."""
        text, machine = compiled.text, self.machine
        here = codes if path.mask is None else codes[path.mask]
        least, most = int(here.min()), int(here.max())
        found = [least] if least == most else np.unique(here).tolist()
        points = list(text.entries)
        parts = []
        for code in found:
            point = points[code] if code < EXIT else text.exits[code - EXIT]
            parts.append((code, point))
        if len(parts) == 1:
            self._place(path, *parts[0], text)
            if found[0] < EXIT:
                machine.give_way(path)
            return path.pc
        region = machine.take_out(path)
        region.pending += len(parts) - 1
        is_spent = False
        for code, point in parts:
            mask = path.full_mask & (codes == code)
            made = Path(machine.batch, region, point.block, mask, int(np.count_nonzero(mask)), path.turns)
            self._place(made, code, point, text)
            if code < EXIT:
                made.turns += 1
                is_spent = True
            machine.go(made, point.block)
        if is_spent:
            machine.release()
        return SPLIT

    def _place(self, path: Path, code: int, point: Point, text: Text) -> None:
        path.pc, path.step = point.block, point.step
        path.is_left = code >= len(text.entries) and point in text.troubles


def compile_function(
    decoded: Decoded, is_aligned: bool, shared_window: int, local_window: int
) -> Compiled | None:
    """Machine code for a function; None where none of it can be compiled, or LLVM is not installed."""
    if assemble.tools() is None:  # it is asked here: loading it takes longer than most kernels
        return None
    from hcq.emu.nv.shader.native_text import Translator

    text = Translator(decoded, is_aligned, (shared_window, local_window)).translate()
    if "code" in config.current().debug:
        names = ", ".join(f"{name} ({why})" for name, why in sorted(text.why_not.items())) or "none"
        sys.stderr.write(
            f"hcq: {decoded.function.name} is compiled: {len(text.entries)} entries; interpreted are: {names}\n"
        )
    if not text.entries:
        return None
    read = list(text.layout.offsets)
    known = {*text.layout.late, *text.first_read}
    first = [None if slot in known else decoded.first[slot] for slot in read]
    return Compiled(text, assemble.Assembled(text.ir), read, text.layout.written, first)
