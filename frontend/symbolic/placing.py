"""Placing: elements of an axis at places that are known only when the work runs: cat, pad and flip of a cut axis.

In       nodes of the tensor stage, an axis, how far its elements move: an int, or the node of a Bound
Out      nodes with room for the largest number, of which so many elements count
Next     core/nodes.py (who asks for it: joined, padded, flipped), ../core/sizes.py (what counts), variable.py (Bounds)

Each is a GATHER: the element at place p is the one that was at p minus the distance, and nothing where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from hcq.frontend.core.known_later import room_of
from hcq.frontend.core.sizes import bounded, counts_of, inside, with_counts, zeroed
from hcq.frontend.symbolic.variable import Bound, bound_of, place_of
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op


def joined(parts: Sequence[Node], axis: int) -> Node:
    """Nodes of one dtype one after the other along an axis, of which some are cut there."""
    ends: list[Any] = [0]
    for part in parts:
        ends.append(ends[-1] + _size(part, axis))
    room = room_of(ends[-1])
    device = place_of([count for part in parts for count in _counts(part, axis)])
    last = len(parts) - 1
    whole = _moved(parts[last], axis, ends[last], room, device)
    for part, start, end in reversed(list(zip(parts[:last], ends, ends[1:]))):
        own = _moved(part, axis, start, room, device)
        where = inside(own.shape, axis, _node(end, device))
        whole = Node(Op.WHERE, whole.dtype, (where, own, whole))
    return _counted(whole, axis, ends[-1], device)


def padded(x: Node, axis: int, low: int | Node, high: int | Node, value: Node) -> Node:
    """An axis with so many values before and behind the elements that count; negative ones crop."""
    device = place_of([*_counts(x, axis), *[side for side in (low, high) if isinstance(side, Node)]])
    start, rest = (bound_of(side) if isinstance(side, Node) else side for side in (low, high))
    end = start + _size(x, axis)
    own = _moved(x, axis, start, room_of(end + rest), device)
    before = inside(own.shape, axis, _node(start, device))
    where = Node(Op.WHERE, own.dtype, (inside(own.shape, axis, _node(end, device)), own, value))
    return _counted(Node(Op.WHERE, own.dtype, (before, value, where)), axis, end + rest, device)


def flipped(x: Node, axis: int) -> Node:
    """The elements that count along an axis, the last one first."""
    size, device = _size(x, axis), place_of(_counts(x, axis))
    line = Node(Op.IOTA, dtypes.int32, (), x.shape[axis])
    places = _node(size - 1, device) + Node(Op.NEG, dtypes.int32, (line,))
    return _counted(_gathered(x, axis, places), axis, size, device)


def reshaped(x: Node, old: Sequence[Any], new: Sequence[Any], device: str) -> Node:
    """The elements that count, of sizes `old`, in row-major order in sizes `new`, of which there are as many."""
    shape = tuple(map(room_of, new))
    rest = _wide(0, device)
    for axis, (size, room) in enumerate(zip(new, shape)):  # which of the elements, counted by the numbers
        line = Node(Op.RESHAPE, dtypes.int64, (Node(Op.IOTA, dtypes.int64, (), room),), _line(axis, shape))
        rest = rest * _wide(size, device) + Node(Op.EXPAND, dtypes.int64, (line,), shape)
    place, stride = _wide(0, device), 1  # and where it is in memory, counted by the rooms
    for size, room in reversed(list(zip(old, x.shape))):
        number = _wide(size, device)
        place = place + Node(Op.MOD, dtypes.int64, (rest, number)) * stride
        rest = Node(Op.FLOORDIV, dtypes.int64, (rest, number))
        stride *= room
    flat = Node(Op.RESHAPE, x.dtype, (zeroed(x),), (stride,))
    picked = Node(Op.GATHER, x.dtype, (flat, Node(Op.RESHAPE, dtypes.int64, (place,), (prod(shape),))), 0)
    counts = [(axis, _node(size, device)) for axis, size in enumerate(new) if isinstance(size, Bound)]
    return with_counts(Node(Op.RESHAPE, x.dtype, (picked,), shape), counts)


def _line(axis: int, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple([room if at == axis else 1 for at, room in enumerate(shape)])


def _wide(size: Any, device: str) -> Node:
    return _node(size, device).cast(dtypes.int64)


def _moved(x: Node, axis: int, by: Any, room: int, device: str) -> Node:
    """The elements that count, moved along an axis, in that much room; zeros elsewhere."""
    places = Node(Op.IOTA, dtypes.int32, (), room)
    if isinstance(by, Bound) or by:
        places = places + _node(-by, device)
    return _gathered(x, axis, places)


def _gathered(x: Node, axis: int, places: Node) -> Node:
    """The elements at places along an axis; zeros where no element is."""
    places = bounded(places, x, axis)
    line = [1] * len(x.shape)
    line[axis] = places.shape[0]
    shape = (*x.shape[:axis], places.shape[0], *x.shape[axis + 1 :])
    if len(line) > 1:
        places = Node(Op.RESHAPE, places.dtype, (places,), tuple(line))
    if shape != places.shape:
        places = Node(Op.EXPAND, places.dtype, (places,), shape)
    return Node(Op.GATHER, x.dtype, (x, places), axis)


def _counted(x: Node, axis: int, size: Any, device: str) -> Node:
    """So many elements of an axis count."""
    return with_counts(x, [(axis, _node(size, device))]) if isinstance(size, Bound) else x


def _counts(x: Node, axis: int) -> list[Node]:
    return [count for at, count in counts_of(x) if at == axis]


def _size(x: Node, axis: int) -> Any:
    """How many elements count along an axis: an int, or a Bound."""
    return next(map(bound_of, _counts(x, axis)), x.shape[axis])


def _node(size: Any, device: str) -> Node:
    return size.node(device) if isinstance(size, Bound) else const(int(size), dtypes.int32)
