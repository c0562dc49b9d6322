"""Factoring: what takes matrices apart, as methods by PyTorch's names.

In       tensors of float32 or float64
Out      lazy tensors of factors, solutions, determinants
Next     ../more/linalg/ (the functions, loaded when one is first called; functions.py is `hcq.torch.linalg`)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.ops.forwarded import OfFunction
from hcq.frontend.ops.table import above


def _linalg(name: str) -> Any:
    return getattr(above("linalg"), name)


class Factoring(Methods):
    """cholesky and related functions, lu, inverse, det, triangular_solve, qr, svd, matrix_exp."""

    __slots__ = ()

    def cholesky(self, upper: bool = False) -> Self:
        """The Cholesky factor of symmetric positive definite matrices: see `hcq.torch.linalg.cholesky`.

        >>> Tensor([[4.0, 2.0], [2.0, 2.0]]).cholesky().tolist()
        [[2.0, 0.0], [1.0, 1.0]]
        """
        return _linalg("cholesky")(self, upper=upper)  # type: ignore[no-any-return]

    def lu_solve(self, LU_data: Self, LU_pivots: Self) -> Self:
        """X with A @ X = this tensor, of the A that `lu` gave LU and pivots for.

        >>> LU, pivots = Tensor([[0.0, 2.0], [4.0, 0.0]]).lu()
        >>> Tensor([[2.0], [8.0]]).lu_solve(LU, pivots).tolist()
        [[2.0], [1.0]]
        """
        return _linalg("lu_solve")(LU_data, LU_pivots, self)  # type: ignore[no-any-return]

    def inverse(self) -> Self:
        """The inverse of square matrices; NaN where there is none: see `hcq.torch.linalg.inv`.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).inverse().tolist()
        [[0.5, 0.0], [0.0, 0.25]]
        """
        return _linalg("inv")(self)  # type: ignore[no-any-return]

    def pinverse(self, rcond: float = 1e-15) -> Self:
        """The pseudo-inverse of matrices: see `hcq.torch.linalg.pinv`.

        >>> Tensor([[2.0, 0.0]]).pinverse().tolist()
        [[0.5], [0.0]]
        """
        return _linalg("pinv")(self, rcond)  # type: ignore[no-any-return]

    def _matrix_norm(self, order: Any, axes: tuple[int, ...], keepdim: bool) -> Self:
        return _linalg("matrix_norm")(self, order, axes, keepdim)  # type: ignore[no-any-return]


# method -> the function of linalg that it is
SAME = {
    **{name: name for name in (
        "cholesky_solve cholesky_inverse lu_unpack triangular_solve det slogdet logdet geqrf ormqr matrix_exp "
        "svd_lowrank pca_lowrank".split()
    )},
    "lu": "lu_packed", "qr": "qr_some", "orgqr": "householder_product", "svd": "plain_svd",
}  # fmt: skip
for _name, _function in SAME.items():
    _form = OfFunction(_name, "linalg", _function)
    setattr(Factoring, _name, _form)
    _form.__set_name__(Factoring, _name)
