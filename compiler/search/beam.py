"""Beam: keep the best few schedules, measure some of their neighbours, keep the best few again.

In       schedules to begin with, the heuristic's first; who makes neighbours, who measures, who says that time is up
Out      `Found`: the best schedule, its time and the heuristic's, measured side by side
Next     moves.py (neighbours), ../../frontend/search/ (measurements on a device), results.py (where it is written down)

The heuristic's schedule is in the last comparison whatever happened before it, so what is found is never slower by the
measurements that decided. The same seed, neighbours and measurements give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

PER_MEMBER = 8  # neighbours measured for each schedule of the beam, in one round
PATIENCE = 3  # rounds without progress before the end
PROGRESS = 0.99  # of the best time: less is progress
WON = 0.98  # of the heuristic's time: less is worth another schedule than the heuristic's
FINALISTS = 3

Neighbours = Callable[[str, Random], Iterator[str]]
# schedules -> nanoseconds of each, None for one that failed, in their order, as soon as they are known
Measure = Callable[[Sequence[str]], Iterable[float | None]]


@dataclass(frozen=True)
class Found:
    """What a search ended with.

    schedule        the best
    ns              its time
    heuristic_ns    the time of the schedule that was first
    tried           candidates that were given to `measure`
    is_whole        whether it came to its end: no progress any more; not Ctrl-C, nor the end of the time
    """

    schedule: str
    ns: float
    heuristic_ns: float
    tried: int
    is_whole: bool


class Beam:
    """One search. `found` is its result so far, None before the heuristic's schedule has been measured.

    first        schedules to begin with; the first one is the heuristic's
    width        how many are kept from round to round
    is_over      asked between measurements
    compare      schedules -> times, measured side by side: for the last word; by default `measure`
    note         called when something was measured: tried so far, the best time, the heuristic's
    """

    def __init__(
        self,
        first: Sequence[str],
        neighbours: Neighbours,
        measure: Measure,
        width: int,
        seed: int = 0,
        is_over: Callable[[], bool] = lambda: False,
        compare: Measure | None = None,
        note: Callable[[int, float, float], None] = lambda tried, best, heuristic: None,
    ) -> None:
        self.first = list(dict.fromkeys(first))
        self.neighbours = neighbours
        self.measure = measure
        self.compare = compare or measure
        self.width = width
        self.rng = Random(seed)
        self.is_over = is_over
        self.note = note
        self.times: dict[str, float] = {}  # of those that worked
        self.seen: set[str] = set(self.first)
        self.tried = 0
        self._streams: dict[str, Iterator[str]] = {}
        self._last: Found | None = None

    @property
    def found(self) -> Found | None:
        """The best so far: after `run` that of the last comparison."""
        heuristic = self.first[0]
        if self._last is not None or heuristic not in self.times:
            return self._last
        best = self._ranked()[0]
        if self.times[best] >= WON * self.times[heuristic]:
            best = heuristic
        return Found(best, self.times[best], self.times[heuristic], self.tried, False)

    def run(self) -> Found | None:
        """Search to the end, or until time is up. None where the heuristic's schedule itself cannot be measured."""
        self._measure(self.first[:1])
        if self.first[0] not in self.times:
            return None
        self._measure(self.first[1:])
        idle = 0
        while idle < PATIENCE and not self.is_over():
            best = self.times[self._ranked()[0]]
            candidates = self._draw()
            if not candidates:
                break
            self._measure(candidates)
            idle = 0 if self.times[self._ranked()[0]] < PROGRESS * best else idle + 1
        is_whole = not self.is_over()
        self._last = self._decide(is_whole)
        return self._last

    def _decide(self, is_whole: bool) -> Found:
        """The best few once more, beside the heuristic's."""
        heuristic = self.first[0]
        finalists = [one for one in self._ranked()[:FINALISTS] if one != heuristic]
        entrants = [heuristic, *finalists]
        times: dict[str, float | None] = {heuristic: self.times[heuristic]}
        if finalists:
            times = dict(zip(entrants, self.compare(entrants), strict=False))
        base = times.get(heuristic) or self.times[heuristic]
        best, best_ns = heuristic, base
        for one in finalists:
            ns = times.get(one)
            if ns is not None and ns < WON * base and ns < best_ns:
                best, best_ns = one, ns
        return Found(best, best_ns, base, self.tried, is_whole)

    def _ranked(self) -> list[str]:
        """All that worked, the fastest first; what was measured first, where two are equal."""
        return sorted(self.times, key=lambda one: self.times[one])

    def _draw(self) -> list[str]:
        """Neighbours of the beam that were not tried yet, as many of each member."""
        drawn: list[str] = []
        for member in self._ranked()[: self.width]:
            if member not in self._streams:
                self._streams[member] = self.neighbours(member, Random(self.rng.random()))
            stream = self._streams[member]
            for one in islice((one for one in stream if one not in self.seen), PER_MEMBER):
                self.seen.add(one)
                drawn.append(one)
        return drawn

    def _measure(self, candidates: Sequence[str]) -> None:
        self.seen.update(candidates)
        for one, ns in zip(candidates, _until(self.is_over, self.measure(candidates)), strict=False):
            self.tried += 1
            if ns is not None:
                self.times[one] = ns
            if self.first[0] in self.times:
                self.note(self.tried, min(self.times.values()), self.times[self.first[0]])


def _until(is_over: Callable[[], bool], times: Iterable[float | None]) -> Iterator[float | None]:
    """Measurements until time is up; the one that was begun counts."""
    for ns in times:
        yield ns
        if is_over():
            return
