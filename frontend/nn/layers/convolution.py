"""Convolutions over one, two and three axes, and the transposed ones, which undo their shapes.

In       channels and windows, then tensors (n, channels, ...); n may be left out
Out      `Conv1d`, `Conv2d`, `Conv3d`, `ConvTranspose1d`, `ConvTranspose2d`, `ConvTranspose3d`
Next     ops/window.py (what they compute)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn import init
from hcq.frontend.nn.layers.sizes import drawn, positive, several
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType

MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


class _Convolution(Module):
    """A convolution over `rank` axes. weight is (out, in / groups, *kernel_size), (in, out / groups, ...) transposed.

    padding        on both sides, or "same" (stride 1), or "valid"
    padding_mode   what the padding holds: "zeros", "reflect", "replicate", "circular"
    Raises         UsageError for sizes below 1, and for channels that do not divide into the groups
    """

    rank = 2
    is_transposed = False

    def __init__(
        self,
        in_channels: int,
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
        call = type(self).__name__
        positive(call, in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise UsageError(
                f"[{call}] {in_channels} in and {out_channels} out channels: both must divide into {groups} groups."
            )
        if padding_mode not in MODES or (self.is_transposed and padding_mode != "zeros"):
            known = ["zeros"] if self.is_transposed else list(MODES)
            raise UsageError(f"[{call}] padding_mode {shown(padding_mode)}: use one of {known}.")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise UsageError(f"[{call}] padding {padding!r}: give ints, 'same' or 'valid'.")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = several(call, "kernel_size", kernel_size, self.rank, 1)
        self.stride = several(call, "stride", stride, self.rank, 1)
        self.dilation = several(call, "dilation", dilation, self.rank, 1)
        if padding == "same" and any(step != 1 for step in self.stride):
            raise UsageError(
                f"[{call}] padding='same' with stride {self.stride}: use stride 1, or give numbers."
            )
        self.padding = (
            padding if isinstance(padding, str) else several(call, "padding", padding, self.rank, 0)
        )
        self.padding_mode = padding_mode
        self.output_padding = (0,) * self.rank
        ways = (in_channels, out_channels) if self.is_transposed else (out_channels, in_channels)
        shape = (ways[0], ways[1] // groups, *self.kernel_size)
        bound = 1.0 / math.sqrt(math.prod(shape[1:]))
        self.weight = drawn(shape, bound, dtype, device)
        self.bias = drawn((out_channels,), bound, dtype, device) if bias else None

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1.0 / math.sqrt(math.prod(self.weight.shape[1:]))
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """(n, in_channels, ...) -> (n, out_channels, ...), sizes as in the method of Tensor; n may be left out."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            x = x.pad(self._pads(), MODES[self.padding_mode])
            padding = 0
        convolve = getattr(x, f"conv{self.rank}d")
        return convolve(self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _pads(self) -> list[int]:
        """The padding in the order of Tensor.pad: the last axis first, both of its sides."""
        found: list[int] = []
        for axis in reversed(range(self.rank)):
            if isinstance(self.padding, str):
                total = self.dilation[axis] * (self.kernel_size[axis] - 1) if self.padding == "same" else 0
                found += [total // 2, total - total // 2]
            else:
                found += [self.padding[axis], self.padding[axis]]
        return found

    def extra_repr(self) -> str:
        none, one = (0,) * self.rank, (1,) * self.rank
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        ]
        parts += [f"padding={self.padding}"] if self.padding != none else []
        parts += [f"dilation={self.dilation}"] if self.dilation != one else []
        parts += [f"output_padding={self.output_padding}"] if self.output_padding != none else []
        parts += [f"groups={self.groups}"] if self.groups != 1 else []
        parts += ["bias=False"] if self.bias is None else []
        parts += [f"padding_mode={self.padding_mode}"] if self.padding_mode != "zeros" else []
        return ", ".join(parts)


class Conv1d(_Convolution):
    """A convolution of (n, in_channels, length).

    >>> nn.Conv1d(2, 4, kernel_size=3, padding=1)(Tensor.ones(1, 2, 8)).shape
    (1, 4, 8)
    """

    rank = 1


class Conv2d(_Convolution):
    """A convolution of (n, in_channels, h, w); weight is (out, in / groups, kh, kw).

    >>> nn.Conv2d(3, 8, kernel_size=3, stride=2)(Tensor.ones(1, 3, 9, 9)).shape
    (1, 8, 4, 4)
    """


class Conv3d(_Convolution):
    """A convolution of (n, in_channels, d, h, w).

    >>> nn.Conv3d(2, 4, 3, padding="same")(Tensor.zeros(1, 2, 4, 5, 6)).shape
    (1, 4, 4, 5, 6)
    """

    rank = 3


class _Transposed(_Convolution):
    """What a convolution of these arguments takes to one element, this spreads over a window.

    output_padding   how much larger the result is, on one side
    """

    is_transposed = True

    def __init__(
        self,
        in_channels: int,
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
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
            device, dtype,
        )  # fmt: skip
        self.output_padding = several(type(self).__name__, "output_padding", output_padding, self.rank, 0)

    def forward(self, x: Tensor, output_size: Any = None) -> Tensor:
        """(n, in_channels, ...) -> (n, out_channels, ...).

        output_size   sizes of the result's last axes, from among those that the stride leaves open
        """
        padding = self.output_padding if output_size is None else self._padding_for(x, output_size)
        convolve = getattr(x, f"conv_transpose{self.rank}d")
        return convolve(
            self.weight, self.bias, self.stride, self.padding, padding, self.groups, self.dilation
        )

    def _padding_for(self, x: Tensor, output_size: Any) -> tuple[int, ...]:
        given = output_size if isinstance(output_size, (tuple, list)) else (output_size,)
        wanted = several(type(self).__name__, "output_size", list(given)[-self.rank :], self.rank, 1)
        found = []
        for axis, size in enumerate(wanted):
            least = (x.shape[axis - self.rank] - 1) * self.stride[axis] - 2 * int(self.padding[axis])
            least += self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
            if not least <= size < least + self.stride[axis]:
                raise UsageError(
                    f"[{type(self).__name__}] output_size {shown(output_size)}: axis {axis} can have "
                    f"{least} to {least + self.stride[axis] - 1}."
                )
            found.append(size - least)
        return tuple(found)


class ConvTranspose1d(_Transposed):
    """The transposed convolution of (n, in_channels, length).

    >>> nn.ConvTranspose1d(2, 4, 3, stride=2)(Tensor.zeros(1, 2, 5)).shape
    (1, 4, 11)
    """

    rank = 1


class ConvTranspose2d(_Transposed):
    """The transposed convolution of (n, in_channels, h, w).

    >>> nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1)(Tensor.zeros(1, 2, 5, 5)).shape
    (1, 4, 10, 10)
    """


class ConvTranspose3d(_Transposed):
    """The transposed convolution of (n, in_channels, d, h, w).

    >>> nn.ConvTranspose3d(2, 4, 2, stride=2)(Tensor.zeros(1, 2, 2, 2, 2)).shape
    (1, 4, 4, 4, 4)
    """

    rank = 3
