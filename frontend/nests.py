"""Nests: lists, tuples and dicts of tensors, as arguments and results of a function have them.

In       a nest
Out      its tensors; the same nest of other things; what two calls' nests can be compared by
Changes  nothing
Next     observe.py (whose results are nests of Same, Argument and New)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor

Ref = weakref.ref[Any]
PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Same(NamedTuple):
    """In results: the very tensor object that is outside."""

    id: int
    ref: Ref


class Argument(NamedTuple):
    """In results: the tensor argument itself."""

    number: int


class New(NamedTuple):
    """In results: a tensor made by the call, by its number among them."""

    number: int


def tensors_in(value: Any, name: str) -> list[Tensor]:
    """The tensors of a result. Raises UsageError for what is neither tensor nor plain value nor a container of them."""
    if isinstance(value, Tensor):
        return [value]
    if type(value) in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return [tensor for item in value for tensor in tensors_in(item, name)]
    if type(value) is dict:
        return [tensor for item in value.values() for tensor in tensors_in(item, name)]
    if type(value) not in PLAIN:
        raise UsageError(
            f"[jit] {name} returns a {type(value).__name__}, which a replay cannot make anew. "
            "Return tensors, plain values, or lists, tuples and dicts of them."
        )
    return []


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same nest of lists, tuples and dicts with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[mapped(item, change) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return value


def numbers_in(words: Any) -> list[int]:
    """The numbers of what is New in results."""
    if isinstance(words, New):
        return [words.number]
    if isinstance(words, (Same, Argument)):
        return []
    items = words.values() if isinstance(words, dict) else words if isinstance(words, (list, tuple)) else ()
    return [number for item in items for number in numbers_in(item)]


def filled(words: Any, tensor_of: Callable[[Any], Any]) -> Any:
    """The other way: tensors for Same, Argument and New."""
    kind = type(words)
    if kind is New or kind is Argument or kind is Same:
        return tensor_of(words)
    if kind is list:
        return [filled(word, tensor_of) for word in words]
    if kind is dict:
        return {key: filled(word, tensor_of) for key, word in words.items()}
    if isinstance(words, tuple):
        parts = [filled(word, tensor_of) for word in words]
        return kind(*parts) if hasattr(words, "_fields") else kind(parts)
    return words


def words_of(words: Any, templates: Sequence[Any]) -> Any:
    """Results in comparable words."""
    if isinstance(words, New):
        return ("new", words.number, templates[words.number].key)
    if isinstance(words, (Same, Argument)):
        return (type(words).__name__, words[0])
    if isinstance(words, (list, tuple)):
        return (type(words), *[words_of(word, templates) for word in words])
    if isinstance(words, dict):
        return (dict, *[(repr(key), words_of(word, templates)) for key, word in words.items()])
    return (type(words), repr(words))


def shape_of(value: Any) -> Any:
    """The containers of arguments and what is in them, by identity."""
    if isinstance(value, (list, tuple)):
        return (type(value), *[shape_of(item) for item in value])
    if isinstance(value, dict):
        return (dict, *[(id(key), shape_of(item)) for key, item in value.items()])
    return id(value)
