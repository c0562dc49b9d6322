"""A distribution: a family of densities by parameters, batch_shape of them, each of events of event_shape.

In       parameters: tensors or numbers, which broadcast
Out      `Distribution`: draws, logarithms of densities, moments; lazy tensors, with gradients to the parameters
Changes  sample and rsample: the counter of the device's random numbers
Next     its families in the files beside it; kl.py (distances of two)

Parameters are not looked at, so that all of it can be in a recording: NaN comes out where they mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions import constraints
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

Shape = tuple[int, ...]


def together(*given: Any) -> list[Tensor]:
    """Parameters as float tensors of one shape."""
    known = [one for one in given if isinstance(one, Tensor)]
    if known:
        kind = next((one.dtype for one in known if one.dtype.is_float), dtypes.float32)
        made = [
            one if isinstance(one, Tensor) else Tensor(float(one), known[0].device, kind) for one in given
        ]
    else:
        made = [Tensor(float(one)) for one in given]
    shape = Tensor.broadcast_shapes(*[one.shape for one in made])
    return [(one if one.dtype.is_float else one.float()).expand(shape) for one in made]


def formula(says: str, compute: Callable[[Any], Any]) -> Any:
    """A property that is computed from the parameters: what it says of itself, and how.

    >>> class Doubled(Distribution):
    ...     mean = formula("Twice the rate.", lambda self: self.rate * 2.0)
    """
    return property(compute, doc=says)


class _ArgConstraints:
    """The attribute `arg_constraints`, of a class and of a distribution; one that a class has itself goes before it."""

    def __get__(self, one: Any, kind: type) -> dict[str, Any]:
        from hcq.frontend.more.distributions.argument_sets import sets_of  # few programs ask

        return sets_of(kind)


class Distribution:
    """What all have. A family says `parameters`, the names, and computes what it can.

    >>> from hcq.torch.distributions import Normal
    >>> one = Normal(Tensor([0.0, 1.0]), 2.0)
    >>> one.batch_shape, one.event_shape, one.sample((3,)).shape
    ((2,), (), (3, 2))
    """

    parameters: ClassVar[tuple[str, ...]] = ()
    event_rank: ClassVar[dict[str, int]] = {}  # parameter -> how many of its last axes are one event's
    has_rsample: ClassVar[bool] = False
    support: Any = constraints.dependent  # the set of what it draws
    arg_constraints: Any = _ArgConstraints()  # argument -> the set that it is of

    def __init__(self, batch_shape: Sequence[int], event_shape: Sequence[int] = ()) -> None:
        self.batch_shape: Shape = tuple(batch_shape)
        self.event_shape: Shape = tuple(event_shape)

    def _refuse(self, call: str) -> UsageError:
        return UsageError(f"[{type(self).__name__}.{call}] this distribution has none in closed form.")

    @property
    def mean(self) -> Tensor:
        """The average of what is drawn."""
        raise self._refuse("mean")

    @property
    def mode(self) -> Tensor:
        """Where the density is greatest."""
        raise self._refuse("mode")

    @property
    def variance(self) -> Tensor:
        """The average squared distance from the mean."""
        raise self._refuse("variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Numbers of it, of shape sample_shape + batch_shape + event_shape; no gradient flows to the parameters."""
        return self.rsample(sample_shape).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """As `sample`, with a gradient to the parameters. Raises UsageError for a distribution of whole numbers."""
        raise UsageError(
            f"[{type(self).__name__}.rsample] what is drawn does not move with the parameters. Use sample() and "
            "log_prob()."
        )

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or probability, of each event."""
        raise self._refuse("log_prob")

    def cdf(self, value: Any) -> Tensor:
        """How likely it is to draw at most this."""
        raise self._refuse("cdf")

    def icdf(self, value: Any) -> Tensor:
        """The number that is not exceeded with this probability."""
        raise self._refuse("icdf")

    def entropy(self) -> Tensor:
        """The average of -log_prob, in nats."""
        raise self._refuse("entropy")

    def perplexity(self) -> Tensor:
        """exp of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Every event that there is, along a first axis. Raises UsageError where they are not few."""
        raise self._refuse("enumerate_support")

    def expand(self, batch_shape: Sequence[int]) -> Any:
        """The same with its parameters expanded to another batch_shape."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        for name in self.parameters:
            value = getattr(self, name)
            rank = self.event_rank.get(name, 0)
            end = value.shape[len(value.shape) - rank :]
            setattr(made, name, value.expand((*batch_shape, *end)))
        made.batch_shape = tuple(batch_shape)
        return made

    def _shape(self, sample_shape: Sequence[int]) -> Shape:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    def _value(self, value: Any) -> Tensor:
        first: Tensor = getattr(self, self.parameters[0])
        return value if isinstance(value, Tensor) else Tensor(value, first.device)

    def __repr__(self) -> str:
        named = ", ".join(f"{name}: {tuple(getattr(self, name).shape)}" for name in self.parameters)
        return f"{type(self).__name__}({named})"


LOG_2PI = math.log(2.0 * math.pi)


def uniform(like: Tensor, shape: Shape) -> Tensor:
    """Uniform numbers in [0, 1) in the format and on the device of a parameter."""
    return like._numbers("rand", shape, None)  # type: ignore[no-any-return]


def bell(like: Tensor, shape: Shape) -> Tensor:
    """Standard normal numbers likewise."""
    return like._numbers("randn", shape, None)  # type: ignore[no-any-return]
