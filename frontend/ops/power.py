"""Powers: x ** y, by an exact method where one exists.

In       a base and an exponent: tensors or Python numbers
Out      lazy tensors; whole Python exponents become multiplications, halves a square root, the rest exp2(y * log2(x))
Next     grad/function.py (why slopes have rules of their own), functions.py (exp, log)

Signs, zeros, infinities and NaN are as C's pow has them, slopes as PyTorch has them. The general method has a relative
error that grows with the logarithm of the result: about |y * log2(x)| times the spacing of the format.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

from hcq.checks import shown
from hcq.frontend.core.errors import NotReal, UsageError
from hcq.frontend.core.nodes import (
    absolute,
    both,
    broadcast,
    either,
    filled,
    logarithm,
    met,
    negated,
    reciprocal,
    truncated,
)
from hcq.frontend.grad.function import Function, constant_in
from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.ops.complex_arguments import in_complex
from hcq.ir.dtype import DType, Scalar, dtypes, truncate
from hcq.ir.node import Node, const
from hcq.ir.op import Op

T = TypeVar("T", bound=Methods)

ONLY_BOOLS = "[**] bools are not raised to bools. Cast one to an integer: x.cast(dtypes.int32)."
MULTIPLIED_UP_TO = 32  # larger whole exponents of floats take the general method
# integers that are negative where a sign is
_BITS = {dtypes.float32: dtypes.int32, dtypes.float64: dtypes.int64}


class Power(Methods):
    """The ** operator."""

    __slots__ = ()

    def __pow__(self, exponent: Any) -> Self:
        """self ** exponent, a number or a tensor: shapes broadcast, dtypes promote.

        Raises  UsageError for a bool to a bool, and for an integer to a negative number

        >>> Tensor([1.0, 4.0]).pow(0.5).tolist()
        [1.0, 2.0]
        """
        try:
            return power(self, exponent)
        except NotReal:
            return in_complex("**", self, exponent)  # type: ignore[no-any-return]

    pow = __pow__

    def __rpow__(self, base: Any) -> Self:
        if isinstance(base, (int, float)) and not isinstance(base, bool) and self.node.dtype.is_float:
            wide = _wide(self.node)
            return self._like(
                raised(const(truncate(base, wide.dtype), wide.dtype), wide).cast(self.node.dtype)
            )
        return self._operand("**", base) ** self  # type: ignore[no-any-return]


def power(x: T, exponent: Any) -> T:
    """x ** exponent."""
    if x.node.dtype.is_bool and type(exponent) is int:
        x = x.cast(dtypes.int64)
    dtype = x.node.dtype
    if dtype.is_bool and isinstance(exponent, bool):
        raise UsageError(ONLY_BOOLS)
    if isinstance(exponent, (bool, int, float)):
        if isinstance(exponent, float) and not dtype.is_float:
            x, dtype = x.cast(dtypes.float32), dtypes.float32
        if exponent == 0:
            return constant_in(x, x._like(filled(1, x.node.shape, x.node.dtype)))
        if dtype.is_float:
            wide = _wide(x.node)
            return x._like(raised(wide, const(_as_float(exponent, wide.dtype), wide.dtype)).cast(dtype))
        if exponent < 0:
            raise UsageError(
                f"[**] integer tensor ** {exponent}: the result is not whole. Cast to float first."
            )
        return x._like(_multiplied(x.node, int(exponent)))
    other = x._operand("**", exponent)
    x._same_device("**", other)
    dtype = met(x.node, other.node)
    if dtype.is_bool:
        raise UsageError(ONLY_BOOLS)
    if not dtype.is_float:
        return _integers(x.cast(dtype), other.cast(dtype))
    a, b = x.node, other.node
    if (a.shape == ()) is (b.shape == ()):  # one of no axes is not rounded, as a number is not
        a, b = a.cast(dtype), b.cast(dtype)
    inside = dtypes.float32 if dtype.itemsize < 4 else dtype
    a, b = broadcast("**", a.cast(inside), b.cast(inside))
    return x._like(raised(a, b).cast(dtype))


def _wide(node: Node) -> Node:
    """At least float32: powers of narrower floats are rounded once, at the end."""
    return node.cast(dtypes.float32) if node.dtype.itemsize < 4 else node


def raised(x: Node, y: Node) -> Node:
    """x ** y of one dtype, float32 or float64; either may be a constant."""
    if y.op is Op.CONST and math.isfinite(y.arg):
        exponent = float(y.arg)
        if exponent == 1.0:
            return x
        if exponent == 2.0:
            return x * x
        if exponent == -1.0:
            return reciprocal(x)
        return POWER.of(_by_number(x, exponent), x, y)
    return POWER.of(_general(x, y), x, y)


def _slope_of_base(node: Node, g: Node) -> Node:
    """y * x ** (y - 1), and 0 where y is 0."""
    _, x, y = node.src
    zero = const(0.0, g.dtype)
    if y.op is not Op.CONST:
        slope = y * raised(x, y + -1.0)
        return y.eq(0.0).where(zero, g * slope)
    if y.arg == 0.0:
        return zero
    return g * (raised(x, const(truncate(y.arg - 1.0, y.dtype), y.dtype)) * y)


def _slope_of_exponent(node: Node, g: Node) -> Node:
    """x ** y * log(x), and 0 where x is 0 and y is not negative."""
    _, x, y = node.src
    is_flat = both(x.eq(0.0), y >= 0.0)
    return is_flat.where(const(0.0, g.dtype), g * (node * logarithm(x)))


POWER = Function("power", _slope_of_base, _slope_of_exponent)


def _multiplied(x: Node, exponent: int) -> Node:
    """x ** exponent for a whole exponent of 1 or more, by squaring and multiplying."""
    result, square = None, x
    while True:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        square = square * square


def _by_number(x: Node, exponent: float) -> Node:
    """x ** exponent for a finite exponent that Python holds."""
    is_whole = exponent == int(exponent)
    if is_whole and abs(exponent) <= MULTIPLIED_UP_TO:
        if exponent == 0.0:
            return const(1.0, x.dtype)
        # of 1 / x, not 1 over the power: that would be infinite, or lose bits, where the result is not yet zero
        return _multiplied(x if exponent > 0 else reciprocal(x), abs(int(exponent)))
    if abs(exponent) == 0.5:
        root = Node(Op.SQRT, x.dtype, (x + 0.0,))  # of -0.0 it is 0.0
        root = x.eq(-math.inf).where(const(math.inf, x.dtype), root)
        return root if exponent > 0 else reciprocal(root)
    if not is_whole:  # a logarithm is NaN below zero, as the power is, but for -inf
        power = Node(Op.EXP2, x.dtype, (Node(Op.LOG2, x.dtype, (x,)) * exponent,))
        return x.eq(-math.inf).where(const(math.inf if exponent > 0 else 0.0, x.dtype), power)
    size = _size(x, const(exponent, x.dtype))
    return _has_sign(x).where(negated(size), size) if exponent % 2 else size


def _general(x: Node, y: Node) -> Node:
    """exp2(y * log2(|x|)), then what C's pow says about signs, zeros, ones and NaN."""
    dtype = x.dtype
    if x.op is Op.CONST and x.arg > 0.0 and x.arg != 1.0 and math.isfinite(x.arg):
        return Node(Op.EXP2, dtype, (y * truncate(math.log2(x.arg), dtype),))
    size = _size(x, y)
    is_whole = truncated(y).eq(y)
    is_odd = both(is_whole, (truncated(y * 0.5) * 2.0).ne(y))
    signed = both(is_odd, _has_sign(x)).where(negated(size), size)
    is_undefined = both(_is_negative_number(x), truncated(y).ne(y))
    signed = is_undefined.where(const(math.nan, dtype), signed)
    is_one = either(y.eq(0.0), x.eq(1.0))
    is_one = either(is_one, both(x.eq(-1.0), absolute(y).eq(math.inf)))
    return is_one.where(const(1.0, dtype), signed)


def _size(x: Node, y: Node) -> Node:
    """|x| ** y; NaN for 0 ** 0 and 1 ** inf."""
    return Node(Op.EXP2, x.dtype, (y * Node(Op.LOG2, x.dtype, (absolute(x),)),))


def _has_sign(x: Node) -> Node:
    """True for negative numbers and for -0.0."""
    return Node(Op.BITCAST, _BITS[x.dtype], (x,)) < 0


def _is_negative_number(x: Node) -> Node:
    """True for what is negative and finite: only whole powers of it are numbers."""
    return both(x < 0.0, x > -math.inf)


def _integers(x: T, y: T) -> T:
    """Square and multiply over every bit of the exponent, so that overflow wraps as multiplication does."""
    dtype: DType = x.node.dtype
    result, square = x._like(filled(1, x.node.shape, x.node.dtype)), x
    for bit in range(dtype.bits - (0 if dtype.is_unsigned else 1)):
        result = (((y >> bit) & 1) != 0).where(result * square, result)
        square = square.square()
    if dtype.is_unsigned:
        return result
    # 1 / x rounded towards zero, for negative y
    unit = (x == 1).where(1, (x == -1).where(1 - 2 * (y & 1), 0))
    return (y < 0).where(unit.cast(dtype), result)


def _as_float(exponent: Scalar, dtype: DType) -> Scalar:
    """An exponent in a format; an int beyond every float is refused."""
    try:
        return truncate(exponent, dtype)
    except OverflowError:
        raise UsageError(
            f"[**] exponent {shown(exponent)} is beyond every float. Use a smaller one."
        ) from None
