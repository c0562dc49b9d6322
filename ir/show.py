"""Printing: any node in a line, any graph as a numbered listing, any index expression as people write it.

In       nodes of any stage
Out      text; the same graph prints the same in every run
Changes  nothing
Next     op.py (the words), verify.py (errors that quote these lines)
"""

from __future__ import annotations

from typing import Any

from hcq.ir.dtype import Kind
from hcq.ir.node import Node, Param
from hcq.ir.op import Op

_MAX_LINE = 100
_SYMBOLS = {  # spelling, how tightly it binds
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
_NEGATIVE = 6.5  # -x*4: a sum takes it as a subtraction, everything else in parentheses
_NEGATIVE_NUMBER = 8
_TIGHTEST = 9


def show_node(node: Node) -> str:
    """One short line: the expression for arithmetic on ranges, else op, dtype, argument and the sources' ops."""
    if (node.dtype.kind is Kind.INDEX or node.op is Op.CONST) and _is_small(node):
        text = show_index(node)
        if len(text) <= _MAX_LINE:
            return text
    sources = ", ".join(source.op.name for source in node.src)
    arg = "" if node.arg is None else f" {show_arg(node)}"
    return _shortened(f"{node.op.name}({sources}) {node.dtype.name}{arg}")


def show_graph(root: Node) -> str:
    """Every node once, sources before users, numbered; index arithmetic is written inside the line that uses it."""
    nodes = root.toposort()
    numbers: dict[Node, int] = {}
    lines: list[tuple[str, str, str]] = []
    for node in nodes:
        if node is not root and _is_inline(node):
            continue
        numbers[node] = len(numbers)
        sources = ", ".join(
            [f"%{numbers[s]}" if s in numbers else show_index(s, names=numbers) for s in node.src]
        )
        arg = "" if node.arg is None else f" {show_arg(node)}"
        lines.append((f"%{numbers[node]}", f"{node.op.name}({sources}){arg}", _type_of(node)))
    wide = max(len(number) for number, _, _ in lines)
    return "\n".join([f"{number:>{wide}} {kind:<20} {text}" for number, text, kind in lines])


def show_index(node: Node, names: dict[Node, int] | None = None) -> str:
    """Infix, as `r0*64 + r1 + 3`; ranges are r<id>, nodes with a number in `names` are %<number>."""
    texts: dict[Node, tuple[str, float]] = {}
    stack = [node]
    while stack:
        top = stack[-1]
        if top in texts:
            stack.pop()
            continue
        if names is not None and top in names and top is not node:
            texts[top] = f"%{names[top]}", _TIGHTEST
            continue
        missing = [source for source in top.src if source not in texts] if top.op is not Op.RANGE else []
        if missing:
            stack.extend(missing)
            continue
        texts[top] = _infix(top, texts)
        stack.pop()
    return texts[node][0]


def show_arg(node: Node) -> str:
    """A node's argument."""
    arg = node.arg
    if isinstance(arg, Param):
        return f"p{arg.index} {_sizes(arg.shape)}{' writable' if arg.writable else ''}"
    return _plain(arg)


def _plain(arg: Any) -> str:
    if isinstance(arg, tuple):
        inside = ", ".join([_plain(part) for part in arg])
        return f"({inside},)" if len(arg) == 1 else f"({inside})"
    if isinstance(arg, Op):
        return arg.name
    return arg if isinstance(arg, str) else repr(arg)


def _type_of(node: Node) -> str:
    if node.op is Op.SINK or (node.op is Op.STORE and node.src[0].op is Op.PARAM and len(node.src) > 2):
        return ""
    text = node.dtype.name
    if node.op is Op.RANGE:
        size = node.src[0]
        return f"{text} 0..{size.arg - 1}" if size.op is Op.CONST else text
    try:
        shape = node.shape
    except (ValueError, AssertionError):
        return text
    return f"{text} {_sizes(shape)}" if shape else text


def _is_inline(node: Node) -> bool:
    """Index arithmetic and plain numbers are written where they are used; what reads memory has a line of its own."""
    if node.op is Op.CONST:
        return True
    if node.op is Op.RANGE or node.op is Op.IOTA:
        return False
    return node.dtype.kind is Kind.INDEX and node.op is not Op.REDUCE and node.op is not Op.LOAD


def _is_small(node: Node) -> bool:
    """Whether an expression can fit in a line at all."""
    stack = [node]
    for _ in range(_MAX_LINE):
        if not stack:
            return True
        stack.extend(stack.pop().src)
    return False


def _infix(node: Node, texts: dict[Node, tuple[str, float]]) -> tuple[str, float]:
    op = node.op
    if op is Op.CONST:
        text = _number(node)
        return text, _NEGATIVE_NUMBER if text.startswith("-") else _TIGHTEST
    if op is Op.RANGE:
        number = node.arg[0] if isinstance(node.arg, tuple) else node.arg
        return f"r{number}" if isinstance(number, int) else f"{number}", _TIGHTEST
    if op in _SYMBOLS and len(node.src) == 2:
        symbol, binds = (_WORDS if node.dtype.kind is Kind.BOOL and op in _WORDS else _SYMBOLS)[op]
        (left, left_binds), (right, right_binds) = texts[node.src[0]], texts[node.src[1]]
        factor = node.src[1].arg if node.src[1].op is Op.CONST else None
        if op is Op.MUL and isinstance(factor, int) and factor < 0:
            text = left if left_binds == _TIGHTEST else f"({left})"  # -x//4 would be (-x)//4
            return f"-{text}" if factor == -1 else f"-{text}*{-factor}", _NEGATIVE
        if op is Op.ADD and right_binds in (_NEGATIVE, _NEGATIVE_NUMBER):
            symbol, right, right_binds = "-", right[1:], 7
        left = left if left_binds >= binds else f"({left})"
        right = right if right_binds > binds else f"({right})"
        tight = binds == 7
        return (f"{left}{symbol}{right}" if tight else f"{left} {symbol} {right}"), binds
    if op is Op.WHERE:
        condition, yes, no = [texts[source][0] for source in node.src]
        return f"({condition} ? {yes} : {no})", _TIGHTEST
    if op is Op.PARAM:
        return f"p{node.arg.index}", _TIGHTEST
    if op is Op.LOAD:
        inside = (
            texts[node.src[1]][0]
            if len(node.src) == 2
            else f"{texts[node.src[1]][0]} if {texts[node.src[2]][0]}"
        )
        return f"{texts[node.src[0]][0]}[{inside}]", _TIGHTEST
    name = f"{node.dtype.name}" if op is Op.CAST else op.name.lower()
    return f"{name}({', '.join([texts[source][0] for source in node.src])})", _TIGHTEST


def _number(node: Node) -> str:
    if node.dtype.kind is Kind.FLOAT:
        return f"{node.arg!r}"
    return str(node.arg)


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join([str(size) for size in shape]) if shape else "()"


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_LINE else text[: _MAX_LINE - 1] + "…"
