"""Checkpoints: what a function computes on the way is not kept for its gradient, but computed again there.

In       a function of tensors, and its arguments
Out      its result; `checkpoint`, `checkpoint_sequential`
Next     grad/function.py (a value with a slope of its own), grad/gradient.py (the gradients of what is computed again)
Source   Chen et al. 2016

The graph of the result is known when the function has returned. Its gradient is taken of a copy of that graph, in which
the arguments are read only once the gradient of the result is there: so the copy is another value, computed late, and
the first one is dropped as soon as the forward pass is over. Random numbers in it are those of the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core.base import mode_of_thread, thread_modes
from hcq.frontend.core.nodes import expanded, filled, reshaped
from hcq.frontend.grad.derivatives import Rule
from hcq.frontend.grad.function import Function
from hcq.frontend.grad.gradient import gradients
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const, substitute
from hcq.ir.op import Op


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """function(*args, **kwargs), whose inner values are computed again for the gradient instead of being kept.

    use_reentrant, preserve_rng_state   may be given, and have no effect: random numbers are always the same
    Returns                             what the function gives: a tensor, or a tuple or list with tensors

    A result of several tensors is computed again for each of them.

    >>> from hcq.torch.utils.checkpoint import checkpoint
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda x: (x * x).exp(), x).sum().backward()
    >>> [round(g, 3) for g in x.grad.tolist()]
    [5.437, 218.393]
    """
    if not callable(function):
        raise UsageError(f"[checkpoint] {shown(function)}: give a function and its arguments.")
    given = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor) and arg.dtype.is_float]
    starts = list(dict.fromkeys(arg.node for arg in given))
    result = function(*args, **kwargs)
    if thread_modes and mode_of_thread().no_grad_depth:
        return result
    if isinstance(result, Tensor):
        return _late(result, starts)
    if isinstance(result, (tuple, list)):
        parts = [_late(each, starts) if isinstance(each, Tensor) else each for each in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    raise UsageError(
        f"[checkpoint] the function gives {shown(result)}: it must give a tensor, or a tuple of tensors."
    )


def checkpoint_sequential(
    functions: Sequence[Callable[[Any], Any]], segments: int, input: Tensor, **kwargs: Any
) -> Tensor:
    """functions one after the other, in `segments` checkpoints of as many each; the last one is not one.

    functions   a list, or nn.Sequential

    >>> net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    >>> x = Tensor([[1.0, 2.0]], requires_grad=True)
    >>> y = checkpoint_sequential(net, 2, x, use_reentrant=False)
    >>> hcq.allclose(y, net(x))
    True
    """
    parts = list(functions)
    if not 1 <= segments <= len(parts):
        raise UsageError(
            f"[checkpoint_sequential] {segments} segments of {len(parts)} parts: use 1 to {len(parts)}."
        )
    length = len(parts) // segments

    def run(start: int, end: int) -> Callable[[Any], Any]:
        def chain(x: Any) -> Any:
            for part in parts[start:end]:
                x = part(x)
            return x

        return chain

    x: Any = input
    for number in range(segments - 1):
        x = checkpoint(run(number * length, (number + 1) * length), x, **kwargs)
    return run((segments - 1) * length, len(parts))(x)


def _late(result: Tensor, starts: list[Node]) -> Tensor:
    """The same value, whose gradient computes it again from its starts."""
    if not result.dtype.is_float or result.node in starts:
        return result
    sources = starts + _leaves(result.node, set(starts))
    if not sources:
        return result
    again = _Again(result.node, sources, len(starts))
    rules = [again.rule(place) for place in range(len(sources))]
    return result._like(Function("checkpoint", *rules).of(result.node, *sources))


def _leaves(root: Node, starts: set[Node]) -> list[Node]:
    """The memory under a result, besides its arguments, that a gradient may flow through, as weights are."""
    found: list[Node] = []
    seen: set[Node] = set(starts)
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if (
            node.op is Op.BUFFER
            and node.dtype.is_float
            and (node.arg.tracked or node.arg.history is not None)
        ):
            found.append(node)
        stack.extend(node.src)
    return found


class _Again:
    """The gradients of a value that is computed again, one for each source."""

    def __init__(self, root: Node, sources: list[Node], arguments: int):
        self.root, self.sources, self.arguments = root, sources, arguments
        self._last: tuple[Node, list[Node | None]] | None = None

    def rule(self, place: int) -> Rule:
        def slope(node: Node, g: Node) -> Node:
            found = self._gradients(g)[place]
            source = self.sources[place]
            return filled(0.0, source.shape, g.dtype) if found is None else found

        return slope

    def _gradients(self, g: Node) -> list[Node | None]:
        if self._last is None or self._last[0] is not g:
            late = {source: _once(source, g) for source in self.sources[: self.arguments]}
            (root,) = substitute([self.root], late)
            targets = [late.get(source, source) for source in self.sources]
            self._last = g, gradients((root,), (g,), targets)
        return self._last[1]


def _once(x: Node, g: Node) -> Node:
    """The value x, read only once g is there: chosen by a comparison of g that always holds."""
    if 0 in g.shape:
        return x
    first = Node(Op.SHRINK, g.dtype, (g,), tuple((0, 1, 1) for _ in g.shape)) if g.shape else g
    first = reshaped(first, ())
    is_number = Node(Op.CMPEQ, dtypes.bool, (first, first))
    is_none = Node(Op.CMPNE, dtypes.bool, (first, first))
    there = Node(Op.OR, dtypes.bool, (is_number, is_none))
    return Node(Op.WHERE, x.dtype, (expanded(there, x.shape), x, expanded(const(0, x.dtype), x.shape)))


__all__ = ["checkpoint", "checkpoint_sequential"]
