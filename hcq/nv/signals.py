"""Signals of NVIDIA GPUs: the same cells, stamped with the GPU's own nanoseconds, and how they become the host's.

In       nanoseconds of the GPU's timer
Out      nanoseconds on the clock of time.monotonic_ns
Changes  nothing
Next     hcq/signal.py (what a signal is), device.py (who makes the Clock)
Source   clc56f.h: SEM_EXECUTE with RELEASE_TIMESTAMP writes eight bytes of value, then eight of nanoseconds
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hcq.signal import Signal, Timeline

if TYPE_CHECKING:
    from hcq.nv.device import NvDevice


class Clock(NamedTuple):
    """One moment on both clocks, which go at the same speed."""

    gpu_ns: int
    host_ns: int

    def to_ns(self, gpu_ns: int) -> int:
        """When that was, on the host's clock; 0 for a time that was never written."""
        return self.host_ns + gpu_ns - self.gpu_ns if gpu_ns else 0

    def to_gpu_ns(self, host_ns: int) -> int:
        return self.gpu_ns + host_ns - self.host_ns


class NvSignal(Signal):
    """A cell whose time the GPU wrote."""

    device: NvDevice

    @property
    def timestamp_ns(self) -> int:
        return self.device.clock.to_ns(self._cell[1])


class NvTimeline(NvSignal, Timeline):
    """The device's timeline."""
