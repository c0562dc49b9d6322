"""Gathering: elements by indices along one axis or by a mask, as methods, and where the elements are that are not zero.

In       integer tensors and masks
Out      lazy tensors; nonzero, argwhere and masked_select compute and read back, for their size depends on data
Next     indexing.py (square brackets), scattering.py (the other way round), checked_places.py (indices out of range)
"""

from __future__ import annotations

from math import prod
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import broadcast_shape, filled, iota
from hcq.frontend.grad.function import constant_in
from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.ops.checked_places import check
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op


class Gathering(Methods):
    """gather, take_along_dim, index_select, select, masked_select, nonzero, argwhere."""

    __slots__ = ()

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
        return self[(slice(None),) * axis + (index.flatten(),)]

    def select(self, dim: int, index: int) -> Self:
        """One slice of an axis, which goes away. Raises OutOfRange for an index that the axis does not have.

        >>> hcq.tensor([[1, 2], [3, 4]]).select(1, -1).tolist()
        [2, 4]
        """
        return self[(slice(None),) * self._axis_of("select", dim) + (index,)]

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
