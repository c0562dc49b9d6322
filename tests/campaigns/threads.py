"""Threads: programs with tensors of their own run at once, and each must have what it has when it runs alone.

In       a case: 1 to 16 threads, for each a program and its numbers; which tensors the main thread made for them
Out      RIGHT
Changes  the worker's caches, which are empty when the threads begin; how often its threads take turns
Next     docs/threads.md (what is promised), frontend/core/threads.py, tests/frontend/test_threads.py

The programs run alone after the threads, so that these are who fill the caches. Results are equal bit for bit: the same
kernels compute them.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import hcq
from hcq import Tensor, jit, nn, no_grad
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

TURN_S = 1e-6
END_S = 100


class Given(NamedTuple):
    """What the main thread made: for all threads to read, and for each to write to its own."""

    read: Any
    own: Any


class Work(NamedTuple):
    """A program and its numbers. Sizes are drawn by the case, so threads build the same graphs."""

    kind: str
    seed: int
    size: int
    steps: int


Results = list[np.ndarray]


def in_place(work: Work, given: Given) -> Results:
    x = Tensor.zeros(work.size).realize()
    for i in range(work.steps):
        x[i % work.size] += work.seed + 1
        x.mul_(1.0)
    return [x.numpy()]


def constants(work: Work, given: Given) -> Results:
    """Graphs that all threads have in common, as zeros(n) is one node for all of them."""
    made = [Tensor.zeros(work.size), Tensor.ones(work.size), Tensor.full((work.size,), 3.0)]
    for i in range(work.steps):
        one = made[i % 3]
        if i % 2:
            one.realize()
        one.add_(work.seed + i)
        one[1:] = one[:-1] * 0.5
    return [one.numpy() for one in made]


def views(work: Work, given: Given) -> Results:
    x = Tensor(np.arange(2 * work.size, dtype="f4").reshape(2, work.size) + work.seed)
    row, column, line = x[0], x[:, 1], x.view(-1)
    before = x + 1
    for i in range(work.steps):
        row.add_(i)
        column.mul_(0.5)
        line[i % work.size :].sub_(1)
    return [x.numpy(), before.numpy(), row.numpy(), column.numpy()]


def training(work: Work, given: Given) -> Results:
    numbers = np.random.default_rng(work.seed)
    w = Tensor(numbers.standard_normal((4, 1)).astype("f4"), requires_grad=True)
    kind = hcq.optim.Adam if work.seed % 2 else hcq.optim.SGD
    optimizer = kind([w], lr=0.1)
    losses = []
    for _ in range(work.steps):
        x = Tensor(numbers.standard_normal((work.size, 4)).astype("f4"))
        optimizer.zero_grad()
        loss = ((x @ w) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return [w.numpy(), np.array([loss.item() for loss in losses])]


def module(work: Work, given: Given) -> Results:
    numbers = np.random.default_rng(work.seed)
    model = nn.Sequential(nn.Linear(work.size, 5), nn.ReLU(), nn.Linear(5, 1))
    with no_grad():
        for parameter in model.parameters():
            parameter.copy_(Tensor(numbers.standard_normal(parameter.shape).astype("f4")))
    optimizer = hcq.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(min(work.steps, 5)):
        optimizer.zero_grad()
        model(Tensor(numbers.standard_normal((3, work.size)).astype("f4"))).square().sum().backward()
        optimizer.step()
    return [parameter.numpy() for parameter in model.parameters()]


def drawing(work: Work, given: Given) -> Results:
    generator = hcq.Generator().manual_seed(work.seed)
    made = [Tensor.rand(work.size, generator=generator) for _ in range(work.steps)]
    made.append(Tensor.randn(work.size, generator=generator))
    return [one.numpy() for one in made]


def recorded(work: Work, given: Given) -> Results:
    total = Tensor.zeros(work.size).realize()

    @jit
    def step(x: Tensor) -> Tensor:
        total.add_(x)
        return total * 2.0 + x

    results = [step(Tensor.full((work.size,), float(work.seed + i)).realize()) for i in range(work.steps)]
    return [total.numpy(), *[one.numpy() for one in results]]


def modes(work: Work, given: Given) -> Results:
    x = Tensor(np.ones(work.size, "f4"), requires_grad=True)
    found = []
    for i in range(work.steps):
        if (work.seed + i) % 2:
            with no_grad():
                found.append(float((x * 2).requires_grad))
        else:
            found.append(float((x * 2).requires_grad))
    return [np.array(found)]


def reading(work: Work, given: Given) -> Results:
    """What the main thread made is read by all; what is computed from it is each thread's own."""
    results = []
    for i in range(work.steps):
        own = given.read * 2
        if i % 2:
            own.realize()
        own.add_(work.seed)
        results.append(own.numpy())
    return results


def writing(work: Work, given: Given) -> Results:
    """A tensor that the main thread made, equal to those of other threads, is this thread's now."""
    x = given.own
    before = x + 1
    for i in range(work.steps):
        x.add_(work.seed)
        x[i % x.shape[0]] = 7.0
    return [x.numpy(), before.numpy()]


PROGRAMS: dict[str, Callable[[Work, Given], Results]] = {
    each.__name__: each
    for each in (
        in_place, constants, views, training, module, drawing, recorded, modes, reading, writing,
    )
}  # fmt: skip


def shared(rng: random.Random, size: int) -> Tensor:
    """For all to read: in memory, lazy, or with a write that is still to be done."""
    kind = rng.choice(["memory", "lazy", "pending"])
    x = Tensor(np.arange(size, dtype="f4"))
    if kind == "lazy":
        return x + 1
    return x.assign(x + 1) if kind == "pending" else (x + 1).realize()


def handed(rng: random.Random, size: int, count: int) -> list[Tensor]:
    """For each its own, all equal: lazy, or computed together."""
    made = [Tensor.zeros(size) for _ in range(count)]
    if rng.random() < 0.5:
        made[0].realize(*made[1:])
    return made


def run(case: Case) -> Outcome:
    rng = case.rng()
    count = rng.choice([1, 2, 3, 4, 4, 8, 16])
    size, steps = rng.randint(3, 40), rng.randint(2, 12)
    kinds = rng.sample(sorted(PROGRAMS), rng.choice([1, 1, 2, 4]))
    works = [Work(rng.choice(kinds), seed, size, steps) for seed in range(count)]
    state = rng.getstate()
    _forget()
    found = together(works, given(rng, size, count))
    draws = [one.tobytes() for one in found.pop("draws", [])]
    if len(set(draws)) < len(draws):
        raise Wrong(f"{len(draws) - len(set(draws))} draws were given to two threads\n{works}")
    rng.setstate(state)
    alone = given(rng, size, count)
    for number, (work, own) in enumerate(zip(works, alone, strict=True)):
        expected = PROGRAMS[work.kind](work, own)
        for place, (got, want) in enumerate(zip(found[str(number)], expected, strict=True)):
            if not np.array_equal(got, want):
                raise Wrong(f"thread {number}, result {place}: {got}, alone {want}\n{works}")
    return Outcome.RIGHT


def given(rng: random.Random, size: int, count: int) -> list[Given]:
    read = shared(rng, size)
    return [Given(read, own) for own in handed(rng, size, count)]


def together(works: list[Work], given: list[Given]) -> dict[str, Results]:
    """The results of each by its number, and what was drawn from the stream that all threads have in common."""
    found: dict[str, Results] = {"draws": []}
    errors: list[str] = []
    start = threading.Barrier(len(works))

    def thread(number: int, work: Work, own: Given) -> None:
        try:
            start.wait()
            found[str(number)] = PROGRAMS[work.kind](work, own)
            found["draws"].append(Tensor.rand(16).numpy())
        except BaseException:
            errors.append(f"thread {number}: {traceback.format_exc()}")

    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        threads = [
            threading.Thread(target=thread, args=(number, work, own), daemon=True)
            for number, (work, own) in enumerate(zip(works, given, strict=True))
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(END_S)
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise Wrong("\n".join([*errors, str(works)]))
    if any(each.is_alive() for each in threads):
        raise Wrong(f"a thread does not end\n{works}")
    return found


def _forget() -> None:
    """No plan is in memory: the threads meet every graph for the first time."""
    from hcq.frontend.run import plan

    plan._plans.clear()
    plan._short.clear()
    gc.collect()


CAMPAIGNS = tuple(
    Campaign(
        f"threads-{kind}",
        "1 to 16 threads that take turns at every step: tensors of their own, optimizers, random numbers, views, jit, "
        "and what the main thread made for them",
        run,
        short=short,
        environment=environment,
        deadline_s=300,
    )
    for kind, short, environment in (
        ("cpu", 20, {}),
        ("gfx1100", 3, {"HCQ_EMULATE": "amd:gfx1100", "HCQ_DEVICE": "AMD"}),
        ("sm_90", 3, {"HCQ_EMULATE": "nv:sm_90", "HCQ_DEVICE": "NV"}),
    )
)
