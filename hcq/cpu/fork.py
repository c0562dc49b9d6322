"""Forks of the CPU device: the child has a copy of its memory, code and all, and starts threads of its own.

In       a device that held still while the process forked
Out      in the child the same device: buffers with their contents, programs, graphs
Changes  before the fork: waits for work in flight. In the child, when it is first used: new threads on the old ring
Next     device.py (the rest of the device), hcq/lifetime/dead_device.py (what other devices do),
         hcq/lifetime/open_devices.py (who calls)

The memory is private to each process: what parent and child write from here on, the other does not see. Work that was
in flight for too long to be waited for is finished by the parent alone; the child's copy of what it writes is marked.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any

from hcq.device import Device
from hcq.errors import UsageError
from hcq.lifetime import open_devices
from hcq.lifetime.dead_device import FORKED
from hcq.system import native

UNFINISHED = "work that was in flight when this process was forked is finished by its parent alone"
TORN = f"{FORKED}, and another thread was submitting to it meanwhile"


class Still:
    """What is held while the process forks: nobody submits or maps, so that the child's copy is whole."""

    def __init__(self, device: Device, end: float) -> None:
        self.locks: list[Any] = []
        self.is_whole = False
        for lock in (device.lock, device.memory.lock):
            if not lock.acquire(timeout=max(0.0, end - time.monotonic())):
                return
            self.locks.append(lock)
        self.is_whole = True
        device.rests_within(max(0.0, 1000 * (end - time.monotonic())))

    def let_go(self) -> None:
        """Release the locks that were taken before the fork."""
        for lock in reversed(self.locks):
            lock.release()
        self.locks.clear()


class Forkable(Device):
    """A device that goes on in a child of fork."""

    _still: Still | None = None  # while the process forks

    @abstractmethod
    def restart(self) -> None:
        """In a child: empty the ring and start threads, for there are none here."""

    @abstractmethod
    def leave_unfinished(self, why: str) -> None:
        """What is in flight counts as failed."""

    def hold_still(self, end: float) -> None:
        self._still = Still(self, end)

    def let_go(self) -> None:
        if self._still is not None:
            self._still.let_go()

    def inherit(self) -> bool:
        """In the child: the device sleeps until it is used. False when its state is torn."""
        self.forget_parent()
        self.memory.forget_parent()
        if self._still is None or not self._still.is_whole:
            self.memory.abandon()
            self.die(TORN)
            return False
        self.die(FORKED)
        return True

    def revive(self) -> bool:
        """In the child, at the first use: make it work. False when it cannot."""
        if self.dead != FORKED:
            return False
        with self.lock:
            if self.dead != FORKED:
                return not self.dead
            if open_devices.is_ending:
                raise UsageError(f"{self.name} cannot be used: this process is ending.")
            self.restart()
            self._tell_again()
            self.come_alive()
            if self.timeline.value < self.timeline.submitted:
                self.leave_unfinished(UNFINISHED)
            open_devices.register(self)
            return True

    def _tell_again(self) -> None:
        """The child's observers are its own: they are notified of everything that is there already."""
        self.observe(while_opening=True)
        for observer in self.observers:
            observer.opened()
            for va, size_bytes in self.memory.regions.items():
                observer.mapped(va, size_bytes, None)
            for buffer in self.memory.owners():
                observer.alloc(buffer.address, buffer.size_bytes, buffer.capacity, buffer.name)
                observer.wrote(buffer.address, native.view(buffer.address, buffer.size_bytes))
        self.observe(while_opening=False)
        for program, (entry, image, sources) in list(self.loaded.items()):
            for observer in self.observers:
                observer.load(program, entry, image, sources)
