"""Names: what the tensors of modules and optimizers are called (layers.0.weight), for readers of a trace (HCQ_TRACE).

In       modules when they are called, optimizers when they step; what the user says with `set_name`
Out      the names of buffers, given to the device's trace as soon as the tensors have memory
Changes  the names of those buffers, which reports print, too
Next     nn/module.py and optim/ (who is asked), run/realize.py (when tensors get memory), hcq/observe/trace.py

A tensor is called after the outermost module that was called with it inside. Modules and optimizers are asked only
while something is traced; a name that the user gave is in reports without a trace, too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TypeVar

from hcq import config
from hcq.errors import UsageError
from hcq.frontend.core.base import Core
from hcq.ir.op import Op

T = TypeVar("T", bound=Core)

_names: dict[int, tuple[weakref.ref[Core], str]] = {}  # id of a tensor -> the tensor and its name
# those whose memory has not been named: run/realize.py looks at it
unnamed: dict[int, weakref.ref[Core]] = {}
_seen: dict[int, weakref.ref[object]] = {}  # modules and optimizers that were asked already


def wanted() -> bool:
    """Whether this process writes a trace."""
    return config.current().trace is not None


def set_name(tensor: T, name: str) -> T:
    """Give the memory of a tensor a name, now or as soon as it has some. Returns the tensor.

    The name goes with this tensor, not with what is computed from it.
    """
    if not isinstance(tensor, Core) or not isinstance(name, str):
        raise UsageError(f"names.set_name({tensor!r}, {name!r}): takes a tensor and a text.")
    _names.pop(id(tensor), None)
    _learn([(name, tensor)])
    name_memory()
    return tensor


def learn(thing: object, inner: Iterable[object], named: Callable[[], Iterable[tuple[str, Core]]]) -> None:
    """Name the tensors of a module or an optimizer, the first time that it runs.

    inner  the modules in it: they are not asked any more
    """
    if _is_new(thing):
        for one in inner:
            _is_new(one)
        _learn(named())
        name_memory()


def name_of(tensor: Core) -> str:
    """What a tensor is called, or ""."""
    known = _names.get(id(tensor))
    return known[1] if known else ""


def name_memory() -> None:
    """Name the memory of tensors that have some by now, for reports and traces."""
    for key, ref in list(unnamed.items()):
        tensor = ref()
        if tensor is None or tensor.node.op is not Op.BUFFER:
            continue
        buffers = tensor.node.arg.buffers()
        if not buffers or any(buffer.va is None for buffer in buffers):
            continue
        if unnamed.pop(key, None) is ref:  # else another thread is doing it
            for buffer in buffers:
                buffer.name = _names[key][1]
                for observer in buffer.device.observers:
                    observer.renamed(buffer.va, buffer.name)


def _learn(found: Iterable[tuple[str, Core]]) -> None:
    for name, tensor in found:
        key = id(tensor)
        if key not in _names:
            _names[key] = weakref.ref(tensor, lambda _, key=key: _forget(key)), name  # type: ignore[misc]
            unnamed[key] = _names[key][0]


def _forget(key: int) -> None:
    _names.pop(key, None)
    unnamed.pop(key, None)


def _is_new(thing: object) -> bool:
    """True the first time."""
    key = id(thing)
    if key in _seen:
        return False
    _seen[key] = weakref.ref(thing, lambda _, key=key: _seen.pop(key, None))  # type: ignore[misc]
    return True
