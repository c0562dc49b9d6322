"""Races in global memory within a launch: accesses of different warps, one of them a write, that nothing orders.

In       accesses of a launch's warps to global memory, in the order that they happen
Out      a fault in Checks for each pair of instructions: the first race, and how often it came again
Changes  itself; no register, no memory
Next     native_global_races.py (the same as machine code, for accesses that do not race), order.py (what comes before
         what), marks.py and spilled.py (what is remembered), shared_races.py (the same for shared memory), checks.py
         (what was found)

A cell remembers its last plain write, its last atomic one, and readers. Where barriers of whole blocks alone order
warps, two readers that nothing orders are kept, of different blocks where there are such: a write that does not come
after some reader does not come after one of these, as long as no warp ends before such a barrier. Elsewhere all are
kept, and all atomic operations. Two atomic operations race where either one's scope does not reach the other's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.shader import native_global_races
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.marks import NOBODY, PAGE, Array, Marks, Pool, Shadow, unit_of
from hcq.emu.shader.native_global_races import NativeGlobalRaces
from hcq.emu.shader.order import BLOCK, DEVICE, PLAIN, Order, Records
from hcq.emu.shader.spilled import ANY_LEVEL, Left, Spilled
from hcq.emu.shader.stored import Stored, at_once
from hcq.events import kernel_touches
from hcq.events.kernel_faults import KernelFault, Site

READERS = 2
SEVERAL = -1  # lanes of one warp
UNMARKED = 3  # a store that may be a plain or an atomic one: some instruction sets do not tell
MOST_SITES = 1 << 16
VERBS = {"load": "reads it", "store": "writes it", "atomic": "changes it"}
NO_ORDER = "with nothing between that orders them"
ONE_ATOMIC = f"{NO_ORDER}, and only one of them is atomic"
NO_WARP_ORDER = "with no bar.warp.sync between"
TOO_NARROW = "with a scope that does not reach the other"


class _Site(NamedTuple):
    place: int
    kind: str


class _Access(NamedTuple):
    """An access that is being looked at, cell by cell. warps: numbered in the launch; level: how far it reaches.

    values, stay   of a store whose equal values are no race: of each cell, and whether it has that already
    """

    pool: Pool
    site: int
    level: int
    cells: Array
    warps: Array
    lanes: Array
    clocks: Array
    values: Array | None = None
    stay: Array | None = None

    def some(self, which: Array) -> _Access:
        return self._replace(
            cells=self.cells[which],
            warps=self.warps[which],
            lanes=self.lanes[which],
            clocks=self.clocks[which],
            values=None if self.values is None else self.values[which],
            stay=None if self.stay is None else self.stay[which],
        )


class GlobalRaces:
    """What is known of global memory in one launch.

    warps, warps_per_block   of the launch
    name_of   (warp of the launch, lane) -> who that is, in words
    text_of   (place of an instruction) -> the instruction, in words
    is_exact  whether all readers are kept: something may order some warps of a block, or of the launch, and not all
    """

    def __init__(
        self,
        warps: int,
        warps_per_block: int,
        name_of: Callable[[int, int], str],
        text_of: Callable[[int], str],
        checks: Checks,
        is_exact: bool = True,
    ) -> None:
        self.warps_per_block = warps_per_block
        self.name_of, self.text_of, self.checks = name_of, text_of, checks
        self.no_warp_order = NO_WARP_ORDER  # what is missing between threads of one warp
        self.is_exact = is_exact
        self.shadow = Shadow(READERS, is_exact)
        is_native = native_global_races.is_wanted()
        self.native = NativeGlobalRaces(self.shadow, warps_per_block, is_exact) if is_native else None
        self.records = Records(warps, warps_per_block)
        if kernel_touches.is_wanted():
            checks.at_end.append(self._tell_touches)
        self._sites: dict[_Site, int] = {}
        self._names: list[_Site] = []

    def access(
        self,
        order: Order,
        kind: str,
        warps: Array,
        lanes: Array,
        addresses: Array,
        size_bytes: int,
        place: int,
        level: int = PLAIN,
        stored: Stored | None = None,
    ) -> None:
        """An instruction of these lanes: "load", "store", or "atomic", which is both.

        order  of the warps that run together, of which `warps` are numbers
        level  how far an atomic operation reaches, and whether a load or a store is one
        stored  of a store, where equal values are no race
        """
        if not len(warps):
            return
        site, addresses = self._site(place, kind), addresses.astype(np.uint64, copy=False)
        if self.native is not None and stored is None and kind != "atomic":
            if self.native.access(order, kind, warps, lanes, addresses, size_bytes, site, level):
                return
        crosses = (addresses & np.uint64(PAGE - 1)) + np.uint64(size_bytes) > PAGE
        if crosses.any():
            self._access_across(
                order, kind, warps, lanes, addresses, size_bytes, place, level, stored, crosses
            )
            return
        for pool, which, first in self.shadow.locate(addresses, size_bytes):
            own, threads = (warps, lanes) if which is None else (warps[which], lanes[which])
            count = size_bytes // pool.unit
            cells = first
            if count > 1:
                cells = (first[:, None] + np.arange(count)).reshape(-1)
                own, threads = np.repeat(own, count), np.repeat(threads, count)
            values, stay = None, None
            if stored is not None:
                values, stay = (stored if which is None else stored.some(which)).cells(pool.unit)
            made = _Access(
                pool, site, level, cells, own + order.first, threads, order.clock[own], values, stay
            )
            self._look(order, kind, _within(made))

    # ------------------------------------------------------------ inside

    def _access_across(
        self,
        order: Order,
        kind: str,
        warps: Array,
        lanes: Array,
        addresses: Array,
        size_bytes: int,
        place: int,
        level: int,
        stored: Stored | None,
        crosses: Array,
    ) -> None:
        """An access of which some lanes' bytes lie in two pages: the cells of these are looked at one by one."""
        whole = ~crosses
        rest = None if stored is None else stored.some(whole)
        some = addresses[whole]
        self.access(order, kind, warps[whole], lanes[whole], some, size_bytes, place, level, rest)
        warps, lanes, addresses = warps[crosses], lanes[crosses], addresses[crosses]
        unit = unit_of(addresses, size_bytes)
        for at in range(0, size_bytes, unit):
            part = None if stored is None else stored.some(crosses).bytes(at, unit)
            self.access(order, kind, warps, lanes, addresses + np.uint64(at), unit, place, level, part)

    def _look(self, order: Order, kind: str, made: _Access) -> None:
        pool, level = made.pool, made.level
        if level == UNMARKED:
            sure = _are_for_atomics(pool, made.cells)
            if sure.any():
                self._look(order, kind, made.some(sure)._replace(level=DEVICE))
                made = made.some(~sure)
                if not len(made.cells):
                    return
        is_atomic = level in (BLOCK, DEVICE)
        if is_atomic or (kind != "load" and (level or pool.changes)):
            self._operate(order, kind, made)
        if kind != "load" or pool.is_stored[made.cells // pool.cells_of_page].any():
            self._against(order, made, pool.stores)
        for changes in pool.changes:
            self._against(order, made, changes, True)
        self._against_spilled(order, made, pool.more_changes, True)
        if kind == "load":
            self._remember(order, made, pool.reads, pool.more_reads)
            return
        for reads in pool.reads:
            self._against(order, made, reads)
        self._against_spilled(order, made, pool.more_reads)
        if level != DEVICE:
            self._at_once(order, made)
        if is_atomic:
            self._remember(order, made, pool.begin_atomics(), pool.more_changes)
            return
        for reads in pool.reads:
            reads.warp[made.cells] = NOBODY
        if self.is_exact:
            pool.more_reads.forget(made.cells)
        pool.stores.put(made.cells, made.warps, made.clocks, made.site, made.lanes, level)
        pool.is_stored[made.cells // pool.cells_of_page] = True

    def _operate(self, order: Order, kind: str, made: _Access) -> None:
        """What atomic operations order. A store that is none leaves nothing to read."""
        pool = made.pool
        if made.level == PLAIN:
            pool.record[made.cells] = 0
        elif order.syncs:
            pool.begin_atomics()
            level = min(made.level, DEVICE)
            local, found = made.warps - order.first, pool.record[made.cells]
            new = order.operate(found, local, level, kind != "store", kind != "load", made.cells)
            if new is not None:
                pool.record[made.cells] = new

    def _against(self, order: Order, made: _Access, marks: Marks, are_atomic: bool = False) -> None:
        """Look for races with those who left these marks."""
        theirs = marks.warp[made.cells]
        there = np.flatnonzero(theirs != NOBODY)
        if not len(there):
            return
        if len(there) < len(theirs):
            made = made.some(there)
        if made.stay is not None and marks is made.pool.stores:
            made = made.some(~made.stay)
        self._compare(order, made, marks.at(made.cells), are_atomic)

    def _against_spilled(self, order: Order, made: _Access, more: Spilled, are_atomic: bool = False) -> None:
        """The same with those whom the marks had no room for."""
        if more.lowest == ANY_LEVEL or (made.level == DEVICE and more.lowest >= DEVICE):
            return
        which, left = more.of(made.cells)
        if len(which):
            self._compare(order, made.some(which), left, are_atomic)

    def _compare(self, order: Order, made: _Access, left: Left, are_atomic: bool) -> None:
        """Look for races of each access with the one beside it that was made before."""
        theirs, clocks, levels = left.warp, left.clock, left.level
        is_mine = theirs == made.warps
        late, why = ~is_mine, NO_ORDER
        if made.level:
            near = made.warps // self.warps_per_block == theirs // self.warps_per_block
            late &= ~_at_one_time(made.level, levels, near)
            is_mine &= ~_at_one_time(made.level, levels, is_mine)
            why = TOO_NARROW if are_atomic and made.level != UNMARKED else NO_ORDER
        which = np.flatnonzero(late)
        if len(which):
            local = made.warps[which] - order.first
            atomic: Array | bool = are_atomic
            if (levels[which] == UNMARKED).any():
                atomic = (levels[which] == UNMARKED) & _are_for_atomics(made.pool, made.cells[which])
            which = which[~order.knows(local, theirs[which], clocks[which], atomic)]
            if len(which):
                self._found("global-race", made, left, which, why)
        if not order.lanes_are_apart:
            return
        which = np.flatnonzero(is_mine & (left.lane != made.lanes))
        if len(which):
            local = made.warps[which] - order.first
            known = order.threads_know(local, made.lanes[which], left.lane[which], clocks[which])
            which = which[~known]
            if len(which):
                self._found("lane-race", made, left, which, self.no_warp_order)

    def _remember(self, order: Order, made: _Access, slots: list[Marks], more: Spilled) -> None:
        """Readers, or atomic operations: each in the place of one that it comes after, else beside it; without room
        for it among the others of its kind, or in the place of one of a block that another mark has, too."""
        if self.is_exact:
            turns, rest = self._first_turns(made, order.lanes_are_apart)
        else:
            turns, rest = self._turns(made, order.lanes_are_apart), None
        for some in turns:
            rest_of_turn = self._put(order, some, slots)
            for one in (rest_of_turn, rest if some is turns[-1] else None):
                if one is not None and self.is_exact:
                    more.put(one.cells, one.warps, one.clocks, one.site, one.lanes, one.level)

    def _put(self, order: Order, left: _Access, slots: list[Marks]) -> _Access | None:
        """Returns those that have no room."""
        for number, marks in enumerate(slots):
            theirs, clocks = marks.warp[left.cells], marks.clock[left.cells]
            same, none = theirs == left.warps, theirs == NOBODY
            free = same | none
            other = np.flatnonzero(~free)
            if len(other):
                local = left.warps[other] - order.first
                free[other] = order.knows(local, theirs[other], clocks[other], slots is left.pool.changes)
                if number and not self.is_exact:
                    home = left.warps[other] // self.warps_per_block
                    first = slots[0].warp[left.cells[other]] // self.warps_per_block
                    free[other] |= (home != first) & (first == theirs[other] // self.warps_per_block)
            if left.level:  # one that reaches less may race with more
                free &= none | (marks.level[left.cells] >= left.level)
            which = np.flatnonzero(free)
            if len(which):
                put = left.some(which) if len(which) < len(free) else left
                lanes = put.lanes
                if order.lanes_are_apart:
                    old = marks.lane[put.cells]
                    again = same[which] & (old != lanes)
                    local = put.warps - order.first
                    again &= ~order.threads_know(local, np.maximum(lanes, 0), old, clocks[which])
                    lanes = np.where(again, SEVERAL, lanes)
                marks.put(put.cells, put.warps, put.clocks, put.site, lanes, left.level)
            if len(which) == len(free):
                return None
            left = left.some(np.flatnonzero(~free))
        return left

    def _turns(self, made: _Access, lanes_are_apart: bool) -> list[_Access]:
        """Accesses by one instruction, in parts that have no cell twice: the outermost of each cell."""
        first, last = _ends(made)
        if first is None or last is None:
            return [made]
        number = np.arange(len(first))
        parts = []
        for one, other in ((first, None), (last, first)):
            is_one = one == number
            if other is not None:
                is_one &= made.warps != made.warps[other]
            which = np.flatnonzero(is_one)
            if not len(which):
                continue
            part = made.some(which)
            if lanes_are_apart:
                again = made.cells[(one != number) & (made.warps == made.warps[one])]
                scratch = made.pool.scratch
                scratch[part.cells] = 0
                scratch[again] = 1
                part = part._replace(lanes=np.where(scratch[part.cells] == 1, SEVERAL, part.lanes))
            parts.append(part)
        return parts

    def _first_turns(self, made: _Access, lanes_are_apart: bool) -> tuple[list[_Access], _Access | None]:
        """The same with each warp of each cell: two parts that have no cell twice, and all others."""
        if _ends(made)[0] is None:
            return [made], None
        key = made.cells * (1 << 32) + made.warps
        ranked = np.argsort(key, kind="stable")
        key = key[ranked]
        starts = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        counts = np.diff(np.append(starts, len(key)))
        one = made.some(ranked[starts])
        if lanes_are_apart:
            one = one._replace(lanes=np.where(counts > 1, SEVERAL, one.lanes))
        begins = np.flatnonzero(np.append(True, one.cells[1:] != one.cells[:-1]))
        turn = np.arange(len(one.cells)) - np.repeat(begins, np.diff(np.append(begins, len(one.cells))))
        parts = [one.some(which) for which in (turn == 0, turn == 1, turn > 1) if which.any()]
        return parts[:READERS], parts[READERS] if len(parts) > READERS else None

    def _at_once(self, order: Order, made: _Access) -> None:
        """Threads that write one place by the same instruction, which here run side by side."""
        cells = made.cells
        if _ends(made)[0] is None:
            return
        warps, lanes = made.warps, made.lanes
        (one, other), (near, beside) = at_once(cells, warps, made.values)
        pairs = [("global-race", one, other, NO_ORDER)]
        if made.level == BLOCK:
            apart = warps[one] // self.warps_per_block != warps[other] // self.warps_per_block
            pairs = [("global-race", one[apart], other[apart], TOO_NARROW)]
        elif order.lanes_are_apart:
            which = lanes[near] != lanes[beside]
            pairs.append(("lane-race", near[which], beside[which], self.no_warp_order))
        for rule, firsts, seconds, why in pairs:
            if len(firsts):
                first, second = int(firsts[0]), int(seconds[0])
                self._tell(
                    rule,
                    (made.site, int(warps[first]), int(lanes[first])),
                    (made.site, int(warps[second]), int(lanes[second])),
                    made.pool.address(int(cells[first])),
                    len(firsts),
                    why,
                )

    def _tell_touches(self) -> None:
        places = np.array([one.place for one in self._names] or [0], np.int64)
        low, high, is_write, site = self.shadow.touched()
        touches = kernel_touches.Touches(
            low.tolist(), high.tolist(), is_write.tolist(), places[site].tolist(), self.text_of
        )
        kernel_touches.tell(self.checks.pid, self.checks.entry, touches)

    # ------------------------------------------------------------ words

    def _found(self, rule: str, made: _Access, left: Left, which: Array, why: str) -> None:
        sites = left.site[which]
        for other in np.unique(sites).tolist():
            some = which[sites == other]
            at, cell = int(some[0]), int(made.cells[some[0]])
            level = int(left.level[at])
            is_mixed = UNMARKED not in (level, made.level) and (level == PLAIN) != (made.level == PLAIN)
            self._tell(
                rule,
                (other, int(left.warp[at]), int(left.lane[at])),
                (made.site, int(made.warps[at]), int(made.lanes[at])),
                made.pool.address(cell),
                len(some),
                ONE_ATOMIC if is_mixed and why == NO_ORDER else why,
            )

    def _site(self, place: int, kind: str) -> int:
        site = _Site(place, kind)
        number = self._sites.get(site)
        if number is None:
            number = self._sites[site] = min(len(self._names), MOST_SITES - 1)
            self._names.append(site)
        return number

    def _tell(
        self,
        rule: str,
        first: tuple[int, int, int],
        second: tuple[int, int, int],
        address: int,
        times: int,
        why: str,
    ) -> None:
        sides = [(self._names[site], warp, lane) for site, warp, lane in (first, second)]

        def fault() -> KernelFault:
            sites = (
                Site(VERBS[one.kind], self.text_of(one.place), one.place, self.name_of(warp, max(lane, 0)))
                for one, warp, lane in sides
            )
            return KernelFault(rule, "a race on", "global", address, tuple(sites), why)

        self.checks.add((rule, sides[0][0], sides[1][0]), times, fault)


def _ends(made: _Access) -> tuple[Array | None, Array | None]:
    """For each access the first and the last that is at the same cell, by their numbers; None where no two are."""
    cells, scratch = made.cells, made.pool.scratch
    if len(cells) < 2 or (cells[1:] > cells[:-1]).all():
        return None, None
    number = np.arange(len(cells), dtype=np.int32)
    scratch[cells] = number
    last = scratch[cells]
    if (last == number).all():
        return None, None
    scratch[cells[::-1]] = number[::-1]
    return scratch[cells], last


def _are_for_atomics(pool: Pool, cells: Array) -> Array:
    """Whether places have seen an access that surely is atomic: a store there that may be one is one."""
    found = np.zeros(len(cells), bool)
    for marks in (pool.reads[0], *pool.changes[:1]):
        found |= (marks.warp[cells] != NOBODY) & (marks.level[cells] != PLAIN)
    return found


def _at_one_time(level: int, levels: Array, near: Array) -> Array:
    """Whether accesses that reach so far may happen at one time: both are atomic operations, each reaching the other.

    A store that may be a plain or an atomic one is one here, beside what surely is one. near: they are of one block.
    """
    if level == UNMARKED:
        found: Array = (levels == DEVICE) | (near & (levels == BLOCK))
        return found
    both: Array = (levels != PLAIN) & (near | ((levels >= DEVICE) & (level == DEVICE)))
    return both


def _within(made: _Access) -> _Access:
    """Without what lies beyond the pages that are remembered: the end of an access across the last one."""
    end = len(made.pool.pages) * made.pool.cells_of_page
    return made if int(made.cells.max()) < end else made.some(made.cells < end)
