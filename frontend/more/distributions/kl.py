"""Kullback and Leibler's divergence: how far a distribution is from another, in nats.

In       two distributions
Out      `kl_divergence`, a lazy tensor of their batch_shape; `register_kl` for further pairs
Changes  register_kl: the table
Next     kl_pairs.py (pairs of different families, imported when one is asked for), distribution.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions.continuous import Exponential, Laplace, Normal, Uniform
from hcq.frontend.more.distributions.discrete import Bernoulli, Categorical, Geometric, Poisson
from hcq.frontend.more.distributions.distribution import Distribution
from hcq.frontend.more.distributions.gamma import Beta, Dirichlet, Gamma
from hcq.frontend.more.distributions.vectors import Independent, MultivariateNormal
from hcq.frontend.more.linalg.factors import solve_triangular
from hcq.frontend.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Tensor])
_known: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[F], F]:
    """A decorator: the function is the divergence of the first kind from the second, and of those made of them.

    >>> from hcq.torch.distributions import Cauchy
    >>> class Narrow(Cauchy):
    ...     "One whose scale is small."
    >>> _ = register_kl(Narrow, Narrow)(lambda p, q: (p.loc - q.loc).square())
    >>> kl_divergence(Narrow(2.0, 0.01), Narrow(0.0, 0.01)).item()
    4.0
    """

    def note(function: F) -> F:
        _known[type_p, type_q] = function
        return function

    return note


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The average of log p(x) - log q(x), of x that p draws. Raises UsageError where nobody has said what it is.

    >>> from hcq.torch.distributions import Normal
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
    0.5
    """
    found = _nearest(type(p), type(q))
    if found is None:
        said = dict(_known)  # by programs, too, which go before what is known here
        import_module("hcq.frontend.more.distributions.kl_pairs")
        _known.update(said)
        found = _nearest(type(p), type(q))
    if found is not None:
        return found(p, q)
    raise UsageError(
        f"[kl_divergence] of {type(p).__name__} from {type(q).__name__} nothing is known. Say it with register_kl, or "
        "average p.log_prob(x) - q.log_prob(x) over samples of p."
    )


def _nearest(kind: type, other: type) -> Callable[[Any, Any], Tensor] | None:
    """What is known of these classes, or of those that they are made of, the nearest first."""
    for one in kind.__mro__:
        for two in other.__mro__:
            if (one, two) in _known:
                return _known[one, two]
    return None


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Tensor:
    share = (p.scale / q.scale).square()
    return 0.5 * (share + ((p.loc - q.loc) / q.scale).square() - 1.0 - share.log())  # type: ignore[no-any-return]


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Tensor:
    each = p.probs * (p.logits - q.logits)
    each = (q.probs == 0.0).where(math.inf, each)
    return (p.probs == 0.0).where(0.0, each).sum(-1)  # type: ignore[no-any-return]


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Tensor:
    share = q.rate / p.rate
    return share - share.log() - 1.0  # type: ignore[no-any-return]


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return ((q.low > p.low) | (q.high < p.high)).where(math.inf, found)  # type: ignore[no-any-return]


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Tensor:
    share, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return -share.log() + apart / q.scale + share * (-apart / p.scale).exp() - 1.0  # type: ignore[no-any-return]


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    rates = b * (p.rate / q.rate).log() + (a / p.rate) * (q.rate - p.rate)
    return rates + b.lgamma() - a.lgamma() + (a - b) * a.digamma()  # type: ignore[no-any-return]


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    sizes = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return sizes + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)  # type: ignore[no-any-return]


@register_kl(MultivariateNormal, MultivariateNormal)
def normal_vectors(p: Any, q: Any) -> Tensor:
    """Of distributions that have a loc and a scale_tril."""
    shape = Tensor.broadcast_shapes(p.batch_shape, q.batch_shape)
    mine, other = (one.scale_tril.expand((*shape, *one.scale_tril.shape[-2:])) for one in (p, q))
    apart = (q.loc - p.loc).expand((*shape, *p.event_shape)).unsqueeze(-1)
    spread = solve_triangular(other, mine, upper=False).square().sum((-2, -1))
    moved = solve_triangular(other, apart, upper=False).square().sum((-2, -1))
    return q._log_size() - p._log_size() + 0.5 * (spread + moved - p.event_shape[0])  # type: ignore[no-any-return]


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise UsageError(
            f"[kl_divergence] {p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims} axes of an event: these "
            "are no two distributions of one thing."
        )
    return p._summed(kl_divergence(p.base_dist, q.base_dist))  # type: ignore[no-any-return]


SAME: dict[type, Callable[[Any, Any], Tensor]] = {
    Bernoulli: lambda p, q: p.probs * (p.logits - q.logits) + q.logits.softplus() - p.logits.softplus(),
    Geometric: lambda p, q: -p.entropy() - (-q.probs).log1p() / p.probs - q.logits,
    Poisson: lambda p, q: p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate),
    Beta: lambda p, q: _dirichlet(p._shares(), q._shares()),
}
for _kind, _divergence in SAME.items():
    register_kl(_kind, _kind)(_divergence)
