"""The GPU's clock: how ticks of its counter become nanoseconds.

In       ticks, as Timestamp commands and signals store them
Out      nanoseconds on the clock of time.monotonic_ns
Next     device.py (moment_ns, duration_ns); each driver makes its Clock when it opens
"""

from __future__ import annotations

from typing import NamedTuple

NS_PER_MS = 1_000_000


class Reading(NamedTuple):
    """What the GPU's counter showed between two looks at the host's clock."""

    ticks: int
    before_ns: int
    after_ns: int

    @property
    def host_ns(self) -> int:
        """The middle: it is at most half of the distance off."""
        return (self.before_ns + self.after_ns) // 2

    @property
    def took_ns(self) -> int:
        """The distance."""
        return self.after_ns - self.before_ns


class Clock(NamedTuple):
    """One moment on both clocks, and how fast the GPU's goes."""

    ticks: int
    host_ns: int
    ticks_per_ms: int = NS_PER_MS

    def to_ns(self, ticks: int) -> int:
        """When that was, on the host's clock; 0 for a counter that was never written."""
        return self.host_ns + self.duration_ns(ticks - self.ticks) if ticks else 0

    def to_ticks(self, host_ns: int) -> int:
        """What the GPU's counter showed, or will show, at a moment of the host's clock."""
        return self.ticks + (host_ns - self.host_ns) * self.ticks_per_ms // NS_PER_MS

    def duration_ns(self, ticks: int) -> int:
        """How long so many ticks are, in nanoseconds."""
        return ticks * NS_PER_MS // self.ticks_per_ms
