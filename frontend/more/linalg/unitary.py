"""Unitary: QR, eigenvalues of Hermitian matrices and singular values of complex matrices.

In       batches of complex matrices
Out      lazy tensors of factors with unitary columns, complex, and of real values; gradients as PyTorch has them
Next     over_complex.py (what follows), orthogonal.py and spectra.py (the same of real matrices), complex_parts.py,
         hcq/compiler/routines (householder_pairs, hessenberg, jacobi_pairs)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.linalg.complex_parts import ComplexRule, columns, complex_matrices, of, rows, unit
from hcq.frontend.more.linalg.complex_systems import solve_triangular
from hcq.frontend.more.linalg.eigen import hessenberg, sized
from hcq.frontend.more.linalg.orthogonal import QR
from hcq.frontend.more.linalg.parts import pieces, run
from hcq.frontend.more.linalg.spectra import SVD, Eigh, PlainSVD, _ordered, tridiagonal_values
from hcq.frontend.tensor import Tensor

# -- QR ----------------------------------------------------------------------------------------------------------------


def reflected(A: Any) -> tuple[Any, Any]:
    """(Q (m, m), R (m, n)) of matrices that are not empty, without gradients."""
    m, n = A.shape[-2:]
    size = 2 * m * n + 2 * m * m + 2 * m
    parts = (A.real.detach(), A.imag.detach())
    packed = run("householder_pairs", size, (m, n), parts, A.shape[:-2], 16 * m * n * min(m, n))
    r_real, r_imag, w_real, w_imag, _ = pieces(packed, (m, n), (m, n), (m, m), (m, m), (2 * m,))
    return of(w_real, w_imag).mH, of(r_real, r_imag)


def _mirrored(x: Any) -> Any:
    """The lower half, and its conjugate above; the diagonal is real."""
    lower = x.tril(-1)
    return lower + lower.mH + x.real.tril().triu()


def _qr_slope(results: list[Any], gradients: list[Any], A: Any) -> Any:
    (Q, R), (g_Q, g_R) = results, gradients
    inside = _mirrored(R.matmul(g_R.triu().mH) - g_Q.mH.matmul(Q))
    return solve_triangular(R, (g_Q + Q.matmul(inside)).mH, upper=True).mH


_QR = ComplexRule("complex_qr", lambda shape: [shape[-2:], (shape[-1], shape[-1])], _qr_slope)


def qr(A: Any, mode: str = "reduced") -> QR:
    """See `orthogonal.qr`."""
    A = complex_matrices("qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise UsageError(f"[qr] mode={mode!r}: use 'reduced', 'complete' or 'r'.")
    m, n = A.shape[-2:]
    k = min(m, n)
    if not A.numel():
        raise UsageError(f"[qr] a complex matrix of shape {A.shape} has no elements. Give one that has.")
    Q, R = reflected(A)
    if mode == "r":
        return QR(Tensor.zeros((0,), dtype=A.real.dtype, device=A.device), R[..., :k, :])
    if mode == "complete" and m > k:
        return QR(Q, R)
    Q, R = _QR.of([Q[..., :k], R[..., :k, :k]], A[..., :k])
    if n > k:
        R = type(R).cat([R, Q.mH.matmul(A[..., k:])], dim=-1)
    return QR(Q, R)


# -- Hermitian matrices --------------------------------------------------------------------------------------------


def _between(values: Tensor, x: Any) -> Any:
    one = Tensor.eye(values.shape[-1], dtype=values.dtype, device=values.device)
    return x * ((1.0 - one) / (columns(values) - rows(values) + one))


def _eigh_slope(results: list[Any], gradients: list[Any], A: Any) -> Any:
    (values, V), (g_values, g_V) = results, gradients
    inside = _between(values.real, V.mH.matmul(g_V)) + rows(g_values.real) * unit(A.shape[-1], A)
    slope = V.matmul(inside).matmul(V.mH)
    return (slope + slope.mH) * 0.5


_EIGH = ComplexRule("complex_eigh", lambda shape: [shape[-1:], shape[-2:]], _eigh_slope)


def eigh(A: Any, UPLO: str = "L") -> Eigh:
    """See `spectra.eigh`: reflections make a real matrix of three diagonals of a Hermitian one."""
    A = complex_matrices("eigh", A, is_square=True)
    if UPLO not in ("L", "U", "l", "u"):
        raise UsageError(f"[eigh] UPLO={UPLO!r}: use 'L' or 'U'.")
    n = A.shape[-1]
    if not A.numel():
        return Eigh(A.real.reshape(A.shape[:-1]), A)
    whole, size = sized(_mirrored(A if UPLO in "Ll" else A.mH))
    packed = hessenberg(whole)
    h, _, w_real, w_imag, _ = pieces(packed, (n, n), (n, n), (n, n), (n, n), (2 * n,))
    beside = h.diagonal(-1, -2, -1).pad((0, 1))
    values, vectors = tridiagonal_values(h.diagonal(0, -2, -1), beside, True)
    assert vectors is not None
    V = of(w_real, w_imag).mH.matmul(vectors.mT)
    values, V = _EIGH.of([values * size.squeeze(-1), V], A)
    return Eigh(values.real, V)


def eigvalsh(A: Any, UPLO: str = "L") -> Tensor:
    """See `spectra.eigvalsh`."""
    values: Tensor = eigh(A, UPLO).eigenvalues
    return values


# -- singular values -----------------------------------------------------------------------------------------------


def _svd_shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    m, n = shape[-2:]
    k = min(m, n)
    return [(m, k), (k,), (n, k)]


def _svd_slope(results: list[Any], gradients: list[Any], A: Any) -> Any:
    (U, S, V), (g_U, g_S, g_V) = results, gradients
    (m, n), S = A.shape[-2:], S.real
    k, squares = min(m, n), S * S
    in_U, in_V = U.mH.matmul(g_U), V.mH.matmul(g_V)
    inside = _between(squares, in_U - in_U.mH) * columns(S) + _between(squares, in_V - in_V.mH) * rows(S)
    diagonal = in_U.imag.diagonal(0, -2, -1) / S
    inside = inside + rows(of(g_S.real, diagonal)) * unit(k, A)
    slope = U.matmul(inside)
    if m > k:
        slope = slope + (g_U - U.matmul(in_U)) / columns(S)
    slope = slope.matmul(V.mH)
    if n > k:
        slope = slope + (U / columns(S)).matmul((g_V - V.matmul(in_V)).mH)
    return slope


_SVD = ComplexRule("complex_svd", _svd_shapes, _svd_slope)


def _singular(A: Any) -> tuple[Any, Tensor, Any]:
    """(U, S, V) with as many columns as the smaller size, without gradients."""
    m, n = A.shape[-2:]
    if m < n:
        V, S, U = _singular(A.mH)
        return U, S, V
    scaled, size = sized(A)
    along = [part.mT for part in scaled.parts]
    room = 2 * n * m + 2 * n * n + 2 * n
    found = run("jacobi_pairs", room, (n, m), along, A.shape[:-2], 24 * n * n * (3 * m + n))
    a_real, a_imag, v_real, v_imag, lengths, order = pieces(found, (n, m), (n, m), (n, n), (n, n), (n,), (n,))
    rotated = of(_ordered(a_real, order, -2), _ordered(a_imag, order, -2)).mT
    V = of(_ordered(v_real, order, -2), _ordered(v_imag, order, -2)).mT
    Q, R = reflected(rotated)  # R is as good as diagonal
    sign = 1.0 - 2.0 * (R.real.diagonal(0, -2, -1) < 0).cast(lengths.dtype)
    return Q[..., :n], _ordered(lengths, order, -1) * size.squeeze(-1), V * columns(sign)


def _thin(A: Any) -> tuple[Any, Tensor, Any]:
    A = complex_matrices("svd", A)
    if not A.numel():
        raise UsageError(f"[svd] a complex matrix of shape {A.shape} has no elements. Give one that has.")
    U, S, V = _SVD.of(_singular(A), A)
    return U, S.real, V


def _completed(U: Any) -> Any:
    k = U.shape[-1]
    return U if k == U.shape[-2] else type(U).cat([U, reflected(U)[0][..., k:]], dim=-1)


def svd(A: Any, full_matrices: bool = True, *, driver: str | None = None) -> SVD:
    """See `spectra.svd`."""
    U, S, V = _thin(A)
    if full_matrices:
        U, V = _completed(U), _completed(V)
    return SVD(U, S, V.mH)


def plain_svd(A: Any, some: bool = True, compute_uv: bool = True) -> PlainSVD:
    """See `spectra.plain_svd`: with U @ diag(S) @ V.mH."""
    U, S, V = _thin(A)
    if not some:
        U, V = _completed(U), _completed(V)
    if not compute_uv:
        U, V = U.detach() * 0.0, V.detach() * 0.0
    return PlainSVD(U, S, V)
