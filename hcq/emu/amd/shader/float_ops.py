"""Float vector instructions: sums, products, fused ones, order, rounding to whole, transcendentals, division steps.

In       arrays of float16, float32 or float64
Out      FLOAT, a table of meanings
Next     floats.py (rounding once), convert_ops.py (between types), vector_ops.py (neg, abs, omod, clamp and EXEC)
Source   instruction descriptions of the RDNA3 and CDNA3 ISA documents

Transcendentals are computed in float64 and rounded once: at least as good as the hardware's one unit in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from hcq.emu.amd.shader import floats
from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.floats import (
    exponent_of,
    maximum,
    maximum_or_nan,
    minimum,
    minimum_or_nan,
    quieted,
    raw,
    widen,
)
from hcq.emu.amd.shader.meaning import Compute, Table
from hcq.emu.amd.shader.operands import TYPES, Context
from hcq.emu.shader.elementary import cosine_of_turns, exp2, log2, sine_of_turns
from hcq.emu.shader.exact_floats import exact_fma, fma64, round_to_odd, two_product, two_sum
from hcq.emu.shader.floats import DOWN, NEAREST, UP, ZERO, narrow, narrow_bf16, widen_bf16

FLOAT = Table()
define = FLOAT.define
KINDS = ("f16", "f32", "f64")


def directed64(total: Array, error: Array, rounding: int) -> Array:
    """The float64 neighbour of total + error that a directed rounding mode asks for."""
    up = (error > 0) & ((rounding == UP) | ((rounding == ZERO) & (total < 0)))
    down = (error < 0) & ((rounding == DOWN) | ((rounding == ZERO) & (total > 0)))
    return np.where(up, np.nextafter(total, np.inf), np.where(down, np.nextafter(total, -np.inf), total))


def directed_fma64(a: Array, b: Array, c: Array, rounding: int) -> Array:
    """a * b + c of float64, rounded once as a directed mode asks for: by fractions, lane by lane."""
    a, b, c = np.broadcast_arrays(a, b, c)
    total = fma64(a, b, c)
    error = np.zeros(total.shape)
    for index in zip(*np.nonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))):
        exact = Fraction(float(a[index])) * Fraction(float(b[index])) + Fraction(float(c[index]))
        if np.isinf(total[index]):
            error[index] = -np.sign(total[index])
        else:
            error[index] = (exact > Fraction(float(total[index]))) - (exact < Fraction(float(total[index])))
    return directed64(total, error, rounding)


def add_like(kind: str, sign_a: int, sign_b: int) -> Callable[[Context], Compute]:
    """Sums of two numbers with these signs, rounded as MODE says."""

    def make(ctx: Context) -> Compute:
        rounding = ctx.mode.rounding(kind)
        if rounding == NEAREST:
            if (sign_a, sign_b) == (1, 1):
                return np.add
            return np.subtract if sign_a == 1 else lambda a, b: b - a

        def directed(a: Array, b: Array) -> Array:
            x, y = sign_a * widen(a), sign_b * widen(b)
            total, error = two_sum(x, y)
            if kind == "f64":
                return directed64(total, error, rounding)
            return narrow(round_to_odd(total, error), TYPES[kind], rounding)

        return directed

    return make


def multiply(kind: str) -> Callable[[Context], Compute]:
    """Products, rounded as MODE says."""

    def make(ctx: Context) -> Compute:
        rounding = ctx.mode.rounding(kind)
        if rounding == NEAREST:
            return np.multiply
        if kind == "f64":
            return lambda a, b: directed64(*two_product(a, b), rounding)
        return lambda a, b: narrow(widen(a) * widen(b), TYPES[kind], rounding)

    return make


def fused(kind: str) -> Callable[[Context], Compute]:
    """a * b + c rounded once, as MODE says."""

    def make(ctx: Context) -> Compute:
        rounding = ctx.mode.rounding(kind)
        if kind == "f64":
            return fma64 if rounding == NEAREST else lambda a, b, c: directed_fma64(a, b, c, rounding)
        one = floats.fma32 if kind == "f32" else floats.fma16
        return one if rounding == NEAREST else lambda a, b, c: one(a, b, c, rounding)

    return make


def zero_wins(compute: Compute) -> Compute:
    """The old graphics rule: 0 times anything is 0."""

    def run(a: Array, b: Array, *rest: Array) -> Array:
        zero = (a == 0) | (b == 0)
        a, b = np.where(zero, np.float32(0), a), np.where(zero, np.float32(0), b)
        return compute(a, b, *rest)

    return run


def ordered(combine: Callable[[Array, Array, bool], Array]) -> Callable[[Context], Compute]:
    """Minimum or maximum of two, with the NaN rule of MODE."""
    return lambda ctx: lambda a, b: combine(a, b, ctx.mode.ieee)


def three(*steps: Callable[[Array, Array, bool], Array]) -> Callable[[Context], Compute]:
    """Minimum or maximum of three, one after the other."""
    first, second = steps
    return lambda ctx: lambda a, b, c: second(first(a, b, ctx.mode.ieee), c, ctx.mode.ieee)


def unfused(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded twice."""
    return a * b + c


def plain_mad(a: Array, b: Array, c: Array) -> Array:
    """The product is rounded before the sum; denormals are zeros, going in and coming out."""
    x, y, z = (floats.flushed(value) for value in (a, b, c))
    return floats.flushed(floats.flushed(x * y) + z)


def chained(first: Compute, second: Compute) -> Compute:
    """A function of two, and then one of its result and a third."""
    return lambda a, b, c: second(first(a, b), c)


def median(ctx: Context) -> Compute:
    """v_med3: the middle one of three."""

    def run(a: Array, b: Array, c: Array) -> Array:
        ieee = ctx.mode.ieee
        low, high = minimum(a, b, ieee), maximum(a, b, ieee)
        middle = maximum(low, minimum(high, c, ieee), ieee)
        any_nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
        return np.where(any_nan, minimum(low, c, ieee), middle)

    return run


def through64(compute: Callable[[Array], Array], flushes: bool = False) -> Callable[[Context], Compute]:
    """A function of float64, rounded once; `flushes` for those whose hardware ignores denormals."""

    def run(a: Array) -> Array:
        if flushes and a.dtype == np.float32:
            return floats.flushed(compute(widen(floats.flushed(a))).astype(np.float32))
        return compute(widen(a)).astype(a.dtype)

    return lambda ctx: run


def reciprocal(x: Array) -> Array:
    """1 / x, of NumPy's accuracy."""
    return 1.0 / x


def reciprocal_root(x: Array) -> Array:
    """1 / sqrt(x), of NumPy's accuracy."""
    return 1.0 / np.sqrt(x)


def fraction(a: Array) -> Array:
    """a - floor(a), below 1."""
    below_one = np.nextafter(np.array(1, a.dtype), np.array(0, a.dtype))
    y = np.minimum(a - np.floor(a), below_one)
    return np.where(np.isfinite(a), y, np.array(np.nan, a.dtype))


def mantissa(a: Array) -> Array:
    """v_frexp_mant: the number scaled into [0.5, 1)."""
    return np.frexp(a)[0].astype(a.dtype)


def exponent(kind: Any) -> Compute:
    """v_frexp_exp: the power of two to it; 0 for infinities and NaN."""

    def run(a: Array) -> Array:
        return np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(kind)

    return run


def scale(a: Array, by: Array) -> Array:
    """a * 2**by, rounded once also when the result is denormal."""
    if a.dtype == np.float16:
        return np.ldexp(widen(a), np.clip(by.astype(np.int32), -200, 200)).astype(np.float16)
    return np.ldexp(a, by.astype(np.int32)).astype(a.dtype)


# -- division: v_div_scale keeps the iteration in range, v_div_fmas undoes it, v_div_fixup ends it ---------------------
LIMITS = {  # float type: (exponent difference that overflows, shift, lowest numerator exponent)
    np.dtype(np.float32): (96, 64, 23),
    np.dtype(np.float64): (768, 128, 53),
}


def divide_scale(s0: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
    """(s0 scaled, lanes whose quotient v_div_fmas must scale back). s0 is the denominator or the numerator."""
    s0, denominator, numerator = np.broadcast_arrays(s0, denominator, numerator)
    far, shift, low = LIMITS[s0.dtype]
    e_den, e_num = exponent_of(denominator), exponent_of(numerator)
    is_den = raw(s0) == raw(denominator)
    is_num = raw(s0) == raw(numerator)
    bias = (1 << (10 if s0.dtype == np.float64 else 7)) - 1
    zero = (denominator == 0) | (numerator == 0)
    unusual = (e_den == 2 * bias + 1) | (e_num == 2 * bias + 1)
    overflow = e_num - e_den >= far
    den_denormal = e_den == 0
    tiny_reciprocal = e_den >= 2 * bias - 1
    tiny_quotient = e_num - e_den <= 1 - bias
    cases = [
        unusual,
        overflow,
        den_denormal,
        tiny_reciprocal & tiny_quotient,
        tiny_reciprocal,
        tiny_quotient,
        e_num <= low,
    ]
    post = [False, True, False, True, False, True, False]
    power_if_den = [0, shift, shift, -shift, -shift, 0, shift]
    power_if_num = [0, 0, shift, 0, -shift, shift, shift]
    power = np.where(
        is_den, np.select(cases, power_if_den, 0), np.where(is_num, np.select(cases, power_if_num, 0), 0)
    )
    scaled = np.ldexp(s0, power.astype(np.int32))
    scaled = np.where(zero, np.array(np.nan, s0.dtype), scaled)
    return scaled, np.select(cases, post, False).astype(np.bool_) & ~zero


def divide_fmas(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    """a * b + c, scaled back where `scaled`: up when the estimate c is above 1, down when it is below."""
    wide = a.dtype == np.float64
    shift, bias = (128, 1023) if wide else (64, 127)
    a, b, c, scaled = np.broadcast_arrays(a, b, c, scaled)
    plain = fma64(a, b, c) if wide else floats.fma32(a, b, c)
    if not scaled.any():
        return plain
    back = np.where(exponent_of(c) > bias, shift, -shift)
    if not wide:
        exact = round_to_odd(*two_sum(widen(a) * widen(b), widen(c)))
        return np.where(scaled, np.ldexp(exact, back).astype(np.float32), plain)
    out = plain.copy()
    for index in zip(*np.nonzero(scaled & np.isfinite(a) & np.isfinite(b) & np.isfinite(c))):
        out[index] = exact_fma(float(a[index]), float(b[index]), float(c[index]), int(back[index]))
    return out


def divide_fixup(quotient: Array, denominator: Array, numerator: Array) -> Array:
    """The quotient with the right sign, or the special result its operands demand."""
    quotient, denominator, numerator = np.broadcast_arrays(quotient, denominator, numerator)
    one = np.array(1, quotient.dtype)
    sign = np.copysign(one, numerator) * np.copysign(one, denominator)
    both_zero = (numerator == 0) & (denominator == 0)
    both_inf = np.isinf(numerator) & np.isinf(denominator)
    return np.select(
        [
            np.isnan(numerator),
            np.isnan(denominator),
            both_zero | both_inf,
            (denominator == 0) | np.isinf(numerator),
            np.isinf(denominator) | (numerator == 0),
            np.isnan(quotient),  # finite operands: the iteration overflowed, so does the quotient
        ],
        [
            quieted(numerator),
            quieted(denominator),
            np.full(quotient.shape, np.nan, quotient.dtype),
            np.copysign(np.array(np.inf, quotient.dtype), sign),
            np.copysign(np.array(0, quotient.dtype), sign),
            np.copysign(np.array(np.inf, quotient.dtype), sign),
        ],
        np.copysign(quotient, sign),
    )


def half(word: Array, shift: int) -> Array:
    """The float16 that begins at a bit of each word."""
    return ((word >> np.uint32(shift)) & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16)


def dot2(a: Array, b: Array, c: Array) -> Array:
    """Two products of float16 halves plus a float32, in float64 and rounded once."""
    total = widen(c)
    for shift in (0, 16):
        total = total + widen(half(a, shift)) * widen(half(b, shift))
    return total.astype(np.float32)


def dot2_bf16(a: Array, b: Array, c: Array) -> Array:
    """Two products of bfloat16 and a float32, added up."""
    total = widen(c)
    for shift in (0, 16):
        x, y = (widen_bf16((word >> np.uint32(shift)) & np.uint32(0xFFFF)) for word in (a, b))
        total = total + widen(x) * widen(y)
    return total.astype(np.float32)


def trig_segment(a: Array, segment: Array) -> Array:
    """53 bits of 2/pi, at a position that the exponent and `segment` give, scaled: for reductions of huge angles."""
    exponents = exponent_of(a)
    shifts = (segment & np.uint32(31)).astype(np.int64) * 53 + np.maximum(exponents - 1077, 0)
    out = np.zeros(shifts.shape)
    for shift in np.unique(shifts).tolist():
        window = (two_over_pi() >> max(0, TWO_OVER_PI_BITS - 53 - shift)) & ((1 << 53) - 1)
        out[shifts == shift] = np.ldexp(float(window), -53 - shift)
    return np.where(exponents >= 1968, np.ldexp(out, 128), out)


TWO_OVER_PI_BITS = 1201


@cache
def two_over_pi() -> int:
    """The first binary digits of 2/pi, by Machin's formula for pi."""
    unity = 1 << (TWO_OVER_PI_BITS + 64)

    def arctan_inverse(x: int) -> int:
        total = term = unity // x
        n, sign = 3, -1
        while term:
            term //= x * x
            total += sign * (term // n)
            n, sign = n + 2, -sign
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    return (2 * unity << TWO_OVER_PI_BITS) // pi


for kind in KINDS:
    one, two, trio = f"{kind} = {kind}", f"{kind} = {kind} {kind}", f"{kind} = {kind} {kind} {kind}"
    define(f"v_add_{kind}", two, make=add_like(kind, 1, 1), arithmetic=True)
    define(f"v_sub_{kind}", two, make=add_like(kind, 1, -1), arithmetic=True)
    define(f"v_subrev_{kind}", two, make=add_like(kind, -1, 1), arithmetic=True)
    define(f"v_mul_{kind}", two, make=multiply(kind), arithmetic=True)
    define(f"v_fma_{kind} v_fmamk_{kind} v_fmaak_{kind}", trio, make=fused(kind), arithmetic=True)
    define(f"v_fmac_{kind}", trio, make=fused(kind), arithmetic=True, accumulates=True)
    define(f"v_min_{kind}", two, make=ordered(minimum), arithmetic=True)
    define(f"v_max_{kind}", two, make=ordered(maximum), arithmetic=True)
    define(f"v_min3_{kind}", trio, make=three(minimum, minimum), arithmetic=True)
    define(f"v_max3_{kind}", trio, make=three(maximum, maximum), arithmetic=True)
    define(f"v_maxmin_{kind}", trio, make=three(maximum, minimum), arithmetic=True)
    define(f"v_minmax_{kind}", trio, make=three(minimum, maximum), arithmetic=True)
    define(f"v_med3_{kind}", trio, make=median, arithmetic=True)
    define(f"v_minimum_{kind}", two, minimum_or_nan, arithmetic=True)
    define(f"v_maximum_{kind}", two, maximum_or_nan, arithmetic=True)
    for name, first, second in (
        ("minimum3", minimum_or_nan, minimum_or_nan),
        ("maximum3", maximum_or_nan, maximum_or_nan),
        ("minimummaximum", minimum_or_nan, maximum_or_nan),
        ("maximumminimum", maximum_or_nan, minimum_or_nan),
    ):
        define(f"v_{name}_{kind}", trio, chained(first, second), arithmetic=True)
    for name, whole in (("trunc", np.trunc), ("ceil", np.ceil), ("floor", np.floor), ("rndne", np.rint)):
        define(f"v_{name}_{kind}", one, whole, arithmetic=True)
    define(f"v_fract_{kind}", one, fraction, arithmetic=True)
    define(f"v_frexp_mant_{kind}", one, mantissa)
    exponent_kind = "i16" if kind == "f16" else "i32"
    define(f"v_frexp_exp_{exponent_kind}_{kind}", f"{exponent_kind} = {kind}", exponent(TYPES[exponent_kind]))
    define(f"v_ldexp_{kind}", f"{kind} = {kind} {exponent_kind}", scale, arithmetic=True)
    define(f"v_rcp_{kind} v_rcp_iflag_{kind}", one, make=through64(reciprocal), arithmetic=True)
    define(f"v_rsq_{kind}", one, make=through64(reciprocal_root), arithmetic=True)
    define(f"v_sqrt_{kind}", one, make=through64(np.sqrt), arithmetic=True)
    define(f"v_exp_{kind}", one, make=through64(exp2, flushes=True), arithmetic=True)
    define(f"v_log_{kind}", one, make=through64(log2, flushes=True), arithmetic=True)
    define(f"v_sin_{kind}", one, make=through64(sine_of_turns), arithmetic=True)
    define(f"v_cos_{kind}", one, make=through64(cosine_of_turns), arithmetic=True)
    define(f"v_div_fixup_{kind}", trio, divide_fixup, arithmetic=True)

F16, F32 = "f16 = f16 f16 f16", "f32 = f32 f32 f32"
# unfused 16-bit forms of gfx942: the product is rounded before the sum
define("v_mad_f16 v_madmk_f16 v_madak_f16", F16, unfused, arithmetic=True)
define("v_mac_f16", F16, unfused, arithmetic=True, accumulates=True)
# gfx90a's unfused 32-bit forms, which know no denormals
define("v_mad_f32 v_madmk_f32 v_madak_f32", F32, plain_mad)
define("v_mac_f32", F32, plain_mad, accumulates=True)
define("v_mad_legacy_f32", F32, zero_wins(plain_mad))
define("v_mul_dx9_zero_f32", "f32 = f32 f32", zero_wins(np.multiply), arithmetic=True)
define("v_fma_dx9_zero_f32", F32, zero_wins(floats.fma32), arithmetic=True)
define("v_fmac_dx9_zero_f32", F32, zero_wins(floats.fma32), arithmetic=True, accumulates=True)
define("v_dot2acc_f32_f16", "f32 = u32 u32 f32", dot2, accumulates=True)
define("v_dot2acc_f32_bf16", "f32 = u32 u32 f32", dot2_bf16, accumulates=True)
define(
    "v_dot2_f16_f16", "f16 = u32 u32 f16", lambda a, b, c: dot2(a, b, c.astype(np.float32)).astype(np.float16)
)
define("v_dot2_bf16_bf16", "u16 = u32 u32 u16", lambda a, b, c: narrow_bf16(dot2_bf16(a, b, widen_bf16(c))))
define("v_trig_preop_f64", "f64 = f64 u32", trig_segment)


def packed_fma(a: Array, b: Array, c: Array) -> Array:
    """Fused multiply-add of both float16 halves."""
    out: Array = np.zeros(1, np.uint32)
    for shift in (0, 16):
        fused_halves = floats.fma16(half(a, shift), half(b, shift), half(c, shift))
        out = out | (raw(fused_halves).astype(np.uint32) << np.uint32(shift))
    return out


define("v_pk_fmac_f16", "u32 = u32 u32 u32", packed_fma, accumulates=True)
