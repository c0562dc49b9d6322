"""Steps: what each rank copies and adds in a collective, round by round. Plain data; no device is asked.

In       the kind of collective, the way, how many elements go from whom to whom
Out      rounds of `Step`s
Next     cost.py (which way is cheaper), perform.py (steps on devices)

A rank pulls: it copies from another rank's memory into its own, and then adds. In one round it reads only what was
there before the round, so all ranks may do a round at the same time. What a rank reads of another is not written again
before data has come back from the reader, by whatever way, except in a round that names the reader.

    source   what a rank gives; an all-reduce and a reduce-scatter add in place there
    result   what it gets
    transit  of an all-to-all by tree: blocks on their way
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from hcq.errors import UsageError
from hcq.frontend.devices.collectives.cost import rounds as doublings

ALIGNED = 64  # elements: kernels that add begin at whole lines of memory
Counts = Sequence[Sequence[int]]


class Step(NamedTuple):
    """One rank takes `length` elements from another, or from itself.

    adds  whether they are joined with what is there, by the collective's operation
    """

    rank: int
    space: str
    at: int
    peer: int
    peer_space: str
    peer_at: int
    length: int
    adds: bool = False


Rounds = list[list[Step]]


def steps(kind: str, way: str, counts: Counts, pieces: int = 1) -> Rounds:
    """The rounds of a collective.

    kind    one of cost.KINDS
    way     "ring" or "tree"
    counts  [i][j] elements go from rank i to rank j; a broadcast is from rank 0
    pieces  of a broadcast by ring
    Raises  UsageError for a kind or a way that is not there
    """
    make = _WAYS.get((kind, way))
    if make is None:
        raise UsageError(f"collective {kind!r} by {way!r}: known are {sorted(_WAYS)}.")
    made = _broadcast_ring(counts, pieces) if make is _broadcast_ring else make(counts)
    return [kept for round_ in made if (kept := [step for step in round_ if step.length])]


def chunks(count: int, ranks: int) -> list[int]:
    """An all-reduce by ring is cut into one chunk per rank, each but the last a whole number of lines."""
    size = -(-count // ranks)
    size = -(-size // ALIGNED) * ALIGNED
    return [max(0, min(size, count - rank * size)) for rank in range(ranks)]


def _starts(sizes: Sequence[int]) -> list[int]:
    return [*accumulate(sizes, initial=0)]


# -- by ring --------------------------------------------------------------------------------------------------------


def _around(space: str, sizes: Sequence[int], lead: int, adds: bool = False) -> Rounds:
    """Each rank takes a chunk from the one before it, in each turn the next: at first the one `lead` from its own."""
    n, at = len(sizes), _starts(sizes)
    found: Rounds = []
    for turn in range(n - 1):
        made = []
        for rank in range(n):
            chunk = (rank + lead - turn) % n
            made.append(Step(rank, space, at[chunk], (rank - 1) % n, space, at[chunk], sizes[chunk], adds))
        found.append(made)
    return found


def _reduce_around(sizes: Sequence[int]) -> Rounds:
    """Chunk c goes once around and ends, complete, on rank c."""
    return _around("source", sizes, -2, True)


def _own(sizes: Sequence[int], into: Sequence[int], of: Sequence[int]) -> list[Step]:
    """Each rank copies its own chunk from its source to its result."""
    return [
        Step(rank, "result", into[rank], rank, "source", of[rank], size) for rank, size in enumerate(sizes)
    ]


def _all_reduce_ring(counts: Counts) -> Rounds:
    sizes = chunks(counts[0][0], len(counts))
    return [*_reduce_around(sizes), *_around("source", sizes, -1)]


def _reduce_scatter_ring(counts: Counts) -> Rounds:
    sizes = counts[0]
    return [*_reduce_around(sizes), _own(sizes, [0] * len(sizes), _starts(sizes))]


def _all_gather_ring(counts: Counts) -> Rounds:
    sizes = [row[0] for row in counts]
    return [_own(sizes, _starts(sizes), [0] * len(sizes)), *_around("result", sizes, -1)]


def _broadcast_ring(counts: Counts, pieces: int = 1) -> Rounds:
    n, sizes = len(counts), chunks(counts[0][0], pieces)
    at = _starts(sizes)
    found: Rounds = [[] for _ in range(n - 2 + pieces)]
    for rank in range(1, n):
        for piece, size in enumerate(sizes):
            found[rank - 1 + piece].append(
                Step(rank, "source", at[piece], rank - 1, "source", at[piece], size)
            )
    return found


def _all_to_all_ring(counts: Counts) -> Rounds:
    n = len(counts)
    gives = [_starts(row) for row in counts]
    gets = [_starts([row[rank] for row in counts]) for rank in range(n)]
    return [
        [
            Step(
                rank, "result", gets[rank][(rank - turn) % n],
                (rank - turn) % n, "source", gives[(rank - turn) % n][rank],
                counts[(rank - turn) % n][rank],
            )
            for rank in range(n)
        ]
        for turn in range(n)
    ]  # fmt: skip


# -- by tree --------------------------------------------------------------------------------------------------------


def _pairs(n: int) -> list[list[tuple[int, int, int]]]:
    """By round, who meets whom: (rank, other, one behind those that the other stands for), the nearest first."""
    steps_ = [1 << bit for bit in range(doublings(n))]
    return [
        [(rank, rank + step, min(rank + 2 * step, n)) for rank in range(0, n, 2 * step) if rank + step < n]
        for step in steps_
    ]


def _reduce_to_first(n: int, count: int) -> Rounds:
    return [
        [Step(rank, "source", 0, other, "source", 0, count, True) for rank, other, _ in met]
        for met in _pairs(n)
    ]


def _spread(n: int, space: str, start: int, count: int) -> Rounds:
    """From the first rank to all, doubling those that have it."""
    return [
        [Step(other, space, start, rank, space, start, count) for rank, other, _ in met]
        for met in reversed(_pairs(n))
    ]


def _all_reduce_tree(counts: Counts) -> Rounds:
    n, count = len(counts), counts[0][0]
    return [*_reduce_to_first(n, count), *_spread(n, "source", 0, count)]


def _reduce_scatter_tree(counts: Counts) -> Rounds:
    n, sizes = len(counts), counts[0]
    at = _starts(sizes)
    found = _reduce_to_first(n, sum(sizes))
    for met in reversed(_pairs(n)):
        found.append([Step(b, "source", at[b], a, "source", at[b], at[end] - at[b]) for a, b, end in met])
    return [*found, _own(sizes, [0] * n, at)]


def _all_gather_tree(counts: Counts) -> Rounds:
    n, sizes = len(counts), [row[0] for row in counts]
    at = _starts(sizes)
    found = [_own(sizes, at, [0] * n)]
    for met in _pairs(n):
        found.append([Step(a, "result", at[b], b, "result", at[b], at[end] - at[b]) for a, b, end in met])
    return [*found, *_spread(n, "result", 0, at[n])]


def _all_to_all_tree(counts: Counts) -> Rounds:
    """Each block goes as far as the binary digits of its distance say, one digit a round."""
    n = len(counts)
    gives = [_starts(row) for row in counts]
    gets = [_starts([row[rank] for row in counts]) for rank in range(n)]
    transit = [[0] * n for _ in range(n)]  # where a block is, on whichever rank it is on its way
    total = 0
    for sender in range(n):
        for receiver in range(n):
            transit[sender][receiver] = total
            total += counts[sender][receiver]
    where = {(i, j): (i, "source", gives[i][j]) for i in range(n) for j in range(n)}
    found: Rounds = []
    for bit in range(doublings(n)):
        step = 1 << bit
        made = []
        for (sender, receiver), (holder, space, at) in where.items():
            if ((receiver - sender) % n) & step:
                after = (holder + step) % n
                is_there = after == receiver and (receiver - sender) % n < 2 * step
                to = (
                    ("result", gets[receiver][sender]) if is_there else ("transit", transit[sender][receiver])
                )
                made.append(Step(after, *to, holder, space, at, counts[sender][receiver]))
                where[sender, receiver] = (after, *to)
        found.append(made)
    own = [Step(r, "result", gets[r][r], r, "source", gives[r][r], counts[r][r]) for r in range(n)]
    return [own, *found]


_WAYS = {
    ("all-reduce", "ring"): _all_reduce_ring,
    ("all-reduce", "tree"): _all_reduce_tree,
    ("reduce-scatter", "ring"): _reduce_scatter_ring,
    ("reduce-scatter", "tree"): _reduce_scatter_tree,
    ("all-gather", "ring"): _all_gather_ring,
    ("all-gather", "tree"): _all_gather_tree,
    ("broadcast", "ring"): _broadcast_ring,
    ("broadcast", "tree"): lambda counts: _spread(len(counts), "source", 0, counts[0][0]),
    ("all-to-all", "ring"): _all_to_all_ring,
    ("all-to-all", "tree"): _all_to_all_tree,
}
