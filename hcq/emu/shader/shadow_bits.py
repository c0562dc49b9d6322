"""Shadow bits: which bits of a result nobody has written, from those of its sources (HCQ_SANITIZE=init).

In       values, and their shadows: integers of the same size, with a bit set where nobody wrote
Out      shadows of results
Next     ../nv/shader/shadow_results.py and ../amd/shader/shadow_results.py (who ask), unwritten.py (what is told)
Source   E. Stepanov, K. Serebryany, "MemorySanitizer: fast detector of uninitialized memory use in C++", CGO 2015

A bit is unwritten only where what nobody wrote can change it. An operation that is not listed makes a written result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def of_and(a: Array, b: Array, shadow_a: Array, shadow_b: Array) -> Array:
    """a & b: a zero that was written decides."""
    found: Array = (shadow_a & shadow_b) | (shadow_a & b) | (shadow_b & a)
    return found


def of_or(a: Array, b: Array, shadow_a: Array, shadow_b: Array) -> Array:
    """a | b: a one that was written decides."""
    found: Array = (shadow_a & shadow_b) | (shadow_a & ~b) | (shadow_b & ~a)
    return found


def of_function(function: Callable[..., Array], values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """A function of each bit of several words: where some choice of the unwritten bits changes it."""
    usual = function(*values)
    found: Array = usual ^ usual
    for chosen in range(1, 1 << len(values)):
        other = [v ^ s if chosen >> at & 1 else v for at, (v, s) in enumerate(zip(values, shadows))]
        found = found | (function(*other) ^ usual)
    return found


def upwards(shadow: Array) -> Array:
    """Of a sum, a difference or a product of integers: a bit changes those from itself on."""
    one = shadow.dtype.type(1)
    found: Array = shadow | (~shadow + one)
    return found


def whole(shadow: Array, dtype: Any) -> Array:
    """All bits of a result, where any bit of a source is unwritten."""
    ones = np.array(np.iinfo(dtype).max, dtype) if np.dtype(dtype).kind == "u" else np.array(True)
    found: Array = np.where(shadow != 0, ones, np.zeros(1, dtype)[0])
    return found


def of_choice(condition: Array, a: Array, b: Array, shadow: Array, shadow_a: Array, shadow_b: Array) -> Array:
    """condition ? a : b, with whole results where the condition is unwritten and the two differ."""
    chosen = np.where(condition, shadow_a, shadow_b)
    found: Array = np.where(shadow & (a != b), whole(np.ones(1, chosen.dtype), chosen.dtype), chosen)
    return found


def of_comparison(
    a: Array, b: Array, shadow_a: Array, shadow_b: Array, is_equality: bool, is_signed: bool
) -> Array:
    """Whether unwritten bits can change how two integers compare. Returns booleans."""
    both = shadow_a | shadow_b
    if is_equality:
        found: Array = (both != 0) & ((a ^ b) & ~both == 0)
        return found
    if is_signed:
        top = a.dtype.type(1 << 8 * a.dtype.itemsize - 1)
        a, b = a ^ top, b ^ top
    low_a, high_a, low_b, high_b = a & ~shadow_a, a | shadow_a, b & ~shadow_b, b | shadow_b
    found = (both != 0) & ~((high_a < low_b) | (high_b < low_a))
    return found
