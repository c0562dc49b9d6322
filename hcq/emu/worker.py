"""The thread of an emulated GPU: it gives queues their turns, and lets the threads of the process in between.

In       what is ready to run, and one step of it, from a subclass
Out      steps run while there is something to run on
Changes  what the steps change
Next     amd/gpu.py (queues), nv/gpu.py (channels)

The thread runs while the GPU is in use. It looks often while there is work, and rarely when there is none; kick() makes
it look at once. With a seed turns are short and in random order, with pauses between them.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")

BURST = 64  # steps of one queue before the next has its turn
BUSY_SECONDS = 0.01  # for so long after the last work, doorbells are watched closely
BUSY_POLL_SECONDS, IDLE_POLL_SECONDS = 0.0001, 0.002
MAX_PAUSE_SECONDS = 0.0005


class Worker(ABC, Generic[T]):
    """A GPU's thread. T is what has turns: a queue, a channel. `random` draws their order; None: as they come."""

    def __init__(self, arch: str, random: Random | None) -> None:
        self.random = random
        self.lock = threading.RLock()
        self._arch = arch
        self._wake = threading.Event()
        self._visitors = 0  # threads that want the lock
        self._door = threading.Lock()  # of that count
        self._thread: threading.Thread | None = None

    @abstractmethod
    def is_used(self) -> bool:
        """Whether the thread is needed."""

    @abstractmethod
    def ready(self) -> list[T]:
        """What may have a turn now."""

    @abstractmethod
    def step(self, one: T) -> bool:
        """Do one piece of its work. False when there is none, or when it has to wait."""

    def kick(self) -> None:
        """Look at the doorbells now."""
        self._wake.set()

    @contextmanager
    def visit(self) -> Iterator[None]:
        """The GPU's lock for another thread: the GPU's own ends its burst. Afterwards the thread runs if it has to."""
        with self._door:
            self._visitors += 1
        try:
            with self.lock:
                yield
                if self._thread is None and self.is_used():
                    self._thread = threading.Thread(
                        target=self._main, name=f"emulated {self._arch}", daemon=True
                    )
                    self._thread.start()
        finally:
            with self._door:
                self._visitors -= 1

    def let_in(self) -> None:
        """In the middle of a long step: threads that visit have their turn now. For the GPU's own thread."""
        while self._visitors:
            self.lock.release()
            time.sleep(0.00005)
            self.lock.acquire()

    def _main(self) -> None:
        last = time.monotonic()
        while True:
            if self._visitors:
                time.sleep(0.00005)
            with self.lock:
                if not self.is_used():
                    self._thread = None
                    return
                self._wake.clear()
                worked = self._turn()
            now = time.monotonic()
            if worked:
                last = now
            if self.random is not None and self.random.random() < 0.1:
                time.sleep(self.random.random() * MAX_PAUSE_SECONDS)
            if not worked:
                self._wake.wait(BUSY_POLL_SECONDS if now - last < BUSY_SECONDS else IDLE_POLL_SECONDS)

    def _turn(self) -> bool:
        ready = self.ready()
        burst = BURST
        if self.random is not None:
            self.random.shuffle(ready)
            burst = self.random.randrange(1, 4)
        worked = False
        for one in ready:
            for _ in range(burst):
                if self._visitors or not self.step(one):
                    break
                worked = True
        return worked
