"""Spectra: eigenvalues of symmetric matrices, singular values, and what follows from them, by PyTorch's names.

In       batches of matrices of float32 or float64
Out      lazy tensors of values and vectors, pseudo-inverses, ranks, norms
Next     orthogonal.py (reflections, QR), parts.py, hcq/compiler/routines (tridiagonal, ql, jacobi)

Symmetric: reflections to three diagonals, then QL. Singular values: rows rotated to right angles (Jacobi), which finds
small ones as exactly as large ones; a larger matrix is first turned by the eigenvectors of A.T A, after which two or
three sweeps are left. The left vectors are the Q of what was rotated, so they are whole where singular values are zero.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from hcq.frontend.core.errors import UsageError
from hcq.frontend.grad.function import also_of
from hcq.frontend.more.linalg.factors import substituted
from hcq.frontend.more.linalg.orthogonal import qr, reduced, reflections, turned, vectors
from hcq.frontend.more.linalg.parts import (
    EPSILON,
    Written,
    alike,
    also_complex,
    batched,
    expanded,
    identity,
    matrices,
    pieces,
    run,
    square,
)
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

TURN_FIRST = 32  # from this many columns on a matrix is turned before it is rotated


class Eigh(NamedTuple):
    """What eigh gives."""

    eigenvalues: Any
    eigenvectors: Any


class SVD(NamedTuple):
    """What svd gives: with U @ diag(S) @ Vh."""

    U: Any
    S: Any
    Vh: Any


class PlainSVD(NamedTuple):
    """What hcq.svd gives: with U @ diag(S) @ V.mT."""

    U: Any
    S: Any
    V: Any


class Lstsq(NamedTuple):
    """What lstsq gives."""

    solution: Any
    residuals: Any
    rank: Any
    singular_values: Any


# -- symmetric matrices --------------------------------------------------------------------------------------------


def _ordered(x: Tensor, order: Tensor, axis: int) -> Tensor:
    """The elements, or along axis -2 the rows, in an order that a routine stored."""
    index = order.cast(dtypes.int64)
    return (
        x.gather(x.ndim - 1, index)
        if axis == -1
        else x.gather(x.ndim - 2, index.unsqueeze(-1).expand(x.shape))
    )


def symmetric(A: Tensor, has_vectors: bool) -> tuple[Tensor, Tensor | None]:
    """(eigenvalues from the least on, eigenvectors as columns) of whole symmetric matrices, without gradients."""
    n, batch = A.shape[-1], A.shape[:-2]
    size = A.abs().amax((-2, -1), keepdim=True)  # so that no square is out of range
    size = (size > 0).where(size, 1.0)
    packed = run("tridiagonal", n * n + 5 * n, (n,), (A.detach() / size,), batch, 4 * n**3 // 3)
    V, d, e, tau, _ = pieces(packed, (n, n), (n,), (n,), (n,), (2 * n,))
    values, rows = tridiagonal_values(d, e, has_vectors)
    values = values * size.squeeze(-1)
    return values, None if rows is None else turned(V.mT, tau, rows.mT)


def tridiagonal_values(d: Tensor, e: Tensor, has_vectors: bool) -> tuple[Tensor, Tensor | None]:
    """(eigenvalues from the least on, eigenvectors as rows) of a diagonal d and what is beside it, with one more."""
    n, batch = d.shape[-1], d.shape[:-1]
    count = n * n if has_vectors else 0
    found = run(
        "ql", count + 5 * n + 2, (n, int(has_vectors)), (Tensor.cat([d, e], dim=-1),), batch, 3 * n * count
    )
    z, values, order, _ = pieces(found, (count,), (n,), (n,), (3 * n + 2,))
    values = _ordered(values, order, -1)
    return values, _ordered(z.reshape((*batch, n, n)), order, -2) if has_vectors else None


def _whole(A: Tensor, UPLO: str) -> Tensor:
    """The symmetric matrix whose lower or upper half A has."""
    return A.tril() + A.tril(-1).mT if UPLO in "Ll" else A.triu() + A.triu(1).mT


def _eigh_slope(joint: Tensor, g: Tensor, A: Tensor) -> Tensor:
    n = A.shape[-1]
    V, values = joint[..., :n, :], joint[..., n, :]
    gV, gvalues = g[..., :n, :], g[..., n, :]
    inside = _between(values, V.mT.matmul(gV)) + gvalues.unsqueeze(-1) * identity(n, A)
    slope = V.matmul(inside).matmul(V.mT)
    return (slope + slope.mT) * 0.5


def _between(values: Tensor, x: Tensor) -> Tensor:
    """x over the differences of values, off the diagonal."""
    unit = identity(values.shape[-1], values)
    return x * (1.0 - unit) / (values.unsqueeze(-2) - values.unsqueeze(-1) + unit)


_EIGH = Written("eigh", _eigh_slope)


@also_complex
@checked
def eigh(A: Tensor, UPLO: str = "L") -> Eigh:
    """(eigenvalues, eigenvectors) of symmetric matrices: from the least on, vectors as columns of length 1.

    UPLO   "L": of A the lower half is looked at; "U": the upper one

    >>> eigh(Tensor([[2.0, 1.0], [1.0, 2.0]])).eigenvalues.round().tolist()
    [1.0, 3.0]
    """
    square("eigh", A)
    if UPLO not in ("L", "U", "l", "u"):
        raise UsageError(f"[eigh] UPLO={UPLO!r}: use 'L' or 'U'.")
    n = A.shape[-1]
    if not n:
        return Eigh(A.reshape((*A.shape[:-2], 0)), A.reshape(A.shape))
    values, V = symmetric(_whole(A, UPLO), True)
    assert V is not None
    joint = _EIGH.of(Tensor.cat([V, values.unsqueeze(-2)], dim=-2), A)
    return Eigh(joint[..., n, :], joint[..., :n, :])


@also_complex
@checked
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices, from the least on; the vectors, which a gradient needs, are found, too.

    >>> hcq.torch.linalg.eigvalsh(Tensor([[2.0, 0.0], [0.0, -1.0]])).tolist()
    [-1.0, 2.0]
    """
    return eigh(A, UPLO).eigenvalues


# -- singular values ---------------------------------------------------------------------------------------------------


def _singular(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of (m, n) with m >= n: singular values, V, and the reflections' vectors and factors of U; without gradients."""
    n, m, batch = A.shape[-1], A.shape[-2], A.shape[:-2]
    A = A.detach()
    size = A.abs().amax((-2, -1), keepdim=True)
    size = (size > 0).where(size, 1.0)
    A = A / size
    if n >= TURN_FIRST:
        start = symmetric(A.mT.matmul(A), True)[1]
        assert start is not None
        rows, V = A.matmul(start).mT, start.mT
    else:
        rows, V = A.mT, expanded(identity(n, A), batch)
    flops = 6 * n * n * (3 * m + n)
    found = run("jacobi", n * m + n * n + 2 * n, (n, m, n), (rows, V), batch, flops)
    rotated, V, lengths, order = pieces(found, (n, m), (n, n), (n,), (n,))
    rotated, V = _ordered(rotated, order, -2), _ordered(V, order, -2)
    both, tau = reflections(rotated.mT)
    signs = both.diagonal(0, -2, -1) < 0
    V = V.mT * signs.unsqueeze(-2).where(Tensor.full((), -1.0, dtype=A.dtype, device=A.device), 1.0)
    return _ordered(lengths, order, -1) * size.squeeze(-1), V, vectors(both, n), tau


def _svd_slope(joint: Tensor, g: Tensor, A: Tensor) -> Tensor:
    (m, n), k = A.shape[-2:], min(A.shape[-2:])
    U, S, V = joint[..., :m, :], joint[..., m, :], joint[..., m + 1 :, :]
    gU, gS, gV = g[..., :m, :], g[..., m, :], g[..., m + 1 :, :]
    row, column = S.unsqueeze(-2), S.unsqueeze(-1)
    inU, inV = U.mT.matmul(gU), V.mT.matmul(gV)
    inside = _between(S * S, inU - inU.mT) * row + _between(S * S, inV - inV.mT) * column
    slope = U.matmul(inside + gS.unsqueeze(-1) * identity(k, A))
    if m > k:
        slope = slope + (gU - U.matmul(inU)) / row
    slope = slope.matmul(V.mT)
    if n > k:
        slope = slope + (U / row).matmul((gV - V.matmul(inV)).mT)
    return slope


_SVD = Written("svd", _svd_slope)
_SVDVALS = Written("svdvals", lambda S, g, A, U, V: (U * g.unsqueeze(-2)).matmul(V.mT), None, None)


def _parts(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U (m, k), S, V (n, k) without gradients."""
    m, n = A.shape[-2:]
    if m < n:
        U, S, V = _parts(A.mT)
        return V, S, U
    S, V, reflected, tau = _singular(A)
    unit = Tensor.eye(m, n, dtype=A.dtype, device=A.device)
    return turned(reflected, tau, expanded(unit, A.shape[:-2])), S, V


def thin(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U (m, k), S (k), V (n, k), k = min(m, n), with gradients."""
    m = A.shape[-2]
    if not min(A.shape[-2:]):
        x = A.detach()
        none = x[..., :0, :0].reshape((*A.shape[:-2], 0))
        U, S, V = (also_of(A, part) for part in (x[..., :, :0], none, x.mT[..., :, :0]))
        return U, S, V
    U, S, V = _parts(A)
    joint = _SVD.of(Tensor.cat([U, S.unsqueeze(-2), V], dim=-2), A)
    return joint[..., :m, :], joint[..., m, :], joint[..., m + 1 :, :]


def _completed(U: Tensor) -> Tensor:
    """Columns at right angles, and as many more as there are rows."""
    m, k = U.shape[-2:]
    if k == m:
        return U
    unit = Tensor.eye(m, dtype=U.dtype, device=U.device)
    if not k:
        return also_of(U, expanded(unit, U.shape[:-2]))
    both, tau = reflections(U)
    rest = turned(vectors(both, k), tau, expanded(unit, U.shape[:-2]))[..., k:]
    return Tensor.cat([U, rest], dim=-1)


@also_complex
@checked
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> SVD:
    """(U, S, Vh) with A = U @ diag(S) @ Vh: singular values from the greatest on.

    full_matrices   U and Vh are square, not (m, k) and (k, n), k = min(m, n); gradients pass the first k alone
    driver          for PyTorch's sake: there is one algorithm here

    >>> svd(Tensor([[3.0, 0.0], [0.0, -4.0]])).S.tolist()
    [4.0, 3.0]
    """
    U, S, V = thin(matrices("svd", A))
    if full_matrices:
        U, V = _completed(U), _completed(V)
    return SVD(U, S, V.mT)


@also_complex
@checked
def plain_svd(A: Tensor, some: bool = True, compute_uv: bool = True) -> PlainSVD:
    """(U, S, V) with A = U @ diag(S) @ V.mT: `hcq.svd`. Without compute_uv U and V are zeros.

    >>> U, S, V = hcq.svd(Tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> S.tolist(), V.abs().tolist()
    ([4.0, 3.0], [[0.0, 1.0], [1.0, 0.0]])
    """
    U, S, V = thin(matrices("svd", A))
    if not some:
        U, V = _completed(U), _completed(V)
    if not compute_uv:
        U, V = (also_of(A, Tensor.zeros(x.shape, dtype=A.dtype, device=A.device)) for x in (U, V))
    return PlainSVD(U, S, V)


@also_complex
@checked
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values of matrices, from the greatest on.

    >>> hcq.torch.linalg.svdvals(Tensor([[3.0, 0.0], [0.0, -4.0]])).tolist()
    [4.0, 3.0]
    """
    matrices("svdvals", A)
    if not min(A.shape[-2:]):
        return thin(A)[1]
    U, S, V = _parts(A)
    return _SVDVALS.of(S, A, U, V)


# -- what follows from them --------------------------------------------------------------------------------------------


def _cut(call: str, A: Tensor, top: Tensor, atol: Any, rtol: Any) -> Tensor:
    """The size from which on a singular value counts."""
    if rtol is None:
        tiny = EPSILON[A.dtype] * max(A.shape[-2:])
        if atol is None:
            rtol = tiny
        else:  # a tolerance that is given stands alone
            given = (
                atol if isinstance(atol, Tensor) else Tensor.full((), atol, dtype=A.dtype, device=A.device)
            )
            rtol = (given > 0).where(Tensor.zeros((), dtype=A.dtype, device=A.device), tiny)
    least = top * rtol
    return least if atol is None else least.maximum(atol)


def _pinv_slope(P: Tensor, g: Tensor, A: Tensor) -> Tensor:
    square_of = g.mT.matmul(P)
    left = square_of.matmul(P.mT) if A.shape[-2] >= A.shape[-1] else g.mT.matmul(P.matmul(P.mT))
    right = P.mT.matmul(P.matmul(g.mT))
    return (
        -(P.mT.matmul(g).matmul(P.mT)) + left - A.matmul(P.matmul(left)) + right - right.matmul(P).matmul(A)
    )


_PINV = Written("pinv", _pinv_slope)


@also_complex
@checked
def pinv(
    A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """The pseudo-inverse of matrices: singular values that do not count are taken for zero.

    atol, rtol   what counts is greater than atol and than rtol times the greatest; numbers or tensors. By default rtol
                 is the format's precision times the greater of both sizes; `rcond` is rtol's older name
    hermitian    A is symmetric: found from its eigenvalues

    >>> hcq.torch.linalg.pinv(Tensor([[2.0, 0.0], [0.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    matrices("pinv", A)
    rtol = rcond if rtol is None else rtol
    if not A.numel():
        return also_of(A, Tensor.zeros(A.mT.shape, dtype=A.dtype, device=A.device))
    U, S, V = _symmetric_parts(A) if hermitian else _parts(A)
    size = S.abs()
    least = _cut("pinv", A, size.amax(-1), atol, rtol).unsqueeze(-1)
    counts = size > least
    inverse = counts.where(1.0 / counts.where(S, 1.0), 0.0)
    return _PINV.of((V * inverse.unsqueeze(-2)).matmul(U.mT), A)


def _symmetric_parts(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    values, V = symmetric(_whole(square("pinv", A).detach(), "L"), True)
    assert V is not None
    return V, values, V


@also_complex
@checked
def matrix_rank(
    A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """How many singular values count: see `pinv`. `tol` is atol's older name.

    >>> hcq.torch.linalg.matrix_rank(Tensor([[1.0, 2.0], [2.0, 4.0]])).item()
    1
    """
    matrices("matrix_rank", A)
    if not A.numel():
        return Tensor.zeros(A.shape[:-2], dtype=dtypes.int64, device=A.device)
    if tol is not None:
        atol, rtol = tol, 0.0
    A = A.detach()
    S = symmetric(_whole(square("matrix_rank", A), "L"), False)[0].abs() if hermitian else _parts(A)[1]
    least = _cut("matrix_rank", A, S.amax(-1), atol, rtol).unsqueeze(-1)
    return (S > least).sum(-1)


@also_complex
@checked
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number: the greatest singular value over the least; or, for square matrices, by another norm p.

    p   None and 2, -2 (the least over the greatest); or a norm of `matrix_norm`: that of A times that of its inverse

    >>> A = Tensor([[1.0, 0.0], [0.0, 4.0]])
    >>> hcq.torch.linalg.cond(A).item(), hcq.torch.linalg.cond(A, 1).item()
    (4.0, 4.0)
    """
    matrices("cond", A)
    if p in (None, 2, -2):
        if not A.numel():
            return Tensor.zeros(A.shape[:-2], dtype=A.dtype, device=A.device)
        S = svdvals(A)
        return S[..., -1] / S[..., 0] if p == -2 else S[..., 0] / S[..., -1]
    from hcq.frontend.more.linalg.functions import matrix_norm
    from hcq.frontend.more.linalg.solving import inv_ex

    square("cond", A)
    if not A.numel():
        return Tensor.zeros(A.shape[:-2], dtype=A.dtype, device=A.device)
    inverse, info = inv_ex(A)
    return (matrix_norm(A, p) * matrix_norm(inverse, p)).masked_fill(info != 0, inf)


@also_complex
@checked
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Lstsq:
    """(solution, residuals, rank, singular_values) of the X with the least |A @ X - B|, of these the shortest.

    driver   "gels": A has full rank, QR finds X; "gelsy" (default), "gelsd", "gelss": singular values less than rcond
             times the greatest count as zero. singular_values are those of the last two, residuals come of all but
             gelsy and where A has more rows than columns, the rank with all but gels; what is not given is empty

    >>> A, B = Tensor([[1.0], [1.0]]), Tensor([[1.0], [3.0]])
    >>> found = hcq.torch.linalg.lstsq(A, B)
    >>> print(found.solution, found.residuals)
    tensor([[2.0000]]) tensor([])
    """
    matrices("lstsq", A)
    alike("lstsq", A, B)
    m, n = A.shape[-2:]
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise UsageError(f"[lstsq] driver={driver!r}: use 'gels', 'gelsy', 'gelsd' or 'gelss'.")
    has_vectors = A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape
    b = B.unsqueeze(-1) if has_vectors else B
    if b.ndim < 2 or b.shape[-2] != m:
        raise UsageError(f"[lstsq] A of shape {A.shape} and B of shape {B.shape}: rows must agree.")
    a, b = batched("lstsq", A, b)
    none: Any = {"device": A.device}
    rank, values = Tensor.zeros((0,), dtype=dtypes.int64, **none), Tensor.zeros((0,), dtype=A.dtype, **none)
    if driver == "gels":
        X = _by_qr(a, b)
    else:
        least = EPSILON[A.dtype] * max(m, n) if rcond is None else rcond
        X = pinv(a, rtol=least).matmul(b)
        S = svdvals(A.detach())
        rank = (S > S[..., :1] * least).sum(-1)
        if driver in ("gelsd", "gelss"):
            values = S
    residuals = Tensor.zeros((0,), dtype=A.dtype, **none)
    if m > n and driver not in (None, "gelsy"):
        residuals = (a.matmul(X) - b).square().sum(-2)
    return Lstsq(X.squeeze(-1) if has_vectors else X, residuals, rank, values)


def _by_qr(A: Tensor, b: Tensor) -> Tensor:
    m, n = A.shape[-2:]
    if not min(m, n):
        return Tensor.zeros((*A.shape[:-2], n, b.shape[-1]), dtype=A.dtype, device=A.device)
    if m >= n:
        Q, R = reduced(A)
        return substituted(R, Q.mT.matmul(b), False, False)
    Q, R = reduced(A.mT)
    return Q.matmul(substituted(R.mT, b, True, False))


@also_complex
@checked
def singular_norm(A: Tensor, order: Any) -> Tensor:
    """The norm of matrices that is their greatest (2), their least (-2) singular value, or the sum of all ("nuc").

    >>> print(hcq.torch.linalg.singular_norm(Tensor([[3.0, 0.0], [0.0, 4.0]]), "nuc"))
    tensor(7.)
    """
    S = svdvals(A)
    return S.sum(-1) if order == "nuc" else S.amax(-1) if order == 2 else S.amin(-1)


# -- a few singular values of large matrices ---------------------------------------------------------------------------


@checked
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> PlainSVD:
    """About the q greatest singular values with their vectors, U @ diag(S) @ V.mT being close to A (less M).

    A random start, `niter` products with A and A.mT, then the singular values of a small matrix.

    >>> U, S, V = hcq.svd_lowrank(Tensor.ones(4, 3), q=1)
    >>> print(S)
    tensor([3.4641])
    """
    matrices("svd_lowrank", A)
    q, niter = (6 if q is None else q), (2 if niter is None else niter)
    m, n = A.shape[-2:]
    if not 0 <= q <= min(m, n) or niter < 0:
        raise UsageError(
            f"[svd_lowrank] q={q}, niter={niter} of shape {A.shape}: use 0 <= q <= {min(m, n)}, niter >= 0."
        )
    x = A if M is None else A - M
    if m < n:
        U, S, V = svd_lowrank(x.mT, q, niter)
        return PlainSVD(V, S, U)
    start = Tensor.randn((n, q), dtype=A.dtype, device=A.device)
    Q = qr(x.matmul(start)).Q
    for _ in range(niter):
        Q = qr(x.matmul(qr(x.mT.matmul(Q)).Q)).Q
    U, S, V = thin(Q.mT.matmul(x))
    return PlainSVD(Q.matmul(U), S, V)


@checked
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> PlainSVD:
    """About the q principal components of the rows of A: `svd_lowrank` of A less its columns' means where `center`.

    >>> U, S, V = hcq.pca_lowrank(Tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]), q=1)
    >>> print(S, V.abs())
    tensor([2.]) tensor([[0.7071],
            [0.7071]])
    """
    m, n = matrices("pca_lowrank", A).shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise UsageError(f"[pca_lowrank] q={q} of shape {A.shape}: use 0 to {min(m, n)}.")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)
