"""Logic: comparisons, and, or, choices.

In       tensors
Out      tensors of bool, or what was chosen
Changes  table.py's table
Next     math.py (arithmetic), control.py (If and Loop)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor


@operator("And", since=7)
def logical_and(a: Tensor, b: Tensor) -> Any:
    """Both."""
    return a & b


@operator("Or", since=7)
def logical_or(a: Tensor, b: Tensor) -> Any:
    """One, or both."""
    return a | b


@operator("Xor", since=7)
def logical_xor(a: Tensor, b: Tensor) -> Any:
    """One, and not both."""
    return a ^ b


@operator("Not", since=1)
def logical_not(x: Tensor) -> Any:
    """Not x."""
    return x.logical_not()


@operator("Equal", since=7)
def equal(a: Tensor, b: Tensor) -> Any:
    """a == b."""
    return a == b


@operator("Greater", since=7)
def greater(a: Tensor, b: Tensor) -> Any:
    """a > b."""
    return a > b


@operator("GreaterOrEqual", since=12)
def greater_or_equal(a: Tensor, b: Tensor) -> Any:
    """a >= b."""
    return a >= b


@operator("Less", since=7)
def less(a: Tensor, b: Tensor) -> Any:
    """a < b."""
    return a < b


@operator("LessOrEqual", since=12)
def less_or_equal(a: Tensor, b: Tensor) -> Any:
    """a <= b."""
    return a <= b


@operator("Where", since=9)
def where(condition: Tensor, a: Tensor, b: Tensor) -> Any:
    """a where the condition holds, and else b."""
    return condition.where(a, b)
