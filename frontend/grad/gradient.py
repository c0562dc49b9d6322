"""Gradients: from a result back to the tensors it was computed from.

In       a root node, the gradient of a loss with respect to it, the nodes to differentiate with respect to
Out      one graph per target; nothing runs, and the graphs can be differentiated again
Changes  `backward` writes the `.grad` of live leaf tensors; the rest changes nothing
Next     derivatives.py (the rule of each op), tensor.py (Tensor.backward calls here), optim/ (who uses `.grad`)

The walk goes once over the graph, from the root to the leaves, and only over nodes that lead to a target. Values that
were already realized keep their history: the gradient goes through them, and reads the realized values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ContextDecorator
from importlib import import_module
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from hcq.errors import UsageError
from hcq.frontend.core.base import Core, drop_default_mode, live, mode_of_thread
from hcq.frontend.core.nodes import filled
from hcq.frontend.core.storage import REPLAYED
from hcq.frontend.core.threads import lock, without_done
from hcq.frontend.grad.derivatives import DERIVATIVES, Flat, Rule, carrier, parts_of_join, sum_to
from hcq.ir.node import Node, substitute
from hcq.ir.op import ARITHMETIC, Op

T = TypeVar("T", bound=Core)

# hooks by number (grad/gradient_hooks.py calls them): of what was computed, by its node, and of leaves, by their id
hooks_of_nodes: WeakKeyDictionary[Node, dict[int, Any]] = WeakKeyDictionary()
hooks_of_leaves: dict[int, tuple[ref[Core], dict[int, Any]]] = {}


def gradient(root: Node, seed: Node, targets: Sequence[Node]) -> list[Node | None]:
    """The gradient of sum(root * seed) with respect to each target; None where no differentiable path leads to it.

    root     any tensor-stage graph of a floating-point dtype
    seed     the gradient with respect to the root, of its shape
    targets  nodes of the graph, leaves or not
    Returns  per target a node of its shape and dtype
    """
    return gradients((root,), (seed,), targets)


def gradients(
    roots: Sequence[Node], seeds: Sequence[Node], targets: Sequence[Node], device: str = ""
) -> list[Node | None]:
    """`gradient` of several roots at once: the sum of what each contributes. Linear in the size of the graph.

    device   where they are computed, for hooks that are called with a gradient; "" calls none
    """
    hooked = hooks_of_nodes if device else None
    order, realized = expand_history(roots)
    replayed = [node for node in order if node.op is Op.BUFFER and node.arg.noted == REPLAYED]
    leads = _lead_to(order, (*targets, *replayed))
    reached = dict.fromkeys(root for root in roots if root in leads)
    sums: dict[Node, Node] = {}
    for root, seed in zip(roots, seeds):
        if root in reached:
            _accumulate(sums, root, seed.cast(carrier(root.dtype)))
    for node in reversed(order):
        if node not in reached:
            continue
        if node.op is Op.BUFFER and node.arg.noted == REPLAYED and node not in targets:
            raise UsageError(
                f"[gradient] values of shape {node.shape} come from a replay of a jit, which keeps no graph of what it "
                "computed. Call backward() inside the function, or detach() them if no gradient should flow through."
            )
        g = sums.get(node)
        if hooked and g is not None and node in hooked:
            sums[node] = g = _hooks().passed(node, g, device)
        for source, rule in steps(node):
            if source not in leads:
                continue
            reached[source] = None
            if g is None or isinstance(rule, Flat):
                continue
            part = rule(node, g)
            is_elementwise = node.op in ARITHMETIC or node.op is Op.FUNCTION
            _accumulate(sums, source, sum_to(part, source.shape) if is_elementwise else part)
    found = [_total(target, sums, target in reached) for target in targets]
    return history_read(found, realized)


def _hooks() -> Any:
    """The module that calls hooks, imported when there is one."""
    return import_module("hcq.frontend.grad.gradient_hooks")


def expand_history(roots: Sequence[Node]) -> tuple[list[Node], dict[Node, Node]]:
    """The nodes that a gradient flows to, sources before users, through memory into the graph that computed it, too.

    What is behind a detach() is none of them: it may have been computed from memory that was written since.

    Returns  the order, and for each such graph's root the BUFFER that holds its values now
    Raises   UsageError when such a graph reads memory that was overwritten since
    """
    done: dict[Node, None] = {}
    realized: dict[Node, Node] = {}
    checked: dict[Node, int] = {}
    stack: list[tuple[Node, Iterator[Node]]] = []
    for root in roots:
        if root in done:
            continue
        stack.append((root, _ways(root)))
        while stack:
            node, sources = stack[-1]
            for source in sources:
                if source not in done:
                    stack.append((source, _ways(source)))
                    break
            else:
                stack.pop()
                done[node] = None
                if node.op is Op.BUFFER and (history := node.arg.history) is not None and history.src:
                    _refuse_overwritten(node, checked)
                    realized.setdefault(history, node)
    return list(done), realized


def _refuse_overwritten(node: Node, checked: dict[Node, int]) -> None:
    """The graph behind a BUFFER must still mean what it meant; `checked` keeps the earliest time asked of each node."""
    noted = node.arg.noted
    stack = [node.arg.history]
    while stack:
        inner = stack.pop()
        if checked.get(inner, noted + 1) <= noted:
            continue
        checked[inner] = noted
        stack.extend(inner.src)
        if inner.op is Op.BUFFER and inner.arg.version > noted:
            raise UsageError(
                f"[gradient] values of shape {node.shape} were computed from a tensor of shape {inner.shape} that was "
                "written in place since (assign, an optimizer's step). Call backward() before, or compute them anew."
            )


def _sources(node: Node) -> tuple[Node, ...]:
    if node.op is Op.BUFFER:
        history: Node | None = node.arg.history
        return () if history is None else (history,)
    return node.src


def _from_history(node: Node, g: Node) -> Node:
    return g


def _rules(node: Node) -> tuple[Rule | Flat | None, ...]:
    if node.op is Op.BUFFER:
        return (_from_history,)
    if node.op is Op.FUNCTION:
        return (None, *node.arg.rules)
    if node.op is Op.CAT:
        return parts_of_join(node)
    rules = DERIVATIVES.get(node.op)
    if rules is None:
        raise UsageError(
            f"[gradient] {node.op.name} has no derivative: it is no op of the tensor stage. "
            "Differentiate before the graph is scheduled."
        )
    return rules


def steps(node: Node) -> Iterator[tuple[Node, Rule | Flat]]:
    """The sources that a gradient, be it zero, flows on to, each with its rule."""
    for source, rule in zip(_sources(node), _rules(node)):
        if rule is not None and source.dtype.is_float:
            yield source, rule


def _ways(node: Node) -> Iterator[Node]:
    """The sources that a gradient, be it zero, flows on to."""
    return iter([source for source, _ in steps(node)])


def _lead_to(order: Sequence[Node], targets: Sequence[Node]) -> dict[Node, None]:
    """The nodes of which a target is a differentiable part."""
    leads = dict.fromkeys(targets)
    for node in order:
        if node not in leads and any(source in leads for source, _ in steps(node)):
            leads[node] = None
    return leads


def _accumulate(sums: dict[Node, Node], node: Node, part: Node) -> None:
    before = sums.get(node)
    sums[node] = part if before is None else Node(Op.ADD, part.dtype, (before, part))


def _total(target: Node, sums: dict[Node, Node], is_reached: bool) -> Node | None:
    if not is_reached:
        return None
    total = sums.get(target)
    return filled(0.0, target.shape, target.dtype) if total is None else total.cast(target.dtype)


def history_read(found: list[Node | None], realized: dict[Node, Node]) -> list[Node | None]:
    """The gradients, reading memory where it holds what they would compute again.

    realized   as `expand_history` gave it
    """
    if not realized:
        return found
    replaced = iter(substitute([node for node in found if node is not None], realized))
    return [None if node is None else next(replaced) for node in found]


class no_grad(ContextDecorator):
    """What this thread computes inside is cut off from gradients, as if each result were detached.

    `with no_grad(): ...`, or `@no_grad()` on a function. Results keep no history, so a loop holds no old values.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with no_grad():
    ...     y = x * 2.0
    >>> y.sum().backward()
    Traceback (most recent call last):
        ...
    hcq.errors.UsageError: [backward] this float32 tensor of shape () does not depend on a tensor ...
    """

    def __enter__(self) -> None:
        mode_of_thread().no_grad_depth += 1

    def __exit__(self, *error: object) -> None:
        mode_of_thread().no_grad_depth -= 1
        drop_default_mode()


# -- tensors --------------------------------------------------------------------------------------------------------


def backward(
    tensor: Core,
    gradient: Core | None = None,
    create_graph: bool = False,
    inputs: Core | Sequence[Core] | None = None,
) -> None:
    """Add the gradient of `tensor` to the `.grad` of every live leaf that requires one and that it was computed from.

    gradient      weighs the elements of `tensor`: of its shape; may be left out when it has one element
    create_graph  what `.grad` becomes can be differentiated again
    inputs        add to these alone, leaves or not
    Changes       `.grad` of those leaves: a graph, nothing runs; it is detached unless create_graph
    Raises        UsageError when there is no such leaf, or nobody holds one any more and no hook waits for a gradient
    """
    seed = _seed("backward", tensor, gradient)
    with lock:
        without_done(tensor)
    wanted = _listed(inputs) if inputs is not None else [leaf for leaf in live if leaf._requires_grad]
    targets = [identity(leaf.node) for leaf in wanted]
    parts = gradients((tensor.node,), (seed,), targets, tensor.device)
    if all(part is None for part in parts):
        if inputs is None and is_on_the_way(tensor.node):
            _without_leaves(tensor, seed)
            return
        if not wanted:
            raise UsageError(
                "[backward] no live tensor requires a gradient. Make the leaves with requires_grad=True, "
                "or call x.requires_grad_() before computing with x."
            )
        raise UsageError(
            f"[backward] this {_describe(tensor)} does not depend on a tensor that requires a gradient, "
            "or only through detach(), comparisons or integers. Make its leaves with requires_grad=True."
        )
    for leaf, part in zip(wanted, parts):
        if part is None:
            continue
        node = part if create_graph else Node(Op.DETACH, part.dtype, (part,))
        if hooks_of_leaves:
            node = _hooks().leaf_passed(leaf, node)
        before = leaf._grad_so_far()
        if before is not None:
            node = Node(Op.ADD, node.dtype, (before.node, node))
        leaf.grad = leaf._like(node)


def _without_leaves(tensor: Core, seed: Node) -> None:
    """Call the hooks on the way from leaves that nobody holds any more; without hooks there is nobody to tell."""
    hooked = list(hooks_of_nodes)
    if all(part is None for part in gradients((tensor.node,), (seed,), hooked, tensor.device)):
        raise UsageError(
            f"[backward] the leaves from which this {_describe(tensor)} was computed are gone: nobody holds one, so "
            "that no .grad could be read. Keep the tensor that requires a gradient under a name."
        )


def grad(
    outputs: Core | Sequence[Core],
    inputs: T | Sequence[T],
    grad_outputs: Core | Sequence[Core | None] | None = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool | None = None,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[T | None, ...]:
    """The gradients of the summed `outputs` with respect to each of `inputs`, of their shapes; no `.grad` changes.

    inputs        leaves or tensors on the way; none needs requires_grad
    grad_outputs  one weight per output, of its shape; may be left out for outputs of one element
    retain_graph  may be given, and has no effect: graphs are kept by who holds them, and may be differentiated again
    create_graph  keep the result differentiable, for second derivatives
    allow_unused  None, and no error, for an input that the outputs do not depend on
    materialize_grads   zeros, and no error, for such an input
    Raises        UsageError for an input that the outputs do not depend on, and for outputs that are not floats

    >>> x = Tensor([3.0])
    >>> (slope,) = hcq.torch.autograd.grad((x * x).sum(), x, create_graph=True)
    >>> hcq.torch.autograd.grad(slope.sum(), x)[0].tolist()
    [2.0]
    """
    outs = _listed(outputs)
    ins = _listed(inputs)
    weights = [None] * len(outs) if grad_outputs is None else _listed(grad_outputs)
    if len(weights) != len(outs):
        raise UsageError(
            f"[grad] {len(outs)} outputs and {len(weights)} grad_outputs: give one for each output."
        )
    seeds = [_seed("grad", out, weight) for out, weight in zip(outs, weights)]
    device = outs[0].device if outs else ""
    with lock:
        without_done(*outs, *ins)
    parts = gradients([out.node for out in outs], seeds, [identity(x.node) for x in ins], device)
    found: list[T | None] = []
    for place, (x, part) in enumerate(zip(ins, parts)):
        if part is None and materialize_grads and x.node.dtype.is_float:
            part = filled(0.0, x.node.shape, x.node.dtype)
        if part is None and not allow_unused:
            raise UsageError(
                f"[grad] input {place}, {_describe(x)}: the outputs do not depend on it. "
                "Leave it out, or pass allow_unused=True to get None."
            )
        if part is not None and hooks_of_leaves:
            part = _hooks().leaf_passed(x, part)
        if part is not None and not create_graph:
            part = Node(Op.DETACH, part.dtype, (part,))
        found.append(None if part is None else x._like(part))
    return tuple(found)


def _listed(tensors: Any) -> list[Any]:
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


def is_on_the_way(node: Node) -> bool:
    """Whether a gradient, be it zero, flows through it to memory that a leaf requiring one has."""
    if not node.dtype.is_float:
        return False
    seen, stack = {node}, [node]
    while stack:
        inner = stack.pop()
        memory = inner.src[0] if inner.op is Op.ASSIGN else inner
        if memory.op is Op.BUFFER and memory.arg.tracked:
            return True
        for source, _ in steps(inner):
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return False


def identity(node: Node) -> Node:
    """The node that both memory and what is still to be written to it flow into."""
    if node.op is Op.BUFFER and node.arg.history is not None:
        history: Node = node.arg.history
        return history
    return node


def _seed(call: str, tensor: Core, gradient: Core | None) -> Node:
    """The gradient to start with, of the tensor's shape."""
    if not tensor.dtype.is_float:
        raise UsageError(
            f"[{call}] {_describe(tensor)}: only floating-point values have gradients. Cast it first."
        )
    if gradient is None:
        if tensor.numel() != 1:
            raise UsageError(
                f"[{call}] {_describe(tensor)}: a gradient starts from one number. "
                "Reduce it first, as x.sum().backward(), or pass a gradient of its shape."
            )
        return filled(1.0, tensor.shape, carrier(tensor.dtype))
    if gradient.shape != tensor.shape:
        raise UsageError(
            f"[{call}] {_describe(tensor)} with a gradient of shape {gradient.shape}: the shapes must be equal."
        )
    if gradient.device != tensor.device:
        raise UsageError(
            f"[{call}] {_describe(tensor)} is on {tensor.device}, its gradient on {gradient.device}. "
            f'Move it: gradient.to("{tensor.device}").'
        )
    return gradient.node


def _describe(tensor: Core) -> str:
    return f"{tensor.dtype.name} tensor of shape {tensor.shape}"
