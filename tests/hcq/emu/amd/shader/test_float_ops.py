"""Float vector instructions against exact fractions rounded by hand, lane by lane, with every kind of edge value."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.hcq.emu.amd.shader.bench import DEFAULT_MODE, GFX9, ISAS, Numbers, floats32, run

FORMATS = {"f16": (11, -14, 15), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}  # digits, exponents
DTYPE: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
NEAREST, UP, DOWN, ZERO = range(4)


def rounded(x: Fraction, kind: str, rounding: int = NEAREST, sign: float = 1.0) -> float:
    """The number of a format nearest to x, by the definition: no float arithmetic. `sign` is that of a zero."""
    digits, low, high = FORMATS[kind]
    if x == 0:
        return math.copysign(0.0, sign)
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    while Fraction(2) ** exponent > size:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    unit = Fraction(2) ** (max(exponent, low) - digits + 1)
    whole, rest = divmod(size, unit)
    away = {
        NEAREST: rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1),
        UP: rest > 0 and x > 0,
        DOWN: rest > 0 and x < 0,
        ZERO: False,
    }[rounding]
    value = (whole + away) * unit
    limit = (2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** high
    if value > limit:
        to_infinity = rounding == NEAREST or (rounding == UP and x > 0) or (rounding == DOWN and x < 0)
        value_f = math.inf if to_infinity else float(limit)
    else:
        value_f = float(value)
    return -value_f if x < 0 else value_f


def random_floats(kind: str, seed: int, count: int) -> Numbers:
    if kind == "f32":
        return floats32(seed, count)
    rng = np.random.default_rng(seed)
    bits = {"f16": np.uint16, "f64": np.uint64}[kind]
    x = rng.integers(0, np.iinfo(bits).max, count, dtype=bits, endpoint=True).view(DTYPE[kind])
    x[: count // 3] = rng.standard_normal(count // 3)
    info = np.finfo(DTYPE[kind])
    edges = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, info.tiny, -info.smallest_subnormal, info.max]
    where = rng.permutation(count)[: count // 3]
    x[where] = np.array(edges, DTYPE[kind])[rng.integers(0, len(edges), count // 3)]
    return x


def same(actual: float, expected: float) -> bool:
    if math.isnan(expected):
        return math.isnan(actual)
    return actual == expected and math.copysign(1, actual) == math.copysign(1, expected)


def registers_of(x: Numbers, first: int) -> dict[int, Any]:
    """A column of numbers as register contents."""
    if x.dtype.itemsize == 8:
        bits = x.view(np.uint64)
        return {first: bits & np.uint64(0xFFFFFFFF), first + 1: bits >> np.uint64(32)}
    return {first: x.view(f"u{x.dtype.itemsize}").astype(np.uint32)}


def result_of(b: Any, register: int, kind: str) -> Numbers:
    if kind == "f64":
        return (
            b.u32[register, 0].astype(np.uint64) | b.u32[register + 1, 0].astype(np.uint64) << np.uint64(32)
        ).view(np.float64)
    return b.f16[register, 0, :, 0] if kind == "f16" else b.f32[register, 0]


def name_of(register: int, kind: str) -> str:
    return f"v[{register}:{register + 1}]" if kind == "f64" else f"v{register}"


def compute(
    arch: str, name: str, kind: str, sources: list[Numbers], mode: int = DEFAULT_MODE, **options: Any
) -> Numbers:
    registers: dict[int, Any] = {}
    for index, x in enumerate(sources):
        registers |= registers_of(x, 10 + 2 * index)
    operands = [name_of(10 + 2 * i, kind) for i in range(len(sources))]
    form = "VOP2" if "fmac" in name else None
    if "fmac" in name:
        registers |= registers_of(sources[2], 30)
        operands = operands[:2]
    b = run(arch, name, name_of(30, kind), *operands, form=form, v=registers, mode=mode, **options)
    return result_of(b, 30, kind)


Exact = Callable[..., Fraction]
ARITHMETIC: dict[str, tuple[int, Exact, Callable[..., float]]] = {
    # name -> sources, exact value of finite ones, what infinities and NaNs give
    "add": (2, lambda a, b: a + b, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b, lambda a, b: a - b),
    "subrev": (2, lambda a, b: b - a, lambda a, b: b - a),
    "mul": (2, lambda a, b: a * b, lambda a, b: a * b),
    "fma": (3, lambda a, b, c: a * b + c, lambda a, b, c: special_fma(a, b, c)),
    "fmac": (3, lambda a, b, c: a * b + c, lambda a, b, c: special_fma(a, b, c)),
}


def special_fma(a: float, b: float, c: float) -> float:
    """With an infinity or a NaN among the operands."""
    if math.isnan(a) or math.isnan(b) or math.isnan(c):
        return math.nan
    if math.isinf(a) or math.isinf(b):
        return math.nan if a == 0 or b == 0 else math.copysign(math.inf, a) * math.copysign(1.0, b) + c
    return c


def zero_sign(name: str, values: list[float], rounding: int) -> float:
    """The sign of an exact zero result: of two zeros that agree, else minus only when rounding down."""
    if name == "mul":
        return math.copysign(1, values[0]) * math.copysign(1, values[1])
    if name in ("fma", "fmac"):
        terms = [math.copysign(1, values[0]) * math.copysign(1, values[1]), math.copysign(1, values[2])]
    else:
        left, right = (values[1], values[0]) if name == "subrev" else (values[0], values[1])
        terms = [math.copysign(1, left), math.copysign(1, right) * (1 if name == "add" else -1)]
    both_zero = all(v == 0 for v in values) or (
        name in ("fma", "fmac") and values[2] == 0 and 0 in values[:2]
    )
    if both_zero and terms[0] == terms[1]:
        return terms[0]
    return -1.0 if rounding == DOWN else 1.0


CASES = [
    (arch, name, kind)
    for arch, isa in ISAS.items()
    for name in ARITHMETIC
    for kind in FORMATS
    if f"v_{name}_{kind}" in isa.by_name
]


@pytest.mark.parametrize(("arch", "name", "kind"), CASES)
def test_arithmetic_is_rounded_once(arch: str, name: str, kind: str) -> None:
    count, exact, special = ARITHMETIC[name]
    size = 64 if arch in GFX9 else 32
    for seed in range(6):
        sources = [random_floats(kind, 10 * seed + i, size) for i in range(count)]
        if seed % 2:  # sums that cancel
            with np.errstate(all="ignore"):
                product = sources[0] * (sources[1] if count == 3 else DTYPE[kind](1))
            sources[-1] = (-product).astype(DTYPE[kind])
        actual = compute(arch, f"v_{name}_{kind}", kind, sources)
        for lane in range(size):
            values = [float(source[lane]) for source in sources]
            if all(math.isfinite(v) for v in values):
                expected = rounded(exact(*map(Fraction, values)), kind, sign=zero_sign(name, values, NEAREST))
            else:
                expected = special(*values)
            assert same(float(actual[lane]), expected), (
                f"{name}{tuple(values)}: {actual[lane]!r}, not {expected!r}"
            )


@pytest.mark.parametrize("rounding", [UP, DOWN, ZERO])
@pytest.mark.parametrize(
    ("name", "kind"), [("add", "f32"), ("mul", "f32"), ("fma", "f32"), ("mul", "f16"), ("add", "f64")]
)
def test_the_mode_register_directs_rounding(name: str, kind: str, rounding: int) -> None:
    count, exact, _ = ARITHMETIC[name]
    rng = np.random.default_rng(4)
    sources = [
        (rng.standard_normal(32) * 10.0 ** rng.integers(-2, 2, 32)).astype(DTYPE[kind]) for _ in range(count)
    ]
    mode = DEFAULT_MODE | (rounding if kind == "f32" else rounding << 2)
    actual = compute("gfx1100", f"v_{name}_{kind}", kind, sources, mode=mode)
    for lane in range(32):
        values = [Fraction(float(source[lane])) for source in sources]
        assert float(actual[lane]) == rounded(exact(*values), kind, rounding)


def test_denormals_are_flushed_when_the_mode_says_so() -> None:
    tiny = np.full(32, 1e-40, np.float32)
    one = np.full(32, 1.0, np.float32)
    no_denormals = DEFAULT_MODE & ~0x30
    assert (compute("gfx1100", "v_add_f32", "f32", [tiny, tiny], mode=no_denormals) == 0).all()
    assert (compute("gfx1100", "v_mul_f32", "f32", [tiny, one]) == np.float32(1e-40)).all()
    half = np.full(32, 2.0**-126, np.float32)
    quarter = np.full(32, 0.25, np.float32)
    assert (compute("gfx1100", "v_mul_f32", "f32", [half, quarter], mode=no_denormals) == 0).all()


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("kind", FORMATS)
def test_minimum_and_maximum_order_zeros_and_prefer_numbers_to_nans(arch: str, kind: str) -> None:
    size = 64 if arch in GFX9 else 32
    a, c = random_floats(kind, 1, size), random_floats(kind, 2, size)
    c[:4] = [0.0, -0.0, np.nan, 5.0]
    a[:4] = [-0.0, 0.0, 3.0, np.nan]
    for name, choose in (("min", min), ("max", max)):
        actual = compute(arch, f"v_{name}_{kind}", kind, [a, c])
        for x, y, z in zip(a.tolist(), c.tolist(), actual.tolist()):
            if math.isnan(x) or math.isnan(y):
                expected = y if math.isnan(x) else x
            else:
                expected = choose(x, y, key=lambda v: (v, math.copysign(1, v)))
            signaling = any(math.isnan(v) for v in (x, y)) and math.isnan(z)
            assert same(z, expected) or signaling


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("trunc", math.trunc),
        ("floor", math.floor),
        ("ceil", math.ceil),
        ("rndne", lambda x: round(Fraction(x))),
    ],
)
def test_rounding_to_whole_numbers(arch: str, kind: str, name: str, whole: Callable[[float], int]) -> None:
    size = 64 if arch in GFX9 else 32
    a = random_floats(kind, 3, size)
    a[:6] = [0.5, 1.5, -0.5, -2.5, 2.5, 1e4]
    actual = compute(arch, f"v_{name}_{kind}", kind, [a])
    for x, y in zip(a.tolist(), actual.tolist()):
        expected = math.copysign(float(whole(x)), x) if math.isfinite(x) else x
        assert same(y, expected)


TRANSCENDENTAL: dict[str, tuple[Callable[[float], float], float, float]] = {
    # name -> meaning, and the arguments it is tried on
    "exp": (lambda x: 2.0**x, -20, 15),
    "log": (lambda x: math.log2(x), 1e-3, 1e4),
    "rcp": (lambda x: 1 / x, 1e-3, 1e3),
    "rsq": (lambda x: 1 / math.sqrt(x), 1e-3, 1e4),
    "sqrt": (math.sqrt, 0, 1e4),
    "sin": (lambda x: math.sin(2 * math.pi * x), -4, 4),
    "cos": (lambda x: math.cos(2 * math.pi * x), -4, 4),
}


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_transcendentals_are_within_one_unit_in_the_last_place(arch: str, kind: str, name: str) -> None:
    meaning, low, high = TRANSCENDENTAL[name]
    a = np.random.default_rng(5).uniform(low, high, 64 if arch in GFX9 else 32).astype(DTYPE[kind])
    actual = compute(arch, f"v_{name}_{kind}", kind, [a])
    for x, y in zip(a.tolist(), actual.tolist()):
        expected = meaning(x)
        unit = float(np.spacing(np.abs(DTYPE[kind](expected))))
        assert abs(y - expected) <= max(unit, 2e-7 if name in ("sin", "cos") else 0), f"{name}({x})"


@pytest.mark.parametrize("arch", ISAS)
def test_transcendentals_of_edge_values(arch: str) -> None:
    cases = [
        ("rcp", 0.0, math.inf),
        ("rcp", -0.0, -math.inf),
        ("rcp", math.inf, 0.0),
        ("sqrt", -1.0, math.nan),
        ("sqrt", -0.0, -0.0),
        ("rsq", 0.0, math.inf),
        ("log", 0.0, -math.inf),
        ("log", -1.0, math.nan),
        ("exp", -math.inf, 0.0),
        ("exp", 200.0, math.inf),
        ("sin", 0.25, 1.0),
        ("cos", 0.25, 0.0),
        ("sin", math.inf, math.nan),
    ]
    for name, x, expected in cases:
        y = compute(arch, f"v_{name}_f32", "f32", [np.full(1, x, np.float32)])[0]
        assert same(abs(float(y)), abs(expected)) and (expected == 0 or same(float(y), expected)), (
            f"{name}({x})"
        )


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("kind", FORMATS)
def test_frexp_takes_numbers_apart_and_ldexp_puts_them_together(arch: str, kind: str) -> None:
    size = 64 if arch in GFX9 else 32
    a = random_floats(kind, 8, size)
    mantissa = compute(arch, f"v_frexp_mant_{kind}", kind, [a])
    exponent_kind = "i16" if kind == "f16" else "i32"
    b = run(arch, f"v_frexp_exp_{exponent_kind}_{kind}", "v40", name_of(10, kind), v=registers_of(a, 10))
    exponent = b.i16[40, 0, :, 0] if kind == "f16" else b.i32[40, 0]
    for x, m, e in zip(a.tolist(), mantissa.tolist(), exponent.tolist()):
        if not math.isfinite(x):
            assert same(m, x) and e == 0
            continue
        assert (m, e) == math.frexp(x) and same(m * 1.0, math.frexp(x)[0])
    shifts = np.random.default_rng(0).integers(-300, 300, size).astype(np.int32)
    registers = registers_of(a, 10) | {12: shifts.view(np.uint32)}
    b = run(arch, f"v_ldexp_{kind}", name_of(30, kind), name_of(10, kind), "v12", v=registers)
    for x, n, y in zip(a.tolist(), shifts.tolist(), result_of(b, 30, kind).tolist()):
        expected = (
            rounded(Fraction(x) * Fraction(2) ** n, kind, sign=math.copysign(1, x)) if math.isfinite(x) else x
        )
        assert same(y, expected)


def test_conversions_truncate_saturate_and_send_nan_to_zero() -> None:
    x = np.array(
        [1.9, -1.9, 3e9, -3e9, 5e9, np.nan, np.inf, -np.inf, 0.0, 2147483520.0] + [0.5] * 22, np.float32
    )
    for name, low, high in (("v_cvt_i32_f32", -(2**31), 2**31 - 1), ("v_cvt_u32_f32", 0, 2**32 - 1)):
        b = run("gfx1100", name, "v1", "v0", v={0: x.view(np.uint32)})
        actual = (b.i32 if "i32" in name else b.u32)[1, 0].tolist()
        for value, got in zip(x.tolist(), actual):
            expected = (
                0
                if math.isnan(value)
                else max(low, min(high, value if math.isinf(value) else math.trunc(value)))
            )
            assert got == expected


@pytest.mark.parametrize("rounding", [NEAREST, UP, DOWN, ZERO])
def test_float32_becomes_float16_under_the_mode_and_toward_zero_when_packed(rounding: int) -> None:
    a, c = floats32(1, 32), floats32(2, 32)
    a[:8] = [65504.0, 65519.9, 65520.0, 1e-8, 6e-8, 0.1, -0.1, -65536.0]
    b = run(
        "gfx1100", "v_cvt_f16_f32", "v1", "v0", v={0: a.view(np.uint32)}, mode=DEFAULT_MODE | rounding << 2
    )
    packed = run(
        "gfx1100", "v_cvt_pk_rtz_f16_f32", "v2", "v0", "v1", v={0: a.view(np.uint32), 1: c.view(np.uint32)}
    )
    for lane in range(32):
        x, y = float(a[lane]), float(c[lane])
        expected = rounded(Fraction(x), "f16", rounding, math.copysign(1, x)) if math.isfinite(x) else x
        assert same(float(b.f16[1, 0, lane, 0]), expected)
        for value, half in ((x, 0), (y, 1)):
            toward = (
                rounded(Fraction(value), "f16", ZERO, math.copysign(1, value))
                if math.isfinite(value)
                else value
            )
            assert same(float(packed.f16[2, 0, lane, half]), toward)


@pytest.mark.parametrize("arch", ISAS)
def test_segments_of_two_over_pi_add_up_to_it(arch: str) -> None:
    one = registers_of(np.ones(1), 0)
    total = Fraction(0)
    for segment in range(3):
        b = run(arch, "v_trig_preop_f64", "v[30:31]", "v[0:1]", segment, v=one)
        total += Fraction(float(result_of(b, 30, "f64")[0]))
    assert abs(float(total) - 2 / math.pi) < 1e-16
    # the digits of pi, multiplied back
    pi = Fraction(3141592653589793238462643383279502884197, 10**39)
    assert abs(total * pi / 2 - 1) < Fraction(1, 10**38)


BYTE_FLOATS = {"fp8": (4, 3, 8), "bf8": (5, 2, 16)}  # exponent bits, mantissa bits, bias of gfx942's kind


@pytest.mark.parametrize("kind", BYTE_FLOATS)
def test_byte_floats_decode_and_round(kind: str) -> None:
    _, digits, bias = BYTE_FLOATS[kind]
    codes = np.arange(256, dtype=np.uint32).reshape(4, 64)
    values = {}
    for row in codes:
        b = run("gfx942", f"v_cvt_f32_{kind}", "v1", "v0", v={0: row})
        values |= dict(zip(row.tolist(), b.f32[1, 0].tolist()))
    for code, value in values.items():
        exponent, mantissa = (code & 127) >> digits, code & (1 << digits) - 1
        size = (
            mantissa * 2.0 ** (1 - bias - digits)
            if not exponent
            else (1 + mantissa / (1 << digits)) * 2.0 ** (exponent - bias)
        )
        assert math.isnan(value) if code == 0x80 else value == (-size if code & 0x80 else size)
    rising = sorted((v, c) for c, v in values.items() if not math.isnan(v))
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32) * np.float32(3)
    x[:2] = [1e9, -1e9]
    b = run("gfx942", f"v_cvt_pk_{kind}_f32", "v2", "v0", "v0", v={0: x.view(np.uint32)})
    for value, word in zip(x.tolist(), b.u32[2, 0].tolist()):
        nearest = min(abs(v - value) for v, _ in rising)
        assert word & 255 == word >> 8 and abs(values[word & 255] - value) == nearest


def test_source_and_result_modifiers() -> None:
    a, c = floats32(1, 32), floats32(2, 32)
    registers = {0: a.view(np.uint32), 1: c.view(np.uint32)}
    b = run("gfx1100", "v_add_f32", "v2", "v0", "v1", form="VOP3", fields={"neg": 2, "abs": 3}, v=registers)
    with np.errstate(all="ignore"):
        difference = np.abs(a) - np.abs(c)
        doubled = np.clip(np.float32(2) * a, 0, 1)
    assert np.array_equal(b.f32[2, 0], difference, equal_nan=True)
    b = run("gfx1100", "v_mul_f32", "v2", "v0", 1.0, form="VOP3", fields={"omod": 1, "clamp": 1}, v=registers)
    assert np.array_equal(b.f32[2, 0], np.where(np.isnan(a), 0, doubled))


CLASSES = {
    0x7F800001: 0,
    0x7FC00000: 1,
    0xFF800000: 2,
    0xBF800000: 3,
    0x80000001: 4,
    0x80000000: 5,
    0: 6,
    1: 7,
}
CLASSES |= {0x3F800000: 8, 0x7F800000: 9}


@pytest.mark.parametrize("arch", ISAS)
def test_class_tests_each_of_the_ten_classes(arch: str) -> None:
    for bits, number in CLASSES.items():
        for wanted in range(10):
            b = run(arch, "v_cmp_class_f32", "v0", "v1", form="VOPC", v={0: bits, 1: 1 << wanted})
            assert bool(b.s[0, 106] & 1) == (wanted == number)


COMPARES = {
    "lt": lambda x, y: x < y,
    "eq": lambda x, y: x == y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "lg": lambda x, y: x < y or x > y,
    "ge": lambda x, y: x >= y,
    "o": lambda x, y: x == x and y == y,
    "u": lambda x, y: x != x or y != y,
    "nge": lambda x, y: not x >= y,
    "nlg": lambda x, y: not (x < y or x > y),
    "ngt": lambda x, y: not x > y,
    "nle": lambda x, y: not x <= y,
    "neq": lambda x, y: not x == y,
    "nlt": lambda x, y: not x < y,
}


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("test", COMPARES)
def test_float_compares_answer_for_active_lanes(arch: str, kind: str, test: str) -> None:
    size = 64 if arch in GFX9 else 32
    a, c = random_floats(kind, 1, size), random_floats(kind, 2, size)
    c[::3] = a[::3]
    lanes = np.arange(size) % 5 != 0
    registers = registers_of(a, 10) | registers_of(c, 12)
    for form, where, destination in (("VOPC", 106, ()), ("VOP3", 8, ())):
        fields = {} if form == "VOPC" else {"vdst": 8}
        operands = (*destination, name_of(10, kind), name_of(12, kind))
        b = run(arch, f"v_cmp_{test}_{kind}", *operands, form=form, fields=fields, v=registers, lanes=lanes)
        mask = int(b.s[0, where]) | int(b.s[0, where + 1]) << 32
        for lane in range(size):
            expected = bool(lanes[lane]) and COMPARES[test](float(a[lane]), float(c[lane]))
            assert bool(mask >> lane & 1) == expected


@pytest.mark.parametrize("arch", ISAS)
def test_cmpx_narrows_exec_and_on_gfx942_writes_vcc_too(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    x = np.arange(size, dtype=np.uint32)
    b = run(arch, "v_cmpx_gt_u32", 10, "v0", v={0: x}, s={106: 0xDEAD})
    assert b.lanes[0].tolist() == [lane < 10 for lane in range(size)]
    assert int(b.s[0, 126]) == 0x3FF
    assert int(b.s[0, 106]) == (0x3FF if arch in GFX9 else 0xDEAD)
