"""What reaches beyond a buffer's descriptor reads 0 and writes nothing, word by word; loads into half a register."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq.emu.amd.shader.memory import AddressSpace
from tests.hcq.emu.amd.shader import random_code
from tests.hcq.emu.amd.shader.assembler import assemble
from tests.hcq.emu.amd.shader.bench import ISAS, OLD_NAMES, run_words

BASE, WORDS = 0x40_0000, 1024
WIDTHS = {1: ("dword", "b32"), 2: ("dwordx2", "b64"), 3: ("dwordx3", "b96"), 4: ("dwordx4", "b128")}
ARCHS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
OLD = 0xAAAA5555


def lanes_of(arch: str) -> int:
    return 64 if ISAS[arch].is_gfx9 else 32


def setting(records: int) -> tuple[AddressSpace, Any, dict[int, int]]:
    """Memory of numbers that are not 0, and a descriptor of its first bytes."""
    memory, data = AddressSpace(), np.arange(1, WORDS + 1, dtype=np.uint32) * np.uint32(0x10003)
    memory.map(BASE, data, name="data")
    return memory, data, dict(zip(range(8, 12), (BASE, 0, records, 0)))


def no_offset(arch: str) -> Any:
    """The scalar offset of a buffer instruction that has none."""
    return "null" if arch.startswith("gfx12") else 0


def words_of(arch: str, verb: str, count: int, register: int) -> tuple[int, ...]:
    name = f"buffer_{verb}_{WIDTHS[count][0 if arch in OLD_NAMES else 1]}"
    data = f"v{register}" if count == 1 else f"v[{register}:{register + count - 1}]"
    return tuple(assemble(ISAS[arch], name, (data, "v0", "s[8:11]", no_offset(arch)), offen=1))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("count", WIDTHS)
def test_each_word_of_a_load_is_in_the_range_or_reads_zero(arch: str, count: int) -> None:
    lanes = lanes_of(arch)
    records = 4 * lanes + 4 * count - 6
    memory, data, descriptor = setting(records)
    offsets = np.arange(lanes, dtype=np.uint32) * 4 + 8
    v = {0: offsets, **{4 + word: OLD for word in range(count)}}
    b = run_words(arch, words_of(arch, "load", count, 4), v=v, s=descriptor, memory=memory)
    for word in range(count):
        at = offsets + 4 * word
        expected = np.where(at + 4 <= records, data[np.minimum(at // 4, WORDS - 1)], 0)
        assert b.u32[4 + word, 0].tolist() == expected.tolist()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("count", WIDTHS)
def test_each_word_of_a_store_is_in_the_range_or_is_not_written(arch: str, count: int) -> None:
    lanes = lanes_of(arch)
    records = 16 * (lanes - 1) + 4 * count - 4  # the last lane's last word is beyond it
    memory, data, descriptor = setting(records)
    expected = data.copy()
    offsets = np.arange(lanes, dtype=np.uint32) * 16
    values = {word: 0x9000 + 100 * word + np.arange(lanes, dtype=np.uint32) for word in range(count)}
    for word, row in values.items():
        inside = offsets + 4 * word + 4 <= records
        expected[(offsets // 4 + word)[inside]] = row[inside]
    v = {0: offsets, **{4 + word: row for word, row in values.items()}}
    run_words(arch, words_of(arch, "store", count, 4), v=v, s=descriptor, memory=memory)
    assert data.tolist() == expected.tolist()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("size", ["buffer", "lds"])
def test_a_load_into_half_a_register_clears_the_other_half_where_registers_have_ecc(
    arch: str, half: int, size: str
) -> None:
    """And reads 0 beyond the descriptor's range, into its half."""
    isa, lanes = ISAS[arch], lanes_of(arch)
    memory, data, descriptor = setting(2 * (lanes - 3))
    offsets = np.arange(lanes, dtype=np.uint32) * 2
    hi = "_hi" if half else ""
    kept = 0 if isa.is_gfx9 else OLD & (0xFFFF if half else 0xFFFF0000)
    if size == "buffer":
        name = f"buffer_load_short_d16{hi}" if arch in OLD_NAMES else f"buffer_load_d16{hi}_b16"
        words = assemble(isa, name, ("v4", "v0", "s[8:11]", no_offset(arch)), offen=1)
        there = np.where(offsets < 2 * (lanes - 3), data.view(np.uint16)[offsets // 2], 0)
    else:
        name = f"ds_read_u16_d16{hi}" if arch in OLD_NAMES else f"ds_load_u16_d16{hi}"
        words = assemble(isa, name, ("v4", "v0"))
        there = np.zeros(lanes, np.uint16)
    b = run_words(arch, words, v={0: offsets, 4: OLD}, s=descriptor, memory=memory)
    expected = there.astype(np.uint32) << np.uint32(16 * half) | np.uint32(kept)
    assert b.u32[4, 0].tolist() == expected.tolist()


@pytest.mark.parametrize(
    "arch", ["gfx942", "gfx1100", "gfx1201"]
)  # gfx90a's may be swizzled: they are interpreted
def test_compiled_code_leaves_what_the_interpreter_leaves_at_the_end_of_a_range(arch: str) -> None:
    names = [
        f"MUBUF:{opcode.name}"
        for form in ISAS[arch].formats
        if form.name == "MUBUF"
        for opcode in form.table.values()
        if opcode.name.startswith(("buffer_load", "buffer_store")) and "format" not in opcode.name
    ]
    for seed in range(12):
        words, made = random_code.code(arch, seed, 0x3F0, 40, names)
        assert made
        interpreted, compiled, _ = random_code.run(arch, words, seed, 0x3F0)
        assert not random_code.differences(interpreted, compiled), made
