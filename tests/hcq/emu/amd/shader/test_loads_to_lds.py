"""Loads to LDS: where the bytes go, when they are there, and what the instruction is called."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hcq.emu.amd.shader import disassembly
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.shader.loads_to_lds import is_load_to_lds
from hcq.emu.amd.shader.memory import AddressSpace
from tests.hcq.emu.amd.shader.assembler import Assembler
from tests.hcq.emu.amd.shader.bench import ISAS, Numbers, run_words
from tests.hcq.emu.amd.shader.kernels import Loaded

DATA = 0x7000_0000
LANES = np.arange(64)
M0 = 124
VMCNT = 0x0F70  # of s_waitcnt: no other counter is waited for
by_arch = pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])

COPIES = """
@tile = internal addrspace(3) global [512 x i32] poison, align 16
declare void @llvm.amdgcn.global.load.lds(ptr addrspace(1), ptr addrspace(3), i32, i32, i32)
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out, i32 %far) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %in, i32 %t
  %l = getelementptr i32, ptr addrspace(3) @tile, i32 %far
  call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) %p, ptr addrspace(3) @tile, i32 4, i32 0, i32 0)
  call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) %p, ptr addrspace(3) %l, i32 4, i32 16, i32 0)
  call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) %p, ptr addrspace(3) %l, i32 2, i32 0, i32 1)
  call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) %out, ptr addrspace(3) %l, i32 1, i32 0, i32 2)
  ret void
}
"""


def space(data: Numbers) -> AddressSpace:
    made = AddressSpace()
    made.map(DATA, data, name="data")
    return made


def load(code: Assembler, bits: int = 32, **fields: int) -> None:
    """From s[6:7] + v0: before gfx942 a bit of the plain load."""
    name = {32: "dword", 16: "ushort", 8: "sbyte"}[bits]
    if code.isa.arch == "gfx90a":
        code(f"global_load_{name}", "v9", "v0", form="GLOBAL", saddr=6, lds=1, **fields)
    else:
        code(f"global_load_lds_{name}", "v0", form="GLOBAL", saddr=6, **fields)


def wait(code: Assembler, left: int) -> None:
    code("s_waitcnt", VMCNT | left & 15 | left >> 4 << 14)


def read(code: Assembler, register: int) -> None:
    code("ds_read_b32", f"v{register}", "v0")


def run(code: Assembler, data: Numbers, m0: int = 0, lanes: Numbers | None = None) -> tuple[Numbers, Numbers]:
    """(registers, LDS) after the code; v0 is 4 * lane, v3 is 7."""
    found = run_words(
        code.isa.arch,
        code.words,
        v={0: 4 * LANES, 3: 7},
        s={6: DATA, 7: 0, M0: m0},
        lanes=lanes,
        lds_bytes=1024,
        memory=space(data),
    )
    return found.u32[:, 0], found.residents.lds.words


@by_arch
def test_a_wave_writes_consecutive_words_from_m0_on_and_leaves_out_lanes_that_are_off(arch: str) -> None:
    data = np.arange(100, 200, dtype=np.uint32)
    for lanes in (np.ones(64, bool), LANES % 3 == 0):
        code = Assembler(ISAS[arch])
        load(code, offset=8)
        registers, lds = run(code, data, m0=256, lanes=lanes)
        expected = np.zeros(256, np.uint32)
        expected[64 + 2 : 128 + 2][lanes] = data[2:66][lanes]  # the offset is added on both sides
        assert (lds == expected).all()
        assert not registers[9].any()


@by_arch
def test_bytes_and_halves_fill_a_word_each(arch: str) -> None:
    data = np.full(64, 0xABCD_80F0, np.uint32)
    for bits, word in ((16, 0x80F0), (8, 0xFFFF_FFF0)):
        code = Assembler(ISAS[arch])
        load(code, bits)
        assert (run(code, data)[1][:64] == word).all()


@by_arch
def test_what_is_loaded_is_there_when_the_wave_has_waited_for_it_and_no_sooner(arch: str) -> None:
    code = Assembler(ISAS[arch])
    load(code)
    read(code, 4)
    code("s_waitcnt", 0xC07F)  # for LDS: that is another counter
    read(code, 5)
    wait(code, 1)
    read(code, 6)
    wait(code, 0)
    read(code, 8)
    registers, _ = run(code, np.arange(1, 65, dtype=np.uint32))
    assert not registers[[4, 5, 6]].any()
    assert (registers[8] == LANES + 1).all()


@by_arch
@pytest.mark.parametrize("left", [0, 1, 2, 3, 40])
def test_loads_arrive_in_order_as_many_as_a_wait_asks_for(arch: str, left: int) -> None:
    code = Assembler(ISAS[arch])
    for number in range(3):
        load(code, offset=256 * number)
    code("global_store_dword", "v0", "v3", form="GLOBAL", saddr=6, offset=1024)  # counts as well
    wait(code, left)
    for number in range(3):
        code("ds_read_b32", f"v{4 + number}", "v0", offset1=number)
    registers, lds = run(code, np.arange(1, 64 * 5 + 1, dtype=np.uint32))
    arrived = max(0, min(3, 4 - left))
    for number in range(3):
        assert (registers[4 + number] != 0).all() == (number < arrived)
    assert (lds[: 3 * 64] == np.arange(1, 3 * 64 + 1)).all()  # when the wave ends, all are there


@by_arch
def test_what_a_load_writes_was_read_when_it_was_issued(arch: str) -> None:
    """A store behind it does not reach it, however late it arrives."""
    code = Assembler(ISAS[arch])
    load(code)
    code("global_store_dword", "v0", "v3", form="GLOBAL", saddr=6)
    wait(code, 0)
    data = np.arange(1, 65, dtype=np.uint32)
    _, lds = run(code, data)
    assert (lds[:64] == LANES + 1).all() and (data == 7).all()


@by_arch
def test_a_load_beyond_the_mapping_is_a_fault_of_its_first_lane_there(arch: str) -> None:
    code = Assembler(ISAS[arch])
    load(code)
    with pytest.raises(PageFault, match="wave 0 lane 40"):
        run(code, np.zeros(40, np.uint32))


@by_arch
def test_what_lies_beyond_lds_is_dropped(arch: str) -> None:
    code = Assembler(ISAS[arch])
    load(code)
    _, lds = run(code, np.arange(1, 65, dtype=np.uint32), m0=1024 - 16)
    assert lds[-4:].tolist() == [1, 2, 3, 4] and not lds[:-4].any()


@by_arch
def test_these_instructions_read_as_llvm_wrote_them(arch: str) -> None:
    loaded = Loaded(COPIES, arch)
    written = re.findall(r"^\t(global_load\w* .*)$", loaded.assembly, re.MULTILINE)
    isa, at, end = ISAS[arch], loaded.symbols["k"], loaded.symbols["k"] + 512
    found = []
    while at < end:
        inst = isa.decode(loaded.words(at, 4), at)
        if is_load_to_lds(inst):
            found.append(disassembly.text(isa, inst))
        at = end if inst.name == "s_endpgm" else inst.next_pc
    assert len(found) == 4

    def parts(lines: list[str]) -> list[list[str]]:
        """Mnemonic, operands and modifiers, which have no order that matters."""
        return [[line.split()[0], *sorted(line.replace(",", " ").split()[1:])] for line in lines]

    assert parts(found) == parts(written)
