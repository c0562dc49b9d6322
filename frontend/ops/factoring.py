"""Factoring: what takes matrices apart, as methods by PyTorch's names.

In       tensors of float32 or float64
Out      lazy tensors of factors, solutions, determinants
Changes  nothing
Next     ../more/linalg/ (the functions, loaded when one is first called), ../functions/linalg.py (`hcq.torch.linalg`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq.frontend.ops.base import Methods
from hcq.frontend.ops.table import above

if TYPE_CHECKING:
    from typing_extensions import Self


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

    def cholesky_solve(self, L: Self, upper: bool = False) -> Self:
        """X with A @ X = this tensor, of the A whose Cholesky factor is L.

        >>> L = Tensor([[2.0, 0.0], [0.0, 4.0]])
        >>> Tensor([[4.0], [16.0]]).cholesky_solve(L).tolist()
        [[1.0], [1.0]]
        """
        return _linalg("cholesky_solve")(self, L, upper)  # type: ignore[no-any-return]

    def cholesky_inverse(self, upper: bool = False) -> Self:
        """The inverse of the A whose Cholesky factor this tensor is.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).cholesky_inverse().tolist()
        [[0.25, 0.0], [0.0, 0.0625]]
        """
        return _linalg("cholesky_inverse")(self, upper)  # type: ignore[no-any-return]

    def lu(self, pivot: bool = True, get_infos: bool = False) -> Any:
        """(LU, pivots), with get_infos also info: see `linalg.lu_factor_ex`. `linalg.lu` gives (P, L, U).

        >>> LU, pivots = Tensor([[1.0, 2.0], [2.0, 8.0]]).lu()
        >>> LU.tolist(), pivots.tolist()
        ([[2.0, 8.0], [0.5, -2.0]], [2, 2])
        """
        return _linalg("lu_packed")(self, pivot, get_infos)

    def lu_solve(self, LU_data: Self, LU_pivots: Self) -> Self:
        """X with A @ X = this tensor, of the A that `lu` gave LU and pivots for.

        >>> LU, pivots = Tensor([[0.0, 2.0], [4.0, 0.0]]).lu()
        >>> Tensor([[2.0], [8.0]]).lu_solve(LU, pivots).tolist()
        [[2.0], [1.0]]
        """
        return _linalg("lu_solve")(LU_data, LU_pivots, self)  # type: ignore[no-any-return]

    def lu_unpack(self, LU_pivots: Self, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
        """(P, L, U) of what `lu` gave, this tensor being its LU.

        >>> LU, pivots = Tensor([[0.0, 2.0], [4.0, 0.0]]).lu()
        >>> P, L, U = LU.lu_unpack(pivots)
        >>> P.tolist(), U.tolist()
        ([[0.0, 1.0], [1.0, 0.0]], [[4.0, 0.0], [0.0, 2.0]])
        """
        return _linalg("lu_unpack")(self, LU_pivots, unpack_data, unpack_pivots)

    def triangular_solve(
        self, A: Self, upper: bool = True, transpose: bool = False, unitriangular: bool = False
    ) -> Any:
        """(X with A @ X = this tensor, A), of a triangular A; with `transpose` X with A.mT @ X = this tensor.

        >>> A = Tensor([[2.0, 0.0], [0.0, 4.0]])
        >>> Tensor([[2.0], [8.0]]).triangular_solve(A).solution.tolist()
        [[1.0], [2.0]]
        """
        return _linalg("triangular_solve")(self, A, upper, transpose, unitriangular)

    def inverse(self) -> Self:
        """The inverse of square matrices; NaN where there is none: see `hcq.torch.linalg.inv`.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).inverse().tolist()
        [[0.5, 0.0], [0.0, 0.25]]
        """
        return _linalg("inv")(self)  # type: ignore[no-any-return]

    def det(self) -> Self:
        """The determinant of square matrices.

        >>> print(Tensor([[[3.0, 0.0], [1.0, 4.0]], [[1.0, 2.0], [2.0, 4.0]]]).det().abs())
        tensor([12.,  0.])
        """
        return _linalg("det")(self)  # type: ignore[no-any-return]

    def slogdet(self) -> Any:
        """(sign, logabsdet) of the determinant: see `hcq.torch.linalg.slogdet`.

        >>> sign, logabsdet = Tensor([[-1.0, 0.0], [0.0, 1.0]]).slogdet()
        >>> sign.item(), logabsdet.item()
        (-1.0, 0.0)
        """
        return _linalg("slogdet")(self)

    def logdet(self) -> Self:
        """The logarithm of the determinant: NaN where that is negative, -inf where it is 0.

        >>> print(Tensor([[2.0, 0.0], [0.0, 4.0]]).logdet())
        tensor(2.0794)
        """
        return _linalg("logdet")(self)  # type: ignore[no-any-return]

    def qr(self, some: bool = True) -> Any:
        """(Q, R), reduced, or complete where not `some`: see `hcq.torch.linalg.qr`.

        >>> Q, R = Tensor.ones(3, 2).qr()
        >>> Q.shape, R.shape
        ((3, 2), (2, 2))
        """
        return _linalg("qr_some")(self, some)

    def geqrf(self) -> Any:
        """(a, tau): R with the reflections that Q is made of: see `hcq.torch.linalg.geqrf`.

        >>> a, tau = Tensor([[3.0], [4.0]]).geqrf()
        >>> print(a[0].abs(), tau.shape)
        tensor([5.]) (1,)
        """
        return _linalg("geqrf")(self)

    def ormqr(self, tau: Self, other: Self, left: bool = True, transpose: bool = False) -> Self:
        """Q @ other, this tensor and tau being what `geqrf` gave: see `hcq.torch.linalg.ormqr`.

        >>> a, tau = Tensor([[3.0], [4.0]]).geqrf()
        >>> a.ormqr(tau, Tensor.ones(2, 5)).shape
        (2, 5)
        """
        return _linalg("ormqr")(self, tau, other, left, transpose)  # type: ignore[no-any-return]

    def orgqr(self, tau: Self) -> Self:
        """The first columns of Q, this tensor and tau being what `geqrf` gave: `hcq.torch.linalg.householder_product`.

        >>> a, tau = Tensor([[3.0], [4.0]]).geqrf()
        >>> print(a.orgqr(tau).abs())
        tensor([[0.6000],
                [0.8000]])
        """
        return _linalg("householder_product")(self, tau)  # type: ignore[no-any-return]

    def svd(self, some: bool = True, compute_uv: bool = True) -> Any:
        """(U, S, V) with this tensor = U @ diag(S) @ V.mT; `hcq.torch.linalg.svd` gives Vh, which is V.mT.

        >>> U, S, V = Tensor([[3.0, 0.0], [0.0, -4.0]]).svd()
        >>> S.tolist()
        [4.0, 3.0]
        """
        return _linalg("plain_svd")(self, some, compute_uv)

    def pinverse(self, rcond: float = 1e-15) -> Self:
        """The pseudo-inverse of matrices: see `hcq.torch.linalg.pinv`.

        >>> Tensor([[2.0, 0.0]]).pinverse().tolist()
        [[0.5], [0.0]]
        """
        return _linalg("pinv")(self, rcond)  # type: ignore[no-any-return]

    def matrix_exp(self) -> Self:
        """The exponential of square matrices: see `hcq.torch.linalg.matrix_exp`.

        >>> print(Tensor([[0.0, 1.0], [0.0, 0.0]]).matrix_exp())
        tensor([[1., 1.],
                [0., 1.]])
        """
        return _linalg("matrix_exp")(self)  # type: ignore[no-any-return]

    def svd_lowrank(self, q: int | None = 6, niter: int | None = 2, M: Self | None = None) -> Any:
        """About the q greatest singular values with their vectors: see `hcq.torch.linalg.svd_lowrank`.

        >>> U, S, V = Tensor.ones(4, 3).svd_lowrank(q=1)
        >>> U.shape, V.shape
        ((4, 1), (3, 1))
        """
        return _linalg("svd_lowrank")(self, q, niter, M)

    def pca_lowrank(self, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
        """About the q principal components of the rows: see `hcq.torch.linalg.pca_lowrank`.

        >>> U, S, V = Tensor([[1.0, 0.0], [3.0, 0.0]]).pca_lowrank(q=1)
        >>> print(S)
        tensor([1.4142])
        """
        return _linalg("pca_lowrank")(self, q, center, niter)

    def _matrix_norm(self, order: Any, axes: tuple[int, ...], keepdim: bool) -> Self:
        return _linalg("matrix_norm")(self, order, axes, keepdim)  # type: ignore[no-any-return]
