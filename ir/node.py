"""The node: one immutable value of a graph, made once per content.

In       an op, a dtype, source nodes, an argument
Out      the one `Node` with that content; walking, substitution, operators for index arithmetic, a line of text
Changes  the table of live nodes (weak: a node nobody holds is forgotten); a node keeps the shape it was asked for
Next     shape.py (how shapes are worked out), symbolic.py (a node's range, its simplest form), show.py (whole graphs)

Two nodes with the same content are the same object, so `is` compares graphs and a dict keyed by nodes shares work.
"""

from __future__ import annotations

import _thread
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from hcq.ir.dtype import DType, Kind, Scalar, dtypes
from hcq.ir.infix import TIGHTEST, Text, infix, sizes
from hcq.ir.op import COMPARE, MOVEMENT, Op
from hcq.ir.shape import Shape as Shape  # exported: who handles nodes writes shapes
from hcq.ir.shape import shape_of

_MAX_LINE = 100


class Param(NamedTuple):
    """A kernel's argument: its place in the call, the elements it holds (row-major), whether the kernel writes it."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks a Param for
    shape: Shape
    writable: bool = False

    def __str__(self) -> str:
        return f"p{self.index} {sizes(self.shape)}{' writable' if self.writable else ''}"


class Routine(NamedTuple):
    """A kernel that is written down by hand: the argument of a ROUTINE (compiler/routines/ has them by name)."""

    name: str
    shape: Shape  # of what it stores
    numbers: tuple[int, ...]  # its sizes and switches
    flops: int = 0


# Sources are named by id: they live as long as the node does, and the table must not keep them alive. An entry whose
# node is gone says nothing, so it may stay until there are many: a callback for each node costs as much as the node.
# Threads make nodes at once: setdefault, one step, adds an entry, and one that is there is changed under a lock.
_live: dict[tuple[Any, ...], weakref.ref[Node]] = {}
_lock = threading.RLock()
_FEW = 4096
_sweep_above = _FEW


def sweep() -> int:
    """Forget the nodes that nobody holds, which happens by itself now and then. Returns how many are left."""
    global _sweep_above
    with _lock:
        for key, entry in _live.copy().items():  # a copy, for other threads add to it meanwhile
            if entry() is None and _live.get(key) is entry:
                del _live[key]
    _sweep_above = 2 * len(_live) + _FEW
    return len(_live)


def _put(key: tuple[Any, ...], made: weakref.ref[Node], node: Node) -> Node:
    """The node with this content from now on: this one, unless another thread has made one meanwhile."""
    with _lock:
        entry = _live.setdefault(key, made)
        other = None if entry is made else entry()
        if other is not None:
            return other
        _live[key] = made
        return node


def _after_fork() -> None:
    if not _lock._is_owned():  # type: ignore[attr-defined]
        _lock._at_fork_reinit()  # type: ignore[attr-defined]  # another thread of the parent may have had it


os.register_at_fork(after_in_child=_after_fork)


class Node:
    """`Node(op, dtype, src, arg)`; immutable, one object per content, compared and hashed by identity."""

    __slots__ = ("op", "dtype", "src", "arg", "_shape", "_range", "__weakref__")

    op: Op
    dtype: DType
    src: tuple[Node, ...]
    arg: Any
    _shape: Shape | None  # once asked for
    _range: tuple[int, int] | None  # kept by bounds.py

    def __new__(cls, op: Op, dtype: DType, src: tuple[Node, ...] = (), arg: Any = None) -> Node:
        key: tuple[Any, ...]
        if len(src) == 2:
            first, second = src
            key = op, dtype, arg, id(first), id(second)
        elif op is Op.CONST:
            key = op, dtype, _const_key(arg, dtype)
        else:
            key = (op, dtype, arg, *map(id, src))
        entry = _live.get(key)
        if entry is not None:
            node = entry()
            if node is not None:
                return node
        node = _new(_Open)
        node.op = op
        node.dtype = dtype
        node.src = src
        node.arg = arg
        node._shape = node._range = None
        node.__class__ = Node
        made = weakref.ref(node)
        if entry is None:
            if len(_live) > _sweep_above:
                sweep()
            if _live.setdefault(key, made) is made:
                return node
        elif not _thread._count():  # the main thread is alone
            _live[key] = made
            return node
        return _put(key, made, node)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Node is immutable: {name} cannot be set; use replace()")

    @property
    def shape(self) -> Shape:
        """Sizes by axis, for nodes of the tensor stage; () for scalars.

        Raises ValueError for a node of a later stage, and for one whose argument and sources do not go together.
        """
        shape = self._shape
        return _shape_of(self) if shape is None else shape

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
        """Inequality as a value."""
        return binary(Op.CMPNE, self, other)

    def __and__(self, other: Node | Scalar) -> Node:
        return binary(Op.AND, self, other)

    def __or__(self, other: Node | Scalar) -> Node:
        return binary(Op.OR, self, other)

    def where(self, if_true: Node, if_false: Node | Scalar) -> Node:
        """`if_true` where this condition holds, else `if_false`; a number takes the dtype of `if_true`."""
        return Node(Op.WHERE, if_true.dtype, (self, if_true, if_true._like(if_false)))

    def cast(self, dtype: DType) -> Node:
        """The value in another dtype; the node itself where it has that dtype."""
        return self if dtype is self.dtype else Node(Op.CAST, dtype, (self,))

    def _like(self, value: Node | Scalar) -> Node:
        return value if isinstance(value, Node) else const(value, self.dtype)

    def __repr__(self) -> str:
        return show_node(self)


class _Open(Node):
    """A node while it is made: its slots can be written. It becomes a Node when they are."""

    __slots__ = ()
    __setattr__ = object.__setattr__  # type: ignore[assignment]  # takes any name of a str


_new: Callable[[type[Node]], Node] = object.__new__
# kept with a node that exists, past its refusal of changes
set_shape: Callable[[Node, Shape | None], None] = Node.__dict__["_shape"].__set__
set_range: Callable[[Node, tuple[int, int] | None], None] = Node.__dict__["_range"].__set__


def unlisted(op: Op, dtype: DType, arg: Any, shape: Shape | None = None) -> Node:
    """A leaf that is not in the table: `arg` is like no other, and whoever owns it makes this once."""
    node = _new(_Open)
    node.op = op
    node.dtype = dtype
    node.src = ()
    node.arg = arg
    node._shape = shape
    node._range = None
    node.__class__ = Node
    return node


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


def range_number(node: Node) -> int:
    """The number of a RANGE, which it holds alone or with how it is to be walked: 3, or (3, "ordered")."""
    number: int = node.arg[0] if isinstance(node.arg, tuple) else node.arg
    return number


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


def _shape_of(root: Node) -> Shape:
    """Work out the shape of a node, and of those under it that were not asked for theirs; deep graphs are fine."""
    stack = [root]
    while stack:
        node = stack[-1]
        shapes = [source._shape for source in node.src]
        if None in shapes:
            stack.extend([source for source in node.src if source._shape is None])
            continue
        if node.op is Op.ASSIGN:  # its value is all of the buffer, of which it writes what a view shows
            shapes.append(_viewed(node.src[0])._shape)
        shape = shape_of(node.op, node.arg, shapes)  # type: ignore[arg-type]  # None is not among them any more
        set_shape(node, shape)
        stack.pop()
    return shape


def _viewed(node: Node) -> Node:
    while node.op in MOVEMENT:
        node = node.src[0]
    return node


# -- a node as text -------------------------------------------------------------------------------------------------


def show_node(node: Node) -> str:
    """One short line: the expression for arithmetic on ranges, else op, dtype, argument and the sources' ops."""
    if (node.dtype.kind is Kind.INDEX or node.op is Op.CONST) and _is_small(node):
        text = show_index(node)
        if len(text) <= _MAX_LINE:
            return text
    sources = ", ".join([source.op.name for source in node.src])
    text = (
        f"{node.op.name}({sources}) {node.dtype.name}{'' if node.arg is None else f' {show_arg(node.arg)}'}"
    )
    return text if len(text) <= _MAX_LINE else text[: _MAX_LINE - 1] + "…"


def show_index(node: Node, names: dict[Node, int] | None = None) -> str:
    """Infix, as `r0*64 + r1 + 3`; ranges are r<id>, nodes with a number in `names` are %<number>."""
    texts: dict[Node, Text] = {}
    stack = [node]
    while stack:
        top = stack[-1]
        if top in texts:
            stack.pop()
        elif names is not None and top in names and top is not node:
            texts[top] = f"%{names[top]}", TIGHTEST
        else:
            src = top.src if top.op is not Op.RANGE else ()
            missing = [source for source in src if source not in texts]
            if missing:
                stack.extend(missing)
            else:
                texts[top] = infix(top.op, top.dtype, top.arg, [texts[source] for source in src])
    return texts[node][0]


def show_arg(arg: Any) -> str:
    """A node's argument as text."""
    if isinstance(arg, (str, Param)):
        return str(arg)
    if isinstance(arg, tuple):
        inside = ", ".join([show_arg(part) for part in arg])
        return f"({inside},)" if len(arg) == 1 else f"({inside})"
    return repr(arg)


def _is_small(node: Node) -> bool:
    """Whether an expression can fit in a line at all."""
    stack = [node]
    for _ in range(_MAX_LINE):
        if not stack:
            return True
        stack.extend(stack.pop().src)
    return False
