"""Races in shared memory: two accesses of different warps to one byte, one of them a write, that nothing orders.

In       accesses of a launch's warps to the shared memory of their blocks, and the barriers that they meet at
Out      a fault in Checks for each pair of instructions: the first race, and how often it came again
Changes  itself; no register, no memory
Next     checks.py (what was found), ../amd/shader/race_steps.py and ../nv/shader/race_steps.py (who tell)
Source   C. Flanagan, S. Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009 (vector clocks);
         HSA Platform System Architecture, "Memory consistency model"; PTX ISA, "Memory Consistency Model"

Every warp has a clock, and knows the clock that each warp of its block had when something last ordered the two: a
barrier of the block, or an atomic operation that read what the other's wrote. A byte remembers who wrote it last and
who read it since, and at which clock. An access races with those of which its warp does not know. All that happened is
looked at, so what is found is exact for this execution, and another execution may have others.

Two limits. Atomic operations order what stands before one with what stands behind the other, whatever scope and fences
they have: a race that only a missing fence causes is not found. Lanes of one warp are taken as ordered by the order of
its instructions; stores of one instruction by several lanes to one place are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault, Site

Array = np.ndarray[Any, Any]

WORD_BYTES = 4
MOST_CELLS = 1 << 23  # of all resident blocks together, times the warps of a block: 13 bytes each
NOBODY = -1
VERBS = {"load": "reads it", "store": "writes it", "atomic": "changes it"}


class _Access(NamedTuple):
    place: int
    kind: str


def blocks_at_once(shared_bytes: int, warps_per_block: int) -> int:
    """How many blocks may run together so that what is remembered of their memory stays bounded. At least one."""
    return max(1, MOST_CELLS // max(1, -(-shared_bytes // WORD_BYTES) * warps_per_block))


class SharedRaces:
    """What is known of the shared memory of the blocks that run together.

    blocks, shared_bytes, warps_per_block   how many, and of each: its bytes, its warps
    name_of   (warp, lane) -> who that is, in words. Warps are numbered block by block
    text_of   (place of an instruction) -> the instruction, in words
    checks    where races go; it is kept from one set of blocks to the next
    """

    def __init__(
        self,
        blocks: int,
        shared_bytes: int,
        warps_per_block: int,
        name_of: Callable[[int, int], str],
        text_of: Callable[[int], str],
        checks: Checks,
    ) -> None:
        self.name_of, self.text_of, self.checks = name_of, text_of, checks
        self.warps = warps_per_block
        self.shared_bytes = shared_bytes
        self.unit = WORD_BYTES  # bytes of a cell, which is remembered as one
        self.stride = -(-shared_bytes // WORD_BYTES)  # cells of a block
        cells = blocks * self.stride
        self.clock = np.ones(blocks * warps_per_block, np.int32)
        self.known = np.zeros((blocks * warps_per_block, warps_per_block), np.int32)
        self.writer = np.full(cells, NOBODY, np.int16)  # a warp's place in its block
        self.write_clock = np.zeros(cells, np.int32)
        self.write_site = np.zeros(cells, np.int32)
        self.write_lane = np.zeros(cells, np.int8)
        self.is_atomic = np.zeros(cells, bool)
        self.read_clock = np.zeros((cells, warps_per_block), np.int32)
        self.read_site = np.zeros((cells, warps_per_block), np.int32)
        self.read_lane = np.zeros((cells, warps_per_block), np.int8)
        self.released: Array | None = None  # (cell, warp): what the atomic operations there have made known
        self._sites: dict[_Access, int] = {}
        self._names: list[_Access] = []

    # ------------------------------------------------------------ what happens

    def barrier(self, warps: Array) -> None:
        """These warps have met, each with those of its own block: what any of them did is known to all of them."""
        block, place = warps // self.warps, warps % self.warps
        if len(warps) % self.warps == 0 and (block == np.repeat(block[:: self.warps], self.warps)).all():
            clocks = self.clock[warps].reshape(-1, self.warps)  # all of each block, which is nearly always so
            known = np.repeat(clocks, self.warps, axis=0)
            self.known[warps] = known
            self.clock[warps] += 1
            return
        for number in np.unique(block).tolist():
            here = warps[block == number]
            joined = self.known[here].max(axis=0)
            mine = place[block == number]
            joined[mine] = self.clock[here]
            self.known[here] = joined
            self.clock[here] += 1

    def access(
        self,
        kind: str,
        warps: Array,
        lanes: Array,
        addresses: Array,
        size_bytes: int,
        place: int,
        is_atomic: bool = False,
    ) -> None:
        """An instruction of these lanes: "load", "store", or "atomic", which is both.

        addresses  in the shared memory of each lane's block; what is outside of it is left to others
        is_atomic  a load or a store that others may make at the same time, as polling does
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
        if (
            atomic and self.released is not None
        ):  # who reads what another's operation wrote knows what that one knew
            np.maximum.at(self.known, warps, self.released[cells])
        self._look_at_writes(site, atomic, cells, warps, own, lanes)
        if kind != "load":
            self._look_at_reads(site, cells, warps, own, lanes)
            if not atomic:
                self._look_at_each_other(site, cells, warps, lanes)
        if kind == "load":
            if not atomic:
                self.read_clock[cells, own] = self.clock[warps]
                self.read_site[cells, own] = site
                self.read_lane[cells, own] = lanes
            return
        self.writer[cells], self.write_clock[cells] = own, self.clock[warps]
        self.write_site[cells], self.write_lane[cells], self.is_atomic[cells] = site, lanes, atomic
        if atomic:
            self._release(cells, warps, own)

    # ------------------------------------------------------------ what is not ordered

    def _look_at_writes(
        self, site: int, atomic: bool, cells: Array, warps: Array, own: Array, lanes: Array
    ) -> None:
        writer = self.writer[cells]
        late = (writer != NOBODY) & (writer != own)
        if not late.any():
            return
        late &= self.write_clock[cells] > self.known[warps, writer]
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

    def _look_at_reads(self, site: int, cells: Array, warps: Array, own: Array, lanes: Array) -> None:
        reads = self.read_clock[cells]
        late = reads > self.known[warps]
        late[np.arange(len(own)), own] = False
        if not late.any():
            return
        rows, readers = np.nonzero(late)
        sites = self.read_site[cells[rows], readers]
        for other in np.unique(sites).tolist():
            which = np.flatnonzero(sites == other)
            at, reader = int(rows[which[0]]), int(readers[which[0]])
            base = int(warps[at]) // self.warps * self.warps
            them = base + reader, int(self.read_lane[cells[at], reader])
            self._tell(other, them, site, (int(warps[at]), int(lanes[at])), int(cells[at]), len(which))

    def _look_at_each_other(self, site: int, cells: Array, warps: Array, lanes: Array) -> None:
        """Warps that store to one place by the same instruction, which here run side by side."""
        order = np.argsort(cells, kind="stable")
        sorted_cells, sorted_warps = cells[order], warps[order]
        same = (sorted_cells[1:] == sorted_cells[:-1]) & (sorted_warps[1:] != sorted_warps[:-1])
        if same.any():
            first = int(np.argmax(same))
            one, other = int(order[first]), int(order[first + 1])
            self._tell(
                site,
                (int(warps[one]), int(lanes[one])),
                site,
                (int(warps[other]), int(lanes[other])),
                int(cells[one]),
                int(np.count_nonzero(same)),
            )

    def _release(self, cells: Array, warps: Array, own: Array) -> None:
        """An atomic operation that writes makes known what its warp has done and knows; what comes behind is not."""
        if self.released is None:
            self.released = np.zeros((len(self.writer), self.warps), np.int32)
        mine = self.known[warps]
        mine[np.arange(len(own)), own] = self.clock[warps]
        np.maximum.at(self.released, cells, mine)
        self.clock[np.unique(warps)] += 1

    # ------------------------------------------------------------ words

    def _site(self, place: int, kind: str) -> int:
        site = _Access(place, kind)
        number = self._sites.get(site)
        if number is None:
            number = self._sites[site] = len(self._names)
            self._names.append(site)
        return number

    def _tell(
        self, first: int, one: tuple[int, int], second: int, other: tuple[int, int], cell: int, times: int
    ) -> None:
        sides = (self._names[first], one), (self._names[second], other)

        def fault() -> KernelFault:
            sites = (
                Site(VERBS[access.kind], self.text_of(access.place), access.place, self.name_of(*who))
                for access, who in sides
            )
            place = cell % self.stride * self.unit
            return KernelFault(
                "shared-race", "a race on", "shared", place, tuple(sites), "with no barrier between"
            )

        self.checks.add(("shared-race", sides[0][0], sides[1][0]), times, fault)

    def _remember_bytes(self) -> None:
        """From now on a byte is a cell: somebody touches less than a word."""
        self.unit, self.stride = 1, self.stride * WORD_BYTES
        for name in ("writer", "write_clock", "write_site", "write_lane", "is_atomic"):
            setattr(self, name, np.repeat(getattr(self, name), WORD_BYTES))
        for name in ("read_clock", "read_site", "read_lane", "released"):
            rows = getattr(self, name)
            if rows is not None:
                setattr(self, name, np.repeat(rows, WORD_BYTES, axis=0))
