"""Methods as functions: a method of Tensor whose first argument is the tensor, with the words of PyTorch's functions.

In       the name of a method
Out      the function; `called`, for functions that are made and no methods
Next     __init__.py (all functions by name), ops/late.py (methods that are imported when they are asked for)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])

FIRST = ("input", "input1", "anchor")  # what PyTorch's functions call the tensor of the method
_PAIR = {"input2": "other"}
THEIR_WORDS = {  # function -> PyTorch's word for an argument -> ours
    "pad": {"pad": "padding"}, "cosine_embedding_loss": _PAIR, "margin_ranking_loss": _PAIR,
}  # fmt: skip


def _reduction(size_average: bool | None, reduce: bool | None) -> str:
    """What losses of PyTorch before 0.4.1 call reduction."""
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def called(name: str, doc: str) -> Callable[[F], F]:
    """A decorator of sister functions: the name and the docstring of one of them; its arguments are checked."""

    def named(function: F) -> F:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = doc
        return checked(function)

    return named


def function_of(name: str) -> Callable[..., Any]:
    """Tensor's method as a function whose first argument, `input` by keyword, is the tensor."""
    getattr(Tensor, name)  # some are made when they are asked for
    method = inspect.getattr_static(Tensor, name)
    if isinstance(method, (classmethod, staticmethod)):
        return getattr(Tensor, name)  # type: ignore[no-any-return]
    parameters = inspect.signature(method).parameters
    takes_list, takes_reduction = next(iter(parameters)) != "self", "reduction" in parameters

    @functools.wraps(method)
    def function(*args: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            raise UsageError(
                f"[{name}] out={shown(kwargs['out'])}: use the result, or write it: y.copy_(...)."
            )
        if kwargs:
            if not args:
                args = tuple([kwargs.pop(word) for word in FIRST if word in kwargs])
            if ("size_average" in kwargs or "reduce" in kwargs) and takes_reduction:
                kwargs["reduction"] = _reduction(kwargs.pop("size_average", None), kwargs.pop("reduce", None))
            for word, ours in THEIR_WORDS.get(name, {}).items():
                if word in kwargs:
                    kwargs[ours] = kwargs.pop(word)
        first = args[0] if args else None
        if isinstance(first, Tensor):
            return getattr(first, name)(*args[1:], **kwargs)
        if takes_list:
            return getattr(Tensor, name)(*args, **kwargs)
        if isinstance(first, (bool, int, float, complex)) and len(args) > 1 and isinstance(args[1], Tensor):
            return getattr(args[1]._operand(name, first), name)(*args[1:], **kwargs)  # pow(2, x)
        given = shown(first) if args else "nothing"
        raise UsageError(f"[{name}] {given}: takes a tensor first. Make it one: hcq.tensor(...).")

    return function
