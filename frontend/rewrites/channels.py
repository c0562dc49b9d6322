"""Channels: what a convolution reads lies in memory as a GPU's matrix unit takes it, channels together.

In       roots, in which sums of products run over windows of narrow images: 16-bit floats, bytes
Out      the same sums; images and weights are first copied, channels innermost
Next     gaps.py (gradients of images are such sums, too), ../../compiler/loops/heuristic_matrix.py (who tiles them)

    image   (batch, channels, y, x)       -> (batch, y, x, channels)
    weight  (out, channels, window)       -> (out, window, channels)

A window's neighbours along x begin at any element, and its channels lie a whole image apart: of what a GPU fetches for
one of them it needs 1 or 2 bytes of 32. With the channels together 16 bytes of them are one aligned vector wherever the
window is. A copy reads and writes an image once; what computes the image goes into it. A sum that runs over the places
of windows (the gradient of a weight) has its other operand as it lies: that is contiguous along what is summed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from hcq.frontend.core.nodes import expanded, permuted
from hcq.frontend.rewrites.gaps import same_axis
from hcq.ir.dtype import DType
from hcq.ir.node import Node, toposort
from hcq.ir.op import MOVEMENT, Op

VECTOR_BYTES = 16  # that are read at once
LEAST = 16  # channels, and results that read the same image: fewer are no work for a matrix unit


def in_channels(roots: Sequence[Node], formats: Collection[DType]) -> list[Node]:
    """The same values, operands of convolutions copied with their channels together.

    formats  what the device's matrix units multiply; without any nothing is done
    """
    order = toposort(roots)
    if not formats or not any(node.op is Op.WINDOW for node in order):
        return list(roots)
    new: dict[Node, Node] = {}
    for node in order:
        src = tuple([new[source] for source in node.src])
        made = node if src == node.src else Node(node.op, node.dtype, src, node.arg)
        if made.op is Op.REDUCE_AXIS and made.arg[0] is Op.ADD and made.src[0].op is Op.MUL:
            found = _product(made.src[0], formats)
            made = made if found is None else _summed(made, *found)
        new[node] = made
    return [new[root] for root in roots]


@dataclass
class _Operand:
    """A factor of a product: views of narrow numbers.

    views   from the factor down to `base`, widening left out
    """

    dtype: DType  # of the factor
    views: list[Node]
    base: Node

    def over(self, base: Node) -> Node:
        """The factor, with something of the same elements as its base."""
        for view in reversed(self.views):
            base = Node(view.op, base.dtype, (base,), view.arg)
        return base.cast(self.dtype)


def _operand(factor: Node, formats: Collection[DType]) -> _Operand | None:
    """A factor as views of numbers in one of the formats, None for another one."""
    views, node = [], factor
    while True:
        if node.op in MOVEMENT:
            views.append(node)
        elif node.op is not Op.CAST or node.dtype in formats or not _widens(node):
            break
        node = node.src[0]
    return _Operand(factor.dtype, views, node) if node.dtype in formats else None


def _widens(cast: Node) -> bool:
    """Whether every number of the source is the same number afterwards."""
    a, b = cast.src[0].dtype, cast.dtype
    if a.is_float or b.is_float:
        return a.is_float and b.is_float and b.itemsize > a.itemsize
    return b.bits > a.bits and (a.is_unsigned or not b.is_unsigned)


def _summed(node: Node, product: Node, channel: int) -> Node:
    """The sum of such a product. Results for each channel are stored with these together, and then in their order."""
    op, axes = node.arg
    if channel in axes:
        return Node(node.op, node.dtype, (product,), node.arg)
    order = (*[axis for axis in range(len(node.shape)) if axis != channel], channel)
    factors = tuple([_turned(factor, order) for factor in product.src])
    turned = Node(Op.MUL, product.dtype, factors)
    total = Node(node.op, node.dtype, (turned,), (op, tuple(sorted(order.index(axis) for axis in axes))))
    total = Node(Op.CONTIGUOUS, node.dtype, (total,), "channels")
    return permuted(total, tuple([order.index(axis) for axis in range(len(order))]))


def _product(node: Node, formats: Collection[DType]) -> tuple[Node, int] | None:
    """The product, of operands with channels together, and the axis of these; None where it gains nothing by it."""
    operands = [_operand(factor, formats) for factor in node.src]
    if operands[0] is None or operands[1] is None:
        return None
    strided = [any(view.op is Op.WINDOW for view in operand.views) for operand in operands]  # type: ignore[union-attr]
    if strided[0] == strided[1]:
        return None
    image, other = (operands[0], operands[1]) if strided[0] else (operands[1], operands[0])
    found = _image(image)
    if found is None:
        return None
    windows, channel = found
    place = _above(image, channel)
    if place is None or prod([n for a, n in enumerate(node.shape) if a in _repeated(image)]) < LEAST:
        return None
    factors = [image.over(_channels_last(image.base, windows, channel)), node.src[strided.index(False)]]
    if place not in _repeated(other):
        summed = _in_base(other, place)
        if summed is None:
            return None
        factors[1] = other.over(_channels_last(other.base, [], summed))
    return Node(Op.MUL, node.dtype, tuple(factors if strided[0] else factors[::-1])), place


def _channels_last(node: Node, windows: Sequence[int], channel: int) -> Node:
    """The node, in memory with one axis innermost, and around it those along which windows move."""
    rest = [axis for axis in range(len(node.shape)) if axis != channel and axis not in windows]
    order = (*rest, *windows, channel)
    copy = Node(Op.CONTIGUOUS, node.dtype, (permuted(node, order),))
    return permuted(copy, tuple([order.index(axis) for axis in range(len(order))]))


def _in_base(operand: _Operand, axis: int) -> int | None:
    """The axis of an operand's base that is this one of the operand, along which nothing repeats it."""
    found: int | None = axis
    for view in operand.views:
        if found is not None:
            found = _below(view, found)
    return found


def _turned(factor: Node, order: tuple[int, ...]) -> Node:
    """A factor with its axes in another order, what repeats it still outermost."""
    views = []
    while factor.op in (Op.CAST, Op.EXPAND):
        views.append(factor)
        factor = factor.src[0]
    factor = permuted(factor, order)
    for view in reversed(views):
        if view.op is Op.CAST:
            factor = factor.cast(view.dtype)
        else:
            factor = expanded(factor, tuple([view.shape[axis] for axis in order]))
    return factor


def _image(image: _Operand) -> tuple[list[int], int] | None:
    """The axes of an image's base along which windows move, and its channels; None where these are few or ragged.

    Views below all windows are no part of the operand any more where they are padding or axes of one element only.
    """
    windows: list[int] = []
    lowest = max(i for i, view in enumerate(image.views) if view.op is Op.WINDOW)
    kept = len(image.views)
    for i, view in enumerate(image.views):
        if i > lowest and view.op not in (Op.PAD, Op.RESHAPE):
            kept = i
            break
        if view.op is Op.WINDOW:
            windows.append(view.arg[0])
            continue
        below = [_below(view, axis) for axis in windows]
        if None in below:
            if i < lowest:
                return None
            kept = i
            break
        windows = [axis for axis in below if axis is not None]
    if kept < len(image.views):
        for view in reversed(image.views[kept:]):
            image.base = Node(view.op, image.base.dtype, (image.base,), view.arg)
        del image.views[kept:]
    shape = image.base.shape
    others = [axis for axis, size in enumerate(shape) if axis not in windows and size > 1]
    if not others or len(set(windows)) < len(windows):
        return None
    channel = others[-1]
    if shape[channel] < LEAST or shape[channel] * image.base.dtype.itemsize % VECTOR_BYTES:
        return None
    return sorted(windows), channel


def _below(view: Node, axis: int) -> int | None:
    """The axis of a view's source that is this one of the view."""
    if view.op is Op.PERMUTE:
        order: tuple[int, ...] = view.arg
        return order[axis]
    return same_axis(view.shape, axis, view.src[0].shape) if view.op is Op.RESHAPE else axis


def _above(operand: _Operand, axis: int) -> int | None:
    """The axis of an operand that is this one of its base."""
    for view in reversed(operand.views):
        if view.op is Op.PERMUTE:
            axis = view.arg.index(axis)
        elif view.op is Op.RESHAPE:
            found = same_axis(view.src[0].shape, axis, view.shape)
            if found is None:
                return None
            axis = found
        elif view.op is Op.WINDOW and view.arg[0] == axis:
            return None
    return axis


def _repeated(operand: _Operand) -> set[int]:
    """The axes along which it is expanded, as far as its outermost views say."""
    found: set[int] = set()
    for view in operand.views:
        if view.op is Op.EXPAND:
            found |= {axis for axis, size in enumerate(view.src[0].shape) if size != view.shape[axis]}
        elif view.op not in (Op.FLIP, Op.SHRINK):
            break
    return found
