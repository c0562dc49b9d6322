"""The registry of constraints: for each set, a transform of all real numbers into it.

In       a constraint
Out      `biject_to(constraint)`, one to one; `transform_to(constraint)`, perhaps not, and cheaper
Changes  `register`: the table
Next     constraints.py, transforms.py

    transform_to(constraints.simplex)(x)      shares, of any numbers, as an optimizer moves them
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions import constraints, transforms
from hcq.frontend.more.distributions import transforms_of_vectors as vectors


class ConstraintRegistry:
    """Constraint, or kind of constraint -> a function that makes a transform of one.

    >>> from hcq.torch.distributions import constraints, transform_to
    >>> transform_to(constraints.positive)(Tensor([0.0])).tolist()
    [1.0]
    """

    def __init__(self) -> None:
        self._known: list[tuple[Any, Callable[[Any], Any]]] = []

    def register(self, constraint: Any, factory: Callable[[Any], Any] | None = None) -> Any:
        """Say how a transform is made for a constraint, or for all of a class. A decorator without factory."""
        if factory is None:
            return lambda made: self.register(constraint, made)
        self._known.insert(0, (constraint, factory))
        return factory

    def __call__(self, constraint: Any) -> Any:
        """The transform for a constraint. Raises UsageError where none is known."""
        for known, factory in self._known:
            if known is constraint or (isinstance(known, type) and type(constraint) is known):
                return factory(constraint)
        raise UsageError(f"[transform_to] {constraint!r}: no transform into it is known. Register one.")


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _between(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    affine = transforms.AffineTransform(low, high - low)
    return transforms.ComposeTransform([transforms.SigmoidTransform(), affine])


def _above(constraint: Any) -> Any:
    affine = transforms.AffineTransform(constraint.lower_bound, 1)
    return transforms.ComposeTransform([transforms.ExpTransform(), affine])


def _below(constraint: Any) -> Any:
    affine = transforms.AffineTransform(constraint.upper_bound, -1)
    return transforms.ComposeTransform([transforms.ExpTransform(), affine])


def _fill(registry: ConstraintRegistry) -> None:
    """What both have in common: classes of sets first, then single sets."""

    def independent(one: Any) -> Any:
        return transforms.IndependentTransform(registry(one.base_constraint), one.reinterpreted_batch_ndims)

    def cat(one: Any) -> Any:
        return vectors.CatTransform([registry(each) for each in one.cseq], one.dim, one.lengths)

    def stack(one: Any) -> Any:
        return vectors.StackTransform([registry(each) for each in one.cseq], one.dim)

    for above in (constraints.greater_than, constraints.greater_than_eq):
        registry.register(above, _above)
    for between in (constraints.interval, constraints.half_open_interval):
        registry.register(between, _between)
    registry.register(constraints.less_than, _below)
    registry.register(constraints.independent, independent)
    registry.register(constraints.cat, cat)
    registry.register(constraints.stack, stack)
    registry.register(constraints.real, lambda one: transforms.identity_transform)
    registry.register(constraints.positive, lambda one: transforms.ExpTransform())
    registry.register(constraints.nonnegative, lambda one: transforms.ExpTransform())
    registry.register(constraints.lower_cholesky, lambda one: vectors.LowerCholeskyTransform())
    registry.register(constraints.positive_definite, lambda one: vectors.PositiveDefiniteTransform())
    registry.register(constraints.positive_semidefinite, lambda one: vectors.PositiveDefiniteTransform())
    registry.register(constraints.corr_cholesky, lambda one: vectors.CorrCholeskyTransform())


_fill(biject_to)
_fill(transform_to)
biject_to.register(constraints.simplex, lambda one: vectors.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda one: vectors.SoftmaxTransform())
