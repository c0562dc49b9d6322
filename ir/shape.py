"""A tensor-stage node's shape, worked out from its sources' shapes and checked on the way.

In       a node of the tensor stage
Out      its sizes by axis; a ValueError that names op, shapes and the disagreement
Changes  the shape kept in a node whose shape was asked for
Next     node.py (Node.shape asks here once), verify.py (the other laws of a stage), compiler/lower_movement.py

This is the last net: what a user can get wrong is refused in the frontend, in the user's words. Sizes of zero are legal
on every axis. A source of shape () stands for that value everywhere, in elementwise ops and where a value is written.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NoReturn

from hcq.ir.node import Node, Shape, set_shape
from hcq.ir.op import ARITHMETIC, MOVEMENT, REDUCTIONS, Op


def shape_of(node: Node) -> Shape:
    """Sizes by axis; works on graphs deeper than Python's stack. Raises ValueError when the node is malformed."""
    for source in node.src:
        if source._shape is None:
            _fill_sources(node)
            break
    return _RULES[node.op](node)


def window_count(length: int, size: int, step: int, dilation: int) -> int:
    """How many windows of `size` places, `dilation` apart, start every `step` in an axis of that length."""
    return max(0, (length - dilation * (size - 1) - 1) // step + 1)


def _fill_sources(node: Node) -> None:
    stack = [source for source in node.src if source._shape is None]
    while stack:
        top = stack[-1]
        if top._shape is not None:
            stack.pop()
            continue
        missing = [source for source in top.src if source._shape is None]
        if missing:
            stack.extend(missing)
        else:
            set_shape(top, _RULES[top.op](top))
            stack.pop()


def _of(node: Node) -> Shape:
    shape = node._shape
    assert shape is not None
    return shape


def _refuse(node: Node, what: str) -> NoReturn:
    shapes = ", ".join(str(source._shape) for source in node.src)
    arg = "" if node.arg is None else f", arg={node.arg!r}"
    raise ValueError(f"{node.op.name}({shapes}{arg}): {what}")


# -- one function per kind of op ------------------------------------------------------------------------------------


def _elementwise(node: Node) -> Shape:
    shape: Shape = ()
    for source in node.src:
        own = source._shape
        if own and own != shape:
            if shape:
                _refuse(
                    node, "the sources' shapes differ; only () mixes with another. Expand them to one shape"
                )
            shape = own
    return shape


def _scalar(node: Node) -> Shape:
    return ()


def _leaf(node: Node) -> Shape:
    shape: Shape = node.arg.shape
    return shape


def _iota(node: Node) -> Shape:
    if not isinstance(node.arg, int) or node.arg < 0:
        _refuse(node, "the argument is a count, 0 or more")
    return (node.arg,)


def _same(node: Node) -> Shape:
    if len(node.src) != 1:
        _refuse(node, f"takes 1 source, got {len(node.src)}")
    return _of(node.src[0])


def _first(node: Node) -> Shape:
    if not node.src:
        _refuse(node, "takes a value, got no source")
    return _of(node.src[0])


def _written(node: Node) -> Shape:
    """STORE and ASSIGN: target, value."""
    if len(node.src) != 2:
        _refuse(node, f"takes a target and a value, got {len(node.src)} sources")
    target, value = _of(node.src[0]), _of(node.src[1])
    if value and value != target:
        _refuse(node, "the value's shape is not the target's")
    return target


def _assigned(node: Node) -> Shape:
    """ASSIGN: a view of a buffer, the value written there; the result is the whole buffer afterwards."""
    _written(node)
    base = node.src[0]
    while base.op in MOVEMENT:
        base = base.src[0]
    return _of(base)


def _reshape(node: Node) -> Shape:
    old, new = _of(node.src[0]), node.arg
    if not _are_sizes(new):
        _refuse(node, "the new shape is a tuple of sizes, 0 or more")
    if prod(old) != prod(new):
        _refuse(node, f"{prod(old)} elements do not fill {prod(new)} places")
    shape: Shape = new
    return shape


def _permute(node: Node) -> Shape:
    old, order = _of(node.src[0]), node.arg
    if not isinstance(order, tuple) or sorted(order) != list(range(len(old))):
        _refuse(node, f"the order must name each of the {len(old)} axes once")
    return tuple([old[axis] for axis in order])


def _expand(node: Node) -> Shape:
    old, new = _of(node.src[0]), node.arg
    if not _are_sizes(new) or len(new) != len(old):
        _refuse(node, f"the new shape must have {len(old)} sizes; add axes of size 1 with RESHAPE first")
    for axis, (have, want) in enumerate(zip(old, new)):
        if have != want and have != 1:
            _refuse(node, f"axis {axis} has size {have}; only size 1 can repeat to {want}")
    shape: Shape = new
    return shape


def _pad(node: Node) -> Shape:
    old, pads = _of(node.src[0]), node.arg
    if not isinstance(pads, tuple) or len(pads) != len(old):
        _refuse(node, f"needs (low, high) for each of the {len(old)} axes")
    for axis, (low, high) in enumerate(pads):
        if low < 0 or high < 0:
            _refuse(node, f"axis {axis} would lose elements; use SHRINK")
    return tuple([low + size + high for size, (low, high) in zip(old, pads)])


def _shrink(node: Node) -> Shape:
    old, parts = _of(node.src[0]), node.arg
    if not isinstance(parts, tuple) or len(parts) != len(old):
        _refuse(node, f"needs (start, stop, step) for each of the {len(old)} axes")
    for axis, (size, (start, stop, step)) in enumerate(zip(old, parts)):
        if not 0 <= start <= stop <= size or step < 1:
            _refuse(
                node,
                f"axis {axis}: {start}:{stop}:{step} is not 0 <= start <= stop <= {size} with a step of 1 or more",
            )
    return tuple([(stop - start + step - 1) // step for start, stop, step in parts])


def _flip(node: Node) -> Shape:
    old = _of(node.src[0])
    if not _are_axes(node.arg, len(old)):
        _refuse(node, f"the axes must be ascending and among 0..{len(old) - 1}")
    return old


def _window(node: Node) -> Shape:
    old = _of(node.src[0])
    axis, size, step, dilation = node.arg
    if not 0 <= axis < len(old):
        _refuse(node, f"there is no axis {axis}")
    if size < 1 or step < 1 or dilation < 1:
        _refuse(node, "size, step and dilation are 1 or more")
    count = window_count(old[axis], size, step, dilation)
    return (*old[:axis], count, *old[axis + 1 :], size)


def _unwindow(node: Node) -> Shape:
    old = _of(node.src[0])
    axis, length, step, dilation = node.arg
    if not 0 <= axis < len(old) - 1:
        _refuse(
            node, f"axis {axis} must be one of the axes before the last, which holds the place in the window"
        )
    if length < 0 or step < 1 or dilation < 1:
        _refuse(node, "length is 0 or more, step and dilation are 1 or more")
    return (*old[:axis], length, *old[axis + 1 :])


def _reduce_axis(node: Node) -> Shape:
    old = _of(node.src[0])
    op, axes = node.arg
    if op not in REDUCTIONS:
        _refuse(node, f"{op!r} does not reduce; ADD, MUL, MAX and MIN do")
    if not _are_axes(axes, len(old)):
        _refuse(node, f"the axes must be ascending and among 0..{len(old) - 1}")
    new = list(old)
    for axis in axes:
        new[axis] = 1
    return tuple(new)


def _gather(node: Node) -> Shape:
    x, index = _of(node.src[0]), _of(node.src[1])
    axis = node.arg
    if len(x) != len(index) or not 0 <= axis < len(x):
        _refuse(node, f"source and index need one rank that holds axis {axis}")
    if not node.src[1].dtype.is_integer:
        _refuse(node, f"the index is {node.src[1].dtype.name}; it must be an integer")
    if x[:axis] != index[:axis] or x[axis + 1 :] != index[axis + 1 :]:
        _refuse(node, f"source and index differ outside axis {axis}")
    return index


def _cat(node: Node) -> Shape:
    axis = node.arg
    first = _of(node.src[0]) if node.src else ()
    if not isinstance(axis, int) or not 0 <= axis < len(first):
        _refuse(node, "it needs a part, and an axis that the part has")
    total = 0
    for part in node.src:
        shape = _of(part)
        if len(shape) != len(first) or shape[:axis] != first[:axis] or shape[axis + 1 :] != first[axis + 1 :]:
            _refuse(node, f"parts {first} and {shape} differ outside axis {axis}")
        total += shape[axis]
    return (*first[:axis], total, *first[axis + 1 :])


def _scatter(node: Node) -> Shape:
    base, index, x = _of(node.src[0]), _of(node.src[1]), _of(node.src[2])
    axis = node.arg
    if len(base) != len(index) or not 0 <= axis < len(base):
        _refuse(node, f"base and index need one rank that holds axis {axis}")
    if not node.src[1].dtype.is_integer:
        _refuse(node, f"the index is {node.src[1].dtype.name}; it must be an integer")
    if x and x != index:
        _refuse(node, "the values' shape is not the index's")
    if base[:axis] != index[:axis] or base[axis + 1 :] != index[axis + 1 :]:
        _refuse(node, f"base and index differ outside axis {axis}")
    return base


def _shapeless(node: Node) -> Shape:
    raise ValueError(f"{node.op.name} has no shape: it belongs to a stage after the tensor stage")


def _are_sizes(sizes: object) -> bool:
    return isinstance(sizes, tuple) and all(isinstance(size, int) and size >= 0 for size in sizes)


def _are_axes(axes: object, rank: int) -> bool:
    """Axes are written in ascending order, so that one reduction or flip is one node."""
    if not isinstance(axes, tuple):
        return False
    before = -1
    for axis in axes:
        if not before < axis < rank:
            return False
        before = axis
    return True


_RULES: dict[Op, Callable[[Node], Shape]] = {
    **dict.fromkeys(Op, _shapeless),
    **dict.fromkeys(ARITHMETIC, _elementwise),
    Op.CONST: _scalar,
    Op.BUFFER: _leaf,
    Op.PARAM: _leaf,
    Op.IOTA: _iota,
    Op.RESHAPE: _reshape,
    Op.PERMUTE: _permute,
    Op.EXPAND: _expand,
    Op.PAD: _pad,
    Op.SHRINK: _shrink,
    Op.FLIP: _flip,
    Op.WINDOW: _window,
    Op.UNWINDOW: _unwindow,
    Op.REDUCE_AXIS: _reduce_axis,
    Op.GATHER: _gather,
    Op.SCATTER_ADD: _scatter,
    Op.SCATTER: _scatter,
    Op.CAT: _cat,
    Op.CONTIGUOUS: _same,
    Op.DETACH: _same,
    Op.FUNCTION: _first,
    Op.COPY: _same,
    Op.ASSIGN: _assigned,
    Op.STORE: _written,
    Op.SINK: _scalar,
}
