"""Columns: sums along the columns of a large matrix are added up row by row.

In       roots, in which a sum runs over the rows of a matrix in memory; how many workers there are
Out      the same sums, where a CPU's few workers make them
Next     ../rewrites/two_steps.py (other reductions in two steps), rows.py (which axis of what runs along which)

    out[c] = sum over r of x[r, c]          part[p, c] += sum over i of x[p * length + 4 * r + i, c],
                                            out[c] = sum over p of part[p, c]

A sum in registers walks a strip of a few columns down all rows: from each row it takes a few lines of memory, and the
next row is pages away. Memory is read twice as fast from one end to the other. So each worker adds whole rows to a row
of its own, which stays in the nearest cache, and takes four at a time: its row is read and written once for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hcq.frontend.core.nodes import filled, permuted, reduced, reshaped
from hcq.frontend.schedule.rows import Frame, below
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, toposort
from hcq.ir.op import ARITHMETIC, Op

LARGE_MATRIX = 8 << 20  # bytes: caches that a core has for itself hold less
# shorter rows are walked line by line anyway, longer ones leave the nearest cache
ROW_BYTES = (2048, 64 << 10)
PIECES = (
    8  # of the rows, for each worker: as many as the compiler wants groups, or it would divide rows as well
)
AT_ONCE = (4, 3, 2, 1)  # rows that are added up before they meet the worker's own
MANY_WORKERS = 256  # a GPU's
MOST_NODES = 64  # of what is summed: beyond, time goes into computing it

_VIEWS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.EXPAND})
_SAME = frozenset({Op.DETACH, Op.FUNCTION})
_IN_MEMORY = frozenset({Op.BUFFER, Op.CONTIGUOUS, Op.ASSIGN})


def in_columns(roots: Sequence[Node], threads: int) -> list[Node]:
    """The same values, sums along columns of large matrices row by row."""
    order = toposort(roots)
    if threads >= MANY_WORKERS or not any(_is_large(node) for node in order):
        return list(roots)
    new: dict[Node, Node] = {}
    for node in order:
        src = tuple([new[source] for source in node.src])
        made = node if src == node.src else Node(node.op, node.dtype, src, node.arg)
        if _is_large(made) and _is_along_columns(made):
            made = _row_by_row(made, threads)
        new[node] = made
    return [new[root] for root in roots]


def _is_large(node: Node) -> bool:
    """Whether it is a sum of that many elements, which may be rounded where it is stored."""
    if node.op is not Op.REDUCE_AXIS or node.arg[0] is not Op.ADD or node.dtype.itemsize < 4:
        return False
    return prod(node.src[0].shape) * node.dtype.itemsize >= LARGE_MATRIX


def _axes(node: Node) -> tuple[int, int] | None:
    """The axis that is summed and the one that is left; None where there are more."""
    shape = node.src[0].shape
    longer = [axis for axis, size in enumerate(shape) if size > 1]
    summed = [axis for axis in longer if axis in node.arg[1]]
    left = [axis for axis in longer if axis not in node.arg[1]]
    return (summed[0], left[0]) if len(summed) == len(left) == 1 else None


def _is_along_columns(node: Node) -> bool:
    """Whether whole rows of what is summed lie in memory one after the other."""
    axes = _axes(node)
    if axes is None:
        return False
    source = node.src[0]
    least, most = ROW_BYTES
    if not least <= source.shape[axes[1]] * node.dtype.itemsize <= most:
        return False
    has_matrix = False
    seen: set[tuple[Node, Frame]] = set()
    stack: list[tuple[Node, Frame | None]] = [(source, axes)]
    while stack:
        part, frame = stack.pop()
        if frame is None or len(seen) > MOST_NODES:
            return False
        if part.op in (Op.CONST, Op.IOTA) or (part, frame) in seen:
            continue
        seen.add((part, frame))
        row, column = frame
        if part.op in ARITHMETIC or part.op in _VIEWS:
            stack += [(s, below(part, s, frame, source.shape)) for s in part.src if s.shape or part.shape]
        elif part.op in _SAME:
            stack.append((part.src[0], frame))
        elif column is not None:
            if prod(part.shape[column + 1 :]) > 1 or (row is not None and part.op not in _IN_MEMORY):
                return False
            has_matrix = has_matrix or row is not None
    return has_matrix


def _row_by_row(node: Node, threads: int) -> Node:
    axes = _axes(node)
    assert axes is not None
    source = node.src[0]
    rows, columns = (source.shape[axis] for axis in axes)
    most = PIECES * threads if threads > 1 else 1
    pieces = next((p for p in range(most, 1, -1) if rows % p == 0), 1)
    if pieces < threads:
        return node
    others = [axis for axis in range(len(source.shape)) if axis not in axes]
    matrix = permuted(source, (*others, *axes))
    length = rows // pieces
    at_once = next(count for count in AT_ONCE if length % count == 0)
    few = reduced(Op.ADD, reshaped(matrix, (pieces, length // at_once, at_once, columns)), (2,))
    parts = reshaped(few, (pieces, length // at_once, columns))
    nothing = filled(0, (pieces, 1, columns), node.dtype)
    where = filled(0, parts.shape, dtypes.int64)
    added = Node(Op.SCATTER_ADD, node.dtype, (nothing, where, parts), 1)
    return reshaped(reduced(Op.ADD, added, (0,)), node.shape)
