"""Instructions of graphics and video, clamped sums, dot products by halves, and float64 products in all roundings."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.hcq.emu.amd.shader.bench import GFX9, ISAS, Numbers, run, words32

by_arch = pytest.mark.parametrize("arch", ISAS)


def lanes_of(arch: str) -> int:
    return 64 if arch in GFX9 else 32


@by_arch
def test_a_cube_map_takes_the_face_of_the_largest_coordinate(arch: str) -> None:
    size = lanes_of(arch)
    rng = np.random.default_rng(1)
    x, y, z = (rng.integers(-3, 4, size).astype(np.float32) for _ in range(3))
    registers = {n: one.view(np.uint32) for n, one in enumerate((x, y, z))}
    found = {
        part: run(arch, f"v_cube{part}_f32", "v3", "v0", "v1", "v2", v=registers).f32[3, 0]
        for part in ("id", "sc", "tc", "ma")
    }
    for lane in range(size):
        a, b, c = float(x[lane]), float(y[lane]), float(z[lane])
        if abs(c) >= abs(a) and abs(c) >= abs(b):
            wanted = (5, -a, -b, 2 * c) if c < 0 else (4, a, -b, 2 * c)
        elif abs(b) >= abs(a):
            wanted = (3, a, -c, 2 * b) if b < 0 else (2, a, c, 2 * b)
        else:
            wanted = (1, c, -b, 2 * a) if a < 0 else (0, -c, -b, 2 * a)
        assert tuple(float(found[part][lane]) for part in ("id", "sc", "tc", "ma")) == wanted


def distance(window: int, reference: int, masked: bool) -> int:
    """The sum of the distances of four bytes."""
    total = 0
    for place in range(0, 32, 8):
        a, b = window >> place & 255, reference >> place & 255
        total += 0 if masked and b == 0 else abs(a - b)
    return total


@by_arch
def test_distances_at_four_places_are_those_of_four_windows(arch: str) -> None:
    size = lanes_of(arch)
    rng = np.random.default_rng(2)
    registers: dict[int, Numbers] = {n: rng.integers(0, 1 << 32, size) for n in range(7)}
    registers[2] &= 0x00FFFF00  # of the reference, bytes that masked ones leave out
    for name, masked in (("v_qsad_pk_u16_u8", False), ("v_mqsad_pk_u16_u8", True)):
        out = run(arch, name, "v[8:9]", "v[0:1]", "v2", "v[4:5]", v=registers).u32
        for lane in range(size):
            whole = int(registers[0][lane]) | int(registers[1][lane]) << 32
            added = int(registers[4][lane]) | int(registers[5][lane]) << 32
            got = int(out[8, 0, lane]) | int(out[9, 0, lane]) << 32
            for place in range(4):
                total = distance(whole >> 8 * place, int(registers[2][lane]), masked)
                wanted = total + (added >> 16 * place & 0xFFFF) & 0xFFFF
                assert got >> 16 * place & 0xFFFF == wanted
    out = run(arch, "v_mqsad_u32_u8", "v[8:11]", "v[0:1]", "v2", "v[3:6]", v=registers).u32
    for lane in range(size):
        whole = int(registers[0][lane]) | int(registers[1][lane]) << 32
        for place in range(4):
            total = distance(whole >> 8 * place, int(registers[2][lane]), True)
            assert out[8 + place, 0, lane] == total + int(registers[3 + place][lane]) & 0xFFFFFFFF


def test_two_registers_that_m0_moves_change_places() -> None:
    registers = {n: np.arange(32) + 100 * n for n in range(8)}
    out = run(
        "gfx1100",
        "v_swaprel_b32",
        "v1",
        "v2",
        v=registers,
        s={125: 3 << 16 | 4},
        lanes=np.arange(32) % 2 == 0,
    )
    for lane in range(32):
        wanted = (600 + lane, 400 + lane) if lane % 2 == 0 else (400 + lane, 600 + lane)
        assert (out.u32[4, 0, lane], out.u32[6, 0, lane]) == wanted


@by_arch
@pytest.mark.parametrize("verb", ["add", "sub"])
def test_a_clamped_sum_with_carry_stops_at_the_end(arch: str, verb: str) -> None:
    size = lanes_of(arch)
    a, b = words32(3, size), words32(4, size)
    name = f"v_{verb}_co_u32"
    mask = "s[4:5]" if size == 64 else "s4"
    out = run(arch, name, "v2", mask, "v0", "v1", form="VOP3SD", fields={"clamp": 1}, v={0: a, 1: b}).u32[
        2, 0
    ]
    for lane in range(size):
        total = int(a[lane]) + int(b[lane]) if verb == "add" else int(a[lane]) - int(b[lane])
        assert out[lane] == max(0, min(total, 0xFFFFFFFF))


@by_arch
def test_a_clamped_distance_stops_at_the_end(arch: str) -> None:
    registers = {0: 0xFFFFFFFF, 1: 0, 2: 5}
    assert (run(arch, "v_sad_u32", "v3", "v0", "v1", "v2", v=registers).u32[3] == 4).all()
    out = run(arch, "v_sad_u32", "v3", "v0", "v1", "v2", fields={"clamp": 1}, v=registers).u32[3]
    assert (out == 0xFFFFFFFF).all()


@pytest.mark.parametrize(
    ("arch", "kind"), [("gfx942", "f16"), ("gfx950", "bf16"), ("gfx1100", "f16"), ("gfx1201", "bf16")]
)
@pytest.mark.parametrize("chosen", [(0, 3), (1, 0), (2, 1), (3, 2)])
@pytest.mark.parametrize("signs", [(0, 0), (1, 2), (3, 1)])
def test_a_dot_product_takes_the_halves_and_signs_that_it_names(
    arch: str, kind: str, chosen: tuple[int, int], signs: tuple[int, int]
) -> None:
    size = lanes_of(arch)
    rng = np.random.default_rng(7)
    halves = rng.integers(-8, 9, (2, 2, size)).astype(np.float32)  # (operand, half, lane)
    bits = halves.astype(np.float16).view(np.uint16) if kind == "f16" else halves.view(np.uint32) >> 16
    words = bits.astype(np.uint32)
    registers = {n: words[n, 0] | words[n, 1] << 16 for n in range(2)} | {2: np.float32(3).view(np.uint32)}
    fields = {"opsel": chosen[0], "opsel_hi": chosen[1], "neg_lo": signs[0], "neg_hi": signs[1]}
    out = run(arch, f"v_dot2_f32_{kind}", "v3", "v0", "v1", "v2", fields=fields, v=registers).f32[3, 0]
    for lane in range(size):
        low, high = ([halves[n, pick >> n & 1, lane] for n in range(2)] for pick in chosen)
        for pair, sign in ((low, signs[0]), (high, signs[1])):
            for n in range(2):
                pair[n] = -pair[n] if sign >> n & 1 else pair[n]
        assert out[lane] == low[0] * low[1] + high[0] * high[1] + 3


NEAREST, UP, DOWN, ZERO = range(4)


@by_arch
@pytest.mark.parametrize("rounding", [UP, DOWN, ZERO])
def test_a_fused_product_of_float64_is_rounded_as_the_mode_says(arch: str, rounding: int) -> None:
    size = lanes_of(arch)
    rng = np.random.default_rng(5)
    a, b, c = (rng.standard_normal(size) * 10.0 ** rng.integers(-20, 20, size) for _ in range(3))
    a[0], b[0], c[0] = 1e300, 1e300, 1.0
    registers: dict[int, Numbers] = {}
    for n, one in enumerate((a, b, c)):
        pairs = one.view(np.uint32).reshape(-1, 2)
        registers |= {2 * n: pairs[:, 0], 2 * n + 1: pairs[:, 1]}
    mode = 0x3F0 | rounding << 2
    out = run(arch, "v_fma_f64", "v[6:7]", "v[0:1]", "v[2:3]", "v[4:5]", v=registers, mode=mode).u32[6:8, 0]
    found = np.ascontiguousarray(out.T).view(np.float64)[:, 0]
    assert found[0] == (np.inf if rounding == UP else np.finfo(np.float64).max)
    for lane in range(1, size):
        exact = Fraction(a[lane]) * Fraction(b[lane]) + Fraction(c[lane])
        got = Fraction(found[lane])
        toward = {UP: got >= exact, DOWN: got <= exact, ZERO: abs(got) <= abs(exact)}[rounding]
        next_one = np.nextafter(
            found[lane], {UP: -np.inf, DOWN: np.inf, ZERO: np.inf * np.sign(found[lane])}[rounding]
        )
        beyond = Fraction(next_one)
        passed = {UP: beyond < exact, DOWN: beyond > exact, ZERO: abs(beyond) > abs(exact)}[rounding]
        assert toward and (passed or got == exact)


@pytest.mark.parametrize("arch", sorted(GFX9))
def test_a_part_of_the_screen_concerns_shader_engines_by_a_table(arch: str) -> None:
    """Only the lowest eight bits count."""
    registers = {0: np.arange(64) * 4 + 1 + (np.arange(64) << 8)}
    found = run(arch, "v_screen_partition_4se_b32", "v1", "v0", v=registers).u32[1, 0]
    assert [int(found[row]) for row in (0, 4, 12, 20, 24, 63)] == [0x3, 0x2, 0xB, 0xF, 0xF, 0xD]
    assert set(map(int, found)) <= set(range(1, 16))
