"""A page about a foreign program's GPU: a fault, work that does not end, or what is there when somebody asks.

In       a ForeignDevice, and what went wrong
Out      text: the kernel, its arguments, the line of its source, what lies at the address, work in flight
Changes  stderr and the folder of reports
Next     hcq/observe/report.py (the sister), session.py (who asks), hcq/code/lines.py (the line)
"""

from __future__ import annotations

import linecache
import time
from collections.abc import Callable, Iterator, Sequence

from hcq.command import Command, Copy, Dispatch, Fill, flat
from hcq.events.foreign_devices import (
    ForeignBuffer,
    ForeignDevice,
    ForeignObserver,
    ForeignProgram,
    ForeignSubmission,
)
from hcq.events.kernel_observer import GpuFault
from hcq.observe.report import save

SHOWN = 8
NEAR_BYTES = 1 << 20  # an address this close to a buffer was probably meant for it
RAN_S = 1.0  # what has run so long when its process ends was probably why


class Reports(ForeignObserver):
    """What is said of one device. timeout_ms: a submission that takes longer is reported, once."""

    def __init__(self, device: ForeignDevice, say: Callable[[str], None], timeout_ms: int) -> None:
        self.device, self.say, self.timeout_s = device, say, timeout_ms / 1000
        self.pages: list[str] = []
        self._late: set[int] = set()
        self._faulted: set[int] = set()  # in flight at a fault: its page has them

    def fault(self, fault: GpuFault, at: ForeignSubmission | None, program: ForeignProgram | None) -> None:
        self.publish(fault.what, list(_fault(self.device, fault, at, program)))
        self._faulted |= {made.value for made in _running(self.device)}

    def closed(self) -> None:
        late = [made for made in self._unexplained() if _age_s(made) > RAN_S]
        if late:
            self.publish(
                f"work was unfinished when the process ended, the oldest after {_age_s(late[0]):.1f} s"
            )

    def look(self) -> None:
        """Report what has run for longer than it may."""
        for made in self._unexplained():
            if _age_s(made) > self.timeout_s and made.value not in self._late:
                self._late.add(made.value)
                self.publish(f"submission #{made.value} has run for {_age_s(made):.1f} s")

    def _unexplained(self) -> Iterator[ForeignSubmission]:
        return (made for made in _running(self.device) if made.value not in self._faulted)

    def publish(self, title: str, about: Sequence[str] = ()) -> None:
        """Print a page and keep it."""
        text = "\n".join(describe(self.device, title, about))
        self.pages.append(text)
        path = save(text)
        self.say(f"{text}\nsaved as {path}" if path else text)


def describe(device: ForeignDevice, title: str, about: Sequence[str] = ()) -> Iterator[str]:
    """The page. about: lines on what went wrong."""
    yield f"---- hcq report: {title}"
    process = device.client.pid
    yield f"device    {device.name} ({device.arch}), process {process}, {time.strftime('%Y-%m-%d %H:%M:%S')}"
    yield f"work      {device.finished} of {device.submitted} submissions finished"
    yield from about
    running = list(_running(device))
    if running:
        yield "next to finish"
    for made in running[:SHOWN]:
        yield f"  #{made.value} on {made.queue}, {len(made.words)} bytes of packets, since {_age_s(made):.3f} s"
        yield from (f"     {line}" for line in _commands(device, made.commands))
    finished = list(device.recent)[: -SHOWN - 1 : -1]
    if finished:
        yield "finished last"
    for made in finished:
        first = next(_commands(device, made.commands), "packets that launch and copy nothing")
        yield f"  #{made.value} on {made.queue}: {first}"
    yield "live buffers, the largest"
    for buffer in sorted(device.live.values(), key=lambda one: -one.size_bytes)[:SHOWN]:
        yield f"  {buffer.va:#x} {buffer.size_bytes:>12} bytes  {buffer.name}"
    yield "----"


def _running(device: ForeignDevice) -> Iterator[ForeignSubmission]:
    for waiting in list(device.in_flight.values()):
        yield from list(waiting)


def _age_s(made: ForeignSubmission) -> float:
    return (time.monotonic_ns() - (made.started_ns or made.taken_ns)) / 1e9


# ------------------------------------------------------------ faults


def _fault(
    device: ForeignDevice, fault: GpuFault, at: ForeignSubmission | None, program: ForeignProgram | None
) -> Iterator[str]:
    yield f"fault     {fault.why.rstrip('.')}"
    if at is not None:
        yield f"packet    of submission #{at.value} on {at.queue}"
    if fault.instruction:
        yield f"code      {fault.instruction}"
    launch = _launch_of(at, program)
    if program is not None and fault.pc:
        yield f"kernel    {program.name}, {fault.pc - program.code_va:#x} bytes into it"
        yield from _source(program, fault.pc)
    elif program is not None:
        yield f"kernel    {program.name}"
    if launch is not None:
        yield f"launch    {_dispatch(device, launch)}"
    if fault.address is not None:
        yield f"address   {where(device, fault.address)}"
        if launch is not None:
            yield from _arguments_near(device, launch, fault.address)


def _source(program: ForeignProgram, pc: int) -> Iterator[str]:
    line = program.locate(pc)
    if not program.is_found:
        yield "source    unknown: its code object was not found in the process"
    elif not line:
        yield "source    unknown: its code object has no line numbers; compile with -g"
    else:
        file, _, number = line.rpartition(":")
        text = linecache.getline(file, int(number)).strip()
        yield f"source    {line}" + (f": {text}" if text else "")


def _launch_of(at: ForeignSubmission | None, program: ForeignProgram | None) -> Dispatch | None:
    """The launch of a submission that ran a kernel: the only one of it, or the first."""
    if at is None or program is None:
        return None
    found = [
        one for one in flat(at.commands) if isinstance(one, Dispatch) and one.program.entry == program.entry
    ]
    return found[0] if found else None


def _arguments_near(device: ForeignDevice, launch: Dispatch, address: int) -> Iterator[str]:
    """Which argument the address may have been reckoned from: the one whose buffer is nearest."""
    best: tuple[int, str] | None = None
    for number, name, letter, value in _given(launch):
        if not isinstance(value, int) or letter == "f":
            continue
        if letter == "?" and device.find(value) is None and value != address:
            continue  # a number, not an address
        place = where(device, value)
        is_known = not place.startswith(f"{value:#x}")
        what = f"{number}{f' ({name})' if name else ''} is {f'{value:#x}, ' if is_known else ''}{place}"
        if value == address:
            distance, text = 0, f"{what}: the very address"
        else:
            buffer = device.find(value)
            low, high = (value, value) if buffer is None else (buffer.va, buffer.end)
            distance = low - address if address < low else address - high + 1 if address >= high else 1
            side = "before its start" if address < low else "behind its end"
            text = what + (f": {abs(address - value)} bytes from it" if buffer is None else "")
            if buffer is not None and not low <= address < high:
                text += f": {low - address if address < low else address - high} bytes {side}"
        if best is None or distance < best[0]:
            best = distance, text
    if best is not None:
        yield f"argument  {best[1]}"


# ------------------------------------------------------------ words


def where(device: ForeignDevice, va: int) -> str:
    """What an address is: a buffer and the offset in it, live or freed; else its neighbours."""
    buffer = device.find(va)
    if buffer is not None:
        return _offset(buffer, va)
    freed = next((one for one in reversed(device.freed) if one.va <= va < one.end), None)
    text = f"{va:#x} ({f'freed: {_offset(freed, va)}' if freed is not None else 'not mapped'}"
    live = list(device.live.values())
    before = max((one for one in live if one.end <= va), key=lambda one: one.end, default=None)
    after = min((one for one in live if one.va > va), key=lambda one: one.va, default=None)
    if before is not None and va - before.end < NEAR_BYTES:
        text += f"; {va - before.end} bytes behind {before.name}"
    if after is not None and after.va - va < NEAR_BYTES:
        text += f"; {after.va - va} bytes before {after.name}"
    return text + ")"


def _offset(buffer: ForeignBuffer, va: int) -> str:
    return f"{buffer.name}+{va - buffer.va:#x}" if va != buffer.va else buffer.name


def _commands(device: ForeignDevice, commands: Sequence[Command]) -> Iterator[str]:
    for what in flat(commands):
        if isinstance(what, Dispatch):
            yield _dispatch(device, what)
        elif isinstance(what, Copy):
            yield f"copy {what.size_bytes} bytes {where(device, what.src)} -> {where(device, what.dst)}"
        elif isinstance(what, Fill):
            yield f"fill {what.size_bytes} bytes at {where(device, what.dst)}"


def _dispatch(device: ForeignDevice, what: Dispatch) -> str:
    args = []
    for _, name, letter, value in _given(what):
        is_address = letter == "b" or (letter == "?" and isinstance(value, int) and device.find(value))
        text = where(device, int(value)) if is_address and value else str(value)
        args.append(f"{name}={text}" if name else text)
    return f"kernel {what.program.name}({', '.join(args)}) grid={what.grid} block={what.block}"


def _given(what: Dispatch) -> Iterator[tuple[int, str, str, int | float]]:
    """Number, name, letter and value of each argument that is known."""
    program = what.program
    if not isinstance(program, ForeignProgram) or program.parameters is None:
        return
    for parameter, value in zip(program.numbers, what.args):
        number = program.parameters.index(parameter)
        yield number, parameter.name, parameter.letter, value
