"""Exact float arithmetic from pairs of doubles, on arrays: sums, products and a fused multiply-add rounded once.

In       float64 arrays
Out      pairs (s, e) whose sum is exact; doubles rounded to odd, or once to nearest even
Next     emu/amd/shader/floats.py, emu/nv/shader/floats.py (what each vendor's instructions make of it)
Source   "Handbook of Floating-Point Arithmetic": TwoSum, Dekker's product, rounding to odd

Rounding to odd: a value computed to extra bits, with its last bit set when anything was lost, can be rounded again to
fewer bits (two less or more) without a double rounding error.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

Array = Any  # NumPy's own annotations do not describe arrays of unknown dtype


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """(s, e): s = a + b rounded, and s + e = a + b exactly."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """(p, e): p = a * b rounded, and p + e = a * b exactly, for doubles far from overflow and underflow."""
    p = a * b
    ah, al = _halves(a)
    bh, bl = _halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _halves(a: Array) -> tuple[Array, Array]:
    t = a * 134217729.0  # 2^27 + 1
    high = t - (t - a)
    return high, a - high


def round_to_odd(s: Array, e: Array) -> Array:
    """The double s, with |e| its lost part, so that its last bit is odd when e is not zero."""
    bits = s.view(np.uint64)
    inexact = (e != 0) & np.isfinite(s) & ((bits & np.uint64(1)) == 0)
    away = np.signbit(e) == np.signbit(s)
    return np.where(inexact, np.where(away, bits + np.uint64(1), bits - np.uint64(1)), bits).view(np.float64)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c for doubles, rounded once to nearest even.

    Product and sum are kept as pairs, and the last addition takes a term rounded to odd. Lanes whose exponents are too
    extreme for that are done in fractions.
    """
    for one in (a, b, c):
        if hasattr(one, "fuse64"):  # symbols of code that is being compiled
            return one.fuse64(a, b, c)
    a, b, c = np.broadcast_arrays(a, b, c)
    high, low = two_product(a, b)
    total, rest = two_sum(c, low)
    value, lost = two_sum(high, total)
    out: Array = value + round_to_odd(*two_sum(rest, lost))
    size = np.abs(high)
    safe = (size < 2.0**900) & (np.abs(c) < 2.0**900) & (np.abs(a) < 2.0**900) & (np.abs(b) < 2.0**900)
    safe &= (size > 2.0**-800) & ((np.abs(c) > 2.0**-800) | (c == 0))
    plain = ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(c) | (a == 0) | (b == 0)
    finite_product = np.isfinite(a) & np.isfinite(b)  # a * b alone may overflow; an infinite c wins even so
    out = np.where(plain, np.where(finite_product & np.isinf(c), c, high + c), out)
    for index in zip(*np.nonzero(~safe & ~plain)):
        out[index] = exact_fma(float(a[index]), float(b[index]), float(c[index]))
    return out


def exact_fma(a: float, b: float, c: float, scale: int = 0) -> float:
    """(a * b + c) * 2**scale for finite numbers, rounded once."""
    exact = (Fraction(a) * Fraction(b) + Fraction(c)) * Fraction(2) ** scale
    if exact == 0:
        return a * b + c if scale == 0 else 0.0
    return nearest(exact)


def nearest(exact: Fraction) -> float:
    """The double nearest to a fraction; infinity beyond the largest."""
    try:
        return float(exact)  # CPython divides integers with one correct rounding, also to denormals
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")
