"""Distributions of one number: normal, uniform, exponential, Laplace's, Cauchy's, and exp of a normal one.

In       locations, scales, bounds, rates
Out      Normal, LogNormal, HalfNormal, Uniform, Exponential, Laplace, Cauchy, Gumbel
Changes  nothing but what Distribution says
Next     distribution.py (the base), gamma.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hcq.frontend.more.distributions import constraints
from hcq.frontend.more.distributions.distribution import (
    LOG_2PI,
    Distribution,
    bell,
    formula,
    together,
    uniform,
)
from hcq.frontend.tensor import Tensor

EULER = 0.57721566490153286


class _LocationScale(Distribution):
    parameters = ("loc", "scale")
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = together(loc, scale)
        super().__init__(self.loc.shape)

    mean = formula("loc.", lambda self: self.loc)
    mode = formula("loc.", lambda self: self.loc)

    def _unscaled(self, value: Any) -> Tensor:
        return (self._value(value) - self.loc) / self.scale


class Normal(_LocationScale):
    """The normal distribution with mean loc and deviation scale.

    >>> Normal(0.0, 1.0).log_prob(0.0).exp().item()
    0.3989...
    """

    support: Any = constraints.real

    variance = formula("scale squared.", lambda self: self.scale.square())
    stddev = formula("scale.", lambda self: self.scale)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + scale * a standard normal number."""
        return self.loc + self.scale * bell(self.loc, self._shape(sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        return -0.5 * self._unscaled(value).square() - self.scale.log() - 0.5 * LOG_2PI

    def cdf(self, value: Any) -> Tensor:
        return 0.5 * (1.0 + (self._unscaled(value) / math.sqrt(2.0)).erf())

    def icdf(self, value: Any) -> Tensor:
        return self.loc + self.scale * (2.0 * self._value(value) - 1.0).erfinv() * math.sqrt(2.0)

    def entropy(self) -> Tensor:
        """log(scale * sqrt(2 pi e))."""
        return 0.5 + 0.5 * LOG_2PI + self.scale.log()


class LogNormal(Normal):
    """exp of what Normal(loc, scale) draws.

    >>> LogNormal(0.0, 1.0).mode.item()
    0.3678...
    """

    support: Any = constraints.positive

    mean = formula("exp(loc + scale**2 / 2).", lambda self: (self.loc + 0.5 * self.scale.square()).exp())
    mode = formula("exp(loc - scale**2).", lambda self: (self.loc - self.scale.square()).exp())
    variance = formula(
        "(exp(scale**2) - 1) * mean**2.", lambda self: self.scale.square().expm1() * self.mean.square()
    )
    stddev = formula("The square root of the variance.", lambda self: self.variance.sqrt())

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """exp of a normal number."""
        return super().rsample(sample_shape).exp()

    def log_prob(self, value: Any) -> Tensor:
        logarithm = self._value(value).log()
        return super().log_prob(logarithm) - logarithm

    def cdf(self, value: Any) -> Tensor:
        return super().cdf(self._value(value).log())

    def icdf(self, value: Any) -> Tensor:
        return super().icdf(value).exp()

    def entropy(self) -> Tensor:
        """That of the normal distribution, and loc."""
        return super().entropy() + self.loc


class _Half(Distribution):
    """The size of what a distribution around 0 draws, which is as likely on both sides."""

    parameters = ("scale",)
    has_rsample = True
    support: Any = constraints.nonnegative
    whole: type[_LocationScale]

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        (self.scale,) = together(scale)
        super().__init__(self.scale.shape)

    def _whole(self) -> _LocationScale:
        return self.whole(self.scale * 0.0, self.scale)

    mode = formula("0.", lambda self: self.scale * 0.0)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The size of a number of the whole distribution."""
        return self._whole().rsample(sample_shape).abs()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density; -inf below 0."""
        x = self._value(value)
        return (x >= 0.0).where(self._whole().log_prob(x) + math.log(2.0), -math.inf)  # type: ignore[no-any-return]

    def cdf(self, value: Any) -> Tensor:
        return 2.0 * self._whole().cdf(value) - 1.0

    def icdf(self, value: Any) -> Tensor:
        return self._whole().icdf((self._value(value) + 1.0) / 2.0)

    def entropy(self) -> Tensor:
        """log(2) less than that of the whole distribution."""
        return self._whole().entropy() - math.log(2.0)


class HalfNormal(_Half):
    """The size of what Normal(0, scale) draws.

    >>> HalfNormal(1.0).mean.item()
    0.7978...
    """

    whole = Normal
    mean = formula("scale * sqrt(2 / pi).", lambda self: self.scale * math.sqrt(2.0 / math.pi))
    variance = formula("scale**2 * (1 - 2 / pi).", lambda self: self.scale.square() * (1.0 - 2.0 / math.pi))


class Uniform(Distribution):
    """Each number in [low, high) as likely as the next.

    >>> Uniform(0.0, 4.0).cdf(1.0).item()
    0.25
    """

    parameters = ("low", "high")
    has_rsample = True

    support = formula("Which numbers it draws.", lambda self: constraints.interval(self.low, self.high))

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = together(low, high)
        super().__init__(self.low.shape)

    mean = formula("The middle.", lambda self: (self.low + self.high) / 2.0)
    mode = formula("NaN: there is none.", lambda self: self.low * math.nan)
    variance = formula("(high - low)**2 / 12.", lambda self: (self.high - self.low).square() / 12.0)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """low + a uniform number * (high - low)."""
        return self.low + uniform(self.low, self._shape(sample_shape)) * (self.high - self.low)

    def log_prob(self, value: Any) -> Tensor:
        """-log(high - low); -inf outside."""
        x = self._value(value)
        is_inside = (x >= self.low) & (x < self.high)
        return is_inside.where(-(self.high - self.low).log(), -math.inf)  # type: ignore[no-any-return]

    def cdf(self, value: Any) -> Tensor:
        return ((self._value(value) - self.low) / (self.high - self.low)).clamp(0.0, 1.0)

    def icdf(self, value: Any) -> Tensor:
        return self.low + self._value(value) * (self.high - self.low)

    def entropy(self) -> Tensor:
        """log(high - low)."""
        return (self.high - self.low).log()


class Exponential(Distribution):
    """The time until something happens, at a rate.

    >>> Exponential(2.0).mean.item()
    0.5
    """

    support: Any = constraints.nonnegative

    parameters = ("rate",)
    has_rsample = True

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = together(rate)
        super().__init__(self.rate.shape)

    mean = formula("1 / rate.", lambda self: 1.0 / self.rate)
    mode = formula("0.", lambda self: self.rate * 0.0)
    variance = formula("1 / rate**2.", lambda self: 1.0 / self.rate.square())
    stddev = formula("1 / rate.", lambda self: 1.0 / self.rate)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """-log of a uniform number, / rate."""
        return self.rate._waits(self._shape(sample_shape), None) / self.rate  # type: ignore[no-any-return]

    def log_prob(self, value: Any) -> Tensor:
        """log(rate) - rate * value; -inf below 0."""
        x = self._value(value)
        return (x >= 0.0).where(self.rate.log() - self.rate * x, -math.inf)  # type: ignore[no-any-return]

    def cdf(self, value: Any) -> Tensor:
        return -(-self.rate * self._value(value)).expm1()

    def icdf(self, value: Any) -> Tensor:
        return -(-self._value(value)).log1p() / self.rate

    def entropy(self) -> Tensor:
        """1 - log(rate)."""
        return 1.0 - self.rate.log()


class Laplace(_LocationScale):
    """exp(-|x - loc| / scale) / (2 scale).

    >>> Laplace(0.0, 1.0).log_prob(0.0).exp().item()
    0.5
    """

    support: Any = constraints.real

    variance = formula("2 scale**2.", lambda self: 2.0 * self.scale.square())
    stddev = formula("sqrt(2) scale.", lambda self: math.sqrt(2.0) * self.scale)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The difference of two waiting times."""
        one, other = (self.loc._waits(self._shape(sample_shape), None) for _ in range(2))
        return self.loc + self.scale * (one - other)

    def log_prob(self, value: Any) -> Tensor:
        return -(2.0 * self.scale).log() - self._unscaled(value).abs()

    def cdf(self, value: Any) -> Tensor:
        x = self._unscaled(value)
        return 0.5 - 0.5 * x.sign() * (-x.abs()).expm1()

    def icdf(self, value: Any) -> Tensor:
        apart = self._value(value) - 0.5
        return self.loc - self.scale * apart.sign() * (-2.0 * apart.abs()).log1p()

    def entropy(self) -> Tensor:
        """1 + log(2 scale)."""
        return 1.0 + (2.0 * self.scale).log()


class Cauchy(_LocationScale):
    """The quotient of two normal numbers, scaled; it has no mean.

    >>> Cauchy(0.0, 1.0).cdf(0.0).item()
    0.5
    """

    support: Any = constraints.real

    mean = formula("NaN.", lambda self: self.loc * math.nan)
    variance = formula("Infinity.", lambda self: self.scale * math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + scale * tan of a uniform angle."""
        return self.icdf(uniform(self.loc, self._shape(sample_shape)))

    def log_prob(self, value: Any) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - self._unscaled(value).square().log1p()

    def cdf(self, value: Any) -> Tensor:
        return self._unscaled(value).atan() / math.pi + 0.5

    def icdf(self, value: Any) -> Tensor:
        return self.loc + self.scale * (math.pi * (self._value(value) - 0.5)).tan()

    def entropy(self) -> Tensor:
        """log(4 pi scale)."""
        return (4.0 * math.pi * self.scale).log()


class Gumbel(_LocationScale):
    """The greatest of very many: -log of a waiting time, scaled.

    >>> Gumbel(0.0, 1.0).mean.item()
    0.5772...
    """

    support: Any = constraints.real

    mean = formula("loc + scale * Euler's constant.", lambda self: self.loc + self.scale * EULER)
    variance = formula("(pi * scale)**2 / 6.", lambda self: (math.pi**2 / 6.0) * self.scale.square())

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc - scale * log of a waiting time."""
        unit = uniform(self.loc, self._shape(sample_shape)) + 2.0**-25  # never 0, whose time would be 0
        return self.loc - self.scale * (-unit.log()).log()

    def log_prob(self, value: Any) -> Tensor:
        x = self._unscaled(value)
        return -(x + (-x).exp()) - self.scale.log()

    def cdf(self, value: Any) -> Tensor:
        return (-(-self._unscaled(value)).exp()).exp()

    def icdf(self, value: Any) -> Tensor:
        return self.loc - self.scale * (-self._value(value).log()).log()

    def entropy(self) -> Tensor:
        """log(scale) + 1 + Euler's constant."""
        return self.scale.log() + (1.0 + EULER)
