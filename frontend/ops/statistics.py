"""Statistics: medians, quantiles, running extremes, sums that leave NaN out, differences and areas.

In       tensors and axes
Out      lazy tensors; where an element is chosen, its index, too
Next     reduction.py (sum, max, var, cumsum), ordering.py (what a median sorts with), counting.py (histograms)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import both, divided, either, expanded, ordinal, reduced, reshaped
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.base import (
    Axes,
    Methods,
    MinMax,
    Self,
    ValuesIndices,
    in_float_together,
    rounded,
    widened,
)
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


class Statistics(Methods):
    """median, quantile, mode, kthvalue, cummax, nansum, diff, trapezoid, cov, renorm."""

    __slots__ = ()

    # -- running --

    def cummax(self, dim: int) -> ValuesIndices:
        """(values, indices) of the greatest so far along an axis; of equal ones the last, NaN is greatest.

        >>> hcq.tensor([1, 3, 2]).cummax(0).values.tolist()
        [1, 3, 3]
        """
        return self._running_extreme("cummax", dim)

    def cummin(self, dim: int) -> ValuesIndices:
        """(values, indices) of the least so far along an axis; of equal ones the last, NaN is least.

        >>> values, indices = hcq.tensor([3, 1, 2, 1]).cummin(0)
        >>> values.tolist(), indices.tolist()
        ([3, 1, 1, 1], [0, 1, 1, 3])
        """
        return self._running_extreme("cummin", dim)

    def _running_extreme(self, call: str, dim: int) -> ValuesIndices:
        if not self.node.shape:
            self._axis(call, dim)
            return ValuesIndices(self, self._like(const(0, dtypes.int64)))
        axis = self._axis(call, dim)
        size = self.node.shape[axis]
        values = self.detach()
        places = self._like(ordinal(size, axis, self.node.shape)).cast(dtypes.int64)
        reach = 1
        while reach < size:  # each has seen `reach` elements; the pair of both halves sees twice as many
            before, kept = values._part(axis, 0, size - reach), values._part(axis, reach, size)
            wins = kept >= before if call == "cummax" else kept <= before
            if self.node.dtype.is_float:
                wins = kept.isnan() | (wins & ~before.isnan())
            late = wins.where(kept, before)
            index = wins.where(places._part(axis, reach, size), places._part(axis, 0, size - reach))
            values = type(self).cat([values._part(axis, 0, reach), late], dim=axis)
            places = type(self).cat([places._part(axis, 0, reach), index], dim=axis)
            values, places = values.contiguous(), places.contiguous()
            reach *= 2
        return ValuesIndices(self.gather(axis, places), places)

    @in_float_together
    def logcumsumexp(self, dim: int) -> Self:
        """log(cumsum(exp(x))) along an axis, without overflow.

        >>> print(Tensor([1000.0, 1000.0]).logcumsumexp(0))
        tensor([1000.0000, 1000.6932])
        """
        axis = self._axis("logcumsumexp", dim)
        total = self._float()
        if not self.node.shape:
            return total
        size, reach = self.node.shape[axis], 1
        while reach < size:
            both = total._part(axis, reach, size).logaddexp(total._part(axis, 0, size - reach))
            total = type(self).cat([total._part(axis, 0, reach), both], dim=axis).contiguous()
            reach *= 2
        return total

    # -- of sorted elements --

    def msort(self) -> Self:
        """Sorted along axis 0.

        >>> hcq.tensor([[3, 1], [2, 4]]).msort().tolist()
        [[2, 1], [3, 4]]
        """
        return self.sort(0).values  # type: ignore[no-any-return]

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
        """(values, indices) of the k-th least element of an axis, counted from 1; NaN is greatest.

        >>> values, indices = hcq.tensor([30, 10, 20]).kthvalue(2)
        >>> values.item(), indices.item()
        (20, 2)
        """
        axis = self._axis("kthvalue", dim)
        size = self.node.shape[axis] if self.node.shape else 1
        if not 1 <= k <= size:
            raise UsageError(f"[kthvalue] k={k} on an axis of size {size}: use 1 to {size}.")
        return self._chosen(axis, lambda line, order: order._part(line, k - 1, k), keepdim)

    def median(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """The middle element, the lesser of two; along an axis (values, indices). NaN if there is one, or nothing.

        >>> hcq.tensor([3, 1, 4, 2]).median().item()
        2
        """
        if dim is None:
            if self.node.dtype.is_float and not self.numel():
                return self._like(const(math.nan, self.node.dtype))
            return self._of_equals(self.flatten().median(0).values)
        axis = self._axis("median", dim)
        self._not_empty("median", (axis,) if self.node.shape else ())

        def middle(line: int, order: Any) -> Any:
            size = order.node.shape[line]
            kth = order._part(line, (size - 1) // 2, (size - 1) // 2 + 1)
            if not self.node.dtype.is_float:
                return kth
            return self._line_of().isnan().any(line, True).where(self._line_of().argmax(line, True), kth)

        return self._chosen(axis, middle, keepdim)

    def nanmedian(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """The middle element of those that are not NaN; along an axis (values, indices). See `median`.

        >>> Tensor([1.0, float("nan"), 3.0, 2.0]).nanmedian().item()
        2.0
        """
        if not self.node.dtype.is_float:
            return self.median(dim, keepdim)
        if dim is None:
            if not self.numel():
                return self._like(const(math.nan, self.node.dtype))
            return self._of_equals(self.flatten().nanmedian(0).values)
        axis = self._axis("nanmedian", dim)

        def middle(line: int, order: Any) -> Any:
            present = (~self._line_of().isnan()).sum(line, True)
            return order.gather(line, ((present - 1) // 2).maximum(0))

        return self._chosen(axis, middle, keepdim)

    def mode(self, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
        """(values, indices) of the most frequent element of an axis, the least of several.

        >>> values, indices = hcq.tensor([2, 1, 2, 1, 3]).mode()
        >>> values.item()
        1
        """
        axis = self._axis("mode", dim)

        def frequent(line: int, order: Any) -> Any:
            values = self._line_of().detach().gather(line, order).movedim(line, -1)
            equal = values.unsqueeze(-1) == values.unsqueeze(-2)
            if self.node.dtype.is_float:
                equal = equal | (values.unsqueeze(-1).isnan() & values.unsqueeze(-2).isnan())
            most = equal.sum(-1).argmax(-1, True).movedim(-1, line)
            return order.gather(line, most)

        return self._chosen(axis, frequent, keepdim)

    def _of_equals(self, value: Self) -> Self:
        """One of all elements, whose gradient those that are equal to it share."""
        if not self.node.dtype.is_float:
            return value
        return self._like(EQUALS.of(value.node, self.node))

    def _line_of(self) -> Self:
        """Itself with one axis at least."""
        return self if self.node.shape else self._reshape((1,))

    def _chosen(self, axis: int, choose: Callable[[int, Any], Any], keepdim: bool) -> ValuesIndices:
        """One element of an axis, which `choose` picks of the indices that sort it."""
        x = self._line_of()
        index: Self = choose(axis, x.argsort(axis))
        values = x.gather(axis, index)
        if not self.node.shape:
            return ValuesIndices(values._reshape(()), index._reshape(()))
        if keepdim:
            return ValuesIndices(values, index)
        shape = x.node.shape[:axis] + x.node.shape[axis + 1 :]
        return ValuesIndices(values._reshape(shape), index._reshape(shape))

    def quantile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Self:
        """The value below which a share q, 0 to 1, of the elements lies; of a vector of shares one each, in front.

        interpolation   between two elements: "linear", "lower", "higher", "midpoint" or "nearest"

        >>> Tensor([1.0, 2.0, 3.0, 4.0]).quantile(0.5).item()
        2.5
        """
        return self._quantile("quantile", q, dim, keepdim, interpolation)

    def nanquantile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Self:
        """`quantile` of the elements that are not NaN.

        >>> Tensor([1.0, float("nan"), 3.0]).nanquantile(0.5).item()
        2.0
        """
        return self._quantile("nanquantile", q, dim, keepdim, interpolation)

    @in_float_together
    def _quantile(self, call: str, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Self:
        if interpolation not in INTERPOLATIONS:
            raise UsageError(f"[{call}] interpolation={interpolation!r} is unknown. Use {INTERPOLATIONS}.")
        if not self.node.dtype.is_float:
            raise UsageError(f"[{call}] {self.node.dtype.name} has no fractions. Cast first: x.float().")
        shares = self._operand(call, q).cast(self.node.dtype)
        if len(shares.node.shape) > 1:
            raise UsageError(f"[{call}] q of shape {shares.node.shape}: give a number or a vector.")
        rank = len(self.node.shape)
        axis = 0 if dim is None else self._axis(call, dim)
        x = self.flatten() if dim is None else self._line_of()
        x._not_empty(call, (axis,))
        lines = x.movedim(axis, -1)
        order = lines.sort(-1).values
        size = lines.node.shape[-1]
        many = shares._reshape((shares.numel(),))
        if call == "nanquantile":
            last = (~lines.isnan()).sum(-1, True).cast(self.node.dtype) - 1
            position = (last * many).maximum(0.0)
        else:
            position = (many * (size - 1)).expand((*lines.node.shape[:-1], many.numel()))
            position = lines.isnan().any(-1, True).where(size - 1, position)
        if interpolation == "nearest":
            position = position.round()
        below = position.floor() if interpolation != "higher" else position.ceil()
        low = order.gather(-1, below.cast(dtypes.int64))
        if interpolation in ("linear", "midpoint"):
            high = order.gather(-1, position.ceil().cast(dtypes.int64))
            weight = position - below if interpolation == "linear" else 0.5
            low = low + (high - low) * weight
        result = low.movedim(-1, 0)  # (shares, *rest)
        if keepdim:
            shape = tuple(
                [1] * rank if dim is None else [1 if a == axis else n for a, n in enumerate(self.node.shape)]
            )
            result = result._reshape((many.numel(), *shape))
        return result if shares.node.shape else result._reshape(result.node.shape[1:])

    # -- without NaN --

    def nansum(self, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Self:
        """The sum of the elements that are not NaN; see `sum`.

        >>> Tensor([1.0, float("nan"), 3.0]).nansum().item(), Tensor([float("nan")]).nansum().item()
        (4.0, 0.0)
        """
        return self._zero_for_nan().sum(dim, keepdim, dtype)

    def nanmean(self, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Self:
        """The average of the elements that are not NaN; NaN where there is none. See `mean`.

        >>> Tensor([1.0, float("nan"), 3.0]).nanmean().item()
        2.0
        """
        x = self if dtype is None else self.cast(dtype)
        if not x.node.dtype.is_float:
            return x.mean(dim, keepdim)
        total = widened(x).nansum(dim, keepdim) / (~x.isnan()).sum(dim, keepdim)
        return rounded(total, x.node.dtype)  # type: ignore[no-any-return]

    def _zero_for_nan(self) -> Self:
        return self.isnan().where(0.0, self) if self.node.dtype.is_float else self

    def aminmax(self, dim: int | None = None, keepdim: bool = False) -> MinMax:
        """(min, max) of all elements, or along an axis.

        >>> found = hcq.tensor([3, 1, 4]).aminmax()
        >>> found.min.item(), found.max.item()
        (1, 4)
        """
        return MinMax(self.amin(dim, keepdim), self.amax(dim, keepdim))

    # -- neighbours --

    def diff(
        self, n: int = 1, dim: int = -1, prepend: Self | None = None, append: Self | None = None
    ) -> Self:
        """The difference of each element and the one before, n times; bools differ where they are unequal.

        >>> hcq.tensor([1, 4, 9]).diff().tolist()
        [3, 5]
        """
        axis = self._axis_of("diff", dim)
        if n < 0:
            raise UsageError(f"[diff] n={n}: use 0 or more.")
        x = self
        if prepend is not None or append is not None:
            around = [part for part in (prepend, self, append) if part is not None]
            x = type(self).cat(around, dim=axis)
        for _ in range(min(n, x.node.shape[axis])):
            size = x.node.shape[axis]
            late, early = x._part(axis, min(1, size), size), x._part(axis, 0, max(0, size - 1))
            x = late ^ early if x.node.dtype.is_bool else late - early
        return x

    @in_float_together
    def trapezoid(self, x: Self | None = None, dx: float | None = None, dim: int = -1) -> Self:
        """The area below points along an axis: at the places x, or dx apart, which is 1 unless given.

        >>> Tensor([1.0, 2.0, 3.0]).trapezoid().item(), Tensor([1.0, 2.0]).trapezoid(Tensor([0.0, 10.0])).item()
        (4.0, 15.0)
        """
        axis = self._axis_of("trapezoid", dim)
        return self._areas("trapezoid", x, dx, axis).sum(axis)

    trapz = trapezoid

    @in_float_together
    def cumulative_trapezoid(self, x: Self | None = None, dx: float | None = None, dim: int = -1) -> Self:
        """The running area below points along an axis, which is one shorter then; see `trapezoid`.

        >>> Tensor([1.0, 2.0, 3.0]).cumulative_trapezoid().tolist()
        [1.5, 4.0]
        """
        axis = self._axis_of("cumulative_trapezoid", dim)
        return self._areas("cumulative_trapezoid", x, dx, axis).cumsum(axis)

    def _areas(self, call: str, x: Any, dx: float | None, axis: int) -> Self:
        y, size = self, self.node.shape[axis]
        if y.node.dtype.is_bool:
            y = y.cast(dtypes.int64)
        heights = y._part(axis, min(1, size), size) + y._part(axis, 0, max(0, size - 1))
        if not isinstance(x, Core):
            width: Any = 1.0 if x is None and dx is None else dx if x is None else x
            return heights * (width / 2.0)
        if len(x.node.shape) == 1:
            shape = tuple([x.node.shape[0] if a == axis else 1 for a in range(len(self.node.shape))])
            x = x._reshape(shape)  # type: ignore[attr-defined]
        line = axis - len(self.node.shape)
        gaps = x.diff(1, line)  # type: ignore[attr-defined]
        return heights * gaps / 2.0  # type: ignore[no-any-return]

    # -- matrices of observations --

    def trace(self) -> Self:
        """The sum of a matrix's diagonal.

        >>> hcq.tensor([[1, 2], [3, 4]]).trace().item()
        5
        """
        if len(self.node.shape) != 2:
            raise UsageError(f"[trace] shape {self.node.shape}: give a matrix.")
        return self.diagonal().sum()

    @in_float_together
    def cov(self, correction: int = 1, fweights: Self | None = None, aweights: Self | None = None) -> Self:
        """Covariances of the rows of a matrix, whose columns are observations; of a vector its variance.

        fweights   how often each column counts, aweights  how much

        >>> Tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]).cov().tolist(), Tensor([1.0, 3.0]).cov().item()
        ([[1.0, -1.0], [-1.0, 1.0]], 2.0)
        """
        x = self._float()
        if len(x.node.shape) > 2:
            raise UsageError(f"[cov] shape {self.node.shape}: give a matrix or a vector.")
        x._refuse_cut("cov", len(x.node.shape) - 1)
        rows = x if len(x.node.shape) == 2 else x._reshape((1, x.numel()))
        weights = None
        for given in (fweights, aweights):
            if given is not None:
                line = given.cast(x.node.dtype)
                weights = line if weights is None else weights * line
        if weights is None:
            total: Any = float(rows.node.shape[1])
            mean = rows.sum(1, True) / total
            left = rows - mean
        else:
            total = weights.sum()
            mean = (rows * weights).sum(1, True) / total
            left = (rows - mean) * weights
        if aweights is not None and correction:
            spread = aweights.cast(x.node.dtype)
            both = spread if fweights is None else fweights.cast(x.node.dtype) * spread
            norm = total - correction * (both * spread).sum() / total
        else:
            norm = total - correction
        norm = max(0.0, norm) if isinstance(norm, float) else norm.maximum(0.0)
        result = left.matmul((rows - mean).mT) / norm
        return result.squeeze()

    @in_float_together
    def corrcoef(self) -> Self:
        """Correlations of the rows of a matrix, -1 to 1: covariances over both deviations.

        >>> print(Tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]).corrcoef())
        tensor([[ 1., -1.],
                [-1.,  1.]])
        """
        c = self.cov()
        if not c.node.shape:
            return c / c
        deviation = c.diagonal().sqrt()
        return (c / deviation.unsqueeze(1) / deviation.unsqueeze(0)).clamp(-1.0, 1.0)

    @in_float_together
    def dist(self, other: Self, p: float = 2.0) -> Self:
        """The norm of the difference; see `norm`.

        >>> Tensor([0.0, 0.0]).dist(Tensor([3.0, 4.0])).item()
        5.0
        """
        return (self - other).norm(p)

    @in_float_together
    def renorm(self, p: float, dim: int, maxnorm: float) -> Self:
        """Slices along an axis made shorter to maxnorm, where their norm is greater.

        >>> print(Tensor([[3.0, 4.0], [0.3, 0.4]]).renorm(2, 0, 1.0))
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
        """
        axis = self._axis_of("renorm", dim)
        rest = tuple([a for a in range(len(self.node.shape)) if a != axis])
        size = self.norm(p, rest, keepdim=True)
        is_long = size > maxnorm
        return is_long.where(self * ((is_long.where(size, 1.0) + 1e-7)._divide(maxnorm, reverse=True)), self)


def _slope_of_equals(node: Node, g: Node) -> Node:
    """The same to each element that is the value, or NaN if that is."""
    x = node.src[1]
    one = expanded(reshaped(node, (1,) * len(x.shape)), x.shape)
    is_value = either(x.eq(one), both(x.ne(x), one.ne(one)))
    wide = dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32
    count = reduced(Op.ADD, is_value.cast(wide), tuple(range(len(x.shape))))
    share = divided(g.cast(wide), reshaped(count, ()) if x.shape else count).cast(g.dtype)
    return is_value.where(expanded(reshaped(share, (1,) * len(x.shape)), x.shape), 0.0)


EQUALS = Function("equals", _slope_of_equals)
