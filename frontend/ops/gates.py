"""Gates: activations that cut, shrink or weigh: celu, glu, prelu, thresholds.

In       tensors and Python numbers
Out      lazy tensors, elementwise but for glu, which halves an axis
Next     activation.py (relu and its relatives)
"""

from __future__ import annotations

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import constant, exponential
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.base import Methods, Self, in_float
from hcq.ir.elementwise.declaration import FLAT
from hcq.ir.node import Node, const


class Gates(Methods):
    """celu, glu, prelu, hardshrink, softshrink, tanhshrink, threshold."""

    __slots__ = ()

    @in_float
    def celu(self, alpha: float = 1.0) -> Self:
        """x, or alpha * (exp(x / alpha) - 1) below zero. Raises UsageError for alpha 0. Source: Barron 2017.

        >>> print(Tensor([-1.0, 2.0]).celu(alpha=2.0))
        tensor([-0.7869,  2.0000])
        """
        if alpha == 0:
            raise UsageError("[celu] alpha=0.0 would be divided by. Use another one.")
        value = (self > 0.0).where(self, (self / alpha).expm1() * alpha)
        return self._like(CELU.of(value.node, self.node, const(1.0 / alpha, self.node.dtype)))

    @in_float
    def glu(self, dim: int = -1) -> Self:
        """The first half of an axis times sigmoid of the second. Raises UsageError for an odd size.

        >>> Tensor([1.0, 2.0, 0.0, 0.0]).glu().tolist()
        [0.5, 1.0]
        """
        axis = self._axis_of("glu", dim)
        size = self.node.shape[axis]
        if size % 2:
            raise UsageError(f"[glu] axis {axis} of size {size} has no halves. Give an even size.")
        return self._part(axis, 0, size // 2) * self._part(axis, size // 2, size).sigmoid()

    def prelu(self, weight: Self) -> Self:
        """x, or weight * x below zero: one weight, or one for each element of axis 1.

        >>> Tensor([[-1.0, -1.0]]).prelu(Tensor([0.5, 2.0])).tolist()
        [[-0.5, -2.0]]
        """
        shape = self.node.shape
        count = weight.numel()
        if count != 1:
            if len(shape) < 2 or shape[1] != count:
                raise UsageError(
                    f"[prelu] {count} weights for a tensor of shape {shape}: give one, or one for each channel."
                )
            weight = weight._reshape((count, *(1,) * (len(shape) - 2)))
        else:
            weight = weight._reshape(())
        return (self > 0).where(self, self * weight)

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """x, and 0 where |x| is at most lambd.

        >>> Tensor([-1.0, 0.5, 2.0]).hardshrink().tolist()
        [-1.0, 0.0, 2.0]
        """
        inside = (self >= -lambd) & (self <= lambd)
        return inside.where(self._like(const(0, self.node.dtype)), self)

    def softshrink(self, lambd: float = 0.5) -> Self:
        """x moved towards zero by lambd, and 0 where |x| is at most that. Raises UsageError below 0.

        >>> Tensor([-1.0, 0.25, 2.0]).softshrink(0.5).tolist()
        [-0.5, 0.0, 1.5]
        """
        if lambd < 0:
            raise UsageError(f"[softshrink] lambd={lambd}: use 0 or more.")
        inside = self._like(const(0, self.node.dtype))
        moved = (self > lambd).where(self - lambd, (self < -lambd).where(self + lambd, inside))
        return self.isnan().where(self, moved)

    @in_float
    def tanhshrink(self) -> Self:
        """x - tanh(x).

        >>> print(Tensor([0.0, 2.0]).tanhshrink())
        tensor([0.0000, 1.0360])
        """
        return self - self.tanh()

    def threshold(self, threshold: float, value: float) -> Self:
        """x where it is greater than the threshold, elsewhere `value`.

        >>> Tensor([1.0, 2.0, 3.0]).threshold(2.0, -1.0).tolist()
        [-1.0, -1.0, 3.0]
        """
        other = self._like(constant("threshold", value, self.node.dtype))
        return (self <= threshold).where(other, self)


def _slope_of_celu(node: Node, g: Node) -> Node:
    _, x, share = node.src
    return g * (x > 0.0).where(const(1.0, x.dtype), exponential(x * share))


CELU = Function("celu", _slope_of_celu, FLAT)
