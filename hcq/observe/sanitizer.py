"""Sanitizer: faults of kernels that an emulated GPU finds while it runs them (HCQ_SANITIZE).

In       faults, as emulated shader cores find them
Out      a line on stderr for each set of instructions; `findings`, those of all devices, in order
Changes  tells the device's other observers of each finding
Next     kernel_findings.py (the words), hcq/emu/shader/checks.py (what collects faults), hcq/rules/kernels.py (the
         rules), validator.py (the rules of submissions), foreign/sanitizer.py (the sister)

A launch is told to everybody in the process; it is this device's when its code is a program that this device loaded.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar

from hcq.device import Device
from hcq.events import kernel_faults, known_memory
from hcq.events.kernel_faults import SHARED_RACES, KernelFault
from hcq.events.known_memory import KnownMemory
from hcq.events.observer import Observer
from hcq.observe.ignored import Ignored
from hcq.observe.kernel_findings import KernelFindings, joined
from hcq.observe.memory_map import MemoryMap
from hcq.program import Program
from hcq.rules.rule import Finding

MOST_FINDINGS = 1000
VALIDATED = frozenset({SHARED_RACES})


class Sanitizer(Observer):
    """What is found in the kernels of one device. Tests read `findings`, those of all devices, in order."""

    findings: ClassVar[list[Finding]] = []
    _unordered: ClassVar[set[tuple[str, str, str]]] = set()  # pairs of launches that were told

    def __init__(self, device: Device) -> None:
        self.device = device
        self.known = KernelFindings(device.name, self._buffer_at, Ignored.read(device.config.sanitize_ignore))
        self._arguments: dict[int, tuple[int, int] | None] = {}  # by where code begins: KnownMemory.arguments
        self._programs: dict[int, weakref.ref[Program]] = {}  # by where code begins
        self._lock = threading.Lock()
        self._memory = MemoryMap(device)
        # validation looks for what costs little
        words = device.config.sanitize | (VALIDATED if device.config.validate else frozenset())
        self._ends = [kernel_faults.listen(self._found, words, self._knows)]
        if device.config.sanitize & {"memory", "init"}:
            self._ends.append(known_memory.listen(self._known))
        if self._memory.unwritten is not None:
            self._ends.append(known_memory.keep(self._memory.unwritten))

    def load(self, program: Program, entry: str, image: bytes, sources: Mapping[str, str] | None) -> None:
        kept = weakref.ref(program)  # one that nobody else keeps goes
        self.known.load(program.code_va, program.name, lambda place: _line(kept(), place))
        self._memory.written(program.code_va, None)
        self._arguments[program.code_va] = getattr(program, "kernarg_place", None)
        self._programs[program.code_va] = weakref.ref(program)

    def closing(self) -> bool:
        for end in self._ends:
            end()
        return False

    def mapped(self, va: int, size_bytes: int, name: str | None) -> None:
        self._memory.mapped(va, size_bytes)

    def alloc(self, va: int, size_bytes: int, capacity: int, name: str | None) -> None:
        self._memory.alloc(va, size_bytes, capacity, name)

    def free(self, va: int, capacity: int) -> None:
        self._memory.free(va, capacity)

    def exposed(self, va: int) -> None:
        self._memory.written(va, None)

    def wrote(self, va: int, data: Any = None) -> None:
        self._memory.written(va, None if data is None else memoryview(data).nbytes)

    def renamed(self, va: int, name: str) -> None:
        self._memory.rename(va, name)

    def unmapped(self, va: int, size_bytes: int) -> None:
        self._memory.unmapped(va, size_bytes)

    def _known(self, pid: int, address: int) -> KnownMemory | None:
        """From a thread of an emulated GPU, as a launch begins, or a copy."""
        if pid != os.getpid():
            return None
        if address not in self._arguments and not self._memory.has(address):
            return None
        program = self._programs[address]() if address in self._programs else None
        adds = getattr(program, "adds_shared", True)
        shared = None if adds else getattr(program, "own_shared_bytes", None)
        return self._memory.known()._replace(arguments=self._arguments.get(address), shared_bytes=shared)

    def _knows(self, pid: int, entry: int) -> bool:
        """Whether a launch is this device's; others are none of its business."""
        return pid == os.getpid() and self.known.has(entry)

    @classmethod
    def add(cls, device: Device, found: Finding) -> None:
        """What was found between two launches, or a launch and a copy: told once for a kernel and a buffer."""
        key = found.rule, found.kernel, found.buffer
        if key not in cls._unordered and len(cls.findings) < MOST_FINDINGS:
            cls._unordered.add(key)
            cls.findings.append(found)
            device.say(f"{found.level} {found}")

    def _found(self, pid: int, entry: int, fault: KernelFault) -> None:
        """From a thread of an emulated GPU, which all devices' sanitizers hear."""
        is_ours = pid == os.getpid() and (entry or self._memory.has(fault.address))
        found = self.known.take(entry, fault) if is_ours else None
        if found is None:
            return
        with self._lock:
            self.findings.append(found.finding)
        self.device.say(f"{found.finding.level} {found.finding}")
        for observer in self.device.observers:
            observer.found(found.as_fields())

    def _buffer_at(self, address: int) -> tuple[str, str] | None:
        return self._memory.buffer_at(address)


def _line(program: Program | None, place: int) -> str:
    if program is None:
        return ""
    return joined(program.line_at(place), program.caller_at(place))
