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

from hcq.frontend.more.onnx.operators.conv import Pairs, pads_of, surrounded
from hcq.frontend.more.onnx.operators.math import same_dtype, whole
from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def windows_of(
    x: Tensor,
    window: Any,
    strides: Any,
    dilations: Any,
    auto_pad: str,
    pads: Any,
    ceil_mode: int,
    filling: Any,
) -> tuple[Tensor, Pairs]:
    """(batch, channels, *places, *window), and what stands around."""
    rank = len(window)
    steps, reach = strides or [1] * rank, dilations or [1] * rank
    around = pads_of(auto_pad, pads, x.shape[2:], window, steps, reach)
    if ceil_mode and auto_pad in ("NOTSET", ""):
        for d, (a, b) in enumerate(around):
            size, full = x.shape[2 + d], reach[d] * (window[d] - 1) + 1
            count = -(-(size + a + b - full) // steps[d]) + 1
            if (count - 1) * steps[d] >= size + a:
                count -= 1  # it would begin behind the last element
            around[d] = (a, max(b, (count - 1) * steps[d] + full - size - a))
    x = surrounded(x, around, filling)
    for d in range(rank):
        x = x.unfold(2 + d, window[d], steps[d], reach[d])
    return x, around


@operator("MaxPool", since=1)
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    pads: Any = None,
    storage_order: int = 0,
    strides: Any = None,
    call: Any,
) -> Any:
    """The greatest of each window, and its place in the whole tensor."""
    rank = len(kernel_shape)
    least = x.dtype.min
    windows, _ = windows_of(x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode, least)
    axes = tuple(range(2 + rank, 2 + 2 * rank))
    values = windows.amax(axes)
    if not call.wants(1):
        return values
    space = x.shape[2:]
    flat = np.arange(prod(space)).reshape(space, order="F" if storage_order else "C").astype(np.int64)
    places, _ = windows_of(
        call.constant(flat.reshape(1, 1, *space)),
        kernel_shape,
        strides,
        dilations,
        auto_pad,
        pads,
        ceil_mode,
        -1,
    )
    size = prod(kernel_shape)
    rows = windows.reshape(*values.shape, size)
    first = rows.argmax(-1, keepdim=True)
    places = places.reshape(1, 1, *values.shape[2:], size).expand(*rows.shape)
    plane = Tensor.arange(prod(x.shape[:2]), device=x.device).reshape(*x.shape[:2], *[1] * rank) * prod(space)
    return values, places.gather(-1, first).squeeze(-1) + plane


@operator("AveragePool", since=1)
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
    call: Any,
) -> Any:
    """Over the elements that there are: those of pads count if they are told to, those beyond the pads never."""
    rank = len(kernel_shape)
    windows, around = windows_of(x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode, 0)
    axes = tuple(range(2 + rank, 2 + 2 * rank))
    given = pads_of(auto_pad, pads, x.shape[2:], kernel_shape, strides or [1] * rank, dilations or [1] * rank)
    counts = np.ones(())
    for d, (n, (a, b), (ga, gb)) in enumerate(zip(x.shape[2:], around, given)):
        inside = np.ones(n) if not count_include_pad else np.ones(n + ga + gb)
        left, right = (a, b) if not count_include_pad else (a - ga, b - gb)
        line = np.pad(inside, (left, right))
        step, reach = (strides or [1] * rank)[d], (dilations or [1] * rank)[d]
        starts = np.arange(windows.shape[2 + d]) * step
        taken = line[starts[:, None] + np.arange(kernel_shape[d]) * reach].sum(1)
        counts = np.multiply.outer(counts, taken)
    divisor = call.constant(counts.astype(np.float32)).cast(x.dtype)
    return same_dtype(x, windows.sum(axes) / divisor)


@operator("LpPool", since=2)
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    p: int = 2,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """The p-norm of each window."""
    rank = len(kernel_shape)
    windows, _ = windows_of(x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode, 0)
    axes = tuple(range(2 + rank, 2 + 2 * rank))
    return same_dtype(x, (windows.abs() ** p).sum(axes) ** (1 / p))


@operator("GlobalAveragePool", since=1)
def global_average_pool(x: Tensor) -> Any:
    """The average of each channel."""
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalMaxPool", since=1)
def global_max_pool(x: Tensor) -> Any:
    """The greatest of each channel."""
    return x.amax(tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalLpPool", since=2)
def global_lp_pool(x: Tensor, *, p: int = 2) -> Any:
    """The p-norm of each channel."""
    return (x.abs() ** p).sum(tuple(range(2, x.ndim)), keepdim=True) ** (1 / p)


@operator("MaxUnpool", since=9, host="shape")
def max_unpool(
    x: Tensor, index: Tensor, shape: Any = None, *, kernel_shape: Any, pads: Any = None, strides: Any = None
) -> Any:
    """Values where their indices say, counted in the whole tensor of the usual size; zeros elsewhere."""
    rank = len(kernel_shape)
    steps = strides or [1] * rank
    around = pads_of("NOTSET", pads, x.shape[2:], kernel_shape, steps, [1] * rank)
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
