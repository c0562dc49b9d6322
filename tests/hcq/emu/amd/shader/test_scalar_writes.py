"""Scalar memory of gfx9: atomics of whole waves, stores by descriptor, scratch; and loops over halves of waves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq.emu.amd.shader import disassembly
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.amd.shader.run import ShaderCore, run_dispatch
from hcq.emu.amd.shader.wave_start import Launch
from tests.hcq.emu.amd.shader.assembler import Assembler
from tests.hcq.emu.amd.shader.bench import ISAS, run_words

BASE, CODE = 0x40_0000, 0x1000
GFX9 = ("gfx90a", "gfx942", "gfx950")
# what LLVM 22's assembler made of them (-mcpu=gfx942)
ENCODED = {
    "s_atomic_add s4, s[6:7], 0x10 glc": (0xC20B0103, 0x10),
    "s_atomic_cmpswap_x2 s[4:7], s[8:9], 0x0": (0xC2860104, 0),
    "s_buffer_atomic_add s4, s[8:11], 0x10": (0xC10A0104, 0x10),
    "s_scratch_load_dword s4, s[6:7], 0x40": (0xC0160103, 0x40),
    "s_buffer_store_dwordx2 s[4:5], s[8:11], 0x8": (0xC0660104, 0x8),
}


def memory_of(data: Any) -> AddressSpace:
    memory = AddressSpace()
    memory.map(BASE, data, name="data")
    return memory


@pytest.mark.parametrize("arch", GFX9)
def test_words_of_the_assembler_are_read_as_what_it_was_told(arch: str) -> None:
    for text, words in ENCODED.items():
        assert disassembly.text(ISAS[arch], ISAS[arch].decode(words)) == text


def run(arch: str, name: str, data: Any, s: dict[int, int], waves: int = 1, **fields: int) -> Any:
    """Of s[4:..] as data and s[8:..] as the base."""
    isa = ISAS[arch]
    words = isa.encode(name, sdata=4, sbase=4, imm=1, **fields)
    return run_words(arch, words, s={8: BASE, 9: 0, **s}, memory=memory_of(data), waves=waves)


@pytest.mark.parametrize("arch", GFX9)
@pytest.mark.parametrize(
    ("name", "before", "operand", "after"),
    [
        ("add", 7, 5, 12),
        ("sub", 7, 5, 2),
        ("smin", 7, -3 & 0xFFFFFFFF, -3 & 0xFFFFFFFF),
        ("umax", 7, 0xFFFFFFF0, 0xFFFFFFF0),
        ("and", 7, 5, 5),
        ("or", 8, 5, 13),
        ("xor", 7, 5, 2),
        ("inc", 7, 5, 0),
        ("dec", 7, 5, 5),
        ("swap", 7, 5, 5),
    ],
)
@pytest.mark.parametrize("returned", [0, 1])
def test_an_atomic_changes_memory_and_gives_back_what_was_there(
    arch: str, name: str, before: int, operand: int, after: int, returned: int
) -> None:
    data = np.array([1, before, 3], np.uint32)
    b = run(arch, f"s_atomic_{name}", data, {4: operand}, offset=4, glc=returned)
    assert data.tolist() == [1, after, 3]
    assert int(b.s[0, 4]) == (before if returned else operand)


@pytest.mark.parametrize("arch", GFX9)
def test_waves_come_one_after_the_other(arch: str) -> None:
    data = np.array([100, 0], np.uint64)
    b = run(arch, "s_atomic_add_x2", data, {4: 5, 5: 0}, waves=4, offset=0, glc=1)
    assert data.tolist() == [120, 0] and b.s[:, 4].tolist() == [100, 105, 110, 115]


@pytest.mark.parametrize("arch", GFX9)
@pytest.mark.parametrize("compare", [7, 8])
def test_a_compare_and_swap_takes_what_to_store_first(arch: str, compare: int) -> None:
    data = np.array([7], np.uint32)
    b = run(arch, "s_atomic_cmpswap", data, {4: 9, 5: compare}, offset=0, glc=1)
    assert data[0] == (9 if compare == 7 else 7) and b.s[0, 4:6].tolist() == [7, compare]
    wide = np.array([7 << 32], np.uint64)
    run(arch, "s_atomic_cmpswap_x2", wide, {4: 1, 5: 2, 6: 0, 7: compare}, offset=0, glc=1)
    assert wide[0] == (2 << 32 | 1 if compare == 7 else 7 << 32)


@pytest.mark.parametrize("arch", GFX9)
def test_what_is_beyond_a_descriptors_range_is_left_alone(arch: str) -> None:
    data = np.arange(8, dtype=np.uint32)
    for offset in (8, 16):
        run(arch, "s_buffer_store_dwordx2", data, {4: 50, 5: 60, 10: 20, 11: 0}, offset=offset)
        b = run(arch, "s_buffer_atomic_add", data, {4: 1, 10: 20, 11: 0}, offset=offset + 4, glc=1)
        assert int(b.s[0, 4]) == (60 if offset == 8 else 0)
    assert data.tolist() == [0, 1, 50, 61, 4, 5, 6, 7]


@pytest.mark.parametrize("arch", GFX9)
def test_an_offset_in_a_register_counts_64_bytes_of_scratch(arch: str) -> None:
    data = np.arange(64, dtype=np.uint32)
    run(arch, "s_scratch_store_dwordx2", data, {4: 50, 5: 60, 12: 2}, offset=8, soffset_en=1, soffset=12)
    assert data[34:36].tolist() == [50, 60]
    b = run(arch, "s_scratch_load_dwordx4", data, {12: 2}, offset=4, soffset_en=1, soffset=12)
    assert b.s[0, 4:8].tolist() == [33, 50, 60, 36]


@pytest.mark.parametrize(
    ("mask", "passes"), [(0xF, [0xF]), (0xF << 32, [0xF << 32]), (5 << 32 | 3, [3, 5 << 32]), (0, [])]
)
def test_a_loop_over_halves_of_a_wave_runs_for_each_that_has_lanes(mask: int, passes: list[int]) -> None:
    """Of the last pass EXEC is kept; behind the loop it is what it was."""
    isa = ISAS["gfx1100"]
    assemble = Assembler(isa)
    assemble("s_mov_b64", "s[4:5]", "exec")
    assemble("s_mov_b32", "s20", 0)
    assemble("s_mov_b32", "exec_lo", mask & 0xFFFFFFFF)
    assemble("s_mov_b32", "exec_hi", mask >> 32)
    body = Assembler(isa)
    body("s_add_u32", "s20", "s20", 1)
    body("s_mov_b64", "s[22:23]", "exec")
    size = len(body.words)
    assemble.words += isa.encode("s_subvector_loop_begin", sdst=6, simm16=size + 1)
    assemble.words += body.words
    assemble.words += isa.encode("s_subvector_loop_end", sdst=6, simm16=-(size + 1) & 0xFFFF)
    assemble("s_mov_b64", "s[24:25]", "exec")
    assemble("s_mov_b64", "exec", "s[4:5]")
    for n, register in enumerate((20, 24, 25, 22, 23)):
        assemble("v_mov_b32", "v2", f"s{register}")
        assemble("v_mov_b32", "v0", 4 * n)
        assemble("global_store_b32", "v[0:1]", "v2", saddr=0)
    assemble("s_endpgm", 0)
    out = np.zeros(8, np.uint32)
    memory = memory_of(out)
    memory.map(CODE, bytearray(assemble.to_bytes() + bytes(16)), name="code")
    launch = Launch(CODE, 64, 32, user_sgprs=(BASE, 0), user_sgpr_count=2)
    run_dispatch(ShaderCore(isa, memory), launch, (1, 1, 1), (64, 1, 1))
    assert out[0] == len(passes)
    assert int(out[1]) | int(out[2]) << 32 == mask
    if passes:
        assert int(out[3]) | int(out[4]) << 32 == passes[-1]
