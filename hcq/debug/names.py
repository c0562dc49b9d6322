"""Names: what the program calls its kernels and buffers, and the lines of the source behind their instructions.

In       devices that tell of what they load and allocate
Out      Names: of an entry, of an address, of a line; `Listener` and `ForeignListener`, observers of one device
Changes  itself
Next     session.py (who has one), hcq/observe/__init__.py (who adds the observer)
"""

from __future__ import annotations

import bisect
import fnmatch
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hcq.command import Command
from hcq.debug.moment import MOST_LINES, Site, Work
from hcq.device import Device
from hcq.events.foreign_devices import (
    ForeignBuffer,
    ForeignDevice,
    ForeignObserver,
    ForeignProgram,
    ForeignSubmission,
)
from hcq.events.observer import Observer
from hcq.program import Program
from hcq.system import call_site

MANGLED = re.compile(r"_Z(\d+)")  # before the name of a function of C++ that is in no namespace


class Names:
    """What all devices of the process have told."""

    def __init__(self) -> None:
        self.programs: dict[int, Program] = {}  # by where the code begins
        self.sources: dict[int, Mapping[str, str]] = {}
        self._buffers: dict[int, tuple[int, str]] = {}  # address -> bytes, name
        self._starts: list[int] = []
        self._freed: set[int] = set()
        self._lines: dict[tuple[Any, int], str] = {}
        self._lock = threading.Lock()

    def kernel(self, entry: int) -> str:
        """The name of the kernel whose code begins at an address; "" for one that no device has loaded."""
        program = self.programs.get(entry)
        return program.name if program is not None else ""

    def kernels(self) -> list[str]:
        """The names of all that were loaded."""
        return [program.name for program in self.programs.values()]

    def matches(self, work: Work, pattern: str) -> bool:
        """Whether a pattern, such as `matmul*`, names a launch's kernel; of a mangled name what it begins with."""
        spelled = [work.name, hex(work.entry)]
        if (found := MANGLED.match(work.name)) is not None:
            spelled.append(work.name[found.end() : found.end() + int(found[1])])
        return any(fnmatch.fnmatchcase(one, pattern) for one in spelled)

    def line(self, work: Work, site: Site) -> str:
        """Where an instruction comes from: "kernel.hip:30", else "PTX line 12", or ""."""
        place = site.key & MOST_LINES if work.is_text else site.key
        return self.line_at(work.entry, place) or site.line

    def line_at(self, entry: int, address: int) -> str:
        """ "kernel.hip:30", where an address of the kernel at an entry, or a line of its PTX, comes from; ""."""
        program = self.programs.get(entry)
        if program is None:
            return ""
        found = self._lines.get((program, address))
        if found is None:
            locate = program.locate if isinstance(program, ForeignProgram) else program.line_at
            found = locate(address)
            self._lines[program, address] = found
        return found

    def buffer(self, address: int) -> str:
        """What an address is in, in words; "" when no device has allocated it."""
        with self._lock:
            at = bisect.bisect_right(self._starts, address) - 1
            if at < 0:
                return ""
            start = self._starts[at]
            size, name = self._buffers[start]
        if address >= start + size:
            return ""
        offset = f" + {address - start:#x}" if address > start else ""
        freed = ", freed" if start in self._freed else ""
        return f"{name or 'a buffer'}{freed} ({start:#x}, {size} bytes){offset}"

    def buffers(self) -> list[tuple[int, int, str]]:
        """(address, bytes, name) of those that are allocated."""
        with self._lock:
            return [(start, *self._buffers[start]) for start in self._starts]

    def allocated(self, va: int, size_bytes: int, name: str) -> None:
        """A buffer was made."""
        with self._lock:
            for gone in [one for one in self._freed if va <= one < va + size_bytes]:
                self._freed.remove(gone)
                del self._buffers[gone]
                self._starts.remove(gone)
            if va not in self._buffers:
                bisect.insort(self._starts, va)
            self._buffers[va] = size_bytes, name

    def freed(self, va: int) -> None:
        """It is gone; its name stays, until another buffer is there."""
        with self._lock:
            if va in self._buffers:
                self._freed.add(va)


def _kinds(commands: Sequence[Command]) -> str:
    return ", ".join(type(one).__name__.lower() for one in commands[:8])


class Hearing(Protocol):
    """A session, as far as a listener knows one."""

    names: Names

    def submitting(self, device: str, what: str) -> None:
        """A device is about to ring a doorbell."""


class Listener(Observer):
    """What one device tells."""

    def __init__(self, device: Device, session: Hearing) -> None:
        self.device, self.session, self.names = device, session, session.names

    def load(self, program: Program, entry: str, image: bytes, sources: Mapping[str, str] | None) -> None:
        self.names.programs[program.code_va] = program
        if sources:
            self.names.sources[program.code_va] = sources

    def alloc(self, va: int, size_bytes: int, capacity: int, name: str | None) -> None:
        self.names.allocated(va, size_bytes, name or "")

    def renamed(self, va: int, name: str) -> None:
        found = next((size for start, size, _ in self.names.buffers() if start == va), None)
        if found is not None:
            self.names.allocated(va, found, name)

    def submitting(
        self,
        value: int,
        words: list[bytes],
        commands: Sequence[Command],
        held: Sequence[Any],
        at: call_site.Site,
    ) -> list[bytes]:
        self.session.submitting(self.device.name, _kinds(commands))
        return words

    def free(self, va: int, capacity: int) -> None:
        self.names.freed(va)


class ForeignListener(ForeignObserver):
    """What is found out of one device of a program that does not know us."""

    def __init__(self, device: ForeignDevice, session: Hearing) -> None:
        self.device, self.session, self.names = device, session, session.names

    def load(self, program: ForeignProgram) -> None:
        self.names.programs[program.code_va] = program

    def alloc(self, buffer: ForeignBuffer) -> None:
        self.names.allocated(buffer.va, buffer.size_bytes, buffer.name)

    def renamed(self, buffer: ForeignBuffer) -> None:
        self.names.allocated(buffer.va, buffer.size_bytes, buffer.name)

    def submitting(self, made: ForeignSubmission) -> None:
        self.session.submitting(self.device.name, _kinds(made.commands))

    def free(self, buffer: ForeignBuffer) -> None:
        self.names.freed(buffer.va)
