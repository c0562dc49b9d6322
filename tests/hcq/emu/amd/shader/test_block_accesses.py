"""Blocks of registers by a mask, and loads that transpose, of gfx12."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq.emu.amd.shader import disassembly
from hcq.emu.amd.shader.errors import IllegalOperation
from hcq.emu.amd.shader.memory import AddressSpace
from tests.hcq.emu.amd.shader.assembler import assemble
from tests.hcq.emu.amd.shader.bench import ISAS, run_words

ARCH, BASE, LANES = "gfx1201", 0x40_0000, 32
M0 = 125
# what LLVM 22's assembler made of them
ENCODED = {
    "global_load_block v[0:31], v[32:33], off": (0xEE14C07C, 0, 0x20),
    "global_store_block v[32:33], v[0:31], off offset:16": (0xEE15007C, 0, 0x1020),
    "scratch_load_block v[0:31], off, s4": (0xED14C004, 0, 0),
    "scratch_store_block v4, v[0:31], off": (0xED15007C, 0x20000, 4),
    "global_load_block v[0:31], v32, s[4:5]": (0xEE14C004, 0, 0x20),
}


def memory_of(data: Any) -> AddressSpace:
    memory = AddressSpace()
    memory.map(BASE, data, name="data")
    return memory


def test_words_of_the_assembler_are_read_as_what_it_was_told() -> None:
    for text, words in ENCODED.items():
        assert disassembly.text(ISAS[ARCH], ISAS[ARCH].decode(words)) == text


def test_a_block_moves_the_registers_whose_bits_are_set() -> None:
    mask = 0x8000_1005
    data = np.arange(64 * LANES, dtype=np.uint32)
    addresses = np.uint32(BASE) + np.arange(LANES, dtype=np.uint32) * 256
    registers = {8 + n: 0x9000 + n for n in range(32)}
    lanes = np.arange(LANES) != 3
    words = assemble(ISAS[ARCH], "global_load_block", ("v[8:39]", "v[0:1]"), offset=4)
    v = {0: addresses, 1: 0, **registers}
    b = run_words(ARCH, words, v=v, s={M0: mask}, memory=memory_of(data.copy()), lanes=lanes)
    for n in range(32):
        there = data.reshape(LANES, 64)[:, 1 + n] if mask >> n & 1 else np.full(LANES, 0x9000 + n)
        assert b.u32[8 + n, 0].tolist() == np.where(lanes, there, 0x9000 + n).tolist()
    words = assemble(ISAS[ARCH], "global_store_block", ("v[0:1]", "v[8:39]"), offset=4)
    stored = data.copy()
    run_words(ARCH, words, v=v, s={M0: mask}, memory=memory_of(stored), lanes=lanes)
    expected = data.reshape(LANES, 64).copy()
    for n in range(32):
        if mask >> n & 1:
            expected[lanes, 1 + n] = 0x9000 + n
    assert stored.tolist() == expected.reshape(-1).tolist()


def test_each_wave_has_a_mask_of_its_own() -> None:
    isa = ISAS[ARCH]
    words = [
        *assemble(isa, "s_mov_b32", ("m0", 3)),
        *assemble(isa, "global_load_block", ("v[8:39]", "v[0:1]")),
    ]
    data = np.arange(64, dtype=np.uint32)
    b = run_words(ARCH, words, v={0: BASE, 1: 0}, memory=memory_of(data), waves=2)
    assert b.u32[8:11, :, 5].tolist() == [[0, 0], [1, 1], [0, 0]]


def test_a_transposing_load_gives_each_lane_a_column_of_its_group() -> None:
    """Lanes 0 to 7 load rows of a matrix of 8 by 8 halves, and hold its columns, as wmma takes them."""
    matrices = np.arange(4 * 64, dtype=np.uint16).reshape(4, 8, 8)
    words = assemble(ISAS[ARCH], "global_load_tr_b128", ("v[4:7]", "v[0:1]"))
    v = {0: BASE + 16 * np.arange(LANES, dtype=np.uint32), 1: 0}
    b = run_words(ARCH, words, v=v, memory=memory_of(matrices.copy()))
    held = np.ascontiguousarray(b.u32[4:8, 0].T).view(np.uint16).reshape(4, 8, 8)
    assert held.tolist() == matrices.swapaxes(1, 2).tolist()


@pytest.mark.parametrize(("name", "size"), [("global_load_tr_b64", 32), ("global_load_tr_b128", 64)])
def test_transposing_loads_that_nobody_has_measured_are_refused(name: str, size: int) -> None:
    data = "v[4:5]" if name.endswith("b64") else "v[4:7]"
    words = assemble(ISAS[ARCH], name, (data, "v[0:1]"))
    with pytest.raises(IllegalOperation, match="no source says which lane gets what"):
        run_words(ARCH, words, wave_size=size)
