"""cvt.rs beside exact fractions; fma.oob."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import PtxError
from hcq.emu.shader.small_floats import E2M1, E2M3, E3M2, E4M3, E5M2
from tests.hcq.emu.nv.shader.running import instructions

SMALL = {"e4m3x4": E4M3, "e5m2x4": E5M2, "e2m3x4": E2M3, "e3m2x4": E3M2, "e2m1x4": E2M1}
NAN = {"e4m3x4": 0x7F, "e5m2x4": 0x7F, "e2m3x4": 0x1F, "e3m2x4": 0x1F, "e2m1x4": 0x7}


def values() -> np.ndarray:
    rng = np.random.default_rng(2)
    scaled = rng.standard_normal(400) * 2.0 ** rng.integers(-20, 10, 400)
    return np.concatenate([scaled, [0.0, -0.0, 1.0, -6.0, 448.0, 1e9, -1e9, np.inf, -np.inf, np.nan]]).astype(
        np.float32
    )


def between(x: float, table: np.ndarray) -> tuple[int, Fraction]:
    """The code of the largest number that is not above |x|, and how much of the step to the next one is missing."""
    sizes = [Fraction(float(v)) for v in table[: len(table) // 2] if math.isfinite(v)]
    size = abs(Fraction(x))
    code = max(i for i, one in enumerate(sizes) if one <= size)
    step = sizes[code + 1] - sizes[code] if code + 1 < len(sizes) else sizes[code] - sizes[code - 1]
    return code, (size - sizes[code]) / step


def code_of(x: float, random: int, name: str, relu: bool) -> int:
    table = SMALL[name].values.astype(np.float64)
    top, largest = len(table) // 2, SMALL[name].largest
    if math.isnan(x):
        return NAN[name]
    if relu and x < 0:
        x = 0.0
    sign = top if math.copysign(1, x) < 0 else 0
    if math.isinf(x) or abs(x) >= table[largest]:
        return sign | largest
    code, part = between(x, table)
    return sign | min(code + int(part + Fraction(random, 1 << 16) >= 1), largest)


def backwards(x: int) -> int:
    return int(f"{x:016b}"[::-1], 2)


def random_of(bits: int, name: str) -> list[int]:
    upper, lower = bits >> 16, bits & 0xFFFF
    if name == "e2m1x4":
        octets = bits.to_bytes(4, "little")
        upper, lower = octets[3] << 8 | octets[1], octets[2] << 8 | octets[0]
    return [backwards(upper), upper, backwards(lower), lower]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("relu", [False, True])
def test_random_bits_decide_how_small_floats_are_rounded(name, relu):
    rng, x = np.random.default_rng(7), values()
    parts = [x, np.roll(x, 1), np.roll(x, 2)]
    bits = rng.integers(0, 1 << 32, len(x), np.uint32)
    result, register = ("16", "%x") if name == "e2m1x4" else ("32", "%x")
    word = f"cvt.rs{'.relu' * relu}.satfinite.{name}.f32"
    found = instructions(f"{word} {register}, {{%a, %b, %c, %a}}, %e;", [*parts, bits], result)[0]
    width = 4 if name == "e2m1x4" else 8
    for i in range(len(x)):
        four = [parts[0][i], parts[1][i], parts[2][i], parts[0][i]]
        wanted = 0
        for one, random in zip(four, random_of(int(bits[i]), name)):
            wanted = wanted << width | code_of(float(one), random, name, relu)
        assert int(found[i]) == wanted, (four, hex(int(bits[i])))


@pytest.mark.parametrize("name, count", [("f16x2", 13), ("bf16x2", 16)])
def test_random_bits_decide_how_halves_are_rounded(name, count):
    rng, x = np.random.default_rng(9), values()
    bits = rng.integers(0, 1 << 32, len(x), np.uint32)
    y = np.roll(x, 5)
    found = instructions(f"cvt.rs.{name}.f32 %x, %a, %b, %c;", [x, y, bits], "32")[0]
    for number, (source, shift) in enumerate(((x, 16), (y, 0))):
        mine = (found >> np.uint32(shift)).astype(np.uint16)
        for i, one in enumerate(source):
            random = int(bits[i]) >> shift & ((1 << count) - 1)
            assert int(mine[i]) == half_of(one, random, name, count), (number, one)


def half_of(x: np.float32, random: int, name: str, count: int) -> int:
    """Of normal numbers: the bits, plus the random ones below, cut off."""
    if np.isnan(x):
        return 0x7FFF
    word = int(np.float32(x).view(np.uint32))
    if name == "bf16x2":
        return (word + random) >> 16 if np.isfinite(x) else word >> 16
    if np.isinf(x) or abs(x) >= 65536:
        return (word >> 31 << 15) | 0x7C00
    exponent = max(math.frexp(float(x))[1] - 1, -14)
    steps = math.floor(
        abs(Fraction(float(x))) * Fraction(2) ** (10 - exponent) + Fraction(random, 1 << count)
    )
    value = math.ldexp(steps, exponent - 10)
    return (word >> 31 << 15) | int(np.float16(value).view(np.uint16))


def test_a_number_that_needs_no_rounding_is_not_changed_by_random_bits():
    x = np.array([1.5, -2.0, 0.0, 448.0], np.float32)
    bits = np.full(4, 0xFFFFFFFF, np.uint32)
    found = instructions("cvt.rs.satfinite.e4m3x4.f32 %x, {%a, %a, %a, %a}, %b;", [x, bits], "32")[0]
    assert [hex(one) for one in found] == ["0x3c3c3c3c", "0xc0c0c0c0", "0x0", "0x7e7e7e7e"]


def test_halves_that_are_too_large_become_infinite_or_the_largest():
    x, bits = np.array([65519.0, 1e9], np.float32), np.full(2, 0xFFFFFFFF, np.uint32)
    plain = instructions("cvt.rs.f16x2.f32 %x, %a, %a, %b;", [x, bits], "32")[0]
    finite = instructions("cvt.rs.satfinite.f16x2.f32 %x, %a, %a, %b;", [x, bits], "32")[0]
    assert [int(one) for one in plain] == [0x7C007C00] * 2
    assert [int(one) for one in finite] == [0x7BFF7BFF] * 2


def test_small_floats_must_saturate_when_they_are_rounded_by_random_bits():
    with pytest.raises(PtxError, match=r"needs \.satfinite"):
        instructions("cvt.rs.e4m3x4.f32 %x, {%a, %a, %a, %a}, %b;", [values(), np.zeros(1, np.uint32)], "32")


def test_fma_oob_makes_zero_of_what_a_tensor_map_fills_with():
    """And of no other NaN."""
    a = np.array([0x3C00_7FF7, 0x7FF7_3C00, 0x7FFF_4000], np.uint32)
    one, c = np.full(3, 0x3C00_3C00, np.uint32), np.full(3, 0x4400_4400, np.uint32)
    first = instructions("fma.rn.oob.f16x2 %x, %a, %b, %c;", [a, one, c], "32")[0]
    second = instructions("fma.rn.oob.f16x2 %x, %b, %a, %c;", [a, one, c], "32")[0]
    assert [hex(int(x)) for x in first] == ["0x45000000", "0x4500", "0x7fff4600"]
    assert list(first) == list(second)


def test_fma_oob_cuts_off_what_is_negative_when_asked():
    minus = np.array([0xBF80, 0x7FF7], np.uint16)
    found = instructions(
        "fma.rn.oob.relu.bf16 %x, %a, %b, %c;",
        [minus, np.full(2, 0x4000, np.uint16), np.zeros(2, np.uint16)],
        "16",
    )[0]
    assert list(found) == [0, 0]


def test_fma_oob_of_singles_is_refused():
    x = np.ones(2, np.float32)
    with pytest.raises(PtxError, match=r"fma\.oob is for \.f16 and \.bf16"):
        instructions("fma.rn.oob.f32 %x, %a, %b, %c;", [x, x, x], "32")
