"""Checks: what is looked for in one launch (HCQ_SANITIZE), and what was found.

In       the words that listeners want; faults, from the steps that look
Out      `Checks.found`: once for each set of sites, with a count; `tell`, when the launch has ended
Changes  itself
Next     shared_races.py and its neighbours (which look), hcq/events/kernel_faults.py (the record),
         ../amd/shader/checks.py and ../nv/shader/checks.py (the steps of each word)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hcq.events import kernel_faults, known_memory
from hcq.events.kernel_faults import SHARED_RACES, KernelFault
from hcq.events.known_memory import KnownMemory

if TYPE_CHECKING:
    from hcq.emu.shader.memory_checks import MemoryChecks

MOST_FAULTS = 100  # sets of sites for each rule, of each launch


class Checks:
    """Those of one launch.

    words  of HCQ_SANITIZE, and SHARED_RACES
    pid    the process whose work it is
    entry  where the kernel's code begins
    memory  who looks at its accesses to memory (memory_checks.py)
    known  the device's memory as the launch begins; None: nobody knows, or nobody wants to
    heard  is told of each fault at once, while the instruction that does it is under way; None: nobody is
    """

    def __init__(
        self, words: frozenset[str], pid: int = 0, entry: int = 0, known: KnownMemory | None = None
    ) -> None:
        self.words, self.pid, self.entry, self.known = words, pid, entry, known
        self.memory: MemoryChecks | None = None
        self.heard: Callable[[KernelFault], None] | None = None
        self.found: dict[tuple[Any, ...], KernelFault] = {}
        self.sets: Counter[str] = Counter()  # how many there are of each rule
        self.at_end: list[Callable[[], None]] = []  # what more is told when the launch has ended
        self.over_launch: dict[
            type, Any
        ] = {}  # what is remembered from one set of blocks to the next, by its class

    @property
    def races(self) -> str:
        """Where races are looked for: "everywhere", "shared" (what validation wants, which is cheap), or ""."""
        return "everywhere" if "race" in self.words else "shared" if SHARED_RACES in self.words else ""

    @classmethod
    def of_launch(cls, pid: int, entry: int) -> Checks | None:
        """What a launch that begins now looks for; None: nobody wants anything."""
        words = kernel_faults.wanted(pid, entry)
        if not words:
            return None
        is_asked = words & {"memory", "init"}
        return cls(words, pid, entry, known_memory.of_launch(entry, pid) if is_asked else None)

    def add(self, key: tuple[Any, ...], times: int, make: Callable[[], KernelFault]) -> None:
        """A fault, so many times.

        key   its rule, and what says which sites it is about; make: the record, when it is the first of them
        """
        known = self.found.get(key)
        if known is not None:
            self.found[key] = known._replace(times=known.times + times)
        elif self.sets[key[0]] < MOST_FAULTS:
            self.sets[key[0]] += 1
            fault = self.found[key] = make()._replace(times=times)
            if self.heard is not None:
                self.heard(fault)

    def tell(self) -> None:
        """The launch has ended: listeners hear what was found."""
        for fault in self.found.values():
            kernel_faults.tell(self.pid, self.entry, fault)
        for tell in self.at_end:
            tell()
