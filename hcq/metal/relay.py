"""Relay: signals between Metal and other devices, whose queues see memory and no events, carried by the host.

In       what a submission waits for of other devices, and which signals of ours others look at
Out      an event that the queue waits for in the place of other devices' signals
Changes  that event; memory where others look; a thread, made when it is first needed
Next     commands.py (who encodes the waits), event.py (cells that are shown), device.py (what ends when)

A wait for another device's signal gets the next number, and the queue waits until the event has that number. The host
raises it when it has seen the signal at its value: from then on that wait counts as over, though the signal may be set
back before the queue is there. Numbers only rise, whatever becomes of the signals, so an event is enough for all of
them; and since the queue takes its work in order, a number is raised only with all those before it.

The thread sleeps while nobody waits. While somebody does it looks again and again, the more rarely the longer nothing
happens: a wait gets longer by a quarter, or by 2 ms.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hcq.metal.event import EventCell
from hcq.metal.objc import Objc
from hcq.signal import Signal
from hcq.work.awaited_signals import shortfall

LEAST_SECONDS, MOST_SECONDS = 0.00005, 0.002  # between two looks


class Expected(NamedTuple):
    """A wait for another device's signal, which the queue sees as a number."""

    number: int
    signal: Signal
    value: int

    def __str__(self) -> str:
        return shortfall(self.signal, self.value)


class Followed(NamedTuple):
    """A signal of ours that a submission sets, and others look at."""

    cell: EventCell
    generation: int
    value: int


class Relay:
    """Carries values for one device, from its first submission that needs it until it closes.

    event    what the queue waits for
    failure  why a wait is given up: its deadline has passed, or the other device is gone; the device fails then
    """

    def __init__(self, objc: Objc, gpu: int, timeout_ms: float, progress: Callable[[], int]) -> None:
        """progress: how many submissions are done; while that rises nobody is late."""
        self.event = EventCell(objc, gpu)
        self.failure = ""
        self._objc, self._timeout_ms, self._progress = objc, timeout_ms, progress
        self._numbers = 0
        self._expected: list[Expected] = []
        self._followed: list[Followed] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._moved_at = 0.0
        self._done = 0

    def expect(self, signal: Signal, value: int) -> Expected:
        """A number for a wait. It counts from `begin` on."""
        self._numbers += 1
        return Expected(self._numbers, signal, value)

    def begin(self, expected: Sequence[Expected], followed: Sequence[tuple[EventCell, int]]) -> None:
        """A submission is about to be made that waits for these, and sets those."""
        if not expected and not followed:
            return
        with self._changed:
            self._expected += expected
            self._followed += [Followed(cell, cell.generation, value) for cell, value in followed]
            self._moved_at = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="hcq metal relay", daemon=True)
                self._thread.start()
            self._changed.notify()

    def cancel(self, expected: Sequence[Expected], followed: Sequence[tuple[EventCell, int]]) -> None:
        """That submission was not made."""
        with self._changed:
            self._expected = [one for one in self._expected if one not in expected]
            self._followed = [one for one in self._followed if (one.cell, one.value) not in followed]

    def abandon(self) -> None:
        """Work in flight is given up: what it waits for is no longer looked for, and what it sets nobody sees."""
        with self._changed:
            self._expected.clear()
            self._followed.clear()
            self.failure = ""
            self.event.leave()

    def close(self, timeout_ms: float) -> bool:
        """End the thread; False when it does not end in time."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)
            if self._thread.is_alive():
                return False
        self.event.close()
        return True

    # ------------------------------------------------------------ the thread

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._expected or self._followed or self._is_closing) or self.failure:
                    if self._is_closing:
                        return
                    self._changed.wait()
                if self._is_closing:
                    return
            has_moved = False
            try:
                with self._objc.pool():
                    has_moved = self._look()
            except Exception as error:  # the thread would end, and nobody would know why the queue waits
                self.failure = f"signals of other devices could not be carried on: {error}"
            with self._changed:
                now = time.monotonic()
                if has_moved:
                    self._moved_at = now
                elif self._expected or self._followed:
                    quarter = (now - self._moved_at) / 4
                    self._changed.wait(min(max(quarter, LEAST_SECONDS), MOST_SECONDS))

    def _look(self) -> bool:
        """Carry on what is there. Returns whether anything was."""
        with self._changed:
            followed, expected = list(self._followed), list(self._expected)
        seen = [one for one in followed if one.cell.generation != one.generation or self._publish(one)]
        reached = 0
        while reached < len(expected) and expected[reached].signal._cell[0] >= expected[reached].value:
            reached += 1
        with self._changed:
            gone = {id(one) for one in seen}
            self._followed = [one for one in self._followed if id(one) not in gone]
            # nobody has given it up meanwhile
            is_wanted = bool(expected) and self._expected[:1] == expected[:1]
            if reached and is_wanted:
                del self._expected[:reached]
                self.event[0] = expected[reached - 1].number
            elif is_wanted:
                self._judge(expected[0])
        return bool(seen or reached)

    def _publish(self, one: Followed) -> bool:
        return one.cell.publish() >= one.value

    def _judge(self, one: Expected) -> None:
        """Whether to go on waiting."""
        owner: Any = one.signal.device
        if owner.dead:
            self.failure = f"it waits for {one}, and {owner.name} cannot be used: {owner.dead}"
        elif time.monotonic() - self._moved_at > self._timeout_ms / 1000:
            done = self._progress()
            if done != self._done:
                self._done, self._moved_at = done, time.monotonic()
            else:
                self.failure = f"it has waited {self._timeout_ms:g} ms for {one}"
