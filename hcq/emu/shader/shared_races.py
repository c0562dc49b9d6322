"""Races in shared memory: two accesses of different warps to one byte, one of them a write, that nothing orders.

In       accesses of a launch's warps to the shared memory of their blocks, and the barriers that they meet at
Out      a fault in Checks for each pair of instructions: the first race, and how often it came again
Changes  itself; no register, no memory
Next     order.py (what comes before what), global_races.py, checks.py (what was found),
         ../amd/shader/race_steps.py and ../nv/shader/race_steps.py (who tell)
Source   C. Flanagan, S. Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009 (vector clocks);
         HSA Platform System Architecture, "Memory consistency model"; PTX ISA, "Memory Consistency Model"

A byte remembers who wrote it last and who has read it, and when by their clocks. An access races with those that its
warp does not come after (order.py). All that happened is looked at, so what is found is exact for this execution, and
another execution may have others.

Where threads of one warp are apart (PTX), two of them race, too, and so do several that store to one place by one
instruction. Where an instruction set keeps the order of a block's accesses to shared memory (AMD), every atomic
operation there releases and acquires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hcq.emu.shader.checks import Checks
from hcq.emu.shader.order import BLOCK, Order
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


class SharedRaces:
    """What is known of the shared memory of the blocks that run together.

    order     of their warps, of which each block has the same number
    shared_bytes   of a block
    name_of   (warp, lane) -> who that is, in words. Warps are numbered block by block
    text_of   (place of an instruction) -> the instruction, in words
    checks    where races go; it is kept from one set of blocks to the next
    """

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
        self.is_atomic = np.zeros(cells, bool)
        self.read_clock = np.zeros((cells, warps_per_block), np.int32)
        self.read_site = np.zeros((cells, warps_per_block), np.int32)
        self.read_lane = np.zeros((cells, warps_per_block), np.int8)
        self.released: Array | None = (
            None  # (cell, clock): what atomic operations have made known, without fences
        )
        self.record = np.zeros(cells, np.int32)  # the same, where it takes fences (order.py)
        self._sites: dict[_Access, int] = {}
        self._names: list[_Access] = []

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
    ) -> None:
        """An instruction of these lanes: "load", "store", or "atomic", which is both.

        addresses  in the shared memory of each lane's block; what is outside of it is left to others
        is_atomic  a load or a store that others may make at the same time, as polling does
        level      how far an atomic operation reaches: see order.py
        """
        addresses = addresses.astype(np.int64)
        inside = addresses + size_bytes <= self.shared_bytes
        if not inside.all():
            warps, lanes, addresses = warps[inside], lanes[inside], addresses[inside]
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
        atomic = is_atomic or kind == "atomic"
        clocks = self.order.clock[warps]
        if atomic:
            self._operate(kind, cells, warps, own, level)
        elif kind != "load":
            self.record[cells] = 0
        self._look_at_writes(site, atomic, cells, warps, own, lanes)
        if kind != "load":
            self._look_at_reads(site, cells, warps, own, lanes)
            if not atomic:
                self._look_at_each_other(site, cells, warps, lanes)
            self.writer[cells], self.write_clock[cells] = own, clocks
            self.write_site[cells], self.write_lane[cells], self.is_atomic[cells] = site, lanes, atomic
        elif not atomic:
            if self.order.lanes_are_apart:
                lanes = self._readers(cells, warps, own, lanes)
            self.read_clock[cells, own], self.read_site[cells, own] = clocks, site
            self.read_lane[cells, own] = lanes

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

    def _readers(self, cells: Array, warps: Array, own: Array, lanes: Array) -> Array:
        """Lanes that read now; SEVERAL where another lane of the warp has, too, and nothing has ordered the two."""
        key = cells * self.warps + own
        ranked = np.argsort(key, kind="stable")
        again = np.flatnonzero(key[ranked][1:] == key[ranked][:-1])
        found: Array = lanes.copy()
        found[ranked[again]] = found[ranked[again + 1]] = SEVERAL
        before = self.read_lane[cells, own]
        late = (before != lanes) & (self.read_clock[cells, own] > 0)
        which = np.flatnonzero(late)
        known = self.order.threads_know(
            warps[which], lanes[which], before[which], self.read_clock[cells[which], own[which]]
        )
        found[which[~known]] = SEVERAL
        return found

    # ------------------------------------------------------------ what is not ordered

    def _look_at_writes(
        self, site: int, atomic: bool, cells: Array, warps: Array, own: Array, lanes: Array
    ) -> None:
        writer = self.writer[cells]
        late = (writer != NOBODY) & (writer != own)
        if self.order.lanes_are_apart:
            which = np.flatnonzero((writer == own) & (self.write_lane[cells] != lanes))
            if atomic:
                which = which[~self.is_atomic[cells[which]]]
            at = cells[which]
            theirs = self.write_clock[at], self.write_lane[at], self.write_site[at]
            self._look_at_threads(site, at, warps[which], lanes[which], *theirs)
        if not late.any():
            return
        column = writer + self.is_atomic[cells] * self.warps
        late &= self.write_clock[cells] > self.order.known[warps, column]
        if atomic:
            late &= ~self.is_atomic[cells]
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

    def _look_at_reads(self, site: int, cells: Array, warps: Array, own: Array, lanes: Array) -> None:
        reads = self.read_clock[cells]
        late = reads > self.order.known[warps, : self.warps]
        rows = np.arange(len(own))
        if self.order.lanes_are_apart:
            which = np.flatnonzero(reads[rows, own] * (self.read_lane[cells, own] != lanes))
            there, warp = cells[which], own[which]
            theirs = self.read_clock[there, warp], self.read_lane[there, warp], self.read_site[there, warp]
            self._look_at_threads(site, there, warps[which], lanes[which], *theirs)
        late[rows, own] = False
        if not late.any():
            return
        rows, readers = np.nonzero(late)
        sites = self.read_site[cells[rows], readers]
        for other in np.unique(sites).tolist():
            which = np.flatnonzero(sites == other)
            at, reader = int(rows[which[0]]), int(readers[which[0]])
            base = int(warps[at]) // self.warps * self.warps
            them = base + reader, max(int(self.read_lane[cells[at], reader]), 0)
            self._tell(other, them, site, (int(warps[at]), int(lanes[at])), int(cells[at]), len(which))

    def _look_at_each_other(self, site: int, cells: Array, warps: Array, lanes: Array) -> None:
        """Threads that store to one place by the same instruction, which here run side by side."""
        ranked = np.argsort(cells, kind="stable")
        one, other = ranked[:-1], ranked[1:]
        same = cells[one] == cells[other]
        if not same.any():
            return
        apart = warps[one] != warps[other]
        rules = {"shared-race": same & apart}
        if self.order.lanes_are_apart:
            rules["lane-race"] = same & ~apart & (lanes[one] != lanes[other])
        for rule, which in rules.items():
            if which.any():
                at = int(np.argmax(which))
                sides = [(int(warps[x]), int(lanes[x])) for x in (one[at], other[at])]
                times = int(np.count_nonzero(which))
                self._tell(site, sides[0], site, sides[1], int(cells[one[at]]), times, rule)

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
            place = cell % self.stride * self.unit
            return KernelFault(rule, "a race on", "shared", place, tuple(sites), MISSING[rule])

        self.checks.add((rule, sides[0][0], sides[1][0]), times, fault)

    def _remember_bytes(self) -> None:
        """From now on a byte is a cell: somebody touches less than a word."""
        self.unit, self.stride = 1, self.stride * WORD_BYTES
        for name in ("writer", "write_clock", "write_site", "write_lane", "is_atomic", "record"):
            setattr(self, name, np.repeat(getattr(self, name), WORD_BYTES))
        for name in ("read_clock", "read_site", "read_lane", "released"):
            rows = getattr(self, name)
            if rows is not None:
                setattr(self, name, np.repeat(rows, WORD_BYTES, axis=0))
