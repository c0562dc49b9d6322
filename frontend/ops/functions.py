"""Functions: what takes more than an operator: // and %, powers, exponentials, logarithms, rounding, finiteness.

In       tensors and Python numbers
Out      lazy tensors, elementwise
Next     power.py (the ** operator), activation.py (functions built from these), docs/semantics.md (division, powers)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hcq.frontend.core.errors import DivisionByZero, UsageError
from hcq.frontend.core.nodes import (
    absolute,
    both,
    broadcast,
    divided,
    either,
    filled,
    met,
    minus,
    negated,
    reciprocal,
    truncated,
)
from hcq.frontend.core.sizes import counts_of, with_counts
from hcq.frontend.grad.function import Function, constant_in, same
from hcq.frontend.ops.base import Methods, Self, in_float_together
from hcq.ir.dtype import Scalar, dtypes
from hcq.ir.elementwise.declaration import FLAT, Rule
from hcq.ir.node import Node, const
from hcq.ir.op import Op

if TYPE_CHECKING:
    from collections.abc import Callable


class Functions(Methods):
    """Division with rest, powers, exp, log, sqrt, sin, abs, sign, floor, round, isnan, isclose."""

    __slots__ = ()

    # -- division with rest, powers --

    def __floordiv__(self, other: Any) -> Self:
        return self._floor_divide(other, reverse=False)

    def __rfloordiv__(self, other: Any) -> Self:
        return self._floor_divide(other, reverse=True)

    def __mod__(self, other: Any) -> Self:
        """self % other: the rest of a division rounded down, with the sign of the divisor, as in Python.

        >>> hcq.tensor([-7, 7]).remainder(3).tolist()
        [2, 1]
        """
        return self._modulo(other, reverse=False)

    remainder = __mod__

    def floor_divide(self, other: Any) -> Self:
        """self // other: the quotient rounded down. Shapes broadcast, dtypes promote.

        >>> hcq.tensor([-7, 7]).floor_divide(2).tolist()
        [-4, 3]
        """
        return self._floor_divide(other, reverse=False)

    def __rmod__(self, other: Any) -> Self:
        return self._modulo(other, reverse=True)

    @in_float_together
    def _floor_divide(self, other: Any, reverse: bool) -> Self:
        x, y = self._pair("//", other, reverse)
        if not x.node.dtype.is_float:
            return x._binary(Op.FLOORDIV, y)
        value = _whole_quotient(x.node, y.node)
        return x._like(QUOTIENT.of(value.cast(x.node.dtype), x.node, y.node))

    @in_float_together
    def _modulo(self, other: Any, reverse: bool) -> Self:
        x, y = self._pair("%", other, reverse)
        if not x.node.dtype.is_float:
            return x._binary(Op.MOD, y)
        value = _modulo_of(x.node, y.node)
        return x._like(MODULO.of(value.cast(x.node.dtype), x.node, y.node))

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
            dtype = met(a, b)
            a, b = broadcast(call, a.cast(dtype), b.cast(dtype))
        if a.dtype.is_bool:
            raise UsageError(f"[{call}] bool tensors are not divided. Cast one: x.cast(dtypes.int32).")
        x, y = self._like(a), self._like(b)
        return (y, x) if reverse else (x, y)

    def __divmod__(self, other: Any) -> tuple[Self, Self]:
        return self // other, self % other

    @in_float_together
    def fmod(self, other: Any) -> Self:
        """The rest of a division rounded towards zero, with the sign of the dividend. Shapes broadcast, dtypes promote.

        Raises  DivisionByZero for integers by the number 0

        >>> hcq.tensor([-7, 7]).fmod(3).tolist()
        [-1, 1]
        """
        x, y = self._pair("fmod", other, reverse=False)
        if x.node.dtype.is_float:
            value = _rest(x.node, y.node)
            return x._like(REST.of(value.cast(x.node.dtype), x.node, y.node))
        rest = x._modulo(y, reverse=False)
        return ((rest != 0) & ((rest < 0) != (x < 0))).where(rest - y, rest)

    def __abs__(self) -> Self:
        return self.abs()

    # -- one node, mostly --

    def exp(self) -> Self:
        """e ** x; integers and bool become float32.

        >>> Tensor([0.0, -1000.0, 1000.0]).exp().tolist()
        [1.0, 0.0, inf]
        """
        return self._float_unary(Op.EXP)

    def exp2(self) -> Self:
        """2 ** x; integers and bool become float32.

        >>> hcq.tensor([-1, 0, 3]).exp2().tolist()
        [0.5, 1.0, 8.0]
        """
        return self._float_unary(Op.EXP2)

    def log(self) -> Self:
        """Natural logarithm; NaN below zero, -inf at zero; integers and bool become float32.

        >>> Tensor([1.0, 0.0, -1.0]).log().tolist()
        [0.0, -inf, nan]
        """
        return self._float_unary(Op.LOG)

    def log2(self) -> Self:
        """Logarithm to base 2; NaN below zero, -inf at zero; integers and bool become float32.

        >>> Tensor([8.0, 0.5]).log2().tolist()
        [3.0, -1.0]
        """
        return self._float_unary(Op.LOG2)

    def log10(self) -> Self:
        """Logarithm to base 10; NaN below zero, -inf at zero; integers and bool become float32.

        >>> print(hcq.tensor([1000, 1]).log10())
        tensor([3., 0.])
        """
        return self.log2() * math.log10(2.0)

    def sin(self) -> Self:
        """Sine of radians; integers and bool become float32.

        >>> print(Tensor([0.0, 1.0]).sin())
        tensor([0.0000, 0.8415])
        """
        return self._float_unary(Op.SIN)

    def cos(self) -> Self:
        """Cosine of radians; integers and bool become float32.

        >>> print(Tensor([0.0, hcq.pi]).cos())
        tensor([ 1., -1.])
        """
        return self._float_unary(Op.COS)

    def tan(self) -> Self:
        """Tangent of radians; integers and bool become float32.

        >>> print(Tensor([0.0, 1.0]).tan())
        tensor([0.0000, 1.5574])
        """
        return self.sin() / self.cos()

    def sqrt(self) -> Self:
        """Square root; NaN below zero; integers and bool become float32.

        >>> hcq.tensor([9, 2**20]).sqrt().tolist(), Tensor([-1.0]).sqrt().tolist()
        ([3.0, 1024.0], [nan])
        """
        return self._float_unary(Op.SQRT)

    def rsqrt(self) -> Self:
        """1 / sqrt(x); integers and bool become float32.

        >>> Tensor([4.0, 0.0]).rsqrt().tolist()
        [0.5, inf]
        """
        return self.sqrt()._binary(Op.DIV, 1.0, reverse=True)

    def reciprocal(self) -> Self:
        """1 / x; integers and bool become float32.

        >>> hcq.tensor([2, 0]).reciprocal().tolist()
        [0.5, inf]
        """
        return self._divide(1.0, reverse=True)

    def square(self) -> Self:
        """x * x; of bools int64, as in PyTorch.

        >>> hcq.tensor([-3, 4]).square().tolist()
        [9, 16]
        """
        if self.node.dtype.is_bool:
            return self.cast(dtypes.int64)
        return self._binary(Op.MUL, self)

    def abs(self) -> Self:
        """The distance from zero; the dtype stays, and so does the least integer, which has none.

        >>> hcq.tensor([-2, 3]).abs().tolist(), Tensor([3 + 4j]).abs().tolist()
        ([2, 3], [5.0])
        """
        dtype = self.node.dtype
        if dtype.is_unsigned or dtype.is_bool:
            return self._like(self.node)
        if dtype.is_storage_only:
            return self.cast(dtypes.float32).abs().cast(dtype)
        negated = Node(Op.NEG, dtype, (self.node,))
        if not dtype.is_float:
            return self._like(Node(Op.MAX, dtype, (self.node, negated)))
        # 0.0 - x and not -x: the size of -0.0 is 0.0
        return self._like(ABS.of((self.node <= 0.0).where(negated + 0.0, self.node), self.node))

    def sign(self) -> Self:
        """-1, 0 or 1 in the same dtype; 0 for NaN.

        >>> Tensor([-2.5, 0.0, 7.0]).sign().tolist()
        [-1.0, 0.0, 1.0]
        """
        if self.node.dtype.is_bool:
            return self._like(self.node)
        return constant_in(self, (self > 0).cast(self.node.dtype) - (self < 0).cast(self.node.dtype))

    def trunc(self) -> Self:
        """Rounded towards zero; the dtype stays.

        >>> Tensor([-1.8, 1.8]).trunc().tolist()
        [-1.0, 1.0]
        """
        return self._unary(Op.TRUNC) if self.node.dtype.is_float else self._like(self.node)

    def floor(self) -> Self:
        """Rounded down; the dtype stays.

        >>> Tensor([-1.5, 1.8]).floor().tolist()
        [-2.0, 1.0]
        """
        if not self.node.dtype.is_float:
            return self._like(self.node)
        whole = self._unary(Op.TRUNC)
        return (self < whole).where(whole - 1.0, whole)

    def ceil(self) -> Self:
        """Rounded up; the dtype stays.

        >>> Tensor([-1.5, 1.2]).ceil().tolist()
        [-1.0, 2.0]
        """
        if not self.node.dtype.is_float:
            return self._like(self.node)
        whole = self._unary(Op.TRUNC)
        return (self > whole).where(whole + 1.0, whole)

    @in_float_together
    def round(self, decimals: int = 0) -> Self:
        """To the nearest whole number, halves to the even one; or to that many decimals. The dtype stays.

        >>> Tensor([0.5, 1.5, 2.25]).round().tolist()
        [0.0, 2.0, 2.0]
        """
        if not self.node.dtype.is_float:
            return self._like(self.node)
        if decimals:
            scale = 10.0 ** abs(decimals)
            return (self * scale).round() / scale if decimals > 0 else (self / scale).round() * scale
        whole = self._unary(Op.TRUNC)
        rest = (self - whole).abs()
        is_odd = (whole * 0.5)._unary(Op.TRUNC) * 2.0 != whole
        away = (rest > 0.5) | ((rest == 0.5) & is_odd)
        return away.where(whole + (self < 0).where(-1.0, 1.0).cast(self.node.dtype), whole)

    def frac(self) -> Self:
        """x - trunc(x), with the sign of x.

        >>> Tensor([-1.5, 2.25]).frac().tolist()
        [-0.5, 0.25]
        """
        return self - self.trunc()

    def isnan(self) -> Self:
        """True for NaN; bool.

        >>> Tensor([1.0, float("inf"), float("nan")]).isnan().tolist()
        [False, False, True]
        """
        return self != self if self.node.dtype.is_float else self._all(False)

    def isinf(self) -> Self:
        """True for inf and -inf; bool.

        >>> Tensor([1.0, float("-inf"), float("nan")]).isinf().tolist()
        [False, True, False]
        """
        if not self.node.dtype.is_float:
            return self._all(False)
        return (self == math.inf) | (self == -math.inf)

    def isfinite(self) -> Self:
        """True for what is neither NaN nor infinite; bool.

        >>> Tensor([1.0, float("inf"), float("nan")]).isfinite().tolist()
        [True, False, False]
        """
        return self.abs() < math.inf if self.node.dtype.is_float else self._all(True)

    def _all(self, value: Scalar) -> Self:
        return self._like(with_counts(filled(value, self.node.shape, dtypes.bool), counts_of(self.node)))

    def isclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Self:
        """True where |self - other| <= atol + rtol * |other|; equal infinities are close, NaN to NaN if `equal_nan`.

        >>> Tensor([1.0, 1.1]).isclose(Tensor([1.000001, 1.0])).tolist()
        [True, False]
        """
        other = self._operand("isclose", other)
        if self.node.dtype.is_bool or other.node.dtype.is_bool:
            return self == other
        near = ((self - other).abs() <= other.abs() * rtol + atol) & other.isfinite()
        near = near | (self == other)
        return near | (self.isnan() & other.isnan()) if equal_nan else near


# -- floats divided with a rest: nodes, in float64 ----------------------------------------------------------------


# float64 holds 53 bits: the bits of a quotient that its product with a divisor of each format leaves room for, and the
# bits that a quotient of two numbers of the format can have
_ROOM = {dtypes.float16: (42, 42), dtypes.bfloat16: (44, 262), dtypes.float32: (28, 278)}


def _rest(x: Node, y: Node) -> Node:
    """C's fmod: x - y * trunc(x / y), with the sign of x; in float64, of numbers of their dtype.

    A long division: each step takes off as many bits of the quotient as leave the product with y exact, rounded to the
    nearest, so that a rest may be negative. Of float64 there is one step, which rounds.
    """
    step, bits = _ROOM.get(x.dtype, (1, 1))
    x, y = x.cast(dtypes.float64), y.cast(dtypes.float64)
    size, rest = absolute(y), absolute(x)
    if bits == 1:
        rest = minus(rest, truncated(divided(rest, size)) * size)
        rest = (rest < 0.0).where(rest + size, rest)
        is_lost = either(rest < 0.0, rest >= size)  # rounded by more than the divisor
        rest = is_lost.where(const(0.0, dtypes.float64), rest)
    else:
        inverse = reciprocal(size)
        for place in range((bits - 1) // step * step, -1, -step):
            quotient = truncated(rest * (inverse * 2.0**-place))
            rest = minus(rest, quotient * (size * 2.0**place))
        rest = (rest < 0.0).where(rest + size, rest)
        rest = (rest >= size).where(minus(rest, size), rest)
    rest = (x < 0.0).where(negated(rest), rest)
    rest = rest.eq(0.0).where(x * 0.0, rest)
    is_finite = both(x.ne(math.inf), x.ne(-math.inf))
    return both(size.eq(math.inf), is_finite).where(x, rest)


def _is_across(rest: Node, y: Node) -> Node:
    """True where the sign of the rest is not the divisor's, so that rounding down is one divisor away."""
    return rest.ne(0.0) & (rest < 0.0).ne(y < 0.0)


def _modulo_of(x: Node, y: Node) -> Node:
    """Python's %: the rest with the sign of y."""
    rest, y = _rest(x, y), y.cast(dtypes.float64)
    return _is_across(rest, y).where(rest + y, rest)


def _whole_quotient(x: Node, y: Node) -> Node:
    """Python's //: the quotient rounded down. By zero it is what / gives."""
    rest = _rest(x, y)
    x, y = x.cast(dtypes.float64), y.cast(dtypes.float64)
    ratio = divided(x, y)
    whole = divided(minus(x, rest), y)
    whole = truncated(whole + (whole < 0.0).where(const(-0.5, x.dtype), const(0.5, x.dtype)))
    whole = _is_across(rest, y).where(whole + -1.0, whole)
    whole = whole.eq(0.0).where(ratio * 0.0, whole)
    return y.eq(0.0).where(ratio, whole)


def _quotient_towards_zero(x: Node, y: Node) -> Node:
    return truncated(divided(x.cast(dtypes.float64), y.cast(dtypes.float64)))


# -- derivatives -------------------------------------------------------------------------------------------------


def _slope_of_abs(node: Node, g: Node) -> Node:
    one, minus_one, zero = (const(value, g.dtype) for value in (1.0, -1.0, 0.0))
    x = node.src[1]
    return g * (x < 0.0).where(minus_one, (x > 0.0).where(one, zero))


def _slope_of_divisor(rounded: Callable[[Node, Node], Node]) -> Rule:
    """Of x - y * rounded(x / y): minus the rounded quotient."""

    def rule(node: Node, g: Node) -> Node:
        _, x, y = node.src
        whole = rounded(x, y)
        return negated(g * whole.cast(g.dtype))

    return rule


ABS = Function("abs", _slope_of_abs)
QUOTIENT = Function("//", FLAT, FLAT)
MODULO = Function("%", same, _slope_of_divisor(_whole_quotient))
REST = Function("fmod", same, _slope_of_divisor(_quotient_towards_zero))
