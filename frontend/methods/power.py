"""Powers: x ** y by the road that is exact where one exists.

In       a base and an exponent: tensors or Python numbers
Out      lazy tensors; whole Python exponents become multiplications, halves a square root, the rest exp2(y * log2(x))
Changes  nothing
Next     functions.py (what powers are built from), activation.py (the layer above)

The general road has a relative error that grows with the logarithm of the result: about |y * log2(x)| times the
spacing of the format.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from hcq.frontend.core import Core
from hcq.frontend.errors import UsageError
from hcq.frontend.methods.functions import Functions
from hcq.ir.dtype import dtypes, promote
from hcq.ir.node import const

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T", bound=Functions)

MULTIPLIED_UP_TO = 32  # larger whole exponents of floats take the general road


class Power(Functions):
    """The ** operator."""

    __slots__ = ()

    def __pow__(self, exponent: Any) -> Self:
        return power(self, exponent)

    def __rpow__(self, base: Any) -> Self:
        return power(self._operand("**", base), self)

    def pow(self, exponent: Any) -> Self:
        return self**exponent


def power(x: T, exponent: Any) -> T:
    """x ** exponent."""
    if x.node.dtype.is_bool:
        raise UsageError(
            "[**] bool tensors are not raised to powers. Cast to an integer: x.cast(dtypes.int32)."
        )
    if x.node.dtype.is_float and x.node.dtype.itemsize < 4:
        return power(x.cast(dtypes.float32), exponent).cast(x.node.dtype)
    if isinstance(exponent, (bool, int, float)):
        return _scalar_power(x, exponent)
    if not isinstance(exponent, Core):
        exponent = x._operand("**", exponent)
    dtype = promote(x.node.dtype, exponent.node.dtype)
    base, exponent = x.cast(dtype), exponent.cast(dtype)
    return _general(base, exponent) if dtype.is_float else _integers(base, exponent)


def _scalar_power(x: T, exponent: Any) -> T:
    if isinstance(exponent, float) and not x.node.dtype.is_float:
        x = x.cast(dtypes.float32)
    if not x.node.dtype.is_float:
        if exponent < 0:
            raise UsageError(
                f"[**] integer tensor ** {exponent}: the result is not whole. Cast to float first."
            )
        return _by_squaring(x, int(exponent))
    if abs(exponent) <= MULTIPLIED_UP_TO and exponent == int(exponent):
        whole = _by_squaring(x, abs(int(exponent)))
        return whole.reciprocal() if exponent < 0 else whole
    if exponent == 0.5:
        return x.sqrt()
    if exponent == -0.5:
        return x.rsqrt()
    if not math.isfinite(exponent):
        return _general(x, x._like(const(exponent, x.node.dtype)))
    return _number(x, float(exponent))


def _by_squaring(x: T, exponent: int) -> T:
    if exponent == 0:
        return x._flat(x._ones())
    result, square = None, x
    while True:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        square = square.square()


def _number(x: T, exponent: float) -> T:
    """exp2(exponent * log2(x)); zero is set apart, because the logarithm has no slope there."""
    is_zero = x == 0
    base = is_zero.where(1.0, x)
    is_whole = exponent == int(exponent)
    size = ((base.abs() if is_whole else base).log2() * exponent).exp2()
    if is_whole and exponent % 2:
        size = (x < 0).where(-size, size)
    return is_zero.where(math.inf if exponent < 0 else 0.0, size)


def _general(x: T, y: T) -> T:
    """exp2(y * log2(|x|)), then what C's pow says about signs, zeros, ones and NaN."""
    is_zero = x == 0
    size = (y * is_zero.where(1.0, x).abs().log2()).exp2()
    size = is_zero.where((y < 0).where(math.inf, 0.0).cast(x.node.dtype), size)
    is_whole = y.trunc() == y
    is_odd = is_whole & ((y * 0.5).trunc() * 2.0 != y)
    signed = (is_odd & (x < 0)).where(-size, size)
    signed = ((x < 0) & ~is_whole & y.isfinite() & x.isfinite()).where(float("nan"), signed)
    is_one = (y == 0) | (x == 1) | ((x == -1) & (y.abs() == math.inf))
    # only where it is not 1 by itself: a constant there would have no slope
    return (is_one & (signed != 1.0)).where(1.0, signed)


def _integers(x: T, y: T) -> T:
    """Square and multiply over every bit of the exponent, so that overflow wraps as multiplication does."""
    dtype = x.node.dtype
    result, square = x._ones(), x
    for bit in range(dtype.bits - (0 if dtype.is_unsigned else 1)):
        result = ((y >> bit) & 1).bool().where(result * square, result)
        square = square.square()
    if dtype.is_unsigned:
        return result
    unit = (x == 1).where(
        1, (x == -1).where(1 - 2 * (y & 1), 0)
    )  # 1 / x rounded towards zero, for negative y
    return (y < 0).where(unit.cast(dtype), result)
