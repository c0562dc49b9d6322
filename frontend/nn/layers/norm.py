"""Normalisation layers: subtract a mean, divide by a deviation, scale and shift by parameters.

In       tensors
Out      `BatchNorm`, `InstanceNorm1d` and others (statistics of the batch, running ones for evaluation), `LayerNorm`,
         `GroupNorm`,
         `RMSNorm`, `LocalResponseNorm`, `CrossMapLRN2d`; `SyncBatchNorm`, which is a BatchNorm
Changes  in training mode, BatchNorm's running statistics: lazily, with the next realize of a step or of themselves
Next     ../optim/ (whose step also does the pending updates of statistics)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.core import above
from hcq.frontend.nn import init
from hcq.frontend.nn.constant import constant
from hcq.frontend.nn.functional import _normed_by_batch
from hcq.frontend.nn.layers.sizes import even, positive
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Shape


def _scale_and_shift(
    shape: Shape, affine: bool, bias: bool, dtype: DType | None, device: str | None
) -> tuple[Tensor | None, Tensor | None]:
    """Parameters that start as one and zero, or None."""
    weight = even(shape, 1.0, dtype, device) if affine else None
    shift = even(shape, 0.0, dtype, device) if affine and bias else None
    return weight, shift


class _Norm(Module):
    """What scales by a weight and shifts by a bias, where it has them."""

    weight: Tensor | None
    bias: Tensor | None

    def reset_parameters(self) -> None:
        """Start over: scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        bias = getattr(self, "bias", None)
        if bias is not None:
            init.zeros_(bias)


class _Running(_Norm):
    """A norm of each channel (axis 1), whose statistics over many batches are kept for evaluation.

    weight, bias   (num_features,), if affine
    momentum       how much of the new statistics enters the running ones; None keeps the plain average of all batches
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
        *,
        bias: bool = True,
    ):
        positive(type(self).__name__, num_features=num_features)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.weight, self.bias = _scale_and_shift((num_features,), affine, bias, dtype, device)
        kept = track_running_stats
        self.running_mean = constant((num_features,), 0.0, dtype, device) if kept else None
        self.running_var = constant((num_features,), 1.0, dtype, device) if kept else None
        self.num_batches_tracked = constant((), 0, dtypes.int64, device) if kept else None

    def reset_running_stats(self) -> None:
        """Forget what was seen: mean 0, deviation 1."""
        if self.running_mean is not None and self.running_var is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
        if self.num_batches_tracked is not None:
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Start over: scale 1, shift 0, and no statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    def _share(self) -> Any:
        """How much of this batch's statistics enters the running ones."""
        if self.num_batches_tracked is None or not self.training:
            return 0.0
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)
        if self.momentum is not None:
            return self.momentum
        assert self.running_mean is not None
        return 1.0 / self.num_batches_tracked.cast(self.running_mean.dtype)

    def _check(self, x: Tensor, axis: int = 1) -> None:
        name = type(self).__name__
        if x.ndim < 2 or (self.ranks and x.ndim not in self.ranks):
            known = " or ".join(map(str, self.ranks)) or "2 or more"
            raise UsageError(
                f"[{name}] a tensor of shape {x.shape}: it needs {known} axes, (n, channels, ...)."
            )
        if x.shape[axis] != self.num_features:
            raise UsageError(
                f"[{name}] a tensor of shape {x.shape}: axis {axis} must have {self.num_features} channels."
            )

    def _normed(self, x: Tensor, count: int, over: Shape) -> Tensor:
        """By the running statistics in evaluation, if there are any, else by its own: of `count` values each."""
        if not self.training and self.track_running_stats:
            return x.batch_norm(self.running_mean, self.running_var, self.weight, self.bias, self.eps)
        if self.training and count == 1:
            raise UsageError(
                f"[{type(self).__name__}] a tensor of shape {x.shape}: one value per channel has no deviation. "
                "Train on more, or call eval()."
            )
        kept = (self.running_mean, self.running_var) if self.training else (None, None)
        return _normed_by_batch(x, *kept, self.weight, self.bias, self._share(), self.eps, over)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm(_Running):
    """Each channel (axis 1) to mean 0 and deviation 1 over the batch; evaluation uses the running statistics.

    Source  Ioffe and Szegedy 2015

    >>> layer = nn.BatchNorm1d(1)
    >>> print(layer(Tensor([[1.0], [3.0]])).flatten())
    tensor([-1.0000,  1.0000])
    """

    def forward(self, x: Tensor) -> Tensor:
        """(n, num_features, ...), of the same shape. In training it updates the running statistics, lazily.

        Raises  UsageError for another number of channels, and in training for one value per channel
        """
        self._check(x)
        return self._normed(x, x.numel() // self.num_features, (0, *range(2, x.ndim)))


class BatchNorm1d(BatchNorm):
    """BatchNorm of (n, channels) or (n, channels, length).

    >>> layer = nn.BatchNorm1d(1, momentum=0.5)
    >>> _ = layer(Tensor([[1.0], [3.0]])).tolist()
    >>> layer.running_mean.tolist(), layer.running_var.tolist()
    ([1.0], [1.5])
    """

    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """BatchNorm of (n, channels, h, w).

    >>> layer = nn.BatchNorm2d(3).eval()
    >>> print(layer(Tensor.ones(1, 3, 1, 1)).flatten())
    tensor([1.0000, 1.0000, 1.0000])
    """

    ranks = (4,)


class BatchNorm3d(BatchNorm):
    """BatchNorm of (n, channels, d, h, w).

    >>> nn.BatchNorm3d(2)(Tensor.ones(1, 2, 2, 2, 2)).sum().item()
    0.0
    """

    ranks = (5,)


class SyncBatchNorm(BatchNorm):
    """BatchNorm over a whole batch, wherever it is: a batch that is split over this machine's devices is one batch.

    process_group   may be given, and has no effect
    Raises          UsageError in training, where several processes train (hcq.distributed): each has a batch of its own

    >>> net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()))
    >>> type(net[0]).__name__, list(net.state_dict())[:2]
    ('SyncBatchNorm', ['0.weight', '0.bias'])
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def forward(self, x: Tensor) -> Tensor:
        """(n, num_features, ...), of the same shape, as BatchNorm."""
        if self.training and (count := above.ranks_met()) > 1:
            raise UsageError(
                f"[SyncBatchNorm] {count} processes: means over the batches of several are not computed. "
                "Split a batch over this machine's devices with Tensor.shard, or use GroupNorm."
            )
        return super().forward(x)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module, in which every BatchNorm is a SyncBatchNorm of the same parameters and statistics.

        >>> layer = nn.BatchNorm1d(3, momentum=0.2).eval()
        >>> made = nn.SyncBatchNorm.convert_sync_batchnorm(layer)
        >>> made.weight is layer.weight, made.momentum, made.training
        (True, 0.2, False)
        """
        if isinstance(module, BatchNorm):
            made = cls.__new__(cls)
            vars(made).update(vars(module))
            made.process_group = process_group
            return made
        for name, child in module.named_children():
            changed = cls.convert_sync_batchnorm(child, process_group)
            if changed is not child:
                module.set_submodule(name, changed)
        return module


class _InstanceNorm(_Running):
    """Each channel of each sample to mean 0 and deviation 1; with track_running_stats, evaluation uses those.

    Source  Ulyanov et al. 2016
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(n, num_features, ...), of the same shape; n may be left out."""
        if x.ndim == self.ranks[0]:
            self._check(x, 0)
            return self.forward(x.unsqueeze(0)).squeeze(0)
        self._check(x)
        return self._normed(x, math.prod(x.shape[2:]), tuple(range(2, x.ndim)))

    def _share(self) -> Any:
        return self.momentum or 0.0  # num_batches_tracked stays as it is, as in PyTorch


class InstanceNorm1d(_InstanceNorm):
    """InstanceNorm of (n, channels, length).

    >>> print(nn.InstanceNorm1d(2)(Tensor([[[1.0, 3.0], [10.0, 20.0]]]))[0])
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """InstanceNorm of (n, channels, h, w).

    >>> list(nn.InstanceNorm2d(2).state_dict()), list(nn.InstanceNorm2d(2, affine=True).state_dict())
    ([], ['weight', 'bias'])
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """InstanceNorm of (n, channels, d, h, w).

    >>> nn.InstanceNorm3d(2)(Tensor.ones(1, 2, 2, 2, 2)).sum().item()
    0.0
    """

    ranks = (4, 5)


class LocalResponseNorm(Module):
    """Each element divided by a power of the mean square of its neighbours in `size` channels.

    >>> print(nn.LocalResponseNorm(1, alpha=1.0, beta=1.0, k=0.0)(Tensor([[[2.0], [4.0]]])).flatten())
    tensor([0.5000, 0.2500])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; see Tensor.local_response_norm."""
        return x.local_response_norm(self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """LocalResponseNorm of images, of Torch's older kind, with what PyTorch computes: channel 0 is in every window.

    An even `size` sees one channel less than it divides by. Its gradient is that of what it computes, which
    PyTorch's is not: there, channel 0 leaves the windows again.

    >>> print(nn.CrossMapLRN2d(1, alpha=1.0, beta=1.0, k=0)(Tensor([[[[2.0]], [[4.0]]]])).flatten())
    tensor([0.5000, 0.2000])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1):
        positive("CrossMapLRN2d", size=size)
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w), of the same shape."""
        if x.ndim != 4:
            raise UsageError(f"[CrossMapLRN2d] a tensor of shape {x.shape}: give (n, channels, h, w).")
        line = Tensor.arange(x.shape[1], device=x.device)
        seen = ((line.unsqueeze(1) - line).abs() <= (self.size - 1) // 2) | (line == 0)
        squares = x.square().flatten(2)
        sums = (seen.cast(x.dtype) @ squares).reshape(x.shape)
        return x * (sums * (self.alpha / self.size) + self.k) ** -self.beta

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LayerNorm(_Norm):
    """The last axes, of sizes `normalized_shape`, to mean 0 and deviation 1.

    >>> print(nn.LayerNorm(2)(Tensor([[1.0, 3.0], [10.0, 20.0]])))
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """

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
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(_Norm):
    """The last axes, of sizes `normalized_shape`, to a root mean square of 1.

    >>> print(nn.RMSNorm(2)(Tensor([[3.0, 4.0]])))
    tensor([[0.8485, 1.1314]])
    """

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


class GroupNorm(_Norm):
    """The channels (axis 1) in groups, each to mean 0 and deviation 1 within a sample.

    >>> print(nn.GroupNorm(2, 4)(Tensor([[1.0, 3.0, 10.0, 20.0]])))
    tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ):
        if num_groups < 1 or num_channels % num_groups:
            raise UsageError(f"[GroupNorm] {num_channels} channels do not divide into {num_groups} groups.")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight, self.bias = _scale_and_shift((num_channels,), affine, bias, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        """(n, num_channels, ...), of the same shape; see Tensor.group_norm. Raises UsageError for other channels."""
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise UsageError(
                f"[GroupNorm] a tensor of shape {x.shape}: axis 1 must have {self.num_channels} channels."
            )
        return x.group_norm(self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.weight is not None}, "
            f"bias={self.bias is not None}"
        )
