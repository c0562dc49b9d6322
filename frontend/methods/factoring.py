"""Factoring: what takes matrices apart, as methods by PyTorch's names.

In       tensors of float32 or float64
Out      lazy tensors of factors, solutions, determinants
Changes  nothing
Next     ../linalg/ (the functions, loaded when one is first called), ../functions_linalg.py (`hcq.linalg`)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hcq.frontend.methods.base import Methods

if TYPE_CHECKING:
    from typing_extensions import Self


def _linalg(name: str) -> Any:
    return getattr(importlib.import_module("hcq.frontend.functions_linalg"), name)


class Factoring(Methods):
    """cholesky and its kin, lu, inverse, det, triangular_solve."""

    __slots__ = ()

    def cholesky(self, upper: bool = False) -> Self:
        """The Cholesky factor of symmetric positive definite matrices: see `hcq.linalg.cholesky`."""
        return _linalg("cholesky")(self, upper=upper)  # type: ignore[no-any-return]

    def cholesky_solve(self, L: Self, upper: bool = False) -> Self:
        """X with A @ X = this tensor, of the A whose Cholesky factor is L."""
        return _linalg("cholesky_solve")(self, L, upper)  # type: ignore[no-any-return]

    def cholesky_inverse(self, upper: bool = False) -> Self:
        """The inverse of the A whose Cholesky factor this tensor is."""
        return _linalg("cholesky_inverse")(self, upper)  # type: ignore[no-any-return]

    def lu(self, pivot: bool = True, get_infos: bool = False) -> Any:
        """(LU, pivots), with get_infos also info: see `hcq.linalg.lu_factor_ex`. `hcq.linalg.lu` gives (P, L, U)."""
        return _linalg("lu_packed")(self, pivot, get_infos)

    def lu_solve(self, LU_data: Self, LU_pivots: Self) -> Self:
        """X with A @ X = this tensor, of the A that `lu` gave LU and pivots for."""
        return _linalg("lu_solve")(LU_data, LU_pivots, self)  # type: ignore[no-any-return]

    def lu_unpack(self, LU_pivots: Self, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
        """(P, L, U) of what `lu` gave, this tensor being its LU."""
        return _linalg("lu_unpack")(self, LU_pivots, unpack_data, unpack_pivots)

    def triangular_solve(
        self, A: Self, upper: bool = True, transpose: bool = False, unitriangular: bool = False
    ) -> Any:
        """(X with A @ X = this tensor, A), of a triangular A; with `transpose` X with A.mT @ X = this tensor."""
        return _linalg("triangular_solve")(self, A, upper, transpose, unitriangular)

    def inverse(self) -> Self:
        """The inverse of square matrices; NaN where there is none: see `hcq.linalg.inv`."""
        return _linalg("inv")(self)  # type: ignore[no-any-return]

    def det(self) -> Self:
        """The determinant of square matrices."""
        return _linalg("det")(self)  # type: ignore[no-any-return]

    def slogdet(self) -> Any:
        """(sign, logabsdet) of the determinant: see `hcq.linalg.slogdet`."""
        return _linalg("slogdet")(self)

    def logdet(self) -> Self:
        """The logarithm of the determinant: NaN where that is negative, -inf where it is 0."""
        return _linalg("logdet")(self)  # type: ignore[no-any-return]
