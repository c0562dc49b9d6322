"""Over complex: determinants and singular values of complex matrices, under the names of the functions of real ones.

In       batches of matrices, one of the arguments complex
Out      lazy tensors, complex where the result is; gradients as PyTorch has them
Next     complex_systems.py and unitary.py (the others), eigen.py, complex_parts.py; parts.py (who calls these)

Systems, inverses, Cholesky factors, exponentials and singular values are those of the real matrix that stands for the
complex one; determinants are products of eigenvalues. What has no function here is refused by name (parts.py).
"""

from __future__ import annotations

from math import inf
from typing import Any

from hcq.frontend.more.linalg import solving, spectra
from hcq.frontend.more.linalg.complex_parts import (
    ComplexRule,
    complex_matrices,
    complex_pair,
    embedded,
    of,
    rows,
    stacked,
    stacked_of,
    taken,
)
from hcq.frontend.more.linalg.complex_systems import inv, inv_ex
from hcq.frontend.more.linalg.eigen import values_of
from hcq.frontend.more.linalg.parts import EPSILON
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

# -- determinants --------------------------------------------------------------------------------------------------


def _slogdet_slope(results: list[Any], gradients: list[Any], A: Any) -> Any:
    (sign, _), (g_sign, g_value) = results, gradients
    turn = (g_sign.conj() * sign).imag
    return rows(rows(of(g_value.real, -turn))) * inv(A).mH


_DET = ComplexRule(
    "complex_det",
    lambda shape: [()],
    lambda results, gradients, A: rows(rows(gradients[0] * results[0].conj())) * inv(A).mH,
)
_SLOGDET = ComplexRule("complex_slogdet", lambda shape: [(), ()], _slogdet_slope)


def det(A: Any) -> Any:
    """See `solving.det`: the product of the eigenvalues; the gradient of a singular matrix is NaN."""
    A = complex_matrices("det", A, is_square=True)
    if not A.shape[-1]:
        return of(Tensor.ones(A.shape[:-2], dtype=A.real.dtype, device=A.device))
    (value,) = _DET.of([values_of(A).prod(-1)], A)
    return value


def slogdet(A: Any) -> solving.SlogDet:
    """See `solving.slogdet`."""
    A = complex_matrices("slogdet", A, is_square=True)
    if not A.shape[-1]:
        ones = Tensor.ones(A.shape[:-2], dtype=A.real.dtype, device=A.device)
        return solving.SlogDet(of(ones), ones - 1.0)
    values = values_of(A)
    sign, value = _SLOGDET.of([values.sgn().prod(-1), values.abs().log().sum(-1)], A)
    return solving.SlogDet(sign, value.real)


def logdet(A: Any) -> Any:
    """See `solving.logdet`: the principal logarithm."""
    sign, value = slogdet(A)
    return sign.log() + value


# -- singular values -----------------------------------------------------------------------------------------------


def svdvals(A: Any, *, driver: str | None = None) -> Tensor:
    """See `spectra.svdvals`: the real matrix has each of them twice."""
    S: Tensor = spectra.svdvals(embedded(complex_matrices("svdvals", A)))
    return S[..., ::2]


def singular_norm(A: Any, order: Any) -> Tensor:
    """See `spectra.singular_norm`."""
    S = svdvals(A)
    return S.sum(-1) if order == "nuc" else S.amax(-1) if order == 2 else S.amin(-1)


def _tolerance(A: Any, atol: Any, rtol: Any) -> Any:
    """rtol, or what it is by default: the real matrix is twice as large."""
    if rtol is None and atol is None:
        return EPSILON[A.real.dtype] * max(A.shape[-2:])
    return rtol


def pinv(A: Any, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """See `spectra.pinv`."""
    A = complex_matrices("pinv", A, is_square=hermitian)
    rtol = _tolerance(A, atol, rcond if rtol is None else rtol)
    return taken(spectra.pinv(embedded(A), hermitian=hermitian, atol=atol, rtol=rtol))


def matrix_rank(
    A: Any, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """See `spectra.matrix_rank`."""
    A = complex_matrices("matrix_rank", A, is_square=hermitian).detach()
    rtol = rtol if tol is not None else _tolerance(A, atol, rtol)
    rank: Tensor = spectra.matrix_rank(embedded(A), tol, hermitian, atol=atol, rtol=rtol)
    return rank // 2


def cond(A: Any, p: Any = None) -> Tensor:
    """See `spectra.cond`."""
    A = complex_matrices("cond", A, is_square=p not in (None, 2, -2))
    if not A.numel():
        return Tensor.zeros(A.shape[:-2], dtype=A.real.dtype, device=A.device)
    if p in (None, 2, -2):
        S = svdvals(A)
        return S[..., -1] / S[..., 0] if p == -2 else S[..., 0] / S[..., -1]
    from hcq.frontend.more.linalg.functions import matrix_norm

    inverse, info = inv_ex(A)
    return (matrix_norm(A, p) * matrix_norm(inverse, p)).masked_fill(info != 0, inf)


def lstsq(A: Any, B: Any, rcond: float | None = None, *, driver: str | None = None) -> spectra.Lstsq:
    """See `spectra.lstsq`."""
    A, B = complex_pair("lstsq", A, B, is_square=False)
    has_vectors = A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape
    b = B.unsqueeze(-1) if has_vectors else B
    least = EPSILON[A.real.dtype] * max(A.shape[-2:]) if rcond is None else rcond
    found = spectra.lstsq(embedded(A), stacked(b), least, driver=driver)
    X = stacked_of(found.solution)
    rank = found.rank // 2 if found.rank.dtype is dtypes.int64 else found.rank
    return spectra.Lstsq(
        X.squeeze(-1) if has_vectors else X, found.residuals, rank, found.singular_values[..., ::2]
    )
