"""Pages of a process that a GPU has mapped (USERPTR), where they are a copy: fetched when they are touched.

In       a UserMemory of another process, and a GPU's accesses to it
Out      UserPages: a copy whose bytes are the process's when the GPU looks at them
Changes  the process's pages, before the GPU's next access to memory: no byte but the changed ones
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

    before      page -> what was fetched, of pages that are written
    replaced    (from, to): bytes that a copy engine overwrites

    The owner settles before each access. So what a kernel has stored is in the process in the order of the stores,
    and a load sees what the process has now: a flag, and the data that it announces, may be in different pages.
    """

    def __init__(self, memory: UserMemory) -> None:
        self.memory = memory.again()
        self.data = self.memory.data
        self.before: dict[int, bytes] = {}
        self.replaced: list[tuple[int, int]] = []
        self._lock = threading.RLock()  # the driver settles what it unmaps, whatever the GPU does

    def reach(self, at: int, size_bytes: int, is_write: bool) -> None:
        """Before these bytes are touched."""
        self._fetch(at // PAGE, (at + max(size_bytes, 1) - 1) // PAGE + 1, is_write)

    def reach_each(self, offsets: NDArray[Any], size_bytes: int, is_write: bool) -> None:
        """Before `size_bytes` at each of these offsets are touched: of pages between them nothing is fetched."""
        first, last = offsets // PAGE, (offsets + (size_bytes - 1)) // PAGE
        low, high = int(first.min()), int(last.max())
        if high - low < len(offsets):
            self._fetch(low, high + 1, is_write)
            return
        for start, end in runs(np.unique(np.concatenate((first, last)))):
            self._fetch(start, end, is_write)

    def _fetch(self, start: int, end: int, is_write: bool) -> None:
        """Bring pages up to date, but for those with changes of this access that the process does not have yet."""
        with self._lock:
            missing = [(start, end)]
            if self.before or self.replaced:
                missing = runs(np.array([page for page in range(start, end) if not self._is_changed(page)]))
            for first, behind in missing:
                self.memory.fetch(first * PAGE, min(behind * PAGE, len(self.data)) - first * PAGE)
            if is_write:
                for page in range(start, end):
                    if page not in self.before:
                        self.before[page] = self.data[page * PAGE : (page + 1) * PAGE].tobytes()

    def _is_changed(self, page: int) -> bool:
        return page in self.before or any(
            at < (page + 1) * PAGE and page * PAGE < end for at, end in self.replaced
        )

    def replace(self, at: int, size_bytes: int) -> None:
        """Before all of these bytes are overwritten."""
        end = at + size_bytes
        with self._lock:
            for edge in {at // PAGE, (end - 1) // PAGE}:  # of these pages the GPU may look at the rest, too
                if edge * PAGE < at or end < min((edge + 1) * PAGE, len(self.data)):
                    self.reach(edge * PAGE, 1, is_write=False)
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

    @property
    def is_touched(self) -> bool:
        """Whether there is anything to settle."""
        return bool(self.replaced or self.before)


def runs(numbers: Any) -> list[tuple[int, int]]:
    """Ascending numbers as ranges (first, behind the last)."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) > 1)
    starts = numbers[np.concatenate(([0], breaks + 1))]
    ends = numbers[np.concatenate((breaks, [len(numbers) - 1]))] + 1
    return list(zip(starts.tolist(), ends.tolist()))
