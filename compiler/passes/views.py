"""Views: where the source is read for a place in the view.

In       a movement op that reads each place of the view from one place of its source; an index per axis of the view
Out      an index per axis of the source, in simplest form
Next     lower_movement.py (who asks, and what becomes of padding), ir/symbolic.py (what keeps the indices minimal)
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hcq.ir.affine import floordiv, linear, modulo
from hcq.ir.node import Node, Shape, index
from hcq.ir.op import Op

Indices = tuple[Node, ...]
ZERO = index(0)


def _reshape(node: Node, at: Indices) -> Indices:
    """Axes are matched in the smallest groups of equal size, so that quotients appear only where axes split."""
    old, new = node.src[0].shape, node.arg
    inner: list[Node] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and old[i] == 1:
            inner.append(ZERO)
            i += 1
            continue
        if j < len(new) and new[j] == 1:
            j += 1
            continue
        first_old, first_new = i, j
        old_count, new_count = old[i], new[j]
        i, j = i + 1, j + 1
        while old_count != new_count:
            if old_count < new_count:
                old_count *= old[i]
                i += 1
            else:
                new_count *= new[j]
                j += 1
        if i - first_old == 1 == j - first_new:
            inner.append(at[first_new])
        else:
            flat = ravel(new[first_new:j], at[first_new:j])
            inner.extend(unravel(old[first_old:i], flat))
    return tuple(inner)


def ravel(shape: Shape, at: Indices) -> Node:
    """The row-major number of a place in an array of that shape."""
    parts: list[tuple[Node, int]] = []
    stride = 1
    for size, place in zip(reversed(shape), reversed(at)):
        parts.append((place, stride))
        stride *= size
    return linear(reversed(parts))


def unravel(shape: Shape, flat: Node) -> list[Node]:
    """The place of a row-major number; the inverse of `ravel`."""
    places: list[Node] = []
    stride = prod(shape)
    for axis, size in enumerate(shape):
        stride //= size
        place = floordiv(flat, stride)
        places.append(modulo(place, size) if axis else place)
    return places


def _permute(node: Node, at: Indices) -> Indices:
    """Indices change places."""
    inner = [ZERO] * len(at)
    for place, axis in zip(at, node.arg):
        inner[axis] = place
    return tuple(inner)


def _expand(node: Node, at: Indices) -> Indices:
    """A repeated axis is read at 0."""
    return tuple([ZERO if size == 1 else place for size, place in zip(node.src[0].shape, at)])


def _shrink(node: Node, at: Indices) -> Indices:
    """i -> start + i*step."""
    return tuple(
        [
            place if start == 0 and step == 1 else linear(((place, step),), start)
            for place, (start, _, step) in zip(at, node.arg)
        ]
    )


def _flip(node: Node, at: Indices) -> Indices:
    """i -> size - 1 - i."""
    inner = list(at)
    for axis in node.arg:
        inner[axis] = linear(((at[axis], -1),), node.src[0].shape[axis] - 1)
    return tuple(inner)


def _window(node: Node, at: Indices) -> Indices:
    """(window, place) -> window*step + place*dilation."""
    axis, _, step, dilation = node.arg
    inner = list(at[:-1])
    inner[axis] = linear(((at[axis], step), (at[-1], dilation)))
    return tuple(inner)


VIEWS: dict[Op, Callable[[Node, Indices], Indices]] = {
    Op.RESHAPE: _reshape,
    Op.PERMUTE: _permute,
    Op.EXPAND: _expand,
    Op.SHRINK: _shrink,
    Op.FLIP: _flip,
    Op.WINDOW: _window,
}
