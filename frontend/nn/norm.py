"""Normalisation layers: subtract a mean, divide by a deviation, scale and shift by parameters.

In       tensors
Out      `BatchNorm` (statistics of the batch, running ones for evaluation), `LayerNorm`, `GroupNorm`, `RMSNorm`
Changes  in training mode, BatchNorm's running statistics: lazily, with the next realize of a step or of themselves
Next     layers.py, optim.py (whose step also does the pending updates of statistics)
"""

from __future__ import annotations

from hcq.errors import UsageError
from hcq.frontend.nn.init import constant
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Shape


def _scale_and_shift(
    shape: Shape, affine: bool, bias: bool, dtype: DType | None, device: str | None
) -> tuple[Tensor | None, Tensor | None]:
    """Parameters that start as one and zero, or None."""
    weight = constant(shape, 1.0, dtype, device).requires_grad_() if affine else None
    shift = constant(shape, 0.0, dtype, device).requires_grad_() if affine and bias else None
    return weight, shift


class BatchNorm(Module):
    """Each channel (axis 1) to mean 0 and deviation 1 over the batch; evaluation uses the running statistics.

    weight, bias   (num_features,), if affine
    momentum       how much of the new statistics enters the running ones; None keeps the plain average of all batches
    Source         Ioffe and Szegedy 2015
    """

    buffers_of_class = ("running_mean", "running_var", "num_batches_tracked")
    ranks: tuple[int, ...] = ()  # numbers of axes a subclass insists on

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        if not isinstance(num_features, int) or num_features < 1:
            raise UsageError(
                f"[{type(self).__name__}] num_features {num_features!r}: give an int, 1 or more."
            )
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.weight, self.bias = _scale_and_shift((num_features,), affine, True, dtype, device)
        if track_running_stats:
            self.running_mean = constant((num_features,), 0.0, dtype, device)
            self.running_var = constant((num_features,), 1.0, dtype, device)
            self.num_batches_tracked = constant((), 0, dtypes.int64, device)

    def forward(self, x: Tensor) -> Tensor:
        """(n, num_features, ...), of the same shape. In training it updates the running statistics, lazily.

        Raises  UsageError for another number of channels, and in training for one value per channel
        """
        self._check(x)
        if not self.training and self.track_running_stats:
            return x.batch_norm(self.running_mean, self.running_var, self.weight, self.bias, self.eps)
        # the statistics are computed once, for the result and for the running ones
        over = (0, *range(2, x.ndim))
        channel = (1, self.num_features) + (1,) * (x.ndim - 2)
        mean = x.mean(over, keepdim=True)
        centred = x - mean
        var = centred.square().mean(over, keepdim=True)
        if self.training and self.track_running_stats:
            shape = (self.num_features,)
            self._track(
                mean.detach().reshape(shape), var.detach().reshape(shape), x.numel() // self.num_features
            )
        y = centred * (var + self.eps).rsqrt()
        if self.weight is not None:
            y = y * self.weight.reshape(channel)
        return y if self.bias is None else y + self.bias.reshape(channel)

    def _check(self, x: Tensor) -> None:
        name = type(self).__name__
        if x.ndim < 2 or (self.ranks and x.ndim not in self.ranks):
            known = " or ".join(map(str, self.ranks)) or "2 or more"
            raise UsageError(
                f"[{name}] a tensor of shape {x.shape}: it needs {known} axes, (n, channels, ...)."
            )
        if x.shape[1] != self.num_features:
            raise UsageError(
                f"[{name}] a tensor of shape {x.shape}: axis 1 must have {self.num_features} channels."
            )
        if self.training and x.numel() == self.num_features:
            raise UsageError(
                f"[{name}] a tensor of shape {x.shape}: one value per channel has no deviation. "
                "Train on more, or call eval()."
            )

    def _track(self, mean: Tensor, var: Tensor, count: int) -> None:
        """Blend the batch's statistics into the running ones; the running deviation is the unbiased one."""
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)
        share: float | Tensor
        if self.momentum is None:
            share = 1.0 / self.num_batches_tracked.cast(self.running_mean.dtype)
        else:
            share = self.momentum
        unbiased = var * (count / (count - 1))
        self.running_mean.assign(self.running_mean + (mean - self.running_mean) * share)
        self.running_var.assign(self.running_var + (unbiased - self.running_var) * share)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"


class BatchNorm1d(BatchNorm):
    """BatchNorm of (n, channels) or (n, channels, length)."""

    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """BatchNorm of (n, channels, h, w)."""

    ranks = (4,)


class BatchNorm3d(BatchNorm):
    """BatchNorm of (n, channels, d, h, w)."""

    ranks = (5,)


class LayerNorm(Module):
    """The last axes, of sizes `normalized_shape`, to mean 0 and deviation 1."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.weight, self.bias = _scale_and_shift(shape, elementwise_affine, bias, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        """(..., *normalized_shape), of the same shape; see Tensor.layer_norm."""
        return x.layer_norm(self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class RMSNorm(Module):
    """The last axes, of sizes `normalized_shape`, to a root mean square of 1."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.weight, _ = _scale_and_shift(shape, elementwise_affine, False, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        """(..., *normalized_shape), of the same shape; see Tensor.rms_norm."""
        return x.rms_norm(self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class GroupNorm(Module):
    """The channels (axis 1) in groups, each to mean 0 and deviation 1 within a sample."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        if num_groups < 1 or num_channels % num_groups:
            raise UsageError(f"[GroupNorm] {num_channels} channels do not divide into {num_groups} groups.")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight, self.bias = _scale_and_shift((num_channels,), affine, True, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        """(n, num_channels, ...), of the same shape; see Tensor.group_norm. Raises UsageError for other channels."""
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise UsageError(
                f"[GroupNorm] a tensor of shape {x.shape}: axis 1 must have {self.num_channels} channels."
            )
        return x.group_norm(self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.weight is not None}"
