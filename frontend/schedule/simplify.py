"""Simplification: rewrites of the tensor stage before anything is scheduled.

In       roots
Out      roots of the same values: no DETACH, no FUNCTION, no expanded constants, no reshape of a reshape, no empty
         reductions; large reductions to few elements, long products of few tiles and scans of few lines in two steps;
         every BUCKET with its counters; every scatter with a base of its own; every CAT as its readers see it
Next     fuse.py, joins.py (what a CAT's readers see), ../rewrites/ (reductions, scans and sorts in steps)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from hcq.frontend.core import above
from hcq.frontend.core.nodes import IN_MEMORY_ANYWAY, expanded, permuted, reshaped
from hcq.ir.node import Node, toposort
from hcq.ir.op import ARITHMETIC, MOVEMENT, SCATTERS, Op

FEW = 1 << 12  # elements of one result: they are never reduced in two steps

_WHOLE_IN_MEMORY = frozenset({Op.BUFFER, Op.CONTIGUOUS, Op.ROUTINE})  # whoever reads it


def simplify_graph(roots: Sequence[Node], threads: int) -> list[Node]:
    """The same values, simplified. Identical roots stay identical."""
    new: dict[Node, Node] = {}
    scatters = joins = 0
    order = toposort(roots)
    inner: set[Node] = set()
    written: set[Node] = set()
    if any(node.op is Op.CAT for node in order):
        from hcq.frontend.schedule.joins import inner_joins, joined, parts_of

        inner, written = inner_joins(order, roots)
    sorts = above.sorts_of(order) if any(node.op is Op.BUCKET for node in order) else {}
    in_place = _in_place(order, roots)
    for node in order:
        src = tuple([new[s] for s in node.src])
        op = node.op
        if node in in_place:
            new[node] = node.replace(src=src)  # part of the ASSIGN above it
            continue
        if op is Op.ASSIGN and node.src[1] in in_place:
            new[node] = Node(op, node.dtype, (src[0], *src[1].src[1:]), src[1].arg)
            continue
        if op is Op.CAT:
            if node not in inner:
                joins += 1
                new[node] = joined(parts_of(node, new, inner), node.arg, joins, node in written)
            else:
                new[node] = node  # not needed: its parts are those of the CAT above it
            continue
        if op in SCATTERS:
            scatters += 1  # numbered, so that no two scatters add into one memory
            src = (Node(Op.CONTIGUOUS, node.dtype, (src[0],), ("scatter", scatters)), *src[1:])
        elif op is Op.ASSIGN and not src[1].shape:
            src = (src[0], expanded(src[1], src[0].shape))
        made = node if src == node.src else Node(op, node.dtype, src, node.arg)
        if op is Op.DETACH or op is Op.FUNCTION:
            made = src[0]
        elif op in ARITHMETIC:
            made = _arithmetic(made)
        elif op is Op.RESHAPE:
            made = reshaped(src[0], node.arg)
        elif op in MOVEMENT:
            made = _movement(made)
        elif op is Op.REDUCE_AXIS:
            if not 1 < prod([made.src[0].shape[axis] for axis in made.arg[1]]) < FEW:
                made = above.reduction_in_steps(made, threads)
        elif op is Op.SCAN_AXIS:
            made = above.scan_in_steps(made, threads)
        elif op is Op.BUCKET:
            scatters += 1
            sort = sorts.get(node)
            alone = None if sort is None else above.sorted_in_one_piece(node, made, sort, threads, scatters)
            made = above.bucket(made, threads, scatters) if alone is None else alone
        elif op is Op.ROUTINE:
            made = Node(op, node.dtype, tuple([_in_memory(s) for s in src]), node.arg)
        elif op is Op.CONTIGUOUS and src[0].op in IN_MEMORY_ANYWAY and node.arg is None:
            made = src[0]
        new[node] = made
    return [_own_memory(root, new[root]) for root in roots]


def _in_place(order: Sequence[Node], roots: Sequence[Node]) -> set[Node]:
    """Each SCATTER into a view that is written back to that very view: it writes its elements there, and no others."""
    found = {
        node.src[1]
        for node in order
        if node.op is Op.ASSIGN and node.src[1].op is Op.SCATTER and node.src[1].src[0] is node.src[0]
    }
    if found:
        users = Counter(source for node in order for source in node.src)
        found -= {node for node in found if users[node] > 1 or node in roots}
    return found


def _in_memory(node: Node) -> Node:
    """The same value in memory, as a routine reads it: in any shape."""
    base = node
    while base.op is Op.RESHAPE:
        base = base.src[0]
    return node if base.op in _WHOLE_IN_MEMORY else Node(Op.CONTIGUOUS, node.dtype, (node,), "routine")


def _own_memory(root: Node, made: Node) -> Node:
    """A view that turns out to be all of a buffer is still a value of its own: the buffer may be overwritten."""
    is_shared = made.op in (Op.BUFFER, Op.ASSIGN) and root.op is not made.op
    return Node(Op.CONTIGUOUS, made.dtype, (made,)) if is_shared else made


def _uniform(node: Node) -> Node | None:
    """The CONST that every element of a view of a constant is, if it is one."""
    while node.op in (Op.EXPAND, Op.RESHAPE, Op.PERMUTE, Op.FLIP, Op.SHRINK):
        node = node.src[0]
    return node if node.op is Op.CONST else None


def _arithmetic(node: Node) -> Node:
    """Expanded constants become scalars, as long as one source still gives the shape."""
    if not node.shape:
        return node
    src = tuple([s if s.op is Op.CONST else _uniform(s) or s for s in node.src])
    if src == node.src:
        return node
    if any(s.shape for s in src):
        return Node(node.op, node.dtype, src, node.arg)
    return expanded(Node(node.op, node.dtype, src, node.arg), node.shape)


def _movement(node: Node) -> Node:
    """Views that change nothing go; two permutations become one."""
    source = node.src[0]
    if node.op is Op.PERMUTE:
        return permuted(source, node.arg)
    if node.op in (Op.EXPAND, Op.SHRINK, Op.PAD) and node.shape == source.shape:
        return source
    if node.op is Op.FLIP and not node.arg:
        return source
    return node
