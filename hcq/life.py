"""Life: how a device dies, what a dead one still answers, and what becomes of it in a child of fork.

In       why it is dead: closed, the process ends, the process is a fork of the one that opened it
Out      one clear error from every verb of it and of what belongs to it
Changes  the verbs of the device, in this one object: a live device pays nothing for the question
Next     device.py (what a live one does), open_devices.py (who decides), cpu/fork.py (what lives on in a child)

    open ---close, exit---> dead, stopped ---nobody holds it or its signals---> its memory is unmapped
    open ---fork----------> in the child: a GPU is dead, for its queues and memory are the parent's; the CPU device
                            sleeps, for the child has a copy of all of it but the threads, and starts its own
"""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from hcq.errors import UsageError
from hcq.port import RecordingPort

if TYPE_CHECKING:
    import weakref

    from hcq.memory import Pool
    from hcq.port import Port
    from hcq.signal import Signal

CLOSED = "it was closed"
ENDING = "this process is ending"
FORKED = "this process is a fork of the one that opened it"

# what a dead device refuses at once; everything else comes to one of these, or asks by itself
VERBS = ("alloc", "encode", "encode_dispatch", "graph", "load", "queue", "signal")


class Mortal(ABC):
    """The part of a device that knows whether it may be used.

    dead        why it may not, or ""
    is_open     it opened, and was not closed
    is_stopped  nothing of it runs any more: its memory may be unmapped
    """

    name: str
    port: Port
    memory: Pool
    signals: weakref.WeakValueDictionary[int, Signal]
    unmaps_anywhere = False  # in destructors, too: no kernel driver is asked
    is_open = False
    is_stopped = False
    dead = ""

    @abstractmethod
    def choose_alloc(self) -> None:
        """Give the device its `alloc`."""

    def die(self, why: str) -> None:
        """From now on every verb refuses."""
        self.dead = why
        for verb in VERBS:
            setattr(self, verb, functools.partial(self._refuse, verb))

    def come_alive(self) -> None:
        """Undo `die`."""
        for verb in VERBS:
            self.__dict__.pop(verb, None)
        self.choose_alloc()
        self.dead = ""

    def check_alive(self) -> None:
        """Raises UsageError when this device cannot be used any more."""
        if self.dead and not self.revive():
            raise UsageError(f"{self.name} cannot be used: {self.dead}. {self._advice()}")

    def _refuse(self, verb: str, *args: Any, **keywords: Any) -> Any:
        self.check_alive()
        return getattr(self, verb)(*args, **keywords)  # it has come alive

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

    def hold_still(self, end: float) -> None:  # noqa: B027
        """Before a fork: no work in flight and no lock held, if that can be had until `end` on time.monotonic."""

    def let_go(self) -> None:  # noqa: B027
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
        """In a child: nobody else is here, so locks are free; the trace and the rules are the parent's."""
        self.lock = threading.RLock()
        self.trace: Any = None
        self.validator: Any = None
        self.waits: Any = {}
        while isinstance(self.port, RecordingPort):
            self.port = self.port.inner


class Elsewhere:
    """Stands for a cell that this process cannot see: the signal belongs to its parent."""

    def __init__(self, device: Mortal) -> None:
        self.device = device

    def __getitem__(self, index: int) -> int:
        self.device.check_alive()
        raise AssertionError("only the dead have cells elsewhere")
