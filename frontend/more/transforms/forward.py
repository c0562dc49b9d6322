"""Forward mode: how the results of a function change when its arguments change in one direction.

In       a function, its arguments, and a direction for each
Out      jvp: results and their change; linearize: the change as a function of the direction
Next     grad/derivatives.py (the rules), reverse.py (the other direction), jacobians.py (all directions at once)

There is no second table of rules. What an operation does to a small change is linear, and its rule for gradients is
the same linear map the other way: an elementwise rule is its own transpose, movements and sums act on changes as on
values, and any other rule is transposed by differentiating it: it is linear in the gradient that it is given, so the
gradient of <rule(g), change> by g is how the change goes forward, and g itself is no part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.core.nodes import expanded, filled
from hcq.frontend.grad.derivatives import carrier
from hcq.frontend.grad.gradient import expand_history, gradients, history_read, steps
from hcq.frontend.more.transforms.levels import example
from hcq.frontend.more.transforms.reverse import Run
from hcq.frontend.more.transforms.trees import floats_of, rebuilt, same_tree, tensors_of
from hcq.ir.node import Node
from hcq.ir.op import ARITHMETIC, MOVEMENT, Op

_SAME_ON_CHANGES = MOVEMENT | {Op.CONTIGUOUS, Op.COPY}


def changes(roots: Sequence[Node], of: Mapping[Node, Node]) -> list[Node | None]:
    """How the roots change when the nodes of `of` change so; None for a root that does not.

    roots     graphs of the tensor stage
    of        node -> its change, of its shape
    Returns   nodes of the roots' shapes, in the formats that gradients are in
    """
    order, realized = expand_history(roots)
    known: dict[Node, Node] = dict(of)
    for node in order:
        if node in known:
            continue
        total: Node | None = None
        for number, (source, rule) in enumerate(steps(node)):
            change = known.get(source)
            if change is None or not callable(rule):
                continue
            part = _forward(node, number, source, rule, change).cast(carrier(node.dtype))
            total = part if total is None else Node(Op.ADD, part.dtype, (total, part))
        if total is not None:
            known[node] = total
    return history_read([known.get(root) for root in roots], realized)


def _forward(node: Node, number: int, source: Node, rule: Any, change: Node) -> Node:
    """What a change of one source does to the node."""
    op = node.op
    if op is Op.BUFFER:  # memory, and the graph that computed it
        return change
    if op in ARITHMETIC:
        part: Node = rule(node, expanded(change.cast(carrier(node.dtype)), node.shape))
        return expanded(part, node.shape)
    if op in _SAME_ON_CHANGES or (
        op in (Op.REDUCE_AXIS, Op.SCAN_AXIS) and node.arg[0] is Op.ADD and len(node.src) == 1
    ):
        return Node(op, change.dtype, (change,), node.arg)
    g = example("jvp", carrier(node.dtype), node.shape)
    back = rule(node, g)
    # the rule of a FUNCTION, which may leave out the sum over what was repeated
    if back.shape != source.shape:
        back, change = back, expanded(change, back.shape)
    (found,) = gradients((back,), (change.cast(carrier(back.dtype)),), (g,))
    return filled(0.0, node.shape, carrier(node.dtype)) if found is None else found


def pushed(run: Run, directions: Sequence[Node]) -> list[Node]:
    """The change of each result of a run when its arguments change so; zeros where nothing does."""
    of = {tensor.node: node for tensor, node in zip(run.stand_ins, directions)}
    found = changes([tensor.node for tensor in run.made], of)
    nodes = [
        filled(0.0, y.node.shape, carrier(y.dtype)) if change is None else change
        for y, change in zip(run.made, found)
    ]
    return run.level.without_stand_ins(
        [node.cast(y.dtype) if y.dtype.is_float else node for y, node in zip(run.made, nodes)]
    )


def _directions(call: str, run: Run, tangents: Any) -> list[Node]:
    given = tensors_of(tangents)
    shapes = [tensor.shape for tensor in run.inputs]
    if not same_tree(run.tree, tangents) or [tensor.shape for tensor in given] != shapes:
        raise UsageError(
            f"[{call}] tangents of shapes {[tensor.shape for tensor in given]}: give a tensor for each of the "
            f"arguments, in the same places and of the same shapes: {shapes}."
        )
    floats_of(call, tangents, "tangent")
    return [tensor.node for tensor in given]


def jvp(
    func: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """The results of `func(*primals)`, and their change when the arguments change by `tangents`.

    primals, tangents  tuples, the tensors of both in the same places and of the same shapes
    strict             refuse results that do not depend on the arguments
    has_aux            func returns (result, aux); aux is passed on
    Returns            (result, change), or (result, change, aux)
    Raises             UsageError for arguments that are no floats, and for tangents that do not fit them

    >>> y, change = hcq.func.jvp(lambda x: x * x, (Tensor([3.0]),), (Tensor([0.5]),))
    >>> y.tolist(), change.tolist()
    ([9.0], [3.0])
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise UsageError("[jvp] primals and tangents are tuples, as func's arguments: jvp(f, (x,), (dx,)).")
    run = Run("jvp", func, primals, tuple(range(len(primals))), {}, has_aux)
    directions = _directions("jvp", run, tangents)
    if strict:
        of = {tensor.node: node for tensor, node in zip(run.stand_ins, directions)}
        for number, change in enumerate(changes([tensor.node for tensor in run.made], of)):
            if change is None:
                raise UsageError(
                    f"[jvp] strict: result {number} does not depend on the arguments. Leave strict out for zeros."
                )
    found = [y._like(node) for y, node in zip(run.outputs, pushed(run, directions))]
    change = rebuilt(run.result, found)
    return (run.result, change, run.aux) if has_aux else (run.result, change)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The results of `func(*primals)`, and a function from tangents to the change of the results.

    The function is not called again: what the change needs of it is computed once, when it is first realized.

    >>> y, forward = hcq.func.linearize(lambda x: x * x, Tensor([3.0]))
    >>> forward(Tensor([0.5])).tolist()
    [3.0]
    """
    run = Run("linearize", func, primals, tuple(range(len(primals))), {}, False)

    def forward(*tangents: Any) -> Any:
        nodes = pushed(run, _directions("linearize", run, tangents))
        return rebuilt(run.result, [y._like(node) for y, node in zip(run.outputs, nodes)])

    return run.result, forward
