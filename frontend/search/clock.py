"""Clocks: how long a launch takes, for a search.

In       a device, a program and its arguments
Out      nanoseconds: by the device's own timeline, or by a model
Changes  runs the program
Next     bench.py (who asks), hcq/queue.py (timestamps)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Protocol

from hcq.base import Grid

STAMP_BYTES = 8


class Clock(Protocol):
    """How time is told."""

    by: str  # one of compiler/search/results.py's METHODS

    def time(self, program: Any, buffers: Sequence[Any], grid: Grid, block: Grid) -> float:
        """Nanoseconds of one launch, which is done when this returns."""

    def runs(self, wanted: int) -> int:
        """How often to ask, of so many times: once, where all answers are one."""


class Timeline:
    """The device's clock, read by the device before and after the launch."""

    by = "timeline"

    def __init__(self, device: Any) -> None:
        self.device = device
        self.stamps = device.alloc(2 * STAMP_BYTES)

    def time(self, program: Any, buffers: Sequence[Any], grid: Grid, block: Grid) -> float:
        queue = self.device.queue().timestamp(self.stamps)
        queue.dispatch(program, list(buffers), grid, block).timestamp(self.stamps, STAMP_BYTES)
        queue.submit().wait()
        begin, end = struct.unpack("<2Q", self.stamps.read())
        return float(self.device.duration_ns(end - begin))

    def runs(self, wanted: int) -> int:
        return wanted


def clock_of(device: Any) -> Clock:
    """The clock of a device."""
    return Timeline(device)
