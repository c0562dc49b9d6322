"""Shapes: what PyTorch calls the stack family, grids, flips, splits by name, and tensors like another in shape.

In       tensors, shapes, axes
Out      lazy tensors: views, joins, and new tensors of a shape
Next     movement.py (reshape, permute, split, pad), joining.py (cat, stack), creation.py (zeros, full)

Like `cat`, a function of several tensors takes a list: `hcq.hstack([a, b])`, or `a.hstack(b)`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

from hcq.checks import is_whole, shown
from hcq.frontend.core.base import Core, shape_args
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import broadcast_shape, constant_element, expanded, flipped, iota, permuted
from hcq.frontend.grad.function import constant_in
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.dtype import DType, Scalar, dtypes

T = TypeVar("T", bound=Methods)


class Shapes(Methods):
    """meshgrid, hstack and relatives, flips, rot90, tensor_split, new_zeros, view_as."""

    __slots__ = ()

    # -- shapes like another's --

    def view_as(self, other: Self) -> Self:
        """The same elements in the shape of another tensor.

        >>> hcq.tensor([1, 2, 3, 4]).reshape_as(Tensor.zeros(2, 2)).tolist()
        [[1, 2], [3, 4]]
        """
        return self.reshape(other.node.shape)

    reshape_as = view_as

    def ravel(self) -> Self:
        """All elements in one axis.

        >>> hcq.tensor([[1, 2], [3, 4]]).T.ravel().tolist()
        [1, 3, 2, 4]
        """
        return self.flatten()

    def sum_to_size(self, *size: Any) -> Self:
        """The sum over what expanding from this shape would have repeated: the inverse of `expand`.

        >>> hcq.tensor([[1, 2], [3, 4]]).sum_to_size(1, 2).tolist()
        [[4, 6]]
        """
        wanted, shape = shape_args("sum_to_size", size), self.node.shape
        if not wanted:
            return self.sum()
        lead = len(shape) - len(wanted)
        if lead < 0 or any(w not in (1, s) for w, s in zip(wanted, shape[lead:])):
            raise UsageError(f"[sum_to_size] {shape} is not {wanted} expanded. Give sizes of 1, or its own.")
        axes = tuple(axis for axis, s in enumerate(shape) if axis < lead or wanted[axis - lead] != s)
        return self.sum(axes, keepdim=True)._reshape(wanted) if shape != wanted else self

    def new_full(
        self, size: Any, fill_value: Scalar, dtype: DType | None = None, device: str | None = None
    ) -> Self:
        """One number in a shape; on this tensor's device and in its dtype unless others are given.

        >>> Tensor([1.5]).new_full((2,), 7).tolist()
        [7.0, 7.0]
        """
        return self.full(
            shape_args("new_full", (size,)), fill_value, dtype or self.dtype, device or self.device
        )

    def new_zeros(self, *size: Any, dtype: DType | None = None, device: str | None = None) -> Self:
        """Zeros in a shape; on this tensor's device and in its dtype unless others are given.

        >>> hcq.tensor([True]).new_zeros(2).tolist()
        [False, False]
        """
        return self.new_full(shape_args("new_zeros", size), 0, dtype, device)

    def new_ones(self, *size: Any, dtype: DType | None = None, device: str | None = None) -> Self:
        """Ones in a shape; on this tensor's device and in its dtype unless others are given.

        >>> Tensor([1], dtype=hcq.int8).new_ones(2, 2).tolist()
        [[1, 1], [1, 1]]
        """
        return self.new_full(shape_args("new_ones", size), 1, dtype, device)

    def new_empty(self, *size: Any, dtype: DType | None = None, device: str | None = None) -> Self:
        """Zeros too: memory is never shown before it is written.

        >>> Tensor([1], dtype=hcq.int8).new_empty(2, 3).dtype
        dtypes.int8
        """
        return self.new_full(shape_args("new_empty", size), 0, dtype, device)

    @classmethod
    def scalar_tensor(
        cls, value: Scalar, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Self:
        """A tensor of shape (): float32 unless another dtype is given.

        >>> hcq.scalar_tensor(3).item(), hcq.scalar_tensor(3).shape
        (3.0, ())
        """
        return cls.full((), value, dtype or dtypes.float32, device, requires_grad)

    @staticmethod
    def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
        """The shape in which all of these meet. Raises UsageError where two sizes differ and neither is 1.

        >>> Tensor.broadcast_shapes((2, 1), (3,))
        (2, 3)
        """
        return broadcast_shape("broadcast_shapes", *[shape_args("broadcast_shapes", (s,)) for s in shapes])

    def broadcast_tensors(tensors: T | Sequence[T], *others: T) -> tuple[T, ...]:
        """All in the shape in which they meet.

        >>> a, b = hcq.broadcast_tensors(hcq.tensor([[1], [2]]), hcq.tensor([10, 20, 30]))
        >>> a.shape, b.tolist()
        ((2, 3), [[10, 20, 30], [10, 20, 30]])
        """
        parts = _each(tensors, others)
        shape = broadcast_shape("broadcast_tensors", *[part.node.shape for part in parts])
        return tuple([part.expand(shape) for part in parts])

    def meshgrid(tensors: T | Sequence[T], *others: T, indexing: str = "ij") -> tuple[T, ...]:
        """The coordinates of a grid: for vectors of n and m, two tensors (n, m); with indexing "xy" (m, n).

        >>> [grid.tolist() for grid in hcq.tensor([1, 2]).meshgrid(hcq.tensor([3, 4]))]
        [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
        """
        parts = _each(tensors, others)
        if indexing not in ("ij", "xy"):
            raise UsageError(f"[meshgrid] indexing={indexing!r} is unknown. Use 'ij' or 'xy'.")
        if any(len(part.node.shape) > 1 for part in parts):
            raise UsageError("[meshgrid] takes vectors. Flatten the others first.")
        sizes = tuple([part.numel() for part in parts])
        grids = []
        for axis, part in enumerate(parts):
            line = part._reshape(tuple(size if d == axis else 1 for d, size in enumerate(sizes)))
            grids.append(line.expand(sizes))
        turns = indexing == "xy" and len(parts) > 1
        return tuple([grid.transpose(0, 1) for grid in grids] if turns else grids)

    def cartesian_prod(tensors: T | Sequence[T], *others: T) -> T:
        """Every choice of one element of each vector, as rows: (n,) and (m,) -> (n * m, 2).

        >>> hcq.cartesian_prod(hcq.tensor([1, 2]), hcq.tensor([3, 4])).tolist()
        [[1, 3], [1, 4], [2, 3], [2, 4]]
        """
        parts = _each(tensors, others)
        if len(parts) == 1:
            return parts[0]
        grids = Shapes.meshgrid(parts)
        return _columns(grids)

    def combinations(self, r: int = 2, with_replacement: bool = False) -> Self:
        """Every choice of r elements of a vector, as rows, in the order of their places.

        >>> hcq.tensor([1, 2, 3]).combinations().tolist()
        [[1, 2], [1, 3], [2, 3]]
        """
        if len(self.node.shape) != 1:
            raise UsageError(f"[combinations] shape {self.node.shape}: give a vector.")
        if r < 0:
            raise UsageError(f"[combinations] r={r}: use 0 or more.")
        self._refuse_cut("combinations")
        choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
        rows = [place for row in choose(range(self.node.shape[0]), r) for place in row]
        if not rows or r == 0:
            return self._part(0, 0, 0)._reshape((0, r) if r else (0,))
        return self[rows]._reshape((len(rows) // r, r))

    # -- joined --

    def atleast_1d(tensors: T | Sequence[T], *others: T) -> Any:
        """With one axis at least: () -> (1,). Of several tensors, or a list, a tuple.

        >>> hcq.tensor(5).atleast_1d().tolist()
        [5]
        """
        return _grown(tensors, others, lambda x: x if x.node.shape else x._reshape((1,)))

    def atleast_2d(tensors: T | Sequence[T], *others: T) -> Any:
        """With two axes at least: (n,) -> (1, n). Of several tensors, or a list, a tuple.

        >>> hcq.tensor([1, 2]).atleast_2d().shape
        (1, 2)
        """
        return _grown(tensors, others, _with_rows)

    def atleast_3d(tensors: T | Sequence[T], *others: T) -> Any:
        """With three axes at least: (n,) -> (1, n, 1), (n, m) -> (n, m, 1). Of several tensors, or a list, a tuple.

        >>> hcq.tensor([1, 2]).atleast_3d().shape, Tensor.zeros(2, 3).atleast_3d().shape
        ((1, 2, 1), (2, 3, 1))
        """
        return _grown(tensors, others, _with_depth)

    def hstack(tensors: T | Sequence[T], *others: T) -> T:
        """One after the other along axis 1; vectors along axis 0.

        >>> hcq.hstack([Tensor([1, 2]), Tensor([3])]).tolist(), hcq.hstack([Tensor([[1]]), Tensor([[2]])]).tolist()
        ([1.0, 2.0, 3.0], [[1.0, 2.0]])
        """
        parts = [part if part.node.shape else part._reshape((1,)) for part in _each(tensors, others)]
        return _joined(parts, 0 if len(parts[0].node.shape) == 1 else 1)

    def vstack(tensors: T | Sequence[T], *others: T) -> T:
        """One below the other: vectors become rows.

        >>> Tensor.row_stack([hcq.tensor([1, 2]), hcq.tensor([[3, 4], [5, 6]])]).tolist()
        [[1, 2], [3, 4], [5, 6]]
        """
        return _joined([_with_rows(part) for part in _each(tensors, others)], 0)

    row_stack = vstack

    def dstack(tensors: T | Sequence[T], *others: T) -> T:
        """One behind the other, along axis 2.

        >>> hcq.dstack([hcq.tensor([1, 2]), hcq.tensor([3, 4])]).tolist()
        [[[1, 3], [2, 4]]]
        """
        return _joined([_with_depth(part) for part in _each(tensors, others)], 2)

    def column_stack(tensors: T | Sequence[T], *others: T) -> T:
        """Side by side: vectors become columns.

        >>> hcq.column_stack([hcq.tensor([1, 2]), hcq.tensor([[3, 4], [5, 6]])]).tolist()
        [[1, 3, 4], [2, 5, 6]]
        """
        parts = _each(tensors, others)
        return _joined([p._reshape((p.numel(), 1)) if len(p.node.shape) < 2 else p for p in parts], 1)

    def block_diag(tensors: T | Sequence[T], *others: T) -> T:
        """A matrix with these matrices along its diagonal, zero around them.

        >>> hcq.block_diag(hcq.tensor([[1, 2]]), hcq.tensor([[3], [4]])).tolist()
        [[1, 2, 0], [0, 0, 3], [0, 0, 4]]
        """
        parts = [_with_rows(part) for part in _each(tensors, others)]
        if any(len(part.node.shape) > 2 for part in parts):
            raise UsageError("[block_diag] takes matrices, vectors and numbers.")
        width, at, rows = sum(part.node.shape[1] for part in parts), 0, []
        for part in parts:
            size = part.node.shape[1]
            rows.append(part.pad((at, width - at - size)))
            at += size
        return _joined(rows, 0)

    # -- turned, moved --

    def fliplr(self) -> Self:
        """Backwards along axis 1.

        >>> hcq.tensor([[1, 2], [3, 4]]).fliplr().tolist()
        [[2, 1], [4, 3]]
        """
        return self._like(flipped(self.node, (self._second("fliplr"),)))

    def flipud(self) -> Self:
        """Backwards along axis 0.

        >>> hcq.tensor([[1, 2], [3, 4]]).flipud().tolist()
        [[3, 4], [1, 2]]
        """
        return self._like(flipped(self.node, (self._axis_of("flipud", 0),)))

    def _second(self, call: str) -> int:
        if len(self.node.shape) < 2:
            raise UsageError(f"[{call}] shape {self.node.shape} has no axis 1. Give two axes at least.")
        return 1

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Turned by k quarters, from the first of two axes to the second.

        >>> hcq.tensor([[1, 2], [3, 4]]).rot90().tolist()
        [[2, 4], [1, 3]]
        """
        if len(dims) != 2:
            raise UsageError(f"[rot90] dims={tuple(dims)}: name two axes.")
        first, second = (self._axis("rot90", axis) for axis in dims)
        if first == second:
            raise UsageError(f"[rot90] dims={tuple(dims)} are one axis. Name two.")
        quarters = k % 4
        if quarters == 0:
            return self._like(self.node)
        if quarters == 2:
            return self._like(flipped(self.node, tuple(sorted((first, second)))))
        order = list(range(len(self.node.shape)))
        order[first], order[second] = order[second], order[first]
        turned = self._like(permuted(self.node, tuple(order)))
        return turned._like(flipped(turned.node, (first if quarters == 1 else second,)))

    # -- taken apart --

    def tensor_split(self, indices_or_sections: Any, dim: int = 0) -> tuple[Self, ...]:
        """Parts of one axis: that many, the first ones larger by one where it does not divide; or cut at the places.

        >>> [part.tolist() for part in Tensor.arange(5).tensor_split(2)]
        [[0, 1, 2], [3, 4]]
        """
        axis = self._axis_of("tensor_split", dim)
        size = self.node.shape[axis]
        cuts = _cuts("tensor_split", indices_or_sections)
        if isinstance(cuts, int):
            if cuts < 1:
                raise UsageError(f"[tensor_split] {cuts} sections: use 1 or more.")
            least, more = divmod(size, cuts)
            sizes = [least + (place < more) for place in range(cuts)]
            return self.split(sizes, axis)
        places = [max(0, min(size, place + size if place < 0 else place)) for place in [0, *cuts, size]]
        places[-1] = size
        return tuple([self._part(axis, a, max(a, b)) for a, b in itertools.pairwise(places)])

    def hsplit(self, indices_or_sections: Any) -> tuple[Self, ...]:
        """Parts of axis 1, or of a vector: equal ones, or cut at the places; see `tensor_split`.

        >>> [part.tolist() for part in hcq.tensor([1, 2, 3, 4]).hsplit(2)]
        [[1, 2], [3, 4]]
        """
        return self._split_evenly("hsplit", indices_or_sections, 0 if len(self.node.shape) == 1 else 1)

    def vsplit(self, indices_or_sections: Any) -> tuple[Self, ...]:
        """Parts of axis 0: equal ones, or cut at the places; see `tensor_split`.

        >>> [part.shape for part in Tensor.zeros(5, 2).vsplit([1, 3])]
        [(1, 2), (2, 2), (2, 2)]
        """
        return self._split_evenly("vsplit", indices_or_sections, 0, 2)

    def dsplit(self, indices_or_sections: Any) -> tuple[Self, ...]:
        """Parts of axis 2: equal ones, or cut at the places; see `tensor_split`.

        >>> [part.shape for part in Tensor.zeros(1, 2, 5).dsplit([1, 3])]
        [(1, 2, 1), (1, 2, 2), (1, 2, 2)]
        """
        return self._split_evenly("dsplit", indices_or_sections, 2, 3)

    def _split_evenly(self, call: str, cuts: Any, axis: int, least: int = 1) -> tuple[Self, ...]:
        shape = self.node.shape
        cuts = _cuts(call, cuts)
        if len(shape) < max(least, axis + 1):
            raise UsageError(f"[{call}] shape {shape}: give {max(least, axis + 1)} axes at least.")
        if isinstance(cuts, int) and (cuts < 1 or shape[axis] % cuts):
            raise UsageError(f"[{call}] axis {axis} of size {shape[axis]} has no {cuts} equal parts.")
        return self.tensor_split(cuts, axis)

    def split_with_sizes(self, split_sizes: Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Parts of one axis of those sizes, which add up to its own.

        >>> [part.tolist() for part in hcq.tensor([1, 2, 3]).split_with_sizes([1, 2])]
        [[1], [2, 3]]
        """
        return self.split(tuple(split_sizes), dim)

    # -- a part replaced --

    def select_scatter(self, src: Self, dim: int, index: int) -> Self:
        """This tensor with one slice of an axis replaced.

        >>> Tensor.zeros(2, 2).select_scatter(Tensor([5.0, 7.0]), 0, 1).tolist()
        [[0.0, 0.0], [5.0, 7.0]]
        """
        axis = self._axis_of("select_scatter", dim)
        size = self.node.shape[axis]
        if not -size <= index < size:
            raise UsageError(f"[select_scatter] index {index} on axis {axis} of size {size} is out of range.")
        place = index % size
        if src.node.shape != self.node.shape[:axis] + self.node.shape[axis + 1 :]:
            raise UsageError(f"[select_scatter] src {src.node.shape} is no slice of {self.node.shape}.")
        return self.slice_scatter(src.unsqueeze(axis), axis, place, place + 1)

    def slice_scatter(
        self, src: Self, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
    ) -> Self:
        """This tensor with the slice start:end:step of an axis replaced.

        >>> Tensor.zeros(5).slice_scatter(Tensor([5.0, 7.0]), start=1, end=4, step=2).tolist()
        [0.0, 5.0, 0.0, 7.0, 0.0]
        """
        axis = self._axis_of("slice_scatter", dim)
        size = self.node.shape[axis]
        if step < 1:
            raise UsageError(f"[slice_scatter] step={step}: use 1 or more.")
        places = range(size)[start:end:step]
        wanted = (*self.node.shape[:axis], len(places), *self.node.shape[axis + 1 :])
        if src.node.shape != wanted:
            raise UsageError(f"[slice_scatter] src {src.node.shape} for a slice of shape {wanted}.")
        if not places:
            return self._like(self.node)
        line = self._like(iota(size, axis, self.node.shape))
        first = places[0]
        inside = (line >= first) & (line <= places[-1]) & ((line - first) % step == 0)
        index = (line - first) // step
        spread = src.gather(axis, inside.where(index, 0))
        return inside.where(spread.cast(self.node.dtype), self)

    def diagonal_scatter(self, src: Self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """This tensor with a diagonal of two axes replaced: see `diagonal`.

        >>> Tensor.zeros(2, 2).diagonal_scatter(Tensor([5.0, 7.0])).tolist()
        [[5.0, 0.0], [0.0, 7.0]]
        """
        first, second = self._axis_of("diagonal_scatter", dim1), self._axis("diagonal_scatter", dim2)
        shape = self.node.shape
        inside = (
            self._like(iota(shape[second], second, shape))
            == self._like(iota(shape[first], first, shape)) + offset
        )
        have = self.diagonal(offset, dim1, dim2).node.shape
        if src.node.shape != have:
            raise UsageError(f"[diagonal_scatter] src {src.node.shape} for a diagonal of shape {have}.")
        rows, columns = max(0, -offset), max(0, offset)
        size = have[-1]
        grown = src.diag_embed(0)
        pads = (columns, max(0, shape[second] - columns - size), rows, max(0, shape[first] - rows - size))
        matrix = grown.pad(pads) if size else self.movedim((first, second), (-2, -1))
        placed = matrix.movedim((-2, -1), (first, second))
        return inside.where(placed.cast(self.node.dtype), self)

    def fill(self, value: Any) -> Self:
        """One number everywhere, in this tensor's shape and dtype.

        >>> hcq.tensor([[1, 2], [3, 4]]).fill(7).tolist()
        [[7, 7], [7, 7]]
        """
        if isinstance(value, Core):
            return value.cast(self.node.dtype).expand(self.node.shape)  # type: ignore[attr-defined,no-any-return]
        whole = self._like(expanded(constant_element("fill", value, self.node.dtype), self.node.shape))
        return constant_in(self, whole)

    def constant_pad_nd(self, pad: Sequence[int], value: Scalar = 0.0) -> Self:
        """`pad` with a constant.

        >>> hcq.tensor([1, 2]).constant_pad_nd((1, 2), 9).tolist()
        [9, 1, 2, 9, 9]
        """
        return self.pad(pad, "constant", value)

    def equal(self, other: Self) -> bool:
        """True if shapes and all elements are equal. Computes and reads back.

        >>> hcq.tensor([1, 2]).equal(hcq.tensor([1, 2])), hcq.tensor([1]).equal(hcq.tensor([1, 1]))
        (True, False)
        """
        if self.node.shape != other.node.shape:
            return False
        return bool((self == other).all().item())


def _cuts(call: str, given: Any) -> int | list[int]:
    """A number of parts, or the places to cut at."""
    value = given.tolist() if isinstance(given, Methods) else given
    if is_whole(value):
        return int(value.__index__())
    if isinstance(value, (list, tuple)) and all(is_whole(cut) for cut in value):
        return [int(cut.__index__()) for cut in value]
    raise UsageError(f"[{call}] {shown(given)}: give a number of parts, or a list of places to cut at.")


def _each(tensors: Any, others: tuple[Any, ...]) -> list[Any]:
    """The tensors of `f(a, b)` or `f([a, b])`."""
    is_list = isinstance(tensors, (list, tuple))
    parts: list[Any] = [*tensors, *others] if is_list else [tensors, *others]
    for place, part in enumerate(parts):
        if not isinstance(part, Core):
            raise UsageError(f"item {place} is {type(part).__name__}, not a Tensor. Make it one first.")
    if not parts:
        raise UsageError("the list of tensors is empty. Give one at least.")
    return parts


def _grown(tensors: Any, others: tuple[Any, ...], grow: Any) -> Any:
    if isinstance(tensors, Core) and not others:
        return grow(tensors)
    return tuple([grow(part) for part in _each(tensors, others)])


def _with_rows(x: Any) -> Any:
    return x if len(x.node.shape) > 1 else x._reshape((1, x.numel()))


def _with_depth(x: Any) -> Any:
    shape = x.node.shape
    if len(shape) > 2:
        return x
    return x._reshape((1, x.numel(), 1) if len(shape) < 2 else (*shape, 1))


def _joined(parts: Sequence[Any], axis: int) -> Any:
    return type(parts[0]).cat(parts, dim=axis)


def _columns(grids: Sequence[Any]) -> Any:
    return type(grids[0]).stack([grid.flatten() for grid in grids], dim=1)
