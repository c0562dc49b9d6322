"""Dead devices: how a device stops for good, which calls it still answers then, and its state in a child of fork.

In       why it is dead: closed, the process ends, the process is a fork of the one that opened it
Out      one clear error from every method of the device, its buffers, queues and programs
Changes  `dead`, which every method tests
Next     recovery.py (its states), open_devices.py (the caller), cpu/fork.py (the CPU device in a child)

    open ---close, exit---> dead, stopped ---no references are left---> its memory is unmapped
    open ---fork----------> in the child: a GPU is dead: its queues and memory belong to the parent. The CPU device
                            sleeps: the child has a copy of everything but its threads, and starts new ones
"""

from __future__ import annotations

import threading

from hcq.base import Base
from hcq.errors import UsageError
from hcq.system.port import RecordingPort

CLOSED = "it was closed"
ENDING = "this process is ending"
FORKED = "this process is a fork of the one that opened it"


class Mortal(Base):
    """The part of a device that knows whether it may be used."""

    def die(self, why: str) -> None:
        """From now on every verb refuses."""
        self.dead = why

    def come_alive(self) -> None:
        """Undo `die`."""
        self.dead = ""

    def check_alive(self) -> None:
        """Raises UsageError when this device cannot be used any more."""
        if self.dead and not self.revive():
            raise UsageError(f"{self.name} cannot be used: {self.dead}. {self._advice()}")

    def check_readable(self) -> None:
        """Raises UsageError when what its memory holds cannot be read any more."""
        self.check_alive()

    def _advice(self) -> str:
        again = f"Open it again with hcq.open({self.name!r})"
        if self.dead == CLOSED:
            return f"{again}; what its memory held went with it."
        if self.dead == FORKED:
            return (
                f"{again} to have one of this process's own. Its memory stays with the parent: read it, or move it to "
                'the CPU, before the fork; or start the process with multiprocessing\'s "spawn".'
            )
        if self.dead == ENDING:
            return "Nothing can be computed any more: join threads before the program ends."
        return f"{again}."

    # ------------------------------------------------------------ fork

    def hold_still(self, end: float) -> None:
        """Before a fork: no work in flight and no lock held, if that can be had until `end` on time.monotonic."""

    def let_go(self) -> None:
        """After a fork, in the parent: go on."""

    def inherit(self) -> bool:
        """After a fork, in the child. False when nothing of the device is of use there."""
        self.forget_parent()
        for signal in list(self.signals.values()):
            signal.move_elsewhere()  # the memory may not even be mapped here
        self.memory.abandon()
        self.die(FORKED)
        return False

    def revive(self) -> bool:
        """In a child that inherited the device: make it work. False when it cannot."""
        return False

    def forget_parent(self) -> None:
        """In a child: nobody else is here, so locks are free; who observes is the parent's."""
        self.lock = threading.RLock()
        self.observers = ()
        while isinstance(self.port, RecordingPort):
            self.port = self.port.inner
