"""Clocks: how long a launch takes, for a search.

In       a device, a program and its arguments
Out      nanoseconds: by the device's own timeline, or by a model
Changes  runs the program
Next     bench.py (who asks), hcq/queue.py (timestamps), hcq/performance/model/time.py (the model)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Protocol

from hcq import backends, config
from hcq.base import Grid
from hcq.errors import UsageError
from hcq.performance import counters, datasheets
from hcq.performance.counters import Counters
from hcq.performance.model.time import Estimate, estimate

STAMP_BYTES = 8
REST = 0.01  # of the time of all other parts: of two kernels that one part bounds alike, that which asks less


class Clock(Protocol):
    """How time is told."""

    by: str  # one of compiler/search/results.py's METHODS

    def time(self, program: Any, buffers: Sequence[Any], grid: Grid, block: Grid) -> float:
        """Nanoseconds of one launch, which is done when this returns."""

    def runs(self, wanted: int) -> int:
        """How often to ask, of so many times: once, where all answers are one."""


class Timeline(Clock):
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


class Model(Clock):
    """What counters of an emulated GPU say about a real one. The GPU counts for as long as this is there."""

    by = "model"

    def __init__(self, device: Any) -> None:
        chip = datasheets.for_arch(device.arch)
        if chip is None:
            raise UsageError(
                f"{device.name}: a search needs a datasheet, and there is none for {device.arch}."
            )
        self.device = device
        self.chip = chip
        self._counted: list[Counters] = []
        counters.listen(lambda pid, made: self._counted.append(made))

    def time(self, program: Any, buffers: Sequence[Any], grid: Grid, block: Grid) -> float:
        self._counted.clear()
        self.device.run(program, list(buffers), grid=grid, block=block)
        found: list[Estimate] = [estimate(made.whole(), self.chip, launched_by="") for made in self._counted]
        rest = sum(seconds for each in found for _, seconds in each.parts[1:])
        return 1e9 * (sum(each.seconds for each in found) + REST * rest)

    def runs(self, wanted: int) -> int:
        return 1


def is_emulated(device_name: str) -> bool:
    """Whether a device is an emulated one, whose own clock says how fast this machine emulates."""
    words = config.current().emulate
    return bool(words) and device_name.partition(":")[0] in backends.emulated(words)


def clock_of(device: Any) -> Clock:
    """The clock of a device. Raises UsageError for an emulated one of which no datasheet is known."""
    return Model(device) if is_emulated(device.name) else Timeline(device)
