"""Histograms with their edges: how many samples, or how much weight, falls between each two edges.

In       samples; how many bins, or their edges; weights
Out      (counts, edges), on the samples' device
Changes  nothing; the least and greatest sample are found on the device where no range is given
Next     __init__.py (where they are found), ops/counting.py (histc, bincount, searchsorted)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class Histogram(NamedTuple):
    """What histogram gives."""

    hist: Any
    bin_edges: Any


@checked
def histogram(
    input: Tensor, bins: Any, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Histogram:
    """How many elements lie in each bin, and the edges of the bins; the last bin has its right edge, too.

    bins      how many, evenly from the least to the greatest element or over `range`; or a tensor of rising edges
    weight    of the samples' shape: how much each counts
    density   divided by the total and by the width of the bin

    >>> histogram(Tensor([1.0, 2.0, 2.5]), 2).hist.tolist()
    [1.0, 2.0]
    """
    given = [bins] if isinstance(bins, Tensor) else [int(bins)]
    lines = input.reshape(input.numel(), 1)
    flat = None if weight is None else weight.reshape(weight.numel())
    counts, edges = _counted("histogram", lines, given, range, flat, density)
    return Histogram(counts, edges[0])


@checked
def histogramdd(
    input: Tensor, bins: Any, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Histogram:
    """`histogram` of points (..., axes): a count for each box of bins, and the edges of every axis.

    bins   how many: one number, or one for each axis; or tensors of rising edges
    range  the least and the greatest of each axis, one after the other

    >>> points = Tensor([[0.0, 0.0], [0.9, 0.1], [1.0, 1.0]])
    >>> hcq.histogramdd(points, [2, 2]).hist.tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    if input.ndim < 2:
        raise UsageError(f"[histogramdd] shape {input.shape}: give points (..., axes).")
    axes = input.shape[-1]
    given = [bins] * axes if isinstance(bins, int) else list(bins)
    if len(given) != axes:
        raise UsageError(f"[histogramdd] bins={shown(bins)}: give one for each of {axes} axes.")
    points = prod(input.shape[:-1])
    flat = None if weight is None else weight.reshape(weight.numel())
    counts, edges = _counted("histogramdd", input.reshape(points, axes), given, range, flat, density)
    return Histogram(counts, tuple(edges))


def _counted(
    call: str, points: Tensor, bins: Sequence[Any], bounds: Any, weight: Any, density: bool
) -> tuple[Tensor, list[Tensor]]:
    """(points, axes) into boxes."""
    if not points.dtype.is_float:
        raise UsageError(f"[{call}] {points.dtype.name} samples: give floats, or use bincount.")
    axes = points.shape[1]
    if bounds is not None and len(bounds) != 2 * axes:
        raise UsageError(f"[{call}] range={shown(bounds)}: give two numbers for each of {axes} axes.")
    if weight is not None and weight.shape[0] != points.shape[0]:
        raise UsageError(f"[{call}] {weight.shape[0]} weights of {points.shape[0]} samples: give one each.")
    edges = [_edges(call, points[:, k], each, k, bounds) for k, each in enumerate(bins)]
    sizes = [edge.shape[0] - 1 for edge in edges]
    place: Any = None
    inside: Any = None
    for k, (edge, size) in enumerate(zip(edges, sizes)):
        line = points[:, k]
        at = (edge.unsqueeze(0) <= line.unsqueeze(1)).cast(dtypes.int64).sum(1) - 1
        at = (line == edge[size]).where(size - 1, at)  # the right edge belongs to the last bin
        fits = (line >= edge[0]) & (line <= edge[size])
        inside = fits if inside is None else inside & fits
        place = at if place is None else place * size + at
    dtype = points.dtype
    base = Tensor.zeros(prod(sizes), dtype=dtype, device=points.device)
    counts = base
    if points.shape[0]:
        ones = Tensor.ones(points.shape[0], dtype=dtype, device=points.device) if weight is None else weight
        counts = base.index_add(0, inside.where(place, 0), inside.where(ones.cast(dtype), 0.0))
    counts = counts.reshape(sizes)
    if density:
        counts = counts / counts.sum()
        for k, edge in enumerate(edges):
            widths = edge[1:] - edge[:-1]
            counts = counts / widths.reshape([1] * k + [widths.shape[0]] + [1] * (axes - k - 1))
    return counts, edges


def _edges(call: str, line: Tensor, bins: Any, axis: int, bounds: Any) -> Tensor:
    """The edges of the bins of one axis."""
    if isinstance(bins, Tensor):
        if bins.ndim != 1 or bins.shape[0] < 2:
            raise UsageError(f"[{call}] edges {bins.shape}: give two at least, rising.")
        return bins.cast(line.dtype)
    if bins < 1:
        raise UsageError(f"[{call}] {bins} bins: use 1 or more.")
    if bounds is not None:
        low, high = float(bounds[2 * axis]), float(bounds[2 * axis + 1])
        if not low <= high:
            raise UsageError(
                f"[{call}] range {low} to {high} of axis {axis}: the second is not the greater one."
            )
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        return Tensor.linspace(low, high, bins + 1, line.dtype, line.device)
    if not line.numel():
        return Tensor.linspace(0.0, 1.0, bins + 1, line.dtype, line.device)
    least, greatest = line.amin(), line.amax()
    half = (least == greatest).where(0.5, 0.0).cast(line.dtype)
    return Tensor.linspace(least - half, greatest + half, bins + 1, line.dtype, line.device)
