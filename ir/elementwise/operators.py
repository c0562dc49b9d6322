"""Operators: the declarations of operations on two and three numbers: sums, quotients, extremes, bits, comparisons.

In       nothing
Out      `OPERATORS`, in the order of op.py
Next     functions.py (of one number), table.py (who asks for them), declaration.py (what each field says)

Index arithmetic never overflows; the other integers wrap. No operation traps, and every input has one right result:
docs/semantics.md has them in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hcq.ir.dtype import DType, Kind, Scalar, dtypes, truncate
from hcq.ir.elementwise.declaration import (
    BITS,
    FLOATS,
    INTEGERS,
    WRITTEN,
    Elementwise,
    Range,
    Rule,
    Spelling,
    over,
    times,
)
from hcq.ir.node import Node, binary, const
from hcq.ir.op import Op

# -- meanings -------------------------------------------------------------------------------------------------------


def divide(a: float, b: float) -> float:
    """a / b as IEEE 754 has it: infinities and NaN instead of exceptions."""
    if b != 0.0:
        return a / b
    if a == 0.0 or a != a or b != b:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


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


# -- slopes ---------------------------------------------------------------------------------------------------------


def _same(node: Node, g: Node) -> Node:
    return g


def _divisor_slope(node: Node, g: Node) -> Node:
    product = times(g, over(node, node.src[1]))
    return Node(Op.NEG, product.dtype, (product,))


def _extreme_slope(op: Op, side: int) -> Rule:
    """MAX or MIN of two: the chosen side takes the gradient, equal sides take half each, with NaN both take it."""

    def rule(node: Node, g: Node) -> Node:
        own, other = node.src[side], node.src[1 - side]
        loses = own < other if op is Op.MAX else other < own
        shared = own.eq(other).where(g * 0.5, g)
        return loses.where(const(0.0, g.dtype), shared)

    return rule


def _where_false_slope(node: Node, g: Node) -> Node:
    condition, zero, x = node.src
    if condition.op is Op.CMPLE and condition.src == (x, zero) and zero is const(0.0, x.dtype):
        # a rectifier, where(x <= 0, 0, x), is zero just where x was cut off: x itself need not be kept in memory
        condition = node.eq(zero)
    return condition.where(const(0.0, g.dtype), g)


# -- value ranges ---------------------------------------------------------------------------------------------------


def _mul_bounds(node: Node, x: Range, y: Range) -> Range:
    (a, b), (c, d) = x, y
    if c == d:
        return (a * c, b * c) if c >= 0 else (b * c, a * c)
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def _floordiv_bounds(node: Node, x: Range, y: Range) -> Range:
    (a, b), (c, d) = x, y
    if c > 0:
        return min(a // c, a // d), max(b // c, b // d)
    size = max(abs(a), abs(b))  # dividing never makes a number larger, and x // 0 is 0
    return -size, size


def _mod_bounds(node: Node, x: Range, y: Range) -> Range:
    (a, b), (c, d) = x, y
    if c <= 0:
        return min(c + 1, 0), max(d - 1, 0)
    if a >= 0 and b < c:
        return a, b
    if c == d and a // c == b // c:
        return a % c, b % c
    return 0, min(d - 1, b) if a >= 0 else d - 1


def _where_bounds(node: Node, condition: Range, yes: Range, no: Range) -> Range:
    if condition[0] == condition[1]:
        return yes if condition[0] else no
    return min(yes[0], no[0]), max(yes[1], no[1])


def _and_bounds(node: Node, x: Range, y: Range) -> Range | None:
    (a, b), (c, d) = x, y
    if node.dtype.kind is Kind.BOOL:
        return min(a, c), min(b, d)
    if a >= 0 and c >= 0:
        return 0, min(b, d)
    if a >= 0 or c >= 0:
        return 0, b if a >= 0 else d
    return None


def _or_bounds(node: Node, x: Range, y: Range) -> Range | None:
    (a, b), (c, d) = x, y
    if node.dtype.kind is Kind.BOOL:
        return max(a, c), max(b, d)
    if a >= 0 and c >= 0:
        return max(a, c), (1 << max(b, d).bit_length()) - 1
    return None


def _xor_bounds(node: Node, x: Range, y: Range) -> Range | None:
    (a, b), (c, d) = x, y
    if node.dtype.kind is Kind.BOOL:
        return (a ^ c, a ^ c) if a == b and c == d else None
    if a >= 0 and c >= 0:
        return 0, (1 << max(b, d).bit_length()) - 1
    return None


def _shl_bounds(node: Node, x: Range, y: Range) -> Range | None:
    (a, b), (c, d) = x, y
    if c < 0 or d >= node.dtype.itemsize * 8:
        return None
    corners = (a << c, a << d, b << c, b << d)
    return min(corners), max(corners)


def _shr_bounds(node: Node, x: Range, y: Range) -> Range | None:
    (a, b), (c, d) = x, y
    if c < 0:
        return None
    corners = (a >> min(c, 64), a >> min(d, 64), b >> min(c, 64), b >> min(d, 64))
    return min(corners), max(corners)


def _decided(decide: Callable[[int, int, int, int], tuple[bool, bool]]) -> Callable[..., Range | None]:
    """A comparison of a..b with c..d, of which (it always holds, it never holds) is told."""

    def rule(node: Node, x: Range | None, y: Range | None) -> Range | None:
        if x is None or y is None:  # floats
            return None
        always, never = decide(*x, *y)
        return (1, 1) if always else (0, 0) if never else None

    return rule


# -- in other operations --------------------------------------------------------------------------------------------


def floordiv(a: Node, b: Node) -> Node:
    """a // b by a float64 division, exact for integers up to 32 bits. Raises ValueError for wider ones."""
    if a.dtype.itemsize > 4:
        raise ValueError(
            f"[decompose] this target has no FLOORDIV and {a.dtype.name} does not fit float64, which could do it. "
            "Use 32-bit integers, or give the target a FLOORDIV."
        )
    quotient = binary(Op.DIV, a.cast(dtypes.float64), b.cast(dtypes.float64))
    whole = Node(Op.TRUNC, dtypes.float64, (quotient,))
    whole = whole + (quotient < whole).where(const(-1.0, dtypes.float64), const(0.0, dtypes.float64))
    # by way of int64: the least int32 by -1 wraps, as it must, where a cast to int32 would saturate
    return b.eq(0).where(const(0, a.dtype), whole.cast(dtypes.int64).cast(a.dtype))


def mod(a: Node, b: Node) -> Node:
    """a % b = a - b (a // b), and 0 for b = 0."""
    quotient = binary(Op.FLOORDIV, a, b)
    return b.eq(0).where(const(0, a.dtype), a + (b * quotient) * truncate(-1, a.dtype))


def maximum(a: Node, b: Node) -> Node:
    """MAX(a, b) by a select; a NaN on either side wins."""
    return _unless_nan(a, (b < a).where(a, b))


def minimum(a: Node, b: Node) -> Node:
    """MIN(a, b) by a select; a NaN on either side wins."""
    return _unless_nan(a, (a < b).where(a, b))


def _unless_nan(a: Node, chosen: Node) -> Node:
    return a.ne(a).where(a, chosen) if a.dtype.is_float else chosen


# -- declarations ---------------------------------------------------------------------------------------------------


def _c_bits(sign: str) -> Spelling:
    return Spelling(integers=f"({{kind}})({{a}} {sign} {{b}})", bools=f"{{a}} {sign} {{b}}")


def _c_sum(sign: str, for_bools: str) -> Spelling:
    """Integers wrap in an unsigned type, indices do not overflow."""
    same = f"{{a}} {sign} {{b}}"
    return Spelling(
        floats=same,
        integers=f"({{kind}})(({{wide}}){{a}} {sign} ({{wide}}){{b}})",
        indices=same,
        bools=f"{{a}} {for_bools} {{b}}",
    )


def _compared(
    op: Op,
    sign: str,
    words: tuple[str, str, str],
    meaning: Callable[..., Scalar],
    decide: Callable[[int, int, int, int], tuple[bool, bool]],
) -> Elementwise:
    """A comparison: its sign in C, LLVM's words for floats, signed and unsigned numbers, and of ranges."""
    floats, signed, unsigned = words
    return Elementwise(
        op=op,
        meaning=meaning,
        slopes=(None, None),
        bounds=_decided(decide),
        spelled={
            "llvm": Spelling(
                floats=f"fcmp {floats}",
                integers=f"icmp {signed}",
                unsigned=f"icmp {unsigned}",
                bools=f"icmp {unsigned}",
            ),
            "c": Spelling(every=f"{{a}} {sign} {{b}}"),
        },
        commutes=op in (Op.CMPEQ, Op.CMPNE),
    )


OPERATORS = (
    Elementwise(
        op=Op.ADD,
        meaning=lambda dtype, source, a, b: a + b,
        slopes=(_same, _same),
        bounds=lambda node, x, y: (x[0] + y[0], x[1] + y[1]),
        spelled={
            "llvm": Spelling(floats="fadd contract", integers="add", indices="add nsw", bools="or"),
            "c": _c_sum("+", "|"),
        },
        commutes=True,
    ),
    Elementwise(
        op=Op.MUL,
        meaning=lambda dtype, source, a, b: a * b,
        slopes=(lambda node, g: times(g, node.src[1]), lambda node, g: times(g, node.src[0])),
        bounds=_mul_bounds,
        spelled={
            "llvm": Spelling(floats="fmul contract", integers="mul", indices="mul nsw", bools="and"),
            "c": _c_sum("*", "&"),
        },
        commutes=True,
    ),
    Elementwise(
        op=Op.DIV,
        meaning=lambda dtype, source, a, b: divide(a, b),
        slopes=(lambda node, g: over(g, node.src[1]), _divisor_slope),
        takes=FLOATS,
        spelled={"llvm": Spelling(floats="fdiv"), "c": Spelling(floats="{a} / {b}")},
    ),
    Elementwise(
        op=Op.FLOORDIV,
        meaning=lambda dtype, source, a, b: a // b if b else 0,
        slopes=(None, None),
        takes=INTEGERS,
        bounds=_floordiv_bounds,
        spelled={"llvm": WRITTEN, "c": WRITTEN},
        made_of=floordiv,
        is_costly=True,
    ),
    Elementwise(
        op=Op.MOD,
        meaning=lambda dtype, source, a, b: a % b if b else 0,
        slopes=(None, None),
        takes=INTEGERS,
        bounds=_mod_bounds,
        spelled={"llvm": WRITTEN, "c": WRITTEN},
        made_of=mod,
        is_costly=True,
    ),
    Elementwise(
        op=Op.MAX,
        meaning=_extreme(max),
        slopes=(_extreme_slope(Op.MAX, 0), _extreme_slope(Op.MAX, 1)),
        bounds=lambda node, x, y: (max(x[0], y[0]), max(x[1], y[1])),
        spelled={
            "llvm": Spelling(integers="llvm.smax", unsigned="llvm.umax", bools="or"),
            "c": Spelling(integers="{a} > {b} ? {a} : {b}", bools="{a} | {b}"),
        },
        made_of=maximum,
        commutes=True,
        keeps_format=True,
    ),
    Elementwise(
        op=Op.MIN,
        meaning=_extreme(min),
        slopes=(_extreme_slope(Op.MIN, 0), _extreme_slope(Op.MIN, 1)),
        bounds=lambda node, x, y: (min(x[0], y[0]), min(x[1], y[1])),
        spelled={
            "llvm": Spelling(integers="llvm.smin", unsigned="llvm.umin", bools="and"),
            "c": Spelling(integers="{a} < {b} ? {a} : {b}", bools="{a} & {b}"),
        },
        made_of=minimum,
        commutes=True,
        keeps_format=True,
    ),
    Elementwise(
        op=Op.AND,
        meaning=lambda dtype, source, a, b: a & b,
        slopes=(None, None),
        takes=BITS,
        bounds=_and_bounds,
        spelled={"llvm": Spelling(integers="and", bools="and"), "c": _c_bits("&")},
        commutes=True,
    ),
    Elementwise(
        op=Op.OR,
        meaning=lambda dtype, source, a, b: a | b,
        slopes=(None, None),
        takes=BITS,
        bounds=_or_bounds,
        spelled={"llvm": Spelling(integers="or", bools="or"), "c": _c_bits("|")},
        commutes=True,
    ),
    Elementwise(
        op=Op.XOR,
        meaning=lambda dtype, source, a, b: a ^ b,
        slopes=(None, None),
        takes=BITS,
        bounds=_xor_bounds,
        spelled={"llvm": Spelling(integers="xor", bools="xor"), "c": _c_bits("^")},
        commutes=True,
    ),
    Elementwise(
        op=Op.SHL,
        meaning=_shift_left,
        slopes=(None, None),
        takes=INTEGERS,
        bounds=_shl_bounds,
        spelled={"llvm": WRITTEN, "c": WRITTEN},
    ),
    Elementwise(
        op=Op.SHR,
        meaning=_shift_right,
        slopes=(None, None),
        takes=INTEGERS,
        bounds=_shr_bounds,
        spelled={"llvm": WRITTEN, "c": WRITTEN},
    ),
    _compared(
        Op.CMPLT,
        "<",
        ("olt", "slt", "ult"),
        lambda dtype, source, a, b: a < b,
        lambda a, b, c, d: (b < c, a >= d),
    ),
    _compared(
        Op.CMPLE,
        "<=",
        ("ole", "sle", "ule"),
        lambda dtype, source, a, b: a <= b,
        lambda a, b, c, d: (b <= c, a > d),
    ),
    _compared(
        Op.CMPEQ,
        "==",
        ("oeq", "eq", "eq"),
        lambda dtype, source, a, b: a == b,
        lambda a, b, c, d: (a == b == c == d, b < c or a > d),
    ),
    _compared(
        Op.CMPNE,
        "!=",
        ("une", "ne", "ne"),
        lambda dtype, source, a, b: a != b,
        lambda a, b, c, d: (b < c or a > d, a == b == c == d),
    ),
    Elementwise(
        op=Op.WHERE,
        meaning=lambda dtype, source, condition, if_true, if_false: if_true if condition else if_false,
        slopes=(None, lambda node, g: node.src[0].where(g, 0.0), _where_false_slope),
        moves_bits=True,
        bounds=_where_bounds,
        spelled={"llvm": WRITTEN, "c": WRITTEN},
    ),
)
