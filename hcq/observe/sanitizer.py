"""Sanitizer: faults of kernels that an emulated GPU finds while it runs them (HCQ_SANITIZE).

In       races, as emulated shader cores find them
Out      a line on stderr for each pair of instructions of a kernel; `findings`, those of all devices, in order
Changes  nothing
Next     hcq/emu/shader/shared_races.py (how they are found), hcq/rules/races.py (the rule), validator.py (the rules of
         submissions)

A launch is told to everybody in the process; it is this device's when its code is a program that this device loaded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import ClassVar

from hcq.device import Device
from hcq.events import kernel_races
from hcq.events.kernel_races import Race
from hcq.events.observer import Observer
from hcq.program import Program
from hcq.rules.races import shared_race
from hcq.rules.rule import Finding

MOST_FINDINGS = 1000


class Sanitizer(Observer):
    """What is found in the kernels of one device. Tests read `findings`, those of all devices, in order."""

    findings: ClassVar[list[Finding]] = []

    def __init__(self, device: Device) -> None:
        self.device = device
        self._names: dict[
            int, str
        ] = {}  # where code begins -> a program's name; it stays when the program is gone
        self._told: dict[int, set[tuple[int, int]]] = {}  # where code begins -> the pairs that were told
        self._lock = threading.Lock()
        self._end = kernel_races.listen(self._raced)

    def load(self, program: Program, entry: str, image: bytes, sources: Mapping[str, str] | None) -> None:
        self._names[program.code_va] = program.name
        self._told[program.code_va] = set()

    def closing(self) -> bool:
        self._end()
        return False

    def _raced(self, pid: int, entry: int, race: Race) -> None:
        """From a thread of an emulated GPU, which all devices' sanitizers hear."""
        kernel = self._names.get(entry)
        if kernel is None or pid != os.getpid():
            return
        pair, told = (race.first.place, race.second.place), self._told[entry]
        with self._lock:
            if pair in told or len(self.findings) >= MOST_FINDINGS:
                return
            told.add(pair)
            broken = shared_race(race, entry)
            rule = broken.rule
            found = Finding(rule.id, rule.level, broken.what, rule.fix, self.device.name, kernel=kernel)
            self.findings.append(found)
        self.device.say(f"{rule.level} {found}")
