"""Merging: neighbours become one, the best first, until no two may.

In       parts of a word, and what two neighbours cost to become one
Out      the parts that are left
Next     byte_pairs.py and tokenizer_files.py (who ask)

Time grows with the length and its logarithm: a word may be as long as a request.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence


def merged(parts: Sequence[str], cost_of: Callable[[str, str], float | None]) -> list[str]:
    """The parts once neighbours have become one, the least cost first, and of equal ones the first.

    cost_of  of two neighbours; None where they stay apart

    >>> merged("abab", lambda left, right: {"ab": 1, "aba": 0}.get(left + right))
    ['aba', 'b']
    """
    parts = list(parts)
    after = [*range(1, len(parts)), -1]
    before = list(range(-1, len(parts) - 1))
    waiting: list[tuple[float, int, str, str]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right >= 0 and (cost := cost_of(parts[left], parts[right])) is not None:
            heapq.heappush(waiting, (cost, left, parts[left], parts[right]))

    for at in range(len(parts) - 1):
        offer(at, at + 1)
    while waiting:
        _, left, one, other = heapq.heappop(waiting)
        right = after[left]
        if right < 0 or (parts[left], parts[right]) != (one, other):
            continue  # one of the two is part of another by now
        parts[left], parts[right] = one + other, ""
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
        offer(before[left], left)
        offer(left, after[left])
    return [part for part in parts if part]
