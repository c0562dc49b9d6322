"""The simplest form of a whole graph's index arithmetic and conditions, decided by value ranges.

In       nodes of the kernel stage (or later), raw or partly simplified
Out      the same graph with every index and bool node in its simplest form; loads that never happen read zero
Changes  nothing but bounded memos
Next     affine.py (sums, quotients, remainders), logic.py (conditions), bounds.py (value ranges)

Index arithmetic never overflows, so it is reordered freely. Other integers wrap: they are folded only where their range
is a single number, never reordered. The builders below simplify while they build, so most code never makes a raw node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hcq.ir import affine
from hcq.ir.affine import add, floordiv, linear, modulo, multiply, subtract
from hcq.ir.bounds import bounds, format_bounds
from hcq.ir.dtype import Kind, dtypes
from hcq.ir.logic import both, either, equal, exclusive, less, less_equal, negate, not_equal, select, truth
from hcq.ir.node import Node, const, index, toposort
from hcq.ir.op import COMPARE, Op


def simplify(node: Node) -> Node:
    """The node with all index and bool arithmetic under it in simplest form.

    >>> from hcq.ir.node import Node, index
    >>> from hcq.ir.op import Op
    >>> from hcq.ir.symbolic import simplify
    >>> r = Node(Op.RANGE, dtypes.index, (index(10),), 0)
    >>> simplify((r * 64 + 5) // 64), simplify((r * 64 + 5) % 8)
    (r0, 5)
    """
    return replace((node,), {})[0]


def replace(roots: Sequence[Node], mapping: dict[Node, Node]) -> list[Node]:
    """The roots with every node in `mapping` replaced and the arithmetic over it simplified, in one walk.

    Replacements are taken as they are: simplify them first when they are raw.
    """
    rebuilding = Rebuilding(mapping)
    for node in toposort(roots):
        rebuilding.visit(node)
    return [rebuilding.of(root) for root in roots]


class Rebuilding:
    """A graph over other leaves, in simplest form. Visit nodes with sources before users, then ask for roots.

    was_simple   nodes whose sources stay are known to be in simplest form already, and stay themselves
    """

    def __init__(self, mapping: dict[Node, Node], was_simple: bool = False):
        self.new = dict(mapping)
        self.was_simple = was_simple

    def visit(self, node: Node) -> None:
        """Make the new form of a node, whose sources were visited before."""
        if node in self.new or _is_sum(node):
            return  # sums are built when something else asks for them, so that parts of sums never are
        src = tuple([self.of(source) for source in node.src])
        self.new[node] = node if self.was_simple and src == node.src else build(node.op, node, src)

    def of(self, node: Node) -> Node:
        """What a visited node became."""
        made = self.new.get(node)
        if made is None:
            terms: dict[Node, int] = {}
            number = affine.collect(((node, 1),), terms)
            new = self.new
            if self.was_simple and all(new[atom] is atom for atom in terms):
                made = node
            else:
                made = linear([(new[atom], times) for atom, times in terms.items()], number)
            new[node] = made
        return made


def _is_sum(node: Node) -> bool:
    if node.dtype is not dtypes.index:
        return False
    if node.op is Op.MUL:
        return node.src[0].op is Op.CONST or node.src[1].op is Op.CONST
    return node.op is Op.ADD


def build(op: Op, like: Node, src: tuple[Node, ...]) -> Node:
    """The node `like` over other, already simple sources, in simplest form."""
    builder = _BUILDERS.get(op)
    if builder is not None and like.dtype.lanes == 1:
        made = builder(like, src)
        if made is not None:
            return made
    return like if src == like.src else Node(op, like.dtype, src, like.arg)


def minimum(a: Node, b: Node) -> Node:
    """The lesser of two index values."""
    low, high = bounds(subtract(a, b))
    if high <= 0:
        return a
    if low >= 0:
        return b
    return Node(Op.MIN, dtypes.index, (a, b) if affine.order(a) <= affine.order(b) else (b, a))


def maximum(a: Node, b: Node) -> Node:
    """The greater of two index values."""
    low, high = bounds(subtract(a, b))
    if low >= 0:
        return a
    if high <= 0:
        return b
    return Node(Op.MAX, dtypes.index, (a, b) if affine.order(a) <= affine.order(b) else (b, a))


def to_index(value: Node) -> Node:
    """An integer value as an index; an integer that was cast from an index that fits it is that index again."""
    if value.op is Op.CONST:
        return index(int(value.arg))
    if value.op is Op.CAST and value.src[0].dtype is dtypes.index:
        low, high = bounds(value.src[0])
        least, greatest = format_bounds(value)
        if least <= low and high <= greatest and value.dtype.is_integer:
            return value.src[0]
    return Node(Op.CAST, dtypes.index, (value,))


# -- how each op is built; None keeps the node as it is -------------------------------------------------------------

_Builder = Callable[[Node, tuple[Node, ...]], "Node | None"]
_Make = Callable[[Node, Node], Node]


def _index_or_integer(make: _Make) -> _Builder:
    """`make` for index nodes; other integers become a number where only one is possible."""

    def builder(like: Node, src: tuple[Node, ...]) -> Node | None:
        kind = like.dtype.kind
        if kind is Kind.INDEX:
            return make(*src)
        return None if kind is Kind.FLOAT else _single_value(like, src)

    return builder


def _logical(make: _Make) -> _Builder:
    """`make` for bools; integers become a number where only one is possible."""

    def builder(like: Node, src: tuple[Node, ...]) -> Node | None:
        return make(*src) if like.dtype.kind is Kind.BOOL else _single_value(like, src)

    return builder


def _comparison(make: _Make) -> _Builder:
    """`make` over index values; other integers where ranges decide, or where both sides are one node."""

    def builder(like: Node, src: tuple[Node, ...]) -> Node | None:
        a, b = src
        kind = a.dtype.kind
        if kind is Kind.INDEX:
            return make(a, b)
        if kind is Kind.FLOAT or a.dtype.lanes != 1:
            return None
        if a is b:
            return truth(like.op is Op.CMPEQ or like.op is Op.CMPLE)
        if kind is Kind.BOOL and like.op is Op.CMPEQ:
            return negate(exclusive(a, b))
        if kind is Kind.BOOL and like.op is Op.CMPNE:
            return exclusive(a, b)
        return _single_value(like, src)

    return builder


def _single_value(like: Node, src: tuple[Node, ...]) -> Node | None:
    made = like if src == like.src else Node(like.op, like.dtype, src, like.arg)
    low, high = bounds(made)
    return const(low, like.dtype) if low == high else made


def _neg(like: Node, src: tuple[Node, ...]) -> Node | None:
    return linear(((src[0], -1),)) if like.dtype.kind is Kind.INDEX else None


def _not(like: Node, src: tuple[Node, ...]) -> Node | None:
    return negate(src[0]) if like.dtype.kind is Kind.BOOL else None


def _division(make: Callable[[Node, int], Node]) -> _Builder:
    """`make` for an index by a number; others become a number where only one is possible."""

    def builder(like: Node, src: tuple[Node, ...]) -> Node | None:
        if like.dtype.kind is Kind.INDEX and src[1].op is Op.CONST:
            return make(src[0], src[1].arg)
        return _single_value(like, src)

    return builder


def _where(like: Node, src: tuple[Node, ...]) -> Node | None:
    return select(*src) if src[0].dtype.lanes == 1 else None


def _cast(like: Node, src: tuple[Node, ...]) -> Node | None:
    source = src[0]
    if source.dtype is like.dtype:
        return source
    if like.dtype.kind is Kind.INDEX and source.dtype.is_integer and source.dtype.lanes == 1:
        return to_index(source)
    if source.dtype.kind is Kind.FLOAT or like.dtype.kind is Kind.FLOAT or source.dtype.lanes != 1:
        return None
    return _single_value(like, src)


def _range(like: Node, src: tuple[Node, ...]) -> Node | None:
    return index(0) if src[0].op is Op.CONST and src[0].arg == 1 else None


def _load(like: Node, src: tuple[Node, ...]) -> Node | None:
    if len(src) == 3 and src[2].op is Op.CONST:
        if not src[2].arg:
            return const(0, like.dtype)
        return Node(Op.LOAD, like.dtype, src[:2], like.arg)
    return None


def _store(like: Node, src: tuple[Node, ...]) -> Node | None:
    if len(src) == 4 and src[3].op is Op.CONST and src[3].arg:
        return Node(Op.STORE, like.dtype, src[:3], like.arg)
    return None


def _sink(like: Node, src: tuple[Node, ...]) -> Node | None:
    kept = tuple([s for s in src if not (s.op is Op.STORE and len(s.src) == 4 and s.src[3].op is Op.CONST)])
    return None if len(kept) == len(src) else Node(Op.SINK, like.dtype, kept, like.arg)


_BUILDERS: dict[Op, _Builder] = {
    Op.ADD: _index_or_integer(add),
    Op.MUL: _index_or_integer(multiply),
    Op.MAX: _index_or_integer(maximum),
    Op.MIN: _index_or_integer(minimum),
    Op.NEG: _neg,
    Op.FLOORDIV: _division(floordiv),
    Op.MOD: _division(modulo),
    Op.CMPLT: _comparison(less),
    Op.CMPLE: _comparison(less_equal),
    Op.CMPEQ: _comparison(equal),
    Op.CMPNE: _comparison(not_equal),
    Op.AND: _logical(both),
    Op.OR: _logical(either),
    Op.XOR: _logical(exclusive),
    Op.NOT: _not,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.RANGE: _range,
    Op.LOAD: _load,
    Op.STORE: _store,
    Op.SINK: _sink,
}
assert all(op in _BUILDERS for op in COMPARE)
