"""Segments: sums, averages, products and extremes of rows that stand beside each other in groups of any length.

In       tensors; how long each segment of an axis is, or where each begins and the last one ends
Out      lazy tensors with a row for each segment
Changes  nothing; lengths are read back to be checked
Next     __init__.py (where it is found), ops/scattering.py (scatter_reduce)
"""

from __future__ import annotations

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

KINDS = {
    "sum": ("sum", 0.0),
    "mean": ("sum", 0.0),
    "max": ("amax", -float("inf")),
    "min": ("amin", float("inf")),
    "prod": ("prod", 1.0),
}


@checked
def segment_reduce(
    data: Tensor,
    reduce: str,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """The rows of each segment of an axis as one: reduce is "sum", "mean", "max", "min" or "prod".

    lengths   (..., segments), the sizes in front of the axis first: how long each segment is, filling the axis
    offsets   (..., segments + 1): where each begins, and where the last one ends; instead of lengths
    unsafe    may be given, and has no effect: lengths are checked
    initial   what an empty segment gives, and what each begins with

    >>> segment_reduce(Tensor([1.0, 2.0, 3.0]), "sum", lengths=hcq.tensor([2, 1])).tolist()
    [3.0, 3.0]
    """
    call = "segment_reduce"
    if reduce not in KINDS or (lengths is None) == (offsets is None) or indices is not None:
        raise UsageError(
            f"[{call}] reduce={shown(reduce)}: use one of {tuple(KINDS)}, with lengths or offsets."
        )
    if offsets is not None:
        lengths = offsets[..., 1:] - offsets[..., :-1]
    assert lengths is not None
    place = data._axis_of(call, axis)
    if lengths.ndim != place + 1 or lengths.shape[:-1] != data.shape[:place]:
        raise UsageError(
            f"[{call}] lengths {lengths.shape} for axis {place} of {data.shape}: give {place + 1} axes."
        )
    size, count = data.shape[place], lengths.shape[-1]
    if not all(n >= 0 for n in lengths.flatten().tolist()) or any(
        n != size for n in lengths.sum(-1).flatten().tolist()
    ):
        raise UsageError(f"[{call}] lengths {lengths.tolist()}: they add up to the size of the axis, {size}.")
    name, neutral = KINDS[reduce]
    begin = neutral if initial is None else initial
    ends = lengths.cast(dtypes.int64).cumsum(-1)
    line = Tensor.arange(size, device=data.device).reshape(size, 1)
    segment = (ends.unsqueeze(-2) <= line).cast(dtypes.int64).sum(-1)  # (..., size)
    rest = data.ndim - place - 1
    wide = segment.reshape(*segment.shape, *[1] * rest).expand(data.shape)
    shape = (*data.shape[:place], count, *data.shape[place + 1 :])
    base = Tensor.full(shape, begin, dtype=data.dtype, device=data.device)
    total = base.scatter_reduce(place, wide, data, name)
    if reduce != "mean":
        return total
    counts = lengths.cast(data.dtype).reshape(*lengths.shape, *[1] * rest)
    if initial is None:
        return total / counts
    return (counts > 0.0).where(total / counts.maximum(1.0), begin)
