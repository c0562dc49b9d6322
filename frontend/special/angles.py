"""Angles: inverse trigonometric and hyperbolic functions, as graphs of a float32 or float64 node.

In       nodes of float32 or float64
Out      a FUNCTION node: a value of roots, logarithms and short polynomials, and a slope of its own
Next     ops/angles.py (the methods, for every dtype), elementary.py (the same for erf, tanh, log1p)

The polynomials are Chebyshev interpolations, computed with 60 digits: atan(x) = x + x*x*x A(x*x) up to 1, and
asin(x) = x + x*x*x S(x*x) up to 0.5; what is larger is turned: atan(x) = pi/2 - atan(1/x), and asin of x near 1 is
found from the root of (1 - x) / 2, which is exact there. Measured against float64: within 4 units in the last place of
float32, acosh within 8 near 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hcq.frontend.core.nodes import absolute, both, divided, either, logarithm, minus, negated, reciprocal
from hcq.frontend.grad.function import Function
from hcq.frontend.special.elementary import log1p, number, polynomial, root
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op

# polynomials in u = -1..1 over the interval, lowest power first
ATAN = (
    -0.259160493, 0.0554074048, -0.0137036194, 0.0036419545, -0.00101149882, 0.000289059084, -8.24085768e-5,
    2.44117705e-5, -9.55278612e-6, 2.90759774e-6,
)  # fmt: skip
ATAN_DOUBLE = (
    -0.25916049172505249, 0.055407404283874099, -0.013703706317804301, 0.0036419813337382327,
    -0.0010108103826510477, 0.00028884656193360263, -8.429356661230481e-5, 2.4993533276624692e-5,
    -7.5036714055720177e-6, 2.2755120911812855e-6, -6.9578528318519886e-7, 2.1424966108342927e-7,
    -6.635646356236133e-8, 2.0614684670836428e-8, -6.4452096267998291e-9, 2.0765765071368465e-9,
    -6.542869417298803e-10, 1.6417920839832761e-10, -5.1889873164410185e-11, 3.5376322221536249e-11,
    -1.1284324637379484e-11,
)  # fmt: skip
ASIN = (
    0.17680461, 0.0109729644, 0.000914498054, 8.77723249e-5, 9.32762809e-6, 1.02816127e-6,
)  # fmt: skip
ASIN_DOUBLE = (
    0.17680460638318537, 0.010972963950257307, 0.00091456422879073772, 8.7780120663833565e-5,
    9.1519606257649568e-6, 1.0074706009570351e-6, 1.1524633644667481e-7, 1.3565356047294971e-8,
    1.6323655627960636e-9, 1.9969099537458101e-10, 2.4806686839033422e-11, 3.292781967287386e-12,
    4.1848006958374166e-13,
)  # fmt: skip

# pi/2 in two parts: the format's own, and what that leaves
HALF_PI = {
    dtypes.float32: (1.57079637050628662109375, -4.37113900018624283e-8),
    dtypes.float64: (math.pi / 2, 6.123233995736766e-17),
}
HUGE = {dtypes.float32: 1e9, dtypes.float64: 1e150}  # beyond it 1 is nothing beside x * x
_BITS = {dtypes.float32: dtypes.int32, dtypes.float64: dtypes.int64}


def has_sign(x: Node) -> Node:
    """True for what has a minus sign: -0.0 and a negative NaN, too."""
    return Node(Op.BITCAST, _BITS[x.dtype], (x,)) < 0


def signed(size: Node, like: Node) -> Node:
    """`size`, which has no sign, with the sign of another number."""
    return has_sign(like).where(negated(size), size)


def _odd(x: Node, size: Node) -> Node:
    """`size`, which was found for |x|, with the sign of x; zeros stay as they are."""
    return x.eq(0.0).where(x, (x < 0.0).where(negated(size), size))


def _turned(x: Node) -> Node:
    """pi/2 - x."""
    high, low = HALF_PI[x.dtype]
    return minus(number(low, x), x) + number(high, x)


def _atan_of_unit(x: Node) -> Node:
    """atan of 0..1."""
    square = x * x
    return x + x * (square * polynomial(square, ATAN, ATAN_DOUBLE, 0.0, 1.0))


def atan(x: Node) -> Node:
    """The angle whose tangent is x."""
    size = absolute(x)
    is_steep = size > 1.0
    part = _atan_of_unit(is_steep.where(reciprocal(size), size))
    angle = is_steep.where(_turned(part), part)
    return ATAN_OF.of(_odd(x, angle), x)


def atan2(y: Node, x: Node) -> Node:
    """The angle of the point (x, y), -pi to pi; zeros and infinities have the signs that C's atan2 gives them."""
    high, wide = absolute(y), absolute(x)
    is_steep = wide < high
    less, more = is_steep.where(wide, high), is_steep.where(high, wide)
    is_corner = both(less.eq(more), either(less.eq(0.0), less.eq(math.inf)))
    corner = less.eq(0.0).where(const(0.0, x.dtype), const(1.0, x.dtype))
    ratio = is_corner.where(corner, divided(less, is_corner.where(const(1.0, x.dtype), more)))
    part = _atan_of_unit(ratio)
    angle = is_steep.where(_turned(part), part)
    high_pi, low_pi = HALF_PI[x.dtype]
    angle = has_sign(x).where(minus(number(2 * low_pi, x), angle) + number(2 * high_pi, x), angle)
    is_nan = either(x.ne(x), y.ne(y))
    return ATAN2.of(is_nan.where(const(math.nan, x.dtype), signed(angle, y)), y, x)


def _asin_of_half(x: Node, square: Node) -> Node:
    """asin of 0..0.5."""
    return x + x * (square * polynomial(square, ASIN, ASIN_DOUBLE, 0.0, 0.25))


def _small_or_rest(size: Node) -> tuple[Node, Node]:
    """Whether a size is at most 0.5, and asin of it, or of the root of (1 - size) / 2; NaN beyond 1."""
    is_small = size <= 0.5
    square = is_small.where(size * size, (negated(size) + 1.0) * 0.5)
    return is_small, _asin_of_half(is_small.where(size, root(square)), square)


def asin(x: Node) -> Node:
    """The angle whose sine is x; NaN beyond 1."""
    is_small, part = _small_or_rest(absolute(x))
    angle = is_small.where(part, _turned(part * 2.0))
    return ASIN_OF.of(_odd(x, angle), x)


def acos(x: Node) -> Node:
    """The angle whose cosine is x; NaN beyond 1."""
    is_small, part = _small_or_rest(absolute(x))
    is_negative = x < 0.0
    high, low = HALF_PI[x.dtype]
    near = _turned(is_negative.where(negated(part), part))
    twice = part * 2.0
    far = is_negative.where(minus(number(2 * low, x), twice) + number(2 * high, x), twice)
    return ACOS_OF.of(is_small.where(near, far), x)


def asinh(x: Node) -> Node:
    """The inverse of sinh."""
    size = absolute(x)
    is_huge = size > HUGE[x.dtype]
    inside = is_huge.where(const(1.0, x.dtype), size)
    square = inside * inside
    rest = divided(square, root(square + 1.0) + 1.0)
    value = is_huge.where(logarithm(size) + math.log(2.0), log1p(inside + rest))
    return ASINH_OF.of(_odd(x, value), x)


def acosh(x: Node) -> Node:
    """The inverse of cosh; NaN below 1."""
    is_huge = x > HUGE[x.dtype]
    above = is_huge.where(const(1.0, x.dtype), x + -1.0)
    value = is_huge.where(logarithm(x) + math.log(2.0), log1p(above + root(above * (above + 2.0))))
    return ACOSH_OF.of(value, x)


def atanh(x: Node) -> Node:
    """The inverse of tanh; infinite at 1, NaN beyond."""
    size = absolute(x)
    value = log1p(divided(size * 2.0, negated(size) + 1.0)) * 0.5
    value = size.eq(1.0).where(const(math.inf, x.dtype), value)
    value = (size > 1.0).where(const(math.nan, x.dtype), value)
    return ATANH_OF.of(_odd(x, value), x)


def hypot(x: Node, y: Node) -> Node:
    """The root of x * x + y * y, infinite only where the result is."""
    a, b = absolute(x), absolute(y)
    is_less = a < b
    less, more = is_less.where(a, b), is_less.where(b, a)
    ratio = divided(less, more.eq(0.0).where(const(1.0, x.dtype), more))
    size = more * root(ratio * ratio + 1.0)
    is_infinite = either(a.eq(math.inf), b.eq(math.inf))
    size = either(x.ne(x), y.ne(y)).where(const(math.nan, x.dtype), size)
    return HYPOT.of(is_infinite.where(const(math.inf, x.dtype), size), x, y)


# -- derivatives -----------------------------------------------------------------------------------------------------


def _over(name: str, of: Callable[[Node], Node]) -> Function:
    """The gradient is divided by a graph of x."""
    return Function(name, lambda node, g: divided(g, of(node.src[1])))


def _slope_of_height(node: Node, g: Node) -> Node:
    """x / (x * x + y * y), and 0 at the origin."""
    _, y, x = node.src
    return divided(g * x, _radius(x, y))


def _slope_of_width(node: Node, g: Node) -> Node:
    _, y, x = node.src
    return divided(g * negated(y), _radius(x, y))


def _radius(x: Node, y: Node) -> Node:
    square = x * x + y * y
    return square.eq(0.0).where(const(1.0, x.dtype), square)


def _less_square(x: Node) -> Node:
    """1 - x * x."""
    return (negated(x) + 1.0) * (x + 1.0)


ATAN_OF = _over("atan", lambda x: x * x + 1.0)
ATAN2 = Function("atan2", _slope_of_height, _slope_of_width)
ASIN_OF = _over("asin", lambda x: root(_less_square(x)))
ACOS_OF = Function("acos", lambda node, g: negated(divided(g, root(_less_square(node.src[1])))))
ASINH_OF = _over("asinh", lambda x: root(x * x + 1.0))
ACOSH_OF = _over("acosh", lambda x: root((x + -1.0) * (x + 1.0)))
ATANH_OF = _over("atanh", _less_square)
HYPOT = Function(
    "hypot", lambda node, g: g * divided(node.src[1], node), lambda node, g: g * divided(node.src[2], node)
)
