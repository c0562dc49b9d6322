"""What is new in gfx12: scalar floats, split barriers, narrow scalar loads, spread matrices, byte floats of the OCP."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np
import pytest

from hcq.emu.amd.shader.errors import OutOfBudget
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.amd.shader.rdna4 import RDNA4
from hcq.emu.amd.shader.run import ShaderCore, run_dispatch
from hcq.emu.amd.shader.wave_start import Launch
from hcq.emu.shader.small_floats import E4M3 as OCP_FP8
from hcq.emu.shader.small_floats import E5M2 as OCP_BF8
from tests.hcq.emu.amd.shader.assembler import Assembler, assemble
from tests.hcq.emu.amd.shader.bench import Numbers, floats32, run, run_words
from tests.hcq.emu.amd.shader.test_matrix_ops import pack, random_matrix

ARCH = "gfx1201"


def f32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def f16(value: float) -> int:
    return int(np.float16(value).view(np.uint16))


def as_f32(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))


# ------------------------------------------------------------ scalar floats

TWO: dict[str, Callable[[np.float32, np.float32], float]] = {
    "s_add_f32": lambda a, b: a + b,
    "s_sub_f32": lambda a, b: a - b,
    "s_mul_f32": lambda a, b: a * b,
    "s_min_num_f32": lambda a, b: b if math.isnan(a) else a if math.isnan(b) else min(a, b),
    "s_max_num_f32": lambda a, b: b if math.isnan(a) else a if math.isnan(b) else max(a, b),
    "s_minimum_f32": lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else min(a, b),
    "s_maximum_f32": lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else max(a, b),
}


@pytest.mark.parametrize("name", TWO)
def test_scalar_floats_are_computed_and_rounded_like_vectors(name: str) -> None:
    first, second = floats32(1, 40), floats32(2, 40)
    for a, b in zip(first, second):
        out = run(ARCH, name, "s2", "s0", "s1", s={0: f32(a), 1: f32(b)})
        with np.errstate(all="ignore"):
            expected = np.float32(TWO[name](a, b))
        actual = as_f32(int(out.s[0, 2]))
        assert actual == expected or (math.isnan(actual) and math.isnan(expected)), (a, b)


ONE: dict[str, Callable[[float], float]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "rndne": lambda x: float(np.rint(x)),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("value", [2.5, -2.5, 3.5, 0.25, -0.75, 100.0])
def test_scalar_floats_are_made_whole(name: str, value: float) -> None:
    wide = run(ARCH, f"s_{name}_f32", "s2", "s0", s={0: f32(value)})
    assert as_f32(int(wide.s[0, 2])) == ONE[name](value)
    narrow = run(ARCH, f"s_{name}_f16", "s2", "s0", s={0: f16(value) | 0xABCD0000})
    assert int(narrow.s[0, 2]) == f16(math.copysign(ONE[name](value), value))  # the high half is zero


def test_scalar_multiply_and_add_keeps_or_takes_a_literal() -> None:
    b = run(ARCH, "s_fmac_f32", "s2", "s0", "s1", s={0: f32(3.0), 1: f32(4.0), 2: f32(5.0)})
    assert as_f32(int(b.s[0, 2])) == 17.0
    b = run(ARCH, "s_fmaak_f32", "s2", "s0", "s1", 0.125, s={0: f32(3.0), 1: f32(4.0)})
    assert as_f32(int(b.s[0, 2])) == 12.125
    b = run(ARCH, "s_fmamk_f32", "s2", "s0", 0.125, "s1", s={0: f32(3.0), 1: f32(4.0)})
    assert as_f32(int(b.s[0, 2])) == 4.375
    b = run(ARCH, "s_add_f16", "s2", "s0", 0.5, s={0: f16(1.5)})
    assert int(b.s[0, 2]) == f16(2.0)


def test_scalar_conversions() -> None:
    for name, source, expected in [
        ("s_cvt_f32_i32", 0xFFFFFFFD, f32(-3.0)),
        ("s_cvt_f32_u32", 0xFFFFFFFD, f32(4294967293.0)),
        ("s_cvt_i32_f32", f32(-3.9), 0xFFFFFFFD),
        ("s_cvt_u32_f32", f32(-3.9), 0),
        ("s_cvt_f16_f32", f32(1.5), f16(1.5)),
        ("s_cvt_f32_f16", f16(1.5) | 0x7BFF0000, f32(1.5)),
        ("s_cvt_hi_f32_f16", f16(1.5) << 16 | 0x7BFF, f32(1.5)),
    ]:
        assert int(run(ARCH, name, "s2", "s0", s={0: source}).s[0, 2]) == expected, name
    b = run(ARCH, "s_cvt_pk_rtz_f16_f32", "s2", "s0", "s1", s={0: f32(1.0 + 2**-11), 1: f32(-2.0)})
    assert int(b.s[0, 2]) == f16(1.0) | f16(-2.0) << 16


@pytest.mark.parametrize(
    ("test", "decide"),
    [
        ("lt", lambda a, b: a < b),
        ("eq", lambda a, b: a == b),
        ("le", lambda a, b: a <= b),
        ("gt", lambda a, b: a > b),
        ("lg", lambda a, b: a < b or a > b),
        ("ge", lambda a, b: a >= b),
        ("o", lambda a, b: not (math.isnan(a) or math.isnan(b))),
        ("u", lambda a, b: math.isnan(a) or math.isnan(b)),
        ("nge", lambda a, b: not a >= b),
        ("nlg", lambda a, b: not (a < b or a > b)),
        ("ngt", lambda a, b: not a > b),
        ("nle", lambda a, b: not a <= b),
        ("neq", lambda a, b: a != b),
        ("nlt", lambda a, b: not a < b),
    ],
)
def test_scalar_comparisons_of_floats_set_scc(test: str, decide: Callable[[float, float], bool]) -> None:
    for a, b in [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (math.nan, 1.0), (1.0, math.nan), (-0.0, 0.0)]:
        for kind, bits in (("f32", f32), ("f16", f16)):
            out = run(ARCH, f"s_cmp_{test}_{kind}", "s0", "s1", s={0: bits(a), 1: bits(b)})
            assert bool(out.scc[0]) == decide(a, b), (a, b, kind)


def test_transcendentals_of_scalars() -> None:
    for name, value, expected in [
        ("exp", 3.0, 8.0),
        ("log", 8.0, 3.0),
        ("rcp", 4.0, 0.25),
        ("sqrt", 9.0, 3.0),
    ]:
        b = run(ARCH, f"v_s_{name}_f32", "s2", "s0", s={0: f32(value)})
        assert as_f32(int(b.s[0, 2])) == expected
        b = run(ARCH, f"v_s_{name}_f16", "s2", "s0", s={0: f16(value), 2: 0xFFFFFFFF})
        assert int(b.s[0, 2]) == f16(expected)


def test_64_bit_scalar_sums_and_products_wrap() -> None:
    a, c = 0xFFFFFFFF_00000003, 0x00000002_80000001
    state = {0: a & 0xFFFFFFFF, 1: a >> 32, 2: c & 0xFFFFFFFF, 3: c >> 32}
    for name, expected in (("s_add_nc_u64", a + c), ("s_sub_nc_u64", a - c), ("s_mul_u64", a * c)):
        b = run(ARCH, name, "s[4:5]", "s[0:1]", "s[2:3]", s=state)
        assert int(b.s[0, 4]) | int(b.s[0, 5]) << 32 == expected & (1 << 64) - 1, name


# ------------------------------------------------------------ minimum and maximum


def test_minimum_spreads_nans_and_min_num_drops_them() -> None:
    x, y = np.array([math.nan, 1.0, -0.0, 0.0], np.float32), np.array([2.0, math.nan, 0.0, -0.0], np.float32)
    registers = {0: np.resize(x, 32).view(np.uint32), 1: np.resize(y, 32).view(np.uint32)}
    spread = run(ARCH, "v_minimum_f32", "v2", "v0", "v1", v=registers).f32[2, 0, :4]
    assert np.isnan(spread[:2]).all()
    assert np.signbit(spread[2:]).all()
    dropped = run(ARCH, "v_max_num_f32", "v2", "v0", "v1", v=registers).f32[2, 0, :4]
    assert dropped[:2].tolist() == [2.0, 1.0]
    assert not np.signbit(dropped[2:]).any()
    three = run(ARCH, "v_maximumminimum_f32", "v2", "v0", "v1", 0.5, v=registers).f32[2, 0, :4]
    assert np.isnan(three[:2]).all()
    assert three[2:].tolist() == [0.0, 0.0]


# ------------------------------------------------------------ byte floats


def test_byte_floats_are_those_of_the_open_compute_project() -> None:
    assert OCP_FP8.values[0x7E] == 448.0 and np.isnan(OCP_FP8.values[0x7F]) and OCP_FP8.values[1] == 2.0**-9
    assert (
        OCP_BF8.values[0x7B] == 57344.0 and OCP_BF8.values[0x7C] == np.inf and OCP_BF8.values[1] == 2.0**-16
    )
    for kind, table in (("fp8", OCP_FP8), ("bf8", OCP_BF8)):
        codes = np.arange(256, dtype=np.uint32)
        for start in range(0, 256, 32):
            wide = run(ARCH, f"v_cvt_f32_{kind}", "v1", "v0", v={0: codes[start : start + 32]}).f32[1, 0]
            assert np.array_equal(wide, table.values[start : start + 32], equal_nan=True)
            back = run(
                ARCH, f"v_cvt_pk_{kind}_f32", "v2", "v0", "v0", v={0: wide.view(np.uint32)}, form="VOP3"
            ).u16[2, 0, :, 0]
            numbers = ~np.isnan(wide)
            assert ((back & 255) == codes[start : start + 32])[numbers].all()
    big = np.full(32, 1e6, np.float32).view(np.uint32)
    assert int(run(ARCH, "v_cvt_pk_fp8_f32", "v2", "v0", "v0", v={0: big}).u16[2, 0, 0, 0]) == 0x7F7F
    assert int(run(ARCH, "v_cvt_pk_bf8_f32", "v2", "v0", "v0", v={0: big}).u16[2, 0, 0, 0]) == 0x7C7C


# ------------------------------------------------------------ memory


@pytest.mark.parametrize(
    ("name", "expected"),
    [("s_load_u8", 0x81), ("s_load_i8", 0xFFFFFF81), ("s_load_u16", 0x8281), ("s_load_i16", 0xFFFF8281)],
)
def test_narrow_scalar_loads_extend(name: str, expected: int) -> None:
    memory = AddressSpace()
    memory.map(0x5000, bytearray(b"\x11\x22\x81\x82\x33\x44\x55\x66"), name="data")
    words = RDNA4.encode(name, sdata=4, sbase=1, offset=2)
    assert int(run_words(ARCH, words, s={2: 0x5000, 3: 0}, memory=memory).s[0, 4]) == expected


def test_offsets_have_24_bits_with_a_sign() -> None:
    memory = AddressSpace()
    memory.map(0x800000, bytearray(struct.pack("<I", 77)), name="data")
    words = RDNA4.encode("global_load_b32", vdst=2, addr=0, saddr=2, offset=0x1000000 - 0x100000)
    b = run_words(ARCH, words, v={0: 0}, s={2: 0x900000, 3: 0}, memory=memory)
    assert (b.u32[2] == 77).all()


# ------------------------------------------------------------ barriers

SIGNAL = 193  # the inline constant -1: the workgroup's barrier


def program(*parts: tuple[int, ...]) -> tuple[ShaderCore, AddressSpace]:
    memory = AddressSpace()
    words = [word for part in parts for word in part]
    memory.map(0x1000, bytearray(struct.pack(f"<{len(words)}I", *words)), name="code")
    return ShaderCore(RDNA4, memory), memory


def test_a_wave_goes_on_between_signal_and_wait_and_no_further() -> None:
    """Wave 0 writes, signals, and waits; wave 1 signals first, spins on what wave 0 writes, and only then waits."""
    make = Assembler(RDNA4)
    make("v_readfirstlane_b32", "s4", "v0")  # 0 in wave 0, 32 in wave 1
    make("v_mov_b32", "v1", 0)
    make("v_mov_b32", "v2", 1)
    make("s_cmp_eq_u32", "s4", 0)
    first_wave = len(make.words)
    make("s_cbranch_scc1", 0)
    make.words += RDNA4.encode("s_barrier_signal", ssrc0=SIGNAL)
    loop = len(make.words)
    make.words += RDNA4.encode("global_load_b32", vdst=3, addr=1, saddr=0)
    make("v_readfirstlane_b32", "s5", "v3")
    make("s_cmp_eq_u32", "s5", 0)
    make("s_cbranch_scc1", loop - len(make.words) - 1)
    make("s_barrier_wait", -1)
    make("s_endpgm", 0)
    make.words[first_wave] |= len(make.words) - first_wave - 1
    make.words += RDNA4.encode("global_store_b32", data=2, addr=1, saddr=0)
    make.words += RDNA4.encode("s_barrier_signal", ssrc0=SIGNAL)
    make("s_barrier_wait", -1)
    make.words += RDNA4.encode("global_store_b32", data=2, addr=1, saddr=0, offset=4)
    make("s_endpgm", 0)
    machine, memory = program(tuple(make.words))
    cells = np.zeros(2, np.uint32)
    memory.map(0x9000, cells, name="cells")
    launch = Launch(0x1000, 32, vgprs=8, user_sgprs=(0x9000, 0), user_sgpr_count=2, ids_in_ttmp=True)
    run_dispatch(machine, launch, (1, 1, 1), (64, 1, 1), budget=100_000)
    assert cells.tolist() == [1, 1]


def test_the_first_wave_at_a_barrier_can_ask_whether_it_is() -> None:
    make = Assembler(RDNA4)
    make.words += RDNA4.encode("s_barrier_signal_isfirst", ssrc0=SIGNAL)
    make("s_cselect_b32", "s4", 1, 0)
    make("s_barrier_wait", -1)
    make("v_mov_b32", "v1", 0)
    make("v_mov_b32", "v2", "s4")
    make("s_mov_b64", "exec", 1)
    make.words += RDNA4.encode("global_atomic_add_u32", data=2, addr=1, saddr=0)
    make("s_endpgm", 0)
    machine, memory = program(tuple(make.words))
    cell = np.zeros(1, np.uint32)
    memory.map(0x9000, cell, name="cell")
    launch = Launch(0x1000, 32, vgprs=8, user_sgprs=(0x9000, 0), user_sgpr_count=2, ids_in_ttmp=True)
    run_dispatch(machine, launch, (3, 1, 1), (128, 1, 1))
    assert cell[0] == 3  # one wave of each of the three workgroups


def test_a_wave_can_ask_how_many_have_come_to_the_barrier() -> None:
    """Wave 1 signals and waits. Wave 0 goes round until it sees that, stores the state, and comes, too."""
    make = Assembler(RDNA4)
    make("v_readfirstlane_b32", "s4", "v0")
    make("v_mov_b32", "v1", 0)
    make("s_cmp_eq_u32", "s4", 0)
    first_wave = len(make.words)
    make("s_cbranch_scc1", 0)
    make.words += RDNA4.encode("s_barrier_signal", ssrc0=SIGNAL)
    make("s_barrier_wait", -1)
    make("s_endpgm", 0)
    make.words[first_wave] |= len(make.words) - first_wave - 1
    loop = len(make.words)
    make.words += (0xBE8450C1,)  # s_get_barrier_state s4, -1, as LLVM's assembler has it
    make("s_wait_kmcnt", 0)
    make("s_cmp_lt_u32", "s4", 1 << 16)
    make("s_cbranch_scc1", loop - len(make.words) - 1)
    make("v_mov_b32", "v2", "s4")
    make.words += RDNA4.encode("s_barrier_signal", ssrc0=SIGNAL)
    make("s_barrier_wait", -1)
    make.words += (0xBE8450C1,)
    make("v_mov_b32", "v3", "s4")
    make.words += RDNA4.encode("global_store_b64", data=2, addr=1, saddr=0)
    make("s_endpgm", 0)
    machine, memory = program(tuple(make.words))
    cells = np.zeros(2, np.uint32)
    memory.map(0x9000, cells, name="cells")
    launch = Launch(0x1000, 32, vgprs=8, user_sgprs=(0x9000, 0), user_sgpr_count=2, ids_in_ttmp=True)
    run_dispatch(machine, launch, (1, 1, 1), (64, 1, 1), budget=100_000)
    assert int(cells[0]) == 1 << 16 | 2 << 4 | 1  # there is one, of two waves, of which one has come
    assert int(cells[1]) & ~(1 << 4) & ~(2 << 4) == 1  # none has come; wave 1 may have ended


def test_a_workgroup_of_one_wave_has_no_barrier() -> None:
    make = Assembler(RDNA4)
    make.words += (0xBE8450C1,)
    make("v_mov_b32", "v2", "s4")
    make("v_mov_b32", "v1", 0)
    make.words += RDNA4.encode("global_store_b32", data=2, addr=1, saddr=0)
    make("s_endpgm", 0)
    machine, memory = program(tuple(make.words))
    cell = np.full(1, 7, np.uint32)
    memory.map(0x9000, cell, name="cell")
    launch = Launch(0x1000, 32, vgprs=8, user_sgprs=(0x9000, 0), user_sgpr_count=2, ids_in_ttmp=True)
    run_dispatch(machine, launch, (1, 1, 1), (32, 1, 1))
    assert cell[0] == 0


def test_a_wait_that_not_all_waves_signalled_is_reported() -> None:
    make = Assembler(RDNA4)
    make("v_readfirstlane_b32", "s4", "v0")
    make("s_cmp_eq_u32", "s4", 0)
    make("s_cbranch_scc1", 3)
    make.words += RDNA4.encode("s_barrier_signal", ssrc0=SIGNAL)
    make("s_barrier_wait", -1)
    make("s_endpgm", 0)
    make("s_branch", -1)  # wave 0 never comes
    machine, _ = program(tuple(make.words))
    launch = Launch(0x1000, 32, vgprs=8, ids_in_ttmp=True)
    with pytest.raises(OutOfBudget, match="s_branch"):
        run_dispatch(machine, launch, (1, 1, 1), (64, 1, 1), budget=10_000)


# ------------------------------------------------------------ matrices

WMMA = {
    "v_wmma_f32_16x16x16_f16": ("f16", "f32", 16),
    "v_wmma_f32_16x16x16_bf16": ("bf16", "f32", 16),
    "v_wmma_f16_16x16x16_f16": ("f16", "f16", 16),
    "v_wmma_i32_16x16x16_iu8": ("iu8", "i32", 16),
    "v_wmma_i32_16x16x16_iu4": ("iu4", "i32", 16),
    "v_wmma_i32_16x16x32_iu4": ("iu4", "i32", 32),
}


def place(kind: str, depth: int, size: int, k: int) -> tuple[int, int]:
    """(which sixteen lanes, which element there) of k, as the document's tables list them."""
    if kind in ("f16", "bf16"):
        if size == 64:
            return k // 4, k % 4
        return k % 8 // 4, k // 8 * 4 + k % 4
    if size == 32 or (kind == "iu4" and depth == 16):
        return k // (depth // 2), k % (depth // 2)
    half, quarter = k // (depth // 2), k // (depth // 4) % 2
    return half + 2 * quarter, k % (depth // 4)


SIGNS = [  # of A and B; the third bit means nothing
    (name, {"neg_lo": neg} if neg else {})
    for name, (kind, _, _) in WMMA.items()
    for neg in ((3, 7) if kind.startswith("iu") else (0,))
]


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize(("name", "signs"), SIGNS)
def test_wmma_spreads_rows_over_lanes(name: str, signs: dict[str, int], size: int) -> None:
    in_kind, out_kind, depth = WMMA[name]
    rng = np.random.default_rng(3)
    a, b = random_matrix(rng, (16, depth), in_kind), random_matrix(rng, (depth, 16), in_kind)
    c = random_matrix(rng, (16, 16), "i8" if out_kind == "i32" else out_kind)
    registers: dict[int, Numbers] = {}
    for k in range(depth):
        part, element = place(in_kind, depth, size, k)
        for row in range(16):
            pack(registers, 0, row + 16 * part, element, a[row, k], in_kind)
            pack(registers, 8, row + 16 * part, element, b[k, row], in_kind)

    def result_place(i: int, j: int) -> tuple[int, int]:
        if size == 32:
            return j + 16 * (i // 8), i % 8
        return j + 16 * (i // 8) + 32 * (i // 4 % 2), i % 4

    for i in range(16):
        for j in range(16):
            lane, register = result_place(i, j)
            if out_kind == "i32":
                registers.setdefault(16 + register, np.zeros(64, np.uint64))[lane] = int(c[i, j]) & 0xFFFFFFFF
            else:
                pack(registers, 16, lane, register, c[i, j], out_kind)
    columns = {register: value[:size].astype(np.uint32) for register, value in registers.items()}
    operands = [f"v[{first}:{first + 7}]" for first in (32, 0, 8, 16)]
    words = assemble(RDNA4, name, operands, None, None, **signs)
    out = run_words(ARCH, words, v=columns, wave_size=size)
    expected = a @ b + c
    for i in range(16):
        for j in range(16):
            lane, register = result_place(i, j)
            if out_kind == "i32":
                actual = float(out.i32[32 + register, 0, lane])
            elif out_kind == "f32":
                actual = float(out.f32[32 + register, 0, lane])
            else:
                actual = float(out.f16[32 + register // 2, 0, lane, register % 2])
            exact = float(np.float16(expected[i, j])) if out_kind == "f16" else float(expected[i, j])
            assert actual == exact, f"element ({i}, {j})"


@pytest.mark.parametrize("kinds", ["fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8"])
def test_wmma_takes_byte_floats(kinds: str) -> None:
    tables = {"fp8": OCP_FP8, "bf8": OCP_BF8}
    kind_a, kind_b = kinds.split("_")
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0x20, 0x40, (16, 16)) | rng.integers(0, 2, (16, 16)) << 7 for _ in range(2))
    registers = {first + index: np.zeros(32, np.uint32) for first in (0, 8) for index in range(2)}
    for k in range(16):
        for row in range(16):
            lane, byte = row + 16 * (k // 8), k % 8
            registers[byte // 4][lane] |= int(a[row, k]) << 8 * (byte % 4)
            registers[8 + byte // 4][lane] |= int(b[k, row]) << 8 * (byte % 4)
    operands = [f"v[{first}:{first + 7}]" for first in (32, 0, 8)]
    words = assemble(RDNA4, f"v_wmma_f32_16x16x16_{kinds}", [*operands, 0.5], None, None)
    out = run_words(ARCH, words, v=registers)
    values_a, values_b = (tables[kind].values.astype(np.float64) for kind in (kind_a, kind_b))
    expected = (values_a[a] @ values_b[b] + 0.5).astype(np.float32)
    for i in range(16):
        for j in range(16):
            assert out.f32[32 + i % 8, 0, j + 16 * (i // 8)] == expected[i, j]


# ------------------------------------------------------------ what else is new


def test_dot_products_of_byte_floats() -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.integers(0x20, 0x48, (32, 4), dtype=np.uint8) for _ in range(2))
    registers = {0: a.view(np.uint32)[:, 0], 1: b.view(np.uint32)[:, 0], 2: np.full(32, f32(2.5))}
    out = run(ARCH, "v_dot4_f32_fp8_bf8", "v3", "v0", "v1", "v2", v=registers)
    expected = (OCP_FP8.values[a].astype(np.float64) * OCP_BF8.values[b]).sum(axis=1) + 2.5
    assert np.array_equal(out.f32[3, 0], expected.astype(np.float32))


@pytest.mark.parametrize(("name", "flip"), [("v_permlane16_var_b32", 0), ("v_permlanex16_var_b32", 16)])
def test_every_lane_names_the_lane_of_its_row_that_it_reads(name: str, flip: int) -> None:
    rng = np.random.default_rng(7)
    x, chosen = rng.integers(0, 2**32, 32, dtype=np.uint32), rng.integers(0, 2**32, 32, dtype=np.uint32)
    out = run(ARCH, name, "v2", "v0", "v1", v={0: x, 1: chosen})
    for lane in range(32):
        assert out.u32[2, 0, lane] == x[(lane & 16 ^ flip) | int(chosen[lane]) & 15]
    lanes = np.arange(32) % 2 == 0
    kept = run(ARCH, name, "v2", "v0", "v1", v={0: x, 1: np.full(32, 1), 2: 99}, lanes=lanes)
    assert (kept.u32[2, 0] == 99).all()  # lane 1 of each row is not active, and so nothing is read from it


def test_bpermute_with_fetch_inactive_reads_lanes_that_do_not_run() -> None:
    x, lanes = np.arange(100, 132), np.arange(32) < 16
    state = {0: 4 * (31 - np.arange(32)), 1: x}
    out = run(ARCH, "ds_bpermute_fi_b32", "v2", "v0", "v1", v=state, lanes=lanes)
    assert out.u32[2, 0, :16].tolist() == list(range(131, 115, -1))
    assert (run(ARCH, "ds_bpermute_b32", "v2", "v0", "v1", v=state, lanes=lanes).u32[2, 0, :16] == 0).all()


@pytest.mark.parametrize(
    ("name", "change"),
    [("cond_sub", lambda m, d: m - d if m >= d else m), ("sub_clamp", lambda m, d: m - d if m >= d else 0)],
)
def test_subtractions_that_do_not_wrap(name: str, change: Callable[[int, int], int]) -> None:
    data = np.array([3, 50, 7, 1000] * 8, np.uint32)
    cell = np.array([1040], np.uint32)
    memory = AddressSpace()
    memory.map(0x9000, cell, name="cell")
    lanes = np.arange(32) < 4
    words = RDNA4.encode(f"global_atomic_{name}_u32", vdst=4, data=2, addr=0, saddr=2, th=1)
    b = run_words(ARCH, words, v={0: 0, 2: data}, s={2: 0x9000, 3: 0}, memory=memory, lanes=lanes)
    expected, found = 1040, []
    for lane in range(4):
        found.append(expected)
        expected = change(expected, int(data[lane]))
    assert int(cell[0]) == expected
    assert b.u32[4, 0, :4].tolist() == found


def test_packed_minimum_spreads_nans_in_each_half() -> None:
    a = f16(math.nan) | f16(2.0) << 16
    c = f16(1.0) | f16(3.0) << 16
    out = int(run(ARCH, "v_pk_minimum_f16", "v2", "v0", "v1", v={0: a, 1: c}).u32[2, 0, 0])
    assert math.isnan(float(np.uint16(out & 0xFFFF).view(np.float16))) and out >> 16 == f16(2.0)
    out = int(run(ARCH, "v_pk_max_num_f16", "v2", "v0", "v1", v={0: a, 1: c}).u32[2, 0, 0])
    assert out == f16(1.0) | f16(3.0) << 16


def test_three_words_are_loaded_at_once() -> None:
    memory = AddressSpace()
    memory.map(0x5000, np.arange(8, dtype=np.uint32), name="data")
    words = RDNA4.encode("s_load_b96", sdata=8, sbase=1, offset=4)
    b = run_words(ARCH, words, s={2: 0x5000, 3: 0, 11: 77}, memory=memory)
    assert b.s[0, 8:12].tolist() == [1, 2, 3, 77]


SPARSE = [name for name in RDNA4.by_name if name.startswith("v_swmmac")]


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("key", [0, 1])
def test_sparse_products_spread_a_over_the_places_that_its_indices_say(name: str, key: int) -> None:
    """Where values lie: AMD's Composable Kernel, which writes down the layouts of wave32."""
    _, _, out_kind, size, kind, *_ = name.split("_")
    depth = int(size.split("x")[2])
    kinds = name.split("_")[4:]
    bits = {"f16": 16, "bf16": 16, "iu4": 4}.get(kind, 8)
    rng = np.random.default_rng(depth)
    a, b = rng.integers(-2, 3, (16, depth // 2)), rng.integers(-2, 3, (16, depth))
    c = rng.integers(-4, 5, (16, 16))
    places = np.array(
        [[sorted(rng.choice(4, 2, replace=False)) for _ in range(depth // 4)] for _ in range(16)]
    )
    positions = places.reshape(16, depth // 2)
    per_lane = depth // 4
    registers = {n: np.zeros(32, np.uint64) for n in range(40)}

    def put(first: int, item: int, lane: int, code: int) -> None:
        at = item * bits
        registers[first + at // 32][lane] |= np.uint64(code << at % 32)

    for lane in range(32):
        row, half = lane % 16, lane // 16
        for item in range(per_lane):
            if bits == 16:  # four neighbours of k, then those eight further
                k = 8 * (item // 4) + 4 * half + item % 4
            else:
                k = per_lane * half + item
            put(0, item, lane, code_of(kinds[0], int(a[row, k])))
            shift = 2 * item + (16 * key if per_lane == 8 else 0)
            registers[32][lane] |= np.uint64(int(positions[row, k]) << shift)
        for item in range(2 * per_lane):
            part = 8 if bits == 16 else depth // 2
            k = 2 * part * (item // part) + part * half + item % part
            put(8, item, lane, code_of(kinds[-1], int(b[row, k])))
        for item in range(8):
            value = int(c[8 * half + item, row])
            code = {"f32": int(np.float32(value).view(np.uint32)), "i32": value & 0xFFFFFFFF}.get(out_kind)
            if code is not None:
                registers[16 + item][lane] = code
            else:
                registers[16 + item // 2][lane] |= np.uint64(code_of(out_kind, value) << 16 * (item % 2))
    fields = {"opsel": key, "opsel_hi": 0} | ({"neg_lo": 3} if kind.startswith("iu") else {})
    out = run("gfx1201", name, "v16", "v0", "v8", "v32", fields=fields, v=registers)
    dense = np.zeros((16, depth), np.int64)
    for row in range(16):
        for k in range(depth // 2):
            dense[row, 4 * (k // 2) + positions[row, k]] = a[row, k]
    expected = dense @ b.T + c
    for i in range(16):
        for j in range(16):
            lane, item = j + 16 * (i // 8), i % 8
            if out_kind in ("f32", "i32"):
                cell = out.f32 if out_kind == "f32" else out.i32
                assert cell[16 + item, 0, lane] == expected[i, j]
            else:
                bits16 = int(out.u32[16 + item // 2, 0, lane]) >> 16 * (item % 2) & 0xFFFF
                wide = (
                    np.uint16(bits16).view(np.float16)
                    if out_kind == "f16"
                    else np.uint32(bits16 << 16).view(np.float32)
                )
                assert float(wide) == expected[i, j]


# of wave64, by bits and depth: the lane of row 0 that has each run of neighbours along k (AMD's calculator of matrix
# instructions, -a rdna4 -w 64); a lane has half as many of what is kept of A
LANES_OF_WAVE64 = {
    (16, 32): (0, 16, 32, 48),
    (8, 32): (0, 32, 16, 48),
    (4, 32): (0, 32, 16, 48),
    (4, 64): (0, 32, 16, 48),
}


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("key", [0, 1, 3])
def test_sparse_products_of_64_lanes_spread_a_over_four_of_them(name: str, key: int) -> None:
    _, _, out_kind, size, *kinds = name.split("_")
    depth = int(size.split("x")[2])
    bits = {"f16": 16, "bf16": 16, "iu4": 4}.get(kinds[0], 8)
    rng = np.random.default_rng(depth + key)
    a, b = rng.integers(-2, 3, (16, depth // 2)), rng.integers(-2, 3, (16, depth))
    c = rng.integers(-4, 5, (16, 16))
    positions = np.array(
        [[sorted(rng.choice(4, 2, replace=False)) for _ in range(depth // 4)] for _ in range(16)]
    )
    positions = positions.reshape(16, depth // 2)
    registers = {n: np.zeros(64, np.uint64) for n in range(40)}

    def put(first: int, item: int, lane: int, width: int, code: int) -> None:
        registers[first + item * width // 32][lane] |= np.uint64(code << item * width % 32)

    lanes = LANES_OF_WAVE64[bits, depth]
    of_a = (0, 16) if (bits, depth) == (4, 32) else lanes  # eight numbers of four bits are a whole register
    kept = depth // 2 // len(of_a)
    sets = 16 // kept  # of indices in a register
    for row in range(16):
        for k in range(depth // 2):
            lane, item = row + of_a[k // kept], k % kept
            put(0, item, lane, bits, code_of(kinds[0], int(a[row, k])))
            put(32, item + kept * (key % sets), lane, 2, int(positions[row, k]))
        for k in range(depth):
            put(8, k % (depth // 4), row + lanes[k // (depth // 4)], bits, code_of(kinds[-1], int(b[row, k])))
    for i in range(16):
        for j in range(16):
            lane, item = j + 16 * (i // 8) + 32 * (i // 4 % 2), i % 4
            value = int(c[i, j])
            if out_kind == "f32":
                registers[16 + item][lane] = int(np.float32(value).view(np.uint32))
            elif out_kind == "i32":
                registers[16 + item][lane] = value & 0xFFFFFFFF
            else:
                put(16, item, lane, 16, code_of(out_kind, value))
    fields = {"opsel": key, "opsel_hi": 0} | ({"neg_lo": 3} if kinds[0].startswith("iu") else {})
    out = run("gfx1201", name, "v16", "v0", "v8", "v32", fields=fields, v=registers, wave_size=64)
    dense = np.zeros((16, depth), np.int64)
    np.put_along_axis(dense, 4 * (np.arange(depth // 2) // 2) + positions, a, axis=1)
    expected = dense @ b.T + c
    for i in range(16):
        for j in range(16):
            lane, item = j + 16 * (i // 8) + 32 * (i // 4 % 2), i % 4
            if out_kind in ("f32", "i32"):
                assert (out.f32 if out_kind == "f32" else out.i32)[16 + item, 0, lane] == expected[i, j]
            else:
                code = int(out.u32[16 + item // 2, 0, lane]) >> 16 * (item % 2) & 0xFFFF
                assert code == code_of(out_kind, int(expected[i, j]))


def code_of(kind: str, number: int) -> int:
    """A small integer as a number of a kind."""
    if kind.startswith("iu"):
        return number & (1 << int(kind[2:])) - 1
    if kind == "f16":
        return int(np.float16(number).view(np.uint16))
    if kind == "bf16":
        return int(np.float32(number).view(np.uint32)) >> 16
    table = {"fp8": OCP_FP8, "bf8": OCP_BF8}[kind].values
    return int(np.flatnonzero(table == number)[0])
