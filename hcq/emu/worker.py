"""The thread of an emulated GPU: it gives queues their turns, and lets the threads of the process in between.

In       what is ready to run, and one step of it, from a subclass
Out      steps run while there is something to run on
Changes  what the steps change
Next     amd/gpu.py (queues), nv/gpu.py (channels)

The thread runs while the GPU is in use. It looks often while there is work, and rarely when there is none; kick() makes
it look at once. With a seed turns are short and in random order, with pauses between them.

A step that lasts, a kernel, pauses now and then, so that one that waits for what another queue does gets it. Then its
thread stops in the middle of the step, and another thread gives turns from there on: this one's turn is to go on.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Generic, TypeVar

from hcq.emu import heap

T = TypeVar("T")

BURST = 64  # steps of one queue before the next has its turn
BUSY_SECONDS = 0.01  # for so long after the last work, doorbells are watched closely
BUSY_POLL_SECONDS, IDLE_POLL_SECONDS = 0.0001, 0.002
MAX_PAUSE_SECONDS = 0.0005


class _Paused:
    """A thread that stopped in the middle of a step: it goes on when it has its turn, to the next pause or the end."""

    def __init__(self) -> None:
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done = False
        self.worked = False

    def go_on(self) -> None:
        """Give it its turn. From the thread that gives turns."""
        self._go.release()
        self._back.acquire()

    def wait(self) -> None:
        """Wait for the next turn. From its own thread."""
        self._go.acquire()

    def stop(self) -> None:
        """The turn is over. From its own thread."""
        self._back.release()


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
        self._paused: dict[T, _Paused] = {}

    @abstractmethod
    def is_used(self) -> bool:
        """Whether the thread is needed."""

    @abstractmethod
    def ready(self) -> list[T]:
        """What may have a turn now."""

    @abstractmethod
    def step(self, one: T) -> bool:
        """Do one piece of its work. False when there is none, or when it has to wait."""

    def wants(self, one: T) -> bool:
        """Whether it has work, as far as that is quickly seen."""
        return True

    def is_held(self, one: T) -> bool:
        """Whether it has to stop in the middle of a step: it is no longer ready, and not about to end either."""
        return False

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
                    self._start()
        finally:
            with self._door:
                self._visitors -= 1

    def pause(self, one: T) -> None:
        """In the middle of its step: let others that have work take turns, and visitors in."""
        paused = self._paused.get(one)
        if paused is not None:
            paused.stop()
            paused.wait()
            return
        while self._visitors:
            self.lock.release()
            time.sleep(0.00005)
            self.lock.acquire()
        if self.is_held(one) or any(self.wants(other) for other in self.ready() if other != one):
            paused = self._paused[one] = _Paused()
            self._start()
            self.lock.release()
            paused.wait()

    def is_paused(self, one: T) -> bool:
        """Whether it is in the middle of a step."""
        return one in self._paused

    def go_on(self, one: T) -> bool:
        """Go on with a step that paused. Returns what the step returns; True when it pauses again. Under the lock."""
        paused = self._paused[one]
        paused.go_on()
        return paused.worked if paused.is_done else True

    def _start(self) -> None:
        heap.keep_freed()
        self._thread = threading.Thread(target=self._main, name=f"emulated {self._arch}", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        last = time.monotonic()
        while True:
            if self._visitors:
                time.sleep(0.00005)
            self.lock.acquire()
            try:
                if not self.is_used() and not self._paused:
                    self._thread = None
                    return
                self._wake.clear()
                worked = self._turn()
            finally:
                if self._gives_turns():
                    self.lock.release()
            if not self._gives_turns():
                return
            now = time.monotonic()
            if worked:
                last = now
            if self.random is not None and self.random.random() < 0.1:
                time.sleep(self.random.random() * MAX_PAUSE_SECONDS)
            if not worked:
                self._wake.wait(BUSY_POLL_SECONDS if now - last < BUSY_SECONDS else IDLE_POLL_SECONDS)

    def _gives_turns(self) -> bool:
        """Whether this thread still does: a step of its paused, and another has given turns since."""
        return self._thread is None or self._thread.ident == threading.get_ident()

    def _turn(self) -> bool:
        ready = self.ready()
        burst = BURST
        if self.random is not None:
            self.random.shuffle(ready)
            burst = self.random.randrange(1, 4)
        worked = False
        for one in ready:
            if one in self._paused:
                worked = self.go_on(one) or worked
            else:
                worked = self._burst(one, burst) or worked
            if not self._gives_turns():
                break
        return worked

    def _burst(self, one: T, count: int) -> bool:
        """Its next steps. If one of them paused, its end is this thread's: another gives turns."""
        worked = False
        try:
            while count and not self._visitors and self.step(one):
                worked = True
                count = count - 1 if self._gives_turns() else 0
        finally:
            if not self._gives_turns():
                paused = self._paused.pop(one)
                paused.worked, paused.is_done = worked, True
                paused.stop()
        return worked
