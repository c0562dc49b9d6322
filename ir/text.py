"""Text: a graph as lines that are read back, the same graph in another process, or by another revision.

In       the root of a graph, or its text
Out      a line of JSON for each node, sources before users: [op, dtype, numbers of the sources, argument]
Next     show.py (text for people), tools/replay_compile.py (who reads kernels of a trace)

Arguments are whole numbers, words and truth values; all else is an object with one key: a tuple {"tuple": [...]},
a float {"float": "0x1.8p+0"}, a Param {"param": [index, shape, writable]}, an Op {"op": "ADD"}, a dtype {"dtype":
"float32"}.
"""

from __future__ import annotations

import json
from typing import Any

from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, Param, toposort
from hcq.ir.op import Op

HEAD = "hcq graph 1"
MAX_DEPTH = 16  # of lists in an argument


def write(root: Node) -> str:
    """The graph under a node. Raises ValueError for an argument that has no text, such as memory.

    >>> from hcq.ir.node import const
    >>> print(write(const(1.5, dtypes.float32)))
    hcq graph 1
    ["CONST", "float32", [], {"float": "0x1.8000000000000p+0"}]
    """
    numbers: dict[Node, int] = {}
    lines = [HEAD]
    for node in toposort((root,)):
        numbers[node] = len(numbers)
        sources = [numbers[source] for source in node.src]
        lines.append(json.dumps([node.op.name, node.dtype.name, sources, _argument(node, node.arg)]))
    return "\n".join(lines)


def read(text: str) -> Node:
    """The root of a graph that `write` wrote. Raises ValueError, which names the line, for anything else."""
    head, *lines = text.splitlines() or [""]
    if head != HEAD:
        raise ValueError(f"not a graph: its first line is {head[:40]!r}, not {HEAD!r}")
    nodes: list[Node] = []
    for number, line in enumerate(lines, 2):
        try:
            op, dtype, sources, argument = json.loads(line)
            if not all(type(source) is int and 0 <= source < len(nodes) for source in sources):
                raise ValueError(f"sources {sources} are not among the {len(nodes)} nodes above")
            src = tuple([nodes[source] for source in sources])
            nodes.append(Node(Op[op], _dtype(dtype), src, _read(argument, MAX_DEPTH)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise ValueError(f"line {number} of a graph: {problem}: {line[:80]!r}") from None
    if not nodes:
        raise ValueError("a graph without nodes")
    return nodes[-1]


def _argument(node: Node, arg: Any) -> Any:
    if arg is None or type(arg) in (bool, int, str):
        return arg
    if type(arg) is float:
        return {"float": arg.hex()}
    if isinstance(arg, Param):
        return {"param": [arg.index, list(arg.shape), arg.writable]}
    if isinstance(arg, tuple):
        return {"tuple": [_argument(node, part) for part in arg]}
    if isinstance(arg, Op):
        return {"op": arg.name}
    if isinstance(arg, DType):
        return {"dtype": arg.name}
    raise ValueError(f"{node!r}: an argument of type {type(arg).__name__} has no text")


def _read(found: Any, depth: int) -> Any:
    if found is None or type(found) in (bool, int, str):
        return found
    if type(found) is not dict or len(found) != 1 or not depth:
        raise ValueError("an argument of another form")
    ((kind, value),) = found.items()
    if kind == "float":
        return float.fromhex(value)
    if kind == "tuple":
        return tuple([_read(part, depth - 1) for part in value])
    if kind == "op":
        return Op[value]
    if kind == "dtype":
        return _dtype(value)
    if kind == "param":
        index, shape, writable = value
        sizes = tuple(shape)
        if type(writable) is not bool or not all(type(n) is int and n >= 0 for n in (index, *sizes)):
            raise ValueError("a Param has an index, sizes, and whether it is written")
        return Param(index, sizes, writable)
    raise ValueError(f"no argument is a {kind!r}")


def _dtype(name: str) -> DType:
    """A format, or a vector of it: float32x4."""
    if name.startswith("index"):
        scalar, lanes = dtypes.index, name.removeprefix("index").removeprefix("x")
    else:
        word, _, lanes = name.partition("x")
        scalar = dtypes.named(word)
    return scalar.vec(int(lanes)) if lanes else scalar
