"""Planes: windows with a step, where a long sum runs over them, are windows without one of every second column.

In       roots, in which the gradient of a convolution's weight sums over the windows of its input
Out      the same sums, one for each remainder of the place inside the window by the step
Next     gaps.py (the same for the gradient of the input), ../schedule/simplify.py (who joins the remainders)

    dw[k] = sum over o of g[o] * x[2o + k]                          stride 2
    dw[2j] = sum over o of g[o] * even[o + j],  even = x[::2]       and odd = x[1::2] for dw[2j+1]

Lanes run along the sum, and so along memory: each plane (every second column) is copied once. Sums of few elements do
without: their operands fit the caches, and the compiler packs them as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from hcq.frontend.core.nodes import expanded, shrunk
from hcq.frontend.rewrites.gaps import in_turns, same_axis, stretch
from hcq.ir.node import Node, Shape, toposort
from hcq.ir.op import Op

# elements of a sum: 16 lanes of so many floats fill a second cache
_LONG = 1 << 13
_MOST_PLANES = 4
_VIEWS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.CAST})


def in_planes(roots: Sequence[Node]) -> list[Node]:
    """The same values, long sums over windows with a step in planes."""
    order = toposort(roots)
    if not any(node.op is Op.WINDOW and node.arg[2] > 1 for node in order):
        return list(roots)
    new: dict[Node, Node] = {}
    for node in order:
        src = tuple([new[source] for source in node.src])
        made = node if src == node.src else Node(node.op, node.dtype, src, node.arg)
        if made.op is Op.REDUCE_AXIS and made.arg[0] is Op.ADD and made.src[0].op is Op.MUL:
            made = _summed_in_planes(made) or made
        new[node] = made
    return [new[root] for root in roots]


class _Found(NamedTuple):
    """An operand that views a WINDOW with a step."""

    window: Node
    views: list[Node]  # from the operand down to the window
    along: int  # the operand's axis that counts windows
    inside: int  # and that of the place inside one


def _summed_in_planes(node: Node) -> Node | None:
    """A sum of products, one operand of which is windows that the sum runs over; None for another one."""
    axes = node.arg[1]
    product = node.src[0]
    if prod([product.shape[axis] for axis in axes]) <= _LONG:
        return None
    for place, operand in enumerate(product.src):
        found = _strided_window(operand)
        if found is not None and found.along in axes and found.inside not in axes:
            return _in_parts(node, place, found)
    return None


def _in_parts(node: Node, place: int, found: _Found) -> Node:
    """The sum for each remainder, the results in turns; the product's operand `place` is the windows."""
    product = node.src[0]
    _, size, step, _ = found.window.arg
    parts = []
    for remainder in range(min(step, size)):
        turns = len(range(remainder, size, step))
        pair = [_part(operand, found.inside, remainder, step, turns) for operand in product.src]
        pair[place] = _viewed(_plane(found.window, remainder, turns), found, turns)
        total = Node(Op.MUL, product.dtype, tuple(pair))
        total = Node(Op.REDUCE_AXIS, node.dtype, (total,), node.arg)
        parts.append(stretch(total, found.inside, 0, -(-size // step)))
    return in_turns(parts, found.inside, size)


def _strided_window(operand: Node) -> _Found | None:
    """The WINDOW with a step, along what is contiguous in memory, that the operand is a view of."""
    views: list[Node] = []
    node = operand
    while node.op in _VIEWS:
        views.append(node)
        node = node.src[0]
    if node.op is not Op.WINDOW or not 1 < node.arg[2] <= _MOST_PLANES:
        return None
    base = node
    while base.op is Op.WINDOW or base.op is Op.PAD:
        base = base.src[0]
    if node.arg[0] != len(base.shape) - 1 or base.op is Op.PERMUTE:
        return None
    places: list[int | None] = [node.arg[0], len(node.shape) - 1]
    for view in reversed(views):
        places = [None if place is None else _above(view, place) for place in places]
    along, inside = places
    return None if along is None or inside is None else _Found(node, views, along, inside)


def _above(view: Node, axis: int) -> int | None:
    """The axis of a view that is this one of its source."""
    if view.op is Op.PERMUTE:
        order: tuple[int, ...] = view.arg
        return order.index(axis)
    return same_axis(view.src[0].shape, axis, view.shape) if view.op is Op.RESHAPE else axis


def _plane(window: Node, remainder: int, turns: int) -> Node:
    """The windows, of every `step`th column from `remainder` on, which lie beside each other in memory."""
    axis, _, step, dilation = window.arg
    inner: list[Node] = []
    base = window.src[0]
    while base.op is Op.WINDOW:
        inner.append(base)
        base = base.src[0]
    start = remainder * dilation
    count = window.shape[axis] + (turns - 1) * dilation
    whole = [(0, size, 1) for size in base.shape]
    whole[axis] = (start, start + (count - 1) * step + 1, step)
    made = Node(Op.CONTIGUOUS, base.dtype, (shrunk(base, tuple(whole)),))
    for other in reversed(inner):
        made = Node(Op.WINDOW, made.dtype, (made,), other.arg)
    return Node(Op.WINDOW, made.dtype, (made,), (axis, turns, 1, dilation))


def _viewed(window: Node, found: _Found, turns: int) -> Node:
    """The views again, of windows with fewer places."""
    inside = len(found.window.shape) - 1
    for view in reversed(found.views):
        above = _above(view, inside)
        assert above is not None
        inside, arg = above, view.arg
        if view.op is Op.RESHAPE or view.op is Op.EXPAND:
            arg = _with_size(view.shape, inside, turns)
        window = Node(view.op, view.dtype, (window,), arg)
    return window


def _part(other: Node, axis: int, remainder: int, step: int, turns: int) -> Node:
    """The other operand, for the places of one remainder."""
    if not other.shape:
        return other
    if other.op is Op.EXPAND and other.src[0].shape[axis] == 1:
        return expanded(other.src[0], _with_size(other.shape, axis, turns))
    return shrunk(
        other,
        tuple([(remainder, size, step) if a == axis else (0, size, 1) for a, size in enumerate(other.shape)]),
    )


def _with_size(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])
