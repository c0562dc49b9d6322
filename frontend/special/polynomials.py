"""Orthogonal polynomials, of Chebyshev, Hermite, Laguerre and Legendre; the degree may differ by element.

In       tensors of float64 in one shape: where, and which degree, a whole number
Out      tensors of float64; a degree below 0 gives 0
Changes  nothing; the greatest degree of a tensor is computed and read back, but for Chebyshev's
Next     functions/special.py (the functions)

Chebyshev's polynomials are cosines and sines of a multiple of the angle, hyperbolic ones beyond -1 and 1. The others
are their recurrences of three terms, taken to the greatest degree of all elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hcq.frontend.core.errors import UsageError

MOST = 4096  # degrees of a recurrence
AT_ONCE = 32  # steps of a recurrence that become one kernel

Step = Callable[[int, Any, Any, Any], Any]


def chebyshev(kind: str, x: Any, n: Any) -> Any:
    """T, U, V or W of degree n; the sign of x makes V of W, and W of V."""
    size, is_odd = x.abs(), (n % 2.0) == 1.0
    result = _of_size(kind, size, n)
    mirror = {"V": "W", "W": "V"}.get(kind)
    below = result if mirror is None else _of_size(mirror, size, n)
    result = (x < 0.0).where(is_odd.where(-below, below), result)
    return (n < 0.0).where(0.0, result)


def _of_size(kind: str, size: Any, n: Any) -> Any:
    """cos(n t), sin((n + 1) t) / sin(t), cos((n + 1/2) t) / cos(t / 2), or sin((n + 1/2) t) / sin(t / 2), from 0 on."""
    name, more, part = {
        "T": ("cos", 0.0, 0.0),
        "U": ("sin", 1.0, 1.0),
        "V": ("cos", 0.5, 0.5),
        "W": ("sin", 0.5, 0.5),
    }[kind]
    is_inside = size <= 1.0
    # of half the angle, which keeps its digits near 1
    sine = (0.5 * (1.0 - is_inside.where(size, 0.5))).sqrt()
    half = sine.asin()
    # a step of Newton's: asin has the digits of float32
    angle = 2.0 * (half + (sine - half.sin()) / half.cos())
    sine = (0.5 * (is_inside.where(2.0, size) - 1.0)).sqrt()
    half = sine.asinh()
    growth = 2.0 * (half + (sine - half.sinh()) / half.cosh())

    def at(turn: Any, function: str) -> Any:
        top = getattr(turn * (n + more), function)()
        return top / getattr(turn * part, function)() if part else top

    result = is_inside.where(at(angle, name), at(growth, f"{name}h"))
    if name == "sin":  # at 1 both sines are zero
        result = (size == 1.0).where((n + more) / part, result)
    return result


def recurrence(call: str, x: Any, n: Any, first: Any, step: Step) -> Any:
    """p(n), where p(0) = 1, p(1) = first, and p(k + 1) = step(k, x, p(k), p(k - 1))."""
    most = int(n.amax().item()) if n.numel() else 0
    if most > MOST:
        raise UsageError(f"[{call}] n up to {most}: degrees go up to {MOST}.")
    older, newer = x * 0.0 + 1.0, first
    result = (n == 0.0).where(older, (n == 1.0).where(newer, 0.0))
    for k in range(1, most):
        older, newer = newer, step(k, x, newer, older)
        result = (n == k + 1.0).where(newer, result)
        if k % AT_ONCE == 0:
            result.realize(older, newer)
    return (x.isnan() & (n > 0.0)).where(math.nan, result)


RECURRENCES: dict[str, tuple[Callable[[Any], Any], Step]] = {
    "hermite_polynomial_h": (lambda x: 2.0 * x, lambda k, x, p, q: 2.0 * x * p - 2.0 * k * q),
    "hermite_polynomial_he": (lambda x: x, lambda k, x, p, q: x * p - k * q),
    "laguerre_polynomial_l": (
        lambda x: 1.0 - x,
        lambda k, x, p, q: ((2 * k + 1.0 - x) * p - k * q) * (1.0 / (k + 1)),
    ),
    "legendre_polynomial_p": (
        lambda x: x,
        lambda k, x, p, q: ((2 * k + 1.0) * x * p - k * q) * (1.0 / (k + 1)),
    ),
}
