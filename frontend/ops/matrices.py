"""Matrices: products with something added, Kronecker and tensor products, crosses, powers, norms by PyTorch's names.

In       tensors
Out      lazy tensors of products and sums
Next     product.py (matmul, einsum), ../more/linalg/functions.py (`hcq.torch.linalg`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.frontend.core.base import thread_modes
from hcq.frontend.core.errors import UsageError
from hcq.frontend.grad.function import constant_in
from hcq.frontend.ops.base import Methods, Self, in_float_together, narrowed


class Matrices(Methods):
    """addmm and related products, inner, vdot, kron, tensordot, cross, matrix_power."""

    __slots__ = ()

    def _plus(self, product: Self, beta: Any, alpha: Any) -> Self:
        """beta * self + alpha * product; with beta 0 this tensor counts for nothing, NaN included."""
        if not product.node.dtype.is_float:
            alpha, beta = int(alpha), int(beta)  # whole numbers have whole factors, as in PyTorch
        product = product if type(alpha) is int and alpha == 1 else (product * alpha).cast(product.node.dtype)
        if beta == 0:
            return product
        mine = self if type(beta) is int and beta == 1 else (self * beta).cast(self.node.dtype)
        return mine + product

    def _plus_product(self, a: Self, b: Self, is_summed: bool, beta: Any, alpha: Any) -> Self:
        """beta * self + alpha * (a @ b), or the sum of these products over the batch; rounded once."""
        if thread_modes:
            a, b = narrowed(a, b)
        return self._plus_matmul(a, b, is_summed, beta, alpha)

    @in_float_together
    def _plus_matmul(self, a: Self, b: Self, is_summed: bool, beta: Any, alpha: Any) -> Self:
        product = a._matmul(b)
        return self._plus(product.sum(0) if is_summed else product, beta, alpha)

    def addmm(self, mat1: Self, mat2: Self, *, beta: Any = 1, alpha: Any = 1) -> Self:
        """beta * self + alpha * (mat1 @ mat2).

        >>> Tensor([1.0, 2.0]).addmm(Tensor([[1.0], [2.0]]), Tensor([[1.0, 10.0]]), beta=0).tolist()
        [[1.0, 10.0], [2.0, 20.0]]
        """
        return self._plus_product(mat1, mat2, False, beta, alpha)

    def addmv(self, mat: Self, vec: Self, *, beta: Any = 1, alpha: Any = 1) -> Self:
        """beta * self + alpha * (mat @ vec).

        >>> Tensor([1.0]).addmv(Tensor([[1.0, 2.0]]), Tensor([3.0, 4.0]), alpha=2).tolist()
        [23.0]
        """
        return self._plus_product(mat, vec, False, beta, alpha)

    @in_float_together
    def addr(self, vec1: Self, vec2: Self, *, beta: Any = 1, alpha: Any = 1) -> Self:
        """beta * self + alpha * the outer product of two vectors.

        >>> Tensor([[1.0]]).addr(Tensor([1.0, 2.0]), Tensor([10.0, 20.0])).tolist()
        [[11.0, 21.0], [21.0, 41.0]]
        """
        outer = vec1.unsqueeze(1) * vec2
        if outer.node.dtype.is_bool:
            outer = outer & bool(alpha)
            return outer if not beta else self | outer
        return self._plus(outer, beta, alpha)

    def baddbmm(self, batch1: Self, batch2: Self, *, beta: Any = 1, alpha: Any = 1) -> Self:
        """beta * self + alpha * (batch1 @ batch2), of batches of matrices.

        >>> Tensor([[[1.0]]]).baddbmm(Tensor.ones(2, 1, 3), Tensor.ones(2, 3, 1)).tolist()
        [[[4.0]], [[4.0]]]
        """
        return self._plus_product(batch1, batch2, False, beta, alpha)

    def addbmm(self, batch1: Self, batch2: Self, *, beta: Any = 1, alpha: Any = 1) -> Self:
        """beta * self + alpha * the sum of batch1 @ batch2 over the batch.

        >>> Tensor([[1.0]]).addbmm(Tensor.ones(4, 1, 2), Tensor.ones(4, 2, 1)).tolist()
        [[9.0]]
        """
        return self._plus_product(batch1, batch2, True, beta, alpha)

    def vdot(self, other: Self) -> Self:
        """The sum of products of two vectors.

        >>> Tensor([1 + 1j]).vdot(Tensor([1 + 1j])).item()
        (2+0j)
        """
        if len(self.node.shape) != 1 or len(other.node.shape) != 1:
            raise UsageError(f"[vdot] {self.node.shape} and {other.node.shape}: vdot is for two vectors.")
        return self.matmul(other)

    def inner(self, other: Self) -> Self:
        """Sums of products over both last axes: (..., k) and (..., k) -> (..., ...); of a number the product.

        >>> hcq.tensor([[1, 2], [3, 4]]).inner(hcq.tensor([[1, 1], [0, 1]])).tolist()
        [[3, 2], [7, 4]]
        """
        a, b = self.node.shape, other.node.shape
        if not a or not b:
            return self * other
        return self.tensordot(other, ([-1], [-1]))

    def tensordot(self, other: Self, dims: Any = 2) -> Self:
        """Sums of products over axes: the last `dims` of this tensor and the first of the other, or two lists.

        >>> a, b = Tensor.ones(2, 3, 4), Tensor.ones(4, 3, 5)
        >>> a.tensordot(b, dims=([1, 2], [1, 0])).shape
        (2, 5)
        """
        mine, its = self.node.shape, other.node.shape
        if isinstance(dims, int):
            if not 0 <= dims <= min(len(mine), len(its)):
                raise UsageError(f"[tensordot] dims={dims} of {mine} and {its}: use 0 to the number of axes.")
            left, right = list(range(len(mine) - dims, len(mine))), list(range(dims))
        else:
            if not isinstance(dims, (tuple, list)) or len(dims) != 2:
                raise UsageError("[tensordot] dims: give an int, or two lists of axes.")
            given = [(side,) if isinstance(side, int) else tuple(side) for side in dims]
            left = [self._axis("tensordot", axis) for axis in given[0]]
            right = [other._axis("tensordot", axis) for axis in given[1]]
        if len(left) == len(right) and [mine[a] for a in left] != [its[a] for a in right]:
            one, two = self, other  # a size of 1 meets any other: the sum over that axis
            for at, its_at in zip(left, right):
                if mine[at] != its[its_at] and mine[at] == 1:
                    two = two.sum(its_at, keepdim=True).cast(other.node.dtype)
                elif mine[at] != its[its_at] and its[its_at] == 1:
                    one = one.sum(at, keepdim=True).cast(self.node.dtype)
            if one is not self or two is not other:
                return one.tensordot(two, (left, right))
        if [mine[a] for a in left] != [its[a] for a in right]:
            raise UsageError(f"[tensordot] axes {left} of {mine} and {right} of {its}: sizes must agree.")
        kept = [a for a in range(len(mine)) if a not in left]
        rest = [a for a in range(len(its)) if a not in right]
        inner = 1
        for axis in left:
            inner *= mine[axis]
        rows, columns = tuple([mine[a] for a in kept]), tuple([its[a] for a in rest])
        a = self.permute([*kept, *left])._reshape((_count(rows), inner))
        b = other.permute([*right, *rest])._reshape((inner, _count(columns)))
        return a.matmul(b)._reshape((*rows, *columns))

    def kron(self, other: Self) -> Self:
        """Each element of this tensor times the whole other: sizes multiply, axis by axis.

        >>> hcq.tensor([1, 2]).kron(hcq.tensor([1, 10])).tolist()
        [1, 10, 2, 20]
        """
        rank = max(len(self.node.shape), len(other.node.shape))
        mine = (1,) * (rank - len(self.node.shape)) + self.node.shape
        its = (1,) * (rank - len(other.node.shape)) + other.node.shape
        a = self._reshape(tuple([n for size in mine for n in (size, 1)]))
        b = other._reshape(tuple([n for size in its for n in (1, size)]))
        return (a * b)._reshape(tuple([m * n for m, n in zip(mine, its)]))

    @in_float_together
    def cross(self, other: Self, dim: int | None = None) -> Self:
        """The cross product along an axis of size 3: the first such one, unless given.

        >>> hcq.tensor([1, 0, 0]).cross(hcq.tensor([0, 1, 0])).tolist()
        [0, 0, 1]
        """
        shape = type(self).broadcast_shapes(self.node.shape, other.node.shape)
        if dim is None:
            dim = next((axis for axis, size in enumerate(shape) if size == 3), -1)
        a, b = self.expand(shape), other.expand(shape)
        axis = a._axis_of("cross", dim)
        if shape[axis] != 3:
            raise UsageError(f"[cross] axis {axis} of shape {shape}: a cross product needs size 3.")
        turn = [a.roll(-1, axis), a.roll(1, axis), b.roll(-1, axis), b.roll(1, axis)]
        return turn[0] * turn[3] - turn[1] * turn[2]

    def matrix_power(self, n: int) -> Self:
        """A square matrix times itself, n times; 0 gives the identity, a negative n the power of the inverse.

        >>> Tensor([[1.0, 1.0], [0.0, 1.0]]).matrix_power(-3).tolist()
        [[1.0, -3.0], [0.0, 1.0]]
        """
        shape = self.node.shape
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise UsageError(f"[matrix_power] shape {shape}: give square matrices.")
        if not -1 << 16 < n < 1 << 16:
            raise UsageError(f"[matrix_power] n={n}: use -65535 to 65535.")
        if n < 0:
            return self.inverse().matrix_power(-n)
        if n == 0:
            return constant_in(self, self.eye(shape[-1], dtype=self.dtype, device=self.device).expand(shape))
        result, square = None, self
        while True:
            if n & 1:
                result = square if result is None else result.matmul(square)
            n >>= 1
            if not n:
                assert result is not None
                return result
            square = square.matmul(square)

    def vander(self, N: int | None = None, increasing: bool = False) -> Self:
        """The powers of each element of a vector, as rows: N of them, falling unless `increasing`.

        >>> hcq.tensor([2, 3]).vander().tolist()
        [[2, 1], [3, 1]]
        """
        size = self.numel() if N is None else N
        if len(self.node.shape) < 1 or size < 0:
            raise UsageError(f"[vander] shape {self.node.shape}, N={N}: give a vector, and N of 0 or more.")
        columns = [self.unsqueeze(-1) ** power for power in range(size)]
        if not columns:
            return self.unsqueeze(-1)._part(len(self.node.shape), 0, 0)
        return type(self).cat(columns if increasing else columns[::-1], dim=-1)


def _count(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
