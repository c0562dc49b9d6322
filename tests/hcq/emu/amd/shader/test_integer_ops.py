"""Integer vector instructions against their meaning in plain Python integers, lane by lane, with edge values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.hcq.emu.amd.shader.bench import GFX9, ISAS, run, words32

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def s(x: int, bits: int = 32) -> int:
    """The signed number of some bits."""
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def clip(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


def lz(x: int, bits: int) -> int:
    return bits - x.bit_length() if x else -1


def tz(x: int) -> int:
    return (x & -x).bit_length() - 1 if x else -1


def signs(x: int, bits: int) -> int:
    top = x >> (bits - 1) & 1
    for count in range(1, bits):
        if (x >> (bits - 1 - count) & 1) != top:
            return count
    return -1


def by(x: int, i: int) -> int:
    return x >> (8 * i) & 255


def perm(a: int, b: int, selector: int) -> int:
    source = [by(b, 0), by(b, 1), by(b, 2), by(b, 3), by(a, 0), by(a, 1), by(a, 2), by(a, 3)]
    out = 0
    for i in range(4):
        pick = by(selector, i)
        if pick < 8:
            value = source[pick]
        elif pick < 12:
            value = 255 if source[2 * (pick - 8) + 1] & 0x80 else 0
        else:
            value = 0 if pick == 12 else 255
        out |= value << (8 * i)
    return out


def bfe(x: int, offset: int, width: int, signed: bool) -> int:
    field = (x >> (offset & 31)) & ((1 << (width & 31)) - 1)
    return s(field, width & 31) if signed and width & 31 else field


# name -> (widths of the sources, width of the result, meaning); names of gfx1100, then of gfx942 where they differ
Row = tuple[tuple[int, ...], int, Callable[..., int]]
W1, W2, W3 = (32,), (32, 32), (32, 32, 32)
H2, H3 = (16, 16), (16, 16, 16)
MEANING: dict[str, Row] = {
    "v_mov_b32": (W1, 32, lambda a: a),
    "v_not_b32": (W1, 32, lambda a: ~a),
    "v_bfrev_b32": (W1, 32, lambda a: int(f"{a:032b}"[::-1], 2)),
    "v_clz_i32_u32 v_ffbh_u32": (W1, 32, lambda a: lz(a, 32)),
    "v_ctz_i32_b32 v_ffbl_b32": (W1, 32, tz),
    "v_cls_i32 v_ffbh_i32": (W1, 32, lambda a: signs(a, 32)),
    "v_not_b16": ((16,), 16, lambda a: ~a),
    "v_mov_b16": ((16,), 16, lambda a: a),
    "v_mov_b64": ((64,), 64, lambda a: a),
    "v_cvt_i32_i16": ((16,), 32, lambda a: s(a, 16)),
    "v_cvt_u32_u16": ((16,), 32, lambda a: a),
    "v_sat_pk_u8_i16": (W1, 16, lambda a: clip(s(a, 16), 0, 255) | clip(s(a >> 16, 16), 0, 255) << 8),
    "v_and_b32": (W2, 32, lambda a, b: a & b),
    "v_or_b32": (W2, 32, lambda a, b: a | b),
    "v_xor_b32": (W2, 32, lambda a, b: a ^ b),
    "v_xnor_b32": (W2, 32, lambda a, b: ~(a ^ b)),
    "v_and_b16": (H2, 16, lambda a, b: a & b),
    "v_or_b16": (H2, 16, lambda a, b: a | b),
    "v_xor_b16": (H2, 16, lambda a, b: a ^ b),
    "v_lshlrev_b32": (W2, 32, lambda a, b: b << (a & 31)),
    "v_lshrrev_b32": (W2, 32, lambda a, b: b >> (a & 31)),
    "v_ashrrev_i32": (W2, 32, lambda a, b: s(b) >> (a & 31)),
    "v_lshlrev_b16": (H2, 16, lambda a, b: b << (a & 15)),
    "v_lshrrev_b16": (H2, 16, lambda a, b: b >> (a & 15)),
    "v_ashrrev_i16": (H2, 16, lambda a, b: s(b, 16) >> (a & 15)),
    "v_lshlrev_b64": ((32, 64), 64, lambda a, b: b << (a & 63)),
    "v_lshrrev_b64": ((32, 64), 64, lambda a, b: b >> (a & 63)),
    "v_ashrrev_i64": ((32, 64), 64, lambda a, b: s(b, 64) >> (a & 63)),
    "v_bfm_b32": (W2, 32, lambda a, b: ((1 << (a & 31)) - 1) << (b & 31)),
    "v_bcnt_u32_b32": (W2, 32, lambda a, b: bin(a).count("1") + b),
    "v_bfe_u32": (W3, 32, lambda a, b, c: bfe(a, b, c, False)),
    "v_bfe_i32": (W3, 32, lambda a, b, c: bfe(a, b, c, True)),
    "v_bfi_b32": (W3, 32, lambda a, b, c: a & b | ~a & c),
    "v_alignbit_b32": ((32, 32, 16), 32, lambda a, b, c: (a << 32 | b) >> (c & 31)),
    "v_alignbyte_b32": ((32, 32, 16), 32, lambda a, b, c: (a << 32 | b) >> 8 * (c & 3)),
    "v_xor3_b32": (W3, 32, lambda a, b, c: a ^ b ^ c),
    "v_or3_b32": (W3, 32, lambda a, b, c: a | b | c),
    "v_and_or_b32": (W3, 32, lambda a, b, c: a & b | c),
    "v_lshl_or_b32": (W3, 32, lambda a, b, c: a << (b & 31) | c),
    "v_perm_b32": (W3, 32, perm),
    "v_add_nc_u32 v_add_u32": (W2, 32, lambda a, b: a + b),
    "v_sub_nc_u32 v_sub_u32": (W2, 32, lambda a, b: a - b),
    "v_subrev_nc_u32 v_subrev_u32": (W2, 32, lambda a, b: b - a),
    "v_add_nc_i32 v_add_i32": (W2, 32, lambda a, b: a + b),
    "v_sub_nc_i32 v_sub_i32": (W2, 32, lambda a, b: a - b),
    "v_add_nc_u16 v_add_u16": (H2, 16, lambda a, b: a + b),
    "v_sub_nc_u16 v_sub_u16": (H2, 16, lambda a, b: a - b),
    "v_subrev_u16": (H2, 16, lambda a, b: b - a),
    "v_add_nc_i16 v_add_i16": (H2, 16, lambda a, b: a + b),
    "v_sub_nc_i16 v_sub_i16": (H2, 16, lambda a, b: a - b),
    "v_add3_u32": (W3, 32, lambda a, b, c: a + b + c),
    "v_lshl_add_u32": (W3, 32, lambda a, b, c: (a << (b & 31)) + c),
    "v_add_lshl_u32": (W3, 32, lambda a, b, c: (a + b) << (c & 31)),
    "v_xad_u32": (W3, 32, lambda a, b, c: (a ^ b) + c),
    "v_lshl_add_u64": ((64, 32, 64), 64, lambda a, b, c: (a << (b & 7)) + c),
    "v_sad_u8": (W3, 32, lambda a, b, c: c + sum(abs(by(a, i) - by(b, i)) for i in range(4))),
    "v_sad_hi_u8": (W3, 32, lambda a, b, c: c + (sum(abs(by(a, i) - by(b, i)) for i in range(4)) << 16)),
    "v_msad_u8": (W3, 32, lambda a, b, c: c + sum(abs(by(a, i) - by(b, i)) for i in range(4) if by(b, i))),
    "v_sad_u16": (W3, 32, lambda a, b, c: c + abs((a & 65535) - (b & 65535)) + abs((a >> 16) - (b >> 16))),
    "v_sad_u32": (W3, 32, lambda a, b, c: c + abs(a - b)),
    "v_lerp_u8": (
        W3,
        32,
        lambda a, b, c: sum((by(a, i) + by(b, i) + (by(c, i) & 1)) // 2 << 8 * i for i in range(4)),
    ),
    "v_mul_lo_u32": (W2, 32, lambda a, b: a * b),
    "v_mul_hi_u32": (W2, 32, lambda a, b: a * b >> 32),
    "v_mul_hi_i32": (W2, 32, lambda a, b: s(a) * s(b) >> 32),
    "v_mul_lo_u16": (H2, 16, lambda a, b: a * b),
    "v_mul_i32_i24": (W2, 32, lambda a, b: s(a, 24) * s(b, 24)),
    "v_mul_hi_i32_i24": (W2, 32, lambda a, b: s(a, 24) * s(b, 24) >> 32),
    "v_mul_u32_u24": (W2, 32, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    "v_mul_hi_u32_u24": (W2, 32, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32),
    "v_mad_i32_i24": (W3, 32, lambda a, b, c: s(a, 24) * s(b, 24) + c),
    "v_mad_u32_u24": (W3, 32, lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_mad_u32_u16": ((16, 16, 32), 32, lambda a, b, c: a * b + c),
    "v_mad_i32_i16": ((16, 16, 32), 32, lambda a, b, c: s(a, 16) * s(b, 16) + c),
    "v_mad_u16": (H3, 16, lambda a, b, c: a * b + c),
    "v_mad_i16": (H3, 16, lambda a, b, c: a * b + c),
    "v_cvt_pk_u16_u32": (W2, 32, lambda a, b: min(a, 65535) | min(b, 65535) << 16),
    "v_cvt_pk_i16_i32": (
        W2,
        32,
        lambda a, b: clip(s(a), -32768, 32767) & 65535 | (clip(s(b), -32768, 32767) & 65535) << 16,
    ),
    "v_pack_b32_f16": (H2, 32, lambda a, b: a | b << 16),
}
for bits in (16, 32):
    two, three = (bits,) * 2, (bits,) * 3
    for kind, key in (("i", lambda x, bits=bits: s(x, bits)), ("u", lambda x: x)):
        t = f"{kind}{bits}"
        MEANING[f"v_min_{t}"] = (two, bits, lambda a, b, key=key: min(a, b, key=key))
        MEANING[f"v_max_{t}"] = (two, bits, lambda a, b, key=key: max(a, b, key=key))
        MEANING[f"v_min3_{t}"] = (three, bits, lambda a, b, c, key=key: min(a, b, c, key=key))
        MEANING[f"v_max3_{t}"] = (three, bits, lambda a, b, c, key=key: max(a, b, c, key=key))
        MEANING[f"v_med3_{t}"] = (three, bits, lambda a, b, c, key=key: sorted((a, b, c), key=key)[1])
        if bits == 32:
            MEANING[f"v_maxmin_{t}"] = (
                three,
                bits,
                lambda a, b, c, key=key: min(max(a, b, key=key), c, key=key),
            )
            MEANING[f"v_minmax_{t}"] = (
                three,
                bits,
                lambda a, b, c, key=key: max(min(a, b, key=key), c, key=key),
            )

CASES = [
    pytest.param(arch, one.name, name, row, id=f"{arch}-{one.name}-{name}")
    for names, row in MEANING.items()
    for name in names.split()
    for arch, isa in ISAS.items()
    for one, _ in isa.by_name.get(name, ())
]


@pytest.mark.parametrize(("arch", "form", "name", "row"), CASES)
def test_an_integer_instruction_means_what_its_description_says(
    arch: str, form: str, name: str, row: Row
) -> None:
    widths, out_width, meaning = row
    size = 64 if arch in GFX9 else 32
    registers, operands, sources = {}, [], []
    for index, width in enumerate(widths):
        low, high = words32(100 * index + len(name), size), words32(7 + index, size)
        first = 10 + 2 * index
        registers[first], registers[first + 1] = low, high
        operands.append(f"v[{first}:{first + 1}]" if width == 64 else f"v{first}")
        both = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        sources.append([x & (1 << width) - 1 for x in both.tolist()])
    lanes = np.random.default_rng(3).random(size) < 0.8
    old = words32(55, size)
    registers[20], registers[21] = old, old[::-1]
    b = run(
        arch, name, "v[20:21]" if out_width == 64 else "v20", *operands, form=form, v=registers, lanes=lanes
    )
    result = b.u32[20, 0].astype(np.uint64) | b.u32[21, 0].astype(np.uint64) << np.uint64(32)
    mask = (1 << out_width) - 1
    for lane in range(size):
        if not lanes[lane]:
            assert b.u32[20, 0, lane] == old[lane], f"lane {lane} is not active and was written"
            continue
        expected = meaning(*(source[lane] for source in sources)) & mask
        shown = ", ".join(f"{source[lane]:#x}" for source in sources)
        assert int(result[lane]) & mask == expected, f"{name}({shown})"


SATURATING = {
    "v_add_nc_u32": ("u", 32, 1),
    "v_sub_nc_u32": ("u", 32, -1),
    "v_add_nc_i32": ("i", 32, 1),
    "v_sub_nc_i32": ("i", 32, -1),
    "v_add_nc_u16": ("u", 16, 1),
    "v_sub_nc_i16": ("i", 16, -1),
}


@pytest.mark.parametrize("name", SATURATING)
def test_clamp_saturates_integer_sums(name: str) -> None:
    kind, width, sign = SATURATING[name]
    a, c = words32(1, 32), words32(2, 32)
    b = run("gfx1100", name, "v2", "v0", "v1", form="VOP3", fields={"clamp": 1}, v={0: a, 1: c})
    low, high = (0, (1 << width) - 1) if kind == "u" else (-(1 << width - 1), (1 << width - 1) - 1)
    for x, y, actual in zip(a.tolist(), c.tolist(), b.u32[2, 0].tolist()):
        x, y = (s(x, width), s(y, width)) if kind == "i" else (x & (1 << width) - 1, y & (1 << width) - 1)
        assert actual & (1 << width) - 1 == clip(x + sign * y, low, high) & (1 << width) - 1


@pytest.mark.parametrize(
    ("arch", "name", "sign", "reverse", "carry_in"),
    [
        ("gfx1100", "v_add_co_ci_u32", 1, False, True),
        ("gfx1100", "v_sub_co_ci_u32", -1, False, True),
        ("gfx1100", "v_subrev_co_ci_u32", -1, True, True),
        ("gfx942", "v_add_co_u32", 1, False, False),
        ("gfx942", "v_sub_co_u32", -1, False, False),
        ("gfx942", "v_addc_co_u32", 1, False, True),
        ("gfx942", "v_subbrev_co_u32", -1, True, True),
    ],
)
def test_sums_carry_from_vcc_into_vcc(arch: str, name: str, sign: int, reverse: bool, carry_in: bool) -> None:
    size = 64 if arch in GFX9 else 32
    a, c = words32(5, size), words32(6, size)
    carries = 0x5A5A1234_0F0FFFFF & (1 << size) - 1
    b = run(arch, name, "v2", "v0", "v1", form="VOP2", v={0: a, 1: c}, s={106: carries, 107: carries >> 32})
    out = int(b.s[0, 106]) | int(b.s[0, 107]) << 32
    for lane in range(size):
        x, y = int(a[lane]), int(c[lane])
        if reverse:
            x, y = y, x
        total = x + sign * (y + (carries >> lane & 1 if carry_in else 0))
        assert int(b.u32[2, 0, lane]) == total & M32
        assert out >> lane & 1 == (0 if 0 <= total <= M32 else 1)


@pytest.mark.parametrize("arch", ISAS)
def test_wide_products_carry_into_their_mask(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    a, c, low, high = (words32(seed, size) for seed in (1, 2, 3, 4))
    for name, signed in (("v_mad_u64_u32", False), ("v_mad_i64_i32", True)):
        two, one = isa_operand(arch)
        b = run(arch, name, "v[10:11]", two, "v0", "v1", "v[2:3]", v={0: a, 1: c, 2: low, 3: high})
        mask = int(b.s[0, one]) | int(b.s[0, one + 1]) << 32
        for lane in range(size):
            x, y = int(a[lane]), int(c[lane])
            z = int(low[lane]) | int(high[lane]) << 32
            if signed:
                total = s(x) * s(y) + s(z, 64)
                overflow = not -(1 << 63) <= total < 1 << 63
            else:
                total = x * y + z
                overflow = total > M64
            actual = int(b.u32[10, 0, lane]) | int(b.u32[11, 0, lane]) << 32
            assert actual == total & M64 and mask >> lane & 1 == overflow


def isa_operand(arch: str) -> tuple[str, int]:
    return ("s[4:5]" if arch in GFX9 else "s4"), 4


def test_true16_operands_pick_halves_and_keep_the_other_half() -> None:
    a, c, old = words32(1, 32), words32(2, 32), words32(3, 32)
    b = run("gfx1100", "v_lshlrev_b16", "v2", "v0", "v1", fields={"opsel": 0b1011}, v={0: a, 1: c, 2: old})
    expected = ((c >> 16) << ((a >> 16) & 15)) & 0xFFFF
    assert (b.u32[2, 0] >> 16 == expected).all()
    assert (b.u32[2, 0] & 0xFFFF == old & 0xFFFF).all()
    b = run("gfx1100", "v_not_b16", "v2.h", "v0.l", v={0: a, 2: old})
    assert (b.u32[2, 0] == (~a & 0xFFFF) << 16 | old & 0xFFFF).all()


def test_sixteen_bit_results_clear_the_upper_half_on_gfx942_unless_they_keep_it() -> None:
    a, c, old = words32(1), words32(2), words32(3)
    b = run("gfx942", "v_add_u16", "v2", "v0", "v1", form="VOP2", v={0: a, 1: c, 2: old})
    assert (b.u32[2, 0] == (a + c) & 0xFFFF).all()
    b = run("gfx942", "v_mad_u16", "v2", "v0", "v1", "v0", v={0: a, 1: c, 2: old})
    assert (b.u32[2, 0] >> 16 == old >> 16).all()


@pytest.mark.parametrize("sources", [("v0", "v1"), ("v1", "v0"), ("v0", "v0"), ("s4", "v0"), ("s4", "v1")])
@pytest.mark.parametrize(
    ("arch", "name", "sign", "reverse"),
    [
        ("gfx942", "v_add_co_u32", 1, False),
        ("gfx942", "v_sub_co_u32", -1, False),
        ("gfx942", "v_subrev_co_u32", -1, True),
        ("gfx1100", "v_add_co_ci_u32", 1, False),
        ("gfx1100", "v_subrev_co_ci_u32", -1, True),
    ],
)
def test_a_sum_in_the_place_of_an_operand_carries_as_in_any_other(
    arch: str, name: str, sign: int, reverse: bool, sources: tuple[str, str]
) -> None:
    size = 64 if arch in GFX9 else 32
    numbers: dict[str, Any] = {
        "v0": words32(7, size),
        "v1": words32(8, size),
        "s4": np.full(size, 0x89ABCDEF),
    }
    registers = {0: numbers["v0"].copy(), 1: numbers["v1"].copy()}
    b = run(arch, name, "v0", *sources, form="VOP2", v=registers, s={4: 0x89ABCDEF})
    x, y = (numbers[one].astype(np.int64) for one in (sources[::-1] if reverse else sources))
    total = x + sign * y
    assert (b.u32[0, 0] == total & M32).all()
    out = int(b.s[0, 106]) | int(b.s[0, 107]) << 32
    assert [out >> lane & 1 for lane in range(size)] == [int(not 0 <= one <= M32) for one in total]


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("kind", ["u64", "i64"])
@pytest.mark.parametrize("test", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_wide_compares_order_numbers_by_both_halves(arch: str, kind: str, test: str) -> None:
    size = 64 if arch in GFX9 else 32
    x_low, y_low, x_high, y_high = (words32(seed, size) for seed in range(4))
    y_high[::2] = x_high[::2]  # the low halves decide
    y_low[::4] = x_low[::4]
    scalar = int(x_low[8]) | int(x_high[8]) << 32
    registers = {0: x_low, 1: x_high, 2: y_low, 3: y_high}
    wide = [
        low.astype(object) + high.astype(object) * (1 << 32)
        for low, high in ((x_low, x_high), (y_low, y_high))
    ]
    for first, left in (("v[0:1]", wide[0]), ("s[4:5]", [scalar] * size), (-3, [(1 << 64) - 3] * size)):
        name = f"v_cmp_{test}_{kind}"
        b = run(arch, name, first, "v[2:3]", form="VOPC", v=registers, s={4: scalar, 5: scalar >> 32})
        out = int(b.s[0, 106]) | int(b.s[0, 107]) << 32
        for lane in range(size):
            a, c = (s(int(one[lane]), 64) if kind == "i64" else int(one[lane]) for one in (left, wide[1]))
            assert out >> lane & 1 == getattr(operator, test)(a, c), (first, lane)
