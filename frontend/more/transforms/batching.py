"""Batching: the graph of one example, computed for a whole batch: every operation with one more axis, in front.

In       graphs, and for some of their leaves a value with one more axis in front
Out      the graphs with that axis, or unchanged where nothing in them depends on the leaves
Next     vmap.py (who asks), hcq/ir/op.py (what each operation's argument means)

What does not depend on an example is computed once and repeated only where it meets what does. A FUNCTION's rules are
graphs of one example, too, and are batched when a gradient asks for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from hcq.errors import UsageError
from hcq.frontend.core.nodes import expanded, reshaped
from hcq.frontend.grad.derivatives import Flat, sum_to
from hcq.frontend.grad.function import Function
from hcq.frontend.more.transforms.levels import example
from hcq.ir.node import Node, Routine, Shape, toposort
from hcq.ir.op import ARITHMETIC, SCATTERS, Op


def batched(roots: Sequence[Node], leaves: Mapping[Node, Node], size: int) -> list[Node | None]:
    """The graphs for a batch.

    leaves    leaf -> its values for every example, of shape (size, *leaf.shape)
    Returns   per root a node of shape (size, *root.shape); None where it does not depend on a leaf
    Raises    UsageError for an operation that has no meaning for a batch: a write in place
    """
    known = dict(leaves)
    for node in toposort(roots):
        if node not in known and any(source in known for source in node.src):
            known[node] = _Step(node, known, size).batched()
    return [known.get(root) for root in roots]


def repeated(node: Node, size: int) -> Node:
    """The same value for every example."""
    return expanded(reshaped(node, (1, *node.shape)), (size, *node.shape))


class _Step:
    """One node of the graph, and what its sources are for the batch."""

    def __init__(self, node: Node, known: Mapping[Node, Node], size: int):
        self.node, self.known, self.size = node, known, size

    def batched(self) -> Node:
        node = self.node
        rule = _RULES.get(node.op) or (_elementwise if node.op in ARITHMETIC else None)
        if rule is None:
            raise UsageError(
                f"[vmap] {_MEANING.get(node.op, node.op.name)} cannot be done for a batch at once. "
                "Do it outside of the function, on what the function returns."
            )
        return rule(self)

    def source(self, number: int, shape: Shape | None = None) -> Node:
        """A source with the batch's axis, repeated over `shape`, which is its own where none is given."""
        source = self.node.src[number]
        shape = source.shape if shape is None else shape
        found = self.known.get(source)
        if found is None:
            return repeated(expanded(source, shape), self.size)
        missing = len(shape) - len(source.shape)
        spread = reshaped(found, (self.size, *(1,) * missing, *source.shape))
        return expanded(spread, (self.size, *shape))

    def made(self, sources: Sequence[Node], arg: object) -> Node:
        return Node(self.node.op, self.node.dtype, tuple(sources), arg)


Rule = Callable[[_Step], Node]


def _elementwise(step: _Step) -> Node:
    node = step.node
    shape = node.shape
    numbers = [
        source if not source.shape and source not in step.known else step.source(at, shape)
        for at, source in enumerate(node.src)
    ]
    return step.made(numbers, node.arg)


def _window(step: _Step) -> Node:
    axis, *rest = step.node.arg
    return step.made([step.source(0)], (axis + 1, *rest))


def _reduce(step: _Step) -> Node:
    op, axes = step.node.arg
    return step.made([step.source(0)], (op, tuple([axis + 1 for axis in axes])))


def _scan(step: _Step) -> Node:
    op, axis = step.node.arg
    return step.made([step.source(at) for at in range(len(step.node.src))], (op, axis + 1))


def _along_axis(step: _Step) -> Node:
    return step.made([step.source(at) for at in range(len(step.node.src))], step.node.arg + 1)


def _scatter(step: _Step) -> Node:
    index = step.node.src[1]
    sources = step.source(0), step.source(1), step.source(2, index.shape)
    return step.made(sources, step.node.arg + 1)


def _bucket(step: _Step) -> Node:
    """Rows of all examples under each other."""
    if len(step.node.src) > 1:
        raise UsageError("[vmap] a sort that the scheduler has taken apart: take vmap before that.")
    rows = step.source(0)
    size, count, length = rows.shape
    return reshaped(step.made([reshaped(rows, (size * count, length))], step.node.arg), rows.shape)


def _routine(step: _Step) -> Node:
    """A batch of batches of matrices is a longer batch."""
    one: Routine = step.node.arg
    if not isinstance(one, Routine):
        raise UsageError(
            f"[vmap] {one.name} is a program of one's own, launched over a grid of its own: give it the batch as an "
            "axis."
        )
    count, size = one.shape
    many = Routine(
        one.name, (step.size * count, size), (step.size * count, *one.numbers[1:]), step.size * one.flops
    )
    sources = [step.source(at) for at in range(len(step.node.src))]
    return reshaped(step.made(sources, many), (step.size, count, size))


def _same(step: _Step) -> Node:
    return step.made([step.source(0)], step.node.arg)


@functools.lru_cache(maxsize=4096)
def _of_batches(function: Function) -> Function:
    """The same function for a batch: one object for each function, so that graphs stay alike."""
    rules = [
        rule if rule is None or isinstance(rule, Flat) else _rule_of_batches(function, number, rule)
        for number, rule in enumerate(function.rules)
    ]
    return Function(f"batch of {function.name}", *rules, is_tracked=function.is_tracked)


def _rule_of_batches(
    function: Function, number: int, rule: Callable[[Node, Node], Node]
) -> Callable[[Node, Node], Node]:
    def of_batches(node: Node, g: Node) -> Node:
        given = *node.src, g
        one = [example("vmap", each.dtype, each.shape[1:]) for each in given]
        inner = function.of(one[0], *one[1:-1])
        part = rule(inner, one[-1])
        (found,) = batched(
            [sum_to(part, one[1 + number].shape)], dict(zip(one, given)) | {inner: node}, node.shape[0]
        )
        return repeated(part, node.shape[0]) if found is None else found

    return of_batches


_MEANING = {Op.ASSIGN: "a write in place", Op.FIRST: "an axis of a size that a Variable says"}

_RULES: dict[Op, Rule] = {
    Op.RESHAPE: lambda step: reshaped(step.source(0), (step.size, *step.node.arg)),
    Op.PERMUTE: lambda step: step.made([step.source(0)], (0, *[axis + 1 for axis in step.node.arg])),
    Op.EXPAND: lambda step: expanded(step.source(0), (step.size, *step.node.arg)),
    Op.PAD: lambda step: step.made([step.source(0)], ((0, 0), *step.node.arg)),
    Op.SHRINK: lambda step: step.made([step.source(0)], ((0, step.size, 1), *step.node.arg)),
    Op.FLIP: lambda step: step.made([step.source(0)], tuple([axis + 1 for axis in step.node.arg])),
    Op.WINDOW: _window,
    Op.UNWINDOW: _window,
    Op.REDUCE_AXIS: _reduce,
    Op.SCAN_AXIS: _scan,
    Op.GATHER: _along_axis,
    Op.CAT: _along_axis,
    Op.BUCKET: _bucket,
    Op.CONTIGUOUS: _same,
    Op.DETACH: _same,
    Op.COPY: _same,
    Op.FUNCTION: lambda step: step.made(
        [step.source(at) for at in range(len(step.node.src))], _of_batches(step.node.arg)
    ),
    Op.ROUTINE: _routine,
    **dict.fromkeys(SCATTERS, _scatter),
}
