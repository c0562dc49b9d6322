"""Angles: inverse trigonometric and hyperbolic functions, the angle and the length of a point, sinc.

In       tensors and Python numbers
Out      lazy tensors, elementwise; integers become float32, narrow floats are rounded once, at the end
Next     special/angles.py (how they are computed, and how exactly), functions.py (sin, cos, tan)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.frontend.core.nodes import divided, minus, negated, truncated
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.base import Methods, Self, in_float, meet_in_float
from hcq.frontend.special import angles
from hcq.ir.node import Node, const
from hcq.ir.op import Op


class Angles(Methods):
    """asin, acos, atan, atan2, asinh, acosh, atanh, hypot, sinc, degrees and radians."""

    __slots__ = ()

    def asin(self) -> Self:
        """The angle, -pi/2 to pi/2, whose sine is x; NaN beyond 1. Integers and bool become float32.

        >>> print(Tensor([0.0, 1.0, 2.0]).arcsin())
        tensor([0.0000, 1.5708,    nan])
        """
        return self._in_float(angles.asin)

    def acos(self) -> Self:
        """The angle, 0 to pi, whose cosine is x; NaN beyond 1. Integers and bool become float32.

        >>> Tensor([1.0, 0.0]).acos().tolist()
        [0.0, 1.5707963705062866]
        """
        return self._in_float(angles.acos)

    def atan(self) -> Self:
        """The angle, -pi/2 to pi/2, whose tangent is x. Integers and bool become float32.

        >>> print(Tensor([0.0, 1.0, float("inf")]).arctan())
        tensor([0.0000, 0.7854, 1.5708])
        """
        return self._in_float(angles.atan)

    def asinh(self) -> Self:
        """The number whose hyperbolic sine is x. Integers and bool become float32.

        >>> print(hcq.tensor([0, 1]).arcsinh())
        tensor([0.0000, 0.8814])
        """
        return self._in_float(angles.asinh)

    def acosh(self) -> Self:
        """The number, 0 or more, whose hyperbolic cosine is x; NaN below 1. Integers and bool become float32.

        >>> Tensor([1.0, 0.5]).acosh().tolist()
        [0.0, nan]
        """
        return self._in_float(angles.acosh)

    def atanh(self) -> Self:
        """The number whose hyperbolic tangent is x; NaN beyond 1. Integers and bool become float32.

        >>> Tensor([0.0, 1.0, 2.0]).arctanh().tolist()
        [0.0, inf, nan]
        """
        return self._in_float(angles.atanh)

    arcsin, arccos, arctan, arcsinh, arccosh, arctanh = asin, acos, atan, asinh, acosh, atanh

    def atan2(self, other: Any) -> Self:
        """The angle, -pi to pi, of the points (other, self): y first. Shapes broadcast, dtypes promote.

        >>> Tensor([1.0]).atan2(Tensor([-1.0])).item()
        2.356194496154785
        """
        y, x, have = meet_in_float("atan2", self, other)
        return self._like(angles.atan2(y, x).cast(have))

    arctan2 = atan2

    def hypot(self, other: Any) -> Self:
        """The root of self * self + other * other, infinite only where the result is. Shapes broadcast.

        >>> Tensor([3.0]).hypot(4.0).item()
        5.0
        """
        x, y, have = meet_in_float("hypot", self, other)
        return self._like(angles.hypot(x, y).cast(have))

    def deg2rad(self) -> Self:
        """Degrees as radians: x * pi / 180.

        >>> print(Tensor([180.0, 90.0]).deg2rad())
        tensor([3.1416, 1.5708])
        """
        return self._float() * (math.pi / 180.0)

    def rad2deg(self) -> Self:
        """Radians as degrees: x * 180 / pi.

        >>> Tensor([0.0, hcq.pi]).rad2deg().tolist()
        [0.0, 180.0]
        """
        return self._float() * (180.0 / math.pi)

    @in_float
    def sinc(self) -> Self:
        """sin(pi x) / (pi x), and 1 at zero.

        >>> print(Tensor([0.0, 0.5]).sinc())
        tensor([1.0000, 0.6366])
        """
        x = self.node
        is_zero = x.eq(0.0)
        whole = truncated(x + (x < 0.0).where(const(-0.5, x.dtype), const(0.5, x.dtype)))
        is_odd = (truncated(whole * 0.5) * 2.0).ne(whole)
        # of what is left of x: it is zero where x is whole
        sine = Node(Op.SIN, x.dtype, (minus(x, whole) * math.pi,))
        sine = is_odd.where(negated(sine), sine)
        value = divided(sine, is_zero.where(const(1.0, x.dtype), x) * math.pi)
        return self._like(SINC.of(is_zero.where(const(1.0, x.dtype), value), x))


def _slope_of_sinc(node: Node, g: Node) -> Node:
    """(cos(pi x) - sinc(x)) / x, and 0 at zero."""
    x = node.src[1]
    is_zero = x.eq(0.0)
    cosine = Node(Op.COS, x.dtype, (x * math.pi,))
    slope = divided(minus(cosine, node), is_zero.where(const(1.0, x.dtype), x))
    return g * is_zero.where(const(0.0, x.dtype), slope)


SINC = Function("sinc", _slope_of_sinc)
