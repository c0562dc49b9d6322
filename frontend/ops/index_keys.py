"""Index keys: the entries of square brackets, one by one: what each means on an axis, and which are refused.

In       an entry of x[...]: an int, a slice, a list, what stands for either; the size of its axis
Out      places and parts of the axis; `Pick` and `Cut`, what stands for an entry that computes places or a size
Next     indexing.py (reads by them), index_writes.py (writes by them)
"""

from __future__ import annotations

from typing import Any

from hcq.checks import is_whole, shown
from hcq.frontend.core.base import Core
from hcq.frontend.core.data import MAX_DEPTH
from hcq.frontend.core.errors import OutOfRange, UsageError, WrongType
from hcq.frontend.symbolic.variable import Bound
from hcq.ir.node import Node, Shape


class Cut:
    """The elements of an axis before a count; `room` is how many that can be."""

    __slots__ = ("count", "room")

    def __init__(self, room: int, count: Node):
        self.room = room
        self.count = count


class Pick:
    """Integer indices for one axis, what the host knows of their values, and whether they come from a mask."""

    __slots__ = ("index", "is_mask", "values")

    def __init__(self, index: Any, values: list[int] | None, is_mask: bool = False):
        self.index = index
        self.values = values
        self.is_mask = is_mask


def is_mask(item: Any) -> bool:
    """Whether it is a bool tensor."""
    return isinstance(item, Core) and item.node.dtype.is_bool


def is_beyond(item: Any, low: int) -> bool:
    """Whether an index without variables takes more of an axis than the least number of elements it can have."""
    if isinstance(item, slice):
        ends = (item.start, item.stop, item.step)
        if any(isinstance(end, Bound) for end in ends):
            return False
        known = [end for end in ends[:2] if is_whole(end) and end > low]
        return bool(known) or item.step not in (None, 1)
    return is_whole(item) and item >= low


def least(size: Any) -> int:
    """The least that a size may be: of a number itself."""
    return size.low if isinstance(size, Bound) else size  # type: ignore[no-any-return]


def whole_index(value: int, axis: int, shape: Shape) -> int:
    """An int as the place that it names, counted from the start. Raises OutOfRange."""
    size = shape[axis] if axis < len(shape) else 0
    if -size <= value < size:
        return value + size if value < 0 else value
    raise out_of_range(value, axis, shape)


def out_of_range(value: int, axis: int, shape: Shape) -> OutOfRange:
    """The error that names the places that there are."""
    size = shape[axis]
    use = f"use {-size} to {size - 1}" if size else "it is empty"
    return OutOfRange(f"[index] {value} on axis {axis} of shape {shape}: out of range; {use}.")


def slice_part(part: slice, size: int, axis: int) -> tuple[tuple[int, int, int], bool, int]:
    """SHRINK's (start, stop, step), whether it then runs backwards, and how many elements it has."""
    if part.start is None and part.stop is None and part.step is None:
        return (0, size, 1), False, size
    for bound in (part.start, part.stop, part.step):
        if bound is not None and not (is_whole(bound) or (isinstance(bound, Core) and not bound.node.shape)):
            raise WrongType(
                f"[index] slice bound {shown(bound)} on axis {axis} is not an int. Convert it first."
            )
    if part.step is not None and part.step.__index__() == 0:
        raise UsageError(f"[index] a slice with step 0 on axis {axis} never ends. Use another step.")
    places = range(size)[part]
    count = len(places)
    if count == 0:
        return (0, 0, 1), False, 0
    low, high = min(places[0], places[-1]), max(places[0], places[-1])
    return (low, high + 1, abs(places.step) if count > 1 else 1), places.step < 0 and count > 1, count


def flat_numbers(item: Any, depth: int = 0) -> list[Any]:
    """The numbers in nested lists, or in an array, in their order."""
    if hasattr(item, "tolist"):
        item = item.tolist()
    if not isinstance(item, (list, tuple)):
        return [item]
    if depth > MAX_DEPTH:
        raise UsageError(
            f"[index] lists deeper than {MAX_DEPTH}, or a list that holds itself. Give a tensor."
        )
    return [value for part in item for value in flat_numbers(part, depth + 1)]
