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
LANES = 3  # comparisons after each other in one pass: of 2 ** LANES values that a thread holds
ROW = 1 << 10  # of topk: pieces of an axis that are sorted by themselves first
_LAST = (1 << 63) - 1  # padding: after everything
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
    digits = _digits(rows, descending)
    size = rows.node.shape[1]
    places = rows._like(iota(size, 1, rows.node.shape))
    found = _first(_packed(digits[0], places), count if len(digits) == 1 else size) & _PLACE
    for digit in digits[1:]:  # equal ones stay in the order that the lower digits gave them
        taken = rows._like(Node(Op.GATHER, digit.node.dtype, (digit.node, found.node), 1))
        again = _first(_packed(taken, places), count) & _PLACE
        found = rows._like(Node(Op.GATHER, dtypes.int64, (found.node, again.node), 1))
    return found


def _digits(x: T, descending: bool) -> list[T]:
    """int32 tensors, the least digit first, that are ordered as the elements are."""
    dtype = x.node.dtype
    if dtype.is_float:
        if dtype.itemsize < 4:
            x = x.cast(dtypes.float32)
        whole = dtypes.int64 if x.node.dtype.itemsize == 8 else dtypes.int32
        greatest = int(whole.max)
        bits = (x == 0.0).where(0.0, x).bitcast(whole)
        negative_first = (bits < 0).where(bits ^ greatest, bits)
        key = x.isnan().where(greatest, negative_first)
    elif dtype.itemsize == 8:
        key = x
        if dtype.is_unsigned:
            key = x.bitcast(dtypes.int64) ^ int(dtypes.int64.min)
    else:
        key = x.cast(dtypes.int64) - (1 << 31) if dtype is dtypes.uint32 else x
        key = key.cast(dtypes.int32)
    if descending:
        key = key ^ -1
    if key.node.dtype is dtypes.int32:
        return [key]
    low = ((key & _PLACE) - (1 << 31)).cast(dtypes.int32)
    return [low, (key >> 32).cast(dtypes.int32)]


def _packed(digit: T, places: T) -> T:
    """The digit in the upper half, the place in the lower."""
    return (digit.cast(dtypes.int64) << 32) | places


def _first(packed: T, count: int) -> T:
    """(rows, n) -> (rows, count): the least of each row, in order.

    Few of many are looked for in pieces of the row first, of which each gives its own least.
    """
    rows, size = packed.node.shape
    while 4 * count <= ROW and size > 2 * ROW:
        pieces = -(-size // ROW)
        whole = _filled_up(packed, pieces * ROW)._reshape((rows * pieces, ROW))
        least = _sorted(whole)._part(1, 0, count)
        size = pieces * count
        packed = least._reshape((rows, size))
    block = 1 << max(0, size - 1).bit_length()
    return _sorted(_filled_up(packed, block))._part(1, 0, count)


def _filled_up(packed: T, size: int) -> T:
    """Rows made longer by what comes after everything."""
    return packed.pad((0, size - packed.node.shape[1]), value=_LAST)


def _sorted(packed: T) -> T:
    """Every row in order; its length is a power of two."""
    rows, size = packed.node.shape
    steps = size.bit_length() - 1
    x = packed._like(Node(Op.CONTIGUOUS, dtypes.int64, (reshaped(packed.node, (rows * size,)),)))
    first = min(LANES, steps)
    if first:
        x = _pass(x, 0, range(first))
    for stage in range(first, steps):  # blocks of 2 ** stage are sorted: merge two and two
        low = stage // LANES * LANES
        x = _pass(x, low, range(stage - low, stage - low + 1))
        while low:
            low -= LANES
            x = _pass(x, low, range(0))
    return x._reshape((rows, size))


def _pass(x: T, low: int, stages: range) -> T:
    """Compare 2 ** k elements that lie 2 ** low apart, in place: one kernel.

    stages   the stages that begin here, as the bit their blocks' halves differ in, counted from `low`; without any, the
             comparisons at the distances 2 ** (low + LANES - 1) to 2 ** low go on with the stage begun before
    """
    distance = 1 << low
    bits = stages[-1] + 1 if stages else LANES
    count = 1 << bits
    (size,) = x.node.shape
    view = (size // (count * distance), count, distance)
    whole = reshaped(x.node, view)
    lanes = [shrunk(whole, ((0, view[0], 1), (i, i + 1, 1), (0, distance, 1))) for i in range(count)]
    for stage in stages:
        block = 2 << stage
        for i in range(count):
            if i % block < block // 2:  # the first half against the second, mirrored
                other = i - i % block + block - 1 - i % block
                mirrored = flipped(lanes[other], (2,)) if distance > 1 else lanes[other]
                lanes[i], lanes[other] = _exchanged(lanes[i], mirrored)
        _merge(lanes, range(stage - 1, -1, -1))
    if not stages:
        _merge(lanes, range(bits - 1, -1, -1))
    elif distance > 1:  # the second half was compared in its mirror's order
        lanes[count // 2 :] = [flipped(lane, (2,)) for lane in lanes[count // 2 :]]
    joined = Node(Op.CAT, dtypes.int64, tuple(lanes), 1)
    return x._like(reshaped(Node(Op.CONTIGUOUS, dtypes.int64, (joined,)), (size,)))


def _merge(lanes: list[Node], bits: range) -> None:
    for bit in bits:
        for i in range(len(lanes)):
            if not i >> bit & 1:
                lanes[i], lanes[i | 1 << bit] = _exchanged(lanes[i], lanes[i | 1 << bit])


def _exchanged(a: Node, b: Node) -> tuple[Node, Node]:
    return Node(Op.MIN, a.dtype, (a, b)), Node(Op.MAX, a.dtype, (a, b))
