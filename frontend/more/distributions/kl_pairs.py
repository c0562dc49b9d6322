"""Divergences of further pairs: cross entropies, from averages of the first that the second asks for, less entropies.

In       two distributions of different families, or of the rarer ones
Out      what `kl_divergence` finds for them
Changes  the table of kl.py, once, when a pair is first asked for that is not in it
Next     kl.py (pairs of one common family)

A density asks the first distribution for a few averages: of x, x**2, log(x), log(1 - x), exp(-t x), |x - a|. What draws
where the second density is zero is infinitely far from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions.bounded import ContinuousBernoulli
from hcq.frontend.more.distributions.continuous import (
    EULER,
    Cauchy,
    Exponential,
    Gumbel,
    HalfNormal,
    Laplace,
    Normal,
    Uniform,
)
from hcq.frontend.more.distributions.counts import Binomial
from hcq.frontend.more.distributions.discrete import Bernoulli, Poisson
from hcq.frontend.more.distributions.distribution import LOG_2PI
from hcq.frontend.more.distributions.gamma import Beta, Gamma
from hcq.frontend.more.distributions.kl import kl_divergence, normal_vectors, register_kl
from hcq.frontend.more.distributions.tails import Pareto
from hcq.frontend.more.distributions.transformed import TransformedDistribution
from hcq.frontend.more.distributions.transforms import Transform
from hcq.frontend.more.distributions.vectors import LowRankMultivariateNormal, MultivariateNormal
from hcq.frontend.tensor import Tensor

# -- averages of the first distribution -----------------------------------------------------------------------------


def _log_mean(p: Any) -> Tensor:
    """Of log(x)."""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Gamma):
        return p.concentration.digamma() - p.rate.log()
    if isinstance(p, Exponential):
        return -EULER - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + 1.0 / p.alpha
    return _log_between(p.low, p.high)


def _log_between(low: Tensor, high: Tensor) -> Tensor:
    """The average logarithm of what is even between two numbers."""
    return (high.xlogy(high) - low.xlogy(low)) / (high - low) - 1.0


def _log_rest_mean(p: Any) -> Tensor:
    """Of log(1 - x)."""
    if isinstance(p, Beta):
        return p.concentration0.digamma() - (p.concentration1 + p.concentration0).digamma()
    return _log_between(1.0 - p.high, 1.0 - p.low)


def _exp_mean(p: Any, t: Tensor) -> Tensor:
    """Of exp(-t x)."""
    if isinstance(p, Exponential):
        return p.rate / (p.rate + t)
    if isinstance(p, Gamma):
        return (p.concentration * (p.rate.log() - (p.rate + t).log())).exp()
    if isinstance(p, Normal):
        return (0.5 * (p.scale * t).square() - p.loc * t).exp()
    if isinstance(p, Gumbel):
        return (-p.loc * t + (1.0 + p.scale * t).lgamma()).exp()
    return ((-p.low * t).exp() - (-p.high * t).exp()) / (t * (p.high - p.low))  # type: ignore[no-any-return]


def _distance_mean(p: Any, place: Tensor) -> Tensor:
    """Of |x - place|, of a normal distribution."""
    apart = (p.loc - place) / p.scale
    spread = math.sqrt(2.0 / math.pi) * (-0.5 * apart.square()).exp()
    return p.scale * (spread + apart * (apart / math.sqrt(2.0)).erf())  # type: ignore[no-any-return]


# -- the average of the second one's log_prob -----------------------------------------------------------------------


def _to_gamma(p: Any, q: Any) -> Tensor:
    size = q.concentration * q.rate.log() - q.concentration.lgamma()
    return size + (q.concentration - 1.0) * _log_mean(p) - q.rate * p.mean  # type: ignore[no-any-return]


def _to_normal(p: Any, q: Any) -> Tensor:
    squares = (p.variance + (p.mean - q.loc).square()) / q.scale.square()
    return -q.scale.log() - 0.5 * LOG_2PI - 0.5 * squares  # type: ignore[no-any-return]


def _to_gumbel(p: Any, q: Any) -> Tensor:
    bent = (q.loc / q.scale).exp() * _exp_mean(p, 1.0 / q.scale)
    return -q.scale.log() - (p.mean - q.loc) / q.scale - bent  # type: ignore[no-any-return]


def _to_beta(p: Any, q: Any) -> Tensor:
    a, b = q.concentration1, q.concentration0
    size = (a + b).lgamma() - a.lgamma() - b.lgamma()
    return size + (a - 1.0) * _log_mean(p) + (b - 1.0) * _log_rest_mean(p)  # type: ignore[no-any-return]


def _to_uniform(p: Any, q: Any) -> Tensor:
    low, high = _bounds(p)
    found = -(q.high - q.low).log()
    return ((q.low > low) | (q.high < high)).where(-math.inf, found)  # type: ignore[no-any-return]


def _bounds(p: Any) -> tuple[Any, Any]:
    """Between which numbers it draws; None is no bound."""
    if isinstance(p, Uniform):
        return p.low, p.high
    return (0.0, 1.0) if isinstance(p, (Beta, ContinuousBernoulli)) else (None, None)


def _outside(p: Any, q: Any) -> Any:
    """Where a uniform distribution draws what the second one does not."""
    if not isinstance(p, Uniform):
        return None
    if isinstance(q, (Beta, ContinuousBernoulli)):
        return (p.low < 0.0) | (p.high > 1.0)
    if isinstance(q, (Exponential, Gamma)):
        return p.low < 0.0
    return p.low < q.scale if isinstance(q, Pareto) else None


Cross = Callable[[Any, Any], Tensor]
FROM: dict[type, tuple[type, ...]] = {  # what is known of the second, of each first
    Bernoulli: (Poisson,),
    Beta: (ContinuousBernoulli, Exponential, Gamma, Normal, Uniform),
    ContinuousBernoulli: (ContinuousBernoulli, Exponential, Normal, Uniform),
    Exponential: (Gamma, Gumbel, Normal),
    Gamma: (Exponential, Gumbel, Normal),
    Gumbel: (Gumbel, Normal),
    Laplace: (Normal,),
    Normal: (Gumbel, Laplace),
    Pareto: (Exponential, Gamma, Normal),
    Uniform: (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Normal, Pareto),
}
TO: dict[type, Cross] = {
    Beta: _to_beta,
    ContinuousBernoulli: lambda p, q: p.mean * q.logits - q.logits.softplus() + q._log_size(),
    Exponential: lambda p, q: q.rate.log() - q.rate * p.mean,
    Gamma: _to_gamma,
    Gumbel: _to_gumbel,
    Laplace: lambda p, q: -(2.0 * q.scale).log() - _distance_mean(p, q.loc) / q.scale,
    Normal: _to_normal,
    Pareto: lambda p, q: q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1.0) * _log_mean(p),
    Poisson: lambda p, q: p.mean * q.rate.log() - q.rate,
    Uniform: _to_uniform,
}
_WIDE = (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
INFINITE: dict[type, tuple[type, ...]] = {  # draws where the second is zero, whatever the parameters
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: _WIDE,
    Laplace: _WIDE,
    Normal: _WIDE,
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _crossed(cross: Cross) -> Cross:
    def divergence(p: Any, q: Any) -> Tensor:
        found = -p.entropy() - cross(p, q)
        outside = _outside(p, q)
        return found if outside is None else outside.where(math.inf, found)  # type: ignore[no-any-return]

    return divergence


for _first, _seconds in FROM.items():
    for _second in _seconds:
        register_kl(_first, _second)(_crossed(TO[_second]))
for _first, _seconds in INFINITE.items():
    for _second in _seconds:
        register_kl(_first, _second)(
            lambda p, q: Tensor.full(Tensor.broadcast_shapes(p.batch_shape, q.batch_shape), math.inf)
        )


@register_kl(HalfNormal, HalfNormal)
def _half(p: Any, q: Any) -> Tensor:
    share = (p.scale / q.scale).square()
    return 0.5 * (share - 1.0 - share.log())  # type: ignore[no-any-return]


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Tensor:
    both = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return both.log() - (4.0 * p.scale * q.scale).log()  # type: ignore[no-any-return]


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Tensor:
    share = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - share.log() + share - 1.0
    return (p.scale < q.scale).where(math.inf, found)  # type: ignore[no-any-return]


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Tensor:
    """Of as many trials; of more it is infinite, of fewer in closed form nowhere."""
    each = p.probs * (p.logits - q.logits) + q.logits.softplus() - p.logits.softplus()
    found = (p.total_count < q.total_count).where(math.nan, p.total_count * each)
    return (p.total_count > q.total_count).where(math.inf, found)  # type: ignore[no-any-return]


for _first, _second in (
    (LowRankMultivariateNormal, LowRankMultivariateNormal),
    (MultivariateNormal, LowRankMultivariateNormal),
    (LowRankMultivariateNormal, MultivariateNormal),
):
    register_kl(_first, _second)(normal_vectors)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    """Of the bases, where the transforms are the same."""
    if not _are_alike(p.transforms, q.transforms) or p.event_shape != q.event_shape:
        raise UsageError("[kl_divergence] of distributions of different transforms nothing is known.")
    found = kl_divergence(p.base_dist, q.base_dist)
    axes = len(p.event_shape) - len(p.base_dist.event_shape)
    return found.sum(tuple(range(-axes, 0))) if axes > 0 else found


def _are_alike(one: Any, other: Any) -> bool:
    """Whether transforms, and what they are made with, are the same; tensors are so where they are one."""
    if one is other:
        return True
    if type(one) is not type(other) or isinstance(one, Tensor):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_are_alike, one, other))
    if not isinstance(one, Transform):
        return bool(one == other)
    return all(
        _are_alike(value, vars(other).get(name)) for name, value in vars(one).items() if name != "_kept"
    )
