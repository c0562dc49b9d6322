"""Ranges of addresses that memory is mapped at: which one an address is in, and where a new one fits.

In       ranges with a start, an end and a name
Out      Ranges: the range of an address, the one that holds many addresses, what is near one
Changes  itself, as one, so that others may look meanwhile without a lock
Next     hcq/emu/amd/shader/memory.py and hcq/emu/nv/shader/memory.py (what an access does with a range)
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy.typing as npt

from hcq.errors import UsageError

Array = npt.NDArray[Any]


class Mapped(Protocol):
    """A range: the bytes of addresses [start, end)."""

    @property
    def start(self) -> int:
        """Its first address."""

    @property
    def end(self) -> int:
        """The address behind its last one."""

    @property
    def name(self) -> str:
        """What it is called in messages, or nothing."""


R = TypeVar("R", bound=Mapped)


class Ranges(Generic[R]):
    """Ranges in the order of their addresses, none of which overlap."""

    def __init__(self) -> None:
        self.ranges: tuple[R, ...] = ()
        self.index: tuple[list[int], tuple[R, ...]] = ([], ())
        self.lock = threading.Lock()
        self.recent: R | None = None

    def insert(self, new: R) -> None:
        """Make a range appear. Raises UsageError where one is already."""
        with self.lock:
            old = self.within(new.start, new.end)
            if old is not None:
                raise UsageError(
                    f"map({new.start:#x}, {new.end - new.start} bytes): [{old.start:#x}, {old.end:#x}) is mapped "
                    f"already. Unmap it first."
                )
            starts, ranges = self.index
            at = bisect.bisect_left(starts, new.start)
            self.publish((*ranges[:at], new, *ranges[at:]), [*starts[:at], new.start, *starts[at:]])

    def unmap(self, address: int) -> None:
        """Forget the range that starts at an address."""
        with self.lock:
            starts, ranges = self.index
            at = bisect.bisect_left(starts, address)
            if at == len(starts) or starts[at] != address:
                raise UsageError(f"unmap({address:#x}): no mapping starts there.")
            self.publish(ranges[:at] + ranges[at + 1 :], starts[:at] + starts[at + 1 :])

    def publish(self, ranges: Sequence[R], starts: list[int] | None = None) -> None:
        """Replace all ranges at once, while kernels read. starts: where each begins, if that is known."""
        self.recent = None
        self.ranges = tuple(ranges)
        starts = [one.start for one in ranges] if starts is None else starts
        self.index = (starts, self.ranges)  # replaced as one, so that readers need no lock

    def within(self, start: int, end: int) -> R | None:
        """The first mapping that has any of these addresses."""
        starts, ranges = self.index
        at = bisect.bisect_right(starts, start)
        if at and start < ranges[at - 1].end:
            return ranges[at - 1]
        return ranges[at] if at < len(ranges) and ranges[at].start < end else None

    def find(self, address: int) -> R | None:
        """The range that holds an address."""
        starts, ranges = self.index
        at = bisect.bisect_right(starts, address) - 1
        return ranges[at] if at >= 0 and address < ranges[at].end else None

    def common(self, addresses: Array, size_bytes: int) -> R | None:
        """The range that holds so many bytes from each of these addresses on, if one does: nearly always one does.

        The range used last is tried first.
        """
        if not addresses.size:
            return None
        low = high = int(addresses[0])
        if len(addresses) > 1:
            low, high = int(addresses.min()), int(addresses.max())
        one = self.recent
        if one is None or not one.start <= low < one.end:
            one = self.recent = self.find(low)
        return one if one is not None and high + size_bytes <= one.end else None

    def near(self, address: int) -> str:
        """What is mapped below an address, in words, for messages."""
        starts, ranges = self.index
        at = bisect.bisect_right(starts, address)
        if not at:
            return "nothing is mapped below it"
        last = ranges[at - 1]
        return f"the nearest mapping below is {last.name or 'unnamed'} [{last.start:#x}, {last.end:#x})"
