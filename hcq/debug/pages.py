"""Pages: what a launch found in memory, kept before it could change, so that the launch can be run again.

In       the ranges that a launch sees; addresses that it is about to touch
Out      Pages: the pages it has touched, as they were before it; Replay: memory of its own that holds them
Changes  itself; Replay: only its own arrays
Next     timeline.py (who keeps them, and returns to snapshots), hcq/emu/shader/ranges.py (ranges of addresses)

A launch that is run again touches the same pages, in the same order, so nothing else is kept. Equal pages of different
launches, such as weights, are kept once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from hcq.debug.moment import Array, Work
from hcq.emu import pages as zero_pages

SHIFT = 12
PAGE = 1 << SHIFT
Content = tuple[tuple[int, bytes], ...]  # of a page: addresses and bytes, as far as something is mapped there


class Space(Protocol):
    """Ranges of addresses, as hcq.emu.shader.ranges.Ranges."""

    ranges: tuple[Any, ...]

    def within(self, start: int, end: int) -> Any:
        """The first range that has any of these addresses."""

    def find(self, address: int) -> Any:
        """The range that holds an address."""


def bytes_of(one: Any) -> Array:
    """The host's bytes behind a range: AMD's part and NVIDIA's call them by different names."""
    data: Array = one.data if hasattr(one, "data") else one.host
    return data


def content(space: Space, page: int) -> Content:
    """What is in a page now."""
    at, end = page << SHIFT, (page + 1) << SHIFT
    found = []
    while at < end and (one := space.within(at, end)) is not None:
        start, stop = max(at, one.start), min(end, one.end)
        one.reach(start - one.start, stop - start, is_write=False)
        found.append((start, bytes_of(one)[start - one.start : stop - one.start].tobytes()))
        at = stop
    return tuple(found)


def read(space: Space, address: int, size_bytes: int) -> bytes | None:
    """Bytes of one or several ranges; None where something is not mapped."""
    found = b""
    while size_bytes:
        one = space.find(address)
        if one is None:
            return None
        count = min(size_bytes, one.end - address)
        one.reach(address - one.start, count, is_write=False)
        found += bytes_of(one)[address - one.start : address - one.start + count].tobytes()
        address, size_bytes = address + count, size_bytes - count
    return found


class Pool:
    """Contents that many launches share: equal bytes are one object, and counted once."""

    def __init__(self) -> None:
        self._held: dict[bytes, list[Any]] = {}  # the bytes -> [the one object, how many hold it]
        self.size_bytes = 0

    def keep(self, found: Content) -> Content:
        """The same contents, of which equal bytes are the same object."""
        kept = []
        for at, data in found:
            entry = self._held.setdefault(data, [data, 0])
            if not entry[1]:
                self.size_bytes += len(data)
            entry[1] += 1
            kept.append((at, entry[0]))
        return tuple(kept)

    def drop(self, gone: Iterable[Content]) -> None:
        """Nobody needs these any more who has kept them."""
        for found in gone:
            for _, data in found:
                entry = self._held[data]
                entry[1] -= 1
                if not entry[1]:
                    del self._held[data]
                    self.size_bytes -= len(data)


class Pages:
    """The pages that a run of a launch touches. first: as they were; dirty: written since the last snapshot."""

    def __init__(self, space: Space, pool: Pool, first: dict[int, Content] | None = None) -> None:
        self.space, self.pool = space, pool
        self.first: dict[int, Content] = {} if first is None else first
        self.dirty: set[int] = set()
        self.written: set[int] = set()
        self._last: tuple[int, int] = (1, 0)  # pages that were touched just now

    def touch(self, addresses: Array, size_bytes: int, is_write: bool) -> None:
        """These bytes are about to be read or written."""
        if not addresses.size:
            return
        low = int(addresses.min()) >> SHIFT
        high = (int(addresses.max()) + size_bytes - 1) >> SHIFT
        if not is_write and self._last[0] <= low and high <= self._last[1]:
            return
        if high - low < max(8, addresses.size):
            touched: Iterable[int] = range(low, high + 1)
            self._last = low, high
        else:
            both = (
                addresses >> np.uint64(SHIFT),
                (addresses + np.uint64(size_bytes - 1)) >> np.uint64(SHIFT),
            )
            touched = np.unique(np.concatenate(both)).tolist()
        for page in touched:
            if page not in self.first:
                self.first[page] = self.pool.keep(content(self.space, page))
        if is_write:
            self.dirty.update(touched)
            self.written.update(touched)

    def take_dirty(self) -> dict[int, Content]:
        """What is in the pages that were written since this was asked last."""
        dirty, self.dirty = self.dirty, set()
        return {page: self.pool.keep(content(self.space, page)) for page in dirty}


class Replay:
    """Memory of its own for runs of one launch: at the addresses of the real one, with the pages it found there."""

    def __init__(self, work: Work, ranges: Iterable[Any], first: dict[int, Content], pool: Pool) -> None:
        self.space = work.private()
        self.ranges = tuple(ranges)
        self.mapped: set[int] = set()
        self.first = first
        self.pages = Pages(self.space, pool, first)
        self.memory = work.recorder(self.space, self.pages)
        self.filled: set[int] = set()
        self.fill()

    def fill(self) -> None:
        """Map what the launch has touched since, with what it found there."""
        for page in [page for page in self.first if page not in self.filled]:
            self.filled.add(page)
            for at, _ in self.first[page]:
                self._map(at)
            self._put(self.first[page])

    def _map(self, address: int) -> None:
        if self.space.find(address) is not None:
            return
        one = next(one for one in self.ranges if one.start <= address < one.end)
        writable = one.writable if hasattr(one, "writable") else one.is_writable
        self.space.map(
            one.start, zero_pages.zeros(one.end - one.start), **{self._word: writable}, name=one.name
        )

    @property
    def _word(self) -> str:
        return "writable" if hasattr(self.ranges[0], "writable") else "is_writable"

    def _put(self, found: Content) -> None:
        for at, data in found:
            one = self.space.find(at)
            bytes_of(one)[at - one.start : at - one.start + len(data)] = np.frombuffer(data, np.uint8)

    def reset(self, changes: Iterator[Mapping[int, Content]] | Iterable[Mapping[int, Content]]) -> None:
        """Back to what the launch found, with these changes made one after the other."""
        latest: dict[int, Content] = {}
        for change in changes:
            latest.update(change)
        self.fill()
        for page in self.pages.written | set(latest):
            self._put(latest.get(page) or self.first[page])
        self.pages.written = set(latest)
        self.pages.dirty = set()
