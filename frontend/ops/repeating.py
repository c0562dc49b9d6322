"""Repeating: the elements of a tensor several times, or begun at another place.

In       tensors; counts and distances along axes
Out      `Repeating`: repeat, tile, repeat_interleave, roll
Next     movement.py (expand, which repeats without memory), cutting.py (parts)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.frontend.core import known_later
from hcq.frontend.core.base import Core, shape_args
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.known_later import KnownLater
from hcq.frontend.core.nodes import iota, joined, reshaped
from hcq.frontend.core.sizes import counts_of
from hcq.frontend.ops.base import Methods, Self


class Repeating(Methods):
    """Elements again, and around the end."""

    __slots__ = ()

    def repeat(self, *repeats: Any) -> Self:
        """Tiled: the whole tensor that many times along each axis; more numbers than axes add axes in front.

        >>> hcq.tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        times, shape = shape_args("repeat", repeats), self.node.shape
        if len(times) < len(shape) or any(n < 0 for n in times):
            raise UsageError(
                f"[repeat] {times} of shape {shape}: give one count, 0 or more, for each axis at least."
            )
        shape = (1,) * (len(times) - len(shape)) + shape
        split = self._reshape(tuple(n for size in shape for n in (1, size)))
        tiled = split.expand(tuple(n for count, size in zip(times, shape) for n in (count, size)))
        if known_later.in_use and counts_of(self.node):
            sizes = ((1,) * (len(times) - len(self.shape))) + self.shape
            return tiled._reshaped_by_numbers("repeat", tuple([n * size for n, size in zip(times, sizes)]))
        # of its own, as in PyTorch, and no view of this one
        return self._like(reshaped(tiled.node, tuple(count * size for count, size in zip(times, shape))))

    def tile(self, *repeats: Any) -> Self:
        """Like `repeat`, but missing counts are 1: a matrix tiled by (2,) repeats along its last axis.

        >>> hcq.tensor([[1, 2]]).tile(2).tolist()
        [[1, 2, 1, 2]]
        """
        times = shape_args("tile", repeats)
        return self.repeat((1,) * (len(self.node.shape) - len(times)) + times)

    def repeat_interleave(
        self, repeats: Any = None, dim: int | None = None, output_size: int | None = None
    ) -> Self:
        """Each element of the flattened tensor, or each slice along `dim`, `repeats` times in a row.

        repeats       an int; or a vector of one for each slice, which is computed and read back first; without it this
                      tensor is that vector, and what is repeated are 0, 1, ...
        output_size   the sum of `repeats`, which PyTorch wants to know

        >>> hcq.tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
        """
        if repeats is None:
            if len(self.node.shape) != 1:
                raise UsageError(
                    f"[repeat_interleave] shape {self.node.shape}: give repeats, or be a vector of them."
                )
            places = iota(self.node.shape[0], 0, self.node.shape)
            return self._like(places)._each_repeated(self, 0).cast(self.node.dtype)
        x = self.flatten() if dim is None else self
        if isinstance(repeats, (Core, list, tuple)):
            return x._each_repeated(self._operand("repeat_interleave", repeats), 0 if dim is None else dim)
        if not isinstance(repeats, int) or repeats < 0:
            raise UsageError(f"[repeat_interleave] repeats={repeats!r}: give one int, 0 or more.")
        axis, shape = x._axis("repeat_interleave", 0 if dim is None else dim), x.node.shape
        wide = x.unsqueeze(axis + 1).expand((*shape[: axis + 1], repeats, *shape[axis + 1 :]))
        return wide._reshape((*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))

    def _each_repeated(self, repeats: Self, dim: int) -> Self:
        """Each slice along an axis as often as a vector says."""
        axis = self._axis_of("repeat_interleave", dim)
        size = self.node.shape[axis]
        counts = [int(count) for count in repeats.flatten().numpy()]
        counts = counts * size if len(counts) == 1 else counts
        if len(counts) != size or min(counts, default=0) < 0 or not repeats.node.dtype.is_integer:
            raise UsageError(
                f"[repeat_interleave] {len(counts)} repeats for axis {axis} of size {size}: give a whole number, 0 or "
                "more, for each."
            )
        places = [place for place, count in enumerate(counts) for _ in range(count)]
        return self[(slice(None),) * axis + (places,)] if places else self._part(axis, 0, 0)

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Moved along axes, what falls off one end comes back at the other; without dims, over the flattened tensor.

        >>> hcq.tensor([1, 2, 3]).roll(1, 0).tolist()
        [3, 1, 2]
        """
        if dims is None:
            if not isinstance(shifts, int):
                if len(shifts) != 1:
                    raise UsageError(
                        f"[roll] shifts {tuple(shifts)} without dims. Name one axis for each shift."
                    )
                (shifts,) = shifts
            return self.flatten().roll(shifts, 0)._reshape(self.node.shape)
        amounts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
        axes = (dims,) if isinstance(dims, int) else tuple(dims)
        if len(amounts) != len(axes):
            raise UsageError(f"[roll] shifts {amounts}, dims {axes}: give as many shifts as dims.")
        x = self
        for amount, dim in zip(amounts, axes):
            axis = x._axis("roll", dim)
            size = x.node.shape[axis]
            cut = -amount % size if size else 0
            if isinstance(length := x.shape[axis], KnownLater):
                places: Any = x._like(iota(size, 0, (size,)))[:length]
                x = x[(slice(None),) * axis + ((places - amount) % length,)]
            elif cut:
                x = x._like(joined((x._part(axis, cut, size).node, x._part(axis, 0, cut).node), axis))
        return x
