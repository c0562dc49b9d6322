"""Floating point instructions: add to fma with their roundings, minima, the approximate functions.

In       Code with a float type; f16, bf16 and their pairs compute in float32 and are rounded once
Out      steps
Next     floats.py (the arithmetic), compare_ops.py (setp), convert_ops.py (cvt)
Source   PTX ISA, "Floating-Point Instructions", "Half Precision Floating-Point Instructions"

The approximate functions (ex2, lg2, sin, ...) are computed as exactly as float32 allows: closer than a GPU's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader import floats
from hcq.emu.nv.shader.decode import Code, Rules, Step
from hcq.emu.nv.shader.types import TYPES, Lanes, Type
from hcq.emu.shader import elementary
from hcq.emu.shader.exact_floats import fma64, round_to_odd, two_sum

RULES = Rules()
Compute = Callable[..., Lanes]
ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")


def float_step(code: Code, type_: Type, compute: Compute, count: int) -> Step:
    """A step from a function of floats: claims ftz, sat and relu, and reads and packs registers."""
    ftz = code.flag("ftz") and type_.scalar is np.float32
    sat, relu = code.flag("sat"), code.flag("relu")
    read, pack = floats.reader(type_), floats.packer(type_)
    plain = not (ftz or sat or relu)

    def finish(value: Lanes) -> Lanes:
        if ftz:
            value = floats.flush(value)
        if sat:
            value = floats.saturate(value)
        if relu:
            value = np.where(np.isnan(value), value, np.maximum(value, value.dtype.type(0)))
        return pack(value)

    if plain and count == 2:

        def two(a: Lanes, b: Lanes) -> Lanes:
            return pack(compute(read(a), read(b)))

        whole: Compute = two
    elif plain and count == 3:

        def three(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
            return pack(compute(read(a), read(b), read(c)))

        whole = three
    else:

        def general(*sources: Lanes) -> Lanes:
            values = [read(source) for source in sources]
            return finish(compute(*(map(floats.flush, values) if ftz else values)))

        whole = general
    return code.step(whole, type_, *[type_] * count)


def _mixed_step(code: Code, compute: Compute, count: int) -> Step | None:
    """`add.f32.f16` and its sisters: all operands but the last are of a narrow type, which float32 holds exactly.

    None where no second type is named.
    """
    if not any(name in TYPES for name in code.rest):
        return None
    narrow, f32 = code.type("f16", "bf16"), TYPES["f32"]
    sat = code.flag("sat")
    widen, pack = floats.reader(narrow), floats.packer(f32)

    def whole(*sources: Lanes) -> Lanes:
        value = compute(*map(widen, sources[:-1]), sources[-1].view(np.float32))
        return pack(floats.saturate(value) if sat else value)

    return code.step(whole, f32, *[narrow] * (count - 1), f32)


NEAREST: dict[str, Compute] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
}


def _directed_sum(mode: str) -> Compute:
    def compute(a: Lanes, b: Lanes) -> Lanes:
        s, e = two_sum(a.astype(np.float64), b.astype(np.float64))
        value = floats.directed32(s, e, mode)
        if mode == "rm":  # x - x is -0 when rounding down, unless both are +0
            value = np.where((s == 0) & (np.signbit(a) | np.signbit(b)), np.float32(-0.0), value)
        return value

    return compute


def rounded(what: str, mode: str, type_: Type) -> Compute:
    """add, mul, fma, div or sqrt with a rounding mode, for f32 or f64 (narrow formats have only rn)."""
    if mode in ("", "rn"):
        if what == "fma":
            exact = {np.float32: floats.fma32, np.float64: fma64}.get(type_.scalar)
            return exact or _narrow_fma(type_)
        return NEAREST[what]
    if type_.name == "f64":
        if what == "sub":
            return lambda a, b: floats.each_exactly("add", mode, a, -b)
        return lambda *x: floats.each_exactly(what, mode, *x)
    if what == "add":
        return _directed_sum(mode)
    if what == "sub":
        add = _directed_sum(mode)
        return lambda a, b: add(a, -b)
    if what == "mul":
        return lambda a, b: floats.directed32(np.multiply(a, b, dtype=np.float64), np.zeros(1), mode)
    if what == "fma":
        return lambda a, b, c: _directed_fma(a, b, c, mode)
    return lambda *x: _directed_quotient(what, mode, *x)


def _directed_fma(a: Lanes, b: Lanes, c: Lanes, mode: str) -> Lanes:
    product = np.multiply(a, b, dtype=np.float64)
    s, e = two_sum(product, c.astype(np.float64))
    value = floats.directed32(s, e, mode)
    if mode == "rm":
        value = np.where((s == 0) & (np.signbit(product) | np.signbit(c)), np.float32(-0.0), value)
    return value


def _directed_quotient(what: str, mode: str, *x: Lanes) -> Lanes:
    """div and sqrt: the double result is close enough to tell on which side of a float the exact one is."""
    wide = [array.astype(np.float64) for array in x]
    if what == "sqrt":
        s = np.sqrt(wide[0])
        near = s.astype(np.float32).astype(np.float64)
        lost = np.sign(wide[0] - near * near)
    else:
        s = wide[0] / wide[1]
        near = s.astype(np.float32).astype(np.float64)
        lost = np.sign(wide[0] - near * wide[1]) * np.sign(wide[1])
    lost = np.where(np.isfinite(s) & np.isfinite(near), lost, 0.0)
    return floats.directed32(s, lost * 1e-300, mode)


def _narrow_fma(type_: Type) -> Compute:
    """fma of float32 values that came from f16 or bf16: exact product, sum rounded to odd, then once to the format."""

    def compute(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        s = round_to_odd(*two_sum(np.multiply(a, b, dtype=np.float64), c.astype(np.float64)))
        return floats.float_to_odd(s)

    return compute


@RULES.on("add", "sub", "mul")
def add_sub_mul(code: Code) -> Step:
    """`add`, `sub`, `mul` of floats, rounded as the modifier says."""
    type_ = code.type()
    mode, opcode = code.take(*ROUNDINGS), code.instruction.opcode
    compute = rounded(opcode, mode, type_)
    mixed = _mixed_step(code, compute, 2) if type_.name == "f32" and opcode != "mul" else None
    return mixed or float_step(code, type_, compute, 2)


@RULES.on("fma", "mad")
def fma(code: Code) -> Step:
    """`fma`, and `mad` of floats: rounded once."""
    type_ = code.type()
    compute = rounded("fma", code.take(*ROUNDINGS), type_)
    if code.flag("oob"):
        return _fma_of_tensor(code, type_, compute)
    mixed = _mixed_step(code, compute, 3) if type_.name == "f32" else None
    return mixed or float_step(code, type_, compute, 3)


def _fma_of_tensor(code: Code, type_: Type, compute: Compute) -> Step:
    """`fma.oob`: zero where a or b is what a tensor map fills with outside of a tensor."""
    if type_.size_bytes // type_.packed != 2:
        raise code.refuse(f"fma.oob is for .f16 and .bf16, alone and in pairs, not for .{type_.name}")
    sat, relu = code.flag("sat"), code.flag("relu")
    read, pack = floats.reader(type_), floats.packer(type_)

    def halves(x: Lanes) -> Lanes:
        return x.view(np.uint16).reshape(-1, 2) if type_.packed == 2 else x

    def whole(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        outside = (halves(a) == floats.OUTSIDE) | (halves(b) == floats.OUTSIDE)
        value = compute(read(a), read(b), read(c))
        value = np.where(outside, np.float32(0), value)
        if sat:
            value = floats.saturate(value)
        if relu:
            value = np.where(np.isnan(value), value, np.maximum(value, np.float32(0)))
        return pack(value)

    return code.step(whole, type_, type_, type_, type_)


@RULES.on("div")
def div(code: Code) -> Step:
    """`div` of floats; the approximate ones are exact here."""
    mode = code.take("approx", "full", *ROUNDINGS)
    type_ = code.type("f32", "f64")
    return float_step(code, type_, rounded("div", "" if mode in ("approx", "full") else mode, type_), 2)


@RULES.on("sqrt")
def sqrt(code: Code) -> Step:
    """`sqrt`; the approximate one is exact here."""
    mode = code.take("approx", *ROUNDINGS)
    type_ = code.type("f32", "f64")
    return float_step(code, type_, rounded("sqrt", "" if mode == "approx" else mode, type_), 1)


@RULES.on("rcp")
def rcp(code: Code) -> Step:
    """`rcp`: 1 / a; the approximate one is exact here."""
    mode = code.take("approx", *ROUNDINGS)
    type_ = code.type("f32", "f64")
    divide = rounded("div", "" if mode == "approx" else mode, type_)
    # only the upper half of the result is meaningful, the rest is 0
    if mode == "approx" and type_.name == "f64":
        return float_step(code, type_, lambda a: _upper_half(1 / a), 1)
    return float_step(code, type_, lambda a: divide(np.ones(1, type_.scalar), a), 1)


def _upper_half(x: Lanes) -> Lanes:
    return (x.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


def _rsqrt(a: Lanes) -> Lanes:
    return (1 / np.sqrt(a, dtype=np.float64)).astype(a.dtype)


@RULES.on("rsqrt")
def rsqrt(code: Code) -> Step:
    """`rsqrt`: 1 / sqrt(a)."""
    code.take("approx")
    return float_step(code, code.type("f32", "f64"), _rsqrt, 1)


APPROXIMATE: dict[str, Compute] = {
    "sin": elementary.sine,
    "cos": elementary.cosine,
    "lg2": elementary.log2,
    "ex2": elementary.exp2,
    "tanh": elementary.tanh,
}


@RULES.on(*APPROXIMATE)
def approximate(code: Code) -> Step:
    """`sin`, `cos`, `lg2`, `ex2`, `tanh`: computed in float64 and rounded once, not of the hardware's accuracy."""
    code.take("approx")
    type_ = code.type("f32", "f16", "bf16", "f16x2", "bf16x2")
    function = APPROXIMATE[code.instruction.opcode]
    return float_step(code, type_, lambda a: function(a.astype(np.float64)).astype(a.dtype), 1)


def lesser(a: Lanes, b: Lanes) -> Lanes:
    """The smaller; of a number and a NaN the number; -0 is less than +0."""
    value = np.fmin(a, b)
    tie = a == b
    return np.where(tie & np.signbit(a), a, np.where(tie, b, value)) if tie.any() else value


def greater(a: Lanes, b: Lanes) -> Lanes:
    """The larger; of a number and a NaN the number; +0 is greater than -0."""
    value = np.fmax(a, b)
    tie = a == b
    return np.where(tie & np.signbit(a), b, np.where(tie, a, value)) if tie.any() else value


@RULES.on("min", "max")
def min_max(code: Code) -> Step:
    """`min` and `max` of floats: the number of a number and a NaN, unless `.NaN`."""
    choose = lesser if code.instruction.opcode == "min" else greater
    propagate = code.flag("NaN")
    by_size = code.flag("abs")
    signed = code.flag("xorsign")
    type_ = code.type()

    def compute(*x: Lanes) -> Lanes:
        values = [np.abs(array) for array in x] if by_size else list(x)
        found = values[0]
        for value in values[1:]:
            found = choose(found, value)
        if propagate:
            for value in values:
                found = np.where(np.isnan(value), value, found)
        if signed:
            found = np.copysign(
                found, np.where(np.signbit(x[0]) ^ np.signbit(x[1]), -1.0, 1.0).astype(found.dtype)
            )
        return floats.canonical(found)

    if signed and not by_size:
        raise code.refuse(".xorsign needs .abs")
    return float_step(code, type_, compute, len(code.operands) - 1)


def _sign_step(code: Code, flip: bool) -> Step:
    """neg and abs only touch the sign bit."""
    ftz = code.flag("ftz")
    type_ = code.type()
    one = 1 << (8 * type_.size_bytes // type_.packed - 1)
    mask = type_.bits(one if type_.packed == 1 else one | one << 16)
    flush = ftz and type_.name == "f32"

    def compute(a: Lanes) -> Lanes:
        if flush:
            a = floats.flush(a.view(np.float32)).view(np.uint32)
        return a ^ mask if flip else a & ~mask

    return code.step(compute, type_, type_)


@RULES.on("neg")
def neg(code: Code) -> Step:
    """`neg` of floats: the sign bit inverted."""
    return _sign_step(code, True)


@RULES.on("abs")
def abs_(code: Code) -> Step:
    """`abs` of floats: the sign bit cleared."""
    return _sign_step(code, False)


@RULES.on("copysign")
def copysign(code: Code) -> Step:
    """The sign of the first, the size of the second."""
    type_ = code.type("f32", "f64")
    return float_step(code, type_, lambda a, b: np.copysign(b, a), 2)


@RULES.on("testp")
def testp(code: Code) -> Step:
    """A property of a float, as a predicate."""
    what = code.take("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    type_ = code.type("f32", "f64")
    tiny = np.finfo(type_.scalar).tiny
    tests: dict[str, Compute] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: ~np.isnan(x),
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= tiny),
        "subnormal": lambda x: (np.abs(x) < tiny) & (x != 0),
    }
    if what not in tests:
        raise code.refuse("testp needs .finite, .infinite, .number, .notanumber, .normal or .subnormal")
    test = tests[what]
    from_bits = floats.reader(type_)
    return code.step(lambda a: test(from_bits(a)), TYPES["pred"], type_)
