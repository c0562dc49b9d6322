"""Functions: what takes more than an operator: // and %, powers, exponentials, logarithms, rounding, finiteness.

In       tensors and Python numbers
Out      lazy tensors, elementwise
Changes  nothing
Next     power.py (the ** operator), activation.py (functions built from these), docs/semantics.md (division, powers)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hcq.frontend.errors import DivisionByZero, UsageError
from hcq.frontend.methods.elementwise import Elementwise, broadcast
from hcq.frontend.methods.movement import expanded
from hcq.ir.dtype import Scalar, dtypes, promote
from hcq.ir.node import Node, const
from hcq.ir.op import Op

if TYPE_CHECKING:
    from typing_extensions import Self


class Functions(Elementwise):
    """Division with rest, powers, exp, log, sqrt, sin, abs, sign, floor, round, isnan, isclose."""

    __slots__ = ()

    # -- division with rest, powers --

    def __floordiv__(self, other: Any) -> Self:
        return self._floor_divide(other, reverse=False)

    def __rfloordiv__(self, other: Any) -> Self:
        return self._floor_divide(other, reverse=True)

    def __mod__(self, other: Any) -> Self:
        return self._modulo(other, reverse=False)

    def __rmod__(self, other: Any) -> Self:
        return self._modulo(other, reverse=True)

    def _floor_divide(self, other: Any, reverse: bool) -> Self:
        x, y = self._pair("//", other, reverse)
        if not x.node.dtype.is_float:
            return x._binary(Op.FLOORDIV, y)
        wide, by = x.cast(dtypes.float64), y.cast(dtypes.float64)
        return ((wide - wide._float_modulo(by)) / by).round().cast(x.node.dtype)

    def _modulo(self, other: Any, reverse: bool) -> Self:
        x, y = self._pair("%", other, reverse)
        if not x.node.dtype.is_float:
            return x._binary(Op.MOD, y)
        return x.cast(dtypes.float64)._float_modulo(y.cast(dtypes.float64)).cast(x.node.dtype)

    def _pair(self, call: str, other: Any, reverse: bool) -> tuple[Self, Self]:
        """Dividend and divisor in one integer or float dtype; refuses a Python 0 under an integer, and bools."""
        a, b = self.node, None
        if isinstance(other, (bool, int, float)):
            if not reverse and other == 0 and not a.dtype.is_float and not isinstance(other, float):
                raise DivisionByZero(
                    f"[{call}] integer tensor of shape {a.shape} {call} 0: division by zero. Use another divisor."
                )
            a, b = self._meet_scalar(call, a, other)
        else:
            b = self._operand(call, other).node
            dtype = promote(a.dtype, b.dtype)
            a, b = broadcast(call, a.cast(dtype), b.cast(dtype))
        if a.dtype.is_bool:
            raise UsageError(f"[{call}] bool tensors are not divided. Cast one: x.cast(dtypes.int32).")
        x, y = self._like(a), self._like(b)
        return (y, x) if reverse else (x, y)

    def _float_modulo(self, y: Self) -> Self:
        """x - y * floor(x / y), with the sign of y, in float64: exact for float32 while |x / y| is below 2 ** 29.

        The rounded quotient may lie across a multiple; then the rest is put right by one divisor.
        """
        x = self
        rest = x - (x / y)._unary(Op.TRUNC) * y
        rest = (y.abs() == math.inf).where(x + 0 * x, rest)
        size = y.abs()
        rest = (rest >= size).where(rest - size, rest)
        rest = (rest <= -size).where(rest + size, rest)
        return ((rest != 0) & ((rest < 0) != (y < 0))).where(rest + y, rest)

    def __divmod__(self, other: Any) -> tuple[Self, Self]:
        return self // other, self % other

    def fmod(self, other: Any) -> Self:
        """The rest of a division rounded towards zero; it has the sign of the dividend."""
        x, y = self._pair("fmod", other, reverse=False)
        rest = x._modulo(y, reverse=False)
        return ((rest != 0) & ((rest < 0) != (x < 0))).where(rest - y, rest)

    def remainder(self, other: Any) -> Self:
        return self % other

    def __abs__(self) -> Self:
        return self.abs()

    # -- one node, mostly --

    def exp(self) -> Self:
        """e ** x."""
        return self._float_unary(Op.EXP)

    def exp2(self) -> Self:
        """2 ** x."""
        return self._float_unary(Op.EXP2)

    def log(self) -> Self:
        """Natural logarithm; NaN below zero, -inf at zero."""
        return self._float_unary(Op.LOG)

    def log2(self) -> Self:
        """Logarithm to base 2."""
        return self._float_unary(Op.LOG2)

    def log10(self) -> Self:
        """Logarithm to base 10."""
        return self.log2() * math.log10(2.0)

    def sin(self) -> Self:
        """Sine of radians."""
        return self._float_unary(Op.SIN)

    def cos(self) -> Self:
        """Cosine of radians."""
        return self._float_unary(Op.COS)

    def tan(self) -> Self:
        """Tangent of radians."""
        return self.sin() / self.cos()

    def sqrt(self) -> Self:
        """Square root; NaN below zero."""
        return self._float_unary(Op.SQRT)

    def rsqrt(self) -> Self:
        """1 / sqrt(x)."""
        return self.sqrt()._binary(Op.DIV, 1.0, reverse=True)

    def reciprocal(self) -> Self:
        """1 / x."""
        return self._divide(1.0, reverse=True)

    def square(self) -> Self:
        """x * x."""
        return self._like(Node(Op.MUL, self.node.dtype, (self.node, self.node)))

    def abs(self) -> Self:
        """The distance from zero."""
        dtype = self.node.dtype
        if dtype.is_unsigned or dtype.is_bool:
            return self
        return self._like(Node(Op.MAX, dtype, (self.node, Node(Op.NEG, dtype, (self.node,)))))

    def sign(self) -> Self:
        """-1, 0 or 1; 0 for NaN."""
        if self.node.dtype.is_bool:
            return self
        return self._flat((self > 0).cast(self.node.dtype) - (self < 0).cast(self.node.dtype))

    def trunc(self) -> Self:
        """Rounded towards zero."""
        return self._unary(Op.TRUNC) if self.node.dtype.is_float else self

    def floor(self) -> Self:
        """Rounded down."""
        if not self.node.dtype.is_float:
            return self
        whole = self._unary(Op.TRUNC)
        return (self < whole).where(whole - 1.0, whole)

    def ceil(self) -> Self:
        """Rounded up."""
        if not self.node.dtype.is_float:
            return self
        whole = self._unary(Op.TRUNC)
        return (self > whole).where(whole + 1.0, whole)

    def round(self, decimals: int = 0) -> Self:
        """To the nearest whole number, halves to the even one; or to that many decimals."""
        if not self.node.dtype.is_float:
            return self
        if decimals:
            scale = 10.0 ** abs(decimals)
            return (self * scale).round() / scale if decimals > 0 else (self / scale).round() * scale
        whole = self._unary(Op.TRUNC)
        rest = (self - whole).abs()
        is_odd = (whole * 0.5)._unary(Op.TRUNC) * 2.0 != whole
        away = (rest > 0.5) | ((rest == 0.5) & is_odd)
        return away.where(whole + (self < 0).where(-1.0, 1.0).cast(self.node.dtype), whole)

    def frac(self) -> Self:
        """What trunc leaves."""
        return self - self.trunc()

    def isnan(self) -> Self:
        """True for NaN."""
        return self != self if self.node.dtype.is_float else self._all(False)

    def isinf(self) -> Self:
        """True for inf and -inf."""
        if not self.node.dtype.is_float:
            return self._all(False)
        return (self == math.inf) | (self == -math.inf)

    def isfinite(self) -> Self:
        """True for what is neither NaN nor infinite."""
        return self.abs() < math.inf if self.node.dtype.is_float else self._all(True)

    def _all(self, value: Scalar) -> Self:
        return self._like(expanded(const(value, dtypes.bool), self.node.shape))

    def _flat(self, values: Self) -> Self:
        """These values, which do not change with this tensor: their gradient is zero, and not missing."""
        if not self.node.dtype.is_float:
            return values
        never = const(False, dtypes.bool)
        return values._like(Node(Op.WHERE, values.node.dtype, (never, self.trunc().node, values.node)))

    def _ones(self) -> Self:
        return self._like(expanded(const(1, self.node.dtype), self.node.shape))

    def isclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Self:
        """True where |self - other| <= atol + rtol * |other|; equal infinities are close."""
        other = self._operand("isclose", other)
        near = ((self - other).abs() <= other.abs() * rtol + atol) & other.isfinite()
        near = near | (self == other)
        return near | (self.isnan() & other.isnan()) if equal_nan else near
