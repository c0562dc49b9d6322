"""Rewriting: a pass is a named list of named rules, applied from the leaves up until none matches.

In       rules written as patterns (`Rule("add-zero", x + 0, x)`), a graph
Out      the graph with every rule's before replaced by its after; counts per rule; a trace line per replacement
Changes  the pass's own counters
Next     compiler/fold_identities.py (a pass), symbolic.py (index arithmetic, which needs more than patterns)

A pattern looks like what it matches: variables stand for any node (the same variable twice for the same node),
constant variables for any number, and a Python number for that number in the dtype at hand, -0.0 apart from 0.0, True
and False for bools only. Matchers are built once, when the pass is made, and tried only on nodes of their op, in the
order of the rules.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hcq.ir.dtype import DType, Kind, Scalar, dtypes
from hcq.ir.node import Node, const, show_index
from hcq.ir.op import COMPARE, Op

Captures = dict[str, Node]
Trace = Callable[[str], None]
_Matcher = Callable[[Node, Captures], bool]


class Pattern:
    """What a node may look like. Made by the functions below and by operators."""

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


class Rule:
    """`before` becomes `after`.

    after   a pattern of the same variables, a number, or a function of the variables (by parameter name) that gives a
            node, or None where the rule does not hold after all
    when    a function of the variables that says whether the rule holds; without it, it always does
    """

    def __init__(
        self,
        name: str,
        before: Pattern,
        after: Pattern | Scalar | Callable[..., Node | None],
        when: Callable[..., bool] | None = None,
    ):
        if not isinstance(before, _Operation):
            raise ValueError(f"Rule({name!r}): before must be an operation, not a bare variable or number")
        self.name = name
        self.ops = before.ops
        self.matches = _matcher(before)
        self.guard = None if when is None else _by_name(when)
        self.make = _maker(after)

    def apply(self, node: Node) -> Node | None:
        """The node that takes this one's place, None when the rule does not match."""
        captures: Captures = {}
        if not self.matches(node, captures):
            return None
        if self.guard is not None and not self.guard(captures):
            return None
        return self.make(node, captures)


class Pass:
    """Named rules applied together; `counts` holds how often each was, over all runs."""

    def __init__(self, name: str, rules: Sequence[Rule]):
        self.name = name
        self.rules = tuple(rules)
        self.counts: Counter[str] = Counter()
        self._by_op: dict[Op, list[Rule]] = {}
        for rule in self.rules:
            for which in rule.ops:
                self._by_op.setdefault(which, []).append(rule)
        names = [rule.name for rule in self.rules]
        if len(set(names)) != len(names):
            raise ValueError(f"Pass({name!r}): two rules have one name")

    def run(self, root: Node, trace: Trace | None = None) -> Node:
        """The graph in which no rule matches any more. Work is linear in the nodes seen; deep graphs are fine.

        Raises RuntimeError when rules undo each other or make of a node something that holds it.
        """
        final: dict[Node, Node] = {}
        becomes: dict[
            Node, Node
        ] = {}  # what a node waits for: itself over final sources, or what a rule made of it
        # nodes whose successor was begun; to meet one again before it is done is a circle
        asked: set[Node] = set()
        stack = [root]
        while stack:
            node = stack[-1]
            if node in final:
                stack.pop()
                continue
            successor = becomes.get(node)
            if successor is None:
                missing = [source for source in node.src if source not in final]
                if missing:
                    if not asked.isdisjoint(missing):
                        raise RuntimeError(
                            f"pass {self.name}: what a rule made of a node holds it: {_brief(node)}"
                        )
                    stack.extend(missing)
                    continue
                successor = self._step(node, final, trace)
                if successor is node:
                    final[node] = node
                    stack.pop()
                    continue
                becomes[node] = successor
            if successor in final:
                final[node] = final[successor]
                stack.pop()
            elif node in asked:
                raise RuntimeError(
                    f"pass {self.name}: rules undo each other at {_brief(node)} -> {_brief(successor)}"
                )
            else:
                asked.add(node)
                stack.append(successor)
        return final[root]

    def _step(self, node: Node, final: dict[Node, Node], trace: Trace | None) -> Node:
        src = tuple([final[source] for source in node.src])
        if src != node.src:
            return Node(node.op, node.dtype, src, node.arg)
        for rule in self._by_op.get(node.op, ()):
            made = rule.apply(node)
            if made is not None and made is not node:
                self.counts[rule.name] += 1
                if trace is not None:
                    trace(f"{self.name}/{rule.name}: {_brief(node)} -> {_brief(made)}")
                return made
        return node


# -- patterns to matchers -------------------------------------------------------------------------------------------


def _matcher(pattern: Pattern) -> _Matcher:
    if isinstance(pattern, _Variable):
        return _variable_matcher(pattern.name, pattern.is_constant)
    if isinstance(pattern, _Number):
        return _number_matcher(pattern.value)
    assert isinstance(pattern, _Operation)
    return _operation_matcher(pattern)


def _variable_matcher(name: str, is_constant: bool) -> _Matcher:
    def matches(node: Node, captures: Captures) -> bool:
        if is_constant and node.op is not Op.CONST:
            return False
        return captures.setdefault(name, node) is node

    return matches


def _number_matcher(value: Scalar) -> _Matcher:
    sign = math.copysign(1.0, value)
    is_truth = isinstance(value, bool)

    def matches(node: Node, captures: Captures) -> bool:
        if node.op is not Op.CONST or node.arg != value or (is_truth and node.dtype.kind is not Kind.BOOL):
            return False
        return node.arg != 0 or math.copysign(1.0, node.arg) == sign

    return matches


def _operation_matcher(pattern: _Operation) -> _Matcher:
    ops, name = pattern.ops, pattern.name
    parts = None if pattern.src is None else tuple([_matcher(source) for source in pattern.src])

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


# -- what comes after -----------------------------------------------------------------------------------------------


def _by_name(function: Callable[..., Any]) -> Callable[[Captures], Any]:
    """Call with the captures that the function's parameters name."""
    names = tuple(inspect.signature(function).parameters)
    if len(names) == 1:
        only = names[0]
        return lambda captures: function(captures[only])
    return lambda captures: function(*[captures[name] for name in names])


def _maker(after: Pattern | Scalar | Callable[..., Node | None]) -> Callable[[Node, Captures], Node | None]:
    if isinstance(after, _Variable):
        name = after.name
        return lambda node, captures: captures[name]
    if isinstance(after, Pattern):
        pattern = after
        return lambda node, captures: _instance(pattern, node.dtype, captures)
    if callable(after):
        call = _by_name(after)
        return lambda node, captures: call(captures)
    number = after
    return lambda node, captures: const(number, node.dtype)


def _instance(pattern: Pattern, dtype: DType, captures: Captures) -> Node:
    if isinstance(pattern, _Variable):
        return captures[pattern.name]
    if isinstance(pattern, _Number):
        return const(pattern.value, dtype)
    assert isinstance(pattern, _Operation)
    assert pattern.src is not None
    # numbers take the dtype of what they stand beside
    made: list[Node | None] = [
        None if isinstance(s, _Number) else _instance(s, dtype, captures) for s in pattern.src
    ]
    beside = next((node.dtype for node in reversed(made) if node is not None), dtype)
    src = tuple([_instance(s, beside, captures) if m is None else m for s, m in zip(pattern.src, made)])
    which = pattern.ops[0]
    result = dtypes.bool.vec(src[-1].dtype.lanes) if which in COMPARE else src[-1].dtype
    return Node(which, result, src)


def _brief(node: Node) -> str:
    """Two levels of a node, as `mul(load, 1.0)`."""
    if node.op is Op.CONST or node.dtype.kind is Kind.INDEX:
        return show_index(node)
    if not node.src:
        return node.op.name.lower()
    inside = [show_index(s) if s.op is Op.CONST or s.op is Op.RANGE else s.op.name.lower() for s in node.src]
    return f"{node.op.name.lower()}({', '.join(inside)})"
