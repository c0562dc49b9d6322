"""Conditions: what the numbers of bound variables have to fulfil, for this call, and for each replay of a recording.

In       a size or a distance, an int or a Bound, that may not be negative, and words on what asks for it
Out      OutOfRange, with the variables and their numbers, where it is
Changes  the recording that is made, if one is: it asks again before each replay, before anything is submitted
Next     variable.py (Bounds), jit/function.py (who asks before a replay), jit/capture.py (who collects conditions)

What holds for all numbers of a variable's range is asked once, here, and never again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hcq.frontend.core.base import watcher
from hcq.frontend.core.errors import OutOfRange
from hcq.frontend.core.storage import Storage
from hcq.frontend.symbolic.variable import Bound, Leaf


class Condition(NamedTuple):
    """A distance that may not be negative, as a recording keeps it: `places` has the arguments with its numbers."""

    gap: Bound
    places: dict[Leaf, int]
    words: str

    def ask(self, storages: Sequence[Storage]) -> None:
        """Whether it holds for the numbers of these arguments. Raises OutOfRange."""
        now = self.gap.with_leaves(lambda leaf: self._leaf(leaf, storages))
        if now.now < 0:
            raise refused(self.words, now)

    def _leaf(self, leaf: Leaf, storages: Sequence[Storage]) -> Leaf:
        place = self.places.get(leaf)
        return leaf if place is None else storages[place].number

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for conditions of two calls that ask for the same."""
        return self.gap.key(dict(self.places)), self.words


def require(gap: Any, words: str) -> None:
    """Refuse what is negative now, be it an int or a Bound. Raises OutOfRange."""
    if not isinstance(gap, Bound):
        if gap < 0:
            raise OutOfRange(f"{words}.")
    elif gap.low < 0:
        if gap.now < 0:
            raise refused(words, gap)
        watching = watcher()
        if watching is not None:
            watching.requires(gap, words)


def refused(words: str, gap: Bound) -> OutOfRange:
    """The error for numbers that do not fulfil a condition."""
    numbers = ", ".join(f"{leaf} = {leaf.now}" for leaf in gap.leaves())
    return OutOfRange(f"{words}: not so for {numbers}. Bind a number for which it is.")
