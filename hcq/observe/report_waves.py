"""The part of a report about kernels: where their waves are and what they wait for, and on which argument one stopped.

In       a device, what names its addresses; records of emulated GPUs, and of real ones that tell
Out      lines
Changes  nothing; a real GPU's queue may stand still meanwhile
Next     hcq/events/waves.py (the records), report.py (the page), hcq/code/lines.py (source lines)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from hcq import backends
from hcq.backend import load
from hcq.command import Command, Dispatch
from hcq.device import Device
from hcq.errors import HcqError
from hcq.events import waves
from hcq.events.waves import Kernel, Stop, Wave
from hcq.memory import Freed
from hcq.program import Program
from hcq.system.port import LinuxPort, root_of

SHOWN = 64  # kinds of waves; the page on stderr has fewer
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
FARTHEST = 1 << 40  # an address this far behind an argument was still computed from it


class Launches:
    """The dispatches that a device remembers, by where the code of their kernels begins.

    late    those that are not done, the next one first
    others  the rest
    """

    def __init__(self, device: Device, late: Sequence[Command], others: Sequence[Command]) -> None:
        self.device = device
        self.by_entry: dict[int, Program] = {}
        self.dispatches = [what for what in (*late, *others) if isinstance(what, Dispatch)]
        for what in self.dispatches:
            self.by_entry[what.program.code_va] = what.program
        self.late = {what.program.code_va for what in late if isinstance(what, Dispatch)}

    def has(self, entry: int, name: str) -> bool:
        """Whether a kernel is one of them."""
        return entry in self.by_entry

    def is_late(self, entry: int, name: str) -> bool:
        """Whether it is one of those that are not done."""
        return entry in self.late

    def name(self, kernel: Kernel) -> str:
        """What the user calls it."""
        program = self.by_entry.get(kernel.entry)
        return program.name if program is not None else kernel.name or f"at {kernel.entry:#x}"


def is_emulated_here(device: Device) -> bool:
    """Whether this process emulates the GPU, and can ask its shader cores."""
    return not isinstance(root_of(device.port), LinuxPort)


def running(
    device: Device, launches: Launches, name: Callable[[int], str], freed: Sequence[Freed], is_late: bool
) -> Iterator[str]:
    """The kernels that run now. name: of an address; is_late: a wait for them timed out."""
    if not device.waves_missing:
        return
    if not is_emulated_here(device):
        yield from _hardware(device, launches, name, is_late)
        return
    found = waves.look(os.getpid(), launches.has)
    if not found:  # it may have stopped, and nobody has seen that yet
        stop = waves.last_stop(os.getpid(), launches.is_late)
        if stop is not None:
            yield from _stop(stop, launches, name, freed)
            return
        yield "waves     none: no kernel of this process runs on the emulated GPU"
    for kernel in found:
        yield from _kernel(kernel, launches, name)


def stopped(
    device: Device, launches: Launches, name: Callable[[int], str], freed: Sequence[Freed]
) -> Iterator[str]:
    """The kernel that a fault ended, and the argument that it left."""
    if not device.waves_missing:
        return
    if not is_emulated_here(device):
        yield from _hardware(device, launches, name, is_allowed=True)
        return
    stop = waves.last_stop(os.getpid(), launches.is_late)
    if stop is None:
        yield "waves     none: it was no kernel that stopped the emulated GPU"
        return
    yield from _stop(stop, launches, name, freed)


def _hardware(
    device: Device, launches: Launches, name: Callable[[int], str], is_allowed: bool
) -> Iterator[str]:
    """Of a real GPU, as far as it tells; is_allowed: its queue may be stopped for that."""
    backend = backends.find(device.name.partition(":")[0])
    look = load(backend.inspection).waves if backend is not None and backend.inspection else None
    if look is None or not is_allowed or "nowaves" in device.config.report:
        yield f"waves     not available on this hardware: {device.waves_missing}"
        return
    try:
        found = look(device, launches.by_entry)
    except HcqError as refusal:
        yield f"waves     not available: {refusal}"
        return
    if not found:
        yield "waves     none: no wave of this queue was on the GPU"
    for kernel in found:
        yield from _kernel(kernel, launches, name)
    for kernel in found:
        for wave in kernel.waves[:SHOWN]:
            for number, line in enumerate(wave.registers):
                yield f"{'' if number else 'registers':<10}{line}"


def _stop(
    stop: Stop, launches: Launches, name: Callable[[int], str], freed: Sequence[Freed]
) -> Iterator[str]:
    yield f"stopped   {stop.why}"
    if stop.access:
        yield from _argument(stop, launches, name, freed)
    yield from _kernel(stop.kernel, launches, name)


def _kernel(kernel: Kernel, launches: Launches, name: Callable[[int], str]) -> Iterator[str]:
    called = launches.name(kernel)
    if not kernel.waves:
        yield f"waves     of kernel {called}: {kernel.missing or 'all have ended'}"
    for wave in kernel.waves[:SHOWN]:
        yield from _wave(wave, kernel, called, launches, name)
    if len(kernel.waves) > SHOWN:
        yield f"waves     and {len(kernel.waves) - SHOWN} more kinds"


def _wave(
    wave: Wave, kernel: Kernel, called: str, launches: Launches, name: Callable[[int], str]
) -> Iterator[str]:
    at = f"+{wave.pc - kernel.entry:#x}" if wave.pc else ""
    program = launches.by_entry.get(kernel.entry)
    line = wave.line or (program.line_at(wave.pc) if program is not None else "")
    where = f" [{line}]" if line else ""
    plural = "" if wave.many == 1 else "s"
    yield (
        f"waves     {wave.many} {wave.unit}{plural} of {wave.groups}: kernel {called}{at}{where}: {wave.instruction}"
    )
    waits = f"wait{'' if plural else 's'} for {wave.waits_for}" if wave.waits_for else ""
    if wave.spins_on:
        read = ", ".join(dict.fromkeys(name(address) for address in wave.spins_on))
        waits = f"in a loop that stores nothing and reads {read}"
    why = f"; stopped by {wave.stopped_by}" if wave.stopped_by else ""
    yield f"          {wave.active}{why}" + (f"; {waits}" if waits else "")


def _argument(
    stop: Stop, launches: Launches, name: Callable[[int], str], freed: Sequence[Freed]
) -> Iterator[str]:
    """Which argument an access was meant for: the buffer that it is in or behind, the nearest one."""
    dispatch = next((one for one in launches.dispatches if one.program.code_va == stop.kernel.entry), None)
    best: tuple[int, str] | None = None
    for number, value in enumerate(dispatch.args if dispatch is not None else ()):
        place = _memory(value, launches.device, freed) if isinstance(value, int) else None
        if place is None:
            continue
        start, size, called, state = place
        past, before = stop.address - (start + size), start - stop.address
        if past < 0 and before <= 0:
            distance, where = -1, f"at byte {-before} of it"
        else:
            distance = max(past, before)
            where = f"{_bytes(distance)} {'past' if past >= 0 else 'before'} it"
        if distance < FARTHEST and (best is None or distance < best[0]):
            text = f"argument {number}, `{called}`, {state} {size} bytes; the {stop.access} is {where}"
            best = distance, text
    yield f"argument  {best[1] if best is not None else f'none is near: the {stop.access} is at {name(stop.address)}'}"


def _memory(va: int, device: Device, freed: Sequence[Freed]) -> tuple[int, int, str, str] | None:
    """(start, bytes, name, a verb) of the buffer that an address is in, or was in before that was freed."""
    for buffer in device.memory.owners():
        if buffer.va is not None and buffer.va <= va < _end(buffer.va, buffer.size_bytes):
            return buffer.va, buffer.size_bytes, buffer.name or "unnamed", "is"
    gone = next((one for one in reversed(freed) if one.va <= va < one.va + one.capacity), None)
    return None if gone is None else (gone.va, gone.capacity, gone.name, "was freed and had")


def _end(start: int, size_bytes: int) -> int:
    return start + max(size_bytes, 1)


def _bytes(count: int) -> str:
    """A distance in words, to a tenth of a unit."""
    for unit, called in UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {called}".replace(".0 ", " ")
    return f"{count} bytes"
