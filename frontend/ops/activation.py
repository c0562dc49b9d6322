"""Activations: relu and its relatives.

In       tensors
Out      lazy tensors, elementwise; float16 and bfloat16 are computed in float32 and rounded once
Next     smooth.py (sigmoid, tanh and their like), gates.py (glu, prelu), normalisation.py (softmax)

A function without a slope of its own is written so that no branch overflows or divides by zero, chosen or not: a
gradient flows through both branches of a WHERE, and zero times infinity would be NaN.
"""

from __future__ import annotations

from hcq.frontend.core.nodes import constant, exponential
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.base import Methods, Self, in_float
from hcq.ir.elementwise.declaration import FLAT
from hcq.ir.node import Node, const


class Activation(Methods):
    """relu and its relatives."""

    __slots__ = ()

    def relu(self) -> Self:
        """max(x, 0); at zero its slope is 0, as in PyTorch. The dtype stays.

        >>> x = Tensor([-1.0, 0.0, 2.0], requires_grad=True)
        >>> x.relu().sum().backward()
        >>> x.relu().tolist(), x.grad.tolist()
        ([0.0, 0.0, 2.0], [0.0, 0.0, 1.0])
        """
        return (self <= 0).where(0, self)

    def relu6(self) -> Self:
        """min(max(x, 0), 6).

        >>> Tensor([-1.0, 3.0, 8.0]).relu6().tolist()
        [0.0, 3.0, 6.0]
        """
        return self.hardtanh(0, 6)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """x, or negative_slope * x below zero.

        >>> Tensor([-4.0, 2.0]).leaky_relu(0.5).tolist()
        [-2.0, 2.0]
        """
        return (self > 0).where(self, self * negative_slope)

    @in_float
    def elu(self, alpha: float = 1.0) -> Self:
        """x, or alpha * (exp(x) - 1) below zero. Source: Clevert et al. 2015.

        >>> print(Tensor([-1.0, 2.0]).elu())
        tensor([-0.6321,  2.0000])
        """
        value = (self > 0.0).where(self, self.expm1() * alpha)
        return self._like(ELU.of(value.node, self.node, const(alpha, self.node.dtype)))

    @in_float
    def selu(self) -> Self:
        """scale * elu(x, alpha), with the constants that keep mean 0 and variance 1. Source: Klambauer et al. 2017.

        >>> print(Tensor([-1.0, 1.0]).selu())
        tensor([-1.1113,  1.0507])
        """
        alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
        return self.elu(alpha) * scale

    @in_float
    def softsign(self) -> Self:
        """x / (1 + |x|).

        >>> Tensor([-1.0, 3.0]).softsign().tolist()
        [-0.5, 0.75]
        """
        return self / (self.abs() + 1)

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """min_val or max_val beyond them, x between; unlike clamp, at them its slope is 0, as in PyTorch.

        >>> x = Tensor([-2.0, 1.0], requires_grad=True)
        >>> x.hardtanh().sum().backward()
        >>> x.grad.tolist()
        [0.0, 0.0]
        """
        dtype = self.node.dtype
        low, high = (self._like(constant("hardtanh", bound, dtype)) for bound in (min_val, max_val))
        return (self <= low).where(low, (self >= high).where(high, self))

    @in_float
    def hardsigmoid(self) -> Self:
        """relu6(x + 3) / 6.

        >>> Tensor([-4.0, 0.0, 4.0]).hardsigmoid().tolist()
        [0.0, 0.5, 1.0]
        """
        return (self + 3).relu6() / 6

    @in_float
    def hardswish(self) -> Self:
        """x * relu6(x + 3) / 6.

        >>> Tensor([-4.0, -3.0, 4.0]).hardswish().tolist()
        [-0.0, -0.0, 4.0]
        """
        return self * self.hardsigmoid()


def _slope_of_elu(node: Node, g: Node) -> Node:
    _, x, alpha = node.src
    return g * (x > 0.0).where(const(1.0, x.dtype), exponential(x) * alpha)


ELU = Function("elu", _slope_of_elu, FLAT)
