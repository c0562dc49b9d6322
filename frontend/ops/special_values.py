"""Special values: erfc, erfinv and the normal distribution, gamma's logarithm and its derivatives, Bessel's I.

In       tensors
Out      lazy tensors, elementwise; integers become float32
Next     special/normal.py and special/gamma.py (how they are computed, and how exactly), activation.py (erf)

The gamma and Bessel functions are computed in float64 and rounded once, so a device without it refuses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.base import Methods, Self, in_float, meet_in_float
from hcq.frontend.special import gamma, normal
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node

MOST = 100  # derivatives, and terms of mvlgamma


class SpecialValues(Methods):
    """erfc, erfcx, erfinv, ndtr, ndtri, log_ndtr, lgamma, digamma, polygamma, mvlgamma, igamma, igammac, i0, ..."""

    __slots__ = ()

    def erfc(self) -> Self:
        """1 - erf(x), precise where that is small.

        >>> Tensor([0.0, 30.0]).erfc().tolist()
        [1.0, 0.0]
        """
        return self._in_float(normal.erfc)

    def erfcx(self) -> Self:
        """exp(x * x) * erfc(x), which does not vanish for large x.

        >>> print(hcq.torch.special.erfcx(Tensor([0.0, 30.0])))
        tensor([1.0000, 0.0188])
        """
        return self._in_float(normal.erfcx)

    def erfinv(self) -> Self:
        """The number whose erf is x; infinite at 1 and -1, NaN beyond.

        >>> print(Tensor([0.0, 0.5, 1.0, 2.0]).erfinv())
        tensor([0.0000, 0.4769,    inf,    nan])
        """
        return self._in_float(normal.erfinv)

    @in_float
    def ndtr(self) -> Self:
        """The share of a normal distribution below x: erfc(-x / sqrt(2)) / 2.

        >>> print(hcq.torch.special.ndtr(Tensor([0.0, 1.96])))
        tensor([0.5000, 0.9750])
        """
        return (self * -math.sqrt(0.5)).erfc() * 0.5

    @in_float
    def log_ndtr(self) -> Self:
        """log(ndtr(x)), precise where that share vanishes.

        >>> print(hcq.torch.special.log_ndtr(Tensor([0.0, -10.0])))
        tensor([ -0.6931, -53.2313])
        """
        t = self * math.sqrt(0.5)
        is_low = self < -1.0
        low = (-is_low.where(t, -1.0)).erfcx().log() - is_low.where(t, 0.0).square() - math.log(2.0)
        return is_low.where(low, (is_low.where(0.0, t).erfc() * -0.5).log1p())

    @in_float
    def ndtri(self) -> Self:
        """The number below which a share x of a normal distribution lies; NaN outside of 0 to 1.

        >>> print(hcq.torch.special.ndtri(Tensor([0.5, 0.975, 1.0])))
        tensor([0.0000, 1.9600,    inf])
        """
        wide = self.cast(dtypes.float64)
        return ((wide * 2.0 - 1.0).erfinv() * math.sqrt(2.0)).cast(self.node.dtype)

    def _in_double(self, of: Callable[[Node], Node]) -> Self:
        """A function of float64 nodes, rounded to the tensor's own format, or float32, at the end."""
        have = self.node.dtype if self.node.dtype.is_float else dtypes.float32
        return self._like(of(self.node.cast(dtypes.float64)).cast(have))

    def lgamma(self) -> Self:
        """log(|gamma(x)|); infinite at 0, -1, -2, ...

        >>> Tensor([1.0, 5.0]).lgamma().exp().round().tolist()
        [1.0, 24.0]
        """
        return self._in_double(gamma.lgamma)

    def digamma(self) -> Self:
        """The slope of lgamma.

        >>> print(Tensor([1.0, 2.0]).digamma())
        tensor([-0.5772,  0.4228])
        """
        return self._in_double(gamma.digamma)

    def polygamma(order: Any, x: Any) -> Any:
        """The n-th derivative of digamma: `hcq.polygamma(n, x)`, or `x.polygamma(n)`; 0 is digamma itself.

        >>> print(hcq.polygamma(1, Tensor([1.0])))
        tensor([1.6449])
        """
        if isinstance(order, Methods):
            order, x = x, order
        if not isinstance(order, int) or not 0 <= order <= MOST:
            raise UsageError(f"[polygamma] n={shown(order)}: give a whole number, 0 to {MOST}.")
        if order == 0:
            return x.digamma()
        return x._in_double(lambda node: gamma.polygamma(order, node))

    @in_float
    def mvlgamma(self, p: int) -> Self:
        """The multivariate lgamma: the sum of lgamma(x - k / 2) for k = 0 .. p - 1, and p (p - 1) / 4 * log(pi).

        >>> print(Tensor([3.0]).mvlgamma(2))
        tensor([1.5502])
        """
        if not 1 <= p <= MOST:
            raise UsageError(f"[mvlgamma] p={p}: use 1 to {MOST}.")
        x = self._float()
        total = x.lgamma()
        for k in range(1, p):
            total = total + (x - k / 2.0).lgamma()
        return total + p * (p - 1) / 4.0 * math.log(math.pi)

    def i0(self) -> Self:
        """The modified Bessel function of the first kind, of order 0.

        >>> print(Tensor([0.0, 1.0]).i0())
        tensor([1.0000, 1.2661])
        """
        return self._in_double(lambda x: gamma.bessel_i(0, x, False))

    def i0e(self) -> Self:
        """i0(x) * exp(-|x|).

        >>> print(hcq.torch.special.i0e(Tensor([0.0, 100.0])))
        tensor([1.0000, 0.0399])
        """
        return self._in_double(lambda x: gamma.bessel_i(0, x, True))

    def i1(self) -> Self:
        """The modified Bessel function of the first kind, of order 1.

        >>> print(hcq.torch.special.i1(Tensor([0.0, -1.0])))
        tensor([ 0.0000, -0.5652])
        """
        return self._in_double(lambda x: gamma.bessel_i(1, x, False))

    def i1e(self) -> Self:
        """i1(x) * exp(-|x|).

        >>> print(hcq.torch.special.i1e(Tensor([0.0, 100.0])))
        tensor([0.0000, 0.0397])
        """
        return self._in_double(lambda x: gamma.bessel_i(1, x, True))

    def igamma(self, other: Any) -> Self:
        """The share of gamma(self) that lies below `other`: the lower incomplete gamma function, regularized.

        Gradients pass to `other` alone.

        >>> round(Tensor([2.0]).igamma(Tensor([3.0])).item(), 5)
        0.80085
        """
        return self._incomplete("igamma", other, 0)

    def igammac(self, other: Any) -> Self:
        """The share of gamma(self) that lies above `other`: 1 - igamma, precise where that is small.

        >>> print(Tensor([1.0]).igammac(Tensor([20.0])))
        tensor([2.0612e-09])
        """
        return self._incomplete("igammac", other, 1)

    def _incomplete(self, call: str, other: Any, part: int) -> Self:
        from hcq.frontend.special import incomplete as special_incomplete

        node, limit, have = meet_in_float(call, self, other)
        a, x = (self._like(each.cast(dtypes.float64)) for each in (node, limit))
        shape = x.node.shape or a.node.shape
        a, x = a.expand(shape), x.expand(shape)
        value = special_incomplete.shares(a, x)[part]
        function = (special_incomplete.LOWER, special_incomplete.UPPER)[part]
        return self._like(function.of(value.node, a.node, x.node).cast(have))
