"""Scaled factors: narrow floats with a power of two for each block of them, as some matrix units multiply them.

In       the value of a sum of products
Out      two of `Factor`: the narrow numbers, and the exponents of their blocks
Next     heuristic_matrix.py, products.py (who ask), ../linear/fragments.py (who loads both), matrix_units.py
Source   ../../ir/block_scales.py: the powers as nodes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hcq.ir.block_scales import BLOCK, exponents_of
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op


@dataclass(frozen=True)
class Factor:
    """A factor of a product before it is widened; `exponents` where its blocks have scales."""

    value: Node
    exponents: Node | None = None


def factors_of(value: Node, masks: Mapping[Node, int], outputs: int) -> list[Factor]:
    """The two factors of a product; none where it has more.

    masks     the ranges that each node depends on
    outputs   those of results: exponents belong to the factor that differs along all of these that they differ along
    """
    found, stack, exponents = list[Node](), [value], list[Node]()
    while stack:
        node = stack.pop()
        if node.op is Op.MUL and (node is value or _is_scaled(node)):
            stack += reversed(node.src)
        elif (own := exponents_of(node)) is not None:
            exponents.append(own)
        else:
            found.append(node.src[0] if node.op is Op.CAST else node)
    if len(found) != 2:
        return []
    made = []
    for one in found:
        mine = [own for own in exponents if not masks[own] & outputs & ~masks[one]]
        exponents = [own for own in exponents if own not in mine]
        if len(mine) > 1:
            return []
        made.append(Factor(one, mine[0] if mine else None))
    return [] if exponents else made


def _is_scaled(node: Node) -> bool:
    """Whether a product has a scale in it, and so is no factor that was computed."""
    return any(
        exponents_of(source) is not None or (source.op is Op.MUL and _is_scaled(source))
        for source in node.src
    )


def is_for_blocks(exponents: Node, along: Node) -> bool:
    """Whether all steps of a range in a block have the same exponents: only quotients of it, and ends, are in them."""
    for node in toposort((exponents,)):
        if along in node.src:
            is_whole = (
                node.op in (Op.FLOORDIV, Op.CMPLT) and node.src[0] is along and node.src[1].op is Op.CONST
            )
            if not is_whole or int(node.src[1].arg) % BLOCK:
                return False
    return True
