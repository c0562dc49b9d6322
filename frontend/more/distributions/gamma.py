"""Distributions made of gamma's: gamma, chi squared, beta, Dirichlet's.

In       shapes, rates, concentrations
Out      Gamma, Chi2, Beta, Dirichlet
Changes  nothing but what Distribution says
Next     hcq/frontend/ops/rejection.py (the draws), continuous.py
Source   Figurnov, Mohamed and Mnih 2018, "Implicit Reparameterization Gradients"

What is drawn moves with the shape so that its share stays: dx/da = -(dF/da) / density, F the share below x. The slope
of F in a is a difference of two shares in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from hcq.frontend.grad.function import Function
from hcq.frontend.more.distributions import constraints
from hcq.frontend.more.distributions.distribution import Distribution, formula, together
from hcq.frontend.ops import rejection
from hcq.frontend.special import incomplete as special_incomplete
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node


@cache
def _drawn_on(device: str) -> Function:
    return Function("gamma_draw", partial(_slope, device), is_tracked=True)


def _slope(device: str, node: Node, g: Node) -> Node:
    """How a number that was drawn moves with the shape."""
    drawn, shape = (Tensor._of(one, device).cast(dtypes.float64) for one in node.src)
    drawn = drawn.maximum(1e-300)
    step = 1e-5 * shape
    above, below = (special_incomplete.shares(shape + way * step, drawn)[0] for way in (1.0, -1.0))
    log_density = (shape - 1.0) * drawn.log() - drawn - shape.lgamma()
    moved = (below - above) / (2.0 * step) / log_density.exp()
    # near zero the share is x**a / gamma(a + 1)
    near = drawn * ((shape + 1.0).digamma() - drawn.log()) / shape
    moved = (drawn < 1e-6 * shape).where(near, moved)
    return g * moved.cast(node.dtype).node


def standard_gamma(shape: Tensor) -> Tensor:
    """Numbers of the gamma distribution with these shapes and rate 1; a gradient flows to the shapes."""
    wide = shape._float_at_least_32()
    made = rejection.gamma(wide.detach(), None)
    return wide._like(_drawn_on(wide.device).of(made.node, wide.node)).cast(shape.dtype)  # type: ignore[no-any-return]


class Gamma(Distribution):
    """x**(concentration - 1) * exp(-rate * x), scaled.

    >>> Gamma(3.0, 2.0).mean.item()
    1.5
    """

    support: Any = constraints.nonnegative

    parameters = ("concentration", "rate")
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = together(concentration, rate)
        super().__init__(self.concentration.shape)

    mean = formula("concentration / rate.", lambda self: self.concentration / self.rate)
    mode = formula(
        "(concentration - 1) / rate, at least 0.",
        lambda self: ((self.concentration - 1.0) / self.rate).clamp(0.0),
    )
    variance = formula("concentration / rate**2.", lambda self: self.concentration / self.rate.square())

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Numbers above 0."""
        least = 2.0**-126 if self.rate.dtype is not dtypes.float64 else 2.0**-1022
        return (standard_gamma(self.concentration.expand(self._shape(sample_shape))) / self.rate).clamp(least)

    def log_prob(self, value: Any) -> Tensor:
        x, a = self._value(value), self.concentration
        return a.xlogy(self.rate) + (a - 1.0).xlogy(x) - self.rate * x - a.lgamma()

    def cdf(self, value: Any) -> Tensor:
        return self.concentration.igamma(self.rate * self._value(value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()


class Chi2(Gamma):
    """The sum of the squares of df normal numbers.

    >>> Chi2(4.0).mean.item()
    4.0
    """

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (df,) = together(df)
        super().__init__(0.5 * df, 0.5)

    df = formula("How many.", lambda self: self.concentration * 2.0)


class Dirichlet(Distribution):
    """Shares that add up to 1, of the last axis.

    >>> Dirichlet(Tensor([1.0, 3.0])).mean.tolist()
    [0.25, 0.75]
    """

    support: Any = constraints.simplex

    parameters = ("concentration",)
    event_rank = {"concentration": 1}  # noqa: RUF012
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        (self.concentration,) = together(concentration)
        super().__init__(self.concentration.shape[:-1], self.concentration.shape[-1:])

    mean = formula(
        "Each concentration's part of the sum.",
        lambda self: self.concentration / self.concentration.sum(-1, keepdim=True),
    )

    @property
    def mode(self) -> Tensor:
        """Where the density is greatest; below 1 the share of the largest concentration is 1."""
        rest = (self.concentration - 1.0).clamp(0.0)
        found = rest / rest.sum(-1, keepdim=True)
        is_flat = (self.concentration < 1.0).all(-1, keepdim=True)
        hot = self.concentration.argmax(-1).one_hot(self.event_shape[0]).cast(found.dtype)
        return is_flat.where(hot, found)  # type: ignore[no-any-return]

    @property
    def variance(self) -> Tensor:
        """mean * (1 - mean) / (sum + 1)."""
        total = self.concentration.sum(-1, keepdim=True)
        return self.mean * (1.0 - self.mean) / (total + 1.0)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Gamma's numbers, over their sum."""
        made = standard_gamma(self.concentration.expand(self._shape(sample_shape))).clamp(2.0**-126)
        return made / made.sum(-1, keepdim=True)

    def log_prob(self, value: Any) -> Tensor:
        a = self.concentration
        shares = (a - 1.0).xlogy(self._value(value)).sum(-1)
        return shares + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, count = self.concentration, self.event_shape[0]
        total = a.sum(-1)
        rest = ((a - 1.0) * a.digamma()).sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - (count - total) * total.digamma() - rest


class Beta(Distribution):
    """A share: x**(a - 1) * (1 - x)**(b - 1), scaled; a and b are concentration1 and concentration0.

    >>> Beta(1.0, 3.0).mean.item()
    0.25
    """

    support: Any = constraints.unit_interval

    parameters = ("concentration1", "concentration0")
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = together(concentration1, concentration0)
        super().__init__(self.concentration1.shape)

    def _shares(self) -> Dirichlet:
        return Dirichlet(Tensor.stack([self.concentration1, self.concentration0], -1))

    mean = formula(
        "a / (a + b).", lambda self: self.concentration1 / (self.concentration1 + self.concentration0)
    )
    mode = formula("(a - 1) / (a + b - 2).", lambda self: self._shares().mode[..., 0])

    @property
    def variance(self) -> Tensor:
        """a b / ((a + b)**2 (a + b + 1))."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1.0))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The first of two shares of Dirichlet's."""
        return self._shares().rsample(sample_shape)[..., 0]

    def log_prob(self, value: Any) -> Tensor:
        x = self._value(value)
        return self._shares().log_prob(Tensor.stack([x, 1.0 - x], -1))

    def entropy(self) -> Tensor:
        return self._shares().entropy()
