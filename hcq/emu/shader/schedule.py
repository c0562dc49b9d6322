"""Schedule: in which order waves run that nothing orders, drawn from the seed of an emulated GPU.

In       the seed (amd:gfx1100:seed=7), and the launches of a GPU
Out      for each launch, which of the batches of waves that could run goes on, what part of it, and what it joins
Changes  nothing; the same launches in the same order have the same schedules
Next     ../amd/shader/machine.py and ../nv/shader/machine.py (who ask), ../amd/engine.py and ../nv/engine.py (the order
         of packets)

Without a seed waves stay together: workgroups run in lockstep as far as they agree, and the first wave is always the
first. With one, they part at random between blocks of instructions, and any batch may be the next: a later wave draws
the first ticket, takes the lock, sees the flag before it is set. Few batches at a time keep it affordable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

MOST_PARTS = 6  # of the waves that are resident together
SPLITS, JOINS = 0.5, 0.5  # how likely, each time that one of several is chosen; what is all together parts


class Schedule:
    """Of one launch."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def pick(self, ready: Sequence[T]) -> T:
        """What runs next."""
        return self.random.choice(ready)

    def joins(self, parts: int) -> bool:
        """Whether what has come to one place goes on together, of so many parts."""
        return parts >= MOST_PARTS or self.random.random() < JOINS

    def part(self, count: int, parts: int) -> list[bool] | None:
        """Which of `count` waves part from the others now, of so many parts; None: they stay together."""
        if count < 2 or parts >= MOST_PARTS or (parts > 1 and self.random.random() >= SPLITS):
            return None
        chosen = set(self.random.sample(range(count), self.random.randrange(1, count)))
        return [one in chosen for one in range(count)]


class Schedules:
    """Of one GPU. seed: None where waves stay together."""

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._launches: Counter[tuple[Any, ...]] = Counter()

    def of_launch(self, grid: tuple[int, int, int], block: tuple[int, int, int]) -> Schedule | None:
        """That of the launch which begins now. Launches of one size are counted by themselves: those of other queues,
        which run in an order of their own, change nothing."""
        if self.seed is None:
            return None
        self._launches[grid, block] += 1
        return Schedule(Random(f"{self.seed} {grid} {block} {self._launches[grid, block]}"))
