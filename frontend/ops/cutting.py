"""Cutting: parts of a tensor along its axes, one or several, as views of it.

In       tensors; axes, bounds and sizes of parts
Out      `Cutting`: shrink, narrow, split, chunk, unbind, unfold
Next     movement.py (views of all elements), indexing.py (square brackets), joining.py (the way back)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hcq.checks import is_whole, shown
from hcq.frontend.core import known_later
from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.known_later import KnownLater
from hcq.frontend.core.nodes import shrunk
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.node import Node
from hcq.ir.op import Op

if TYPE_CHECKING:
    from hcq.frontend.symbolic.variable import Bound


class Cutting(Methods):
    """The parts of a tensor: one, several, or overlapping ones."""

    __slots__ = ()

    def shrink(self, bounds: Sequence[tuple[int | Bound, int | Bound] | None]) -> Self:
        """The part from low to high (not included) of each axis; None keeps an axis whole.

        Raises  UsageError where a part is not inside its axis, or there is not one for each

        >>> hcq.tensor([[1, 2, 3], [4, 5, 6]]).shrink(((0, 1), (1, 3))).tolist()
        [[2, 3]]
        """
        shape = self.shape
        if len(bounds) != len(shape):
            raise UsageError(f"[shrink] {tuple(bounds)} of shape {shape}: give (low, high) or None per axis.")
        full: list[Any] = []
        for axis, (size, part) in enumerate(zip(shape, bounds)):
            low, high = (0, size) if part is None else part
            if known_later.in_use and any(isinstance(one, KnownLater) for one in (size, low, high)):
                return self[tuple([slice(None) if one is None else slice(*one) for one in bounds])]
            if not 0 <= low <= high <= size:
                raise UsageError(f"[shrink] axis {axis} of size {size}: {part} is not inside 0..{size}.")
            full.append((low, high, 1))
        return self._view(shrunk(self.node, tuple(full)))

    def narrow(self, dim: int, start: Any, length: int | Bound) -> Self:
        """`length` elements of axis `dim`, from `start`; a negative start counts from the end.

        start   an int, a bound Variable, or an integer tensor of shape (), which is computed and read back

        >>> hcq.tensor([10, 20, 30, 40]).narrow(0, -3, 2).tolist()
        [20, 30]
        """
        axis = self._axis_of("narrow", dim)
        if isinstance(start, KnownLater) or isinstance(length, KnownLater):
            return self[(slice(None),) * axis + (slice(start, start + length),)]
        if not is_whole(start) and not (isinstance(start, Core) and start.node.dtype.is_integer):
            raise UsageError(f"[narrow] start={shown(start)}: takes an int, or an integer tensor of one.")
        start = int(start.__index__())
        shape = self.node.shape
        begin = start + shape[axis] if start < 0 else start
        if not 0 <= begin <= begin + length <= shape[axis]:
            raise UsageError(
                f"[narrow] axis {axis} of size {shape[axis]}: {length} from {start} on are not inside it."
            )
        keep = [(0, size, 1) for size in shape]
        keep[axis] = (begin, begin + length, 1)
        return self._view(shrunk(self.node, tuple(keep)))

    def _part(self, axis: int, start: int, stop: int, step: int = 1) -> Self:
        """start..stop of one axis, unchecked."""
        parts = [(0, size, 1) for size in self.node.shape]
        parts[axis] = (start, stop, step)
        return self._view(shrunk(self.node, tuple(parts)))

    def unfold(self, dimension: int, size: int, step: int, dilation: int = 1) -> Self:
        """Windows over an axis: it becomes the window's number, and a new last axis the place inside the window.

        (n,) -> ((n - dilation * (size - 1) - 1) // step + 1, size); no element is copied.
        Raises  UsageError when a window is longer than the axis

        >>> hcq.tensor([1, 2, 3, 4]).unfold(0, 2, 1).tolist()
        [[1, 2], [2, 3], [3, 4]]
        """
        if not self.node.shape:
            return self._reshape((1,)).unfold(dimension, size, step, dilation)._reshape((size,))
        axis = self._axis_of("unfold", dimension)
        length, reach = self.node.shape[axis], dilation * (size - 1) + 1
        if size < 0 or step < 1 or dilation < 1:
            raise UsageError(
                f"[unfold] size={size}, step={step}, dilation={dilation}: a window has 0 elements or more, and step "
                "and dilation are 1 or more."
            )
        if size == 0:
            shape = self.node.shape
            return self._part(axis, 0, 0)._reshape((*shape[:axis], length // step + 1, *shape[axis + 1 :], 0))
        if reach > length:
            raise UsageError(
                f"[unfold] axis {axis} of size {length}: a window reaches over {reach} elements. Pad first, or "
                f"use a smaller window."
            )
        return self._like(Node(Op.WINDOW, self.node.dtype, (self.node,), (axis, size, step, dilation)))

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Parts of one axis: of that size (the last may be smaller), or of each of those sizes, which must add up.

        >>> [part.shape for part in Tensor.zeros(5, 2).split(2)]
        [(2, 2), (2, 2), (1, 2)]
        """
        axis = self._axis_of("split", dim)
        length = self.node.shape[axis]
        if isinstance(split_size, int):
            if split_size < 1:
                raise UsageError(f"[split] split_size={split_size}: must be 1 or more.")
            sizes = [min(split_size, length - at) for at in range(0, length, split_size)] or [0]
        else:
            sizes = list(split_size)
            if sum(sizes) != length or any(size < 0 for size in sizes):
                raise UsageError(
                    f"[split] sizes {tuple(sizes)} do not add up to {length}, the size of axis {axis}."
                )
        parts, at = [], 0
        for size in sizes:
            parts.append(self._part(axis, at, at + size))
            at += size
        return tuple(parts)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most that many parts of one axis, all of one size but the last. (5,) in 2 -> (3,), (2,).

        >>> [part.tolist() for part in Tensor.arange(5).chunk(2)]
        [[0, 1, 2], [3, 4]]
        """
        if chunks < 1:
            raise UsageError(f"[chunk] chunks={chunks}: must be 1 or more.")
        length = self.node.shape[self._axis_of("chunk", dim)]
        if length == 0:
            return tuple(self for _ in range(chunks))
        return self.split(-(-length // chunks), dim)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """The slices along one axis, which goes away. (2, 3) along 0 -> two of (3,).

        >>> rows = hcq.tensor([[1, 2], [3, 4]]).unbind()
        >>> [row.tolist() for row in rows]
        [[1, 2], [3, 4]]
        """
        if not self.node.shape:
            raise UsageError("[unbind] a tensor of shape () has no axis to take apart.")
        axis = self._axis("unbind", dim)
        shape = self.node.shape
        rest = shape[:axis] + shape[axis + 1 :]
        return tuple(self._part(axis, i, i + 1)._reshape(rest) for i in range(shape[axis]))
