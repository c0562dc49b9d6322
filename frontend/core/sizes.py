"""Sizes: which axes of a graph have a size that is known only when the work runs, and what follows from that.

In       nodes of the tensor stage, whose shapes say for how many elements there is room
Out      for each axis the count of the elements that mean something, as a node; masks; UsageError where elements from
         beyond a count would get in
Changes  what it remembers of nodes
Next     ../symbolic/size_rules.py (what each op makes of them), ../symbolic/variable.py (where counts come from),
         nodes.py (`reduced`, which masks), ../run/realize.py (which keeps them)

FIRST says of a value how many of its elements along an axis count. What is computed from it element by element counts
as far; a reduction along the axis takes the elements beyond as what changes nothing; what would move elements from
beyond to before the count is refused, by name. Every new tensor is asked here, so that a refusal names the call.

Beside a count, an axis is PLAIN, of one size, or FREE: numbers, places and what repeats along it, which go with any
count of the same room.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from hcq.frontend.core import above, known_later
from hcq.frontend.core.known_later import KnownLater
from hcq.ir.dtype import DType, dtypes
from hcq.ir.meaning import identity
from hcq.ir.node import Node, Shape, const, substitute, toposort
from hcq.ir.op import Op

PLAIN = "plain"
FREE = "free"
Size = Any  # PLAIN, FREE or the node of a count
Sizes = tuple[Size, ...]
Counts = list[tuple[int, Node]]  # of axes

known_sizes: WeakKeyDictionary[Node, Sizes] = WeakKeyDictionary()


def sizes_of(node: Node) -> Sizes:
    """PLAIN, FREE or a count for each axis. Raises UsageError for what mixes them up."""
    known = known_sizes.get(node)
    if known is not None:
        return known
    stack = [node]
    while stack:
        top = stack[-1]
        if top in known_sizes:
            stack.pop()
        elif missing := [source for source in top.src if source not in known_sizes]:
            stack.extend(missing)
        else:
            known_sizes[top] = above.sizes(top)
            stack.pop()
    return known_sizes[node]


def has_counts(node: Node) -> bool:
    """Whether some axis has a size that is not known yet."""
    return known_later.in_use and any(isinstance(size, Node) for size in sizes_of(node))


def counts_of(node: Node) -> Counts:
    """The axes with such a size, each with its count."""
    if not known_later.in_use:
        return []
    return [(axis, size) for axis, size in enumerate(sizes_of(node)) if isinstance(size, Node)]


def shape_of(node: Node) -> tuple[Any, ...]:
    """The shape as a user reads it: ints, and Bounds where a size is not known yet."""
    counts = dict(counts_of(node))
    if not counts:
        return node.shape
    return tuple([above.bound_of(counts[axis]) if axis in counts else n for axis, n in enumerate(node.shape)])


def shape_now(node: Node) -> Shape:
    """The shape with the numbers of this call."""
    return tuple([size.value if isinstance(size, KnownLater) else size for size in shape_of(node)])


def with_counts(node: Node, counts: Counts) -> Node:
    """A value of which so many elements count."""
    for axis, count in counts:
        node = Node(Op.FIRST, node.dtype, (node, count), axis)
    return node


def inside(shape: Shape, axis: int, count: Node) -> Node:
    """Where an element of that shape is before the count."""
    places = Node(Op.IOTA, dtypes.int32, (), shape[axis])
    ones = tuple([shape[axis] if d == axis else 1 for d in range(len(shape))])
    if ones != places.shape:
        places = Node(Op.RESHAPE, dtypes.int32, (places,), ones)
    if ones != shape:
        places = Node(Op.EXPAND, dtypes.int32, (places,), shape)
    return Node(Op.CMPLT, dtypes.bool, (places, count))


def masked(op: Op, x: Node, axes: tuple[int, ...]) -> Node:
    """`x` as a reduction by `op` over axes takes it: what is beyond a count changes nothing."""
    for axis, count in counts_of(x):
        if axis in axes:
            nothing = const(identity(op, x.dtype), x.dtype)
            x = Node(Op.WHERE, x.dtype, (inside(x.shape, axis, count), x, nothing))
    return x


def zeroed(x: Node) -> Node:
    """`x` with zeros where nothing counts."""
    return masked(Op.ADD, x, tuple(range(len(x.shape))))


def bounded(index: Node, x: Node, axis: int) -> Node:
    """Places along an axis as GATHER takes them: those beyond the axis's count name nothing."""
    for at, count in counts_of(x):
        if at == axis:
            wide = index.cast(dtypes.int64) if index.dtype is not dtypes.int32 else index
            index = (wide < count.cast(wide.dtype)).where(wide, -1)
    return index


def unnamed_beyond(index: Node) -> Node:
    """Places as SCATTER takes them: what is beyond a count of theirs goes nowhere."""
    for axis, count in counts_of(index):
        index = inside(index.shape, axis, count).where(index, -1)
    return index


def number_of(node: Node, axes: tuple[int, ...], dtype: DType) -> Any:
    """How many elements lie along axes: an int, or a node of that dtype."""
    counts = dict(counts_of(node))
    total: Any = prod([node.shape[axis] for axis in axes if axis not in counts])
    for axis in axes:
        if axis in counts:
            count = counts[axis].cast(dtype)
            total = count if total == 1 and isinstance(total, int) else count * total
    return total


def without_counts(roots: Sequence[Node]) -> list[Node]:
    """The same values with all for which there is room: by then masks say what counts."""
    found = [node for node in toposort(roots) if node.op is Op.FIRST]
    new: dict[Node, Node] = {}
    for node in found:
        source = node.src[0]
        new[node] = substitute((source,), new)[0]
    return substitute(roots, new) if found else list(roots)
