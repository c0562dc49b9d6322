"""Launches as machine code: workgroup after workgroup in one call, and what the interpreter takes over from there.

In       a Program that is compiled, a Launch, the shape of its grid
Out      Machines with the workgroups that compiled code has left; all others have run
Changes  memory, as the kernel does
Next     hcq/emu/compiled/launches.py (the driver), native.py (the code of a program), run.py (who calls),
         docs/decisions/0016-workgroups-on-all-cores.md

Whole workgroups run this way, where nobody looks at them while they run. One that comes to what only the interpreter
does is taken over with its registers as they are. Where that happens often, workgroups run in large batches instead, as
they do in a program that is not compiled: there the interpreter is quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hcq.emu.amd.shader import native
from hcq.emu.amd.shader.kept_programs import Compiled
from hcq.emu.amd.shader.lane_access import parse_access
from hcq.emu.amd.shader.machine import Limits, Machine, Report, first_batch
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.amd.shader.memory_ops import atomic_returns
from hcq.emu.amd.shader.operands import Context, Mode
from hcq.emu.amd.shader.residents import GlobalSync, Residents
from hcq.emu.amd.shader.strays import Strays
from hcq.emu.amd.shader.wave_start import TTMP7, TTMP9, Launch, WorkItems
from hcq.emu.compiled import accesses, launches, threads
from hcq.emu.compiled.launches import Job

if TYPE_CHECKING:
    from hcq.emu.amd.shader.program import Program

SLICE = 1 << 23  # instructions that a thread runs before it is asked whether to stop
MOST_LEFT = 4  # workgroups that a program leaves to the interpreter before it runs in large batches
MOST_BYTES = 8 << 20  # of a workgroup's registers, LDS and scratch memory
MOST_KEPT = 4  # shapes of launches that a program keeps room for
LINE = 64
COMMUTING = {"add", "and", "or", "xor", "min", "max"}  # of integers, without a result
JUMPS = ("s_setpc_b64", "s_swappc_b64", "s_call_b64")

Begins = Callable[[Machine], None]


def may_be_spread(program: Program) -> bool:
    """Whether workgroups of a program may run in any order, and at once, if they do not race for memory."""
    kinds = set()
    for inst in program.instructions.values():
        if inst.name in JUMPS or "gws" in inst.name:
            return False
        if inst.format in ("GLOBAL", "FLAT", "MUBUF", "SMEM") and "atomic" in inst.name:
            access = parse_access(inst.name.split("_", 1)[1])
            atomic = None if access is None else access.atomic
            ctx = Context(program.isa, inst, Mode(0), program.wave_size, program.acc_offset)
            if atomic is None or np.dtype(atomic.dtype).kind == "f" or atomic_returns(ctx):
                return False
            name = "add" if atomic.name == "sub" else atomic.name
            kinds.add((name, np.dtype(atomic.dtype).kind if name in ("min", "max") else ""))
    return not program.frontier and len(kinds) <= 1 and all(name in COMMUTING for name, _ in kinds)


@dataclass
class Room:
    """The memory of one workgroup, as machine code wants it."""

    job: Job
    vectors: Any  # (register, wave, lane)
    scalars: Any
    conditions: Any
    exits: Any
    entries: Any
    lds: Any
    scratch: Any
    table: Any
    sites: Any
    index: Any = None  # of the memory that the sites are known of


@dataclass
class Begin:
    """What the workgroups of one launch begin with: scalar registers in an image; and which one is next."""

    image: Any
    scalars: Any  # a part of it
    counter: Any
    image_address: int
    counter_address: int


@dataclass
class Shape:
    """How workgroups of a program begin, for launches that differ in their arguments alone."""

    compiled: Compiled
    waves: int
    image: Any
    rows: Any
    pokes: Any
    meanings: Any
    places: list[int]  # of entries, from the program's on
    is_spread: bool
    rooms: list[Room] = field(default_factory=list)  # that nobody uses now
    begins: list[Begin] = field(default_factory=list)  # the same


class WholeGroups:
    """The whole workgroups of a launch. `count`: how many, from the first on."""

    def __init__(
        self,
        program: Program,
        launch: Launch,
        work: WorkItems,
        memory: AddressSpace,
        flat_scratch: int,
        compiled: Compiled,
        count: int,
        sync: GlobalSync,
        strays: Strays | None,
    ) -> None:
        self.program, self.launch, self.work, self.memory = program, launch, work, memory
        self.flat_scratch, self.count = flat_scratch, count
        self.sync, self.strays = sync, strays
        self.ranges = native.ranges_of(memory)
        self.shape = self._shape(compiled)
        self.begin = self._begin()
        self.counter = self.begin.counter

    @property
    def first(self) -> int:
        """The first workgroup that has not begun."""
        return min(int(self.counter[0]), self.count)

    # -- what launches have in common

    def _shape(self, compiled: Compiled) -> Shape:
        launch = self.launch
        key = (
            (launch.vgprs, launch.wave_size, launch.user_sgpr_count, len(launch.user_sgprs), launch.mode),
            (launch.group_ids, launch.id_dimensions, launch.ids_in_ttmp, self.work.block),
            (launch.lds_bytes, launch.scratch_bytes),
        )
        known = self.program.shapes.pop(key, None)
        shape: Shape = self._new_shape(compiled) if known is None else known
        self.program.shapes[key] = shape
        while len(self.program.shapes) > MOST_KEPT:
            del self.program.shapes[next(iter(self.program.shapes))]
        return shape

    def _begin(self) -> Begin:
        shape, sgprs = self.shape, self.launch.user_sgprs
        if shape.begins:
            begin = shape.begins.pop()
            begin.counter[0] = 0
        else:
            image, counter = shape.image.copy(), np.zeros(1, np.int64)
            scalars, *_ = _header(image, shape.waves)
            begin = Begin(image, scalars, counter, image.ctypes.data, counter.ctypes.data)
        begin.scalars[:, : len(sgprs)] = sgprs
        return begin

    def residents(self, groups: Any) -> Residents:
        """Workgroups for the interpreter."""
        memory, own = self.memory, self.flat_scratch
        return Residents(self.launch, self.work, groups, memory, memory, own, self.sync, None, self.strays)

    def _new_shape(self, compiled: Compiled) -> Shape:
        launch, text = self.launch, compiled.text
        first = first_batch(self.residents(np.arange(1)))
        waves = first.waves
        image = np.zeros(_header_bytes(waves), np.uint8)
        scalars, _, entries, fuels = _header(image, waves)
        scalars[...] = first.s
        entries[...], fuels[...] = text.entries[0], native.FUEL
        places = (TTMP9, launches.X), (TTMP7, launches.YZ)
        if not launch.ids_in_ttmp:
            wanted = [axis for axis, is_on in enumerate(launch.group_ids) if is_on]
            places = tuple((launch.user_sgpr_count + at, axis) for at, axis in enumerate(wanted))  # type: ignore[assignment]
        pokes = [(512 * wave + 4 * register, kind) for wave in range(waves) for register, kind in places]
        rows = np.ascontiguousarray(first.u32[: launch.id_registers].swapaxes(0, 1))
        pokes_array = np.array(pokes, np.int64).reshape(-1, 2)
        return Shape(
            compiled,
            waves,
            image,
            rows,
            pokes_array,
            _meanings(self.program, text),
            sorted(text.entries, key=text.entries.__getitem__),
            may_be_spread(self.program),
        )

    # -- the room of one workgroup

    def _take_room(self) -> Room:
        shape = self.shape
        room = shape.rooms.pop() if shape.rooms else self._new_room()
        job, table, work = room.job, room.table, self.work
        if room.index is not self.ranges.index or table[accesses.RANGES] != self.ranges.address:
            room.sites[...] = 0
            room.index = self.ranges.index
            table[accesses.RANGES], table[accesses.RANGE_COUNT] = self.ranges.address, len(self.ranges.rows)
        job[launches.NEXT], job[launches.COUNT] = self.begin.counter_address, self.count
        job[launches.GRID_X], job[launches.GRID_Y] = work.grid[0], work.grid[1]
        job[launches.IMAGE], job[launches.GROUP] = self.begin.image_address, -1
        return room

    def _new_room(self) -> Room:
        launch, shape, waves = self.launch, self.shape, self.shape.waves
        lanes, text = launch.wave_size, shape.compiled.text
        rows = launch.vgprs | 1  # as room_by_wave() has them
        scratch_size = 0 if self.flat_scratch else -(-launch.scratch_bytes // 4) * 4
        lds_bytes = -(-max(launch.lds_bytes, 4) // LINE) * LINE
        vector_bytes, own = waves * rows * lanes * 4, scratch_size * lanes
        zero_bytes = vector_bytes + lds_bytes + waves * own
        header = _header_bytes(waves)
        memory = _aligned(zero_bytes + header + 32 * waves + 2 * LINE)
        zeros, place, rest = memory[:zero_bytes], memory[zero_bytes:], memory[zero_bytes + header :]
        scalars, conditions, entries, fuels = _header(place, waves)
        exits = rest[: 4 * waves].view(np.int32)
        lds = zeros[vector_bytes : vector_bytes + lds_bytes]
        scratch = zeros[vector_bytes + lds_bytes :]
        pointers = np.zeros((2, waves), np.int64)
        pointers[0] = lds.ctypes.data
        pointers[1] = scratch.ctypes.data + own * np.arange(waves)
        groups = np.array([0, waves], np.int64)
        sites = np.zeros((max(1, text.sites), accesses.SITE_WORDS), np.int64)
        vectors = zeros[:vector_bytes].view(np.uint32).reshape(waves, rows, lanes)
        table = np.zeros(accesses.TABLE_WORDS, np.int64)
        for number, array in (
            (accesses.VECTORS, vectors),
            (accesses.SCALARS, scalars),
            (accesses.CONDITIONS, conditions),
            (accesses.EXITS, exits),
            (accesses.ENTRIES, entries),
            (accesses.FUELS, fuels),
            (accesses.GROUPS, groups),
            (accesses.SITES, sites),
        ):
            table[number] = array.ctypes.data
        table[accesses.WAVES], table[accesses.WAVE_BYTES] = waves, rows * lanes * 4
        table[accesses.GROUP_COUNT], table[accesses.MEETS] = 1, 0
        table[accesses.SHARED], table[accesses.SHARED_BYTES] = pointers[0].ctypes.data, launch.lds_bytes
        table[accesses.SCRATCH], table[accesses.SCRATCH_BYTES] = pointers[1].ctypes.data, scratch_size
        job = Job()
        for number, value in (
            (launches.CODE, shape.compiled.code.address),
            (launches.TABLE, table.ctypes.data),
            (launches.ZEROS, zeros.ctypes.data),
            (launches.ZERO_BYTES, zero_bytes),
            (launches.PLACE, place.ctypes.data),
            (launches.BYTES, header),
            (launches.ROWS, shape.rows.ctypes.data),
            (launches.ROW_BYTES, 4 * lanes * launch.id_registers),
            (launches.ROW_STEP, rows * lanes * 4),
            (launches.POKES, shape.pokes.ctypes.data),
            (launches.POKE_COUNT, len(shape.pokes)),
            (launches.WAVES, waves),
            (launches.EXITS, exits.ctypes.data),
            (launches.ENTRIES, entries.ctypes.data),
            (launches.FUELS, fuels.ctypes.data),
            (launches.MEANINGS, shape.meanings.ctypes.data),
            (launches.FUEL, native.FUEL),
        ):
            job[number] = value
        job.held = [memory, pointers, groups, shape]
        found = vectors[:, : launch.vgprs].swapaxes(0, 1)
        return Room(job, found, scalars, conditions, exits, entries, lds, scratch, table, sites)

    # -- running

    def run(
        self, report: Report, limits: Limits, at_once: Callable[[], int], begins: Begins | None
    ) -> Iterator[Machine]:
        """Run workgroups; gives machines, each of which is to be run to its end before the next is asked for.

        at_once   workgroups that the interpreter takes together
        begins    is told of waves that are under way, before it is asked whether to stop
        """
        rooms = [self._take_room()]
        most = threads.count() if self.shape.is_spread else 1
        slice_ = min(SLICE, threads.ALONE) if most > 1 and self.count > 1 else SLICE
        try:
            while True:
                self.memory.settle()
                budget = max(1, limits.budget - report.instructions)
                before = [room.job[launches.GROUP] for room in rooms]
                used = threads.run([room.job for room in rooms], min(slice_, budget))
                self._count(rooms, report, used)
                if all(room.job[launches.STATE] == launches.FINISHED for room in rooms):
                    return
                left = [room for room in rooms if room.job[launches.STATE] == launches.BLOCKED]
                under_way = [room for room in rooms if room.job[launches.GROUP] >= 0]
                if not under_way and self.first == self.count:
                    return
                self.program.left += len(left)
                is_given_up = self.program.left > MOST_LEFT
                same = [
                    room
                    for room, group in zip(rooms, before)
                    if group >= 0 and group == room.job[launches.GROUP]
                ]
                if left or same:  # one that takes long may wait for others behind it
                    taken = under_way if is_given_up else left or same
                    yield self.machine(taken, report, limits, 0 if left and not is_given_up else at_once())
                    if is_given_up:
                        return
                    continue
                self._ask(under_way, report, limits, begins)
                slice_ = SLICE
                while len(rooms) < min(most, self.count - self.first + len(rooms)):
                    rooms.append(self._take_room())
        finally:
            self.shape.rooms += rooms
            self.shape.begins.append(self.begin)

    def _count(self, rooms: list[Room], report: Report, used: int) -> None:
        done = sum(room.job[launches.DONE] for room in rooms)
        for room in rooms:
            room.job[launches.DONE] = 0
        report.waves += done * self.shape.waves
        report.instructions += used
        report.lane_instructions += used * self.launch.wave_size
        report.batches += done

    def _ask(self, rooms: list[Room], report: Report, limits: Limits, begins: Begins | None) -> None:
        """Whether to stop, and who asks where waves are. Raises OutOfBudget."""
        first = self.counter[0]
        machine = self.machine(rooms, report, limits, 0 if rooms else 1, is_taken=False)
        self.counter[0] = first
        if begins is not None:
            begins(machine)
        machine.look()

    def _place(self, way_out: int, entry: int) -> int:
        """Where a wave stands that has left by a way out, and goes on at an entry; -1 for one that has ended.

        One that is stuck has the entry that it came from. One that was let go at a barrier has passed it."""
        if entry == launches.ENDED:
            return -1
        if entry >= 0 and self.shape.meanings[way_out] != launches.STUCK:
            return (self.program.entry + self.shape.places[entry]) & native.WHOLE
        return (self.program.entry + self.shape.compiled.text.exits[way_out]) & native.WHOLE

    def machine(
        self, rooms: list[Room], report: Report, limits: Limits, more: int, *, is_taken: bool = True
    ) -> Machine:
        """The workgroups of these rooms as they stand, and as many after them, for the interpreter."""
        begun = [room.job[launches.GROUP] for room in rooms]
        first = self.first
        more = min(self.count - first, max(0, more - len(begun)))
        self.counter[0] = first + more
        order = sorted(range(len(rooms)), key=begun.__getitem__)
        groups = np.array([begun[at] for at in order] + list(range(first, first + more)), np.int64)
        residents = self.residents(groups)
        machine = Machine(self.program, residents, report, limits)
        if is_taken:
            report.waves += len(residents.group_of)
        whole, waves = first_batch(residents, by_wave=True), self.shape.waves
        places = np.full(len(residents.group_of), self.launch.entry, np.int64)
        own = residents.scratch_size * residents.wave_size
        for number, at in enumerate(order):
            room = rooms[at]
            ids = slice(number * waves, (number + 1) * waves)
            whole.u32[:, ids], whole.scalars[ids] = room.vectors, room.scalars
            whole.scc[ids] = room.conditions.view(np.bool_)
            start = number * residents.lds_stride
            residents.lds.data[start : start + self.launch.lds_bytes] = room.lds[: self.launch.lds_bytes]
            if own:
                residents.scratch.data[ids.start * own : ids.stop * own] = room.scratch
            places[ids] = [self._place(*one) for one in zip(room.exits.tolist(), room.entries.tolist())]
            residents.alive[number] -= np.count_nonzero(room.entries == launches.ENDED)
            if is_taken:  # barriers are counted when the interpreter comes to them
                report.instructions -= np.count_nonzero(room.entries < launches.ENDED)
                room.job[launches.GROUP] = -1
        for pc in np.unique(places).tolist():
            if pc < 0:
                continue
            part = whole.take(places == pc)
            part.pc = pc
            machine.ready.append(part)
            if machine.native is not None and pc - self.program.entry in self.shape.compiled.text.troubles:
                machine.native.troubles.add(pc)
        return machine


def whole_groups(
    program: Program,
    launch: Launch,
    work: WorkItems,
    memory: Any,
    scalar: Any,
    flat_scratch: int,
    sync: GlobalSync,
    strays: Strays | None,
) -> WholeGroups | None:
    """Those that machine code can run; None where there is none."""
    if program.left > MOST_LEFT or not native.is_possible(program, memory, scalar) or launch.scratch_waves:
        return None
    count = work.groups
    if not work.is_whole:  # in a row, only the last workgroup is smaller
        count = work.groups - 1 if work.grid[1:] == work.block[1:] == (1, 1) else 0
    waves = work.waves_per_group(launch.wave_size)
    scratch = 0 if flat_scratch else launch.scratch_bytes
    size = waves * launch.wave_size * (4 * launch.vgprs + scratch) + launch.lds_bytes
    if not count or size > MOST_BYTES:
        return None
    compiled = native.ready(program, launch.mode, launch.vgprs)
    if compiled is None or 0 not in compiled.text.entries:
        return None
    return WholeGroups(program, launch, work, memory, flat_scratch, compiled, count, sync, strays)


def _header_bytes(waves: int) -> int:
    return -(-waves * (512 + 8 + 8 + 1) // LINE) * LINE


def _header(memory: Any, waves: int) -> tuple[Any, Any, Any, Any]:
    """Scalar registers, condition bits, entries and fuels, one behind the other."""
    scalars = memory[: 512 * waves].view(np.uint32).reshape(waves, 128)
    entries = memory[512 * waves : 520 * waves].view(np.int64)
    fuels = memory[520 * waves : 528 * waves].view(np.int64)
    return scalars, memory[528 * waves : 529 * waves], entries, fuels


def _aligned(size_bytes: int) -> Any:
    room = np.zeros(size_bytes + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + size_bytes]


def _meanings(program: Program, text: Any) -> Any:
    """What each exit is to the driver."""
    found = []
    for place in text.exits:
        inst = program.instructions.get((program.entry + place) & native.WHOLE)
        behind = None if inst is None else text.entries.get((inst.next_pc - program.entry) & native.WHOLE)
        if inst is None or place in text.troubles:
            found.append(launches.STUCK)
        elif inst.name == "s_endpgm":
            found.append(launches.ENDED)
        elif inst.name == "s_barrier" and behind is not None:
            found.append(launches.waits(behind))
        elif place in text.entries:
            found.append(launches.goes_on(text.entries[place]))
        else:
            found.append(launches.STUCK)
    return np.array(found or [launches.STUCK], np.int64)
