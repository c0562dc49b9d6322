"""The part of a report about kernels: where their waves are and what they wait for, and on which argument one stopped.

In       a device, what names its addresses; records of emulated GPUs
Out      lines
Changes  nothing
Next     hcq/events/waves.py (the records), report.py (the page), hcq/code/lines.py (source lines)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from hcq.command import Command, Dispatch
from hcq.device import Device
from hcq.events import waves
from hcq.events.waves import Kernel, Stop, Wave
from hcq.memory import Freed
from hcq.program import Program

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


def running(
    device: Device, launches: Launches, name: Callable[[int], str], freed: Sequence[Freed]
) -> Iterator[str]:
    """The kernels that run now. name: of an address."""
    if not device.waves_missing:
        return
    if not device.port.runs_ptx:
        yield f"waves     not available on this hardware: {device.waves_missing}"
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
    if not device.port.runs_ptx:
        yield f"waves     not available on this hardware: {device.waves_missing}"
        return
    stop = waves.last_stop(os.getpid(), launches.is_late)
    if stop is None:
        yield "waves     none: it was no kernel that stopped the emulated GPU"
        return
    yield from _stop(stop, launches, name, freed)


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
    yield f"          {wave.active}" + (f"; {waits}" if waits else "")


def _argument(
    stop: Stop, launches: Launches, name: Callable[[int], str], freed: Sequence[Freed]
) -> Iterator[str]:
    """Which argument an access was meant for: the buffer that it is in or behind, the nearest one."""
    dispatch = next((one for one in launches.dispatches if one.program.code_va == stop.kernel.entry), None)
    best: tuple[int, str] | None = None
    for number, (kind, value) in enumerate(_buffers(dispatch)):
        if not kind:
            continue
        owner = next(
            (
                b
                for b in launches.device.memory.owners()
                if b.va is not None and b.va <= value < _end(b.va, b.size_bytes)
            ),
            None,
        )
        gone = next((one for one in reversed(freed) if one.va <= value < one.va + one.capacity), None)
        if owner is not None and owner.va is not None:
            start, size, called, state = owner.va, owner.size_bytes, owner.name or "unnamed", "is"
        elif gone is not None:
            start, size, called, state = gone.va, gone.capacity, gone.name, "was freed and had"
        else:
            start, size, called, state = value, 0, "", ""
        text = f"argument {number}, {f'`{called}`' if called else f'{value:#x}, no buffer'}"
        if size:
            text += f", {state} {size} bytes"
        past = stop.address - (start + size)
        if not size and abs(past) < FARTHEST:
            said = f"{text}; the {stop.access} is {_bytes(past)} past it"
        elif start <= stop.address < start + size:
            past, said = -1, f"{text}; the {stop.access} is at byte {stop.address - start}"
        elif 0 <= past < FARTHEST:
            said = f"{text}; the {stop.access} is {_bytes(past)} past it"
        elif 0 < start - stop.address < FARTHEST:
            past, said = (
                start - stop.address,
                f"{text}; the {stop.access} is {_bytes(start - stop.address)} before it",
            )
        else:
            continue
        if best is None or past < best[0]:
            best = past, said
    if best is not None:
        yield f"argument  {best[1]}"
    else:
        yield f"argument  none is near: the {stop.access} is at {name(stop.address)}"


def _buffers(dispatch: Dispatch | None) -> Iterator[tuple[bool, int]]:
    """(whether it may be an address, the number) of each argument."""
    if dispatch is None:
        return
    kinds = dispatch.program.args or ("",) * len(dispatch.args)
    for kind, value in zip(kinds, dispatch.args):
        is_address = kind == "buffer" or (not kind and isinstance(value, int) and value > 1 << 20)
        yield is_address, int(value) if is_address else 0


def _end(start: int, size_bytes: int) -> int:
    return start + max(size_bytes, 1)


def _bytes(count: int) -> str:
    """A distance in words, to a tenth of a unit."""
    for unit, called in UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {called}".replace(".0 ", " ")
    return f"{count} bytes"
