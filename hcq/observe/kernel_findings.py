"""Kernel findings: what an emulated GPU has found wrong in the kernels of one device, in words, each said once.

In       programs as they are loaded; faults of kernels (hcq/events/kernel_faults.py)
Out      Found: a rule's Finding, and the sites as data, for traces and other programs
Changes  itself
Next     sanitizer.py (our devices) and foreign/sanitizer.py (those of other programs) who ask, ignored.py (what is
         left out), hcq/rules/kernels.py (the words)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from hcq.events.kernel_faults import KernelFault
from hcq.observe.ignored import Ignored
from hcq.rules.kernels import violation
from hcq.rules.rule import Finding

MOST_FINDINGS = 1000  # of a device
INLINED = ", inlined at "  # stands between the lines of a function and of who calls it

BufferAt = Callable[[int], tuple[str, str] | None]  # an address -> a buffer's name, and the address in words
LineAt = Callable[[int], str]  # an instruction's address -> "file:line", or two of them around INLINED, or ""


class Found(NamedTuple):
    """A finding, and the fault that it tells of.

    entry  where the code of the launch begins
    lines  of the source, one for each site; "" where nobody says
    """

    finding: Finding
    fault: KernelFault
    entry: int
    lines: tuple[str, ...]

    def as_fields(self) -> dict[str, Any]:
        """It as plain data: the fields of Finding, the place, the count, and the sites."""
        fault = self.fault
        sites = [
            {**one._asdict(), "entry": one.entry or self.entry, "line": line}
            for one, line in zip(fault.sites, self.lines)
        ]
        place = {"space": fault.space, "address": fault.address, "times": fault.times}
        return {**self.finding._asdict(), **place, "sites": sites}


class _Kernel(NamedTuple):
    name: str
    line_at: LineAt


NO_KERNEL = _Kernel("", lambda place: "")  # of what a packet does


class KernelFindings:
    """Those of one device.

    device     its name
    buffer_at  what lies at an address of its memory
    """

    def __init__(self, device: str, buffer_at: BufferAt, ignored: Ignored) -> None:
        self.device, self.buffer_at, self.ignored = device, buffer_at, ignored
        self._kernels: dict[int, _Kernel] = {}  # by where code begins; they stay when the program is gone
        self._told: set[tuple[Any, ...]] = set()  # rules with their sites
        self._lock = threading.Lock()

    def load(self, entry: int, name: str, line_at: LineAt) -> None:
        """A program whose code begins here; what was said of another that was there counts no more."""
        with self._lock:
            self._kernels[entry] = _Kernel(name, line_at)
            self._told = {one for one in self._told if one[0] != entry}

    def has(self, entry: int) -> bool:
        """Whether a program of the device begins, or began, there."""
        return entry in self._kernels

    def take(self, entry: int, fault: KernelFault) -> Found | None:
        """What a launch did whose code begins at `entry`, or a packet (0).

        Returns  None where it is not this device's, was said, or is ignored
        """
        kernel = self._kernels.get(entry) if entry else NO_KERNEL
        if kernel is None:
            return None
        key = entry, fault.rule, *sorted(site.place for site in fault.sites)
        with self._lock:
            if key in self._told or len(self._told) >= MOST_FINDINGS:
                return None
            self._told.add(key)
        lines = tuple(self._line(site.place, site.entry or entry) for site in fault.sites)
        broken = violation(fault, entry, self._memory, self._name, lines)
        there = self.buffer_at(fault.address) if fault.space == "global" else None
        buffer = there[0] if there is not None else ""
        places = [one.text for one in fault.sites]
        places += [place for line in lines if line for place in line.split(INLINED)]
        places += [f"line {one.place}" for one in fault.sites if one.place < (one.entry or entry)]
        if self.ignored.takes(fault.rule, kernel.name, places, buffer or fault.space):
            return None
        rule = broken.rule
        finding = Finding(
            rule.id, rule.level, broken.what, rule.fix, self.device, kernel=kernel.name, buffer=buffer
        )
        return Found(finding, fault, entry, lines)

    def _line(self, place: int, entry: int) -> str:
        kernel = self._kernels.get(entry)
        return kernel.line_at(place) if kernel is not None and place else ""

    def _name(self, entry: int) -> str:
        kernel = self._kernels.get(entry)
        return kernel.name if kernel is not None else ""

    def _memory(self, address: int) -> str:
        there = self.buffer_at(address)
        return "" if there is None else there[1]


def joined(line: str, caller: str) -> str:
    """A line of the source, and that of who calls it, where that is another one."""
    return f"{line}{INLINED}{caller}" if line and caller and caller != line else line
