"""Shapes: movement of elements, new tensors, and what is asked of a shape.

In       tensors; shapes, axes and counts as numbers on the host
Out      tensors; shapes as NumPy arrays, which are known before anything runs
Changes  table.py's table
Next     index.py (elements by index), host.py (arithmetic with what Shape gives)
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.table import earlier, operator, operators
from hcq.frontend.more.onnx.weights import DTYPES, kind_name
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes

Numbers = Any  # an array on the host
MAX_RANGE = 1 << 28


def dtype_of(kind: int) -> DType:
    """A TensorProto.DataType as ours. Raises UsageError."""
    if kind not in DTYPES:
        raise UsageError(f"{kind_name(kind)} is no dtype here")
    return DTYPES[kind]


# -- dtypes --


def converted(x: Tensor, dtype: DType, saturate: int = 1) -> Tensor:
    """In another dtype. 8-bit floats hold what is too large at their greatest, unless saturate is 0."""
    if dtype.is_storage_only and x.dtype is not dtype:
        most = 448.0 if dtype is dtypes.fp8e4m3 else 57344.0
        wide = x.float()
        if saturate:
            return wide.clamp(-most, most).cast(dtype)
        return wide.cast(dtype)
    return x.cast(dtype)


# -- new tensors --


@operator("Constant", since=1, raw=True)
def constant(
    *,
    value: Any = None,
    value_float: float | None = None,
    value_floats: Any = None,
    value_int: int | None = None,
    value_ints: Any = None,
) -> Any:
    """What an attribute says."""
    if value is not None:
        return value
    if value_float is not None or value_floats is not None:
        return np.asarray(value_floats if value_float is None else value_float, np.float32)
    if value_int is not None or value_ints is not None:
        return np.asarray(value_ints if value_int is None else value_int, np.int64)
    raise UsageError("it has no number: strings and sparse tensors are not read here")


@operator("ConstantOfShape", since=9, host="shape")
def constant_of_shape(shape: Numbers, *, value: Any = None, call: Any) -> Any:
    """One number in a shape."""
    sizes = tuple(map(int, shape))
    if value is None:
        filling: Any = np.zeros((), np.float32)
        dtype = dtypes.float32
    else:
        filling, dtype = value.array().reshape(()), value.dtype
    if prod(sizes) <= 4096 and filling.dtype.name == dtype.name:
        return np.full(sizes, filling)
    return call.constant(filling, dtype).expand(sizes)


@operator("EyeLike", since=9)
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Any:
    """1 on a diagonal, in another tensor's shape."""
    rows, columns = x.shape
    kind = x.dtype if dtype is None else dtype_of(dtype)
    row = Tensor.arange(rows, device=x.device).reshape(rows, 1)
    column = Tensor.arange(columns, device=x.device)
    return (column == row + k).cast(kind)


@operator("Range", since=11, host="start limit delta")
def count(start: Numbers, limit: Numbers, delta: Numbers, *, stash_type: int = 1, call: Any) -> Any:
    """start, start + delta, ... before limit."""
    if delta.item() and (limit.item() - start.item()) / delta.item() > MAX_RANGE:
        raise UsageError(
            f"{start.item()} to {limit.item()} by {delta.item()}: up to {MAX_RANGE} numbers are made"
        )
    found = np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)
    kind = call.given[0].dtype
    return found if kind.name == found.dtype.name else call.constant(found).cast(kind)


# -- what is asked of a shape --


# -- movement --


@operator("Reshape", since=5, host="shape")
def reshape(x: Tensor, shape: Numbers, *, allowzero: int = 0) -> Any:
    """0 keeps the size that stands there, -1 is what remains."""
    sizes = [int(n) for n in np.asarray(shape).reshape(-1)]
    if not allowzero:
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    if -1 in sizes and 0 in sizes:
        sizes[sizes.index(-1)] = 0
    return x.reshape(tuple(sizes))


earlier("Reshape", 1, reshape, "x", "shape")


@operator("Flatten", since=1)
def flatten(x: Tensor, *, axis: int = 1) -> Any:
    """A matrix: the axes before one, and the others."""
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


@operator("Squeeze", since=13, host="axes")
def squeeze(x: Tensor, axes: Numbers = None) -> Any:
    """Without axes of size 1."""
    if axes is None:
        return x.squeeze()
    return x.squeeze(tuple(int(axis) for axis in np.asarray(axes).reshape(-1)))


earlier("Squeeze", 1, squeeze, "x", "axes")


@operator("Unsqueeze", since=13, host="axes")
def unsqueeze(x: Tensor, axes: Numbers) -> Any:
    """With axes of size 1."""
    places = [int(axis) for axis in np.asarray(axes).reshape(-1)]
    rank = x.ndim + len(places)
    for axis in sorted(axis % rank for axis in places):
        x = x.unsqueeze(axis)
    return x


earlier("Unsqueeze", 1, unsqueeze, "x", "axes")


@operator("Transpose", since=1)
def transpose(x: Tensor, *, perm: Any = None) -> Any:
    """Axes in another order, or in reverse."""
    return x.permute(tuple(reversed(range(x.ndim))) if perm is None else tuple(perm))


@operator("Expand", since=8, host="shape")
def expand(x: Tensor, shape: Numbers) -> Any:
    """Broadcast to a shape."""
    return x.broadcast_to(np.broadcast_shapes(x.shape, tuple(int(n) for n in shape)))


@operator("Tile", since=6, host="repeats")
def tile(x: Tensor, repeats: Numbers) -> Any:
    """Repeated along each axis."""
    return x.repeat(*[int(n) for n in repeats]) if x.ndim else x


@operator("Split", since=18, host="split")
def in_parts(
    x: Tensor, split: Numbers = None, *, axis: int = 0, num_outputs: int | None = None, call: Any
) -> Any:
    """In parts of the sizes given, or in as many as there are outputs, of which the last may be smaller."""
    if split is None:
        parts = num_outputs or call.count
        size = -(-x.shape[axis] // parts)
        sizes = [min(size, max(0, x.shape[axis] - size * i)) for i in range(parts)]
    else:
        sizes = [int(n) for n in np.asarray(split).reshape(-1)]
    axis %= x.ndim
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    if sum(sizes) != x.shape[axis] or any(n < 0 for n in sizes):
        raise UsageError(f"parts of sizes {sizes} of axis {axis}, which has {x.shape[axis]} elements")
    return tuple(x.narrow(axis, start, size) for start, size in zip(starts, sizes))


earlier("Split", 13, in_parts, "x split", "axis")
earlier("Split", 2, in_parts, "x", "split axis")


def slices_of(shape: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> tuple[slice, ...]:
    """Slice's numbers as Python's slices: INT_MAX and the like mean the end."""
    places = range(len(starts)) if axes is None else [int(axis) % len(shape) for axis in axes]
    found = [slice(None)] * len(shape)
    for i, axis in enumerate(places):
        step = 1 if steps is None else int(steps[i])
        size = shape[axis]
        start, end = (int(n) + size if int(n) < 0 else int(n) for n in (starts[i], ends[i]))
        if step > 0:
            found[axis] = slice(max(0, min(start, size)), max(0, min(end, size)), step)
        else:
            start, end = max(-1, min(start, size - 1)), max(-1, min(end, size - 1))
            found[axis] = slice(start, None if end < 0 else end, step) if start >= 0 else slice(0, 0, 1)
    return tuple(found)


@operator("Slice", since=10, host="starts ends axes steps")
def cut(x: Tensor, starts: Numbers, ends: Numbers, axes: Numbers = None, steps: Numbers = None) -> Any:
    """Ranges of axes, with steps."""
    return x[slices_of(x.shape, starts, ends, axes, steps)]


earlier("Slice", 1, cut, "x", "starts ends axes")


@operator("Pad", since=11, host="pads value axes")
def pad(
    x: Tensor, pads: Numbers, value: Numbers = None, axes: Numbers = None, *, mode: str = "constant"
) -> Any:
    """Elements around: a number, the edge, a reflection, or the other end."""
    around = [(0, 0)] * x.ndim
    places = list(range(x.ndim)) if axes is None else [int(axis) % x.ndim for axis in axes]
    for i, axis in enumerate(places):
        around[axis] = (int(pads[i]), int(pads[i + len(places)]))
    filling = 0 if value is None else np.asarray(value).reshape(-1)[0].item()
    return padded(x, around, mode, filling)


earlier("Pad", 2, pad, "x", "pads mode value")
earlier("Pad", 1, pad, "x", "paddings=pads mode value")


def padded(x: Tensor, around: list[tuple[int, int]], mode: str, filling: Any) -> Tensor:
    """Elements around, or away where a count is negative."""
    away = tuple(slice(max(0, -a), max(0, size - max(0, -b))) for (a, b), size in zip(around, x.shape))
    x = x[away] if any(a < 0 or b < 0 for a, b in around) else x
    around = [(max(0, a), max(0, b)) for a, b in around]
    if mode == "constant":
        flat = [n for pair in reversed(around) for n in pair]
        return x.pad(flat, value=bool(filling) if x.dtype.is_bool else filling)
    for axis, (a, b) in enumerate(around):
        if a or b:
            x = _around(x, axis, a, b, mode)
    return x


def _around(x: Tensor, axis: int, a: int, b: int, mode: str) -> Tensor:
    """One axis with its own elements around: pieces of it, as many times as they are needed."""
    size = x.shape[axis]
    if mode == "edge":
        places = [min(max(i, 0), size - 1) for i in range(-a, size + b)]
    elif mode == "wrap":
        places = [i % size for i in range(-a, size + b)]
    elif mode == "reflect":
        turn = 2 * (size - 1) or 1
        places = [min(i % turn, turn - i % turn) if size > 1 else 0 for i in range(-a, size + b)]
    else:
        raise UsageError(f"mode {mode!r}; known are constant, edge, reflect and wrap")
    return pieces(x, axis, places)


def pieces(x: Tensor, axis: int, places: list[int]) -> Tensor:
    """Elements of an axis at places known now, as runs that go up, down, or stay."""
    runs: list[list[int]] = []  # [first, step, count]
    for place in places:
        if runs and runs[-1][2] == 1 and place - runs[-1][0] in (1, -1, 0):
            runs[-1][1], runs[-1][2] = place - runs[-1][0], 2
        elif runs and runs[-1][2] > 1 and place == runs[-1][0] + runs[-1][1] * runs[-1][2]:
            runs[-1][2] += 1
        else:
            runs.append([place, 0, 1])
    parts = []
    for first, step, count in runs:
        low = min(first, first + step * (count - 1))
        part = x.narrow(axis, low, abs(step) * (count - 1) + 1)
        if step < 0:
            part = part.flip(axis)
        if not step and count > 1:
            part = part.expand(*x.shape[:axis], count, *x.shape[axis + 1 :])
        parts.append(part)
    if not parts:
        return x.narrow(axis, 0, 0)
    return parts[0] if len(parts) == 1 else Tensor.cat(parts, dim=axis)


@operator("CenterCropPad", since=18, host="shape")
def center_crop_pad(x: Tensor, shape: Numbers, *, axes: Any = None) -> Any:
    """The middle, in another size."""
    places = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in axes]
    around = [(0, 0)] * x.ndim
    for axis, want in zip(places, map(int, shape)):
        more = want - x.shape[axis]
        before = more // 2 if more >= 0 else -((-more) // 2)
        around[axis] = (before, more - before)
    return padded(x, around, "constant", 0)


@operator("DepthToSpace", since=1)
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Any:
    """Channels become space."""
    n, c, h, w = x.shape
    b = blocksize
    if mode == "CRD":
        x = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    else:
        x = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    return x.reshape(n, c // (b * b), h * b, w * b)


@operator("SpaceToDepth", since=1)
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Any:
    """Space becomes channels."""
    n, c, h, w = x.shape
    b = blocksize
    x = x.reshape(n, c, h // b, b, w // b, b)
    x = x.permute(0, 3, 5, 1, 2, 4) if mode == "DCR" else x.permute(0, 1, 3, 5, 2, 4)
    return x.reshape(n, c * b * b, h // b, w // b)


operators(
    {
        # in another dtype
        "Cast": (6, lambda x, *, to, saturate=1, round_mode="up": converted(x, dtype_of(to), saturate)),
        # in another tensor's dtype
        "CastLike": (15, lambda x, like, *, saturate=1, round_mode="up": converted(x, like.dtype, saturate)),
        # one behind the other along an axis
        "Concat": (1, lambda *tensors, axis=1: Tensor.cat(list(tensors), dim=axis)),
    }
)
operators(
    {
        "Identity": (1, lambda x: x),  # the same value
        # sizes of axes: known before anything runs
        "Shape": (1, lambda x, *, start=0, end=None: np.asarray(x.shape[slice(start, end)], np.int64)),
        "Size": (1, lambda x: np.asarray(prod(x.shape), np.int64)),  # how many elements there are
    },
    raw=True,
)
