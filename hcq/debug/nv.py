"""A launch on an emulated NVIDIA GPU, for the debugger: its warps, PTX registers, shared memory, and steps that tell.

In       what Kernel.run is given: a kernel, grid and block, memory, parameters
Out      NvWork, NvMoment
Changes  memory that it is given, as the kernel does; no code of the core
Next     timeline.py (who runs it), hcq/emu/nv/shader/machine.py (paths of threads), amd.py (the sister)

A kernel is decoded once more, with steps that tell of themselves and without guesses in retry loops. It can be saved
where no thread is in a function that was called, and no copy is under way. What HCQ_SANITIZE wants is looked for while
the program itself runs, by a kernel of its own; nothing is looked for when a launch is run again.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hcq.debug.moment import Access, Array, Moment, Site, Standing, Work
from hcq.debug.pages import Pages
from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.checks import additions_of, attach, refused
from hcq.emu.nv.shader.counters import type_of
from hcq.emu.nv.shader.decode import Code, DecodedBlock, Lowering, Registers, Step
from hcq.emu.nv.shader.device_heap import Heap
from hcq.emu.nv.shader.errors import Interrupted, KernelFault, PtxError
from hcq.emu.nv.shader.grids import numbers_of
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.machine import Machine
from hcq.emu.nv.shader.memory import AddressSpace, Memory
from hcq.emu.nv.shader.memory_ops import address_of, of_lanes, take_space, vector_of
from hcq.emu.nv.shader.paths import Activation, Path
from hcq.emu.nv.shader.run import BATCH_LANES as LANES_WITH_SEED
from hcq.emu.nv.shader.run import STEP_LIMIT, Kernel, Report
from hcq.emu.nv.shader.spaces import WINDOW_BYTES
from hcq.emu.nv.shader.standing import WAITS
from hcq.emu.nv.shader.syntax import Address, Immediate, Instruction, Register, Vector
from hcq.emu.nv.shader.types import TYPES, Lanes, Scalar
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.schedule import MOST_PARTS, Schedule
from hcq.errors import UsageError

BATCH_LANES = 4096
KINDS = {"ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic"}
SECOND = 1 << 20  # the key of a second instruction in a line is this much more
Reach = Callable[[Registers, Group], "tuple[str, str, Lanes, Lanes] | None"]


class _Known(NamedTuple):
    """An instruction. reach: what it does with memory: (kind, space, threads, addresses); size: of each."""

    site: Site
    instruction: Instruction
    guard: tuple[int, bool] | None
    reach: Reach | None
    size: int
    data: tuple[str, ...]


class _Telling:
    """Makes the steps of a kernel tell `probe` before they run."""

    def __init__(self) -> None:
        self.probe: Any = None
        self.known: dict[int, _Known] = {}

    def __call__(self, lowering: Lowering, block: flow.BasicBlock, made: DecodedBlock) -> None:
        told: list[Step] = []
        first = True
        for instruction, step in zip(block.body, made.steps):
            told.append(self._told(self._note(lowering, instruction), step, first))
            first = False
        if block.end is not None:
            key = self._note(lowering, block.end)
            if made.end is not None:
                made.end = self._end(key, made.end, first)
            else:  # as ret, which a block may be by itself
                told.append(self._told(key, lambda registers, group: None, first))
        made.steps, made.retry = told, None

    def _note(self, lowering: Lowering, instruction: Instruction) -> int:
        key = instruction.line
        while key in self.known and self.known[key].instruction is not instruction:
            if self.known[key].instruction == instruction:
                return key
            key += SECOND
        self.known.setdefault(key, _known(lowering, instruction, key))
        return key

    def _told(self, key: int, step: Step, is_first: bool) -> Step:
        def run(registers: Registers, group: Group) -> None:
            self.tell(key, registers, group, is_first)
            step(registers, group)

        return run

    def _end(self, key: int, end: Callable[..., int], is_first: bool) -> Callable[..., int]:
        def run(machine: Machine, registers: Registers, path: Path) -> int:
            self.tell(key, registers, path, is_first)
            return end(machine, registers, path)

        return run

    def tell(self, key: int, registers: Registers, group: Group, is_first: bool) -> None:
        """An instruction is about to run."""
        probe = self.probe
        if is_first:
            probe.between(None)
        probe.tick += 1
        probe.done += -(-group.count // WARP)
        if probe.tick >= probe.due or key in probe.keys:
            probe.look(key, (registers, group))


class _Machine(Machine):
    """One that can go on where it was saved. resumes: the path that had been drawn, and goes on first."""

    resumes: Path | None = None

    def _pick(self) -> Path:
        if self.resumes is None:
            return super()._pick()
        path, self.resumes = self.resumes, None
        return path


class _Decoded(NamedTuple):
    """A kernel with steps that tell."""

    kernel: Kernel
    telling: _Telling


class State(NamedTuple):
    """A machine at the beginning of a block of instructions. first: of the blocks that run together."""

    first: int
    machine: _Machine


class NvWork(Work):
    """A launch. `kernels` keeps kernels that were decoded with telling steps."""

    vendor, unit, shared_name, lanes, is_text = "nv", "warp", "shared memory", WARP, True

    def __init__(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        memory: Memory,
        params: Any,
        kernels: dict[Any, Any],
        *,
        step_limit: int = STEP_LIMIT,
        interrupted: Callable[[], bool] | None = None,
        together: bool = False,
        entry: int = 0,
        tally: Any = None,
        sample: int = 0,
        checks: Checks | None = None,
        schedule: Schedule | None = None,
        running: Any = None,
        **options: Any,
    ) -> None:
        self.grid, self.block, self.arch, self.entry = grid, block, kernel.program.module.target, entry
        self.name, self.interrupted, self.together = kernel.function.name, interrupted, together
        self.checks, self.schedule = checks, schedule
        self._plain = _decoded(kernel, kernels, ())
        self._checked = self._plain if checks is None else _decoded(kernel, kernels, additions_of(checks))
        self.kernel, self.telling = self._plain
        limit = 8 * step_limit * (1 if schedule is None else MOST_PARTS)
        self.launch = self.kernel.launch(grid, block, memory, params, step_limit=limit, **options)
        self.machine: _Machine | None = None
        self._first, self._is_whole = 0, False

    def run(self, probe: Any, memory: Any, state: State | None = None) -> Report:
        before = self.kernel, self.telling, self.machine, self._first
        checks = self.checks if probe.is_live else None
        self.kernel, self.telling = self._plain if checks is None else self._checked
        probe_before, self.telling.probe = self.telling.probe, probe
        schedule = copy.deepcopy(self.schedule)
        interrupted = self.interrupted if probe.is_live else None
        launch = dataclasses.replace(self.launch, memory=memory, interrupted=interrupted)
        at_once = self._at_once
        steps = batches = 0
        try:
            if state is not None:
                self._first = state.first
                self.machine = _copied(state.machine, launch)
                schedule = self.machine.schedule
                self.machine.go_on()
                steps = self.machine.batch.steps
            begin = 0 if state is None else state.first + at_once
            for first in range(begin, self.blocks, at_once):
                positions = np.arange(first, min(first + at_once, self.blocks))
                batch = Batch(launch, numbers_of(positions, launch.grid, launch.cluster), steps)
                if checks is not None:
                    attach(checks, self.kernel.program, batch)
                self._first, self.machine = first, _Machine(self.kernel.program, batch, schedule)
                self.machine.run()
                steps, batches = batch.steps, batches + 1
                if interrupted is not None and interrupted():
                    raise Interrupted(f"kernel {self.name}: it was not wanted any more")
        except KernelFault as fault:
            if checks is not None and self.machine is not None:
                refused(checks, self.kernel.program, self.machine.batch, fault)
            raise
        finally:
            self.telling.probe = probe_before
            self.kernel, self.telling, self.machine, self._first = before
        return Report(steps, self.blocks, batches)

    @property
    def _at_once(self) -> int:
        """As many as without the debugger where the order of warps is drawn from a seed, so that it is the same one."""
        lanes = BATCH_LANES if self.schedule is None else LANES_WITH_SEED
        return self._plain.kernel.blocks_at_once(
            *(self.blocks, self.block, self.launch.dynamic_shared_bytes, lanes, self.together, self.checks),
            self.launch.cluster,
        )

    def save(self) -> State | None:
        """The machine as it is at the beginning of a block; None where it cannot be saved, and while it is checked."""
        machine = self.machine
        assert machine is not None
        if self.kernel is not self._plain.kernel:
            return None
        batch = machine.batch
        if batch.thread_copies.are_under_way or batch.copies._counted or batch.copies._grouped:
            return None
        if batch.tensor_memory is not None:
            return None
        if any(
            path.on_wake is not None or _is_called(path) for path in [*machine.runnable, *machine.waiting]
        ):
            return None
        made = _copied(machine, batch.launch)
        running = machine.running
        if running is not None:  # the block that begins is counted again when it begins again
            made.batch.steps -= running.activation.decoded.blocks[running.pc].length
        if machine.schedule is not None:  # who goes on has been drawn
            made.resumes = made.running
        made.running = None
        return State(self._first, made)

    @property
    def size(self) -> int:
        if not self._is_whole:  # a function is decoded when it is first needed
            self._is_whole = True
            for function in self.kernel.program.functions:
                if function.has_body:
                    with contextlib.suppress(PtxError):  # one that nobody reaches may hold anything
                        self.kernel.program.decoded(function.name)
        return len(self.telling.known)

    def sites(self) -> list[Site]:
        keys = sorted(self.telling.known, key=lambda one: (one % SECOND, one)) if self.size else []
        return [self.telling.known[key].site for key in keys]

    def moment(self, key: int, context: tuple[Registers, Group]) -> NvMoment:
        """What is about to happen."""
        assert self.machine is not None
        return NvMoment(self, self.machine, self.telling.known[key], *context)

    def recorder(self, space: Any, pages: Pages) -> Any:
        return _Recorder(space, pages)

    def private(self) -> Any:
        return AddressSpace()


class NvMoment(Moment):
    """Before an instruction of a path."""

    def __init__(
        self, work: NvWork, machine: Machine, known: _Known, registers: Registers, group: Group
    ) -> None:
        self.work: NvWork = work
        self.machine, self.batch, self.known = machine, machine.batch, known
        self.registers, self.group, self.site = registers, group, known.site
        self._width = self.batch.count // len(self.batch.blocks)

    def _numbers(self, mask: Lanes) -> Array:
        lanes = np.flatnonzero(mask)
        lanes = lanes[self.batch.thread_of_lane[lanes] < self.batch.threads_per_block]
        blocks = self.batch.blocks[self.batch.block_of_lane[lanes]]
        found: Array = np.unique(
            blocks * self.work.waves_per_block + self.batch.thread_of_lane[lanes] // WARP
        )
        return found

    @property
    def waves(self) -> Array:
        return self._numbers(self.group.full_mask)

    def _lanes(self, wave: int) -> tuple[int, int]:
        """(first lane of the batch, how many) of a warp."""
        block, place = divmod(wave, self.work.waves_per_block)
        if block not in self.batch.blocks:
            raise UsageError(f"warp {wave} is not resident now: its block has ended, or not begun.")
        start = int(np.argmax(self.batch.blocks == block)) * self._width + place * WARP
        return start, min(WARP, self._width - place * WARP)

    def _of_warp(self, values: Lanes, wave: int) -> Array:
        start, count = self._lanes(wave)
        found = np.zeros(WARP, values.dtype)
        found[:count] = np.broadcast_to(values, (self.batch.count,))[start : start + count]
        return found

    def on(self, wave: int) -> Array:
        group, _ = self._where(wave)
        return self._of_warp(group.full_mask & self.machine.live, wave)

    def _where(self, wave: int) -> tuple[Group, Activation]:
        start, count = self._lanes(wave)
        paths = [
            self.group,
            *(one for one in self.machine.runnable if one is not self.group),
            *self.machine.waiting,
        ]
        for path in paths:
            if path.full_mask[start : start + count].any():
                assert isinstance(path, Path)
                return path, path.activation
        for path in [*self.machine.runnable, *self.machine.waiting]:
            region: Any = path.region
            while region is not None:
                if region.arrived is not None and region.arrived[start : start + count].any():
                    return Path(self.batch, region, region.rejoin, region.arrived, 0, 0), region.activation
                region = region.parent
        raise UsageError(f"warp {wave} has ended.")

    def names(self) -> list[str]:
        assert isinstance(self.group, Path)
        decoded = self.group.activation.decoded
        specials = [symbol.name for _, symbol in decoded.late if symbol.name.startswith("%")]
        return [*decoded.function.registers, *dict.fromkeys(specials)]

    def read(self, name: str, wave: int) -> Array:
        group, activation = self._where(wave)
        decoded = activation.decoded
        registers = self.registers if group is self.group else activation.registers
        slot = decoded.slots.get(name) if name in decoded.function.registers else None
        if slot is None:
            slot = next((one for one, symbol in decoded.late if symbol.name == name), None)
        if slot is None and name == "exec":
            return np.packbits(self.on(wave), bitorder="little").view(np.uint32)
        if slot is None:
            raise UsageError(
                f"there is no register {name!r} in {decoded.function.name}: `regs all` lists them."
            )
        values = registers[slot]
        if values.dtype == np.bool_:
            values = values.astype(np.uint8)
        if values.dtype.kind != "u":
            raise UsageError(f"{name} is no plain number.")
        return self._of_warp(values, wave)

    def doing(self, wave: int) -> Array:
        on = self.on(wave)
        if self.known.guard is None:
            return on
        slot, negated = self.known.guard
        doing: Array = on & (self._of_warp(self.registers[slot], wave).astype(np.bool_) != negated)
        return doing

    def accesses(self) -> list[Access]:
        if self.known.reach is None:
            return []
        found = self.known.reach(self.registers, self.group)
        if found is None:
            return []
        kind, space, lanes, at = found
        batch = self.batch
        inside = batch.thread_of_lane[lanes] < batch.threads_per_block
        lanes, at = lanes[inside], at[inside].astype(np.uint64)
        out = []
        for name, chosen, where in _split(batch, space, at):
            who = lanes[chosen]
            wave = (
                batch.blocks[batch.block_of_lane[who]] * self.work.waves_per_block
                + batch.thread_of_lane[who] // WARP
            )
            lane = batch.thread_of_lane[who] % WARP
            out.append(Access(kind, name, wave, lane, where, self.known.size, self.known.data))
        return out

    def shared(self, block: int) -> Array:
        batch = self.batch
        if block not in batch.blocks:
            raise UsageError(f"block {block} is not resident now.")
        start = int(batch.shared_start[int(np.argmax(batch.blocks == block)) * self._width])
        found: Array = batch.shared[start : start + batch.shared_bytes]
        return found

    def local(self, wave: int, lane: int) -> Array:
        start, _ = self._lanes(wave)
        row, size = int(self.batch.local_row[start + lane]), self.batch.local_bytes
        found: Array = self.batch.local[row * size : (row + 1) * size]
        return found

    def standing(self) -> list[Standing]:
        found, machine = [], self.machine
        found.append(self._standing(self.group.full_mask, self.site, ""))
        for path in machine.runnable:
            if path is not self.group:
                found.append(self._standing(path.full_mask, self._site(path.activation, path.pc), ""))
        for path in machine.waiting:
            waits = (
                f"barrier {path.barrier} of its block"
                if path.waits_for == "barrier"
                else WAITS[path.waits_for]
            )
            found.append(self._standing(path.full_mask, self._site(path.activation, path.pc), waits))
        seen: dict[int, Any] = {}
        for path in [*machine.runnable, *machine.waiting]:
            region: Any = path.region
            while region is not None:
                seen[id(region)] = region
                region = region.parent
        for region in seen.values():
            if region.arrived is not None and region.arrived_count:
                site = self._site(region.activation, region.rejoin)
                found.append(
                    self._standing(region.arrived, site, "the other threads of its warp, which meet it here")
                )
        return [one for one in found if len(one.waves)]

    def _standing(self, mask: Lanes, site: Site | None, waits: str) -> Standing:
        mask = mask & self.machine.live
        waves = self._numbers(mask)
        lanes = np.array([self._of_warp(mask, int(wave)) for wave in waves.tolist()], np.bool_).reshape(
            -1, WARP
        )
        return Standing(waves, lanes, site, waits)

    def _site(self, activation: Activation, pc: int) -> Site | None:
        blocks = activation.decoded.blocks
        known = self.work.telling.known.get(blocks[pc].line) if pc < len(blocks) else None
        return None if known is None else known.site

    def why(self, wave: int) -> str:
        text = super().why(wave)
        start, count = self._lanes(wave)
        live = int(np.count_nonzero(self.machine.live[start : start + count]))
        here = int(np.count_nonzero(self.on(wave)))
        if live < WARP:
            text += f"; {WARP - live} have ended, or are not in the block"
        if here < live:
            text += f"; {live - here} took another way at a branch: `waves` says where they are"
        if self.known.guard is not None and wave in self.waves:
            off = int(np.count_nonzero(self.on(wave) & ~self.doing(wave)))
            if off:
                text += f"; the predicate before this instruction is false in {off} of these"
        return text


def _split(batch: Batch, space: str, at: Array) -> list[tuple[str, Array, Array]]:
    """(space, which, addresses in it) of accesses; generic ones are of several spaces."""
    if space not in ("", "shared"):
        return [(space, np.arange(len(at)), at)]
    found = []
    rest = np.ones(len(at), np.bool_)
    windows = (
        ("shared", batch.shared_window, batch.shared_window_bytes),
        ("local", batch.local_window, WINDOW_BYTES),
    )
    for name, start, size in windows:
        inside = at - np.uint64(start) < np.uint64(size)
        if inside.any():
            found.append((name, np.flatnonzero(inside), at[inside] - np.uint64(start)))
            rest &= ~inside
    if rest.any():
        found.append((space or "global", np.flatnonzero(rest), at[rest]))
    return found


def _is_called(path: Path) -> bool:
    region: Any = path.region
    while region is not None:
        if region.back is not None:
            return True
        region = region.parent
    return False


def _known(lowering: Lowering, instruction: Instruction, key: int) -> _Known:
    reads, writes = flow.reads_and_writes(instruction)
    code = Code(lowering, instruction)
    reach, size, data = _reach(lowering, instruction)
    opcode = instruction.opcode
    kind = KINDS.get(opcode, "")
    if opcode in ("bar", "barrier") and instruction.modifiers[:1] != ("warp",):
        kind = "barrier"
    elif opcode in ("exit", "trap") or (opcode == "ret" and lowering.function.is_entry):
        kind = "end"
    elif opcode in ("bra", "brx", "call"):
        kind = "branch"
    elif opcode == "cp" and reach is not None:
        kind = "store"
    known = [one for one in dict.fromkeys(reads) if one != flow.CARRY]
    guard = code.guard if instruction.guard is not None else None
    line = f"PTX line {instruction.line}"
    site = Site(key, instruction.text, line, tuple(known), tuple(dict.fromkeys(writes)), kind)
    return _Known(site, instruction, guard, reach, size, data)


def _reach(lowering: Lowering, instruction: Instruction) -> tuple[Reach | None, int, tuple[str, ...]]:
    """What an instruction does with memory, where it is one that says so with an address."""
    opcode, places = instruction.opcode, [one for one in instruction.operands if isinstance(one, Address)]
    if not places or not (opcode in KINDS or opcode == "cp") or "bulk" in instruction.modifiers:
        return None, 0, ()
    code = Code(lowering, instruction)
    if opcode == "cp":
        size_operand = code.operands[2] if len(code.operands) > 2 else None
        if len(places) != 2 or not isinstance(size_operand, Immediate):
            return None, 0, ()
        return _reaching(code, "store", "shared", places[0]), size_operand.value, ()
    space = take_space(code)
    if space in ("param", "const"):
        return None, 0, ()
    size = vector_of(code) * TYPES[type_of(instruction)].size_bytes
    operand: Any = instruction.operands[0] if KINDS[opcode] == "load" else instruction.operands[-1]
    parts = operand.parts if isinstance(operand, Vector) else (operand,)
    data = tuple(one.name for one in parts if isinstance(one, Register))
    return _reaching(code, KINDS[opcode], space, places[0]), size, data


def _reaching(code: Code, kind: str, space: str, place: Address) -> Reach:
    at_of, select = address_of(code, place), code.select()

    def reach(registers: Registers, group: Group) -> tuple[str, str, Lanes, Lanes]:
        lanes = select(registers, group)
        at = of_lanes(at_of(registers), lanes, group.batch.count)
        return kind, space, group.batch.every_lane if lanes is None else lanes, at

    return reach


SHARED_BY_COPIES = (
    "every_lane", "block_of_lane", "thread_of_lane", "blocks", "all_lanes", "shared_start", "params", "lane_in_warp",
    "warp_start", "full_warps", "warpgroup_of_lane",
)  # fmt: skip


def _decoded(kernel: Kernel, kernels: dict[Any, Any], additions: tuple[Any, ...]) -> _Decoded:
    """A kernel as it is debugged, with what is added to its steps before they tell."""
    key = id(kernel), additions
    known: tuple[Kernel, _Decoded] | None = kernels.get(key)
    if known is None:
        program, telling = kernel.program, _Telling()
        base, steps = kernel.function.param_base, (*additions, telling)
        made = Kernel(program.module, kernel.function.name, program.symbols, base, additions=steps)
        known = kernels[key] = kernel, _Decoded(made, telling)  # the first, so that its id stays its own
    return known[1]


def _copied(machine: _Machine, launch: Any) -> _Machine:
    """A machine with state of its own, of this launch. What is never written in place is shared."""
    batch = machine.batch
    shared: list[Any] = [machine.program, *(getattr(batch, name, None) for name in SHARED_BY_COPIES)]
    regions: dict[int, Any] = {}
    for path in [*machine.runnable, *machine.waiting]:
        region: Any = path.region
        while region is not None:
            regions[id(region)] = region
            region = region.parent
    for region in regions.values():
        shared += [region.activation.decoded, *region.activation.registers]
    memo: dict[int, Any] = {id(one): one for one in shared if one is not None}
    memo[id(batch.launch)] = launch
    memo[id(batch.memory)] = launch.memory
    templates = machine._templates
    memo[id(templates)] = templates
    made = copy.deepcopy(machine, memo)
    return made


class _Recorder:
    """Memory as it is, of which `pages` hears first."""

    def __init__(self, memory: Any, pages: Pages) -> None:
        self.memory, self.pages = memory, pages
        self.places_of = memory.places_of

    @property
    def heap(self) -> Heap:
        """As Memory.heap."""
        found: Heap = self.memory.heap
        return found

    def load(self, addresses: Lanes, scalar: Scalar, count: int) -> Lanes:
        """As Memory.load."""
        self.pages.touch(addresses, np.dtype(scalar).itemsize * count, False)
        found: Lanes = self.memory.load(addresses, scalar, count)
        return found

    def store(self, addresses: Lanes, values: Lanes) -> None:
        """As Memory.store."""
        size = values.dtype.itemsize * (1 if values.ndim == 1 else values.shape[1])
        self.pages.touch(addresses, size, True)
        self.memory.store(addresses, values)
