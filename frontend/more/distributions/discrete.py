"""Distributions of whole numbers: coins, dice, trials until a success, events at a rate.

In       probabilities or logits; rates
Out      Bernoulli, Categorical, OneHotCategorical, OneHotCategoricalStraightThrough, Geometric, Poisson
Changes  nothing but what Distribution says
Next     distribution.py (the base), hcq/frontend/ops/drawing.py (multinomial, poisson)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions import constraints
from hcq.frontend.more.distributions.distribution import Distribution, formula, together
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class _Chances(Distribution):
    """Of one of probs and logits the other is made."""

    probs: Tensor
    logits: Tensor

    def _take(self, probs: Any, logits: Any) -> None:
        if (probs is None) is (logits is None):
            raise UsageError(f"[{type(self).__name__}] give probs or logits, one of them.")
        (given,) = together(probs if logits is None else logits)
        if logits is None:
            self.probs, self.logits = self._of_probs(given)
        else:
            self.probs, self.logits = self._of_logits(given)
        self.parameters = ("probs", "logits")  # type: ignore[misc]

    def _of_probs(self, probs: Tensor) -> tuple[Tensor, Tensor]:
        eps = 2.0**-23 if probs.dtype is not dtypes.float64 else 2.0**-52
        inside = probs.clamp(eps, 1.0 - eps)
        return probs, inside.log() - (-inside).log1p()

    def _of_logits(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits.sigmoid(), logits


class Bernoulli(_Chances):
    """1 with probability probs, else 0.

    >>> Bernoulli(0.25).variance.item()
    0.1875
    """

    support: Any = constraints.boolean

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits)
        super().__init__(self.probs.shape)

    mean = formula("probs.", lambda self: self.probs)

    @property
    def mode(self) -> Tensor:
        """The likelier one; NaN where they are as likely."""
        found = (self.probs >= 0.5).where(1.0, 0.0)
        return (self.probs == 0.5).where(math.nan, found).cast(self.probs.dtype)  # type: ignore[no-any-return]

    variance = formula("probs * (1 - probs).", lambda self: self.probs * (1.0 - self.probs))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """0 or 1, as floats."""
        return self.probs.detach().expand(self._shape(sample_shape))._bernoulli_of()

    def log_prob(self, value: Any) -> Tensor:
        return self._value(value) * self.logits - self.logits.softplus()

    def entropy(self) -> Tensor:
        return self.logits.softplus() - self.probs * self.logits

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 and 1."""
        return _every(self, 2, expand).cast(self.probs.dtype)


class Geometric(_Chances):
    """How many trials fail before the first success, of chance probs.

    >>> Geometric(0.25).mean.item()
    3.0
    """

    support: Any = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits)
        super().__init__(self.probs.shape)

    mean = formula("1 / probs - 1.", lambda self: 1.0 / self.probs - 1.0)
    mode = formula("0.", lambda self: self.probs * 0.0)
    variance = formula("(1 / probs - 1) / probs.", lambda self: (1.0 / self.probs - 1.0) / self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Whole numbers from 0 on, as floats."""
        waits = self.probs._waits(self._shape(sample_shape), None)
        return (waits / -(-self.probs).log1p()).floor().detach()  # type: ignore[no-any-return]

    def log_prob(self, value: Any) -> Tensor:
        """value * log(1 - probs) + log(probs)."""
        x = self._value(value)
        return ((self.probs == 1.0) & (x == 0.0)).where(0.0, x * (-self.probs).log1p()) + self.probs.log()  # type: ignore[no-any-return]

    def entropy(self) -> Tensor:
        return (self.logits.softplus() - self.probs * self.logits) / self.probs


class Categorical(_Chances):
    """A whole number from 0 on, as likely as the element of the last axis says.

    >>> Categorical(probs=Tensor([1.0, 3.0])).probs.tolist()
    [0.25, 0.75]
    """

    event_rank = {"probs": 1, "logits": 1}  # noqa: RUF012

    support = formula(
        "Which numbers it draws.", lambda self: constraints.integer_interval(0, self.probs.shape[-1] - 1)
    )

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits)
        if not self.probs.ndim:
            raise UsageError(
                f"[{type(self).__name__}] a number: give at least a vector, of one for each choice."
            )
        super().__init__(self.probs.shape[:-1])

    def _of_probs(self, probs: Tensor) -> tuple[Tensor, Tensor]:
        share = probs / probs.sum(-1, keepdim=True)
        eps = 2.0**-23 if probs.dtype is not dtypes.float64 else 2.0**-52
        return share, share.clamp(eps, 1.0 - eps).log()

    def _of_logits(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits.softmax(-1), logits - logits.logsumexp(-1, keepdim=True)

    mean = formula("NaN: choices are no quantities.", lambda self: self.probs[..., 0] * math.nan)
    variance = formula("NaN.", lambda self: self.mean)
    mode = formula("The likeliest one.", lambda self: self.probs.argmax(-1))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """int64."""
        count = self.probs.shape[-1]
        rows, times = math.prod(self.batch_shape), math.prod(sample_shape)
        drawn = self.probs.reshape(rows, count).multinomial(max(times, 1), True).T
        return drawn[:times].reshape(*sample_shape, *self.batch_shape)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability of each."""
        x = self._value(value).long()
        shape = Tensor.broadcast_shapes(x.shape, self.batch_shape)
        logits = self.logits.expand((*shape, self.logits.shape[-1]))
        return logits.gather(-1, x.expand(shape).unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        low = -3.4028234e38
        return -(self.probs * self.logits.clamp(low)).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0, 1, ..."""
        return _every(self, self.probs.shape[-1], expand)


class OneHotCategorical(Categorical):
    """As Categorical; an event is a vector that is 1 in one place.

    >>> OneHotCategorical(probs=Tensor([0.0, 1.0])).sample().tolist()
    [0.0, 1.0]
    """

    support: Any = constraints.one_hot

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(probs, logits)
        self.event_shape = self.probs.shape[-1:]

    mean = formula("probs.", lambda self: self.probs)
    variance = formula("probs * (1 - probs).", lambda self: self.probs * (1.0 - self.probs))

    @property
    def mode(self) -> Tensor:
        """The likeliest one."""
        return self._hot(super().mode)

    def _hot(self, places: Tensor) -> Tensor:
        return places.one_hot(self.probs.shape[-1]).cast(self.probs.dtype)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Vectors."""
        return self._hot(super().sample(sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability of each vector."""
        return super().log_prob(self._value(value).argmax(-1))


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """As OneHotCategorical; rsample has the gradient of the probabilities.

    Source  Bengio, Léonard and Courville 2013

    >>> OneHotCategoricalStraightThrough(probs=Tensor([0.0, 1.0])).rsample().tolist()
    [0.0, 1.0]
    """

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Vectors, whose gradient is that of probs."""
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Poisson(Distribution):
    """How many events there are, at a rate.

    >>> Poisson(4.0).stddev.item()
    2.0
    """

    support: Any = constraints.nonnegative_integer

    parameters = ("rate",)

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = together(rate)
        super().__init__(self.rate.shape)

    mean = formula("rate.", lambda self: self.rate)
    mode = formula("rate, rounded down.", lambda self: self.rate.floor())
    variance = formula("rate.", lambda self: self.rate)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Whole numbers, as floats."""
        return self.rate.detach().expand(self._shape(sample_shape)).poisson()

    def log_prob(self, value: Any) -> Tensor:
        """value * log(rate) - rate - log(value!)."""
        x = self._value(value)
        return x.xlogy(self.rate) - self.rate - (x + 1.0).lgamma()


def _every(one: Distribution, count: int, expand: bool) -> Tensor:
    made = Tensor.arange(count, device=one.probs.device)  # type: ignore[attr-defined]
    made = made.reshape(count, *(1,) * len(one.batch_shape))
    return made.expand((count, *one.batch_shape)) if expand else made
