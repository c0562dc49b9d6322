"""Cost: how long a collective takes by each way, as formulae; the cheapest way is taken.

In       how many ranks, how many bytes, what a link between two of them costs
Out      seconds by way; the name of the cheapest; buckets of gradients
Changes  nothing; no device is asked
Next     steps.py (what each way does), docs/devices.md (the formulae, explained)

A round in which each rank receives at most one message of m bytes takes alpha + m * beta, and gamma * m more when what
arrived is added to what is there. With n ranks, B bytes on each (for a gather, a scatter and an all-to-all: in all of
what one rank has in the end), and L = ceil(log2 n):

                    ring                                          tree
    all-reduce      2(n-1) alpha + 2(n-1)/n B beta                2L alpha + 2L B beta + L B gamma
                    + (n-1)/n B gamma
    reduce-scatter  (n-1) alpha + (n-1)/n B (beta + gamma)        2L alpha + L B (beta + gamma) + (n-1)/n B beta
    all-gather      (n-1) alpha + (n-1)/n B beta                  2L alpha + (n-1)/n B beta + L B beta
    broadcast       (n-2+p) (alpha + B/p beta), p pieces          L alpha + L B beta
    all-to-all      (n-1) alpha + (n-1)/n B beta                  L alpha + L/2 B beta
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, sqrt
from typing import NamedTuple

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all")
WAYS = ("ring", "tree")
MAX_PIECES = 64  # of a broadcast along a ring


class Link(NamedTuple):
    """What it costs to send something from one rank to another.

    latency_s          alpha: of a round, whatever its size
    seconds_per_byte   beta: of what is sent
    reduce_s_per_byte  gamma: of what is added to what is there
    """

    latency_s: float
    seconds_per_byte: float
    reduce_s_per_byte: float


# Guesses until measured (docs/devices.md): a submission with a wait, PCIe 4.0 x16 at 25 GB/s, memory at 500 GB/s
PEER = Link(8e-6, 1 / 25e9, 3 / 500e9)
# through memory of the host: two copies, and the host waits in between
STAGED = Link(60e-6, 2 / 12e9, 3 / 500e9)
# devices that share the memory of the host: a copy at 10 GB/s
SHARED = Link(10e-6, 1 / 10e9, 3 / 20e9)


def rounds(ranks: int) -> int:
    """How often something must double to reach all: ceil(log2(ranks))."""
    return max(ranks - 1, 0).bit_length()


def pieces(ranks: int, size_bytes: int, link: Link) -> int:
    """Into how many pieces a broadcast along a ring is cut: where its time has its minimum."""
    if ranks <= 2:
        return 1
    best = sqrt(max(ranks - 2, 0) * size_bytes * link.seconds_per_byte / link.latency_s)
    return min(max(1, round(best)), MAX_PIECES)


def seconds(kind: str, way: str, ranks: int, size_bytes: int, link: Link) -> float:
    """How long a collective takes. The docstring of this module has the formulae."""
    if ranks < 2:
        return 0.0
    alpha, beta, gamma = link
    if (kind, way) == ("broadcast", "ring"):
        cut = pieces(ranks, size_bytes, link)
        return (ranks - 2 + cut) * (alpha + size_bytes / cut * beta)
    often, sent, added = _PAID[kind, way](ranks)
    return often * alpha + sent * size_bytes * beta + added * size_bytes * gamma


def way(kind: str, ranks: int, size_bytes: int, link: Link) -> str:
    """The cheaper way; of equal ones the ring."""
    return min(WAYS, key=lambda each: seconds(kind, each, ranks, size_bytes, link))


def sent_bytes(kind: str, way: str, ranks: int, size_bytes: int) -> int:
    """Bytes that all ranks together send."""
    if ranks < 2:
        return 0
    if way == "ring":
        return (2 if kind == "all-reduce" else 1) * (ranks - 1) * size_bytes
    if kind == "all-to-all":
        return ranks * rounds(ranks) * size_bytes // 2
    if kind == "broadcast":
        return (ranks - 1) * size_bytes
    return 2 * (ranks - 1) * size_bytes


Paid = tuple[float, float, float]  # rounds, and of all bytes the share that is sent, and that is added
_PAID: dict[tuple[str, str], Callable[[int], Paid]] = {
    ("all-reduce", "ring"): lambda n: (2 * (n - 1), 2 * (n - 1) / n, (n - 1) / n),
    ("all-reduce", "tree"): lambda n: (2 * rounds(n), 2 * rounds(n), rounds(n)),
    ("reduce-scatter", "ring"): lambda n: (n - 1, (n - 1) / n, (n - 1) / n),
    ("reduce-scatter", "tree"): lambda n: (2 * rounds(n), rounds(n) + (n - 1) / n, rounds(n)),
    ("all-gather", "ring"): lambda n: (n - 1, (n - 1) / n, 0),
    ("all-gather", "tree"): lambda n: (2 * rounds(n), rounds(n) + (n - 1) / n, 0),
    ("broadcast", "tree"): lambda n: (rounds(n), rounds(n), 0),
    ("all-to-all", "ring"): lambda n: (n - 1, (n - 1) / n, 0),
    ("all-to-all", "tree"): lambda n: (rounds(n), rounds(n) / 2, 0),
}


def bucket_bytes(ranks: int, link: Link, share: float = 0.1) -> int:
    """How large a bucket of gradients should be: latency is then that share of an all-reduce's time by ring.

    share  between 0 and 1; a larger bucket wastes less on latency, a smaller one can begin earlier
    """
    per_byte = 2 * link.seconds_per_byte + link.reduce_s_per_byte
    latency = 2 * (ranks - 1) * link.latency_s
    return ceil(latency * (1 - share) / share / (per_byte * max(ranks - 1, 1) / max(ranks, 1)))


def buckets(sizes: Sequence[int], limit_bytes: int) -> list[list[int]]:
    """Places in `sizes`, grouped in order: a bucket is closed when it holds `limit_bytes` or more."""
    found: list[list[int]] = []
    held = limit_bytes
    for place, size in enumerate(sizes):
        if held >= limit_bytes:
            found.append([])
            held = 0
        found[-1].append(place)
        held += size
    return found
