"""Listings: a whole graph as numbered lines, the same in every run.

In       the root of a graph of any stage
Out      text
Next     node.py (one node as text), op.py (the words), verify.py (errors that quote these lines)
"""

from __future__ import annotations

from hcq.ir.dtype import Kind
from hcq.ir.infix import sizes
from hcq.ir.node import Node, show_arg, show_index
from hcq.ir.op import Op


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
        arg = "" if node.arg is None else f" {show_arg(node.arg)}"
        lines.append((f"%{numbers[node]}", f"{node.op.name}({sources}){arg}", _type_of(node)))
    wide = max(len(number) for number, _, _ in lines)
    return "\n".join([f"{number:>{wide}} {kind:<20} {text}" for number, text, kind in lines])


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
    return f"{text} {sizes(shape)}" if shape else text


def _is_inline(node: Node) -> bool:
    """Index arithmetic and plain numbers are written where they are used; what reads memory has a line of its own."""
    if node.op is Op.CONST:
        return True
    if node.op is Op.RANGE or node.op is Op.IOTA:
        return False
    return node.dtype.kind is Kind.INDEX and node.op is not Op.REDUCE and node.op is not Op.LOAD
