"""Strided: elements by where they lie in memory, and tensors that are said to lie in some order.

In       sizes, strides and offsets in elements
Out      lazy copies: memory here is row-major, and what has other strides elsewhere is gathered
Changes  resize_: the tensor it is called on
Next     core/views.py (the order of the elements of views), creation.py (empty)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from hcq.frontend.core import views
from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import iota, reshaped
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, Shape, const
from hcq.ir.op import Op


class Strided(Methods):
    """as_strided and its relatives, empty_strided, empty_permuted, resize_."""

    __slots__ = ()

    def as_strided(
        self, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
    ) -> Self:
        """A copy of elements that lie apart by strides, of those that this tensor is a view of in row-major order.

        storage_offset  where the first lies; where this tensor begins unless given
        Raises          UsageError where an element lies outside

        >>> hcq.tensor([1, 2, 3, 4]).as_strided((2, 2), (1, 1)).tolist()
        [[1, 2], [2, 3]]
        """
        line, places = self._places("as_strided", size, stride, storage_offset)
        return line._gather_line(0, places)._reshape(tuple(size))

    as_strided_copy = as_strided

    def as_strided_scatter(
        self, src: Self, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
    ) -> Self:
        """This tensor with other elements where `as_strided` takes them; of two in one place the last is there.

        >>> hcq.as_strided_scatter(Tensor.zeros(2, 2), Tensor([5.0, 7.0]), (2,), (3,)).tolist()
        [[5.0, 0.0], [0.0, 7.0]]
        """
        line, places = self._places("as_strided_scatter", size, stride, storage_offset)
        if src.node.shape != tuple(size):
            raise UsageError(
                f"[as_strided_scatter] src {src.node.shape} for elements of shape {tuple(size)}."
            )
        if not prod(size):
            return self._like(self.node)
        values = reshaped(src.node.cast(self.node.dtype), (prod(size),))
        made = Node(Op.SCATTER, self.node.dtype, (line.node, places.node, values), 0)
        return self._like(reshaped(made, self.node.shape))

    def _places(
        self, call: str, size: Sequence[int], stride: Sequence[int], offset: int | None
    ) -> tuple[Self, Self]:
        """All elements in a row, and the place in it of each one that is asked for."""
        core, start = views.begin_of(self.node)
        if call == "as_strided_scatter":
            core, start = self.node, 0
        first = start if offset is None else offset
        if len(size) != len(stride) or any(n < 0 for n in (*size, *stride)) or first < 0:
            raise UsageError(
                f"[{call}] size {tuple(size)}, stride {tuple(stride)}, storage_offset {first}: as many strides as "
                "sizes, 0 or more."
            )
        count = prod(core.shape)
        last = first + sum((n - 1) * step for n, step in zip(size, stride))
        if prod(size) and last >= count:
            raise UsageError(f"[{call}] element {last} lies outside of the {count} that there are.")
        shape = tuple(size)
        place = const(first, dtypes.int64)
        for axis, (n, step) in enumerate(zip(shape, stride)):
            place = iota(n, axis, shape) * step + place
        if not shape:
            place = reshaped(place, ())
        return self._like(reshaped(core, (count,))), self._like(reshaped(place, (prod(size),)))

    @classmethod
    def empty_strided(
        cls, size: Sequence[int], stride: Sequence[int], dtype: DType | None = None, device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:  # fmt: skip
        """A tensor of that shape; the strides are checked, and its elements lie in row-major order.

        >>> hcq.empty_strided((2, 3), (1, 2)).shape
        (2, 3)
        """
        if len(size) != len(stride) or any(n < 0 for n in (*size, *stride)):
            raise UsageError(
                f"[empty_strided] size {tuple(size)}, stride {tuple(stride)}: as many strides as sizes, 0 or more."
            )
        return cls.full(tuple(size), 0, dtype or dtypes.float32, device, requires_grad)

    @classmethod
    def empty_permuted(
        cls, size: Sequence[int], physical_layout: Sequence[int], dtype: DType | None = None,
        device: str | None = None, requires_grad: bool = False,
    ) -> Self:  # fmt: skip
        """A tensor of that shape; the order of the axes in memory is checked, and it is theirs in the shape.

        >>> hcq.empty_permuted((2, 3, 4), (0, 2, 1)).shape
        (2, 3, 4)
        """
        if sorted(physical_layout) != list(range(len(size))):
            raise UsageError(
                f"[empty_permuted] physical_layout={tuple(physical_layout)} of {len(size)} axes: name each one once."
            )
        return cls.full(tuple(size), 0, dtype or dtypes.float32, device, requires_grad)

    def new_empty_strided(
        self, size: Sequence[int], stride: Sequence[int], dtype: DType | None = None, device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:  # fmt: skip
        """`empty_strided` of this tensor's dtype and device, unless others are given.

        >>> Tensor([1], dtype=hcq.int8).new_empty_strided((2, 3), (3, 1)).dtype
        dtypes.int8
        """
        return self.empty_strided(
            size, stride, dtype or self.node.dtype, device or self.device, requires_grad
        )

    def resize_(self, *sizes: Any) -> Self:
        """This tensor of another shape, of its first elements. Raises UsageError for more than there are.

        >>> hcq.tensor([1, 2, 3, 4]).resize_(2, 1).tolist()
        [[1], [2]]
        """
        shape: Shape = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
        have = prod(self.node.shape)
        if any(not isinstance(n, int) or n < 0 for n in shape) or prod(shape) > have:
            raise UsageError(
                f"[resize_] {self.node.shape} to {shape}: memory does not grow here. Give sizes of at most {have} "
                "elements together, or make a new tensor."
            )
        line = self._reshape((have,))
        self._become(line._part(0, 0, prod(shape))._reshape(shape).node)
        return self

    def resize_as_(self, other: Core) -> Self:
        """`resize_` to the shape of another tensor.

        >>> hcq.tensor([1, 2, 3, 4]).resize_as_(Tensor.zeros(2, 2)).tolist()
        [[1, 2], [3, 4]]
        """
        return self.resize_(*other.node.shape)
