"""Logarithms: sums in logarithms, products with a logarithm that know zero, powers in float64.

In       tensors and Python numbers
Out      lazy tensors, elementwise; integers become float32, narrow floats are rounded once, at the end
Next     functions.py (log, exp), power.py (the ** operator), reduction.py (logsumexp)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.frontend.core.nodes import absolute, divided, either, exponential, logarithm, minus, negated
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.base import Methods, Self, in_float, meet_in_float
from hcq.frontend.special.elementary import log1p, sigmoid
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const


class Logarithms(Methods):
    """logaddexp, logaddexp2, logit, xlogy, xlog1py, entr, float_power."""

    __slots__ = ()

    def logaddexp(self, other: Any) -> Self:
        """log(exp(self) + exp(other)), without overflow. Shapes broadcast.

        >>> Tensor([1000.0]).logaddexp(1000.0).item()
        1000.6931762695312
        """
        x, y, have = meet_in_float("logaddexp", self, other)
        return self._like(_log_of_sum(x, y).cast(have))

    def logaddexp2(self, other: Any) -> Self:
        """log2(2 ** self + 2 ** other), without overflow. Shapes broadcast.

        >>> Tensor([1000.0]).logaddexp2(Tensor([1000.0])).tolist()
        [1001.0]
        """
        x, y, have = meet_in_float("logaddexp2", self, other)
        total = _log_of_sum(x * math.log(2.0), y * math.log(2.0)) * (1.0 / math.log(2.0))
        return self._like(total.cast(have))

    @in_float
    @in_float
    def logit(self, eps: float | None = None) -> Self:
        """log(x / (1 - x)), the inverse of sigmoid; NaN beyond 0 and 1, unless `eps` holds x eps away from them.

        >>> Tensor([0.5, 1.0, 2.0]).logit().tolist()
        [0.0, inf, nan]
        """
        x = self if eps is None else self.clamp(eps, 1.0 - eps)
        node = x.node
        return x._like(LOGIT.of(logarithm(divided(node, negated(node) + 1.0)), node))

    def xlogy(self, other: Any) -> Self:
        """self * log(other), and 0 where self is 0, unless the other is NaN. Shapes broadcast.

        >>> Tensor([0.0, 2.0]).xlogy(Tensor([0.0, 1.0])).tolist()
        [0.0, 0.0]
        """
        x, y, have = meet_in_float("xlogy", self, other)
        value = _zero_times(x, y, x * logarithm(y))
        return self._like(XLOGY.of(value, x, y).cast(have))

    def xlog1py(self, other: Any) -> Self:
        """self * log(1 + other), and 0 where self is 0, unless the other is NaN. Shapes broadcast.

        >>> Tensor([0.0]).xlog1py(Tensor([-1.0])).tolist()
        [0.0]
        """
        x, y, have = meet_in_float("xlog1py", self, other)
        value = _zero_times(x, y, x * log1p(y))
        return self._like(XLOG1PY.of(value, x, y).cast(have))

    @in_float
    def entr(self) -> Self:
        """-x * log(x): 0 at zero, -inf below.

        >>> Tensor([-1.0, 0.0, 1.0]).entr().abs().tolist()
        [inf, 0.0, 0.0]
        """
        x = self.node
        value = (x > 0.0).where(negated(x) * logarithm(x), const(-math.inf, x.dtype))
        value = x.eq(0.0).where(const(0.0, x.dtype), value)
        return self._like(ENTR.of(x.ne(x).where(x, value), x))

    def float_power(self, exponent: Any) -> Self:
        """self ** exponent, computed in float64, which the result has.

        >>> hcq.tensor([2, 3]).float_power(2).tolist(), hcq.tensor([2, 3]).float_power(2).dtype
        ([4.0, 9.0], dtypes.float64)
        """
        if not isinstance(exponent, (bool, int, float)):
            exponent = self._operand("float_power", exponent).cast(dtypes.float64)
        else:
            exponent = float(exponent)
        return self.cast(dtypes.float64) ** exponent


def _log_of_sum(x: Node, y: Node) -> Node:
    """max + log(1 + exp(-|x - y|)); equal infinities stay."""
    top = (x < y).where(y, x)
    is_equal = x.eq(y)
    apart = is_equal.where(const(0.0, x.dtype), absolute(minus(x, y)))
    is_infinite = either(top.eq(math.inf), top.eq(-math.inf))
    value = is_infinite.where(top, top + log1p(exponential(negated(apart))))
    value = either(x.ne(x), y.ne(y)).where(const(math.nan, x.dtype), value)
    return LOGADDEXP.of(value, x, y)


def _zero_times(x: Node, y: Node, product: Node) -> Node:
    """The product, but 0 where x is 0, and NaN where y is."""
    value = x.eq(0.0).where(const(0.0, x.dtype), product)
    return y.ne(y).where(y, value)


# -- derivatives ----------------------------------------------------------------------------------------------------


def _share(mine: int, other: int) -> Any:
    """exp(mine) over the sum of both; a half each where they are equal, infinite ones too."""

    def rule(node: Node, g: Node) -> Node:
        x, y = node.src[mine], node.src[other]
        apart = x.eq(y).where(const(0.0, x.dtype), minus(x, y))
        return g * sigmoid(apart)

    return rule


def _slope_of_logit(node: Node, g: Node) -> Node:
    x = node.src[1]
    return divided(g, x * (negated(x) + 1.0))


def _slope_of_factor(node: Node, g: Node) -> Node:
    """log(y); 0 where x and y are 0."""
    _, x, y = node.src
    is_flat = x.eq(0.0)
    is_flat = is_flat.where(y <= 0.0, const(False, dtypes.bool))
    return is_flat.where(const(0.0, g.dtype), g * logarithm(y))


def _slope_of_logarithm(node: Node, g: Node) -> Node:
    _, x, y = node.src
    return g * divided(x, y)


def _slope_of_factor1p(node: Node, g: Node) -> Node:
    _, x, y = node.src
    is_flat = x.eq(0.0)
    is_flat = is_flat.where(y <= -1.0, const(False, dtypes.bool))
    return is_flat.where(const(0.0, g.dtype), g * log1p(y))


def _slope_of_logarithm1p(node: Node, g: Node) -> Node:
    _, x, y = node.src
    return g * divided(x, y + 1.0)


def _slope_of_entr(node: Node, g: Node) -> Node:
    return g * minus(const(-1.0, g.dtype), logarithm(node.src[1]))


LOGADDEXP = Function("logaddexp", _share(1, 2), _share(2, 1))
LOGIT = Function("logit", _slope_of_logit)
XLOGY = Function("xlogy", _slope_of_factor, _slope_of_logarithm)
XLOG1PY = Function("xlog1py", _slope_of_factor1p, _slope_of_logarithm1p)
ENTR = Function("entr", _slope_of_entr)
