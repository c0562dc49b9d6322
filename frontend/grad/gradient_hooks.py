"""Hooks of gradients: functions that are called with a tensor's gradient once backward() has all of it.

In       a tensor and a function of its gradient
Out      `Handle`, which takes one away again; `passed`, what becomes of a gradient on its way through
Changes  the two tables in grad/gradient.py, which hold no tensor and no graph
Next     grad/gradient.py (who asks), frontend/ops/history.py (register_hook, retain_grad), nn/hooks.py (hooks of
         modules)

What was computed is known by its node, so a hook that is registered after the loss was computed is called, too. A leaf
is known by the tensor: its node changes with every step of an optimizer.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.core.base import Core
from hcq.frontend.grad.gradient import hooks_of_leaves, hooks_of_nodes
from hcq.ir.node import Node

Hook = Callable[[Any], Any]

_numbers = itertools.count()


class Handle:
    """A hook that was registered. `with` blocks remove it at their end."""

    def __init__(self, hooks: dict[int, Any], hook: Hook) -> None:
        if not callable(hook):
            raise UsageError(f"[register_hook] {hook!r} cannot be called. Give a function.")
        self._hooks, self._number = hooks, next(_numbers)
        hooks[self._number] = hook

    def remove(self) -> None:
        """Call it no more. A second time does nothing."""
        self._hooks.pop(self._number, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def of_leaf(leaf: Core) -> dict[int, Any]:
    """The hooks of a leaf, by number; kept for as long as the leaf is."""
    key = id(leaf)
    known = hooks_of_leaves.get(key)
    if known is None or known[0]() is not leaf:
        known = hooks_of_leaves[key] = weakref.ref(leaf, lambda _: hooks_of_leaves.pop(key, None)), {}
    return known[1]


def passed(node: Node, gradient: Node, device: str) -> Node:
    """A gradient that has come to a node, after the hooks there."""
    return _called(hooks_of_nodes.get(node, {}), gradient, device)


def leaf_passed(leaf: Core, gradient: Node) -> Node:
    """A gradient that has come to a leaf, after its hooks."""
    known = hooks_of_leaves.get(id(leaf))
    if known is None or known[0]() is not leaf:
        return gradient
    return _called(known[1], gradient, leaf.device)


def _called(hooks: dict[int, Any], gradient: Node, device: str) -> Node:
    for hook in list(hooks.values()):
        found = hook(Core._kind._of(gradient, device))
        if found is None:
            continue
        if not isinstance(found, Core) or found.node.shape != gradient.shape:
            raise UsageError(
                f"[register_hook] the hook gives {found!r} for a gradient of shape {gradient.shape}: return a tensor "
                "of that shape, or None."
            )
        gradient = found.node.cast(gradient.dtype)
    return gradient
