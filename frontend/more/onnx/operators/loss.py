"""Losses: how far logarithms of probabilities are from classes.

In       (batch, classes, *places), classes (batch, *places), a weight for each class
Out      one number, or one for each place
Changes  table.py's table
Next     activation.py (LogSoftmax), training.py (optimizers)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.operators.math import same_dtype
from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """Classes that are not among the channels count as the ignored one, or are refused by nothing: their loss is 0."""
    index = target.cast(dtypes.int64)
    counts = index * 0 == 0 if ignore_index is None else index != ignore_index
    inside = counts.where(index, index * 0)
    picked = -x.gather(1, inside.unsqueeze(1)).squeeze(1)
    scale = counts.cast(x.dtype)
    if weight is not None:
        scale = scale * weight.index_select(0, inside.reshape(-1)).reshape(inside.shape)
    picked = counts.where(picked * scale, picked * 0)
    if reduction == "none":
        return picked
    if reduction == "sum":
        return picked.sum()
    if reduction != "mean":
        raise UsageError(f"reduction {reduction!r}; known are none, sum and mean")
    return same_dtype(x, picked.sum() / scale.sum())


@operator("SoftmaxCrossEntropyLoss", since=12, attributes_of=negative_log_likelihood)
def softmax_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, **attributes: Any) -> Any:
    """The loss of LogSoftmax along axis 1, and that itself."""
    logs = x.log_softmax(1)
    return negative_log_likelihood(logs, target, weight, **attributes), logs
