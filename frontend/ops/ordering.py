"""Ordering: sort, argsort, topk.

In       tensors and an axis
Out      lazy tensors: indices first, then the values that they pick
Next     indexing.py (picking), ../rewrites/sorts.py (how BUCKET counts and places)

Everything is done with keys: integers that are ordered as the elements are, NaN greater than everything, zeros equal.
Short axes are sorted by counting, for each element, how many come before it. Longer ones by buckets, RADIX bits after
RADIX bits, the least ones first: each pass keeps the order of what is equal there. What a pass moves are int64, the key
above, the element's place below; keys of 64 bits take two rounds. Where a row is one piece of work, how many elements
of a kind it has is counted once for all passes (rewrites/sorts.py). A few of many are looked for in the blocks that
have the least elements.
"""

from __future__ import annotations

import math
from math import prod
from typing import TypeVar

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import expanded, filled, iota, ordinal, reshaped
from hcq.frontend.ops.base import Methods, Self, ValuesIndices
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, binary
from hcq.ir.op import Op

T = TypeVar("T", bound=Methods)

SHORT = 192  # elements of a row that are sorted by counting, however many rows there are
COUNTED = 1 << 18  # comparisons in all, up to which longer rows are, too: buckets take more launches
RADIX = 8  # bits by which one pass sorts
PIECES = 1 << 7  # a long axis is filled up to a multiple of this, so that it can be worked on in pieces
LEAST_BLOCK = 8  # elements of which one is taken, at least, where few are looked for


class Ordering(Methods):
    """Elements of an axis in their order."""

    __slots__ = ()

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices:
        """(values, indices) of the same shape, sorted along an axis; equal elements keep their order, NaN is greatest.

        stable   may be left out or False: the order of equal elements is kept all the same

        >>> hcq.tensor([3, 1, 2]).sort().values.tolist()
        [1, 2, 3]
        """
        return self._ordered("sort", dim, descending, None)

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Self:
        """The indices, int64, that sort an axis; see `sort`.

        >>> x = hcq.tensor([2, 3, 1])
        >>> x.argsort().tolist(), x[x.argsort(descending=True)].tolist()
        ([2, 0, 1], [3, 2, 1])
        """
        indices: Self = self.sort(dim, descending).indices
        return indices

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
        """(values, indices) of the k greatest, or least, along an axis, in order. (..., n) -> (..., k).

        sorted   may be False: they are in order all the same

        Raises  UsageError unless k is 0 to the axis's size

        >>> hcq.tensor([3, 1, 2]).topk(2).indices.tolist()
        [0, 2]
        """
        axis = self._axis("topk", dim)
        if not self.node.shape and k in (0, 1):
            return self._ordered("topk", dim, largest, None)
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
            values, indices = self.cast(dtypes.float32)._ordered(call, dim, descending, count)
            return ValuesIndices(values.cast(x.node.dtype), indices)
        size = x.node.shape[axis]
        count = size if count is None else count
        lines = x._like(Node(Op.DETACH, x.node.dtype, (x.node,))).movedim(axis, -1)
        rows = lines._reshape((prod(lines.node.shape[:-1]), size))
        found = _first(*_key(rows, descending), count) if count else rows._part(1, 0, 0).cast(dtypes.int64)
        indices = found._reshape((*lines.node.shape[:-1], count)).movedim(-1, axis)
        values = x._like(Node(Op.GATHER, x.node.dtype, (x.node, indices.node), axis))
        if not self.node.shape:
            return ValuesIndices(values._reshape(()), indices._reshape(()))
        return ValuesIndices(values, indices)


def _key(x: T, descending: bool) -> tuple[T, int]:
    """int32 or int64 that are ordered as the elements are, and how many bits of them differ."""
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
    elif dtype.is_unsigned or dtype.is_bool:
        key = x.cast(dtypes.int64) - (1 << (bits - 1))
    else:
        key = x
    key = key.cast(dtypes.int64 if bits == 64 else dtypes.int32)
    return (key ^ -1 if descending else key), bits


def _first(key: T, bits: int, count: int) -> T:
    """(rows, n) -> (rows, count): the indices of the least, in order, of equal ones the first."""
    rows, size = key.node.shape
    length = math.isqrt(size // count)
    if length >= LEAST_BLOCK:
        return _of_blocks(key, bits, count, length)
    if size <= SHORT or rows * size * size <= COUNTED:
        return _by_counting(key)._part(1, 0, count)
    return _by_buckets(key, bits, count)


def _of_blocks(key: T, bits: int, count: int, length: int) -> T:
    """Only the `count` blocks with the least elements can hold them: any other has so many before its own."""
    rows, size = key.node.shape
    blocks = -(-size // length)
    whole = key.pad((0, blocks * length - size), value=int(key.node.dtype.max))  # last of its equals
    parts = whole._reshape((rows, blocks, length))
    least = _first(parts._reduce(Op.MIN, (2,), keepdim=False), bits, count).cast(dtypes.int32)
    upwards = _first(least, 32, count)  # in the order of their places, so that these decide between equals
    chosen = key._like(Node(Op.GATHER, dtypes.int32, (least.node, upwards.node), 1)).cast(dtypes.int64)
    taken = expanded(reshaped(chosen.node, (rows, count, 1)), (rows, count, length))
    candidates = Node(Op.GATHER, key.node.dtype, (parts.node, taken), 1)
    candidates = Node(Op.CONTIGUOUS, key.node.dtype, (candidates,))
    found = _first(key._like(reshaped(candidates, (rows, count * length))), bits, count)
    number, place = (key._like(binary(op, found.node, length)) for op in (Op.FLOORDIV, Op.MOD))
    return key._like(Node(Op.GATHER, dtypes.int64, (chosen.node, number.node), 1)) * length + place


def _by_counting(key: T) -> T:
    """The indices that sort each row: an element goes where as many come before it."""
    rows, size = key.node.shape
    both = (rows, size, size)
    mine, other = key.unsqueeze(2), key.unsqueeze(1)
    earlier = key._like(ordinal(size, 2, both)) < key._like(ordinal(size, 1, both))
    before = (other < mine) | ((other == mine) & earlier)
    place = before.cast(dtypes.int32)._reduce(Op.ADD, (2,), keepdim=False)
    source = (filled(0, (rows, size), dtypes.int64), place.node, iota(size, 1, (rows, size)))
    return key._like(Node(Op.SCATTER, dtypes.int64, source, 1))


def _by_buckets(key: T, bits: int, count: int) -> T:
    """The indices that sort each row, by RADIX bits after RADIX bits, the least ones first."""
    rows, size = key.node.shape
    places = key._like(iota(size, 1, (rows, size)))
    if bits <= 32:
        return _passes(((key.cast(dtypes.int64) + (1 << (bits - 1))) << 32) | places, bits, count)
    # equal ones stay in the order that the lower half gave them
    found = _passes((key << 32) | places, 32, size)
    upper = key._like(Node(Op.GATHER, dtypes.int64, (((key >> 32) + (1 << 31)).node, found.node), 1))
    again = _passes((upper << 32) | places, 32, count)
    return key._like(Node(Op.GATHER, dtypes.int64, (found.node, again.node), 1))


def _passes(packed: T, bits: int, count: int) -> T:
    """Sort rows by the upper halves of their elements, of which `bits` differ, and give the lower halves."""
    size = packed.node.shape[1]
    whole = -(-size // PIECES) * PIECES if size >= PIECES * PIECES else size
    packed = packed.pad((0, whole - size), value=-1)  # all bits are set, and it stands behind what is equal
    for shift in range(32, 32 + bits, RADIX):
        some = min(RADIX, 32 + bits - shift)
        packed = packed._like(Node(Op.BUCKET, dtypes.int64, (packed.node,), (shift, some)))
    return packed._part(1, 0, count) & 0xFFFFFFFF
