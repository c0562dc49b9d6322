"""Signals of AMD GPUs: the same cells, stamped with the GPU's own counter, and how that becomes nanoseconds.

In       ticks of the GPU's counter
Out      nanoseconds on the clock of time.monotonic_ns
Changes  nothing
Next     hcq/signal.py (what a signal is), device.py (who makes the Clock)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hcq.memory import Buffer
from hcq.signal import Signal, Timeline

if TYPE_CHECKING:
    from hcq.amd.device import AmdDevice
    from hcq.trace.writer import DeviceTrace


class Clock(NamedTuple):
    """One moment on both clocks, and how fast the GPU's goes."""

    ticks: int
    host_ns: int
    ticks_per_ms: int

    def to_ns(self, ticks: int) -> int:
        """When that was, on the host's clock; 0 for a counter that was never written."""
        return self.host_ns + (ticks - self.ticks) * 1_000_000 // self.ticks_per_ms if ticks else 0

    def to_ticks(self, host_ns: int) -> int:
        return self.ticks + (host_ns - self.host_ns) * self.ticks_per_ms // 1_000_000


class AmdSignal(Signal):
    """A cell whose timestamp the GPU wrote in ticks."""

    device: AmdDevice

    @property
    def timestamp_ns(self) -> int:
        return self.device.clock.to_ns(self._cell[1])


class AmdTimeline(AmdSignal, Timeline):
    """The device's timeline."""


def tell_cells(device: AmdDevice, trace: DeviceTrace) -> None:
    """Name the driver's own cells in a trace: those between the rings, and where writing raises the event."""
    encoder = device.encoder
    for name, va in (("relay", encoder.relay_va), ("order", encoder.order_va), ("event", encoder.slot_va)):
        cell = Buffer(device, va, 8, 8, 0, name)
        cell.parent = cell  # the driver's: dropping it gives nothing to the pool
        trace.alloc(cell)
