"""Indexing: what x[...] reads.

In       ints, slices, None, Ellipsis, lists, arrays, integer and bool tensors
Out      lazy tensors: views where the index is known, GATHER where it is computed
Next     index_keys.py (single entries), index_writes.py (x[...] = y), gathering.py (by name), movement.py (the views),
         docs/semantics.md (what an index out of range means)

The rules are PyTorch's. Ints and slices are views. Integer lists and tensors pick elements: several of them broadcast
together, and their axes take the place of the first one when they stand side by side, else come first. Indices known on
the host are checked; indices computed on the device read zero (or write nothing) when out of range. A bool mask has a
size that depends on its data, so it is computed and read back first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from hcq.checks import is_whole, shown
from hcq.frontend.core import known_later
from hcq.frontend.core.base import Core, watcher
from hcq.frontend.core.errors import OutOfRange, UsageError, WrongType
from hcq.frontend.core.known_later import room_of
from hcq.frontend.core.nodes import broadcast_shape, expanded, flipped, iota, permuted, reshaped, shrunk
from hcq.frontend.core.sizes import bounded, counts_of, with_counts, without_counts
from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.ops.checked_places import check
from hcq.frontend.ops.index_keys import (
    Cut,
    Pick,
    flat_numbers,
    is_beyond,
    is_mask,
    least,
    out_of_range,
    slice_part,
    whole_index,
)
from hcq.frontend.symbolic.conditions import require
from hcq.frontend.symbolic.variable import Bound, bound_of
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Shape, const
from hcq.ir.op import Op

FULL = slice(None)


class Indexing(Methods):
    """Square brackets."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Self:
        if type(key) is int:  # the usual case: one slice of the first axis
            shape = self.node.shape
            if shape and not known_later.in_use:
                start = whole_index(key, 0, shape)
                parts = ((start, start + 1, 1), *[(0, size, 1) for size in shape[1:]])
                return self._view(reshaped(shrunk(self.node, parts), shape[1:]))
        if known_later.in_use and watcher() is None and (counts := counts_of(self.node)):
            settled = self._settled(key, dict(counts))
            if settled is not self:
                return settled[key]
        view, picks = self._basic(key)
        if not picks:
            return view
        picked = view._pick(picks)
        is_part = known_later.in_use and all(known_later.is_number(index.node) for _, index in picks)
        return self._view(picked.node) if is_part else picked

    def _settled(self, key: Any, counts: dict[int, Node]) -> Self:
        """Itself with the sizes of now along axes of which plain indices take what is not there for all numbers."""
        items = list(key) if isinstance(key, tuple) else [key]
        rank = len(self.node.shape)
        used = [
            len(item.node.shape) if is_mask(item) else 0 if item is None or item is Ellipsis else 1
            for item in items
        ]
        now: dict[int, int] = {}
        axis = 0
        for item, width in zip(items, used):
            size = bound_of(counts[axis]) if axis in counts else None
            if item is Ellipsis:
                axis += rank - sum(used)
            elif size is not None and not isinstance(item, Bound) and is_beyond(item, size.low):
                now[axis] = size.value
            axis += width
        if not now:
            return self
        (node,) = without_counts([self.node])
        node = shrunk(node, tuple([(0, now.get(axis, size), 1) for axis, size in enumerate(node.shape)]))
        return self._view(
            with_counts(node, [(axis, count) for axis, count in counts.items() if axis not in now])
        )

    # -- views --

    def _basic(self, key: Any, is_written: bool = False) -> tuple[Self, list[tuple[int, Self]]]:
        """The basic part of an index as a view, and the (axis of the view, integer tensor) picks that remain.

        is_written   what is cut at a count is a pick, too: the elements beyond it are not written
        """
        shape = self.node.shape
        entries = self._complete(key)
        parts: list[tuple[int, int, int]] = []
        flips: list[int] = []
        sizes: list[int] = []  # the view's shape
        picks: list[tuple[int, Self]] = []
        cuts: list[tuple[int, Node]] = []
        axis = 0
        for entry in entries:
            if entry is None:
                sizes.append(1)
            elif isinstance(entry, slice):
                part, is_flipped, count = slice_part(entry, shape[axis], axis)
                parts.append(part)
                if is_flipped:
                    flips.append(axis)
                sizes.append(count)
                axis += 1
            elif isinstance(entry, Cut):
                parts.append((0, entry.room, 1))
                if is_written:
                    places = iota(entry.room, 0, (entry.room,), dtypes.int32)
                    picks.append((len(sizes), self._like(with_counts(places, [(0, entry.count)]))))
                    parts[-1] = (0, shape[axis], 1)
                    sizes.append(shape[axis])
                    axis += 1
                    continue
                cuts.append((len(sizes), entry.count))
                sizes.append(entry.room)
                axis += 1
            elif isinstance(entry, int):
                start = whole_index(entry, axis, shape)
                parts.append((start, start + 1, 1))
                axis += 1
            else:
                picks.append((len(sizes), entry))
                parts.append((0, shape[axis], 1))
                sizes.append(shape[axis])
                axis += 1
        node = flipped(shrunk(self.node, tuple(parts)), tuple(flips))
        return self._view(with_counts(reshaped(node, tuple(sizes)), cuts)), picks

    def _complete(self, key: Any) -> list[Any]:
        """One entry per axis (None for new ones): Ellipsis filled in, masks turned into picks, lists into tensors."""
        entries: list[Any] = []
        used = 0
        for item in key if isinstance(key, tuple) else (key,):
            if item is None or item is Ellipsis:
                entries.append(item)
            elif isinstance(item, slice):
                entries.append(item)
                used += 1
            elif isinstance(item, bool):
                raise UsageError(
                    "[index] True and False are not indices. Use x[None], or a bool tensor as a mask."
                )
            elif isinstance(item, (int, Bound)):
                entries.append(item)
                used += 1
            else:
                found = self._picked(item, used)
                entries.extend(found)
                used += len(found)
        rank = len(self.node.shape)
        if used > rank:
            raise OutOfRange(
                f"[index] {used} indices for a tensor of shape {self.node.shape}, which has {rank} axes. Use fewer."
            )
        dots = [place for place, entry in enumerate(entries) if entry is Ellipsis]
        if len(dots) > 1:
            raise UsageError("[index] '...' may stand once in an index. Write the other axes as ':'.")
        place = dots[0] if dots else len(entries)
        missing: list[Any] = [FULL] * (rank - used)
        entries[place : place + len(dots)] = missing
        axis = 0
        # axes are known now: check what the host knows, wrap what it does not
        for place, entry in enumerate(entries):
            if isinstance(entry, Pick):
                entries[place] = self._checked(entry, axis)
            elif known_later.in_use and entry is not None:
                entries[place] = self._at_bounds(entry, axis)
            axis += entry is not None
        return entries

    def _at_bounds(self, entry: Any, axis: int) -> Any:
        """An int or a slice of an axis where a Bound is met: a cut (x[:n]), or places as a pick; else as it is."""
        size = self.shape[axis]
        if isinstance(entry, slice):
            return self._slice_of_bounds(entry, axis, size)
        if not isinstance(size, Bound) and not isinstance(entry, Bound):
            return entry
        if not isinstance(entry, Bound):
            if 0 <= entry < size.low:
                return entry
            entry = size + entry if entry < 0 else entry
        for gap in (entry, size - 1 - entry):
            require(gap, f"[index] {entry} has to be inside of axis {axis}, whose size is {size}")
        place = entry.node(self.device) if isinstance(entry, Bound) else const(entry, dtypes.int32)
        return self._like(place)

    def _slice_of_bounds(self, part: slice, axis: int, size: Any) -> Any:
        """A slice with a Bound in it, or of an axis whose size is one."""
        given = (part.start, part.stop, part.step)
        if not any(isinstance(each, Bound) for each in (*given, size)):
            return part
        start, stop = (0 if part.start is None else part.start), (size if part.stop is None else part.stop)
        for end in (start, stop, 1 if part.step is None else part.step):
            if not isinstance(end, Bound) and not is_whole(end):
                raise WrongType(f"[index] slice bound {shown(end)} on axis {axis} is not an int. Convert it.")
        if part.step is not None and part.step != 1:
            raise UsageError(f"[index] a slice of axis {axis} by {size} with a step. Take every element.")
        start, stop = (size + end if not isinstance(end, Bound) and end < 0 else end for end in (start, stop))
        if stop is size or stop == size:
            stop = size
        length, rest = stop - start, size - stop
        for gap in (start, length, rest):
            require(gap, f"[index] {start}:{stop} has to be inside of axis {axis}, whose size is {size}")
        if start == 0 and stop is size:
            return FULL
        is_plain = not isinstance(start, Bound) and not isinstance(stop, Bound)
        if (is_plain and stop <= least(size)) or (isinstance(length, int) and length == 0):
            return slice(int(start), int(stop)) if is_plain else slice(0, 0)
        room, have = room_of(length), self.node.shape[axis]
        if start == 0 and not is_plain and (room == have or (room < have and not isinstance(size, Bound))):
            return Cut(room, length.node(self.device))
        base = start.node(self.device) if isinstance(start, Bound) else const(start, dtypes.int32)
        places = iota(room, 0, (room,), dtypes.int32) + base
        if isinstance(length, Bound):
            places = with_counts(places, [(0, length.node(self.device))])
        return self._like(places)

    def _picked(self, item: Any, used: int) -> list[Any]:
        """A list, array or tensor as picks: one for integers, one per axis of a mask."""
        values: Any = None  # what the host knows of the indices
        if not isinstance(item, Core):
            if is_whole(item) and not hasattr(item, "shape"):
                return [item.__index__()]
            item = list(item) if isinstance(item, range) else item
            if isinstance(item, type) or not (
                isinstance(item, (list, tuple)) or hasattr(item, "__array__") or hasattr(item, "__index__")
            ):
                raise OutOfRange(
                    f"[index] {shown(item)} ({type(item).__name__}) is not an index. Use ints, slices, None, "
                    "..., lists of ints, or tensors of integers or bool."
                )
            if getattr(item, "shape", None) == () and hasattr(item, "__index__"):
                try:
                    return [item.__index__()]
                except TypeError:
                    raise OutOfRange(f"[index] {shown(item)} is not an index. Use integers.") from None
            values = flat_numbers(item)
            tensor = self._like(self._node_of(item, None))
            watching = watcher()
            if watching is not None:
                watching.indexed(item)
            if not values:
                tensor = tensor.cast(dtypes.int64)
        else:
            tensor = item  # type: ignore[assignment]
            self._same_device("index", tensor)
        if tensor.node.dtype.is_bool:
            return self._mask_picks(tensor, used)
        if not tensor.node.dtype.is_integer:
            raise OutOfRange(
                f"[index] indices are {tensor.node.dtype.name}. Use integers or bool: x.cast(dtypes.int64)."
            )
        return [Pick(tensor, values)]

    def _mask_picks(self, mask: Self, used: int) -> list[Any]:
        shape = mask.node.shape
        if not shape:
            raise UsageError(
                "[index] a bool tensor of shape () is not an index. Use where() to choose by it."
            )
        if self.node.shape[used : used + len(shape)] != shape:
            raise OutOfRange(
                f"[index] a mask of shape {shape} on axes {used}.. of a tensor of shape {self.node.shape}: "
                "the sizes differ. Give a mask of the axes' own shape."
            )
        places = mask._nonzero()
        columns = [self._kind._made_of(places[:, axis], device=self.device) for axis in range(len(shape))]
        return [Pick(column, None, True) for column in columns]

    def _checked(self, pick: Pick, axis: int) -> Self:
        """The pick's indices as non-negative numbers; checked where the host knows them."""
        size = self.node.shape[axis]
        index: Self = pick.index
        if pick.values is not None:
            for value in pick.values:
                if not -size <= value < size:
                    raise out_of_range(value, axis, self.node.shape)
            if all(value >= 0 for value in pick.values):
                return index
        if pick.is_mask:
            return index
        if pick.values is None:
            check("index", "index", index, -size, size)
        if index.node.dtype.is_unsigned:
            return index
        known = self.shape[axis]
        end = self._like(known.node(self.device).cast(dtypes.int64)) if isinstance(known, Bound) else size
        return (index < 0).where(index.cast(dtypes.int64) + end, index)

    # -- picks --

    def _pick(self, picks: list[tuple[int, Self]]) -> Self:
        """Elements at computed indices. Tensors of shape () act as ints do: they go first, and their axis goes away."""
        x = self
        for axis, index in reversed(picks):
            if not index.node.shape:
                shape = x.node.shape
                x = x._gather_line(axis, index._reshape((1,)))._reshape(shape[:axis] + shape[axis + 1 :])
        gone = [axis for axis, index in picks if not index.node.shape]
        wide = [(axis - sum(g < axis for g in gone), index) for axis, index in picks if index.node.shape]
        return x._pick_wide(wide) if wide else x

    def _pick_wide(self, picks: list[tuple[int, Self]]) -> Self:
        shape = self.node.shape
        index_shape = _index_shape(picks)
        axes = [axis for axis, _ in picks]
        if len(picks) == 1:
            axis, index = picks[0]
            line = self._gather_line(axis, index._reshape((prod(index.node.shape),)))
            return line._reshape(shape[:axis] + index_shape + shape[axis + 1 :])
        first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
        rest = [axis for axis in range(len(shape)) if axis not in axes]
        order = (*rest[:first], *axes, *rest[first:])
        picked = tuple(shape[axis] for axis in axes)
        moved = self._like(permuted(self.node, order))
        before = moved.node.shape[:first]
        after = moved.node.shape[first + len(axes) :]
        flat = moved._reshape((*before, prod(picked), *after))
        line = flat._gather_line(first, self._flat_index(picks, picked, index_shape))
        return line._reshape(before + index_shape + after)

    def _flat_index(self, picks: list[tuple[int, Self]], sizes: Shape, index_shape: Shape) -> Self:
        """One row-major index of several; -1, which reads zero, where any of them is out of range."""
        total, is_inside = None, None
        for (_, index), size, stride in zip(picks, sizes, _strides(sizes)):
            wide = index.cast(dtypes.int64).expand(index_shape)
            inside = (wide >= 0) & (wide < size)
            term = wide * stride
            total = term if total is None else total + term
            is_inside = inside if is_inside is None else is_inside & inside
        assert total is not None and is_inside is not None
        return is_inside.where(total, -1)._reshape((prod(index_shape),))

    def _gather_line(self, axis: int, index: Self) -> Self:
        """x[.., index[k], ..] for an index of one axis."""
        shape = self.node.shape
        count = index.node.shape[0]
        ones = tuple(count if d == axis else 1 for d in range(len(shape)))
        full = (*shape[:axis], count, *shape[axis + 1 :])
        wide = expanded(reshaped(bounded(index.node, self.node, axis), ones), full)
        return self._like(Node(Op.GATHER, self.node.dtype, (self.node, wide), axis))


def _strides(sizes: Sequence[int]) -> list[int]:
    strides, stride = [], 1
    for size in reversed(sizes):
        strides.append(stride)
        stride *= size
    return strides[::-1]


def _index_shape(picks: Sequence[tuple[int, Core]]) -> Shape:
    return broadcast_shape("index", *[index.node.shape for _, index in picks]) if picks else ()
