"""Distributions of vectors: the normal one with a covariance, and batches that are read as one event.

In       a mean and a covariance, its inverse or its triangle; a distribution
Out      MultivariateNormal, LowRankMultivariateNormal, Independent
Changes  nothing but what Distribution says
Next     hcq/frontend/more/linalg/factors.py (triangles)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions import constraints
from hcq.frontend.more.distributions.distribution import LOG_2PI, Distribution, bell, formula
from hcq.frontend.more.linalg.factors import cholesky, solve_triangular
from hcq.frontend.tensor import Tensor


def triangle_of(
    call: str, covariance: Tensor | None, precision: Tensor | None, triangle: Tensor | None
) -> Tensor:
    """The lower triangle of a covariance, from the one of them that is given."""
    given = [one for one in (covariance, precision, triangle) if one is not None]
    if len(given) != 1 or given[0].ndim < 2 or given[0].shape[-1] != given[0].shape[-2]:
        raise UsageError(
            f"[{call}] give one square matrix: covariance_matrix, precision_matrix or scale_tril."
        )
    if covariance is not None:
        return cholesky(covariance)
    if precision is None:
        return given[0]
    # of the matrix turned by 180 degrees, so that the inverse of its triangle is lower again
    upper = cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    unit = Tensor.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return solve_triangular(upper, unit.expand(upper.shape), upper=False)


class MultivariateNormal(Distribution):
    """Vectors with mean loc, whose elements vary together: give covariance_matrix, precision_matrix or scale_tril.

    >>> MultivariateNormal(Tensor([0.0, 0.0]), Tensor([[4.0, 0.0], [0.0, 1.0]])).scale_tril.tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """

    support: Any = constraints.real_vector

    parameters = ("loc", "scale_tril")
    event_rank = {"loc": 1, "scale_tril": 2}  # noqa: RUF012
    has_rsample = True

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None, validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        triangle = triangle_of("MultivariateNormal", covariance_matrix, precision_matrix, scale_tril)
        size = loc.shape[-1] if loc.ndim else 0
        if triangle.shape[-2:] != (size, size):
            raise UsageError(
                f"[MultivariateNormal] loc {loc.shape} and a matrix {triangle.shape}: it has to be of {size} by {size}."
            )
        batch = Tensor.broadcast_shapes(loc.shape[:-1], triangle.shape[:-2])
        self.loc, self.scale_tril = loc.expand((*batch, size)), triangle.expand((*batch, size, size))
        super().__init__(batch, (size,))

    covariance_matrix = formula(
        "How the elements vary together.", lambda self: self.scale_tril @ self.scale_tril.mT
    )

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        size = self.event_shape[0]
        unit = Tensor.eye(size, dtype=self.loc.dtype, device=self.loc.device).expand(self.scale_tril.shape)
        inverse = solve_triangular(self.scale_tril, unit, upper=False)
        return inverse.mT @ inverse

    mean = formula("loc.", lambda self: self.loc)
    mode = formula("loc.", lambda self: self.loc)
    variance = formula("Of each element.", lambda self: self.scale_tril.square().sum(-1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + scale_tril @ standard normal numbers."""
        numbers = bell(self.loc, self._shape(sample_shape))
        return self.loc + (self.scale_tril @ numbers.unsqueeze(-1)).squeeze(-1)

    def _log_size(self) -> Tensor:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def log_prob(self, value: Any) -> Tensor:
        apart = (self._value(value) - self.loc).unsqueeze(-1)
        triangle = self.scale_tril.expand((*apart.shape[:-2], *self.scale_tril.shape[-2:]))
        squares = solve_triangular(triangle, apart, upper=False).squeeze(-1).square().sum(-1)
        return -0.5 * (self.event_shape[0] * LOG_2PI + squares) - self._log_size()

    def entropy(self) -> Tensor:
        return 0.5 * self.event_shape[0] * (1.0 + LOG_2PI) + self._log_size()


class LowRankMultivariateNormal(Distribution):
    """Vectors with mean loc and covariance cov_factor @ cov_factor.T + diag(cov_diag), which is never made.

    cov_factor   (..., size, rank); cov_diag: (..., size)

    >>> one = LowRankMultivariateNormal(Tensor([0.0, 0.0]), Tensor([[1.0], [0.0]]), Tensor([1.0, 1.0]))
    >>> one.covariance_matrix.tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """

    support: Any = constraints.real_vector

    parameters = ("loc", "cov_factor", "cov_diag")
    event_rank = {"loc": 1, "cov_factor": 2, "cov_diag": 1}  # noqa: RUF012
    has_rsample = True

    def __init__(
        self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None
    ) -> None:
        if not loc.ndim or cov_factor.ndim < 2 or not cov_diag.ndim:
            raise UsageError(
                "[LowRankMultivariateNormal] give a vector loc, a matrix cov_factor, a vector cov_diag."
            )
        size, rank = loc.shape[-1], cov_factor.shape[-1]
        if cov_factor.shape[-2] != size or cov_diag.shape[-1] != size:
            raise UsageError(
                f"[LowRankMultivariateNormal] loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag "
                f"{cov_diag.shape}: both have to be of {size} rows."
            )
        batch = Tensor.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc, self.cov_diag = loc.expand((*batch, size)), cov_diag.expand((*batch, size))
        self.cov_factor = cov_factor.expand((*batch, size, rank))
        super().__init__(batch, (size,))

    covariance_matrix = formula(
        "How the elements vary together.",
        lambda self: self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed(),
    )
    scale_tril = formula(
        "The lower triangle of the covariance matrix.", lambda self: cholesky(self.covariance_matrix)
    )

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        part = solve_triangular(self._small(), self._scaled().mT, upper=False)
        return (1.0 / self.cov_diag).diag_embed() - part.mT @ part

    mean = formula("loc.", lambda self: self.loc)
    mode = formula("loc.", lambda self: self.loc)
    variance = formula("Of each element.", lambda self: self.cov_factor.square().sum(-1) + self.cov_diag)

    def _scaled(self) -> Tensor:
        return self.cov_factor / self.cov_diag.unsqueeze(-1)

    def _small(self) -> Tensor:
        """The triangle of a matrix of the rank's size, whose determinant and inverse those of the whole need."""
        rank = self.cov_factor.shape[-1]
        unit = Tensor.eye(rank, dtype=self.loc.dtype, device=self.loc.device)
        return cholesky(unit + self.cov_factor.mT @ self._scaled())

    def _log_size(self) -> Tensor:
        """Half the logarithm of the covariance's determinant."""
        return self._small().diagonal(0, -2, -1).log().sum(-1) + 0.5 * self.cov_diag.log().sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + cov_factor @ some numbers + the root of cov_diag * others."""
        shape = (*sample_shape, *self.batch_shape)
        few = bell(self.loc, (*shape, self.cov_factor.shape[-1]))
        many = bell(self.loc, self._shape(sample_shape))
        return self.loc + (self.cov_factor @ few.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * many

    def log_prob(self, value: Any) -> Tensor:
        apart = self._value(value) - self.loc
        seen = (self._scaled().mT @ apart.unsqueeze(-1)).squeeze(-1).unsqueeze(-1)
        small = self._small()
        small = small.expand((*seen.shape[:-2], *small.shape[-2:]))
        less = solve_triangular(small, seen, upper=False).squeeze(-1).square().sum(-1)
        squares = (apart.square() / self.cov_diag).sum(-1) - less
        return -0.5 * (self.event_shape[0] * LOG_2PI + squares) - self._log_size()

    def entropy(self) -> Tensor:
        return 0.5 * self.event_shape[0] * (1.0 + LOG_2PI) + self._log_size()


class Independent(Distribution):
    """The last axes of a batch are one event: its log_prob is their sum.

    >>> from hcq.torch.distributions import Normal
    >>> Independent(Normal(Tensor([0.0, 0.0]), 1.0), 1).event_shape
    (2,)
    """

    support = formula(
        "Which numbers it draws.",
        lambda self: constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims),
    )

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        count = len(base_distribution.batch_shape) - reinterpreted_batch_ndims
        if reinterpreted_batch_ndims < 0 or count < 0:
            raise UsageError(
                f"[Independent] {reinterpreted_batch_ndims} axes of batch_shape {base_distribution.batch_shape}."
            )
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        self.has_rsample = base_distribution.has_rsample  # type: ignore[misc]
        shape = base_distribution.batch_shape
        super().__init__(shape[:count], (*shape[count:], *base_distribution.event_shape))

    mean = formula("Of each.", lambda self: self.base_dist.mean)
    mode = formula("Of each.", lambda self: self.base_dist.mode)
    variance = formula("Of each.", lambda self: self.base_dist.variance)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """As of the base."""
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """As of the base."""
        return self.base_dist.rsample(sample_shape)

    def _summed(self, value: Tensor) -> Tensor:
        axes = tuple(range(-self.reinterpreted_batch_ndims, 0))
        return value.sum(axes) if axes else value

    def log_prob(self, value: Any) -> Tensor:
        """The sum over the axes."""
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        """The sum over the axes."""
        return self._summed(self.base_dist.entropy())

    def expand(self, batch_shape: Sequence[int]) -> Any:
        """The base expanded."""
        inner = self.base_dist.batch_shape[len(self.batch_shape) :]
        return Independent(self.base_dist.expand((*batch_shape, *inner)), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
