"""Logic: comparisons, and, or, choices.

In       tensors
Out      tensors of bool, or what was chosen
Changes  table.py's table
Next     math.py (arithmetic), control.py (If and Loop)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.frontend.more.onnx.table import operators

LOGIC: dict[str, tuple[int, Callable[..., Any]]] = {
    "And": (7, lambda a, b: a & b),
    "Or": (7, lambda a, b: a | b),
    "Xor": (7, lambda a, b: a ^ b),
    "Not": (1, lambda x: x.logical_not()),
    "Equal": (7, lambda a, b: a == b),
    "Greater": (7, lambda a, b: a > b),
    "GreaterOrEqual": (12, lambda a, b: a >= b),
    "Less": (7, lambda a, b: a < b),
    "LessOrEqual": (12, lambda a, b: a <= b),
    "Where": (9, lambda condition, a, b: condition.where(a, b)),
}
operators(LOGIC)
