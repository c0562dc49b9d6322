"""Extremes: the greatest and the least along axes, and where they are.

In       tensors and axes
Out      lazy tensors around REDUCE_AXIS; the reduced axes go away unless keepdim
Next     reduction.py (sums and products), ordering.py (sort, topk), statistics.py (running extremes, medians)

The value of a reduction whose derivative is a rule of its own keeps its axes, with size 1.
"""

from __future__ import annotations

import math
from math import prod
from typing import Any

from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import either, expanded, negated, ordinal, padded, reduced, reshaped
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.base import Axes, Methods, Self, ValuesIndices, reduced_axes
from hcq.ir.dtype import dtypes
from hcq.ir.meaning import identity
from hcq.ir.node import Node
from hcq.ir.op import Op

# elements of a line, beyond which the place of an extreme is looked for in blocks: one kernel reads shorter ones twice,
# the second time from the cache
LONG = 1 << 16
LEAST_BLOCK = 1 << 8


class Extremes(Methods):
    """max, min, amax, amin, argmax, argmin."""

    __slots__ = ()

    def amax(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """The greatest value over all axes, one, or several; NaN if there is one. Raises UsageError if empty.

        >>> Tensor([[1.0, float("nan")], [3.0, 2.0]]).amax((0,)).tolist()
        [3.0, nan]
        """
        return self._reduce(Op.MAX, self._not_empty("amax", self._over("amax", dim)), keepdim)

    def amin(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """The least value over all axes, one, or several; NaN if there is one. Raises UsageError if empty.

        >>> hcq.tensor([[1, 5], [3, 2]]).amin(1, keepdim=True).tolist()
        [[1], [2]]
        """
        return self._reduce(Op.MIN, self._not_empty("amin", self._over("amin", dim)), keepdim)

    def max(self, dim: Any = None, keepdim: bool = False) -> Any:
        """The greatest value; along one axis (an int): (values, indices); with another tensor: `maximum`.

        >>> values, indices = hcq.tensor([[1, 5], [7, 2]]).max(1)
        >>> values.tolist(), indices.tolist()
        ([5, 7], [1, 0])
        """
        if isinstance(dim, Core):
            return self.maximum(dim)
        if dim is None or isinstance(dim, (tuple, list)):
            return self.amax(dim, keepdim)
        return ValuesIndices(self._extreme(Op.MAX, "max", dim, keepdim), self.argmax(dim, keepdim))

    def min(self, dim: Any = None, keepdim: bool = False) -> Any:
        """The least value; along one axis (an int): (values, indices); with another tensor: `minimum`.

        >>> values, indices = hcq.tensor([[1, 5], [7, 2]]).min(1)
        >>> values.tolist(), indices.tolist()
        ([1, 2], [0, 1])
        """
        if isinstance(dim, Core):
            return self.minimum(dim)
        if dim is None or isinstance(dim, (tuple, list)):
            return self.amin(dim, keepdim)
        return ValuesIndices(self._extreme(Op.MIN, "min", dim, keepdim), self.argmin(dim, keepdim))

    def _extreme(self, op: Op, call: str, dim: Axes, keepdim: bool = False) -> Self:
        """The greatest or the least; of equal ones the first has the gradient, where `amax` and `amin` share it."""
        axes = self._not_empty(call, self._over(call, dim))
        found = self._reduce(op, axes, keepdim=True)
        if self.node.dtype.is_float and found.node.op is not Op.CAST:
            found = self._like(FIRST.of(found.node, self.node))
        return found if keepdim else found._reshape(self._without(axes))

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Self:
        """The index of the first greatest value, or of the first NaN; int64. Without dim, in the flattened tensor.

        >>> x = hcq.tensor([[1, 9], [9, 2]])
        >>> x.argmax().item(), x.argmax(1).tolist()
        (1, [1, 0])
        """
        return self._where_is(Op.MAX, "argmax", dim, keepdim)

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Self:
        """The index of the first least value, or of the first NaN; int64. Without dim, in the flattened tensor.

        >>> hcq.tensor([[3, 1], [2, 4]]).argmin(0).tolist()
        [1, 0]
        """
        return self._where_is(Op.MIN, "argmin", dim, keepdim)

    def _where_is(self, op: Op, call: str, dim: int | None, keepdim: bool) -> Self:
        if dim is None or not self.node.shape:
            if dim is not None:
                self._axis(call, dim)
            found = self._like(reshaped(self.node, (prod(self.node.shape),)))._where_is_along(op, call, 0)
            return found._reshape((1,) * len(self.node.shape) if keepdim else ())
        axis = self._axis(call, dim)
        found = self._where_is_along(op, call, axis)
        shape = self.node.shape
        return found if keepdim else found._reshape(shape[:axis] + shape[axis + 1 :])

    def _where_is_along(self, op: Op, call: str, axis: int) -> Self:
        """The first place of the extreme along an axis. A long line is read once: the extremes of its blocks say which
        block to look at again.
        """
        shape = self.node.shape
        size = shape[axis]
        self._not_empty(call, (axis,))
        if size <= LONG or prod(shape[axis + 1 :]) > 1:
            return self._first_that_is(self._reduce(op, (axis,), keepdim=True), axis)
        about = max(LEAST_BLOCK, min(LEAST_BLOCK << 4, math.isqrt(size)))
        length = next((n for n in range(about, 2 * about) if size % n == 0), about)
        blocks = -(-size // length)
        rest = [(0, 0)] * len(shape)
        rest[axis] = (0, blocks * length - size)
        whole = padded(self.node, tuple(rest), identity(op, self.node.dtype))  # at the end: never the first
        parts = self._like(reshaped(whole, (*shape[:axis], blocks, length, *shape[axis + 1 :])))
        extremes = parts._reduce(op, (axis + 1,), keepdim=True)
        best = extremes._reduce(op, (axis,), keepdim=True)
        block = extremes._first_that_is(best, axis)
        places = expanded(block.node, tuple([1 if i == axis else n for i, n in enumerate(parts.node.shape)]))
        chosen = self._like(Node(Op.GATHER, self.node.dtype, (parts.node, places), axis))
        place = block * length + chosen._first_that_is(best, axis + 1)
        return place._reshape((*shape[:axis], 1, *shape[axis + 1 :]))

    def _first_that_is(self, best: Self, axis: int) -> Self:
        """The first place along the axis that is `best`, or NaN: counted down there, the largest count is the first."""
        count = self.node.shape[axis]
        is_best = self == best
        if self.node.dtype.is_float:
            is_best = is_best | (self != self)
        countdown = count - self._like(ordinal(count, axis, self.node.shape))
        first = is_best.where(countdown, 0)._reduce(Op.MAX, (axis,), keepdim=True)
        return count - first.cast(dtypes.int64)

    def _not_empty(self, call: str, axes: tuple[int, ...]) -> tuple[int, ...]:
        for axis in axes:
            if self.node.shape[axis] == 0:
                raise UsageError(
                    f"[{call}] shape {self.node.shape}: axis {axis} is empty, so there is nothing to choose from. "
                    f"Reduce axes that have elements."
                )
        return axes


def _slope_of_first(node: Node, g: Node) -> Node:
    """All of it to the first element that is the value, or NaN, in the order of memory: counted down, that is the
    largest count, which no other place has.
    """
    x, axes = node.src[1], reduced_axes(node)
    count = prod([x.shape[axis] for axis in axes])
    shape = tuple([size if axis in axes else 1 for axis, size in enumerate(x.shape)])
    countdown = expanded(reshaped(negated(ordinal(count, 0, (count,))) + count, shape), x.shape)
    is_value = either(x.eq(expanded(node, x.shape)), x.ne(x))
    first = reduced(Op.MAX, is_value.where(countdown, 0), axes)
    is_first = countdown.eq(expanded(first, x.shape))
    return is_first.where(expanded(g, x.shape), 0.0)


FIRST = Function("first", _slope_of_first)
