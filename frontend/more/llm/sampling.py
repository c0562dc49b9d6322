"""Sampling: which token is written next.

In       logits of all tokens, the tokens before
Out      one token
Changes  the sampler's random state
Next     session.py (who asks)
Source   Holtzman et al. 2020 (top-p), Keskar et al. 2019 (repetition penalty), Nguyen et al. 2024
         (min-p), OpenAI's API reference (presence and frequency penalties)
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from hcq.frontend.core.errors import UsageError


class Sampler:
    """How a token is chosen.

    temperature  logits are divided by it; 0 takes the likeliest token
    top_k        of so many of the likeliest; 0 of all
    top_p        of the likeliest, as many as are needed to have this probability together; 1 of all
    min_p        of those that are at least this part as likely as the likeliest; 0 of all
    repetition   logits of tokens among the last 64 are divided by it where positive, multiplied where negative
    presence     taken from the logits of tokens that have been written
    frequency    taken from the logits of tokens that have been written, so many times
    bias         token -> what is added to its logit
    seed         the same seed chooses the same tokens

    >>> Sampler(temperature=0).choose([0.1, 2.0, 1.0])
    1
    """

    RECENT = 64

    def __init__(
        self,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repetition: float = 1.0,
        seed: int | None = None,
        presence: float = 0.0,
        frequency: float = 0.0,
        bias: Mapping[int, float] | None = None,
    ):
        if temperature < 0 or top_k < 0 or not 0 < top_p <= 1 or not 0 <= min_p <= 1 or repetition <= 0:
            raise UsageError(
                f"[llm] temperature={temperature}, top_k={top_k}, top_p={top_p}, min_p={min_p}, "
                f"repetition={repetition}: temperature and top_k are 0 or more, top_p above 0 and up to 1, min_p from "
                "0 to 1, repetition above 0."
            )
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.min_p = min_p
        self.repetition = repetition
        self.presence = presence
        self.frequency = frequency
        self.bias = dict(bias or {})
        self._random = Random(seed)

    def choose(self, logits: Sequence[float], before: Sequence[int] = (), written: Sequence[int] = ()) -> int:
        """A token. Raises UsageError where no logit is a number, as when weights are damaged.

        before   tokens before it, those of the prompt included; written  those that have been chosen
        """
        found = list(logits)
        if self.repetition != 1.0:
            for token in set(before[-self.RECENT :]):
                found[token] *= 1 / self.repetition if found[token] > 0 else self.repetition
        for token, bias in self.bias.items():
            found[token] += bias
        if self.presence or self.frequency:
            for token, times in Counter(written).items():
                found[token] -= self.presence + self.frequency * times
        if self.temperature == 0:
            found = numbers_of(found)
            return found.index(max(found))
        tokens = self.candidates(found)
        return self._random.choices([token for token, _ in tokens], [weight for _, weight in tokens])[0]

    def candidates(self, logits: Sequence[float]) -> list[tuple[int, float]]:
        """The tokens that may be chosen, the likeliest first, with their probabilities, which add up to 1."""
        numbers = numbers_of(logits)
        count = min(self.top_k or len(numbers), len(numbers))
        # of a long list, comparing numbers alone is what is fast
        least = heapq.nlargest(count, numbers)[-1] if count < len(numbers) else -math.inf
        ordered = sorted([(-logit, token) for token, logit in enumerate(numbers) if logit >= least])
        kept = [token for _, token in ordered[:count]]
        highest = numbers[kept[0]]
        weights = [math.exp((max(numbers[token], -1e30) - highest) / self.temperature) for token in kept]
        total = sum(weights)
        found: list[tuple[int, float]] = []
        together = 0.0
        for token, weight in zip(kept, weights, strict=True):
            if found and (together >= self.top_p or weight < self.min_p * weights[0]):
                break
            found.append((token, weight / total))
            together += weight / total
        whole = sum(weight for _, weight in found)
        return [(token, weight / whole) for token, weight in found]


def numbers_of(logits: Sequence[float]) -> list[float]:
    """The logits, with NaN below all numbers. Raises UsageError where none is a number."""
    found = list(logits)
    if math.isnan(sum(found)):  # or infinities of both signs, which change nothing
        found = [-math.inf if math.isnan(logit) else logit for logit in found]
    if max(found) == -math.inf:
        raise UsageError("[llm] no logit is a number. The weights or the file are damaged.")
    return found
