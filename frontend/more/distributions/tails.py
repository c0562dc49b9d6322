"""Distributions of one number with long tails: Student's t, Pareto's, Weibull's, and quotients of gamma's.

In       scales, shapes, degrees of freedom
Out      StudentT, FisherSnedecor, HalfCauchy, InverseGamma, Pareto, GeneralizedPareto, Weibull
Changes  nothing but what Distribution says
Next     continuous.py (those with short tails), gamma.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hcq.frontend.more.distributions import constraints
from hcq.frontend.more.distributions.continuous import EULER, Cauchy, _Half
from hcq.frontend.more.distributions.distribution import Distribution, bell, formula, together, uniform
from hcq.frontend.more.distributions.gamma import Gamma
from hcq.frontend.tensor import Tensor


class StudentT(Distribution):
    """A normal number over the root of a mean of df squares of others, scaled and moved.

    >>> StudentT(5.0).variance.item()
    1.6666...
    """

    parameters = ("df", "loc", "scale")
    has_rsample = True
    support: Any = constraints.real

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = together(df, loc, scale)
        super().__init__(self.df.shape)

    mean = formula("loc; NaN where df is 1 or less.", lambda self: (self.df <= 1.0).where(math.nan, self.loc))
    mode = formula("loc.", lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        """scale**2 * df / (df - 2); infinite from 2 down to 1, NaN below."""
        found = self.scale.square() * self.df / (self.df - 2.0)
        found = (self.df <= 2.0).where(math.inf, found)
        return (self.df <= 1.0).where(math.nan, found)  # type: ignore[no-any-return]

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + scale * a normal number / the root of a mean of squares."""
        squares = Gamma(0.5 * self.df, 0.5).rsample(sample_shape)
        return self.loc + self.scale * bell(self.loc, self._shape(sample_shape)) * (squares / self.df).rsqrt()

    def log_prob(self, value: Any) -> Tensor:
        y, half = (self._value(value) - self.loc) / self.scale, 0.5 * self.df
        size = (
            self.scale.log()
            + 0.5 * (self.df.log() + math.log(math.pi))
            + half.lgamma()
            - (half + 0.5).lgamma()
        )
        return -(half + 0.5) * (y.square() / self.df).log1p() - size

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        beta = half.lgamma() + 0.5 * math.log(math.pi) - (half + 0.5).lgamma()
        bent = (half + 0.5) * ((half + 0.5).digamma() - half.digamma())
        return self.scale.log() + bent + 0.5 * self.df.log() + beta


class FisherSnedecor(Distribution):
    """The quotient of two means of squares of normal numbers, df1 and df2 of them.

    >>> FisherSnedecor(3.0, 4.0).mean.item()
    2.0
    """

    parameters = ("df1", "df2")
    has_rsample = True
    support: Any = constraints.positive

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = together(df1, df2)
        super().__init__(self.df1.shape)

    mean = formula(
        "df2 / (df2 - 2); NaN where df2 is 2 or less.",
        lambda self: (self.df2 <= 2.0).where(math.nan, self.df2 / (self.df2 - 2.0)),
    )

    @property
    def mode(self) -> Tensor:
        """(df1 - 2) / df1 * df2 / (df2 + 2); NaN where df1 is 2 or less."""
        found = (self.df1 - 2.0) / self.df1 * self.df2 / (self.df2 + 2.0)
        return (self.df1 <= 2.0).where(math.nan, found)  # type: ignore[no-any-return]

    @property
    def variance(self) -> Tensor:
        """NaN where df2 is 4 or less."""
        a, b = self.df1, self.df2
        found = 2.0 * b.square() * (a + b - 2.0) / (a * (b - 2.0).square() * (b - 4.0))
        return (b <= 4.0).where(math.nan, found)  # type: ignore[no-any-return]

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The quotient of two gamma numbers."""
        above = Gamma(0.5 * self.df1, 0.5 * self.df1).rsample(sample_shape)
        return above / Gamma(0.5 * self.df2, 0.5 * self.df2).rsample(sample_shape)

    def log_prob(self, value: Any) -> Tensor:
        x, a, b = self._value(value), 0.5 * self.df1, 0.5 * self.df2
        share = self.df1 / self.df2
        size = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return size + a * share.log() + (a - 1.0) * x.log() - (a + b) * (share * x).log1p()


class HalfCauchy(_Half):
    """The size of what Cauchy(0, scale) draws.

    >>> HalfCauchy(2.0).cdf(2.0).item()
    0.5
    """

    whole = Cauchy
    mean = formula("Infinity.", lambda self: self.scale * math.inf)
    variance = formula("Infinity.", lambda self: self.scale * math.inf)


class InverseGamma(Distribution):
    """1 / what Gamma(concentration, rate) draws.

    >>> InverseGamma(3.0, 4.0).mean.item()
    2.0
    """

    parameters = ("concentration", "rate")
    has_rsample = True
    support: Any = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = together(concentration, rate)
        super().__init__(self.concentration.shape)

    def _turned(self) -> Gamma:
        return Gamma(self.concentration, self.rate)

    @property
    def mean(self) -> Tensor:
        """rate / (concentration - 1); infinite where that is not above 0."""
        found = self.rate / (self.concentration - 1.0)
        return (self.concentration > 1.0).where(found, math.inf)  # type: ignore[no-any-return]

    mode = formula("rate / (concentration + 1).", lambda self: self.rate / (self.concentration + 1.0))

    @property
    def variance(self) -> Tensor:
        """Infinite where the concentration is 2 or less."""
        less = self.concentration - 1.0
        found = self.rate.square() / (less.square() * (less - 1.0))
        return (self.concentration > 2.0).where(found, math.inf)  # type: ignore[no-any-return]

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """1 / one of Gamma's."""
        return 1.0 / self._turned().rsample(sample_shape)

    def log_prob(self, value: Any) -> Tensor:
        x = self._value(value)
        return self._turned().log_prob(1.0 / x) - 2.0 * x.log()

    def cdf(self, value: Any) -> Tensor:
        return self.concentration.igammac(self.rate / self._value(value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1.0 + a) * a.digamma()


class Pareto(Distribution):
    """scale times a power of 1 / a uniform number: nothing is below scale, and alpha says how fast tails end.

    >>> Pareto(1.0, 3.0).mean.item()
    1.5
    """

    parameters = ("scale", "alpha")
    has_rsample = True

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = together(scale, alpha)
        super().__init__(self.scale.shape)

    support = formula("Numbers from scale on.", lambda self: constraints.greater_than_eq(self.scale))

    @property
    def mean(self) -> Tensor:
        """alpha * scale / (alpha - 1); infinite where alpha is 1 or less."""
        a = self.alpha.clamp(1.0)
        return a * self.scale / (a - 1.0)

    mode = formula("scale.", lambda self: self.scale)

    @property
    def variance(self) -> Tensor:
        """Infinite where alpha is 2 or less."""
        a = self.alpha.clamp(2.0)
        return self.scale.square() * a / ((a - 1.0).square() * (a - 2.0))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """scale * exp(a waiting time / alpha)."""
        return self.scale * (self.scale._waits(self._shape(sample_shape), None) / self.alpha).exp()  # type: ignore[no-any-return]

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density; -inf below scale."""
        x = self._value(value)
        found = self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1.0) * x.log()
        return (x >= self.scale).where(found, -math.inf)  # type: ignore[no-any-return]

    def cdf(self, value: Any) -> Tensor:
        return -(self.alpha * (self.scale / self._value(value)).log()).expm1()

    def icdf(self, value: Any) -> Tensor:
        return self.scale * (-(-self._value(value)).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        """log(scale / alpha) + 1 + 1 / alpha."""
        return (self.scale / self.alpha).log() + 1.0 + 1.0 / self.alpha


class GeneralizedPareto(Distribution):
    """How far what is beyond a high limit is beyond it: tails of every kind, by concentration: 0 is exponential.

    >>> GeneralizedPareto(0.0, 1.0, 0.5).mean.item()
    2.0
    """

    parameters = ("loc", "scale", "concentration")
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = together(loc, scale, concentration)
        super().__init__(self.loc.shape)

    @property
    def support(self) -> Any:
        """From loc on; a concentration below 0 has a greatest number."""
        most = (self.concentration < 0.0).where(self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, most)

    @property
    def mean(self) -> Tensor:
        """Infinite where the concentration is 1 or more."""
        found = self.loc + self.scale / (1.0 - self.concentration)
        return (self.concentration < 1.0).where(found, math.inf)  # type: ignore[no-any-return]

    mode = formula("loc.", lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        """Infinite where the concentration is 1 / 2 or more."""
        c = self.concentration
        found = self.scale.square() / ((1.0 - c).square() * (1.0 - 2.0 * c))
        return (c < 0.5).where(found, math.inf)  # type: ignore[no-any-return]

    def _log_left(self, value: Any) -> tuple[Tensor, Tensor]:
        """log of how likely it is to draw more, and log1p(c * z) in it."""
        z, c = (self._value(value) - self.loc) / self.scale, self.concentration
        is_zero = c.abs() < 1e-7
        bent = (is_zero.where(0.0, c) * z).log1p()
        return is_zero.where(-z, -bent / is_zero.where(1.0, c)), bent

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """icdf of a uniform number."""
        return self.icdf(uniform(self.loc, self._shape(sample_shape)))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density; -inf outside."""
        left, bent = self._log_left(value)
        x = self._value(value)
        is_inside = (x >= self.loc) & (1.0 + self.concentration * (x - self.loc) / self.scale > 0.0)
        return is_inside.where(left - bent - self.scale.log(), -math.inf)  # type: ignore[no-any-return]

    def cdf(self, value: Any) -> Tensor:
        return -self._log_left(value)[0].expm1()

    def icdf(self, value: Any) -> Tensor:
        left, c = (-self._value(value)).log1p(), self.concentration
        is_zero = c.abs() < 1e-7
        bent = (-left * is_zero.where(0.0, c)).expm1() / is_zero.where(1.0, c)
        return self.loc + self.scale * is_zero.where(-left, bent)

    def entropy(self) -> Tensor:
        """log(scale) + concentration + 1."""
        return self.scale.log() + self.concentration + 1.0


class Weibull(Distribution):
    """scale times a power of a waiting time: the time until something breaks that ages, above concentration 1.

    >>> Weibull(2.0, 1.0).mean.item()
    2.0
    """

    parameters = ("scale", "concentration")
    has_rsample = True
    support: Any = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = together(scale, concentration)
        super().__init__(self.scale.shape)

    mean = formula(
        "scale * gamma(1 + 1 / concentration).",
        lambda self: self.scale * (1.0 + 1.0 / self.concentration).lgamma().exp(),
    )

    @property
    def mode(self) -> Tensor:
        """scale * ((concentration - 1) / concentration) ** (1 / concentration)."""
        share = (self.concentration - 1.0) / self.concentration
        return self.scale * share ** (1.0 / self.concentration)

    @property
    def variance(self) -> Tensor:
        """scale**2 * (gamma(1 + 2 / concentration) - gamma(1 + 1 / concentration)**2)."""
        first, second = ((1.0 + n / self.concentration).lgamma() for n in (1.0, 2.0))
        return self.scale.square() * (second.exp() - (2.0 * first).exp())

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """scale * a waiting time ** (1 / concentration)."""
        waits = self.scale._waits(self._shape(sample_shape), None)
        return self.scale * waits ** (1.0 / self.concentration)  # type: ignore[no-any-return]

    def log_prob(self, value: Any) -> Tensor:
        share = self._value(value) / self.scale
        size = self.concentration.log() - self.scale.log()
        return size + (self.concentration - 1.0) * share.log() - share**self.concentration

    def cdf(self, value: Any) -> Tensor:
        return -(-((self._value(value) / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Any) -> Tensor:
        return self.scale * (-(-self._value(value)).log1p()) ** (1.0 / self.concentration)

    def entropy(self) -> Tensor:
        return EULER * (1.0 - 1.0 / self.concentration) + (self.scale / self.concentration).log() + 1.0
