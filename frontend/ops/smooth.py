"""Smooth functions: sigmoid, tanh, erf, and what is precise near zero where exp and log are not.

In       tensors
Out      lazy tensors, elementwise; float16 and bfloat16 are computed in float32 and rounded once
Next     special/elementary.py (how each is computed), activation.py (relu and its relatives), functions.py (exp, log)
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.base import Methods, Self, in_float
from hcq.frontend.special import elementary as special
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node


class Smooth(Methods):
    """sigmoid, tanh, erf, gelu, silu, softplus, and logarithms near one."""

    __slots__ = ()

    def _in_float(self, of: Callable[[Node], Node]) -> Self:
        """A function of nodes, at least in float32: narrow floats are rounded once, at the end."""
        node = self.node
        have = node.dtype
        if have.is_float and have.itemsize >= 4:
            return self._like(of(node))
        result = of(node.cast(dtypes.float32))
        return self._like(result.cast(have) if have.is_float else result)

    def erf(self) -> Self:
        """The error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.

        >>> print(Tensor([-1.0, 0.0, 4.0]).erf())
        tensor([-0.8427,  0.0000,  1.0000])
        """
        return self._in_float(special.erf)

    def tanh(self) -> Self:
        """Hyperbolic tangent, (exp(2 x) - 1) / (exp(2 x) + 1).

        >>> print(Tensor([-100.0, 0.0, 1.0]).tanh())
        tensor([-1.0000,  0.0000,  0.7616])
        """
        return self._in_float(special.tanh)

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x)), without overflow.

        >>> Tensor([-1000.0, 0.0, 1000.0]).sigmoid().tolist()
        [0.0, 0.5, 1.0]
        """
        return self._in_float(special.sigmoid)

    @in_float
    def gelu(self, approximate: str = "none") -> Self:
        """x times the normal distribution's integral: by erf ("none"), or by a formula with tanh ("tanh").

        Raises  UsageError for another `approximate`
        Source  Hendrycks and Gimpel 2016

        >>> print(Tensor([-1.0, 0.0, 1.0]).gelu())
        tensor([-0.1587,  0.0000,  0.8413])
        """
        if approximate == "tanh":
            cubic = self + 0.044715 * self * self * self
            return 0.5 * self * (1.0 + (math.sqrt(2.0 / math.pi) * cubic).tanh())
        if approximate != "none":
            raise UsageError(f"[gelu] approximate={approximate!r} is unknown. Use 'none' or 'tanh'.")
        return 0.5 * self * (1.0 + (self * math.sqrt(0.5)).erf())

    def silu(self) -> Self:
        """x * sigmoid(x).

        >>> print(Tensor([-1.0, 0.0, 1.0]).silu())
        tensor([-0.2689,  0.0000,  0.7311])
        """
        return self._in_float(special.silu)

    swish = silu

    def mish(self) -> Self:
        """x * tanh(softplus(x)). Source: Misra 2019.

        >>> print(Tensor([-1.0, 0.0, 1.0]).mish())
        tensor([-0.3034,  0.0000,  0.8651])
        """
        return self._in_float(special.mish)

    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """log(1 + exp(beta * x)) / beta; x itself where beta * x is beyond the threshold.

        >>> print(Tensor([-1.0, 0.0, 30.0]).softplus())
        tensor([ 0.3133,  0.6931, 30.0000])
        """
        return self._in_float(lambda x: special.softplus(x, beta, threshold))

    def logsigmoid(self) -> Self:
        """log(sigmoid(x)), without overflow.

        >>> Tensor([-1000.0]).logsigmoid().tolist()
        [-1000.0]
        """
        return self._in_float(special.logsigmoid)

    def log1p(self) -> Self:
        """log(1 + x), precise near zero.

        >>> Tensor([-1.0, 0.0]).log1p().tolist()
        [-inf, 0.0]
        """
        return self._in_float(special.log1p)

    def expm1(self) -> Self:
        """exp(x) - 1, precise near zero.

        >>> Tensor([1e-10]).expm1().item() == Tensor([1e-10]).item(), (Tensor([1e-10]).exp() - 1).item()
        (True, 0.0)
        """
        return self._in_float(special.expm1)

    def sinh(self) -> Self:
        """Hyperbolic sine, (exp(x) - exp(-x)) / 2; precise near zero, infinite only where the result is.

        >>> Tensor([0.0, 1e-10]).sinh().tolist() == Tensor([0.0, 1e-10]).tolist()
        True
        """
        return self._in_float(special.sinh)

    def cosh(self) -> Self:
        """Hyperbolic cosine, (exp(x) + exp(-x)) / 2; infinite only where the result is.

        >>> Tensor([0.0, 100.0]).cosh().tolist()
        [1.0, inf]
        """
        return self._in_float(special.cosh)
