"""Online: sums weighted by exp(x - max(x)) are taken in one pass, together with the maximum.

In       a kernel-stage graph; x is itself a reduction, as the scores of attention are
Out      the same, with sums that follow the maximum so far
Next     ../linear/nested.py (who writes such sums down), ../passes/lower_movement.py (one range for maximum and sums)
Source   Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"

    m = max(x over j); sum(exp(x - m) * v over j)

becomes a sum that, whenever m grows, is multiplied by exp(FORMER(m) - m): what was added so far had the old m in it.
So x is computed once, and never has to be kept. A divisor that is the same for all j moves behind the sum. Where m is
still -inf nothing has been added, and 0 stands for it.
"""

from __future__ import annotations

import math
from functools import reduce

from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, binary, const, toposort
from hcq.ir.op import Op
from hcq.ir.rewrite import Notes, Pass, Step


def _rewrite(sink: Node, target: object, notes: Notes) -> Node:
    order = toposort((sink,))
    if not any(n.op is Op.REDUCE and n.arg is Op.MAX and _is_of_reductions(n) for n in order):
        return sink
    new: dict[Node, Node] = {}
    for node in order:
        src = tuple([new[source] for source in node.src])
        made = node if src == node.src else node.replace(src=src)
        if made.op is Op.REDUCE and made.arg is Op.ADD:
            after = _rescaled(made)
            if after is not None:
                notes("rescale", made, after)
                made = after
        new[node] = made
    return new[sink]


def _rescaled(node: Node) -> Node | None:
    """The sum in one pass with the maximum in its weights, None where it has no such weights."""
    factors: list[Node] = []
    divisors: list[Node] = []
    _take_apart(node.src[0], frozenset(node.src[1:]), factors, divisors)
    tops = [_top_of(factor, node.src[1:]) for factor in factors]
    found = [i for i, top in enumerate(tops) if top is not None]
    if len(found) != 1:
        return None
    at = found[0]
    top = tops[at]
    assert top is not None
    others = [factor for i, factor in enumerate(factors) if i != at]
    if any(top in toposort((other,)) for other in others):
        return None
    dtype = top.dtype
    safe = top.eq(const(-math.inf, dtype)).where(const(0.0, dtype), top)
    below = Node(Op.NEG, dtype, (safe,))
    weight = factors[at].substitute({Node(Op.NEG, dtype, (top,)): below})
    grown = Node(Op.EXP, dtype, (Node(Op.FORMER, dtype, (top,)) + below,))
    value = reduce(lambda a, b: binary(Op.MUL, a, b), [weight, *others])
    total = Node(Op.RESCALE, dtype, (value, grown))
    result = Node(Op.REDUCE, dtype, (total, *node.src[1:]), Op.ADD)
    for divisor in divisors:
        result = Node(Op.DIV, dtype, (result, divisor))
    return result


def _is_of_reductions(top: Node) -> bool:
    """Whether each step of a maximum has a reduction of its own; one that is the same for all steps is made before."""
    ranges = set(top.src[1:])
    inner = [node for node in toposort(top.src[:1]) if node.op is Op.REDUCE]
    return any(not ranges.isdisjoint(_free(node)) for node in inner)


def _take_apart(value: Node, ranges: frozenset[Node], factors: list[Node], divisors: list[Node]) -> None:
    """The factors of a product, and what it is divided by that is the same along the ranges."""
    stack = [value]
    while stack:
        node = stack.pop()
        if node.op is Op.MUL:
            stack.extend(reversed(node.src))
        elif node.op is Op.DIV and ranges.isdisjoint(_free(node.src[1])):
            divisors.append(node.src[1])
            stack.append(node.src[0])
        elif _is_rounding(node):  # of a weight: it is as good without
            stack.append(node.src[0].src[0])
        else:
            factors.append(node)


def _is_rounding(node: Node) -> bool:
    """A float32 made narrow, and wide again."""
    inner = node.src[0] if node.op is Op.CAST else node
    return (
        inner.op is Op.CAST
        and inner is not node
        and node.dtype is dtypes.float32
        and inner.src[0].dtype is dtypes.float32
        and inner.dtype.is_float
    )


def _free(root: Node) -> set[Node]:
    """The ranges that a value differs along."""
    free: dict[Node, set[Node]] = {}
    for node in toposort((root,)):
        found = {node} if node.op is Op.RANGE else set[Node]().union(*[free[s] for s in node.src])
        free[node] = found - set(node.src[1:]) if node.op is Op.REDUCE else found
    return free[root]


def _top_of(factor: Node, ranges: tuple[Node, ...]) -> Node | None:
    """m of a factor exp(x - m), a maximum over these ranges."""
    if factor.op is not Op.EXP or factor.src[0].op is not Op.ADD:
        return None
    for x, minus in (factor.src[0].src, factor.src[0].src[::-1]):
        if minus.op is not Op.NEG:
            continue
        top = minus.src[0]
        is_top = top.op is Op.REDUCE and top.arg is Op.MAX and top.src[1:] == ranges
        if is_top and top not in toposort((x,)) and _is_of_reductions(top):
            return top
    return None


online = Pass(
    "online",
    "what is weighted by exp(x - max(x)) is added up while the maximum is found",
    [Step("rescale", "sum(exp(x - m) * v / d) -> RESCALE(exp(x - m) * v, exp(FORMER(m) - m)) summed, / d")],
    _rewrite,
)
