"""Indexing: square brackets, gather and scatter.

In       ints, slices, None, Ellipsis, lists, arrays, integer and bool tensors
Out      lazy tensors: views where the index is known, GATHER where it is computed; writes through `assign`
Changes  x[...] = y writes into x's memory at once, if it has some
Next     movement.py (the views), ../tensor.py (assign), docs/semantics.md (what an index out of range means)

The rules are PyTorch's. Ints and slices are views. Integer lists and tensors pick elements: several of them broadcast
together, and their axes take the place of the first one when they stand side by side, else come first. Indices known on
the host are checked; indices computed on the device read zero (or write nothing) when out of range. A bool mask has a
size that depends on its data, so it is computed and read back first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from threading import get_ident
from typing import TYPE_CHECKING, Any

from hcq.checks import is_whole, shown
from hcq.frontend.core import views
from hcq.frontend.core.base import Core, thread_modes, watcher
from hcq.frontend.core.data import MAX_DEPTH
from hcq.frontend.core.errors import OutOfRange, UsageError, WrongType
from hcq.frontend.core.nodes import (
    broadcast_shape,
    expanded,
    filled,
    flipped,
    iota,
    padded,
    permuted,
    reshaped,
    shrunk,
    spread,
)
from hcq.frontend.core.structure import structure_of
from hcq.frontend.core.threads import lock, new_write, without_done
from hcq.frontend.grad.function import constant_in
from hcq.frontend.ops.base import Methods
from hcq.frontend.ops.checked_places import check
from hcq.frontend.symbolic import variable
from hcq.frontend.symbolic.conditions import require
from hcq.frontend.symbolic.sizes import (
    FREE,
    bounded,
    counts_of,
    sizes_of,
    unnamed_beyond,
    with_counts,
    without_counts,
)
from hcq.frontend.symbolic.variable import Bound, bound_of, room_of
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Shape, const
from hcq.ir.op import Op

if TYPE_CHECKING:
    from typing_extensions import Self

FULL = slice(None)


class Indexing(Methods):
    """Square brackets, gather, scatter, selection by index or mask."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Self:
        if type(key) is int:  # the usual case: one slice of the first axis
            shape = self.node.shape
            if shape and not variable.in_use:
                start = _whole_index(key, 0, shape)
                parts = ((start, start + 1, 1), *[(0, size, 1) for size in shape[1:]])
                return self._view(reshaped(shrunk(self.node, parts), shape[1:]))
        if variable.in_use and watcher() is None and (counts := counts_of(self.node)):
            settled = self._settled(key, dict(counts))
            if settled is not self:
                return settled[key]
        view, picks = self._basic(key)
        if not picks:
            return view
        picked = view._pick(picks)
        is_part = variable.in_use and all(variable.is_number(index.node) for _, index in picks)
        return self._view(picked.node) if is_part else picked

    def _settled(self, key: Any, counts: dict[int, Node]) -> Self:
        """Itself with the sizes of now along axes of which plain indices take what is not there for all numbers."""
        items = list(key) if isinstance(key, tuple) else [key]
        rank = len(self.node.shape)
        used = [
            len(item.node.shape) if _is_mask(item) else 0 if item is None or item is Ellipsis else 1
            for item in items
        ]
        now: dict[int, int] = {}
        axis = 0
        for item, width in zip(items, used):
            size = bound_of(counts[axis]) if axis in counts else None
            if item is Ellipsis:
                axis += rank - sum(used)
            elif size is not None and not isinstance(item, Bound) and _is_beyond(item, size.low):
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
                part, is_flipped, count = _slice_part(entry, shape[axis], axis)
                parts.append(part)
                if is_flipped:
                    flips.append(axis)
                sizes.append(count)
                axis += 1
            elif isinstance(entry, _Cut):
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
                start = _whole_index(entry, axis, shape)
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
            if isinstance(entry, _Pick):
                entries[place] = self._checked(entry, axis)
            elif variable.in_use and entry is not None:
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
        if (is_plain and stop <= _least(size)) or (isinstance(length, int) and length == 0):
            return slice(int(start), int(stop)) if is_plain else slice(0, 0)
        room, have = room_of(length), self.node.shape[axis]
        if start == 0 and not is_plain and (room == have or (room < have and not isinstance(size, Bound))):
            return _Cut(room, length.node(self.device))
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
            values = _flat(item)
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
        return [_Pick(tensor, values)]

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
        return [_Pick(column, None, True) for column in columns]

    def nonzero(self, as_tuple: bool = False) -> Any:
        """The places of the elements that are not zero: (count, axes), int64. Computes and reads back.

        as_tuple   a vector for each axis instead, one for a tensor of shape ()

        >>> x = hcq.tensor([[0, 5], [7, 0]])
        >>> x.nonzero().tolist(), [i.tolist() for i in x.nonzero(as_tuple=True)]
        ([[0, 1], [1, 0]], [[0, 1], [1, 0]])
        """
        places = self._nonzero()
        if not as_tuple:
            return self._kind._made_of(places, device=self.device)
        if not self.node.shape:
            return (self._kind._made_of(places.sum(1), device=self.device),)
        return tuple(
            self._kind._made_of(places[:, axis], device=self.device) for axis in range(len(self.node.shape))
        )

    def nonzero_static(self, size: int, fill_value: int = -1) -> Self:
        """The places of the first `size` elements that are not zero, (size, axes); rows of `fill_value` behind them.

        >>> hcq.tensor([0, 5, 7]).nonzero_static(size=3).tolist()
        [[1], [2], [-1]]
        """
        if size < 0:
            raise UsageError(f"[nonzero_static] size={size}: use 0 or more.")
        shape, rank = self.node.shape, len(self.node.shape)
        flat = self.cast(dtypes.bool)._reshape((prod(shape),))
        if not size or not rank or not prod(shape):
            return self.full((size, rank), fill_value, device=self.device)
        rise = flat.cast(dtypes.int64).cumsum(0)  # which one of them each is, from 1 on
        place = self._like(iota(prod(shape), 0, (prod(shape),)))
        target = (flat & (rise <= size)).where(rise - 1, size)
        found = self.full((size + 1,), -1, device=self.device).scatter(0, target, place)[:size].unsqueeze(1)
        columns, rest = [], found
        for n in reversed(shape):
            columns.append(rest % n)
            rest = rest // n
        return (found < 0).where(fill_value, type(self).cat(columns[::-1], dim=1))

    def argwhere(self) -> Self:
        """The places of the elements that are not zero, as `nonzero` gives them.

        >>> hcq.tensor([[0, 5], [7, 0]]).argwhere().tolist()
        [[0, 1], [1, 0]]
        """
        return self._kind._made_of(self._nonzero(), device=self.device)

    def _nonzero(self) -> Any:
        import numpy as np

        return np.argwhere(self.cast(dtypes.bool).numpy())

    def _checked(self, pick: _Pick, axis: int) -> Self:
        """The pick's indices as non-negative numbers; checked where the host knows them."""
        size = self.node.shape[axis]
        index: Self = pick.index
        if pick.values is not None:
            for value in pick.values:
                if not -size <= value < size:
                    raise _out_of_range(value, axis, self.node.shape)
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

    # -- writing --

    def __setitem__(self, key: Any, value: Any) -> None:
        with lock:
            self._set(key, value)

    def _set(self, key: Any, value: Any) -> None:
        without_done(self)
        value = self._operand("setitem", value)
        if value.node.dtype is not self.node.dtype:
            value = value.cast(self.node.dtype)
        if variable.in_use and views.is_part_by_number(value) and self[key].node is value.node:
            return  # x[:n] += y has written it
        watching = watcher() if thread_modes else None
        if views.is_family(self) or (watching is not None and watching.is_shared(self)):
            self._write_in_family(key, value)
            return
        flows = self._is_on_a_gradients_way(value)
        is_mask = isinstance(key, Core) and key.node.dtype.is_bool and key.node.shape == self.node.shape
        if is_mask and value.numel() == 1:
            self._write(self.masked_fill(self._like(key.node), value._reshape(())), flows)
            return
        view, picks = self._basic(key, is_written=True)
        if picks:
            self._write_picked(key, view.node, picks, value, flows)
            return
        place = view.node
        del view  # a tensor that reads what is overwritten would be given a copy of it
        value = _fitted(value, place.shape)
        if self.node.op is Op.BUFFER and not flows:
            self._write_view(place, value)
        else:
            inside = self._spread(key, self._like(filled(True, place.shape, dtypes.bool)))
            self._write(inside.where(self._spread(key, value), self), flows)

    def _write_in_family(self, key: Any, value: Self) -> None:
        """Write where other tensors show the same memory: they see it."""
        view, picks = self._basic(key)
        if picks and variable.in_use and all(variable.is_number(index.node) for _, index in picks):
            view, picks = self._view(view._pick(picks).node), []
        if not picks:
            views.write("setitem", view, _fitted(value, view.node.shape))
            return
        is_mask = isinstance(key, Core) and key.node.dtype.is_bool and key.node.shape == self.node.shape
        if is_mask and value.numel() == 1:
            new = self.masked_fill(self._like(key.node), value._reshape(()))
        else:
            new = self._scattered(key, value)._reshape(self.node.shape)
        views.write("setitem", self, new)

    def _is_on_a_gradients_way(self, value: Self) -> bool:
        """Whether a gradient flows from this tensor, once `value` is written into it, to leaves."""
        mode = thread_modes.get(get_ident()) if thread_modes else None
        if mode is not None and mode.no_grad_depth:
            return False
        is_tracked = structure_of([value.node]).tracked[-1]
        if not self._requires_grad:
            return is_tracked or structure_of([self.node]).tracked[-1]
        if is_tracked:
            raise UsageError(
                f"[setitem] into a leaf of shape {self.node.shape} that requires a gradient, from a value that a "
                "gradient flows through: write into a copy, x.clone(), or under no_grad()."
            )
        return False

    def _write(self, new: Self, flows: bool) -> None:
        """Become these values: in the memory there is, or, where a gradient flows through them, as what they are."""
        if flows or self.node.op not in (Op.BUFFER, Op.ASSIGN):
            self._become(expanded(new.node, self.node.shape))
        else:
            self.assign(new)

    def _write_picked(
        self, key: Any, place: Node, picks: list[tuple[int, Self]], value: Self, flows: bool
    ) -> None:
        """Write elements at computed indices: where there is memory, these alone. The last of equal indices wins."""
        is_in_memory = self.node.op is Op.BUFFER or self.node.op is Op.ASSIGN
        if len(picks) > 1 or flows or not is_in_memory:
            new = self._scattered(key, value)
            if flows or not is_in_memory or new is self:
                self._write(new._reshape(self.node.shape), flows)
            else:
                self._become(new_write(Node(Op.ASSIGN, self.node.dtype, (new.node.src[0], new.node))))
            return
        ((axis, index),) = picks
        shape, count = place.shape, prod(index.node.shape)
        value = _fitted(value, shape[:axis] + index.node.shape + shape[axis + 1 :])
        if index.node.shape == (count,):
            for _, size in counts_of(index.node):
                have = sizes_of(value.node)[axis]
                if have is not FREE and have is not size:
                    raise UsageError(
                        f"[setitem] {bound_of(size)} elements of axis {axis} are written, and the value has "
                        f"{value.shape[axis]}. Cut it: y[:{bound_of(size)}]."
                    )
        full = (*shape[:axis], count, *shape[axis + 1 :])
        ones = tuple([count if d == axis else 1 for d in range(len(shape))])
        where = expanded(reshaped(unnamed_beyond(index.node), ones), full)
        source = (place, where, reshaped(value.node, full))
        if prod(full):
            new_node = Node(Op.SCATTER, self.node.dtype, source, axis)
            self._become(new_write(Node(Op.ASSIGN, self.node.dtype, (place, new_node))))

    def _scattered(self, key: Any, value: Self) -> Self:
        """This tensor, flat, with elements at computed indices replaced; the last of equal indices wins.

        The same index taken of 0, 1, 2, ... tells which place each new element goes to.
        """
        shape, size = self.node.shape, self.numel()
        places = self._like(iota(size, 0, (size,)))._reshape(shape)
        reached = (places + 1)[key]  # 0 is what an index out of range reads
        value = _fitted(value, reached.node.shape).flatten()
        target = reached.flatten() - 1
        if target.numel() == 0 or size == 0:
            return self
        source = (self.flatten().node, unnamed_beyond(target.node), value.node)
        return self._like(Node(Op.SCATTER, self.node.dtype, source, 0))

    def _spread(self, key: Any, value: Self) -> Self:
        """A view's values back in the whole shape, zero around them: the inverse of `_basic` for basic indices."""
        shape, axis = self.node.shape, 0
        parts: list[tuple[tuple[int, int, int], bool, int]] = []
        for entry in self._complete(key):
            if entry is None:
                continue
            if isinstance(entry, slice):
                parts.append(_slice_part(entry, shape[axis], axis))
            else:
                start = _whole_index(entry, axis, shape)
                parts.append(((start, start + 1, 1), False, 1))
            axis += 1
        node = reshaped(value.node, tuple([count for _, _, count in parts]))
        node = flipped(node, tuple([axis for axis, part in enumerate(parts) if part[1]]))
        for axis, ((start, _, step), _, _) in enumerate(parts):
            node = spread(node, axis, step)
            rest = shape[axis] - start - node.shape[axis]
            node = padded(node, tuple([(start, rest) if d == axis else (0, 0) for d in range(len(shape))]))
        return self._like(node)

    # -- by name --

    def gather(self, dim: int, index: Self) -> Self:
        """out[.., i, ..] = self[.., index[.., i, ..], ..], of the index's shape; an index out of range reads zero.

        index   integers; as many axes as this tensor, none larger except axis `dim`

        >>> hcq.tensor([[1, 2], [3, 4]]).gather(1, hcq.tensor([[1], [0]])).tolist()
        [[2], [3]]
        """
        axis = self._axis("gather", dim)
        if 0 in index.node.shape and index.node.dtype.is_integer:  # nothing of it, of any number of axes
            return constant_in(self, self._like(filled(0, index.node.shape, self.node.dtype)))
        if not self.node.shape and len(index.node.shape) <= 1:
            line = index._reshape((index.numel(),))
            return self._reshape((1,)).gather(0, line)._reshape(index.node.shape)
        index = self._index_like("gather", index, axis)
        x = self
        for d, size in enumerate(index.node.shape):
            if d != axis and size < x.node.shape[d]:
                x = x._part(d, 0, size)
        return self._like(Node(Op.GATHER, self.node.dtype, (x.node, index.node), axis))

    def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
        """`gather` whose indices broadcast with the other axes, and count from the end where they are negative.

        dim   None takes from the flattened tensor

        >>> x = hcq.tensor([[30, 10, 20]])
        >>> x.take_along_dim(x.argsort(), 1).tolist()
        [[10, 20, 30]]
        """
        if dim is None:
            return self.flatten().take_along_dim(indices.flatten(), 0)
        axis = self._axis_of("take_along_dim", dim)
        shape = self.node.shape
        if len(indices.node.shape) != len(shape):
            raise UsageError(
                f"[take_along_dim] indices {indices.node.shape} for a tensor of shape {shape}: they need "
                f"{len(shape)} axes."
            )
        ours = tuple([1 if d == axis else size for d, size in enumerate(shape)])
        its = tuple([1 if d == axis else size for d, size in enumerate(indices.node.shape)])
        others = broadcast_shape("take_along_dim", ours, its)
        wide = tuple(indices.node.shape[d] if d == axis else size for d, size in enumerate(others))
        x = self.expand(tuple(shape[d] if d == axis else size for d, size in enumerate(others)))
        if indices.node.dtype.is_integer and not indices.node.dtype.is_unsigned:
            indices = (indices < 0).where(indices.cast(dtypes.int64) + shape[axis], indices)
        return x.gather(axis, indices.expand(wide))

    def index_select(self, dim: int, index: Self) -> Self:
        """The slices of an axis that a vector of k indices names: its size becomes k.

        >>> hcq.tensor([[1, 2], [3, 4]]).index_select(1, hcq.tensor([1, 1, 0])).tolist()
        [[2, 2, 1], [4, 4, 3]]
        """
        if not self.node.shape:
            return self._reshape((1,)).index_select(dim, index)._reshape(())
        axis = self._axis_of("index_select", dim)
        if len(index.node.shape) > 1:
            raise UsageError(f"[index_select] index of shape {index.node.shape}: give a vector.")
        return self[(FULL,) * axis + (index.flatten(),)]

    def select(self, dim: int, index: int) -> Self:
        """One slice of an axis, which goes away. Raises OutOfRange for an index that the axis does not have.

        >>> hcq.tensor([[1, 2], [3, 4]]).select(1, -1).tolist()
        [2, 4]
        """
        return self[(FULL,) * self._axis_of("select", dim) + (index,)]

    def scatter_add(self, dim: int, index: Self, src: Self) -> Self:
        """This tensor plus the elements of src at the indices along an axis; what is out of range adds nothing.

        index, src   as many axes as this tensor; src has an element for each of the index, and this tensor's dtype

        >>> hcq.tensor([0, 0]).scatter_add(0, hcq.tensor([1, 1]), hcq.tensor([5, 6])).tolist()
        [0, 11]
        """
        axis = self._axis("scatter_add", dim)
        index = self._index_like("scatter_add", index, axis)
        if src.node.dtype is not self.node.dtype:
            raise UsageError(f"[scatter_add] adds {src.node.dtype.name} to {self.node.dtype.name}. Cast src.")
        self._same_device("scatter_add", src)
        if 0 in index.node.shape:
            return self
        shape = index.node.shape
        if not self.node.shape and not src.node.shape:
            line = self._reshape((1,)).scatter_add(0, index._reshape((1,)), src._reshape((1,)))
            return line._reshape(())
        if len(src.node.shape) != len(shape) or any(s < i for s, i in zip(src.node.shape, shape)):
            raise UsageError(
                f"[scatter_add] src {src.node.shape} is smaller than index {shape}. Give an element for each."
            )
        part = shrunk(src.node, tuple((0, size, 1) for size in shape))
        grow = tuple((0, 0 if d == axis else self.node.shape[d] - size) for d, size in enumerate(shape))
        places = padded(index.node, grow, -1)
        node = Node(Op.SCATTER_ADD, self.node.dtype, (self.node, places, padded(part, grow)), axis)
        return self._like(node)

    def masked_select(self, mask: Self) -> Self:
        """A vector of the elements where the mask is true, in row-major order. Computes the mask and reads it back.

        >>> hcq.tensor([[1, 2], [3, 4]]).masked_select(hcq.tensor([True, False])).tolist()
        [1, 3]
        """
        shape = broadcast_shape("masked_select", self.node.shape, mask.node.shape) or (1,)
        return self.expand(shape)[mask.expand(shape)]

    def _index_like(self, call: str, index: Self, axis: int) -> Self:
        if not index.node.dtype.is_integer:
            raise UsageError(
                f"[{call}] indices are {index.node.dtype.name}. Use integers: index.cast(dtypes.int64)."
            )
        self._same_device(call, index)
        mine, its = self.node.shape, index.node.shape
        if len(mine) != len(its) or any(a < b for d, (a, b) in enumerate(zip(mine, its)) if d != axis):
            raise UsageError(
                f"[{call}] index {its} for a tensor of shape {mine}: it needs {len(mine)} axes, none "
                f"larger except axis {axis}."
            )
        check(call, "index", index, 0, mine[axis] if mine else 1)
        return index


class _Cut:
    """The elements of an axis before a count; `room` is how many that can be."""

    __slots__ = ("count", "room")

    def __init__(self, room: int, count: Node):
        self.room = room
        self.count = count


def _is_mask(item: Any) -> bool:
    return isinstance(item, Core) and item.node.dtype.is_bool


def _is_beyond(item: Any, low: int) -> bool:
    """Whether an index without variables takes more of an axis than the least number of elements it can have."""
    if isinstance(item, slice):
        ends = (item.start, item.stop, item.step)
        if any(isinstance(end, Bound) for end in ends):
            return False
        known = [end for end in ends[:2] if is_whole(end) and end > low]
        return bool(known) or item.step not in (None, 1)
    return is_whole(item) and item >= low


def _least(size: Any) -> int:
    return size.low if isinstance(size, Bound) else size  # type: ignore[no-any-return]


class _Pick:
    """Integer indices for one axis, what the host knows of their values, and whether they come from a mask."""

    __slots__ = ("index", "is_mask", "values")

    def __init__(self, index: Any, values: list[int] | None, is_mask: bool = False):
        self.index = index
        self.values = values
        self.is_mask = is_mask


def _whole_index(value: int, axis: int, shape: Shape) -> int:
    size = shape[axis] if axis < len(shape) else 0
    if -size <= value < size:
        return value + size if value < 0 else value
    raise _out_of_range(value, axis, shape)


def _out_of_range(value: int, axis: int, shape: Shape) -> OutOfRange:
    size = shape[axis]
    use = f"use {-size} to {size - 1}" if size else "it is empty"
    return OutOfRange(f"[index] {value} on axis {axis} of shape {shape}: out of range; {use}.")


def _slice_part(part: slice, size: int, axis: int) -> tuple[tuple[int, int, int], bool, int]:
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


def _flat(item: Any, depth: int = 0) -> list[Any]:
    if hasattr(item, "tolist"):
        item = item.tolist()
    if not isinstance(item, (list, tuple)):
        return [item]
    if depth > MAX_DEPTH:
        raise UsageError(
            f"[index] lists deeper than {MAX_DEPTH}, or a list that holds itself. Give a tensor."
        )
    return [value for part in item for value in _flat(part, depth + 1)]


def _strides(sizes: Sequence[int]) -> list[int]:
    strides, stride = [], 1
    for size in reversed(sizes):
        strides.append(stride)
        stride *= size
    return strides[::-1]


def _index_shape(picks: Sequence[tuple[int, Core]]) -> Shape:
    return broadcast_shape("index", *[index.node.shape for _, index in picks]) if picks else ()


def _fitted(value: Any, shape: Shape) -> Any:
    """A value in the shape it is written to: leading axes of size 1 fall away, others expand."""
    have = value.node.shape
    while len(have) > len(shape) and have[0] == 1:
        have = have[1:]
    value = value._reshape(have)
    if len(have) > len(shape) or any(h not in (1, s) for h, s in zip(have[::-1], shape[::-1])):
        raise UsageError(
            f"[setitem] a value of shape {value.node.shape} does not fit in {shape}. Reshape it."
        )
    return value.expand(shape)
