"""Sums over ranks, in an order that is fixed: the same bits whichever way the parts travel, on every rank.

In       one array on each rank, of equal length and dtype; an operation of a group
Out      `all_reduce`, `reduce_scatter`, `all_gather` on arrays of the host; `tree`, the order of every sum
Changes  the target arrays
Next     collectives.py (the same for tensors), docs/scaling.md (what each way costs)
Source   Thakur, Rabenseifner, Gropp 2005, Optimization of collective communication operations in MPICH (halving)

Rounding makes a sum depend on its order, and MPI leaves that to its implementation. Here it is a binary tree over the
ranks: neighbours first, ((0 + 1) + (2 + 3)) + ... So four ranks with a quarter of a batch each add up as two ranks do
that added two quarters each, and as one that added four.

    direct    every rank gets its part of the array from every other one, adds, and sends the result to all: one trip,
              any number of ranks, as many bytes as a ring
    halving   ranks exchange halves, then quarters, and so on with partners at distance 1, 2, 4: the same tree,
              log2(n) messages instead of n - 1; for powers of two
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hcq.errors import UsageError
from hcq.frontend.more.distributed.group import Operation

Array = Any
Combine = Callable[[Array, Array, Array], None]  # a, b, where the result goes; that may be a

HALVING_FROM = 8  # ranks; with fewer, direct messages are not more than halving's, and travel once

COMBINE: dict[str, Any] = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}


def combine(op: str, dtype: str) -> Combine:
    """How two arrays become one. 16-bit floats are widened and rounded once for each step of the tree."""
    function = COMBINE[op]

    def join(a: Array, b: Array, out: Array) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # infinities, as on a device
            if dtype == "bfloat16":
                _narrow(function(_wide(a), _wide(b)), out)
            else:
                function(a, b, out=out)

    return join


def as_numbers(raw: Array, dtype: str) -> Array:
    """Bytes as an array that `combine` takes. bfloat16, which NumPy lacks, stays as its 16 bits."""
    return raw.view(np.uint16 if dtype == "bfloat16" else dtype)


def divide(array: Array, count: int, dtype: str) -> None:
    """Divide in place: the last step of a mean."""
    if dtype == "bfloat16":
        _narrow(_wide(array) / np.float32(count), array)
    else:
        np.divide(array, array.dtype.type(count), out=array)


def _wide(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _narrow(values: Array, out: Array) -> None:
    """To the nearest bfloat16, ties to even; a NaN stays one."""
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    out[:] = np.where(np.isnan(values), (bits >> 16) | 0x40, rounded)


def tree(parts: Sequence[Array], join: Combine, out: Array) -> None:
    """Combine parts in the order of ranks by the binary tree, into `out`; other parts are used up on the way."""
    if len(parts) == 1:
        if parts[0] is not out:
            out[:] = parts[0]
        return
    low = 1 << (len(parts) - 1).bit_length() - 1  # the largest power of two below the number
    left, right = list(parts[:low]), list(parts[low:])
    tree(left, join, out)
    if len(right) > 1:
        # not into out: that holds the left half already
        tree(right, join, right[0])
    join(out, right[0], out)


def bounds(length: int, parts: int, step: int = 16) -> list[int]:
    """Where the parts of an array begin and end: multiples of a step, as even as they can be."""
    steps = -(-length // step)
    return [min(length, step * (steps * n // parts)) for n in range(parts + 1)]


def all_reduce(op: Operation, source: Array, target: Array, join: Combine, way: str = "") -> None:
    """Every rank's target becomes the sum of all sources. The target may be the source.

    way  "direct" or "halving"; "" chooses by the number of ranks
    """
    size = op.size
    if size == 1:
        if target is not source:
            target[:] = source
        return
    is_power = size & (size - 1) == 0
    way = way or ("halving" if is_power and size >= HALVING_FROM else "direct")
    if way == "halving":
        if not is_power:
            raise UsageError(
                f"[all_reduce] halving takes a power of two of ranks, not {size}. Use way='direct'."
            )
        _halve(op, source, target, join)
        return
    edges = bounds(source.size, size)
    _reduce_parts(op, source, target[edges[op.rank] : edges[op.rank + 1]], edges, join)
    _exchange(op, target, edges)


def reduce_scatter(op: Operation, source: Array, part: Array, edges: Sequence[int], join: Combine) -> None:
    """Rank r's part becomes the sum of all sources between edges[r] and edges[r + 1]."""
    if op.size == 1:
        part[:] = source
        return
    _reduce_parts(op, source, part, edges, join)


def all_gather(op: Operation, target: Array, edges: Sequence[int]) -> None:
    """Every rank's target becomes the parts of all; its own is there already."""
    if op.size > 1:
        _exchange(op, target, edges)


def _others(op: Operation) -> list[int]:
    """The other ranks, each rank's list beginning with the next one: so that not all send to the same one at first."""
    return [(op.rank + step) % op.size for step in range(1, op.size)]


def _reduce_parts(op: Operation, source: Array, part: Array, edges: Sequence[int], join: Combine) -> None:
    own = source[edges[op.rank] : edges[op.rank + 1]]
    room = op.scratch(own.nbytes * (op.size - 1)).view(own.dtype)
    arrived = {other: room[n * own.size : (n + 1) * own.size] for n, other in enumerate(_others(op))}
    requests = [op.receive(arrived[other], other) for other in reversed(_others(op))]
    requests += [op.send(source[edges[other] : edges[other + 1]], other) for other in _others(op)]
    op.wait(requests)
    if op.size == 2:  # the usual small case, without a copy
        other = arrived[1 - op.rank]
        first, second = (own, other) if op.rank == 0 else (other, own)
        join(first, second, part)
        return
    parts = [own.copy() if place == op.rank else arrived[place] for place in range(op.size)]
    tree(parts, join, parts[0])
    part[:] = parts[0]


def _exchange(op: Operation, target: Array, edges: Sequence[int]) -> None:
    own = target[edges[op.rank] : edges[op.rank + 1]]
    requests = [op.receive(target[edges[n] : edges[n + 1]], n) for n in reversed(_others(op))]
    requests += [op.send(own, other) for other in _others(op)]
    op.wait(requests)


def _halve(op: Operation, source: Array, target: Array, join: Combine) -> None:
    """Reduce-scatter by halves with partners at distance 1, 2, 4, then the way back."""
    low, high = 0, source.size
    trail = []
    given = source
    scratch = op.scratch((-(-source.size // 2) + 16) * source.itemsize).view(source.dtype)
    distance = 1
    while distance < op.size:
        partner = op.rank ^ distance
        middle = low + bounds(high - low, 2)[1]
        trail.append((partner, low, middle, high))
        keep, give = ((low, middle), (middle, high)) if op.rank < partner else ((middle, high), (low, middle))
        arrived = scratch[: keep[1] - keep[0]]
        op.wait([op.receive(arrived, partner), op.send(given[give[0] : give[1]], partner)])
        mine = given[keep[0] : keep[1]]
        if op.rank < partner:
            join(mine, arrived, target[keep[0] : keep[1]])
        else:
            join(arrived, mine, target[keep[0] : keep[1]])
        low, high = keep
        given = target
        distance *= 2
    for partner, low, middle, high in reversed(trail):
        keep, give = ((low, middle), (middle, high)) if op.rank < partner else ((middle, high), (low, middle))
        op.wait([op.receive(target[give[0] : give[1]], partner), op.send(target[keep[0] : keep[1]], partner)])
