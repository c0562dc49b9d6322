"""Scaled products: factors whose blocks have scales that a matrix unit takes, so that nobody multiplies them out.

In       the nodes of a graph, sources first; the formats that units of the device take with scales
Out      the nodes between the narrow numbers and their product, which are not to be put in memory
Next     walk.py (who asks), compiler/loops/scaled.py (who finds them in the kernel)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hcq.ir.block_scales import exponents_of
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import MOVEMENT, Op


def scaled_factors(order: Sequence[Node], formats: Collection[DType]) -> frozenset[Node]:
    """What the factors of scaled products are made of, down to what is narrow."""
    found: set[Node] = set()
    if not formats:
        return frozenset()
    for node in order:
        if node.op is not Op.REDUCE_AXIS or node.arg[0] is not Op.ADD or node.src[0].op is not Op.MUL:
            continue
        factors = [_factor(factor, formats) for factor in node.src[0].src]
        if all(inside is not None for inside in factors) and any(len(inside or ()) for inside in factors):
            found.update(*[inside for inside in factors if inside is not None])
    return frozenset(found)


def _factor(node: Node, formats: Collection[DType]) -> set[Node] | None:
    """What stands between a factor and its numbers, nothing where it has no scales; None where it is no such factor."""
    views, node = _below_views(node)
    if _is_narrow(node, formats):
        return set()
    if node.op is not Op.MUL:
        return None
    sides = [_below_views(source) for source in node.src]
    for (of_numbers, numbers), (of_scales, scales) in (sides, sides[::-1]):
        exponents = exponents_of(scales)
        if exponents is not None and _is_narrow(numbers, formats):
            return {*views, node, *of_numbers, numbers, *of_scales, *_between(scales, exponents)}
    return None


def _is_narrow(node: Node, formats: Collection[DType]) -> bool:
    return node.op is Op.CAST and node.dtype is dtypes.float32 and node.src[0].dtype in formats


def _below_views(node: Node) -> tuple[list[Node], Node]:
    views = []
    while node.op in MOVEMENT:
        views.append(node)
        node = node.src[0]
    return views, node


def _between(top: Node, bottom: Node) -> set[Node]:
    """The nodes that `top` is made of, down to `bottom`."""
    found, stack = {bottom}, [top]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.src)
    return found
