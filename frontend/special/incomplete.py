"""The incomplete gamma functions, regularized: the share of gamma(a) that lies below x, or above it.

In       tensors of float64 in one shape
Out      tensors of a sum over 64 points of Gauss and Legendre, or of a power series; a slope along x of its own
Next     ops/special_values.py (igamma, igammac), gamma.py (gamma's logarithm)

With t = x * exp(v) the integrand is exp(h(v)), and h falls from v = 0 on if the part taken is the one without the
summit: below x where x < a, above it elsewhere. h is concave, so that an interval is known beyond which less than
exp(-40) is left, and 64 points are enough on it for about 1e-13. Where x is small, it is a power series. The other part
is the rest of 1.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import divided, exponential, logarithm, minus, negated
from hcq.frontend.grad.function import Function
from hcq.frontend.special.gamma import STIRLING, lgamma
from hcq.ir.node import Node, const

POINTS = 64
SMALL = 1.5  # below it the power series is used
LARGE = 10.0  # from this a on, Stirling's series is used
REST = 40.0


@cache
def gauss_legendre(count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Points of 0 .. 1 and their weights: the zeros of Legendre's polynomial, by Newton's steps."""
    points, weights = [], []
    for k in range(count):
        x = math.cos(math.pi * (k + 0.75) / (count + 0.5))
        slope = 1.0
        for _ in range(8):
            older, newer = 1.0, x
            for n in range(2, count + 1):
                older, newer = newer, ((2 * n - 1) * x * newer - (n - 1) * older) / n
            slope = count * (x * newer - older) / (x * x - 1.0)
            x -= newer / slope
        points.append(0.5 * (1.0 + x))
        weights.append(1.0 / ((1.0 - x * x) * slope * slope))
    return tuple(points), tuple(weights)


def _density(a: Node, x: Node) -> Node:
    """x ** a * exp(-x) / gamma(a), which does not lose digits where a is large."""
    is_large = a >= LARGE
    low = is_large.where(const(LARGE, a.dtype), a)
    small = exponential(minus(minus(low * logarithm(x), x), lgamma(low)))
    high = is_large.where(a, const(LARGE, a.dtype))
    apart = divided(minus(x, high), high)
    inverse = divided(const(1.0, a.dtype), high)
    square, tail = inverse * inverse, inverse * 0.0
    for factor in reversed(STIRLING):
        tail = tail * square + factor
    exponent = minus(negated(high) * _beside_logarithm(apart), tail * inverse)
    exponent = exponent + logarithm(high) * 0.5 + -0.5 * math.log(2.0 * math.pi)
    return is_large.where(exponential(exponent), small)


def _beside_logarithm(u: Node) -> Node:
    """u - log(1 + u)."""
    from hcq.frontend.special.elementary import log1p

    return minus(u, log1p(u))


def shares(a: Any, x: Any) -> tuple[Any, Any]:
    """(P, Q) of tensors of float64 in one shape: what lies below x, and above."""
    inside = (a > 0.0) & (x > 0.0) & a.isfinite() & x.isfinite()
    a1, x1 = inside.where(a, 1.0), inside.where(x, 1.0)
    density = x1._like(_density(a1.node, x1.node))
    is_small, is_below = x1 < SMALL, x1 < a1
    xs, xl = is_small.where(x1, 1.0), is_small.where(SMALL, x1)

    total, power = a1 * 0.0, a1 * 0.0 + 1.0
    for k in range(28):
        total = total + power / (a1 + k)
        power = power * xs * (-1.0 / (k + 1))
    series = density * xs.exp() * total

    gap = (a1 - xl).abs().maximum(1e-300)
    reach = 2.0 * REST / xl
    above = (reach >= 2.6).where(reach.log1p(), reach.sqrt())
    below = (reach <= 0.73).where((1.5 * reach).sqrt(), reach * 1.36)
    end = is_below.where(below, above).minimum(REST / gap)
    points, weights = (type(x)(list(part), device=x.device, dtype=x.dtype) for part in gauss_legendre(POINTS))
    v = end.unsqueeze(-1) * points
    sign = is_below.where(-1.0, 1.0).unsqueeze(-1) * v
    height = a1.unsqueeze(-1) * sign - xl.unsqueeze(-1) * sign.expm1()
    integral = density * end * (height.exp() * weights).sum(-1)

    p = is_small.where(series, is_below.where(integral, 1.0 - integral)).minimum(1.0)
    q = (is_small | is_below).where(1.0 - p, integral)
    p, q = inside.where(p, 0.0), inside.where(q, 1.0)
    nan, inf = math.nan, math.inf
    is_all = ((a == 0.0) & (x > 0.0)) | ((x == inf) & (a < inf))
    p, q = is_all.where(1.0, p), is_all.where(0.0, q)
    is_none = ~((a >= 0.0) & (x >= 0.0)) | ((a == 0.0) & (x == 0.0)) | ((a == inf) & (x == inf))
    return is_none.where(nan, p), is_none.where(nan, q)


def _no_slope_of_a(node: Node, g: Node) -> Node:
    raise UsageError("[igamma] has no derivative along a, its first argument: take a.detach().")


def _slope_of_x(sign: float) -> Any:
    """The density of gamma: exp((a - 1) log(x) - x) / gamma(a)."""

    def rule(node: Node, g: Node) -> Node:
        _, a, x = node.src
        return g * divided(_density(a, x), x) * sign

    return rule


LOWER = Function("igamma", _no_slope_of_a, _slope_of_x(1.0))
UPPER = Function("igammac", _no_slope_of_a, _slope_of_x(-1.0))
