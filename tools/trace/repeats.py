"""Repeats: submissions of a queue that come again and again, as one group: a training step, two hundred times.

In       what each submission of a queue does, as one number for each, equal where they do the same
Out      groups that cover all of them in order: where they begin, how many are one repetition, how often it comes
Next     page_data.py (who makes the numbers), page/list.js (who shows the groups)

From the left, the repetition that covers most is taken, and of those that cover the same the shortest. A repetition is
compared as bytes, so that a hundred thousand submissions take about a second even when nothing repeats.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

LONGEST = 2048  # submissions of one repetition
TRIED = 8  # repetitions that are tried at each place: from there to where the same is done again
FEWEST = 3  # submissions that are worth a group


class Group(NamedTuple):
    """Submissions [first, first + period * repetitions) of a queue are `repetitions` times the same `period`."""

    first: int
    period: int
    repetitions: int


def groups(work: Sequence[int]) -> Iterator[Group]:
    """Groups that follow each other without a gap. What does not repeat is a group of one."""
    data = array("I", work)
    raw, size = data.tobytes(), data.itemsize
    later = _later(work)
    at = 0
    while at < len(work):
        best = Group(at, 1, 1)
        again = later[at]
        for _ in range(TRIED):
            period = again - at
            if again < 0 or period > LONGEST:
                break
            count = _count(raw, at * size, period * size)
            if count > 1 and count * period >= max(FEWEST, best.repetitions * best.period + 1):
                best = Group(at, period, count)
            again = later[again]
        yield best
        at += best.period * best.repetitions


def _later(work: Sequence[int]) -> list[int]:
    """For each place the next one where the same is done, or -1."""
    next_of: dict[int, int] = {}
    found = [-1] * len(work)
    for at in range(len(work) - 1, -1, -1):
        found[at] = next_of.get(work[at], -1)
        next_of[work[at]] = at
    return found


def _count(raw: bytes, start: int, period: int) -> int:
    """How often the bytes from `start` on come in a row."""
    one = raw[start : start + period]
    count = 1
    while raw.startswith(one, start + count * period):
        count += 1
    return count
