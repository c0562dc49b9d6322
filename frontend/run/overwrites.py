"""Overwrites: which memory graphs write to in place, and which graphs need what is there before.

In       graphs, as roots
Out      the leaves that they overwrite; whether a graph reads one of them as it was; the moves between devices that do
Next     realize.py (who computes readers first, or writes elsewhere)
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from hcq.ir.node import Node, toposort
from hcq.ir.op import MOVEMENT, Op

SAME_ORDER = frozenset({Op.RESHAPE, Op.DETACH, Op.FIRST})  # the elements of a value lie as its source's do
_VIEWS = MOVEMENT | SAME_ORDER | {Op.BITCAST}


def written_by(roots: Sequence[Node]) -> set[Node]:
    """The BUFFER leaves that the roots overwrite, and each ASSIGN that another one writes over."""
    return set(written_over(roots)[0])


def written_over(roots: Sequence[Node]) -> tuple[dict[Node, Node], Node | None]:
    """What is overwritten, each with the ASSIGN that does it; and one that overwrites what another does, if any."""
    found: dict[Node, Node] = {}
    seen: set[Node] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        stack.extend(node.src)
        if node.op is Op.ASSIGN:
            base = base_of(node.src[0])
            if found.setdefault(base, node) is not node:
                return found, node
    return found, None


def base_of(view: Node) -> Node:
    """What a view shows, or a part of it: memory, an ASSIGN, or what is to be computed."""
    while view.op in _VIEWS:
        view = view.src[0]
    return view


def memory_of(node: Node) -> Node:
    """The leaf that an ASSIGN, or a view of memory, is about."""
    while node.op is not Op.BUFFER:
        node = node.src[0]
    return node


def is_lent(node: Node) -> bool:
    """Whether others than tensors know the memory: they are to see what is written."""
    return node.op is Op.BUFFER and bool(node.arg.is_lent)


def reads(node: Node, written: Container[Node], done: Container[Node] = ()) -> bool:
    """True when the graph needs what is in one of those buffers before it is overwritten.

    done   assignments that are made now: what they need is not asked
    """
    seen: set[Node] = set()
    stack = [node]
    while stack:
        node = stack.pop()
        if node in written:
            return True
        if node in seen:
            continue
        seen.add(node)
        if node.op is not Op.ASSIGN:
            stack.extend(node.src)
        elif node not in done:
            stack.append(node.src[1])
            base = base_of(node.src[0])
            if base.op is Op.ASSIGN:
                stack.append(base)
    return False


def is_move(node: Node) -> bool:
    """Whether it moves what another device has."""
    return node.op is Op.COPY and not getattr(node.arg, "is_here", False)


def moves_of(node: Node, written: Container[Node]) -> dict[Node, None]:
    """The moves between devices under a node of what is in one of those buffers before it is overwritten."""
    found: dict[Node, None] = {}
    for inner in node.toposort():
        if is_move(inner) and reads(inner, written):
            below = inner.toposort()
            if not any(one in found or one.op is Op.ASSIGN for one in below):
                found[inner] = None
    return found


def next_moves(roots: list[Node]) -> list[tuple[Node, Node | None]]:
    """Moves between devices with no other below them, each with some memory that it is computed from."""
    found: list[tuple[Node, Node | None]] = []
    moved: set[Node] = set()  # what is computed from a move
    for node in toposort(roots):
        moves = is_move(node)
        if any(source in moved for source in node.src):
            moved.add(node)
        elif moves:
            moved.add(node)
            found.append((node, next((n for n in node.toposort() if n.op is Op.BUFFER), None)))
    return found
