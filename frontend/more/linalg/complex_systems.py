"""Complex systems: solutions, inverses, powers and Cholesky factors of complex matrices.

In       batches of matrices, one of the arguments complex
Out      lazy complex tensors; gradients as PyTorch has them
Next     over_complex.py (what follows), complex_parts.py (real matrices that stand for complex ones), factors.py and
         solving.py (the same of real matrices)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.linalg import factors, solving
from hcq.frontend.more.linalg.complex_parts import (
    complex_matrices,
    complex_pair,
    embedded,
    of,
    rows,
    stacked,
    stacked_of,
    taken,
    unit,
)
from hcq.frontend.more.linalg.exponential import matrix_exp as real_exp
from hcq.frontend.more.linalg.parts import checked_info
from hcq.frontend.tensor import Tensor

# -- systems -----------------------------------------------------------------------------------------------------------


def _half(info: Tensor) -> Tensor:
    """The number of a row of the complex matrix, of that of the real one."""
    return (info + 1) // 2


def solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> solving.SolveEx:
    """See `solving.solve_ex`."""
    A, B = complex_pair("solve", A, B)
    has_vectors = B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])
    if has_vectors and not left:
        raise UsageError(
            f"[solve] A of shape {A.shape}, B of shape {B.shape}: vectors stand on the right of A."
        )
    if not left:
        X, info = solve_ex(A.mT, B.mT, check_errors=check_errors)
        return solving.SolveEx(X.mT, info)
    b = B.unsqueeze(-1) if has_vectors else B
    if b.shape[-2] != A.shape[-1]:
        raise UsageError(f"[solve] A of shape {A.shape} and B of shape {B.shape}: sizes must agree.")
    X, info = solving.solve_ex(embedded(A), stacked(b))
    info = _half(info)
    checked_info("solve_ex", info, check_errors, "pivot {0} is zero, the matrix is singular")
    X = stacked_of(X)
    return solving.SolveEx(X.squeeze(-1) if has_vectors else X, info)


def solve(A: Any, B: Any, *, left: bool = True) -> Any:
    """See `solving.solve`."""
    X, info = solve_ex(A, B, left=left)
    failed = rows(info != 0)
    return X.masked_fill(failed if X.ndim == failed.ndim else rows(failed), float("nan"))


def inv_ex(A: Any, *, check_errors: bool = False) -> solving.InvEx:
    """See `solving.inv_ex`."""
    X, info = solving.inv_ex(embedded(complex_matrices("inv", A, is_square=True)))
    info = _half(info)
    checked_info("inv_ex", info, check_errors, "pivot {0} is zero, the matrix is singular")
    return solving.InvEx(taken(X), info)


def inv(A: Any) -> Any:
    """See `solving.inv`."""
    return taken(solving.inv(embedded(complex_matrices("inv", A, is_square=True))))


def matrix_power(A: Any, n: int) -> Any:
    """See `solving.matrix_power`."""
    A = complex_matrices("matrix_power", A, is_square=True)
    return taken(solving.matrix_power(embedded(A), n))


def matrix_exp(A: Any) -> Any:
    """See `exponential.matrix_exp`."""
    return taken(real_exp(embedded(complex_matrices("matrix_exp", A, is_square=True))))


def solve_triangular(A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """See `factors.solve_triangular`. Rows are divided by the diagonal, so that the real matrix is a triangle, too."""
    A, B = complex_pair("solve_triangular", A, B)
    complex_matrices("solve_triangular", B, "B")
    if not left:
        return solve_triangular(A.mT, B.mT, upper=not upper, unitriangular=unitriangular).mT
    if not unitriangular:
        diagonal = rows(A.diagonal(0, -2, -1))
        A, B = A / diagonal, B / diagonal
    A = A.triu(1) if upper else A.tril(-1)
    return stacked_of(factors.solve_triangular(embedded(A), stacked(B), upper=upper, unitriangular=True))


def triangular_solve(
    b: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> factors.TriangularSolve:
    """See `factors.triangular_solve`."""
    t, is_upper = (A.mT, not upper) if transpose else (A, upper)
    X = solve_triangular(t, b, upper=is_upper, unitriangular=unitriangular)
    return factors.TriangularSolve(X, of(A).expand((*X.shape[:-2], *A.shape[-2:])))


# -- Cholesky ------------------------------------------------------------------------------------------------------


def _hermitian(A: Any, upper: bool) -> Tensor:
    """The real matrix of the half that is looked at; gradients pass to both halves alike."""
    both = (A + A.mH) * 0.5
    known = (A.mH if upper else A).detach()
    lower = known.tril(-1)
    known = lower + lower.mH + known.real.tril().triu()
    return factors._known(embedded(known), embedded(both))


def cholesky_ex(A: Any, *, upper: bool = False, check_errors: bool = False) -> factors.CholeskyEx:
    """See `factors.cholesky_ex`."""
    A = complex_matrices("cholesky", A, is_square=True)
    L, info = factors.cholesky_ex(_hermitian(A, upper))
    info = _half(info)
    checked_info("cholesky_ex", info, check_errors, "minor {0} is not positive")
    L = taken(L)
    return factors.CholeskyEx(L.mH if upper else L, info)


def cholesky(A: Any, *, upper: bool = False) -> Any:
    """See `factors.cholesky`."""
    L, info = cholesky_ex(A, upper=upper)
    return L.masked_fill(rows(rows(info != 0)), float("nan"))


def cholesky_solve(B: Any, L: Any, upper: bool = False) -> Any:
    """See `factors.cholesky_solve`."""
    L = of(L).mH if upper else of(L)
    half = solve_triangular(L, B, upper=False)
    return solve_triangular(L.mH, half, upper=True)


def cholesky_inverse(L: Any, upper: bool = False) -> Any:
    """See `factors.cholesky_inverse`."""
    L = complex_matrices("cholesky_inverse", L, "L", is_square=True)
    return cholesky_solve(of(unit(L.shape[-1], L)).expand(L.shape), L, upper)
