"""The thread of an emulated GPU: turns, pauses in the middle of a step, visitors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random

import pytest

from hcq.emu.worker import Worker

Steps = Callable[[], bool]


class Gpu(Worker[str]):
    """Queues by name, each with a function that is its step."""

    def __init__(self, random: Random | None = None) -> None:
        super().__init__("test", random)
        self.queues: dict[str, Steps] = {}

    def is_used(self) -> bool:
        return bool(self.queues)

    def ready(self) -> list[str]:
        return list(self.queues)

    def step(self, one: str) -> bool:
        return self.queues[one]()

    def use(self, **queues: Steps) -> None:
        with self.visit():
            self.queues.update(queues)

    def end(self) -> None:
        with self.visit():
            while any(self.is_paused(name) and self.go_on(name) for name in self.queues):
                pass
            self.queues.clear()


def once(work: Callable[[], None]) -> Steps:
    """A step that does this the first time, and has nothing to do afterwards."""
    left = [work]

    def step() -> bool:
        if not left:
            return False
        left.pop()()
        return True

    return step


@pytest.mark.parametrize("random", [None, Random(3)])
def test_two_steps_that_wait_for_each_other_both_end(random: Random | None):
    gpu = Gpu(random)
    said: list[str] = []

    def first() -> None:
        said.append("question")
        while "answer" not in said:
            gpu.pause("first")
        said.append("thanks")

    def second() -> None:
        while "question" not in said:
            gpu.pause("second")
        said.append("answer")
        while "thanks" not in said:
            gpu.pause("second")
        said.append("welcome")

    gpu.use(first=once(first), second=once(second))
    end = time.monotonic() + 20
    while "welcome" not in said and time.monotonic() < end:
        time.sleep(0.001)
    gpu.end()
    assert said == ["question", "answer", "thanks", "welcome"]


def test_a_visitor_gets_in_between_two_pauses_and_not_in_between():
    gpu = Gpu()
    is_inside, seen, is_over = [False], [], threading.Event()

    def work() -> None:
        while not is_over.is_set():
            is_inside[0] = True
            time.sleep(0.0001)
            is_inside[0] = False
            gpu.pause("queue")

    gpu.use(queue=once(work))
    for _ in range(20):
        with gpu.visit():
            seen.append(is_inside[0])
    is_over.set()
    gpu.end()
    assert seen == [False] * 20


def test_a_step_without_company_never_leaves_its_thread():
    gpu, threads = Gpu(), []
    done = threading.Event()

    def work() -> None:
        for _ in range(10):
            threads.append(threading.current_thread())
            gpu.pause("queue")
        done.set()

    gpu.use(queue=once(work))
    assert done.wait(20)
    gpu.end()
    assert len(set(threads)) == 1


def test_every_thread_ends_when_the_gpu_is_no_longer_used():
    gpu = Gpu()
    before = threading.active_count()
    done = [threading.Event() for _ in range(3)]

    def work(index: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(5):
                gpu.pause(f"queue{index}")
            done[index].set()

        return run

    gpu.use(**{f"queue{index}": once(work(index)) for index in range(3)})
    assert all(one.wait(20) for one in done)
    gpu.end()
    end = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.001)
    assert threading.active_count() <= before
