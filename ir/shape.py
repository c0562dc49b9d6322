"""An op's shape, worked out from its sources' shapes and checked on the way.

In       an op of the tensor stage, its argument, its sources' shapes
Out      sizes by axis; a ValueError that names op, shapes and the disagreement
Next     node.py (Node.shape asks here once), verify.py (the other laws of a stage), compiler/passes/lower_movement.py

This is the last net: what a user can get wrong is refused in the frontend, in the user's words. Sizes of zero are legal
on every axis. A source of shape () stands for that value everywhere, in elementwise ops and where a value is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from hcq.ir.op import ARITHMETIC, REDUCTIONS, SCANS, Op

Shape = tuple[int, ...]
Shapes = Sequence[Shape]


def shape_of(op: Op, arg: Any, shapes: Shapes) -> Shape:
    """Sizes by axis of a tensor-stage op over sources of these shapes.

    shapes   one per source; for ASSIGN, the shape of the buffer under the view comes last
    Raises   ValueError when argument and shapes do not go together, and for ops of later stages, which have no shape
    """
    rule = _RULES.get(op)
    if rule is None:
        raise ValueError(f"{op.name} has no shape: it belongs to a stage after the tensor stage")
    try:
        return rule(arg, shapes)
    except ValueError as mistake:
        words = ", ".join([str(shape) for shape in shapes])
        raise ValueError(f"{op.name}({words}{'' if arg is None else f', arg={arg!r}'}): {mistake}") from None


def window_count(length: int, size: int, step: int, dilation: int) -> int:
    """How many windows of `size` places, `dilation` apart, start every `step` in an axis of that length."""
    return max(0, (length - dilation * (size - 1) - 1) // step + 1)


# -- one function per kind of op ------------------------------------------------------------------------------------


def _elementwise(arg: Any, shapes: Shapes) -> Shape:
    shape: Shape = ()
    for own in shapes:
        if own and own != shape:
            if shape:
                raise ValueError(
                    "the sources' shapes differ; only () mixes with another. Expand them to one shape"
                )
            shape = own
    return shape


def _scalar(arg: Any, shapes: Shapes) -> Shape:
    return ()


def _leaf(arg: Any, shapes: Shapes) -> Shape:
    shape: Shape = arg.shape
    return shape


def _iota(arg: Any, shapes: Shapes) -> Shape:
    if not isinstance(arg, int) or arg < 0:
        raise ValueError("the argument is a count, 0 or more")
    return (arg,)


def _same(arg: Any, shapes: Shapes) -> Shape:
    if len(shapes) != 1:
        raise ValueError(f"takes 1 source, got {len(shapes)}")
    return shapes[0]


def _first(arg: Any, shapes: Shapes) -> Shape:
    if not shapes:
        raise ValueError("takes a value, got no source")
    return shapes[0]


def _stored(arg: Any, shapes: Shapes) -> Shape:
    """ROUTINE: what it says."""
    return _leaf(arg, shapes)


def _written(arg: Any, shapes: Shapes) -> Shape:
    """STORE and ASSIGN: target, value."""
    if len(shapes) not in (2, 3):
        raise ValueError(f"takes a target, a value and maybe a condition, got {len(shapes)} sources")
    target, value = shapes[0], shapes[1]
    if value and value != target:
        raise ValueError("the value's shape is not the target's")
    return target


def _assigned(arg: Any, shapes: Shapes) -> Shape:
    """ASSIGN: a view of a buffer, the value written there; the result is the whole buffer afterwards."""
    if arg is None:
        _written(arg, shapes[:-1])
    else:
        _scatter(arg, shapes[:-1])
    return shapes[-1]


def _reshape(arg: Any, shapes: Shapes) -> Shape:
    old, new = shapes[0], arg
    if not _are_sizes(new):
        raise ValueError("the new shape is a tuple of sizes, 0 or more")
    if prod(old) != prod(new):
        raise ValueError(f"{prod(old)} elements do not fill {prod(new)} places")
    shape: Shape = new
    return shape


def _permute(arg: Any, shapes: Shapes) -> Shape:
    old, order = shapes[0], arg
    if not isinstance(order, tuple) or sorted(order) != list(range(len(old))):
        raise ValueError(f"the order must name each of the {len(old)} axes once")
    return tuple([old[axis] for axis in order])


def _expand(arg: Any, shapes: Shapes) -> Shape:
    old, new = shapes[0], arg
    if not _are_sizes(new) or len(new) != len(old):
        raise ValueError(f"the new shape must have {len(old)} sizes; add axes of size 1 with RESHAPE first")
    for axis, (have, want) in enumerate(zip(old, new)):
        if have != want and have != 1:
            raise ValueError(f"axis {axis} has size {have}; only size 1 can repeat to {want}")
    shape: Shape = new
    return shape


def _pad(arg: Any, shapes: Shapes) -> Shape:
    old, pads = shapes[0], arg
    if not isinstance(pads, tuple) or len(pads) != len(old):
        raise ValueError(f"needs (low, high) for each of the {len(old)} axes")
    for axis, (low, high) in enumerate(pads):
        if low < 0 or high < 0:
            raise ValueError(f"axis {axis} would lose elements; use SHRINK")
    return tuple([low + size + high for size, (low, high) in zip(old, pads)])


def _shrink(arg: Any, shapes: Shapes) -> Shape:
    old, parts = shapes[0], arg
    if not isinstance(parts, tuple) or len(parts) != len(old):
        raise ValueError(f"needs (start, stop, step) for each of the {len(old)} axes")
    for axis, (size, (start, stop, step)) in enumerate(zip(old, parts)):
        if not 0 <= start <= stop <= size or step < 1:
            raise ValueError(
                f"axis {axis}: {start}:{stop}:{step} is not 0 <= start <= stop <= {size} with a step of 1 or more"
            )
    return tuple([(stop - start + step - 1) // step for start, stop, step in parts])


def _flip(arg: Any, shapes: Shapes) -> Shape:
    old = shapes[0]
    if not _are_axes(arg, len(old)):
        raise ValueError(f"the axes must be ascending and among 0..{len(old) - 1}")
    return old


def _window(arg: Any, shapes: Shapes) -> Shape:
    old = shapes[0]
    axis, size, step, dilation = arg
    if not 0 <= axis < len(old):
        raise ValueError(f"there is no axis {axis}")
    if size < 1 or step < 1 or dilation < 1:
        raise ValueError("size, step and dilation are 1 or more")
    count = window_count(old[axis], size, step, dilation)
    return (*old[:axis], count, *old[axis + 1 :], size)


def _unwindow(arg: Any, shapes: Shapes) -> Shape:
    old = shapes[0]
    axis, length, step, dilation = arg
    if not 0 <= axis < len(old) - 1:
        raise ValueError(
            f"axis {axis} must be one of the axes before the last, which holds the place in the window"
        )
    if length < 0 or step < 1 or dilation < 1:
        raise ValueError("length is 0 or more, step and dilation are 1 or more")
    return (*old[:axis], length, *old[axis + 1 :])


def _reduce_axis(arg: Any, shapes: Shapes) -> Shape:
    old = shapes[0]
    op, axes = arg
    if op not in REDUCTIONS:
        raise ValueError(f"{op!r} does not reduce; ADD, MUL, MAX and MIN do")
    if not _are_axes(axes, len(old)):
        raise ValueError(f"the axes must be ascending and among 0..{len(old) - 1}")
    new = list(old)
    for axis in axes:
        new[axis] = 1
    return tuple(new)


def _scan_axis(arg: Any, shapes: Shapes) -> Shape:
    op, axis = arg
    if op not in SCANS:
        raise ValueError(f"{op!r} does not scan; ADD and MUL do")
    if not 0 <= axis < len(shapes[0]):
        raise ValueError(f"axis {axis} must be one of the {len(shapes[0])}")
    if len(shapes) > 1 and shapes[1] != (*shapes[0][:axis], 1, *shapes[0][axis + 1 :]):
        raise ValueError("the start has the shape of the values, with size 1 along the axis")
    return shapes[0]


def _bucket(arg: Any, shapes: Shapes) -> Shape:
    x, bits = shapes[0], arg[1]
    if len(x) != 1 + len(shapes):
        raise ValueError("it needs (rows, n), or with counters (rows, pieces, n / pieces)")
    if len(shapes) > 1 and shapes[1] != (*x[:2], 1 << bits):
        raise ValueError("the counters are (rows, pieces, 2 ** bits)")
    return x[0], prod(x[1:])


def _gather(arg: Any, shapes: Shapes) -> Shape:
    x, index = shapes[0], shapes[1]
    axis = arg
    if len(x) != len(index) or not 0 <= axis < len(x):
        raise ValueError(f"source and index need one rank that holds axis {axis}")
    if x[:axis] != index[:axis] or x[axis + 1 :] != index[axis + 1 :]:
        raise ValueError(f"source and index differ outside axis {axis}")
    return index


def _cat(arg: Any, shapes: Shapes) -> Shape:
    axis = arg
    first = shapes[0] if shapes else ()
    if not isinstance(axis, int) or not 0 <= axis < len(first):
        raise ValueError("it needs a part, and an axis that the part has")
    total = 0
    for shape in shapes:
        if len(shape) != len(first) or shape[:axis] != first[:axis] or shape[axis + 1 :] != first[axis + 1 :]:
            raise ValueError(f"parts {first} and {shape} differ outside axis {axis}")
        total += shape[axis]
    return (*first[:axis], total, *first[axis + 1 :])


def _first_elements(arg: Any, shapes: Shapes) -> Shape:
    x, count = shapes
    if count or not 0 <= arg < len(x):
        raise ValueError("it needs a count of shape () and an axis that the value has")
    return x


def _scatter(arg: Any, shapes: Shapes) -> Shape:
    base, index, x = shapes[0], shapes[1], shapes[2]
    axis = arg
    if len(base) != len(index) or not 0 <= axis < len(base):
        raise ValueError(f"base and index need one rank that holds axis {axis}")
    if x and x != index:
        raise ValueError("the values' shape is not the index's")
    if base[:axis] != index[:axis] or base[axis + 1 :] != index[axis + 1 :]:
        raise ValueError(f"base and index differ outside axis {axis}")
    return base


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


_RULES: dict[Op, Callable[[Any, Shapes], Shape]] = {
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
    Op.SCAN_AXIS: _scan_axis,
    Op.BUCKET: _bucket,
    Op.ROUTINE: _stored,
    Op.CONTIGUOUS: _same,
    Op.DETACH: _same,
    Op.FUNCTION: _first,
    Op.FIRST: _first_elements,
    Op.COPY: _same,
    Op.ASSIGN: _assigned,
    Op.STORE: _written,
    Op.SINK: _scalar,
}
