"""Lazy layers: those that take the number of their inputs from the first input that they see.

In       what the layer of the same name takes, without that number
Out      `LazyLinear`, `LazyConv1d` to `LazyConvTranspose3d`, `LazyBatchNorm1d` to `LazyInstanceNorm3d`
Changes  the first call, or a state that is loaded: parameters get their shapes, and the layer becomes the one it is for
Next     ../uninitialized.py (parameters without a shape), linear.py, convolution.py, norm.py (what they become)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.core.base import changed
from hcq.frontend.nn.holding import inside
from hcq.frontend.nn.layers import convolution, linear, norm
from hcq.frontend.nn.layers.sizes import positive
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.uninitialized import Uninitialized, UninitializedBuffer, UninitializedParameter
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType
from hcq.ir.node import Shape


class Lazy(Module):
    """What all of them have: the class that they become, and shapes that follow from the number of features."""

    cls_to_become: type[Module]
    counted: tuple[str, ...] = ("weight",)  # whose shape says the number, in a state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else next(iter(kwargs.values()), None)
        if not isinstance(given, Tensor):
            return super().__call__(*args, **kwargs)
        self.initialize_parameters(given)
        return self(*args, **kwargs)  # as what it has become

    def has_uninitialized_params(self) -> bool:
        """Whether it waits for an input.

        >>> layer = nn.LazyLinear(2)
        >>> layer.has_uninitialized_params(), layer(Tensor.ones(1, 3)).shape, type(layer).__name__
        (True, (1, 2), 'Linear')
        """
        return any(isinstance(tensor, Uninitialized) for _, tensor in inside(self, "", Tensor))

    def initialize_parameters(self, input: Tensor) -> None:
        """Draw parameters that fit an input, and become the layer of the shorter name."""
        count = self._count(input)
        if count < 1:
            raise UsageError(f"[{type(self).__name__}] {input.shape}: it has no features to count.")
        self._become(count)
        self.reset_parameters()

    def _become(self, count: int) -> None:
        for name, tensor in list(inside(self, "", Tensor)):
            if isinstance(tensor, Uninitialized):
                tensor.materialize(self._shape(name, count))
        self._set_count(count)
        self.__class__ = self.cls_to_become  # type: ignore[assignment]
        changed()

    def reset_parameters(self) -> None:
        """Draw the parameters, once they have shapes."""
        if not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]

    def _take_shapes(self, state: Mapping[str, Any], prefix: str) -> None:
        known = (getattr(state.get(prefix + name), "shape", None) for name in self.counted)
        shape = next((tuple(each) for each in known if each is not None), None)
        if shape is not None:
            self._become(self._count_in(shape))

    # -- for the layers to say: how many features an input has, or a parameter is for; which shapes follow --

    def _count(self, input: Tensor) -> int:
        raise NotImplementedError

    def _count_in(self, shape: Shape) -> int:
        raise NotImplementedError

    def _shape(self, name: str, count: int) -> Shape:
        raise NotImplementedError

    def _set_count(self, count: int) -> None:
        raise NotImplementedError


class LazyLinear(Lazy, linear.Linear):
    """Linear, whose in_features are the last size of the first input.

    >>> layer = nn.LazyLinear(2)
    >>> layer(Tensor.ones(5, 3)).shape, layer.weight.shape
    ((5, 2), (2, 3))
    """

    cls_to_become = linear.Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: str | None = None, dtype: DType | None = None
    ):
        positive("LazyLinear", out_features=out_features)
        self.in_features, self.out_features = 0, out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.bias = UninitializedParameter(device=device, dtype=dtype) if bias else None

    def _count(self, input: Tensor) -> int:
        return input.shape[-1] if input.ndim else 0

    def _count_in(self, shape: Shape) -> int:
        return shape[-1]

    def _shape(self, name: str, count: int) -> Shape:
        return (self.out_features, count) if name == "weight" else (self.out_features,)

    def _set_count(self, count: int) -> None:
        self.in_features = count


class _Channels(Lazy, convolution._Convolution):
    """A convolution of any number of channels: what the lazy ones have in common."""

    def _forget(self) -> None:
        """Have no shapes: the layer was made for the least number of channels, to have the rest checked."""
        where: dict[str, Any] = {"device": self.weight.device, "dtype": self.weight.dtype}
        self.weight = UninitializedParameter(**where)
        self.bias = None if self.bias is None else UninitializedParameter(**where)
        self.in_channels = 0

    def _count(self, input: Tensor) -> int:
        return input.shape[-1 - self.rank] if input.ndim > self.rank else 0

    def _count_in(self, shape: Shape) -> int:
        return shape[0] if self.is_transposed else shape[1] * self.groups

    def _shape(self, name: str, count: int) -> Shape:
        if name == "bias":
            return (self.out_channels,)
        if count % self.groups:
            raise UsageError(
                f"[{type(self).__name__}] {count} channels do not divide into {self.groups} groups."
            )
        ways = (count, self.out_channels) if self.is_transposed else (self.out_channels, count)
        return (ways[0], ways[1] // self.groups, *self.kernel_size)

    def _set_count(self, count: int) -> None:
        self.in_channels = count


class _LazyConvolution(_Channels):
    """A convolution, whose in_channels are those of the first input."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(
            groups, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )  # fmt: skip
        self._forget()


class LazyConv1d(_LazyConvolution):
    """Conv1d, whose in_channels are those of the first input.

    >>> layer = nn.LazyConv1d(4, 3)
    >>> layer(Tensor.ones(1, 2, 8)).shape, layer.in_channels
    ((1, 4, 6), 2)
    """

    rank, cls_to_become = 1, convolution.Conv1d


class LazyConv2d(_LazyConvolution):
    """Conv2d, whose in_channels are those of the first input.

    >>> layer = nn.LazyConv2d(8, kernel_size=3, stride=2)
    >>> layer(Tensor.ones(1, 3, 9, 9)).shape, layer.weight.shape
    ((1, 8, 4, 4), (8, 3, 3, 3))
    """

    cls_to_become = convolution.Conv2d


class LazyConv3d(_LazyConvolution):
    """Conv3d, whose in_channels are those of the first input.

    >>> nn.LazyConv3d(4, 3, padding="same")(Tensor.zeros(1, 2, 4, 5, 6)).shape
    (1, 4, 4, 5, 6)
    """

    rank, cls_to_become = 3, convolution.Conv3d


class _LazyTransposed(_Channels, convolution._Transposed):
    """A transposed convolution, whose in_channels are those of the first input."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int, ...] = 1,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(
            groups, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation, padding_mode,
            device, dtype,
        )  # fmt: skip
        self._forget()


class LazyConvTranspose1d(_LazyTransposed):
    """ConvTranspose1d, whose in_channels are those of the first input.

    >>> nn.LazyConvTranspose1d(4, 3, stride=2)(Tensor.zeros(1, 2, 5)).shape
    (1, 4, 11)
    """

    rank, cls_to_become = 1, convolution.ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed):
    """ConvTranspose2d, whose in_channels are those of the first input.

    >>> layer = nn.LazyConvTranspose2d(4, 3, stride=2)
    >>> layer(Tensor.zeros(1, 2, 5, 5)).shape, layer.weight.shape
    ((1, 4, 11, 11), (2, 4, 3, 3))
    """

    cls_to_become = convolution.ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed):
    """ConvTranspose3d, whose in_channels are those of the first input.

    >>> nn.LazyConvTranspose3d(4, 2, stride=2)(Tensor.zeros(1, 2, 2, 2, 2)).shape
    (1, 4, 4, 4, 4)
    """

    rank, cls_to_become = 3, convolution.ConvTranspose3d


class _Features(Lazy, norm._Running):
    """A norm of any number of channels: what the lazy ones have in common."""

    counted = ("weight", "running_mean")

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ):
        super().__init__(1, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        # made for one channel, to have the rest checked; now it has no shapes
        for name in ("weight", "bias", "running_mean", "running_var"):
            tensor = getattr(self, name)
            kind: Any = UninitializedBuffer if name in self.buffers_of_class else UninitializedParameter
            if tensor is not None:
                setattr(self, name, kind(device=tensor.device, dtype=tensor.dtype))
        self.num_features = 0

    def _count(self, input: Tensor) -> int:
        axis = 0 if issubclass(self.cls_to_become, norm._InstanceNorm) and input.ndim == self.ranks[0] else 1
        return input.shape[axis] if input.ndim > axis else 0

    def _count_in(self, shape: Shape) -> int:
        return shape[0]

    def _shape(self, name: str, count: int) -> Shape:
        return (count,)

    def _set_count(self, count: int) -> None:
        self.num_features = count


class LazyBatchNorm1d(_Features, norm.BatchNorm):
    """BatchNorm1d, whose num_features are the channels of the first input.

    >>> layer = nn.LazyBatchNorm1d()
    >>> print(layer(Tensor([[1.0], [3.0]])).flatten(), layer.num_features)
    tensor([-1.0000,  1.0000]) 1
    """

    cls_to_become, ranks = norm.BatchNorm1d, norm.BatchNorm1d.ranks


class LazyBatchNorm2d(_Features, norm.BatchNorm):
    """BatchNorm2d, whose num_features are the channels of the first input.

    >>> layer = nn.LazyBatchNorm2d()
    >>> layer(Tensor.ones(1, 3, 2, 2)).shape, layer.running_mean.shape
    ((1, 3, 2, 2), (3,))
    """

    cls_to_become, ranks = norm.BatchNorm2d, norm.BatchNorm2d.ranks


class LazyBatchNorm3d(_Features, norm.BatchNorm):
    """BatchNorm3d, whose num_features are the channels of the first input.

    >>> nn.LazyBatchNorm3d()(Tensor.ones(1, 2, 2, 2, 2)).sum().item()
    0.0
    """

    cls_to_become, ranks = norm.BatchNorm3d, norm.BatchNorm3d.ranks


class LazyInstanceNorm1d(_Features, norm._InstanceNorm):
    """InstanceNorm1d, whose num_features are the channels of the first input.

    >>> print(nn.LazyInstanceNorm1d()(Tensor([[[1.0, 3.0], [10.0, 20.0]]]))[0])
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """

    cls_to_become, ranks = norm.InstanceNorm1d, norm.InstanceNorm1d.ranks


class LazyInstanceNorm2d(_Features, norm._InstanceNorm):
    """InstanceNorm2d, whose num_features are the channels of the first input.

    >>> layer = nn.LazyInstanceNorm2d()
    >>> layer(Tensor.ones(1, 3, 2, 2)).shape, layer.weight.shape
    ((1, 3, 2, 2), (3,))
    """

    cls_to_become, ranks = norm.InstanceNorm2d, norm.InstanceNorm2d.ranks


class LazyInstanceNorm3d(_Features, norm._InstanceNorm):
    """InstanceNorm3d, whose num_features are the channels of the first input.

    >>> nn.LazyInstanceNorm3d()(Tensor.ones(1, 2, 2, 2, 2)).sum().item()
    0.0
    """

    cls_to_become, ranks = norm.InstanceNorm3d, norm.InstanceNorm3d.ranks
