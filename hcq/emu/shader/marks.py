"""Marks: who touched each piece of global memory last, remembered sparsely: page by page, as kernels get there.

In       addresses of accesses
Out      cells, each of which is remembered as one; arrays of marks for them
Changes  itself
Next     global_races.py (which reads the marks), native_global_races.py (so does machine code), page_table.py,
         spilled.py (what has no room in the marks)

A cell is a word, where all accesses to a page are whole words; else half a word, or a byte. Pages that are touched
first when MOST_CELLS are remembered already are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hcq.emu.shader.page_table import PageTable
from hcq.emu.shader.spilled import Left, Spilled

Array = np.ndarray[Any, Any]

PAGE_BITS = 12
PAGE = 1 << PAGE_BITS
UNITS = (4, 2, 1)
MOST_CELLS = 1 << 23  # of a launch: 64 bytes each where it has atomic operations, else 36
NOBODY = -1
FIELDS = {"warp": np.int32, "clock": np.int32, "site": np.uint16, "lane": np.int8, "level": np.uint8}
FEW_RUNS = 64
MOST_SPAN = 1 << 16


class Marks:
    """One access for each cell: the warp (of the launch) that made it, its clock, site, lane, level."""

    def __init__(self, cells: int) -> None:
        self.warp = np.full(cells, NOBODY, np.int32)
        self.clock = np.zeros(cells, np.int32)
        self.site = np.zeros(cells, np.uint16)
        self.lane = np.zeros(cells, np.int8)
        self.level = np.zeros(cells, np.uint8)

    def put(self, cells: Array, warps: Array, clocks: Array, site: int, lanes: Array, level: int) -> None:
        """Who has touched these cells now."""
        self.warp[cells], self.clock[cells] = warps, clocks
        self.site[cells], self.lane[cells], self.level[cells] = site, lanes, level

    def at(self, cells: Array) -> Left:
        """Who has touched these cells, of which each was touched."""
        columns = self.warp, self.clock, self.site, self.lane, self.level
        return Left(*(column[cells] for column in columns))

    def resize(self, cells: int) -> None:
        """Have room for so many."""
        for name, scalar in FIELDS.items():
            old = getattr(self, name)
            new = np.full(cells, NOBODY if name == "warp" else 0, scalar)
            new[: len(old)] = old
            setattr(self, name, new)

    def copy_to(self, other: Marks, start: int, count: int, goal: int, times: int) -> None:
        """Some cells, each as several smaller ones of another."""
        for name in FIELDS:
            part = np.repeat(getattr(self, name)[start : start + count], times)
            getattr(other, name)[goal : goal + len(part)] = part
        self.warp[start : start + count] = NOBODY


class Pool:
    """The pages whose cells have one size. A page's cells lie beside each other.

    stores, reads   plain accesses; of reads several that nothing orders
    changes, record   atomic operations that write, several, too, and empty while there are none. record: see order.py
    more_reads, more_changes   those that have no room there, where somebody has to know all of them
    """

    def __init__(self, unit: int, readers: int, is_exact: bool = False) -> None:
        self.unit = unit
        self.cells_of_page = PAGE // unit
        self.pages: list[int] = []  # their numbers, by slot
        self.stores = Marks(0)
        self.reads = [Marks(0) for _ in range(readers)]
        self.changes: list[Marks] = []
        self.record = np.zeros(0, np.int32)
        self.scratch = np.zeros(0, np.int32)  # a number for each cell, of whoever needs one now
        self.is_stored = np.zeros(0, bool)  # a page: whether anybody has stored there
        self.more_reads, self.more_changes = Spilled(), Spilled()
        self.is_exact = is_exact
        self.capacity = 0

    @property
    def marks(self) -> list[Marks]:
        """All of them."""
        return [self.stores, *self.reads, *self.changes]

    def begin_atomics(self) -> list[Marks]:
        """The marks of atomic operations, from the first of them on."""
        if not self.changes:
            self.changes = [Marks(self.capacity) for _ in self.reads]
            self.record = np.zeros(self.capacity, np.int32)
        return self.changes

    def slot(self, page: int) -> int:
        """Room for one more page."""
        self.pages.append(page)
        needed = len(self.pages) * self.cells_of_page
        if needed > self.capacity:
            self.capacity = max(needed, 2 * self.capacity, 4 * self.cells_of_page)
            for one in self.marks:
                one.resize(self.capacity)
            self.scratch = np.zeros(self.capacity, np.int32)
            self.is_stored = np.append(self.is_stored, np.zeros(self.capacity // self.cells_of_page, bool))
            if self.is_exact:
                self.more_reads.resize(self.capacity)
                self.more_changes.resize(self.capacity)
            if self.changes:
                record, self.record = self.record, np.zeros(self.capacity, np.int32)
                self.record[: len(record)] = record
        return len(self.pages) - 1

    def address(self, cell: int) -> int:
        """Of its first byte."""
        slot, place = divmod(cell, self.cells_of_page)
        return (self.pages[slot] << PAGE_BITS) + place * self.unit


class Shadow:
    """The marks of a launch. is_exact: also what has no room in them is remembered."""

    def __init__(self, readers: int, is_exact: bool = False) -> None:
        self.pools = {unit: Pool(unit, readers, is_exact) for unit in UNITS}
        self.places: dict[int, tuple[int, int] | None] = {}  # page -> (unit, slot); None: it is left out
        self.cells = 0
        self.table = PageTable()

    def locate(self, addresses: Array, size_bytes: int) -> Iterator[tuple[Pool, Array | None, Array]]:
        """(pool, which of the addresses or None for all, the first cell of each). Nothing crosses the end of a page."""
        found, which = self._find(addresses, size_bytes)
        if len(found) == 1:
            if found[0] is not None:
                pool = self.pools[found[0][0]]
                yield pool, None, self._cells(addresses, pool, found[0][1])
            return
        units = np.array([0 if one is None else one[0] for one in found])[which]
        slots = np.array([0 if one is None else one[1] for one in found])[which]
        for one in UNITS:
            chosen = np.flatnonzero(units == one)
            if len(chosen) == len(addresses):
                yield self.pools[one], None, self._cells(addresses, self.pools[one], slots)
            elif len(chosen):
                yield self.pools[one], chosen, self._cells(addresses[chosen], self.pools[one], slots[chosen])

    def enter(self, addresses: Array, size_bytes: int) -> None:
        """From now on the pages of these addresses are remembered, as far as there is room."""
        self._find(addresses, size_bytes)

    @property
    def version(self) -> int:
        """Another one, when marks are somewhere else."""
        return self.table.version + sum(1 for pool in self.pools.values() if pool.changes)

    def _find(self, addresses: Array, size_bytes: int) -> tuple[list[tuple[int, int] | None], Array]:
        """Where pages are, and which of these each address is in."""
        unit = unit_of(addresses, size_bytes)
        pages = addresses >> np.uint64(PAGE_BITS)
        starts = np.flatnonzero(pages[1:] != pages[:-1]) + 1
        if len(starts) < FEW_RUNS:
            begins = np.concatenate(([0], starts))
            which = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(pages))))
            different = pages[begins]
        else:
            different, which = _different(pages)
        return [self._place(page, unit) for page in different.tolist()], which

    def touched(self) -> tuple[Array, Array, Array, Array]:
        """What was read and written at all: (from which address, up to which, whether written, at which site)."""
        parts = [_runs(pool) for pool in self.pools.values() if pool.pages]
        joined = (
            [np.concatenate(columns) for columns in zip(*parts)] if parts else [np.zeros(0, np.int64)] * 4
        )
        order = np.argsort(joined[0], kind="stable")
        low, high, is_write, site = (column[order] for column in joined)
        return low, high, is_write.astype(bool), site

    def _cells(self, addresses: Array, pool: Pool, slots: Any) -> Array:
        inside = (addresses & np.uint64(PAGE - 1)).astype(np.int64)
        found: Array = inside // pool.unit + slots * pool.cells_of_page
        return found

    def _place(self, page: int, unit: int) -> tuple[int, int] | None:
        place = self.places.get(page, (0, 0))
        if place is None or 0 < place[0] <= unit:
            return place
        pool, old = self.pools[unit], place[0]
        more = pool.cells_of_page - (PAGE // old if old else 0)
        if self.cells + more > MOST_CELLS:
            if not old:
                self.places[page] = None
                self.table.leave_out(page)
            return None
        self.cells += more
        slot = pool.slot(page)
        if old:
            self._split(self.pools[old], place[1], pool, slot)
            pool.is_stored[slot] = self.pools[old].is_stored[place[1]]
        self.places[page] = unit, slot
        self.table.put(page, UNITS.index(unit), slot)
        return unit, slot

    def _split(self, old: Pool, slot: int, new: Pool, goal: int) -> None:
        """Somebody touches less of a page's cells than all: they become several each."""
        count, times = old.cells_of_page, old.unit // new.unit
        start, to = slot * count, goal * new.cells_of_page
        if old.changes:
            new.begin_atomics()
            new.record[to : to + count * times] = np.repeat(old.record[start : start + count], times)
        for before, after in zip(old.marks, new.marks):
            before.copy_to(after, start, count, to, times)
        if old.is_exact:
            old.more_reads.move_to(new.more_reads, start, count, to, times)
            old.more_changes.move_to(new.more_changes, start, count, to, times)


def _different(pages: Array) -> tuple[Array, Array]:
    """np.unique(pages, return_inverse=True), quicker where they lie within a span."""
    first, last = int(pages.min()), int(pages.max())
    if last - first >= MOST_SPAN:
        different, which = np.unique(pages, return_inverse=True)
        return different, which
    inside = (pages - np.uint64(first)).astype(np.int64)
    there = np.zeros(last - first + 1, np.int64)
    there[inside] = 1
    found = np.flatnonzero(there)
    there[found] = np.arange(len(found))
    return found.astype(np.uint64) + np.uint64(first), there[inside]


def unit_of(addresses: Array, size_bytes: int) -> int:
    """The largest unit of which this is all whole."""
    low = int(np.bitwise_or.reduce(addresses)) | size_bytes
    return 4 if not low & 3 else 2 if not low & 1 else 1


def _runs(pool: Pool) -> tuple[Array, Array, Array, Array]:
    """Cells beside each other that were touched alike, in the order of their pages."""
    order, per_page = np.argsort(pool.pages), pool.cells_of_page
    cells = (order[:, None] * per_page + np.arange(per_page)).reshape(-1)
    state = np.zeros(len(cells), np.int64)  # 0: nobody was there; else the site, and whether it wrote
    for marks in (*pool.reads, *pool.changes, pool.stores):
        writes = marks not in pool.reads
        there = marks.warp[cells] != NOBODY
        state = np.where(there, marks.site[cells].astype(np.int64) * 2 + 2 + writes, state)
    page = np.repeat(np.array(pool.pages, np.int64)[order], per_page)
    address = (page << PAGE_BITS) + np.tile(np.arange(per_page), len(order)) * pool.unit
    begins = np.append(True, (state[1:] != state[:-1]) | (address[1:] != address[:-1] + pool.unit))
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(state)) - 1
    kept = state[starts] != 0
    starts, ends = starts[kept], ends[kept]
    what = state[starts] - 2
    return address[starts], address[ends] + pool.unit, what % 2, what // 2
