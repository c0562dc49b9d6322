"""Memory map: which bytes of a device's memory are a buffer's, and which nobody's, at any time.

In       what the device tells of its pool: memory mapped, handed out, taken back
Out      KnownMemory for a launch that begins; an address in words
Changes  itself
Next     sanitizer.py (who keeps one), hcq/memory.py (the pool), hcq/events/known_memory.py (the record)

A buffer may be freed, and its memory handed out again, while work that was submitted before still uses it. Until that
work is done the whole block counts as in use.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from hcq.device import Device
from hcq.events.known_memory import KnownMemory, Stretch

if TYPE_CHECKING:
    from hcq.events.unwritten_memory import UnwrittenMemory

NEAR_BYTES = 1 << 20  # so far behind a buffer an address is said by its distance
MOST_UNMAPPED = 256  # freed blocks that went back to the system, which are remembered


class Block(NamedTuple):
    """A piece of the pool's memory, and the buffer that has it or had it last.

    is_live  it has it
    until    the last submission that may use all of the block, for this buffer or the one before
    """

    va: int
    size_bytes: int
    capacity: int
    name: str
    is_live: bool
    until: int


class MemoryMap:
    """That of one device. Events come from any thread; each replaces one entry of a table."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._blocks: dict[int, Block] = {}
        # what nobody wrote, where somebody wants to know
        self.unwritten: UnwrittenMemory | None = None
        if "init" in device.config.sanitize:
            from hcq.events.unwritten_memory import UnwrittenMemory  # needs NumPy

            self.unwritten = UnwrittenMemory()
        self._unmapped: deque[Block] = deque(maxlen=MOST_UNMAPPED)
        self._regions: dict[int, int] = {}  # the pool's own, but for memory that the driver keeps for itself

    # ------------------------------------------------------------ what happens

    def mapped(self, va: int, size_bytes: int) -> None:
        """The pool has new memory."""
        self._regions[va] = size_bytes

    def alloc(self, va: int, size_bytes: int, capacity: int, name: str | None) -> None:
        """A buffer was handed out."""
        until = self.device.timeline.submitted
        if self.unwritten is not None:
            # work under way may still read what the block's last owner had there
            if self.has(va) and (va not in self._blocks or self._blocks[va].until <= self._done()):
                self.unwritten.fresh(va, size_bytes)
            else:
                self.unwritten.drop(va)
        self._blocks[va] = Block(va, size_bytes, capacity, name or "", True, until)

    def free(self, va: int, capacity: int) -> None:
        """A buffer's block is free again."""
        known = self._blocks.get(va)
        if known is not None:
            self._blocks[va] = known._replace(is_live=False, until=self.device.timeline.submitted)

    def written(self, va: int, size_bytes: int | None) -> None:
        """Somebody has written there; None: to all of the buffer, and may do so again."""
        if self.unwritten is None:
            return
        if size_bytes is not None:
            self.unwritten.written(va, size_bytes)
            return
        for one in list(self._blocks.values()):
            if one.va <= va < one.va + one.capacity:
                self.unwritten.drop(one.va)

    def rename(self, va: int, name: str) -> None:
        """A buffer is called something else."""
        known = self._blocks.get(va)
        if known is not None:
            self._blocks[va] = known._replace(name=name)

    def unmapped(self, va: int, size_bytes: int) -> None:
        """Memory went back to the system."""
        self._regions.pop(va, None)
        for one in list(self._blocks.values()):
            if va <= one.va < va + size_bytes:
                del self._blocks[one.va]
                self._unmapped.append(one)
                if self.unwritten is not None:
                    self.unwritten.drop(one.va)

    # ------------------------------------------------------------ what is asked

    def known(self) -> KnownMemory:
        """For a launch that begins now."""
        done = self._done()
        used, freed = [], []
        for one in sorted(self._blocks.values()):
            if one.until > done:
                used.append(Stretch(one.va, one.va + one.capacity))
            elif one.is_live:
                used.append(Stretch(one.va, one.va + one.size_bytes))
            else:
                freed.append(Stretch(one.va, one.va + one.capacity))
        regions = sorted(Stretch(va, va + size) for va, size in list(self._regions.items()))
        freed += _rest((Stretch(one.va, one.va + one.capacity) for one in list(self._unmapped)), regions)
        return KnownMemory(
            tuple(used), tuple(sorted(freed)), tuple(_rest(regions, used)), None, self.unwritten
        )

    def has(self, address: int) -> bool:
        """Whether an address is in the pool."""
        return any(va <= address < va + size for va, size in list(self._regions.items()))

    def buffer_at(self, address: int) -> tuple[str, str] | None:
        """The name of the buffer that a byte belongs to, live or not, and the byte in words; None: it has none."""
        blocks = sorted(self._blocks.values())
        at = bisect.bisect_right(blocks, address, key=lambda one: one.va) - 1
        if at >= 0 and address < blocks[at].va + blocks[at].capacity:
            return blocks[at].name, _words(blocks[at], address, blocks[at].until > self._done())
        for one in reversed(list(self._unmapped)):
            if one.va <= address < one.va + one.capacity:
                return one.name, _words(one, address, False)
        if at >= 0 and address < blocks[at].va + blocks[at].capacity + NEAR_BYTES:
            end = blocks[at].va + blocks[at].size_bytes
            name = blocks[at].name
            return name, f"{address - end} bytes behind the end of {name or 'a buffer'}"
        return None

    def _done(self) -> int:
        # who reads the timeline of some devices may have to wait, which a thread of the GPU must not
        so_far = getattr(self.device, "done_so_far", None)
        return int(self.device.timeline._cell[0] if so_far is None else so_far())


def _words(one: Block, address: int, is_under_way: bool) -> str:
    place = f"byte {address - one.va} of {one.name or 'a buffer'}"
    if not one.is_live and not is_under_way:
        return f"{place}, which was freed"
    return f"{place}, which has {one.size_bytes}" if address >= one.va + one.size_bytes else place


def _rest(regions: Iterable[Stretch], used: list[Stretch]) -> list[Stretch]:
    """What of the regions is in none of the others. Both are in order."""
    found: list[Stretch] = []
    at = 0
    for region in regions:
        start = region.start
        while at < len(used) and used[at].start < region.end:
            if used[at].start > start:
                found.append(Stretch(start, used[at].start))
            start = max(start, used[at].end)
            at += 1
        if start < region.end:
            found.append(Stretch(start, region.end))
    return found
