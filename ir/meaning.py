"""Meaning: what every arithmetic op computes, in plain Python, for one number of any dtype.

In       an op, the dtype of the result, the numbers, the dtype of the sources
Out      the number, exact to the bit for everything but the six transcendental functions
Next     tests/interpreter/evaluate.py (the same for arrays), compiler/passes/fold_identities.py (constant folding)

Results are computed with unlimited integers or in float64 and rounded once to the dtype. For +, *, / and square root
of the narrower formats that is the correctly rounded result, since 53 bits are at least twice their bits plus two. The
transcendental functions are as good as the C library in float64; a target may differ by the ulps that decompose.py
states. Two results are left open: the sign and payload of a NaN, and which zero MAX and MIN of 0.0 and -0.0 give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hcq.ir.dtype import DType, Scalar, dtypes, from_bits, to_bits, truncate
from hcq.ir.op import COMPARE, Op


def apply(op: Op, dtype: DType, args: Sequence[Scalar], source_dtype: DType | None = None) -> Scalar:
    """The number that `op` makes of numbers.

    dtype         of the result; for comparisons bool
    source_dtype  of the sources; may be left out where it is the result's own (not for comparisons, CAST and BITCAST)
    Raises        ValueError for an op that is not arithmetic, or for arithmetic in a storage-only format
    """
    dtype = dtype.scalar
    source = dtype if source_dtype is None else source_dtype.scalar
    if op not in MEANING:
        raise ValueError(
            f"[apply] {op.name} is not arithmetic; only {', '.join(sorted(o.name for o in MEANING))} have a meaning"
        )
    if source_dtype is None and (op in COMPARE or op in (Op.CAST, Op.BITCAST)):
        raise ValueError(f"[apply] {op.name} needs source_dtype, the dtype of its sources")
    if source.is_storage_only and op not in (Op.CAST, Op.BITCAST, Op.WHERE):
        raise ValueError(
            f"[{op.name.lower()}] {source.name} is for storage only: cast to float32, compute, and cast back"
        )
    return truncate(MEANING[op](dtype, source, *args), dtype)


def identity(op: Op, dtype: DType) -> Scalar:
    """What a reduction by ADD, MUL, MAX or MIN starts from and gives for nothing: 0, 1, the least, the greatest."""
    if op is Op.ADD or op is Op.MUL:
        return 0 if op is Op.ADD else 1
    return dtype.min if op is Op.MAX else dtype.max


def divide(a: float, b: float) -> float:
    """a / b as IEEE 754 has it: infinities and NaN instead of exceptions."""
    if b != 0.0:
        return a / b
    if a == 0.0 or a != a or b != b:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def cast(dtype: DType, source: DType, x: Any) -> Scalar:
    """The value of x in another dtype: to integer truncating and saturating, NaN as 0; integers wrap.

    Integers reach the formats narrower than float32 by way of float32.
    """
    if dtype.is_bool:
        return bool(x != 0)
    if dtype.is_float:
        return _nearest(int(x), dtype) if not source.is_float else float(x)
    if not source.is_float:
        return int(x)
    if x != x:
        return 0
    if math.isinf(x):
        return dtype.max if x > 0 else dtype.min
    return min(max(int(x), dtype.min), dtype.max)


def _nearest(x: int, dtype: DType) -> float:
    """The float64 that rounds to the same float32 as the integer does: low bits are kept as one sticky bit."""
    if dtype is dtypes.float64:
        return float(x)
    magnitude = abs(x)
    dropped = max(magnitude.bit_length() - 40, 0)
    sticky = 1 if magnitude & ((1 << dropped) - 1) else 0
    nearest = float(truncate(float((magnitude >> dropped | sticky) << dropped), dtypes.float32))
    return -nearest if x < 0 else nearest


def _float_function(
    function: Callable[[float], float], at_overflow: float = math.nan
) -> Callable[..., float]:
    """A function of one float; a domain error of the math module is NaN, as in IEEE 754."""

    def meaning(dtype: DType, source: DType, x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return at_overflow
        except ValueError:
            return math.nan

    return meaning


def _logarithm(function: Callable[[float], float]) -> Callable[..., float]:
    return _float_function(lambda x: -math.inf if x == 0.0 else function(x))


def _extreme(choose: Callable[[Any, Any], Any]) -> Callable[..., Scalar]:
    def meaning(dtype: DType, source: DType, a: Any, b: Any) -> Scalar:
        return math.nan if a != a or b != b else choose(a, b)

    return meaning


def _shift_left(dtype: DType, source: DType, x: int, count: int) -> int:
    return x << count if 0 <= count < dtype.bits else 0


def _shift_right(dtype: DType, source: DType, x: int, count: int) -> int:
    if 0 <= count < dtype.bits:
        return x >> count
    return -1 if x < 0 else 0


# (dtype, source dtype, numbers) -> the number before it is made to fit
MEANING: dict[Op, Callable[..., Scalar]] = {
    Op.NEG: lambda dtype, source, x: -x,
    Op.NOT: lambda dtype, source, x: not x if dtype.is_bool else ~x,
    Op.SQRT: _float_function(lambda x: x if x == 0.0 else math.sqrt(x)),
    Op.EXP: _float_function(math.exp, at_overflow=math.inf),
    Op.EXP2: _float_function(lambda x: math.pow(2.0, x), at_overflow=math.inf),
    Op.LOG: _logarithm(math.log),
    Op.LOG2: _logarithm(math.log2),
    Op.SIN: _float_function(math.sin),
    Op.COS: _float_function(math.cos),
    Op.TRUNC: lambda dtype, source, x: math.copysign(math.trunc(x), x) if math.isfinite(x) else x,
    Op.CAST: cast,
    Op.BITCAST: lambda dtype, source, x: from_bits(to_bits(x, source), dtype),
    Op.ADD: lambda dtype, source, a, b: a + b,
    Op.MUL: lambda dtype, source, a, b: a * b,
    Op.DIV: lambda dtype, source, a, b: divide(a, b),
    Op.FLOORDIV: lambda dtype, source, a, b: a // b if b else 0,
    Op.MOD: lambda dtype, source, a, b: a % b if b else 0,
    Op.MAX: _extreme(max),
    Op.MIN: _extreme(min),
    Op.AND: lambda dtype, source, a, b: a & b,
    Op.OR: lambda dtype, source, a, b: a | b,
    Op.XOR: lambda dtype, source, a, b: a ^ b,
    Op.SHL: _shift_left,
    Op.SHR: _shift_right,
    Op.CMPLT: lambda dtype, source, a, b: a < b,
    Op.CMPLE: lambda dtype, source, a, b: a <= b,
    Op.CMPEQ: lambda dtype, source, a, b: a == b,
    Op.CMPNE: lambda dtype, source, a, b: a != b,
    Op.WHERE: lambda dtype, source, condition, if_true, if_false: if_true if condition else if_false,
}
