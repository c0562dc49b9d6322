"""Patterns: what a node may look like, written as what it looks like (`x + 0`, `op(Op.MAX, x, x)`).

In       variables, numbers and operations on them
Out      a test of nodes that names the parts it meets (captures); the node that a pattern makes of captures; its text
Next     rewrite.py (rules: before and after are patterns)

Variables stand for any node (the same variable twice for the same node), constant variables for any number, and a
Python number for that number in the dtype of what it stands beside, -0.0 apart from 0.0, True and False for bools only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from hcq.ir.dtype import DType, Kind, Scalar, dtypes
from hcq.ir.infix import TIGHTEST, Text, infix
from hcq.ir.node import Node, const
from hcq.ir.op import COMPARE, Op

Captures = dict[str, Node]
Matcher = Callable[[Node, Captures], bool]


class Pattern:
    """What a node may look like. Made by the functions below and by operators."""

    ops: tuple[Op, ...] = ()  # of the node itself; none: any

    def __add__(self, other: Pattern | Scalar) -> Pattern:
        return op(Op.ADD, self, other)

    def __mul__(self, other: Pattern | Scalar) -> Pattern:
        return op(Op.MUL, self, other)

    def __truediv__(self, other: Pattern | Scalar) -> Pattern:
        return op(Op.DIV, self, other)

    def __floordiv__(self, other: Pattern | Scalar) -> Pattern:
        return op(Op.FLOORDIV, self, other)

    def __mod__(self, other: Pattern | Scalar) -> Pattern:
        return op(Op.MOD, self, other)

    def __and__(self, other: Pattern | Scalar) -> Pattern:
        return op(Op.AND, self, other)

    def __or__(self, other: Pattern | Scalar) -> Pattern:
        return op(Op.OR, self, other)

    def __xor__(self, other: Pattern | Scalar) -> Pattern:
        return op(Op.XOR, self, other)

    def __lshift__(self, other: Pattern | Scalar) -> Pattern:
        return op(Op.SHL, self, other)

    def __rshift__(self, other: Pattern | Scalar) -> Pattern:
        return op(Op.SHR, self, other)

    def __neg__(self) -> Pattern:
        return op(Op.NEG, self)

    def __invert__(self) -> Pattern:
        return op(Op.NOT, self)

    def __str__(self) -> str:
        return _text(self)[0]


class _Variable(Pattern):
    def __init__(self, name: str, is_constant: bool = False):
        self.name = name
        self.is_constant = is_constant


class _Number(Pattern):
    def __init__(self, value: Scalar):
        self.value = value


class _Operation(Pattern):
    def __init__(self, ops: Sequence[Op], src: Sequence[Pattern] | None, name: str | None):
        self.ops = tuple(ops)
        self.src = None if src is None else tuple(src)
        self.name = name


def any_node(name: str) -> Pattern:
    """Any node, known by that name in the rule's functions."""
    return _Variable(name)


def any_constant(name: str) -> Pattern:
    """Any CONST; its number is `.arg`."""
    return _Variable(name, is_constant=True)


def op(which: Op, *src: Pattern | Scalar, name: str | None = None) -> Pattern:
    """A node of that op over sources that match."""
    return _Operation((which,), [s if isinstance(s, Pattern) else _Number(s) for s in src], name)


def any_of(ops: Iterable[Op], *src: Pattern | Scalar, name: str) -> Pattern:
    """A node of one of the ops; without sources given, over any sources."""
    patterns = [s if isinstance(s, Pattern) else _Number(s) for s in src]
    return _Operation(sorted(ops, key=lambda o: o._value_), patterns or None, name)


# -- matching: a closure per part, made once ------------------------------------------------------------------------


def matcher(pattern: Pattern) -> Matcher:
    """The test of a pattern: (node, captures) -> whether it matches; captures are added to on the way."""
    if isinstance(pattern, _Variable):
        return _variable_matcher(pattern.name, pattern.is_constant)
    if isinstance(pattern, _Number):
        return _number_matcher(pattern.value)
    assert isinstance(pattern, _Operation)
    return _operation_matcher(pattern)


def _variable_matcher(name: str, is_constant: bool) -> Matcher:
    def matches(node: Node, captures: Captures) -> bool:
        if is_constant and node.op is not Op.CONST:
            return False
        return captures.setdefault(name, node) is node

    return matches


def _number_matcher(value: Scalar) -> Matcher:
    sign = math.copysign(1.0, value)
    is_truth = isinstance(value, bool)

    def matches(node: Node, captures: Captures) -> bool:
        if node.op is not Op.CONST or node.arg != value or (is_truth and node.dtype.kind is not Kind.BOOL):
            return False
        return node.arg != 0 or math.copysign(1.0, node.arg) == sign

    return matches


def _operation_matcher(pattern: _Operation) -> Matcher:
    ops, name = pattern.ops, pattern.name
    parts = None if pattern.src is None else tuple([matcher(source) for source in pattern.src])

    def matches(node: Node, captures: Captures) -> bool:
        if node.op not in ops:
            return False
        if parts is not None:
            if len(parts) != len(node.src):
                return False
            for part, source in zip(parts, node.src):
                if not part(source, captures):
                    return False
        return name is None or captures.setdefault(name, node) is node

    return matches


# -- making ---------------------------------------------------------------------------------------------------------


def instance(pattern: Pattern, dtype: DType, captures: Captures) -> Node:
    """The node that a pattern stands for, given what its variables are; a lone number is of that dtype."""
    if isinstance(pattern, _Variable):
        return captures[pattern.name]
    if isinstance(pattern, _Number):
        return const(pattern.value, dtype)
    assert isinstance(pattern, _Operation)
    assert pattern.src is not None
    # numbers take the dtype of what they stand beside
    made: list[Node | None] = [
        None if isinstance(s, _Number) else instance(s, dtype, captures) for s in pattern.src
    ]
    beside = next((node.dtype for node in reversed(made) if node is not None), dtype)
    src = tuple([instance(s, beside, captures) if m is None else m for s, m in zip(pattern.src, made)])
    which = pattern.ops[0]
    result = dtypes.bool.vec(src[-1].dtype.lanes) if which in COMPARE else src[-1].dtype
    return Node(which, result, src)


# -- text -----------------------------------------------------------------------------------------------------------


def _text(pattern: Pattern) -> Text:
    if isinstance(pattern, _Variable):
        return pattern.name, TIGHTEST
    if isinstance(pattern, _Number):
        return str(pattern.value), TIGHTEST
    assert isinstance(pattern, _Operation)
    sources = [_text(source) for source in pattern.src or ()]
    if len(pattern.ops) == 1 and pattern.ops[0] is not Op.CAST:
        return infix(pattern.ops[0], dtypes.index, None, sources)
    name = "cast" if pattern.ops == (Op.CAST,) else str(pattern.name)
    return f"{name}({', '.join([text for text, _ in sources])})" if sources else name, TIGHTEST
