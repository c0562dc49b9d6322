"""Transformed distributions: what comes out of transforms of what another distribution draws.

In       a distribution and transforms
Out      `TransformedDistribution`; LogisticNormal, RelaxedBernoulli, RelaxedOneHotCategorical, made of it
Changes  nothing but what Distribution says
Next     transforms.py, distribution.py
Source   Maddison, Mnih and Teh 2016; Jang, Gu and Poole 2016 (the relaxed ones)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions.continuous import Normal
from hcq.frontend.more.distributions.discrete import Categorical, _Chances
from hcq.frontend.more.distributions.distribution import Distribution, formula, together, uniform
from hcq.frontend.more.distributions.transforms import (
    ComposeTransform,
    ExpTransform,
    SigmoidTransform,
    Transform,
    summed,
)
from hcq.frontend.more.distributions.transforms_of_vectors import StickBreakingTransform
from hcq.frontend.more.distributions.vectors import Independent
from hcq.frontend.tensor import Tensor


class TransformedDistribution(Distribution):
    """What transforms, one after the other, make of what a distribution draws.

    >>> from hcq.torch.distributions import ExpTransform, LogNormal, Normal, TransformedDistribution
    >>> one = TransformedDistribution(Normal(0.0, 1.0), ExpTransform())
    >>> abs(one.log_prob(2.0).item() - LogNormal(0.0, 1.0).log_prob(2.0).item()) < 1e-6
    True
    """

    def __init__(
        self, base_distribution: Distribution, transforms: Any, validate_args: bool | None = None
    ) -> None:
        self.transforms: list[Transform] = (
            [transforms] if isinstance(transforms, Transform) else list(transforms)
        )
        if not all(isinstance(each, Transform) for each in self.transforms):
            raise UsageError(
                f"[TransformedDistribution] {transforms!r}: give a transform, or a list of some."
            )
        whole = ComposeTransform(self.transforms)
        inner = (*base_distribution.batch_shape, *base_distribution.event_shape)
        axes = len(base_distribution.event_shape)
        if len(inner) < whole.domain.event_dim:
            raise UsageError(
                f"[TransformedDistribution] a base of shape {inner}: its transforms take {whole.domain.event_dim} axes."
            )
        shape = whole.forward_shape(inner)
        wide = whole.inverse_shape(shape)
        if wide != inner:
            base_distribution = base_distribution.expand(wide[: len(wide) - axes])
        more = whole.domain.event_dim - axes
        if more > 0:
            base_distribution = Independent(base_distribution, more)
        self.base_dist = base_distribution
        self.has_rsample = base_distribution.has_rsample  # type: ignore[misc]
        change = whole.codomain.event_dim - whole.domain.event_dim
        cut = len(shape) - max(whole.codomain.event_dim, axes + change)
        super().__init__(shape[:cut], shape[cut:])

    support = formula(
        "The codomain of the last transform.",
        lambda self: (
            ComposeTransform(self.transforms).codomain if self.transforms else self.base_dist.support
        ),
    )

    def expand(self, batch_shape: Sequence[int]) -> Any:
        """The base expanded."""
        shape = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self.event_shape))
        base = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return TransformedDistribution(base, self.transforms)

    def _moved(self, x: Tensor) -> Tensor:
        for each in self.transforms:
            x = each(x)
        return x

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Transforms of a sample."""
        return self._moved(self.base_dist.sample(sample_shape)).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Transforms of a sample that has a gradient."""
        return self._moved(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        """That of what the value came from, less the logarithm of how much space was stretched."""
        axes, stretched = len(self.event_shape), None
        y = value if isinstance(value, Tensor) else Tensor(value)
        for each in reversed(self.transforms):
            x = each._inv_call(y)
            axes += each.domain.event_dim - each.codomain.event_dim
            term = summed(each.log_abs_det_jacobian(x, y), axes - each.domain.event_dim)
            stretched = term if stretched is None else stretched + term
            y = x
        found = summed(self.base_dist.log_prob(y), axes - len(self.base_dist.event_shape))
        return found if stretched is None else found - stretched

    def _way(self) -> Any:
        sign: Any = 1
        for each in self.transforms:
            sign = sign * each.sign
        return sign

    def cdf(self, value: Any) -> Tensor:
        y = value if isinstance(value, Tensor) else Tensor(value)
        for each in reversed(self.transforms):
            y = each._inv_call(y)
        return self._turned(self.base_dist.cdf(y))

    def icdf(self, value: Any) -> Tensor:
        y = value if isinstance(value, Tensor) else Tensor(value)
        return self._moved(self.base_dist.icdf(self._turned(y)))

    def _turned(self, share: Tensor) -> Tensor:
        """1 less a share, where what falls makes the lowest the highest."""
        sign = self._way()
        return sign * (share - 0.5) + 0.5  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist!r}, {self.transforms!r})"


class LogisticNormal(TransformedDistribution):
    """Shares that add up to 1, made of normal numbers by breaking a stick.

    >>> from hcq.torch.distributions import LogisticNormal
    >>> LogisticNormal(Tensor([0.0, 0.0]), Tensor([1.0, 1.0])).event_shape
    (3,)
    """

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale)
        super().__init__(base if base.batch_shape else base.expand((1,)), StickBreakingTransform())

    loc = formula("Of the normal numbers.", lambda self: self.base_dist.base_dist.loc)
    scale = formula("Of the normal numbers.", lambda self: self.base_dist.base_dist.scale)


class _Relaxed(TransformedDistribution):
    """What is drawn by a base of chances and a temperature, transformed."""

    drawn: type[Distribution]
    transform: type[Transform]

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        drawn: Any = self.drawn
        super().__init__(drawn(temperature, probs, logits), self.transform())

    def __getattr__(self, name: str) -> Any:
        if name in ("temperature", "probs", "logits"):
            return getattr(self.base_dist, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


class _LogitRelaxedBernoulli(_Chances):
    """The logit of a number near 0 or 1."""

    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None) -> None:
        (self.temperature,) = together(temperature)
        self._take(probs, logits)
        super().__init__(self.probs.shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        eps = 2.0**-24 if self.probs.dtype.itemsize < 8 else 2.0**-53
        unit = uniform(self.logits, self._shape(sample_shape)).clamp(eps, 1.0 - eps)
        return (unit.log() - (-unit).log1p() + self.logits) / self.temperature

    def log_prob(self, value: Any) -> Tensor:
        apart = self.logits - self._value(value) * self.temperature
        return self.temperature.log() + apart - 2.0 * apart.softplus()


class RelaxedBernoulli(_Relaxed):
    """Numbers between 0 and 1, nearer to these the lower the temperature, with gradients to the chances.

    >>> from hcq.torch.distributions import RelaxedBernoulli
    >>> 0.0 <= RelaxedBernoulli(Tensor([0.5]), Tensor([0.9])).rsample().item() <= 1.0
    True
    """

    drawn, transform = _LogitRelaxedBernoulli, SigmoidTransform


class _ExpRelaxedCategorical(Categorical):
    """Logarithms of shares that are near one choice."""

    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None) -> None:
        (self.temperature,) = together(temperature)
        super().__init__(probs, logits)
        self.event_shape = self.probs.shape[-1:]

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        waits = self.logits._waits(self._shape(sample_shape), None).clamp(2.0**-126)
        scores = (self.logits - waits.log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)  # type: ignore[no-any-return]

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.rsample(sample_shape).detach()

    def log_prob(self, value: Any) -> Tensor:
        x, count = self._value(value), self.event_shape[0]
        scores = self.logits - x * self.temperature
        scores = (scores - scores.logsumexp(-1, keepdim=True)).sum(-1)
        size = Tensor(float(count), x.device, scores.dtype).lgamma()
        return scores + size + self.temperature.log() * (count - 1.0)


class RelaxedOneHotCategorical(_Relaxed):
    """Shares near one choice, the nearer the lower the temperature, with gradients to the chances.

    >>> from hcq.torch.distributions import RelaxedOneHotCategorical
    >>> round(RelaxedOneHotCategorical(Tensor(0.5), Tensor([0.2, 0.8])).rsample().sum().item(), 4)
    1.0
    """

    drawn, transform = _ExpRelaxedCategorical, ExpTransform
