"""Partwise methods: those that do to a complex tensor what they do to each of its parts.

In       complex tensors, axes, indices, masks; values to be written, real or complex
Out      complex tensors, lazy
Changes  `z[...] = w` writes the memory of both parts
Next     pair.py (what a complex tensor is), arithmetic.py (where parts meet)

Movement, indexing, sums, scattering and joining are linear with real weights, so each is done to the real parts and to
the imaginary parts, by the method of real tensors: NAMES and JOINS list them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.complex.pair import Pair
from hcq.frontend.tensor import Tensor

NAMES = (
    # movement
    "reshape view flatten unflatten unsqueeze squeeze permute transpose swapaxes movedim moveaxis t expand expand_as "
    "broadcast_to repeat tile repeat_interleave shrink narrow narrow_copy flip roll unfold split chunk unbind pad "
    "view_as reshape_as ravel sum_to_size atleast_1d atleast_2d atleast_3d fliplr flipud rot90 tensor_split hsplit "
    "vsplit dsplit split_with_sizes unsafe_split unsafe_chunk constant_pad_nd "
    # indexing
    "__getitem__ gather take_along_dim index_select select masked_select take diagonal diag diag_embed diagflat tril "
    "triu masked_fill "
    # writing into a copy
    "scatter scatter_add index_add index_copy index_fill index_put put masked_scatter select_scatter slice_scatter "
    "diagonal_scatter fill "
    # sums
    "trace diff trapezoid trapz cumulative_trapezoid "
    # signs
    "positive".split()
)
JOINS = "cat stack hstack vstack dstack column_stack row_stack block_diag broadcast_tensors meshgrid".split()
_VALUES = frozenset({"value", "values", "src", "source", "fill_value", "prepend", "append"})


def _half(value: Any, which: int) -> Any:
    """An argument with the parts of complex tensors and numbers in their places."""
    if isinstance(value, Pair):
        return value.parts[which]
    if isinstance(value, complex):
        return value.imag if which else value.real
    if isinstance(value, (list, tuple)):
        return type(value)([_half(item, which) for item in value])
    return value


def _half_of_value(value: Any, which: int) -> Any:
    """That part of a value that is written, which may be real."""
    if isinstance(value, (Pair, complex)) or not which or value is None:
        return _half(value, which)
    if isinstance(value, Tensor):
        return value.zeros_like()
    return 0.0 if isinstance(value, (bool, int, float)) else value


def partwise(name: str) -> Callable[..., Any]:
    """The method of that name, done to both parts."""
    method = getattr(Tensor, name)
    signature = inspect.signature(method)
    values = _VALUES & set(signature.parameters)
    # a shape is all that is asked of these
    shapes = ("self", *(("other", "target") if name.endswith("_as") else ()))

    @functools.wraps(method)
    def both(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("reduce") is not None:
            raise UsageError(f"[{name}] reduce={kwargs['reduce']!r} is for real numbers. Use scatter_add.")
        given = dict(signature.bind(self, *args, **kwargs).arguments)
        for key, value in given.items():
            if isinstance(value, (Pair, complex)) and key not in values and key not in shapes:
                raise UsageError(
                    f"[{name}] {key}={shown(value)}: takes real numbers. Take its parts, z.real and z.imag."
                )
        found = []
        for which in (0, 1):
            halves = {
                key: (_half_of_value if key in values else _half)(value, which)
                for key, value in given.items()
            }
            bound = inspect.BoundArguments(signature, halves)  # type: ignore[arg-type]
            found.append(method(*bound.args, **bound.kwargs))
        return self.joined(*found)

    both.__annotations__ = {}  # the method itself checks its arguments
    return both


def joining(name: str) -> Callable[..., Any]:
    """The method of that name, which joins several tensors, of which some may be real."""
    method = getattr(Tensor, name)

    @functools.wraps(method)
    def join(*args: Any, **kwargs: Any) -> Any:
        pairs = [_paired(each) for each in args]
        found = [method(*[_half(each, which) for each in pairs], **kwargs) for which in (0, 1)]
        return Pair.joined(*found)

    join.__annotations__ = {}
    return join


def _paired(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Pair.of(value)
    return [_paired(item) for item in value] if isinstance(value, (list, tuple)) else value


class Partwise(Pair):
    """The methods of NAMES and JOINS, and those beside them that are properties, or write."""

    __slots__ = ()

    @property
    def T(self) -> Any:
        """The axes in reverse order; see `Tensor.T`. Nothing is conjugated."""
        return self.joined(self.real.T, self.imag.T)

    @property
    def mT(self) -> Any:
        """The last two axes swapped. Nothing is conjugated."""
        return self.joined(self.real.mT, self.imag.mT)

    def __setitem__(self, key: Any, value: Any) -> None:
        given = self.of(self._operand("[]", value))
        imag = given.imag if given is not self else given.imag.clone()
        self.real[key] = given.real
        self.imag[key] = imag


for _name in NAMES:
    setattr(Partwise, _name, partwise(_name))
for _name in JOINS:
    setattr(Partwise, _name, joining(_name))
