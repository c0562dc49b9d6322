"""Matrix and packed instructions: element by element where the documents say elements lie."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.hcq.emu.amd.shader.bench import GFX9, ISAS, run

Matrix = np.ndarray[Any, Any]


def bits_of(value: float, kind: str) -> int:
    """One element as it is packed."""
    if kind == "f16":
        return int(np.float16(value).view(np.uint16))
    if kind == "bf16":
        return int(np.float32(value).view(np.uint32)) >> 16
    if kind in ("f32", "xf32"):
        return int(np.float32(value).view(np.uint32))
    if kind == "f64":
        return int(np.float64(value).view(np.uint64))
    width = int(kind[-1])
    return int(value) & (1 << width) - 1


WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "xf32": 32, "f64": 64, "i8": 8, "iu8": 8, "iu4": 4}


def pack(registers: dict[int, Matrix], first: int, lane: int, element: int, value: float, kind: str) -> None:
    """Put an element of a lane into its registers."""
    width, bits = WIDTHS[kind], bits_of(value, kind)
    for part in range(max(1, width // 32)):
        at = element * width + 32 * part
        register = registers.setdefault(first + at // 32, np.zeros(64, np.uint64))
        register[lane] |= np.uint64(((bits >> 32 * part) & 0xFFFFFFFF) << at % 32)


def random_matrix(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Matrix:
    if kind in ("i8", "iu8"):
        return rng.integers(-128, 128, shape)
    if kind == "iu4":
        return rng.integers(-8, 8, shape)
    return rng.integers(-8, 9, shape) / 4.0  # exact in every format, so that sums are exact too


# -- WMMA -------------------------------------------------------------------------------------------------------------
WMMA = {
    "v_wmma_f32_16x16x16_f16": ("f16", "f32"),
    "v_wmma_f32_16x16x16_bf16": ("bf16", "f32"),
    "v_wmma_f16_16x16x16_f16": ("f16", "f16"),
    "v_wmma_bf16_16x16x16_bf16": ("bf16", "bf16"),
    "v_wmma_i32_16x16x16_iu8": ("iu8", "i32"),
    "v_wmma_i32_16x16x16_iu4": ("iu4", "i32"),
}


# how A and B are said to be signed; of integers the third bit, C's, means nothing: hipBLASLt sets it
SIGNS = [
    (name, {"neg_lo": neg} if neg else {})
    for name, (kind, _) in WMMA.items()
    for neg in ((3, 7) if kind.startswith("iu") else (0,))
]


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize(("name", "signs"), SIGNS)
def test_wmma_multiplies_matrices(name: str, signs: dict[str, int], size: int) -> None:
    in_kind, out_kind = WMMA[name]
    rng = np.random.default_rng(1)
    a, b = random_matrix(rng, (16, 16), in_kind), random_matrix(rng, (16, 16), in_kind)
    c = random_matrix(rng, (16, 16), "i8" if out_kind == "i32" else out_kind)
    registers: dict[int, Matrix] = {}
    for lane in range(size):
        for k in range(16):
            pack(registers, 0, lane, k, a[lane % 16, k], in_kind)
            pack(registers, 8, lane, k, b[k, lane % 16], in_kind)
    rows = size // 16
    kind = "f32" if out_kind == "i32" else out_kind
    for i in range(16):
        for j in range(16):
            register = registers.setdefault(16 + i // rows, np.zeros(64, np.uint64))
            value = int(c[i, j]) & 0xFFFFFFFF if out_kind == "i32" else bits_of(c[i, j], kind)
            register[j + 16 * (i % rows)] = value
    columns = {register: value[:size].astype(np.uint32) for register, value in registers.items()}
    out = run("gfx1100", name, "v32", "v0", "v8", "v16", v=columns, wave_size=size, fields=signs)
    expected = a @ b + c
    for i in range(16):
        for j in range(16):
            bits = int(out.u32[32 + i // rows, 0, j + 16 * (i % rows)])
            if out_kind == "i32":
                actual = float(np.uint32(bits).view(np.int32))
            elif out_kind == "f32":
                actual = float(np.uint32(bits).view(np.float32))
            elif out_kind == "f16":
                actual = float(np.uint16(bits & 0xFFFF).view(np.float16))
            else:
                actual = float(np.uint32(bits << 16).view(np.float32))
            exact = float(np.float16(expected[i, j])) if out_kind == "f16" else float(expected[i, j])
            if out_kind == "bf16":
                assert abs(actual - exact) <= abs(exact) / 256
            else:
                assert actual == exact, f"element ({i}, {j})"


# -- MFMA -------------------------------------------------------------------------------------------------------------
NAME = re.compile(r"v_mfma_(f32|f64|i32)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_(f16|bf16|f32|xf32|f64|i8)")
MFMA = [
    (arch, opcode.name)
    for arch, older in (("gfx942", ""), ("gfx950", "gfx942"))
    for one in ISAS[arch].formats
    for opcode in one.table.values()
    if one.name == "MAI"
    and NAME.fullmatch(opcode.name)
    and not (older and opcode.name in ISAS[older].by_name)
]
BLOCKS_90A = {  # gfx90a's names, and how many blocks each multiplies
    **dict.fromkeys(
        "f32_32x32x1f32 f32_32x32x4f16 i32_32x32x4i8 f32_32x32x2bf16 f32_32x32x4bf16_1k".split(), 2
    ),
    **dict.fromkeys(
        "f32_16x16x1f32 f32_16x16x4f16 i32_16x16x4i8 f32_16x16x2bf16 f32_16x16x4bf16_1k".split(), 4
    ),
    **dict.fromkeys("f32_4x4x1f32 f32_4x4x4f16 i32_4x4x4i8 f32_4x4x2bf16 f32_4x4x4bf16_1k".split(), 16),
    **dict.fromkeys(
        "f32_32x32x2f32 f32_32x32x8f16 i32_32x32x8i8 f32_32x32x4bf16 f32_32x32x8bf16_1k".split(), 1
    ),
    **dict.fromkeys(
        "f32_16x16x4f32 f32_16x16x16f16 i32_16x16x16i8 f32_16x16x8bf16 f32_16x16x16bf16_1k".split(), 1
    ),
    "f64_16x16x4f64": 1,
    "f64_4x4x4f64": 4,
}
MFMA += [("gfx90a", f"v_mfma_{name}") for name in BLOCKS_90A]
NAME_90A = re.compile(r"v_mfma_((f32|f64|i32)_(\d+)x(\d+)x(\d+)(f16|bf16|f32|f64|i8)(?:_1k)?)")


def shape_of(arch: str, name: str) -> tuple[str, str, int, int, int, int]:
    """(kind of the result, kind of the factors, m, n, k, blocks)"""
    match = (NAME_90A if arch == "gfx90a" else NAME).fullmatch(name)
    assert match is not None
    if arch == "gfx90a":
        return match[2], match[6], int(match[3]), int(match[4]), int(match[5]), BLOCKS_90A[match[1]]
    return match[1], match[6], int(match[2]), int(match[3]), int(match[4]), int(match[5] or 1)


def test_every_matrix_product_of_gfx90a_is_tried() -> None:
    table = next(one.table for one in ISAS["gfx90a"].formats if one.name == "MAI")
    assert {opcode.name for opcode in table.values() if "mfma" in opcode.name} == {
        f"v_mfma_{name}" for name in BLOCKS_90A
    }


def place_of(double: bool, m: int, block: int, i: int, j: int) -> tuple[int, int]:
    """(lane, register) of a result element; register pairs for doubles."""
    if double:
        return (j + 16 * (i % 4), i // 4) if m == 16 else (j + 4 * block + 16 * i, 0)
    if m == 32:
        return j + 32 * (i // 4 % 2), 16 * block + 4 * (i // 8) + i % 4
    if m == 16:
        return j + 16 * (i // 4), 4 * block + i % 4
    return j + 4 * block, i


@pytest.mark.parametrize("accumulators", [False, True])
@pytest.mark.parametrize(("arch", "name"), MFMA)
def test_mfma_multiplies_blocks_of_matrices(arch: str, name: str, accumulators: bool) -> None:
    out_kind, kind, m, n, k, blocks = shape_of(arch, name)
    rng = np.random.default_rng(2)
    a, b = random_matrix(rng, (blocks, m, k), kind), random_matrix(rng, (blocks, k, n), kind)
    c = random_matrix(rng, (blocks, m, n), "i8" if out_kind == "i32" else "f32")
    registers: dict[int, Matrix] = {}
    per_lane = m * k * blocks // 64
    for block in range(blocks):
        for kk in range(k):
            group = block + blocks * (kk // per_lane)
            for i in range(m):
                pack(registers, 0, i + m * group, kk % per_lane, a[block, i, kk], kind)
            for j in range(n):
                pack(registers, 8, j + n * group, kk % per_lane, b[block, kk, j], kind)
    double = out_kind == "f64"
    file = 256 if accumulators else 0  # where the accumulation registers begin
    for block in range(blocks):
        for i in range(m):
            for j in range(n):
                lane, register = place_of(double, m, block, i, j)
                value = c[block, i, j]
                if out_kind == "i32":
                    cell = registers.setdefault(file + 64 + register, np.zeros(64, np.uint64))
                    cell[lane] = int(value) & 0xFFFFFFFF
                else:
                    pack(registers, file + 64, lane, register, value, "f64" if double else "f32")
    columns = {register: value.astype(np.uint32) for register, value in registers.items()}
    fields = {"acc_cd": int(accumulators)}
    out = run(arch, name, "v128", "v0", "v8", "v64", v=columns, fields=fields)
    expected = a @ b + c
    for block in range(blocks):
        for i in range(m):
            for j in range(n):
                lane, register = place_of(double, m, block, i, j)
                if double:
                    words = out.u32[file + 128 + 2 * register : file + 130 + 2 * register, 0, lane]
                    actual = float(np.ascontiguousarray(words).view(np.float64)[0])
                elif out_kind == "f32":
                    actual = float(out.f32[file + 128 + register, 0, lane])
                else:
                    actual = float(out.i32[file + 128 + register, 0, lane])
                assert actual == expected[block, i, j], f"block {block}, element ({i}, {j})"


def test_accumulation_registers_are_read_and_written() -> None:
    b = run("gfx942", "v_accvgpr_write_b32", "a3", "v1", v={1: 77})
    assert (b.u32[256 + 3] == 77).all()
    b = run("gfx942", "v_accvgpr_read_b32", "v1", "a3", v={259: 78})
    assert (b.u32[1] == 78).all()
    b = run("gfx942", "v_accvgpr_mov_b32", "a1", "a3", v={259: 79})
    assert (b.u32[257] == 79).all()


# -- packed -----------------------------------------------------------------------------------------------------------
def halves(x: Matrix, kind: Any) -> Matrix:
    return np.ascontiguousarray(x).view(kind).reshape(-1, 2)


@pytest.mark.parametrize("arch", ISAS)
def test_packed_operations_choose_and_negate_halves(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    rng = np.random.default_rng(3)
    columns = [rng.standard_normal((size, 2)).astype(np.float16) for _ in range(3)]
    registers = {i: column.view(np.uint32)[:, 0] for i, column in enumerate(columns)}
    a, c, d = (column.astype(np.float64) for column in columns)
    fields = {"opsel": 0b001, "opsel_hi": 0b01, "opsel_hi2": 1, "neg_lo": 0b010, "neg_hi": 0b100}
    b = run(arch, "v_pk_fma_f16", "v4", "v0", "v1", "v2", fields=fields, v=registers)
    low = (a[:, 1] * -c[:, 0] + d[:, 0]).astype(np.float16)
    high = (a[:, 1] * c[:, 0] - d[:, 1]).astype(np.float16)
    assert np.array_equal(halves(b.u32[4, 0], np.float16), np.stack([low, high], axis=1))


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize(
    ("name", "kind", "meaning"),
    [
        ("v_pk_add_u16", np.uint16, lambda a, b: a + b),
        ("v_pk_sub_i16", np.int16, lambda a, b: a - b),
        ("v_pk_mul_lo_u16", np.uint16, lambda a, b: a * b),
        ("v_pk_min_i16", np.int16, np.minimum),
        ("v_pk_max_u16", np.uint16, np.maximum),
        ("v_pk_lshlrev_b16", np.uint16, lambda a, b: b << (a & 15)),
        ("v_pk_ashrrev_i16", np.int16, lambda a, b: b >> (a & 15)),
    ],
)
def test_packed_integers(arch: str, name: str, kind: Any, meaning: Any) -> None:
    size = 64 if arch in GFX9 else 32
    x, y = (np.random.default_rng(seed).integers(0, 2**32, size, dtype=np.uint32) for seed in (1, 2))
    b = run(arch, name, "v4", "v0", "v1", v={0: x, 1: y})
    assert np.array_equal(halves(b.u32[4, 0], kind), meaning(halves(x, kind), halves(y, kind)).astype(kind))


def test_mixed_precision_reads_halves_where_asked() -> None:
    x = np.random.default_rng(4).standard_normal((32, 2)).astype(np.float16)
    y = np.random.default_rng(5).standard_normal(32).astype(np.float32)
    registers = {0: x.view(np.uint32)[:, 0], 1: y.view(np.uint32)}
    # source 0: high half, absolute; source 1: float32; source 2: float32, negated
    fields = {"opsel": 1, "opsel_hi": 1, "opsel_hi2": 0, "neg_hi": 1, "neg_lo": 4}
    b = run("gfx1100", "v_fma_mix_f32", "v2", "v0", "v1", "v1", fields=fields, v=registers)
    expected = (np.abs(x[:, 1].astype(np.float64)) * y.astype(np.float64) - y).astype(np.float32)
    assert (b.f32[2, 0] == expected).all()
    b = run("gfx1100", "v_fma_mixhi_f16", "v2", "v0", "v1", "v1", fields=fields, v=registers | {2: 0x1234})
    assert (b.u32[2, 0] & 0xFFFF == 0x1234).all()
    assert (b.f16[2, 0, :, 1] == expected.astype(np.float16)).all()


def test_dot_products_of_bytes_follow_their_signs() -> None:
    x, y, z = (np.random.default_rng(seed).integers(0, 2**32, 32, dtype=np.uint32) for seed in (1, 2, 3))
    for neg in range(4):
        b = run(
            "gfx1100", "v_dot4_i32_iu8", "v4", "v0", "v1", "v2", fields={"neg_lo": neg}, v={0: x, 1: y, 2: z}
        )
        p = np.ascontiguousarray(x).view(np.int8 if neg & 1 else np.uint8).reshape(-1, 4).astype(np.int64)
        q = np.ascontiguousarray(y).view(np.int8 if neg & 2 else np.uint8).reshape(-1, 4).astype(np.int64)
        assert (b.u32[4, 0] == ((p * q).sum(axis=1) + z).astype(np.uint32)).all()


def test_pairs_of_float32_are_two_results() -> None:
    x = np.random.default_rng(6).standard_normal((4, 64)).astype(np.float32)
    registers = {i: x[i].view(np.uint32) for i in range(4)}
    b = run("gfx942", "v_pk_mul_f32", "v[8:9]", "v[0:1]", "v[2:3]", v=registers)
    assert (b.f32[8, 0] == x[0] * x[2]).all() and (b.f32[9, 0] == x[1] * x[3]).all()
    fields = {"opsel": 0b01, "opsel_hi": 0b01}
    b = run("gfx942", "v_pk_add_f32", "v[8:9]", "v[0:1]", "v[2:3]", fields=fields, v=registers)
    assert (b.f32[8, 0] == x[1] + x[2]).all() and (b.f32[9, 0] == x[1] + x[2]).all()
