"""Signals of GPUs: the same cells, stamped with the GPU's own counter, and how that becomes nanoseconds.

In       ticks of the GPU's counter
Out      nanoseconds on the clock of time.monotonic_ns
Changes  nothing
Next     hcq/signal.py (what a signal is), device.py (who gives them out); each driver makes its Clock when it opens
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hcq.signal import Signal, Timeline

if TYPE_CHECKING:
    from hcq.gpu.device import GpuDevice

NS_PER_MS = 1_000_000


class Clock(NamedTuple):
    """One moment on both clocks, and how fast the GPU's goes."""

    ticks: int
    host_ns: int
    ticks_per_ms: int = NS_PER_MS

    def to_ns(self, ticks: int) -> int:
        """When that was, on the host's clock; 0 for a counter that was never written."""
        return self.host_ns + self.duration_ns(ticks - self.ticks) if ticks else 0

    def to_ticks(self, host_ns: int) -> int:
        return self.ticks + (host_ns - self.host_ns) * self.ticks_per_ms // NS_PER_MS

    def duration_ns(self, ticks: int) -> int:
        return ticks * NS_PER_MS // self.ticks_per_ms


class GpuSignal(Signal):
    """A cell whose timestamp the GPU wrote in ticks."""

    device: GpuDevice

    @property
    def timestamp_ns(self) -> int:
        return self.device.clock.to_ns(self._cell[1])


class GpuTimeline(GpuSignal, Timeline):
    """The device's timeline."""
