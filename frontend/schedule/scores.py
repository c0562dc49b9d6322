"""Scores: which products of thin matrices are too large to keep, as those of attention are.

In       a sum of products, or shapes
Out      whether it is computed again wherever it is used
Next     nested.py (what is computed with them), fuse.py and ops/attention.py (who ask)
"""

from __future__ import annotations

from math import prod

from hcq.ir.node import Node, Shape
from hcq.ir.op import MOVEMENT, Op

LARGE_SCORES = 1 << 20  # elements; fewer stay in a cache, and reading them costs less than making them again
THIN = 128  # the longest inner size, and the widest results: what registers hold a row of
SAVED = 2  # times fewer elements below and above than in between
Fold = tuple[Node, frozenset[int]]  # the scores, and which of their axes


def is_large(shape: Shape, width: int) -> bool:
    """Whether scores of this shape, of queries and keys so wide, are too many to keep."""
    count = prod(shape)
    return (
        count >= LARGE_SCORES and width <= THIN and shape[-2] * shape[-1] >= SAVED * width * sum(shape[-2:])
    )


def is_narrow(result: Node, count: int) -> bool:
    """Whether registers hold a row of so many results of this shape, beside scores."""
    return count * result.shape[-1] <= THIN


def is_thin(node: Node) -> bool:
    """A sum of products of two operands that together have far fewer elements than it has."""
    source, size = node.src[0], prod(node.shape)
    while source.op is Op.CAST:
        source = source.src[0]
    if node.arg[0] is not Op.ADD or size < LARGE_SCORES or prod(source.shape) > THIN * size:
        return False
    if source.op is not Op.MUL or any(not side.shape for side in source.src):
        return False
    return size >= SAVED * sum(_elements(side) for side in source.src)


def _elements(node: Node) -> int:
    """How many elements are really different."""
    least = prod(node.shape)
    while node.op in MOVEMENT or node.op is Op.CAST:
        node = node.src[0]
        least = min(least, prod(node.shape))
    return least
