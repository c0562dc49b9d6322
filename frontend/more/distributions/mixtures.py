"""Mixtures: one of several distributions of a family, drawn first, draws.

In       a Categorical, and distributions of one more batch axis than it has
Out      MixtureSameFamily
Changes  nothing but what Distribution says
Next     distribution.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions.discrete import Categorical
from hcq.frontend.more.distributions.distribution import Distribution, formula
from hcq.frontend.tensor import Tensor


class MixtureSameFamily(Distribution):
    """Components along the last batch axis of a distribution, each drawn as often as the Categorical says.

    >>> from hcq.torch.distributions import Categorical, MixtureSameFamily, Normal
    >>> one = MixtureSameFamily(Categorical(Tensor([0.25, 0.75])), Normal(Tensor([0.0, 4.0]), 1.0))
    >>> one.batch_shape, one.mean.item()
    ((), 3.0)
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical) or not isinstance(
            component_distribution, Distribution
        ):
            raise UsageError("[MixtureSameFamily] give a Categorical, and a distribution of its components.")
        shape = component_distribution.batch_shape
        count = mixture_distribution.probs.shape[-1]
        if not shape or shape[-1] != count:
            raise UsageError(
                f"[MixtureSameFamily] components of batch_shape {shape}: it has to end with {count}."
            )
        self.mixture_distribution = mixture_distribution.expand(shape[:-1])
        self.component_distribution = component_distribution
        super().__init__(shape[:-1], component_distribution.event_shape)

    support = formula("That of the components.", lambda self: self.component_distribution.support)

    def _chances(self) -> Tensor:
        """Of the components, with an axis for each of an event."""
        probs = self.mixture_distribution.probs
        return probs.reshape(*probs.shape, *(1,) * len(self.event_shape))  # type: ignore[no-any-return]

    def _over(self, value: Tensor) -> Tensor:
        """The average over components."""
        return (self._chances() * value).sum(-1 - len(self.event_shape))

    mean = formula(
        "The average of the components' means.", lambda self: self._over(self.component_distribution.mean)
    )

    @property
    def variance(self) -> Tensor:
        """The average of variances, and the variance of means."""
        mean = self.component_distribution.mean
        apart = mean - self.mean.unsqueeze(-1 - len(self.event_shape))
        return self._over(self.component_distribution.variance + apart.square())

    def _wide(self, value: Any) -> Tensor:
        x = value if isinstance(value, Tensor) else Tensor(value, self.mixture_distribution.probs.device)
        return x.unsqueeze(x.ndim - len(self.event_shape))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the average density."""
        chances = self.mixture_distribution.logits  # logarithms of shares
        return (self.component_distribution.log_prob(self._wide(value)) + chances).logsumexp(-1)

    def cdf(self, value: Any) -> Tensor:
        """The average of the components' cdf."""
        return (self.component_distribution.cdf(self._wide(value)) * self.mixture_distribution.probs).sum(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """A component's number, which component drawn by its chance."""
        which = self.mixture_distribution.sample(sample_shape)
        drawn = self.component_distribution.sample(sample_shape)
        axis, events = which.ndim, len(self.event_shape)
        index = which.reshape(*which.shape, 1, *(1,) * events)
        index = index.expand((*which.shape, 1, *self.event_shape))
        return drawn.gather(axis, index).squeeze(axis)

    def expand(self, batch_shape: Sequence[int]) -> Any:
        """Both expanded."""
        count = self.mixture_distribution.probs.shape[-1]
        return MixtureSameFamily(
            self.mixture_distribution.expand(batch_shape),
            self.component_distribution.expand((*batch_shape, count)),
        )

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution!r}, {self.component_distribution!r})"
