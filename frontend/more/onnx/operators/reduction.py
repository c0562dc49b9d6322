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
from hcq.frontend.more.onnx.table import earlier, operator
from hcq.frontend.tensor import Tensor

Act = Callable[..., Tensor]


def _floats(x: Tensor) -> Tensor:
    return x if x.dtype.is_float else x.double()


def _or_filled(value: Callable[[Tensor], Any], act: Act) -> Act:
    """A reduction that gives a number where there is nothing to reduce."""

    def reduced(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        if all(x.shape[axis] for axis in axes):
            return act(x, axes, keep)
        over = {axis % x.ndim for axis in axes}
        shape = [1 if a in over else n for a, n in enumerate(x.shape) if keep or a not in over]
        return Tensor.full(tuple(shape), value(x), device=x.device, dtype=x.dtype)

    return reduced


REDUCTIONS: dict[str, tuple[Act, int]] = {  # and from which version on axes are an input
    "ReduceSum": (lambda x, axes, keep: x.sum(axes, keepdim=keep), 13),
    "ReduceMax": (_or_filled(lambda x: x.dtype.min, lambda x, axes, keep: x.amax(axes, keepdim=keep)), 18),
    "ReduceMin": (_or_filled(lambda x: x.dtype.max, lambda x, axes, keep: x.amin(axes, keepdim=keep)), 18),
    "ReduceMean": (lambda x, axes, keep: _floats(x).mean(axes, keepdim=keep), 18),
    "ReduceProd": (lambda x, axes, keep: x.prod(axes, keepdim=keep), 18),
    "ReduceL1": (lambda x, axes, keep: x.abs().sum(axes, keepdim=keep), 18),
    "ReduceL2": (lambda x, axes, keep: _floats(x).square().sum(axes, keepdim=keep).sqrt(), 18),
    "ReduceSumSquare": (lambda x, axes, keep: (x * x).sum(axes, keepdim=keep), 18),
    "ReduceLogSum": (lambda x, axes, keep: _floats(x).sum(axes, keepdim=keep).log(), 18),
    "ReduceLogSumExp": (
        _or_filled(lambda x: -np.inf, lambda x, axes, keep: _floats(x).logsumexp(axes, keepdim=keep)),
        18,
    ),
}
BEFORE = {  # what an element becomes where there are no axes and none are meant
    "ReduceL1": lambda x: x.abs(),
    "ReduceL2": lambda x: x.abs(),
    "ReduceSumSquare": lambda x: x * x,
    "ReduceLogSum": lambda x: x.log(),
}


def _declare(op: str, act: Act, since: int) -> None:
    @operator(op, since=since, host="axes")
    def reduced(x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        if axes is None or not len(axes):
            if noop_with_empty_axes:
                return BEFORE.get(op, lambda x: x)(x)
            axes = range(x.ndim)
        over = tuple(int(a) % x.ndim for a in axes)
        return same_dtype(x, act(x, over, bool(keepdims)) if x.ndim else act(x.reshape(1), (0,), False))

    earlier(op, 1, reduced, "x", "axes keepdims")


for _op, (_act, _since) in REDUCTIONS.items():
    _declare(_op, _act, _since)


def _declare_place(op: str, method: str) -> None:
    @operator(op, since=1)
    def place(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        """The place of the first greatest or least, or the last."""
        axis %= x.ndim
        found = getattr(x.flip(axis) if select_last_index else x, method)(axis, keepdim=bool(keepdims))
        return (x.shape[axis] - 1) - found if select_last_index else found


_declare_place("ArgMax", "argmax")
_declare_place("ArgMin", "argmin")
