"""A table of pages for machine code: where the marks of each begin.

In       pages, as marks.py comes to them
Out      `keys` and `found`, in which a page is at its number modulo their length, or behind that
Changes  itself
Next     marks.py (who fills it), native_global_races.py (who reads it)
"""

from __future__ import annotations

import numpy as np

TAKEN = -1 << 63  # of a key that is a page
LEFT_OUT = -1
FIRST_LENGTH = 1 << 10


class PageTable:
    """Pages of a launch. found: 4 times the slot, and the number of the pool from 1 on; or LEFT_OUT."""

    def __init__(self) -> None:
        self.keys = np.zeros(FIRST_LENGTH, np.int64)
        self.found = np.zeros(FIRST_LENGTH, np.int64)
        self.count = 0
        self.version = 0  # how often anything has changed

    def put(self, page: int, pool: int, slot: int) -> None:
        """A page is there now; pool: from 0 on."""
        self.version += 1
        self._put(page | TAKEN, 4 * slot + pool + 1)

    def leave_out(self, page: int) -> None:
        """A page is not to be remembered."""
        self.version += 1
        self._put(page | TAKEN, LEFT_OUT)

    def _put(self, key: int, found: int) -> None:
        if 2 * self.count >= len(self.keys):
            self._grow()
        mask = len(self.keys) - 1
        at = key & mask
        while self.keys[at] not in (0, key):
            at = at + 1 & mask
        self.count += self.keys[at] == 0
        self.keys[at], self.found[at] = key, found

    def _grow(self) -> None:
        old = [(key, found) for key, found in zip(self.keys.tolist(), self.found.tolist()) if key]
        self.keys, self.found = (np.zeros(4 * len(self.keys), np.int64) for _ in range(2))
        self.count = 0
        for key, found in old:
            self._put(key, found)
