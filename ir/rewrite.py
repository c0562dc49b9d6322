"""Rewriting: a pass is a value with a name, a reason and named rules, which are applied until none of them matches.

In       rules written as patterns (`Rule("add-zero", x + 0, x)`), a graph
Out      the graph with every rule's before replaced by its after; counts per rule, seconds, a line per replacement
Changes  the pass's own record
Next     pattern.py (before and after), symbolic.py (index arithmetic needs more than patterns),
         compiler/passes/fold_identities.py (a pass of rules), compiler/passes/split_ranges.py (one that looks at a
         graph as a whole)

Rules are tried only on nodes of their op, in their order; what a rule makes is rewritten in turn.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from hcq.ir.dtype import Kind, Scalar
from hcq.ir.node import Node, const, show_index, toposort
from hcq.ir.op import Op
from hcq.ir.pattern import Captures, Pattern, instance, matcher

Trace = Callable[[str], None]


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
        self.name = name
        self.ops = before.ops
        if not self.ops:
            raise ValueError(f"Rule({name!r}): before must be an operation, not a bare variable or number")
        self.matches = matcher(before)
        self.guard = None if when is None else _by_name(when)
        self.make = _maker(after)
        self._parts = before, after, when

    def apply(self, node: Node) -> Node | None:
        """The node that takes this one's place, None when the rule does not match."""
        captures: Captures = {}
        if not self.matches(node, captures):
            return None
        if self.guard is not None and not self.guard(captures):
            return None
        return self.make(node, captures)

    def __str__(self) -> str:
        before, after, when = self._parts
        made = f"{_module(after)}.{_call(after)}" if callable(after) else str(after)
        return f"{before} -> {made}{'' if when is None else f' when {_call(when)}'}"


class Step(NamedTuple):
    """One thing that a pass over whole graphs does: the name under which it is counted, and what it is, in a line."""

    name: str
    what: str

    def __str__(self) -> str:
        return self.what


class Notes:
    """What one run of a pass did: how often it applied each rule, in what time, and a line each time for a reader.

    keeps   passes that count by themselves tell `changed` as well what they made of each node
    """

    keeps = False

    def __init__(self, trace: Trace | None = None):
        self.trace = trace
        self.name = ""  # the pass's
        self.counts: Counter[str] = Counter()
        self.seconds = 0.0

    def __call__(self, rule: str, before: Node, after: Node) -> None:
        self.counts[rule] += 1
        if self.trace is not None:
            self.trace(f"{self.name}/{rule}: {_brief(before)} -> {_brief(after)}")

    def changed(self, rule: str, before: Node, after: Node, at: Sequence[Node] = ()) -> None:
        """A rule that was counted made this, where `before` is asked for at these places; only if it keeps them."""


Change = Callable[[Node, Any, Notes], Node]


class Pass:
    """One step of a compiler: from a graph to a graph that computes the same.

    name     in kebab-case, as tables and traces print it
    why      the reason it is there, in a line
    rules    what it does, by name; without `change`, Rules that are applied until none matches
    change   (root, target, notes) -> root, for what needs more than rules; it tells `notes` what it did
    counts   how often each rule was applied, over all runs; `seconds`: how long these took together

        >>> from hcq.ir.node import index
        >>> from hcq.ir.pattern import any_node
        >>> from hcq.ir.rewrite import Pass, Rule
        >>> x = any_node("x")
        >>> tidy = Pass("tidy", "zeros are not added", [Rule("add-zero", x + 0, x)])
        >>> print(tidy)
        tidy: zeros are not added
          add-zero  x + 0 -> x
        >>> tidy.run(index(3) * 5 + 0)
        3*5
        >>> tidy.counts["add-zero"]
        1
    """

    def __init__(
        self, name: str, why: str, rules: Iterable[Rule | Step], change: Change | None = None
    ) -> None:
        self.name = name
        self.why = why
        self.rules = tuple(rules)
        self.counts: Counter[str] = Counter()
        self.seconds = 0.0
        names = [rule.name for rule in self.rules]
        if len(set(names)) != len(names):
            raise ValueError(f"Pass({name!r}): two rules have one name")
        if change is None:
            by_op = rules_by_op([rule for rule in self.rules if isinstance(rule, Rule)])

            def change(root: Node, target: Any, notes: Notes) -> Node:
                return rewrite(root, by_op, notes)

        self._change = change

    def run(self, root: Node, target: Any = None, notes: Notes | None = None) -> Node:
        """The graph after the pass. Deep graphs are fine; the work is linear in the nodes seen.

        target   what it is compiled for, for passes that ask
        notes    gets what this run does; its trace a line for each rule: `fold-identities/mul-one: mul(a, 1.0) -> a`
        Raises   RuntimeError when rules undo each other or make of a node something that holds it; what a pass refuses
        """
        notes = notes or Notes()
        notes.name = self.name
        before = perf_counter()
        made = self._change(root, target, notes)
        notes.seconds = perf_counter() - before
        self.seconds += notes.seconds
        self.counts.update(notes.counts)
        return made

    def __repr__(self) -> str:
        return f"Pass({self.name!r})"

    def __str__(self) -> str:
        wide = max([len(rule.name) for rule in self.rules], default=0)
        return "\n".join(
            [f"{self.name}: {self.why}", *[f"  {rule.name:<{wide}}  {rule}" for rule in self.rules]]
        )


class LatePass:
    """A pass that is imported when a graph first has something for it.

    when   (node, target) -> whether there is work for the pass at this node; graphs without any stay as they are
    load   imports it

    Whoever asks for more than its name, for its rules or its counts, gets those of the pass.
    """

    def __init__(self, name: str, when: Callable[[Node, Any], bool], load: Callable[[], Pass]) -> None:
        self.name = name
        self.when = when
        self.load = load

    def run(self, root: Node, target: Any = None, notes: Notes | None = None) -> Node:
        """The graph after the pass; see `Pass.run`."""
        if any(self.when(node, target) for node in toposort((root,))):
            return self.load().run(root, target, notes)
        return root

    def __getattr__(self, name: str) -> Any:
        return getattr(self.load(), name)

    def __repr__(self) -> str:
        return f"LatePass({self.name!r})"

    def __str__(self) -> str:
        return str(self.load())


# -- applying rules -------------------------------------------------------------------------------------------------

RulesByOp = Mapping[Op, Sequence[Rule]]


def rules_by_op(rules: Iterable[Rule]) -> dict[Op, list[Rule]]:
    """The rules that may match a node of an op, in their order."""
    by_op: dict[Op, list[Rule]] = {}
    for rule in rules:
        for which in rule.ops:
            by_op.setdefault(which, []).append(rule)
    return by_op


def rewrite(root: Node, by_op: RulesByOp, notes: Notes) -> Node:
    """The graph in which no rule matches any more, leaves first.

    Raises RuntimeError when rules undo each other or make of a node something that holds it.
    """
    order = toposort((root,))
    if not any(node.op in by_op for node in order):
        return root
    final: dict[Node, Node] = {}
    for node in order:
        if node in final:
            continue
        here = _over(node, final)
        if here not in final:
            made = _replacement(here, by_op, notes)
            final[here] = here if made is None else _settled(here, made, final, by_op, notes)
        final[node] = final[here]
    return final[root]


def _over(node: Node, final: dict[Node, Node]) -> Node:
    src = tuple([final[source] for source in node.src])
    return node if src == node.src else Node(node.op, node.dtype, src, node.arg)


def _replacement(node: Node, by_op: RulesByOp, notes: Notes) -> Node | None:
    """What the first rule that matches makes of a node; None when none does."""
    for rule in by_op.get(node.op, ()):
        made = rule.apply(node)
        if made is not None and made is not node:
            notes(rule.name, node, made)
            return made
    return None


def _settled(start: Node, made: Node, final: dict[Node, Node], by_op: RulesByOp, notes: Notes) -> Node:
    """What becomes of a node that a rule made into another: rules are applied to that in turn, from its leaves up."""
    becomes = {start: made}  # what a node waits for: itself over final sources, or what a rule made of it
    # nodes whose successor was begun; to meet one again before it is done is a circle
    asked: set[Node] = set()
    stack = [start]
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
                        f"pass {notes.name}: what a rule made of a node holds it: {_brief(node)}"
                    )
                stack.extend(missing)
                continue
            here = _over(node, final)
            replaced = here if here is not node else _replacement(node, by_op, notes)
            if replaced is None:
                final[node] = node
                stack.pop()
                continue
            successor = becomes[node] = replaced
        if successor in final:
            final[node] = final[successor]
            stack.pop()
        elif node in asked:
            raise RuntimeError(
                f"pass {notes.name}: rules undo each other at {_brief(node)} -> {_brief(successor)}"
            )
        else:
            asked.add(node)
            stack.append(successor)
    return final[start]


def _brief(node: Node) -> str:
    """Two levels of a node, as `mul(load, 1.0)`."""
    if node.op is Op.CONST or node.dtype.kind is Kind.INDEX:
        return show_index(node)
    if not node.src:
        return node.op.name.lower()
    inside = [show_index(s) if s.op is Op.CONST or s.op is Op.RANGE else s.op.name.lower() for s in node.src]
    return f"{node.op.name.lower()}({', '.join(inside)})"


# -- a rule's functions ----------------------------------------------------------------------------------------------


def _by_name(function: Callable[..., Any]) -> Callable[[Captures], Any]:
    """Call with the captures that the function's parameters name."""
    names = tuple(inspect.signature(function).parameters)
    if len(names) == 1:
        only = names[0]
        return lambda captures: function(captures[only])
    return lambda captures: function(*[captures[name] for name in names])


def _maker(after: Pattern | Scalar | Callable[..., Node | None]) -> Callable[[Node, Captures], Node | None]:
    if isinstance(after, Pattern):
        pattern = after
        return lambda node, captures: instance(pattern, node.dtype, captures)
    if callable(after):
        call = _by_name(after)
        return lambda node, captures: call(captures)
    number = after
    return lambda node, captures: const(number, node.dtype)


def _module(function: Callable[..., object]) -> str:
    return function.__module__.rpartition(".")[2]


def _call(function: Callable[..., object]) -> str:
    """A rule's function and what it is given: `_is_exact(x)`."""
    return f"{function.__name__}({', '.join(inspect.signature(function).parameters)})"
