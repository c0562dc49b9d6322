"""Bessel's functions of order 0 and 1, J, Y and K, and Airy's Ai, as graphs of a node of float64.

In       a node of float64
Out      a FUNCTION node: Chebyshev series, logarithms and roots; its slope is the next Bessel function
Next     bessel_series.py (the coefficients), gamma.py (I), functions/special.py (the functions)

J and Y are series in x * x up to 8, and beyond it amplitude and phase: two series in 1 / x beside sine and cosine. K
is its power series up to 2, and exp(-x) / sqrt(x) times a series in 1 / x beyond. Ai is a series from -4 to 2, and
amplitude, phase and decay outside. Up to 1000 all are within 5e-14 of the greatest value around; J, Y and Ai cross
zero, so that next to a zero fewer digits are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import absolute, divided, exponential, logarithm, minus, negated, reciprocal
from hcq.frontend.grad.function import Function
from hcq.frontend.special import bessel_series as series
from hcq.frontend.special.elementary import root
from hcq.frontend.special.gamma import bessel_i, over_x
from hcq.ir.node import Node, const
from hcq.ir.op import Op


def chebyshev(x: Node, coefficients: Sequence[float], low: float, high: float) -> Node:
    """The sum of Chebyshev polynomials over low .. high, by Clenshaw's recurrence."""
    u = x * (2.0 / (high - low)) + (-(high + low) / (high - low))
    double = u + u
    *rest, last = coefficients
    newest, older = u * 0.0 + last, u * 0.0
    for coefficient in reversed(rest[1:]):
        newest, older = minus(double * newest, older) + coefficient, newest
    return minus(u * newest, older) + rest[0]


def _number(value: float, x: Node) -> Node:
    return const(value, x.dtype)


def _sin(x: Node) -> Node:
    return Node(Op.SIN, x.dtype, (x,))


def _cos(x: Node) -> Node:
    return Node(Op.COS, x.dtype, (x,))


# -- J and Y ----------------------------------------------------------------------------------------------------------


def _far(order: int, size: Node, is_second: bool) -> Node:
    """J, or Y, from 8 on: cos(x - s) is cos(x) cos(s) + sin(x) sin(s), where s is pi / 4, or 3 pi / 4."""
    z = divided(_number(64.0, size), size * size)
    p = chebyshev(z, (series.P0, series.P1)[order], 0.0, 1.0)
    q = divided(chebyshev(z, (series.Q0, series.Q1)[order], 0.0, 1.0), size)
    sine, cosine = _sin(size), _cos(size)
    along = minus(sine, cosine) if order else sine + cosine  # cos(x - s) * sqrt(2)
    across = negated(sine + cosine) if order else minus(sine, cosine)  # sin(x - s) * sqrt(2)
    wave = p * across + q * along if is_second else minus(p * along, q * across)
    return size.eq(math.inf).where(_number(0.0, size), divided(wave, root(size * math.pi)))


def bessel_j(order: int, x: Node) -> Node:
    """The Bessel function of the first kind, of order 0 or 1."""
    size = absolute(x)
    is_near = size <= 8.0
    inside = is_near.where(size, _number(8.0, x))
    near = chebyshev(inside * inside, (series.J0, series.J1)[order], 0.0, 64.0)
    far = _far(order, is_near.where(_number(8.0, x), size), False)
    if order:
        near, far = near * x, (x < 0.0).where(negated(far), far)
    return _function(f"bessel_j{order}").of(is_near.where(near, far), x)


def bessel_y(order: int, x: Node) -> Node:
    """The Bessel function of the second kind, of order 0 or 1: -inf at zero, NaN below."""
    is_near = x <= 8.0
    inside = is_near.where((x > 0.0).where(x, _number(1.0, x)), _number(8.0, x))
    square, log = inside * inside, logarithm(inside * 0.5) * (2.0 / math.pi)
    first = chebyshev(square, (series.J0, series.J1)[order], 0.0, 64.0)
    near = chebyshev(square, (series.Y0, series.Y1)[order], 0.0, 64.0) + log * first
    if order:
        near = minus(near * inside, reciprocal(inside) * (2.0 / math.pi))
    value = is_near.where(near, _far(order, is_near.where(_number(8.0, x), x), True))
    value = x.eq(0.0).where(_number(-math.inf, x), value)
    value = (x < 0.0).where(_number(math.nan, x), value)
    return _function(f"bessel_y{order}").of(value, x)


# -- K ----------------------------------------------------------------------------------------------------------------


@cache
def _power_series_of_k(order: int) -> tuple[float, ...]:
    """The factors of (x * x / 4) ** k in K + log(x / 2) * I: sums of 1 / n, over factorials."""
    gamma = Fraction("0.57721566490153286060651209008240243104215933593992")
    found, harmonic = [], Fraction(0)
    for k in range(14):
        if order == 0:  # (1 + 1/2 + ... + 1/k - gamma) / (k!) ** 2
            found.append(float((harmonic - gamma) / math.factorial(k) ** 2))
        else:  # -(psi(k + 1) + psi(k + 2)) / (4 k! (k + 1)!), of x
            both = 2 * harmonic - 2 * gamma + Fraction(1, k + 1)
            found.append(float(-both / (4 * math.factorial(k) * math.factorial(k + 1))))
        harmonic += Fraction(1, k + 1)
    return tuple(found)


def bessel_k(order: int, x: Node, is_scaled: bool) -> Node:
    """The modified Bessel function of the second kind, of order 0 or 1, times exp(x) if scaled: inf at 0, NaN below."""
    is_near = x <= 2.0
    inside = is_near.where((x > 0.0).where(x, _number(1.0, x)), _number(2.0, x))
    quarter = inside * inside * 0.25
    near = quarter * 0.0
    for factor in reversed(_power_series_of_k(order)):
        near = near * quarter + factor
    log = logarithm(inside * 0.5) * bessel_i(order, inside, False)
    near = reciprocal(inside) + log + near * inside if order else minus(near, log)
    beyond = is_near.where(_number(2.0, x), x)
    far = divided(
        chebyshev(divided(_number(2.0, x), beyond), (series.K0, series.K1)[order], 0.0, 1.0), root(beyond)
    )
    if is_scaled:
        near = near * exponential(inside)
    else:
        far = far * exponential(negated(beyond))
    value = is_near.where(near, far)
    value = x.eq(0.0).where(_number(math.inf, x), value)
    value = x.eq(math.inf).where(_number(0.0, x), value)
    value = (x < 0.0).where(_number(math.nan, x), value)
    return _function(f"{'scaled_' if is_scaled else ''}modified_bessel_k{order}").of(value, x)


# -- Ai ---------------------------------------------------------------------------------------------------------------


def airy_ai(x: Node) -> Node:
    """Airy's function Ai; it has no derivative here."""
    is_high, is_low = x > 2.0, x < -4.0
    near = chebyshev(
        is_high.where(_number(2.0, x), is_low.where(_number(-4.0, x), x)), series.AI_NEAR, -4.0, 2.0
    )
    high = is_high.where(x, _number(2.0, x))
    angle = high * root(high) * (2.0 / 3.0)
    decay = chebyshev(divided(_number(2.0**2.5 / 3.0, x), angle), series.AI_FAR, 0.0, 1.0)
    far = divided(decay * exponential(negated(angle)), root(root(high)) * (2.0 * math.sqrt(math.pi)))
    low = is_low.where(negated(x), _number(4.0, x))
    turn = low * root(low) * (2.0 / 3.0)
    share = divided(_number(16.0 / 3.0, x), turn)
    p = chebyshev(share * share, series.AI_P, 0.0, 1.0)
    q = divided(chebyshev(share * share, series.AI_Q, 0.0, 1.0), turn)
    sine, cosine = _sin(turn), _cos(turn)
    wave = p * (sine + cosine) + q * minus(sine, cosine)
    below = divided(wave, root(root(low)) * math.sqrt(2.0 * math.pi))
    value = is_high.where(far, is_low.where(below, near))
    value = absolute(x).eq(math.inf).where(_number(0.0, x), value)
    return AIRY.of(value, x)


# -- derivatives ------------------------------------------------------------------------------------------------------


def no_slope(name: str) -> Callable[[Node, Node], Node]:
    """The rule of what has no derivative here."""

    def rule(node: Node, g: Node) -> Node:
        raise UsageError(f"[{name}] has no derivative here: take detach() of what it is given.")

    return rule


def _slope_of_k(order: int, is_scaled: bool) -> Callable[[Node, Node], Node]:
    def rule(node: Node, g: Node) -> Node:
        x = node.src[1]
        other = bessel_k(1 - order, x, is_scaled)
        slope = minus(negated(other), divided(node, x)) if order else negated(other)
        return g * (slope + node if is_scaled else slope)

    return rule


_RULES: dict[str, Callable[[Node, Node], Node]] = {
    "bessel_j0": lambda node, g: negated(g * bessel_j(1, node.src[1])),
    "bessel_j1": lambda node, g: g * minus(bessel_j(0, node.src[1]), over_x(node)),
    "bessel_y0": lambda node, g: negated(g * bessel_y(1, node.src[1])),
    "bessel_y1": lambda node, g: g * minus(bessel_y(0, node.src[1]), divided(node, node.src[1])),
    "modified_bessel_k0": _slope_of_k(0, False),
    "modified_bessel_k1": _slope_of_k(1, False),
    "scaled_modified_bessel_k0": _slope_of_k(0, True),
    "scaled_modified_bessel_k1": _slope_of_k(1, True),
}


@cache
def _function(name: str) -> Function:
    return Function(name, _RULES[name])


AIRY = Function("airy_ai", no_slope("airy_ai"))
