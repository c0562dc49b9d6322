"""A launch on an emulated AMD GPU, for the debugger: its waves, registers, LDS, and steps that tell of themselves.

In       what run_dispatch is given: a ShaderCore, a Launch, grid and block
Out      AmdWork, AmdMoment
Changes  memory that it is given, as the kernel does; no code of the core
Next     timeline.py (who runs it), amd_sites.py (what an instruction reads and writes),
         hcq/emu/amd/shader/machine.py (the batches of waves)

A program that is debugged is decoded by a class of its own, so that the core's programs pay nothing. Rounds of retry
loops are not guessed at, and clocks count instructions: so a launch that is run again does the same. What HCQ_SANITIZE
wants is looked for while the program itself runs, by a second such class; nothing is looked for when it is run again.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hcq.debug.amd_sites import AmdSite, accesses_of, index_of, site_of
from hcq.debug.moment import Access, Array, Moment, Site, Standing, Work
from hcq.debug.pages import Pages
from hcq.emu.amd.shader.checks import additions_of, attach, refused
from hcq.emu.amd.shader.control import compile_ending
from hcq.emu.amd.shader.errors import PageFault, ShaderFault
from hcq.emu.amd.shader.machine import Limits, Machine, Report, first_batch
from hcq.emu.amd.shader.memory import AddressSpace, Bytes, Memory, aligned_words
from hcq.emu.amd.shader.operands import Context, Mode, Step, scalar_write
from hcq.emu.amd.shader.program import BasicBlock, Program
from hcq.emu.amd.shader.residents import Residents
from hcq.emu.amd.shader.run import DEFAULT_BUDGET, ShaderCore, check_launch, groups_at_once
from hcq.emu.amd.shader.strays import Strays
from hcq.emu.amd.shader.wave_start import Launch, WorkItems
from hcq.emu.amd.shader.waves import EXEC, VCC, Batch
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.schedule import Schedule
from hcq.errors import UsageError

LANES_AT_ONCE = 4096
CLOCKS = {"s_memtime", "s_memrealtime", "s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64"}
NAMED = {"vcc": VCC, "vcc_lo": VCC, "vcc_hi": VCC + 1, "exec": EXEC, "exec_lo": EXEC, "exec_hi": EXEC + 1}


class _Told(Program):
    """A program whose steps tell `probe` before they run, the ending of a block included."""

    probe: Any = None

    def compile(self, start: int, mode: Mode) -> BasicBlock:
        block = super().compile(start, mode)
        last = start
        for _ in range(block.length - 1):
            last = self.fetch(last).next_pc
        context = Context(self.isa, self.fetch(last), mode, self.wave_size, self.acc_offset)
        ends = compile_ending(context) is not None
        # what stands at the place of an ending already is no instruction: loads to LDS that arrive, and what looks; of
        # several steps at one place the first tells
        told: list[Step] = []
        before = -1
        for pc, step in zip(block.pcs, block.steps):
            told.append(step if pc == before or (ends and pc == last) else self.told(pc, step))
            before = pc
        if ends:
            told.append(self.told(last, lambda b: None))
            block.pcs.append(last)
        block.steps, block.retries = told, False
        return block

    def told(self, pc: int, step: Step) -> Step:
        """The step, with the probe told before it."""

        def run(b: Batch) -> None:
            probe = self.probe
            probe.tick += 1
            probe.done += len(b.ids)
            if probe.tick >= probe.due or pc in probe.keys:
                probe.look(pc, b)
            step(b)

        return run

    def compile_step(self, ctx: Context) -> Step:
        name = ctx.inst.name
        if name not in CLOCKS:
            return super().compile_step(ctx)
        words = 1 if name.endswith("b32") else 2
        write = scalar_write(ctx, ctx.inst.fields["sdst" if "sendmsg" in name else "sdata"], words)
        dtype = np.uint32 if words == 1 else np.uint64
        return lambda b: write(b, np.full(b.waves, self.probe.tick, dtype))


class _Machine(Machine):
    """One that can be saved between two blocks. Nothing of it runs as machine code."""

    def __init__(
        self,
        program: Program,
        residents: Residents,
        report: Report,
        limits: Limits,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(program, residents, report, limits, schedule)
        self.native = None

    def next_batch(self) -> Batch:
        self.program.probe.between(self)  # type: ignore[attr-defined]
        return super().next_batch()


class State(NamedTuple):
    """A machine between two blocks, without its memory. first: of the groups that are resident together."""

    first: int
    machine: Any
    report: Report


class AmdWork(Work):
    """A launch. `programs` keeps decoded programs between launches."""

    vendor, unit, shared_name = "amd", "wave", "LDS"

    def __init__(
        self,
        core: ShaderCore,
        launch: Launch,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        programs: dict[Any, Any],
        *,
        items: tuple[int, int, int] | None = None,
        budget: int = DEFAULT_BUDGET,
        interrupted: Callable[[], bool] | None = None,
        is_cooperative: bool = False,
        strays: Strays | None = None,
        guard: Callable[[Memory], Memory] | None = None,
        checks: Checks | None = None,
        schedule: Schedule | None = None,
        **_: Any,
    ) -> None:
        check_launch(core, launch, grid, block)
        self.core, self.launch, self.grid, self.block = core, launch, grid, block
        self.arch, self.entry, self.lanes, self.name = core.isa.arch, launch.entry, launch.wave_size, ""
        self.items = WorkItems(grid, block, items or tuple(g * b for g, b in zip(grid, block)))  # type: ignore[arg-type]
        self.budget, self.interrupted, self.is_cooperative = budget, interrupted, is_cooperative
        self.strays, self.guard = strays, guard
        self.sync = copy.deepcopy(core.sync)
        self.checks, self.schedule = checks, schedule
        self._plain = self.program = _decoded(core, launch, programs, ())
        additions = tuple(additions_of(checks, launch))
        self._checked = _decoded(core, launch, programs, additions) if checks is not None else self._plain
        self.machine: _Machine | None = None
        self._sites: dict[int, AmdSite] = {}

    # ------------------------------------------------------------ running

    def run(self, probe: Any, memory: Any, state: State | None = None) -> Report:
        before = self.program, self.machine
        checks = self.checks if probe.is_live else None
        self.program = self._plain if checks is None else self._checked
        probe_before, self.program.probe = self.program.probe, probe
        schedule = copy.deepcopy(self.schedule)
        report = Report() if state is None else dataclasses.replace(state.report)
        limits = Limits(self.budget, None, self.interrupted if probe.is_live else None)
        strays = self.strays if probe.is_live else None
        if self.guard is not None and probe.is_live:
            memory = self.guard(memory)
        sync = self.core.sync if probe.is_live else copy.deepcopy(self.sync)
        try:
            with np.errstate(all="ignore"):
                if state is not None:
                    self.machine = self._restored(state, memory, report, limits, sync)
                    schedule = self.machine.schedule
                    self.machine.go()
                begin = 0 if state is None else state.first + self._at_once
                for first in range(begin, self.items.groups, self._at_once):
                    groups = np.arange(first, min(self.items.groups, first + self._at_once))
                    residents = Residents(
                        self.launch,
                        self.items,
                        groups,
                        memory,
                        memory,
                        self.core.isa.flat_scratch,
                        sync,
                        strays=strays,
                    )
                    if checks is not None:
                        attach(checks, self.program, residents)
                    report.waves += len(residents.group_of)
                    self.machine = _Machine(self.program, residents, report, limits, schedule)
                    self.machine.all(first_batch(residents))
        except PageFault as fault:
            if checks is not None:
                refused(checks, self.program, fault)
            raise
        finally:
            self.program.probe = probe_before
            self.program, self.machine = before
        return report

    @property
    def _at_once(self) -> int:
        """As many as without the debugger where the order of waves is drawn from a seed, so that it is the same one."""
        most = None if self.schedule is not None else LANES_AT_ONCE
        return groups_at_once(self.launch, self.items, self.is_cooperative, self.checks, most)

    def save(self) -> State | None:
        """The machine as it is, between two blocks; None while it is checked, which it is in its first run alone."""
        assert self.machine is not None
        if self.program is not self._plain:
            return None
        machine = self.machine
        first = int(machine.residents.group_ids[0]) // self._at_once * self._at_once
        return State(first, _copied(machine, machine.residents.memory), dataclasses.replace(machine.report))

    def _restored(self, state: State, memory: Any, report: Report, limits: Limits, sync: Any) -> _Machine:
        made: _Machine = _copied(state.machine, memory)
        made.residents.sync = sync
        made.report, made.limits = report, limits
        return made

    # ------------------------------------------------------------ for people

    @property
    def size(self) -> int:
        return len(self.program.instructions)

    def sites(self) -> list[Site]:
        return [self.site(pc).site for pc in sorted(self.program.instructions)]

    def site(self, pc: int) -> AmdSite:
        """What is known of the instruction at an address."""
        known = self._sites.get(pc)
        if known is None:
            inst = self.program.fetch(pc)
            ctx = Context(self.program.isa, inst, Mode(self.launch.mode), self.lanes, self.launch.acc_offset)
            known = self._sites[pc] = site_of(ctx)
        return known

    def moment(self, key: int, b: Any) -> AmdMoment:
        """What is about to happen."""
        assert self.machine is not None
        return AmdMoment(self, self.machine, self.site(key), b)

    def recorder(self, space: Any, pages: Pages) -> Any:
        return _Recorder(space, pages)

    def private(self) -> Any:
        return AddressSpace()


class AmdMoment(Moment):
    """Before an instruction of a batch."""

    def __init__(self, work: AmdWork, machine: Machine, known: AmdSite, b: Batch) -> None:
        self.work: AmdWork = work
        self.machine, self.known, self.b = machine, known, b
        self.site = known.site

    @property
    def waves(self) -> Array:
        return self.numbers(self.b)

    def numbers(self, b: Batch) -> Array:
        """The waves of a batch, by their numbers in the grid."""
        residents = self.machine.residents
        found: Array = (
            residents.group_ids[b.ids] * self.work.waves_per_block + residents.place_in_group[b.ids]
        )
        return found

    def _where(self, wave: int) -> tuple[Batch, int]:
        for b in [self.b, *self.machine.ready, *self.machine.waiting]:
            rows = np.flatnonzero(self.numbers(b) == wave)
            if len(rows):
                return b, int(rows[0])
        raise UsageError(f"wave {wave} is not resident now: it has ended, or its block has not begun.")

    def on(self, wave: int) -> Array:
        b, row = self._where(wave)
        found: Array = b.lanes[row].copy()
        return found

    def names(self) -> list[str]:
        launch = self.work.launch
        plain = launch.acc_offset or launch.vgprs
        accumulators = [f"a{n}" for n in range(launch.vgprs - plain)]
        scalars = [f"s{n}" for n in range(VCC)]
        return [
            *(f"v{n}" for n in range(plain)),
            *accumulators,
            *scalars,
            "vcc",
            "exec",
            "m0",
            "scc",
            "pc",
            "mode",
        ]

    def read(self, name: str, wave: int) -> Array:
        b, row = self._where(wave)
        if name in ("pc", "mode", "scc"):
            pc = self.site.key if b is self.b else b.pc
            value = {"pc": pc, "mode": b.mode, "scc": int(b.scc[row])}[name]
            return np.array([value], np.uint64)
        file, number = index_of(name, self.work.program.isa)
        at = number + (self.work.launch.acc_offset if file == "a" else 0)
        found: Array
        if file in "va" and at < self.work.launch.vgprs:
            found = b.u32[at, row].copy()
            return found
        if file == "s" and number < 128:
            is_pair = name in ("vcc", "exec") and self.work.lanes == 64
            found = b.s[row, number : number + 1 + is_pair].copy()
            return found.view(np.uint64) if is_pair else found
        raise UsageError(
            f"there is no register {name!r} here: v0 to v{self.work.launch.vgprs - 1}, s0 to s105, vcc, exec, m0, scc."
        )

    def accesses(self) -> list[Access]:
        return accesses_of(self.known, self.b, self.numbers(self.b), self.work.launch.acc_offset)

    def shared(self, block: int) -> Array:
        residents = self.machine.residents
        places = np.flatnonzero(residents.group_ids == block)
        if not len(places):
            raise UsageError(f"block {block} is not resident now.")
        start = int(residents.group_of[places[0]]) * residents.lds_stride
        found: Array = residents.lds.data[start : start + residents.lds_size]
        return found

    def local(self, wave: int, lane: int) -> Array:
        residents, lanes = self.machine.residents, self.work.lanes
        if residents.flat_scratch:
            raise UsageError(
                "this GPU's scratch is in memory, where the kernel sets FLAT_SCRATCH to: look at that address."
            )
        b, row = self._where(wave)
        words = residents.scratch_size // 4
        first = int(b.ids[row]) * words * lanes + lane
        place = (np.arange(words) * lanes + first)[:, None] * 4 + np.arange(4)
        found: Array = residents.scratch.data[place.reshape(-1)]
        return found

    def standing(self) -> list[Standing]:
        machine, found = self.machine, []
        for b in [self.b, *(one for one in machine.ready if one is not self.b), *machine.waiting]:
            waits = "the barrier of its block" if any(b is one for one in machine.waiting) else ""
            pc = self.site.key if b is self.b else b.pc
            try:
                site = self.work.site(pc).site
            except ShaderFault:
                site = None
            found.append(Standing(self.numbers(b), b.lanes, site, waits))
        return found

    def why(self, wave: int) -> str:
        on = self.on(wave)
        started = self.machine.residents.start_lanes[self._where(wave)[0].ids[self._where(wave)[1]]]
        missing = int(np.count_nonzero(started & ~on))
        text = super().why(wave)
        if int(np.count_nonzero(started)) < len(started):
            text += f"; its block fills {int(np.count_nonzero(started))} lanes"
        if missing:
            text += f"; {missing} more were taken by writes of EXEC: `origin exec` finds the last"
        return text


def _decoded(core: ShaderCore, launch: Launch, programs: dict[Any, Any], additions: tuple[Any, ...]) -> _Told:
    """The program of a launch, whose steps tell; decoded again when its bytes have changed. additions: to its steps."""
    key = (id(core), launch.entry, launch.wave_size, launch.acc_offset, additions)
    program = programs.get(key)
    if program is None or not program.unchanged():
        code, made = core.code or core.memory, [one() for one in additions]
        program = _Told(core.isa, code, launch.entry, launch.wave_size, launch.acc_offset, made)
        programs[key] = program
    found: _Told = program
    return found


def _copied(machine: Any, memory: Any) -> Any:
    """A machine with state of its own, over this memory."""
    old = machine.residents
    residents = copy.copy(old)
    residents.memory = residents.scalar_memory = memory
    data = old.lds.data.copy()
    residents.lds = Bytes(data, aligned_words(0, data))
    data = old.scratch.data.copy()
    residents.scratch = Bytes(data, aligned_words(0, data))
    residents.arrivals = copy.copy(old.arrivals)
    residents.arrivals._lds = residents.lds
    residents.arrivals._issued = old.arrivals._issued.copy()
    residents.arrivals._loads = list(old.arrivals._loads)
    for name in ("alive", "arrived", "phase", "arrived_in", "waits_in"):
        setattr(residents, name, getattr(old, name).copy())
    schedule = copy.deepcopy(machine.schedule)
    made = _Machine(machine.program, residents, machine.report, machine.limits, schedule)
    made.ready = [_batch(b, residents) for b in machine.ready]
    made.waiting = [_batch(b, residents) for b in machine.waiting]
    made.now, made.pc = machine.now, machine.pc
    return made


def _batch(b: Batch, residents: Residents) -> Batch:
    found = b.take(np.arange(b.waves))
    found.residents, found.turn, found.is_stuck = residents, b.turn, b.is_stuck
    return found


class _Recorder:
    """Memory as it is, of which `pages` hears first."""

    def __init__(self, memory: Memory, pages: Pages) -> None:
        self.memory, self.pages = memory, pages
        self.acquire = memory.acquire

    def gather(self, addresses: Array, words: int) -> Array:
        """As Memory.gather."""
        self.pages.touch(addresses, 4 * words, False)
        return self.memory.gather(addresses, words)

    def gather_bytes(self, addresses: Array, size_bytes: int) -> Array:
        """As Memory.gather_bytes."""
        self.pages.touch(addresses, size_bytes, False)
        return self.memory.gather_bytes(addresses, size_bytes)

    def scatter(self, addresses: Array, data: Array) -> None:
        """As Memory.scatter."""
        self.pages.touch(addresses, 4 * len(data), True)
        self.memory.scatter(addresses, data)

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        """As Memory.scatter_bytes."""
        self.pages.touch(addresses, size_bytes, True)
        self.memory.scatter_bytes(addresses, data, size_bytes)

    def update(self, addresses: Array, dtype: Any, change: Callable[[Array], Array]) -> Array:
        """As Memory.update."""
        self.pages.touch(addresses, np.dtype(dtype).itemsize, True)
        return self.memory.update(addresses, dtype, change)

    def read(self, address: int, size_bytes: int) -> bytes:
        """As Memory.read."""
        self.pages.touch(np.array([address], np.uint64), size_bytes, False)
        return self.memory.read(address, size_bytes)
