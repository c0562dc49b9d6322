"""Argument sets: which numbers a distribution's arguments may be, by their names.

In       a distribution, or its class
Out      argument -> constraint, as `Normal.arg_constraints`
Next     distribution.py (who asks), constraint_registry.py (transforms into these sets)
"""

from __future__ import annotations

import inspect
from typing import Any

from hcq.frontend.more.distributions import constraints

SETS: dict[str, Any] = {
    **dict.fromkeys(
        "scale rate concentration concentration0 concentration1 df df1 df2 alpha".split(),
        constraints.positive,
    ),
    "loc": constraints.real,
    "probs": constraints.unit_interval,
    "logits": constraints.real,
    "total_count": constraints.nonnegative_integer,
    "low": constraints.dependent,
    "high": constraints.dependent,
    "covariance_matrix": constraints.positive_definite,
    "precision_matrix": constraints.positive_definite,
    "scale_tril": constraints.lower_cholesky,
    "cov_factor": constraints.independent(constraints.real, 2),
    "cov_diag": constraints.independent(constraints.positive, 1),
}
_CHOICES = {"probs": constraints.simplex, "logits": constraints.real_vector}
OTHERS: dict[str, dict[str, Any]] = {  # where a name means something else; None is no set
    **dict.fromkeys(
        "Categorical OneHotCategorical OneHotCategoricalStraightThrough RelaxedOneHotCategorical".split(),
        _CHOICES,
    ),
    "Multinomial": {**_CHOICES, "total_count": None},
    "MultivariateNormal": {"loc": constraints.real_vector},
    "LowRankMultivariateNormal": {"loc": constraints.real_vector},
    "Dirichlet": {"concentration": constraints.independent(constraints.positive, 1)},
    "GeneralizedPareto": {"concentration": constraints.real},
    "Poisson": {"rate": constraints.nonnegative},
    "NegativeBinomial": {
        "total_count": constraints.nonnegative,
        "probs": constraints.half_open_interval(0.0, 1.0),
    },
    "Wishart": {"df": constraints.dependent},
}


def sets_of(kind: type) -> dict[str, Any]:
    """The sets of the arguments of a distribution's class."""
    names = list(inspect.signature(kind).parameters)
    own = OTHERS.get(kind.__name__, {})
    found = {name: own.get(name, SETS.get(name)) for name in names}
    return {
        name: each for name, each in found.items() if each is not None and own.get(name, each) is not None
    }
