"""Distributions of one number between bounds: shares with simple inverses, grey coins, angles.

In       concentrations, chances, directions
Out      Kumaraswamy, ContinuousBernoulli, VonMises
Changes  nothing but what Distribution says
Next     continuous.py, gamma.py (Beta), ops/rejection.py (angles)
Source   Kumaraswamy 1980; Loaiza-Ganem and Cunningham 2019; Best and Fisher 1979
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hcq.frontend.more.distributions import constraints
from hcq.frontend.more.distributions.continuous import EULER
from hcq.frontend.more.distributions.discrete import _Chances
from hcq.frontend.more.distributions.distribution import Distribution, formula, together, uniform
from hcq.frontend.ops import rejection
from hcq.frontend.tensor import Tensor


class Kumaraswamy(Distribution):
    """A share, much as Beta's, whose cdf is 1 - (1 - x**a)**b; a and b are concentration1 and concentration0.

    >>> Kumaraswamy(1.0, 3.0).mean.item()
    0.25
    """

    parameters = ("concentration1", "concentration0")
    has_rsample = True
    support: Any = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = together(concentration1, concentration0)
        super().__init__(self.concentration1.shape)

    def _moment(self, n: float) -> Tensor:
        a, b = 1.0 + n / self.concentration1, self.concentration0
        return (b.log() + a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    mean = formula("b * beta(1 + 1 / a, b).", lambda self: self._moment(1.0))

    @property
    def mode(self) -> Tensor:
        """Where the density is greatest; NaN where a or b is below 1."""
        a, b = self.concentration1, self.concentration0
        is_flat = (a < 1.0) | (b < 1.0) | (a * b == 1.0)
        share = (a - 1.0) / is_flat.where(1.0, a * b - 1.0)
        return is_flat.where(math.nan, share ** (1.0 / a))  # type: ignore[no-any-return]

    variance = formula(
        "The second moment less the mean squared.", lambda self: self._moment(2.0) - self.mean.square()
    )

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """icdf of a uniform number, within what can be told from 0 and 1."""
        eps = 2.0**-24 if self.concentration1.dtype.itemsize < 8 else 2.0**-53
        return self.icdf(uniform(self.concentration1, self._shape(sample_shape)).clamp(eps, 1.0 - eps))

    def log_prob(self, value: Any) -> Tensor:
        x, a, b = self._value(value), self.concentration1, self.concentration0
        return a.log() + b.log() + (a - 1.0) * x.log() + (b - 1.0) * (-(x**a)).log1p()

    def cdf(self, value: Any) -> Tensor:
        return -(self.concentration0 * (-(self._value(value) ** self.concentration1)).log1p()).expm1()

    def icdf(self, value: Any) -> Tensor:
        rest = ((-self._value(value)).log1p() / self.concentration0).expm1()
        return (-rest) ** (1.0 / self.concentration1)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1.0).digamma() + EULER
        return (1.0 - 1.0 / b) + (1.0 - 1.0 / a) * harmonic - a.log() - b.log()


class ContinuousBernoulli(_Chances):
    """A number from 0 to 1 with density probs**x * (1 - probs)**(1 - x), scaled.

    lims   between which chances a series around 1 / 2 is computed instead

    >>> ContinuousBernoulli(0.5).mean.item()
    0.5
    """

    has_rsample = True
    support: Any = constraints.unit_interval

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._take(probs, logits)
        eps = 2.0**-23 if self.probs.dtype.itemsize < 8 else 2.0**-52
        self.probs = self.probs.clamp(eps, 1.0 - eps)
        self._lims = lims
        super().__init__(self.probs.shape)

    def _near(self) -> tuple[Tensor, Tensor]:
        """Where chances are near 1 / 2, and the chances with another in place of these."""
        is_near = (self.probs > self._lims[0]) & (self.probs <= self._lims[1])
        return is_near, is_near.where(self._lims[0], self.probs)

    def _log_size(self) -> Tensor:
        is_near, p = self._near()
        below = (p <= 0.5).where(p, 0.0)
        above = (p >= 0.5).where(p, 1.0)
        span = (p <= 0.5).where((-2.0 * below).log1p(), (2.0 * above - 1.0).log())
        found = ((-p).log1p() - p.log()).abs().log() - span
        x = (self.probs - 0.5).square()
        return is_near.where(math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x, found)  # type: ignore[no-any-return]

    @property
    def mean(self) -> Tensor:
        """p / (2 p - 1) + 1 / (log(1 - p) - log(p))."""
        is_near, p = self._near()
        found = p / (2.0 * p - 1.0) + 1.0 / ((-p).log1p() - p.log())
        x = self.probs - 0.5
        return is_near.where(0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.square()) * x, found)  # type: ignore[no-any-return]

    @property
    def variance(self) -> Tensor:
        is_near, p = self._near()
        found = p * (p - 1.0) / (1.0 - 2.0 * p).square() + 1.0 / ((-p).log1p() - p.log()).square()
        x = (self.probs - 0.5).square()
        return is_near.where(1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x, found)  # type: ignore[no-any-return]

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """icdf of a uniform number."""
        return self.icdf(uniform(self.probs, self._shape(sample_shape)))

    def log_prob(self, value: Any) -> Tensor:
        return self._value(value) * self.logits - self.logits.softplus() + self._log_size()

    def cdf(self, value: Any) -> Tensor:
        is_near, p = self._near()
        x = self._value(value)
        found = (p**x * (1.0 - p) ** (1.0 - x) + p - 1.0) / (2.0 * p - 1.0)
        found = is_near.where(x, found)
        return (x <= 0.0).where(0.0, (x >= 1.0).where(1.0, found))  # type: ignore[no-any-return]

    def icdf(self, value: Any) -> Tensor:
        is_near, p = self._near()
        u = self._value(value)
        rest = (-p).log1p()
        found = ((u * (2.0 * p - 1.0) - p).log1p() - rest) / (p.log() - rest)
        return is_near.where(u, found)  # type: ignore[no-any-return]

    def entropy(self) -> Tensor:
        none, one = (-self.probs).log1p(), self.probs.log()
        return self.mean * (none - one) - self._log_size() - none


class VonMises(Distribution):
    """An angle from -pi to pi around loc, the nearer the higher the concentration.

    >>> print(VonMises(0.0, 1.0).log_prob(0.0).exp())
    tensor(0.3417)
    """

    parameters = ("loc", "concentration")
    support: Any = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = together(loc, concentration)
        super().__init__(self.loc.shape)

    mean = formula("loc.", lambda self: self.loc)
    mode = formula("loc.", lambda self: self.loc)
    variance = formula(
        "On the circle: 1 - I1(concentration) / I0(concentration).",
        lambda self: 1.0 - self.concentration.i1e() / self.concentration.i0e(),
    )

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Angles."""
        wide = self.concentration.detach().expand(self._shape(sample_shape))
        found = rejection.angle(wide, None) + self.loc.detach() + math.pi
        return found % (2.0 * math.pi) - math.pi  # type: ignore[no-any-return]

    def log_prob(self, value: Any) -> Tensor:
        k = self.concentration
        return k * ((self._value(value) - self.loc).cos() - 1.0) - math.log(2.0 * math.pi) - k.i0e().log()
