"""Fold identities: value arithmetic that changes nothing, repeats itself or is already known goes away.

In       a graph of any stage
Out      the same values from fewer or cheaper ops, bit for bit (the payload of a NaN is left open)
Next     hcq/ir/rewrite.py (how rules run), hcq/ir/meaning.py (what the ops compute), hcq/ir/symbolic.py (indices)

Floats keep their special values: `x * 0` is not 0 (x may be NaN or infinite), `x + 0.0` is not x (x may be -0.0, while
`x + -0.0` is), `x == x` is not true. Integers wrap, and regrouping sums of them changes nothing.
"""

from __future__ import annotations

import math

from hcq.ir.dtype import DType, Kind, dtypes, float_format, truncate
from hcq.ir.elementwise.table import COMMUTATIVE, ELEMENTWISE
from hcq.ir.meaning import MEANING, apply
from hcq.ir.node import Node, const
from hcq.ir.op import Op
from hcq.ir.pattern import any_constant, any_node, any_of, op
from hcq.ir.rewrite import Pass, Rule

x, y, z, u = any_node("x"), any_node("y"), any_node("z"), any_node("u")
c, d = any_constant("c"), any_constant("d")


def _fold(node: Node) -> Node | None:
    if not all(source.op is Op.CONST for source in node.src):
        return None
    source_dtype = node.src[-1].dtype
    if source_dtype.is_storage_only and not ELEMENTWISE[node.op].moves_bits:
        return None
    value = apply(node.op, node.dtype, [source.arg for source in node.src], source_dtype)
    return const(value, node.dtype)


def _constant_right(node: Node) -> Node | None:
    a, b = node.src
    if a.op is not Op.CONST or b.op is Op.CONST:
        return None
    return Node(node.op, node.dtype, (b, a))


def _is_exact(x: Node) -> bool:
    """Integers and bools: no NaN, no signed zero, no rounding."""
    return x.dtype.kind is not Kind.FLOAT


def _is_bool(x: Node) -> bool:
    return x.dtype.is_bool


def _is_no_index(x: Node) -> bool:
    return x.dtype.kind is not Kind.INDEX


def _is_wrapping(x: Node) -> bool:
    """Integers of a width; index arithmetic has its own engine."""
    return x.dtype.kind is Kind.INT or x.dtype.kind is Kind.UINT


def _is_positive_power_of_two(c: Node) -> bool:
    return _is_wrapping(c) and c.arg > 0 and c.arg & (c.arg - 1) == 0


def _shift(x: Node, c: Node) -> Node:
    return Node(Op.SHR, x.dtype, (x, const(c.arg.bit_length() - 1, x.dtype)))


def _mask(x: Node, c: Node) -> Node:
    return Node(Op.AND, x.dtype, (x, const(c.arg - 1, x.dtype)))


def _mantissa_and_range(dtype: DType) -> tuple[int, int, int]:
    """Bits after the point, largest and smallest exponent of a normal number."""
    exponent_bits, mantissa_bits = float_format(dtype.scalar)
    bias = (1 << exponent_bits - 1) - 1
    return mantissa_bits, bias + (dtype.scalar is dtypes.fp8e4m3), 1 - bias


def _times_reciprocal(x: Node, c: Node) -> Node:
    return x * (1.0 / c.arg)


def _has_exact_reciprocal(c: Node) -> bool:
    """A power of two whose reciprocal is a normal number of the format: dividing by it rounds as multiplying does."""
    if c.dtype.kind is not Kind.FLOAT or not math.isfinite(c.arg) or c.arg == 0.0:
        return False
    mantissa, exponent = math.frexp(c.arg)
    if abs(mantissa) != 0.5:
        return False
    _, largest, smallest = _mantissa_and_range(c.dtype)
    return smallest <= 1 - exponent <= largest


def _all_ones(c: Node) -> bool:
    return _is_exact(c) and c.arg == (True if c.dtype.is_bool else truncate(-1, c.dtype))


def holds(narrow: DType, wide: DType) -> bool:
    """Whether every value of one format is a value of the other, with the same conversions onwards."""
    if narrow is wide or narrow.is_bool:
        return True
    if narrow.lanes != wide.lanes or wide.is_bool:
        return False
    if narrow.is_float and wide.is_float:
        a, b = _mantissa_and_range(narrow), _mantissa_and_range(wide)
        # numbers below the smallest normal one lose their last bits where exponents are equal and mantissas shorter
        return a[0] <= b[0] and a[1] <= b[1] and b[2] - b[0] <= a[2] - a[0]
    if narrow.is_float or wide.is_float or Kind.INDEX in (narrow.kind, wide.kind):
        return False
    return narrow.min >= wide.min and narrow.max <= wide.max


def _is_same_format(node: Node) -> bool:
    return node.dtype is node.src[0].dtype


def _cast_of_cast(node: Node) -> Node | None:
    inner = node.src[0]
    source = inner.src[0]
    if not holds(source.dtype, inner.dtype):
        return None
    return source.cast(node.dtype)


def _rebit(node: Node) -> Node:
    source = node.src[0].src[0]
    return source if source.dtype is node.dtype else Node(Op.BITCAST, node.dtype, (source,))


fold_identities = Pass(
    "fold-identities",
    "what changes nothing is not computed",
    [
        Rule("fold-constants", any_of(MEANING, name="node"), _fold),
        Rule("constant-right", any_of(COMMUTATIVE, x, y, name="node"), _constant_right),
        # sums and products
        Rule("add-zero", x + 0, x, when=_is_exact),
        Rule("add-negative-zero", x + -0.0, x),
        Rule("add-inverse", x + -x, 0, when=_is_wrapping),
        Rule("add-twice", x + c + d, x + (c + d), when=_is_wrapping),
        Rule("mul-one", x * 1, x),
        Rule("mul-zero", x * 0, 0, when=_is_exact),
        Rule("mul-minus-one", x * -1, -x, when=_is_no_index),
        Rule("mul-twice", x * c * d, x * (c * d), when=_is_wrapping),
        Rule("neg-neg", op(Op.NEG, -x), x),
        # quotients
        Rule("div-one", x / 1, x),
        Rule("div-power-of-two", x / c, _times_reciprocal, when=_has_exact_reciprocal),
        Rule("floordiv-one", x // 1, x),
        Rule("floordiv-power-of-two", x // c, _shift, when=_is_positive_power_of_two),
        Rule("mod-one", x % 1, 0),
        Rule("mod-power-of-two", x % c, _mask, when=_is_positive_power_of_two),
        # bits
        Rule("not-not", ~(~x), x),
        Rule("and-self", x & x, x),
        Rule("or-self", x | x, x),
        Rule("xor-self", x ^ x, 0),
        Rule("and-zero", x & 0, 0),
        Rule("or-zero", x | 0, x),
        Rule("xor-zero", x ^ 0, x),
        Rule("and-ones", x & c, x, when=_all_ones),
        Rule("or-ones", x | c, c, when=_all_ones),
        Rule("shl-zero", x << 0, x),
        Rule("shr-zero", x >> 0, x),
        # extremes
        Rule("max-self", op(Op.MAX, x, x), x),
        Rule("min-self", op(Op.MIN, x, x), x),
        Rule("max-twice", op(Op.MAX, op(Op.MAX, x, c), d), op(Op.MAX, x, op(Op.MAX, c, d))),
        Rule("min-twice", op(Op.MIN, op(Op.MIN, x, c), d), op(Op.MIN, x, op(Op.MIN, c, d))),
        # comparisons
        Rule("less-than-self", op(Op.CMPLT, x, x), False),
        Rule("at-most-self", op(Op.CMPLE, x, x), True, when=_is_exact),
        Rule("equal-self", op(Op.CMPEQ, x, x), True, when=_is_exact),
        Rule("unequal-self", op(Op.CMPNE, x, x), False, when=_is_exact),
        Rule("not-equal", ~op(Op.CMPEQ, x, y), op(Op.CMPNE, x, y)),
        Rule("not-unequal", ~op(Op.CMPNE, x, y), op(Op.CMPEQ, x, y)),
        Rule("bool-is-set", op(Op.CMPNE, op(Op.CAST, x), 0), x, when=_is_bool),
        # choices
        Rule("where-true", op(Op.WHERE, True, x, y), x),
        Rule("where-false", op(Op.WHERE, False, x, y), y),
        Rule("where-same", op(Op.WHERE, y, x, x), x),
        Rule("where-bool", op(Op.WHERE, x, True, False), x, when=_is_bool),
        Rule("where-not", op(Op.WHERE, ~x, y, z), op(Op.WHERE, x, z, y)),
        Rule("where-in-true", op(Op.WHERE, x, op(Op.WHERE, x, y, u), z), op(Op.WHERE, x, y, z)),
        Rule("where-in-false", op(Op.WHERE, x, y, op(Op.WHERE, x, u, z)), op(Op.WHERE, x, y, z)),
        # casts
        Rule("cast-same", op(Op.CAST, x, name="node"), x, when=_is_same_format),
        Rule("cast-of-cast", op(Op.CAST, op(Op.CAST, x), name="node"), _cast_of_cast),
        Rule("bitcast-same", op(Op.BITCAST, x, name="node"), x, when=_is_same_format),
        Rule("bitcast-of-bitcast", op(Op.BITCAST, op(Op.BITCAST, x), name="node"), _rebit),
    ],
)
