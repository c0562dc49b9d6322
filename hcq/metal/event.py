"""Signals on Metal: each is a shared event, which the GPU sets and awaits, and whose value the host asks for.

In       a device's runtime; values
Out      EventCell: what a Signal reads its value and its time from
Changes  shared events
Next     hcq/signal.py (what a signal is), commands.py (encodeSignalEvent, encodeWaitForEvent)

A shared event has a value and no time, so the time is when the host set it, or first saw it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from hcq.metal.abi import messages
from hcq.metal.objc import Objc

EVERYTHING = 2**64 - 1  # no wait is for more


class EventCell:
    """The two words of a signal: value and time, as hcq/signal.py indexes them. The event is ours until nobody holds
    it."""

    def __init__(self, objc: Objc, device: int) -> None:
        self._pid = os.getpid()
        self.objc, self.device = objc, device
        self.event = objc.make(device, messages.NEW_SHARED_EVENT)
        self._seen = self._time_ns = 0

    def __getitem__(self, index: int) -> int:
        value = int(self.objc.send(self.event, messages.SIGNALED_VALUE))
        if value != self._seen:
            self._seen, self._time_ns = value, time.monotonic_ns()
        return self._time_ns if index else value

    def __setitem__(self, index: int, value: int) -> None:
        """Set the value, from the host; the time comes with it."""
        if index == 0:
            self._seen, self._time_ns = value, time.monotonic_ns()
            self.objc.send(self.event, messages.SET_SIGNALED_VALUE, value)

    def wait(self, value: int, timeout_ms: int) -> int:
        """Sleep until it is at least `value`, at most so long. Returns what it is then."""
        self.objc.send(self.event, messages.WAIT_SIGNALED, value, timeout_ms)
        return self[0]

    def leave(self) -> None:
        """Let go whoever waits for it, whatever for, and be another event, with the value there was."""
        old = self.event
        before = int(self.objc.send(old, messages.SIGNALED_VALUE))
        self.event = self.objc.make(self.device, messages.NEW_SHARED_EVENT)
        self.objc.send(self.event, messages.SET_SIGNALED_VALUE, before)
        self.objc.send(old, messages.SET_SIGNALED_VALUE, EVERYTHING)
        self.objc.release(old)

    def close(self) -> None:
        """Give the event back; command buffers in flight keep it for themselves."""
        event, self.event = self.event, 0
        if event:
            self.objc.release(event)

    # bound here, for at the interpreter's end the names of modules are gone
    def __del__(
        self, pid_now: Callable[[], int] = os.getpid, is_finalizing: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        is_here = not is_finalizing() and pid_now() == self._pid  # a child of fork has no Metal
        if is_here and getattr(self, "event", False):
            self.close()


class TimelineCell(EventCell):
    """The timeline's: a submission counts once its command buffers say that they are completed, without an error.

    confirm   of a value of the event, how much of it is so
    """

    def __init__(self, objc: Objc, device: int, confirm: Callable[[int], int]) -> None:
        super().__init__(objc, device)
        self.confirm = confirm

    def __getitem__(self, index: int) -> int:
        found = super().__getitem__(index)
        return found if index else self.confirm(found)
