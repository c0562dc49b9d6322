"""Elementary functions of float64: exp2, log2, tanh, sine and cosine, from sums, products and bits alone.

In       arrays of float64, or symbols that stand for such
Out      float64; off by less than 2**-45 of the result, which then is rounded to float32 or float16
Next     hcq/emu/amd/shader/float_ops.py and hcq/emu/nv/shader/float_ops.py (who calls),
         hcq/emu/compiled/symbols.py (symbols)
Source   polynomials through Chebyshev's points, computed with 60 digits

Each step is an operation of IEEE 754, so that NumPy and compiled code leave the same bits, on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any

WHOLE = 1.5 * 2.0**52  # added to a number, it leaves the nearest whole one in the low bits
ROOT_HALF = 0x3FE6A09E667F3BCD  # bits of the root of 1/2
# (2**r - 1) / r for r from -1/2 to 1/2
EXP2 = (
    0.6931471805599462,
    0.24022650695910075,
    0.05550410866465167,
    0.009618129107618665,
    0.0013333558200794592,
    0.00015403530424776529,
    1.5252672924850737e-05,
    1.3215451633221434e-06,
    1.0205905413765595e-07,
    7.070977866508138e-09,
)
# log2((1 + s) / (1 - s)) / s, in s * s, where s is (m - 1) / (m + 1) for m from the root of 1/2 to the root of 2
LOG2 = (
    2.8853900817779268,
    0.9617966939259898,
    0.5770780163455203,
    0.4121985858409005,
    0.32059853491395984,
    0.262334352504183,
    0.2209130842311768,
    0.2136589569431927,
)
# sin(2 * pi * y) / y, in y * y, for y from -1/4 to 1/4
SINE = (
    6.283185307179585,
    -41.341702240398284,
    81.60524927557977,
    -76.70585968962867,
    42.05868995395094,
    -15.09450614073429,
    3.817365633469135,
    -0.6925067010720717,
)

# 1 / (2 * pi) in pieces of 24 bits, so that a float32 times one of them is exact
TURN = (
    0.15915489196777344,
    5.1124118272127816e-08,
    3.6261404238991345e-15,
    6.4341065578571475e-22,
    6.177844603062932e-30,
    2.5867171471830844e-36,
    2.8971775188927247e-44,
    8.194643032471305e-51,
)
TWICE_LOG2_E = 2.8853900817779268


def polynomial(x: Array, factors: tuple[float, ...]) -> Array:
    """The sum of factors times powers of x."""
    total = x * factors[-1]
    for factor in factors[-2:0:-1]:
        total += factor
        total *= x
    total += factors[0]
    return total


def exp2(x: Array) -> Array:
    """2**x; results of float32's range are what is asked for: beyond 2**1000 and 2**-1000 it is those."""
    x = np.clip(x, -1000.0, 1000.0)
    shifted = x + WHOLE
    rest = x - (shifted - WHOLE)
    power = ((shifted.view(np.uint64) + np.uint64(1023)) << np.uint64(52)).view(np.float64)
    part = polynomial(rest, EXP2)
    part *= rest
    part += 1.0
    return part * power


def log2(x: Array) -> Array:
    """The logarithm to base 2, of numbers that are no denormals."""
    bits = x.view(np.int64)
    exponent = (bits - np.int64(ROOT_HALF)) >> np.int64(52)
    near_one = (bits - (exponent << np.int64(52))).view(np.float64)
    s = (near_one - 1.0) / (near_one + 1.0)
    found = polynomial(s * s, LOG2)
    found *= s
    found += exponent.astype(np.float64)
    found = np.where(x == np.inf, x, found)
    found = np.where(x == 0.0, np.float64(-np.inf), found)
    return np.where(x >= 0.0, found, np.float64(np.nan))


def sine_of_turns(x: Array) -> Array:
    """The sine of so many revolutions; quarters are exact."""
    part = x - np.rint(x)
    mirrored = np.copysign(0.5, part) - part
    return _sine(np.where(np.abs(part) > 0.25, mirrored, part))


def cosine_of_turns(x: Array) -> Array:
    """The cosine of so many revolutions; quarters are exact."""
    return _sine(0.25 - np.abs(x - np.rint(x)))


def turns(x: Array) -> Array:
    """Revolutions of so many radians, whole ones left out; x is a float32's number."""
    total = None
    for piece in TURN:
        part = x * piece
        part = part - np.rint(part)
        total = part if total is None else total + part
    return total


def sine(x: Array) -> Array:
    """The sine of so many radians, of a float32's number; of zeros they themselves."""
    return np.where(x == 0.0, x, sine_of_turns(turns(x)))


def cosine(x: Array) -> Array:
    """The cosine of so many radians, of a float32's number."""
    return cosine_of_turns(turns(x))


def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""
    size = np.abs(x)
    power = exp2(size * -TWICE_LOG2_E)
    square = size * size
    near_zero = size - size * square * ((1.0 / 3.0) - square * (2.0 / 15.0))
    return np.copysign(np.where(size < 2.0**-8, near_zero, (1.0 - power) / (1.0 + power)), x)


def _sine(y: Array) -> Array:
    found = polynomial(y * y, SINE) * y
    return np.where(np.abs(y) == 0.25, np.copysign(1.0, y), found)
