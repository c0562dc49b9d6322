"""Fusion: a layer and the batch norm behind it as one layer, for evaluation; a module without initial values.

In       a convolution or a linear layer, and a BatchNorm, both in evaluation mode
Out      `fuse_conv_bn_eval`, `fuse_linear_bn_eval`: another layer; `fuse_conv_bn_weights`, `fuse_linear_bn_weights`:
         its parameters; `skip_init`
Next     ../layers/norm.py
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from hcq.errors import UsageError
from hcq.frontend.nn.layers.convolution import _Convolution
from hcq.frontend.nn.layers.linear import Linear
from hcq.frontend.nn.layers.norm import BatchNorm
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.parameter import Parameter
from hcq.frontend.tensor import Tensor

M = TypeVar("M", bound=Module)
Two = tuple[Parameter, Parameter]


def fuse_conv_bn_eval(conv: M, bn: BatchNorm, transpose: bool = False) -> M:
    """A convolution that computes what `conv` and the batch norm `bn` behind it do, both in evaluation mode.

    transpose   `conv` is a transposed convolution
    Raises      UsageError in training mode, whose statistics are the batch's, and without running statistics

    >>> conv, bn = nn.Conv2d(1, 2, 3).eval(), nn.BatchNorm2d(2).eval()
    >>> x = Tensor.randn(1, 1, 5, 5)
    >>> hcq.allclose(nn.utils.fuse_conv_bn_eval(conv, bn)(x), bn(conv(x)), atol=1e-5)
    True
    """
    return _fused("fuse_conv_bn_eval", conv, _Convolution, bn, fuse_conv_bn_weights, transpose=transpose)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> Two:
    """Weight and bias of such a convolution, from those of both layers and the running mean and variance.

    >>> one = Tensor.ones(1)
    >>> w, b = nn.utils.fuse_conv_bn_weights(Tensor([[[2.0]]]), None, one, one * 4.0, 0.0, one, one * 3.0)
    >>> w.tolist(), b.tolist()
    ([[[1.0]]], [2.5])
    """
    scale = (bn_rv + bn_eps).rsqrt()
    scale = scale if bn_w is None else bn_w * scale
    bias = (-bn_rm if conv_b is None else conv_b - bn_rm) * scale
    bias = bias if bn_b is None else bias + bn_b
    sides = [1] * conv_w.ndim
    sides[1 if transpose else 0] = -1
    weight = (conv_w * scale.reshape(sides)).cast(conv_w.dtype)
    kind = conv_w.dtype if conv_b is None else conv_b.dtype
    return (
        Parameter(weight.detach().realize(), conv_w.requires_grad),
        Parameter(bias.cast(kind).detach().realize(), conv_w.requires_grad if conv_b is None else conv_b.requires_grad),
    )  # fmt: skip


def fuse_linear_bn_eval(linear: M, bn: BatchNorm) -> M:
    """A linear layer that computes what `linear` and the batch norm `bn` behind it do, both in evaluation mode.

    >>> linear, bn = nn.Linear(3, 2).eval(), nn.BatchNorm1d(2).eval()
    >>> x = Tensor.randn(4, 3)
    >>> hcq.allclose(nn.utils.fuse_linear_bn_eval(linear, bn)(x), bn(linear(x)), atol=1e-5)
    True
    """
    return _fused("fuse_linear_bn_eval", linear, Linear, bn, fuse_linear_bn_weights)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> Two:
    """Weight and bias of such a linear layer.

    >>> one = Tensor.ones(1)
    >>> w, b = nn.utils.fuse_linear_bn_weights(Tensor([[2.0]]), None, one, one * 4.0, 0.0, one, one * 3.0)
    >>> w.tolist(), b.tolist()
    ([[1.0]], [2.5])
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(
    call: str, layer: M, kind: type[Module], bn: BatchNorm, fuse: Callable[..., Two], **options: Any
) -> M:
    if not isinstance(layer, kind) or not isinstance(bn, BatchNorm):
        raise UsageError(
            f"[{call}] {type(layer).__name__} and {type(bn).__name__}: give a layer and a BatchNorm."
        )
    if layer.training or bn.training:
        raise UsageError(f"[{call}] a layer is in training mode. Call eval() on both first.")
    if bn.running_mean is None or bn.running_var is None:
        raise UsageError(
            f"[{call}] the batch norm has no running statistics. Make it with track_running_stats=True."
        )
    made: Any = copy.deepcopy(layer)
    made.weight, made.bias = fuse(
        made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, **options
    )
    found: M = made
    return found


def skip_init(module_cls: Callable[..., M], *args: Any, **kwargs: Any) -> M:
    """module_cls(*args, **kwargs). Initial values are drawn all the same: no memory is shown before it is written.

    >>> nn.utils.skip_init(nn.Linear, 3, 2).weight.shape
    (2, 3)
    """
    return module_cls(*args, **kwargs)
