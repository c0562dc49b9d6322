"""Sizes: the arguments of layers that are one int or one for each axis.

In       what a layer was given
Out      a tuple of ints, or an error that names the layer and the argument; a parameter that starts drawn or even
Next     convolution.py, pooling.py (who ask)
"""

from __future__ import annotations

from typing import Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.nn.constant import constant
from hcq.frontend.nn.parameter import Parameter, parameter_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType
from hcq.ir.node import Shape


def several(call: str, name: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    """`count` ints, from one or from as many. Raises UsageError for others."""
    found = (value,) * count if is_whole(value) else value
    if (
        not isinstance(found, (tuple, list))
        or len(found) != count
        or any(not is_whole(size) or size < least for size in found)
    ):
        many = "an int" if count == 1 else f"an int or {count}"
        raise UsageError(f"[{call}] {name} {shown(value)}: give {many}, {least} or more.")
    return tuple(int(size) for size in found)


def positive(call: str, **sizes: Any) -> None:
    """Raise UsageError for what is no int above 0."""
    for name, size in sizes.items():
        if not is_whole(size) or size < 1:
            raise UsageError(f"[{call}] {name} {shown(size)}: give an int, 1 or more.")


def probability(call: str, p: Any) -> float:
    """Raise UsageError for what is not between 0 and 1."""
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0.0 <= p <= 1.0:
        raise UsageError(f"[{call}] p {shown(p)}: a probability is between 0 and 1.")
    return p


def drawn(shape: Shape, bound: float, dtype: DType | None, device: str | None) -> Parameter:
    """A parameter that starts uniform in [-bound, bound)."""
    return parameter_of(lambda: Tensor.uniform(shape, low=-bound, high=bound, dtype=dtype, device=device))


def even(shape: Shape, value: float, dtype: DType | None, device: str | None) -> Parameter:
    """A parameter that starts as one number."""
    return parameter_of(lambda: constant(shape, value, dtype, device))
