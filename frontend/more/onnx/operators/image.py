"""Images: other sizes, values between pixels, regions.

In       tensors (batch, channels, *space); sizes, scales and grids
Out      tensors (batch, channels, *space)
Changes  table.py's table
Next     pool.py (windows), conv.py (DeformConv reads between pixels, too)

Where a size is known, so are the places that each new element is made of and their weights: a few elements of each
line, weighed and added, one axis after another.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.operators.math import same_dtype, whole
from hcq.frontend.more.onnx.table import earlier, operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

# -- places in another size --


def _places(want: int, size: int, scale: float, roi: tuple[float, float], how: str) -> Any:
    """Where each of the new elements lies between the old ones, by coordinate_transformation_mode."""
    x = np.arange(want, dtype=np.float64)
    if how == "half_pixel":
        return (x + 0.5) / scale - 0.5
    if how == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if want > 1 else x * 0
    if how == "half_pixel_symmetric":
        adjusted = want / (scale * size)
        return size / 2 * (1 - adjusted) + (x + 0.5) / scale - 0.5
    if how == "align_corners":
        last = size * scale - 1  # not of whole elements, where a scale is given
        return x * (size - 1) / last if want > 1 else x * 0
    if how == "asymmetric":
        return x / scale
    if how == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if how == "tf_crop_and_resize":
        start, end = roi
        if want > 1:
            return start * (size - 1) + x * (end - start) * (size - 1) / (want - 1)
        return x * 0 + 0.5 * (start + end) * (size - 1)
    raise UsageError(f"coordinate_transformation_mode {how!r} is not known")


def _nearest(x: Any, mode: str) -> Any:
    if mode == "round_prefer_floor":
        return np.ceil(x - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(x + 0.5)
    if mode in ("floor", "ceil"):
        return np.floor(x) if mode == "floor" else np.ceil(x)
    raise UsageError(f"nearest_mode {mode!r} is not known")


def _cubic(a: float) -> Callable[[Any], Any]:
    def weigh(t: Any) -> Any:
        t = np.abs(t)
        near = (a + 2) * t**3 - (a + 3) * t**2 + 1
        far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
        return np.where(t <= 1, near, np.where(t < 2, far, 0))

    return weigh


def _weights(
    places: Any, size: int, scale: float, weigh: Any, reach: int, antialias: int, exclude: int
) -> Any:
    """(taps, want) indices and weights. With antialias taps are spread over all that a smaller image replaces."""
    stretch = min(scale, 1.0) if antialias else 1.0
    half = reach / stretch
    first = np.floor(places - half).astype(np.int64) + 1
    taps = int(np.ceil(2 * half)) + 1 if antialias else 2 * reach
    index = first + np.arange(taps)[:, None]
    weight = weigh((index - places) * stretch)
    if exclude or antialias:
        if exclude:
            weight = np.where((index < 0) | (index >= size), 0, weight)
        weight = weight / weight.sum(0)
    return np.clip(index, 0, size - 1), weight


def resized(x: Tensor, axis: int, index: Any, weight: Any, outside: Any, filling: float, call: Any) -> Tensor:
    """One axis as weighed sums of its elements; what lies outside is a number."""
    total: Any = None
    shape = [1] * x.ndim
    shape[axis] = index.shape[1]
    for places, factors in zip(index, weight):
        if not np.any(factors):
            continue
        part = x.index_select(axis, call.constant(places.astype(np.int32)))
        if np.any(factors != 1):
            part = part * call.constant(factors.astype(np.float32)).cast(x.dtype).reshape(tuple(shape))
        total = part if total is None else total + part
    if np.any(outside):
        total = call.constant(outside).reshape(tuple(shape)).where(filling, total)
    return total


@operator("Resize", since=11, host="roi scales sizes")
def resize(
    x: Tensor,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    call: Any,
) -> Any:
    """Each axis by a scale or to a size, by nearest, linear or cubic weights."""
    places = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in axes]
    old = [x.shape[axis] for axis in places]
    if sizes is not None and len(sizes):
        want = whole(sizes)
        factors = [w / n for w, n in zip(want, old)]
        if keep_aspect_ratio_policy != "stretch":
            one = min(factors) if keep_aspect_ratio_policy == "not_larger" else max(factors)
            factors = [one] * len(old)
            want = [int(np.floor(one * n + 0.5)) for n in old]
    elif scales is not None and len(scales):
        factors = [float(scale) for scale in scales]
        want = [int(np.floor(n * scale)) for n, scale in zip(old, factors)]
    else:
        raise UsageError("it has neither scales nor sizes")
    result = x if x.dtype.is_float else x.float()
    result = result.float() if result.dtype.itemsize < 4 else result
    if mode == "nearest":
        result = x
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    for i, (axis, w, n, scale) in enumerate(zip(places, want, old, factors)):
        region = (float(roi[i]), float(roi[i + len(places)])) if crops else (0.0, 1.0)
        if w == n and scale == 1 and region == (0.0, 1.0):
            continue
        where = _places(w, n, scale, region, coordinate_transformation_mode)
        outside = (where < 0) | (where > n - 1) if crops else np.zeros(w, bool)
        if mode == "nearest":
            index = np.clip(_nearest(where, nearest_mode), 0, n - 1).astype(np.int64)[None]
            weight = np.ones(index.shape)
        elif mode == "linear":
            index, weight = _weights(
                where, n, scale, lambda t: np.maximum(0, 1 - np.abs(t)), 1, antialias, exclude_outside
            )
        elif mode == "cubic":
            index, weight = _weights(where, n, scale, _cubic(cubic_coeff_a), 2, antialias, exclude_outside)
        else:
            raise UsageError(f"mode {mode!r}; known are nearest, linear and cubic")
        result = resized(result, axis, index, weight, outside, extrapolation_value, call)
    if not x.dtype.is_float and mode != "nearest":
        result = result.round().clamp(x.dtype.min, x.dtype.max)
    return same_dtype(x, result)


OF_10: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
earlier("Resize", 10, resize, "x scales!", "mode", **OF_10)  # places are counted from the corner
earlier("Upsample", 9, resize, "x scales!", "mode", **OF_10)
earlier("Upsample", 7, resize, "x", "scales! mode", **OF_10)


# -- values at computed places --


def sampled(x: Tensor, places: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    """(n, c, *space) at (n, points, rank) -> (n, c, points). Places count elements, the first axis of space first."""
    space = x.shape[2:]
    reach = {"nearest": 0, "linear": 1, "cubic": 2}.get(mode)
    if reach is None:
        raise UsageError(f"mode {mode!r}; known are nearest, linear and cubic")
    lines: list[list[tuple[Tensor, Any]]] = []  # for each axis: (index, weight) of each tap
    for d, size in enumerate(space):
        at = places[..., d]
        if padding != "zeros" and mode != "cubic":
            at = _inside(at, size, padding, align)
        if mode == "nearest":
            lines.append([(at.round(), None)])
            continue
        low = at.floor()
        taps = range(1 - reach, 1 + reach)
        weigh = _tap_cubic if mode == "cubic" else _tap_linear
        lines.append([(low + t, weigh(at - low, t)) for t in taps])
    flat = x.reshape(*x.shape[:2], prod(space))
    total: Any = None
    for corner in product(*lines):
        index: Any = 0
        weight: Any = None
        inside: Any = None
        for (place, factor), size in zip(corner, space):
            if padding != "zeros" and mode == "cubic":
                place = _inside(place, size, padding, align)
            fits = (place >= 0) & (place <= size - 1)
            inside = fits if inside is None else inside & fits
            index = index * size + place.clamp(0, size - 1).cast(dtypes.int32)
            weight = factor if weight is None else weight if factor is None else weight * factor
        picked = flat.gather(2, index.unsqueeze(1).expand(-1, x.shape[1], -1))
        picked = inside.unsqueeze(1).where(picked, picked * 0)
        picked = picked if weight is None else picked * weight.unsqueeze(1)
        total = picked if total is None else total + picked
    return total


def _tap_linear(t: Tensor, tap: int) -> Tensor:
    return t if tap else 1 - t


def _tap_cubic(t: Tensor, tap: int) -> Tensor:
    a, d = -0.75, (t - tap).abs()
    if tap in (0, 1):
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((d - 5) * d + 8) * d * a - 4 * a


def _inside(at: Tensor, size: int, padding: str, align: bool) -> Tensor:
    """Places within: at the border, or reflected at it."""
    if padding == "border":
        return at.clamp(0, size - 1)
    if padding != "reflection":
        raise UsageError(f"padding_mode {padding!r}; known are zeros, border and reflection")
    low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return at * 0
    turned = (at - low).abs()
    rest = turned.remainder(2 * span)
    return ((rest > span).where(2 * span - rest, rest) + low).clamp(0, size - 1)


@operator("GridSample", since=16)
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Any:
    """A grid's last axis counts from -1 to 1, the last axis of space first."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    space, rank = x.shape[2:], x.ndim - 2
    points = grid.reshape(x.shape[0], prod(grid.shape[1:-1]), rank).flip(2).cast(x.dtype)
    each = []
    for d, size in enumerate(space):
        at = points[..., d]
        each.append((at + 1) * ((size - 1) / 2) if align_corners else ((at + 1) * size - 1) * 0.5)
    found = sampled(x, Tensor.stack(each, dim=-1), mode, padding_mode, bool(align_corners))
    return same_dtype(x, found.reshape(*x.shape[:2], *grid.shape[1:-1]))


@operator("AffineGrid", since=20, host="size")
def affine_grid(theta: Tensor, size: Any, *, align_corners: int = 0, call: Any) -> Any:
    """Places of an image that are moved by a matrix, for GridSample."""
    space = whole(size)[2:]
    lines = []
    for n in space:
        line = np.linspace(-1, 1, n) if align_corners else (np.arange(n) * 2 + 1) / n - 1
        lines.append(line)
    mesh = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(space)], -1)
    points = call.constant(mesh.reshape(-1, len(space) + 1).astype(np.float32)).cast(theta.dtype)
    return (points @ theta.transpose(1, 2)).reshape(theta.shape[0], *space, len(space))


@operator("RoiAlign", since=16)
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    call: Any,
) -> Any:
    """Regions in one size: averages, or the greatest, of points between pixels."""
    half, size = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0, (output_height, output_width)
    corners = None if sampling_ratio > 0 else call.run.numbers(call.given[1]) * spatial_scale

    def points(r: Any) -> tuple[int, ...]:
        """As many as a region has pixels."""
        return tuple(max(1, int(np.ceil(s / n))) for s, n in zip((r[3] - r[1], r[2] - r[0]), size))

    counts = [(sampling_ratio, sampling_ratio)] if corners is None else [points(r) for r in corners]
    box = rois * spatial_scale - half
    if len(set(counts)) > 1:
        each = [
            _regions(x, box[i : i + 1], batch[i : i + 1], count, mode, size, half)
            for i, count in enumerate(counts)
        ]
        return Tensor.cat(each, dim=0)
    return _regions(x, box, batch, counts[0], mode, size, half)


earlier(  # regions are not moved by half a pixel
    "RoiAlign", 10, roi_align, "x rois batch",
    "mode output_height output_width sampling_ratio spatial_scale",
    coordinate_transformation_mode="output_half_pixel",
)  # fmt: skip


def _regions(x: Tensor, box: Tensor, batch: Tensor, points: Any, mode: str, size: Any, half: float) -> Tensor:
    count, (height, width) = box.shape[0], size
    lines = []
    for axis, (n, p, space) in enumerate(zip((height, width), points, x.shape[2:])):
        start, end = box[:, 1 - axis], box[:, 3 - axis]
        span = end - start
        span = span if half else span.maximum(1.0)
        steps = Tensor.arange(n * p, device=x.device).cast(dtypes.float32)
        at = start.reshape(-1, 1) + (steps + 0.5) * (span / (n * p)).reshape(-1, 1)
        is_in = (at >= -1) & (at <= space)
        lines.append((at.clamp(0, space - 1), is_in))
    (ys, in_y), (xs, in_x) = lines
    rows, columns = height * points[0], width * points[1]
    places = Tensor.stack(
        [
            ys.reshape(count, rows, 1).expand(count, rows, columns),
            xs.reshape(count, 1, columns).expand(count, rows, columns),
        ],
        dim=-1,
    ).reshape(count, rows * columns, 2)
    images = x.index_select(0, batch)
    shape = (count, x.shape[1], height, points[0], width, points[1])
    fits = (in_y.reshape(count, rows, 1) & in_x.reshape(count, 1, columns)).reshape(count, 1, rows * columns)
    if mode == "avg":
        found = sampled(images, places, "linear", "border", True)
        return fits.where(found, found * 0).reshape(shape).mean((3, 5))
    found = _greatest_of_four(images, places)
    return fits.where(found, found * 0).reshape(shape).amax((3, 5))


def _greatest_of_four(x: Tensor, places: Tensor) -> Tensor:
    """The greatest weighed neighbour of each point."""
    flat = x.reshape(*x.shape[:2], prod(x.shape[2:]))
    best: Any = None
    for corner in product((0, 1), (0, 1)):
        index: Any = 0
        weight: Any = 1.0
        for d, tap in enumerate(corner):
            at = places[..., d]
            low = at.floor()
            weight = _tap_linear(at - low, tap) * weight
            index = index * x.shape[2 + d] + (low + tap).clamp(0, x.shape[2 + d] - 1).cast(dtypes.int32)
        picked = flat.gather(2, index.unsqueeze(1).expand(-1, x.shape[1], -1)) * weight.unsqueeze(1)
        best = picked if best is None else best.maximum(picked)
    return best
