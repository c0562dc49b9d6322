"""Solving: systems, inverses and determinants of square matrices, from one LU.

In       batches of square matrices of float32 or float64
Out      lazy tensors; gradients use the factors that were found for the value
Next     factors.py (LU), orthogonal.py (lstsq), spectra.py (pinv)

A singular matrix is no error while it is computed: `solve` and `inv` give NaN there, and `solve_ex` and `inv_ex` the
info that says so. With `check_errors` these compute at once, and raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from hcq.frontend.core.errors import UsageError
from hcq.frontend.grad.function import constant_in
from hcq.frontend.more.linalg.factors import Factored, check_vectors, factored, through
from hcq.frontend.more.linalg.factors import _defined as defined
from hcq.frontend.more.linalg.parts import (
    EPSILON,
    Written,
    alike,
    also_complex,
    checked_info,
    expanded,
    identity,
    square,
)
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor


class SolveEx(NamedTuple):
    """What solve_ex gives."""

    result: Any
    info: Any


class InvEx(NamedTuple):
    """What inv_ex gives."""

    inverse: Any
    info: Any


class SlogDet(NamedTuple):
    """What slogdet gives."""

    sign: Any
    logabsdet: Any


def _solved(A: Tensor, B: Tensor, both: Tensor, rows: Tensor, adjoint: bool) -> Tensor:
    """A^-1 B, or A.mT^-1 B, of one batch, by factors that are known."""
    found = through(both.detach(), rows, B.detach(), adjoint)
    return _SOLVED[adjoint].of(found, A, B, both, rows)


def _slopes(adjoint: bool) -> Written:
    def of_a(X: Tensor, g: Tensor, A: Tensor, B: Tensor, both: Tensor, rows: Tensor) -> Tensor:
        back = _solved(A, g, both, rows, not adjoint)
        return -(X.matmul(back.mT) if adjoint else back.matmul(X.mT))

    def of_b(X: Tensor, g: Tensor, A: Tensor, B: Tensor, both: Tensor, rows: Tensor) -> Tensor:
        return _solved(A, g, both, rows, not adjoint)

    return Written(f"solve_{adjoint:d}", of_a, of_b, None, None)


_SOLVED = {adjoint: _slopes(adjoint) for adjoint in (False, True)}


def _of_systems(call: str, A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    """(X, info)."""
    square(call, A)
    alike(call, A, B)
    has_vectors = check_vectors(call, A, B)
    b = B.unsqueeze(-1) if has_vectors else B
    if has_vectors and not left:
        raise UsageError(
            f"[{call}] A of shape {A.shape}, B of shape {B.shape}: vectors stand on the right of A."
        )
    if not left:
        b = b.mT
    if b.shape[-2] != A.shape[-1]:
        raise UsageError(f"[{call}] A of shape {A.shape} and B of shape {B.shape}: sizes must agree.")
    batch = Tensor.broadcast_shapes(A.shape[:-2], b.shape[:-2])
    found = factored(A)
    both = expanded(found.both, batch)
    rows = found.rows.expand((*batch, A.shape[-1]))
    X = _solved(expanded(A, batch), expanded(b, batch), both, rows, not left)
    X = X if left else X.mT
    return (X.squeeze(-1) if has_vectors else X), found.info


@also_complex
@checked
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A @ X = B, or X @ A = B where not `left`; B may be a vector. A singular A gives NaN.

    >>> solve(Tensor([[2.0, 0.0], [1.0, 1.0]]), Tensor([2.0, 3.0])).tolist()
    [1.0, 2.0]
    """
    X, info = _of_systems("solve", A, B, left)
    has_vectors = check_vectors("solve", A, B)
    failed = (info != 0).unsqueeze(-1) if has_vectors else (info != 0).unsqueeze(-1).unsqueeze(-1)
    return X.masked_fill(failed, float("nan"))


@also_complex
@checked
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """(X, info), as `solve`: info is 0, or the number of the first pivot that is zero.

    check_errors   compute now. Raises UsageError where info is not 0

    >>> X, info = hcq.torch.linalg.solve_ex(Tensor([[2.0, 0.0], [0.0, 4.0]]), Tensor([2.0, 2.0]))
    >>> X.tolist(), info.item()
    ([1.0, 0.5], 0)
    """
    X, info = _of_systems("solve_ex", A, B, left)
    checked_info("solve_ex", info, check_errors, "pivot {0} is zero, the matrix is singular")
    return SolveEx(X, info)


def _inverse(A: Tensor) -> tuple[Tensor, Tensor]:
    found = factored(A.detach())
    unit = expanded(identity(A.shape[-1], A), A.shape[:-2])
    return _INVERSE.of(through(found.both, found.rows, unit, False), A), found.info


_INVERSE = Written("inverse", lambda X, g, A: -(X.mT.matmul(g).matmul(X.mT)))


@also_complex
@checked
def inv(A: Tensor) -> Tensor:
    """The inverse of square matrices; NaN where there is none.

    >>> inv(Tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    X, info = _inverse(square("inv", A))
    return defined(X, info)


@also_complex
@checked
def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvEx:
    """(inverse, info), as `inv`: info is 0, or the number of the first pivot that is zero.

    check_errors   compute now. Raises UsageError where info is not 0

    >>> hcq.torch.linalg.inv_ex(Tensor([[1.0, 2.0], [2.0, 4.0]])).info.item()
    2
    """
    X, info = _inverse(square("inv_ex", A))
    checked_info("inv_ex", info, check_errors, "pivot {0} is zero, the matrix is singular")
    return InvEx(X, info)


def _parity(found: Factored) -> Tensor:
    """The determinant of the permutation."""
    k = found.pivots.shape[-1]
    places = Tensor.arange(1, k + 1, dtype=found.pivots.dtype, device=found.pivots.device)
    return 1 - 2 * ((found.pivots != places).cast(found.pivots.dtype).sum(-1) % 2)


def _det_slope(value: Tensor, g: Tensor, A: Tensor, both: Tensor, rows: Tensor, parity: Tensor) -> Tensor:
    """g * det * inverse.mT; where a pivot is zero, the limit from a matrix close by."""
    n = A.shape[-1]
    unit = identity(n, A)
    diagonal = both.diagonal(0, -2, -1)
    tiny = (diagonal == 0).cast(A.dtype) * EPSILON[A.dtype]
    near = both + tiny.unsqueeze(-1) * unit
    det = near.diagonal(0, -2, -1).prod(-1) * parity
    is_near = (tiny.sum(-1) != 0).unsqueeze(-1).unsqueeze(-1)
    eye = expanded(unit, A.shape[:-2])
    exact = _solved(A, eye, near, rows, True) * value.unsqueeze(-1).unsqueeze(-1)
    limit = through(near.detach(), rows, eye, True) * det.unsqueeze(-1).unsqueeze(-1)
    return is_near.where(limit, exact) * g.unsqueeze(-1).unsqueeze(-1)


_DET = Written("det", _det_slope, None, None, None)
_LOGABSDET = Written(
    "logabsdet",
    lambda value, g, A, both, rows: (
        _solved(A, expanded(identity(A.shape[-1], A), A.shape[:-2]), both, rows, True)
        * g.unsqueeze(-1).unsqueeze(-1)
    ),
    None,
    None,
)


@also_complex
@checked
def det(A: Tensor) -> Tensor:
    """The determinant of square matrices.

    >>> det(Tensor([[2.0, 1.0], [1.0, 3.0]])).item()
    5.0
    """
    found = factored(square("det", A).detach())
    if not A.shape[-1]:
        return constant_in(A, Tensor.ones(A.shape[:-2], dtype=A.dtype, device=A.device))
    parity = _parity(found).cast(A.dtype)
    value = found.both.diagonal(0, -2, -1).prod(-1) * parity
    return _DET.of(value, A, found.both, found.rows, parity.detach())


@also_complex
@checked
def slogdet(A: Tensor) -> SlogDet:
    """(sign, logabsdet) of the determinant: the logarithm is that of its size; 0 and -inf of a singular matrix.

    >>> sign, logabsdet = hcq.torch.linalg.slogdet(Tensor([[1.0, 0.0], [0.0, -1.0]]))
    >>> sign.item(), logabsdet.item()
    (-1.0, 0.0)
    """
    found = factored(square("slogdet", A).detach())
    if not A.shape[-1]:
        zeros = Tensor.zeros(A.shape[:-2], dtype=A.dtype, device=A.device)
        return SlogDet(constant_in(A, zeros + 1.0), constant_in(A, zeros))
    diagonal = found.both.diagonal(0, -2, -1)
    sign = diagonal.sign().prod(-1) * _parity(found).cast(A.dtype)
    value = diagonal.abs().log().sum(-1)
    return SlogDet(constant_in(A, sign), _LOGABSDET.of(value, A, found.both, found.rows))


@also_complex
@checked
def logdet(A: Tensor) -> Tensor:
    """The logarithm of the determinant: NaN where that is negative, -inf where it is 0.

    >>> hcq.torch.linalg.logdet(Tensor([[[2.0, 0.0], [0.0, 0.5]], [[1.0, 0.0], [0.0, -1.0]]])).tolist()
    [0.0, nan]
    """
    sign, value = slogdet(A)
    return value.masked_fill(sign < 0, float("nan"))


@also_complex
@checked
def matrix_power(A: Tensor, n: int) -> Tensor:
    """A square matrix times itself, n times; 0 gives the identity, a negative n the power of the inverse.

    >>> hcq.torch.linalg.matrix_power(Tensor([[1.0, 1.0], [0.0, 1.0]]), 5).tolist()
    [[1.0, 5.0], [0.0, 1.0]]
    """
    return A.matrix_power(n)


@checked
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of A as a map of tensors: its first `ind` axes are what it gives, the others what it takes.

    >>> hcq.torch.linalg.tensorinv(Tensor.eye(6).reshape(2, 3, 6)).shape
    (6, 2, 3)
    """
    if ind <= 0 or prod(A.shape[:ind]) != prod(A.shape[ind:]):
        raise UsageError(
            f"[tensorinv] shape {A.shape}, ind={ind}: the first axes and the others must have as many elements."
        )
    n = prod(A.shape[:ind])
    return inv(A.reshape((n, n))).reshape((*A.shape[ind:], *A.shape[:ind]))


@checked
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B; `dims` of A are moved to its end before.

    >>> hcq.torch.linalg.tensorsolve(Tensor.eye(6).reshape(2, 3, 6), Tensor.ones(2, 3)).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    if dims is not None:
        moved = [A._axis("tensorsolve", axis) for axis in dims]
        A = A.permute([*(axis for axis in range(A.ndim) if axis not in moved), *moved])
    shape = A.shape[B.ndim :]
    n = prod(shape)
    if prod(A.shape) != n * n or B.numel() != n:
        raise UsageError(
            f"[tensorsolve] A of shape {A.shape}, B of shape {B.shape}: A must have as many elements per element of B "
            "as B has."
        )
    return solve(A.reshape((n, n)), B.reshape((n,))).reshape(shape)
