"""Signals: a value and a timestamp in memory; one side writes them, the other waits. Values of a timeline only rise.

In       a 16-byte cell that host and device both see
Out      waits with a deadline and a reason; a Timeline numbers submissions; a Completion stands for one of them
Changes  the cell, when the host sets it
Next     device.py (the timeline: one value for each submission), queue.py (device-side waits and signals)
"""

from __future__ import annotations

import time
from typing import Any

from hcq import checks
from hcq.base import Base
from hcq.errors import WaitTimeout
from hcq.memory import Buffer
from hcq.system import native

CELL_BYTES = 16
SLICE_NS = 100_000_000  # a wait returns to Python this often, so that Ctrl-C works and faults are seen


class Elsewhere:
    """Stands for a cell that this process cannot see: the signal belongs to its parent."""

    def __init__(self, device: Base) -> None:
        self.device = device

    def __getitem__(self, index: int) -> int:
        self.device.check_alive()
        raise AssertionError("only devices of the parent process have such cells")


class Signal:
    """A number and a timestamp in 16 bytes that host and device both see. What its values mean is up to who uses it.

    name  how messages, reports and traces call it
    va    the device address of the cell

    >>> dev = hcq.open("CPU")
    >>> ready = dev.signal("ready")
    >>> done = dev.queue().wait(ready, 1).signal(ready, 2).submit()
    >>> ready.set(1)
    >>> ready.wait(2, timeout_ms=1000)
    >>> ready.value
    2
    """

    def __init__(self, device: Base, buffer: Buffer, name: str = "signal") -> None:
        self.device = device
        self.buffer = buffer
        self.name = name
        self.va = buffer.address
        self._cell: Any = native.view(self.va, CELL_BYTES, buffer).cast("Q")
        self._cell[0] = self._cell[1] = 0
        device.signals[self.va] = self
        if device.is_open:
            for observer in device.observers:
                observer.cell(self.va, name)

    @property
    def value(self) -> int:
        """What the cell holds now, read without waiting; 0 after it was made."""
        value: int = self._cell[0]
        for observer in self.device.observers:
            observer.host_saw(self.va, value)
        return value

    @property
    def timestamp_ns(self) -> int:
        """When the value was stored, on the clock of time.monotonic_ns."""
        return self.device.moment_ns(self._cell[1])

    def set(self, value: int) -> None:
        """Store a value, a whole number from 0, from the host and wake those that wait, on either side."""
        value = checks.whole(f"{self.name}.set", "value", value)
        if self.device.dead:
            self.device.check_alive()
        self.device.signal_set(self.va, value)
        for observer in self.device.observers:
            observer.host_set(self.va, value, self.timestamp_ns)

    def wait(self, value: int, timeout_ms: float | None = None) -> None:
        """Return once the value is at least `value`.

        timeout_ms  deadline; default HCQ_TIMEOUT_MS; 0 asks once
        Raises      WaitTimeout naming the signal, what was awaited and what was seen; UsageError when the device
                    cannot be used
        """
        value = checks.whole(f"{self.name}.wait", "value", value)
        if timeout_ms is not None:
            timeout_ms = checks.milliseconds(f"{self.name}.wait", timeout_ms)
        self.device.wait_cell(self, value, timeout_ms)

    def timeout(self, value: int, timeout_ms: float, why: str) -> WaitTimeout:
        """The error for a wait that took too long."""
        return WaitTimeout(
            f"signal {self.name}@{self.va:#x} of {self.device.name}: waited {timeout_ms:g} ms for {value}, saw "
            f"{self.value}. {why}"
        )

    def move_elsewhere(self) -> None:
        """In a child of fork: the cell is the parent's, and asking for it is refused."""
        self._cell = Elsewhere(self.device)

    def __repr__(self) -> str:
        value = "?" if isinstance(self._cell, Elsewhere) else self._cell[0]
        return f"Signal({self.name}@{self.va:#x}, value={value})"


class Timeline(Signal):
    """The signal that numbers a device's submissions: `submitted` is the last one made, `value` the last one done."""

    submitted = 0

    def has_reached(self, value: int) -> bool:
        """Whether a submission is done, and the cell holds what a device can have written there."""
        now: int = self._cell[0]
        for observer in self.device.observers:
            observer.host_saw(self.va, now)
        return value <= now <= self.submitted

    def found_done(self) -> None:
        """The host saw that work was done, and gives other devices what need not wait for it: observers are told."""
        for observer in self.device.observers:
            observer.waited(self.va, self.name, self._cell[0], self.timestamp_ns, 0)

    @property
    def has_all_done(self) -> bool:
        """Whether nothing is in flight; for destructors, so observers are not notified."""
        return bool(self._cell[0] >= self.submitted)

    @property
    def is_elsewhere(self) -> bool:
        """Whether it belongs to the parent of this process."""
        return isinstance(self._cell, Elsewhere)

    @property
    def is_ahead(self) -> bool:
        """Whether the cell says that more is done than was submitted: then something has overwritten it."""
        return bool(self._cell[0] > self.submitted)

    def next(self) -> int:
        """The next submission's number. The caller holds the device's lock."""
        self.submitted += 1
        return self.submitted


class Completion:
    """One submission, to be waited for.

    device  where it runs
    value   its number on the device's timeline
    """

    __slots__ = ("device", "value")

    def __init__(self, device: Base, value: int) -> None:
        self.device = device
        self.value = value

    @property
    def is_done(self) -> bool:
        """Whether the work has been finished, successfully or not; asks without waiting."""
        return self.device.timeline.has_reached(self.value)

    def wait(self, timeout_ms: float | None = None) -> None:
        """Return once the work is done.

        timeout_ms  deadline; default HCQ_TIMEOUT_MS; 0 asks once
        Raises      WaitTimeout naming what was waited for; DeviceFault when this submission failed
        """
        if timeout_ms is not None:
            timeout_ms = checks.milliseconds("wait", timeout_ms)
        self.device.wait_value(self.value, timeout_ms)

    def __repr__(self) -> str:
        if self.device.timeline.is_elsewhere:
            return f"Completion({self.device.name} #{self.value}, of the parent process)"
        return f"Completion({self.device.name} #{self.value}, {'done' if self.is_done else 'pending'})"


def deadline(timeout_ms: float) -> float:
    """The moment, on time.monotonic, at which a wait gives up."""
    return time.monotonic() + timeout_ms / 1000
