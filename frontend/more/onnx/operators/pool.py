"""Pools: the greatest, the average or the norm of each window.

In       tensors (batch, channels, *space)
Out      tensors (batch, channels, *space)
Changes  table.py's table
Next     conv.py (pads), image.py (RoiAlign)
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hcq.frontend.more.onnx.operators.conv import Pairs, Windows, surrounded
from hcq.frontend.more.onnx.operators.math import same_dtype, whole
from hcq.frontend.more.onnx.table import operator, operators
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def windows_of(
    x: Tensor, window: Any, windows: Windows, ceil_mode: int, filling: Any
) -> tuple[Tensor, Pairs, tuple[int, ...]]:
    """(batch, channels, *places, *window), what stands around, and the axes of the window."""
    rank = len(window)
    steps, reach = windows.steps(rank), windows.reach(rank)
    around = windows.around(x.shape[2:], window)
    if ceil_mode and windows.auto_pad in ("NOTSET", ""):
        for d, (a, b) in enumerate(around):
            size, full = x.shape[2 + d], reach[d] * (window[d] - 1) + 1
            count = -(-(size + a + b - full) // steps[d]) + 1
            if (count - 1) * steps[d] >= size + a:
                count -= 1  # it would begin behind the last element
            around[d] = (a, max(b, (count - 1) * steps[d] + full - size - a))
    x = surrounded(x, around, filling)
    for d in range(rank):
        x = x.unfold(2 + d, window[d], steps[d], reach[d])
    return x, around, tuple(range(2 + rank, 2 + 2 * rank))


@operator("MaxPool", since=1, windows=Windows)
def max_pool(
    x: Tensor, *, kernel_shape: Any, ceil_mode: int = 0, storage_order: int = 0, windows: Windows, call: Any
) -> Any:
    """The greatest of each window, and its place in the whole tensor."""
    seen, _, axes = windows_of(x, kernel_shape, windows, ceil_mode, x.dtype.min)
    values = seen.amax(axes)
    if not call.wants(1):
        return values
    space = x.shape[2:]
    flat = np.arange(prod(space)).reshape(space, order="F" if storage_order else "C").astype(np.int64)
    numbers = call.constant(flat.reshape(1, 1, *space))
    places, _, _ = windows_of(numbers, kernel_shape, windows, ceil_mode, -1)
    size = prod(kernel_shape)
    rows = seen.reshape(*values.shape, size)
    first = rows.argmax(-1, keepdim=True)
    places = places.reshape(1, 1, *values.shape[2:], size).expand(*rows.shape)
    plane = Tensor.arange(prod(x.shape[:2]), device=x.device).reshape(*x.shape[:2], *[1] * len(axes))
    return values, places.gather(-1, first).squeeze(-1) + plane * prod(space)


@operator("AveragePool", since=1, windows=Windows)
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    windows: Windows,
    call: Any,
) -> Any:
    """Over the elements that there are: those of pads count if they are told to, those beyond the pads never."""
    seen, around, axes = windows_of(x, kernel_shape, windows, ceil_mode, 0)
    steps, reach = windows.steps(len(axes)), windows.reach(len(axes))
    given = windows.around(x.shape[2:], kernel_shape)
    counts = np.ones(())
    for d, (n, (a, b), (ga, gb)) in enumerate(zip(x.shape[2:], around, given)):
        inside = np.ones(n) if not count_include_pad else np.ones(n + ga + gb)
        left, right = (a, b) if not count_include_pad else (a - ga, b - gb)
        line = np.pad(inside, (left, right))
        starts = np.arange(seen.shape[2 + d]) * steps[d]
        taken = line[starts[:, None] + np.arange(kernel_shape[d]) * reach[d]].sum(1)
        counts = np.multiply.outer(counts, taken)
    divisor = call.constant(counts.astype(np.float32)).cast(x.dtype)
    return same_dtype(x, seen.sum(axes) / divisor)


@operator("LpPool", since=2, windows=Windows)
def lp_pool(x: Tensor, *, kernel_shape: Any, ceil_mode: int = 0, p: int = 2, windows: Windows) -> Any:
    """The p-norm of each window."""
    seen, _, axes = windows_of(x, kernel_shape, windows, ceil_mode, 0)
    return same_dtype(x, (seen.abs() ** p).sum(axes) ** (1 / p))


def _space(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


operators(
    {
        "GlobalAveragePool": (1, lambda x: x.mean(_space(x), keepdim=True)),
        "GlobalMaxPool": (1, lambda x: x.amax(_space(x), keepdim=True)),
        "GlobalLpPool": (2, lambda x, *, p=2: (x.abs() ** p).sum(_space(x), keepdim=True) ** (1 / p)),
    }
)


@operator("MaxUnpool", since=9, host="shape")
def max_unpool(
    x: Tensor, index: Tensor, shape: Any = None, *, kernel_shape: Any, pads: Any = None, strides: Any = None
) -> Any:
    """Values where their indices say, counted in the whole tensor of the usual size; zeros elsewhere."""
    steps = strides or [1] * len(kernel_shape)
    around = Windows(pads=pads).around(x.shape[2:], kernel_shape)
    usual = [(n - 1) * s + k - a - b for n, s, k, (a, b) in zip(x.shape[2:], steps, kernel_shape, around)]
    sizes = [*x.shape[:2], *usual]
    flat = Tensor.zeros(prod(sizes), device=x.device, dtype=x.dtype)
    found = flat.scatter(0, index.cast(dtypes.int64).reshape(-1), x.reshape(-1)).reshape(tuple(sizes))
    if shape is None:
        return found
    return surrounded(found, [(0, want - have) for want, have in zip(whole(shape)[2:], usual)])


@operator("MaxRoiPool", since=1, host="rois")
def max_roi_pool(x: Tensor, rois: Any, *, pooled_shape: Any, spatial_scale: float = 1.0) -> Any:
    """The greatest of each cell of regions, whose corners are rounded to pixels; an empty cell is 0."""
    regions = []
    for row in np.asarray(rois):
        image = int(row[0])
        left, top, right, bottom = (int(np.floor(place * spatial_scale + 0.5)) for place in row[1:])
        cells = []
        for d, (first, last) in enumerate(((top, bottom), (left, right))):
            size, count = x.shape[2 + d], pooled_shape[d]
            step = max(last - first + 1, 1) / count
            starts = [min(max(int(np.floor(i * step)) + first, 0), size) for i in range(count)]
            ends = [min(max(int(np.ceil((i + 1) * step)) + first, 0), size) for i in range(count)]
            cells.append(list(zip(starts, ends)))
        lines = [Tensor.stack([_cell(x[image], y, across) for across in cells[1]], dim=1) for y in cells[0]]
        regions.append(Tensor.stack(lines, dim=1))
    return Tensor.stack(regions, dim=0)


def _cell(image: Tensor, rows: tuple[int, int], columns: tuple[int, int]) -> Tensor:
    """(channels): the greatest of a cell."""
    part = image[:, slice(*rows), slice(*columns)]
    return part.amax((1, 2)) if 0 not in part.shape else image[:, 0, 0] * 0
