"""Memory plan: values that are needed at different times are in the same memory.

In       launches in order, each with the values it uses; how large the values are
Out      for each value the number of its memory, and how large each memory is
Next     plan.py (the temporaries of one plan), jit/replay.py (those of all plans of a recorded call)

A value lives from the first launch that uses it to the last one, both included: what a launch reads and what it writes
are never in one memory. The largest values choose first, and each takes the smallest memory in which it meets nobody,
so no memory is made larger for one that comes later.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class _Life(NamedTuple):
    first: int
    last: int
    users: int  # the launches that use it, as bits of a number


def share(
    launches: Sequence[Sequence[K]],
    sizes: Mapping[K, int],
    behind: Sequence[int] | None = None,
    given: Mapping[K, int] | None = None,
    left: Mapping[K, int] | None = None,
) -> tuple[dict[K, int], list[int]]:
    """Memory for values that are written before they are read.

    launches  for each the values that it uses; those without a size have memory elsewhere
    sizes     bytes of each value that is to have memory here, in an order that is always the same
    behind    for each launch, as bits of a number, those that come before it whichever way, where launches may run side
              by side: then no two share memory that would have to wait for each other only for that
    given     bytes of values that are there from the beginning, each in memory of its own, which is the first: others
              may be put there once they are read
    left      bytes of values that are needed until the end: they are put into given memory of their size, or not placed
    """
    given, left = given or {}, left or {}
    lives: dict[K, _Life] = {}
    for number, values in enumerate(launches):
        for value in dict.fromkeys(values):
            if value in sizes or value in given or value in left:
                first, _, users = lives.get(value, _Life(number, number, 0))
                lives[value] = _Life(first, number, users | 1 << number)
    places: dict[K, int] = {value: number for number, value in enumerate(given)}
    made: list[int] = list(given.values())
    held: list[list[_Life]] = []
    for value in given:
        life = lives.pop(value, None)
        held.append([] if life is None else [life._replace(first=-1)])
    ends = {value: lives.pop(value)._replace(last=len(launches)) for value in left if value in lives}

    def is_apart(one: _Life, other: _Life) -> bool:
        early, late = (one, other) if one.first < other.first else (other, one)
        if early.last >= late.first:
            return False
        return behind is None or not early.users & ~behind[late.first]

    for value, life in ends.items():
        for place, lived in enumerate(held):
            if made[place] == left[value] and all(is_apart(life, other) for other in lived):
                held[place].append(life)
                places[value] = place
                break
    for value in sorted(lives, key=lambda value: (-sizes[value], lives[value].first)):
        life = lives[value]
        fitting = [
            n
            for n, lived in enumerate(held)
            if made[n] >= sizes[value] and all(is_apart(life, other) for other in lived)
        ]
        if fitting:
            place = min(fitting, key=lambda n: (made[n], -max((other.last for other in held[n]), default=-1)))
        else:
            place = len(made)
            made.append(sizes[value])
            held.append([])
        held[place].append(life)
        places[value] = place
    for value in sizes:
        if value not in places:  # of launches that have nothing to store
            places[value] = len(made)
            made.append(0)
    return places, made
