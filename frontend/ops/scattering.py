"""Scattering: elements put, added or combined at places that are computed; taken by a flat index.

In       tensors, an axis, integer indices
Out      lazy tensors of SCATTER and SCATTER_ADD; extremes and products compare every place with every index
Next     indexing.py (square brackets, gather, scatter_add), counting.py (bincount)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import constant, expanded, iota, padded, shrunk
from hcq.frontend.ops.base import Methods, Self, in_float_together
from hcq.frontend.ops.checked_places import check
from hcq.ir.dtype import dtypes
from hcq.ir.meaning import identity
from hcq.ir.node import Node
from hcq.ir.op import Op


class Scattering(Methods):
    """scatter, scatter_reduce, index_add, index_copy, index_fill, index_put, put, take, masked_scatter."""

    __slots__ = ()

    def scatter(
        self, dim: int, index: Self, src: Any = None, *, value: Any = None, reduce: str | None = None
    ) -> Self:
        """This tensor with elements of src, or one number, put at the indices along an axis; the last one stays.

        index    as many axes as this tensor
        reduce   "add" or "multiply": combined with what is there

        >>> hcq.tensor([0, 0, 0]).scatter(0, hcq.tensor([2, 0]), hcq.tensor([5, 6])).tolist()
        [6, 0, 5]
        """
        src = value if src is None else src
        if not isinstance(src, Core):
            number = constant("scatter", src, self.node.dtype)
            src = self._like(expanded(number, index.node.shape))
        if reduce is not None:
            if reduce not in ("add", "multiply"):
                raise UsageError(f"[scatter] reduce={reduce!r} is unknown. Use 'add' or 'multiply'.")
            return self.scatter_reduce(dim, index, src, "sum" if reduce == "add" else "prod")
        return self._placed("scatter", Op.SCATTER, dim, index, src)

    def scatter_add(self, dim: int, index: Self, src: Self) -> Self:
        """This tensor plus the elements of src at the indices along an axis; what is out of range adds nothing.

        index, src   as many axes as this tensor; src has an element for each of the index, and this tensor's dtype

        >>> hcq.tensor([0, 0]).scatter_add(0, hcq.tensor([1, 1]), hcq.tensor([5, 6])).tolist()
        [0, 11]
        """
        return self._placed("scatter_add", Op.SCATTER_ADD, dim, index, src)

    def _placed(self, call: str, op: Op, dim: int, index: Self, src: Self) -> Self:
        """A scatter of the part of src that there are indices for; no index reaches beyond other axes."""
        axis = self._axis(call, dim)
        if not self.node.shape:
            return _as_a_line(call, self, index, src, lambda x, at, y: x._placed(call, op, 0, at, y))
        if index.numel() == 0:
            return self._like(self.node)
        index = self._index_like(call, index, axis)
        if src.node.dtype is not self.node.dtype:
            raise UsageError(f"[{call}] puts {src.node.dtype.name} into {self.node.dtype.name}. Cast src.")
        self._same_device(call, src)
        shape = index.node.shape
        if len(src.node.shape) != len(shape) or any(s < i for s, i in zip(src.node.shape, shape)):
            raise UsageError(
                f"[{call}] src {src.node.shape} is smaller than index {shape}. Give an element each."
            )
        places, values = self._all_over(axis, index, src)
        return self._like(Node(op, self.node.dtype, (self.node, places, values), axis))

    def _all_over(self, axis: int, index: Self, src: Self) -> tuple[Node, Node]:
        """Indices along an axis and elements for them, as long as this tensor along the others; -1 where none are."""
        shape = index.node.shape
        part = shrunk(src.node, tuple([(0, size, 1) for size in shape]))
        grow = tuple([(0, 0 if d == axis else self.node.shape[d] - size) for d, size in enumerate(shape)])
        return padded(index.node, grow, -1), padded(part, grow)

    @in_float_together
    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: str, *, include_self: bool = True
    ) -> Self:
        """Elements of src combined at the indices along an axis, and with what is there, if include_self.

        reduce   "sum", "prod", "mean", "amax" or "amin"

        >>> x, index, src = Tensor([1.0, 2.0]), hcq.tensor([0, 0, 1]), Tensor([5.0, 3.0, 1.0])
        >>> x.scatter_reduce(0, index, src, "amax").tolist()
        [5.0, 2.0]
        >>> x.scatter_reduce(0, index, src, "sum", include_self=False).tolist()
        [8.0, 1.0]
        """
        call = "scatter_reduce"
        if reduce not in ("sum", "prod", "mean", "amax", "amin"):
            raise UsageError(
                f"[{call}] reduce={reduce!r} is unknown. Use 'sum', 'prod', 'mean', 'amax' or 'amin'."
            )
        if not self.node.shape:
            return _as_a_line(
                call,
                self,
                index,
                src,
                lambda x, at, y: x.scatter_reduce(0, at, y, reduce, include_self=include_self),
            )
        if index.numel() == 0:
            return self._like(self.node)
        if self.node.dtype.is_bool and reduce in ("sum", "prod"):  # either, both
            reduce = "amax" if reduce == "sum" else "amin"
        ones = self._like(expanded(constant(call, 1, dtypes.int64), index.node.shape))
        zeros = self._like(expanded(constant(call, 0, dtypes.int64), self.node.shape))
        counts = zeros._placed(call, Op.SCATTER_ADD, dim, index, ones)
        is_reached = counts > 0
        if reduce in ("sum", "mean"):
            base = self if include_self else is_reached.where(0, self)
            total = base._placed(call, Op.SCATTER_ADD, dim, index, src)
            if reduce == "sum":
                return total
            counts = is_reached.where(counts + int(include_self), 1)
            return total / counts if total.node.dtype.is_float else total // counts
        op = {"prod": Op.MUL, "amax": Op.MAX, "amin": Op.MIN}[reduce]
        found = self._combined(op, dim, index, src, include_self and op is not Op.MUL)
        if include_self and op is Op.MUL:
            return is_reached.where(self * found, self)
        return is_reached.where(found, self)

    def _combined(self, op: Op, dim: int, index: Self, src: Self, include_self: bool) -> Self:
        """The product or the extreme of what goes to a place, and of what is there; every place looks at every index.

        Together with what is there, so that equal extremes share the gradient evenly.
        """
        call = "scatter_reduce"
        axis = self._axis(call, dim)
        index = self._index_like(call, index, axis)
        places, values = (self._like(each).unsqueeze(axis) for each in self._all_over(axis, index, src))
        size = self.node.shape[axis]
        full = (*places.node.shape[:axis], size, *places.node.shape[axis + 1 :])
        goes_here = places == self._like(iota(size, axis, full))
        nothing = self._like(constant(call, identity(op, self.node.dtype), self.node.dtype))
        chosen = goes_here.where(values, nothing)
        if include_self:
            chosen = type(self).cat([chosen, self.unsqueeze(axis + 1)], dim=axis + 1)
        return chosen._reduce(op, (axis + 1,), keepdim=False)

    # -- whole slices --

    def _slices(self, call: str, dim: int, index: Self, source: Self) -> tuple[int, Self, Self]:
        """The axis, the index for each element of the source, and the source with all axes."""
        axis = self._axis_of(call, dim)
        count = index.numel()
        shape = (*self.node.shape[:axis], count, *self.node.shape[axis + 1 :])
        if source.node.shape != shape and source.numel() != (count if len(shape) == 1 else -1):
            raise UsageError(
                f"[{call}] source {source.node.shape}: {count} slices of {self.node.shape} are {shape}."
            )
        line = tuple([count if d == axis else 1 for d in range(len(shape))])
        places = index.flatten()
        check(call, "index", index, -self.node.shape[axis], self.node.shape[axis])
        if not index.node.dtype.is_unsigned:
            places = (places < 0).where(places + self.node.shape[axis], places)
        return axis, places._reshape(line).expand(shape), source._reshape(shape)

    def index_add(self, dim: int, index: Self, source: Self, alpha: Any = 1) -> Self:
        """This tensor with alpha times the slices of source added at the indices of an axis.

        >>> hcq.tensor([0, 0, 0]).index_add(0, hcq.tensor([2, 2, 0]), hcq.tensor([1, 2, 4])).tolist()
        [4, 0, 3]
        """
        if not self.node.shape:
            return _as_a_line("index_add", self, index, source, lambda x, at, y: x.index_add(0, at, y, alpha))
        axis, places, values = self._slices("index_add", dim, index, source)
        values = values if type(alpha) is int and alpha == 1 else (values * alpha).cast(self.node.dtype)
        return self._placed("index_add", Op.SCATTER_ADD, axis, places, values)

    def index_copy(self, dim: int, index: Self, source: Self) -> Self:
        """This tensor with the slices of source put at the indices of an axis; the last one stays.

        >>> hcq.tensor([0, 0, 0]).index_copy(0, hcq.tensor([2, 0]), hcq.tensor([5, 7])).tolist()
        [7, 0, 5]
        """
        if not self.node.shape:
            return _as_a_line("index_copy", self, index, source, lambda x, at, y: x.index_copy(0, at, y))
        axis, places, values = self._slices("index_copy", dim, index, source)
        return self._placed("index_copy", Op.SCATTER, axis, places, values)

    def index_fill(self, dim: int, index: Self, value: Any) -> Self:
        """This tensor with one number in the slices at the indices of an axis.

        >>> hcq.tensor([[1, 2], [3, 4]]).index_fill(1, hcq.tensor([0]), 9).tolist()
        [[9, 2], [9, 4]]
        """
        if not self.node.shape:
            return self._reshape((1,)).index_fill(0, index, value)._reshape(())
        axis = self._axis("index_fill", dim)
        size = self.node.shape[axis]
        line = self._like(iota(size, 0, (size,)))
        places = index.flatten()
        check("index_fill", "index", places, -size, size)
        places = places if index.node.dtype.is_unsigned else (places < 0).where(places + size, places)
        is_named = (line.unsqueeze(1) == places).any(1)
        shape = tuple([size if d == axis else 1 for d in range(len(self.node.shape))])
        return self.masked_fill(is_named._reshape(shape), value)

    def index_reduce(
        self, dim: int, index: Self, source: Self, reduce: str, *, include_self: bool = True
    ) -> Self:
        """The slices of source combined at the indices of an axis: "prod", "mean", "amax" or "amin".

        >>> Tensor([1.0, 1.0]).index_reduce(0, hcq.tensor([0, 0]), Tensor([5.0, 3.0]), "amax").tolist()
        [5.0, 1.0]
        """
        call = "index_reduce"
        if not self.node.shape:
            return _as_a_line(
                call,
                self,
                index,
                source,
                lambda x, at, y: x.index_reduce(0, at, y, reduce, include_self=include_self),
            )
        axis, places, values = self._slices(call, dim, index, source)
        return self.scatter_reduce(axis, places, values, reduce, include_self=include_self)

    def index_put(self, indices: Sequence[Any], values: Self, accumulate: bool = False) -> Self:
        """This tensor with values at x[indices], or with them added there: every one, if `accumulate`.

        >>> Tensor([[0, 0], [0, 0]]).index_put((hcq.tensor([0, 1]), hcq.tensor([1, 1])), hcq.tensor([5, 7])).tolist()
        [[0.0, 5.0], [0.0, 7.0]]
        """
        if not isinstance(indices, (list, tuple)):
            raise UsageError(f"[index_put] indices={shown(indices)}: give a tuple of tensors.")
        key = tuple([slice(None) if index is None else index for index in indices])
        values = values.cast(self.node.dtype)
        if not accumulate:
            return self._scattered(key, values)._reshape(self.node.shape)
        size = self.numel()
        places = self._like(iota(size, 0, (size,)))._reshape(self.node.shape)
        reached = (places + 1)[key]
        target = (reached - 1).flatten()
        added = values.expand(reached.node.shape).flatten()
        flat = self.flatten()
        return flat._placed("index_put", Op.SCATTER_ADD, 0, target, added)._reshape(self.node.shape)

    # -- by a flat index --

    def _flat_places(self, index: Self) -> Self:
        if not index.node.dtype.is_integer:
            raise UsageError(
                f"[take] indices are {index.node.dtype.name}. Use integers: index.cast(dtypes.int64)."
            )
        check("take", "index", index, -self.numel(), self.numel())
        if index.node.dtype.is_unsigned:
            return index
        return (index < 0).where(index.cast(dtypes.int64) + self.numel(), index)

    def take(self, index: Self) -> Self:
        """The elements at places of the flattened tensor, in the index's shape.

        >>> hcq.tensor([[1, 2], [3, 4]]).take(hcq.tensor([0, -1])).tolist()
        [1, 4]
        """
        line = self._flat_places(index).flatten()
        return self.flatten().gather(0, line)._reshape(index.node.shape)

    def put(self, index: Self, source: Self, accumulate: bool = False) -> Self:
        """This tensor with elements of source at places of the flattened tensor, or added there.

        >>> hcq.tensor([[0, 0], [0, 0]]).put(hcq.tensor([1, 3]), hcq.tensor([5, 7])).tolist()
        [[0, 5], [0, 7]]
        """
        op = Op.SCATTER_ADD if accumulate else Op.SCATTER
        line = self._flat_places(index).flatten()
        return self.flatten()._placed("put", op, 0, line, source.flatten())._reshape(self.node.shape)

    def masked_scatter(self, mask: Self, source: Self) -> Self:
        """This tensor with the elements of source, one after the other, where the mask is true.

        >>> hcq.tensor([0, 0, 0]).masked_scatter(hcq.tensor([True, False, True]), hcq.tensor([5, 7, 9])).tolist()
        [5, 0, 7]
        """
        shape = type(self).broadcast_shapes(self.node.shape, mask.node.shape)
        mask = mask.expand(shape)
        line = mask.flatten()
        turn = line.cast(dtypes.int64).cumsum(0) - 1
        taken = (
            source.flatten().gather(0, turn.maximum(0)) if source.numel() else self.expand(shape).flatten()
        )
        return line.where(taken, self.expand(shape).flatten())._reshape(shape)


def _as_a_line(call: str, x: Any, index: Any, source: Any, method: Callable[[Any, Any, Any], Any]) -> Any:
    """What a method makes of a tensor of shape () as a vector of one element; what goes to it has one element, too."""
    for tensor in (index, source):
        if tensor.numel() != 1:
            raise UsageError(f"[{call}] {tensor.node.shape} for a tensor of shape (): give one element.")
    return method(*[tensor._reshape((1,)) for tensor in (x, index, source)])._reshape(())
