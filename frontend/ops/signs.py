"""Signs: signs and their copies, finiteness, and choices between two numbers that know what NaN is.

In       tensors and Python numbers
Out      lazy tensors, elementwise
Next     elementwise.py (maximum, minimum, clamp: NaN wins there), functions.py (sign, abs, isnan)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import broadcast, constant, filled, negated
from hcq.frontend.grad.function import Function, same
from hcq.frontend.ops.base import Methods, Self, in_float_together, meet_in_float
from hcq.frontend.special.angles import has_sign, signed
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const

# the greatest number of a format, where it is not of an integer
_GREATEST = {
    dtypes.float16: 65504.0,
    dtypes.bfloat16: 3.3895313892515355e38,
    dtypes.float32: 3.4028234663852886e38,
    dtypes.float64: 1.7976931348623157e308,
}


class Signs(Methods):
    """copysign, signbit, sgn, heaviside, nan_to_num, fmax, fmin, ldexp, frexp, nextafter."""

    __slots__ = ()

    def positive(self) -> Self:
        """The tensor itself: +x. Raises UsageError for bool.

        >>> hcq.tensor([-1, 2]).positive().tolist()
        [-1, 2]
        """
        if self.node.dtype.is_bool:
            raise UsageError("[positive] bool tensors have no sign. Cast to an integer first.")
        return self

    def sgn(self) -> Self:
        """-1, 0 or 1 in the same dtype: `sign`, for numbers that are not complex.

        >>> hcq.tensor([-2, 0, 7]).sgn().tolist()
        [-1, 0, 1]
        """
        return self.sign()

    def signbit(self) -> Self:
        """True where there is a minus sign, that of -0.0 included; bool.

        >>> Tensor([-1.0, -0.0, 0.0]).signbit().tolist()
        [True, True, False]
        """
        node = self.node
        if not node.dtype.is_float:
            return self._all(False) if node.dtype.is_bool or node.dtype.is_unsigned else self < 0
        return self._like(has_sign(node if node.dtype.itemsize >= 4 else node.cast(dtypes.float32)))

    def copysign(self, other: Any) -> Self:
        """The size of this tensor with the sign of another, or of a number; shapes broadcast.

        >>> Tensor([1.0, -2.0]).copysign(-0.0).tolist()
        [-1.0, -2.0]
        """
        x, y, have = meet_in_float("copysign", self, other)
        return self._like(COPYSIGN.of(signed(_size(x), y), x, y).cast(have))

    def heaviside(self, values: Any) -> Self:
        """0 below zero, 1 above, and `values` at zero; NaN stays. Shapes broadcast, dtypes must be equal.

        >>> Tensor([-2.0, 0.0, 3.0]).heaviside(Tensor([0.5])).tolist()
        [0.0, 0.5, 1.0]
        """
        values = self._operand("heaviside", values)
        if values.node.dtype is not self.node.dtype:
            raise UsageError(
                f"[heaviside] {self.node.dtype.name} and values of {values.node.dtype.name}: cast one."
            )
        zero, one = (self._like(const(number, self.node.dtype)) for number in (0, 1))
        step = (self == 0).where(values, (self < 0).where(zero, one))
        return self.isnan().where(self, step) if self.node.dtype.is_float else step

    def nan_to_num(
        self, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
    ) -> Self:
        """NaN becomes `nan`, 0 unless given; the infinities `posinf` and `neginf`, else the format's extremes.

        >>> Tensor([float("nan"), 1.0]).nan_to_num(7.0).tolist()
        [7.0, 1.0]
        """
        dtype = self.node.dtype
        if not dtype.is_float:
            return self._like(self.node)
        most = _GREATEST[dtype]
        x = self.isnan().where(0.0 if nan is None else nan, self)
        x = (x == math.inf).where(self._bounded(most if posinf is None else posinf), x)
        return (x == -math.inf).where(self._bounded(-most if neginf is None else neginf), x)

    def _bounded(self, number: float) -> Self:
        return self._like(constant("nan_to_num", number, self.node.dtype))

    def isposinf(self) -> Self:
        """True for inf; bool.

        >>> Tensor([float("-inf"), float("inf")]).isposinf().tolist()
        [False, True]
        """
        return self == math.inf if self.node.dtype.is_float else self._all(False)

    def isneginf(self) -> Self:
        """True for -inf; bool.

        >>> Tensor([float("-inf"), float("inf")]).isneginf().tolist()
        [True, False]
        """
        return self == -math.inf if self.node.dtype.is_float else self._all(False)

    def isreal(self) -> Self:
        """True everywhere: there are no complex numbers here; bool.

        >>> Tensor([1.0, float("nan")]).isreal().tolist()
        [True, True]
        """
        return self._all(True)

    # -- of two --

    def fmax(self, other: Any) -> Self:
        """The greater of two; of a number and NaN the number. Shapes broadcast, dtypes promote.

        >>> Tensor([1.0, float("nan")]).fmax(Tensor([3.0, 2.0])).tolist()
        [3.0, 2.0]
        """
        other = self._operand("fmax", other)
        return self._present(other, "fmax") if self._has_nan(other) else self.maximum(other)

    def fmin(self, other: Any) -> Self:
        """The lesser of two; of a number and NaN the number. Shapes broadcast, dtypes promote.

        >>> Tensor([1.0, float("nan")]).fmin(Tensor([3.0, 2.0])).tolist()
        [1.0, 2.0]
        """
        other = self._operand("fmin", other)
        return self._present(other, "fmin") if self._has_nan(other) else self.minimum(other)

    def _has_nan(self, other: Self) -> bool:
        return self.node.dtype.is_float or other.node.dtype.is_float

    def _present(self, other: Self, call: str) -> Self:
        """The one of two that is no NaN; of two numbers the greater, or the lesser."""
        x, y = other.isnan().where(self, other), self.isnan().where(other, self)
        both = self.isnan() | other.isnan()
        extreme = self.maximum(other) if call == "fmax" else self.minimum(other)
        takes_self = ~self.isnan()
        return both.where(takes_self.where(self, other), (x == y).where(self, extreme))

    def clamp_min(self, min: Any) -> Self:
        """Never less than `min`, a number or a tensor: see `clamp`.

        >>> hcq.tensor([1, 5]).clamp_min(hcq.tensor([2, 2])).tolist()
        [2, 5]
        """
        return self.clamp(min=min)

    def clamp_max(self, max: Any) -> Self:
        """Never more than `max`, a number or a tensor: see `clamp`.

        >>> hcq.tensor([1, 5]).clamp_max(3).tolist()
        [1, 3]
        """
        return self.clamp(max=max)

    def ldexp(self, other: Any) -> Self:
        """self * 2 ** other; shapes broadcast, integers become float32.

        >>> Tensor([1.0, 3.0]).ldexp(hcq.tensor([4, -1])).tolist()
        [16.0, 1.5]
        """
        return self._float() * self._operand("ldexp", other)._float().exp2()

    @in_float_together
    def rsub(self, other: Any, alpha: Any = 1) -> Self:
        """other - alpha * self.

        >>> hcq.tensor([1, 2]).rsub(10, alpha=3).tolist()
        [7, 4]
        """
        return self._operand("rsub", other).sub(self, alpha=alpha)

    def nextafter(self, other: Any) -> Self:
        """The number beside this one on the way to another, in its own format; NaN if either is NaN.

        >>> (Tensor([1.0]).nextafter(Tensor([2.0])) - 1).item() == 2.0**-23
        True
        """
        other = self._operand("nextafter", other)
        have = self.node.dtype
        if not have.is_float or have is not other.node.dtype:
            raise UsageError(
                f"[nextafter] {have.name} and {other.node.dtype.name}: give two floats of one dtype."
            )
        whole = {2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}[have.itemsize]
        bits = self.bitcast(whole)
        away = (other > self) == (self > 0)  # the bits of a size count up
        step = (bits + away.where(1, -1).cast(whole)).bitcast(have)
        least = self._like(filled(1, (), whole)).bitcast(have)
        step = (self == 0).where((other > self).where(least, -least), step)
        step = (self == other).where(other, step)
        value = (self.isnan() | other.isnan()).where(math.nan, step)
        x, y = broadcast("nextafter", self.node, other.node)
        return self._like(NEXT.of(value.node, x, y))

    def frexp(self) -> tuple[Self, Self]:
        """(fraction, exponent): self = fraction * 2 ** exponent, the fraction 0.5 to 1, the exponent int32.

        >>> fraction, exponent = Tensor([6.0, 0.0]).frexp()
        >>> fraction.tolist(), exponent.tolist()
        ([0.75, 0.0], [3, 0])
        """
        have = self.node.dtype
        if not have.is_float:
            raise UsageError(f"[frexp] {have.name} has no fraction. Cast to a float first.")
        wide = self.cast(dtypes.float64)
        bits = (wide.bitcast(dtypes.int64) >> 52) & 0x7FF
        exponent = bits - 1022
        is_plain = self.isfinite() & (self != 0)
        shift = is_plain.where(exponent, 0)
        half = shift // 2
        small = (wide * (-half).cast(dtypes.float64).exp2()) * (half - shift).cast(dtypes.float64).exp2()
        return small.cast(have), shift.cast(dtypes.int32)


def _size(x: Node) -> Node:
    return has_sign(x).where(negated(x), x)


def _slope_of_size(node: Node, g: Node) -> Node:
    """1 or -1: whether the sign was turned; 0 at zero."""
    _, x, y = node.src
    turned = has_sign(x).ne(has_sign(y))
    return x.eq(0.0).where(const(0.0, g.dtype), turned.where(negated(g), g))


def _no_slope(node: Node, g: Node) -> Node:
    return g * 0.0


COPYSIGN = Function("copysign", _slope_of_size, _no_slope)
NEXT = Function("nextafter", same, _no_slope)
