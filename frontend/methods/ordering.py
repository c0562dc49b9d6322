"""Ordering: sort, argsort, topk.

In       tensors and an axis
Out      lazy tensors: indices first, from a network of comparisons, then the values that they pick
Changes  nothing
Next     indexing.py (picking), frontend/scheduler/joins.py (how a pass of the network is one kernel)

Short axes are sorted by counting, for each element, how many come before it. Longer ones go through a merging network
(Batcher's bitonic one, whose every stage begins by comparing a block's halves mirrored): n log(n)**2 / 4 comparisons of
fixed places, the same for any values, so a pass is a kernel without branches on every device.

What the network compares are int64: the element as an integer of the same order above, its place below. All are
different, so the order is that of a stable sort, and the place comes out with the element. Elements of 64 bits take two
rounds, the low half before the high one. NaN is greater than everything, zeros are equal.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeVar

from hcq.frontend.errors import UsageError
from hcq.frontend.methods.base import Methods, ValuesIndices
from hcq.frontend.nodes import filled, flipped, iota, ordinal, refuse_storage_only, reshaped, shrunk
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T", bound=Methods)

COUNTED = 1 << 21  # comparisons of all pairs of an axis, up to which the count is quicker than the network
RADIX = 8  # bits by which one pass sorts
PIECES = 1 << 7  # a long axis is filled up to a multiple of this, so that it can be worked on in pieces
_LAST = -1  # padding: all bits are set, and it stands behind what is equal
_PLACE = (1 << 32) - 1  # the bits of the place


class Ordering(Methods):
    """Elements of an axis in their order."""

    __slots__ = ()

    def sort(self, dim: int = -1, descending: bool = False) -> ValuesIndices:
        """(values, indices) of the same shape, sorted along an axis; equal elements keep their order, NaN is greatest.

        >>> Tensor([3, 1, 2]).sort().values.tolist()
        [1, 2, 3]
        """
        return self._ordered("sort", dim, descending, None)

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """The indices, int64, that sort an axis; see `sort`."""
        indices: Self = self.sort(dim, descending).indices
        return indices

    def topk(self, k: int, dim: int = -1, largest: bool = True) -> ValuesIndices:
        """(values, indices) of the k greatest, or least, along an axis, in order. (..., n) -> (..., k).

        Raises  UsageError unless k is 0 to the axis's size

        >>> Tensor([3, 1, 2]).topk(2).indices.tolist()
        [0, 2]
        """
        axis = self._axis("topk", dim)
        if not self.node.shape or not 0 <= k <= self.node.shape[axis]:
            raise UsageError(
                f"[topk] k={k} of shape {self.node.shape}, axis {axis}: k must be 0 to the axis's size."
            )
        return self._ordered("topk", axis, largest, k)

    def _ordered(self, call: str, dim: int, descending: bool, count: int | None) -> ValuesIndices:
        """The first `count` of the sorted axis; None is all of it."""
        x = self if self.node.shape else self._reshape((1,))
        axis = x._axis(call, dim)
        if x.node.dtype.is_storage_only:
            refuse_storage_only(call, x.node.dtype)
        size, shape = x.node.shape[axis], x.node.shape
        if size * prod(shape) <= COUNTED:
            indices = x._by_counting(axis, descending)
            indices = indices if count is None else indices._part(axis, 0, count)
        else:
            lines = x._like(Node(Op.DETACH, x.node.dtype, (x.node,))).movedim(axis, -1)
            rows = lines._reshape((prod(shape) // size, size))
            found = _order(rows, descending, size if count is None else count)
            indices = found._reshape((*lines.node.shape[:-1], found.node.shape[1])).movedim(-1, axis)
        values = x._like(Node(Op.GATHER, x.node.dtype, (x.node, indices.node), axis))
        if not self.node.shape:
            return ValuesIndices(values._reshape(()), indices._reshape(()))
        return ValuesIndices(values, indices)

    def _by_counting(self, axis: int, descending: bool) -> Self:
        """The indices that sort an axis: each element goes where as many come before it."""
        shape = self.node.shape
        place = self._rank(axis, descending)
        source = (filled(0, shape, dtypes.int64), place.node, iota(shape[axis], axis, shape))
        return self._like(Node(Op.SCATTER, dtypes.int64, source, axis))

    def _rank(self, axis: int, descending: bool) -> Self:
        """How many elements of the axis come before each one; NaN counts as the greatest."""
        size = self.node.shape[axis]
        mine, other = self.unsqueeze(axis + 1), self.unsqueeze(axis)
        both = (*self.node.shape[: axis + 1], size, *self.node.shape[axis + 1 :])
        less = other > mine if descending else other < mine
        same = other == mine
        if self.node.dtype.is_float:
            nan_other, nan_mine = other.isnan(), mine.isnan()
            less = less | ((nan_other & ~nan_mine) if descending else (nan_mine & ~nan_other))
            same = same | (nan_other & nan_mine)
        earlier = self._like(ordinal(size, axis + 1, both)) < self._like(ordinal(size, axis, both))
        return (less | (same & earlier)).cast(dtypes.int64)._reduce(Op.ADD, (axis + 1,), keepdim=False)


def _order(rows: T, descending: bool, count: int) -> T:
    """(rows, n) -> (rows, count): the indices of the first elements of each row's order."""
    keys, bits = _keys(rows, descending)
    size = rows.node.shape[1]
    places = rows._like(iota(size, 1, rows.node.shape))
    found = _first(_packed(keys[0], places), bits, count if len(keys) == 1 else size) & _PLACE
    for key in keys[1:]:  # equal ones stay in the order that the lower bits gave them
        taken = rows._like(Node(Op.GATHER, key.node.dtype, (key.node, found.node), 1))
        again = _first(_packed(taken, places), bits, count) & _PLACE
        found = rows._like(Node(Op.GATHER, dtypes.int64, (found.node, again.node), 1))
    return found


def _keys(x: T, descending: bool) -> tuple[list[T], int]:
    """int64 tensors, the least significant first, that are ordered as the elements are, and how many bits they have."""
    dtype = x.node.dtype
    bits = 8 * dtype.itemsize
    if dtype.is_float:
        whole = {16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}[bits]
        greatest = int(whole.max)
        plain = (x == 0.0).where(0.0, x).bitcast(whole)
        negative_first = (plain < 0).where(plain ^ greatest, plain)
        key = x.isnan().where(greatest, negative_first)
    elif bits == 64:
        key = x.bitcast(dtypes.int64) ^ int(dtypes.int64.min) if dtype.is_unsigned else x
    else:
        key = x.cast(dtypes.int64)
        if dtype.is_unsigned or dtype.is_bool:
            key = key - (1 << (bits - 1))
    if descending:
        key = key ^ -1
    if bits < 64:
        return [key.cast(dtypes.int64) + (1 << (bits - 1))], bits
    return [key & _PLACE, (key >> 32) + (1 << 31)], 32


def _packed(key: T, places: T) -> T:
    """The key in the upper half, the place in the lower."""
    return (key << 32) | places


def _first(packed: T, bits: int, count: int) -> T:
    """(rows, n) -> (rows, count): the least of each row, in order."""
    rows, size = packed.node.shape
    whole = -(-size // PIECES) * PIECES if size >= PIECES * PIECES else size
    packed = packed.pad((0, whole - size), value=_LAST)
    for shift in range(32, 32 + bits, RADIX):
        packed = packed._like(Node(Op.BUCKET, dtypes.int64, (packed.node,), (shift, min(RADIX, 32 + bits - shift))))
    return packed._part(1, 0, count)
