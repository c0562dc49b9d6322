"""What gfx950 has and gfx942 has not: products of small floats with scales, conversions, transposing loads."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from hcq.emu.amd.shader.isa import Isa
from tests.hcq.emu.amd.shader.assembler import Assembler
from tests.hcq.emu.amd.shader.bench import ISAS, Numbers, run, run_words
from tests.hcq.emu.amd.shader.kernels import Loaded

ARCH = "gfx950"
ISA: Isa = ISAS[ARCH]
LANES = np.arange(64)
# number of the format, bits, mantissa bits, bias, largest code without its sign
FORMATS = {
    "fp8": (0, 8, 3, 7, 0x7E),
    "bf8": (1, 8, 2, 15, 0x7B),
    "fp6": (2, 6, 3, 1, 0x1F),
    "bf6": (3, 6, 2, 3, 0x1F),
    "fp4": (4, 4, 1, 1, 0x7),
}


def value_of(kind: str, code: int) -> float:
    """What a code stands for, by the definition of floats."""
    code = int(code)
    _, bits, mantissa, bias, largest = FORMATS[kind]
    size, sign = code & (1 << bits - 1) - 1, code >> bits - 1
    if size > largest:
        return math.nan if (kind, size) != ("bf8", 0x7C) else math.copysign(math.inf, -sign)
    exponent, low = size >> mantissa, size & (1 << mantissa) - 1
    number = math.ldexp(low, 1 - bias - mantissa)
    if exponent:
        number = math.ldexp(low + (1 << mantissa), exponent - bias - mantissa)
    return -number if sign else number


def finite_codes(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Numbers:
    _, bits, _, _, largest = FORMATS[kind]
    small = min(largest, (FORMATS[kind][3] + 2 << FORMATS[kind][2]) - 1)  # so that sums are exact
    codes = rng.integers(0, small + 1, shape) | rng.integers(0, 2, shape) << bits - 1
    return codes.astype(np.int64)


def packed(items: Numbers, bits: int) -> Numbers:
    """(item, lane) codes -> (register, lane) words, little end first."""
    count = len(items) * bits // 32
    words = np.zeros((count, items.shape[1]), np.uint32)
    for lane in range(items.shape[1]):
        whole = sum(int(item) << bits * number for number, item in enumerate(items[:, lane]))
        words[:, lane] = [whole >> 32 * number & 0xFFFFFFFF for number in range(count)]
    return words


def operand(codes: Numbers, bits: int) -> Numbers:
    """(row, k) codes of A -> (register, lane) words, where the ISA document says they lie."""
    rows, depth = codes.shape
    items = np.zeros((32, 64), np.int64)
    for lane in range(64):
        part = lane // rows
        for item in range(32):
            k = 32 * part + item
            if bits == 8:  # two stretches of 16
                k = depth // 2 * (item // 16) + 16 * part + item % 16
            items[item, lane] = codes[lane % rows, k]
    return packed(items, bits)


SHAPES = {"16x16x128": (16, 128), "32x32x64": (32, 64)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind_a", "kind_b"), list(itertools.product(FORMATS, FORMATS)))
def test_scaled_products_are_the_sums_of_scaled_blocks(shape: str, kind_a: str, kind_b: str) -> None:
    rows, depth = SHAPES[shape]
    rng = np.random.default_rng(7)
    codes = [finite_codes(rng, kind, (rows, depth)) for kind in (kind_a, kind_b)]
    registers = {}
    for first, kind, one in zip((0, 8), (kind_a, kind_b), codes):
        for number, row in enumerate(operand(one, FORMATS[kind][1])):
            registers[first + number] = row
    exponents = rng.integers(125, 130, (2, 64))
    chosen = (2, 1)  # bytes of the registers with the scales
    for index in range(2):
        other = rng.integers(0, 1 << 32, 64).astype(np.uint64)
        shift = np.uint64(8 * chosen[index])
        registers[80 + index] = (
            other & ~(np.uint64(0xFF) << shift) | exponents[index].astype(np.uint64) << shift
        )
    c = rng.integers(-8, 9, (rows, rows))
    for i, j in itertools.product(range(rows), range(rows)):
        lane, register = place(rows, i, j)
        registers.setdefault(16 + register, np.zeros(64, np.float32).view(np.uint32))[lane] = np.float32(
            c[i, j]
        ).view(np.uint32)
    values = [
        np.vectorize(lambda code, kind=kind: value_of(kind, code))(one)
        for kind, one in zip((kind_a, kind_b), codes)
    ]
    scales = [2.0 ** (exponents[index] - 127.0) for index in range(2)]
    expected = c.astype(np.float64)
    for block in range(depth // 32):
        a, b = (one[:, 32 * block : 32 * block + 32] for one in values)
        row_scales = [scale[np.arange(rows) + rows * block] for scale in scales]
        expected = expected + np.outer(*row_scales) * (a @ b.T)
    words = ISA.encode(
        f"v_mfma_scale_f32_{shape}_f8f6f4",
        vdst=48, src0=256, src1=264, src2=272, scale0=336, scale1=337,
        opsel=chosen[0] & 1 | (chosen[1] & 1) << 1, opsel_hi=chosen[0] >> 1 | chosen[1] >> 1 << 1,
        cbsz=FORMATS[kind_a][0], blgp=FORMATS[kind_b][0],
    )  # fmt: skip
    out = run_words(ARCH, words, v=registers)
    plain = run(ARCH, f"v_mfma_f32_{shape}_f8f6f4", "v48", "v0", "v8", "v16",
                fields={"cbsz": FORMATS[kind_a][0], "blgp": FORMATS[kind_b][0]}, v=registers)  # fmt: skip
    unscaled = c + values[0] @ values[1].T
    for i, j in itertools.product(range(rows), range(rows)):
        lane, register = place(rows, i, j)
        assert out.f32[48 + register, 0, lane] == np.float32(expected[i, j]), (i, j)
        assert plain.f32[48 + register, 0, lane] == np.float32(unscaled[i, j]), (i, j)


def place(rows: int, i: int, j: int) -> tuple[int, int]:
    """(lane, register) of a result."""
    return (j + 16 * (i // 4), i % 4) if rows == 16 else (j + 32 * (i // 4 % 2), 4 * (i // 8) + i % 4)


def test_a_scale_of_all_ones_makes_nan_of_its_block_alone() -> None:
    registers = {0: 0x22222222, 8: 0x22222222, 80: np.where(LANES == 3, 0xFF, 127), 81: 127}
    registers |= dict.fromkeys((1, 2, 3, 9, 10, 11), 0x22222222)
    words = ISA.encode("v_mfma_scale_f32_16x16x128_f8f6f4", vdst=48, src0=256, src1=264, src2=128,
                       scale0=336, scale1=337, cbsz=4, blgp=4)  # fmt: skip
    out = run_words(ARCH, words, v=registers)
    found = {
        (i, j): out.f32[48 + place(16, i, j)[1], 0, place(16, i, j)[0]] for i in range(16) for j in range(16)
    }
    assert all(math.isnan(x) == (i == 3) for (i, _), x in found.items())
    assert {x for (i, _), x in found.items() if i != 3} == {128.0}


SPARSE = [name for name in ISA.by_name if name.startswith("v_smfmac") and name not in ISAS["gfx942"].by_name]


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_products_spread_a_over_the_places_that_its_indices_say(name: str) -> None:
    _, _, out_kind, size, kind, *other = name.split("_")
    rows, _, depth = map(int, size.split("x"))
    kinds = [kind, other[0] if other else kind]
    bits = 16 if kind in ("f16", "bf16") else 8
    rng = np.random.default_rng(3)
    a, b = rng.integers(-2, 3, (rows, depth // 2)), rng.integers(-2, 3, (rows, depth))
    per_lane = depth // 2 * rows // 64
    registers: dict[int, Numbers] = {}
    positions = np.zeros((rows, depth // 2), np.int64)
    for row, pair in itertools.product(range(rows), range(depth // 4)):
        positions[row, 2 * pair : 2 * pair + 2] = sorted(rng.choice(4, 2, replace=False))
    index = np.zeros(64, np.uint64)
    items_a, items_b = np.zeros((per_lane, 64), np.int64), np.zeros((2 * per_lane, 64), np.int64)
    for lane in range(64):
        part, row = lane // rows, lane % rows
        for item in range(per_lane):
            k = per_lane * part + item
            items_a[item, lane] = code_of(kinds[0], int(a[row, k]))
            index[lane] |= np.uint64(int(positions[row, k]) << 2 * item)
        for item in range(2 * per_lane):
            k = depth // 2 * (item // per_lane) + per_lane * part + item % per_lane
            items_b[item, lane] = code_of(kinds[1], int(b[row, k]))
    for first, items in ((0, items_a), (8, items_b)):
        for number, word in enumerate(packed(items, bits)):
            registers[first + number] = word
    registers[60] = index
    out = run(ARCH, name, "v64", "v0", "v8", "v60", v=registers)
    dense = np.zeros((rows, depth), np.int64)
    for row, k in itertools.product(range(rows), range(depth // 2)):
        dense[row, 4 * (k // 2) + positions[row, k]] = a[row, k]
    expected = dense @ b.T
    for i, j in itertools.product(range(rows), range(rows)):
        lane, register = place(rows, i, j)
        cell = out.f32 if out_kind == "f32" else out.i32
        assert cell[64 + register, 0, lane] == expected[i, j], (i, j)


def code_of(kind: str, number: int) -> int:
    """A small integer as a number of a kind."""
    if kind == "i8":
        return number & 0xFF
    if kind == "f16":
        return int(np.float16(number).view(np.uint16))
    if kind == "bf16":
        return int(np.float32(number).view(np.uint32)) >> 16
    return next(code for code in range(256) if value_of(kind, code) == number)


# ------------------------------------------------------------ conversions


def nearest(kind: str, x: float) -> int:
    """The code that a number becomes, to nearest even, without its sign."""
    largest = FORMATS[kind][4]
    top = Fraction(value_of(kind, largest))
    size = Fraction(abs(x))
    beyond = top + (top - Fraction(value_of(kind, largest - 1))) / 2
    if size > beyond or (size == beyond and largest % 2):
        return {"fp8": 0x7F, "bf8": 0x7C}.get(kind, largest)
    return min(range(largest + 1), key=lambda code: (abs(Fraction(value_of(kind, code)) - size), code % 2))


NARROW = {
    "pk_fp8_f32": ("fp8", 2), "pk_bf8_f32": ("bf8", 2), "pk_fp4_f32": ("fp4", 2),
    "pk_fp8_f16": ("fp8", 2), "pk_bf8_bf16": ("bf8", 2), "pk_fp4_f16": ("fp4", 2),
    "pk32_fp6_f16": ("fp6", 32), "pk32_bf6_bf16": ("bf6", 32), "2xpk16_fp6_f32": ("fp6", 32),
    "2xpk16_bf6_f32": ("bf6", 32),
}  # fmt: skip


@pytest.mark.parametrize("name", NARROW)
def test_narrowing_divides_by_the_scale_and_rounds_to_nearest_even(name: str) -> None:
    kind, count = NARROW[name]
    wide = name.split("_")[-1]
    bits = FORMATS[kind][1]
    rng = np.random.default_rng(11)
    x = rng.standard_normal((count, 64)).astype(np.float32) * np.float32(2.0) ** rng.integers(
        -4, 8, (count, 64)
    )
    x = x.astype(np.float16).astype(np.float32)
    if wide == "bf16":
        x = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    exponent = 129
    registers: dict[int, Numbers] = {100: np.full(64, exponent << 23 | 0x1234)}
    operands = ["v0"]
    if wide == "f32":
        rows = x if count == 2 else np.concatenate((x[0::2], x[1::2]))
        for number, row in enumerate(rows):
            registers[number] = row.view(np.uint32)
        operands = ["v0", "v1" if count == 2 else "v16"]
    else:
        halves = (x.astype(np.float16).view(np.uint16) if wide == "f16" else x.view(np.uint32) >> 16).astype(
            np.uint32
        )
        for number in range(count // 2):
            registers[number] = halves[2 * number] | halves[2 * number + 1] << np.uint32(16)
    out = run(ARCH, f"v_cvt_scalef32_{name}", "v64", *operands, "v100", v=registers)
    words = out.u32[64 : 64 + max(1, count * bits // 32), 0]
    for lane in range(64):
        whole = sum(int(word) << 32 * number for number, word in enumerate(words[:, lane]))
        for number in range(count):
            code = whole >> bits * number & (1 << bits) - 1
            wanted = float(x[number, lane]) / 4.0
            assert code & (1 << bits - 1) - 1 == nearest(kind, wanted), (lane, number, wanted)
            assert code >> bits - 1 == (wanted < 0)


@pytest.mark.parametrize("kind", FORMATS)
def test_widening_multiplies_every_code_by_the_scale(kind: str) -> None:
    bits = FORMATS[kind][1]
    codes = (np.arange(32 * 64) % (1 << bits)).reshape(32, 64)
    scale = {100: np.full(64, 126 << 23)}
    if kind in ("fp6", "bf6"):
        registers = dict(enumerate(packed(codes, bits))) | scale
        out = run(ARCH, f"v_cvt_scalef32_pk32_f32_{kind}", "v64", "v0", "v100", v=registers)
        found = out.f32[64:96, 0]
    else:
        found = np.zeros((32, 64), np.float32)
        for number in range(0, 32, 2):
            word = codes[number] | codes[number + 1] << bits
            out = run(ARCH, f"v_cvt_scalef32_pk_f32_{kind}", "v64", "v0", "v100", v={0: word} | scale)
            found[number : number + 2] = out.f32[64:66, 0]
    wanted = np.vectorize(lambda code: value_of(kind, code))(codes) / 2
    assert np.array_equal(found, wanted.astype(np.float32), equal_nan=True)


RANDOM = ["v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32", "v_cvt_sr_f16_f32", "v_cvt_sr_bf16_f32"]


@pytest.mark.parametrize("name", RANDOM)
def test_a_stochastic_conversion_adds_the_seed_below_the_last_bit_and_truncates(name: str) -> None:
    kind = name.split("_")[3]
    mantissa = {"fp8": 3, "bf8": 2, "f16": 10, "bf16": 7}[kind]
    x = (1 + np.random.default_rng(5).random(64)).astype(np.float32)
    seeds = np.random.default_rng(6).integers(0, 1 << 32, 64)
    out = run(ARCH, name, "v2", "v0", "v1", v={0: x.view(np.uint32), 1: seeds, 2: 0xAAAAAAAA})
    for lane in range(64):
        bits = int(x[lane].view(np.uint32)) + (int(seeds[lane]) >> 32 - (23 - mantissa))
        wanted = float(np.uint32(bits >> 23 - mantissa << 23 - mantissa).view(np.float32))
        word = int(out.u32[2, 0, lane])
        if kind in FORMATS:
            assert (word >> 8 == 0xAAAAAA, value_of(kind, word & 0xFF)) == (True, wanted)
        elif kind == "f16":
            assert (word >> 16, float(np.uint16(word & 0xFFFF).view(np.float16))) == (0xAAAA, wanted)
        else:
            assert (word >> 16, float(np.uint32(word << 16 & 0xFFFF0000).view(np.float32))) == (
                0xAAAA,
                wanted,
            )


def test_the_random_bits_are_right_on_average_for_what_is_too_small_to_be_normal() -> None:
    x = np.full((64, 64), value_of("fp8", 1) * 0.25, np.float32)
    seeds = np.random.default_rng(8).integers(0, 1 << 32, (64, 64))
    out = run(ARCH, "v_cvt_sr_fp8_f32", "v2", "v0", "v1", v={0: x.view(np.uint32), 1: seeds}, waves=64)
    assert set(np.unique(out.u32[2] & 0xFF)) == {0, 1}
    assert abs(np.mean(out.u32[2] & 0xFF) - 0.25) < 0.03


def test_each_further_number_of_a_conversion_takes_the_next_random_number() -> None:
    seed = np.random.default_rng(9).integers(0, 1 << 32, 64)
    x = np.full(64, 1.125, np.float32).view(np.uint32)  # between 1 and 1.5
    after = run(ARCH, "v_prng_b32", "v1", "v0", v={0: seed}).u32[1, 0]
    assert after.tolist() == [(int(s) << 1 & 0xFFFFFFFF) ^ (0xC5 if s >> 31 else 0) for s in seed]
    one = run(
        ARCH,
        "v_cvt_scalef32_sr_pk_fp4_f32",
        "v9",
        "v[0:1]",
        "v2",
        "v3",
        v={0: x, 1: x, 2: seed, 3: 127 << 23},
    )
    for lane in range(64):
        for number, bits in enumerate((int(seed[lane]), int(after[lane]))):
            wanted = 1.5 if 0.25 + (bits >> 10) / (1 << 22) >= 1 else 1.0
            assert value_of("fp4", int(one.u32[9, 0, lane]) >> 4 * number & 0xF) == wanted


# ------------------------------------------------------------ lanes, bits, LDS


@pytest.mark.parametrize("table", [0x00, 0x27, 0x96, 0xE8, 0xFF])
@pytest.mark.parametrize("width", [16, 32])
def test_a_truth_table_gives_each_bit(table: int, width: int) -> None:
    rng = np.random.default_rng(table)
    a, b, c, old = (rng.integers(0, 1 << 32, 64) for _ in range(4))
    fields = {"omod": table >> 6, "abs": table >> 3 & 7, "neg": table & 7}
    out = run(ARCH, f"v_bitop3_b{width}", "v3", "v0", "v1", "v2", fields=fields, v={0: a, 1: b, 2: c, 3: old})
    for lane in range(64):
        word = int(old[lane]) if width == 16 else 0
        for bit in range(width):
            row = (int(a[lane]) >> bit & 1) << 2 | (int(b[lane]) >> bit & 1) << 1 | int(c[lane]) >> bit & 1
            word = word & ~(1 << bit) | (table >> row & 1) << bit
        assert int(out.u32[3, 0, lane]) == word


@pytest.mark.parametrize("row", [16, 32])
def test_swaps_exchange_odd_rows_of_one_with_even_rows_of_the_other(row: int) -> None:
    first, second = LANES + 100, LANES + 200
    out = run(ARCH, f"v_permlane{row}_swap_b32", "v0", "v1", v={0: first, 1: second})
    wanted_first = np.where(LANES & row, np.roll(second, row), first)
    wanted_second = np.where(LANES & row, second, np.roll(first, -row))
    assert (out.u32[0, 0].tolist(), out.u32[1, 0].tolist()) == (wanted_first.tolist(), wanted_second.tolist())


def test_shifted_pairs_saturate_and_keep_the_other_half() -> None:
    a, b = np.array([300, -300, 5, -5] * 16), np.array([1 << 20, -1, 127 << 1, -128 << 1] * 16)
    registers = {0: a & 0xFFFFFFFF, 1: b & 0xFFFFFFFF, 2: 1, 3: 0xBEEF0000}
    out = run(ARCH, "v_ashr_pk_i8_i32", "v3", "v0", "v1", "v2", v=registers).u32[3, 0]
    for lane in range(64):
        low, high = (max(-128, min(127, int(x[lane]) >> 1)) & 0xFF for x in (a, b))
        assert int(out[lane]) == 0xBEEF0000 | high << 8 | low


@pytest.mark.parametrize("bits", [4, 6, 8, 16])
def test_a_transposing_load_gives_each_lane_a_column_of_the_tile_of_its_sixteen(bits: int) -> None:
    total = 96 if bits == 6 else 64
    count = total // bits  # rows of the tile
    rng = np.random.default_rng(bits)
    tiles = rng.integers(0, 1 << bits, (4, count, 16))  # (sixteen lanes, row, column)
    lds = np.zeros((64, 4), np.uint32)
    for lane in range(64):
        flat = tiles[lane // 16].reshape(-1)[lane % 16 * count : (lane % 16 + 1) * count]
        whole = sum(int(item) << bits * number for number, item in enumerate(flat))
        lds[lane] = [whole >> 32 * number & 0xFFFFFFFF for number in range(4)]
    code = Assembler(ISA)
    for number in range(total // 32):
        code("ds_write_b32", "v0", f"v{10 + number}", offset0=4 * number)
    code(f"ds_read_b{total}_tr_b{bits}", f"v[20:{19 + total // 32}]", "v0")
    registers = {0: 16 * LANES} | {10 + number: lds[:, number] for number in range(4)}
    out = run_words(ARCH, code.words, v=registers, lds_bytes=1024).u32[20:23, 0]
    for lane in range(64):
        whole = sum(int(word) << 32 * number for number, word in enumerate(out[:, lane]))
        column = [whole >> bits * number & (1 << bits) - 1 for number in range(count)]
        assert column == tiles[lane // 16][:, lane % 16].tolist(), lane


KERNEL = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare <2 x i32> @llvm.amdgcn.permlane32.swap(i32, i32, i1, i1)
declare <4 x float> @llvm.amdgcn.mfma.scale.f32.16x16x128.f8f6f4.v8i32.v8i32(
    <8 x i32>, <8 x i32>, <4 x float>, i32, i32, i32, i32, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %a, ptr addrspace(1) %b) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr <8 x i32>, ptr addrspace(1) %a, i32 %t
  %x = load <8 x i32>, ptr addrspace(1) %pa
  %pb = getelementptr <8 x i32>, ptr addrspace(1) %b, i32 %t
  %y = load <8 x i32>, ptr addrspace(1) %pb
  %d = call <4 x float> @llvm.amdgcn.mfma.scale.f32.16x16x128.f8f6f4.v8i32.v8i32(
      <8 x i32> %x, <8 x i32> %y, <4 x float> zeroinitializer, i32 0, i32 1, i32 0, i32 128, i32 0, i32 127)
  %po = getelementptr <4 x float>, ptr addrspace(1) %out, i32 %t
  store <4 x float> %d, ptr addrspace(1) %po
  ret void
}
"""


def test_what_llvm_makes_of_a_scaled_product_runs() -> None:
    rng = np.random.default_rng(1)
    a, b = finite_codes(rng, "fp8", (16, 128)), finite_codes(rng, "bf8", (16, 128))
    out = np.zeros((64, 4), np.float32)
    left, right = (np.ascontiguousarray(operand(one, 8).T) for one in (a, b))
    Loaded(KERNEL, ARCH).run("k", [out, left, right], block=(64, 1, 1))
    values = [
        np.vectorize(lambda code, kind=kind: value_of(kind, code))(one)
        for kind, one in (("fp8", a), ("bf8", b))
    ]
    product = 2 * values[0] @ values[1].T
    for i, j in itertools.product(range(16), range(16)):
        lane, register = place(16, i, j)
        assert out[lane, register] == np.float32(product[i, j])
