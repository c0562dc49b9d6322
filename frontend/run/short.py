"""Short: one operation on memory, whose plan is known, is run without asking what the graph is.

In       a tensor whose node is one arithmetic operation on tensors in memory and numbers
Out      the key of its plan: what it does, on memory of which kind; and that memory
Changes  nothing
Next     realize.py (who takes this way), plan.py (the plans by these keys), core/structure.py (any graph)

Eager programs run one small operation at a time. For those the general way, which numbers a graph, looks its plan
up and tells every live tensor, costs more than the launch. A key here is a handful of objects compared by identity.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

from hcq.frontend.core.storage import Storage
from hcq.ir.node import Node
from hcq.ir.op import ARITHMETIC, Op


def key_of(node: Node) -> tuple[tuple[Any, ...], list[Storage]] | None:
    """A key that two nodes share only if one plan serves both, and the memory that the plan takes for this one.

    None for a node that is not one operation on memory.
    """
    src = node.src
    if len(src) == 2:
        a, b = src
        if a.op is Op.BUFFER:
            left = a.arg
            kind = left.kind or left.kind_of()
            if a is b:
                return (node.op, node.dtype, kind, 0), [left]
            if b.op is Op.BUFFER:
                right = b.arg
                return (node.op, node.dtype, kind, right.kind or right.kind_of()), [left, right]
            if b.op is Op.CONST:
                return (node.op, node.dtype, kind, b), [left]
        elif a.op is Op.CONST and b.op is Op.BUFFER:
            right = b.arg
            return (node.op, node.dtype, a, right.kind or right.kind_of()), [right]
    elif len(src) == 1 and src[0].op is Op.BUFFER:
        storage = src[0].arg
        return (node.op, node.dtype, storage.kind or storage.kind_of()), [storage]
    return None


def number_of(node: Node) -> tuple[Node, int] | None:
    """The number of an operation on memory and a number, and which source it is."""
    if len(node.src) == 2:
        a, b = node.src
        if a.op is Op.BUFFER and b.op is Op.CONST:
            return b, 1
        if a.op is Op.CONST and b.op is Op.BUFFER:
            return a, 0
    return None


def is_short(node: Node) -> bool:
    """Whether the keys of nodes like this one stand for plans; what moves elements says more in its argument."""
    return node.op in ARITHMETIC and node.arg is None


def is_alone(tensor: Any) -> bool:
    """Whether nothing but the tensor holds its node, so that nobody else has to be told that it has been computed.

    False is always safe, if slower: then all live tensors are asked.
    """
    return getrefcount(tensor.node) == ALONE


class _Sample:
    __slots__ = ("node",)

    def __init__(self) -> None:
        self.node = object()


def _count(holder: Any) -> int:
    """What `is_alone` counts, where a slot holds the only reference: it depends on Python's version."""
    return getrefcount(holder.node)


ALONE = _count(_Sample())
