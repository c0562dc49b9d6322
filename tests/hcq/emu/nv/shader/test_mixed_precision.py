"""Sums and products of float32 with halves, and products of matrices of doubles, against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import PtxError
from tests.hcq.emu.nv.shader.running import HEADER, instructions, run_ptx
from tests.hcq.emu.nv.shader.test_float_ops import check, read, values, write

Number = Fraction | float


def total(x: Number, y: Number, mode: str) -> Number:
    """x + y, exact where both are finite."""
    wide = [float(one) if not isinstance(one, Fraction) else one for one in (x, y)]
    if any(isinstance(one, float) and not math.isfinite(one) for one in wide):
        return float(wide[0]) + float(wide[1])
    found = Fraction(wide[0]) + Fraction(wide[1])
    if found:
        return found
    both_negative = all(one == 0 and math.copysign(1, float(one)) < 0 for one in (x, y))
    both_positive = all(one == 0 and math.copysign(1, float(one)) > 0 for one in (x, y))
    return -0.0 if both_negative or (mode == "rm" and not both_positive) else 0.0


def product(x: Number, y: Number) -> Number:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    return float(x) * float(y)


def negated(x: Number) -> Number:
    return -x


def clamped(bits: int) -> int:
    """Into [0, 1]; NaN becomes 0."""
    value = read(bits, "f32") if bits != -1 else 0.0
    if isinstance(value, float) and math.isnan(value):
        return 0
    return 0 if value <= 0 else min(bits, 0x3F800000)


@pytest.mark.parametrize("half", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "sub"])
def test_sums_of_a_half_and_a_float_are_rounded_once(name: str, mode: str, half: str) -> None:
    a, b = values(half, 1), values("f32", 2)

    def meaning(x: int, y: int) -> int:
        second = read(y, "f32")
        return write(total(read(x, half), negated(second) if name == "sub" else second, mode), "f32", mode)

    count = min(len(a), len(b))
    check(f"{name}.{mode}.f32.{half} %x, %a, %b;", half, [a[:count], b[:count]], meaning, "f32")


@pytest.mark.parametrize("half", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_products_of_halves_are_added_to_a_float_and_rounded_once(mode: str, half: str) -> None:
    a, b, c = values(half, 1), values(half, 2), values("f32", 3)

    def meaning(x: int, y: int, z: int) -> int:
        return write(total(product(read(x, half), read(y, half)), read(z, "f32"), mode), "f32", mode)

    count = min(map(len, (a, b, c)))
    check(f"fma.{mode}.f32.{half} %x, %a, %b, %c;", half, [a[:count], b[:count], c[:count]], meaning, "f32")


def test_a_saturated_sum_lies_between_0_and_1() -> None:
    a, b = values("f16", 4), values("f32", 5)
    count = min(len(a), len(b))

    def meaning(x: int, y: int) -> int:
        return clamped(write(total(read(x, "f16"), read(y, "f32"), "rn"), "f32"))

    check("add.rn.sat.f32.f16 %x, %a, %b;", "f16", [a[:count], b[:count]], meaning, "f32")


@pytest.mark.parametrize(
    "line", ["mul.rn.f32.f16 %x, %a, %b;", "add.rn.f32.f64 %x, %a, %b;", "add.f64.f16 %x, %a, %b;"]
)
def test_mixtures_that_do_not_exist_are_refused(line: str) -> None:
    with pytest.raises(PtxError, match="PTX line"):
        instructions(line, [np.zeros(1, np.uint16), np.zeros(1, np.uint32)], "32")


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str) -> np.ndarray:
    """A * B + C, by one fused multiply-add after the other."""
    found = c.copy()
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            bits = int(c[i, j].view(np.uint64))
            for k in range(a.shape[1]):
                exact = total(Fraction(a[i, k]) * Fraction(b[k, j]), read(bits, "f64"), mode)
                bits = write(exact, "f64", mode)
            found[i, j] = np.uint64(bits).view(np.float64)
    return found


@pytest.mark.parametrize("mode", ["", "rn", "rz", "rm", "rp"])
def test_wmma_of_doubles_rounds_as_its_modifier_says(mode: str) -> None:
    """Thread t holds A[t / 4][t % 4] and B[t % 4][t / 4] of what wmma.load brings, wherever that is."""
    rounding = f".{mode}" if mode else ""
    text = f"""{HEADER}.visible .entry k(.param .u64 A, .param .u64 B, .param .u64 C) {{
    .reg .b64 %d<4>; .reg .f64 %f<5>; ld.param.u64 %d0, [A]; ld.param.u64 %d1, [B]; ld.param.u64 %d2, [C];
    wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {{%f0}}, [%d0];
    wmma.load.b.sync.aligned.row.m8n8k4.global.f64 {{%f1}}, [%d1], 8;
    wmma.load.c.sync.aligned.row.m8n8k4.global.f64 {{%f2, %f3}}, [%d2];
    wmma.mma.sync.aligned.row.row.m8n8k4.f64.f64.f64.f64{rounding} {{%f2, %f3}}, {{%f0}}, {{%f1}}, {{%f2, %f3}};
    wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%d2], {{%f2, %f3}}; ret; }}"""
    rng = np.random.default_rng(3)
    a, b, c = (
        rng.standard_normal(size) * 10.0 ** rng.integers(-3, 3, size) for size in ((8, 4), (4, 8), (8, 8))
    )
    found = c.copy()
    run_ptx(text, "k", 1, 32, a, b, found)
    assert (found.view(np.uint64) == fused(a, b, c, mode or "rn").view(np.uint64)).all()


@pytest.mark.parametrize("rows, depth", [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_mma_of_doubles_is_fused_multiply_adds(rows: int, depth: int) -> None:
    """Places as the manual has them: A and B by groups of four threads, C two neighbours to a thread."""
    rng = np.random.default_rng(4)
    a, b, c = (rng.standard_normal(size) for size in ((rows, depth), (depth, 8), (rows, 8)))
    count_a, count_b, count_c = rows * depth // 32, depth * 8 // 32, rows * 8 // 32
    parts = [np.zeros((32, count)) for count in (count_a, count_b, count_c)]
    for t in range(32):
        for i in range(count_a):
            parts[0][t, i] = a[(t >> 2) + 8 * (i % (rows // 8)), (t & 3) + 4 * (i // (rows // 8))]
        for i in range(count_b):
            parts[1][t, i] = b[(t & 3) + 4 * i, t >> 2]
        for i in range(count_c):
            parts[2][t, i] = c[(t >> 2) + 8 * (i // 2), (t & 3) * 2 + i % 2]
    lines = [HEADER, ".visible .entry k(.param .u64 A, .param .u64 B, .param .u64 C) {"]
    lines.append(
        ".reg .f64 %a<9>, %b<9>, %c<9>; .reg .b64 %at, %t; .reg .b32 %i; mov.u32 %i, %tid.x; cvt.u64.u32 %t, %i;"
    )
    names = []
    for letter, part in zip("abc", parts):
        names.append([f"%{letter}{i}" for i in range(part.shape[1])])
        lines.append(f"ld.param.u64 %at, [{letter.upper()}]; mad.lo.u64 %at, %t, {part.shape[1] * 8}, %at;")
        lines += [f"ld.global.f64 {name}, [%at+{8 * i}];" for i, name in enumerate(names[-1])]
    fragments = ["{" + ", ".join(one) + "}" for one in names]
    lines.append(
        f"mma.sync.aligned.m{rows}n8k{depth}.row.col.f64.f64.f64.f64 "
        f"{fragments[2]}, {fragments[0]}, {fragments[1]}, {fragments[2]};"
    )
    lines += [f"st.global.f64 [%at+{8 * i}], {name};" for i, name in enumerate(names[2])]
    run_ptx("\n".join([*lines, "ret; }"]), "k", 1, 32, *parts)
    expected = fused(a, b, c, "rn")
    for t in range(32):
        for i in range(count_c):
            assert parts[2][t, i] == expected[(t >> 2) + 8 * (i // 2), (t & 3) * 2 + i % 2]
