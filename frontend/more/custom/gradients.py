"""Gradients of programs of one's own: a function that the user gives, as the rule of a node.

In       the outputs, the inputs, `backward`
Out      the outputs; a gradient that is asked for passes them by `backward` alone
Changes  nothing; `backward` is called when a gradient is asked for, and what it computes is lazy, too
Next     __init__.py (who asks), grad/function.py (the node that has rules of its own)

Several outputs of floats are joined where an input requires a gradient, so that `backward` is called with all
gradients. Elsewhere each has rules of its own, with zeros for the others: nothing is joined that nobody asks for.
The same backward over alike inputs is one Function, so that graphs of calls are alike, and jit replays them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core.base import Core
from hcq.frontend.grad.function import Function
from hcq.frontend.grad.gradient import is_on_the_way
from hcq.frontend.more.custom.parts import key_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, promote
from hcq.ir.node import Node

MAX_KEPT = 256
Spec = tuple[tuple[int, ...], DType]

_functions: OrderedDict[Any, Function] = OrderedDict()


def with_backward(name: str, made: list[Any], given: Sequence[Any], backward: Any, where: str) -> list[Any]:
    """The outputs, with a way back to the inputs."""
    if backward is not None and not callable(backward):
        raise UsageError(
            f"[custom] backward={shown(backward)}: give a function of the outputs' gradients and the inputs, or None."
        )
    tensors = [one for one in given if isinstance(one, Core)]
    places = [place for place, one in enumerate(made) if one.dtype.is_float]
    if not places or not any(one.dtype.is_float for one in tensors):
        return made
    specs = tuple([(made[place].shape, made[place].dtype) for place in places])
    inputs, nodes = [one for one in given if one is not ...], [one.node for one in tensors]
    results = [made[place] for place in places]
    found = list(made)
    if len(places) > 1 and not any(is_on_the_way(node) for node in nodes):
        for which, place in enumerate(places):
            function = _function(name, specs, which, inputs, backward, where)
            found[place] = Tensor._of(function.of(made[place].node, *nodes), where)
        return found
    function = _function(name, specs, None, inputs, backward, where)
    flat = results[0] if len(results) == 1 else _joined(results)
    node = function.of(flat.node, *nodes)
    for place, one in zip(places, _apart(Tensor._of(node, where), specs)):
        found[place] = one
    return found


def _joined(results: Sequence[Any]) -> Any:
    widest = results[0].dtype
    for one in results[1:]:
        widest = promote(widest, one.dtype)
    return Tensor.cat([one.reshape(-1).cast(widest) for one in results])


def _apart(joined: Any, specs: Sequence[Spec]) -> list[Any]:
    if len(specs) == 1:
        return [joined]
    found, at = [], 0
    for shape, dtype in specs:
        found.append(joined[at : at + prod(shape)].reshape(shape).cast(dtype))
        at += prod(shape)
    return found


def _beside_zeros(slope: Any, specs: Sequence[Spec], which: int) -> list[Any]:
    zeros = [Tensor.zeros(*shape, dtype=slope.dtype, device=slope.device) for shape, _ in specs]
    return [*zeros[:which], slope, *zeros[which + 1 :]]


def _function(
    name: str, specs: tuple[Spec, ...], which: int | None, given: Sequence[Any], backward: Any, where: str
) -> Function:
    """The rules of all inputs that are tensors; one object for calls that are alike."""
    kinds = tuple([(one.shape, one.dtype) if isinstance(one, Core) else _plain(one) for one in given])
    key = name, specs, which, kinds, key_of(backward), where
    known = _functions.get(key)
    if known is not None:
        return known
    numbers = [None if isinstance(one, Core) else (one,) for one in given]
    tensors = [place for place, one in enumerate(given) if isinstance(one, Core)]
    rules: list[Any] = []
    for way, place in enumerate(tensors):
        if given[place].dtype.is_float:
            rules.append(_rule(name, specs, which, numbers, way, given[place].shape, backward, where))
        else:
            rules.append(None)
    while len(_functions) >= MAX_KEPT:
        _functions.popitem(last=False)
    made = _functions[key] = Function(f"custom {name}", *rules)
    return made


def _plain(one: Any) -> Hashable:
    return key_of(one) if callable(one) else repr(one)


def _rule(
    name: str,
    specs: Sequence[Spec],
    which: int | None,
    numbers: Sequence[tuple[Any] | None],
    way: int,
    shape: tuple[int, ...],
    backward: Any,
    where: str,
) -> Callable[[Node, Node], Node]:
    """The gradient of one tensor.

    which    the output that the value is, the others being without a gradient; None for all of them, joined
    numbers  of each input the number that it is, None where it is a tensor
    """
    places = [place for place, one in enumerate(numbers) if one is None]

    def rule(node: Node, g: Node) -> Node:
        if backward is None:
            raise UsageError(
                f"[custom] {name} has no backward, and a gradient was asked for: give backward=, or detach() its "
                "inputs."
            )
        tensors = iter([Tensor._of(source, where) for source in node.src[1:]])
        shapes = [source.shape for source in node.src[1:]]
        values = [one and (one[0](*shapes) if callable(one[0]) else one[0],) for one in numbers]
        inputs = [next(tensors) if one is None else one[0] for one in values]
        slope = Tensor._of(g, where)
        slopes = _apart(slope, specs) if which is None else _beside_zeros(slope, specs, which)
        found = backward(*slopes, *inputs)
        listed = found if isinstance(found, (tuple, list)) else (found,)
        if len(listed) not in (len(inputs), len(places)):
            raise UsageError(
                f"[custom] the backward of {name} gives {len(listed)} gradients for {len(inputs)} inputs: give one for "
                "each, None for those without."
            )
        one = listed[way if len(listed) == len(places) else places[way]]
        if one is None:
            return Tensor.zeros(*shape, dtype=Tensor._of(g, where).dtype, device=where).node
        if not isinstance(one, Core) or one.shape != shape:
            raise UsageError(
                f"[custom] the backward of {name} gives {shown(one)} as gradient {way}, of an input of shape {shape}: "
                "give a tensor of that shape, or None."
            )
        if one.device != where:
            raise UsageError(
                f"[custom] the backward of {name} gives gradient {way} on {one.device}, not on {where}: move it with "
                "to()."
            )
        return one.node

    return rule
