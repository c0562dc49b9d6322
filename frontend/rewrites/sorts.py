"""Sorts: each pass of a sort by some bits gets the counters by which it places elements.

In       a BUCKET, or all of a graph in order; how many workers a device has
Out      a BUCKET of pieces of each row, and where each piece places its elements of each kind
Next     ../schedule/simplify.py (who asks), ../ops/ordering.py (where BUCKETs come from)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hcq.frontend.core.nodes import (
    IN_MEMORY_ANYWAY,
    expanded,
    filled,
    iota,
    minus,
    ordinal,
    padded,
    permuted,
    reduced,
    reshaped,
    shrunk,
)
from hcq.frontend.rewrites.two_steps import MANY_WORKERS, STRETCHES, scan
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, binary, const
from hcq.ir.op import Op

MIN_PER_KIND = 4.0  # elements of a piece for each of its counters, at least
FEW_PASSES = 3  # of a sort, at least, for which it is worth while to write down first what is sorted
PIECE = 1 << 12  # elements that a block of a GPU places at a time
SCANNED_BITS = 4  # of them it can keep apart: a scan of half a word for each kind


@dataclass
class Sort:
    """The passes of a sort, each a BUCKET of what the one before it gave."""

    passes: list[Node]
    counts: Node | None = None  # (rows, passes, kinds): how many elements of each kind a row has


def sorts_of(order: Sequence[Node]) -> dict[Node, Sort]:
    """By pass, the sorts of FEW_PASSES and more, which take as many bits each, one after the other."""
    found: dict[Node, Sort] = {}
    for node in order:
        if node.op is Op.BUCKET:
            sort = found.get(node.src[0], Sort([]))
            sort.passes.append(node)
            found[node] = sort
    for node, sort in list(found.items()):
        first, bits = sort.passes[0].arg
        each = [(first + i * bits, bits) for i in range(len(sort.passes))]
        if len(each) < FEW_PASSES or [one.arg for one in sort.passes] != each:
            del found[node]
    return found


def in_one_piece(node: Node, made: Node, sort: Sort, threads: int, number: int) -> Node | None:
    """A pass over rows that a CPU's workers do not divide; None for other passes.

    How many elements of a kind a row has does not depend on their order: the counts of all passes are taken at once.
    """
    (rows, size), (shift, bits) = made.src[0].shape, made.arg
    if threads >= MANY_WORKERS or not rows or size < 2 or _pieces(rows, size, bits, threads) > 1:
        return None
    x, at, kinds, passes = made.src[0], sort.passes.index(node), 1 << bits, len(sort.passes)
    if sort.counts is None:
        if x.op is not Op.BUFFER and x.op not in IN_MEMORY_ANYWAY:
            x = Node(Op.CONTIGUOUS, x.dtype, (x,))
        each = (rows, passes, size)
        bit = binary(Op.ADD, binary(Op.MUL, iota(passes, 1, each, x.dtype), bits), shift)
        kind = Node(Op.SHR, x.dtype, (expanded(reshaped(x, (rows, 1, size)), each), bit))
        kind = Node(Op.AND, x.dtype, (kind, const(kinds - 1, x.dtype)))
        nothing = filled(0, (rows, passes, kinds), dtypes.int32)
        nothing = Node(Op.CONTIGUOUS, dtypes.int32, (nothing,), ("counts", number))
        sort.counts = Node(Op.SCATTER_ADD, dtypes.int32, (nothing, kind, const(1, dtypes.int32)), 2)
    counts = shrunk(sort.counts, ((0, rows, 1), (at, at + 1, 1), (0, kinds - 1, 1)))
    before = Node(Op.SCAN_AXIS, dtypes.int32, (padded(counts, ((0, 0), (0, 0), (1, 0))),), (Op.ADD, 2))
    return Node(Op.BUCKET, x.dtype, (reshaped(x, (rows, 1, size)), before), made.arg)


def _pieces(rows: int, size: int, bits: int, threads: int) -> int:
    """Into how many pieces a CPU's workers divide rows that they sort."""
    most = min(-(-threads * STRETCHES // rows), int(size / (MIN_PER_KIND * (1 << bits))))
    return next((p for p in range(most, 1, -1) if size % p == 0), 1)


def bucket(node: Node, threads: int, number: int) -> Node:
    """Count the bits' values in pieces of each row, and sum the counts up: these are the counters to place by.

    The threads of a GPU place a piece together. For each kind they scan where it is, so there are few kinds at a time.
    """
    x, (shift, bits) = node.src[0], node.arg
    rows, size = x.shape
    if not rows or size < 2:
        return x
    if threads < MANY_WORKERS:
        pieces = _pieces(rows, size, bits, threads)
        return _placed(x, shift, bits, pieces, number, threads)
    about = -(-size // PIECE)
    pieces = next(p for p in range(about, size + 1) if size % p == 0) if size > PIECE else 1
    for low in range(shift, shift + bits, SCANNED_BITS):
        some = min(SCANNED_BITS, shift + bits - low)
        x = _placed(x, low, some, pieces, number, threads)
    return x


def _placed(x: Node, shift: int, bits: int, pieces: int, number: int, threads: int) -> Node:
    """A pass of a sort: rows in the stable order of some bits."""
    rows, size = x.shape
    kinds, is_gpu = 1 << bits, threads >= MANY_WORKERS
    parts = reshaped(x, (rows, pieces, size // pieces))
    if is_gpu:
        each = (rows, pieces, kinds, size // pieces)
        kind = _bits(expanded(reshaped(x, (rows, pieces, 1, size // pieces)), each), shift, bits)
        is_it = kind.eq(Node(Op.CAST, x.dtype, (ordinal(kinds, 2, each),)))
        counts = reduced(Op.ADD, Node(Op.CAST, dtypes.int32, (is_it,)), (3,))
    else:
        nothing = filled(0, (rows, pieces, kinds), dtypes.int32)
        nothing = Node(Op.CONTIGUOUS, dtypes.int32, (nothing,), ("counts", number))
        one = const(1, dtypes.int32)
        counts = Node(Op.SCATTER_ADD, dtypes.int32, (nothing, _bits(parts, shift, bits), one), 2)
    # of all pieces the first kind, then the second, ..
    counts = reshaped(counts, (rows, pieces, kinds))
    listed = reshaped(permuted(counts, (0, 2, 1)), (rows, kinds * pieces))
    running = scan(Node(Op.SCAN_AXIS, dtypes.int32, (listed,), (Op.ADD, 1)), threads)
    if is_gpu:  # what is before each one: read a place further to the left
        before = shrunk(padded(running, ((0, 0), (1, 0)), 0), ((0, rows, 1), (0, kinds * pieces, 1)))
    else:
        before = minus(running, listed)
    counters = permuted(reshaped(before, (rows, kinds, pieces)), (0, 2, 1))
    if is_gpu:
        return Node(Op.BUCKET, x.dtype, (parts, counters), (shift, bits, True))
    counters = Node(Op.CONTIGUOUS, dtypes.int32, (counters,), ("counters", number))
    return Node(Op.BUCKET, x.dtype, (parts, counters), (shift, bits))


def _bits(x: Node, shift: int, bits: int) -> Node:
    """What some bits of integers say."""
    moved = Node(Op.SHR, x.dtype, (x, const(shift, x.dtype)))
    return Node(Op.AND, x.dtype, (moved, const((1 << bits) - 1, x.dtype)))
