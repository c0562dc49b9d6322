"""Hooks: functions that a module calls before and after its forward, and when gradients pass it.

In       a module, and a function of it and of what goes in or comes out
Out      `Handle`, whose remove() takes the function away again; `call`, a module's call with its hooks
Changes  what a module gives, where a hook returns something else
Next     module.py (who has them), grad/function.py (how a gradient is caught on its way)

A gradient is a graph that backward() makes, so a hook on gradients runs while backward() makes it, and gets and may
return lazy tensors. Several tensors that belong to one hook pass it as one vector: all their gradients are there then.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import prod
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.core.base import changed
from hcq.frontend.grad.function import Function
from hcq.frontend.tensor import Tensor
from hcq.ir.node import Node
from hcq.ir.op import Op

_numbers = itertools.count(1)


class Handle:
    """A hook that was registered. `with` blocks remove it at their end."""

    def __init__(self, hooks: dict[int, Any], hook: Any, first: bool = False, owner: Any = None):
        if not callable(hook[0] if isinstance(hook, tuple) else hook):
            raise UsageError(f"[hook] {hook!r} cannot be called. Give a function.")
        self.number, self._hooks, self._owner = next(_numbers), hooks, owner
        before = dict(hooks) if first else {}
        if first:
            hooks.clear()
        hooks[self.number] = hook
        hooks.update(before)
        self._note()

    def remove(self) -> None:
        """Call it no more. A second time does nothing."""
        if self._hooks.pop(self.number, None) is not None:
            self._note()

    def _note(self) -> None:
        """A recording is of one set of hooks."""
        if self._owner is not None:
            vars(self._owner)["_hooked"] = next(_numbers)
            changed()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class Hooks:
    """Those of one module, by kind, in the order they run."""

    def __init__(self) -> None:
        self.before: dict[int, tuple[Any, bool]] = {}  # with whether it takes keywords
        self.after: dict[int, tuple[Any, bool]] = {}
        self.backward_before: dict[int, Any] = {}
        self.backward: dict[int, Any] = {}
        self.state_before: dict[int, Any] = {}
        self.state_after: dict[int, Any] = {}
        self.load_before: dict[int, Any] = {}
        self.load_after: dict[int, Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Hooks:
        copy = Hooks()
        for kind, hooks in vars(self).items():
            vars(copy)[kind] = dict(hooks)
        return copy


def call(module: Any, hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """module.forward with what its hooks do around it."""
    for hook, takes_keywords in list(hooks.before.values()):
        if takes_keywords:
            found = hook(module, args, kwargs)
            if found is not None:
                if not isinstance(found, tuple) or len(found) != 2:
                    raise UsageError("[forward pre hook] it takes keywords: return (args, kwargs), or None.")
                args, kwargs = found
        else:
            found = hook(module, args)
            if found is not None:
                args = found if isinstance(found, tuple) else (found,)
    caught = _Gradients(module, hooks) if hooks.backward or hooks.backward_before else None
    if caught is not None:
        args = caught.inputs(args)
    result = module.forward(*args, **kwargs)
    for hook, takes_keywords in list(hooks.after.values()):
        found = hook(module, args, kwargs, result) if takes_keywords else hook(module, args, result)
        result = result if found is None else found
    return result if caught is None else caught.outputs(result)


class _Gradients:
    """The gradients of one call: those of its outputs are seen first, then those of its inputs."""

    def __init__(self, module: Any, hooks: Hooks):
        self.module, self.hooks = module, hooks
        self.of_outputs: tuple[Any, ...] = ()
        self.takes_inputs = False
        self.nothing: tuple[Any, ...] = ()

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        places = [place for place, arg in enumerate(args) if isinstance(arg, Tensor) and _leads_back(arg)]
        self.nothing = (None,) * len(args)
        if not places or not self.hooks.backward:
            return args
        self.takes_inputs = True

        def seen(gradients: list[Tensor]) -> list[Tensor]:
            full: list[Any] = [None] * len(args)
            for place, gradient in zip(places, gradients):
                full[place] = gradient
            full = self._backward(tuple(full))
            return [full[place] for place in places]

        passed = list(args)
        for place, tensor in zip(places, watched([args[place] for place in places], seen)):
            passed[place] = tensor
        return tuple(passed)

    def outputs(self, result: Any) -> Any:
        if isinstance(result, Tensor):
            return watched([result], self._seen_outputs)[0]
        if not isinstance(result, (tuple, list)):
            return result
        places = [n for n, item in enumerate(result) if isinstance(item, Tensor) and item.dtype.is_float]
        items = list(result)
        for place, tensor in zip(places, watched([result[place] for place in places], self._seen_outputs)):
            items[place] = tensor
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)

    def _seen_outputs(self, gradients: list[Tensor]) -> list[Tensor]:
        for hook in list(self.hooks.backward_before.values()):
            found = hook(self.module, tuple(gradients))
            if found is not None:
                gradients = list(found) if isinstance(found, (tuple, list)) else [found]
        self.of_outputs = tuple(gradients)
        if not self.takes_inputs:
            self._backward(self.nothing)
        return gradients

    def _backward(self, of_inputs: tuple[Any, ...]) -> Any:
        for hook in list(self.hooks.backward.values()):
            found = hook(self.module, of_inputs, self.of_outputs)
            if found is not None:
                of_inputs = found if isinstance(found, tuple) else (found,)
        return of_inputs


def watched(tensors: list[Tensor], seen: Callable[[list[Tensor]], list[Tensor]]) -> list[Tensor]:
    """The same values; once backward() has their gradients, `seen` is given them, and its results flow on.

    Raises  UsageError for gradients that `seen` gives another number or shape of
    """
    if not tensors:
        return []
    joined = tensors[0] if len(tensors) == 1 else _joined(tensors)
    device = joined.device
    shapes = [tensor.shape for tensor in tensors]

    def rule(node: Node, g: Node) -> Node:
        flat = Tensor._of(g, device)
        gradients = seen([flat] if len(shapes) == 1 else _apart(flat, shapes))
        if [tuple(gradient.shape) for gradient in gradients] != [tuple(shape) for shape in shapes]:
            raise UsageError(
                f"[backward hook] it gives gradients of shapes {[g.shape for g in gradients]}, of {shapes}: "
                "return as many, of the same shapes, or None."
            )
        together = gradients[0] if len(shapes) == 1 else _joined(gradients)
        return together.node.cast(g.dtype)

    passed = joined._like(Function("seen by a hook", rule).of(joined.node, joined.node))
    if len(tensors) == 1:
        return [passed]
    return [part.cast(tensor.dtype) for part, tensor in zip(_apart(passed, shapes), tensors)]


def _leads_back(tensor: Tensor) -> bool:
    """Whether a gradient may flow through this tensor to one that asks for it."""
    if not tensor.dtype.is_float:
        return False
    memory = [node.arg for node in tensor.node.toposort() if node.op is Op.BUFFER]
    return any(storage.tracked or storage.history is not None for storage in memory)


def _joined(tensors: list[Tensor]) -> Tensor:
    return Tensor.cat([tensor.reshape(-1) for tensor in tensors])


def _apart(flat: Tensor, shapes: list[Any]) -> list[Tensor]:
    found, at = [], 0
    for shape in shapes:
        found.append(flat[at : at + prod(shape)].reshape(shape))
        at += prod(shape)
    return found
