"""Distributions of counts: successes of several trials, failures before some, choices of several draws.

In       numbers of trials, chances
Out      Binomial, NegativeBinomial, Multinomial
Changes  nothing but what Distribution says
Next     discrete.py (one trial), ops/rejection.py (draws of many trials)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.checks import is_whole, shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions import constraints
from hcq.frontend.more.distributions.discrete import Categorical, _Chances
from hcq.frontend.more.distributions.distribution import Distribution, formula, together
from hcq.frontend.more.distributions.gamma import Gamma
from hcq.frontend.ops import rejection
from hcq.frontend.tensor import Tensor


class _Trials(_Chances):
    """Chances, and how many trials of each."""

    total_count: Tensor

    def _several(self, total_count: Any, probs: Any, logits: Any) -> None:
        self._take(probs, logits)
        self.total_count, self.probs = together(total_count, self.probs)
        self.logits = self.logits.expand(self.probs.shape)
        self.parameters = ("probs", "logits", "total_count")  # type: ignore[misc]
        Distribution.__init__(self, self.probs.shape)


class Binomial(_Trials):
    """How many of total_count trials succeed, each with the chance probs.

    >>> Binomial(10, 0.25).mean.item()
    2.5
    """

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._several(total_count, probs, logits)

    support = formula("0 to total_count.", lambda self: constraints.integer_interval(0, self.total_count))
    mean = formula("total_count * probs.", lambda self: self.total_count * self.probs)
    mode = formula(
        "(total_count + 1) * probs, rounded down, at most total_count.",
        lambda self: ((self.total_count + 1.0) * self.probs).floor().minimum(self.total_count),
    )
    variance = formula("total_count * probs * (1 - probs).", lambda self: self.mean * (1.0 - self.probs))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Whole numbers, as floats."""
        shape = self._shape(sample_shape)
        count, chance = (one.detach().expand(shape) for one in (self.total_count, self.probs))
        return rejection.binomial(count, chance, None)  # type: ignore[no-any-return]

    def log_prob(self, value: Any) -> Tensor:
        k, n = self._value(value), self.total_count
        ways = (n + 1.0).lgamma() - (k + 1.0).lgamma() - (n - k + 1.0).lgamma()
        return ways + k * self.logits - n * self.logits.softplus()

    def entropy(self) -> Tensor:
        """The average of -log_prob, over all counts: total_count is looked at, and has to be one number."""
        chances = self.log_prob(self.enumerate_support(False))
        return -(chances.exp() * chances).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0, 1, ... Raises UsageError where total_count differs."""
        least, most = (int(getattr(self.total_count, way)().item()) for way in ("min", "max"))
        if least != most:
            raise UsageError(
                f"[Binomial.enumerate_support] counts of {least} to {most}: they have to be alike."
            )
        made = Tensor.arange(most + 1, device=self.probs.device).cast(self.probs.dtype)
        made = made.reshape(-1, *(1,) * len(self.batch_shape))
        return made.expand((most + 1, *self.batch_shape)) if expand else made


class NegativeBinomial(_Trials):
    """How many trials of chance probs succeed before total_count fail.

    >>> NegativeBinomial(3.0, 0.5).mean.item()
    3.0
    """

    support: Any = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._several(total_count, probs, logits)

    mean = formula("total_count * exp(logits).", lambda self: self.total_count * self.logits.exp())
    mode = formula(
        "(total_count - 1) * exp(logits), rounded down, at least 0.",
        lambda self: ((self.total_count - 1.0) * self.logits.exp()).floor().clamp(0.0),
    )
    variance = formula("mean / (1 - probs).", lambda self: self.mean / (-self.logits).sigmoid())

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Of Poisson's, at rates of Gamma's."""
        rates = Gamma(self.total_count.detach(), (-self.logits).exp().detach()).sample(sample_shape)
        return rates.poisson()

    def log_prob(self, value: Any) -> Tensor:
        k, n = self._value(value), self.total_count
        ways = (n + k).lgamma() - (k + 1.0).lgamma() - n.lgamma()
        ways = (n + k == 0.0).where(0.0, ways)
        return n * (-self.logits).logsigmoid() + k * self.logits.logsigmoid() + ways


class Multinomial(Distribution):
    """How often each choice is drawn in total_count draws, an int; probs has the choices along its last axis.

    >>> Multinomial(10, Tensor([0.2, 0.8])).mean.tolist()
    [2.0, 8.0]
    """

    parameters = ("probs", "logits")
    event_rank = {"probs": 1, "logits": 1}  # noqa: RUF012

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not is_whole(total_count) or total_count < 0:
            raise UsageError(
                f"[Multinomial] total_count={shown(total_count)}: give an int, the same for all."
            )
        self.total_count = int(total_count)
        one = Categorical(probs, logits)
        self.probs, self.logits = one.probs, one.logits
        super().__init__(self.probs.shape[:-1], self.probs.shape[-1:])

    support = formula(
        "Vectors of whole numbers that add up to total_count.",
        lambda self: constraints.multinomial(self.total_count),
    )
    mean = formula("total_count * probs.", lambda self: self.total_count * self.probs)
    variance = formula("total_count * probs * (1 - probs).", lambda self: self.mean * (1.0 - self.probs))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Vectors of counts, as floats."""
        drawn = Categorical(self.probs.detach()).sample((self.total_count, *sample_shape))
        return drawn.one_hot(self.event_shape[0]).cast(self.probs.dtype).sum(0)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability of each vector of counts."""
        x = self._value(value)
        each = ((x == 0.0) & (self.probs == 0.0)).where(0.0, x * self.logits)
        return (x.sum(-1) + 1.0).lgamma() - (x + 1.0).lgamma().sum(-1) + each.sum(-1)

    def entropy(self) -> Tensor:
        n = self.total_count
        counts = Tensor.arange(1, n + 1, device=self.probs.device).cast(self.probs.dtype)
        chances = Binomial(n, self.probs)
        wide = counts.reshape(-1, *(1,) * self.probs.ndim)
        found = Tensor(float(n), self.probs.device, self.probs.dtype)
        known = (chances.log_prob(wide).exp() * (wide + 1.0).lgamma()).sum((0, -1))
        return n * Categorical(self.probs).entropy() - (found + 1.0).lgamma() + known
