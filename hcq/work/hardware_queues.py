"""Hardware queues: splits a graph over several hardware queues ("lanes") of a device, with as few signals as possible.

In       Dependences; for each command its estimated time and the lanes that can run it; the cost of a signal
Out      a Split: for each command its lane, its waits, and the value to which it sets the lane's signal
Next     dependences.py (order), hcq/graph.py (the caller), gpu/graph.py (costs on GPUs), docs/graphs.md (the reasons)

A lane is a hardware queue that runs its part of a graph, one command after the other, in the order of the recording.
Lane 0 is the queue of all other submissions. A replay begins and ends there: the first command of another lane waits
for the beginning, and the end waits for all lanes.

Each lane has one signal, which counts up after a command that another lane waits for. A wait for a value covers all
earlier commands of that lane, and everything that they waited for. So a wait that another one implies is left out, and
a signal that no command waits for is not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hcq.work.dependences import Dependences

MAIN, COPIES = 0, 1
START = -1  # in the place of a command's number: the beginning of a replay
MAX_TRIED = 64  # commands that are tried in another lane, the longest first


class Costs(NamedTuple):
    """What an edge between lanes takes, about, in nanoseconds.

    signal_ns      for the lane that signals: its caches are written back first
    wait_ns        from the signal until the other lane goes on
    is_all_or_none whether what may leave the main lane is on other hardware in any case: then in-order work, too, pays
                   for every change, and either all of it has a lane of its own or nothing
    """

    signal_ns: int
    wait_ns: int
    is_all_or_none: bool = False


class Wait(NamedTuple):
    """A lane's signal has this value, or a larger one."""

    lane: int
    value: int


class Step(NamedTuple):
    """A command, or the beginning or the end: what it waits for, and what its lane's signal is set to behind it, or 0.

    number  of the command; START for the beginning, the count of commands for the end
    """

    number: int
    lane: int
    waits: tuple[Wait, ...]
    signal: int


class Split(NamedTuple):
    """All steps in the order of the recording, the beginning first and the end last.

    lanes        how many there are
    estimate_ns  how long a replay takes, about; in order it would take `in_order_ns`
    """

    steps: tuple[Step, ...]
    lanes: int
    estimate_ns: int = 0
    in_order_ns: int = 0

    @property
    def waits(self) -> int:
        """How many waits there are in all lanes."""
        return sum(len(step.waits) for step in self.steps)

    def __str__(self) -> str:
        lines = [f"{self.lanes} lanes, {self.estimate_ns} ns; in order {self.in_order_ns} ns"]
        for step in self.steps:
            waits = "".join(f" wait lane{wait.lane} >= {wait.value};" for wait in step.waits)
            signal = f" lane{step.lane} = {step.signal}" if step.signal else ""
            name = {START: "start", len(self.steps) - 2: "end"}.get(step.number, f"#{step.number}")
            lines.append(f"lane{step.lane}:{waits} {name};{signal}")
        return "\n".join(lines)


def assign(dependences: Dependences, lanes: Sequence[int]) -> Split:
    """The waits and signals that commands in these lanes need."""
    count = len(dependences)
    everybody = [MAIN, *lanes, MAIN]  # with the beginning as number 0, and the end as the last one
    needs = [(), *[tuple(n + 1 for n in few) or (0,) for few in dependences.needs], tuple(range(count + 1))]
    clocks: list[dict[int, int]] = []  # for each step: the last number of each lane that is done when it is
    now: dict[int, dict[int, int]] = {}  # what each lane knows
    awaited: list[tuple[int, ...]] = []  # whose end each step waits for
    for number, lane in enumerate(everybody):
        known = now.setdefault(lane, {})
        wanted: dict[int, int] = {}
        # a lane's first command comes after the beginning; this one's neighbours in its lane are before it anyway
        for one in needs[number]:
            if everybody[one] != lane and one > known.get(everybody[one], -1):
                wanted[everybody[one]] = max(one, wanted.get(everybody[one], -1))
        chosen = []
        for other, one in wanted.items():
            implied = any(clocks[rival].get(other, -1) >= one for rival in wanted.values() if rival != one)
            if not implied:
                chosen.append(one)
        for one in chosen:
            for other, done in clocks[one].items():
                known[other] = max(done, known.get(other, -1))
        awaited.append(tuple(sorted(chosen)))
        known[lane] = number
        clocks.append(dict(known))
    values: dict[int, int] = {}
    counts: dict[int, int] = {}
    for number in sorted({one for few in awaited for one in few}):
        lane = everybody[number]
        counts[lane] = values[number] = counts.get(lane, 0) + 1
    steps = tuple(
        Step(
            number - 1,
            lane,
            tuple(Wait(everybody[one], values[one]) for one in awaited[number]),
            values.get(number, 0),
        )
        for number, lane in enumerate(everybody)
    )
    return Split(steps, max(everybody) + 1)


def estimate_ns(split: Split, times: Sequence[int], costs: Costs) -> int:
    """How long a replay takes, about: lanes run side by side, and waits and signals take their time in them."""
    free = dict.fromkeys(range(split.lanes), 0)
    reached: dict[tuple[int, int], int] = {}
    for step in split.steps:
        at = free[step.lane]
        for wait in step.waits:
            at = max(at, reached[wait.lane, wait.value]) + costs.wait_ns
        at += times[step.number] if 0 <= step.number < len(times) else 0
        if step.signal:
            at += costs.signal_ns
            reached[step.lane, step.signal] = at
        free[step.lane] = at
    return max(free.values())


def choose(
    dependences: Dependences, times: Sequence[int], movable: Sequence[bool], costs: Costs
) -> Split | None:
    """The split that a replay takes least time with, or None: in order, on the main lane, nothing takes less.

    times    of each command, in nanoseconds, about
    movable  whether it may run in the lane of copies
    """
    if not any(movable):
        return None
    in_order = least = sum(times)
    lanes = [MAIN] * len(times)
    if costs.is_all_or_none:
        long = [at for at, may in enumerate(movable) if may]
        changes = sum(movable[at] != (at > 0 and movable[at - 1]) for at in range(len(movable)))
        in_order = least = in_order + changes * (costs.signal_ns + costs.wait_ns)
    else:
        edge_ns = costs.signal_ns + costs.wait_ns
        long = [at for at, may in enumerate(movable) if may and times[at] > edge_ns]
    best = assign(dependences, lanes)
    # all together, for copies that follow each other; then each of them by itself
    alone = [] if costs.is_all_or_none else sorted(long, key=lambda at: -times[at])[:MAX_TRIED]
    for tried in (long, *([at] for at in alone)):
        other = lanes.copy()
        for at in tried:
            other[at] = COPIES - other[at]
        split = assign(dependences, other)
        takes = estimate_ns(split, times, costs)
        if takes < least:
            best, least, lanes = split, takes, other
    if best.lanes == 1 or least >= in_order:
        return None
    return best._replace(estimate_ns=least, in_order_ns=in_order)
