"""Infix: how one operation is written, given how its sources are written.

In       an op, its dtype and argument, the texts of its sources
Out      its text, and how tightly that binds, so that the reader's parentheses are the writer's
Next     node.py (writes whole expressions with this), show.py (listings of graphs)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.ir.dtype import DType, Kind
from hcq.ir.op import Op

Text = tuple[str, float]  # and how tightly it binds

TIGHTEST = 9
_NEGATIVE_NUMBER = 8
_NEGATIVE = 6.5  # -x*4: a sum takes it as a subtraction, everything else in parentheses
_SYMBOLS = {
    Op.CMPLT: ("<", 4),
    Op.CMPLE: ("<=", 4),
    Op.CMPEQ: ("==", 4),
    Op.CMPNE: ("!=", 4),
    Op.OR: ("|", 5),
    Op.XOR: ("^", 5),
    Op.AND: ("&", 5),
    Op.SHL: ("<<", 5),
    Op.SHR: (">>", 5),
    Op.ADD: ("+", 6),
    Op.MUL: ("*", 7),
    Op.DIV: ("/", 7),
    Op.FLOORDIV: ("//", 7),
    Op.MOD: ("%", 7),
}
_WORDS = {Op.OR: ("or", 1), Op.XOR: ("xor", 2), Op.AND: ("and", 3)}  # of bools


def infix(op: Op, dtype: DType, arg: Any, sources: Sequence[Text]) -> Text:
    """An operation as people write it: `a + b`, `p0[i if c]`, `float32(x)`; ranges are r<number>."""
    if op is Op.CONST:
        text = repr(arg) if dtype.kind is Kind.FLOAT else str(arg)
        return text, _NEGATIVE_NUMBER if text.startswith("-") else TIGHTEST
    if op is Op.RANGE:
        number = arg[0] if isinstance(arg, tuple) else arg
        return f"r{number}" if isinstance(number, int) else f"{number}", TIGHTEST
    if op is Op.PARAM:
        return f"p{arg.index}", TIGHTEST
    if op in _SYMBOLS and len(sources) == 2:
        return _operator(op, dtype, sources[0], sources[1])
    texts = [text for text, _ in sources]
    if op is Op.WHERE:
        condition, yes, no = texts
        return f"({condition} ? {yes} : {no})", TIGHTEST
    if op is Op.LOAD:
        param, place, *valid = texts
        return f"{param}[{place} if {valid[0]}]" if valid else f"{param}[{place}]", TIGHTEST
    return f"{dtype.name if op is Op.CAST else op.name.lower()}({', '.join(texts)})", TIGHTEST


def _operator(op: Op, dtype: DType, a: Text, b: Text) -> Text:
    symbol, binds = (_WORDS if dtype.kind is Kind.BOOL and op in _WORDS else _SYMBOLS)[op]
    (left, left_binds), (right, right_binds) = a, b
    if op is Op.MUL and right_binds == _NEGATIVE_NUMBER and dtype.kind is not Kind.FLOAT:
        text = left if left_binds == TIGHTEST else f"({left})"  # -x//4 would be (-x)//4
        return f"-{text}" if right == "-1" else f"-{text}*{right[1:]}", _NEGATIVE
    if op is Op.ADD and right_binds in (_NEGATIVE, _NEGATIVE_NUMBER):
        symbol, right, right_binds = "-", right[1:], 7
    left = left if left_binds >= binds else f"({left})"
    right = right if right_binds > binds else f"({right})"
    return (f"{left}{symbol}{right}" if binds == 7 else f"{left} {symbol} {right}"), binds


def sizes(shape: tuple[int, ...]) -> str:
    """A shape: `2x3`, and `()` for a single value."""
    return "x".join([str(size) for size in shape]) or "()"
