"""Padding: a longer range, beyond whose old end nothing is read, added or stored.

In       a kernel-stage graph, one of its ranges, the new size
Out      the graph over the longer range, with a condition wherever the old end matters
Next     loop_nest.py (`pad`, the only caller)

Loads and stores get the condition beside those they have. What a reduction over the range adds beyond the old end is
its identity; a sum of products needs no condition where a factor is a load, because what is not read is zero.
"""

from __future__ import annotations

from hcq.ir.block_scales import exponents_of
from hcq.ir.dtype import Scalar, dtypes
from hcq.ir.meaning import identity
from hcq.ir.node import Node, const, index, toposort
from hcq.ir.op import Op

_CONDITION = {Op.LOAD: 2, Op.STORE: 3}  # which source says when an access takes place


def padded(sink: Node, place: Node, size: int) -> Node:
    """The kernel with the range `place` grown to `size`."""
    longer = Node(Op.RANGE, place.dtype, (index(size),), place.arg)
    inside = Node(Op.CMPLT, dtypes.bool, (longer, place.src[0]))
    made: dict[Node, Node] = {}
    differs: set[Node] = {place}  # what is another value at another place of the range
    for node in toposort((sink,)):
        if node is place:
            made[node] = longer
            continue
        src = tuple(made[source] for source in node.src)
        is_end = node.op is Op.REDUCE and place in node.src[1:]
        if any(source in differs for source in node.src) and not is_end:
            differs.add(node)
            if node.op in _CONDITION:
                src = _under(src, _CONDITION[node.op], inside)
        if is_end and not (node.arg is Op.ADD and _is_nothing(node.src[0], differs)):
            value, *factor = node.src[0].src if node.src[0].op is Op.RESCALE else node.src[:1]
            value = _under_condition(value, node.arg, inside, made, differs)
            if factor:
                value = Node(Op.RESCALE, node.dtype, (value, made[factor[0]]))
            src = (value, *src[1:])
        # beyond the old end nothing may be stored: what was said of what is needed is a condition like others now
        arg = None if node.op is Op.STORE and len(src) > len(node.src[:3]) else node.arg
        made[node] = node if src == node.src else node.replace(src=src, arg=arg)
    return made[sink]


def _under(src: tuple[Node, ...], at: int, condition: Node) -> tuple[Node, ...]:
    """The sources of an access with one more condition, which stands at `at`."""
    if len(src) > at:
        return (*src[:at], Node(Op.AND, dtypes.bool, (src[at], condition)))
    return (*src, condition)


def _under_condition(value: Node, op: Op, inside: Node, made: dict[Node, Node], differs: set[Node]) -> Node:
    """What an operation folds, with what changes nothing beyond the end.

    A product stays a product, as matrix units want it: each factor that is not read there as zero is made zero.
    """
    if op is Op.ADD and value.op is Op.MUL:
        for place, factor in enumerate(value.src):
            if _is_nothing(factor, differs):
                other = _zeroed(value.src[1 - place], inside, made, differs)
                pair = (made[factor], other) if place == 0 else (other, made[factor])
                return Node(Op.MUL, value.dtype, pair)
        return Node(Op.MUL, value.dtype, tuple(_zeroed(factor, inside, made) for factor in value.src))
    return _or(inside, made[value], identity(op, value.dtype))


def _zeroed(factor: Node, inside: Node, made: dict[Node, Node], differs: set[Node] | None = None) -> Node:
    """A factor that is zero beyond the end.

    Where it was cast, what was cast is zero: matrix units take a factor in its own format and look behind its cast.
    differs  where it is a product of which some factors may read zero there
    """
    if factor.op is Op.CAST:
        return made[factor].replace(src=(_or(inside, made[factor.src[0]], 0),))
    if differs is not None and factor.op is Op.MUL:
        return _under_condition(factor, Op.ADD, inside, made, differs)
    return _or(inside, made[factor], 0)


def _or(inside: Node, value: Node, otherwise: Scalar) -> Node:
    return Node(Op.WHERE, value.dtype, (inside, value, const(otherwise, value.dtype)))


def _is_nothing(value: Node, differs: set[Node]) -> bool:
    """Whether a summand is zero beyond the end because all that it multiplies is read there, and reads as zero."""
    if value.op is Op.LOAD:
        return value in differs
    if value.op is Op.CAST:
        return _is_nothing(value.src[0], differs)
    if value.op is not Op.MUL:
        return False
    rest = [factor for factor in value.src if exponents_of(factor) is None]  # a scale is a power of two
    return bool(rest) and all(_is_nothing(factor, differs) for factor in rest)
