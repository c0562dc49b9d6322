"""Data that moves between lanes: DPP, SDWA, permutes, readlane and writelane, indexed registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hcq.emu.amd.shader.isa import DPP, DPP8, SDWA, Dpp8, Dpp16, Sdwa
from tests.hcq.emu.amd.shader.assembler import assemble
from tests.hcq.emu.amd.shader.bench import GFX9, ISAS, Numbers, run, run_words, words32

OLD = 0xAAAA5555


def dpp(
    arch: str, word: Dpp16 | Dpp8, x: Numbers, lanes: Numbers | None = None, marker: int = DPP
) -> Numbers:
    """v_mov_b32 v1, v0 with a DPP word; v1 held OLD."""
    words = ISAS[arch].encode("v_mov_b32", "VOP1", None, word, vdst=1, src0=marker)
    return run_words(arch, words, v={0: x, 1: OLD}, lanes=lanes).u32[1, 0]


PATTERNS: dict[int, Callable[[int], int | None]] = {
    0b00_01_10_11: lambda i: i & ~3 | 3 - (i & 3),
    0x101: lambda i: i + 1 if i % 16 < 15 else None,
    0x10F: lambda i: i + 15 if i % 16 < 1 else None,
    0x113: lambda i: i - 3 if i % 16 >= 3 else None,
    0x124: lambda i: i & ~15 | (i - 4) % 16,
    0x140: lambda i: i & ~15 | 15 - i % 16,
    0x141: lambda i: i & ~7 | 7 - i % 8,
    0x155: lambda i: i & ~15 | 5,
}
ONLY = {
    False: {0x163: lambda i: i ^ 3},
    True: {  # gfx9
        0x130: lambda i: i + 1 if i < 63 else None,
        0x134: lambda i: (i + 1) % 64,
        0x138: lambda i: i - 1 if i else None,
        0x13C: lambda i: (i - 1) % 64,
        0x142: lambda i: (i & ~15) - 1 if i >= 16 else None,
        0x143: lambda i: 31 if i >= 32 else None,
    },
}


@pytest.mark.parametrize(
    ("arch", "ctrl"), [(arch, ctrl) for arch in ISAS for ctrl in [*PATTERNS, *ONLY[arch in GFX9]]]
)
def test_dpp_reads_the_lane_its_control_names(arch: str, ctrl: int) -> None:
    size = 64 if arch in GFX9 else 32
    x = words32(1, size)
    pattern = {**PATTERNS, **ONLY[arch in GFX9]}[ctrl]
    for bound in (0, 1):
        actual = dpp(arch, Dpp16(src0=0, ctrl=ctrl, bound_ctrl=bound), x)
        for lane in range(size):
            source = pattern(lane)
            expected = int(x[source]) if source is not None else (0 if bound else OLD)
            assert int(actual[lane]) == expected, f"lane {lane}, bound_ctrl {bound}"


@pytest.mark.parametrize("arch", ISAS)
def test_dpp_masks_keep_lanes_and_inactive_sources_count_as_missing(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    x = np.arange(size, dtype=np.uint32)
    actual = dpp(arch, Dpp16(src0=0, ctrl=0x140, row_mask=0b0001, bank_mask=0b0101), x)
    for lane in range(size):
        written = lane < 16 and (lane // 4) % 2 == 0
        assert int(actual[lane]) == (15 - lane if written else OLD)
    lanes = np.arange(size) % 16 != 15
    actual = dpp(arch, Dpp16(src0=0, ctrl=0x101), x, lanes)
    assert int(actual[14]) == OLD and int(actual[13]) == 14
    actual = dpp(arch, Dpp16(src0=0, ctrl=0x101, bound_ctrl=1), x, lanes)
    assert int(actual[14]) == 0


def test_dpp8_permutes_groups_of_eight() -> None:
    order = [7, 0, 6, 1, 5, 2, 4, 3]
    selectors = sum(source << 3 * lane for lane, source in enumerate(order))
    x = np.arange(32, dtype=np.uint32)
    actual = dpp("gfx1100", Dpp8(src0=0, selectors=selectors), x, marker=DPP8)
    assert actual.tolist() == [lane & ~7 | order[lane & 7] for lane in range(32)]


@pytest.mark.parametrize("arch", ISAS)
def test_dpp_negates_after_moving(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    x = np.arange(size, dtype=np.float32)
    words = ISAS[arch].encode(
        "v_add_f32", "VOP2", None, Dpp16(src0=0, ctrl=0x141, neg0=1), vdst=1, src0=DPP, vsrc1=2
    )
    b = run_words(arch, words, v={0: x.view(np.uint32), 2: np.float32(100).view(np.uint32)})
    assert b.f32[1, 0].tolist() == [100 - (lane & ~7 | 7 - lane % 8) for lane in range(size)]


@pytest.mark.parametrize(
    ("sel", "shift", "width"), [(0, 0, 8), (2, 16, 8), (3, 24, 8), (4, 0, 16), (5, 16, 16), (6, 0, 32)]
)
@pytest.mark.parametrize("sext", [0, 1])
def test_sdwa_takes_bytes_and_halves(sel: int, shift: int, width: int, sext: int) -> None:
    x, y = words32(1), words32(2)
    word = Sdwa(src0=0, src0_sel=sel, sext0=sext, src1_sel=5, dst_sel=6)
    words = ISAS["gfx942"].encode("v_add_u32", "VOP2", None, word, vdst=2, src0=SDWA, vsrc1=1)
    actual = run_words("gfx942", words, v={0: x, 1: y}).u32[2, 0]
    for lane in range(64):
        piece = int(x[lane]) >> shift & (1 << width) - 1
        if sext and piece >> (width - 1):
            piece -= 1 << width
        assert int(actual[lane]) == (piece + (int(y[lane]) >> 16)) & 0xFFFFFFFF


@pytest.mark.parametrize("unused", [0, 1, 2])
def test_sdwa_places_results_and_treats_the_rest_as_asked(unused: int) -> None:
    x, old = words32(1), words32(2)
    word = Sdwa(src0=0, dst_sel=5 if unused == 2 else 1, dst_unused=unused)
    words = ISAS["gfx942"].encode("v_mov_b32", "VOP1", None, word, vdst=1, src0=SDWA)
    actual = run_words("gfx942", words, v={0: x, 1: old}).u32[1, 0]
    if unused == 2:
        assert (actual == (x << 16 | old & 0xFFFF)).all()
    elif unused == 0:
        assert (actual == (x & 255) << 8).all()
    else:
        assert (actual == ((x & 255) << 8 | np.where(x & 128, 0xFFFF0000, 0))).all()


@pytest.mark.parametrize("arch", ISAS)
def test_one_lane_is_read_and_written(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    x = words32(1, size)
    lanes = np.arange(size) >= 5
    assert int(run(arch, "v_readfirstlane_b32", "s4", "v0", v={0: x}, lanes=lanes).s[0, 4]) == x[5]
    assert int(run(arch, "v_readfirstlane_b32", "s4", "v0", v={0: x}, lanes=False).s[0, 4]) == x[0]
    assert (
        int(run(arch, "v_readlane_b32", "s4", "v0", "s5", v={0: x}, s={5: size + 3}, lanes=lanes).s[0, 4])
        == x[3]
    )
    b = run(arch, "v_writelane_b32", "v0", "s4", 7, v={0: x}, s={4: 99}, lanes=False)
    assert int(b.u32[0, 0, 7]) == 99 and int(b.u32[0, 0, 8]) == x[8]


@pytest.mark.parametrize("name", ["v_permlane16_b32", "v_permlanex16_b32"])
def test_permlane_reads_rows_by_selectors(name: str) -> None:
    x = words32(1, 32)
    order = np.random.default_rng(0).permutation(16)
    low = sum(int(order[i]) << 4 * i for i in range(8))
    high = sum(int(order[8 + i]) << 4 * i for i in range(8))
    b = run("gfx1100", name, "v1", "v0", "s4", "s5", v={0: x}, s={4: low, 5: high})
    other = 16 if "x16" in name else 0
    assert b.u32[1, 0].tolist() == [int(x[(i & 16 ^ other) | int(order[i & 15])]) for i in range(32)]


def test_permlane64_swaps_the_halves_of_a_long_wave() -> None:
    x = words32(1, 64)
    b = run("gfx1100", "v_permlane64_b32", "v1", "v0", v={0: x}, wave_size=64)
    assert b.u32[1, 0].tolist() == [int(x[i ^ 32]) for i in range(64)]


@pytest.mark.parametrize("arch", ISAS)
def test_mbcnt_counts_the_lanes_below(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    low = run(arch, "v_mbcnt_lo_u32_b32", "v1", -1, 0)
    assert low.u32[1, 0].tolist() == [min(i, 32) for i in range(size)]
    if size == 64:
        high = run(arch, "v_mbcnt_hi_u32_b32", "v1", -1, "v0", v={0: low.u32[1, 0]})
        assert high.u32[1, 0].tolist() == list(range(64))


@pytest.mark.parametrize("arch", ISAS)
def test_bpermute_pulls_and_permute_pushes(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    x = words32(1, size)
    order = np.random.default_rng(2).permutation(size)
    b = run(arch, "ds_bpermute_b32", "v2", "v1", "v0", v={0: x, 1: 4 * order})
    assert (b.u32[2, 0] == x[order]).all()
    lanes = np.arange(size) % 4 != 0
    b = run(arch, "ds_bpermute_b32", "v2", "v1", "v0", v={0: x, 1: 4 * order}, lanes=lanes)
    assert (b.u32[2, 0][lanes] == np.where(lanes[order], x[order], 0)[lanes]).all()
    b = run(arch, "ds_permute_b32", "v2", "v1", "v0", v={0: x, 1: 4 * order})
    assert (b.u32[2, 0][order] == x).all()


def test_bpermute_stays_within_32_lanes_on_gfx1100_even_in_a_long_wave() -> None:
    x = words32(1, 64)
    b = run("gfx1100", "ds_bpermute_b32", "v2", "v1", "v0", v={0: x, 1: 4 * 33}, wave_size=64)
    assert b.u32[2, 0].tolist() == [int(x[1])] * 32 + [int(x[33])] * 32


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize(
    ("offset", "source"),
    [
        (0x401F, lambda i: i ^ 16),
        (0x001E, lambda i: i & ~1),
        (0x8000 | 0b00011011, lambda i: i & ~3 | 3 - i % 4),
    ],
)
def test_swizzle_moves_by_its_offset(arch: str, offset: int, source: Callable[[int], int]) -> None:
    size = 64 if arch in GFX9 else 32
    x = words32(1, size)
    fields = {"offset0": offset & 255, "offset1": offset >> 8}
    b = run(arch, "ds_swizzle_b32", "v1", "v0", fields=fields, v={0: x})
    assert b.u32[1, 0].tolist() == [int(x[source(i)]) for i in range(size)]


def test_registers_are_chosen_by_m0() -> None:
    state = {i: i * 100 for i in range(20)}
    b = run("gfx1100", "v_movrels_b32", "v30", "v2", v=state, s={125: 5})
    assert (b.u32[30] == 700).all()
    b = run("gfx1100", "v_movreld_b32", "v2", "v1", v=state, s={125: 5})
    assert (b.u32[7] == 100).all()
    isa = ISAS["gfx942"]
    words = [
        *isa.encode("s_set_gpr_idx_on", ssrc0=4, ssrc1=1),
        *assemble(isa, "v_mov_b32", ("v30", "v2")),
        *isa.encode("s_set_gpr_idx_off"),
        *assemble(isa, "v_mov_b32", ("v31", "v2")),
    ]
    b = run_words("gfx942", words, v=state, s={4: 3})
    assert (b.u32[30] == 500).all() and (b.u32[31] == 200).all()


def test_dual_issue_reads_before_it_writes() -> None:
    isa = ISAS["gfx1100"]
    words = (
        isa.formats[[one.name for one in isa.formats].index("VOPD")]
        .layout(opx=8, opy=8, src0x=256 + 1, src0y=256 + 0, vdstx=0, vdsty=0)
        .words
    )
    b = run_words("gfx1100", words, v={0: 10, 1: 11})
    assert (b.u32[0] == 11).all() and (b.u32[1] == 10).all()
