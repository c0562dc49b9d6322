"""Scripting: what PyTorch's programs ask of `torch.jit` while nothing is compiled from Python's text.

In       functions and modules
Out      is_scripting, is_tracing: False; ignore, unused, export, script: the function as it is; Final, annotate
Changes  nothing
Next     function.py (jit, which records what a function submits), ../../hcq/aliases.py (`from hcq.jit import Final`)

TorchScript means what the same Python means; here that Python runs, and its operators are compiled. So a scripted
function is the function. `trace`, which freezes one path, is refused: a recording of `jit` says when it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from hcq.errors import UsageError

T = TypeVar("T")

__all__ = [
    "Final",
    "_overload_method",
    "_script_if_tracing",
    "annotate",
    "export",
    "freeze",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "load",
    "optimize_for_inference",
    "save",
    "script",
    "script_method",
    "trace",
    "unused",
]


def is_scripting() -> bool:
    """False: Python runs.

    >>> hcq.jit.is_scripting()
    False
    """
    return False


def is_tracing() -> bool:
    """False: what a recording notes is what is submitted, and not the Python that submits it.

    >>> hcq.jit.is_tracing()
    False
    """
    return False


def script(obj: T, *args: Any, **kwargs: Any) -> T:
    """The function, class or module as it is: its Python runs, and its operators are compiled in any case.

    >>> @hcq.jit.script
    ... def double(x: Tensor) -> Tensor:
    ...     return x * 2
    >>> double(Tensor([1.0])).tolist()
    [2.0]
    """
    return obj


def script_method(fn: T) -> T:
    """`script` of a method.

    >>> hcq.jit.script_method(len) is len
    True
    """
    return fn


def export(fn: T) -> T:
    """The function as it is.

    >>> hcq.jit.export(len) is len
    True
    """
    return fn


def unused(fn: T) -> T:
    """The function as it is.

    >>> hcq.jit.unused(len) is len
    True
    """
    return fn


_overload_method = _script_if_tracing = unused  # private names that libraries of models use


def interface(obj: T) -> T:
    """The class as it is.

    >>> hcq.jit.interface(int) is int
    True
    """
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function as it is; with arguments, a decorator that gives it.

    >>> hcq.jit.ignore(len) is len, hcq.jit.ignore(drop=True)(len) is len
    (True, True)
    """
    if callable(drop):
        return drop
    as_it_is: Callable[[Any], Any] = export
    return as_it_is


def annotate(the_type: Any, the_value: T) -> T:
    """The value; its type is for TorchScript.

    >>> hcq.jit.annotate(list, [1])
    [1]
    """
    return the_value


def freeze(mod: T, *args: Any, **kwargs: Any) -> T:
    """The module as it is: what does not change is known to the kernels that are compiled.

    >>> net = nn.ReLU().eval()
    >>> hcq.jit.freeze(net) is net
    True
    """
    return mod


def optimize_for_inference(mod: T, *args: Any, **kwargs: Any) -> T:
    """The module as it is.

    >>> net = nn.ReLU().eval()
    >>> hcq.jit.optimize_for_inference(net) is net
    True
    """
    return mod


def trace(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Refused: `jit(func)` records, and records again where another path is taken.

    >>> hcq.jit.trace(len, 1)
    Traceback (most recent call last):
        ...
    hcq.errors.UsageError: [jit.trace] ...
    """
    raise UsageError("[jit.trace] use hcq.jit(func): it records what the function submits, and replays that.")


def save(m: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
    """Refused: a module is no file of TorchScript.

    >>> hcq.jit.save(None, "file")
    Traceback (most recent call last):
        ...
    hcq.errors.UsageError: [jit.save] ...
    """
    raise UsageError(
        "[jit.save] nothing writes TorchScript. Use hcq.save(model.state_dict(), path), or hcq.save_program."
    )


def load(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Refused: the program in such a file is not run.

    >>> hcq.jit.load("file")
    Traceback (most recent call last):
        ...
    hcq.errors.UsageError: [jit.load] ...
    """
    raise UsageError(
        "[jit.load] nothing runs TorchScript. Make the module in Python, and load_state_dict(hcq.load(path))."
    )
