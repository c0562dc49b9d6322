"""Indefinite: symmetric matrices as L D L.T, by PyTorch's names; no gradients pass, as in PyTorch.

In       batches of symmetric matrices of float32 or float64
Out      lazy tensors of their factors, and solutions
Next     factors.py (Cholesky, LU), parts.py, hcq/compiler/routines (ldl, ldl_solve)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.linalg.parts import batched, checked_info, pieces, run, square, system
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class LDLFactor(NamedTuple):
    """What ldl_factor gives."""

    LD: Any
    pivots: Any


class LDLFactorEx(NamedTuple):
    """What ldl_factor_ex gives."""

    LD: Any
    pivots: Any
    info: Any


@checked
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorEx:
    """(LD, pivots, info): L below the diagonal blocks of D, LAPACK's pivots, and 0 or the number of a block of zeros.

    Of A the lower half is looked at. hermitian is for complex matrices, and changes nothing here.
    check_errors   compute now. Raises UsageError where info is not 0

    >>> hcq.torch.linalg.ldl_factor_ex(Tensor([[0.0, 0.0], [0.0, 1.0]])).info.item()
    1
    """
    n, batch = square("ldl_factor", A).shape[-1], A.shape[:-2]
    if not n:
        none = Tensor.zeros((*batch, 0), dtype=dtypes.int32, device=A.device)
        return LDLFactorEx(A.detach(), none, Tensor.zeros(batch, dtype=dtypes.int32, device=A.device))
    whole = A.detach().tril() + A.detach().tril(-1).mT
    found = run("ldl", n * n + n + 1, (n,), (whole,), batch, n**3 // 3)
    LD, pivots, info = pieces(found, (n, n), (n,), ())
    info = info.cast(dtypes.int32)
    checked_info("ldl_factor_ex", info, check_errors, "block {0} of D is zero, the matrix is singular")
    return LDLFactorEx(LD.tril(), pivots.cast(dtypes.int32), info)


@checked
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LDLFactor:
    """(LD, pivots) for `ldl_solve`: see `ldl_factor_ex`.

    >>> LD, pivots = hcq.torch.linalg.ldl_factor(Tensor([[2.0, 2.0], [2.0, 5.0]]))
    >>> LD.tril().tolist()
    [[2.0, 0.0], [1.0, 3.0]]
    """
    LD, pivots, _ = ldl_factor_ex(A, hermitian=hermitian)
    return LDLFactor(LD, pivots)


@checked
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X with A @ X = B, of the A that `ldl_factor` gave LD and pivots for.

    >>> A, B = Tensor([[0.0, 2.0], [2.0, 0.0]]), Tensor([[2.0], [4.0]])
    >>> hcq.torch.linalg.ldl_solve(*hcq.torch.linalg.ldl_factor(A), B).tolist()
    [[2.0], [1.0]]
    """
    system("ldl_solve", LD, B, "LD")
    n = LD.shape[-1]
    if B.shape[-2] != n or pivots.shape != LD.shape[:-1]:
        raise UsageError(
            f"[ldl_solve] LD of shape {LD.shape}, pivots of shape {pivots.shape}, B of shape {B.shape}: sizes must "
            "agree."
        )
    both, b = batched("ldl_solve", LD, B)
    rows = pivots.cast(LD.dtype).expand((*b.shape[:-2], n))
    k = b.shape[-1]
    found = run("ldl_solve", n * k, (n, k), (both, rows, b), b.shape[:-2], 2 * n * n * k)
    return found.reshape(b.shape)
