"""Races in shared memory: two accesses of different warps to one byte, one of them a write, that nothing orders.

In       accesses of a launch's warps to the shared memory of their blocks, and the barriers that they meet at
Out      a fault in Checks for each pair of instructions: the first race, and how often it came again
Changes  itself; no register, no memory
Next     native_shared_races.py (the same as machine code, for accesses that do not race), order.py (what comes before
         what), global_races.py, checks.py (what was found), ../amd/shader/race_steps.py and
         ../nv/shader/race_steps.py (who tell)
Source   C. Flanagan, S. Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009 (vector clocks);
         HSA Platform System Architecture, "Memory consistency model"; PTX ISA, "Memory Consistency Model"

A byte remembers who wrote it last, who has read it and who has changed it atomically, and when by their clocks. An
access races with those that its warp does not come after (order.py). All that happened is looked at, so what is found
is exact for this execution, and another execution may have others.

Where threads of one warp are apart (PTX), two of them race, too, and so do several that store to one place by one
instruction. Where an instruction set keeps the order of a block's accesses to shared memory (AMD), every atomic
operation there releases and acquires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hcq.emu.shader.checks import Checks
from hcq.emu.shader.native_global_races import is_wanted
from hcq.emu.shader.native_shared_races import NativeSharedRaces
from hcq.emu.shader.order import BLOCK, Order
from hcq.emu.shader.stored import Stored, at_once
from hcq.events.kernel_faults import KernelFault, Site

Array = np.ndarray[Any, Any]

WORD_BYTES = 4
MOST_CELLS = 1 << 23  # of all resident blocks together, times the warps of a block: 13 bytes each
NOBODY = -1
SEVERAL = -1  # lanes of one warp
MISSING = {"shared-race": "with no barrier between", "lane-race": "with no bar.warp.sync between"}
VERBS = {"load": "reads it", "store": "writes it", "atomic": "changes it"}


class _Access(NamedTuple):
    place: int
    kind: str


def blocks_at_once(shared_bytes: int, warps_per_block: int) -> int:
    """How many blocks may run together so that what is remembered of their memory stays bounded. At least one."""
    return max(1, MOST_CELLS // max(1, -(-shared_bytes // WORD_BYTES) * warps_per_block))


class _Marks:
    """For each cell and each warp of its block: when it was there last, by which site, which lane."""

    def __init__(self, cells: int, warps: int) -> None:
        self.clock = np.zeros((cells, warps), np.int32)
        self.site = np.zeros((cells, warps), np.int32)
        self.lane = np.zeros((cells, warps), np.int8)

    def split(self, times: int) -> None:
        """Each cell becomes several."""
        for name in ("clock", "site", "lane"):
            setattr(self, name, np.repeat(getattr(self, name), times, axis=0))


class SharedRaces:
    """What is known of the shared memory of the blocks that run together.

    missing   what would order two accesses, by the rule
    order     of their warps, of which each block has the same number
    shared_bytes   of a block
    name_of   (warp, lane) -> who that is, in words. Warps are numbered block by block
    text_of   (place of an instruction) -> the instruction, in words
    checks    where races go; it is kept from one set of blocks to the next
    """

    missing: ClassVar[dict[str, str]] = MISSING

    def __init__(
        self,
        order: Order,
        shared_bytes: int,
        name_of: Callable[[int, int], str],
        text_of: Callable[[int], str],
        checks: Checks,
    ) -> None:
        self.name_of, self.text_of, self.checks = name_of, text_of, checks
        self.order, self.warps = order, order.warps
        warps_per_block, warps = order.warps, len(order.clock)
        self.shared_bytes = shared_bytes
        self.unit = WORD_BYTES  # bytes of a cell, which is remembered as one
        self.stride = -(-shared_bytes // WORD_BYTES)  # cells of a block
        cells = warps // warps_per_block * self.stride
        self.writer = np.full(cells, NOBODY, np.int16)  # a warp's place in its block
        self.write_clock = np.zeros(cells, np.int32)
        self.write_site = np.zeros(cells, np.int32)
        self.write_lane = np.zeros(cells, np.int8)
        self.reads = _Marks(cells, warps_per_block)
        self.changes: _Marks | None = None  # atomic operations that write, once there are some
        self.released: Array | None = (
            None  # (cell, clock): what atomic operations have made known, without fences
        )
        self.record = np.zeros(cells, np.int32)  # the same, where it takes fences (order.py)
        self._sites: dict[_Access, int] = {}
        self._names: list[_Access] = []
        self.native = NativeSharedRaces(self) if is_wanted() else None

    # ------------------------------------------------------------ what happens

    def access(
        self,
        kind: str,
        warps: Array,
        lanes: Array,
        addresses: Array,
        size_bytes: int,
        place: int,
        is_atomic: bool = False,
        level: int = BLOCK,
        stored: Stored | None = None,
    ) -> None:
        """An instruction of these lanes: "load", "store", or "atomic", which is both.

        addresses  in the shared memory of each lane's block; what is outside of it is left to others
        is_atomic  a load or a store that others may make at the same time, as polling does
        level      how far an atomic operation reaches: see order.py
        stored     of a store, where equal values are no race
        """
        addresses = addresses.astype(np.int64)
        atomic = is_atomic or kind == "atomic"
        if self.native is not None and stored is None and not atomic and len(warps):
            site = self._sites.get(_Access(place, kind), len(self._names))
            if self.native.access(kind, warps, lanes, addresses, size_bytes, site):
                self._site(place, kind)
                return
        inside = addresses + size_bytes <= self.shared_bytes
        if not inside.all():
            warps, lanes, addresses = warps[inside], lanes[inside], addresses[inside]
            stored = None if stored is None else stored.some(inside)
        if not len(warps):
            return
        if self.unit == WORD_BYTES and (size_bytes % WORD_BYTES or (addresses % WORD_BYTES).any()):
            self._remember_bytes()
        count = size_bytes // self.unit
        first = warps // self.warps * self.stride + addresses // self.unit
        cells, own = first, warps % self.warps
        if count > 1:
            cells = (first[:, None] + np.arange(count)).reshape(-1)
            warps, lanes, own = (np.repeat(one, count) for one in (warps, lanes, own))
        site = self._site(place, kind)
        clocks = self.order.clock[warps]
        if atomic:
            self._operate(kind, cells, warps, own, level)
        elif kind != "load":
            self.record[cells] = 0
        values, stay = (None, None) if stored is None else stored.cells(self.unit)
        self._look_at_writes(site, cells, warps, own, lanes, stay)
        if not atomic and self.changes is not None:
            self._look_at_marks(self.changes, self.warps, site, cells, warps, own, lanes)
        if kind != "load":
            self._look_at_marks(self.reads, 0, site, cells, warps, own, lanes)
        if kind != "load" and not atomic:
            self._look_at_each_other(site, cells, warps, lanes, values)
            self.writer[cells], self.write_clock[cells] = own, clocks
            self.write_site[cells], self.write_lane[cells] = site, lanes
        elif kind != "load":
            if self.changes is None:
                self.changes = _Marks(len(self.writer), self.warps)
            self._put(self.changes, site, cells, warps, own, lanes, clocks)
        elif not atomic:
            self._put(self.reads, site, cells, warps, own, lanes, clocks)

    def _operate(self, kind: str, cells: Array, warps: Array, own: Array, level: int) -> None:
        """What atomic operations order."""
        order = self.order
        if order.needs_fences:
            found = self.record[cells]
            new = order.operate(found, warps, level, kind != "store", kind != "load", cells)
            if new is not None:
                self.record[cells] = new
            return
        if self.released is not None:  # who reads what another's operation wrote knows what that one knew
            np.maximum.at(order.known, warps, self.released[cells])
        if kind != "load":
            if self.released is None:
                self.released = np.zeros((len(self.writer), order.columns), np.int32)
            mine = order.known[warps]
            mine[np.arange(len(own)), own] = mine[np.arange(len(own)), own + self.warps] = order.clock[warps]
            np.maximum.at(self.released, cells, mine)
            order.clock[warps] += 1

    def _put(
        self, marks: _Marks, site: int, cells: Array, warps: Array, own: Array, lanes: Array, clocks: Array
    ) -> None:
        if self.order.lanes_are_apart:
            lanes = self._several(marks, cells, warps, own, lanes)
        marks.clock[cells, own], marks.site[cells, own] = clocks, site
        marks.lane[cells, own] = lanes

    def _several(self, marks: _Marks, cells: Array, warps: Array, own: Array, lanes: Array) -> Array:
        """Lanes that are there now; SEVERAL where another lane of the warp was, too, and nothing orders the two."""
        key = cells * self.warps + own
        ranked = np.argsort(key, kind="stable")
        again = np.flatnonzero(key[ranked][1:] == key[ranked][:-1])
        found: Array = lanes.copy()
        found[ranked[again]] = found[ranked[again + 1]] = SEVERAL
        before = marks.lane[cells, own]
        late = (before != lanes) & (marks.clock[cells, own] > 0)
        which = np.flatnonzero(late)
        known = self.order.threads_know(
            warps[which], lanes[which], before[which], marks.clock[cells[which], own[which]]
        )
        found[which[~known]] = SEVERAL
        return found

    def poll(self, warps: Array, lanes: Array, addresses: Array, size_bytes: int, place: int) -> None:
        """A load of these lanes waits for what another warp stores, where an instruction set has no word for that.

        Who finds a store comes after it, and after what its warp knows.
        """
        at = addresses.astype(np.int64)
        inside = at + size_bytes <= self.shared_bytes
        first = warps[inside] // self.warps * self.stride + at[inside] // self.unit
        writers = self.writer[first]
        for warp, writer, cell in {*zip(warps[inside].tolist(), writers.tolist(), first.tolist())}:
            if writer in (NOBODY, warp % self.warps):
                continue
            known, other = self.order.known[warp], warp // self.warps * self.warps + writer
            np.maximum(known, self.order.known[other], out=known)
            known[[writer, writer + self.warps]] = np.maximum(
                known[[writer, writer + self.warps]], self.write_clock[cell]
            )
            self.order.rows[warp] = -1
        self.access("load", warps, lanes, addresses, size_bytes, place, is_atomic=True)

    # ------------------------------------------------------------ what is not ordered

    def _look_at_writes(
        self, site: int, cells: Array, warps: Array, own: Array, lanes: Array, stay: Array | None = None
    ) -> None:
        writer = self.writer[cells]
        late = (writer != NOBODY) & (writer != own)
        mine = (writer == own) & (self.write_lane[cells] != lanes)
        if stay is not None:
            late, mine = late & ~stay, mine & ~stay
        if self.order.lanes_are_apart:
            which = np.flatnonzero(mine)
            at = cells[which]
            theirs = self.write_clock[at], self.write_lane[at], self.write_site[at]
            self._look_at_threads(site, at, warps[which], lanes[which], *theirs)
        if not late.any():
            return
        late &= self.write_clock[cells] > self.order.known[warps, writer]
        if late.any():
            sites = self.write_site[cells]
            for other in np.unique(sites[late]).tolist():
                which = np.flatnonzero(late & (sites == other))
                at = which[0]
                base = int(warps[at]) // self.warps * self.warps
                them = base + int(writer[at]), int(self.write_lane[cells[at]])
                self._tell(other, them, site, (int(warps[at]), int(lanes[at])), int(cells[at]), len(which))

    def _look_at_threads(
        self, site: int, cells: Array, warps: Array, lanes: Array, clocks: Array, others: Array, sites: Array
    ) -> None:
        """Accesses that other lanes of the same warps made, at these clocks and sites."""
        if not len(cells):
            return
        late = ~self.order.threads_know(warps, lanes, others, clocks)
        for other in np.unique(sites[late]).tolist():
            which = np.flatnonzero(late & (sites == other))
            at = int(which[0])
            warp = int(warps[at])
            them, us = (warp, max(int(others[at]), 0)), (warp, int(lanes[at]))
            self._tell(other, them, site, us, int(cells[at]), len(which), "lane-race")

    def _look_at_marks(
        self, marks: _Marks, column: int, site: int, cells: Array, warps: Array, own: Array, lanes: Array
    ) -> None:
        """Look for races with all that left these. column: where what is known of such accesses begins."""
        clocks = marks.clock[cells]
        late = clocks > self.order.known[warps, column : column + self.warps]
        rows = np.arange(len(own))
        if self.order.lanes_are_apart:
            which = np.flatnonzero(clocks[rows, own] * (marks.lane[cells, own] != lanes))
            there, warp = cells[which], own[which]
            theirs = marks.clock[there, warp], marks.lane[there, warp], marks.site[there, warp]
            self._look_at_threads(site, there, warps[which], lanes[which], *theirs)
        late[rows, own] = False
        if not late.any():
            return
        rows, readers = np.nonzero(late)
        sites = marks.site[cells[rows], readers]
        for other in np.unique(sites).tolist():
            which = np.flatnonzero(sites == other)
            at, reader = int(rows[which[0]]), int(readers[which[0]])
            base = int(warps[at]) // self.warps * self.warps
            them = base + reader, max(int(marks.lane[cells[at], reader]), 0)
            self._tell(other, them, site, (int(warps[at]), int(lanes[at])), int(cells[at]), len(which))

    def _look_at_each_other(
        self, site: int, cells: Array, warps: Array, lanes: Array, values: Array | None
    ) -> None:
        """Threads that store to one place by the same instruction, which here run side by side."""
        across, (near, beside) = at_once(cells, warps, values)
        rules = {"shared-race": across}
        if self.order.lanes_are_apart:
            which = lanes[near] != lanes[beside]
            rules["lane-race"] = near[which], beside[which]
        for rule, (firsts, seconds) in rules.items():
            if len(firsts):
                sides = [(int(warps[x]), int(lanes[x])) for x in (firsts[0], seconds[0])]
                self._tell(site, sides[0], site, sides[1], int(cells[firsts[0]]), len(firsts), rule)

    # ------------------------------------------------------------ words

    def _site(self, place: int, kind: str) -> int:
        site = _Access(place, kind)
        number = self._sites.get(site)
        if number is None:
            number = self._sites[site] = len(self._names)
            self._names.append(site)
        return number

    def _tell(
        self,
        first: int,
        one: tuple[int, int],
        second: int,
        other: tuple[int, int],
        cell: int,
        times: int,
        rule: str = "shared-race",
    ) -> None:
        sides = (self._names[first], one), (self._names[second], other)

        def fault() -> KernelFault:
            sites = (
                Site(VERBS[access.kind], self.text_of(access.place), access.place, self.name_of(*who))
                for access, who in sides
            )
            return KernelFault(rule, "a race on", *self.spot(cell), tuple(sites), self.missing[rule])

        self.checks.add((rule, sides[0][0], sides[1][0]), times, fault)

    def spot(self, cell: int) -> tuple[str, int]:
        """The space and the address of a cell, as a finding names them."""
        return "shared", cell % self.stride * self.unit

    def _remember_bytes(self) -> None:
        """From now on a byte is a cell: somebody touches less than a word."""
        self.unit, self.stride = 1, self.stride * WORD_BYTES
        for name in ("writer", "write_clock", "write_site", "write_lane", "record"):
            setattr(self, name, np.repeat(getattr(self, name), WORD_BYTES))
        if self.released is not None:
            self.released = np.repeat(self.released, WORD_BYTES, axis=0)
        for marks in (self.reads, self.changes):
            if marks is not None:
                marks.split(WORD_BYTES)
