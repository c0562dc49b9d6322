"""Computed: a parameter that is computed, before each call of its module, from others that stand in its place.

In       a module, the name of its parameter, and what computes it
Out      `Computed`, a hook; `computed` and `removed`, which put one on and take it off
Changes  the module: before each call it gets the value as a plain attribute of the old name
Next     normed.py, prune.py (what computes), parametrize.py (the newer way, by a property)
"""

from __future__ import annotations

from typing import Any, TypeVar

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn.holding import trained_names
from hcq.frontend.nn.hooks import Handle
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.parameter import Parameter
from hcq.frontend.tensor import Tensor

PLACE = "_computed"
C = TypeVar("C", bound="Computed")


class Computed:
    """A hook that computes a parameter. Subclasses say how, and which others it is computed from."""

    def __init__(self, name: str):
        self.name = name
        self.handle: Handle | None = None

    def compute(self, module: Module) -> Tensor:
        """The parameter's value now."""
        raise NotImplementedError

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute(module))


def parameter_in(call: str, module: Module, name: str) -> Tensor:
    """The parameter of that name. Raises UsageError where there is none, or it is computed already."""
    if not isinstance(module, Module) or not isinstance(name, str):
        raise UsageError(
            f"[{call}] {shown(module)}, {shown(name)}: give a module and the name of its parameter."
        )
    value = vars(module).get(name)
    if name in vars(module).get(PLACE, {}):
        raise UsageError(
            f"[{call}] {name!r} of {type(module).__name__} is computed already. Remove that first."
        )
    if not isinstance(value, Tensor):
        raise UsageError(f"[{call}] {type(module).__name__} has no parameter {name!r}.")
    return value


def computed(module: Module, hook: Computed, originals: dict[str, Tensor]) -> None:
    """Put the originals in the place of a parameter, and the hook before the module's calls."""
    flag = vars(module)[hook.name].requires_grad
    delattr(module, hook.name)
    trained_names(module).discard(hook.name)
    for name, tensor in originals.items():
        setattr(module, name, Parameter(tensor.detach().clone().realize(), flag))
    hook.handle = module.register_forward_pre_hook(hook)
    vars(module).setdefault(PLACE, {})[hook.name] = hook
    hook(module, ())


def hook_of(call: str, module: Module, name: str, kind: type[C]) -> C:
    """The hook that computes a parameter. Raises UsageError where there is none of that kind."""
    hook = vars(module).get(PLACE, {}).get(name) if isinstance(module, Module) else None
    if not isinstance(hook, kind):
        raise UsageError(f"[{call}] {shown(name)} of {type(module).__name__} is not computed by it.")
    return hook


def removed(module: Module, hook: Computed, others: list[str], value: Tensor) -> None:
    """A plain parameter of that value again; what it was computed from is gone."""
    flag = getattr(module, others[0]).requires_grad
    assert hook.handle is not None
    hook.handle.remove()
    hooks = vars(module)[PLACE]
    del hooks[hook.name]
    if not hooks:
        delattr(module, PLACE)
    kept = value.detach().clone().realize()
    for name in (*others, hook.name):
        delattr(module, name)
        vars(module).get("_buffer_names", {}).pop(name, None)
    setattr(module, hook.name, Parameter(kept, flag))
