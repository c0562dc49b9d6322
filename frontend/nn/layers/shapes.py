"""Shapes: modules that rearrange, join, cut apart or resize, and have no parameters.

In       tensors
Out      `Flatten`, `Unflatten`, `PixelShuffle`, `PixelUnshuffle`, `ChannelShuffle`, `Upsample`, ..., `Unfold`,
         `Fold`
Next     ops/rearranging.py
"""

from __future__ import annotations

from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn import functional as F
from hcq.frontend.nn.layers.sizes import several
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor


class Flatten(Module):
    """The axes start_dim to end_dim (inclusive) become one.

    >>> nn.Flatten()(Tensor.zeros(5, 2, 3)).shape
    (5, 6)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """(n, c, h, w) -> (n, c * h * w), unless other axes are given."""
        return x.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class _Method(Module):
    """A method of Tensor, whose arguments are attributes of the module."""

    method = ""
    options: tuple[str, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        """See the method of Tensor."""
        return getattr(x, self.method)(*[getattr(self, name) for name in self.options])  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.options)


class Unflatten(_Method):
    """One axis becomes several, of the sizes given.

    >>> nn.Unflatten(1, (3, -1))(Tensor.zeros(2, 12)).shape
    (2, 3, 4)
    """

    method, options = "unflatten", ("dim", "unflattened_size")

    def __init__(self, dim: int, unflattened_size: Any):
        if not isinstance(unflattened_size, (tuple, list)) or isinstance(dim, str):
            raise UsageError("[Unflatten] give an axis and a tuple of sizes; axes have no names here.")
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)


class PixelShuffle(_Method):
    """(..., c * r * r, h, w) -> (..., c, h * r, w * r).

    >>> nn.PixelShuffle(2)(Tensor.arange(4).reshape(4, 1, 1)).tolist()
    [[[0, 1], [2, 3]]]
    """

    method, options = "pixel_shuffle", ("upscale_factor",)

    def __init__(self, upscale_factor: int):
        self.upscale_factor = upscale_factor


class PixelUnshuffle(_Method):
    """(..., c, h * r, w * r) -> (..., c * r * r, h, w).

    >>> nn.PixelUnshuffle(2)(Tensor.zeros(1, 3, 4, 6)).shape
    (1, 12, 2, 3)
    """

    method, options = "pixel_unshuffle", ("downscale_factor",)

    def __init__(self, downscale_factor: int):
        self.downscale_factor = downscale_factor


class ChannelShuffle(_Method):
    """The channels of `groups` groups, one of each in turn.

    >>> nn.ChannelShuffle(2)(Tensor.arange(4).reshape(1, 4, 1, 1)).flatten().tolist()
    [0, 2, 1, 3]
    """

    method, options = "channel_shuffle", ("groups",)

    def __init__(self, groups: int):
        self.groups = groups


class Upsample(Module):
    """The last axes at another size, or at sizes scaled by a factor; see Tensor.interpolate.

    mode   "nearest", "linear", "bilinear", "bicubic", "trilinear", ...

    >>> nn.Upsample(scale_factor=2, mode="bilinear")(Tensor.zeros(1, 3, 4, 5)).shape
    (1, 3, 8, 10)
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ):
        self.size = size
        factors = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor,)
        if scale_factor is not None and any(
            isinstance(factor, bool) or not isinstance(factor, (int, float)) for factor in factors
        ):
            raise UsageError(
                f"[Upsample] scale_factor {shown(scale_factor)}: give a number, or one for each axis."
            )
        self.scale_factor: Any = None if scale_factor is None else tuple(map(float, factors))
        if self.scale_factor is not None and not isinstance(scale_factor, (tuple, list)):
            self.scale_factor = self.scale_factor[0]
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, x: Tensor) -> Tensor:
        """(n, c, ...) -> (n, c, other sizes)."""
        return x.interpolate(
            self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        how = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{how}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample with mode "nearest".

    >>> nn.UpsamplingNearest2d(scale_factor=2)(Tensor([[[[1.0, 3.0]]]])).tolist()
    [[[[1.0, 1.0, 3.0, 3.0], [1.0, 1.0, 3.0, 3.0]]]]
    """

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample with mode "bilinear" and aligned corners.

    >>> nn.UpsamplingBilinear2d(size=(1, 4))(Tensor([[[[1.0, 4.0]]]])).tolist()
    [[[[1.0, 2.0, 3.0, 4.0]]]]
    """

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "bilinear", True)


class _Windows(Module):
    """Windows of two axes."""

    def _set(self, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> None:
        call = type(self).__name__
        for name, value, least in (
            ("kernel_size", kernel_size, 1), ("dilation", dilation, 1), ("padding", padding, 0), ("stride", stride, 1),
        ):  # fmt: skip
            several(call, name, value, 2, least)
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Unfold(_Windows):
    """Every window as a column: (n, c, h, w) -> (n, c * window, number of windows).

    >>> nn.Unfold(2)(Tensor.zeros(1, 3, 4, 5)).shape
    (1, 12, 12)
    """

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        self._set(kernel_size, dilation, padding, stride)

    def forward(self, x: Tensor) -> Tensor:
        """See nn.functional.unfold."""
        return F.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(_Windows):
    """The sum of columns that are windows: (n, c * window, number of windows) -> (n, c, *output_size).

    >>> nn.Fold((1, 3), (1, 2))(nn.Unfold((1, 2))(Tensor.ones(1, 1, 1, 3))).tolist()
    [[[[1.0, 2.0, 1.0]]]]
    """

    def __init__(
        self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ):
        several("Fold", "output_size", output_size, 2, 1)
        self.output_size = output_size
        self._set(kernel_size, dilation, padding, stride)

    def forward(self, x: Tensor) -> Tensor:
        """See nn.functional.fold."""
        return F.fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {super().extra_repr()}"
