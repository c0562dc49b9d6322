"""Reduction: methods that turn whole axes into one value each.

In       tensors and axes
Out      lazy tensors around REDUCE_AXIS; the reduced axes go away unless keepdim
Changes  nothing
Next     product.py (matmul is a product and a sum), normalisation.py (softmax), docs/semantics.md (dtypes of sums)

Sums and products of bool and integers are int64, as in PyTorch. float16 and bfloat16 are accumulated in float32.
"""

from __future__ import annotations

import math
from math import prod
from typing import TYPE_CHECKING, Any

from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import (
    absolute,
    divided,
    either,
    expanded,
    exponential,
    minus,
    negated,
    ordinal,
    padded,
    reduced,
    reshaped,
    scanned,
)
from hcq.frontend.grad.derivatives import FLAT
from hcq.frontend.grad.function import Function, constant_in
from hcq.frontend.ops.base import Axes, Methods, ValuesIndices, in_float_together
from hcq.frontend.symbolic.sizes import number_of
from hcq.ir.dtype import DType, dtypes
from hcq.ir.meaning import identity
from hcq.ir.node import Node, Shape, const
from hcq.ir.op import Op

if TYPE_CHECKING:
    from typing_extensions import Self


# elements of a line, beyond which the place of an extreme is looked for in blocks: one kernel reads shorter ones twice,
# the second time from the cache
LONG = 1 << 16
LEAST_BLOCK = 1 << 8


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

    def var(
        self,
        dim: Axes | bool = None,
        correction: float | bool | None = 1,
        keepdim: bool = False,
        unbiased: bool | None = None,
    ) -> Self:
        """Variance over axes: squared distances from the mean, divided by count - correction (never less than 0).

        unbiased  PyTorch's older word: True is correction 1, False is 0
        Raises    UsageError for integers and bool

        >>> x = Tensor([1.0, 3.0])
        >>> x.var().item(), x.var(correction=0).item()
        (2.0, 1.0)
        """
        dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)  # var(True)
        correction = 1 if correction is None else correction
        if unbiased is not None:
            correction = 1 if unbiased else 0
        if not self.node.dtype.is_float:
            raise UsageError(f"[var] {self.node.dtype.name} has no fractions. Cast first: x.float().var().")
        axes = self._over("var", dim)
        wide = self.cast(dtypes.float32) if self.node.dtype.itemsize < 4 else self
        count = number_of(self.node, axes, wide.node.dtype)
        if isinstance(count, Node):
            left = count + -float(correction)
            divisor = (left < 0.0).where(const(0.0, left.dtype), left)
        else:
            divisor = const(max(0.0, count - correction), wide.node.dtype)
        distance = _distance(wide.node, axes)
        total = reduced(Op.ADD, distance * distance, axes)
        value = VARIANCE.of(divided(total, divisor), wide.node, divisor)
        found = self._like(value).cast(self.node.dtype)
        return found if keepdim else found._reshape(self._without(axes))

    @in_float_together
    def std(
        self,
        dim: Axes | bool = None,
        correction: float | bool | None = 1,
        keepdim: bool = False,
        unbiased: bool | None = None,
    ) -> Self:
        """Square root of the variance; see `var`.

        >>> x = Tensor([1.0, 3.0])
        >>> print(x.std(), x.std(correction=0))
        tensor(1.4142) tensor(1.)
        """
        return self.var(dim, correction, keepdim, unbiased)._root()

    def _root(self) -> Self:
        """The square root of a sum of squares: at zero its slope counts as 0, not as infinity."""
        is_zero = self == 0.0
        return is_zero.where(0.0, is_zero.where(1.0, self).sqrt())

    def var_mean(
        self,
        dim: Axes | bool = None,
        correction: float | bool | None = 1,
        keepdim: bool = False,
        unbiased: bool | None = None,
    ) -> tuple[Self, Self]:
        """The variance and the mean over axes; see `var`.

        >>> var, mean = hcq.var_mean(Tensor([[1.0, 3.0], [2.0, 2.0]]), 1)
        >>> var.tolist(), mean.tolist()
        ([2.0, 0.0], [2.0, 2.0])
        """
        axes = None if isinstance(dim, bool) else dim
        return self.var(dim, correction, keepdim, unbiased), self.mean(axes, keepdim)

    def std_mean(
        self,
        dim: Axes | bool = None,
        correction: float | bool | None = 1,
        keepdim: bool = False,
        unbiased: bool | None = None,
    ) -> tuple[Self, Self]:
        """The standard deviation and the mean over axes; see `var`.

        >>> std, mean = hcq.std_mean(Tensor([1.0, 3.0]), correction=0)
        >>> std.item(), mean.item()
        (1.0, 2.0)
        """
        axes = None if isinstance(dim, bool) else dim
        return self.std(dim, correction, keepdim, unbiased), self.mean(axes, keepdim)

    def norm(
        self, p: float | str | None = 2.0, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None
    ) -> Self:
        """sum(|x| ** p) ** (1 / p) over axes; inf is the largest size, -inf the least, 0 counts what is not zero.

        "fro" is 2; "nuc" is the sum of the singular values of matrices, which two axes are.

        >>> Tensor([3.0, 4.0]).norm().item()
        5.0
        """
        return (self if dtype is None else self.cast(dtype))._norm(p, dim, keepdim)

    @in_float_together
    def _norm(self, p: float | str | None, dim: Axes, keepdim: bool) -> Self:
        if p is None or p == "fro":
            p = 2.0
        if p == "nuc":
            axes = self._axes("norm", dim)
            return self._matrix_norm("nuc", axes, keepdim)
        if isinstance(p, str):
            raise UsageError(f"[norm] p={p!r}: give a number, 'fro' or 'nuc'.")
        if math.isinf(p):
            return self.abs().amax(dim, keepdim) if p > 0 else self.abs().amin(dim, keepdim)
        if p == 0:
            return constant_in(self, (self != 0).cast(self.node.dtype)).sum(dim, keepdim)
        if p == 1:
            return self.abs().sum(dim, keepdim)
        if p == 2:
            return self._float().square().sum(dim, keepdim)._root()
        # zeros are set apart: they have no slope, neither an element nor a sum of them
        x = self._float()
        is_zero = x == 0.0
        total = is_zero.where(0.0 if p > 0 else math.inf, is_zero.where(1.0, x).abs() ** p).sum(dim, keepdim)
        is_nothing = total == 0.0
        return is_nothing.where(0.0 if p > 0 else math.inf, is_nothing.where(1.0, total) ** (1.0 / p))

    # -- extremes --

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

    def _not_empty(self, call: str, axes: tuple[int, ...]) -> tuple[int, ...]:
        for axis in axes:
            if self.node.shape[axis] == 0:
                raise UsageError(
                    f"[{call}] shape {self.node.shape}: axis {axis} is empty, so there is nothing to choose from. "
                    f"Reduce axes that have elements."
                )
        return axes

    @in_float_together
    def logsumexp(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """log(sum(exp(x))) over axes, without overflow; of nothing -inf.

        >>> print(Tensor([1000.0, 1000.0]).logsumexp(0))
        tensor(1000.6932)
        """
        x = self._float()
        axes = x._over("logsumexp", dim)
        top = x._reduce(Op.MAX, axes, keepdim=True).detach()
        top = top.isfinite().where(top, 0.0)
        total = ((x - top).exp()._reduce(Op.ADD, axes, keepdim=True)).log() + top
        total = x._like(LOGSUMEXP.of(total.node, x.node))
        return total if keepdim else total._reshape(self._without(axes))

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


def _distance(x: Node, axes: tuple[int, ...]) -> Node:
    """How far each element is from the mean."""
    if not axes:
        return minus(x, x)
    count = number_of(x, axes, x.dtype)
    mean = divided(reduced(Op.ADD, x, axes), count if isinstance(count, Node) else const(count, x.dtype))
    return x + expanded(negated(mean), x.shape)


# -- derivatives of reductions: the value keeps its axes, with size 1 ------------------------------------------------


def _reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes that are shorter in the value than in the argument."""
    both = zip(node.shape, node.src[1].shape)
    return tuple(axis for axis, (now, before) in enumerate(both) if now != before)


def _slope_of_variance(node: Node, g: Node) -> Node:
    """2 (x - mean) / divisor. That the mean moves, too, adds nothing: the distances from it sum to zero."""
    _, x, divisor = node.src
    distance = _distance(x, _reduced_axes(node))
    return divided(distance * expanded(g, x.shape) * 2.0, divisor)


def _slope_of_logsumexp(node: Node, g: Node) -> Node:
    """exp(x) over the sum of all; in a row with an infinity 0, but for the infinity itself."""
    x, axes = node.src[1], _reduced_axes(node)
    top = reduced(Op.MAX, x, axes)
    top = Node(Op.DETACH, top.dtype, (top,))
    offset = (absolute(top) < math.inf).where(top, 0.0)
    sizes = exponential(x + expanded(negated(offset), x.shape))
    share = divided(sizes, expanded(reduced(Op.ADD, sizes, axes), x.shape))
    at_infinity = x.eq(math.inf).where(const(math.nan, x.dtype), 0.0)
    share = expanded(top.eq(math.inf), x.shape).where(at_infinity, share)
    return share * expanded(g, x.shape)


def _slope_of_first(node: Node, g: Node) -> Node:
    """All of it to the first element that is the value, or NaN, in the order of memory: counted down, that is the
    largest count.
    """
    x, axes = node.src[1], _reduced_axes(node)
    count = prod([x.shape[axis] for axis in axes])
    shape = tuple([size if axis in axes else 1 for axis, size in enumerate(x.shape)])
    countdown = expanded(reshaped(negated(ordinal(count, 0, (count,))) + count, shape), x.shape)
    is_value = either(x.eq(expanded(node, x.shape)), x.ne(x))
    left = is_value.where(countdown, 0)
    is_first = left.eq(expanded(reduced(Op.MAX, left, axes), x.shape))
    return is_first.where(expanded(g, x.shape), 0.0)


VARIANCE = Function("variance", _slope_of_variance, FLAT)
LOGSUMEXP = Function("logsumexp", _slope_of_logsumexp)
FIRST = Function("first", _slope_of_first)
