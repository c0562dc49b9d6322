"""Short: one operation on memory, whose plan is known, is run without asking what the graph is.

In       a tensor whose node is one arithmetic operation on tensors in memory and numbers
Out      the key of its plan: what it does, on memory of which kind
Changes  nothing
Next     realize.py (who takes this way), plan.py (the plans by these keys), scheduler/structure.py (any graph)

Eager programs run one small operation at a time. For those the general way, which numbers a graph, looks its plan
up and tells every live tensor, costs more than the launch. A key here is a handful of objects compared by identity.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

from hcq.ir.node import Node
from hcq.ir.op import ARITHMETIC, Op


def key_of(node: Node) -> tuple[Any, ...] | None:
    """Equal for two nodes only if one plan serves both; None for a node that is not one operation on memory."""
    src = node.src
    if len(src) == 2:
        a, b = src
        if a.op is Op.BUFFER:
            if b.op is Op.BUFFER:
                left, right = a.arg, b.arg
                return (
                    node.op,
                    node.dtype,
                    left.kind or left.kind_of(),
                    0 if a is b else right.kind or right.kind_of(),
                )
            if b.op is Op.CONST:
                return node.op, node.dtype, a.arg.kind or a.arg.kind_of(), b
        elif a.op is Op.CONST and b.op is Op.BUFFER:
            return node.op, node.dtype, a, b.arg.kind or b.arg.kind_of()
    elif len(src) == 1 and src[0].op is Op.BUFFER:
        storage = src[0].arg
        return node.op, node.dtype, storage.kind or storage.kind_of()
    return None


def is_short(node: Node) -> bool:
    """Whether the keys of nodes like this one stand for plans; what moves elements says more in its argument."""
    return node.op in ARITHMETIC and node.arg is None


def is_alone(tensor: Any) -> bool:
    """Whether nothing but the tensor holds its node, so that nobody else has to be told that it has been computed.

    False is always safe, if slower: then all live tensors are asked.
    """
    return getrefcount(tensor.node) == _ALONE


class _Sample:
    __slots__ = ("node",)

    def __init__(self) -> None:
        self.node = object()


def _count(holder: Any) -> int:
    """What `is_alone` counts, where a slot holds the only reference: it depends on Python's version."""
    return getrefcount(holder.node)


_ALONE = _count(_Sample())
