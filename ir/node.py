"""The node: one immutable value of a graph, made once per content.

In       an op, a dtype, source nodes, an argument
Out      the one `Node` with that content; walking, substitution, operators for index arithmetic
Changes  the table of live nodes (weak: a node nobody holds is forgotten)
Next     shape.py (a node's shape), symbolic.py (its range, its simplest form), show.py (how it prints)

Two nodes with the same content are the same object, so `is` compares graphs and a dict keyed by nodes shares work.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from hcq.ir.dtype import DType, Kind, Scalar, dtypes
from hcq.ir.op import COMPARE, Op

Shape = tuple[int, ...]


class Param(NamedTuple):
    """A kernel's argument: its place in the call, the elements it holds (row-major), whether the kernel writes it."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks a Param for
    shape: Shape
    writable: bool = False


class _Entry(weakref.ref["Node"]):
    """A live node in the table; knows its key so that it can leave."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_live: dict[tuple[Any, ...], _Entry] = {}


def _forget(entry: _Entry) -> None:
    if _live.get(entry.key) is entry:
        del _live[entry.key]


class Node:
    """`Node(op, dtype, src, arg)`; immutable, one object per content, compared and hashed by identity."""

    __slots__ = ("op", "dtype", "src", "arg", "_shape", "_range", "__weakref__")

    op: Op
    dtype: DType
    src: tuple[Node, ...]
    arg: Any
    _shape: Shape | None  # kept by shape.py
    _range: tuple[int, int] | None  # kept by symbolic.py

    def __new__(cls, op: Op, dtype: DType, src: tuple[Node, ...] = (), arg: Any = None) -> Node:
        # sources are named by id: they live as long as the node does, and the table must not keep them alive
        key = (op, dtype, arg if op is not Op.CONST else _const_key(arg, dtype), *map(id, src))
        entry = _live.get(key)
        if entry is not None:
            node = entry()
            if node is not None:
                return node
        node = object.__new__(cls)
        set_op(node, op)
        set_dtype(node, dtype)
        set_src(node, src)
        set_arg(node, arg)
        set_shape(node, None)
        set_range(node, None)
        entry = _Entry(node, _forget)
        entry.key = key
        _live[key] = entry
        return node

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Node is immutable: {name} cannot be set; use replace()")

    @property
    def shape(self) -> Shape:
        """Sizes by axis, for nodes of the tensor stage; () for scalars. Raises UsageError-free ValueError elsewhere."""
        if self._shape is None:
            from hcq.ir.shape import shape_of

            set_shape(self, shape_of(self))
        assert self._shape is not None
        return self._shape

    def replace(self, **changes: Any) -> Node:
        """The node with some of op, dtype, src, arg changed."""
        return Node(
            changes.get("op", self.op),
            changes.get("dtype", self.dtype),
            changes.get("src", self.src),
            changes.get("arg", self.arg),
        )

    def toposort(self) -> list[Node]:
        """Every node that this one needs, sources before users, itself last; each once."""
        return toposort((self,))

    def substitute(self, mapping: dict[Node, Node]) -> Node:
        """This graph with every node in `mapping` replaced; what nothing touches is shared."""
        return substitute((self,), mapping)[0]

    # -- operators, for index arithmetic and tests: no simplification happens here --

    def __add__(self, other: Node | Scalar) -> Node:
        return binary(Op.ADD, self, other)

    def __radd__(self, other: Scalar) -> Node:
        return binary(Op.ADD, self, other)

    def __sub__(self, other: Node | Scalar) -> Node:
        return binary(Op.ADD, self, binary(Op.MUL, other, -1) if isinstance(other, Node) else -other)

    def __rsub__(self, other: Scalar) -> Node:
        return binary(Op.ADD, binary(Op.MUL, self, -1), other)

    def __mul__(self, other: Node | Scalar) -> Node:
        return binary(Op.MUL, self, other)

    def __rmul__(self, other: Scalar) -> Node:
        return binary(Op.MUL, self, other)

    def __neg__(self) -> Node:
        return binary(Op.MUL, self, -1)

    def __floordiv__(self, other: Node | Scalar) -> Node:
        return binary(Op.FLOORDIV, self, other)

    def __mod__(self, other: Node | Scalar) -> Node:
        return binary(Op.MOD, self, other)

    def __lt__(self, other: Node | Scalar) -> Node:
        return binary(Op.CMPLT, self, other)

    def __le__(self, other: Node | Scalar) -> Node:
        return binary(Op.CMPLE, self, other)

    def __gt__(self, other: Node | Scalar) -> Node:
        return binary(Op.CMPLT, self._like(other), self)

    def __ge__(self, other: Node | Scalar) -> Node:
        return binary(Op.CMPLE, self._like(other), self)

    def eq(self, other: Node | Scalar) -> Node:
        """Equality as a value; `==` itself is identity, as hash-consing wants."""
        return binary(Op.CMPEQ, self, other)

    def ne(self, other: Node | Scalar) -> Node:
        return binary(Op.CMPNE, self, other)

    def __and__(self, other: Node | Scalar) -> Node:
        return binary(Op.AND, self, other)

    def __or__(self, other: Node | Scalar) -> Node:
        return binary(Op.OR, self, other)

    def where(self, if_true: Node, if_false: Node | Scalar) -> Node:
        return Node(Op.WHERE, if_true.dtype, (self, if_true, if_true._like(if_false)))

    def cast(self, dtype: DType) -> Node:
        return self if dtype is self.dtype else Node(Op.CAST, dtype, (self,))

    def _like(self, value: Node | Scalar) -> Node:
        return value if isinstance(value, Node) else const(value, self.dtype)

    def __repr__(self) -> str:
        from hcq.ir.show import show_node

        return show_node(self)


# slots are written through their descriptors: the class refuses plain assignment
set_op: Callable[[Node, Op], None] = Node.__dict__["op"].__set__
set_dtype: Callable[[Node, DType], None] = Node.__dict__["dtype"].__set__
set_src: Callable[[Node, tuple[Node, ...]], None] = Node.__dict__["src"].__set__
set_arg: Callable[[Node, Any], None] = Node.__dict__["arg"].__set__
set_shape: Callable[[Node, Shape | None], None] = Node.__dict__["_shape"].__set__
set_range: Callable[[Node, tuple[int, int] | None], None] = Node.__dict__["_range"].__set__


def _const_key(value: Scalar, dtype: DType) -> object:
    """0.0 and -0.0 are equal in Python and different here; NaN is unequal to itself in Python and one value here."""
    if dtype.kind is Kind.FLOAT:
        if value == 0.0:
            return "-0" if math.copysign(1.0, value) < 0 else "0"
        if value != value:
            return "nan"
    return value


def const(value: Scalar, dtype: DType) -> Node:
    """A number of that dtype, converted to its Python kind: bool, int or float. Shape ()."""
    if dtype.kind is Kind.FLOAT:
        value = float(value)
    elif dtype.kind is Kind.BOOL:
        value = bool(value)
    else:
        value = int(value)
        if value < 0 and dtype.kind is Kind.UINT:
            value &= (1 << 8 * dtype.itemsize) - 1  # x - 1 of unsigned integers adds the wrapped -1
    return Node(Op.CONST, dtype, (), value)


def index(value: int) -> Node:
    """A number of address arithmetic."""
    return Node(Op.CONST, dtypes.index, (), value)


def binary(op: Op, a: Node, b: Node | Scalar) -> Node:
    """`op` on a node and a node or a number of the same dtype."""
    if not isinstance(b, Node):
        b = const(b, a.dtype)
    dtype = dtypes.bool.vec(a.dtype.lanes) if op in COMPARE else a.dtype
    return Node(op, dtype, (a, b))


def toposort(roots: Iterable[Node]) -> list[Node]:
    """Every node the roots need, sources before users, each once; works on graphs deeper than Python's stack."""
    done: dict[Node, None] = {}
    stack: list[tuple[Node, Iterator[Node]]] = []
    for root in roots:
        if root in done:
            continue
        stack.append((root, iter(root.src)))
        while stack:
            node, sources = stack[-1]
            for source in sources:
                if source not in done:
                    stack.append((source, iter(source.src)))
                    break
            else:
                stack.pop()
                done[node] = None
    return list(done)


def substitute(roots: Iterable[Node], mapping: dict[Node, Node]) -> list[Node]:
    """The roots with every node in `mapping` replaced, from the leaves up; replacements are not searched again."""
    roots = list(roots)
    new = dict(mapping)
    for node in toposort(roots):
        if node in new:
            continue
        src = tuple([new[s] for s in node.src])
        new[node] = node if src == node.src else Node(node.op, node.dtype, src, node.arg)
    return [new[root] for root in roots]
