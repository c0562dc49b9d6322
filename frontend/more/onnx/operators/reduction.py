"""Reductions: many elements to one, along axes.

In       tensors; axes as attributes (before 18, of ReduceSum before 13) or as numbers
Out      tensors
Changes  table.py's table
Next     math.py (element by element), norm.py (means and variances of layers)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.frontend.more.onnx.operators.math import same_dtype
from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor

Act = Callable[..., Tensor]


def _sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return same_dtype(x, x.sum(axes, keepdim=keep))


def _greatest(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if _is_empty(x, axes):
        return _filled(x, axes, keep, x.dtype.min)
    return x.amax(axes, keepdim=keep)


def _least(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if _is_empty(x, axes):
        return _filled(x, axes, keep, x.dtype.max)
    return x.amin(axes, keepdim=keep)


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if _is_empty(x, axes):
        return _filled(x, axes, keep, -np.inf)
    return same_dtype(x, (x if x.dtype.is_float else x.double()).logsumexp(axes, keepdim=keep))


def _mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return same_dtype(x, (x if x.dtype.is_float else x.double()).mean(axes, keepdim=keep))


def _norm(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    wide = x if x.dtype.is_float else x.double()
    return same_dtype(x, (wide * wide).sum(axes, keepdim=keep).sqrt())


def _log_sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return same_dtype(x, (x if x.dtype.is_float else x.double()).sum(axes, keepdim=keep).log())


def _is_empty(x: Tensor, axes: tuple[int, ...]) -> bool:
    return any(x.shape[axis] == 0 for axis in axes)


def _filled(x: Tensor, axes: tuple[int, ...], keep: bool, value: Any) -> Tensor:
    over = {axis % x.ndim for axis in axes}
    shape = [1 if a in over else n for a, n in enumerate(x.shape) if keep or a not in over]
    return Tensor.full(tuple(shape), value, device=x.device, dtype=x.dtype)


REDUCTIONS: dict[str, tuple[Act, int]] = {  # and from which version on axes are an input
    "ReduceSum": (_sum, 13),
    "ReduceMax": (_greatest, 18),
    "ReduceMin": (_least, 18),
    "ReduceMean": (_mean, 18),
    "ReduceProd": (lambda x, axes, keep: same_dtype(x, x.prod(axes, keepdim=keep)), 18),
    "ReduceL1": (lambda x, axes, keep: _sum(x.abs(), axes, keep), 18),
    "ReduceL2": (_norm, 18),
    "ReduceSumSquare": (lambda x, axes, keep: _sum(x * x, axes, keep), 18),
    "ReduceLogSum": (_log_sum, 18),
    "ReduceLogSumExp": (_log_sum_exp, 18),
}
BEFORE = {  # what an element becomes where there are no axes and none are meant
    "ReduceL1": lambda x: x.abs(),
    "ReduceL2": lambda x: x.abs(),
    "ReduceSumSquare": lambda x: x * x,
    "ReduceLogSum": lambda x: x.log(),
}


def _declare(op: str, act: Act, since: int) -> None:
    def reduced(x: Tensor, axes: Any, keepdims: int) -> Tensor:
        over = tuple(range(x.ndim)) if axes is None or not len(axes) else tuple(int(a) % x.ndim for a in axes)
        return act(x, over, bool(keepdims)) if x.ndim else act(x.reshape(1), (0,), False)

    @operator(op, since=1)
    def by_attribute(x: Tensor, *, axes: Any = None, keepdims: int = 1) -> Any:
        return reduced(x, axes, keepdims)

    @operator(op, since=since, host="axes")
    def by_input(x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        if noop_with_empty_axes and (axes is None or not len(axes)):
            return BEFORE.get(op, lambda x: x)(x)
        return reduced(x, axes, keepdims)


for _op, (_act, _since) in REDUCTIONS.items():
    _declare(_op, _act, _since)


@operator("ArgMax", since=1)
def arg_max(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    """The place of the first greatest, or the last."""
    return _place(x, "argmax", axis, keepdims, select_last_index)


@operator("ArgMin", since=1)
def arg_min(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    """The place of the first least, or the last."""
    return _place(x, "argmin", axis, keepdims, select_last_index)


def _place(x: Tensor, method: str, axis: int, keepdims: int, last: int) -> Tensor:
    axis %= x.ndim
    found = getattr(x.flip(axis) if last else x, method)(axis, keepdim=bool(keepdims))
    return (x.shape[axis] - 1) - found if last else found
