"""Races in shared memory, in machine code: accesses of which surely none races, many times as quick as by NumPy.

In       accesses as shared_races.py has them; its marks and its order (order.py), as arrays
Out      True where no lane's access races, and the marks are as NumPy would have left them; else False, and nothing
         has changed that NumPy does not set first: shared_races.py looks at the whole access again, and says what it
         finds
Changes  the marks
Next     shared_races.py (the reference, with functions of the same names), native_global_races.py (the same for global
         memory), hcq/emu/compiled/routine.py (how it is written)

Plain loads and stores within a block's memory are looked at here. All else is left to NumPy: atomic operations, stores
of equal values, accesses of less than a cell, whatever is a finding.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hcq.emu.compiled import assemble
from hcq.emu.compiled.routine import Elements, Routine, Value
from hcq.emu.shader.native_global_races import address, whole
from hcq.emu.shader.order import Array
from hcq.system import native

if TYPE_CHECKING:
    from hcq.emu.shader.shared_races import SharedRaces

NOBODY = SEVERAL = -1
QUIET, FINDS = 0, 1  # what a routine leaves: nothing races; NumPy has to look
STATUS, COUNT, WARPS, LANES, ADDRESSES, SIZE, SITE = range(7)
APART, PER_BLOCK, STRIDE, SHIFT, SHARED_BYTES, CLOCK, KNOWN, MET = range(7, 15)
WRITER, WRITE_CLOCK, WRITE_SITE, WRITE_LANE, RECORD, READS, CHANGES = 15, 16, 17, 18, 19, 20, 23
CELLS, OWN, WHO, THREADS, TABLE_WORDS = range(26, 31)
MARK_CLOCK, MARK_SITE, MARK_LANE = range(3)  # arrays of marks
KINDS = {MARK_CLOCK: "i32", MARK_SITE: "i32", MARK_LANE: "i8"}
MOST_CELLS = 1 << 16  # of one access; larger ones are NumPy's


class NativeSharedRaces:
    """Those of the blocks that run together."""

    def __init__(self, races: SharedRaces) -> None:
        self.races = races
        self.table = np.zeros(TABLE_WORDS, np.int64)
        self.here = native.address_of(self.table.data)
        self.rooms = np.zeros((4, MOST_CELLS), np.int32)
        self.table[CELLS:TABLE_WORDS] = [address(room) for room in self.rooms]
        order = races.order
        self.table[APART] = order.lanes_are_apart
        self.table[CLOCK:WRITER] = [address(one) for one in (order.clock, order.known, order.met)]
        self.table[PER_BLOCK], self.table[SHARED_BYTES] = races.warps, races.shared_bytes
        self.unit, self.has_changes = 0, False

    def access(
        self, kind: str, warps: Array, lanes: Array, addresses: Array, size_bytes: int, site: int
    ) -> bool:
        """A plain load or store of these lanes. Returns whether it is done."""
        races, count = self.races, len(warps)
        if count * size_bytes > MOST_CELLS or races.order.thread_known is not None:
            return False
        if self.unit != races.unit or self.has_changes != (races.changes is not None):
            self._take_marks()
        warps, lanes, addresses = whole(warps), whole(lanes), whole(addresses)
        self.table[COUNT:APART] = (
            count, address(warps), address(lanes), address(addresses), size_bytes, site,
        )  # fmt: skip
        _routine(kind).run(self.here)
        return int(self.table[STATUS]) == QUIET

    def _take_marks(self) -> None:
        """Cells are smaller from now on, or atomic operations begin."""
        races = self.races
        self.unit, self.has_changes = races.unit, races.changes is not None
        self.table[STRIDE], self.table[SHIFT] = races.stride, races.unit.bit_length() - 1
        marks: list[Array] = [
            races.writer,
            races.write_clock,
            races.write_site,
            races.write_lane,
            races.record,
        ]
        for one in (races.reads, races.changes):
            if one is not None:
                marks += [one.clock, one.site, one.lane]
        self.table[WRITER : WRITER + len(marks)] = [address(one) for one in marks]


@functools.cache
def _routine(kind: str) -> assemble.Assembled:
    return assemble.Assembled(_Text(kind).text)


class _Text:
    """The text of the routine for loads, or for stores. Its methods are those of shared_races.py, cell by cell."""

    def __init__(self, kind: str) -> None:
        r = self.r = Routine()
        self.site, self.is_apart, self.per_block = r.field(SITE), r.field(APART).ne(0), r.field(PER_BLOCK)
        self.clock, self.known, self.met = (r.array(one, "i32") for one in (CLOCK, KNOWN, MET))
        self.writer, self.write_clock = r.array(WRITER, "i16"), r.array(WRITE_CLOCK, "i32")
        self.write_site, self.write_lane = r.array(WRITE_SITE, "i32"), r.array(WRITE_LANE, "i8")
        self.record = r.array(RECORD, "i32")
        self.reads, self.changes = self._marks(READS), self._marks(CHANGES)
        self.rooms = [r.array(place, "i32") for place in (CELLS, OWN, WHO, THREADS)]
        has_changes = r.field(CHANGES).ne(0)
        self._locate()
        with self._each() as (cell, own, warp, lane):
            self._look_at_writes(cell, own, warp, lane)
            with r.when(has_changes):
                self._look_at_marks(self.changes, self.per_block, cell, own, warp, lane)
            if kind == "store":
                self._look_at_marks(self.reads, 0, cell, own, warp, lane)
                self._look_at_each_other(cell, own)
        with self._each() as (cell, own, warp, lane):
            if kind == "load":
                self._put(cell, own, warp, lane)
            else:
                self.record[cell] = 0
                self.writer[cell], self.write_clock[cell] = own, self.clock[warp]
                self.write_site[cell], self.write_lane[cell] = self.site, lane
        r.leave(QUIET)
        self.text = r.text()

    def _marks(self, place: int) -> dict[int, Elements]:
        return {one: self.r.array(place + one, kind) for one, kind in KINDS.items()}

    def _locate(self) -> None:
        """The cells of all addresses, with the place of a warp in its block, its number, and a lane for each."""
        r = self.r
        size, addresses, shift = r.field(SIZE), r.array(ADDRESSES, "i64"), r.field(SHIFT)
        warps, lanes, limit = r.array(WARPS, "i64"), r.array(LANES, "i64"), r.field(SHARED_BYTES)
        count, cells, below = r.variable(0), size >> shift, (Value(r, "1") << shift) - 1
        warp_now, base, own = r.variable(-1), r.variable(0), r.variable(0)
        with r.loop(r.field(COUNT)) as number:
            warp, at = warps[number], addresses[number]
            with r.when(at.lt(0) | (at + size).gt(limit) | ((at | size) & below).ne(0)):
                r.leave(FINDS)
            with r.when(warp.ne(warp_now.get())):
                block = warp // self.per_block
                base.set(block * r.field(STRIDE))
                own.set(warp - block * self.per_block)
                warp_now.set(warp)
            first, place = base.get() + (at >> shift), count.get()
            with r.loop(cells) as more:
                for room, value in zip(self.rooms, (first + more, own.get(), warp, lanes[number])):
                    room[place + more] = value
            count.set(place + cells)
        self.count = count.get()

    @contextlib.contextmanager
    def _each(self) -> Iterator[tuple[Value, ...]]:
        """What is done for each cell: itself, the place of its warp in the block, the warp, its lane."""
        with self.r.loop(self.count) as number:
            yield tuple(room[number] for room in self.rooms)

    def _look_at_writes(self, cell: Value, own: Value, warp: Value, lane: Value) -> None:
        r, writer = self.r, self.writer[cell]
        with r.when(writer.ne(NOBODY)):
            clock = self.write_clock[cell]
            with r.when(writer.ne(own)):
                with r.when(clock.gt(self.known[warp * (self.per_block << 1) + writer])):
                    r.leave(FINDS)
            with r.when(writer.eq(own)):
                self._look_at_threads(warp, lane, self.write_lane[cell], clock)

    def _look_at_threads(self, warp: Value, lane: Value, other: Value, clock: Value) -> None:
        """Leave it to NumPy where another lane of the same warp was there, and nothing orders the two."""
        r = self.r
        with r.when(self.is_apart), r.when(other.ne(lane)), r.when(clock.gt(self.met[warp])):
            r.leave(FINDS)

    def _look_at_marks(
        self,
        marks: dict[int, Elements],
        column: Value | int,
        cell: Value,
        own: Value,
        warp: Value,
        lane: Value,
    ) -> None:
        r, row = self.r, warp * (self.per_block << 1) + column
        with r.loop(self.per_block) as other:
            there = cell * self.per_block + other
            clock = marks[MARK_CLOCK][there]
            with r.when(clock.gt(0)):
                with r.when(other.ne(own)), r.when(clock.gt(self.known[row + other])):
                    r.leave(FINDS)
                with r.when(other.eq(own)):
                    self._look_at_threads(warp, lane, marks[MARK_LANE][there], clock)

    def _look_at_each_other(self, cell: Value, own: Value) -> None:
        """Leave it to NumPy where several threads store to one cell, which its record says until the access is done."""
        r, before, mine = self.r, self.record[cell], own * -1 - 1
        with r.when(before.lt(0)), r.when(before.ne(mine) | self.is_apart):
            r.leave(FINDS)
        self.record[cell] = mine

    def _put(self, cell: Value, own: Value, warp: Value, lane: Value) -> None:
        r, marks, there = self.r, self.reads, cell * self.per_block + own
        found, clock = r.variable(lane), marks[MARK_CLOCK][there]
        with r.when(self.is_apart), r.when(marks[MARK_LANE][there].ne(lane)):
            with r.when(clock.gt(0)), r.when(clock.gt(self.met[warp])):
                found.set(SEVERAL)
        marks[MARK_CLOCK][there], marks[MARK_SITE][there] = self.clock[warp], self.site
        marks[MARK_LANE][there] = found.get()
