"""Order: what surely came before what a warp does next, among all warps of a launch (vector clocks).

In       barriers, fences and atomic operations of the warps that run together, as they happen
Out      `knows`: whether an access of one warp comes after another's
Changes  itself
Next     shared_races.py and global_races.py (who ask), ../amd/shader/race_steps.py and ../nv/shader/race_steps.py (who
         tell)
Source   C. Flanagan, S. Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009; PTX ISA, "Memory
         Consistency Model" (release and acquire patterns, scopes, causality); LLVM, "User Guide for AMDGPU Backend",
         "Memory Model"

Every warp has a clock, and knows the clock that each warp of its block had when something last ordered the two; of
other blocks, where it knows anything, in a row for the whole launch (`far`). A release is a fence, then an atomic
operation that writes; an acquire is an atomic operation that reads what that one wrote, then a fence. Each of the
four has a scope: other blocks are reached by those of the device alone. What a fence covers is all that its warp
knows then, and whoever comes after that fence may pass it on: a fence, a barrier, and another warp's atomic operation
are a release, too, as the hardware of both vendors has it; so are an atomic operation, a barrier, and another warp's
fence an acquire.

An atomic operation that writes leaves a record: who, what it makes known, and the record before it, where the
operation has read, too (a release sequence). A plain or atomic store begins anew. What is known of a warp is two
clocks, therefore: up to the first all that it did is known, up to the second its atomic operations are; who reads
what one of them wrote knows that one, but not the plain accesses that no fence covers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

PLAIN, BLOCK, DEVICE = 0, 1, 2  # how far an atomic operation, or a fence, reaches; PLAIN: it is neither
EVERYTHING = np.int32(2**31 - 1)  # of a clock
MOST_RECORD_BYTES = (
    1 << 27
)  # of what atomic operations make known; from then on the older ones make all known
MOST_PENDING = (
    1 << 12
)  # records that a warp has read without a fence; from then on it knows everything at its next
ALL = -1  # a record that makes everything known
MOST_CLOCKS = (
    1 << 19
)  # of a launch; in a larger one, who reads what another block wrote atomically knows everything
MOST_ROW_CLOCKS = 1 << 24  # that are kept of what records make known


class _Row(NamedTuple):
    """What one warp made known: of its own block to its own block, and to others; of other blocks."""

    warp: int
    own: Array
    others: Array
    far: Array | None


class Records:
    """What atomic operations of one launch have made known. Record 0 makes nothing known."""

    def __init__(self, warps: int, warps_per_block: int) -> None:
        self.warps, self.warps_per_block = warps, warps_per_block
        self.rows: list[_Row] = []
        self.columns = 2 * warps_per_block  # of a block: the first clock of each warp, then the second
        self.row_of: list[int] = [-1]
        self.before: list[int] = [0]
        self.level: list[int] = [PLAIN]
        self.clock: list[int] = [0]
        self.width = warps // warps_per_block * self.columns
        self.lost = 0  # records up to this one make everything known
        self._seen: dict[tuple[int, int, int], Array] = {}

    def row(self, warp: int, own: Array, others: Array, far: Array | None) -> int:
        """What a warp makes known from now on, to be named by its records."""
        self.rows.append(_Row(warp, own, others, far))
        size = 8 * self.columns + 400
        if size * len(self.rows) + 120 * len(self.before) > MOST_RECORD_BYTES:
            self._forget()
        return len(self.rows) - 1

    def add(self, row: int, level: int, clock: int, before: int) -> int:
        """One more record, of an operation at a clock of its warp."""
        self.row_of.append(row)
        self.level.append(level)
        self.clock.append(clock)
        self.before.append(before)
        return self.lost + len(self.before) - 1

    def seen(self, record: int, block: int, level: int) -> Array:
        """What somebody of a block learns who reads what a record's operation wrote: a clock of every warp."""
        if self.width > MOST_CLOCKS:
            record, block, level = ALL, 0, DEVICE
        kept = self._seen.get((record, block, level))
        if kept is not None:
            return kept
        found = np.zeros(self.width, np.int32)
        at, per_block = record, self.warps_per_block
        while at:
            if at <= self.lost:  # ALL, too
                found[:] = EVERYTHING
                break
            if at != record and (known := self._seen.get((at, block, level))) is not None:
                np.maximum(found, known, out=found)
                break
            number = at - self.lost
            at, row = self.before[number], self.rows[self.row_of[number]]
            home = row.warp // per_block
            if home != block and min(level, self.level[number]) < DEVICE:
                continue
            part = found[home * self.columns : (home + 1) * self.columns]
            np.maximum(part, row.own if home == block else row.others, out=part)
            own = per_block + row.warp % per_block
            part[own] = max(part[own], self.clock[number])
            if row.far is not None:
                np.maximum(found, row.far, out=found)
        while self._seen and (len(self._seen) + 1) * self.width > MOST_ROW_CLOCKS:
            del self._seen[next(iter(self._seen))]
        self._seen[record, block, level] = found
        return found

    def _forget(self) -> None:
        """There is no room for more: what was recorded makes everything known, which hides races and invents none."""
        self.lost += len(self.before) - 1
        last = self.rows[-1]
        self.rows, self.row_of, self.before, self.level, self.clock = [last], [-1], [0], [PLAIN], [0]
        self._seen.clear()


class Order:
    """That of the warps which run together: some blocks of a launch, one after the other.

    records          of the launch: earlier blocks have left some
    first_block      the number of the first of the blocks in the launch
    syncs            whether atomic operations order anything: somewhere in the kernel is a fence that acquires
    needs_fences     whether an atomic operation without a fence orders nothing even within a block
    lanes_are_apart  whether threads of one warp are ordered by what orders warps alone
    """

    def __init__(
        self,
        records: Records,
        first_block: int,
        blocks: int,
        syncs: bool = True,
        needs_fences: bool = False,
        lanes_are_apart: bool = False,
        lanes: int = 64,
    ) -> None:
        self.records, self.warps = records, records.warps_per_block
        self.first = first_block * self.warps
        self.syncs = syncs
        self.needs_fences, self.lanes_are_apart = needs_fences, lanes_are_apart
        count = blocks * self.warps
        self.clock = np.ones(count, np.int32)
        self.columns = records.columns
        self.known = np.zeros((count, self.columns), np.int32)
        # what a fence has covered, by how far it reaches; all is, for the own block, where no fence is needed
        self.covered = {DEVICE: np.zeros((count, self.columns), np.int32)}
        if needs_fences:
            self.covered[BLOCK] = np.zeros((count, self.columns), np.int32)
        self.far: list[Array | None] = [None] * count
        self.far_covered: list[Array | None] = [None] * count
        # where the rows of `far` are, for machine code; 0: there is none
        self.far_at = np.zeros(count, np.int64)
        self.has_far = np.zeros(count, bool)
        self.fenced = np.zeros(count, bool)  # whether anything is covered
        self.pending: list[dict[tuple[int, int], None]] = [
            {} for _ in range(count)
        ]  # (record, level): was read
        self.has_pending = np.zeros(count, bool)
        self.rows = np.full(count, -1, np.int64)  # what each makes known now, among the rows of the records
        self.rows_lost = 0
        # threads of a warp: up to which clock all know of all, and each of each
        self.met = np.zeros(count, np.int32)
        self.thread_known: Array | None = None
        self.lanes = lanes

    # ------------------------------------------------------------ questions

    def knows(self, warps: Array, others: Array, clocks: Array, are_atomic: Array | bool = False) -> Array:
        """Whether each of these warps comes after what another one did at a clock. others: numbered in the launch."""
        place, block = others % self.warps + are_atomic * self.warps, others // self.warps
        own = (warps + self.first) // self.warps == block
        found: Array = own & (self.known[warps, place] >= clocks)
        if self.has_far.any():
            there = np.flatnonzero(~own & self.has_far[warps])
            for warp in np.unique(warps[there]).tolist():
                which = there[warps[there] == warp]
                row = self.far[warp]
                assert row is not None
                found[which] = row[block[which] * self.columns + place[which]] >= clocks[which]
        return found

    def threads_know(self, warps: Array, lanes: Array, others: Array, clocks: Array) -> Array:
        """The same for threads of one warp. others: lanes; negative: several."""
        found: Array = clocks <= self.met[warps]
        if self.thread_known is not None:
            which = np.flatnonzero(~found)
            rows = self.thread_known[warps[which], lanes[which]]
            one = rows[np.arange(len(which)), np.maximum(others[which], 0)]
            found[which] = clocks[which] <= np.where(others[which] < 0, rows.min(axis=1), one)
        return found

    # ------------------------------------------------------------ what orders

    def barrier(self, warps: Array) -> None:
        """These warps have met, each with those of its own block: what any of them did is known to all of them."""
        block, place = warps // self.warps, warps % self.warps
        tables = [self.known, *self.covered.values()]
        self.rows[warps] = -1
        self.met[warps] = self.clock[warps]
        if len(warps) % self.warps == 0 and (block == np.repeat(block[:: self.warps], self.warps)).all():
            for table in tables[1:]:  # all of each block, which is nearly always so
                joined = table[warps].reshape(-1, self.warps, self.columns).max(axis=1)
                table[warps] = np.repeat(joined, self.warps, axis=0)
            clocks = self.clock[warps].reshape(-1, self.warps)
            self.known[warps] = np.repeat(np.hstack((clocks, clocks)), self.warps, axis=0)
        else:
            for number in np.unique(block).tolist():
                here = warps[block == number]
                for table in tables:
                    joined = table[here].max(axis=0)
                    if table is self.known:
                        mine = place[block == number]
                        joined[mine] = joined[mine + self.warps] = self.clock[here]
                    table[here] = joined
        self.clock[warps] += 1
        self.fenced[warps] = self.covered[DEVICE][warps].any(axis=1)
        if self.needs_fences:
            self.fenced[warps] |= self.covered[BLOCK][warps].any(axis=1)
        for number in np.unique(block[self.has_pending[warps]]).tolist():
            self._share_pending(warps[block == number].tolist())
        if self.has_far.any():
            for number in np.unique(block[self.has_far[warps]]).tolist():
                here = warps[block == number].tolist()
                for rows in (self.far, self.far_covered):
                    row = union([rows[one] for one in here])
                    for one in here:
                        rows[one] = row
                self.has_far[here] = True
                self.note_far(here)

    def meet(self, warps: Array, lanes: Array, members: Array, live: Array) -> None:
        """Threads of warps have met (bar.warp.sync).

        members  for each thread a bit for every thread of its warp that it names
        live     of each of all warps: how many threads have not ended
        """
        if not self.lanes_are_apart:
            return
        some, counts = np.unique(warps, return_counts=True)
        whole = counts == live[some]
        self.met[some[whole]] = self.clock[some[whole]]
        for warp in some[~whole].tolist():
            if self.thread_known is None:
                self.thread_known = np.zeros((len(self.clock), self.lanes, self.lanes), np.int32)
            mine = warps == warp
            for mask in np.unique(members[mine]).tolist():
                who = lanes[mine & (members == mask)]
                joined = self.thread_known[warp, who].max(axis=0)
                joined[who] = self.clock[warp]
                self.thread_known[warp, who] = joined
        self.clock[some] += 1
        self.rows[some] = -1

    def tick(self, warps: Array) -> None:
        """What these warps do from now on comes behind what they did: others may know the one and not the other."""
        self.clock[warps] += 1
        self.rows[warps] = -1

    def rejoin(self, warps: Array) -> None:
        """All threads of each of these warps know what all of them did."""
        self.met[warps] = self.clock[warps]
        self.clock[warps] += 1
        self.rows[warps] = -1

    def release(self, warps: Array, level: int) -> None:
        """A fence: what these warps did and know may be made known by an atomic operation from now on."""
        own = warps % self.warps
        for reach, table in self.covered.items():
            if reach <= level:
                table[warps] = self.known[warps]
                table[warps, own] = table[warps, own + self.warps] = self.clock[warps]
        if level == DEVICE:
            for one in warps[self.has_far[warps]].tolist():
                self.far_covered[one] = self.far[one]
        self.clock[warps] += 1
        self.fenced[warps] = True
        self.rows[warps] = -1

    def acquire(self, warps: Array, level: int) -> None:
        """A fence: these warps come after those of which they have read from atomic operations."""
        for one in warps[self.has_pending[warps]].tolist():
            for record, reach in self.pending[one]:
                self._learn(one, record, min(reach, level))
            kept = {record: None for record in self.pending[one] if level < record[1]}
            self.pending[one] = kept
            self.has_pending[one] = bool(kept)

    def operate(
        self, found: Array, warps: Array, level: int, reads: bool, writes: bool, places: Array
    ) -> Array | None:
        """Atomic operations of warps, one after the other, on places whose last records are `found`.

        Returns the new records; None: they stay.
        """
        fenced = self.fenced[warps] if self.needs_fences else np.ones(len(warps), bool)
        if not (found.any() or (writes and fenced.any())):
            return None
        if not reads:
            stored = self._stores(warps, level)
            self.clock[warps] += 1
            return stored
        new: Array = found.copy()
        last: dict[int, int] = {}
        for index, (warp, place) in enumerate(zip(warps.tolist(), places.tolist())):
            record = last.get(place)
            if record is None:
                record = int(found[index])
            if record:
                self._read(warp, record, level)
            if writes and fenced[index]:
                record = self._write(warp, level, record)
            new[index] = last[place] = record
        if not writes:
            return None
        self.clock[warps] += 1
        return new

    def arrive(self, warp: int, before: int) -> int:
        """A warp is at a barrier of the device, where a record says who was there: the new record.

        As of an atomic operation there: what a fence has covered is made known.
        """
        record = self._write(warp, DEVICE, before)
        self.clock[warp] += 1
        return record

    def leave(self, warp: int, record: int) -> None:
        """It goes on, and comes after those who were there from its next fence on."""
        if record:
            self._read(warp, record, DEVICE)

    # ------------------------------------------------------------ inside

    def _stores(self, warps: Array, level: int) -> Array:
        """One record for each warp: a store does not go on from what was there before."""
        some, which = np.unique(warps, return_inverse=True)
        fenced = self.fenced[some] if self.needs_fences else np.ones(len(some), bool)
        made = [
            self._write(warp, level, 0) if is_fenced else 0 for warp, is_fenced in zip(some.tolist(), fenced)
        ]
        found: Array = np.array(made, np.int32)[which]
        return found

    def _read(self, warp: int, record: int, level: int) -> None:
        if not self.needs_fences:
            self._learn(warp, record, BLOCK)
        pending = self.pending[warp]
        if len(pending) >= MOST_PENDING:
            pending.clear()
            record = ALL
        pending[record, level] = None
        self.has_pending[warp] = True

    def _write(self, warp: int, level: int, before: int) -> int:
        if self.rows_lost != self.records.lost:
            self.rows[:] = -1
            self.rows_lost = self.records.lost
        row = int(self.rows[warp])
        if row < 0:
            own = self.covered[BLOCK][warp] if self.needs_fences else self.known[warp]
            own = own.copy()
            if not self.needs_fences:
                own[warp % self.warps] = self.clock[warp]
            others = self.covered[DEVICE][warp].copy()
            row = self.records.row(warp + self.first, own, others, self.far_covered[warp])
            if self.rows_lost != self.records.lost:
                self.rows[:] = -1
                self.rows_lost = self.records.lost
            if self.needs_fences:
                self.rows[warp] = row
        return self.records.add(row, level, int(self.clock[warp]), before)

    def _share_pending(self, warps: list[int]) -> None:
        """What one of these has read, the next fence of any of them acquires."""
        joined = {one: None for warp in warps for one in self.pending[warp]}
        if len(joined) > MOST_PENDING:
            joined = {(ALL, DEVICE): None}
        for warp in warps:
            self.pending[warp] = dict(joined)
        self.has_pending[warps] = True

    def _learn(self, warp: int, record: int, level: int) -> None:
        block = (warp + self.first) // self.warps
        row = self.records.seen(record, block, level)
        own = row[block * self.columns : (block + 1) * self.columns]
        known = self.known[warp]
        np.maximum(known, own, out=known)
        self.met[warp] = max(self.met[warp], own[warp % self.warps])  # by another thread of this warp
        if level == DEVICE:
            self.far[warp] = union([self.far[warp], row])
            self.has_far[warp] = True
            self.note_far([warp])
        self.rows[warp] = -1

    def note_far(self, warps: list[int]) -> None:
        """The rows of these in `far` are others now."""
        for warp in warps:
            row = self.far[warp]
            if row is not None:
                self.far_at[warp] = row.__array_interface__["data"][0]


def union(rows: list[Array | None]) -> Array | None:
    """The later of all clocks. Rows are not written to any more."""
    found: Array | None = None
    for row in {id(row): row for row in rows}.values():
        if row is not None:
            found = row if found is None else np.maximum(found, row)
    return found
