"""Constraints: sets of numbers or arrays, as distributions and transforms are of, under PyTorch's names.

In       values
Out      `positive`, `simplex`, `interval(low, high)`, ...: each says by `check` which events of a tensor are in it
Next     constraint_registry.py (transforms into them), transforms.py (whose domains they are)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.tensor import Tensor


class Constraint:
    """A set. event_dim is how many last axes one element of it has; is_discrete says whether it has gaps.

    >>> from hcq.torch.distributions import constraints
    >>> constraints.interval(0.0, 1.0).check(Tensor([0.5, 2.0])).tolist()
    [True, False]
    """

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Whether each event is in the set."""
        raise UsageError(f"[{type(self).__name__}.check] what is in it depends on more than the value.")

    def __repr__(self) -> str:
        return type(self).__name__.lstrip("_") + "()"


class _By(Constraint):
    """A set that a function says, by a name."""

    def __init__(
        self, name: str, check: Callable[[Tensor], Tensor], event_dim: int = 0, is_discrete: bool = False
    ):
        self.name, self._check, self.event_dim, self.is_discrete = name, check, event_dim, is_discrete

    def check(self, value: Tensor) -> Tensor:
        return self._check(value)

    def __repr__(self) -> str:
        return self.name


class _Dependent(Constraint):
    """A set that depends on other parameters."""

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0):
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, *, is_discrete: bool = False, event_dim: int = 0) -> _Dependent:
        return _Dependent(is_discrete=is_discrete, event_dim=event_dim)


def is_dependent(constraint: Any) -> bool:
    """Whether what is in the set depends on other parameters."""
    return isinstance(constraint, (_Dependent, dependent_property))


class dependent_property(property):
    """A property of a distribution that is a set: `@constraints.dependent_property(is_discrete=False, event_dim=0)`."""

    def __init__(self, fn: Any = None, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> dependent_property:
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


class _Bounded(Constraint):
    """Numbers between bounds; None is no bound."""

    def __init__(self, lower_bound: Any = None, upper_bound: Any = None):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def __repr__(self) -> str:
        named = [f"{name}={bound}" for name, bound in vars(self).items() if bound is not None]
        return f"{type(self).__name__}({', '.join(named)})"


class greater_than(_Bounded):
    """Numbers above a bound."""

    def __init__(self, lower_bound: Any):
        super().__init__(lower_bound)

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class greater_than_eq(greater_than):
    """Numbers from a bound on."""

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class less_than(_Bounded):
    """Numbers below a bound."""

    def __init__(self, upper_bound: Any):
        super().__init__(None, upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class interval(_Bounded):
    """Numbers from one bound to another, both included."""

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class half_open_interval(_Bounded):
    """Numbers from one bound up to, not including, another."""

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class integer_interval(_Bounded):
    """Whole numbers from one bound to another, both included."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound) & (value <= self.upper_bound)


class multinomial(Constraint):
    """Vectors of whole numbers from 0 on that add up to a bound."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class independent(Constraint):
    """Events of more axes: all elements along these are in a set."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        found = self.base_constraint.check(value)
        axes = tuple(range(-self.reinterpreted_batch_ndims, 0))
        if len(axes) > found.ndim:
            raise UsageError(
                f"[independent.check] a value of shape {value.shape}: give {self.event_dim} axes or more."
            )
        return found.all(axes) if axes else found

    def __repr__(self) -> str:
        return f"independent({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class cat(Constraint):
    """Parts along an axis, each in a set of its own."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None):
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        self.is_discrete = any(each.is_discrete for each in self.cseq)
        self.event_dim = max(each.event_dim for each in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        parts = value.split(self.lengths, self.dim)
        return Tensor.cat([each.check(part) for each, part in zip(self.cseq, parts)], dim=self.dim)


class stack(Constraint):
    """Slices along an axis, each in a set of its own."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0):
        self.cseq, self.dim = list(cseq), dim
        self.is_discrete = any(each.is_discrete for each in self.cseq)
        self.event_dim = max(each.event_dim for each in self.cseq) + (1 if dim < 0 else 0)

    def check(self, value: Tensor) -> Tensor:
        parts = value.unbind(self.dim)
        return Tensor.stack([each.check(part) for each, part in zip(self.cseq, parts)], self.dim)


def _is_symmetric(value: Tensor) -> Tensor:
    return (value - value.mT).abs().amax((-2, -1)) <= 1e-6


def _is_lower(value: Tensor) -> Tensor:
    return (value.tril() == value).all((-2, -1))


def _is_lower_cholesky(value: Tensor) -> Tensor:
    return _is_lower(value) & (value.diagonal(0, -2, -1) > 0).all(-1)


def _least(value: Tensor) -> Tensor:
    from hcq.frontend.more.linalg.spectra import eigvalsh

    return eigvalsh(value).amin(-1)


dependent = _Dependent()
boolean = _By("boolean", lambda x: (x == 0) | (x == 1), is_discrete=True)
one_hot = _By("one_hot", lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1), 1, True)
real = _By("real", lambda x: x == x)
real_vector = independent(real, 1)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
nonnegative_integer = _By("nonnegative_integer", lambda x: (x % 1 == 0) & (x >= 0), is_discrete=True)
positive_integer = _By("positive_integer", lambda x: (x % 1 == 0) & (x >= 1), is_discrete=True)
simplex = _By("simplex", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1.0).abs() < 1e-6), 1)
square = _By("square", lambda x: (x.sum((-2, -1)) * 0.0 + float(x.shape[-2] == x.shape[-1])) == 1.0, 2)
symmetric = _By("symmetric", _is_symmetric, 2)
lower_triangular = _By("lower_triangular", _is_lower, 2)
lower_cholesky = _By("lower_cholesky", _is_lower_cholesky, 2)
corr_cholesky = _By(
    "corr_cholesky",
    lambda value: _is_lower_cholesky(value) & ((value.norm(2, -1) - 1.0).abs() < 1e-4).all(-1),
    2,
)
positive_semidefinite = _By("positive_semidefinite", lambda x: _is_symmetric(x) & (_least(x) >= -1e-6), 2)
positive_definite = _By("positive_definite", lambda x: _is_symmetric(x) & (_least(x) > 0), 2)
