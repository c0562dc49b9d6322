"""Padding modules: what stands around the last axes.

In       how much on each side, the last axis first, then tensors
Out      `ZeroPad1d` to `ZeroPad3d` and their kin: constant, reflect, replicate, circular
Changes  nothing
Next     ../../methods/movement.py (pad)
"""

from __future__ import annotations

from hcq.frontend.nn.layers.sizes import several
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor

_LEAST = -(1 << 62)  # a negative padding cuts


class _Pad(Module):
    """One number for all sides, or two for each axis, the last axis first."""

    rank, mode = 2, "constant"
    value: float | None = None

    def __init__(self, padding: int | tuple[int, ...]):
        self.padding = several(type(self).__name__, "padding", padding, 2 * self.rank, _LEAST)

    def forward(self, x: Tensor) -> Tensor:
        """(..., sizes) -> (..., larger sizes)."""
        return x.pad(self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """One number around."""

    def __init__(self, padding: int | tuple[int, ...], value: float):
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ZeroPad1d(_Pad):
    """Zeros around the last axis."""

    rank = 1


class ZeroPad2d(_Pad):
    """Zeros around the last two axes."""


class ZeroPad3d(_Pad):
    """Zeros around the last three axes."""

    rank = 3


class ConstantPad1d(_ConstantPad):
    """One number around the last axis."""

    rank = 1


class ConstantPad2d(_ConstantPad):
    """One number around the last two axes."""


class ConstantPad3d(_ConstantPad):
    """One number around the last three axes."""

    rank = 3


class ReflectionPad1d(_Pad):
    """The last axis mirrored at its ends, which are not repeated."""

    rank, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """The last two axes mirrored at their ends."""

    mode = "reflect"


class ReflectionPad3d(_Pad):
    """The last three axes mirrored at their ends."""

    rank, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The ends of the last axis repeated."""

    rank, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The ends of the last two axes repeated."""

    mode = "replicate"


class ReplicationPad3d(_Pad):
    """The ends of the last three axes repeated."""

    rank, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """The last axis goes on at its other end."""

    rank, mode = 1, "circular"


class CircularPad2d(_Pad):
    """The last two axes go on at their other ends."""

    mode = "circular"


class CircularPad3d(_Pad):
    """The last three axes go on at their other ends."""

    rank, mode = 3, "circular"
