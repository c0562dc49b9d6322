"""What gfx1030 has in a way of its own: scratch memory that kernels find, wait counters, halves, SDWA and DPP8."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from hcq.amd.abi.registers import ScratchResourceGfx10
from hcq.emu.amd.shader import disassembly
from hcq.emu.amd.shader.isa import DPP8, SDWA, Dpp8, Sdwa, wait_counts
from hcq.emu.amd.shader.loads_to_lds import is_load_to_lds
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.amd.shader.rdna2 import FLAT_SCR, RDNA2
from tests.hcq.emu.amd.shader.assembler import Assembler, assemble
from tests.hcq.emu.amd.shader.bench import ISAS, Numbers, run, run_words, words32

ARCH, SCRATCH, WORDS = "gfx1030", 0x12_3456_0000, 4
# what LLVM 22's assembler (-mcpu=gfx1030) makes of them
ENCODED = {
    "tbuffer_load_format_xyz v[4:6], v0, s[8:11], 0 offen format:5": (0xE82A1000, 0x80020400),
    "tbuffer_load_format_d16_xy v4, v0, s[8:11], 0 offen format:77": (0xEA691000, 0x80220400),
    "tbuffer_store_format_d16_xyzw v[4:5], v0, s[8:11], 0 glc slc offen format:5": (0xE82F5000, 0x80620400),
    "scratch_load_dword v2, v0, off offset:8": (0xDC304008, 0x027D0000),
    "scratch_load_dword v2, s6 offset:-4": (0xDC304FFC, 0x02060000),
    "scratch_load_dword v2, off offset:12": (0xDC30400C, 0x027F0000),
    "global_load_dword v1, v[2:3], off offset:-2048": (0xDC308800, 0x017D0002),
}


@pytest.mark.parametrize("text", ENCODED)
def test_words_of_the_assembler_are_read_as_what_it_was_told(text: str) -> None:
    shown = disassembly.text(RDNA2, RDNA2.decode(ENCODED[text]))
    assert shown.replace("off, s6", "s6").replace("off, off", "off") == text


@pytest.mark.parametrize(("bits", "memory", "lds"), [(0x9171, 33, 17), (0x3F70, 0, 63), (0xC07F, 63, 0)])
def test_a_wait_counts_64_accesses_of_memory_and_64_of_lds(bits: int, memory: int, lds: int) -> None:
    assert wait_counts(bits, RDNA2.generation) == (memory, lds)


def scratch_memory(lanes: int) -> tuple[AddressSpace, Numbers]:
    memory, data = AddressSpace(), np.zeros(WORDS * lanes, np.uint32)
    memory.map(SCRATCH, data, name="scratch")
    return memory, data.reshape(WORDS, lanes)


@pytest.mark.parametrize(("lanes", "stride"), [(32, 2), (64, 3)])
def test_a_swizzled_descriptor_puts_the_words_of_a_waves_lanes_beside_each_other(
    lanes: int, stride: int
) -> None:
    memory, data = scratch_memory(lanes)
    made = ScratchResourceGfx10.of(SCRATCH, data.nbytes)
    words = ScratchResourceGfx10(**{**made.values, "index_stride": stride}).words
    x = np.arange(1000, 1000 + lanes)
    store = assemble(RDNA2, "buffer_store_dword", ("v1", "v0", "s[8:11]", 0), offen=1, offset=4)
    run_words(ARCH, store, v={0: 4, 1: x}, s=dict(zip(range(8, 12), words)), memory=memory, wave_size=lanes)
    assert data[2].tolist() == x.tolist() and not data[[0, 1, 3]].any()


@pytest.mark.parametrize("lanes", [32, 64])
def test_scratch_memory_is_where_the_kernel_sets_its_hardware_registers_to(lanes: int) -> None:
    memory, data = scratch_memory(lanes)
    data[...] = np.arange(WORDS)[:, None] * 100 + np.arange(lanes)
    code = Assembler(RDNA2)
    code.words += [
        0xB980F814,
        0xB9817A15,
    ]  # s_setreg_b32 of FLAT_SCR_LO, of bits 23:8 of FLAT_SCR_HI, as LLVM has it
    code("s_setreg_b32", 7 << 11 | 21, "s2")  # of its bits 7:0
    code("s_getreg_b32", "s5", 31 << 11 | 21)
    code("scratch_load_dword", "v2", "v0", offset=4)  # saddr is null: a vector address alone
    code("scratch_load_dword", "v3", "v0", saddr=6)  # a scalar one alone
    code("scratch_load_dword", "v4", "v0", saddr=127, offset=12)  # neither
    low, high = SCRATCH & 0xFFFFFFFF, SCRATCH >> 32
    b = run_words(
        ARCH,
        code.words,
        v={0: 4},
        s={0: low, 1: high >> 8, 2: high & 0xFF, 6: 4},
        memory=memory,
        wave_size=lanes,
        flat_scratch=RDNA2.flat_scratch,
    )
    assert (RDNA2.flat_scratch, int(b.s[0, 5])) == (FLAT_SCR, high)
    assert b.u32[2, 0].tolist() == data[2].tolist()
    assert b.u32[3, 0].tolist() == data[1].tolist()
    assert b.u32[4, 0].tolist() == data[3].tolist()


def test_a_result_of_16_bits_leaves_the_other_half_as_it_was() -> None:
    one, two = (np.float16(x).view(np.uint16) for x in (1.5, 2.25))
    b = run(ARCH, "v_add_f16", "v2", "v0", "v1", v={0: one, 1: two, 2: 0xAAAA5555})
    assert int(b.u32[2, 0, 0]) == 0xAAAA0000 | int(np.float16(3.75).view(np.uint16))
    high = run(
        ARCH, "v_add_nc_u16", "v2", "v0", "v1", v={0: 3 << 16, 1: 4, 2: 0xAAAA5555}, fields={"opsel": 9}
    )
    assert int(high.u32[2, 0, 0]) == 0x00075555  # the high half of the first source, to the high half


def test_a_vector_register_above_127_is_whole() -> None:
    b = run(ARCH, "v_add_f16", "v200", "v128", "v129", v={128: 0x3C00, 129: 0x4000, 200: 0})
    assert int(b.u32[200, 0, 0]) == 0x4200


def test_sdwa_takes_halves_and_keeps_what_it_does_not_write() -> None:
    x, y, old = words32(1, 32), words32(2, 32), words32(3, 32)
    word = Sdwa(src0=0, dst_sel=5, dst_unused=2, src0_sel=5, src1_sel=4)
    words = RDNA2.encode("v_add_nc_u32", "VOP2", None, word, vdst=2, src0=SDWA, vsrc1=1)
    found = run_words(ARCH, words, v={0: x, 1: y, 2: old}).u32[2, 0]
    total = (x >> 16) + (y & 0xFFFF) & 0xFFFF
    assert found.tolist() == (total << 16 | old & 0xFFFF).tolist()


def test_dpp8_permutes_groups_of_eight() -> None:
    order = [7, 0, 6, 1, 5, 2, 4, 3]
    selectors = sum(source << 3 * lane for lane, source in enumerate(order))
    words = RDNA2.encode("v_mov_b32", "VOP1", None, Dpp8(src0=0, selectors=selectors), vdst=1, src0=DPP8)
    assert words == struct.unpack("<2I", bytes.fromhex("e902027e00875371"))  # as LLVM's assembler has it
    found = run_words(ARCH, words, v={0: np.arange(32)}).u32[1, 0]
    assert found.tolist() == [lane & ~7 | order[lane & 7] for lane in range(32)]


def test_a_legacy_product_with_zero_is_zero() -> None:
    infinity, two, three = (np.float32(x).view(np.uint32) for x in (np.inf, 2, 3))
    b = run(ARCH, "v_fma_legacy_f32", "v3", "v0", "v1", "v2", v={0: infinity, 1: 0, 2: two})
    assert b.f32[3, 0, 0] == 2
    b = run(ARCH, "v_fmac_legacy_f32", "v2", "v0", "v1", v={0: three, 1: two, 2: two})
    assert b.f32[2, 0, 0] == 8


def test_a_store_does_not_count_where_loads_are_waited_for() -> None:
    """Data of a load to LDS are there behind s_waitcnt vmcnt(0), whatever was stored meanwhile, and not sooner."""
    data, memory = np.arange(1, 65, dtype=np.uint32), AddressSpace()
    memory.map(SCRATCH, data, name="data")
    code = Assembler(RDNA2)
    code("buffer_load_dword", "v9", "v0", "s[8:11]", 0, offen=1, lds=1)
    assert is_load_to_lds(RDNA2.decode(code.words))
    code("global_store_dword", "v0", "v3", saddr=6, offset=128)
    code("ds_read_b32", "v4", "v0")
    code("s_waitcnt", 0x3F71)  # vmcnt(1): the store, which is counted elsewhere, is not that one
    code("ds_read_b32", "v5", "v0")
    code("s_waitcnt_vmcnt", 0)
    code("ds_read_b32", "v6", "v0")
    place = {6: SCRATCH & 0xFFFFFFFF, 7: SCRATCH >> 32, 8: SCRATCH & 0xFFFFFFFF, 9: SCRATCH >> 32, 10: 256}
    b = run_words(ARCH, code.words, v={0: 4 * np.arange(32), 3: 7}, s=place, lds_bytes=256, memory=memory)
    assert not b.u32[4:6, 0].any()
    assert b.u32[6, 0].tolist() == list(range(1, 33))


def test_what_came_before_and_after_is_not_there() -> None:
    names = set(ISAS[ARCH].by_name)
    assert not {"v_mad_f32", "v_mac_f32", "s_store_dword", "s_atomic_add", "s_set_gpr_idx_on"} & names
    assert not {"v_permlane64_b32", "v_cvt_i32_i16", "s_delay_alu", "global_load_u8", "v_minmax_f32"} & names
    assert not any(name.startswith(("v_dual_", "v_wmma_", "v_mfma_")) for name in names)
    assert {
        "v_dot4c_i32_i8",
        "v_dot2_i32_i16",
        "global_atomic_fmax",
        "s_waitcnt_vscnt",
        "v_xor3_b32",
    } <= names
