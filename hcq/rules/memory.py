"""Memory: what the rules know of buffers: live ones, freed ones, mappings, and the last accesses.

In       allocations, frees and mappings, from a device that validates or from a trace
Out      what lies at an address; the accesses that a new one may collide with
Changes  itself
Next     state.py (signals and clocks), addresses.py (the rules on this)

A destructor may free a buffer at any point of any thread, even in here. So `free` only appends to a list, and whoever
looks something up works the list off first.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable
from typing import NamedTuple

MAX_TOUCHES = 16  # of one buffer; the oldest are forgotten, which can hide a collision and never invents one


class PastAccess(NamedTuple):
    """One access to part of a buffer: by which agent, when on its own clock, and through which cache."""

    agent: object
    at: int
    low: int
    high: int
    is_write: bool
    domain: str
    label: str


class Allocation:
    """A buffer, live or freed.

    access       "read", "write" or "both": what the device may do with it
    is_written   anybody ever wrote something into it
    is_cell      a signal was made of it
    stand_in     not "": it only holds the place of an argument that a replay has to name
    """

    __slots__ = (
        "access",
        "device",
        "end",
        "is_cell",
        "is_written",
        "name",
        "size_bytes",
        "stand_in",
        "touches",
        "va",
    )

    def __init__(self, va: int, size_bytes: int, name: str, device: str, access: str = "both") -> None:
        self.va = va
        self.size_bytes = size_bytes
        self.end = va + size_bytes
        self.name = name
        self.device = device
        self.access = access
        self.is_written = self.is_cell = False
        self.stand_in = ""
        self.touches: tuple[PastAccess, ...] = ()

    def touch(self, new: PastAccess) -> None:
        """Remember an access; it takes the place of the same agent's earlier one to the same bytes."""
        same = (new.agent, new.low, new.high, new.is_write, new.domain)
        kept = [t for t in self.touches if (t.agent, t.low, t.high, t.is_write, t.domain) != same]
        self.touches = (*kept[1 - MAX_TOUCHES :], new)

    def __str__(self) -> str:
        return f"{self.name or 'a buffer'} ({self.size_bytes} bytes at {self.va:#x})"


class Place(NamedTuple):
    """What a range starts in: "live", "freed", "unmapped", or "elsewhere" (memory that nobody reports to us)."""

    state: str
    block: Allocation | None = None


class Memory:
    """All devices together: addresses of one process mean one thing.

    elsewhere  says whether a range is known to a device that does not report here
    """

    def __init__(self) -> None:
        self.live: dict[int, Allocation] = {}
        self.freed: dict[int, Allocation] = {}
        self.elsewhere: Callable[[int, int], bool] = lambda va, size_bytes: False
        self._starts: list[int] = []
        self._gone: list[int] = []
        self._lock = threading.RLock()

    def alloc(self, va: int, size_bytes: int, name: str, device: str, access: str = "both") -> Allocation:
        """A new buffer; what was known of its memory is forgotten."""
        with self._lock:
            self._settle()
            self.freed.pop(va, None)
            if va not in self.live:
                bisect.insort(self._starts, va)
            block = self.live[va] = Allocation(va, size_bytes, name, device, access)
        return block

    def free(self, va: int) -> None:
        """Safe from destructors."""
        self._gone.append(va)

    def unmap(self, va: int, size_bytes: int) -> None:
        """Memory goes back to the system, and whatever was in it with it."""
        with self._lock:
            self._settle()
            low = bisect.bisect_left(self._starts, va)
            high = bisect.bisect_left(self._starts, va + size_bytes)
            for start in self._starts[low:high]:
                del self.live[start]
            del self._starts[low:high]
            for start in [start for start in list(self.freed) if va <= start < va + size_bytes]:
                self.freed.pop(start, None)

    def find(self, va: int) -> Allocation | None:
        """The live buffer that holds an address; one that ends there counts when nothing else begins there."""
        if self._gone:
            with self._lock:
                self._settle()
        block = self.live.get(va)
        if block is not None:
            return block
        with self._lock:
            at = bisect.bisect_right(self._starts, va) - 1
            block = self.live[self._starts[at]] if at >= 0 else None
        return block if block is not None and va <= block.end else None

    def place(self, va: int, size_bytes: int) -> Place:
        """What a range starts in."""
        block = self.find(va)
        if block is not None and (va < block.end or not size_bytes or va == block.va):
            return Place("live", block)
        for freed in list(self.freed.values()):
            if freed.va <= va < max(freed.end, freed.va + 1):
                return Place("freed", freed)
        if self.elsewhere(va, size_bytes):
            return Place("elsewhere")
        return Place("unmapped")

    def neighbour(self, va: int) -> Allocation | None:
        """The last live buffer that begins before an address."""
        with self._lock:
            at = bisect.bisect_right(self._starts, va) - 1
            return self.live[self._starts[at]] if at >= 0 else None

    def _settle(self) -> None:
        while self._gone:
            va = self._gone.pop()
            block = self.live.pop(va, None)
            if block is not None:
                del self._starts[bisect.bisect_left(self._starts, va)]
                self.freed[va] = block
