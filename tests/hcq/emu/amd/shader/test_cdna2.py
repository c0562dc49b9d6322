"""What gfx90a has and gfx942 has not: unfused 32-bit products, scratch memory that the kernel finds by itself."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.amd.abi.registers import ScratchResource
from hcq.emu.amd.shader.cdna2 import CDNA2
from hcq.emu.amd.shader.memory import AddressSpace
from tests.hcq.emu.amd.shader.assembler import assemble
from tests.hcq.emu.amd.shader.bench import CODE, ISAS, Numbers, floats32, run, run_words

ARCH = "gfx90a"
SCRATCH, LANES = 0x40_0000, 64


def flushed(x: Numbers) -> Numbers:
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


@pytest.mark.parametrize("name", ["v_mad_f32", "v_mac_f32", "v_madmk_f32", "v_madak_f32", "v_mad_legacy_f32"])
def test_products_are_rounded_before_the_sum_and_denormals_are_zero(name: str) -> None:
    a, b, c = (floats32(seed) for seed in (1, 2, 3))
    registers = {index: x.view(np.uint32) for index, x in enumerate((a, b, c))}
    literal = 0.7071
    if name == "v_mac_f32":
        out = run(ARCH, name, "v2", "v0", "v1", v=registers).f32[2, 0]
    elif name == "v_madmk_f32":
        out = run(ARCH, name, "v3", "v0", literal, "v2", v=registers).f32[3, 0]
        b = np.full(LANES, literal, np.float32)
    elif name == "v_madak_f32":
        out = run(ARCH, name, "v3", "v0", "v1", literal, v=registers).f32[3, 0]
        c = np.full(LANES, literal, np.float32)
    else:
        out = run(ARCH, name, "v3", "v0", "v1", "v2", v=registers).f32[3, 0]
    with np.errstate(all="ignore"):
        product = flushed(flushed(a) * flushed(b))
        if name == "v_mad_legacy_f32":
            product = np.where((flushed(a) == 0) | (flushed(b) == 0), np.float32(0), product)
        expected = flushed(product + flushed(c))
    same = (out == expected) | (np.isnan(out) & np.isnan(expected))
    assert same.all(), np.nonzero(~same)


def scratch_memory() -> tuple[AddressSpace, Numbers]:
    memory, data = AddressSpace(), np.zeros(4 * LANES, np.uint32)
    memory.map(SCRATCH, data, name="scratch")
    return memory, data


def test_a_swizzled_descriptor_puts_the_words_of_all_lanes_beside_each_other() -> None:
    memory, data = scratch_memory()
    descriptor = dict(zip(range(8, 12), ScratchResource.of(SCRATCH, data.nbytes).words))
    x = np.arange(1000, 1000 + LANES)
    store = assemble(CDNA2, "buffer_store_dword", ("v1", "v0", "s[8:11]", 0), offen=1, offset=4)
    run_words(ARCH, store, v={0: 4, 1: x}, s=descriptor, memory=memory)
    assert data.reshape(4, LANES)[2].tolist() == x.tolist()
    assert (data.reshape(4, LANES)[[0, 1, 3]] == 0).all()
    memory.unmap(CODE)
    load = assemble(CDNA2, "buffer_load_ushort", ("v2", "v0", "s[8:11]", 0), offen=1, offset=4)
    b = run_words(ARCH, load, v={0: 4}, s=descriptor, memory=memory)
    assert b.u32[2, 0].tolist() == x.tolist()


def test_scratch_instructions_and_descriptors_see_the_same_memory() -> None:
    memory, data = scratch_memory()
    data.reshape(4, LANES)[3] = np.arange(LANES)
    words = assemble(CDNA2, "scratch_load_dword", ("v2", "v0"), saddr=127, offset=8)
    b = run_words(ARCH, words, v={0: 4}, s={102: SCRATCH, 103: 0}, memory=memory, flat_scratch=102)
    assert b.u32[2, 0].tolist() == list(range(LANES))
    memory.unmap(CODE)
    words = assemble(CDNA2, "scratch_load_dword", ("v2", "v0"), saddr=6)  # a scalar address and no other
    b = run_words(
        ARCH, words, v={0: 0xBAD0}, s={6: 12, 102: SCRATCH, 103: 0}, memory=memory, flat_scratch=102
    )
    assert b.u32[2, 0].tolist() == list(range(LANES))


def test_what_came_with_gfx942_is_not_there() -> None:
    names = ISAS[ARCH].by_name
    assert not {"v_mov_b64", "v_lshl_add_u64", "v_fmaak_f32", "v_mfma_f32_16x16x8_xf32", "buffer_inv"} & {
        *names
    }
    assert {"v_pk_fma_f32", "v_fmac_f64", "global_atomic_add_f64", "buffer_wbinvl1_vol"} <= {*names}
