"""Cut: arguments of which a bound variable says how much counts, as the whole tensor and the variable.

In       arguments, some of whose tensors have a bound variable in their shape
Out      the same arguments with a `Cut` for each of those; a function that cuts them again and calls another
Changes  computes such tensors, if they are lazy
Next     function.py (who records that function), symbolic/variable.py (bound variables), docs/symbolic.md
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hcq.frontend.core import sizes
from hcq.frontend.jit.pytree import mapped
from hcq.frontend.symbolic.variable import Bound, bound_of
from hcq.frontend.tensor import Tensor


class Cut(NamedTuple):
    """A tensor with room for all numbers of its variables, and how many elements of which axes count."""

    whole: Tensor
    axes: tuple[int, ...]
    counts: tuple[Bound, ...]


def has_cut(tensors: list[Tensor]) -> bool:
    """Whether a bound variable stands in the shape of one of them."""
    return any(sizes.has_counts(tensor.node) for tensor in tensors)


def taken_apart(arguments: Any) -> Any:
    """A tree of arguments with a Cut for every tensor that a variable cuts."""

    def apart(tensor: Any) -> Any:
        if isinstance(tensor, Bound) or not sizes.has_counts(tensor.node):
            return tensor
        tensor.realize()
        counts = sizes.counts_of(tensor.node)
        (whole,) = sizes.without_counts([tensor.node])
        bounds = tuple([bound_of(count) for _, count in counts])
        return Cut(tensor._view(whole), tuple([axis for axis, _ in counts]), bounds)

    return mapped(arguments, apart)


def of_cuts(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, of arguments that `taken_apart` gave."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*[_joined(arg) for arg in args], **{key: _joined(arg) for key, arg in kwargs.items()})

    return call


def _joined(value: Any) -> Any:
    if isinstance(value, Cut):
        found = value.whole
        for axis, count in zip(value.axes, value.counts, strict=True):
            found = found[(slice(None),) * axis + (slice(0, count),)]
        return found
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_joined(item) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)(_joined(item) for item in value)
    if isinstance(value, dict):
        return {key: _joined(item) for key, item in value.items()}
    return value
