"""Reports: when a wait times out or a device stops, everything that is known about it, on stderr and in a file.

In       a device and what happened to it; its ledger, rings, buffers and the program's own stack
Out      one page of text: what is waited for and by whom, the rings around where they are, where the waves of kernels
         are, whose work is late, its arguments as buffers, the lines that submitted it
Changes  prints STDERR_LINES at most; keeps all, in the newest KEPT reports in HCQ_REPORT_DIR (default: reports/ in the
         cache folder)
Next     report_waves.py (kernels), ledger.py and hcq/system/call_site.py (what is remembered at every submission),
         hcq/base.py (`report`, who calls this), docs/reports.md (how to read one)

Nothing here takes a lock: a report may be made in a signal handler, or while another thread hangs in the device. It
waits for the answers of emulated GPUs alone, and no longer than hcq/events/waves.py says.
"""

from __future__ import annotations

import fnmatch
import os
import re
import signal as os_signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from hcq import config
from hcq.base import RingState
from hcq.command import Command, Dispatch, Indirect, Signal, Wait, described, flat
from hcq.device import Device
from hcq.errors import UsageError
from hcq.lifetime import open_devices
from hcq.lifetime.recovery import Submitted
from hcq.memory import Buffer, Freed
from hcq.observe import ledger, report_waves, report_words
from hcq.system import call_site, native, private_files

KEPT = 32
SHOWN = 8  # submissions of each list
STDERR_LINES = 30  # with the line that names the file, which has everything
STDERR_COLUMNS = 200
ADDRESS = re.compile(r"\b0x[0-9a-f]{8,16}\b")
NOW = 1 << 64  # after every submission
NEAR_BYTES = 1 << 16  # an address this close to a buffer was probably meant for it


def publish(device: Device, title: str, key: tuple[Any, ...], signal: int | None = None) -> None:
    """Report once for each `key`. Never raises: a report that fails must not hide what it is about."""
    settings = device.config
    published = _published.setdefault(device, {})
    if "off" in settings.report or key in published:
        return
    published[key] = None
    while len(published) > 1024:
        del published[next(iter(published))]
    try:
        sections = _sections(device, title, signal, key[:1] == ("fault",))
        text = "\n".join(line for section in sections for line in section.lines)
        path = save(text)
    # the device is in trouble already: say so and let the caller's own error go on
    except Exception as error:
        print(f"hcq: no report on {device.name}: {type(error).__name__}: {error}", file=sys.stderr)
        return
    print(f"{short(sections)}\nsaved as {path}" if path else text, file=sys.stderr)


_published: weakref.WeakKeyDictionary[Device, dict[tuple[Any, ...], None]] = weakref.WeakKeyDictionary()


class Section(NamedTuple):
    """Lines that belong together. shown: how many are on stderr at least, where not all fit; below 0: none."""

    shown: int
    lines: list[str]


def describe(device: Device, title: str, signal: int | None = None, is_fault: bool = False) -> str:
    """One page about a device.

    signal     the address of the one whose deadline passed
    is_fault   it stopped: what a kernel stopped on is shown, and not what runs
    """
    return "\n".join(line for section in _sections(device, title, signal, is_fault) for line in section.lines)


def short(sections: Sequence[Section]) -> str:
    """What fits on stderr: of each section the first lines, and more of the first sections where there is room."""
    room = STDERR_LINES - 2  # for how many are left out, and for the file
    hidden = sum(len(section.lines) for section in sections if section.shown < 0)
    sections = [section for section in sections if section.shown >= 0]
    total = sum(len(section.lines) for section in sections)
    counts = [min(section.shown, len(section.lines)) for section in sections]
    for number, section in enumerate(sections):
        more = min(
            len(section.lines) - counts[number],
            max(0, room + (total <= room + 1 and not hidden) - sum(counts)),
        )
        counts[number] += more
    lines = [line for section, count in zip(sections, counts) for line in section.lines[:count]]
    left_out = total - len(lines) + hidden
    if not left_out:
        return "\n".join(lines)
    clipped = [lines[0], *(_clipped(line) for line in lines[1:])]
    return "\n".join([*clipped, f"---- {left_out} more lines in the file"])


def _clipped(line: str) -> str:
    return line if len(line) <= STDERR_COLUMNS else f"{line[: STDERR_COLUMNS - 3]}..."


def _sections(device: Device, title: str, signal: int | None, is_fault: bool) -> list[Section]:
    names = _Names(device)
    done, submitted = device.timeline.value, device.timeline.submitted
    head = [f"---- hcq report: {title}"]
    head.append(
        f"device    {device.name} ({device.arch}), process {os.getpid()}, {time.strftime('%Y-%m-%d %H:%M:%S')}"
    )
    head.append(f"timeline  {done} done, {submitted} submitted")
    entries = list(device.recent.copy())
    late = [entry for entry in entries if entry[0] > done]
    current = device.current_command()
    missing = [inner for entry in late for what in entry[1] for inner in names.unfold(what)]
    others = [inner for entry in entries[::-1] for what in entry[1] for inner in names.unfold(what)]
    launches = report_waves.Launches(device, missing[current or 0 :] + missing[: current or 0], others)
    if is_fault:
        waves = list(report_waves.stopped(device, launches, names.name, names.freed))
    else:
        waves = list(report_waves.running(device, launches, names.name, names.freed, signal is not None))
    states = sorted(device.ring_states(), key=lambda ring: ring.get == ring.put)  # those with work first
    rings = [Section(8 if ring.get != ring.put else 1, list(_ring(ring, names))) for ring in states]
    waited = list(_waited(device, names, device.timeline.va if signal is None else signal))
    next_ones, rest = [], []
    if late:
        next_ones = ["next to finish", *_submission(late[0], names, current)]
        if len(late) > 1:
            rest.append(f"behind it ({len(late) - 1})")
            for entry in late[1:SHOWN]:
                rest += _submission(entry, names, None, short=True)
    finished = [entry for entry in entries if entry[0] <= done]
    if finished:
        rest.append("finished last")
        for entry in finished[: -SHOWN - 1 : -1]:
            rest += _submission(entry, names, None, short=True)
    failed = [f"  {why}" for _, _, why in device.failures[-SHOWN:] if why != title]
    if failed:
        rest += ["failed before", *failed]
    rest.append("live buffers, the largest")
    for buffer in sorted(names.live, key=lambda buffer: -buffer.size_bytes)[:SHOWN]:
        rest.append(f"  {buffer.va:#x} {buffer.size_bytes:>12} bytes  {buffer.name or 'unnamed'}")
    rest.append("----")
    words = list(report_words.lines(device))
    return [
        Section(3, head),
        Section(7, waves),
        Section(2, waited),
        Section(2, list(_waiters(device))),
        Section(4, next_ones),
        *rings[:2],
        *(Section(0, ring.lines) for ring in rings[2:]),
        Section(0, rest),
        *([Section(-1, [*words, "----"])] if words else []),
    ]


def _ring(ring: RingState, names: _Names) -> Iterator[str]:
    """Where a ring is, and the packets around that, with the buffers whose addresses are in them."""
    yield f"ring      {ring.name}: get {ring.get}, put {ring.put}, size {ring.size}"
    is_shown = False
    for place, text in ring.around:
        if text.startswith(" "):  # what belongs to the one before
            yield f"              {names.packet(text)}"
            continue
        if place >= 0 and not is_shown:
            yield f"          at get: {names.packet(ring.packet)}"
            is_shown = True
        if place:
            yield f"              {place:+}: {names.packet(text)}"
    if not is_shown:
        yield f"          at get: {ring.packet}"


def save(text: str) -> Path | None:
    """Write a report beside the earlier ones, the oldest of which go. None when there is nowhere to write."""
    folder = config.current().report_dir
    seconds, rest = divmod(time.time_ns(), 10**9)  # one look at one clock: names sort by age
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(seconds))}-{os.getpid()}-{rest:09d}.txt"
    try:
        opened = private_files.open_folder(folder, make=True)
        try:
            private_files.write(opened, name, lambda file: file.write(f"{text}\n".encode()))
            for old in sorted(fnmatch.filter(os.listdir(opened), "[0-9]*-*-*.txt"))[:-KEPT]:
                private_files.remove(old, opened)
        finally:
            os.close(opened)
    except private_files.Unsafe as problem:
        print(f"hcq: the report could not be saved: {problem}", file=sys.stderr)
        return None
    except OSError as error:
        print(f"hcq: the report could not be saved in {folder} ({error.strerror})", file=sys.stderr)
        return None
    return folder / name


def install(number: int = os_signal.SIGUSR1, chain: bool = False) -> Callable[[], None]:
    """Report on every open device when this process gets a signal: kill -USR1 PID.

    chain    call the handler that is there now afterwards; without it, a handler that is set already is refused
    Returns  a function that puts the former handler back
    Raises   UsageError when another handler is in place, or outside the main thread
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            "hcq.observe.report.install: Python sets signal handlers in the main thread only. Call it there."
        )
    before = os_signal.getsignal(number)
    if before not in (os_signal.SIG_DFL, os_signal.SIG_IGN, None) and not chain:
        raise UsageError(
            f"hcq.observe.report.install({os_signal.Signals(number).name}): {before!r} handles this signal already. "
            "Pass chain=True to call it after the report, or another signal."
        )

    def handle(got: int, frame: FrameType | None) -> None:
        everything(f"signal {os_signal.Signals(got).name}")
        if callable(before):
            before(got, frame)

    os_signal.signal(number, handle)

    def uninstall() -> None:
        if os_signal.getsignal(number) is handle:
            os_signal.signal(number, before)

    return uninstall


def everything(title: str) -> None:
    """Report on every open device."""
    devices = _devices()
    if not devices:
        print(f"---- hcq report: {title}: no device is open", file=sys.stderr)
    for device in devices:
        publish(device, title, (title, time.monotonic_ns()))


def _devices() -> list[Device]:
    return [device for device in open_devices.devices() if isinstance(device, Device)]


# ------------------------------------------------------------ the parts of a report


class _Names:
    """What lies at an address of a device, and what its graphs were last replayed with."""

    def __init__(self, device: Device) -> None:
        self.recent = device.recent
        self.graphs = list(device.graphs)
        self.live: list[Buffer] = device.memory.owners()
        self.freed = [Freed(*gone) for gone in device.memory.freed.copy()]
        self.regions = dict(device.memory.regions)
        self.timeline = device.timeline.va
        self.device = device
        self.signals = {va: signal for other in _devices() for va, signal in list(other.signals.items())}

    def name(self, va: int, at: int = NOW) -> str:
        """What an address was when submission number `at` was made: a buffer and the offset in it, live or freed since.

        Else its neighbours, and whether it is mapped. A block belongs to its owner from the first submission after its
        fence to the last one when it was freed.
        """
        if self.timeline <= va < self.timeline + 16:
            return "timeline"
        past = [entry for entry in reversed(self.freed) if entry.va <= va < entry.va + entry.capacity]
        freed = next((entry for entry in past if entry.since < at <= entry.until), None)
        signal = None if freed else self.signals.get(va)
        if signal is not None and (signal.device is not self.device or signal.buffer.fence < at):
            return signal.name
        for buffer in [] if freed else self.live:
            start = buffer.va
            if start is not None and start <= va < start + max(buffer.size_bytes, 1) and buffer.fence < at:
                return _offset(buffer.name or f"unnamed buffer@{start:x}", va - start)
        if at == NOW:
            freed = next(iter(past), None)
        mapped = any(start <= va < start + size for start, size in self.regions.items())
        text = f"{va:#x}"
        if freed is not None:
            text += f" (freed: {_offset(freed.name, va - freed.va)}"
        else:
            text += " (freed or never handed out" if mapped else " (not mapped"
        before = max((b for b in self.live if b.va is not None and b.va <= va), key=_start, default=None)
        after = min((b for b in self.live if b.va is not None and b.va > va), key=_start, default=None)
        if before is not None and va - _end(before) in range(NEAR_BYTES):
            text += f"; {va - _end(before)} bytes after the end of {_called(before)}"
        if after is not None and _start(after) - va < NEAR_BYTES:
            text += f"; {_start(after) - va} bytes before {_called(after)}"
        return text + ")"

    def packet(self, text: str) -> str:
        """A packet, behind what its addresses are now: "{gate} WaitRegMem(...)"."""
        known = [self.name(int(word, 16)) for word in dict.fromkeys(ADDRESS.findall(text))]
        found = [name for name in known if not name.startswith("0x")]
        return f"{{{', '.join(found)}}} {text}" if found else text

    def unfold(self, what: Command) -> Sequence[Command]:
        """The commands of a replay with the arguments it was given; any other command is just itself."""
        if not isinstance(what, Indirect):
            return (what,)
        commands = list(what.commands)
        for graph in self.graphs:
            for place, argument, value in graph.bound(what.address):
                old = commands[place]
                if isinstance(old, Dispatch):
                    args = (*old.args[:argument], value, *old.args[argument + 1 :])
                    commands[place] = old._replace(args=args)
        return commands


def _start(buffer: Buffer) -> int:
    return buffer.va or 0


def _called(buffer: Buffer) -> str:
    return buffer.name or f"buffer@{_start(buffer):x}"


def _end(buffer: Buffer) -> int:
    return (buffer.va or 0) + buffer.size_bytes


def _offset(name: str, offset: int) -> str:
    return f"{name}+{offset:#x}" if offset else name


def _submission(entry: Submitted, names: _Names, current: int | None, short: bool = False) -> Iterator[str]:
    value, commands, site = entry
    line = ledger.line(names.recent, value)
    at_the_time = partial(names.name, at=value)
    if short:
        first = described(commands[0], at_the_time) if commands else "nothing but its signal"
        more = f"; and {len(commands) - 1} more" if len(commands) > 1 else ""
        yield f"  #{value} {first}{more}  [{line or 'no line known'}]"
        return
    source = call_site.source_line(site)
    yield f"  #{value}, submitted at {line or 'a line unknown'}" + (f": {source}" if source else "")
    inside = [inner for what in commands for inner in names.unfold(what)]
    at = current if current is not None and current < len(inside) else None
    for index, what in enumerate(inside):
        begin = 0 if at is None else max(0, at - 2)
        if not begin <= index < begin + SHOWN:
            continue
        yield f"    {'->' if index == at else '  '} {described(what, at_the_time)}"
        if isinstance(what, Dispatch) and index == (at or 0) and what.program.first_site is not None:
            origin = what.program.first_site
            quoted = call_site.source_line(origin)
            yield f"       first dispatched at {call_site.where(origin)}" + (f": {quoted}" if quoted else "")
    if len(inside) > SHOWN:
        yield f"       {len(inside)} commands in all"


def _waited(device: Device, names: _Names, va: int) -> Iterator[str]:
    """What would set the signal that did not come; what the device itself waits for, and what would set that."""
    if va != device.timeline.va:
        yield from _setters(names, va)
    done = device.timeline.value
    late = next((entry for entry in device.recent.copy() if entry[0] > done), None)
    for signal in dict.fromkeys(
        what.signal for what in flat(late[1] if late else ()) if isinstance(what, Wait)
    ):
        if signal != va:
            yield from _setters(names, signal)


def _setters(names: _Names, va: int) -> Iterator[str]:
    """Every remembered write to a signal, by devices and by the host, with those marked that go backwards."""
    found: list[tuple[int, str, int, call_site.Site]] = []
    value = None
    for device in _devices():
        for number, commands, site in device.recent.copy():
            found += [
                (number, f"{device.name} #{number}", what.value, site)
                for what in flat(commands)
                if isinstance(what, Signal) and what.signal == va
            ]
        if any(start <= va < start + size for start, size in list(device.memory.regions.items())):
            value = native.view(va, 8).cast("Q")[0]
    seen = "" if value is None else f" is {value}"
    if not found:
        yield f"signal    {names.name(va)}{seen}, and no submission that is remembered sets it"
    last = 0
    for _, who, to, site in found[-SHOWN:]:
        back = f" BACKWARDS from {last}" if to < last else ""
        yield f"signal    {names.name(va)}{seen}: {who} sets it to {to}{back}  [{call_site.where(site)}]"
        last = to


def _waiters(device: Device) -> Iterator[str]:
    """Every thread that waits in this device, and its line."""
    frames = sys._current_frames()
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, (name, value, since_ns) in list(device.waits.items()):
        waited = (time.monotonic_ns() - since_ns) / 1e9
        at = call_site.site_of(frames.get(ident))
        where = call_site.where(at)
        source = call_site.source_line(at)
        yield f"waiting   {threads.get(ident, ident)} for {name} >= {value} since {waited:.3f} s, at {where}: {source}"
