"""Engine: a thread that runs a batch for whoever asks, from any thread.

In       what is asked for: prompts with their samplers, a job for each
Out      each job's tokens as they are chosen, and how it ended
Changes  one thread; the batch, which nobody else touches
Next     batch.py (a step), server.py (who asks)

A job that waits joins when a slot is free, in the order of asking. One that is given up leaves before the next step.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from hcq.errors import HcqError
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.batch import Batch, Written
from hcq.frontend.more.llm.chances import Chance
from hcq.frontend.more.llm.sampling import Sampler

STOPPING = "[llm] the server is stopping."
LOOK_SECONDS = 0.2  # how often whoever waits for a token looks whether it is still wanted


class Full(Exception):
    """So many jobs wait that another one is not taken."""


class Failed(Exception):
    """A job that cannot go on; the text says why. status: what HTTP calls that."""

    def __init__(self, text: str, status: int = 500):
        super().__init__(text)
        self.status = status


class Job:
    """One answer that is written. ending: as in `Written`, once it has ended; which: its number among them."""

    def __init__(self, asked: Asked, which: int, sampler: Sampler):
        self.asked, self.which, self.sampler = asked, which, sampler
        self.ending = ""
        self.is_given_up = False
        self.written: Written | None = None

    def give_up(self) -> None:
        """No more tokens are wanted."""
        self.is_given_up = True
        self.asked.wake()

    def told(self, event: Chosen | Failed | None) -> None:
        """The engine tells of it."""
        self.asked.events.put(event if isinstance(event, Failed) else (self, event))


class Chosen(NamedTuple):
    """A token that has been written. chance: None where nobody asked."""

    token: int
    chance: Chance | None


class Asked:
    """What one asks for: one answer or several to the same prompt, each with a sampler of its own.

    likeliest  of how many tokens the chance is told beside each that is chosen; None for none
    """

    def __init__(
        self,
        wake: Callable[[], None],
        prompt: Sequence[int],
        samplers: Sequence[Sampler],
        most: int,
        ends: frozenset[int],
        likeliest: int | None,
    ):
        self.wake = wake
        self.prompt, self.most, self.ends, self.likeliest = list(prompt), most, ends, likeliest
        self.events: SimpleQueue[tuple[Job, Chosen | None] | Failed] = SimpleQueue()
        self.jobs = [Job(self, i, sampler) for i, sampler in enumerate(samplers)]

    def tokens(
        self, seconds: float, is_wanted: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Job, Chosen | None]]:
        """Tokens as they come, each with the job that wrote it; None where that has ended. It does not end by itself.

        seconds    for all of them
        is_wanted  asked again and again while none comes, and after each; where it says no, all is given up
        Raises     Failed, where one cannot go on or all takes longer; the jobs are given up then
        """
        deadline = time.monotonic() + seconds
        while is_wanted():
            if time.monotonic() > deadline:
                self.give_up()
                raise Failed(f"[llm] the answer took longer than {seconds:g} s. Ask for fewer tokens.", 504)
            try:
                event = self.events.get(timeout=LOOK_SECONDS)
            except Empty:
                continue
            if isinstance(event, Failed):
                self.give_up()
                raise event
            yield event
        self.give_up()

    def give_up(self) -> None:
        """No more tokens are wanted of any."""
        for job in self.jobs:
            job.give_up()


class Engine:
    """Runs a batch until it is stopped. waiting: how many jobs may wait for a slot."""

    def __init__(self, batch: Batch, waiting: int = 16):
        self.batch = batch
        self.waiting = waiting
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._running: list[Job] = []
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="hcq llm engine", daemon=True)
        self._thread.start()

    @property
    def load(self) -> tuple[int, int]:
        """How many jobs have a slot, and how many wait."""
        with self._changed:
            return len(self._running), len(self._jobs)

    @property
    def most(self) -> int:
        """How many answers there is room for, those that wait included."""
        return self.waiting + self.batch.slots

    def submit(
        self,
        prompt: Sequence[int],
        samplers: Sequence[Sampler],
        most: int,
        ends: frozenset[int],
        likeliest: int | None = None,
    ) -> Asked:
        """A job for each sampler, all or none. Raises Full where too many wait, and Failed once the engine has been
        stopped."""
        asked = Asked(self.wake, prompt, samplers, most, ends, likeliest)
        with self._changed:
            self._jobs = deque(other for other in self._jobs if not other.is_given_up)
            if self._is_stopped:
                raise Failed(STOPPING, 503)
            if len(self._jobs) + len(asked.jobs) > self.waiting + self.batch.free:
                raise Full(
                    f"[llm] {len(self._running)} answers are written and {len(self._jobs)} wait. Ask again later."
                )
            self._jobs.extend(asked.jobs)
            self._changed.notify()
        return asked

    def wake(self) -> None:
        """Something has changed."""
        with self._changed:
            self._changed.notify()

    def stop(self) -> None:
        """End the thread, after the step it is in; jobs fail."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._ready():
            try:
                told = self.batch.step()
            except HcqError as error:
                self._fail_all(str(error))
            except Exception as error:
                traceback.print_exc(file=sys.stderr)
                self._fail_all(f"[llm] {type(error).__name__}: {error}")
            else:
                self._tell(told)
        self._fail_all(STOPPING, 503)

    def _ready(self) -> bool:
        """Wait until there is something to do, and let jobs leave and join. Returns False once stopped."""
        with self._changed:
            while True:
                for job in [job for job in self._running if job.is_given_up]:
                    assert job.written is not None
                    self.batch.leave(job.written)
                    self._running.remove(job)
                self._jobs = deque(job for job in self._jobs if not job.is_given_up)
                if self._is_stopped:
                    return False
                while self._jobs and self.batch.free:
                    self._join(self._jobs.popleft())
                if self._running:
                    return True
                self._changed.wait()

    def _join(self, job: Job) -> None:
        try:
            asked = job.asked
            job.written = self.batch.join(asked.prompt, job.sampler, asked.most, asked.ends, asked.likeliest)
        except UsageError as error:
            job.told(Failed(str(error)))
        else:
            self._running.append(job)

    def _tell(self, told: Sequence[Written]) -> None:
        jobs = {id(job.written): job for job in self._running}
        for written in told:
            job = jobs[id(written)]
            if written.ending == "error":
                job.told(Failed(written.error))
            elif written.ending != "end":
                chance = written.chances[-1] if written.chances else None
                job.told(Chosen(written.tokens[-1], chance))
            if written.ending:
                job.ending = written.ending
                job.told(None)
                with self._changed:
                    self._running.remove(job)

    def _fail_all(self, why: str, status: int = 500) -> None:
        """What is in memory is not known any more: all jobs fail, and slots begin anew."""
        with self._changed:
            jobs = [*self._running, *(self._jobs if self._is_stopped else ())]
            self._running.clear()
            if self._is_stopped:
                self._jobs.clear()
        self.batch.forget()
        for job in jobs:
            job.told(Failed(why, status))
