"""Reduction: methods that turn whole axes into one value each.

In       tensors and axes
Out      lazy tensors around REDUCE_AXIS; the reduced axes go away unless keepdim
Next     product.py (matmul is a product and a sum), normalisation.py (softmax), docs/semantics.md (dtypes of sums)

Sums and products of bool and integers are int64, as in PyTorch. float16 and bfloat16 are accumulated in float32.
"""

from __future__ import annotations

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import reduced, reshaped, scanned
from hcq.frontend.core.sizes import number_of
from hcq.frontend.ops.base import Axes, Methods, Self
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, Shape
from hcq.ir.op import Op


class Reduction(Methods):
    """Sums, products, extremes, where they are, and statistics."""

    __slots__ = ()

    def _reduce(self, op: Op, axes: tuple[int, ...], keepdim: bool) -> Self:
        dtype = self.node.dtype
        if dtype.rank == 1 and dtype.is_storage_only:
            return self.cast(dtypes.float32)._reduce(op, axes, keepdim).cast(dtype)
        node = reduced(op, self.node, axes)
        if axes and not keepdim:
            node = reshaped(node, self._without(axes))
        return self._like(node)

    def _over(self, call: str, dim: Axes) -> tuple[int, ...]:
        """The axes that are reduced; none named are all of them, as in PyTorch."""
        return self._axes(call, None if isinstance(dim, (tuple, list)) and not dim else dim)

    # -- sums and products --

    def sum(self, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Self:
        """Sum over all axes, one, or several; they go away unless keepdim. (2, 3) over 1 -> (2,).

        Integers and bool are summed in int64 (uint64 stays), float16 and bfloat16 in float32; `dtype` comes before.

        >>> hcq.tensor([[1, 2], [3, 4]]).sum(0).tolist()
        [4, 6]
        """
        return self._accumulated(dtype)._reduce(Op.ADD, self._over("sum", dim), keepdim)

    def prod(self, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Self:
        """Product over all axes, one, or several; axes and dtypes are as in `sum`.

        >>> hcq.tensor([[1, 2], [3, 4]]).prod(1).tolist(), Tensor([]).prod().item()
        ([2, 12], 1.0)
        """
        return self._accumulated(dtype)._reduce(Op.MUL, self._over("prod", dim), keepdim)

    def _accumulated(self, dtype: DType | None) -> Self:
        if dtype is not None:
            return self.cast(dtype)
        have = self.node.dtype
        return self.cast(dtypes.int64) if not have.is_float and have is not dtypes.uint64 else self

    def mean(self, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Self:
        """Average over all axes, one, or several; of no elements NaN. Raises UsageError for integers and bool.

        >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).mean(0).tolist(), Tensor([]).mean().item()
        ([2.0, 3.0], nan)
        """
        x = self if dtype is None else self.cast(dtype)
        if not x.node.dtype.is_float:
            raise UsageError(
                f"[mean] {x.node.dtype.name} has no fractions. Cast first: x.float().mean(), or give "
                "dtype=dtypes.float32."
            )
        axes = x._over("mean", dim)
        wide = x.cast(dtypes.float32) if x.node.dtype.itemsize < 4 else x
        count = number_of(x.node, axes, wide.node.dtype)
        total = wide._reduce(Op.ADD, axes, keepdim)
        return (total / (self._like(count) if isinstance(count, Node) else count)).cast(x.node.dtype)

    # -- extremes --

    def any(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """True if any element is not zero; over all axes, one, or several. Of uint8 it is 1 or 0, as in PyTorch.

        >>> hcq.tensor([[0, 0], [0, 3]]).any(1).tolist(), Tensor([]).any().item()
        ([False, True], False)
        """
        found = self.cast(dtypes.bool)._reduce(Op.MAX, self._axes("any", dim), keepdim)
        return found.cast(dtypes.uint8) if self.node.dtype is dtypes.uint8 else found

    def all(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """True if no element is zero; over all axes, one, or several. Of uint8 it is 1 or 0, as in PyTorch.

        >>> hcq.tensor([[1, 0], [2, 3]]).all(1).tolist(), Tensor([]).all().item()
        ([False, True], True)
        """
        found = self.cast(dtypes.bool)._reduce(Op.MIN, self._axes("all", dim), keepdim)
        return found.cast(dtypes.uint8) if self.node.dtype is dtypes.uint8 else found

    def count_nonzero(self, dim: Axes = None) -> Self:
        """How many elements are not zero; int64; over all axes, one, or several.

        >>> hcq.tensor([[0, 1], [2, 3]]).count_nonzero(0).tolist()
        [1, 2]
        """
        return self.cast(dtypes.bool).sum(dim)

    def _without(self, axes: tuple[int, ...]) -> Shape:
        return tuple([size for axis, size in enumerate(self.node.shape) if axis not in axes])

    # -- running --

    def cumsum(self, dim: int, dtype: DType | None = None) -> Self:
        """Running sum along an axis, of the same shape; integers and bool in int64, or all in `dtype`.

        >>> hcq.tensor([1, 2, 3]).cumsum(0).tolist()
        [1, 3, 6]
        """
        return self._accumulated(dtype)._running(Op.ADD, "cumsum", dim)

    def cumprod(self, dim: int, dtype: DType | None = None) -> Self:
        """Running product along an axis, of the same shape; integers and bool in int64, or all in `dtype`.

        >>> hcq.tensor([1, 2, 3, 4]).cumprod(0).tolist()
        [1, 2, 6, 24]
        """
        return self._accumulated(dtype)._running(Op.MUL, "cumprod", dim)

    def _running(self, op: Op, call: str, dim: int) -> Self:
        axis = self._axis(call, dim)
        return self._like(scanned(op, self.node, axis)) if self.node.shape else self
