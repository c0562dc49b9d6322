"""Movement: methods that rearrange elements and compute nothing; each is a view that later becomes index arithmetic.

In       tensors and axes, shapes, amounts
Out      lazy tensors of movement nodes: RESHAPE PERMUTE EXPAND PAD SHRINK FLIP WINDOW
Next     indexing.py (square brackets), elementwise.py (which broadcasts through here), ir/op.py (what the nodes mean)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from hcq.frontend.core import known_later
from hcq.frontend.core.base import Core, check_count, room_args, shape_args
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.known_later import KnownLater
from hcq.frontend.core.nodes import expanded, flipped, permuted, reshaped
from hcq.frontend.core.sizes import FREE, counts_of, shape_of, sizes_of, with_counts
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.dtype import DType
from hcq.ir.node import Node, Shape


class Movement(Methods):
    """Reshape, permute, expand, pad, shrink, flip, and what they add up to."""

    __slots__ = ()

    # -- the shape alone changes --

    def reshape(self, *shape: Any) -> Self:
        """The same elements in row-major order under another shape; one size may be -1: whatever is left.

        Raises  UsageError when the product of the sizes is not the number of elements

        >>> Tensor.arange(6).reshape(2, -1).tolist()
        [[0, 1, 2], [3, 4, 5]]
        """
        return self._reshaped("reshape", shape)

    def view(self, *shape: Any) -> Self:
        """Same as `reshape`: views cost nothing here, so none is refused. With a dtype the same as `bitcast`.

        >>> hcq.tensor([[1, 2], [3, 4]]).T.reshape(4).tolist()
        [1, 3, 2, 4]
        """
        if len(shape) == 1 and isinstance(shape[0], DType):
            return self.bitcast(shape[0])
        return self._reshaped("view", shape)

    def _reshaped(self, call: str, given: tuple[Any, ...]) -> Self:
        """Reshaped as asked for, to ints and Bounds; one of them may be -1."""
        if known_later.in_use:
            wanted = tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
            if counts_of(self.node) or any(isinstance(size, KnownLater) for size in wanted):
                return self._reshaped_by_numbers(call, wanted)
        return self._reshape(_completed(call, self.node.shape, room_args(call, given)))

    def _reshaped_by_numbers(self, call: str, wanted: tuple[Any, ...]) -> Self:
        """A view where axes stay as they are cut; else elements are picked from where the numbers say."""
        from hcq.frontend.symbolic import placing
        from hcq.frontend.symbolic.conditions import require

        rooms, have = room_args(call, (wanted,)), self.shape
        try:
            found = self._reshape(_completed(call, self.node.shape, rooms))
        except UsageError:  # by the rooms; the numbers may say otherwise
            found = None
        if found is not None and all(
            size == now or (type(size) is int and size == -1) for size, now in zip(wanted, found.shape)
        ):
            return found
        words = f"[{call}] {have} to {wanted}"
        total, known = (
            prod(have),
            prod([size for size in wanted if isinstance(size, KnownLater) or size != -1]),
        )
        if rooms.count(-1) == 1 and not isinstance(known, KnownLater):
            rest = total.divided(known) if isinstance(total, KnownLater) and known else None
            wanted = tuple(
                [rest if size == -1 and not isinstance(size, KnownLater) else size for size in wanted]
            )
            known = total
        if None in wanted or (min(rooms, default=0) < 0 and known is not total):
            raise UsageError(f"{words}: what -1 stands for is known only when the work runs. Give each size.")
        for gap in (total - known, known - total):
            require(gap, f"{words} has to keep the number of elements on each axis, from axis 0 on")
        return self._like(placing.reshaped(self.node, have, wanted, self.device))

    def _reshape(self, shape: Shape) -> Self:
        if known_later.in_use and any(isinstance(size, KnownLater) for size in shape):
            return self._reshaped_by_numbers("reshape", shape)
        return self._view(reshaped(self.node, shape))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Axes start_dim to end_dim (inclusive) become one. (2, 3, 4) from axis 1 on -> (2, 12); a scalar -> (1,).

        >>> Tensor.zeros(2, 3, 4).flatten(1).shape, hcq.tensor(5).flatten().shape
        ((2, 12), (1,))
        """
        shape = self.node.shape
        if not shape:
            return self._reshape((1,))
        first, last = self._axis("flatten", start_dim), self._axis("flatten", end_dim)
        if first > last:
            raise UsageError(f"[flatten] start_dim {start_dim} comes after end_dim {end_dim}. Swap them.")
        if known_later.in_use and counts_of(self.node):
            return self._reshaped_by_numbers("flatten", (*self.shape[:first], -1, *self.shape[last + 1 :]))
        return self._reshape(shape[:first] + (prod(shape[first : last + 1]),) + shape[last + 1 :])

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
        """Axis `dim` becomes several, of those sizes; one may be -1. (2, 12) with dim 1, sizes (3, -1) -> (2, 3, 4).

        >>> Tensor.zeros(2, 12).unflatten(1, (3, -1)).shape
        (2, 3, 4)
        """
        axis, shape = self._axis("unflatten", dim), self.node.shape
        inner = _completed("unflatten", shape[axis : axis + 1], tuple(sizes))
        return self._reshape(shape[:axis] + inner + shape[axis + 1 :])

    def unsqueeze(self, dim: int) -> Self:
        """A new axis of size 1 before axis `dim`. (2, 3) with dim 1 -> (2, 1, 3); -1 puts it last.

        >>> Tensor.zeros(2, 3).unsqueeze(-1).shape
        (2, 3, 1)
        """
        axis, shape = self._axis("unsqueeze", dim, extra=1), self.node.shape
        return self._reshape((*shape[:axis], 1, *shape[axis:]))

    def squeeze(self, dim: int | tuple[int, ...] | None = None) -> Self:
        """Without the axes of size 1: all of them, or the named ones (others are left alone). (1, 2, 1) -> (2,).

        >>> Tensor.zeros(1, 2, 1).squeeze().shape, Tensor.zeros(1, 2, 1).squeeze(1).shape
        ((2,), (1, 2, 1))
        """
        drop = set(self._axes("squeeze", dim))
        return self._reshape(tuple(s for axis, s in enumerate(self.node.shape) if s != 1 or axis not in drop))

    # -- axes change places --

    def permute(self, *order: Any) -> Self:
        """Axes in another order: permute(2, 0, 1) puts axis 2 first. (2, 3, 4) -> (4, 2, 3).

        Raises  UsageError unless each axis is named once

        >>> Tensor.zeros(2, 3, 4).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        axes = shape_args("permute", order)
        rank = len(self.node.shape)
        found = tuple(self._axis("permute", axis) for axis in axes)
        if sorted(found) != list(range(rank)):
            raise UsageError(
                f"[permute] order {axes} of a tensor of shape {self.node.shape}: name each of its {rank} axes once."
            )
        return self._view(permuted(self.node, found))

    def transpose(self, dim0: int, dim1: int) -> Self:
        """Two axes swapped. (2, 3, 4) with 0 and 2 -> (4, 3, 2).

        >>> Tensor.zeros(2, 3, 4).swapaxes(0, 2).shape
        (4, 3, 2)
        """
        order = list(range(len(self.node.shape)))
        a, b = self._axis("transpose", dim0), self._axis("transpose", dim1)
        if order:
            order[a], order[b] = order[b], order[a]
        return self._view(permuted(self.node, tuple(order)))

    swapaxes = transpose

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Axes taken out and put back at other places. (2, 3, 4) with 0 to -1 -> (3, 4, 2).

        >>> Tensor.zeros(2, 3, 4).moveaxis(0, -1).shape
        (3, 4, 2)
        """
        sources = (source,) if isinstance(source, int) else tuple(source)
        places = (destination,) if isinstance(destination, int) else tuple(destination)
        taken = [self._axis("movedim", axis) for axis in sources]
        wanted = [self._axis("movedim", axis) for axis in places]
        if len(taken) != len(wanted) or len(set(taken)) < len(taken) or len(set(wanted)) < len(wanted):
            raise UsageError(
                f"[movedim] {sources} to {places}: name as many places as axes, and each of them once."
            )
        order = [axis for axis in range(len(self.node.shape)) if axis not in taken]
        for place, axis in sorted(zip(wanted, taken)):
            order.insert(place, axis)
        return self._view(permuted(self.node, tuple(order)))

    moveaxis = movedim

    def t(self) -> Self:
        """The transpose of a matrix; a vector or a scalar is left alone. Raises UsageError for more axes.

        >>> hcq.tensor([[1, 2], [3, 4]]).t().tolist(), hcq.tensor([1, 2]).t().tolist()
        ([[1, 3], [2, 4]], [1, 2])
        """
        if len(self.node.shape) > 2:
            raise UsageError(
                f"[t] shape {self.node.shape}: t() is for at most 2 axes. Use .mT or .permute()."
            )
        return self.transpose(0, 1) if len(self.node.shape) == 2 else self._view(self.node)

    @property
    def T(self) -> Self:
        """All axes in reverse order. (2, 3, 4) -> (4, 3, 2).

        >>> hcq.tensor([[1, 2, 3]]).T.shape
        (3, 1)
        """
        return self._view(permuted(self.node, tuple(reversed(range(len(self.node.shape))))))

    @property
    def mT(self) -> Self:
        """The last two axes swapped. (..., n, m) -> (..., m, n).

        >>> Tensor.zeros(5, 2, 3).mT.shape
        (5, 3, 2)
        """
        if len(self.node.shape) < 2:
            raise UsageError(f"[mT] shape {self.node.shape}: a matrix needs 2 axes. Use unsqueeze first.")
        return self.transpose(-2, -1)

    # -- elements repeat --

    def expand(self, *sizes: Any) -> Self:
        """Axes of size 1 repeat to the given sizes; -1 leaves a size alone; new axes come in front. Nothing is copied.

        Raises  UsageError where an axis has another size than 1 and than the one asked for

        >>> hcq.tensor([[1], [2]]).expand(2, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
        """
        wanted, shape = room_args("expand", sizes), self.node.shape
        extra = len(wanted) - len(shape)
        if extra < 0:
            raise UsageError(
                f"[expand] shape {shape} to {wanted}: fewer sizes than axes. Give {len(shape)} or more."
            )
        padded = (1,) * extra + shape
        full = tuple(have if want == -1 else want for have, want in zip(padded, wanted))
        for axis, (have, want) in enumerate(zip(padded, full)):
            if (have != want and have != 1) or want < 0:
                raise UsageError(
                    f"[expand] shape {shape} to {wanted}: axis {axis} has size {have}, only size 1 can repeat. "
                    f"Use repeat() to tile whole axes."
                )
        check_count("expand", full)
        node = expanded(self.node, full)
        if known_later.in_use:
            given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
            node = _cut_to("expand", node, given, self.device)
        return self._view(node)

    def expand_as(self, other: Core) -> Self:
        """Expanded to the shape of another tensor; see `expand`.

        >>> hcq.tensor([[1], [2]]).expand_as(Tensor.zeros(2, 3)).tolist()
        [[1, 1, 1], [2, 2, 2]]
        """
        return self.expand(*other.shape)

    broadcast_to = expand

    def flip(self, *axes: Any, dims: int | Sequence[int] | None = None) -> Self:
        """Backwards along those axes, `flip(0, 1)` or `flip(dims=(0, 1))`. The shape stays.

        >>> hcq.tensor([[1, 2], [3, 4]]).flip(1).tolist()
        [[2, 1], [4, 3]]
        """
        if dims is not None:
            axes = (dims,) if isinstance(dims, int) else tuple(dims)
        axes = self._axes("flip", shape_args("flip", axes))
        return self._like(flipped(self.node, axes))


def _cut_to(call: str, node: Node, given: Sequence[Any], device: str) -> Node:
    """A value expanded to sizes, some of which are Bounds: so many of its elements count."""
    have = sizes_of(node)
    counts = []
    for axis, size in enumerate(given):
        if isinstance(size, KnownLater):
            count = size.node(device)
            if have[axis] is not FREE and have[axis] is not count:
                raise UsageError(
                    f"[{call}] axis {axis} has the size {shape_of(node)[axis]}, not {size}. Cut it: x[:{size}]."
                )
            counts.append((axis, count))
    return with_counts(node, counts)


def _completed(call: str, old: Shape, new: tuple[int, ...]) -> Shape:
    """The new shape with its -1 worked out, checked against the number of elements."""
    count = prod(old)
    if -1 in new:
        known = prod(size for size in new if size != -1)
        if new.count(-1) > 1 or known == 0 or count % known:
            why = (
                "only one size may be -1"
                if new.count(-1) > 1
                else f"{known} does not divide {count} elements"
            )
            raise UsageError(f"[{call}] {old} to {new}: {why}. Give sizes whose product is {count}.")
        new = tuple(count // known if size == -1 else size for size in new)
    if prod(new) != count or min(new, default=0) < 0:
        raise UsageError(
            f"[{call}] {old} to {new}: {count} elements do not fill {prod(new)} places. "
            f"Give sizes whose product is {count}; one may be -1."
        )
    return new
