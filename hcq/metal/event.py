"""Signals on Metal: each is a shared event, which the GPU sets and awaits, and whose value the host asks for.

In       a device's runtime; values
Out      EventCell: what a Signal reads its value and its time from
Changes  shared events
Next     hcq/signal.py (what a signal is), commands.py (encodeSignalEvent, encodeWaitForEvent)

A shared event has a value and no time, so the time is when the host set it, or first saw it. Its value only rises:
Metal ignores a smaller one, the host's as well as a queue's. When the host sets less, a signal becomes another event,
which the device allows while nothing in flight names the old one. When a queue is to set less, what is encoded from
there on names another event, and the signal becomes that once it has a value.

Other devices see no events, but memory: a cell that is shown to them has its value there, too. The host writes what it
sets itself, and what a queue sets once it sees that (relay.py).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from hcq.metal.abi import messages
from hcq.metal.objc import Objc
from hcq.system import native

EVERYTHING = 2**64 - 1  # no wait is for more


class EventCell:
    """The two words of a signal: value and time, as hcq/signal.py indexes them. The event is ours until nobody holds
    it.

    asked       the last value that a submission was to set it to, or that the host set it to
    generation  how often the host made it another event
    """

    def __init__(self, objc: Objc, device: int) -> None:
        self._pid = os.getpid()
        self.objc, self.device = objc, device
        self.event = objc.make(device, messages.NEW_SHARED_EVENT)
        self._seen = self._time_ns = 0
        self._lock = threading.Lock()  # of the event: nobody asks one that was given back
        self.asked = self.generation = 0
        self._later: list[int] = []  # events that it becomes, one after the other, once a queue has set them
        self._shown: memoryview | None = None  # where other devices look
        # what is written there is what the event says, and not what it said before
        self._showing = threading.RLock()

    def __getitem__(self, index: int) -> int:
        value = self.signaled
        if value != self._seen:
            self._seen, self._time_ns = value, time.monotonic_ns()
        return self._time_ns if index else value

    @property
    def signaled(self) -> int:
        """What the event says."""
        with self._lock:
            while self._later and self.objc.send(self._later[0], messages.SIGNALED_VALUE):
                self.objc.release(self.event)
                self.event = self._later.pop(0)
            return int(self.objc.send(self.event, messages.SIGNALED_VALUE))

    @property
    def encoded(self) -> int:
        """The event that a queue names from here on."""
        with self._lock:
            return self._later[-1] if self._later else self.event

    def fall(self) -> None:
        """A queue is to set less: what it names from here on is another event."""
        made = self.objc.make(self.device, messages.NEW_SHARED_EVENT)
        with self._lock:
            self._later.append(made)

    def __setitem__(self, index: int, value: int) -> None:
        """Set the value, from the host; the time comes with it. For less than there is, be another event."""
        if index == 0:
            with self._showing:
                if value < self.signaled:
                    self.objc.release(self._renew(value))
                    self.asked = value
                self.asked = max(self.asked, value)
                self._seen, self._time_ns = value, time.monotonic_ns()
                self.objc.send(self.event, messages.SET_SIGNALED_VALUE, value)
                self._show(value)

    # ------------------------------------------------------------ for other devices

    @property
    def is_shown(self) -> bool:
        """Whether its value is in memory, too."""
        return self._shown is not None

    def show_at(self, va: int, size_bytes: int, owner: object) -> None:
        """From here on keep the value in memory, too. owner: keeps that memory."""
        with self._showing:
            self._shown = native.view(va, size_bytes, owner).cast("Q")
            self.publish()

    def publish(self) -> int:
        """Write what the event says to where others look. Returns it."""
        with self._showing:
            value = self[0]
            self._show(value)
        return value

    def _show(self, value: int) -> None:
        if self._shown is not None and self._shown[0] != value:
            self._shown[1] = self._time_ns
            self._shown[0] = value

    def wait(self, value: int, timeout_ms: int) -> int:
        """Sleep until it is at least `value`, at most so long. Returns what it is then."""
        with self._lock:
            event = self.objc.retain(self.event)  # which another thread may give back meanwhile
        try:
            self.objc.send(event, messages.WAIT_SIGNALED, value, timeout_ms)
        finally:
            self.objc.release(event)
        return self[0]

    def leave(self) -> None:
        """Let go whoever waits for it, whatever for, and be another event, with the value there was.

        Other devices see that value, and nothing that comes of the old event.
        """
        with self._showing:
            value = self.signaled
            with self._lock:
                left, self._later = self._later, []
            left.append(self._renew(value))
            self._show(value)
        for old in left:
            self.objc.send(old, messages.SET_SIGNALED_VALUE, EVERYTHING)
            self.objc.release(old)

    def _renew(self, value: int) -> int:
        """Be another event, with this value. Returns the one it was, to be released."""
        made = self.objc.make(self.device, messages.NEW_SHARED_EVENT)
        self.objc.send(made, messages.SET_SIGNALED_VALUE, value)
        with self._lock:
            old, self.event = self.event, made
            self.generation += 1
        return old

    def close(self) -> None:
        """Give the event back; command buffers in flight keep it for themselves."""
        event, self.event = self.event, 0
        if event:
            for one in (event, *self._later):
                self.objc.release(one)
            self._later = []

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

    def told(self) -> int:
        """What the event has, done or not."""
        return super().__getitem__(0)

    def publish(self) -> int:
        """As of any cell; it is asked first, for what `confirm` waits for must not hold up who sets it."""
        value = self[0]
        with self._showing:
            if self._shown is not None and value > self._shown[0]:
                self._show(value)
        return value
