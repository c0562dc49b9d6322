"""Complex parts: what linear algebra of complex matrices is made of: real matrices that stand for complex ones, rules.

In       complex tensors
Out      real tensors with both parts, and complex ones of these; rules of gradients written with complex tensors
Next     over_complex.py (systems), unitary.py (QR, eigh, svd), eigen.py (eig), ../complex (complex tensors)

A complex matrix is a real one of twice its size, whose blocks of two rows and columns are [re, -im; im, re]. Sums,
products, inverses and exponentials of such matrices are again such, so a function that has one right value, the
inverse, a solution, a Cholesky factor, is that of the real matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.linalg.parts import EPSILON, Written, pieces
from hcq.frontend.ops.complex_arguments import complex_class
from hcq.frontend.tensor import Tensor


def of(real: Tensor, imag: Tensor | None = None) -> Any:
    """Complex numbers of these parts."""
    return complex_class().of(real, imag)


def complex_matrices(call: str, x: Any, name: str = "A", is_square: bool = False) -> Any:
    """The tensor as a complex one, if it has matrices. Raises UsageError otherwise."""
    if x.ndim < 2 or (is_square and x.shape[-1] != x.shape[-2]):
        what = "square matrices" if is_square else "a matrix, or a batch of matrices"
        raise UsageError(f"[{call}] {name} of shape {x.shape}: give {what}.")
    if not x.is_complex() and x.dtype not in EPSILON:
        raise UsageError(f"[{call}] {name} is {x.dtype.name}: cast it first: {name}.cfloat().")
    return of(x)


def complex_pair(call: str, A: Any, B: Any, is_square: bool = True) -> tuple[Any, Any]:
    """Both as complex tensors of one format. Raises UsageError where they are not alike."""
    A, B = complex_matrices(call, A, is_square=is_square), of(B)
    if A.dtype is not B.dtype:
        raise UsageError(f"[{call}] {A.dtype.name} and {B.dtype.name}: cast one: x.to({A.dtype}).")
    A.real._same_device(call, B.real)
    return A, B


def embedded(z: Any) -> Tensor:
    """The real matrices of twice the size: (..., m, n) to (..., 2 m, 2 n)."""
    upper = Tensor.stack([z.real, -z.imag], dim=-1)
    lower = Tensor.stack([z.imag, z.real], dim=-1)
    *batch, m, n = z.shape
    return Tensor.stack([upper, lower], dim=-3).reshape((*batch, 2 * m, 2 * n))


def taken(x: Tensor) -> Any:
    """What `embedded` undoes."""
    *batch, m, n = x.shape
    return stacked_of(x.reshape((*batch, m, n // 2, 2))[..., 0])


def stacked(z: Any) -> Tensor:
    """The first of each two columns of `embedded`: (..., m, n) to (..., 2 m, n)."""
    *batch, m, n = z.shape
    return Tensor.stack([z.real, z.imag], dim=-2).reshape((*batch, 2 * m, n))


def stacked_of(x: Tensor) -> Any:
    """What `stacked` undoes."""
    *batch, m, n = x.shape
    both = x.reshape((*batch, m // 2, 2, n))
    return of(both[..., 0, :], both[..., 1, :])


Shapes = Callable[[tuple[int, ...]], Sequence[tuple[int, ...]]]
Slope = Callable[[list[Any], list[Any], Any], Any]


class ComplexRule:
    """A function of matrices with complex results, whose slope is written with complex tensors.

    shapes(A.shape) are the shapes of the results of one matrix; slope(results, gradients, A) is A's gradient: for a
    real loss, that by its real part plus i times that by its imaginary part. The matrix may be real, the results are
    complex.
    """

    def __init__(self, name: str, shapes: Shapes, slope: Slope):
        self.shapes, self.slope = shapes, slope
        self.rules = {
            1: Written(f"{name}_of_real", self._part(0)),
            2: Written(name, self._part(0), self._part(1)),
        }

    def _part(self, which: int) -> Callable[..., Tensor]:
        def slope(value: Tensor, g: Tensor, *parts: Tensor) -> Tensor:
            A = of(*parts)
            found: Tensor = self.slope(self._unpacked(value, A), self._unpacked(g, A), A).parts[which]
            return found

        return slope

    def _unpacked(self, packed: Tensor, A: Any) -> list[Any]:
        shapes = [shape for shape in self.shapes(A.shape) for _ in range(2)]
        parts = pieces(packed, *shapes)
        return [of(real, imag) for real, imag in zip(parts[::2], parts[1::2], strict=True)]

    def of(self, results: Sequence[Any], A: Any) -> list[Any]:
        """These results, which the function has for this matrix, as complex tensors with gradients."""
        batch = A.shape[:-2]
        lines = [part.reshape((*batch, -1)) for result in results for part in of(result).parts]
        arguments = A.parts if A.is_complex() else (A,)
        return self._unpacked(self.rules[len(arguments)].of(Tensor.cat(lines, dim=-1), *arguments), A)


def unit(n: int, like: Any) -> Tensor:
    """The unit matrix in the format of the parts of a complex tensor."""
    return Tensor.eye(n, dtype=like.real.dtype, device=like.device)


def columns(x: Any) -> Any:
    """Numbers by column, for a product with matrices."""
    return x.unsqueeze(-2)


def rows(x: Any) -> Any:
    """Numbers by row."""
    return x.unsqueeze(-1)
