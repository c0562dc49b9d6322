"""Float arithmetic that NumPy does not have: one-rounding fma, directed rounding, flushing, narrow formats.

In       float arrays, or the bits of narrow ones
Out      float arrays and bits, rounded once
Next     float_ops.py, convert_ops.py (who use it)
Source   IEEE 754; hcq/emu/shader/floats.py (rounding once)

NaNs keep whatever payload the host's arithmetic gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from hcq.emu.nv.shader.types import Lanes, Type
from hcq.emu.shader.bits import contiguous
from hcq.emu.shader.exact_floats import nearest
from hcq.emu.shader.floats import fused_sum, narrow_bf16, widen_bf16

F32_TINY = np.float32(2.0**-126)
OUTSIDE = np.uint16(0x7FF7)  # of each halfword that a tensor map fills with NaN, as others saw on an sm_120
CANONICAL_NAN = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FF8000000000000}


def float_to_odd(s: Lanes) -> Lanes:
    """Doubles to floats, rounded to odd, for rounding once more to a narrower format."""
    near = s.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32)
    too_far = np.abs(back) > np.abs(s)
    truncated = np.where(too_far, bits - np.uint32(1), bits)
    odd = np.where((back != s) & ~np.isnan(s), truncated | np.uint32(1), bits)
    return np.where(np.isinf(s), bits, odd).view(np.float32)


def fma32(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """a * b + c for floats, rounded once."""
    product = np.multiply(a, b, dtype=np.float64)  # exact: 24 + 24 bits
    return fused_sum(product, c.astype(np.float64), np.float32)


EXACT: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
    "div": lambda a, b: a / b,
}


def exactly(what: str, mode: str, *numbers: float) -> float:
    """One double operation with any rounding mode, by fractions: one of EXACT, or "sqrt"."""
    if what == "sqrt":
        return _exact_sqrt(numbers[0], mode)
    if what == "fma" and math.isinf(numbers[2]) and all(map(math.isfinite, numbers[:2])):
        return numbers[2]
    compute = EXACT[what]
    with np.errstate(all="ignore"):
        plain = float(compute(*map(np.float64, numbers)))
    if not all(map(math.isfinite, numbers)) or (what == "div" and numbers[1] == 0):
        return plain
    exact = compute(*map(Fraction, numbers))
    if exact == 0:  # x - x is -0 when rounding down, unless both are +0
        terms = (numbers[0] * numbers[1], numbers[2]) if what == "fma" else numbers
        is_plus = all(term == 0 and math.copysign(1, term) > 0 for term in terms)
        return -0.0 if mode == "rm" and what in ("add", "fma") and not is_plus else plain
    near = nearest(exact)
    if math.isinf(near):
        high = near > 0
        return _step(near, -1 if high else 1) if (mode == "rz" or mode == ("rm" if high else "rp")) else near
    return _directed_step(near, (Fraction(near) > exact) - (Fraction(near) < exact), mode)


def _exact_sqrt(x: float, mode: str) -> float:
    if not 0 < x < math.inf:
        return x if x == 0 or x == math.inf else math.nan
    near = math.sqrt(x)
    square = Fraction(near) ** 2
    return _directed_step(near, (square > Fraction(x)) - (square < Fraction(x)), mode)


def _directed_step(near: float, excess: int, mode: str) -> float:
    """A nearest value moved by one place if the mode wants the other neighbour. excess: sign of near - exact."""
    if excess > 0 and (mode == "rm" or (mode == "rz" and near > 0)):
        return _step(near, -1)
    if excess < 0 and (mode == "rp" or (mode == "rz" and near < 0)):
        return _step(near, 1)
    return near


def _step(x: float, direction: int) -> float:
    return math.nextafter(x, math.inf * direction)


def each_exactly(what: str, mode: str, *arrays: Lanes) -> Lanes:
    """`exactly` for arrays of doubles."""
    wide = np.broadcast_arrays(*arrays)
    rows = zip(*[array.tolist() for array in wide])
    return np.array([exactly(what, mode, *row) for row in rows], np.float64)


def directed32(s: Lanes, e: Lanes, mode: str) -> Lanes:
    """Floats from the exact value s + e (doubles, |e| below half a place of s) rounded as rz, rm or rp say."""
    near = s.astype(np.float32)
    excess = near.astype(np.float64) - s
    excess = np.where(excess != 0, excess, -e)
    excess = np.where(np.isfinite(s), excess, 0.0)
    down, up = np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))
    if mode == "rm":
        return np.where(excess > 0, down, near)
    if mode == "rp":
        return np.where(excess < 0, up, near)
    return np.where((excess > 0) & (s > 0), down, np.where((excess < 0) & (s < 0), up, near))


def flush(x: Lanes) -> Lanes:
    """Subnormal floats become zeros of their sign (.ftz)."""
    small = np.abs(x) < F32_TINY
    return np.where(small, np.copysign(np.float32(0), x), x) if small.any() else x


def saturate(x: Lanes) -> Lanes:
    """Into [0, 1]; NaN becomes +0 (.sat)."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


def canonical(x: Lanes) -> Lanes:
    """NaNs become the one that PTX names."""
    nan = np.isnan(x)
    if not nan.any():
        return x
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[x.itemsize]
    return np.where(nan, bits(CANONICAL_NAN[x.itemsize]), x.view(bits)).view(x.dtype)


# -- narrow formats: they compute as floats, and are rounded once at the end


def bits_of_bf16(x: Lanes) -> Lanes:
    """Floats to the bits of bfloat16, to nearest, ties to even; NaN as PTX names it."""
    return narrow_bf16(x, CANONICAL_NAN[2])


def narrow_f16(x: Lanes) -> Lanes:
    """Floats or doubles to the bits of float16, to nearest, ties to even."""
    bits = x.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), bits)


def reader(type_: Type) -> Callable[[Lanes], Lanes]:
    """Register bits to floats to compute with: f16 and bf16 as float32, packed types with a last axis of 2."""
    if type_.name == "f32x2":
        return lambda bits: bits.view(np.float32).reshape(-1, 2)
    if type_.packed == 2:
        wide = _widen(type_)
        return lambda bits: wide(bits.view(np.uint16).reshape(-1, 2))
    if type_.size_bytes == 2:
        return _widen(type_)
    return lambda bits: bits.view(type_.scalar)


def packer(type_: Type) -> Callable[[Lanes], Lanes]:
    """What `reader` read, back to register bits."""
    if type_.name == "f32x2":
        return lambda x: contiguous(x).view(np.uint64).reshape(-1)
    if type_.packed == 2:
        narrow = bits_of_bf16 if type_.kind == "bf" else narrow_f16
        return lambda x: contiguous(narrow(x)).view(np.uint32).reshape(-1)
    if type_.size_bytes == 2:
        return bits_of_bf16 if type_.kind == "bf" else narrow_f16
    return lambda x: x.view(type_.bits)


def _widen(type_: Type) -> Callable[[Lanes], Lanes]:
    if type_.kind == "bf":
        return widen_bf16
    return lambda bits: bits.view(np.float16).astype(np.float32)


# -- exponents alone


def narrow_exponent(x: Lanes, up: bool, finite: bool) -> Lanes:
    """Sizes of floats to powers of two, as ue8m0 counts them from 2**-127 on. up: away from zero; NaN is 0xff."""
    bits = np.abs(x).view(np.uint32)
    code = bits >> np.uint32(23)
    if up:  # what has a fraction, below 2**-126 one above 2**-127
        code = code + np.where(code == 0, bits > 0x400000, bits & np.uint32(0x7FFFFF) != 0)
    code = np.where(np.isnan(x), 0xFF, np.minimum(code, 0xFE if finite else 0xFF))
    return code.astype(np.uint8)


def widen_exponent(code: Lanes) -> Lanes:
    """Such powers to floats."""
    value = np.ldexp(np.float64(1), code.astype(np.int64) - 127)
    return np.where(code == 0xFF, np.nan, value).astype(np.float32)
