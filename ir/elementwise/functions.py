"""Functions: the declarations of operations on one number: signs, roots, exponentials, conversions.

In       nothing
Out      `FUNCTIONS`, in the order of op.py
Next     operators.py (of two and three numbers), table.py (who asks for them), declaration.py (what each field says)

Exponentials, logarithms, sines and cosines are made of other operations by compiler/passes/transcendental.py and
trigonometry.py, which are as good in float32 and float64 as docs/semantics.md says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hcq.ir.dtype import DType, Kind, Scalar, dtypes, from_bits, to_bits, truncate
from hcq.ir.elementwise.declaration import (
    BITS,
    FLAT,
    FLOATS,
    WRITTEN,
    Elementwise,
    Range,
    Spelling,
    carrier,
    over,
    times,
)
from hcq.ir.node import Node
from hcq.ir.op import Op

# -- meanings -------------------------------------------------------------------------------------------------------


def of_float(function: Callable[[float], float], at_overflow: float = math.nan) -> Callable[..., float]:
    """A function of one float as a meaning; a domain error of the math module is NaN, as in IEEE 754."""

    def meaning(dtype: DType, source: DType, x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return at_overflow
        except ValueError:
            return math.nan

    return meaning


def _logarithm(function: Callable[[float], float]) -> Callable[..., float]:
    return of_float(lambda x: -math.inf if x == 0.0 else function(x))


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


# -- slopes ---------------------------------------------------------------------------------------------------------


def _minus(node: Node) -> Node:
    return Node(Op.NEG, node.dtype, (node,))


def _log2_slope(node: Node, g: Node) -> Node:
    return over(g * (1.0 / math.log(2.0)), node.src[0])


# -- value ranges ---------------------------------------------------------------------------------------------------


def _not_bounds(node: Node, x: Range) -> Range:
    low, high = x
    if node.dtype.kind is Kind.BOOL:
        return 1 - high, 1 - low
    return ~high, ~low


def _cast_bounds(node: Node, found: Range | None) -> Range | None:
    if found is None:  # of a float
        return None
    if node.dtype.kind is Kind.INDEX:
        # targets hold an index in 64 signed bits, where a large uint64 looks negative
        return None if node.src[0].dtype.scalar is dtypes.uint64 else found
    if node.dtype.kind is Kind.BOOL:
        return (1, 1) if found[0] > 0 or found[1] < 0 else (0, int(found != (0, 0)))
    return found


FUNCTIONS = (
    Elementwise(
        op=Op.NEG,
        meaning=lambda dtype, source, x: -x,
        slopes=(lambda node, g: _minus(g),),
        bounds=lambda node, x: (-x[1], -x[0]),
        spelled={
            "llvm": Spelling(floats="fneg"),
            "c": Spelling(integers="({kind})(({wide})0 - ({wide}){a})"),
        },
        keeps_format=True,
    ),
    Elementwise(
        op=Op.NOT,
        meaning=lambda dtype, source, x: not x if dtype.is_bool else ~x,
        slopes=(None,),
        takes=BITS,
        bounds=_not_bounds,
        spelled={"llvm": WRITTEN, "c": Spelling(integers="({kind})~{a}", bools="!{a}")},
    ),
    Elementwise(
        op=Op.SQRT,
        meaning=of_float(lambda x: x if x == 0.0 else math.sqrt(x)),
        slopes=(lambda node, g: over(g * 0.5, node),),
        takes=FLOATS,
        spelled={
            "llvm": Spelling(floats="llvm.sqrt"),
            "cuda": Spelling(floats="__fsqrt_rn({a})", doubles="__dsqrt_rn({a})"),
            "metal": Spelling(floats="precise::sqrt({a})"),
        },
    ),
    Elementwise(
        op=Op.EXP,
        meaning=of_float(math.exp, at_overflow=math.inf),
        slopes=(lambda node, g: times(g, node),),
        takes=FLOATS,
        is_costly=True,
    ),
    Elementwise(
        op=Op.EXP2,
        meaning=of_float(lambda x: math.pow(2.0, x), at_overflow=math.inf),
        slopes=(lambda node, g: times(g * math.log(2.0), node),),
        takes=FLOATS,
        spelled={"llvm": Spelling(floats="llvm.exp2")},  # where a few units in the last place do not matter
        is_costly=True,
    ),
    Elementwise(
        op=Op.LOG,
        meaning=_logarithm(math.log),
        slopes=(lambda node, g: over(g, node.src[0]),),
        takes=FLOATS,
        is_costly=True,
    ),
    Elementwise(
        op=Op.LOG2, meaning=_logarithm(math.log2), slopes=(_log2_slope,), takes=FLOATS, is_costly=True
    ),
    Elementwise(
        op=Op.SIN,
        meaning=of_float(math.sin),
        slopes=(lambda node, g: times(g, node.replace(op=Op.COS)),),
        takes=FLOATS,
        is_costly=True,
    ),
    Elementwise(
        op=Op.COS,
        meaning=of_float(math.cos),
        slopes=(lambda node, g: _minus(times(g, node.replace(op=Op.SIN))),),
        takes=FLOATS,
        is_costly=True,
    ),
    Elementwise(
        op=Op.TRUNC,
        meaning=lambda dtype, source, x: math.copysign(math.trunc(x), x) if math.isfinite(x) else x,
        slopes=(FLAT,),
        takes=FLOATS,
        spelled={
            "llvm": Spelling(floats="llvm.trunc"),
            "cuda": Spelling(floats="truncf({a})", doubles="trunc({a})"),
            "metal": Spelling(floats="trunc({a})"),
        },
        keeps_format=True,
    ),
    Elementwise(
        op=Op.CAST,
        meaning=cast,
        slopes=(lambda node, g: g.cast(carrier(node.src[0].dtype)),),
        moves_bits=True,
        bounds=_cast_bounds,
        spelled={"llvm": WRITTEN, "c": WRITTEN},
    ),
    Elementwise(
        op=Op.BITCAST,
        meaning=lambda dtype, source, x: from_bits(to_bits(x, source), dtype),
        slopes=(None,),
        moves_bits=True,
        spelled={"llvm": WRITTEN, "c": WRITTEN},
    ),
)
