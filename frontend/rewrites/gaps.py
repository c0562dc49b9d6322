"""Gaps: a sum over the windows that read a place becomes a convolution, without the places that read zero.

In       roots, in which gradients of windows are sums of an UNWINDOW
Out      the same sums as WINDOWs of what they spread, one for each remainder of the place by the step
Next     ../schedule/simplify.py (who joins the remainders), ../grad/derivatives.py (where such sums come from)

    dx[i] = sum over k of (g[(i - k) / 2] * w[k] where 2 divides i - k, else 0)             stride 2, window 3
    dx[2i]   = sum over j < 2 of padded(g)[i + j] * w[2 - 2j]
    dx[2i+1] = g[i] * w[1]

An UNWINDOW above a product reads zero for most places of a strided window, and asks so for each product. It is moved
down to the operands instead: what is the same for all places inside the window (g) is read through a WINDOW, padded
with zeros; what is the same for all windows (w) is turned around, every second place of it for each remainder. Each
remainder is then an ordinary convolution: what makes forward fast, on any device, makes backward fast. Only sums of
products are rewritten: without a product (pooling) there is no operand that many results share, and skip_gaps.py of the
compiler leaves the gaps out.

A weight that is infinite or NaN meets the zeros around g, as it meets those around x in forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import NamedTuple

from hcq.frontend.core.nodes import expanded, filled, flipped, joined, padded, permuted, reshaped, shrunk
from hcq.ir.node import Node, Shape, toposort
from hcq.ir.op import Op

_PASSED = frozenset({Op.CAST, Op.NEG, Op.EXPAND, Op.PERMUTE, Op.RESHAPE, Op.SHRINK, Op.REDUCE_AXIS})
_MOST_PARTS = 4  # along one axis: each is a kernel


def without_gaps(roots: Sequence[Node]) -> list[Node]:
    """The same values, sums over an UNWINDOW of products as convolutions."""
    order = toposort(roots)
    if not any(node.op is Op.UNWINDOW for node in order):
        return list(roots)
    new: dict[Node, Node] = {}
    known: dict[Node, _Parts] = {}
    for node in order:
        src = tuple([new[source] for source in node.src])
        made = node if src == node.src else Node(node.op, node.dtype, src, node.arg)
        parts: _Parts | None = None
        if made.op is Op.REDUCE_AXIS:
            parts = _convolutions(made, known)
        elif src and src[0] in known:
            parts = known[src[0]].below(made)
        if parts is not None:
            made = parts.joined()
            known[made] = parts
        new[node] = made
    return [new[root] for root in roots]


class _Parts(NamedTuple):
    """A value in parts, one for each remainder of its places by the step, along some axes."""

    axes: tuple[tuple[int, int, int], ...]  # axis, step, length
    parts: tuple[Node, ...]  # those of the last axis beside each other

    def joined(self) -> Node:
        """The value: places of the parts in turns."""
        parts = list(self.parts)
        for axis, step, length in reversed(self.axes):
            parts = [in_turns(parts[i : i + step], axis, length) for i in range(0, len(parts), step)]
        return parts[0]

    def below(self, view: Node) -> _Parts | None:
        """The parts of a view of the value (or of a cast), None where it is taken apart otherwise."""
        if view.op is Op.CAST:
            return self._replace(parts=tuple([part.cast(view.dtype) for part in self.parts]))
        if view.op is Op.RESHAPE:
            return self._reshaped(view)
        return self._shrunk(view) if view.op is Op.SHRINK else None

    def _reshaped(self, view: Node) -> _Parts | None:
        axes = []
        shape = list(view.shape)
        for axis, step, length in self.axes:
            place = same_axis(view.src[0].shape, axis, view.shape)
            if place is None:
                return None
            axes.append((place, step, length))
            shape[place] = self.parts[0].shape[axis]
        return _Parts(tuple(axes), tuple([reshaped(part, tuple(shape)) for part in self.parts]))

    def _shrunk(self, view: Node) -> _Parts | None:
        """The places that are kept, of each part: what the gradient of a padding leaves out is not computed."""
        keep = list(view.arg)
        if any(keep[axis][2] != 1 for axis, _, _ in self.axes):
            return None
        parts = self.parts
        axes = []
        beside = 1  # how far apart in `parts` neighbours along the axis are
        for axis, step, _ in reversed(self.axes):
            start, stop, _ = keep[axis]
            keep[axis] = (0, -(-(stop - start) // step), 1)
            axes.append((axis, step, stop - start))
            taken = []
            for place in range(len(parts)):
                own = place // beside % step  # its first place is start + own
                source = parts[place + ((start + own) % step - own) * beside]
                taken.append(stretch(source, axis, (start + own) // step, keep[axis][1]))
            parts = tuple(taken)
            beside *= step
        return _Parts(tuple(reversed(axes)), tuple([shrunk(part, tuple(keep)) for part in parts]))


def in_turns(parts: Sequence[Node], axis: int, length: int) -> Node:
    """The first place of each part along an axis, then the second of each, `length` of them."""
    shape = parts[0].shape
    apart = [reshaped(part, (*shape[: axis + 1], 1, *shape[axis + 1 :])) for part in parts]
    whole = reshaped(joined(apart, axis + 1), (*shape[:axis], shape[axis] * len(parts), *shape[axis + 1 :]))
    return shrunk(whole, tuple([(0, length if a == axis else n, 1) for a, n in enumerate(whole.shape)]))


def stretch(node: Node, axis: int, start: int, count: int) -> Node:
    """`count` places from `start` on, zeros beyond the last one."""
    shape = node.shape
    size = shape[axis]
    if start >= size:
        return filled(0.0, tuple([count if a == axis else n for a, n in enumerate(shape)]), node.dtype)
    stop = min(size, start + count)
    node = shrunk(node, tuple([(start, stop, 1) if a == axis else (0, n, 1) for a, n in enumerate(shape)]))
    return padded(
        node, tuple([(0, count - (stop - start)) if a == axis else (0, 0) for a in range(len(shape))])
    )


def _convolutions(node: Node, known: dict[Node, _Parts]) -> _Parts | None:
    """The sum over the places of a window, of an UNWINDOW of products; None where it is another sum.

    known  values that are in parts already
    """
    op, axes = node.arg
    wide = node.src[0]
    spread = wide.src[0] if wide.op is Op.CAST else wide
    if op is not Op.ADD or spread.op is not Op.UNWINDOW:
        return None
    axis, length, step, dilation = spread.arg
    source = spread.src[0]
    last = len(source.shape) - 1
    inner = known.get(source) or _Parts((), (source,))
    if axes != (last,) or source.shape[last] < step or gcd(step, dilation) > 1 or 0 in source.shape:
        return None
    if step > _MOST_PARTS or not all(_sums_products(part) for part in inner.parts):
        return None
    places = -(-length // step)
    parts: list[Node] = []
    for part in inner.parts:
        for remainder in range(step):
            # place step*i + remainder has windows o = i + shift - dilation*j, at their places k = first + step*j
            first = remainder * pow(dilation, -1, step) % step if step > 1 else 0
            shift = (remainder - first * dilation) // step
            turns = len(range(first, source.shape[last], step))
            lattice = _Lattice(places, first, step, turns, dilation, (turns - 1) * dilation - shift)
            moved = _Moved(lattice).of(part.cast(node.dtype), axis, last)
            if moved is None or not moved.vanishes:
                return None
            parts.append(Node(Op.REDUCE_AXIS, node.dtype, (moved.node,), node.arg))
    return _Parts((*inner.axes, (axis, step, length)) if step > 1 else inner.axes, tuple(parts))


def _sums_products(node: Node) -> bool:
    """Whether it is a sum of products: views and casts in between, and other sums."""
    is_sum = False
    while node.op in (Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.CAST, Op.REDUCE_AXIS):
        if node.op is Op.REDUCE_AXIS:
            if node.arg[0] is not Op.ADD:
                return False
            is_sum = True
        node = node.src[0]
    return is_sum and node.op is Op.MUL


class _Lattice(NamedTuple):
    """Which windows and which places inside them one remainder takes."""

    places: int  # of the result
    first: int  # place inside the window that the first turn takes,
    step: int  # how far the next one is,
    turns: int  # and how many there are
    dilation: int
    low: int  # zeros before the first window; fewer than none: windows that no place reads


class _Part(NamedTuple):
    node: Node
    vanishes: bool  # True when it is zero beside the windows


class _Moved:
    """What an UNWINDOW moves down to: every node keeps its axes.

    The axis of the windows counts places instead, that of the places inside a window the turns, the last one first.
    """

    def __init__(self, lattice: _Lattice) -> None:
        self.lattice = lattice
        self.known: dict[tuple[Node, int, int], _Part | None] = {}

    def of(self, node: Node, windows: int, inside: int) -> _Part | None:
        """The node over places, None where it depends on the window and on the place in it at once.

        windows, inside  the node's axes of both
        """
        key = (node, windows, inside)
        if key not in self.known:
            self.known[key] = self._made(node, windows, inside)
        return self.known[key]

    def _made(self, node: Node, windows: int, inside: int) -> _Part | None:
        shape = node.shape
        if not shape:
            return _Part(node, False)
        if shape[inside] == 1:
            return self._windows_of(node, windows, inside)
        if shape[windows] == 1:
            return self._turned(node, windows, inside)
        if node.op is Op.MUL:
            left, right = [self.of(source, windows, inside) for source in node.src]
            if left is None or right is None:
                return None
            return _Part(Node(Op.MUL, node.dtype, (left.node, right.node)), left.vanishes or right.vanishes)
        return self._through(node, windows, inside) if node.op in _PASSED else None

    def _through(self, node: Node, windows: int, inside: int) -> _Part | None:
        """Moved through a view, a cast or a sum along other axes."""
        op, arg, source = node.op, node.arg, node.src[0]
        sizes = self._sizes(node.shape, windows, inside)
        below: tuple[int | None, int | None] = (windows, inside)
        if op is Op.EXPAND:
            if source.shape[windows] == 1 == source.shape[inside]:
                return _Part(expanded(source, sizes), False)  # the same everywhere
            arg = sizes
        elif op is Op.PERMUTE:
            below = arg[windows], arg[inside]
        elif op is Op.RESHAPE:
            below = same_axis(node.shape, windows, source.shape), same_axis(node.shape, inside, source.shape)
            arg = sizes
        elif op is Op.SHRINK:
            if any(source.shape[axis] != node.shape[axis] for axis in (windows, inside)):
                return None
            arg = tuple([(0, n, 1) if a in (windows, inside) else arg[a] for a, n in enumerate(sizes)])
        elif op is Op.REDUCE_AXIS and (arg[0] is not Op.ADD or windows in arg[1] or inside in arg[1]):
            return None
        if below[0] is None or below[1] is None:
            return None
        moved = self.of(source, below[0], below[1])
        return None if moved is None else _Part(Node(op, node.dtype, (moved.node,), arg), moved.vanishes)

    def _sizes(self, shape: Shape, windows: int, inside: int) -> Shape:
        sizes = list(shape)
        sizes[windows], sizes[inside] = self.lattice.places, self.lattice.turns
        return tuple(sizes)

    def _windows_of(self, node: Node, windows: int, inside: int) -> _Part:
        """The same for all places inside a window: windows of it, zeros around."""
        lattice, rank = self.lattice, len(node.shape)
        reach = lattice.places + (lattice.turns - 1) * lattice.dilation
        high = reach - lattice.low - node.shape[windows]
        kept = [(0, size, 1) for size in node.shape]
        kept[windows] = (max(0, -lattice.low), node.shape[windows] + min(0, high), 1)
        if kept[windows][0] >= kept[windows][1]:
            return _Part(filled(0.0, self._sizes(node.shape, windows, inside), node.dtype), True)
        pads = [(0, 0)] * rank
        pads[windows] = (max(0, lattice.low), max(0, high))
        around = padded(shrunk(node, tuple(kept)), tuple(pads))
        read = Node(Op.WINDOW, node.dtype, (around,), (windows, lattice.turns, 1, lattice.dilation))
        # the place inside, a last axis now, takes the room of the axis of size 1
        order = [rank if a == inside else a for a in range(rank)]
        read = permuted(read, (*order, inside))
        return _Part(reshaped(read, read.shape[:-1]), True)

    def _turned(self, node: Node, windows: int, inside: int) -> _Part:
        """The same for all windows: the places of one remainder, turned around."""
        lattice = self.lattice
        size = node.shape[inside]
        part = tuple(
            [
                (lattice.first, size, lattice.step) if a == inside else (0, n, 1)
                for a, n in enumerate(node.shape)
            ]
        )
        turned = flipped(shrunk(node, part), (inside,))
        return _Part(expanded(turned, self._sizes(node.shape, windows, inside)), False)


def same_axis(shape: Shape, axis: int, other: Shape) -> int | None:
    """Where an axis, longer than 1, is after a reshape to another shape; None where that merged it or took it apart."""
    before = prod(shape[:axis])
    for place, size in enumerate(other):
        if size == shape[axis] and prod(other[:place]) == before:
            return place
    return None
