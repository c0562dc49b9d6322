"""Indexing: elements by index, by order, by condition.

In       tensors; what decides the shape of a result as numbers
Out      tensors
Changes  table.py's table
Next     shape.py (movement without an index), logic.py (Where)

An index below zero counts from the end. One that is out of range is refused where the index is known; on a device it
reads what ops/indexing.py says.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.operators.math import same_dtype
from hcq.frontend.more.onnx.operators.shape import pieces
from hcq.frontend.more.onnx.table import ML, earlier, operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

Numbers = Any


def wrapped(index: Tensor, size: int) -> Tensor:
    """An index from 0 on."""
    index = index if index.dtype in (dtypes.int32, dtypes.int64) else index.cast(dtypes.int64)
    return (index < 0).where(index + size, index)


# -- gather --


@operator("Gather", since=1)
def gather(x: Tensor, index: Tensor, *, axis: int = 0) -> Any:
    """Slices of an axis at indices."""
    axis %= x.ndim
    flat = wrapped(index, x.shape[axis]).reshape(-1)
    found = x.index_select(axis, flat)
    return found.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


@operator("GatherElements", since=11)
def gather_elements(x: Tensor, index: Tensor, *, axis: int = 0) -> Any:
    """Elements of an axis, one for each index."""
    axis %= x.ndim
    return x.gather(axis, wrapped(index, x.shape[axis]))


@operator("GatherND", since=11)
def gather_nd(x: Tensor, index: Tensor, *, batch_dims: int = 0) -> Any:
    """Slices at indices of several axes."""
    b = batch_dims
    batch, depth = prod(x.shape[:b]), index.shape[-1]
    inner = x.shape[b + depth :]
    rows = prod(x.shape[b : b + depth])
    flat = flat_index(index.reshape(batch, prod(index.shape[b:-1]), depth), x.shape[b : b + depth])
    places = flat + Tensor.arange(batch, device=x.device).reshape(batch, 1) * rows
    found = x.reshape(batch * rows, *inner).index_select(0, places.reshape(-1))
    return found.reshape(*x.shape[:b], *index.shape[b:-1], *inner)


def flat_index(index: Tensor, sizes: Any) -> Tensor:
    """The last axis of an index, one number for each of the sizes, as one number."""
    flat: Any = 0
    for place, size in enumerate(sizes):
        flat = flat * size + wrapped(index[..., place], size)
    return flat


# -- scatter --

REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("Scatter", "ScatterElements", since=9)
def scatter_elements(
    x: Tensor, index: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Any:
    """x with updates at their indices of an axis."""
    axis %= x.ndim
    index = wrapped(index, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, index, updates)
    return x.scatter_reduce(axis, index, updates, _reduction(reduction))


def _reduction(word: str) -> str:
    if word not in REDUCTIONS:
        raise UsageError(f"reduction {word!r}; known are none, {', '.join(REDUCTIONS)}")
    return REDUCTIONS[word]


@operator("ScatterND", since=11)
def scatter_nd(x: Tensor, index: Tensor, updates: Tensor, *, reduction: str = "none") -> Any:
    """x with slices at indices of several axes."""
    depth = index.shape[-1]
    inner = prod(x.shape[depth:])
    flat = flat_index(index, x.shape[:depth]).reshape(-1, 1).expand(prod(index.shape[:-1]), inner)
    rows = x.reshape(prod(x.shape[:depth]), inner)
    source = updates.reshape(prod(index.shape[:-1]), inner)
    if reduction == "none":
        return rows.scatter(0, flat, source).reshape(x.shape)
    return rows.scatter_reduce(0, flat, source, _reduction(reduction)).reshape(x.shape)


@operator("TensorScatter", since=24)
def tensor_scatter(
    past: Tensor, update: Tensor, write: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Any:
    """A cache with what is new at each row's place; circular counts around."""
    axis %= past.ndim
    length, size = update.shape[axis], past.shape[axis]
    batch = past.shape[0]
    first = (
        Tensor.zeros(batch, device=past.device, dtype=dtypes.int64)
        if write is None
        else write.cast(dtypes.int64)
    )
    places = first.reshape(batch, 1) + Tensor.arange(length, device=past.device)
    if mode == "circular":
        places = places.remainder(size)
    shape = [batch if a == 0 else length if a == axis else 1 for a in range(past.ndim)]
    return past.scatter(axis, places.reshape(tuple(shape)).expand(*update.shape), update)


# -- order --


@operator("TopK", since=10, host="k")
def top_k(x: Tensor, k: Numbers, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    """The k greatest or least of an axis, and where they are."""
    count = int(np.asarray(k).reshape(-1)[0])
    found = x.topk(count, axis, bool(largest), bool(sorted))
    return found.values, found.indices


earlier("TopK", 1, top_k, "x", "k axis")


@operator("Unique", since=11, host="x")
def unique(x: Numbers, *, axis: int | None = None, sorted: int = 1, call: Any) -> Any:
    """On the host: how many there are is not known before."""
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], place[inverse]
    kind = call.given[0].dtype
    values = values if kind.name == values.dtype.name else call.constant(values).cast(kind)
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


# -- condition --


@operator("NonZero", since=9)
def non_zero(x: Tensor) -> Any:
    """Where elements are not zero, an axis a row. How many there are is needed on the host."""
    return x.nonzero().transpose(0, 1)


@operator("Compress", since=9, host="condition")
def compress(x: Tensor, condition: Numbers, *, axis: int | None = None) -> Any:
    """The slices for which the condition holds."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    places = np.flatnonzero(condition[: x.shape[axis]])
    return pieces(x, axis % x.ndim, [int(place) for place in places])


@operator("OneHot", since=9, host="depth")
def one_hot(index: Tensor, depth: Numbers, values: Tensor, *, axis: int = -1) -> Any:
    """A value at the index and another elsewhere."""
    count = int(np.asarray(depth).reshape(-1)[0])
    rank = index.ndim + 1
    axis %= rank
    whole = index if index.dtype.is_integer else index.cast(dtypes.int64)
    places = Tensor.arange(count, device=index.device).reshape(
        tuple(count if a == axis else 1 for a in range(rank))
    )
    return (wrapped(whole, count).unsqueeze(axis) == places).where(values[1], values[0])


# -- sequences of batches --


@operator("ReverseSequence", since=10)
def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    """The first elements of each row turned around, as many as its length says."""
    size = x.shape[time_axis]
    time = Tensor.arange(size, device=x.device).reshape(
        tuple(size if a == time_axis else 1 for a in range(x.ndim))
    )
    length = lengths.cast(dtypes.int64).reshape(
        tuple(x.shape[batch_axis] if a == batch_axis else 1 for a in range(x.ndim))
    )
    places = (time < length).where(length - 1 - time, time)
    return x.gather(time_axis, places.expand(*x.shape))


@operator("NonMaxSuppression", since=10, host="boxes scores most overlap least")
def non_max_suppression(
    boxes: Numbers,
    scores: Numbers,
    most: Numbers = None,
    overlap: Numbers = None,
    least: Numbers = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """On the host: each box that is kept depends on those before. (batch, class, box) of what is kept."""
    count = 0 if most is None else int(np.asarray(most).reshape(-1)[0])
    limit = 0.0 if overlap is None else float(np.asarray(overlap).reshape(-1)[0])
    floor = -np.inf if least is None else float(np.asarray(least).reshape(-1)[0])
    if center_point_box:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        corners = np.concatenate([middle - half, middle + half], -1)
    else:
        low, high = np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])
        corners = np.concatenate([low, high], -1)
    kept: list[tuple[int, int, int]] = []
    for batch, classes in enumerate(scores):
        for label, row in enumerate(classes):
            order = [int(i) for i in np.argsort(-row, kind="stable") if row[i] > floor]
            chosen: list[int] = []
            while order and len(chosen) < count:
                best = order.pop(0)
                chosen.append(best)
                shares = _overlaps(corners[batch, best], corners[batch, order])
                order = [i for i, share in zip(order, shares) if share <= limit]
            kept += [(batch, label, box) for box in chosen]
    return np.asarray(kept, np.int64).reshape(-1, 3)


def _overlaps(box: Any, others: Any) -> Any:
    """Intersection over union."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    both = np.prod(np.maximum(high - low, 0), -1)
    areas = np.prod(others[:, 2:] - others[:, :2], -1) + np.prod(box[2:] - box[:2])
    return both / np.maximum(areas - both, 1e-30)


@operator("ArrayFeatureExtractor", since=1, domain=ML)
def array_feature_extractor(x: Tensor, index: Tensor) -> Any:
    """Columns by index."""
    found = x.index_select(x.ndim - 1, index.reshape(-1))
    return found.reshape(1, -1) if x.ndim == 1 else same_dtype(x, found)
