"""Kernel facts: a kernel's structural key, its readable name, and how much it computes and moves.

In       a kernel sink of the tensor stage
Out      a key that is equal for equal kernels in every process, a name for people, counts for profiles
Next     compile.py (who keeps objects under the key), loops/heuristic.py (who reads the counts)
"""

from __future__ import annotations

import hashlib
from math import prod

from hcq.ir.dtype import DType
from hcq.ir.node import Node, Param, toposort
from hcq.ir.op import MOVEMENT, UNARY, Op

_WORDS = {Op.ADD: "sum", Op.MUL: "prod", Op.MAX: "max", Op.MIN: "min"}


def kernel_key(sink: Node) -> str:
    """A digest of the kernel's structure: ops, dtypes, arguments, who reads whom."""
    numbers: dict[Node, int] = {}
    lines = []
    for node in sink.toposort():
        numbers[node] = len(numbers)
        # each source by number: equal structure gives equal text, in any process
        sources = ",".join([str(numbers[s]) for s in node.src])
        lines.append(f"{node.op.name} {node.dtype.name} {sources} {_argument(node)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _argument(node: Node) -> str:
    arg = node.arg
    if arg is None:
        return ""
    if node.op is Op.CONST and isinstance(arg, float):
        return arg.hex()
    if isinstance(arg, (DType, Op)):
        return arg.name
    if isinstance(arg, tuple) and not isinstance(arg, Param):
        return "(" + ",".join([a.name if isinstance(a, Op) else repr(a) for a in arg]) + ")"
    return repr(arg)


def kernel_name(sink: Node) -> str:
    """What it makes, for people: `sum_64x128_from_1024`, `rows_max_sum_64x128`, `add_mul_4096`."""
    store = sink.src[0] if sink.src else sink
    if not sink.src:
        return "nothing"
    value = store.src[1]
    if value.op is Op.ROUTINE:
        return f"{value.arg.name}_{'x'.join(str(n) for n in value.arg.numbers)}"
    nodes = sink.toposort()
    size = "x".join(str(n) for n in value.shape if n != 1) or "1"
    reduces = [n for n in nodes if n.op is Op.REDUCE_AXIS]
    if reduces:
        last = reduces[-1]
        if prod(last.shape) < prod(value.shape):  # folded along each row and spread over it again
            folds = [_WORDS[n.arg[0]] for n in reduces[:4]]
            return "_".join(["rows", *folds, size])
        reduced = "x".join(str(last.src[0].shape[axis]) for axis in last.arg[1]) or "1"
        below = last.src[0]
        while below.op in MOVEMENT or below.op is Op.CAST:
            below = below.src[0]
        loads = sum(1 for n in nodes if n.op is Op.PARAM)
        word = "dot" if last.arg[0] is Op.ADD and below.op is Op.MUL and loads > 2 else _WORDS[last.arg[0]]
        return f"{word}_{size}_from_{reduced}"
    words = [n.op.name.lower() for n in nodes if _is_work(n)]
    if not words:
        words = ["copy"]
    if len(words) > 3:
        words = [words[0], words[-1], f"{len(words)}ops"]
    return "_".join([*words, size])


def _is_work(node: Node) -> bool:
    return node.op not in MOVEMENT and node.op not in (
        Op.SINK,
        Op.STORE,
        Op.CONST,
        Op.PARAM,
        Op.IOTA,
        Op.CAST,
        Op.BITCAST,
        Op.ROUTINE,
    )


def kernel_flops(sink: Node) -> int:
    """Arithmetic operations on floats: one per element and op, one per element reduced."""
    count = 0
    for node in sink.toposort():
        if node.op is Op.ROUTINE:
            count += node.arg.flops
        elif node.op is Op.REDUCE_AXIS:
            if node.dtype.is_float:
                count += prod(node.src[0].shape)
        elif node.op is Op.SCATTER_ADD:
            count += prod(node.src[1].shape)
        elif _is_work(node) and (node.dtype.is_float or any(s.dtype.is_float for s in node.src)):
            if node.op not in (Op.GATHER, Op.WHERE) and not (node.op in UNARY and node.op is Op.NOT):
                count += prod(node.shape)
    return count


def kernel_traffic(sink: Node) -> int:
    """Bytes that must move at least: every buffer read once, every result written once."""
    count = 0
    values: list[Node] = []
    for store in sink.src:
        target, value, *_ = store.src
        is_part = value.op is Op.SCATTER  # in place: of the target it touches what it writes
        count += prod(value.src[1].shape if is_part else target.shape) * target.dtype.itemsize
        values += value.src[1:] if is_part else (value,)
    for node in toposort(values):
        if node.op is Op.PARAM:
            count += prod(node.arg.shape) * node.dtype.itemsize
    return count
