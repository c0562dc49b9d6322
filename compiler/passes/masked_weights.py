"""Masked weights: where a score is -inf, its weight is zero, and says so.

In       a kernel-stage graph
Out      the same kernel, exp(x - m) under the condition that x had
Next     online.py (which knows weights by their other form, and has run), ../linear/limits.py (who skips what is zero)

    exp((x where c, else -inf) + y) = exp(x + y) where c, else 0

That holds unless y is inf or NaN: then the weight was NaN, and a row of such weights has other NaNs. Nothing becomes
quicker by it; but a sum of such weights, or of products with them, says itself which of its terms vanish.
"""

from __future__ import annotations

import math

from hcq.ir.node import Node, const, toposort
from hcq.ir.op import Op
from hcq.ir.rewrite import Notes, Pass, Step


def _rewrite(sink: Node, target: object, notes: Notes) -> Node:
    new: dict[Node, Node] = {}
    for node in toposort((sink,)):
        src = tuple([new[source] for source in node.src])
        made = node if src == node.src else node.replace(src=src)
        if made.op is Op.EXP and made.src[0].op is Op.ADD and (after := _under_condition(made)) is not None:
            notes("masked-weight", made, after)
            made = after
        new[node] = made
    return new[sink]


def _under_condition(node: Node) -> Node | None:
    """The exponential where its condition holds, else zero; None for one without a condition."""
    for x, y in (node.src[0].src, node.src[0].src[::-1]):
        if x.op is Op.WHERE and x.src[2].op is Op.CONST and x.src[2].arg == -math.inf:
            power = Node(Op.EXP, node.dtype, (Node(Op.ADD, node.dtype, (x.src[1], y)),))
            return Node(Op.WHERE, node.dtype, (x.src[0], power, const(0.0, node.dtype)))
    return None


masked_weights = Pass(
    "masked-weights",
    "a weight that is the exponential of -inf is zero under the same condition",
    [Step("masked-weight", "exp((x where c, else -inf) + y) -> exp(x + y) where c, else 0")],
    _rewrite,
)
