"""Joins: how a CAT is computed, by its readers or piece by piece into memory of its own.

In       a CAT node, the parts flattened through CATs that it alone reads
Out      a graph of views and choices; or the CAT of pieces that each have their place in its memory
Next     simplify.py (who asks), groups.py (pieces of one shape share a kernel), schedule.py (where a piece is stored)

A few parts are computed where they are read: each is padded with zeros to its place in the whole, and WHERE picks the
part that an element is in. That reads every part for every element, so many parts, and parts that go into memory
anyway, are written instead: each piece by the kernel that computes it, straight to its place. Work is then linear in
the number of elements, and no kernel needs more arguments than a launch takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod

from hcq.frontend.core.nodes import ordinal, padded
from hcq.ir.node import Node
from hcq.ir.op import Op

FEW = 8  # parts that readers choose among
COMMON = 8  # parts of one shape that are worth a kernel of their own
SMALL = 1 << 14  # elements; unlike neighbours up to this size are joined before they are written

MAX_PIECES = 60  # in one kernel, and buffers that these read
MAX_LOOK = 128  # nodes looked at to see what a part reads

PIECE = "piece"


def joined(parts: Sequence[Node], axis: int, number: int, is_written: bool) -> Node:
    """The parts one after the other along an axis.

    number      tells the pieces of this join from those of any other
    is_written  True when the whole goes into memory anyway
    """
    parts = [part for part in parts if part.shape[axis]] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    shapes = Counter([part.shape for part in parts])
    if len(parts) <= FEW and not (is_written and len(shapes) == 1):
        return chosen(parts, axis)
    pieces = []
    for place, part in enumerate(_without_odd_ones(parts, shapes, axis)):
        pieces.append(Node(Op.CONTIGUOUS, part.dtype, (part,), (PIECE, number, place)))
    return pieces[0].src[0] if len(pieces) == 1 else Node(Op.CAT, parts[0].dtype, tuple(pieces), axis)


def is_piece(node: Node) -> bool:
    """True for what is stored to its place in the memory of a CAT."""
    return node.op is Op.CONTIGUOUS and type(node.arg) is tuple and node.arg[0] == PIECE


def kernels_of_pieces(
    order: Sequence[Node], is_read: Callable[[Node], bool], most: int = MAX_PIECES
) -> dict[Node, list[Node]]:
    """Which pieces share a kernel: its last piece in order -> all of them, in order.

    is_read  True for what a kernel reads from memory
    most     pieces in one kernel, and buffers that these read
    Those of one CAT and one shape do, as long as all that they read fits a launch, unless they reduce.
    """
    kernels: dict[Node, list[Node]] = {}
    open_now: dict[tuple[object, object], tuple[list[Node], set[Node]]] = {}
    for node in order:
        if not is_piece(node):
            continue
        key = (node.arg[1], node.shape)
        reads = _reads(node.src[0], is_read)
        pieces, known = open_now.get(key, ([], set()))
        if reads is None:
            kernels[node] = [node]
            continue
        if not pieces or len(pieces) >= most or len(known | reads) > most:
            pieces, known = [], set()
            open_now[key] = pieces, known
        else:
            del kernels[pieces[-1]]
        pieces.append(node)
        known |= reads
        kernels[node] = pieces
    return kernels


def _reads(part: Node, is_read: Callable[[Node], bool]) -> set[Node] | None:
    """What a part is computed from; None when that is much, or a reduction."""
    found: set[Node] = set()
    seen = {part}
    stack = [part]
    while stack:
        node = stack.pop()
        if is_read(node):
            found.add(node)
            continue
        if node.op in (Op.REDUCE_AXIS, Op.GATHER) or len(seen) > MAX_LOOK:
            return None
        for source in node.src:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return found


def chosen(parts: Sequence[Node], axis: int) -> Node:
    """Every part padded to the whole, and for each element the part that it is in."""
    total = sum([part.shape[axis] for part in parts])
    rank = len(parts[0].shape)
    at, result = 0, None
    for part in parts:
        size = part.shape[axis]
        value = padded(part, tuple([(at, total - at - size) if d == axis else (0, 0) for d in range(rank)]))
        result = value if result is None else (ordinal(total, axis, value.shape) < at).where(result, value)
        at += size
    assert result is not None
    return result


def _without_odd_ones(parts: Sequence[Node], shapes: Counter[tuple[int, ...]], axis: int) -> list[Node]:
    """Small neighbours of uncommon shapes joined, a few at a time: a kernel for each would be many kernels."""
    found: list[Node] = []
    run: list[Node] = []
    for part in parts:
        is_odd = shapes[part.shape] < COMMON and prod(part.shape) <= SMALL
        if run and (not is_odd or len(run) == FEW):
            found.append(chosen(run, axis) if len(run) > 1 else run[0])
            run = []
        if is_odd:
            run.append(part)
        else:
            found.append(part)
    if run:
        found.append(chosen(run, axis) if len(run) > 1 else run[0])
    return found


def inner_joins(order: Sequence[Node], roots: Sequence[Node]) -> tuple[set[Node], set[Node]]:
    """(CATs that only a CAT along the same axis reads: it takes their parts; CATs that go into memory as they are)."""
    joins = [node for node in order if node.op is Op.CAT]
    users: dict[Node, list[Node]] = {node: [] for node in joins}
    for node in order:
        for source in node.src:
            if source.op is Op.CAT:
                users[source].append(node)
    written = {node for node in joins if any(user.op is Op.CONTIGUOUS for user in users[node])}
    written.update(root for root in roots if root.op is Op.CAT)
    inner = {
        node
        for node in joins
        if node not in written
        and len(users[node]) == 1
        and users[node][0].op is Op.CAT
        and users[node][0].arg == node.arg
    }
    return inner, written


def parts_of(node: Node, new: dict[Node, Node], inner: set[Node]) -> list[Node]:
    """The simplified parts of a CAT, through the CATs that are only parts of it."""
    parts: list[Node] = []
    stack = list(reversed(node.src))
    while stack:
        part = stack.pop()
        if part in inner:
            stack.extend(reversed(part.src))
        else:
            parts.append(new[part])
    return parts
