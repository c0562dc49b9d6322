"""Functions of complex tensors: sizes and angles, exp, log, roots, sines and their inverses.

In       complex tensors
Out      lazy tensors, by formulas in the two parts that lose no digits where the plain ones would
Next     arithmetic.py (powers, division), ops/functions.py (the same for real tensors)

Branches are cut as C and PyTorch cut them: log, sqrt and powers along the negative real axis.
"""

from __future__ import annotations

import math
from typing import Any

from hcq.frontend.core.nodes import divided, filled
from hcq.frontend.grad.function import Function
from hcq.frontend.more.complex.pair import Pair
from hcq.frontend.tensor import Tensor
from hcq.ir.node import Node


def _share(of: int) -> Any:
    """The slope of a size: that part of the number, by the size; zero at zero."""

    def rule(node: Node, g: Node) -> Node:
        size = node.src[0]
        zero = filled(0.0, size.shape, size.dtype)
        return g * size.eq(zero).where(zero, divided(node.src[of], size))

    return rule


SIZE = Function("size of complex", _share(1), _share(2))


class Functions(Pair):
    """abs, angle, conj, exp, log, sqrt, sin, tanh, ..."""

    __slots__ = ()

    # -- sizes and angles --

    def abs(self) -> Any:
        """The size: the root of real * real + imag * imag. Its gradient at zero is zero."""
        size = self.real.hypot(self.imag)
        return size._like(SIZE.of(size.node, self.real.node, self.imag.node))

    absolute = abs

    def angle(self) -> Any:
        """The angle with the positive real axis, -pi to pi; 0 at zero, and so is its gradient there."""
        is_zero = (self.real == 0.0) & (self.imag == 0.0)
        safe = is_zero.where(1.0, self.real)  # the slope at zero is that of this number, chosen away
        return is_zero.where(self.imag.detach().atan2(self.real.detach()), self.imag.atan2(safe))

    def conj(self) -> Any:
        """The imaginary part with the other sign."""
        return self.of(self.real, -self.imag)

    def sgn(self) -> Any:
        """The number divided by its size; 0 for 0."""
        size = self.abs()
        return self / (size == 0.0).where(1.0, size)

    @property
    def H(self) -> Any:
        """A matrix transposed and conjugated."""
        return self.conj().mT if self.ndim else self.conj()

    def view_as_real(self) -> Any:
        """Both parts side by side along a new last axis of 2: (...) -> (..., 2), real numbers."""
        return self.real.stack(self.imag, dim=-1)

    def nan_to_num(
        self, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
    ) -> Any:
        """Numbers in place of NaN and infinities, in each part: see `Tensor.nan_to_num`."""
        return self.of(*[part.nan_to_num(nan or 0.0, posinf, neginf) for part in self.parts])

    # -- exponentials and logarithms --

    def exp(self) -> Any:
        """e ** self."""
        return _polar(self.real.exp(), self.imag)

    def exp2(self) -> Any:
        """2 ** self."""
        return (self * math.log(2.0)).exp()

    def expm1(self) -> Any:
        """e ** self - 1, without the loss near zero."""
        growth, half = self.real.expm1(), (self.imag * 0.5).sin()
        real = growth * self.imag.cos() - 2.0 * half * half
        return self.of(real, (growth + 1.0) * self.imag.sin())

    def log(self) -> Any:
        """The natural logarithm: log of the size, and the angle."""
        return self.of(self.abs().log(), self.angle())

    def log2(self) -> Any:
        """The logarithm to base 2."""
        return self.log() * (1.0 / math.log(2.0))

    def log10(self) -> Any:
        """The logarithm to base 10."""
        return self.log() * (1.0 / math.log(10.0))

    def log1p(self) -> Any:
        """log(1 + self), without the loss near zero."""
        x, y = self.parts
        is_near = (x.abs() < 0.5) & (y.abs() < 0.5)
        near = is_near.where(x * (x + 2.0) + y * y, 0.0).log1p() * 0.5
        moved = self + 1.0
        return self.of(is_near.where(near, moved.abs().log()), moved.angle())

    def sqrt(self) -> Any:
        """The root whose real part is not negative."""
        x, y = self.parts
        is_zero = (x == 0.0) & (y == 0.0)
        size = is_zero.where(1.0, self.abs())
        root = ((x.abs() + size) * 0.5).sqrt()
        other = y.abs() / (root * 2.0)
        has_right = x >= 0.0
        real, imag = has_right.where(root, other), has_right.where(other, root)
        return self.of(is_zero.where(0.0, real), is_zero.where(y, imag.copysign(y)))

    def rsqrt(self) -> Any:
        """1 / the root."""
        return 1.0 / self.sqrt()

    def sigmoid(self) -> Any:
        """1 / (1 + e ** -self)."""
        return 1.0 / ((-self).exp() + 1.0)

    # -- angles and hyperbolas --

    def sin(self) -> Any:
        """The sine."""
        x, y = self.parts
        return self.of(x.sin() * y.cosh(), x.cos() * y.sinh())

    def cos(self) -> Any:
        """The cosine."""
        x, y = self.parts
        return self.of(x.cos() * y.cosh(), -(x.sin() * y.sinh()))

    def sinh(self) -> Any:
        """The hyperbolic sine."""
        x, y = self.parts
        return self.of(x.sinh() * y.cos(), x.cosh() * y.sin())

    def cosh(self) -> Any:
        """The hyperbolic cosine."""
        x, y = self.parts
        return self.of(x.cosh() * y.cos(), x.sinh() * y.sin())

    def tanh(self) -> Any:
        """The hyperbolic tangent."""
        # with t = tanh x: (t + i tan y) / (1 + i t tan y), times cos y above and below, so that no tangent is infinite
        t, sine, cosine = self.real.tanh(), self.imag.sin(), self.imag.cos()
        size = cosine * cosine + t * t * sine * sine
        less = 1.0 / self.real.cosh()  # 1 - t * t is its square, without the loss where t is near 1
        return self.of(t / size, sine * cosine * less * less / size)

    def tan(self) -> Any:
        """The tangent."""
        return _by_i((_by_i(self)).tanh(), -1.0)

    def asinh(self) -> Any:
        """The inverse of sinh."""
        return _by_i(_by_i(self).asin(), -1.0)

    def asin(self) -> Any:
        """The inverse of sin: real parts -pi/2 to pi/2."""
        minus, plus = (1.0 - self).sqrt(), (1.0 + self).sqrt()
        real = self.real.atan2((minus * plus).real)
        return self.of(real, (minus.conj() * plus).imag.asinh())

    def acos(self) -> Any:
        """The inverse of cos: real parts 0 to pi."""
        minus, plus = (1.0 - self).sqrt(), (1.0 + self).sqrt()
        return self.of(minus.real.atan2(plus.real) * 2.0, (plus.conj() * minus).imag.asinh())

    def acosh(self) -> Any:
        """The inverse of cosh: real parts not negative."""
        minus, plus = (self - 1.0).sqrt(), (self + 1.0).sqrt()
        return self.of((minus.conj() * plus).real.asinh(), minus.imag.atan2(plus.real) * 2.0)

    def atanh(self) -> Any:
        """The inverse of tanh."""
        return (self.log1p() - (-self).log1p()) * 0.5

    def atan(self) -> Any:
        """The inverse of tan."""
        return _by_i(_by_i(self).atanh(), -1.0)

    arcsin, arccos, arctan = asin, acos, atan
    arcsinh, arccosh, arctanh = asinh, acosh, atanh


def _polar(size: Tensor, angle: Tensor) -> Any:
    return Pair.of(size * angle.cos(), size * angle.sin())


def _by_i(z: Any, sign: float = 1.0) -> Any:
    """i * z, or -i * z."""
    return z.of(-z.imag, z.real) if sign > 0 else z.of(z.imag, -z.real)


def polar(size: Tensor, angle: Tensor) -> Any:
    """The numbers of those sizes and angles."""
    return _polar(size, angle)
