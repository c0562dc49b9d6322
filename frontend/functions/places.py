"""Places: the indices of triangles, flat indices as one for each axis, slopes between samples.

In       sizes; tensors of indices; samples at even or given distances
Out      lazy tensors
Next     __init__.py (where they are found), ops/creation.py (tril, triu)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import rounded, widened
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes


@checked
def tril_indices(
    row: int, col: int, offset: int = 0, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """(2, count): the rows and columns of the elements on and below a diagonal of a row x col matrix.

    >>> tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    places = [
        (i, j) for i in _range("tril_indices", row, col) for j in range(max(0, min(col, i + offset + 1)))
    ]
    return _columns(places, dtype, device)


@checked
def triu_indices(
    row: int, col: int, offset: int = 0, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """(2, count): the rows and columns of the elements on and above a diagonal of a row x col matrix.

    >>> hcq.triu_indices(2, 3).tolist()
    [[0, 0, 0, 1, 1], [0, 1, 2, 1, 2]]
    """
    places = [(i, j) for i in _range("triu_indices", row, col) for j in range(max(0, i + offset), col)]
    return _columns(places, dtype, device)


def _range(call: str, row: int, col: int) -> range:
    if row < 0 or col < 0:
        raise UsageError(f"[{call}] {row} x {col}: sizes are 0 or more.")
    return range(row)


def _columns(places: list[tuple[int, int]], dtype: DType | None, device: str | None) -> Tensor:
    if not places:
        return Tensor.zeros(2, 0, dtype=dtype or dtypes.int64, device=device)
    return Tensor._made_of([list(line) for line in zip(*places)], device, dtype or dtypes.int64)


@checked
def unravel_index(indices: Tensor, shape: Any) -> tuple[Any, ...]:
    """Places of the flattened tensor as indices of each axis of `shape`.

    >>> [axis.tolist() for axis in unravel_index(hcq.tensor([5]), (2, 3))]
    [[1], [2]]
    """
    sizes = [
        int(n)
        for n in (
            shape.tolist() if isinstance(shape, Tensor) else [shape] if isinstance(shape, int) else shape
        )
    ]
    if not indices.dtype.is_integer or min(sizes, default=0) < 0:
        raise UsageError(
            f"[unravel_index] {indices.dtype.name} indices, shape {tuple(sizes)}: give integers."
        )
    found, rest = [], (indices < 0).where(indices + prod(sizes), indices)
    for size in reversed(sizes):
        found.append(rest % size if size else rest)
        rest = rest // size if size else rest
    return tuple(reversed(found))


def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> list[Any]:
    """The slopes along axes, one tensor for each: of second order inside, and of `edge_order` at both ends.

    spacing   the distance of samples: a number, one for each axis, or tensors of coordinates
    dim       an axis, or several; None for all

    >>> gradient(Tensor([1.0, 4.0, 9.0]))[0].tolist()
    [3.0, 4.0, 5.0]
    """
    call = "gradient"
    axes = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    axes = [input._axis_of(call, axis) for axis in axes]
    spacing = 1 if spacing is None else spacing
    is_one = isinstance(spacing, (int, float)) or (isinstance(spacing, Tensor) and not spacing.ndim)
    steps: Sequence[Any] = [spacing] * len(axes) if is_one else list(spacing)
    if len(steps) != len(axes) or edge_order not in (1, 2):
        raise UsageError(
            f"[{call}] spacing={shown(spacing)}, edge_order={edge_order}: one for each of {axes}; 1 or 2."
        )
    x = input if input.dtype.is_float else input.cast(dtypes.float32)
    slopes = [_slope(call, widened(x), axis, step, edge_order) for axis, step in zip(axes, steps)]
    return [rounded(slope, x.dtype) for slope in slopes]


def _slope(call: str, x: Tensor, axis: int, step: Any, order: int) -> Tensor:
    size = x.shape[axis]
    if size < order + 1:
        raise UsageError(f"[{call}] axis {axis} of size {size}: give {order + 1} samples at least.")
    shape = [-1 if d == axis else 1 for d in range(x.ndim)]
    if isinstance(step, Tensor) and step.ndim:
        if step.shape != (size,):
            raise UsageError(
                f"[{call}] coordinates {step.shape} of axis {axis} of size {size}: give one each."
            )
        at = step if step.dtype.is_float else step.cast(x.dtype)
        gaps: Any = (at[1:] - at[:-1]).cast(x.dtype)
    else:
        gaps = Tensor.ones(size - 1, dtype=x.dtype, device=x.device) * step
    gaps = gaps.reshape(shape)
    rises = (x.narrow(axis, 1, size - 1) - x.narrow(axis, 0, size - 1)) / gaps
    first, last = rises.narrow(axis, 0, 1), rises.narrow(axis, size - 2, 1)
    if size == 2:
        return Tensor.cat([first, last], dim=axis)
    low, high = gaps.narrow(axis, 0, size - 2), gaps.narrow(axis, 1, size - 2)
    before, after = rises.narrow(axis, 0, size - 2), rises.narrow(axis, 1, size - 2)
    middle = (before * high + after * low) / (low + high)
    if order == 2:  # the parabola through three samples, at its end
        first = first + (before - after).narrow(axis, 0, 1) * (low / (low + high)).narrow(axis, 0, 1)
        last = last + (after - before).narrow(axis, size - 3, 1) * (high / (low + high)).narrow(
            axis, size - 3, 1
        )
    return Tensor.cat([first, middle, last], dim=axis)
