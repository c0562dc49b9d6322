"""Pages of a process that a GPU has mapped (USERPTR), where they are a copy: fetched when they are touched.

In       a UserMemory of another process, and a GPU's accesses to it
Out      UserPages: a copy whose bytes are the process's when the GPU looks at them
Changes  the process's pages, once the step of a queue that changed them is over: no byte but the changed ones
Next     amd/memory.py and nv/memory.py (the page tables that ask), kernel.py (UserMemory), supervisor/mirror.py

What a copy engine overwrites need not be fetched before, and goes to the process as one piece.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcq.emu.kernel import UserMemory

PAGE = 4096


class UserPages:
    """A copy of one GPU's own, in one of its address spaces.

    is_here     the pages that have been fetched, since the last step
    before      page -> what was fetched, of pages that are written
    replaced    (from, to): bytes that a copy engine has overwritten
    """

    def __init__(self, memory: UserMemory) -> None:
        self.memory = memory.again()
        self.data = self.memory.data
        self.is_here: NDArray[np.bool_] = np.zeros(-(-len(self.data) // PAGE), np.bool_)
        self.before: dict[int, bytes] = {}
        self.replaced: list[tuple[int, int]] = []
        self._lock = threading.RLock()  # the driver settles what it unmaps, whatever the GPU does

    def reach(self, at: int, size_bytes: int, is_write: bool) -> None:
        """Before these bytes are touched."""
        first, last = at // PAGE, (at + max(size_bytes, 1) - 1) // PAGE
        with self._lock:
            missing = np.flatnonzero(~self.is_here[first : last + 1]) + first
            for start, end in runs(missing):
                self.memory.fetch(start * PAGE, min(end * PAGE, len(self.data)) - start * PAGE)
                self.is_here[start:end] = True
            if is_write:
                for page in range(first, last + 1):
                    if page not in self.before:
                        self.before[page] = self.data[page * PAGE : (page + 1) * PAGE].tobytes()

    def replace(self, at: int, size_bytes: int) -> None:
        """Before all of these bytes are overwritten."""
        end = at + size_bytes
        with self._lock:
            for edge in {at // PAGE, (end - 1) // PAGE}:  # of these pages the GPU may look at the rest, too
                if edge * PAGE < at or end < min((edge + 1) * PAGE, len(self.data)):
                    self.reach(edge * PAGE, 1, is_write=False)
            self.is_here[at // PAGE : (end - 1) // PAGE + 1] = True
            self.replaced.append((at, end))

    def settle(self) -> None:
        """What the GPU has changed goes to the process; the next access fetches again."""
        with self._lock:
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
