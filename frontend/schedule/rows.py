"""Rows: along which axes of a kernel's result a node below it varies.

In       the path from what a kernel stores down to a node, one step at a time
Out      frames: for each axis of the result the node's axis that runs along it, or None where the node stays the same
Next     walk.py, which keeps a reduction inside a kernel when it is needed once per row: softmax, a normalisation

    y = x / x.sum(-1, keepdim=True)        y has axes (0, 1)
        x                                  frame (0, 1)
        x.sum(-1, keepdim=True)            frame (0, None): the same along axis 1, so the row axes are {1}
        x, below that sum                  frame (0, 1) again: the summed axis runs along the row

What a kernel folds at last is walked like what it stores, behind the axes of that; a frame that ends before stays the
same along the rest.

    y = (x - x.max(-1, keepdim=True)).exp().sum(-1)        y has axis (0), and folds another one
        the difference                     frame (0, 1)
        the maximum                        frame (0, None): computed once for a row that is walked again
"""

from __future__ import annotations

from hcq.ir.node import Node, Shape
from hcq.ir.op import ARITHMETIC, Op

Frame = tuple[int | None, ...]


def whole(shape: Shape) -> Frame:
    """The frame of what is stored itself."""
    return tuple(range(len(shape)))


def below(node: Node, source: Node, frame: Frame | None, stored: Shape) -> Frame | None:
    """The frame of a source of `node`, None where it cannot be said.

    stored  the shape of what the kernel stores
    """
    if frame is None:
        return None
    op = node.op
    if op in ARITHMETIC:
        return frame if source.shape == node.shape else (None,) * len(frame)
    if op is Op.EXPAND:
        return tuple([None if j is None or source.shape[j] != node.shape[j] else j for j in frame])
    if op is Op.PERMUTE:
        return tuple([None if j is None else node.arg[j] for j in frame])
    if op is Op.RESHAPE:
        return _through_unit_axes(node, source, frame)
    if op is Op.REDUCE_AXIS:
        return _below_reduction(node, source, frame, stored)
    return None


def row_axes(frame: Frame, stored: Shape) -> tuple[int, ...]:
    """The axes of what is walked along which the node stays the same."""
    return tuple([i for i, size in enumerate(stored) if size > 1 and (i >= len(frame) or frame[i] is None)])


def both(one: Frame | None, other: Frame | None) -> Frame | None:
    """The frame of a node that is used in two places: where both say the same."""
    if one is None or other is None:
        return None
    length = max(len(one), len(other))
    first, second = (frame + (None,) * (length - len(frame)) for frame in (one, other))
    return first if first == second else None


def is_covered(node: Node, frame: Frame) -> bool:
    """True when every axis that the node varies along is one of the result's."""
    return {j for j, size in enumerate(node.shape) if size > 1} <= set(frame)


def are_innermost(axes: tuple[int, ...], stored: Shape) -> bool:
    """True when no other axis of the result is inside these."""
    real = [i for i, size in enumerate(stored) if size > 1]
    return tuple(real[len(real) - len(axes) :]) == axes


def runs_along(node: Node, axes: tuple[int, ...], stored: Shape) -> bool:
    """True when the axes that a reduction folds are as long as these, one by one."""
    folded = [node.src[0].shape[a] for a in node.arg[1] if node.src[0].shape[a] > 1]
    return folded == [stored[i] for i in axes]


def _through_unit_axes(node: Node, source: Node, frame: Frame) -> Frame | None:
    """A reshape that only adds or drops axes of size 1."""
    new = [j for j, size in enumerate(node.shape) if size > 1]
    old = [j for j, size in enumerate(source.shape) if size > 1]
    if [node.shape[j] for j in new] != [source.shape[j] for j in old]:
        return None
    place = dict(zip(new, old, strict=True))
    return tuple([None if j is None else place.get(j) for j in frame])


def _below_reduction(node: Node, source: Node, frame: Frame, stored: Shape) -> Frame | None:
    """What is folded runs along the row, where it is as long as the row."""
    axes = row_axes(frame, stored)
    if not axes or not runs_along(node, axes, stored):
        return None
    folded = [a for a in node.arg[1] if source.shape[a] > 1]
    place = dict(zip(axes, folded, strict=True))
    return tuple([place.get(i, j) for i, j in enumerate(frame)])
