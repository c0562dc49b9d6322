"""Factors: Cholesky, LU and triangular matrices, by PyTorch's names.

In       batches of matrices of float32 or float64
Out      lazy tensors of their factors
Next     solving.py (inverses and determinants from these), parts.py, hcq/compiler/routines (cholesky, lu, triangular)

A matrix that has no such factors is no error while it is computed, for nothing is computed when the call returns: the
result is NaN where it does not exist, and the `_ex` functions give the info that says so. With `check_errors` these
compute at once, and raise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hcq.frontend.core.errors import UsageError
from hcq.frontend.grad.function import also_of
from hcq.frontend.more.linalg.parts import (
    Written,
    also_complex,
    batched,
    checked_info,
    computable,
    expanded,
    identity,
    matrices,
    pieces,
    run,
    square,
    system,
)
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class CholeskyEx(NamedTuple):
    """What cholesky_ex gives."""

    L: Any
    info: Any


class LU(NamedTuple):
    """What lu gives."""

    P: Any
    L: Any
    U: Any


class LUFactor(NamedTuple):
    """What lu_factor gives."""

    LU: Any
    pivots: Any


class LUFactorEx(NamedTuple):
    """What lu_factor_ex gives."""

    LU: Any
    pivots: Any
    info: Any


class TriangularSolve(NamedTuple):
    """What triangular_solve gives."""

    solution: Any
    cloned_coefficient: Any


# -- triangular matrices ----------------------------------------------------------------------------------------------


def substituted(t: Tensor, b: Tensor, lower: bool, unit: bool) -> Tensor:
    """X with t @ X = b, of the same batch; the other half of t is not looked at."""
    n, k = b.shape[-2:]
    found = run("triangular", n * k, (n, k, int(lower), int(unit)), (t, b), b.shape[:-2], n * n * k)
    return _SUBSTITUTED[lower, unit].of(found.reshape(b.shape), t, b)


def _substituted(lower: bool, unit: bool) -> Written:
    def of_t(x: Tensor, g: Tensor, t: Tensor, b: Tensor) -> Tensor:
        slope = -(substituted(t.mT, g, not lower, unit).matmul(x.mT))
        step = 1 if unit else 0
        return slope.tril(-step) if lower else slope.triu(step)

    def of_b(x: Tensor, g: Tensor, t: Tensor, b: Tensor) -> Tensor:
        return substituted(t.mT, g, not lower, unit)

    return Written(f"triangular_{lower:d}{unit:d}", of_t, of_b)


_SUBSTITUTED = {(lower, unit): _substituted(lower, unit) for lower in (False, True) for unit in (False, True)}


@also_complex
@checked
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X with A @ X = B, or X @ A = B where not `left`, of a triangular A: its other half is not looked at.

    unitriangular  its diagonal is taken for ones, and not looked at

    >>> solve_triangular(Tensor([[2.0, 0.0], [1.0, 1.0]]), Tensor([[2.0], [3.0]]), upper=False).tolist()
    [[1.0], [2.0]]
    """
    system("solve_triangular", A, B)
    return _triangular("solve_triangular", A, B, upper, left, unitriangular)


def _triangular(call: str, A: Tensor, B: Tensor, upper: bool, left: bool, unit: bool) -> Tensor:
    if B.shape[-2 if left else -1] != A.shape[-1]:
        raise UsageError(f"[{call}] A of shape {A.shape} and B of shape {B.shape}: sizes must agree.")
    if not left:
        return _triangular(call, A.mT, B.mT, not upper, True, unit).mT
    a, b = batched(call, A, B)
    return substituted(a, b, not upper, unit)


@also_complex
@checked
def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolve:
    """(X with A @ X = b, A), of a triangular A; with `transpose` X with A.mT @ X = b.

    >>> b, A = Tensor([[4.0], [6.0]]), Tensor([[2.0, 0.0], [99.0, 3.0]])
    >>> hcq.torch.linalg.triangular_solve(b, A).solution.tolist()
    [[2.0], [2.0]]
    """
    system("triangular_solve", A, b, b="b")
    t, upper = (A.mT, not upper) if transpose else (A, upper)
    copy = expanded(A, Tensor.broadcast_shapes(A.shape[:-2], b.shape[:-2]))
    return TriangularSolve(_triangular("triangular_solve", t, b, upper, True, unitriangular), copy)


# -- Cholesky ----------------------------------------------------------------------------------------------------------


def cholesky_parts(A: Tensor) -> tuple[Tensor, Tensor]:
    """(the lower factor of symmetric positive definite matrices, info); of A only the lower half is looked at."""
    n, batch = A.shape[-1], A.shape[:-2]
    if not n:
        return A.tril(), _no_info(A)
    packed = run("cholesky", n * n + n, (n,), (A.mT.triu(),), batch, n**3 // 3)
    upper, last = pieces(packed, (n, n), (n,))
    return _CHOLESKY.of(upper.mT, A), last[..., 0].cast(dtypes.int32)


def _no_info(A: Tensor) -> Tensor:
    return Tensor.zeros(A.shape[:-2], dtype=dtypes.int32, device=A.device)


def _cholesky_slope(L: Tensor, g: Tensor, A: Tensor) -> Tensor:
    inside = L.mT.matmul(g).tril()
    inside = inside - inside.tril().triu() * 0.5
    half = substituted(L.mT, inside, False, False)
    half = substituted(L.mT, half.mT, False, False)
    return (half + half.mT) * 0.5


_CHOLESKY = Written("cholesky", _cholesky_slope)


def _defined(x: Tensor, info: Tensor) -> Tensor:
    """The matrices, NaN where info is not 0."""
    return x.masked_fill(info.unsqueeze(-1).unsqueeze(-1) != 0, float("nan"))


@also_complex
@checked
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangle L with L @ L.mT = A, of symmetric positive definite matrices; `upper`: U with U.mT @ U = A.

    Of A the lower half alone is looked at, or the upper one. Matrices that are not positive definite give NaN.

    >>> cholesky(Tensor([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    L, info = cholesky_parts(_lower(square("cholesky", A), upper))
    L = _defined(L, info)
    return L.mT if upper else L


def _lower(A: Tensor, upper: bool) -> Tensor:
    return A.mT if upper else A


@also_complex
@checked
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """(L, info), as `cholesky`: info is 0, or the number of the first leading minor that is not positive.

    check_errors   compute now. Raises UsageError where info is not 0

    >>> L, info = hcq.torch.linalg.cholesky_ex(Tensor([[[4.0]], [[-1.0]]]))
    >>> info.tolist()
    [0, 1]
    """
    L, info = cholesky_parts(_lower(square("cholesky_ex", A), upper))
    checked_info("cholesky_ex", info, check_errors, "the leading minor of order {0} is not positive")
    return CholeskyEx(L.mT if upper else L, info)


@also_complex
@checked
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with A @ X = B, of the A whose Cholesky factor is L.

    >>> L = Tensor([[2.0, 0.0], [0.0, 4.0]])
    >>> hcq.torch.linalg.cholesky_solve(Tensor([[4.0], [16.0]]), L).tolist()
    [[1.0], [1.0]]
    """
    system("cholesky_solve", L, B, "L")
    if B.shape[-2] != L.shape[-1]:
        raise UsageError(f"[cholesky_solve] L of shape {L.shape}, B of shape {B.shape}: sizes must agree.")
    factor, b = batched("cholesky_solve", L.mT if upper else L, B)
    return _by_cholesky(factor, b)


def _by_cholesky(L: Tensor, b: Tensor) -> Tensor:
    t = L.detach()
    found = substituted(t.mT, substituted(t, b.detach(), True, False), False, False)
    return _BY_CHOLESKY.of(found, L, b)


def _by_cholesky_slope(X: Tensor, g: Tensor, L: Tensor, b: Tensor) -> Tensor:
    part = _by_cholesky(L, g).matmul(X.mT)
    return -((part + part.mT).matmul(L))  # of all of L, as PyTorch has it


_BY_CHOLESKY = Written("cholesky_solve", _by_cholesky_slope, lambda X, g, L, b: _by_cholesky(L, g))


@also_complex
@checked
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of the A whose Cholesky factor is L.

    >>> hcq.torch.linalg.cholesky_inverse(Tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.25, 0.0], [0.0, 0.0625]]
    """
    square("cholesky_inverse", L, "L")
    return cholesky_solve(expanded(identity(L.shape[-1], L), L.shape[:-2]), L, upper)


# -- LU ----------------------------------------------------------------------------------------------------------------


class Factored(NamedTuple):
    """A matrix taken apart: P A = L U. Gradients pass `both` alone."""

    both: Tensor  # L below the diagonal, and U
    rows: Tensor  # which row of A each row is
    pivots: Tensor  # LAPACK's, from 1
    info: Tensor  # 0, or the number of the first pivot that is zero


def factored(A: Tensor, pivot: bool = True) -> Factored:
    """LU with partial pivoting of a batch of matrices."""
    m, n = A.shape[-2:]
    k, batch = min(m, n), A.shape[:-2]
    if not k:
        rows = Tensor.arange(m, dtype=dtypes.int64, device=A.device).expand((*batch, m))
        return Factored(
            A.reshape(A.shape),
            rows,
            Tensor.zeros((*batch, 0), dtype=dtypes.int32, device=A.device),
            _no_info(A),
        )
    flops = 2 * m * n * k
    packed = run("lu", m * n + m + k + 1, (m, n, int(pivot)), (A,), batch, flops)
    both, rows, pivots, info = pieces(packed, (m, n), (m,), (k,), ())
    rows = rows.cast(dtypes.int64)
    ordered = picked(A, rows)
    square_part = _FACTORED.of(both[..., :k, :k], ordered[..., :k, :k])
    if m > k:  # what is below is the rest of the rows, divided by U
        below = substituted(square_part.mT, ordered[..., k:, :].mT, True, False).mT
        square_part = Tensor.cat([square_part, _known(both[..., k:, :], below)], dim=-2)
    elif n > k:
        beside = substituted(square_part, ordered[..., :, k:], True, True)
        square_part = Tensor.cat([square_part, _known(both[..., :, k:], beside)], dim=-1)
    return Factored(square_part, rows, pivots.cast(dtypes.int32), info.cast(dtypes.int32))


def _known(value: Tensor, again: Tensor) -> Tensor:
    """A value that was computed already, with the gradients of another way to compute it."""
    return _SAME.of(value, again)


_SAME = Written("same", lambda value, g, again: g)


def _factored_slope(both: Tensor, g: Tensor, A: Tensor) -> Tensor:
    inside = lower_of(both).mT.matmul(g.tril(-1)).tril(-1) + g.triu().matmul(both.triu().mT).triu()
    left = substituted(both.mT, inside, False, True)
    return substituted(both, left.mT, False, False).mT


_FACTORED = Written("lu", _factored_slope)


def picked(x: Tensor, rows: Tensor) -> Tensor:
    """The rows of matrices in another order."""
    return x.gather(x.ndim - 2, rows.unsqueeze(-1).expand(x.shape[:-2] + (rows.shape[-1], x.shape[-1])))


def put_back(x: Tensor, rows: Tensor) -> Tensor:
    """What `picked` undoes."""
    index = rows.unsqueeze(-1).expand(x.shape)
    return Tensor.zeros(x.shape, dtype=x.dtype, device=x.device).scatter(x.ndim - 2, index, x)


def lower_of(both: Tensor) -> Tensor:
    """L, with its ones, of a square part."""
    m, n = both.shape[-2:]
    k = min(m, n)
    return both[..., :, :k].tril(-1) + Tensor.eye(m, k, dtype=both.dtype, device=both.device)


def upper_of(both: Tensor) -> Tensor:
    """U."""
    return both[..., : min(both.shape[-2:]), :].triu()


def permutation(rows: Tensor, like: Tensor) -> Tensor:
    """P with A = P L U, of which row each row is."""
    m = rows.shape[-1]
    places = Tensor.arange(m, dtype=dtypes.int64, device=like.device).unsqueeze(-1)
    return (rows.unsqueeze(-2) == places).cast(like.dtype)


@checked
def lu(A: Tensor, *, pivot: bool = True) -> LU:
    """(P, L, U) with A = P @ L @ U: a permutation, a lower triangle with ones, an upper triangle.

    pivot   without it rows stay where they are, and P is empty

    >>> P, L, U = hcq.torch.linalg.lu(Tensor([[1.0, 2.0], [2.0, 4.0]]))
    >>> P.tolist(), U.tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [[2.0, 4.0], [0.0, 0.0]])
    """
    matrices("lu", A)
    found = factored(A, pivot)
    P = permutation(found.rows, A) if pivot else Tensor.zeros((0,), dtype=A.dtype, device=A.device)
    return LU(P, lower_of(found.both), upper_of(found.both))


@checked
def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:
    """(LU, pivots): both triangles in one matrix, and LAPACK's pivots, from 1: for `lu_solve` and `lu_unpack`.

    >>> LU, pivots = hcq.torch.linalg.lu_factor(Tensor([[1.0, 2.0], [2.0, 8.0]]))
    >>> LU.tolist(), pivots.tolist()
    ([[2.0, 8.0], [0.5, -2.0]], [2, 2])
    """
    found = factored(matrices("lu_factor", A), pivot)
    return LUFactor(found.both, found.pivots)


@checked
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorEx:
    """(LU, pivots, info), as `lu_factor`: info is 0, or the number of the first pivot that is zero.

    check_errors   compute now. Raises UsageError where info is not 0

    >>> LU, pivots, info = hcq.torch.linalg.lu_factor_ex(Tensor([[1.0, 2.0], [2.0, 4.0]]))
    >>> info.item()
    2
    """
    found = factored(matrices("lu_factor_ex", A), pivot)
    checked_info("lu_factor_ex", found.info, check_errors, "pivot {0} is zero, the matrix is singular")
    return LUFactorEx(found.both, found.pivots, found.info)


def lu_packed(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """(LU, pivots), with get_infos also info: `hcq.lu`.

    >>> LU, pivots = hcq.torch.linalg.lu_packed(Tensor([[1.0, 2.0], [2.0, 8.0]]))
    >>> pivots.tolist()
    [2, 2]
    """
    found = factored(matrices("lu", A), pivot)
    return (found.both, found.pivots, found.info) if get_infos else (found.both, found.pivots)


def rows_of(pivots: Tensor, m: int, like: Tensor) -> Tensor:
    """Which row each row is after the exchanges that pivots stand for."""
    k = pivots.shape[-1]
    if not k:
        return Tensor.arange(m, dtype=dtypes.int64, device=like.device).expand((*pivots.shape[:-1], m))
    return run("pivots", m, (m, k), (pivots.cast(like.dtype),), pivots.shape[:-1]).cast(dtypes.int64)


@checked
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> LU:
    """(P, L, U) of what `lu_factor` gave; what is not unpacked is empty.

    >>> A = Tensor([[0.0, 2.0], [4.0, 0.0]])
    >>> P, L, U = hcq.torch.linalg.lu_unpack(*hcq.torch.linalg.lu_factor(A))
    >>> (P @ L @ U).tolist()
    [[0.0, 2.0], [4.0, 0.0]]
    """
    matrices("lu_unpack", LU_data, "LU_data")
    empty = Tensor.zeros((0,), dtype=LU_data.dtype, device=LU_data.device)
    P = permutation(rows_of(LU_pivots, LU_data.shape[-2], LU_data), LU_data) if unpack_pivots else empty
    if not unpack_data:
        return LU(P, empty, empty)
    return LU(P, lower_of(LU_data), upper_of(LU_data))


@checked
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X with A @ X = B, of the A that `lu_factor` gave LU and pivots for.

    left     else X @ A = B
    adjoint  A.mT in the place of A

    >>> LU, pivots = hcq.torch.linalg.lu_factor(Tensor([[0.0, 2.0], [4.0, 0.0]]))
    >>> hcq.torch.linalg.lu_solve(LU, pivots, Tensor([[2.0], [8.0]])).tolist()
    [[2.0], [1.0]]
    """
    system("lu_solve", LU, B, "LU")
    if not left:
        return lu_solve(LU, pivots, B.mT, left=True, adjoint=not adjoint).mT
    if B.shape[-2] != LU.shape[-1]:
        raise UsageError(f"[lu_solve] LU of shape {LU.shape} and B of shape {B.shape}: sizes must agree.")
    both, b = batched("lu_solve", LU, B)
    if not b.numel():
        return also_of(LU, also_of(B, Tensor.zeros(b.shape, dtype=B.dtype, device=B.device)))
    rows = rows_of(pivots, LU.shape[-1], LU).expand((*both.shape[:-2], LU.shape[-1]))
    return through(both, rows, b, adjoint)


def through(both: Tensor, rows: Tensor, b: Tensor, adjoint: bool) -> Tensor:
    """A^-1 b, or A.mT^-1 b, from the factors of A; gradients pass to the factors and to b."""
    if adjoint:
        return put_back(substituted(both.mT, substituted(both.mT, b, True, False), False, True), rows)
    return substituted(both, substituted(both, picked(b, rows), True, True), False, False)


def check_vectors(call: str, A: Tensor, B: Tensor) -> bool:
    """Whether B has vectors in the place of matrices, as PyTorch decides it."""
    computable(call, B, "B")
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])
