"""Races in global memory, in machine code: accesses of which surely none races, many times as quick as by NumPy.

In       accesses as global_races.py has them; its marks (marks.py) and its order (order.py), as arrays
Out      True where no lane's access races, and the marks are as NumPy would have left them; else False, and nothing
         has changed but readers that it puts there again: global_races.py looks at the whole access again, and says
         what it finds
Changes  the marks
Next     global_races.py (the reference, with functions of the same names), page_table.py (where marks are),
         hcq/emu/compiled/routine.py (how it is written)

Plain loads and stores are looked at here, and stores that may be atomic ones where nothing atomic was. All else is left
to NumPy: atomic operations, accesses to pages of several sizes of cells, stores of equal values, places with more
readers than marks where all are kept, whatever is a finding.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import numpy as np

from hcq import config
from hcq.emu.compiled import assemble
from hcq.emu.compiled.routine import Elements, Routine, Value, Variable
from hcq.emu.shader.marks import NOBODY, PAGE, PAGE_BITS, UNITS, Array, Pool, Shadow
from hcq.emu.shader.order import Order
from hcq.emu.shader.page_table import TAKEN
from hcq.system import native

SEVERAL = -1
PLAIN, UNMARKED = 0, 3  # as global_races.py has them
QUIET, FINDS, NEW_PAGE = range(3)  # what a routine leaves: nothing races; NumPy has to look; a page is new
STATUS, COUNT, WARPS, LANES, ADDRESSES, SIZE, SITE, LEVEL, APART, FIRST = range(10)
PER_BLOCK, CLOCK, KNOWN, MET, FAR, PAGES, PLACES, MASK, CELLS, OWN, FIRST_LANES, LAST_LANES = range(10, 22)
STAMP, WARPS_AT_ONCE, EXACT = 22, 23, 24
POOLS = 25  # and from here on each pool's:
SHIFT, PAGE_SHIFT, IS_STORED, SCRATCH, RECORD, STORES, READS, CHANGES = 0, 1, 2, 3, 4, 5, 10, 20
MORE_READS, MORE_CHANGES = 30, 31
POOL_WORDS = 32
TABLE_WORDS = POOLS + len(UNITS) * POOL_WORDS
WARP, MARK_CLOCK, MARK_SITE, MARK_LANE, MARK_LEVEL = range(5)  # arrays of marks
KINDS = {WARP: "i32", MARK_CLOCK: "i32", MARK_SITE: "i16", MARK_LANE: "i8", MARK_LEVEL: "i8"}
MOST_LANES = 1 << 16  # cells of one access; larger ones are NumPy's
FIRST_STAMP, LAST_STAMP = (
    1 << 26,
    (1 << 31) - (1 << 26),
)  # in an array where NumPy has numbers of cells of an access


def is_wanted() -> bool:
    """Whether there is LLVM, and emulated GPUs may use it."""
    return config.current().emu_compiled != "0" and assemble.is_installed()


class NativeGlobalRaces:
    """Those of one launch."""

    def __init__(self, shadow: Shadow, warps_per_block: int, is_exact: bool) -> None:
        self.shadow = shadow
        self.order: Order | None = None
        self.table = np.zeros(TABLE_WORDS, np.int64)
        self.table[PER_BLOCK], self.table[EXACT] = warps_per_block, is_exact
        self.here = native.address_of(self.table.data)
        self.rooms = np.zeros((4, MOST_LANES), np.int32)
        self.table[CELLS:STAMP] = [address(room) for room in self.rooms]
        self.version, self.stamp, self.warps = -1, FIRST_STAMP, 0
        self.who: tuple[Array | None, ...] = (
            None,
            None,
        )  # the last warps and lanes, and these as a routine takes them

    def access(
        self,
        order: Order,
        kind: str,
        warps: Array,
        lanes: Array,
        addresses: Array,
        size_bytes: int,
        site: int,
        level: int,
    ) -> bool:
        """A load or a store of these lanes. Returns whether it is done."""
        count = len(warps)
        if count * size_bytes > MOST_LANES or (
            level and (kind == "load" or level != UNMARKED or order.syncs)
        ):
            return False
        if order is not self.order:
            self._take_order(order)
        if order.thread_known is not None:
            return False
        if warps is not self.who[0] or lanes is not self.who[1]:
            self.who = warps, lanes, whole(warps), whole(lanes)
            self.table[WARPS:ADDRESSES] = address(self.who[2]), address(self.who[3])
        addresses = np.ascontiguousarray(addresses)
        self.table[COUNT] = count
        self.table[ADDRESSES:APART] = address(addresses), size_bytes, site, level
        self.table[STAMP] = self._next_stamp()
        run = _routine(kind).run
        while True:
            if self.version != self.shadow.version:
                self._take_marks()
            run(self.here)
            status = int(self.table[STATUS])
            if status != NEW_PAGE:
                return status == QUIET
            before = self.shadow.version
            self.shadow.enter(addresses, size_bytes)
            if self.shadow.version == before:
                return False

    def _next_stamp(self) -> int:
        """What cells are stamped with during one access: this and its warp, then as much again and the last warp."""
        found = self.stamp
        if found + 2 * self.warps > LAST_STAMP:
            for pool in self.shadow.pools.values():
                pool.scratch[:] = 0
            found = FIRST_STAMP
        self.stamp = found + 2 * self.warps
        return found

    def _take_order(self, order: Order) -> None:
        self.order = order
        self.table[APART:PER_BLOCK] = order.lanes_are_apart, order.first
        self.warps = self.table[WARPS_AT_ONCE] = len(order.clock)
        self.table[CLOCK:PAGES] = [
            address(one) for one in (order.clock, order.known, order.met, order.far_at)
        ]

    def _take_marks(self) -> None:
        """Where marks lie has changed: a page is new, or atomic operations begin."""
        shadow = self.shadow
        self.version = shadow.version
        self.table[PAGES:CELLS] = (
            address(shadow.table.keys), address(shadow.table.found), len(shadow.table.keys) - 1,
        )  # fmt: skip
        for number, pool in enumerate(shadow.pools.values()):
            begin = POOLS + number * POOL_WORDS
            self.table[begin : begin + POOL_WORDS] = _pool_words(pool)


def _pool_words(pool: Pool) -> list[int]:
    shift = pool.unit.bit_length() - 1
    arrays = (pool.is_stored, pool.scratch, pool.record)
    words = [shift, PAGE_BITS - shift, *map(address, arrays)]
    for marks in pool.marks:
        words += [address(one) for one in (marks.warp, marks.clock, marks.site, marks.lane, marks.level)]
    words += [0] * (MORE_READS - len(words))
    return [*words, address(pool.more_reads.has), address(pool.more_changes.has)]


def whole(numbers: Array) -> Array:
    """As a routine takes them."""
    return np.ascontiguousarray(numbers, np.int64)


def address(array: Array) -> int:
    """Where an array is, which somebody keeps."""
    return int(array.__array_interface__["data"][0])


# -- the routines


@functools.cache
def _routine(kind: str) -> assemble.Assembled:
    return assemble.Assembled(_Text(kind).text)


class _Text:
    """The text of the routine for loads, or for stores. Its methods are those of global_races.py, cell by cell."""

    def __init__(self, kind: str) -> None:
        r = self.r = Routine()
        self.level, self.site = r.field(LEVEL), r.field(SITE)
        self.is_apart, self.per_block = r.field(APART).ne(0), r.field(PER_BLOCK)
        self.is_exact = r.field(EXACT).ne(0)
        self.first = r.field(FIRST)
        self.clock, self.met = r.array(CLOCK, "i32"), r.array(MET, "i32")
        self.known, self.far = r.array(KNOWN, "i32"), r.array(FAR, "i64")
        self.cells, self.own = r.array(CELLS, "i32"), r.array(OWN, "i32")
        self.first_lanes, self.last_lanes = r.array(FIRST_LANES, "i32"), r.array(LAST_LANES, "i32")
        self._locate(is_load=kind == "load")
        self.scratch = self._of_pool(SCRATCH, "i32")
        self.stores = self._marks(STORES)
        self.reads = [self._marks(READS), self._marks(READS + 5)]
        self.changes = [self._marks(CHANGES), self._marks(CHANGES + 5)]
        self.has_changes = r.field(self.pool + CHANGES).ne(0)
        self.is_stored, self.page_shift = self._of_pool(IS_STORED, "i8"), r.field(self.pool + PAGE_SHIFT)
        self.more_reads, self.more_changes = (
            self._of_pool(place, "i8") for place in (MORE_READS, MORE_CHANGES)
        )
        self.stamp, self.warps = r.field(STAMP), r.field(WARPS_AT_ONCE)
        if kind == "load":
            self._load()
        else:
            self._store()
        r.leave(QUIET)
        self.text = r.text()

    # -- where the marks are

    def _of_pool(self, place: int, kind: str) -> Elements:
        return self.r.array(self.pool + place, kind)

    def _marks(self, place: int) -> dict[int, Elements]:
        return {one: self._of_pool(place + one, kind) for one, kind in KINDS.items()}

    def _locate(self, is_load: bool) -> None:
        """The cells of all addresses, with a warp and its lane for each.

        Loads of one warp from one place that come one after the other are one: of the first lane and the last one.
        """
        r = self.r
        size, addresses = r.field(SIZE), r.array(ADDRESSES, "i64")
        warps, lanes = r.array(WARPS, "i64"), r.array(LANES, "i64")
        pool, page_now, base = r.variable(0), r.variable(-1), r.variable(0)
        shift, count, written = r.variable(0), r.variable(0), r.variable(0)
        last_address, last_warp = r.variable(-1), r.variable(-1)
        with r.loop(r.field(COUNT)) as number, r.once() as done:
            at_address, warp, lane = addresses[number], warps[number], lanes[number]
            if is_load:
                with r.when(at_address.eq(last_address.get())), r.when(warp.eq(last_warp.get())):
                    self._once_more(count.get(), size >> shift.get(), lane)
                    r.skip(done)
            page = at_address >> PAGE_BITS
            with r.when(page.ne(page_now.get())):
                self._page(page, pool, shift, base, written)
                page_now.set(page)
            with r.when(base.get().lt(0)):
                r.skip(done)
            inside = at_address & (PAGE - 1)
            with r.when((inside + size).gt(PAGE)):
                r.leave(FINDS)
            with r.when(((at_address | size) & ((_one(r) << shift.get()) - 1)).ne(0)):
                r.leave(NEW_PAGE)
            cell, at = base.get() + (inside >> shift.get()), count.get()
            cells = size >> shift.get()
            with r.loop(cells) as more:
                self.cells[at + more], self.own[at + more] = cell + more, warp
                self.first_lanes[at + more] = self.last_lanes[at + more] = lane
            count.set(at + cells)
            last_address.set(at_address)
            last_warp.set(warp)
        with r.when(count.get().eq(0)):
            r.leave(QUIET)
        self.count, self.are_written = count.get(), written.get()
        self.pool = (pool.get() - 1) * POOL_WORDS + POOLS

    def _once_more(self, count: Value, cells: Value, lane: Value) -> None:
        """Another lane of the warp that came last is at the same cells."""
        r = self.r
        last = r.variable(lane)
        with r.when(self.is_apart):
            last.set(SEVERAL)
        with r.loop(cells) as more:
            self.last_lanes[count - 1 - more] = last.get()
            with r.when(self.is_apart):
                self.first_lanes[count - 1 - more] = SEVERAL

    def _page(self, page: Value, pool: Variable, shift: Variable, base: Variable, written: Variable) -> None:
        """Where a page's cells begin; negative where it is left out. written: 0 as long as none has been stored to."""
        r = self.r
        keys, places, mask = r.array(PAGES, "i64"), r.array(PLACES, "i64"), r.field(MASK)
        key = page | TAKEN
        with r.once() as found:
            with r.loop(mask + 1) as step:
                at = (page + step) & mask
                with r.when(keys[at].eq(key)):
                    place = places[at]
                    base.set(place)
                    with r.when(place.ge(0)):
                        number = place & 3
                        with r.when(pool.get().eq(0)):
                            pool.set(number)
                            shift.set(r.field(number * POOL_WORDS + (POOLS - POOL_WORDS + SHIFT)))
                        with r.when(pool.get().ne(number)):
                            r.leave(FINDS)
                        is_stored = r.array((number - 1) * POOL_WORDS + (POOLS + IS_STORED), "i8")
                        written.set(written.get() | is_stored[place >> 2])
                        base.set((place >> 2) << (_one(r) * PAGE_BITS - shift.get()))
                    r.skip(found)
                with r.when(keys[at].eq(0)):
                    r.leave(NEW_PAGE)
            r.leave(NEW_PAGE)

    # -- what is not ordered

    def _against(
        self, marks: dict[int, Elements], cell: Value, own: Value, lane: Value, are_atomic: bool = False
    ) -> None:
        """Leave it to NumPy where this is no access that comes after the one that left a mark."""
        r = self.r
        theirs = marks[WARP][cell]
        with r.when(theirs.ne(NOBODY)):
            clock, mine = marks[MARK_CLOCK][cell], own + self.first
            with r.when(theirs.eq(mine)), r.when(self.is_apart):
                is_other = marks[MARK_LANE][cell].ne(lane) | lane.eq(SEVERAL)
                with r.when(is_other), r.when(clock.gt(self.met[own])):
                    r.leave(FINDS)
            with r.when(theirs.ne(mine)):
                with r.when(marks[MARK_LEVEL][cell].eq(UNMARKED)):
                    self._leave_atomics(cell)
                with r.when(self._knows(own, theirs, clock, are_atomic).no()):
                    r.leave(FINDS)

    def _knows(self, own: Value, theirs: Value, clock: Value, are_atomic: bool = False) -> Value:
        """Order.knows."""
        r = self.r
        result = r.variable(0)
        place = theirs - self.first - own // self.per_block * self.per_block
        column = place + self.per_block if are_atomic else place
        with r.once() as done:
            with r.when(place.ge(0)), r.when(place.lt(self.per_block)):
                known = self.known[own * (self.per_block << 1) + column]
                with r.when(known.ge(clock)):
                    result.set(1)
                r.skip(done)
            far = self.far[own]
            with r.when(far.ne(0)):
                block = theirs // self.per_block
                there = block * (self.per_block << 1) + (theirs - block * self.per_block)
                if are_atomic:
                    there = there + self.per_block
                with r.when(r.at(far, "i32")[there].ge(clock)):
                    result.set(1)
        return result.get().ne(0)

    def _leave_atomics(self, cell: Value) -> None:
        """Leave it to NumPy where an access that surely is atomic was here."""
        r, reads = self.r, self.reads[0]
        with r.when(reads[WARP][cell].ne(NOBODY)), r.when(reads[MARK_LEVEL][cell].ne(PLAIN)):
            r.leave(FINDS)
        with r.when(self.has_changes), r.when(self.changes[0][WARP][cell].ne(NOBODY)):
            r.leave(FINDS)

    def _against_changes(self, cell: Value, own: Value, lane: Value) -> None:
        with self.r.when(self.has_changes):
            for changes in self.changes:
                self._against(changes, cell, own, lane, are_atomic=True)
            with self.r.when(self.is_exact), self.r.when(self.more_changes[cell].ne(0)):
                self.r.leave(FINDS)

    @contextlib.contextmanager
    def _each(self, down: bool = False) -> Iterator[tuple[Value, Value, Value]]:
        """What is done for each cell: its place among them, itself, its warp."""
        with self.r.loop(self.count, down) as number:
            yield number, self.cells[number], self.own[number]

    # -- loads

    def _load(self) -> None:
        r = self.r
        with r.when(self.are_written.ne(0) | self.has_changes), self._each() as (number, cell, own):
            lane = self.first_lanes[number]
            with r.when(self.is_stored[cell >> self.page_shift].ne(0)):
                self._against(self.stores, cell, own, lane)
            self._against_changes(cell, own, lane)
        self._turns()

    def _turns(self) -> None:
        """The outermost accesses of each cell: the first ones, then the last ones, where these are another warp's."""
        r, scratch = self.r, self.scratch
        first_of, last_of = self.stamp, self.stamp + self.warps
        are_several = r.variable(0)
        with self._each() as (number, cell, own), r.once() as done:
            before = scratch[cell] - first_of
            with r.when(before.lt(0)):
                scratch[cell] = first_of + own
                self._put(cell, own, self.first_lanes[number])
                r.skip(done)
            with r.when(before.ne(own)):
                with r.when(self.is_exact):
                    r.leave(FINDS)
                are_several.set(1)
                r.skip(done)
            self._note_several(cell, own)
        with r.when(are_several.get().eq(0)):
            r.leave(QUIET)
        with self._each(down=True) as (number, cell, own), r.once() as done:
            before = scratch[cell]
            with r.when(before.lt(last_of)):
                scratch[cell] = last_of + own
                with r.when(own.ne(before - first_of)):
                    self._put(cell, own, self.last_lanes[number])
                r.skip(done)
            with r.when(own.eq(before - last_of)):
                self._note_several(cell, own)

    def _note_several(self, cell: Value, own: Value) -> None:
        """Another lane of a warp that has been put there, if there was room."""
        r, mine = self.r, own + self.first
        with r.when(self.is_apart), r.once() as done:
            for marks in self.reads:
                with r.when(marks[WARP][cell].eq(mine)):
                    marks[MARK_LANE][cell] = SEVERAL
                    r.skip(done)

    def _put(self, cell: Value, own: Value, lane: Value) -> None:
        """A reader, in the place of one that it comes after, or of one of a block that the other mark has, too."""
        r, mine = self.r, own + self.first
        with r.once() as done:
            for number, marks in enumerate(self.reads):
                theirs, clock = marks[WARP][cell], marks[MARK_CLOCK][cell]
                put = functools.partial(self._mark, marks, cell, own, mine)
                with r.when(theirs.eq(NOBODY)):
                    put(lane)
                    r.skip(done)
                with r.when(theirs.eq(mine)):
                    put(self._with_before(marks, cell, own, lane, clock))
                    r.skip(done)
                with r.when(self._knows(own, theirs, clock)):
                    put(lane)
                    r.skip(done)
                if number:
                    with r.when(self.is_exact):
                        r.leave(FINDS)
                    first = self.reads[0][WARP][cell] // self.per_block
                    with r.when(first.eq(theirs // self.per_block)), r.when(first.ne(mine // self.per_block)):
                        put(lane)

    def _with_before(
        self, marks: dict[int, Elements], cell: Value, own: Value, lane: Value, clock: Value
    ) -> Value:
        """This lane, or several where another lane of the warp was there and nothing orders the two."""
        r = self.r
        found = r.variable(lane)
        with r.when(self.is_apart), r.when(marks[MARK_LANE][cell].ne(lane)):
            with r.when(clock.gt(self.met[own])):
                found.set(SEVERAL)
        return found.get()

    def _mark(self, marks: dict[int, Elements], cell: Value, own: Value, mine: Value, lane: Value) -> None:
        marks[WARP][cell], marks[MARK_CLOCK][cell] = mine, self.clock[own]
        marks[MARK_SITE][cell], marks[MARK_LANE][cell] = self.site, lane
        marks[MARK_LEVEL][cell] = self.level

    # -- stores

    def _store(self) -> None:
        r = self.r
        with self._each() as (number, cell, own):
            lane = self.first_lanes[number]
            with r.when(self.level.ne(PLAIN)):
                self._leave_atomics(cell)
            for marks in (self.stores, *self.reads):
                self._against(marks, cell, own, lane)
            with r.when(self.is_exact), r.when(self.more_reads[cell].ne(0)):
                r.leave(FINDS)
            self._against_changes(cell, own, lane)
            self._at_once(cell, own)
        record = self._of_pool(RECORD, "i32")
        with self._each() as (number, cell, own):
            for reads in self.reads:
                reads[WARP][cell] = NOBODY
            with r.when(self.has_changes), r.when(self.level.eq(PLAIN)):
                record[cell] = 0
            self._mark(self.stores, cell, own, own + self.first, self.first_lanes[number])
            self.is_stored[cell >> self.page_shift] = 1

    def _at_once(self, cell: Value, own: Value) -> None:
        """Leave it to NumPy where several threads write one place."""
        r = self.r
        before = self.scratch[cell] - self.stamp
        with r.when(before.ge(0)):
            with r.when(before.ne(own)):
                r.leave(FINDS)
            with r.when(self.is_apart):
                r.leave(FINDS)
        self.scratch[cell] = self.stamp + own


def _one(r: Routine) -> Value:
    return Value(r, "1")
