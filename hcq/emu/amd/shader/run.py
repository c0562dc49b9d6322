"""run_dispatch: run a kernel over a grid, as an emulated GPU's shader cores.

In       a ShaderCore (instruction set, memory), a Launch (what the kernel's registers start as), grid and block sizes
Out      Report: instructions and lanes executed; or a ShaderFault
Changes  memory, as the kernel does
Next     machine.py (the waves that are resident together), wave_start.py (a Launch from descriptors, registers)
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hcq.emu.amd.shader.checks import additions_of, attach, most_groups, refused
from hcq.emu.amd.shader.counters import Counting
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.shader.isa import Isa
from hcq.emu.amd.shader.machine import Limits, Machine, Report, first_batch
from hcq.emu.amd.shader.memory import Memory
from hcq.emu.amd.shader.native_launch import whole_groups
from hcq.emu.amd.shader.program import Addition, Program
from hcq.emu.amd.shader.residents import GlobalSync, Residents
from hcq.emu.amd.shader.strays import Strays
from hcq.emu.amd.shader.wave_start import Launch, WorkItems, work_items
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.schedule import Schedule
from hcq.emu.shader.traffic import Tally
from hcq.errors import UsageError
from hcq.events.waves import Running

LDS_LIMIT = 65536
# lanes that are resident together: enough to hide Python, and more where the registers of more still fit the caches
LANES_AT_ONCE = 16384
MOST_LANES_AT_ONCE = 65536
REGISTER_BYTES = 3 << 19
MAX_INSTRUCTIONS = 1 << 16  # of all programs that are kept decoded
DEFAULT_BUDGET = 1 << 34  # instructions times waves


@dataclass
class ShaderCore:
    """Those of a GPU: an instruction set, an address space, and programs already decoded."""

    isa: Isa
    memory: Memory  # as vector instructions see it
    lds_limit: int = LDS_LIMIT
    programs: dict[tuple[Any, ...], Program] = field(default_factory=dict)
    scalar: Memory | None = None  # as scalar instructions see it; None: the same
    code: Memory | None = None  # as instructions are fetched
    sync: GlobalSync = field(default_factory=GlobalSync)

    def program(
        self, entry: int, wave_size: int, acc_offset: int, additions: Sequence[type[Addition]] = ()
    ) -> Program:
        """The program at an address; decoded again when its bytes have changed. additions: what is put around steps."""
        key = (entry, wave_size, acc_offset, *additions)
        known = self.programs.pop(key, None)
        if known is None or not known.unchanged():
            made = [one() for one in additions]
            known = Program(self.isa, self.code or self.memory, entry, wave_size, acc_offset, made)
            room = MAX_INSTRUCTIONS - len(known.instructions)
            held = sum(len(program.instructions) for program in self.programs.values())
            while self.programs and held > room:  # the one that ran longest ago stands first
                held -= len(self.programs.pop(next(iter(self.programs))).instructions)
        self.programs[key] = known
        return known


def run_dispatch(
    core: ShaderCore,
    launch: Launch,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    *,
    items: tuple[int, int, int] | None = None,
    budget: int = DEFAULT_BUDGET,
    deadline_s: float | None = None,
    interrupted: Callable[[], bool] | None = None,
    is_cooperative: bool = False,
    tally: Tally | None = None,
    sample: int = 0,
    strays: Strays | None = None,
    guard: Callable[[Memory], Memory] | None = None,
    checks: Checks | None = None,
    running: Running | None = None,
    begins: Callable[[Machine], None] | None = None,
    schedule: Schedule | None = None,
) -> Report:
    """Run a kernel to its end.

    grid, block   workgroups, and work-items per workgroup, as (x, y, z)
    items         work-items in all, when the last workgroups are partial; grid * block without it
    budget        how many instructions, times waves, may run before this is called an endless loop
    deadline_s    seconds it may take; None: as long as it needs
    interrupted   asked now and then; true stops the dispatch with OutOfBudget
    is_cooperative   all workgroups are resident at once: they may wait for each other
    tally            where the launch counts what it does; None: it does not
    sample           run only the first so many workgroups; 0: all
    strays           gets the accesses beyond a workgroup's LDS; None: nobody wants to know
    guard            what looks at accesses to memory before they are made
    checks           what is looked for, and gets what is found; None: nothing is
    running          who may ask where its waves are
    begins           is told of the waves that are resident, whenever others are
    schedule         the order of waves that nothing orders; None: they stay together
    Raises        a ShaderFault with the program counter; UsageError for a launch that no chip could take
    """
    check_launch(core, launch, grid, block)
    work = work_items(grid, block, items)
    additions = ([] if tally is None else [Counting]) + additions_of(checks, launch)
    program = core.program(launch.entry, launch.wave_size, launch.acc_offset, additions)
    report = Report()
    memory = core.memory if guard is None else guard(core.memory)
    limits = Limits(
        budget, None if deadline_s is None else time.monotonic() + deadline_s, interrupted, running
    )
    total = min(work.groups, sample or work.groups)
    resident = functools.partial(groups_at_once, launch, work, is_cooperative, checks)
    whole = None
    if schedule is None and tally is None and checks is None and not is_cooperative and not sample:
        scalar, own = core.scalar or core.memory, core.isa.flat_scratch
        whole = whole_groups(program, launch, work, memory, scalar, own, core.sync, strays)
    begin = 0
    if whole is not None:
        for machine in whole.run(report, limits, resident, begins):
            if begins is not None:
                begins(machine)
            with np.errstate(all="ignore"):  # as below
                machine.go()
        begin = whole.first
        if begin == total:
            return report
    at_once = resident()
    # floats overflow and divide by zero here as they do on the hardware: silently
    with np.errstate(all="ignore"):
        for first in range(begin, total, at_once):
            groups = np.arange(first, min(total, first + at_once))
            residents = Residents(
                launch,
                work,
                groups,
                memory,
                core.scalar or core.memory,
                core.isa.flat_scratch,
                core.sync,
                tally,
                strays,
            )
            if checks is not None:
                attach(checks, program, residents)
            report.waves += len(residents.group_of)
            machine = Machine(program, residents, report, limits, schedule)
            if begins is not None:
                begins(machine)
            try:
                machine.all(first_batch(residents, machine.native is not None and machine.native.is_made))
            except PageFault as fault:
                if checks is not None:
                    refused(checks, program, fault)
                raise
    return report


def groups_at_once(
    launch: Launch,
    work: WorkItems,
    is_cooperative: bool,
    checks: Checks | None,
    most_lanes: int | None = None,
) -> int:
    """How many workgroups are resident together. most_lanes: of them all; None: as many as are quick."""
    waves = work.waves_per_group(launch.wave_size)
    if most_lanes is None:
        most_lanes = min(max(LANES_AT_ONCE, REGISTER_BYTES // (4 * max(launch.vgprs, 1))), MOST_LANES_AT_ONCE)
    if is_cooperative:
        found = work.groups
    else:
        found = most_groups(checks, launch, waves, max(1, most_lanes // (waves * launch.wave_size)))
    if launch.scratch_waves:
        found = max(1, min(found, launch.scratch_waves // waves))
    return found


def check_launch(
    core: ShaderCore, launch: Launch, grid: tuple[int, int, int], block: tuple[int, int, int]
) -> None:
    """Refuse a launch that no chip could take. Raises UsageError."""
    threads = block[0] * block[1] * block[2]
    if min(grid) < 1 or min(block) < 1 or threads > 1024:
        raise UsageError(
            f"run_dispatch(grid={grid}, block={block}): sizes start at 1, and a workgroup has at most 1024 work-items."
        )
    if launch.lds_bytes > core.lds_limit:
        raise UsageError(
            f"run_dispatch: the kernel at {launch.entry:#x} asks for {launch.lds_bytes} bytes of LDS; "
            f"{core.isa.arch} has {core.lds_limit} a workgroup."
        )
    waves = -(-threads // launch.wave_size)
    if launch.scratch_waves and waves > launch.scratch_waves:
        raise UsageError(
            f"run_dispatch(block={block}): {waves} waves of a workgroup need scratch memory at once; there is some for "
            f"{launch.scratch_waves}."
        )
    if launch.wave_size not in (32, 64) or (launch.wave_size == 32 and core.isa.is_gfx9):
        raise UsageError(f"run_dispatch: {core.isa.arch} has no waves of {launch.wave_size} lanes.")
