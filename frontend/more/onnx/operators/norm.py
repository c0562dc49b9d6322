"""Normalisation: means and variances taken out, of batches, layers, groups, instances.

In       tensors
Out      tensors
Changes  table.py's table
Next     activation.py (softmax), reduction.py (plain means)
"""

from __future__ import annotations

from math import prod
from typing import Any

from hcq.frontend.more.onnx.operators.math import same_dtype
from hcq.frontend.more.onnx.operators.shape import dtype_of
from hcq.frontend.more.onnx.table import earlier, operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def per_channel(values: Tensor, x: Tensor) -> Tensor:
    """One number for each channel, beside (batch, channels, *space)."""
    return values.reshape(-1, *[1] * (x.ndim - 2))


def _wide(x: Tensor, stash_type: int) -> Tensor:
    """In the dtype that a layer computes in."""
    return x.cast(dtype_of(stash_type)) if x.dtype.itemsize < 4 else x


def _normalised(x: Tensor, axes: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Without mean and in units of the deviation; the mean, and one over the deviation."""
    mean = x.mean(axes, keepdim=True)
    middle = x - mean
    inverse = ((middle * middle).mean(axes, keepdim=True) + epsilon).rsqrt()
    return middle * inverse, mean, inverse


def _batch_norm(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float) -> Tensor:
    factor = scale / (var + epsilon).sqrt()
    return same_dtype(x, (x - per_channel(mean, x)) * per_channel(factor, x) + per_channel(bias, x))


@operator("BatchNormalization", since=14)
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Any:
    """In training with the batch's own mean and variance, and the running ones behind."""
    if not training_mode:
        return _batch_norm(x, scale, bias, mean, var, epsilon)
    axes = (0, *range(2, x.ndim))
    wide = x.float() if x.dtype.itemsize < 4 else x
    now_mean, now_var = wide.mean(axes), wide.var(axes, correction=0)
    found = _batch_norm(x, scale, bias, now_mean, now_var, epsilon)
    running = [
        same_dtype(old, old * momentum + now * (1 - momentum))
        for old, now in ((mean, now_mean), (var, now_var))
    ]
    return found, *running


earlier("BatchNormalization", 9, batch_normalization, "x scale bias mean var", "epsilon momentum")


@operator("BatchNormalization", since=7)
def batch_normalization_of_7(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
) -> Any:
    """Of versions 7 and 8: numbers for each channel, or for each element of an image."""
    if spatial:
        return _batch_norm(x, scale, bias, mean, var, epsilon)
    return (x - mean) * (scale / (var + epsilon).sqrt()) + bias


@operator("InstanceNormalization", since=6)
def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Any:
    """Each channel of each image by its own mean and variance."""
    found = _normalised(x, tuple(range(2, x.ndim)), epsilon)[0]
    return same_dtype(x, found * per_channel(scale, x) + per_channel(bias, x))


@operator("LayerNormalization", since=17)
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    """The last axes by their mean and variance, and these."""
    wide = _wide(x, stash_type)
    axes = tuple(range(axis % x.ndim, x.ndim))
    found, mean, inverse = _normalised(wide, axes, epsilon)
    found = same_dtype(x, found) * scale
    return same_dtype(x, found if bias is None else found + bias), mean, inverse


@operator("RMSNormalization", since=23)
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    """The last axes over the root of their mean square."""
    wide = _wide(x, stash_type)
    axes = tuple(range(axis % x.ndim, x.ndim))
    found = wide * ((wide * wide).mean(axes, keepdim=True) + epsilon).rsqrt()
    return same_dtype(x, same_dtype(x, found) * scale)


@operator("GroupNormalization", since=21)
def group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1
) -> Any:
    """Groups of channels by their mean and variance; a scale and a bias for each channel."""
    return same_dtype(
        x, _groups(x, num_groups, epsilon, stash_type) * per_channel(scale, x) + per_channel(bias, x)
    )


@operator("GroupNormalization", since=18)
def group_normalization_by_groups(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int
) -> Any:
    """Of version 18: scale and bias have a number for each group."""
    each = x.shape[1] // num_groups
    wide = [values.reshape(-1, 1).expand(num_groups, each).reshape(-1) for values in (scale, bias)]
    return group_normalization(x, *wide, epsilon=epsilon, num_groups=num_groups)


def _groups(x: Tensor, groups: int, epsilon: float, stash_type: int) -> Tensor:
    wide = _wide(x, stash_type)
    rows = wide.reshape(x.shape[0], groups, prod(x.shape[1:]) // groups)
    return same_dtype(x, _normalised(rows, (2,), epsilon)[0].reshape(x.shape))


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(x: Tensor, *, axes: Any = (0, 2, 3)) -> Any:
    """By mean and deviation over axes."""
    over = tuple(axes)
    middle = x - x.mean(over, keepdim=True)
    return middle / ((middle * middle).mean(over, keepdim=True).sqrt() + 1e-9)


@operator("LpNormalization", since=1)
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Any:
    """Over the length along an axis; zeros stay."""
    length = x.abs().sum(axis, keepdim=True) if p == 1 else (x * x).sum(axis, keepdim=True).sqrt()
    return (length == 0).where(x * 0, x / length)


@operator("LRN", since=1)
def local_response(
    x: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int
) -> Any:
    """Over a power of the squares of neighbouring channels."""
    before = (size - 1) // 2
    pads = [0, 0] * (x.ndim - 2) + [before, size - 1 - before]
    squares = (x * x).pad(pads).unfold(1, size, 1).sum(-1)
    return x / (squares * (alpha / size) + bias) ** beta


@operator("Dropout", since=12, host="ratio training")
def dropout(x: Tensor, ratio: Any = None, training: Any = None, *, seed: int | None = None, call: Any) -> Any:
    """Elements zeroed at random in training, the others larger; all as they are otherwise. And which are kept."""
    share = 0.5 if ratio is None else float(ratio)
    kept = Tensor.full(x.shape, True, device=x.device, dtype=dtypes.bool)
    if training is None or not bool(training) or share == 0:
        return x, kept
    call.run.is_random = True
    kept = Tensor.rand(*x.shape, device=x.device) >= share
    return kept.where(x / (1 - share), x * 0), kept


@operator("Dropout", since=7)
def dropout_of_inference(x: Tensor, *, ratio: float = 0.5, call: Any) -> Any:
    """Before 12: nothing is dropped."""
    return x, Tensor.full(
        x.shape, True, device=x.device, dtype=dtypes.bool if call.version >= 10 else x.dtype
    )
