"""Exponentials and logarithms in plain arithmetic, for targets without instructions for them.

In       a float32 or float64 value of the kernel stage
Out      a graph of ADD, MUL, DIV, WHERE, comparisons, shifts and bit casts; no tables, no branches
Next     trigonometry.py (SIN, COS), decompose.py (who asks), tests/compiler/passes/fit_polynomials.py (coefficients)
Source   argument reduction after W. Cody and W. Waite, "Software Manual for the Elementary Functions" (1980)

The polynomials are our own minimax fits: Remez exchange in 60-digit arithmetic on the reduced interval, in the relative
error of the function, then rounded to the format. Worst errors over dense samples, in units in the last place:

          EXP   EXP2  LOG   LOG2
float32   1.0   1.2   0.9   1.4
float64   1.0   1.2   0.9   1.4

Infinities, NaN, subnormal arguments and subnormal results are as IEEE 754 has them; EXP2 of an integer and LOG2 of a
power of two are exact. Every step is written so that fusing a multiplication into the addition after it can only make
the result better: products that must be exact have bits to spare. Reassociation would break it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hcq.ir.dtype import DType, dtypes, to_bits
from hcq.ir.node import Node, binary, const
from hcq.ir.op import Op


def numbers(text: str) -> tuple[float, ...]:
    """The numbers of a table; of a polynomial, the coefficients from the lowest power up."""
    return tuple(map(float, text.split()))


class Format(NamedTuple):
    """What the algorithms need to know of a floating point format."""

    dtype: DType
    signed: DType  # integers of the same size
    unsigned: DType
    mantissa: int  # bits
    bias: int  # of the exponent
    least_normal: float
    # x + this rounds x to an integer, which then stands in the low bits: 1.5 * 2**mantissa
    integer_part: float
    log2_e: float
    ln2_high: float  # few enough bits that its product with an exponent is exact
    ln2_low: float
    exp_ends: tuple[float, float]  # beyond them exp is 0, or infinite
    exp2_ends: tuple[float, float]
    # exponents that a result is kept away from the ends of the format, until the last multiplication
    margin: int
    lift: int  # 2**lift makes every subnormal number normal
    exp: Sequence[float]  # (e**r - 1 - r) / r**2 for |r| <= log(2) / 2
    exp2: Sequence[float]  # (2**r - 1) / r for |r| <= 1/2


_FORMATS = {
    dtypes.float32: Format(
        dtypes.float32,
        dtypes.int32,
        dtypes.uint32,
        mantissa=23,
        bias=127,
        least_normal=2.0**-126,
        integer_part=1.5 * 2.0**23,
        log2_e=1.4426950408889634,
        ln2_high=0.693359375,
        ln2_low=-0.00021219444005469057,
        exp_ends=(-104.0, 89.0),
        exp2_ends=(-151.0, 129.0),
        margin=64,
        lift=25,
        exp=numbers(
            "0.4999999403953552 0.1666652113199234 0.04166838899254799 0.008368716575205326 "
            "0.0013814611593261361"
        ),
        exp2=numbers(
            "0.6931471824645996 0.24022647738456726 0.055503323674201965 0.00961843691766262 "
            "0.0013398875016719103 0.00015353357593994588"
        ),
    ),
    dtypes.float64: Format(
        dtypes.float64,
        dtypes.int64,
        dtypes.uint64,
        mantissa=52,
        bias=1023,
        least_normal=2.0**-1022,
        integer_part=1.5 * 2.0**52,
        log2_e=1.4426950408889634,
        ln2_high=0.6931471806019545,
        ln2_low=-4.2009150726810846e-11,
        exp_ends=(-746.0, 710.0),
        exp2_ends=(-1076.0, 1025.0),
        margin=128,
        lift=54,
        exp=numbers(
            "0.5000000000000011 0.16666666666666413 0.04166666666653016 0.008333333333494555 "
            "0.0013888888943629745 0.00019841269506377436 2.480149309891094e-05 2.7557586548670366e-06 "
            "2.7630248485211643e-07 2.500000833243082e-08"
        ),
        exp2=numbers(
            "0.6931471805599453 0.24022650695910072 0.05550410866482169 0.00961812910762833 "
            "0.001333355814639269 0.0001540353039364067 1.5252733854318131e-05 1.3215486594942263e-06 "
            "1.0178051941916481e-07 7.054974470526504e-09 4.456570528013883e-10 2.5625427546437286e-11"
        ),
    ),
}

# (log(1 + f) - f + f**2 / 2) / f**3 and (log2(1 + f) - f * log2(e)) / f**2, for sqrt(1/2) <= 1 + f <= sqrt(2)
_LOG_FLOAT32 = numbers(
    "0.3333333134651184 -0.250008225440979 0.20001226663589478 -0.16623356938362122 0.14201751351356506 "
    "-0.13160184025764465 0.12761621177196503 -0.07634547352790833"
)
_LOG2_FLOAT32 = numbers(
    "-0.7213473320007324 0.4808982312679291 -0.36069658398628235 0.2885674834251404 -0.2396184206008911 "
    "0.2046004831790924 -0.1910558044910431 0.186171755194664 -0.10995952039957047"
)
# (log((1 + s) / (1 - s)) / s - 2) / s**2 in powers of s**2, for s = f / (2 + f)
_LOG_FLOAT64 = numbers(
    "0.6666666666666734 0.399999999994143 0.2857142874247897 0.22222198563131837 0.18183564883178302 "
    "0.1531403543691255 0.14796109336156382"
)


def format_of(x: Node) -> Format:
    """The format of a value; ValueError names those there are."""
    if x.dtype not in _FORMATS:
        raise ValueError(
            f"a {x.dtype.name} has no exp, log or sin here: float32 and float64 have; cast to one of them"
        )
    return _FORMATS[x.dtype]


def exp(x: Node) -> Node:
    """e**x: x = n log(2) + r, and e**x = 2**n e**r."""
    form = format_of(x)
    x = clamp(x, *form.exp_ends)
    n, scale, unscale = _integer_part(form, x, x * form.log2_e)
    r = n * -form.ln2_high + x
    r = n * -form.ln2_low + r
    return ((r * r) * polynomial(form.exp, r) + r + 1.0) * scale * unscale


def exp2(x: Node) -> Node:
    """2**x: x = n + r, and 2**x = 2**n 2**r."""
    form = format_of(x)
    x = clamp(x, *form.exp2_ends)
    n, scale, unscale = _integer_part(form, x, x)
    r = minus(x, n)
    return (polynomial(form.exp2, r) * r + 1.0) * scale * unscale


def log(x: Node) -> Node:
    """The natural logarithm: x = 2**e (1 + f), and log(x) = e log(2) + log(1 + f)."""
    form = format_of(x)
    e, f = _exponent_and_fraction(form, x)
    if form.dtype is dtypes.float32:
        beyond_f = (polynomial(_LOG_FLOAT32, f) * f + -0.5) * (f * f)
        value = e * form.ln2_low + beyond_f + f
    else:
        s, half_square, rest = _log_by_division(f)
        value = minus(f, minus(half_square, s * (half_square + rest) + e * form.ln2_low))
    return _with_special_values(x, e * form.ln2_high + value)


def log2(x: Node) -> Node:
    """The logarithm to base 2: x = 2**e (1 + f), and log2(x) = e + f + (what log2(1 + f) is beyond f)."""
    form = format_of(x)
    e, f = _exponent_and_fraction(form, x)
    if form.dtype is dtypes.float32:
        beyond_f = (f * f) * polynomial(_LOG2_FLOAT32, f) + f * (form.log2_e - 1.0)
    else:
        s, half_square, rest = _log_by_division(f)
        beyond_f = minus(s * (half_square + rest), half_square) * form.log2_e + f * (form.log2_e - 1.0)
    return _with_special_values(x, beyond_f + f + e)


# -- building blocks, shared with trigonometry.py ----------------------------------------------------------------------


def polynomial(coefficients: Sequence[float], x: Node) -> Node:
    """c[0] + c[1] x + c[2] x**2 + ..., by Horner's rule."""
    value = const(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


def minus(a: Node, b: Node) -> Node:
    """a - b."""
    return a + Node(Op.NEG, b.dtype, (b,))


def bitcast(x: Node, dtype: DType) -> Node:
    """The same bits as another dtype; a cast back and forth disappears, a constant is converted at once."""
    if x.dtype is dtype:
        return x
    if x.op is Op.BITCAST and x.src[0].dtype is dtype:
        return x.src[0]
    return Node(Op.BITCAST, dtype, (x,))


def clamp(x: Node, low: float, high: float) -> Node:
    """x between low and high; NaN stays NaN. Selects, not MIN and MAX: those have NaN rules that cost instructions."""
    x = (x < low).where(const(low, x.dtype), x)
    return (x > high).where(const(high, x.dtype), x)


def _integer_part(form: Format, x: Node, exponent: Node) -> tuple[Node, Node, Node]:
    """The integer n nearest to `exponent`, and two factors whose product is 2**n.

    2**n itself may be too small or too large for the format while the result is not, so the first factor is away from
    the end by 2**margin, and the second one undoes that with the only rounding: subnormal results are right as well.
    """
    negative = x < 0.0
    bias, margin = form.bias, form.margin
    shift = negative.where(
        const(form.integer_part + bias + margin, form.dtype),
        const(form.integer_part + bias - margin, form.dtype),
    )
    shifted = exponent + shift  # its low bits are the biased exponent of the first factor
    scale = bitcast(binary(Op.SHL, bitcast(shifted, form.unsigned), form.mantissa), form.dtype)
    unscale = negative.where(const(2.0**-margin, form.dtype), const(2.0**margin, form.dtype))
    return minus(shifted, shift), scale, unscale


def _exponent_and_fraction(form: Format, x: Node) -> tuple[Node, Node]:
    """e as a float and f with x = 2**e (1 + f) and sqrt(1/2) <= 1 + f < sqrt(2), for positive finite x."""
    subnormal = x < form.least_normal
    lifted = bitcast(subnormal.where(x * 2.0**form.lift, x), form.signed)
    e = binary(Op.SHR, lifted + -to_bits(math.sqrt(0.5), form.dtype), form.mantissa)
    f = bitcast(lifted + Node(Op.NEG, form.signed, (binary(Op.SHL, e, form.mantissa),)), form.dtype) + -1.0
    if form.dtype is dtypes.float32:
        e = e.cast(form.dtype)
    else:  # few machines convert vectors of 64-bit integers; e stands in the low bits of integer_part + e
        e = bitcast(e + to_bits(form.integer_part, form.dtype), form.dtype) + -form.integer_part
    return e + subnormal.where(const(-form.lift, form.dtype), const(0.0, form.dtype)), f


def _log_by_division(f: Node) -> tuple[Node, Node, Node]:
    """s, h and rest such that log(1 + f) = f - h + s (h + rest), where h = f**2 / 2."""
    s = binary(Op.DIV, f, f + 2.0)
    z = s * s
    return s, f * f * 0.5, polynomial(_LOG_FLOAT64, z) * z


def _with_special_values(x: Node, value: Node) -> Node:
    """A logarithm's value where x is not positive and finite: infinity and NaN pass, 0 is -infinity, the rest NaN."""
    value = (x < math.inf).where(value, x)
    value = x.eq(0.0).where(const(-math.inf, x.dtype), value)
    return (x < 0.0).where(const(math.nan, x.dtype), value)
