"""Pages of a process in a GPU's page table (USERPTR), where they are a copy: fetched when they are touched.

In       a UserMemory of another process, and the GPU's accesses to it
Out      UserRange: a mapping like any other, whose pages are the process's when the GPU looks at them
Changes  the process's pages, once the step of a queue that changed them is over: no byte but the changed ones
Next     memory.py (the page table that asks), hcq/emu/kernel.py (UserMemory), hcq/emu/supervisor/mirror.py

What a copy engine overwrites is not fetched before, and goes to the process as one piece.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.memory import Range, aligned_words
from hcq.emu.kernel import UserMemory

PAGE = 4096


@dataclass(frozen=True)
class UserRange(Range):
    """Such a mapping.

    is_here     the pages that have been fetched, since the last step
    before      page -> what was fetched, of pages that are written
    replaced    (from, to): bytes that a copy engine has overwritten
    """

    memory: UserMemory
    is_here: Array
    before: dict[int, bytes] = field(default_factory=dict)
    replaced: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, va: int, memory: UserMemory, writable: bool, name: str) -> UserRange:
        """The pages at an address."""
        data = memory.data
        is_here = np.zeros(-(-len(data) // PAGE), np.bool_)
        return cls(data, aligned_words(va, data), va, va + len(data), writable, name, memory, is_here)

    def reach(self, at: int, size_bytes: int, *, is_write: bool) -> None:
        first, last = at // PAGE, (at + max(size_bytes, 1) - 1) // PAGE
        missing = np.flatnonzero(~self.is_here[first : last + 1]) + first
        for start, end in runs(missing):
            self.memory.fetch(start * PAGE, min(end * PAGE, len(self.data)) - start * PAGE)
            self.is_here[start:end] = True
        if is_write:
            for page in range(first, last + 1):
                if page not in self.before:
                    self.before[page] = self.data[page * PAGE : (page + 1) * PAGE].tobytes()

    def replace(self, at: int, size_bytes: int) -> None:
        """All of these bytes are about to be overwritten."""
        end = at + size_bytes
        for edge in {at // PAGE, (end - 1) // PAGE}:  # of these pages the GPU may look at the rest, too
            if edge * PAGE < at or end < min((edge + 1) * PAGE, len(self.data)):
                self.reach(edge * PAGE, 1, is_write=False)
        self.is_here[at // PAGE : (end - 1) // PAGE + 1] = True
        self.replaced.append((at, end))

    def settle(self) -> None:
        """What the GPU has changed goes to the process; the next access fetches again."""
        for at, end in self.replaced:
            self.memory.store(at, end - at)
        for page, before in self.before.items():
            now = self.data[page * PAGE : (page + 1) * PAGE]
            changed = np.flatnonzero(now != np.frombuffer(before, np.uint8))
            for start, end in runs(changed):
                self.memory.store(page * PAGE + start, end - start)
        self.replaced.clear()
        self.before.clear()
        self.is_here[:] = False

    @property
    def is_touched(self) -> bool:
        """Whether there is anything to settle."""
        return bool(self.replaced or self.before or self.is_here.any())


def runs(numbers: Any) -> list[tuple[int, int]]:
    """Ascending numbers as ranges (first, behind the last)."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) > 1)
    starts = numbers[np.concatenate(([0], breaks + 1))]
    ends = numbers[np.concatenate((breaks, [len(numbers) - 1]))] + 1
    return list(zip(starts.tolist(), ends.tolist()))
