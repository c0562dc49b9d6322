"""Arithmetic with shapes: what models compute of sizes and constants, in NumPy, with no device.

In       a step whose inputs are all known, and small
Out      the function that computes it on arrays, or None; it gives None where the result is not small
Next     evaluate.py (who asks), operators/ (the same operators on tensors)

Exporters write `x.view(x.shape[0], -1)` as Shape, Gather, Unsqueeze, Concat, Reshape: all but the last are numbers.
What is not here is computed on the device, constants too.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from hcq.frontend.more.onnx.graph import Step
from hcq.frontend.more.onnx.operators.math import whole
from hcq.frontend.more.onnx.operators.shape import slices_of
from hcq.frontend.more.onnx.weights import DTYPES, bits_of

Array = Any
MAX_HOST = 4096  # elements of what is computed here


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    safe = np.where(b == 0, 1, b)
    quotient = np.floor_divide(a, safe)
    return (quotient + ((quotient < 0) & (quotient * safe != a))).astype(a.dtype)


def _cast(x: Array, to: int, saturate: int = 1, **_: Any) -> Array | None:
    dtype = DTYPES.get(to)
    if dtype is None or bits_of(dtype).name != dtype.name:
        return None
    return x.astype(dtype.name)


def _reshape(x: Array, shape: Array, allowzero: int = 0) -> Array | None:
    sizes = [int(n) for n in shape]
    return x.reshape([x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(sizes)])


def _reduced(act: Callable[..., Array]) -> Callable[..., Array]:
    def reduce(x: Array, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Array:
        over = None if axes is None or not np.size(axes) else tuple(whole(axes))
        if over is None and noop_with_empty_axes:
            return x
        return act(x, axis=over, keepdims=bool(keepdims)).astype(x.dtype)

    return reduce


def _expand(x: Array, shape: Array) -> Array | None:
    sizes = np.broadcast_shapes(x.shape, tuple(int(n) for n in shape))
    return np.broadcast_to(x, sizes) if prod(sizes) <= MAX_HOST else None


def _many(act: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def fold(first: Array, *others: Array) -> Array:
        for other in others:
            first = act(first, other)
        return first

    return fold


def _unary(act: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda x: np.asarray(act(x)).astype(x.dtype)


# operator -> (from which version on, function)
FORMS: dict[str, tuple[int, Callable[..., Any]]] = {
    "Add": (7, lambda a, b: a + b), "Sub": (7, lambda a, b: a - b), "Mul": (7, lambda a, b: a * b),
    "Div": (7, _divide), "Mod": (10, lambda a, b, fmod=0: np.fmod(a, b) if fmod else np.mod(a, b)),
    "Neg": (6, _unary(np.negative)), "Abs": (6, _unary(np.abs)),
    "Floor": (6, _unary(np.floor)), "Ceil": (6, _unary(np.ceil)), "Sqrt": (6, _unary(np.sqrt)),
    "Min": (8, _many(np.minimum)), "Max": (8, _many(np.maximum)),
    "Equal": (7, lambda a, b: a == b), "Less": (7, lambda a, b: a < b), "Greater": (7, lambda a, b: a > b),
    "LessOrEqual": (12, lambda a, b: a <= b), "GreaterOrEqual": (12, lambda a, b: a >= b),
    "And": (7, np.logical_and), "Or": (7, np.logical_or), "Not": (1, np.logical_not), "Where": (9, np.where),
    "Cast": (6, _cast), "Reshape": (5, _reshape), "Expand": (8, _expand),
    "Gather": (1, lambda x, index, axis=0: np.take(x, index, axis=axis)),
    "Concat": (4, lambda *arrays, axis=0: np.concatenate(arrays, axis=axis)),
    "Squeeze": (1, lambda x, axes=None: np.squeeze(x, None if axes is None else tuple(whole(axes)))),
    "Unsqueeze": (1, lambda x, axes: np.expand_dims(x, tuple(whole(axes)))),
    "Slice": (10, lambda x, *numbers: x[slices_of(x.shape, *numbers)]),
    "Transpose": (1, lambda x, perm=None: np.transpose(x, perm)),
    "ReduceProd": (1, _reduced(np.prod)), "ReduceSum": (1, _reduced(np.sum)),
    "ReduceMax": (1, _reduced(np.max)), "ReduceMin": (1, _reduced(np.min)),
}  # fmt: skip


def find(step: Step) -> Callable[..., Any] | None:
    """What computes a step on the host; None where the device has to."""
    if step.domain:
        return None
    since, function = FORMS.get(step.op, (0, None))
    if function is None or step.version < since:
        return None
    if step.op == "Cast" and _cast(np.zeros(()), **step.attributes) is None:
        return None
    return function
