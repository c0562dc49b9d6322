"""Bags: sums, averages or greatest rows of an embedding table, of as many indices as each bag has.

In       indices (bags, size), or a row of them with the place where each bag begins; a table (count, width)
Out      (bags, width); of an empty bag zeros
Next     functional.py (where it is found), ops/scattering.py (index_add, scatter_reduce)
"""

from __future__ import annotations

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import in_float_together
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

MODES = ("sum", "mean", "max")


@checked
@in_float_together
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The rows that each bag of indices names, as one: (bags, size) -> (bags, width).

    mode                  their "sum", their "mean", or "max", the greatest elements
    offsets               for a row of indices: where each bag begins
    include_last_offset   the last offset is where the last bag ends, and begins none
    per_sample_weights    of the indices' shape: how much each row counts, in mode "sum"
    padding_idx           an index that counts for nothing
    sparse                may be given, and has no effect: gradients are dense
    Raises                UsageError for max_norm, which writes into the table, and for scale_grad_by_freq

    >>> embedding_bag(hcq.tensor([[0, 1]]), Tensor([[1.0, 2.0], [3.0, 6.0]])).tolist()
    [[2.0, 4.0]]
    """
    call = "embedding_bag"
    if mode not in MODES:
        raise UsageError(f"[{call}] mode={shown(mode)}: use {MODES}.")
    if max_norm is not None or scale_grad_by_freq:
        raise UsageError(
            f"[{call}] max_norm and scale_grad_by_freq are not done here. Limit the table first: weight.renorm(...)."
        )
    if weight.ndim != 2 or not input.dtype.is_integer or input.ndim not in (1, 2):
        raise UsageError(
            f"[{call}] {input.dtype.name} indices {input.shape} into a table {weight.shape}: give integers of one or "
            "two axes, and (count, width)."
        )
    if (offsets is None) != (input.ndim == 2):
        raise UsageError(f"[{call}] indices {input.shape}: a row has offsets, bags side by side have none.")
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise UsageError(f"[{call}] per_sample_weights: of the indices' shape {input.shape}, in mode 'sum'.")
    index = input.flatten()
    if offsets is None:
        bags, size = input.shape
        bag = Tensor.arange(bags, device=input.device).repeat_interleave(size)
    else:
        bags = offsets.shape[0] - bool(include_last_offset)
        places = Tensor.arange(index.shape[0], device=input.device).unsqueeze(1)
        bag = (offsets[:bags].unsqueeze(0) <= places).cast(dtypes.int64).sum(1) - 1
    count, width = weight.shape
    rows = weight[index]
    used = None
    if padding_idx is not None:
        used = (index != (padding_idx % count)).cast(weight.dtype)
    if not index.numel() or not bags:
        return (weight * 0.0).sum(0, keepdim=True).expand(bags, width)
    base = Tensor.zeros(bags, width, dtype=weight.dtype, device=weight.device)
    if mode == "max":
        # what is padding goes into a bag of its own, which is dropped
        bag = bag if used is None else (used > 0.0).where(bag, bags)
        more = Tensor.zeros(bags + 1, width, dtype=weight.dtype, device=weight.device)
        wide = bag.unsqueeze(1).expand(index.shape[0], width)
        return more.scatter_reduce(0, wide, rows, "amax", include_self=False)[:bags]
    factor = used
    if per_sample_weights is not None:
        factor = per_sample_weights.flatten() if used is None else per_sample_weights.flatten() * used
    rows = rows if factor is None else rows * factor.unsqueeze(1)
    total = base.index_add(0, bag, rows)
    if mode == "sum":
        return total
    ones = used if used is not None else Tensor.ones(index.shape[0], dtype=weight.dtype, device=weight.device)
    counts = Tensor.zeros(bags, dtype=weight.dtype, device=weight.device).index_add(0, bag, ones)
    return total / counts.maximum(1.0).unsqueeze(1)
