"""Linear algebra under PyTorch's names: `hcq.torch.linalg.vector_norm(x)`, `hcq.torch.linalg.solve(A, B)`.

In       tensors
Out      lazy tensors of products, sums and norms; by name what the other files here have; `LinAlgError`
Next     factors.py and others (what takes matrices apart), ops/matrices.py (products), ops/factoring.py (methods)
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from hcq.frontend.core.errors import LinAlgError as LinAlgError
from hcq.frontend.core.errors import UsageError
from hcq.frontend.functions.methods import function_of
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import Axes
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType

METHODS = ("matmul",)
FOUND_IN = {  # a function -> its file
    **dict.fromkeys(
        "cholesky cholesky_ex cholesky_inverse cholesky_solve lu lu_factor lu_factor_ex lu_packed lu_solve lu_unpack "
        "solve_triangular triangular_solve".split(),
        "factors",
    ),
    **dict.fromkeys(
        "det inv inv_ex logdet matrix_power slogdet solve solve_ex tensorinv tensorsolve".split(), "solving"
    ),
    **dict.fromkeys("geqrf householder_product ormqr qr qr_some".split(), "orthogonal"),
    **dict.fromkeys(
        "cond eigh eigvalsh lstsq matrix_rank pca_lowrank pinv plain_svd singular_norm svd svd_lowrank svdvals".split(),
        "spectra",
    ),
    **dict.fromkeys("ldl_factor ldl_factor_ex ldl_solve".split(), "indefinite"),
    **dict.fromkeys(("eig", "eigvals"), "eigen"),
    "matrix_exp": "exponential",
}


@checked
def vector_norm(
    x: Tensor, ord: float = 2, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    """The norm of all elements, or over axes: see `Tensor.norm`.

    >>> x = Tensor([3.0, 0.0, -4.0])
    >>> [hcq.torch.linalg.vector_norm(x, ord).item() for ord in (0, 1, 2, float("inf"))]
    [2.0, 7.0, 5.0, 4.0]
    """
    x = x.abs() if x.is_complex() else x
    x = x if dtype is None else x.cast(dtype)
    if not x.dtype.is_float:
        raise UsageError(f"[vector_norm] {x.dtype.name} has no fractions. Cast first: x.float().")
    axes = x._axes("vector_norm", dim)
    if ord < 0 or ord == float("inf"):
        x._not_empty("vector_norm", axes)
    return x.norm(ord, axes if x.ndim else None, keepdim)


@checked
def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: tuple[int, ...] | list[int] = (-2, -1),
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Tensor:
    """A norm of matrices: "fro"; 1, -1, inf, -inf, the greatest or least sum of sizes of a column or row; 2, -2, "nuc",
    the greatest or least singular value, or the sum of all.

    >>> A = Tensor([[1.0, -2.0], [3.0, 4.0]])
    >>> hcq.torch.linalg.matrix_norm(A, 1).item(), hcq.torch.linalg.matrix_norm(A, float("inf")).item()
    (6.0, 7.0)
    """
    x = A if dtype is None else A.cast(dtype)
    x = x.abs() if x.is_complex() and ord not in ("nuc", 2, -2) else x
    if len(dim) != 2 or x.ndim < 2:
        raise UsageError(f"[matrix_norm] shape {x.shape}, dim {tuple(dim)}: give matrices, and two axes.")
    rows, columns = (x._axis("matrix_norm", axis) for axis in dim)
    if ord == "fro":
        return x.norm(2.0, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        rest = [axis for axis in range(x.ndim) if axis not in (rows, columns)]
        value = __getattr__("singular_norm")(x.permute([*rest, rows, columns]), ord)
        kept = [1 if axis in (rows, columns) else size for axis, size in enumerate(x.shape)]
        return value.reshape(kept) if keepdim else value  # type: ignore[no-any-return]
    if ord not in (1, -1, float("inf"), -float("inf")):
        raise UsageError(f"[matrix_norm] ord={ord!r}: use 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.")
    summed, chosen = (rows, columns) if abs(float(ord)) == 1 else (columns, rows)
    sums = x.abs().sum(summed, keepdim=True)
    best = sums.amax(chosen, keepdim=True) if float(ord) > 0 else sums.amin(chosen, keepdim=True)
    if keepdim:
        return best
    return best.reshape([size for axis, size in enumerate(x.shape) if axis not in (rows, columns)])


@checked
def norm(
    A: Tensor,
    ord: float | str | None = None,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Tensor:
    """The norm of a vector, or of a matrix where two axes, or a word such as "fro", are given.

    >>> A = Tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> hcq.torch.linalg.norm(A).item(), hcq.torch.linalg.norm(A, 2).item(), hcq.torch.linalg.norm(A, dim=1).tolist()
    (5.0, 4.0, [3.0, 4.0])
    """
    if ord is None:
        return vector_norm(A, 2.0, dim, keepdim, dtype)
    has_two = A.ndim == 2 if dim is None else isinstance(dim, (tuple, list)) and len(dim) == 2
    if isinstance(ord, str) or has_two:
        return matrix_norm(A, ord, dim if isinstance(dim, (tuple, list)) else (-2, -1), keepdim, dtype)
    return vector_norm(A, ord, dim, keepdim, dtype)


@checked
def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers of each element of vectors, rising, as rows: as many as there are elements, or N.

    >>> hcq.torch.linalg.vander(hcq.tensor([2, 3]), N=4).tolist()
    [[1, 2, 4, 8], [1, 3, 9, 27]]
    """
    x = x if x.ndim else x.unsqueeze(0)
    return x.vander(x.shape[-1] if N is None else N, increasing=True)


@checked
def vecdot(x: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    """Sums of products along an axis, the first conjugated if it is complex.

    >>> hcq.torch.linalg.vecdot(hcq.tensor([[1, 2], [3, 4]]), hcq.tensor([10, 1])).tolist()
    [12, 34]
    """
    x = x.conj() if x.is_complex() else x
    return (x * y).sum(dim, dtype=(x * y).dtype)


@checked
def cross(input: Tensor, other: Tensor, dim: int = -1) -> Tensor:
    """The cross product along an axis of size 3, the last one unless given.

    >>> hcq.torch.linalg.cross(Tensor([1.0, 0.0, 0.0]), Tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    return input.cross(other, dim)


@checked
def diagonal(A: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of the last two axes, unless others are given: see `Tensor.diagonal`.

    >>> hcq.torch.linalg.diagonal(Tensor.zeros(5, 2, 3)).shape
    (5, 2)
    """
    return A.diagonal(offset, dim1, dim2)


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order that takes the fewest multiplications; the ends may be vectors.

    >>> hcq.torch.linalg.multi_dot([Tensor.ones(2), Tensor.ones(2, 3), Tensor.ones(3)]).item()
    6.0
    """
    if not isinstance(tensors, (list, tuple)) or len(tensors) < 2:
        raise UsageError("[multi_dot] give a list of two tensors at least.")
    first, last = tensors[0], tensors[-1]
    parts = list(tensors)
    if first.ndim == 1:
        parts[0] = first.unsqueeze(0)
    if last.ndim == 1:
        parts[-1] = last.unsqueeze(1)
    sizes = [part.shape[0] for part in parts] + [parts[-1].shape[1]]

    @functools.cache
    def cheapest(i: int, j: int) -> tuple[int, int]:
        """(multiplications, where to cut) of parts i .. j."""
        if i == j:
            return 0, i
        costs = [
            (cheapest(i, k)[0] + cheapest(k + 1, j)[0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
            for k in range(i, j)
        ]
        return min(costs)

    def product(i: int, j: int) -> Any:
        if i == j:
            return parts[i]
        cut = cheapest(i, j)[1]
        return product(i, cut).matmul(product(cut + 1, j))

    result: Tensor = product(0, len(parts) - 1)
    shape = ([] if first.ndim == 1 else [sizes[0]]) + ([] if last.ndim == 1 else [sizes[-1]])
    return result.reshape(shape)


def __getattr__(name: str) -> Any:
    if name in FOUND_IN:
        function = getattr(importlib.import_module(f"hcq.frontend.more.linalg.{FOUND_IN[name]}"), name)
    elif name in METHODS:
        function = function_of(name)
    else:
        raise AttributeError(f"module 'hcq.torch.linalg' has no function {name!r}")
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted([*globals(), *METHODS, *FOUND_IN])
