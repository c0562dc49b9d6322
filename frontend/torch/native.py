"""Layers with what they keep for the way back: normalisations that give their mean and scale, too.

In       tensors, as the functions of nn take them
Out      tuples: the result, and the statistics it was made with
Changes  running statistics that native_batch_norm is given, in training
Next     ../functions/__init__.py (where they are found), frontend/ops/normalisation.py (the layers themselves)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import widened
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


@checked
def native_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Any, Any, Any]:
    """(layer_norm, mean, 1 / sqrt(variance + eps)), the last two over the last axes, which stay with size 1.

    >>> y, mean, _ = hcq.native_layer_norm(Tensor([[1.0, 3.0]]), [2], None, None, 1e-5)
    >>> print(y, mean)
    tensor([[-1.0000,  1.0000]]) tensor([[2.]])
    """
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    axes = tuple(range(input.ndim - count, input.ndim))
    mean, scale = _statistics(input, axes, eps)
    return input.layer_norm(normalized_shape, weight, bias, eps), mean, scale


@checked
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Any, Any, Any]:
    """(group_norm, mean, 1 / sqrt(variance + eps)) of (batch, groups).

    >>> x = Tensor([[[1.0], [3.0]]])
    >>> y, mean, _ = hcq.native_group_norm(x, None, None, 1, 2, 1, 1, 1e-5)
    >>> print(y.flatten(), mean)
    tensor([-1.0000,  1.0000]) tensor([[2.]])
    """
    result = input.group_norm(group, weight, bias, eps)
    mean, scale = _statistics(input.reshape(N, group, C // group * HxW), (2,), eps)
    return result, mean.reshape(N, group), scale.reshape(N, group)


@checked
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, Any, Any]:
    """(batch_norm, mean, 1 / sqrt(variance + eps)) of the channels; nothing but the first where it does not train.

    In training the running statistics, if given, move towards those of the batch.

    >>> x = Tensor([[0.0], [2.0]])
    >>> y, mean, _ = hcq.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    >>> print(y.flatten(), mean)
    tensor([-1.0000,  1.0000]) tensor([1.])
    """
    if not training:
        if running_mean is None or running_var is None:
            raise UsageError(
                "[native_batch_norm] without training the running statistics are needed: give both."
            )
        none = Tensor.zeros(0, dtype=_wide(input), device=input.device)
        return input.batch_norm(running_mean, running_var, weight, bias, eps), none, none
    axes = (0, *range(2, input.ndim))
    mean, scale = (part.flatten() for part in _statistics(input, axes, eps))
    result = input.batch_norm(None, None, weight, bias, eps)
    if running_mean is not None and running_var is not None:
        count = input.numel() // input.shape[1]
        variance = input.detach().cast(_wide(input)).var(axes, correction=0) * (count / max(1, count - 1))
        for kept, new in ((running_mean, mean.detach()), (running_var, variance)):
            kept.assign((widened(kept) * (1.0 - momentum) + new * momentum).cast(kept.dtype))
    return result, mean, scale


@checked
def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of dropout: where the mask holds, `scale` times as large, else 0.

    >>> hcq.native_dropout_backward(Tensor([1.0, 1.0]), hcq.tensor([True, False]), 2.0).tolist()
    [2.0, 0.0]
    """
    return grad_output * (mask.cast(grad_output.dtype) * scale)


def _wide(x: Tensor) -> Any:
    return x.dtype if x.dtype.itemsize >= 4 else dtypes.float32


def _statistics(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """The mean, and 1 / sqrt(variance + eps), over axes that stay."""
    wide = x.cast(_wide(x))
    mean = wide.mean(axes, keepdim=True)
    return mean, ((wide - mean).square().mean(axes, keepdim=True) + eps).rsqrt()
