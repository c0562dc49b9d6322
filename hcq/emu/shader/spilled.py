"""Accesses to cells that have more of them than their marks have room for: those that nothing orders, all of them.

In       readers, or atomic operations, of cells (marks.py) whose two marks are taken by others that nothing orders
Out      all that were put here of some cells
Changes  itself
Next     global_races.py (who puts them here, and asks), marks.py (a pool of cells has one for readers and one for
         atomic operations)

What was put here of one thread and cell several times is kept once, the last time. Beyond MOST_SPILLED of them no
more are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

MOST_SPILLED = 1 << 21  # of a pool, 20 bytes each
FEW = 1 << 12  # that are not sorted
ANY_LEVEL = 255


class Left(NamedTuple):
    """Accesses that were made: by which warp of the launch, at which clock, site and lane, reaching how far."""

    warp: Array
    clock: Array
    site: Array
    lane: Array
    level: Array

    def some(self, which: Array) -> Left:
        """Those alone."""
        return Left(*(column[which] for column in self))


KINDS = Left(*map(np.dtype, (np.int32, np.int32, np.uint16, np.int8, np.uint8)))  # type: ignore[arg-type]


class Spilled:
    """Those of a pool.

    has     of each cell: whether there are some
    lowest  the least that any of them reaches (order.py), or less
    """

    def __init__(self) -> None:
        self.has = np.zeros(0, bool)
        self.lowest = ANY_LEVEL
        self.cells, self.left = np.zeros(0, np.int64), Left(*(np.zeros(0, kind) for kind in KINDS))  # by cell
        self.recent: list[tuple[Array, Left]] = []
        self.recent_count = 0

    def resize(self, capacity: int) -> None:
        """Have room for so many cells."""
        self.has = np.append(self.has, np.zeros(capacity - len(self.has), bool))

    def put(self, cells: Array, warps: Array, clocks: Array, site: int, lanes: Array, level: int) -> None:
        """These have been there, too. Several may be at one cell."""
        count = len(cells)
        columns = warps, clocks, np.full(count, site), lanes, np.full(count, level)
        self._put(cells, Left(*(np.asarray(one, kind) for one, kind in zip(columns, KINDS))))

    def of(self, cells: Array) -> tuple[Array, Left]:
        """(which of these cells, who was there): a pair for each access."""
        asked = np.flatnonzero(self.has[cells])
        if self.recent_count:
            self.settle()
        wanted = cells[asked]
        begin = np.searchsorted(self.cells, wanted)
        counts = np.searchsorted(self.cells, wanted, "right") - begin
        first = np.repeat(begin - np.append(0, np.cumsum(counts)[:-1]), counts)
        return np.repeat(asked, counts), self.left.some(first + np.arange(len(first)))

    def forget(self, cells: Array) -> None:
        """Somebody has written there, who comes after all of them, or races."""
        gone = cells[self.has[cells]]
        if not len(gone):
            return
        self.settle()
        self.has[gone] = False
        self._keep(self.has[self.cells])

    def move_to(self, other: Spilled, start: int, count: int, goal: int, times: int) -> None:
        """What is known of some cells, each of which becomes several smaller ones of another."""
        here = np.arange(start, start + count)
        which, left = self.of(here)
        if len(which):
            self.forget(here)
            to = (goal + which[:, None] * times + np.arange(times)).reshape(-1)
            other._put(to, left.some(np.repeat(np.arange(len(which)), times)))

    # ------------------------------------------------------------ inside

    def _put(self, cells: Array, left: Left) -> None:
        if len(self.cells) >= MOST_SPILLED:
            return
        self.has[cells] = True
        self.lowest = min(self.lowest, int(left.level.min()))
        self.recent.append((cells.astype(np.int64), left))
        self.recent_count += len(cells)
        if self.recent_count > max(FEW, len(self.cells)):
            self.settle()

    def settle(self) -> None:
        """By cell; of one thread the last alone."""
        if not self.recent_count:
            return
        parts = [(self.cells, self.left), *self.recent]
        self.cells = np.concatenate([cells for cells, _ in parts])
        self.left = Left(*map(np.concatenate, zip(*(left for _, left in parts))))
        self.recent, self.recent_count = [], 0
        left = self.left
        order = np.lexsort((left.lane, left.level, left.warp, self.cells))  # a stable one
        self._keep(order)
        keys = (self.cells, self.left.warp, self.left.level, self.left.lane)
        is_new = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        self._keep(np.append(is_new, True))

    def _keep(self, which: Array) -> None:
        self.cells, self.left = self.cells[which], self.left.some(which)
