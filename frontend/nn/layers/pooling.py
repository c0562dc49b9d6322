"""Pooling: the greatest, the mean or the norm of each window, of windows of a size or of a number.

In       windows, then tensors (..., channels, sizes)
Out      `MaxPool1d` to `MaxPool3d`, `AvgPool1d` to `AvgPool3d`, `LPPool1d` to `LPPool3d`,
         `MaxUnpool1d` to `MaxUnpool3d`, `FractionalMaxPool2d`, `FractionalMaxPool3d`,
         `AdaptiveAvgPool1d` to `AdaptiveAvgPool3d`, `AdaptiveMaxPool1d` to `AdaptiveMaxPool3d`
Next     ops/pooling.py (what they compute)
"""

from __future__ import annotations

from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn import functional as F
from hcq.frontend.nn.layers.sizes import several
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor


def _as_given(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class _Pool(Module):
    """A pool over the last `rank` axes; stride is the kernel's size unless given."""

    rank = 2

    def _set(self, kernel_size: Any, stride: Any, padding: Any = 0, dilation: Any = 1) -> None:
        call = type(self).__name__
        several(call, "kernel_size", kernel_size, self.rank, 1)
        self.kernel_size = _as_given(kernel_size)
        if stride is not None:
            several(call, "stride", stride, self.rank, 1)
        self.stride = self.kernel_size if stride is None else _as_given(stride)
        several(call, "padding", padding, self.rank, 0)
        several(call, "dilation", dilation, self.rank, 1)
        self.padding, self.dilation = _as_given(padding), _as_given(dilation)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _MaxPool(_Pool):
    """The largest element of each window.

    return_indices   give the places of these elements, too, for MaxUnpool
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ):
        self._set(kernel_size, stride, padding, dilation)
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, x: Tensor) -> Any:
        """(..., sizes) -> (..., smaller sizes), as in Tensor.max_pool1d to max_pool3d."""
        pool = getattr(x, f"max_pool{self.rank}d")
        return pool(
            self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class MaxPool1d(_MaxPool):
    """The largest element of each window of the last axis.

    >>> nn.MaxPool1d(2, ceil_mode=True)(Tensor([[1.0, 5.0, 2.0]])).tolist()
    [[5.0, 2.0]]
    """

    rank = 1


class MaxPool2d(_MaxPool):
    """The largest element of each window of the last two axes.

    >>> nn.MaxPool2d(3, stride=2, padding=1)(Tensor.zeros(1, 3, 8, 8)).shape
    (1, 3, 4, 4)
    """


class MaxPool3d(_MaxPool):
    """The largest element of each window of the last three axes.

    >>> nn.MaxPool3d((1, 2, 2))(Tensor.zeros(1, 4, 6, 6)).shape
    (1, 4, 3, 3)
    """

    rank = 3


class _MaxUnpool(_Pool):
    """Elements go back to where MaxPool with return_indices found them; the rest is zero."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
    ):
        self._set(kernel_size, stride, padding)
        self.kernel_size = several(type(self).__name__, "kernel_size", kernel_size, self.rank, 1)
        self.stride = several(type(self).__name__, "stride", self.stride, self.rank, 1)
        self.padding = several(type(self).__name__, "padding", padding, self.rank, 0)

    def forward(self, x: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """(..., sizes) and their places -> (..., larger sizes)."""
        unpool = getattr(x, f"max_unpool{self.rank}d")
        return unpool(indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """Undoes MaxPool1d, as far as it can be.

    >>> values, indices = nn.MaxPool1d(2, return_indices=True)(Tensor([[1.0, 5.0, 2.0, 3.0]]))
    >>> nn.MaxUnpool1d(2)(values, indices).tolist()
    [[0.0, 5.0, 0.0, 3.0]]
    """

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Undoes MaxPool2d, as far as it can be.

    >>> values, indices = nn.MaxPool2d(2, return_indices=True)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    >>> nn.MaxUnpool2d(2)(values, indices).tolist()
    [[[0.0, 0.0], [4.0, 0.0]]]
    """


class MaxUnpool3d(_MaxUnpool):
    """Undoes MaxPool3d, as far as it can be.

    >>> values, indices = nn.MaxPool3d(2, return_indices=True)(Tensor.ones(1, 2, 2, 2))
    >>> nn.MaxUnpool3d(2)(values, indices).sum().item()
    1.0
    """

    rank = 3


class AvgPool1d(_Pool):
    """The mean of each window of the last axis; padding counts as zeros unless count_include_pad is False.

    >>> nn.AvgPool1d(2, stride=1)(Tensor([[1.0, 3.0, 5.0]])).tolist()
    [[2.0, 4.0]]
    """

    rank = 1

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        self._set(kernel_size, stride, padding)
        self.kernel_size = several("AvgPool1d", "kernel_size", kernel_size, 1, 1)
        self.stride = several("AvgPool1d", "stride", self.stride, 1, 1)
        self.padding = several("AvgPool1d", "padding", padding, 1, 0)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """(..., length) -> (..., smaller length), as in Tensor.avg_pool1d."""
        return x.avg_pool1d(
            self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )


class AvgPool2d(_Pool):
    """The mean of each window of the last two axes.

    count_include_pad   False leaves padding out of the mean
    divisor_override    what the sum is divided by, instead of the number of elements

    >>> nn.AvgPool2d(2, padding=1, count_include_pad=False)(Tensor.ones(1, 2, 2)).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):
        self._set(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, x: Tensor) -> Tensor:
        """(..., sizes) -> (..., smaller sizes), as in Tensor.avg_pool1d to avg_pool3d."""
        return getattr(x, f"avg_pool{self.rank}d")(
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool3d(AvgPool2d):
    """The mean of each window of the last three axes; arguments as AvgPool2d has them.

    >>> nn.AvgPool3d(2)(Tensor.ones(1, 4, 5, 6)).shape
    (1, 2, 2, 3)
    """

    rank = 3


class _LPPool(_Pool):
    """The sum of the elements' powers of norm_type in each window, and of that the root."""

    def __init__(
        self,
        norm_type: float,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        ceil_mode: bool = False,
    ):
        if isinstance(norm_type, bool) or not isinstance(norm_type, (int, float)) or norm_type == 0:
            raise UsageError(f"[{type(self).__name__}] norm_type {shown(norm_type)}: give a number, not 0.")
        self._set(kernel_size, stride)
        self.stride = stride  # as it is printed
        self.norm_type, self.ceil_mode = norm_type, ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """(..., sizes) -> (..., smaller sizes)."""
        count = 1
        for size in several("LPPool", "kernel_size", self.kernel_size, self.rank, 1):
            count *= size
        pool = getattr(x**self.norm_type, f"avg_pool{self.rank}d")
        mean = pool(self.kernel_size, self.stride, 0, self.ceil_mode)
        return (mean.sign() * mean.abs().relu() * count) ** (1.0 / self.norm_type)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The norm of each window of the last axis.

    >>> nn.LPPool1d(2, 2)(Tensor([[3.0, 4.0]])).tolist()
    [[5.0]]
    """

    rank = 1


class LPPool2d(_LPPool):
    """The norm of each window of the last two axes.

    >>> nn.LPPool2d(1, 2)(Tensor([[[1.0, 2.0], [3.0, 4.0]]])).tolist()
    [[[10.0]]]
    """


class LPPool3d(_LPPool):
    """The norm of each window of the last three axes.

    >>> print(nn.LPPool3d(2, 2)(Tensor.ones(1, 2, 2, 2)).flatten())
    tensor([2.8284])
    """

    rank = 3


class _Adaptive(Module):
    """As many windows as output_size says, as even as can be; None keeps an axis."""

    rank, method = 2, ""

    def __init__(self, output_size: Any):
        ok = (int, type(None))
        given = output_size if isinstance(output_size, (tuple, list)) else (output_size,)
        if len(given) not in (1, self.rank) or any(
            not isinstance(n, ok) or n == 0 or (n or 1) < 0 for n in given
        ):
            raise UsageError(
                f"[{type(self).__name__}] output_size {shown(output_size)}: use ints or None, at most {self.rank}."
            )
        self.output_size = _as_given(output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvg(_Adaptive):
    """The mean of each window."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., sizes) -> (..., output_size)."""
        return getattr(x, f"adaptive_avg_pool{self.rank}d")(self.output_size)


class _AdaptiveMax(_Adaptive):
    """The greatest element of each window; return_indices gives their places, too."""

    def __init__(self, output_size: Any, return_indices: bool = False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        """(..., sizes) -> (..., output_size)."""
        return getattr(x, f"adaptive_max_pool{self.rank}d")(self.output_size, self.return_indices)


class AdaptiveAvgPool1d(_AdaptiveAvg):
    """Means of output_size windows of the last axis.

    >>> nn.AdaptiveAvgPool1d(2)(Tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])).tolist()
    [[2.0, 4.0]]
    """

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvg):
    """Means of windows of the last two axes.

    >>> nn.AdaptiveAvgPool2d((1, 1))(Tensor.ones(2, 3, 7, 5)).shape
    (2, 3, 1, 1)
    """


class AdaptiveAvgPool3d(_AdaptiveAvg):
    """Means of windows of the last three axes.

    >>> nn.AdaptiveAvgPool3d((1, None, 2))(Tensor.zeros(2, 4, 5, 6)).shape
    (2, 1, 5, 2)
    """

    rank = 3


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The greatest of output_size windows of the last axis.

    >>> values, indices = nn.AdaptiveMaxPool1d(1, return_indices=True)(Tensor([[1.0, 5.0, 2.0]]))
    >>> values.tolist(), indices.tolist()
    ([[5.0]], [[1]])
    """

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The greatest of windows of the last two axes.

    >>> nn.AdaptiveMaxPool2d((1, 2))(Tensor([[[1.0, 2.0], [3.0, 4.0]]])).tolist()
    [[[3.0, 4.0]]]
    """


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The greatest of windows of the last three axes.

    >>> nn.AdaptiveMaxPool3d(2)(Tensor.zeros(1, 4, 5, 6)).shape
    (1, 2, 2, 2)
    """

    rank = 3


class _Fractional(Module):
    """The greatest elements of windows at random places, of a number or a share of the sizes."""

    rank = 2
    buffers_of_class = ("_random_samples",)

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ):
        several(type(self).__name__, "kernel_size", kernel_size, self.rank, 1)
        if (output_size is None) == (output_ratio is None):
            raise UsageError(f"[{type(self).__name__}] give one of output_size and output_ratio.")
        self.kernel_size, self.return_indices = _as_given(kernel_size), return_indices
        self.output_size, self.output_ratio = _as_given(output_size), _as_given(output_ratio)
        self._random_samples = _random_samples

    def forward(self, x: Tensor) -> Any:
        """(..., channels, sizes) -> (..., channels, output_size), and with return_indices their places."""
        pool = getattr(F, f"fractional_max_pool{self.rank}d")
        return pool(
            x,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            self._random_samples,
        )


class FractionalMaxPool2d(_Fractional):
    """The greatest elements of random windows of the last two axes; see functional.fractional_max_pool2d.

    Source  Graham 2014

    >>> nn.FractionalMaxPool2d(2, output_ratio=0.5)(Tensor.ones(1, 2, 9, 9)).shape
    (1, 2, 4, 4)
    """


class FractionalMaxPool3d(_Fractional):
    """The greatest elements of random windows of the last three axes.

    >>> nn.FractionalMaxPool3d(2, output_size=3)(Tensor.ones(1, 2, 5, 5, 5)).shape
    (1, 2, 3, 3, 3)
    """

    rank = 3
