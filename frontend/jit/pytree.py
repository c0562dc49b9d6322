"""Pytrees: lists, tuples and dicts of tensors, as arguments and results of a function have them.

In       a tree: a tensor, or a list, tuple or dict of trees
Out      its tensors; the same tree of other things; what the trees of two calls can be compared by
Next     capture.py (whose results are trees of Same, Argument, Gradient and New)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from hcq.errors import UsageError
from hcq.frontend.symbolic.variable import Bound
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


class Gradient(NamedTuple):
    """In results: the tensor that was the .grad of a tensor outside when the call began."""

    key: int  # the id of whose it is


class Halves(NamedTuple):
    """In results: a complex tensor, by its two parts."""

    real: Any
    imag: Any


class New(NamedTuple):
    """In results: a tensor made by the call, by its number among them."""

    number: int


def tensors_in(value: Any, name: str) -> list[Tensor]:
    """The tensors of a result. Raises UsageError for what is neither tensor nor plain value nor a container of them."""
    if isinstance(value, Tensor):
        return list(value._real_ones())
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
    """The same tree of lists, tuples and dicts with every tensor, and every bound variable, changed."""
    if isinstance(value, (Tensor, Bound)):
        is_complex = isinstance(value, Tensor) and value.is_complex()
        return _mapped_halves(value, change) if is_complex else change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[mapped(item, change) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return value


def _mapped_halves(value: Any, change: Callable[[Any], Any]) -> Any:
    halves = [change(part) for part in value.parts]
    return value.of(*halves) if isinstance(halves[0], Tensor) else Halves(*halves)


def numbers_in(tree: Any) -> list[int]:
    """The numbers of what is New in results."""
    return [leaf.number for leaf in leaves_of(tree) if isinstance(leaf, New)]


def leaves_of(tree: Any) -> Iterator[Any]:
    """Every Same, Argument, Gradient and New in results, as often as it is there."""
    if isinstance(tree, (New, Same, Argument, Gradient)):
        yield tree
        return
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()
    for item in items:
        yield from leaves_of(item)


def filled(tree: Any, tensor_of: Callable[[Any], Any]) -> Any:
    """The other way: tensors for Same, Argument, Gradient and New."""
    kind = type(tree)
    if kind is New or kind is Argument or kind is Same or kind is Gradient:
        return tensor_of(tree)
    if kind is list:
        return [filled(leaf, tensor_of) for leaf in tree]
    if kind is dict:
        return {key: filled(leaf, tensor_of) for key, leaf in tree.items()}
    if isinstance(tree, tuple):
        parts = [filled(leaf, tensor_of) for leaf in tree]
        if kind is Halves:
            return Tensor.complex(*parts)
        return kind(*parts) if hasattr(tree, "_fields") else kind(parts)
    return tree


def comparable(tree: Any, templates: Sequence[Any]) -> Any:
    """What two results are compared by."""
    if isinstance(tree, New):
        return ("new", tree.number, templates[tree.number].key)
    if isinstance(tree, (Same, Argument, Gradient)):
        return (type(tree).__name__, tree[0])
    if isinstance(tree, (list, tuple)):
        return (type(tree), *[comparable(leaf, templates) for leaf in tree])
    if isinstance(tree, dict):
        return (dict, *[(repr(key), comparable(leaf, templates)) for key, leaf in tree.items()])
    return (type(tree), repr(tree))


def shape_of(value: Any) -> Any:
    """The containers of arguments and what is in them, by identity."""
    if isinstance(value, (list, tuple)):
        return (type(value), *[shape_of(item) for item in value])
    if isinstance(value, dict):
        return (dict, *[(id(key), shape_of(item)) for key, item in value.items()])
    return id(value)
