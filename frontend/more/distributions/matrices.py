"""Distributions of matrices: covariances of several draws, and triangles of correlations.

In       degrees of freedom and a scale; a size and a concentration
Out      Wishart, LKJCholesky
Changes  nothing but what Distribution says
Next     vectors.py, ../linalg/factors.py (triangles)
Source   Bartlett 1933; Lewandowski, Kurowicka and Joe 2009 (the onion method)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hcq.checks import is_whole, shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions import constraints
from hcq.frontend.more.distributions.distribution import Distribution, bell, formula, together
from hcq.frontend.more.distributions.gamma import Beta, Gamma
from hcq.frontend.more.distributions.vectors import triangle_of
from hcq.frontend.more.linalg.factors import cholesky, solve_triangular
from hcq.frontend.tensor import Tensor


class Wishart(Distribution):
    """The sum of x x^T over df normal vectors x of a scale: give covariance_matrix, precision_matrix or scale_tril.

    >>> from hcq.torch.distributions import Wishart
    >>> Wishart(3.0, Tensor([[4.0, 0.0], [0.0, 1.0]])).mean.tolist()
    [[12.0, 0.0], [0.0, 3.0]]
    """

    parameters = ("df", "scale_tril")
    event_rank = {"scale_tril": 2}  # noqa: RUF012
    has_rsample = True
    support: Any = constraints.positive_definite

    def __init__(
        self, df: Any, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None, validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        triangle = triangle_of("Wishart", covariance_matrix, precision_matrix, scale_tril)
        (given,) = together(df)
        size = triangle.shape[-1]
        batch = Tensor.broadcast_shapes(given.shape, triangle.shape[:-2])
        self.df = given.cast(triangle.dtype).to(triangle.device).expand(batch)
        self.scale_tril = triangle.expand((*batch, size, size))
        super().__init__(batch, (size, size))

    covariance_matrix = formula(
        "The scale: of each of the vectors.", lambda self: self.scale_tril @ self.scale_tril.mT
    )

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the scale."""
        inverse = solve_triangular(self.scale_tril, self._unit(), upper=False)
        return inverse.mT @ inverse

    def _unit(self) -> Tensor:
        size = self.event_shape[0]
        unit = Tensor.eye(size, dtype=self.scale_tril.dtype, device=self.scale_tril.device)
        return unit.expand(self.scale_tril.shape)

    def _wide(self) -> Tensor:
        return self.df.reshape(*self.batch_shape, 1, 1)

    mean = formula("df * covariance_matrix.", lambda self: self._wide() * self.covariance_matrix)

    @property
    def mode(self) -> Tensor:
        """(df - size - 1) * covariance_matrix; NaN where that is not above 0."""
        factor = self._wide() - self.event_shape[0] - 1.0
        return (factor <= 0.0).where(math.nan, factor) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        """Of each element."""
        scale = self.covariance_matrix
        sides = scale.diagonal(0, -2, -1)
        return self._wide() * (scale.square() + sides.unsqueeze(-1) * sides.unsqueeze(-2))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """By a triangle of normal numbers, with roots of sums of squares on its diagonal."""
        size = self.event_shape[0]
        freedom = self.df.unsqueeze(-1) - Tensor.arange(size, device=self.df.device)
        sides = Gamma(0.5 * freedom, 0.5).rsample(sample_shape).sqrt()
        numbers = bell(self.scale_tril, self._shape(sample_shape)).tril(-1) + sides.diag_embed()
        moved = self.scale_tril @ numbers
        return moved @ moved.mT

    def _log_scale(self) -> Tensor:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def log_prob(self, value: Any) -> Tensor:
        x, size = self._value(value), self.event_shape[0]
        lower = cholesky(x)
        shape = (*Tensor.broadcast_shapes(lower.shape[:-2], self.batch_shape), *self.event_shape)
        lower, triangle = lower.expand(shape), self.scale_tril.expand(shape)
        spread = solve_triangular(triangle, lower, upper=False).square().sum((-2, -1))
        rise = (self.df - size - 1.0) * lower.diagonal(0, -2, -1).log().sum(-1)
        size_log = self.df * (0.5 * size * math.log(2.0) + self._log_scale())
        return rise - 0.5 * spread - size_log - (0.5 * self.df).mvlgamma(size)

    def entropy(self) -> Tensor:
        size = self.event_shape[0]
        places = Tensor.arange(size, device=self.df.device) * 0.5
        slopes = (0.5 * self.df.unsqueeze(-1) - places).digamma().sum(-1)
        known = (size + 1.0) * (0.5 * size * math.log(2.0) + self._log_scale())
        rest = 0.5 * (self.df - size - 1.0) * slopes
        return known + (0.5 * self.df).mvlgamma(size) - rest + 0.5 * self.df * size


class LKJCholesky(Distribution):
    """The lower triangle of a correlation matrix of `dim` by `dim`; 1 has all as likely, more has them near none.

    >>> from hcq.torch.distributions import LKJCholesky
    >>> LKJCholesky(3, 0.5).sample((2,)).shape
    (2, 3, 3)
    """

    parameters = ("concentration",)
    support: Any = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if not is_whole(dim) or dim < 2:
            raise UsageError(f"[LKJCholesky] dim={shown(dim)}: give an int, 2 or more.")
        self.dim = int(dim)
        (self.concentration,) = together(concentration)
        super().__init__(self.concentration.shape, (self.dim, self.dim))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Row by row: a direction, and how far it goes."""
        like = self.concentration.detach()
        place = Tensor([0.0, *(float(n) for n in range(self.dim - 1))], like.device, like.dtype)
        rest = like.unsqueeze(-1) + 0.5 * (self.dim - 2)
        lengths = Beta(place + 0.5, rest - 0.5 * place).sample(sample_shape).unsqueeze(-1)
        numbers = bell(like, self._shape(sample_shape)).tril(-1)
        sizes = numbers.norm(2, -1, keepdim=True)
        ways = numbers / (sizes == 0.0).where(1.0, sizes)
        lower = lengths.sqrt() * ways
        side = (1.0 - lower.square().sum(-1)).clamp(1.2e-38).sqrt()
        return lower + side.diag_embed()

    def log_prob(self, value: Any) -> Tensor:
        x, less = self._value(value), self.dim - 1
        order = Tensor.arange(2, self.dim + 1, device=x.device)
        power = 2.0 * (self.concentration - 1.0).unsqueeze(-1) + (self.dim - order)
        found = (power * x.diagonal(0, -2, -1)[..., 1:].log()).sum(-1)
        alpha = self.concentration + 0.5 * less
        size = 0.5 * less * math.log(math.pi) + (alpha - 0.5).mvlgamma(less) - alpha.lgamma() * less
        return found - size
