"""Padding modules: what stands around the last axes.

In       how much on each side, the last axis first, then tensors
Out      `ZeroPad1d` to `ZeroPad3d` and the other paddings: constant, reflect, replicate, circular
Next     ops/padding.py (pad)
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
    """Zeros around the last axis.

    >>> nn.ZeroPad1d((1, 2))(hcq.tensor([[5]])).tolist()
    [[0, 5, 0, 0]]
    """

    rank = 1


class ZeroPad2d(_Pad):
    """Zeros around the last two axes.

    >>> nn.ZeroPad2d((1, 0, 0, 1))(hcq.tensor([[5]])).tolist()
    [[0, 5], [0, 0]]
    """


class ZeroPad3d(_Pad):
    """Zeros around the last three axes.

    >>> nn.ZeroPad3d(1)(Tensor.ones(1, 1, 1)).sum().item()
    1.0
    """

    rank = 3


class ConstantPad1d(_ConstantPad):
    """One number around the last axis.

    >>> nn.ConstantPad1d((0, 2), 9)(hcq.tensor([[1, 2]])).tolist()
    [[1, 2, 9, 9]]
    >>> nn.ConstantPad1d(-1, 9)(hcq.tensor([[1, 2, 3]])).tolist()
    [[2]]
    """

    rank = 1


class ConstantPad2d(_ConstantPad):
    """One number around the last two axes.

    >>> nn.ConstantPad2d((1, 0, 0, 1), 9)(hcq.tensor([[1, 2]])).tolist()
    [[9, 1, 2], [9, 9, 9]]
    """


class ConstantPad3d(_ConstantPad):
    """One number around the last three axes.

    >>> nn.ConstantPad3d(1, 9)(Tensor.zeros(1, 1, 1)).shape
    (3, 3, 3)
    """

    rank = 3


class ReflectionPad1d(_Pad):
    """The last axis mirrored at its ends, which are not repeated.

    >>> nn.ReflectionPad1d(2)(hcq.tensor([[1, 2, 3]])).tolist()
    [[3, 2, 1, 2, 3, 2, 1]]
    """

    rank, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """The last two axes mirrored at their ends.

    >>> nn.ReflectionPad2d((1, 0, 0, 1))(hcq.tensor([[[1, 2], [3, 4]]])).tolist()
    [[[2, 1, 2], [4, 3, 4], [2, 1, 2]]]
    """

    mode = "reflect"


class ReflectionPad3d(_Pad):
    """The last three axes mirrored at their ends.

    >>> nn.ReflectionPad3d(1)(Tensor.zeros(1, 2, 2, 2)).shape
    (1, 4, 4, 4)
    """

    rank, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The ends of the last axis repeated.

    >>> nn.ReplicationPad1d((2, 1))(hcq.tensor([[1, 2, 3]])).tolist()
    [[1, 1, 1, 2, 3, 3]]
    """

    rank, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The ends of the last two axes repeated.

    >>> nn.ReplicationPad2d((1, 0, 0, 1))(hcq.tensor([[[1, 2], [3, 4]]])).tolist()
    [[[1, 1, 2], [3, 3, 4], [3, 3, 4]]]
    """

    mode = "replicate"


class ReplicationPad3d(_Pad):
    """The ends of the last three axes repeated.

    >>> nn.ReplicationPad3d(1)(Tensor.zeros(1, 1, 1, 1)).shape
    (1, 3, 3, 3)
    """

    rank, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """The last axis goes on at its other end.

    >>> nn.CircularPad1d((1, 2))(hcq.tensor([[[1, 2, 3]]])).tolist()
    [[[3, 1, 2, 3, 1, 2]]]
    """

    rank, mode = 1, "circular"


class CircularPad2d(_Pad):
    """The last two axes go on at their other ends.

    >>> nn.CircularPad2d(1)(hcq.tensor([[[[1, 2], [3, 4]]]]))[0, 0].tolist()
    [[4, 3, 4, 3], [2, 1, 2, 1], [4, 3, 4, 3], [2, 1, 2, 1]]
    """

    mode = "circular"


class CircularPad3d(_Pad):
    """The last three axes go on at their other ends.

    >>> nn.CircularPad3d(1)(Tensor.zeros(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    rank, mode = 3, "circular"
