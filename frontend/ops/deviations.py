"""Deviations: variances, norms, and the logarithm of a sum of exponentials.

In       tensors and axes
Out      lazy tensors around REDUCE_AXIS; the reduced axes go away unless keepdim
Next     reduction.py (sums and means), statistics.py (medians, quantiles)

The value of a reduction whose derivative is a rule of its own keeps its axes, with size 1.
"""

from __future__ import annotations

import math

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import absolute, divided, expanded, exponential, minus, negated, reduced
from hcq.frontend.core.sizes import number_of
from hcq.frontend.grad.function import Function, constant_in
from hcq.frontend.ops.base import Axes, Methods, Self, in_float_together, reduced_axes
from hcq.ir.dtype import DType, dtypes
from hcq.ir.elementwise.declaration import FLAT
from hcq.ir.node import Node, const
from hcq.ir.op import Op


class Deviations(Methods):
    """var, std, norm, logsumexp."""

    __slots__ = ()

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


def _distance(x: Node, axes: tuple[int, ...]) -> Node:
    """How far each element is from the mean."""
    if not axes:
        return minus(x, x)
    count = number_of(x, axes, x.dtype)
    mean = divided(reduced(Op.ADD, x, axes), count if isinstance(count, Node) else const(count, x.dtype))
    return x + expanded(negated(mean), x.shape)


def _slope_of_variance(node: Node, g: Node) -> Node:
    """2 (x - mean) / divisor. That the mean moves, too, adds nothing: the distances from it sum to zero."""
    _, x, divisor = node.src
    distance = _distance(x, reduced_axes(node))
    return divided(distance * expanded(g, x.shape) * 2.0, divisor)


def _slope_of_logsumexp(node: Node, g: Node) -> Node:
    """exp(x) over the sum of all; in a row with an infinity 0, but for the infinity itself."""
    x, axes = node.src[1], reduced_axes(node)
    top = reduced(Op.MAX, x, axes)
    top = Node(Op.DETACH, top.dtype, (top,))
    offset = (absolute(top) < math.inf).where(top, 0.0)
    sizes = exponential(x + expanded(negated(offset), x.shape))
    share = divided(sizes, expanded(reduced(Op.ADD, sizes, axes), x.shape))
    at_infinity = x.eq(math.inf).where(const(math.nan, x.dtype), 0.0)
    share = expanded(top.eq(math.inf), x.shape).where(at_infinity, share)
    return share * expanded(g, x.shape)


VARIANCE = Function("variance", _slope_of_variance, FLAT)
LOGSUMEXP = Function("logsumexp", _slope_of_logsumexp)
