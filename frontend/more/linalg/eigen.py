"""Eigen: eigenvalues and eigenvectors of general matrices, real or complex, by PyTorch's names.

In       batches of square matrices
Out      lazy complex tensors; gradients as PyTorch has them
Next     spectra.py (symmetric matrices), complex_parts.py, hcq/compiler/routines (hessenberg, schur, eigenvectors)

Reflections to Hessenberg's form, QR with shifts to a triangle, its eigenvectors, turned back. All of it is complex: of
a real matrix, too, so the imaginary part of a real eigenvalue may be a rounding error of the greatest one instead of
zero.
"""

from __future__ import annotations

from math import nan
from typing import Any, NamedTuple

from hcq.frontend.more.linalg.complex_parts import ComplexRule, columns, complex_matrices, of, rows, unit
from hcq.frontend.more.linalg.complex_systems import solve
from hcq.frontend.more.linalg.parts import pieces, run
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor


class Eig(NamedTuple):
    """What eig gives."""

    eigenvalues: Any
    eigenvectors: Any


def sized(A: Any) -> tuple[Any, Tensor]:
    """(the matrices with a greatest element of about 1, how great it was), without gradients."""
    real, imag = A.real.detach(), A.imag.detach()
    size = real.abs().maximum(imag.abs()).amax((-2, -1), keepdim=True)
    size = (size != 0).where(size, 1.0)  # NaN stays
    return of(real / size, imag / size), size


def hessenberg(A: Any) -> Tensor:
    """What the routine of that name stores, of complex matrices that are not empty."""
    n = A.shape[-1]
    return run("hessenberg", 4 * n * n + 2 * n, (n,), A.parts, A.shape[:-2], 16 * n**3)


def schur(A: Any) -> Tensor:
    """What the routine of that name stores: T, W with A = W^H T W, and last how many eigenvalues are missing."""
    n = A.shape[-1]
    return run("schur", 4 * n * n + 3 * n + 5, (n,), (hessenberg(A),), A.shape[:-2], 40 * n**3)


def values_of(A: Any) -> Any:
    """The eigenvalues alone, without gradients; NaN where they were not found."""
    n = A.shape[-1]
    scaled, size = sized(A)
    packed = schur(scaled)
    real, imag, _, last = pieces(packed, (n, n), (n, n), (2 * n * n + 3 * n + 4,), (1,))
    values = of(*[part.diagonal(0, -2, -1).masked_fill(last != 0, nan) for part in (real, imag)])
    return values * size.squeeze(-1)


def _parts(A: Any) -> tuple[Any, Any]:
    """(eigenvalues, eigenvectors as columns of length 1, the greatest element of each real), without gradients."""
    n, batch = A.shape[-1], A.shape[:-2]
    scaled, size = sized(A)
    packed = schur(scaled)
    _, _, w_real, w_imag, _, last = pieces(packed, (n, n), (n, n), (n, n), (n, n), (3 * n + 4,), (1,))
    found = run("eigenvectors", 2 * n * n + 2 * n, (n,), (packed,), batch, 4 * n**3 // 3)
    x_real, x_imag, real, imag = pieces(found, (n, n), (n, n), (n,), (n,))
    x = of(x_real, x_imag)
    V = of(w_real, w_imag).mH.matmul(x / x.abs().amax(-2, keepdim=True))
    squares = V.real.square() + V.imag.square()
    lead = V.gather(V.ndim - 2, squares.argmax(-2, keepdim=True))
    V = V * (lead.conj() / lead.abs()) / squares.sum(-2, keepdim=True).sqrt()
    failed = last != 0
    values = of(real.masked_fill(failed, nan), imag.masked_fill(failed, nan)) * size.squeeze(-1)
    return values, V


def _slope(results: list[Any], gradients: list[Any], A: Any) -> Any:
    (values, V), (g_values, g_V) = results, gradients
    one = unit(A.shape[-1], A)
    along = V.mH.matmul(g_V)
    inside = along - V.mH.matmul(V) * columns(along.real.diagonal(0, -2, -1))
    apart = (columns(values) - rows(values)).conj() + one
    inside = inside * (1.0 - one) / apart + rows(g_values) * one
    return solve(V.mH, inside.matmul(V.mH))


_EIG = ComplexRule("eig", lambda shape: [shape[-1:], shape[-2:]], _slope)


@checked
def eig(A: Tensor) -> Eig:
    """(eigenvalues, eigenvectors) of square matrices, complex, in no order; vectors are columns of length 1.

    A gradient needs eigenvalues that differ, and a loss that no factor of size 1 of a vector changes.

    >>> hcq.torch.linalg.eig(Tensor([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues.abs().round().tolist()
    [1.0, 1.0]
    """
    z = complex_matrices("eig", A, is_square=True)
    if not z.numel():
        return Eig(of(z.real.reshape(z.shape[:-1])), z)
    return Eig(*_EIG.of(_parts(z), A))


@checked
def eigvals(A: Tensor) -> Any:
    """The eigenvalues of square matrices, complex, in no order; the vectors, which a gradient needs, are found, too.

    >>> hcq.torch.linalg.eigvals(Tensor([[2.0, 1.0], [0.0, 2.0]])).tolist()
    [(2+0j), (2+0j)]
    """
    return eig(A).eigenvalues
