"""From a queue's dispatch to the shader core: a ShaderCore for each GPU, and a Launch for each dispatch.

In       a Dispatch that a packet processor put together
Out      the kernel has run to its end; or a ShaderFault that names the instruction and the work-item
Changes  what the kernel changes
Next     gpu.py (who calls), shader/run.py (run_dispatch), shader/wave_start.py (the first registers)
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import replace

from hcq.emu.amd.caches import Caches
from hcq.emu.amd.dispatch import Dispatch
from hcq.emu.amd.memory import GpuVm
from hcq.emu.amd.shader.architectures import ISAS
from hcq.emu.amd.shader.checks import note_strays
from hcq.emu.amd.shader.errors import PageFault, ShaderFault
from hcq.emu.amd.shader.machine import Machine, Report
from hcq.emu.amd.shader.run import ShaderCore, run_dispatch
from hcq.emu.amd.shader.strays import Guarded, Strays
from hcq.emu.amd.shader.wave_start import Launch
from hcq.emu.amd.spec import CHIPS
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.schedule import Schedules
from hcq.emu.shader.traffic import LEAST_STEPS, Tally
from hcq.emu.shader.unowned_memory import Gaps
from hcq.events import kernel_debug, known_memory, stray_accesses, waves
from hcq.performance import counters


def shader_core(arch: str, vm: GpuVm, caches: Caches | None) -> ShaderCore:
    """The shader core of a GPU, with its caches between it and memory."""
    if caches is None:
        return ShaderCore(ISAS[arch], vm, CHIPS[arch].lds_bytes)
    return ShaderCore(
        ISAS[arch], caches.vector, CHIPS[arch].lds_bytes, scalar=caches.scalar, code=caches.code
    )


def launch(
    core: ShaderCore,
    arch: str,
    work: Dispatch,
    is_ending: Callable[[], bool],
    is_cooperative: bool = False,
    pid: int = 0,
    begins: Callable[[Machine], None] | None = None,
    schedules: Schedules | None = None,
) -> None:
    """Run it. It ends early when `is_ending` says so: its queue is being destroyed.

    is_cooperative   its workgroups may wait for each other: the queue has global wave sync
    pid              whose it is
    begins           is told of the waves that are resident, whenever others are
    schedules        in which order waves run; None: they stay together
    """
    scratch_bytes = work.wave_scratch_bytes // work.wave_size if work.rsrc2.scratch_en else 0
    alike = _start(
        (arch, work.entry, *work.words, work.rsrc3),
        work.wave_size == 32,
        work.lds_bytes,
        scratch_bytes,
        work.scratch_waves,
    )
    start = alike.with_sgprs(work.user_sgprs[: alike.user_sgpr_count])

    def interrupted() -> bool:
        time.sleep(0)  # the process that waits for this kernel shares one interpreter with it: let it in
        return is_ending()

    counts = counters.is_wanted()
    sample = 0 if is_cooperative or not counts else counters.sample()
    tally = tally_of(arch, work, start, sample) if counts else None
    known_memory.starts(work.user_sgprs)
    checks = Checks.of_launch(pid, work.entry)
    looks = checks is not None and "memory" in checks.words
    if checks is not None and checks.known is not None and (own := checks.known.shared_bytes) is not None:
        start = replace(start, lds_bytes=min(own, start.lds_bytes))  # what is behind it is nobody's
    run = functools.partial(
        run_dispatch if kernel_debug.debugger is None else kernel_debug.debugger.run_amd,
        core,
        start,
        work.grid,
        work.block,
        items=work.items,
        interrupted=interrupted,
    )
    if schedules is not None:
        run = functools.partial(run, schedule=schedules.of_launch(work.grid, work.block))
    beyond = Strays(work.entry, start.lds_bytes) if looks or stray_accesses.is_wanted() else None
    is_told = looks and checks is not None and checks.known is not None  # by what else looks at each access
    if beyond is not None and pid == os.getpid() and not is_told and (known := stray_accesses.gaps()):
        run = functools.partial(run, guard=functools.partial(Guarded, gaps=Gaps(known), strays=beyond))
    try:
        with waves.running(pid, work.entry) as running:
            report = run(
                is_cooperative=is_cooperative,
                tally=tally,
                sample=sample,
                strays=beyond,
                running=running,
                checks=checks,
                begins=begins,
            )
    except ShaderFault as fault:
        if not is_ending():
            waves.stopped(pid, stop_of(work, fault))
        raise
    finally:
        if looks and checks is not None and beyond is not None:
            note_strays(checks, beyond)
        if checks is not None:
            checks.tell()
        for each in () if beyond is None else beyond.found.values():
            stray_accesses.tell(pid, each)
    if tally is not None:
        look_at_more(run, report, tally, is_ending)
        counters.tell(pid, tally.end())


@functools.lru_cache(512)
def _start(
    registers: tuple[str, int, int, int, int],
    is_wave32: bool,
    lds_bytes: int,
    scratch_bytes: int,
    scratch_waves: int,
) -> Launch:
    """What launches that differ in user SGPRs alone begin with."""
    return Launch.from_registers(
        *registers,
        (),
        wave32=is_wave32,
        lds_bytes=lds_bytes,
        scratch_bytes=scratch_bytes,
        scratch_waves=scratch_waves,
    )


def stop_of(work: Dispatch, fault: ShaderFault) -> waves.Stop:
    """What a report says of a fault."""
    kernel = waves.Kernel(work.entry, "", fault.waves)
    if not isinstance(fault, PageFault):
        return waves.Stop(kernel, str(fault))
    access = {"read": "load", "write": "store"}.get(fault.kind, fault.kind)
    return waves.Stop(kernel, str(fault), access, fault.address, fault.size_bytes)


def look_at_more(
    run: Callable[..., Report], report: Report, tally: Tally, is_ending: Callable[[], bool]
) -> None:
    """After a sample of workgroups: the first instructions of as many as the chip holds, for what they share."""
    held = tally.held()
    if held is None or is_ending():
        return
    more = held.record.blocks / tally.record.blocks
    # as much work as the sample was
    budget = max(report.instructions, int(min(LEAST_STEPS * report.waves, report.instructions) * more))
    try:
        run(is_cooperative=True, tally=held, sample=held.record.blocks, budget=budget)
    except ShaderFault:  # most often that the budget is spent; what they read is wrong anyway
        pass
    tally.learn(held)


def tally_of(arch: str, work: Dispatch, start: Launch, sample: int) -> Tally:
    """Where a launch that counts counts. Registers are the vector registers that it asks for."""
    return Tally(
        arch,
        work.entry,
        "",
        work.grid,
        work.block,
        work.wave_size,
        start.vgprs,
        start.lds_bytes,
        start.scratch_bytes,
        sample,
    )
