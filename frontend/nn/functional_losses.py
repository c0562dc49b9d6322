"""Losses that are functions alone: of several classes of a sample, of a linear layer; and a product of two inputs.

In       predictions, targets, weights
Out      lazy tensors: of shape () for "mean" and "sum", of the samples' shape for "none"
Next     functional.py (where they are found), ops/loss.py (the losses that are methods)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import in_float_together
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


@checked
@in_float_together
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """How far each other class comes nearer than 1 to each target class, summed, over how many classes there are.

    input    (batch, classes), or (classes,)
    target   of that shape: the classes of a sample, and -1 after the last of them

    >>> nn.functional.multilabel_margin_loss(Tensor([[0.5, 0.25]]), hcq.tensor([[0, -1]])).item()
    0.375
    """
    if not input.ndim and not target.ndim:
        input, target = input.reshape(1), target.reshape(1)
    if input.ndim not in (1, 2) or target.shape != input.shape or not target.dtype.is_integer:
        raise UsageError(
            f"[multilabel_margin_loss] input {input.shape}, {target.dtype.name} target {target.shape}: give "
            "integers of the input's shape, (batch, classes) or (classes,)."
        )
    if input.ndim == 1:
        return multilabel_margin_loss(input.unsqueeze(0), target.unsqueeze(0), reduction).reshape(())
    classes = input.shape[1]
    is_class = (target >= 0).cast(dtypes.int64).cumprod(1) > 0
    index = is_class.where(target, 0)
    line = Tensor.arange(classes, device=input.device)
    is_target = ((index.unsqueeze(-1) == line) & is_class.unsqueeze(-1)).any(1)
    apart = 1.0 - input.gather(1, index).unsqueeze(-1) + input.unsqueeze(1)
    counts = is_class.unsqueeze(-1) & ~is_target.unsqueeze(1)
    points = counts.where(apart.maximum(0.0), 0.0).sum((1, 2)) / classes
    return points._reduced("multilabel_margin_loss", reduction)


@in_float_together
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """`cross_entropy` of a linear layer: (batch, features) or (features,), and weights (classes, ..., features).

    options   says how PyTorch cuts the work; the compiler decides that here

    >>> x, weights = Tensor([[1.0, 2.0]]), Tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss = nn.functional.linear_cross_entropy(x, weights, hcq.tensor([1]))
    >>> print(loss, (x @ weights.T).cross_entropy(hcq.tensor([1])))
    tensor(0.3133) tensor(0.3133)
    """
    if linear_weight.ndim < 2 or input.ndim not in (1, 2) or input.shape[-1] != linear_weight.shape[-1]:
        raise UsageError(
            f"[linear_cross_entropy] input {input.shape}, weight {linear_weight.shape}: give (batch, features) and "
            "(classes, ..., features)."
        )
    features, outputs = linear_weight.shape[-1], linear_weight.shape[:-1]
    logits = input.matmul(linear_weight.reshape(-1, features).T)
    if linear_bias is not None:
        logits = logits + linear_bias.flatten()
    logits = logits.reshape(*input.shape[:-1], *outputs)
    ignored = -100 if ignore_index is None else ignore_index
    return logits.cross_entropy(target, weight, ignored, reduction, label_smoothing)


@checked
@in_float_together
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W y of each output: (..., n), (..., m) and (out, n, m) -> (..., out).

    >>> nn.functional.bilinear(Tensor([1.0, 2.0]), Tensor([3.0]), Tensor([[[1.0], [10.0]]])).tolist()
    [63.0]
    """
    fits = weight.ndim == 3 and input1.ndim and input2.ndim and input1.shape[:-1] == input2.shape[:-1]
    if not fits or (input1.shape[-1], input2.shape[-1]) != weight.shape[1:]:
        raise UsageError(
            f"[bilinear] {input1.shape}, {input2.shape}, weight {weight.shape}: give (..., n), (..., m), (out, n, m)."
        )
    lead = input1.shape[:-1]
    out, n, m = weight.shape
    left, right = input1.reshape(-1, n), input2.reshape(-1, m)
    rows = left.matmul(weight.transpose(0, 1).reshape(n, out * m)).reshape(-1, out, m)
    result = (rows * right.unsqueeze(1)).sum(-1).reshape(*lead, out)
    return result if bias is None else result + bias
