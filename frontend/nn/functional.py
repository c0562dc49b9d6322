"""Functions of tensors under PyTorch's names: `F.relu(x)` is `x.relu()`.

In       tensors
Out      the methods of Tensor as functions, and what has no method: folds, norms with running statistics, ...
Changes  the running statistics that batch_norm and instance_norm are given
Next     ../functions/__init__.py (how a method becomes a function), layers/ (the same as modules)
"""

from __future__ import annotations

import functools
import math
from importlib import import_module
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.functions.methods import function_of
from hcq.frontend.grad.gradient import grad
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import rounded, widened
from hcq.frontend.tensor import Tensor
from hcq.ir.node import Shape

METHODS = (
    "relu relu6 leaky_relu elu selu gelu silu mish sigmoid tanh softplus softsign hardtanh hardsigmoid "
    "hardswish logsigmoid softmax log_softmax softmin linear embedding one_hot conv1d conv2d conv3d "
    "conv_transpose2d max_pool1d max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool2d layer_norm rms_norm "
    "group_norm normalize cosine_similarity scaled_dot_product_attention pad mse_loss l1_loss "
    "huber_loss smooth_l1_loss kl_div nll_loss celu glu prelu hardshrink softshrink tanhshrink threshold "
    "cross_entropy binary_cross_entropy binary_cross_entropy_with_logits max_pool3d avg_pool3d "
    "adaptive_avg_pool1d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
    "max_unpool1d max_unpool2d max_unpool3d conv_transpose1d conv_transpose3d pixel_shuffle pixel_unshuffle "
    "channel_shuffle local_response_norm interpolate soft_margin_loss hinge_embedding_loss poisson_nll_loss "
    "gaussian_nll_loss multilabel_soft_margin_loss multi_margin_loss margin_ranking_loss cosine_embedding_loss "
    "triplet_margin_loss triplet_margin_with_distance_loss pairwise_distance pdist "
    "relu_ elu_ celu_ selu_ leaky_relu_ hardtanh_ threshold_"
).split()
# those that PyTorch gives an argument `inplace`, and how many others come before it
INPLACE = {
    "relu": 0, "relu6": 0, "selu": 0, "silu": 0, "mish": 0, "hardsigmoid": 0, "hardswish": 0, "leaky_relu": 1, "elu": 1,
    "celu": 1, "hardtanh": 2, "threshold": 2,
}  # fmt: skip


# functions in files of their own, imported when they are first asked for
MODULES = {
    "functional_sampling": "grid_sample affine_grid upsample upsample_nearest upsample_bilinear",
    "functional_bags": "embedding_bag",
    "functional_ctc": "ctc_loss",
    "functional_fractional": "fractional_max_pool2d fractional_max_pool3d "
    "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices",
    "functional_random": "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout gumbel_softmax "
    "rrelu rrelu_",
    "functional_orders": "conv_tbc native_channel_shuffle",
    "functional_groups": "grouped_mm",
    "functional_scaled": "scaled_mm ScalingType SwizzleType",
    "functional_pools": "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices "
    "adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices "
    "lp_pool1d lp_pool2d lp_pool3d",
    "functional_heads": "multi_head_attention_forward",
    "functional_losses": "multilabel_margin_loss linear_cross_entropy bilinear",
}


@checked
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Every window as a column: (n, c, h, w) -> (n, c * window, number of windows); n may be left out.

    >>> unfold(Tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]), 2).tolist()
    [[1.0, 2.0], [2.0, 3.0], [4.0, 5.0], [5.0, 6.0]]
    """
    if input.ndim not in (3, 4):
        raise UsageError(f"[unfold] a tensor of shape {input.shape}: it needs (n, c, h, w) or (c, h, w).")
    if input.ndim == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    window, gaps, edge, steps = (
        _pair("unfold", name, value, least)
        for name, value, least in (
            ("kernel_size", kernel_size, 1), ("dilation", dilation, 1), ("padding", padding, 0), ("stride", stride, 1),
        )
    )  # fmt: skip
    input = input.pad((edge[1], edge[1], edge[0], edge[0]))
    for axis in (0, 1):
        input = input.unfold(2 + axis, window[axis], steps[axis], gaps[axis])
    n, c, h, w = input.shape[:4]
    return input.permute(0, 1, 4, 5, 2, 3).reshape(n, c * window[0] * window[1], h * w)


@checked
def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Columns that are windows, summed where they lie over each other: what the gradient of `unfold` does.

    (n, c * window, number of windows) -> (n, c, *output_size); n may be left out

    >>> columns = nn.functional.unfold(Tensor.ones(1, 1, 1, 3), (1, 2))
    >>> nn.functional.fold(columns, (1, 3), (1, 2)).tolist()
    [[[[1.0, 2.0, 1.0]]]]
    """
    if input.ndim == 2:
        return fold(input.unsqueeze(0), output_size, kernel_size, dilation, padding, stride).squeeze(0)
    size, window = _pair("fold", "output_size", output_size, 1), _pair("fold", "kernel_size", kernel_size, 1)
    area = window[0] * window[1]
    if input.ndim != 3 or input.shape[1] % area:
        raise UsageError(f"[fold] a tensor of shape {input.shape}: it needs (n, c * {area}, windows).")
    image = input.zeros(
        (input.shape[0], input.shape[1] // area, *size), dtype=input.dtype, device=input.device
    )
    columns = unfold(image, window, dilation, padding, stride)
    if columns.shape != input.shape:
        raise UsageError(f"[fold] {input.shape}: an image of {size} has columns of shape {columns.shape}.")
    (found,) = grad(columns, image, input, create_graph=True)
    assert found is not None
    return found


def _pair(call: str, name: str, value: Any, least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else value
    if (
        not isinstance(pair, (tuple, list))
        or len(pair) != 2
        or any(not isinstance(size, int) or size < least for size in pair)
    ):
        raise UsageError(f"[{call}] {name} {shown(value)}: give an int or two, {least} or more.")
    return pair[0], pair[1]


@checked
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(n, channels, ...): each channel centred and scaled, by the statistics of the batch in training.

    running_mean, running_var   (channels,): used in evaluation; in training the batch's enter them, lazily
    Raises                      UsageError in training for one value per channel, and in evaluation without statistics

    >>> x, mean, var = Tensor([[1.0], [3.0]]), Tensor([0.0]), Tensor([1.0])
    >>> y = nn.functional.batch_norm(x, mean, var, training=True, momentum=0.5).realize()
    >>> mean.tolist(), var.tolist()
    ([1.0], [1.5])
    """
    if not training:
        if running_mean is None or running_var is None:
            raise UsageError(
                "[batch_norm] evaluation needs running_mean and running_var. Pass training=True."
            )
        return input.batch_norm(running_mean, running_var, weight, bias, eps)
    if input.ndim < 2 or input.numel() == input.shape[1]:
        raise UsageError(
            f"[batch_norm] a tensor of shape {input.shape}: one value per channel has no deviation. "
            "Train on more, or pass training=False."
        )
    return _normed_by_batch(
        input, running_mean, running_var, weight, bias, momentum, eps, (0, *range(2, input.ndim))
    )


@checked
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(n, channels, ...): each channel of each sample centred and scaled; running statistics as in `batch_norm`.

    >>> print(nn.functional.instance_norm(Tensor([[[1.0, 3.0], [10.0, 20.0]]]))[0])
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return _normed_by_batch(
        input, running_mean, running_var, weight, bias, momentum, eps, tuple(range(2, input.ndim))
    )


def _normed_by_batch(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float | Tensor,
    eps: float,
    over: Shape,
) -> Tensor:
    # the statistics are computed once, for the result and for the running ones
    have, x = x.dtype, widened(x)
    mean = x.mean(over, keepdim=True)
    centred = x - mean
    var = centred.square().mean(over, keepdim=True)
    count = math.prod(x.shape[axis] for axis in over)
    for running, found in (
        (running_mean, mean),
        (running_var, var * (count / (count - 1)) if count > 1 else var),  # the unbiased one
    ):
        if running is not None:
            new = found.detach().mean(0) if 0 not in over else found.detach()
            kept = widened(running)
            moved = kept + (new.reshape(running.shape).cast(kept.dtype) - kept) * momentum
            running.assign(moved.cast(running.dtype))
    y = centred * (var + eps).rsqrt()
    channel = (1, x.shape[1], *(1,) * (x.ndim - 2))
    if weight is not None:
        y = y * weight.reshape(channel)
    y = y if bias is None else y + bias.reshape(channel)
    return rounded(y, have)  # type: ignore[no-any-return]


def _with_inplace(name: str) -> Any:
    """A method as a function that takes `inplace`: with True the tensor becomes the result, as x.relu_() does."""
    function, others = function_of(name), INPLACE[name]

    @functools.wraps(function)
    def form(*args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        if len(args) == others + 2:
            *args, inplace = args  # type: ignore[assignment]
        x: Any = args[0] if args else kwargs.get("input")
        y = function(*args, **kwargs)
        return x._written(f"{name}_", y) if inplace else y

    return form


def __getattr__(name: str) -> Any:
    place = next((file for file, names in MODULES.items() if name in names.split()), None)
    if place is None and name not in METHODS:
        raise AttributeError(f"module {__name__!r} has no function {name!r}")
    function = (
        _with_inplace(name)
        if name in INPLACE
        else function_of(name)
        if place is None
        else getattr(import_module(f"hcq.frontend.nn.{place}"), name)
    )
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    own = [name for name, value in globals().items() if getattr(value, "__module__", "") == __name__]
    return sorted(
        [*METHODS, *" ".join(MODULES.values()).split(), *(name for name in own if not name.startswith("_"))]
    )
