"""Float instructions and conversions against exact rational arithmetic, rounded by a few lines of Python."""

from __future__ import annotations

import bisect
import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tests.hcq.emu.nv.shader.running import instructions

# name -> (bits, fraction bits, exponent bias)
FORMATS = {"f16": (16, 10, 15), "bf16": (16, 7, 127), "f32": (32, 23, 127), "f64": (64, 52, 1023)}
UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def read(bits: int, name: str) -> Fraction | float:
    """The value of a bit pattern: a fraction, an infinity, NaN; -0.0 as a float."""
    width, fraction, bias = FORMATS[name]
    sign = -1 if bits >> (width - 1) else 1
    exponent = bits >> fraction & (1 << width - 1 - fraction) - 1
    rest = bits & (1 << fraction) - 1
    if exponent == (1 << width - 1 - fraction) - 1:
        return math.nan if rest else sign * math.inf
    if exponent == 0 and rest == 0:
        return sign * 0.0
    scale = Fraction(2) ** (max(exponent, 1) - bias - fraction)
    return sign * (rest + ((1 << fraction) if exponent else 0)) * scale


def write(value: Fraction | float, name: str, mode: str = "rn") -> int:
    """The bits of a value rounded to a format; NaN is -1."""
    width, fraction, bias = FORMATS[name]
    top = 1 << width - 1
    infinity = ((1 << width - 1 - fraction) - 1) << fraction
    if isinstance(value, float) and math.isnan(value):
        return -1
    if isinstance(value, float) and (math.isinf(value) or value == 0):
        return (top if math.copysign(1, value) < 0 else 0) | (infinity if math.isinf(value) else 0)
    sign, size = (top, -Fraction(value)) if value < 0 else (0, Fraction(value))
    exponent = max(_log2(size), 1 - bias)
    scaled = size / Fraction(2) ** (exponent - fraction)
    low = scaled.numerator // scaled.denominator
    rest = scaled - low
    away = {"rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low & 1), "rz": False}
    up = away.get(mode, rest > 0 and (mode == "rp") == (sign == 0))
    code = low + bool(up) + ((exponent + bias - 1) << fraction)  # a carry goes into the exponent by itself
    if code >= infinity:
        toward_zero = mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and sign)
        code = infinity - 1 if toward_zero else infinity
    return sign | code


def _log2(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


def values(name: str, seed: int, count: int = 400) -> np.ndarray:
    width, fraction, bias = FORMATS[name]
    rng = np.random.default_rng(seed)
    top, infinity = 1 << width - 1, ((1 << width - 1 - fraction) - 1) << fraction
    one = bias << fraction
    edges = [
        0,
        1,
        2,
        (1 << fraction) - 1,
        1 << fraction,
        one,
        one + 1,
        one - 1,
        infinity - 1,
        infinity,
        infinity + 1,
    ]
    edges += [
        one + (1 << fraction - 1),
        one + 2 + (fraction << fraction),
        one + (24 << fraction) if fraction > 20 else one,
    ]
    edges += [edge | top for edge in edges]
    bits = rng.integers(0, 2**64 - 1, count, dtype=np.uint64) >> np.uint64(64 - width)
    near = np.uint64(one) + (
        rng.integers(-40, 40, count).astype(np.int64).view(np.uint64) << np.uint64(max(fraction - 3, 0))
    )
    near += rng.integers(0, 1 << min(fraction, 40), count, dtype=np.uint64)
    both = np.concatenate([np.array(edges, np.uint64), bits, near & np.uint64((1 << width) - 1)])
    rng.shuffle(both)
    return both.astype(UNSIGNED[width])


def agree(found: int, expected: int, name: str) -> bool:
    width, fraction, _ = FORMATS[name]
    if expected == -1:
        infinity = ((1 << width - 1 - fraction) - 1) << fraction
        return found & ((1 << width - 1) - 1) > infinity
    return found == expected


def check(
    lines: str, name: str, inputs: list[np.ndarray], meaning: Callable[..., int], result: str = ""
) -> None:
    size = str(FORMATS[result or name][0])
    (found,) = instructions(lines, inputs, size)
    for i, row in enumerate(zip(*[array.tolist() for array in inputs])):
        expected = meaning(*row)
        assert agree(int(found[i]), expected, result or name), (
            f"{lines} of {[hex(v) for v in row]}: {int(found[i]):#x}, expected {expected:#x}"
        )


def exact(op: str, name: str, mode: str = "rn") -> Callable[..., int]:
    """The meaning of add, sub, mul, fma, div with one rounding."""

    def meaning(*bits: int) -> int:
        x = [read(b, name) for b in bits]
        plain = [float(v) if isinstance(v, float) else v for v in x]
        if any(isinstance(v, float) and not v == 0 for v in x) or (op == "div" and x[1] == 0):
            return write(_with_specials(op, plain), name, mode)
        f = [Fraction(0) if isinstance(v, float) else v for v in x]
        value = {
            "add": lambda: f[0] + f[1],
            "sub": lambda: f[0] - f[1],
            "mul": lambda: f[0] * f[1],
            "fma": lambda: f[0] * f[1] + f[2],
            "div": lambda: f[0] / f[1],
        }[op]()
        if value == 0:
            return write(_zero(op, x, mode), name)
        return write(value, name, mode)

    return meaning


def _signs(x: list) -> list[int]:
    return [-1 if (math.copysign(1, v) if isinstance(v, float) else v) < 0 else 1 for v in x]


def _zero(op: str, x: list, mode: str) -> float:
    s = _signs(x)
    if op in ("mul", "div"):
        return 0.0 * s[0] * s[1]
    first, second = (s[0] * s[1], s[2]) if op == "fma" else (s[0], s[1] if op == "add" else -s[1])
    terms_are_zero = (x[0] == 0 or x[1] == 0) if op == "fma" else x[0] == 0
    if first == second and terms_are_zero:
        return 0.0 * first
    return -0.0 if mode == "rm" else 0.0


def _with_specials(op: str, x: list) -> float:
    y = [v if isinstance(v, float) else (1.0 if v > 0 else -1.0) for v in x]
    with np.errstate(all="ignore"):
        z = [np.float64(v) for v in y]
        if op == "div":
            return float(z[0] / z[1])
        return float(
            {"add": z[0] + z[1], "sub": z[0] - z[1], "mul": z[0] * z[1]}.get(op, z[0] * z[1] + z[-1])
        )


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_the_result_is_the_exact_one_rounded_once(op, name):
    count = 3 if op == "fma" else 2
    inputs = [values(name, seed) for seed in range(count)]
    operands = ", ".join(["%a", "%b", "%c"][:count])
    check(f"{op}.rn.{name} %x, {operands};", name, inputs, exact(op, name))


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma", "div"])
@pytest.mark.parametrize("mode", ["rz", "rm", "rp", "rn"])
def test_directed_roundings_go_where_they_say(op, name, mode):
    count = 3 if op == "fma" else 2
    inputs = [values(name, seed + 10, 250) for seed in range(count)]
    operands = ", ".join(["%a", "%b", "%c"][:count])
    check(f"{op}.{mode}.{name} %x, {operands};", name, inputs, exact(op, name, mode))


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16"])
def test_fma_of_ties_and_near_ties_rounds_once(name):
    """c is half a place of the product, a little more or less: double rounding would show here."""
    _, fraction, bias = FORMATS[name]
    rng = np.random.default_rng(3)
    n = 500
    kind = UNSIGNED[FORMATS[name][0]]
    a, b = (
        ((bias << fraction) + rng.integers(0, 1 << fraction, n)).astype(kind),
        ((bias << fraction) + rng.integers(0, 4, n)).astype(kind),
    )
    down = rng.integers(fraction - 1, fraction + 3, n)
    c = (((bias - down) << fraction) + rng.integers(0, 3, n) * (rng.random(n) < 0.5)).astype(kind)
    check(f"fma.rn.{name} %x, %a, %b, %c;", name, [a, b, c], exact("fma", name))


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_an_infinite_addend_wins_over_a_product_that_overflows(name):
    _, fraction, bias = FORMATS[name]
    large, infinity = (2 * bias) << fraction, (2 * bias + 1) << fraction
    minus = 1 << FORMATS[name][0] - 1
    a, b, c = (np.array([bits], UNSIGNED[FORMATS[name][0]]) for bits in (large, large, minus | infinity))
    check(f"fma.rn.{name} %x, %a, %b, %c;", name, [a, b, c], lambda *x: minus | infinity)


@pytest.mark.parametrize("name", FORMATS)
def test_an_exact_tie_is_decided_by_an_addend_far_below_it(name):
    """The product has one bit more than the format: without its last 100 bits the sum looks like a tie."""
    fraction = FORMATS[name][1]
    rng = np.random.default_rng(4)
    wide, narrow = (fraction + 3) // 2 + 1, (fraction + 2) // 2
    a, b, c = [], [], []
    while len(a) < 200:
        x, y = (
            int(rng.integers(1 << wide - 1, 1 << wide)) | 1,
            int(rng.integers(1 << narrow - 1, 1 << narrow)) | 1,
        )
        if (x * y).bit_length() == fraction + 2:
            a.append(write(Fraction(x), name))
            b.append(write(Fraction(y), name))
            low = Fraction(1, 2**100 if name in ("f32", "f64", "bf16") else 2**24)
            c.append(write(low if rng.random() < 0.5 else -low, name))
    inputs = [np.array(column, UNSIGNED[FORMATS[name][0]]) for column in (a, b, c)]
    check(f"fma.rn.{name} %x, %a, %b, %c;", name, inputs, exact("fma", name))


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_square_roots_and_reciprocals_round_as_told(name, mode):
    a = values(name, 5, 200)

    def root(bits):
        x = read(bits, name)
        if isinstance(x, float) or x < 0:
            return write(x if isinstance(x, float) and not x < 0 else math.nan, name)
        fraction = FORMATS[name][1]
        shift = 2 * (fraction + 40 + max(0, -_log2(x)))
        scaled = x * 2**shift
        whole = math.isqrt(scaled.numerator // scaled.denominator)
        is_exact = whole * whole == scaled
        return write(Fraction(whole * 4 + (0 if is_exact else 1), 4) / 2 ** (shift // 2), name, mode)

    check(f"sqrt.{mode}.{name} %x, %a;", name, [a], root)
    one = write(Fraction(1), name)
    check(f"rcp.{mode}.{name} %x, %a;", name, [a], lambda b: exact("div", name, mode)(one, b))


def test_flushing_makes_zeros_of_subnormals_before_and_after():
    a, b = values("f32", 1), values("f32", 2)
    tiny = Fraction(1, 2**126)

    def flushed(bits):
        x = read(bits, "f32")
        return bits & 0x80000000 if not isinstance(x, float) and abs(x) < tiny else bits

    def meaning(a, b):
        found = exact("mul", "f32")(flushed(a), flushed(b))
        return found if found == -1 else flushed(found)

    check("mul.ftz.f32 %x, %a, %b;", "f32", [a, b], meaning)


def test_saturation_clamps_to_one_and_makes_nan_zero():
    a, b = values("f32", 3), values("f32", 4)

    def meaning(a, b):
        found = exact("add", "f32")(a, b)
        value = math.nan if found == -1 else read(found, "f32")
        if isinstance(value, float) and (math.isnan(value) or value <= 0):
            return 0
        return found if 0 < value < 1 else (0 if value <= 0 else 0x3F800000)

    check("add.sat.f32 %x, %a, %b;", "f32", [a, b], meaning)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("op", ["min", "max"])
def test_minima_prefer_numbers_and_order_zeros(op, name):
    def order(bits):
        x = read(bits, name)
        return (x, 0 if isinstance(x, float) and x == 0 and math.copysign(1, x) < 0 else 1)

    def meaning(a, b):
        numbers = [v for v in (a, b) if read(v, name) == read(v, name)]
        return (min if op == "min" else max)(numbers, key=order) if numbers else -1

    def propagating(a, b):
        return -1 if any(read(v, name) != read(v, name) for v in (a, b)) else meaning(a, b)

    inputs = [values(name, 6), values(name, 7)]
    check(f"{op}.{name} %x, %a, %b;", name, inputs, meaning)
    if name != "f64":
        check(f"{op}.NaN.{name} %x, %a, %b;", name, inputs, propagating)


@pytest.mark.parametrize("name", FORMATS)
def test_signs_are_single_bits(name):
    top = 1 << FORMATS[name][0] - 1
    a = values(name, 8)
    check(f"neg.{name} %x, %a;", name, [a], lambda a: a ^ top if read(a, name) == read(a, name) else -1)
    check(f"abs.{name} %x, %a;", name, [a], lambda a: a & ~top if read(a, name) == read(a, name) else -1)


COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@pytest.mark.parametrize("name", FORMATS)
def test_comparisons_are_ordered_or_not(name):
    a, b = values(name, 9), values(name, 10)
    b = np.where(np.random.default_rng(1).random(len(a)) < 0.3, a, b)
    for word, sign in {**COMPARE, **{f"{word}u": sign for word, sign in COMPARE.items()}}.items():
        unordered = word.endswith("u")
        compare = eval(f"lambda a, b: a {sign} b")
        (found,) = instructions(f"setp.{word}.{name} %p, %a, %b; selp.u32 %x, 1, 0, %p;", [a, b], "32")
        for i in range(len(a)):
            x, y = read(int(a[i]), name), read(int(b[i]), name)
            nan = x != x or y != y
            assert found[i] == (unordered if nan else compare(x, y)), (word, x, y)


def test_properties_and_pairs():
    a = values("f32", 11)
    x = a.view(np.float32)
    lines = "testp.{}.f32 %p, %a; selp.u32 %x, 1, 0, %p;"
    tests = {
        "finite": np.isfinite(x),
        "infinite": np.isinf(x),
        "number": ~np.isnan(x),
        "notanumber": np.isnan(x),
        "subnormal": (np.abs(x) < 2.0**-126) & (x != 0),
        "normal": np.isfinite(x) & (np.abs(x) >= 2.0**-126),
    }
    for word, expected in tests.items():
        assert (instructions(lines.format(word), [a], "32")[0] == expected).all(), word
    b = values("f32", 12)
    (found,) = instructions("copysign.f32 %x, %a, %b;", [a, b], "32")
    assert (found == (a & 0x80000000 | b & 0x7FFFFFFF)).all()


@pytest.mark.parametrize("name", ["f16x2", "bf16x2"])
def test_halves_of_a_pair_do_not_touch_each_other(name):
    single = name[:-2]
    parts = [values(single, seed) for seed in range(6)]
    packed = [
        low.astype(np.uint32) | high.astype(np.uint32) << 16 for low, high in zip(parts[::2], parts[1::2])
    ]
    (found,) = instructions(f"fma.rn.{name} %x, %a, %b, %c;", packed, "32")
    for i in range(len(found)):
        for half in (0, 1):
            expected = exact("fma", single)(*(int(parts[half + 2 * j][i]) for j in range(3)))
            assert agree(int(found[i]) >> 16 * half & 0xFFFF, expected, single)


@pytest.mark.parametrize("op, count", [("add", 2), ("mul", 2), ("fma", 3)])
def test_a_pair_of_floats_is_two_floats(op, count):
    low, high = ([values("f32", seed + half) for seed in range(0, 2 * count, 2)] for half in (0, 1))
    low, high = ([x[: min(map(len, (*low, *high)))] for x in part] for part in (low, high))
    packed = [a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32) for a, b in zip(low, high)]
    sources = ", ".join(["%a", "%b", "%c"][:count])
    (found,) = instructions(f"{op}.rn.f32x2 %x, {sources};", packed, "64")
    for half, part in enumerate((low, high)):
        (alone,) = instructions(f"{op}.rn.f32 %x, {sources};", part, "32")
        assert ((found >> np.uint64(32 * half)).astype(np.uint32) == alone).all()


@pytest.mark.parametrize("word, function", [
    ("ex2.approx.f32", np.exp2), ("lg2.approx.f32", np.log2), ("sin.approx.f32", np.sin), ("cos.approx.f32", np.cos),
    ("tanh.approx.f32", np.tanh), ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x)), ("sqrt.approx.f32", np.sqrt),
    ("rcp.approx.ftz.f32", lambda x: 1 / x),
])  # fmt: skip
def test_approximate_functions_are_within_two_places(word, function):
    x = np.concatenate([np.linspace(0.01, 20, 500), [1.0, 2.0, 4.0]]).astype(np.float32)
    (found,) = instructions(f"{word} %x, %a;", [x.view(np.uint32)], "32")
    expected = function(x.astype(np.float64))
    error = np.abs(found.view(np.float32) - expected) / np.maximum(np.abs(expected), 1e-2)
    assert error.max() < 2.0**-22


# -- conversions


CONVERSIONS = [
    *((source, to, "rn") for source, to in [("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("f32", "f64")]),
    *(("f32", "f16", mode) for mode in ("rn", "rz", "rm", "rp")),
    *(("f64", "f16", mode) for mode in ("rn", "rz", "rm", "rp")),
    *(("f64", "f32", mode) for mode in ("rn", "rz", "rm", "rp")),
    *(("f32", "bf16", mode) for mode in ("rn", "rz")),
]


@pytest.mark.parametrize("source, to, mode", CONVERSIONS)
def test_floats_convert_to_floats(source, to, mode):
    narrows = FORMATS[to][1] < FORMATS[source][1]
    rounding = f".{mode}" if narrows else ""

    def meaning(bits):
        return write(read(bits, source), to, mode)

    check(f"cvt{rounding}.{to}.{source} %x, %a;", source, [values(source, 20, 700)], meaning, to)


ROUND = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
@pytest.mark.parametrize("mode", ROUND)
def test_floats_convert_to_integers_and_saturate(source, to, mode):
    bits = int(to[1:])
    low, high = (0, 2**bits - 1) if to[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    size = max(bits, 16)
    a = values(source, 21, 500)
    (found,) = instructions(f"cvt.{mode}.{to}.{source} %x, %a;", [a], str(size))
    for i, word in enumerate(a.tolist()):
        x = read(word, source)
        if x != x:
            expected = 1 << (bits - 1) if source == "f64" or bits == 64 else 0
            expected = expected - (1 << bits) if to[0] == "s" and expected >> (bits - 1) else expected
        elif isinstance(x, float):
            expected = 0 if x == 0 else (high if x > 0 else low)
        else:
            expected = min(max(ROUND[mode](x), low), high)
        assert int(found[i]) == expected % (1 << size), (x, to)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize(
    "to, mode", [("f16", "rn"), *((to, mode) for to in ("f32", "f64") for mode in ("rn", "rz", "rm", "rp"))]
)
def test_integers_convert_to_floats(source, to, mode):
    bits = int(source[1:])
    size = max(bits, 16)
    rng = np.random.default_rng(22)
    wide = rng.integers(0, 2**63, 500, dtype=np.uint64) >> rng.integers(0, 63, 500).astype(np.uint64)
    wide = np.where(rng.random(500) < 0.5, ~wide, wide)
    a = wide.astype(UNSIGNED[size])

    def meaning(word):
        value = word & (1 << bits) - 1
        if source[0] == "s" and value >> (bits - 1):
            value -= 1 << bits
        return write(Fraction(value) if value else 0.0, to, mode)

    check(f"cvt.{mode}.{to}.{source} %x, %a;", to, [a], meaning, to)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("sat", ["", ".sat"])
def test_integers_convert_to_integers(source, to, sat):
    m, n = int(source[1:]), int(to[1:])
    a = np.random.default_rng(23).integers(0, 2**63, 300, dtype=np.uint64) * np.uint64(3)
    a = a.astype(UNSIGNED[max(m, 16)])
    (found,) = instructions(f"cvt{sat}.{to}.{source} %x, %a;", [a], str(max(n, 16)))
    low, high = (0, 2**n - 1) if to[0] == "u" else (-(2 ** (n - 1)), 2 ** (n - 1) - 1)
    for i, word in enumerate(a.tolist()):
        value = word & (1 << m) - 1
        if source[0] == "s" and value >> (m - 1):
            value -= 1 << m
        value = min(max(value, low), high) if sat else value
        value &= (1 << n) - 1
        if to[0] == "s" and value >> (n - 1):
            value -= 1 << n
        assert int(found[i]) == value % (1 << max(n, 16))


def test_rounding_to_integral_floats_keeps_the_type():
    for name in ("f32", "f64"):
        for mode, function in ROUND.items():

            def meaning(bits, name=name, function=function):
                x = read(bits, name)
                if isinstance(x, float):
                    return write(x, name)
                whole = function(x)
                return write(Fraction(whole), name) if whole else write(-0.0 if x < 0 else 0.0, name)

            check(f"cvt.{mode}.{name}.{name} %x, %a;", name, [values(name, 24)], meaning)


def test_two_floats_pack_into_halves():
    a, b = values("f32", 25), values("f32", 26)
    for name in ("f16", "bf16"):
        (found,) = instructions(f"cvt.rn.{name}x2.f32 %x, %a, %b;", [a, b], "32")
        for i in range(len(a)):
            high, low = (write(read(int(v[i]), "f32"), name) for v in (a, b))
            assert agree(int(found[i]) >> 16, high, name)
            assert agree(int(found[i]) & 0xFFFF, low, name)


@pytest.mark.parametrize("name, mantissa, bias, largest", [("e4m3x2", 3, 7, 448), ("e5m2x2", 2, 15, 57344)])
def test_eight_bit_floats_round_saturate_and_come_back(name, mantissa, bias, largest):
    codes = [c for c in range(127) if c < (0x7F if mantissa == 3 else 0x7C)]
    table = []
    for code in codes:
        field, low = code >> mantissa, code & (1 << mantissa) - 1
        table.append(
            Fraction(low + (1 << mantissa if field else 0)) * Fraction(2) ** (max(field, 1) - bias - mantissa)
        )
    assert table[-1] == largest
    a = values("f32", 27, 2000)
    (found,) = instructions(f"cvt.rn.satfinite.{name}.f32 %x, %a, %a;", [a], "16")
    for i, word in enumerate(a.tolist()):
        x = read(word, "f32")
        if x != x:
            assert int(found[i]) & 0x7F == 0x7F
            continue
        size = largest if isinstance(x, float) and math.isinf(x) else min(abs(Fraction(x)), largest)
        above = bisect.bisect_left(table, size)
        near = range(max(above - 1, 0), min(above + 1, len(table)))
        best = min(near, key=lambda c: (abs(table[c] - size), c & 1))
        assert int(found[i]) == (best | (0x80 if word >> 31 else 0)) * 0x101
    back = np.array([code | code + 128 << 8 for code in codes], np.uint16)
    (halves,) = instructions(f"cvt.rn.f16x2.{name} %x, %a;", [back], "32")
    for code, pair in zip(codes, halves.tolist()):
        assert pair & 0xFFFF == write(table[code] or 0.0, "f16")
        assert pair >> 16 == write(-table[code] if table[code] else -0.0, "f16")


def test_tf32_keeps_ten_bits_rounding_ties_away():
    a = values("f32", 28)
    (found,) = instructions("cvt.rna.tf32.f32 %x, %a;", [a], "32")
    finite = np.isfinite(a.view(np.float32))
    assert ((found & 0x1FFF)[finite] == 0).all()
    expected = (a.astype(np.uint64) + 0x1000) & 0xFFFFE000
    assert (found[finite] == expected[finite]).all()


def test_a_float_constant_is_what_its_bits_say():
    one = np.zeros(1, np.uint32)
    found = instructions("mov.f32 %x, 0f3FC00000; add.f32 %x, %x, 0f3F800000;", [one], "32")
    assert struct.unpack("<f", struct.pack("<I", int(found[0][0])))[0] == 2.5
