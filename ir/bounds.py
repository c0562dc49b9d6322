"""Value ranges: the least and the greatest number that an integer or boolean node can be.

In       a node of dtype index, bool or an integer format, of any stage
Out      (least, greatest), both included; never narrower than the truth
Changes  the range kept in a node whose range was asked for
Next     affine.py and logic.py (what ranges make of sums, quotients and conditions), op.py (what each op computes)

Index arithmetic never overflows; the other integers wrap, so a result that may leave its format may be anything in it.
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.ir.dtype import Kind, dtypes
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
    found = rule(node)
    kind = node.dtype.kind
    if kind is Kind.INDEX or kind is Kind.BOOL:
        return found
    whole = format_bounds(node)
    return found if whole[0] <= found[0] and found[1] <= whole[1] else whole


def _of(node: Node) -> Bounds:
    known = node._range
    assert known is not None
    return known


def _const(node: Node) -> Bounds:
    value = int(node.arg)
    return value, value


def _range(node: Node) -> Bounds:
    return 0, _of(node.src[0])[1] - 1


def _add(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    return a + c, b + d


def _neg(node: Node) -> Bounds:
    low, high = _of(node.src[0])
    return -high, -low


def _mul(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    if c == d:
        return (a * c, b * c) if c >= 0 else (b * c, a * c)
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def _floordiv(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    if c > 0:
        return min(a // c, a // d), max(b // c, b // d)
    size = max(abs(a), abs(b))  # dividing never makes a number larger, and x // 0 is 0
    return -size, size


def _mod(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    if c <= 0:
        return min(c + 1, 0), max(d - 1, 0)
    if a >= 0 and b < c:
        return a, b
    if c == d and a // c == b // c:
        return a % c, b % c
    return 0, min(d - 1, b) if a >= 0 else d - 1


def _max(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    return max(a, c), max(b, d)


def _min(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    return min(a, c), min(b, d)


def _where(node: Node) -> Bounds:
    (c, d), yes, no = _of(node.src[0]), _of(node.src[1]), _of(node.src[2])
    if c == d:
        return yes if c else no
    return min(yes[0], no[0]), max(yes[1], no[1])


def _cast(node: Node) -> Bounds:
    source = node.src[0]
    if source.dtype.kind is Kind.FLOAT:
        return format_bounds(node)
    found = _of(source)
    if node.dtype.kind is Kind.INDEX:
        # targets hold an index in 64 signed bits, where a large uint64 looks negative
        return _INDEX if source.dtype.scalar is dtypes.uint64 else found
    if node.dtype.kind is Kind.BOOL:
        return (1, 1) if found[0] > 0 or found[1] < 0 else (0, int(found != (0, 0)))
    return found


def _compare(node: Node) -> Bounds:
    if node.src[0].dtype.kind is Kind.FLOAT:
        return _BOOL
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    always, never = _COMPARISONS[node.op](a, b, c, d)
    return (1, 1) if always else (0, 0) if never else _BOOL


_COMPARISONS: dict[Op, Callable[[int, int, int, int], tuple[bool, bool]]] = {
    Op.CMPLT: lambda a, b, c, d: (b < c, a >= d),
    Op.CMPLE: lambda a, b, c, d: (b <= c, a > d),
    Op.CMPEQ: lambda a, b, c, d: (a == b == c == d, b < c or a > d),
    Op.CMPNE: lambda a, b, c, d: (b < c or a > d, a == b == c == d),
}


def _and(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    if node.dtype.kind is Kind.BOOL:
        return min(a, c), min(b, d)
    if a >= 0 and c >= 0:
        return 0, min(b, d)
    if a >= 0 or c >= 0:
        return 0, b if a >= 0 else d
    return format_bounds(node)


def _or(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    if node.dtype.kind is Kind.BOOL:
        return max(a, c), max(b, d)
    if a >= 0 and c >= 0:
        return max(a, c), (1 << max(b, d).bit_length()) - 1
    return format_bounds(node)


def _xor(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    if node.dtype.kind is Kind.BOOL:
        return (a ^ c, a ^ c) if a == b and c == d else _BOOL
    if a >= 0 and c >= 0:
        return 0, (1 << max(b, d).bit_length()) - 1
    return format_bounds(node)


def _not(node: Node) -> Bounds:
    low, high = _of(node.src[0])
    if node.dtype.kind is Kind.BOOL:
        return 1 - high, 1 - low
    return ~high, ~low


def _shr(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    if c < 0:
        return format_bounds(node)
    corners = (a >> min(c, 64), a >> min(d, 64), b >> min(c, 64), b >> min(d, 64))
    return min(corners), max(corners)


def _shl(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node.src[0]), _of(node.src[1])
    if c < 0 or d >= node.dtype.itemsize * 8:
        return format_bounds(node)
    corners = (a << c, a << d, b << c, b << d)
    return min(corners), max(corners)


_RULES: dict[Op, Callable[[Node], Bounds]] = {
    Op.CONST: _const,
    Op.RANGE: _range,
    Op.ADD: _add,
    Op.NEG: _neg,
    Op.MUL: _mul,
    Op.FLOORDIV: _floordiv,
    Op.MOD: _mod,
    Op.MAX: _max,
    Op.MIN: _min,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.CMPLT: _compare,
    Op.CMPLE: _compare,
    Op.CMPEQ: _compare,
    Op.CMPNE: _compare,
    Op.AND: _and,
    Op.OR: _or,
    Op.XOR: _xor,
    Op.NOT: _not,
    Op.SHR: _shr,
    Op.SHL: _shl,
}
