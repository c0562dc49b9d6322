"""Value ranges: the least and the greatest number that an integer or boolean node can be.

In       a node of dtype index, bool or an integer format, of any stage
Out      (least, greatest), both included; never narrower than the truth
Changes  the range kept in a node whose range was asked for
Next     elementwise/ (the rule of each op), affine.py and logic.py (what ranges make of sums, quotients and conditions)

Index arithmetic never overflows; the other integers wrap, so a result that may leave its format may be anything in it.
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.ir.dtype import Kind
from hcq.ir.elementwise.table import ELEMENTWISE
from hcq.ir.node import Node, set_range
from hcq.ir.op import Op

Bounds = tuple[int, int]

_INDEX = (-(1 << 63), (1 << 63) - 1)
_BOOL = (0, 1)


def bounds(node: Node) -> Bounds:
    """(least, greatest) of an index, integer or bool node; works on graphs deeper than Python's stack.

    Raises ValueError for floats, which have none.

        >>> from hcq.ir.bounds import bounds
        >>> from hcq.ir.node import Node, index
        >>> from hcq.ir.op import Op
        >>> r = Node(Op.RANGE, dtypes.index, (index(10),), 0)
        >>> bounds(r * 3 + 1)
        (1, 28)
    """
    known = node._range
    if known is not None:
        return known
    if node.dtype.kind is Kind.FLOAT:
        raise ValueError(
            f"bounds({node.op.name} of {node.dtype.name}): only index, integer and bool nodes have bounds"
        )
    stack = [node]
    while stack:
        top = stack[-1]
        if top._range is not None:
            stack.pop()
            continue
        missing = (
            [s for s in top.src if s._range is None and s.dtype.kind is not Kind.FLOAT] if top.src else ()
        )
        if missing and top.op in _RULES:
            stack.extend(missing)
            continue
        set_range(top, _bounds_of(top))
        stack.pop()
    known = node._range
    assert known is not None
    return known


def format_bounds(node: Node) -> Bounds:
    """What the node's dtype can hold."""
    kind = node.dtype.kind
    if kind is Kind.INDEX:
        return _INDEX
    if kind is Kind.BOOL:
        return _BOOL
    return int(node.dtype.min), int(node.dtype.max)


def _bounds_of(node: Node) -> Bounds:
    rule = _RULES.get(node.op)
    if rule is None:
        return format_bounds(node)
    src = node.src
    if len(src) == 2:
        found = rule(node, src[0]._range, src[1]._range)
    else:
        found = rule(node, *[source._range for source in src])
    if found is None:
        return format_bounds(node)
    kind = node.dtype.kind
    if kind is Kind.INDEX or kind is Kind.BOOL:
        return found
    whole = format_bounds(node)
    return found if whole[0] <= found[0] and found[1] <= whole[1] else whole


def _const(node: Node) -> Bounds:
    value = int(node.arg)
    return value, value


def _range(node: Node, size: Bounds, *start: Bounds) -> Bounds:
    return 0, size[1] - 1


_RULES: dict[Op, Callable[..., Bounds | None]] = {
    Op.CONST: _const,
    Op.RANGE: _range,
    **{op: one.bounds for op, one in ELEMENTWISE.items() if one.bounds is not None},
}
