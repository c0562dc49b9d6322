"""Products of complex tensors: matmul and related products, einsum, convolutions.

In       tensors of which one at least is complex
Out      lazy complex tensors
Next     ops/product.py and ops/matrices.py (the same for real tensors)

Each of these is linear in both operands: the product of (a + ib) and (c + id) is four of real tensors, or two
where one operand is real. Nothing is conjugated but the first operand of vdot.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.complex.pair import Pair
from hcq.frontend.tensor import Tensor

NAMES = "matmul mm bmm mv dot outer inner tensordot kron conv1d conv2d".split()


def bilinear(product: Callable[[Any, Any], Tensor], x: Any, y: Any) -> Any:
    """A product that is linear in both of its operands, of which either may be real."""
    if not isinstance(x, Pair):
        if not isinstance(y, Pair):
            return product(x, y)
        return Pair.of(product(x.cast(y.real.dtype), y.real), product(x.cast(y.real.dtype), y.imag))
    if not isinstance(y, Pair):
        y = y.cast(x.real.dtype) if not y.dtype.is_float else y
        return Pair.of(product(x.real, y), product(x.imag, y))
    (a, b), (c, d) = x.parts, y.parts
    return Pair.of(product(a, c) - product(b, d), product(a, d) + product(b, c))


def _method(name: str) -> Callable[..., Any]:
    of_real = getattr(Tensor, name)

    @functools.wraps(of_real)
    def method(self: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        other = self._met(name, other)
        if not isinstance(other, Tensor):
            raise UsageError(f"[{name}] {other!r} is a number. Multiply with *.")
        bias = kwargs.pop("bias", None)
        if name.startswith("conv") and args:
            bias, *rest = args
            args = (None, *rest)
        product = bilinear(lambda x, y: of_real(x, y, *args, **kwargs), self, other)
        return product if bias is None else product + bias.reshape(-1, *[1] * int(name[4]))

    return method


class Products(Pair):
    """The methods of NAMES, and what is made of them."""

    __slots__ = ()

    def __matmul__(self, other: Any) -> Any:
        return self.matmul(other)

    def __rmatmul__(self, other: Any) -> Any:
        return self.of(self._operand("matmul", other)).matmul(self)

    def vdot(self, other: Any) -> Any:
        """The sum of products of two vectors, the first conjugated: (n,) and (n,) -> ()."""
        return self.conj().dot(other)

    def linear(self, weight: Any, bias: Any = None) -> Any:
        """self @ weight.T + bias."""
        result = self.matmul(weight.mT if weight.ndim == 2 else weight)
        return result if bias is None else result + bias

    def addmm(self, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        """beta * self + alpha * (mat1 @ mat2)."""
        return self._plus(mat1 @ mat2, beta, alpha)

    def addmv(self, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        """beta * self + alpha * (mat @ vec)."""
        return self._plus(mat @ vec, beta, alpha)

    def addr(self, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        """beta * self + alpha * outer(vec1, vec2)."""
        return self._plus(vec1.unsqueeze(1) * vec2, beta, alpha)

    def baddbmm(self, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        """beta * self + alpha * (batch1 @ batch2)."""
        return self._plus(batch1 @ batch2, beta, alpha)

    def addbmm(self, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        """beta * self + alpha * the sum of the matrices of batch1 @ batch2."""
        return self._plus((batch1 @ batch2).sum(0), beta, alpha)

    def _plus(self, product: Any, beta: Any, alpha: Any) -> Any:
        product = product if alpha == 1 else product * alpha
        return product + (self if beta == 1 else self * beta) if beta != 0 else product

    @staticmethod
    def einsum(formula: str, *operands: Any) -> Any:
        """Sums of products by letters, of which some operands are complex: see `Tensor.einsum`."""
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = tuple(operands[0])
        return _einsum(formula, list(operands), 0)


def _einsum(formula: str, operands: list[Any], place: int) -> Any:
    """Each complex operand from `place` on by its parts: what the others do with them is linear."""
    while place < len(operands) and not isinstance(operands[place], Pair):
        place += 1
    if place == len(operands):
        return Tensor.einsum(formula, *operands)
    of_real, of_imag = (
        _einsum(formula, [*operands[:place], part, *operands[place + 1 :]], place + 1)
        for part in operands[place].parts
    )
    if not isinstance(of_real, Pair):
        return Pair.of(of_real, of_imag)
    return Pair.of(of_real.real - of_imag.imag, of_real.imag + of_imag.real)


for _name in NAMES:
    setattr(Products, _name, _method(_name))
