"""Constant bank 0 that is not what machine code reads there stops the channel: what hardware would turn into a wrong
number, a wrong address or a page fault is a sentence here. Each launch below is what our own driver once sent.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.hcq.emu.nv.raw import Launch, Loaded, Raw
from tests.hcq.emu.nv.test_compute import do, ready

KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 at)
{
    .reg .b32 %%r<4>;
    .reg .b64 %%rd<4>;
    .reg .pred %%p<2>;
    %s
    ret;
}
"""
ADDRESS = "cvta.param.u64 %rd1, at;"
INSIDE = "ld.param.u64 %rd1, [at]; isspacep.param %p1, %rd1;"
CLUSTER_Y = "mov.u32 %r1, %clusterid.y;"
CLUSTERS = "mov.u32 %r1, %nclusterid.y;"
SLOT = "mov.u32 %r1, %reserved_smem_offset_1;"
ONE = struct.pack("<f", 1.0)


def launch(word: str, body: str, **fields: int) -> tuple[Raw, Launch]:
    raw = ready(word)
    kernel = Loaded(raw, KERNEL % body, "k", 8)
    return raw, Launch(raw, kernel.program, struct.pack("<Q", raw.out.va), (2, 3, 1), **fields)


def put(made: Launch, at: int, data: bytes) -> None:
    made.bank[at : at + len(data)] = np.frombuffer(data, np.uint8)


def refused(raw: Raw, made: Launch) -> str:
    raw.push(made.words)
    xid, line = raw.fault()
    assert xid == 13
    return line


@pytest.mark.parametrize("word", ["nv:sm_80", "nv:sm_86", "nv:sm_89"])
def test_before_hopper_the_bank_says_where_it_is_itself(word: str):
    raw, made = launch(word, ADDRESS)
    put(made, 0x40, struct.pack("<Q", made.bank_va + 0x160))
    assert f"the bank's own address is {made.bank_va + 0x160:#x}; it is {made.bank_va:#x}" in refused(
        raw, made
    )
    raw, made = launch(word, ADDRESS)
    put(made, 0x40, struct.pack("<Q", made.bank_va))
    do(raw, made.words)


def test_before_hopper_the_parameters_end_is_an_offset_in_the_bank():
    raw, made = launch("nv:sm_80", INSIDE)
    put(made, 0x40, struct.pack("<Q", made.bank_va))
    put(made, 0x12C, struct.pack("<I", 8))
    assert "the end of the parameters in it is 0x8; it is 0x168" in refused(raw, made)
    raw, made = launch("nv:sm_80", INSIDE)
    put(made, 0x40, struct.pack("<Q", made.bank_va))
    put(made, 0x12C, struct.pack("<I", 0x168))
    do(raw, made.words)


@pytest.mark.parametrize(("word", "at", "base"), [("nv:sm_90", 0x198, 0x210), ("nv:sm_120", 0x348, 0x380)])
def test_from_hopper_on_the_bank_says_where_the_parameters_are(word: str, at: int, base: int):
    raw, made = launch(word, INSIDE)
    assert "the parameters' addresses is 0x0, 0x0" in refused(raw, made)
    raw, made = launch(word, INSIDE)
    put(made, at, struct.pack("<2Q", made.bank_va + base, made.bank_va + base + 8))
    do(raw, made.words)


@pytest.mark.parametrize(
    ("word", "at", "base"), [("nv:sm_80", 0x40, 0), ("nv:sm_90", 0x198, 0x210), ("nv:sm_120", 0x348, 0x380)]
)
@pytest.mark.parametrize("what", ["where it is", "the grid"])
def test_a_bank_that_says_else_than_that_of_the_same_launch_before_is_refused(
    word: str, at: int, base: int, what: str
):
    raw, made = launch(word, ADDRESS if not base else INSIDE, constant_buffer_invalidate_0=1)
    size = 8 if not base else 16
    put(made, at, struct.pack("<2Q", made.bank_va + base, made.bank_va + base + 8)[:size])
    for _ in range(3):
        do(raw, made.words)
    offset = at if what == "where it is" else {"nv:sm_120": 0x370}.get(word, 0x00C)
    made.bank[offset] ^= 7
    assert "constant bank 0 says" in refused(raw, made)


@pytest.mark.parametrize(
    ("word", "reciprocals", "clusters"),
    [("nv:sm_90", 0x150, 0x15C), ("nv:sm_100", 0x2B0, 0x2C0), ("nv:sm_120", 0x2B0, 0x2C0)],
)
def test_code_multiplies_by_the_reciprocal_of_a_clusters_blocks(word: str, reciprocals: int, clusters: int):
    raw, made = launch(word, CLUSTER_Y)
    assert "1 / the blocks of a cluster is 0.0, 0.0; it is 1.0, 1.0" in refused(raw, made)
    raw, made = launch(word, CLUSTER_Y)
    put(made, reciprocals + 4, 2 * ONE)
    do(raw, made.words)
    raw, made = launch(word, CLUSTERS)
    put(made, clusters, struct.pack("<3I", 3, 2, 1))
    assert "the clusters of the grid is 0x3, 0x2, 0x1; it is 0x2, 0x3, 0x1" in refused(raw, made)


@pytest.mark.parametrize(("word", "at"), [("nv:sm_80", 0x50), ("nv:sm_90", 0xD0), ("nv:sm_120", 0x120)])
def test_generic_addresses_of_constants_count_from_constant_bank_3(word: str, at: int):
    body = "mov.u64 %rd1, 0; cvta.const.u64 %rd1, %rd1;"
    bank3 = {"constant_buffer_valid_3": 1, "constant_buffer_size_3": 16}
    raw, made = launch(word, body)
    made.write(constant_buffer_addr_3=made.memory.va + 0x3000, **bank3)
    assert f"the address of constant bank 3 is 0x0; it is {made.memory.va + 0x3000:#x}" in refused(raw, made)
    raw, made = launch(word, body)
    made.write(constant_buffer_addr_3=made.memory.va + 0x3000, **bank3)
    put(made, at, struct.pack("<Q", made.memory.va + 0x3000))
    do(raw, made.words)


@pytest.mark.parametrize(
    ("word", "at", "begin"), [("nv:sm_80", 0x120, 0x100), ("nv:sm_90", 0x68, 0), ("nv:sm_120", 0x278, 0)]
)
def test_the_slot_of_cooperative_groups_is_in_the_reserved_part_of_shared_memory(
    word: str, at: int, begin: int
):
    """Left at zero, it is the kernel's own shared memory before Hopper: two owners of the same bytes."""
    raw, made = launch(word, SLOT, shared_memory_size=0x500)
    assert f"it is [{begin:#x}, {begin + 0x400:#x})" in refused(raw, made)
    raw, made = launch(word, SLOT, shared_memory_size=0x500)
    put(made, at, struct.pack("<2I", begin + 0x400, begin + 0x200))
    do(raw, made.words)
