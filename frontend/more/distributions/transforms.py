"""Transforms: maps of numbers to numbers that know their inverse, and by how much they stretch space.

In       tensors
Out      `Transform` and its kinds: of single numbers, of shapes, several one after the other
Next     transforms_of_vectors.py (softmax, triangles, parts of a tensor), transformed.py (distributions)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any, cast

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions import constraints
from hcq.frontend.more.distributions.distribution import Distribution, formula
from hcq.frontend.tensor import Tensor

Shape = tuple[int, ...]


def summed(value: Tensor, count: int) -> Tensor:
    """The sum over the last `count` axes."""
    return value.sum(tuple(range(-count, 0))) if count else value


class Transform:
    """A map. A subclass says `_call(x)`, `_inverse(y)` and `log_abs_det_jacobian(x, y)`, its domain and codomain.

    cache_size   1 keeps the last argument and result, so that the inverse of that result is that argument

    >>> from hcq.torch.distributions import ExpTransform
    >>> t = ExpTransform()
    >>> t(Tensor([0.0])).tolist(), t.inv(Tensor([1.0])).tolist()
    ([1.0], [0.0])
    """

    bijective = False
    domain: Any = constraints.real
    codomain: Any = constraints.real

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise UsageError(f"[{type(self).__name__}] cache_size={shown(cache_size)}: use 0 or 1.")
        self.cache_size = cache_size
        self._kept: tuple[Any, Any] = (None, None)

    @property
    def event_dim(self) -> int:
        """How many last axes one argument has, where result and argument have as many."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise UsageError(
                f"[{type(self).__name__}] its arguments and results differ in axes. Ask domain or codomain."
            )
        found: int = self.domain.event_dim
        return found

    @property
    def inv(self) -> Transform:
        """The inverse."""
        return _Inverse(self)

    @property
    def sign(self) -> Any:
        """1 where it rises, -1 where it falls."""
        raise UsageError(f"[{type(self).__name__}] it neither rises nor falls everywhere.")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same, which keeps its last argument and result."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.cache_size, made._kept = cache_size, (None, None)
        return made

    def __call__(self, x: Tensor) -> Tensor:
        if self.cache_size and self._kept[0] is x:
            return cast(Tensor, self._kept[1])
        y = self._call(x)
        if self.cache_size:
            self._kept = (x, y)
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self.cache_size and self._kept[1] is y:
            return cast(Tensor, self._kept[0])
        x = self._inverse(y)
        if self.cache_size:
            self._kept = (x, y)
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise UsageError(f"[{type(self).__name__}] has no _call(): define it as _call(self, x).")

    def _inverse(self, y: Tensor) -> Tensor:
        raise UsageError(f"[{type(self).__name__}] it has no inverse.")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log of |dy / dx|, the factor by which it stretches volumes at x, whose result is y."""
        raise UsageError(f"[{type(self).__name__}] it does not say how it stretches space.")

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of a result for an argument of this shape."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of an argument for a result of this shape."""
        return tuple(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    """A transform the other way round."""

    def __init__(self, base: Transform) -> None:
        super().__init__()
        self.base = base

    domain = formula("What it takes.", lambda self: self.base.codomain)
    codomain = formula("What it gives.", lambda self: self.base.domain)
    bijective = formula("Whether all of it is one to one.", lambda self: self.base.bijective)
    inv = formula("The inverse.", lambda self: self.base)
    sign = formula("1 where it rises, -1 where it falls.", lambda self: self.base.sign)

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self.base.with_cache(cache_size).inv

    def __call__(self, x: Tensor) -> Tensor:
        return self.base._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self.base(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self.base.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return self.base.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        return self.base.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}({self.base!r})"


class ComposeTransform(Transform):
    """Several, one after the other.

    >>> from hcq.torch.distributions import AffineTransform, ComposeTransform, ExpTransform
    >>> ComposeTransform([AffineTransform(1.0, 2.0), ExpTransform()])(Tensor([-0.5])).tolist()
    [1.0]
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) if cache_size else part for part in parts]

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """That of the first, of as many axes as any that follows needs."""
        if not self.parts:
            return constraints.real
        need = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            need = max(need + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        return _widened(self.parts[0].domain, need)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        """What it gives."""
        if not self.parts:
            return constraints.real
        need = self.parts[0].domain.event_dim
        for part in self.parts:
            need = max(need + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        return _widened(self.parts[-1].codomain, need)

    bijective = formula(
        "Whether all of it is one to one.", lambda self: all(part.bijective for part in self.parts)
    )
    inv = formula("The inverse.", lambda self: ComposeTransform([part.inv for part in reversed(self.parts)]))
    sign = formula(
        "1 where it rises, -1 where it falls.", lambda self: prod(part.sign for part in self.parts)
    )

    def with_cache(self, cache_size: int = 1) -> Transform:
        return ComposeTransform(self.parts, cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return x.zeros_like()
        axes, total, at = self.domain.event_dim, None, x
        for place, part in enumerate(self.parts):
            after = y if place == len(self.parts) - 1 else part(at)
            term = summed(part.log_abs_det_jacobian(at, after), axes - part.domain.event_dim)
            total = term if total is None else total + term
            axes += part.codomain.event_dim - part.domain.event_dim
            at = after
        assert total is not None
        return total

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return tuple(shape)

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts!r})"


def _widened(constraint: Any, axes: int) -> Any:
    more = axes - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


class IndependentTransform(Transform):
    """A transform of single events, of which the last axes together are one.

    >>> from hcq.torch.distributions import ExpTransform, IndependentTransform
    >>> x = Tensor([[1.0, 2.0]])
    >>> IndependentTransform(ExpTransform(), 1).log_abs_det_jacobian(x, x.exp()).tolist()
    [3.0]
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.bijective = base_transform.bijective

    domain = formula(
        "What it takes.",
        lambda self: constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims),
    )
    codomain = formula(
        "What it gives.",
        lambda self: constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims),
    )
    sign = formula("1 where it rises, -1 where it falls.", lambda self: self.base_transform.sign)

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return summed(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Another shape of the last axes.

    >>> from hcq.torch.distributions import ReshapeTransform
    >>> ReshapeTransform((4,), (2, 2))(Tensor.zeros(3, 4)).shape
    (3, 2, 2)
    """

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if prod(self.in_shape) != prod(self.out_shape):
            raise UsageError(
                f"[ReshapeTransform] {self.in_shape} to {self.out_shape}: the numbers of elements differ."
            )

    domain = formula(
        "What it takes.", lambda self: constraints.independent(constraints.real, len(self.in_shape))
    )
    codomain = formula(
        "What it gives.", lambda self: constraints.independent(constraints.real, len(self.out_shape))
    )

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return summed(x * 0.0, len(self.in_shape))

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return self._swapped(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        return self._swapped(shape, self.out_shape, self.in_shape)

    def _swapped(self, shape: Sequence[int], one: Shape, other: Shape) -> Shape:
        cut = len(shape) - len(one)
        if cut < 0 or tuple(shape[cut:]) != one:
            raise UsageError(f"[ReshapeTransform] a shape {tuple(shape)}: it has to end with {one}.")
        return (*shape[:cut], *other)


class _Rising(Transform):
    """Of single numbers, one to one, and rising."""

    bijective = True

    sign = formula("1 where it rises, -1 where it falls.", lambda self: 1)


class ExpTransform(_Rising):
    """exp(x).

    >>> from hcq.torch.distributions import ExpTransform
    >>> ExpTransform().codomain
    greater_than(lower_bound=0.0)
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """x ** exponent, of positive numbers.

    >>> from hcq.torch.distributions import PowerTransform
    >>> PowerTransform(2.0)(Tensor([3.0])).tolist()
    [9.0]
    """

    bijective = True
    domain = codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else Tensor(float(exponent))

    sign = formula("1 where it rises, -1 where it falls.", lambda self: self.exponent.sign())

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1.0 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return tuple(Tensor.broadcast_shapes(tuple(shape), self.exponent.shape))

    inverse_shape = forward_shape


class SigmoidTransform(_Rising):
    """1 / (1 + exp(-x)).

    >>> from hcq.torch.distributions import SigmoidTransform
    >>> SigmoidTransform()(Tensor([0.0])).tolist()
    [0.5]
    """

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        least, most = (1.2e-38, 1.0 - 2.0**-24) if x.dtype.itemsize < 8 else (2.3e-308, 1.0 - 2.0**-53)
        return x.sigmoid().clamp(least, most)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -(-x).softplus() - x.softplus()


class SoftplusTransform(_Rising):
    """log(1 + exp(x)).

    >>> from hcq.torch.distributions import SoftplusTransform
    >>> print(SoftplusTransform()(Tensor([0.0])))
    tensor([0.6931])
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.softplus()

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -(-x).softplus()


class TanhTransform(_Rising):
    """tanh(x).

    >>> from hcq.torch.distributions import TanhTransform
    >>> TanhTransform().inv(Tensor([0.0])).tolist()
    [0.0]
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - (-2.0 * x).softplus())


class AbsTransform(Transform):
    """|x|, whose inverse is taken to be x itself.

    >>> from hcq.torch.distributions import AbsTransform
    >>> AbsTransform()(Tensor([-2.0])).tolist()
    [2.0]
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """loc + scale * x. event_dim is how many last axes are one argument.

    >>> from hcq.torch.distributions import AffineTransform
    >>> AffineTransform(1.0, -2.0)(Tensor([3.0])).tolist(), AffineTransform(1.0, -2.0).sign
    ([-5.0], -1)
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    event_dim = formula("How many last axes are one argument.", lambda self: self._event_dim)
    domain = formula(
        "What it takes.",
        lambda self: (
            constraints.independent(constraints.real, self._event_dim)
            if self._event_dim
            else constraints.real
        ),
    )

    codomain = formula("What it gives.", lambda self: self.domain)
    sign = formula(
        "1 where it rises, -1 where it falls.",
        lambda self: (
            self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0)
        ),
    )

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            found = self.scale.abs().log()
            shape = Tensor.broadcast_shapes(x.shape, found.shape)
            return summed(found.expand(shape), self._event_dim)
        return summed(x * 0.0 + math.log(abs(self.scale)), self._event_dim)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        others = [tuple(each.shape) for each in (self.loc, self.scale) if isinstance(each, Tensor)]
        return tuple(Tensor.broadcast_shapes(tuple(shape), *others))

    inverse_shape = forward_shape


class CumulativeDistributionTransform(_Rising):
    """How likely a distribution is to draw at most x: it makes uniform numbers of what the distribution draws.

    >>> from hcq.torch.distributions import CumulativeDistributionTransform, Normal
    >>> CumulativeDistributionTransform(Normal(0.0, 1.0))(Tensor([0.0])).tolist()
    [0.5]
    """

    codomain = constraints.unit_interval

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


identity_transform = ComposeTransform([])
