"""Sanitizer: faults of kernels that an emulated GPU finds while it runs them (HCQ_SANITIZE).

In       faults, as emulated shader cores find them
Out      a line on stderr for each set of instructions; `findings`, those of all devices, in order
Changes  nothing
Next     hcq/emu/shader/checks.py (what collects them), hcq/rules/kernels.py (the rules), validator.py (the rules of
         submissions)

A launch is told to everybody in the process; it is this device's when its code is a program that this device loaded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from hcq.device import Device
from hcq.events import kernel_faults
from hcq.events.kernel_faults import SHARED_RACES, KernelFault
from hcq.events.observer import Observer
from hcq.program import Program
from hcq.rules.kernels import violation
from hcq.rules.rule import Finding

MOST_FINDINGS = 1000
VALIDATED = frozenset({SHARED_RACES})


class Sanitizer(Observer):
    """What is found in the kernels of one device. Tests read `findings`, those of all devices, in order."""

    findings: ClassVar[list[Finding]] = []
    _unordered: ClassVar[set[tuple[str, str, str]]] = set()  # pairs of launches that were told

    def __init__(self, device: Device) -> None:
        self.device = device
        self._names: dict[
            int, str
        ] = {}  # where code begins -> a program's name; it stays when the program is gone
        self._told: set[tuple[Any, ...]] = set()  # rules with their sites, each told once
        self._lock = threading.Lock()
        # validation looks for what costs next to nothing
        words = device.config.sanitize | (VALIDATED if device.config.validate else frozenset())
        self._end = kernel_faults.listen(self._found, words)

    def load(self, program: Program, entry: str, image: bytes, sources: Mapping[str, str] | None) -> None:
        self._names[program.code_va] = program.name
        self._told = {one for one in self._told if one[0] != program.code_va}

    def closing(self) -> bool:
        self._end()
        return False

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
        kernel = self._kernel_of(entry)
        if not kernel or pid != os.getpid():
            return
        key = entry, fault.rule, *(site.place for site in fault.sites)
        with self._lock:
            if key in self._told or len(self.findings) >= MOST_FINDINGS:
                return
            self._told.add(key)
            broken = violation(fault, entry, self._memory_of, self._kernel_of)
            rule, buffer = broken.rule, self._memory_of(fault.address) if fault.space == "global" else ""
            found = Finding(
                rule.id, rule.level, broken.what, rule.fix, self.device.name, kernel=kernel, buffer=buffer
            )
            self.findings.append(found)
        self.device.say(f"{rule.level} {found}")

    def _kernel_of(self, entry: int) -> str:
        return self._names.get(entry, "")

    def _memory_of(self, address: int) -> str:
        """The buffer that an address of the device is in, with the offset; "" where there is none."""
        for buffer in self.device.memory.owners():
            if buffer.address <= address < buffer.address + buffer.size_bytes:
                return f"byte {address - buffer.address} of {buffer.name or 'a buffer'}"
        return ""
