"""Holding: what a module has inside, found by looking at its attributes.

In       a module
Out      the tensors and modules in it with their names; which of the tensors are parameters and which buffers
Next     module.py and state.py (who ask)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hcq.frontend.nn.parameter import Parameter
from hcq.frontend.tensor import Tensor


class Holder:
    """What has attributes, some of which are parameters, buffers and modules."""

    buffers_of_class: tuple[str, ...] = ()  # attributes that are state, not parameters

    def _held(self) -> Mapping[str, Any]:
        """What it holds by name: its attributes; containers say what they contain."""
        return vars(self)

    def _put(self, name: str, value: Any) -> None:
        """Hold something else under that name."""
        setattr(self, name, value)


def dotted(prefix: str) -> str:
    """What the names inside of a module of this name begin with."""
    return f"{prefix}." if prefix else ""


def trained_names(module: Holder) -> set[str]:
    """Names of plain tensors of the module that required a gradient once."""
    found: set[str] = vars(module).setdefault("_trained_names", set())
    return found


def buffer_names(module: Holder) -> dict[str, bool]:
    """Names of what the module keeps and does not train, and whether its state has it."""
    own: dict[str, bool] = vars(module).get("_buffer_names", {})
    return {**dict.fromkeys(module.buffers_of_class, True), **own}


def is_buffer(module: Holder, name: str, tensor: Tensor) -> bool:
    """Whether a tensor of that name in the module is kept and not trained."""
    return name.split(".")[0] in buffer_names(module)


def is_parameter(module: Holder, name: str, tensor: Tensor) -> bool:
    """Whether a tensor of that name in the module is trained, or was before it was frozen."""
    if is_buffer(module, name, tensor):
        return False
    if tensor._requires_grad and type(tensor) is Tensor:
        trained_names(module).add(name)
        return True
    return isinstance(tensor, Parameter) or name in trained_names(module)


def inside(module: Holder, prefix: str, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """What of one kind a module holds, with names; lists, tuples and dicts are searched, other modules are not."""
    for name, value in list(module._held().items()):
        yield from _within(value, prefix + name, kind)


def _within(value: Any, name: str, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, kind):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _within(item, f"{name}.{place}", kind)
    elif isinstance(value, dict):
        for key, item in list(value.items()):
            yield from _within(item, f"{name}.{key}", kind)
