"""Gamma: the gamma function's logarithm and its derivatives, zeta, and Bessel's modified functions of order 0 and 1.

In       a node of float64
Out      a FUNCTION node: a value of products, logarithms and asymptotic series, and a slope of its own
Next     ops/special_values.py (the methods, which compute in float64 and round once), elementary.py (erf and tanh)

A small argument is shifted up to where the asymptotic series of Stirling, or of Euler and Maclaurin, is exact to the
last bits of float64; a negative one is reflected first. The Bessel functions are their power series up to 16, and their
asymptotic series beyond. Rounded to float32, all are within two units in the last place, but near the zeros that
lgamma and digamma have below 0.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from hcq.frontend.core.nodes import absolute, divided, logarithm, minus, negated, reciprocal, truncated
from hcq.frontend.grad.function import Function
from hcq.frontend.special.elementary import root
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op

SHIFT = 10  # the series is used from here on


def _bernoulli(count: int) -> list[Fraction]:
    """B(2), B(4), ... as fractions."""
    numbers = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        numbers.append(-sum((math.comb(n + 1, k) * numbers[k] for k in range(n)), Fraction(0)) / (n + 1))
    return [numbers[2 * k] for k in range(1, count + 1)]


BERNOULLI = _bernoulli(10)
STIRLING = [float(b / (2 * k * (2 * k - 1))) for k, b in enumerate(BERNOULLI, 1)]
_DIGAMMA = [float(b / (2 * k)) for k, b in enumerate(BERNOULLI, 1)]


def _series(square: Node, coefficients: list[float]) -> Node:
    """c0 + c1 s + c2 s * s + ..., by Horner's rule."""
    value = const(coefficients[-1], square.dtype)
    result: Node = square * 0.0 + value
    for coefficient in reversed(coefficients[:-1]):
        result = result * square + coefficient
    return result


def _sine_of_pi(x: Node) -> tuple[Node, Node]:
    """|sin(pi x)| and tan(pi x), exact where x is whole."""
    rest = minus(x, truncated(x + (x < 0.0).where(const(-0.5, x.dtype), const(0.5, x.dtype))))
    angle = rest * math.pi
    sine, cosine = Node(Op.SIN, x.dtype, (angle,)), Node(Op.COS, x.dtype, (angle,))
    return absolute(sine), divided(sine, cosine)


def lgamma(x: Node) -> Node:
    """log(|gamma(x)|); infinite at 0, -1, -2, ..."""
    is_reflected = x < 0.5
    size = is_reflected.where(negated(x) + 1.0, x)
    is_small = size < SHIFT
    product, place = const(1.0, x.dtype), size
    steps: Node = size * 0.0 + product
    for _ in range(SHIFT):  # 1 and 2, where the result is zero, are products of whole numbers: exact
        below = place < SHIFT
        steps = below.where(steps * place, steps)
        place = below.where(place + 1.0, place)
    inverse = reciprocal(place)
    stirling = (place + -0.5) * logarithm(place) + negated(place) + 0.5 * math.log(2.0 * math.pi)
    value = stirling + inverse * _series(inverse * inverse, STIRLING)
    value = is_small.where(minus(value, logarithm(steps)), value)
    value = _near_one_and_two(size, value)
    sine, _ = _sine_of_pi(x)
    reflected = minus(minus(const(math.log(math.pi), x.dtype), logarithm(sine)), value)
    value = is_reflected.where(reflected, value)
    is_pole = x.eq(truncated(x))
    value = (x <= 0.0).where(is_pole.where(const(math.inf, x.dtype), value), value)
    value = absolute(x).eq(math.inf).where(const(math.inf, x.dtype), value)
    return LGAMMA.of(value, x)


def _near_one_and_two(x: Node, value: Node) -> Node:
    """At 1 and 2 the result is zero, and not what rounding leaves."""
    zero = const(0.0, x.dtype)
    return x.eq(1.0).where(zero, x.eq(2.0).where(zero, value))


def digamma(x: Node) -> Node:
    """The slope of lgamma; NaN at -1, -2, ..., and infinite at zero, with the other sign."""
    is_reflected = x < 0.5
    place = is_reflected.where(negated(x) + 1.0, x)
    total: Node = place * 0.0
    for _ in range(SHIFT):
        below = place < SHIFT
        total = below.where(minus(total, reciprocal(place)), total)
        place = below.where(place + 1.0, place)
    inverse = reciprocal(place)
    square = inverse * inverse
    value = minus(minus(total + logarithm(place), inverse * 0.5), square * _series(square, _DIGAMMA))
    _, tangent = _sine_of_pi(x)
    value = is_reflected.where(minus(value, divided(const(math.pi, x.dtype), tangent)), value)
    is_pole = x.eq(truncated(x))
    value = (x < 0.0).where(is_pole.where(const(math.nan, x.dtype), value), value)
    value = x.eq(0.0).where(negated(reciprocal(x)), value)
    value = x.eq(-math.inf).where(const(math.nan, x.dtype), value)
    return DIGAMMA.of(value, x)


def zeta(s: float, q: Node) -> Node:
    """The sum of (q + k) ** -s for k = 0, 1, 2, ..., of a whole s from 2 on: Euler and Maclaurin's sum."""
    total: Node = q * 0.0
    place = q
    for _ in range(SHIFT):
        total = total + _whole_power(reciprocal(place), int(s))
        place = place + 1.0
    inverse = reciprocal(place)
    power = _whole_power(inverse, int(s))
    total = total + place * power * (1.0 / (s - 1.0)) + power * 0.5
    term, factor = power * inverse, s
    for k, b in enumerate(BERNOULLI, 1):
        total = total + term * (float(b) * factor / math.factorial(2 * k))
        factor *= (s + 2 * k - 1) * (s + 2 * k)
        term = term * inverse * inverse
    return q.eq(math.inf).where(const(0.0, q.dtype), total)


def hurwitz(s: Node, q: Node) -> Node:
    """zeta of every s above 1, and q; below 0 of a whole s only, where the terms of negative q + k are summed apart.

    With m terms below zero, f = 1 - (q + m) and p = -q they are (-1) ** s * (zeta(s, f) - zeta(s, p + 1)).
    """
    shift = truncated(negated((q < 0.0).where(q, const(0.0, q.dtype)))) + (q < 0.0).where(
        const(1.0, q.dtype), const(0.0, q.dtype)
    )
    value = _euler_maclaurin(s, q + shift)
    rest = negated(q + shift) + 1.0
    is_negative = q < 0.0
    mirrored = minus(
        _euler_maclaurin(s, is_negative.where(rest, const(1.0, q.dtype))),
        _euler_maclaurin(s, is_negative.where(negated(q) + 1.0, const(1.0, q.dtype))),
    )
    half = s * 0.5
    is_even = half.eq(truncated(half))
    value = is_negative.where(value + is_even.where(mirrored, negated(mirrored)), value)
    is_nowhere = is_negative.where(s.ne(truncated(s)), const(False, dtypes.bool))
    value = is_nowhere.where(const(math.nan, q.dtype), value)
    is_pole = (q <= 0.0).where(q.eq(truncated(q)), const(False, dtypes.bool))
    value = is_pole.where(const(math.inf, q.dtype), value)
    value = q.eq(math.inf).where(const(0.0, q.dtype), value)
    value = s.eq(1.0).where(const(math.inf, q.dtype), (s < 1.0).where(const(math.nan, q.dtype), value))
    is_unknown = s.ne(s).where(const(True, dtypes.bool), q.ne(q))
    return is_unknown.where(const(math.nan, q.dtype), value)


def _euler_maclaurin(s: Node, q: Node) -> Node:
    """The sum of (q + k) ** -s of positive q, s above 1: some terms, and the rest as an integral with corrections."""

    def power(place: Node) -> Node:
        return Node(Op.EXP, q.dtype, (negated(s) * logarithm(place),))

    total, place = q * 0.0, q
    for _ in range(SHIFT):
        total = total + power(place)
        place = place + 1.0
    inverse, end = reciprocal(place), power(place)
    total = total + divided(place * end, s + -1.0) + end * 0.5
    term, factor = end * inverse, s
    for k, b in enumerate(BERNOULLI, 1):
        total = total + term * factor * (float(b) / math.factorial(2 * k))
        factor = factor * (s + (2.0 * k - 1.0)) * (s + 2.0 * k)
        term = term * inverse * inverse
    return total


def _whole_power(x: Node, exponent: int) -> Node:
    result = x
    for _ in range(exponent - 1):
        result = result * x
    return result


def polygamma(n: int, x: Node) -> Node:
    """The n-th derivative of digamma, for n from 1 on: +-n! zeta(n + 1, x), reflected below zero."""
    is_reflected = x < 0.0
    sign = 1.0 if n % 2 else -1.0
    value = zeta(n + 1.0, is_reflected.where(negated(x) + 1.0, x)) * (sign * math.factorial(n))
    _, tangent = _sine_of_pi(x)
    cotangent = reciprocal(tangent)
    slope = _series(cotangent, _slopes_of_cotangent(n)) * math.pi ** (n + 1)
    value = is_reflected.where(minus(value * -sign, slope), value)
    pole = const(math.inf if n % 2 else -math.inf, x.dtype)
    is_pole = x.eq(truncated(x))
    value = is_pole.where(is_reflected.where(pole, value), value)
    return POLYGAMMA(n).of(value, x)


def _slopes_of_cotangent(n: int) -> list[float]:
    """The n-th derivative of cot(x) as a polynomial of c = cot(x): the slope of c is -(1 + c * c)."""
    powers = [0.0, 1.0]
    for _ in range(n):
        slope = [k * factor for k, factor in enumerate(powers)][1:]
        powers = [-a - b for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope])]
    return powers


def bessel_i(order: int, x: Node, is_scaled: bool) -> Node:
    """The modified Bessel function of the first kind, order 0 or 1; times exp(-|x|) if scaled."""
    size = absolute(x)
    is_small = size <= 16.0
    inside = is_small.where(size, const(16.0, x.dtype))
    quarter = inside * inside * 0.25
    coefficients = [1.0 / (math.factorial(k) * math.factorial(k + order)) for k in range(48)]
    small = _series(quarter, coefficients)
    if order:
        small = small * inside * 0.5
    shrunk = Node(Op.EXP, x.dtype, (negated(size),))
    # beyond, the asymptotic series: products of ((2k - 1)**2 - 4 order**2) / (8 k)
    terms, factor = [1.0], 1.0
    for k in range(1, 26):
        factor *= ((2 * k - 1) ** 2 - 4 * order * order) / (8.0 * k)
        terms.append(factor)
    large = divided(
        _series(reciprocal(is_small.where(const(16.0, x.dtype), size)), terms), root(size * (2 * math.pi))
    )
    if is_scaled:
        value = is_small.where(small * shrunk, large)
    else:
        half = Node(Op.EXP, x.dtype, (size * 0.5,))
        value = is_small.where(small, large * half * half)
    limit = 0.0 if is_scaled else math.inf
    value = size.eq(math.inf).where(const(limit, x.dtype), value)
    if order:
        value = (x < 0.0).where(negated(value), value)
    return BESSEL[order, is_scaled].of(value, x)


# -- derivatives ----------------------------------------------------------------------------------------------------


@cache
def POLYGAMMA(n: int) -> Function:  # one function for each order, as a constant is
    """The n-th derivative, whose slope is the next one."""
    return Function(f"polygamma{n}", lambda node, g: g * polygamma(n + 1, node.src[1]))


def _slope_of_i0e(node: Node, g: Node) -> Node:
    x = node.src[1]
    return g * minus(bessel_i(1, x, True), _sign_of(x) * node)


def _sign_of(x: Node) -> Node:
    one, minus_one, zero = (const(value, x.dtype) for value in (1.0, -1.0, 0.0))
    return (x < 0.0).where(minus_one, (x > 0.0).where(one, zero))


def over_x(node: Node) -> Node:
    """The value divided by its argument; 1/2 at zero."""
    x = node.src[1]
    is_zero = x.eq(0.0)
    share = divided(node, is_zero.where(const(1.0, x.dtype), x))
    return is_zero.where(const(0.5, x.dtype), share)


def _slope_of_i1e(node: Node, g: Node) -> Node:
    x = node.src[1]
    return g * minus(minus(bessel_i(0, x, True), _sign_of(x) * node), over_x(node))


LGAMMA = Function("lgamma", lambda node, g: g * digamma(node.src[1]))
DIGAMMA = Function("digamma", lambda node, g: g * polygamma(1, node.src[1]))
BESSEL = {
    (0, False): Function("i0", lambda node, g: g * bessel_i(1, node.src[1], False)),
    (0, True): Function("i0e", _slope_of_i0e),
    (1, False): Function("i1", lambda node, g: g * minus(bessel_i(0, node.src[1], False), over_x(node))),
    (1, True): Function("i1e", _slope_of_i1e),
}
