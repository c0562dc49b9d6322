"""Chances: how likely a token was to the model, and which others were likelier.

In       logits, as the model gives them, before any switch of a sampler changes them
Out      natural logarithms of probabilities
Next     batch.py (who asks), answers.py (who tells)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

from hcq.frontend.more.llm.sampling import numbers_of


class Chance(NamedTuple):
    """A token's, and those of the likeliest, the first first, as (token, logarithm)."""

    logarithm: float
    likeliest: list[tuple[int, float]]


def chance_of(logits: Sequence[float], token: int, count: int) -> Chance:
    """The chance of a token, and of so many of the likeliest. Raises UsageError where no logit is a number.

    >>> chance_of([0.0, 0.0, -1000.0], 1, 1)
    Chance(logarithm=-0.6931471805599453, likeliest=[(0, -0.6931471805599453)])
    """
    numbers = numbers_of(logits)
    highest = max(numbers)
    lower = [0.0 if number == highest else number - highest for number in numbers]
    whole = math.log(sum(map(math.exp, lower)))
    best = heapq.nlargest(count, range(len(lower)), key=lower.__getitem__)
    return Chance(lower[token] - whole, [(one, lower[one] - whole) for one in best])
