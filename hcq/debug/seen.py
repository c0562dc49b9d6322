"""Seen: what the waves of one block did, instruction by instruction, kept for a stretch of a launch that is run again.

In       a launch, a stretch between two of its snapshots, a block
Out      Entry: one instruction of these waves, with the registers that it reads and its accesses; Logs, which keep some
         stretches, and find the instruction that wrote a register, or memory that the block shares
Changes  itself; the launch is run again
Next     origin.py (who asks, thousands of times), timeline.py (running again)
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hcq.debug.expression import of_lane
from hcq.debug.moment import Access, Array, Moment, Site, Work
from hcq.debug.points import STORES, covers
from hcq.debug.timeline import History, Place, Record, Snapshot
from hcq.errors import UsageError

SCALARS = ("s", "m0", "vcc", "exec", "scc", "ttmp")
MOST_SEEN = 1 << 28  # bytes of registers that are kept


class Entry(NamedTuple):
    """An instruction that some waves of a block executed.

    on       (waves, lanes) which do it
    values   of the registers that it reads or stores: (waves, lanes), or (waves, 1)
    """

    place: Place
    site: Site
    waves: Array
    on: Array
    values: dict[str, Array]
    accesses: list[Access]

    def value(self, name: str, wave: int, lane: int) -> int | None:
        """A register of a lane, before the instruction; None where it has none of that name."""
        if name not in self.values:
            return None
        return int(of_lane(self.values[name][np.searchsorted(self.waves, wave)], lane))

    @property
    def lanes(self) -> int:
        """How many lanes of the block do it."""
        return int(np.count_nonzero(self.on))

    def loaded(self, wave: int, lane: int, name: str) -> list[tuple[str, int, int]]:
        """(space, address, bytes) that a lane loads. name: into this register; "": at all."""
        found = []
        for one in self.accesses:
            if one.kind == "store":
                continue
            mine = np.flatnonzero((one.wave == wave) & ((one.lane == lane) | is_scalar(name)))
            if not len(mine) or (name and one.data and name not in one.data):
                continue
            each = max(1, one.size // max(1, len(one.data)))
            offset = each * one.data.index(name) if name in one.data else 0
            found.append((one.space, int(one.address[mine[0]]) + offset, min(each, one.size)))
        return found

    def writes(self, name: str, wave: int, lane: int) -> bool:
        """Whether it writes a register of a lane."""
        at = int(np.searchsorted(self.waves, wave))
        if name not in self.site.writes or at == len(self.waves) or self.waves[at] != wave:
            return False
        return is_scalar(name) or bool(self.on[at, lane])


def is_scalar(name: str) -> bool:
    """Whether all lanes share a register of an AMD GPU."""
    return name.rstrip("0123456789") in SCALARS


def stored(accesses: list[Access], address: int, size_bytes: int, space: str) -> tuple[Access, int] | None:
    """That of these accesses which stores to some bytes, and the last of its lanes that does; None: none does."""
    for one in accesses:
        if one.kind in STORES and one.space == space:
            hits = np.flatnonzero(covers(one.address, one.size, address, size_bytes))
            if len(hits):
                return one, int(hits[-1])
    return None


def entry_of(moment: Moment, place: Place, block: int) -> Entry | None:
    """What the waves of a block are about to do; None: nothing."""
    per_block = moment.work.waves_per_block
    waves = np.asarray(moment.waves)
    waves = waves[waves // per_block == block]
    if not len(waves):
        return None
    on = np.array([moment.doing(wave) for wave in waves.tolist()], np.bool_)
    accesses = []
    for one in moment.accesses():
        mine = one.wave // per_block == block
        accesses.append(one._replace(wave=one.wave[mine], lane=one.lane[mine], address=one.address[mine]))
    names = dict.fromkeys([*moment.site.reads, *(name for one in accesses for name in one.data)])
    values = {}
    for name in names:
        try:
            values[name] = np.array([moment.read(name, wave) for wave in waves.tolist()])
        except UsageError:
            continue
    return Entry(place, moment.site, waves, on, values, accesses)


class Log:
    """A stretch of a launch, of one block."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.ticks = [one.place.tick for one in entries]
        self.size_bytes = sum(sum(one.nbytes for one in entry.values.values()) + 512 for entry in entries)
        self._writers: dict[str, list[int]] = {}
        self._stores: list[int] = []
        for number, entry in enumerate(entries):
            for name in entry.site.writes:
                self._writers.setdefault(name, []).append(number)
            if any(one.kind in STORES and one.space == "shared" for one in entry.accesses):
                self._stores.append(number)

    def before(self, tick: int, name: str = "") -> Iterator[Entry]:
        """Those that write a register, or, without a name, shared memory, before a tick; the last one first."""
        numbers = self._writers.get(name, []) if name else self._stores
        end = bisect.bisect_left(numbers, bisect.bisect_left(self.ticks, tick))
        for number in reversed(numbers[:end]):
            yield self.entries[number]


class Logs:
    """Of a history; those that were asked for last are kept."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._kept: dict[tuple[int, int, int, int], Log] = {}

    def writer(self, name: str, wave: int, lane: int, before: Place, but: int = 0) -> Entry | None:
        """The last instruction of its launch that wrote a register before a place. but: not this one, by its key."""
        record = self.history.record(before.launch)
        assert record is not None
        for log in self._stretches(record, before.tick, wave // record.work.waves_per_block, name):
            for entry in log.before(before.tick, name):
                if entry.site.key != but and entry.writes(name, wave, lane):
                    return entry
        return None

    def storer(self, address: int, size_bytes: int, block: int, before: Place) -> Entry | None:
        """The last instruction of its launch that stored to some bytes that a block shares."""
        record = self.history.record(before.launch)
        assert record is not None
        for log in self._stretches(record, before.tick, block, ""):
            for entry in log.before(before.tick):
                if stored(entry.accesses, address, size_bytes, "shared") is not None:
                    return entry
        return None

    def _stretches(self, record: Record, before: int, block: int, name: str) -> Iterator[Log]:
        """From a tick back to the launch's beginning."""
        if not _may_write(record.work, name):
            return
        starts = sorted((one for one in record.starts(record.ticks + 2)), key=lambda one: one.tick)
        ends = [*(one.tick + 1 for one in starts[1:]), record.ticks + 1]
        for start, end in reversed([*zip(starts, ends)]):
            if start.tick + 1 < before:
                yield self._log(record, start, end, block)

    def _log(self, record: Record, start: Snapshot, end: int, block: int) -> Log:
        key = (record.number, start.tick, end, block)
        found = self._kept.pop(key, None)
        if found is None:
            entries: list[Entry] = []
            tick = start.tick

            def note(moment: Moment) -> None:
                nonlocal tick
                tick += 1
                entry = entry_of(moment, Place(record.number, tick), block)
                if entry is not None:
                    entries.append(entry)

            self.history.scan(record, start, end, note, None, is_on_way=False)
            found = Log(entries)
        self._kept[key] = found
        while sum(one.size_bytes for one in self._kept.values()) > MOST_SEEN and len(self._kept) > 1:
            del self._kept[next(iter(self._kept))]
        return found


def _may_write(work: Work, name: str) -> bool:
    return not name or any(name in site.writes for site in work.sites())
