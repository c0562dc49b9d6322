"""The base of every group of methods, and how methods compute in wider floats than they are given.

In       a method, and the tensors that it is given
Out      `Methods`, from which every group derives, and nothing else; `Self`; `in_float`, `in_float_together` and
         `meet_in_float`, for methods that compute in float32; `narrowed` and `wide_in_autocast`, for autocast();
         `per_axis`, for methods of windows
Next     core/base.py (what a tensor is made of), declared.py (what groups call in one another), the other files of this
         folder (the groups), tensor.py (who joins)

No group is a kind of another, and none imports another. A method that one group calls on `self` and another defines is
known to type checkers from a stub, which tools/method_stubs.py writes: mypy compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hcq.frontend.core.base import Core, autocast_dtype, thread_modes
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import broadcast, met
from hcq.frontend.ops.declared import Declared
from hcq.ir.dtype import DType, dtypes, promote
from hcq.ir.node import Node

if TYPE_CHECKING:
    from typing_extensions import Self as Self
else:
    Self = Any  # for annotations alone; the typing of Python 3.10 has none

Axes = int | tuple[int, ...] | list[int] | None
T = TypeVar("T", bound="Methods")
Method = TypeVar("Method", bound=Callable[..., Any])


class ValuesIndices(NamedTuple):
    """What max and min along an axis, sort and topk give."""

    values: Any
    indices: Any


class MinMax(NamedTuple):
    """What aminmax gives."""

    min: Any
    max: Any


class Methods(Declared):
    """A group of methods of Tensor; it may call the methods of others."""

    __slots__ = ()
    _are_functions: bool = True  # of hcq.torch, too: functions.py

    if TYPE_CHECKING:  # of a tensor, or of a list of them

        def cat(tensors: T | Sequence[T], *others: Any, dim: int = 0) -> T: ...
        def stack(tensors: T | Sequence[T], *others: Any, dim: int = 0) -> T: ...


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes that are shorter in the value than in the argument."""
    both = zip(node.shape, node.src[1].shape)
    return tuple(axis for axis, (now, before) in enumerate(both) if now != before)


def per_axis(name: str, given: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One int for every axis, or one each, of an argument of windows: 1 or more, of paddings 0 or more."""
    found = (given,) * rank if isinstance(given, int) else tuple(given)
    found = found * rank if len(found) == 1 else found
    least = 0 if "padding" in name else 1
    if any(not isinstance(size, int) or size < least for size in found):
        raise UsageError(f"[{name}] {given!r}: give ints of {least} or more.")
    if len(found) != rank and name != "kernel_size":
        raise UsageError(f"[{name}] {given!r}: give one int, or {rank} of them.")
    return found


def meet_in_float(call: str, x: Any, other: Any) -> tuple[Node, Node, DType]:
    """Two operands broadcast in float32 or float64, to be computed with, and the dtype that the result then gets."""
    if isinstance(other, (bool, int, float)):
        a, b = x._meet_scalar(call, x.node, other, True)
        have = x.node.dtype if x.node.dtype.is_float else a.dtype
    else:
        b = x._operand(call, other).node
        x._same_device(call, x._operand(call, other))
        dtype = met(x.node, b)
        a, b = broadcast(call, x.node.cast(dtype), b.cast(dtype))
        have = dtype
    have = have if have.is_float else dtypes.float32
    wide = have if have.itemsize >= 4 else dtypes.float32
    return a.cast(wide), b.cast(wide), have


def narrowed(*tensors: Any) -> Any:
    """The operands of a product, inside autocast() in its dtype; doubles, integers and None as they are."""
    dtype = autocast_dtype(tensors[0].device)
    if dtype is None:
        return tensors
    return tuple([x.cast(dtype) if x is not None and _is_narrowed(x.node.dtype) else x for x in tensors])


def _is_narrowed(dtype: DType) -> bool:
    return dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16)


def in_float(method: Method) -> Method:
    """Compute at least in float32: integers become float32, narrow floats are rounded once, at the end."""

    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        have = self.dtype
        if have.is_float and have.itemsize >= 4:
            return method(self, *args, **kwargs)
        result = method(self.cast(dtypes.float32), *args, **kwargs)
        return rounded(result, have) if have.is_float else result

    return wrapped  # type: ignore[return-value]


def in_float_together(method: Method) -> Method:
    """`in_float` with every tensor that is given; the result is rounded to the dtype in which narrow floats meet."""

    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = [x for x in (self, *args, *kwargs.values()) if isinstance(x, Core)]
        if not any(is_narrow(x.node.dtype) for x in given):
            return method(self, *args, **kwargs)
        floats = [x for x in given if x.node.dtype.is_float]
        have = reduce(
            promote, [x.node.dtype for x in floats if x.node.shape] or [x.node.dtype for x in floats]
        )
        result = method(
            widened(self), *map(widened, args), **{name: widened(x) for name, x in kwargs.items()}
        )
        return rounded(result, have)

    return wrapped  # type: ignore[return-value]


def is_narrow(dtype: DType) -> bool:
    """Whether it is a float of less than 32 bits."""
    return dtype.is_float and dtype.itemsize < 4


def widened(value: Any) -> Any:
    """A tensor of narrow floats in float32; anything else as it is."""
    return value.cast(dtypes.float32) if isinstance(value, Core) and is_narrow(value.node.dtype) else value  # type: ignore[attr-defined]


def rounded(result: Any, dtype: DType) -> Any:
    """What was computed in float32 in a narrow format; tuples part by part, what is no such tensor as it is."""
    if type(result) is tuple:
        return tuple([rounded(part, dtype) for part in result])
    if isinstance(result, Core) and result.node.dtype is dtypes.float32 and is_narrow(dtype):
        return result.cast(dtype)  # type: ignore[attr-defined]
    return result


def wide_in_autocast(method: Method) -> Method:
    """Inside autocast() compute in float32, and stay there; else as it is."""

    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if thread_modes and autocast_dtype(self.device) is not None and _is_narrowed(self.dtype):
            self = self.cast(dtypes.float32)
        return method(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]
