"""Orthogonal: QR, and the reflections that Q is made of, by PyTorch's names.

In       batches of matrices of float32 or float64
Out      lazy tensors of Q and R
Next     spectra.py (lstsq, SVD), parts.py, hcq/compiler/routines (householder)

A product of reflections is I - V (I + D S)^-1 D V.T: their vectors side by side, their factors tau on a diagonal, and
of V.T V what is above the diagonal. So Q is two products and one triangular system, and gradients pass these.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hcq.frontend.core.errors import UsageError
from hcq.frontend.grad.function import also_of
from hcq.frontend.more.linalg.factors import substituted
from hcq.frontend.more.linalg.parts import Written, alike, also_complex, expanded, matrices, pieces, run
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor


class QR(NamedTuple):
    """What qr gives."""

    Q: Any
    R: Any


class Geqrf(NamedTuple):
    """What geqrf gives."""

    a: Any
    tau: Any


def reflections(A: Tensor) -> tuple[Tensor, Tensor]:
    """(R with the reflections' vectors below it, their factors), which have no gradient."""
    m, n = A.shape[-2:]
    k = min(m, n)
    if not k:
        return A.detach(), Tensor.zeros((*A.shape[:-2], 0), dtype=A.dtype, device=A.device)
    packed = run("householder", m * n + k + m, (m, n), (A,), A.shape[:-2], 4 * m * n * k // 3)
    both, tau, _ = pieces(packed, (m, n), (k,), (m,))
    return both, tau


def vectors(packed: Tensor, k: int) -> Tensor:
    """The vectors of the first k reflections, side by side, with their leading ones."""
    m = packed.shape[-2]
    return packed[..., :k].tril(-1) + Tensor.eye(m, k, dtype=packed.dtype, device=packed.device)


def turned(V: Tensor, tau: Tensor, C: Tensor, transposed: bool = False) -> Tensor:
    """Q @ C of the product Q of reflections; or Q.T @ C."""
    if not V.shape[-1]:
        return C
    scale = tau.unsqueeze(-1)
    between = V.mT.matmul(V).triu(1) * scale
    along = V.mT.matmul(C)
    if transposed:
        along = substituted(between.mT, expanded(along, between.shape[:-2]), True, True) * scale
    else:
        along = substituted(between, expanded(along * scale, between.shape[:-2]), False, True)
    return C - V.matmul(along)


def _joint_slope(joint: Tensor, g: Tensor, A: Tensor) -> Tensor:
    """Of Q above R, where R is square: (gQ + Q M) R^-T, with M the lower half of R gR.T - gQ.T Q, mirrored."""
    m = A.shape[-2]
    Q, R, gQ, gR = joint[..., :m, :], joint[..., m:, :].triu(), g[..., :m, :], g[..., m:, :].triu()
    inside = R.matmul(gR.mT) - gQ.mT.matmul(Q)
    inside = inside.tril() + inside.tril(-1).mT
    return substituted(R, (gQ + Q.matmul(inside)).mT, False, False).mT


_JOINT = Written("qr", _joint_slope)


def reduced(A: Tensor) -> tuple[Tensor, Tensor]:
    """Q (m, k) and R (k, n), k = min(m, n)."""
    m, n = A.shape[-2:]
    k = min(m, n)
    both, tau = reflections(A)
    unit = Tensor.eye(m, k, dtype=A.dtype, device=A.device)
    Q = turned(vectors(both, k), tau, expanded(unit, A.shape[:-2]))
    joint = _JOINT.of(Tensor.cat([Q, both[..., :k, :k].triu()], dim=-2), A[..., :k])
    Q, R = joint[..., :m, :], joint[..., m:, :]
    return Q, R if n == k else Tensor.cat([R, Q.mT.matmul(A[..., k:])], dim=-1)


@also_complex
@checked
def qr(A: Tensor, mode: str = "reduced") -> QR:
    """(Q, R) with A = Q @ R: columns at right angles, and an upper triangle.

    mode   "reduced": (m, k) and (k, n), k = min(m, n); "complete": (m, m) and (m, n), which has a gradient where
           m <= n; "r": R alone, without a gradient

    >>> Q, R = qr(Tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> (Q.matmul(R) * 100).round().tolist()
    [[300.0, 100.0], [400.0, 200.0]]
    """
    m, n = matrices("qr", A).shape[-2:]
    if mode not in ("reduced", "complete", "r"):
        raise UsageError(f"[qr] mode={mode!r}: use 'reduced', 'complete' or 'r'.")
    k = min(m, n)
    if mode == "r":
        return QR(Tensor.zeros((0,), dtype=A.dtype, device=A.device), reflections(A)[0][..., :k, :].triu())
    if not k:
        unit = expanded(
            Tensor.eye(m, m if mode == "complete" else 0, dtype=A.dtype, device=A.device), A.shape[:-2]
        )
        return QR(also_of(A, unit), also_of(A, A.detach()[..., : unit.shape[-1], :]))
    if mode == "complete" and m > k:
        both, tau = reflections(A)
        unit = expanded(Tensor.eye(m, dtype=A.dtype, device=A.device), A.shape[:-2])
        return QR(turned(vectors(both, k), tau, unit), both.triu())
    return QR(*reduced(A))


def qr_some(A: Tensor, some: bool = True) -> QR:
    """`qr`, reduced or not: `hcq.qr`.

    >>> Q, R = hcq.torch.linalg.qr_some(Tensor.ones(3, 2), some=False)
    >>> Q.shape, R.shape
    ((3, 3), (3, 2))
    """
    return qr(A, mode="reduced" if some else "complete")


@checked
def geqrf(A: Tensor) -> Geqrf:
    """(a, tau): R, and below it the reflections that Q is made of, as LAPACK has them; no gradient passes.

    >>> a, tau = hcq.torch.linalg.geqrf(Tensor([[3.0], [4.0]]))
    >>> a.shape, tau.shape
    ((2, 1), (1,))
    """
    return Geqrf(*reflections(matrices("geqrf", A)))


@checked
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns, as many as A has, of the product of the reflections that `geqrf` gave.

    >>> Q = hcq.torch.linalg.householder_product(*hcq.torch.linalg.geqrf(Tensor([[3.0], [4.0]])))
    >>> print(Q.abs())
    tensor([[0.6000],
            [0.8000]])
    """
    m, n = matrices("householder_product", A).shape[-2:]
    alike("householder_product", A, tau)
    k = tau.shape[-1] if tau.ndim else 0
    if m < n or k > n:
        raise UsageError(
            f"[householder_product] A of shape {A.shape}, tau of shape {tau.shape}: A has as many rows as columns at "
            "least, and no more reflections than columns."
        )
    unit = expanded(Tensor.eye(m, n, dtype=A.dtype, device=A.device), A.shape[:-2])
    return turned(vectors(A, k), tau, unit) if k else also_of(A, also_of(tau, unit))


@checked
def ormqr(A: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q @ other, of the whole Q whose reflections `geqrf` gave; other @ Q where not `left`; with `transpose` of Q.T.

    >>> a, tau = hcq.torch.linalg.geqrf(Tensor([[3.0], [4.0]]))
    >>> print(hcq.torch.linalg.ormqr(a, tau, Tensor([[3.0], [4.0]]), transpose=True).abs())
    tensor([[5.],
            [0.]])
    """
    matrices("ormqr", A)
    matrices("ormqr", other, "other")
    alike("ormqr", A, other)
    if other.shape[-2 if left else -1] != A.shape[-2] or tau.shape[-1] > A.shape[-1]:
        raise UsageError(
            f"[ormqr] A of shape {A.shape}, tau of shape {tau.shape}, other of shape {other.shape}: Q has "
            f"{A.shape[-2]} rows, and A a column for each tau."
        )
    V = vectors(A, tau.shape[-1])
    return turned(V, tau, other, transpose) if left else turned(V, tau, other.mT, not transpose).mT
