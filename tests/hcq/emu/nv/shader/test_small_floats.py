"""Formats of 4, 6 and 8 bits: conversions by lists of their values; integers packed; products of nibbles and bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import PtxError
from tests.hcq.emu.nv.shader.running import HEADER, instructions, run_ptx

# name -> bits of a code, of the exponent, of the fraction, the exponent's bias
FORMATS = {"e2m1": (4, 2, 1, 1), "e2m3": (6, 2, 3, 1), "e3m2": (6, 3, 2, 3)}


def value(code: int, name: str) -> Fraction:
    """What a code without its sign stands for."""
    _, _, mantissa, bias = FORMATS[name]
    field, low = code >> mantissa, code & ((1 << mantissa) - 1)
    if field == 0:
        return Fraction(low, 1 << mantissa) * Fraction(2) ** (1 - bias)
    return (1 + Fraction(low, 1 << mantissa)) * Fraction(2) ** (field - bias)


def nearest(x: float, name: str, relu: bool = False) -> int:
    """The code of a float: ties to even, too large and infinite to the largest, NaN to the largest positive one."""
    bits = FORMATS[name][0]
    top = 1 << (bits - 1)
    if math.isnan(x):
        return top - 1
    sign = top if math.copysign(1, x) < 0 else 0
    if sign and relu and x:
        return 0
    if math.isinf(x):
        return sign | (top - 1)
    size = abs(Fraction(x))
    return sign | min(range(top), key=lambda code: (abs(value(code, name) - size), code & 1))


def floats(seed: int, name: str) -> np.ndarray:
    """Every value, every middle between two, what is next to them, and others."""
    rng = np.random.default_rng(seed)
    top = 1 << (FORMATS[name][0] - 1)
    values = [float(value(code, name)) for code in range(top)]
    middles = [(a + b) / 2 for a, b in zip(values, values[1:])]
    plain = np.array([*values, *middles], np.float32)
    near = [plain, np.nextafter(plain, np.float32(np.inf)), np.nextafter(plain, np.float32(-1))]
    more = [
        rng.standard_normal(100).astype(np.float32) * 8,
        np.array([np.inf, np.nan, 1e30, 1e-40], np.float32),
    ]
    both = np.concatenate([*near, *more])
    both = np.concatenate([both, -both])
    rng.shuffle(both)
    return both


def element_bits(name: str) -> int:
    return 4 if name == "e2m1" else 8


def packed(name: str) -> tuple[str, str]:
    """(the line that makes %x of a pair in %b0 or %h0, the line that takes %b0 or %h0 from %a)."""
    if name == "e2m1":
        return "mov.b16 %x, {%o, %z};", "mov.b16 {%o, %z}, %a;"
    return "mov.b16 %x, %h0;", "mov.b16 %h0, %a;"


def run(lines: str, inputs: list[np.ndarray], outputs: str) -> np.ndarray:
    return instructions("{ .reg .b8 %o, %z; mov.b16 {%z, %o}, 0;" + lines + "}", inputs, outputs)[0]


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", FORMATS)
def test_floats_become_the_nearest_value_of_a_small_format(name: str, relu: str) -> None:
    a, b = floats(1, name), floats(2, name)
    to = "%o" if name == "e2m1" else "%h0"
    out, _ = packed(name)
    found = run(
        f"cvt.rn.satfinite{relu}.{name}x2.f32 {to}, %a, %b; {out}",
        [a.view(np.uint32), b.view(np.uint32)],
        "16",
    )
    for x, y, code in zip(a.tolist(), b.tolist(), found.tolist()):
        expected = nearest(x, name, bool(relu)) << element_bits(name) | nearest(y, name, bool(relu))
        assert code == expected, (x, y, hex(code), hex(expected))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("to", ["f16x2", "bf16x2"])
def test_every_pair_of_codes_becomes_its_values(name: str, to: str) -> None:
    bits = FORMATS[name][0]
    codes = np.arange(1 << bits, dtype=np.uint16)
    pairs = codes | (codes[::-1] << np.uint16(element_bits(name)))
    source = "%o" if name == "e2m1" else "%h0"
    _, take = packed(name)
    found = run(f"{take} cvt.rn.{to}.{name}x2 %x, {source};", [pairs], "32")
    top = 1 << (bits - 1)
    for low, both in zip(range(1 << bits), found.tolist()):
        for code, half in ((low, both & 0xFFFF), ((1 << bits) - 1 - low, both >> 16)):
            expected = np.float32(float(value(code & (top - 1), name)) * (-1.0 if code & top else 1.0))
            wide = (
                half << 16
                if to == "bf16x2"
                else int(np.uint16(half).view(np.float16).astype(np.float32).view(np.uint32))
            )
            assert wide == int(expected.view(np.uint32))


def exponent(x: float, up: bool, finite: bool) -> int:
    """The code c of 2**(c - 127), for the size of x."""
    if math.isnan(x):
        return 0xFF
    if math.isinf(x):
        return 0xFE if finite else 0xFF
    if x == 0:
        return 0
    fraction, power = math.frexp(abs(x))  # of 0.5 to 1
    code = power - 1 + 127 + (up and fraction != 0.5)
    return max(code, 0) if code < 255 else 0xFE if finite else 0xFF


@pytest.mark.parametrize("finite", ["", ".satfinite"])
@pytest.mark.parametrize("mode", ["rz", "rp"])
def test_floats_become_powers_of_two(mode: str, finite: str) -> None:
    rng = np.random.default_rng(5)
    edges = [
        0.0,
        1.0,
        1.5,
        2.0**-127,
        2.0**-126,
        1.5 * 2.0**-127,
        2.0**-128,
        2.0**-149,
        2.0**127,
        1.5 * 2.0**127,
        3e38,
    ]
    a = np.concatenate(
        [
            np.array([*edges, np.inf, np.nan], np.float32),
            rng.integers(0, 2**32, 200).astype(np.uint32).view(np.float32),
        ]
    )
    a = np.concatenate([a, -a])
    b = a[::-1].copy()
    (found,) = instructions(
        f"cvt.{mode}{finite}.ue8m0x2.f32 %x, %a, %b;", [a.view(np.uint32), b.view(np.uint32)], "16"
    )
    for x, y, code in zip(a.tolist(), b.tolist(), found.tolist()):
        high, low = (exponent(one, mode == "rp", bool(finite)) for one in (x, y))
        assert code == high << 8 | low, (x, y, hex(code))
    halves = (a.view(np.uint32) >> 16).astype(np.uint32)
    (found,) = instructions(f"cvt.{mode}{finite}.ue8m0x2.bf16x2 %x, %a;", [halves << 16 | halves[::-1]], "16")
    for x, y, code in zip(halves.tolist(), halves[::-1].tolist(), found.tolist()):
        high, low = (np.uint32(one << 16).view(np.float32).item() for one in (x, y))
        assert code == exponent(high, mode == "rp", bool(finite)) << 8 | exponent(
            low, mode == "rp", bool(finite)
        )


def test_powers_of_two_become_halves() -> None:
    codes = np.arange(256, dtype=np.uint16)
    (found,) = instructions("cvt.rn.bf16x2.ue8m0x2 %x, %a;", [codes << np.uint16(8) | codes[::-1]], "32")
    for code, both in enumerate(found.tolist()):
        for one, half in ((code, both >> 16), (255 - code, both & 0xFFFF)):
            value_ = np.uint32(half << 16).view(np.float32)
            assert np.isnan(value_) if one == 255 else float(value_) == 2.0 ** (one - 127)


def test_bytes_become_bfloats() -> None:
    codes = np.arange(256, dtype=np.uint16)
    for name in ("e4m3", "e5m2"):
        halves, brains = (
            instructions(f"cvt.rn.{to}.{name}x2 %x, %a;", [codes << np.uint16(8) | codes], "32")[0]
            for to in ("f16x2", "bf16x2")
        )
        as_floats = (halves & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float32)
        found = (brains << np.uint32(16)).view(np.float32)
        assert np.array_equal(found, as_floats, equal_nan=True)


@pytest.mark.parametrize("line", [
    "cvt.rz.satfinite.e2m3x2.f32 %x, %a, %a;", "cvt.rn.ue8m0x2.f32 %x, %a, %a;", "cvt.rn.f16x2.ue8m0x2 %x, %a;",
    "cvt.rn.satfinite.e3m2x2.f64 %x, %a;", "cvt.pack.sat.u4.s32 %x, %a, %a;", "cvt.pack.sat.u32.s32 %x, %a, %a;",
    "cvt.pack.sat.u16.s32.b32 %x, %a, %a, %a;", "mad24.lo.sat.s32 %x, %a, %a, %a;", "mul24.hi.sat.s32 %x, %a, %a;",
])  # fmt: skip
def test_conversions_that_do_not_exist_are_refused(line: str) -> None:
    with pytest.raises(PtxError, match="PTX line"):
        instructions(line, [np.zeros(1, np.uint32)], "32")


@pytest.mark.parametrize("name, bits, low, high", [
    ("u8", 8, 0, 255), ("s8", 8, -128, 127), ("u4", 4, 0, 15), ("s4", 4, -8, 7), ("u2", 2, 0, 3), ("s2", 2, -2, 1),
])  # fmt: skip
def test_integers_are_packed_above_those_of_a_third_operand(
    name: str, bits: int, low: int, high: int
) -> None:
    rng = np.random.default_rng(6)
    a, b = (
        np.concatenate([rng.integers(-300, 300, 60), [2**31 - 1, -(2**31)]]).astype(np.int32)
        for _ in range(2)
    )
    c = rng.integers(0, 2**32, 62).astype(np.uint32)
    (found,) = instructions(
        f"cvt.pack.sat.{name}.s32.b32 %x, %a, %b, %c;", [a.view(np.uint32), b.view(np.uint32), c], "32"
    )
    mask = (1 << bits) - 1
    for x, y, z, packed_ in zip(a.tolist(), b.tolist(), c.tolist(), found.tolist()):
        x, y = (min(max(one, low), high) & mask for one in (x, y))
        assert packed_ == (z << 2 * bits | x << bits | y) & 0xFFFFFFFF


def test_the_upper_half_of_a_24_bit_product_is_added_and_saturated() -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-(2**31), 2**31, 100).astype(np.int32) for _ in range(2))
    c = np.where(
        rng.random(100) < 0.5, 2**31 - 1 - rng.integers(0, 2**20, 100), -(2**31) + rng.integers(0, 2**20, 100)
    )
    inputs = [x.astype(np.int32).view(np.uint32) for x in (a, b, c)]
    (found,) = instructions("mad24.hi.sat.s32 %x, %a, %b, %c;", inputs, "32")

    def low(x: int) -> int:
        return ((x & 0xFFFFFF) ^ 0x800000) - 0x800000

    for x, y, z, got in zip(a.tolist(), b.tolist(), c.tolist(), found.view(np.int32).tolist()):
        assert got == min(max(((low(x) * low(y)) >> 16) + z, -(2**31)), 2**31 - 1)


# -- products of nibbles and bits: places as the manual has them


def run_of(bits: int) -> int:
    return 32 // bits


def a_place(t: int, i: int, rows: int, bits: int) -> tuple[int, int]:
    run_, tall = run_of(bits), rows // 8
    return (t >> 2) + 8 * (i // run_ % tall), (t & 3) * run_ + i % run_ + 4 * run_ * (i // (run_ * tall))


def b_place(t: int, i: int, bits: int) -> tuple[int, int]:
    run_ = run_of(bits)
    return (t & 3) * run_ + i % run_ + 4 * run_ * (i // run_), t >> 2


def words(matrix: np.ndarray, place: Callable[[int, int], tuple[int, int]], bits: int) -> np.ndarray:
    """(32, registers): what each thread holds of a matrix of small integers."""
    count = matrix.size // 32
    found = np.zeros((32, count // run_of(bits)), np.uint32)
    for t in range(32):
        for i in range(count):
            code = int(matrix[place(t, i)]) & ((1 << bits) - 1)
            found[t, i // run_of(bits)] |= np.uint32(code << bits * (i % run_of(bits)))
    return found


SMALL = [
    *((rows, depth, a, b) for rows, depth in ((8, 32), (16, 32), (16, 64)) for a in ("s4", "u4") for b in ("s4", "u4")),
    *((rows, depth, how, "b1") for rows, depth in ((8, 128), (16, 128), (16, 256)) for how in ("and", "xor")),
]  # fmt: skip


@pytest.mark.parametrize("rows, depth, first, second", SMALL)
def test_products_of_nibbles_and_bits(rows: int, depth: int, first: str, second: str) -> None:
    rng = np.random.default_rng(8)
    bits = 1 if second == "b1" else 4
    limits = {"s4": (-8, 8), "u4": (0, 16), "b1": (0, 2), "and": (0, 2), "xor": (0, 2)}
    a, b = rng.integers(*limits[first], (rows, depth)), rng.integers(*limits[second], (depth, 8))
    c = rng.integers(-1000, 1000, (rows, 8))
    parts = [
        words(a, lambda t, i: a_place(t, i, rows, bits), bits), words(b, lambda t, i: b_place(t, i, bits), bits),
        words(c, lambda t, i: ((t >> 2) + 8 * (i // 2), (t & 3) * 2 + i % 2), 32),
    ]  # fmt: skip
    lines = [HEADER, ".visible .entry k(.param .u64 A, .param .u64 B, .param .u64 C) {"]
    lines.append(".reg .b32 %a<9>, %b<9>, %c<9>, %i; .reg .b64 %at; mov.u32 %i, %tid.x;")
    names = []
    for letter, part in zip("abc", parts):
        names.append([f"%{letter}{i}" for i in range(part.shape[1])])
        lines.append(f"ld.param.u64 %at, [{letter.upper()}]; mad.wide.u32 %at, %i, {part.shape[1] * 4}, %at;")
        lines += [f"ld.global.u32 {name}, [%at+{4 * i}];" for i, name in enumerate(names[-1])]
    vectors = ["{" + ", ".join(one) + "}" for one in names]
    types = f"s32.b1.b1.s32.{first}.popc" if bits == 1 else f"s32.{first}.{second}.s32"
    lines.append(
        f"mma.sync.aligned.m{rows}n8k{depth}.row.col.{types} {vectors[2]}, {vectors[0]}, {vectors[1]}, {vectors[2]};"
    )
    lines += [f"st.global.u32 [%at+{4 * i}], {name};" for i, name in enumerate(names[2])]
    run_ptx("\n".join([*lines, "ret; }"]), "k", 1, 32, *parts)
    if first == "xor":
        expected = c + (a[:, :, None] ^ b[None, :, :]).sum(axis=1)
    else:
        expected = c + a @ b
    for t in range(32):
        for i in range(rows // 4):
            assert (
                int(parts[2][t, i].view(np.int32)) == expected[(t >> 2) + 8 * (i // 2), (t & 3) * 2 + i % 2]
            )
