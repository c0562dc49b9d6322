"""Two emulated GPUs in one process: one address space, memory of either for both, semaphores between their channels."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import hcq
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.status import NvStatus as S
from tests.compiler.building import emulating
from tests.hcq.emu.nv.raw import (
    AXPY,
    WINDOW,
    WINDOW_BYTES,
    Launch,
    Loaded,
    Memory,
    Raw,
    refusal,
    release,
    setup,
)

ACQUIRE, RELEASE = 0, 1


@pytest.fixture(params=["nv:sm_90", "nv:sm_90:seed=2"])
def pair(request: pytest.FixtureRequest) -> tuple[Raw, Raw]:
    first = Raw(request.param, request.param).open_channel()
    return first, Raw(gpu=1, beside=first).open_channel(window=WINDOW + WINDOW_BYTES)


def enable_peers(one: Raw, other: Raw) -> None:
    one.call(one.uvm, abi.UVM_ENABLE_PEER_ACCESS, gpuuuida=one.uuid, gpuuuidb=other.uuid)


def for_both(one: Raw, other: Raw, memory: Memory) -> None:
    """Map it for both GPUs in one call."""
    one.map_gpu(
        memory,
        gpuattributescount=2,
        pergpuattributes_1_gpuuuid=other.uuid,
        pergpuattributes_1_gpumappingtype=1,
    )


def test_each_gpu_has_its_own_page_table(pair: tuple[Raw, Raw]):
    one, other = pair
    memory = one.memory(4096)
    one.push(release(memory.va, 1))
    one.until(lambda: memory.array()[0] == 1)
    other.push(release(memory.va, 2))
    assert other.fault()[0] == 31
    one.push(release(memory.va, 3))
    one.until(lambda: memory.array()[0] == 3)


def test_system_memory_is_mapped_for_both_in_one_call(pair: tuple[Raw, Raw]):
    one, other = pair
    memory = one.memory(4096)
    for_both(one, other, memory)
    other.push([*release(memory.va, 1, ACQUIRE), *release(memory.va + 16, 2, RELEASE)])
    one.push(
        [*release(memory.va, 1, RELEASE), *release(memory.va + 16, 2, ACQUIRE), *release(memory.va + 32, 3)]
    )
    one.until(lambda: memory.array()[8] == 3)


def test_the_tokens_of_two_gpus_ring_their_own_doorbells(pair: tuple[Raw, Raw]):
    one, other = pair
    memory = other.memory(4096)
    other.push(release(memory.va, 1), ring=False)
    one.push(release(one.memory(4096).va, 1))
    one.until(lambda: one.userd[0x88 // 4] == one.put)
    assert memory.array()[0] == 0
    other.registers[0x90 // 4] = other.token
    other.until(lambda: memory.array()[0] == 1)


def test_a_kernel_reads_and_writes_the_other_gpus_memory(pair: tuple[Raw, Raw]):
    one, other = pair
    near, far, sem = one.memory(4096, is_video=True), other.memory(4096, is_video=True), one.memory(4096)
    near.array("f4")[:], far.array("f4")[:] = 1, 5
    fields = {"pergpuattributes_0_gpuuuid": one.uuid}
    assert refusal(other.map_gpu, far, **fields) == S.NV_ERR_INVALID_DEVICE
    enable_peers(one, other)
    other.map_gpu(far, **fields)
    kernel = Loaded(one, AXPY, "axpy", 24)
    there = Launch(
        one, kernel.program, struct.pack("<QQfI", far.va, near.va, 3.0, 512), (4, 1, 1), (128, 1, 1)
    )
    one.push([*setup(one), *there.words, *release(sem.va, 1)])
    one.until(lambda: sem.array()[0] == 1)
    assert (far.array("f4")[:512] == 8).all() and (far.array("f4")[512:] == 5).all()
    assert np.all(near.array("f4") == 1)


def test_peers_are_enabled_once(pair: tuple[Raw, Raw]):
    one, other = pair
    enable_peers(one, other)
    assert refusal(enable_peers, other, one) == S.NV_ERR_INVALID_DEVICE


def test_peers_are_two_registered_gpus(pair: tuple[Raw, Raw]):
    one, other = pair
    call = abi.UVM_ENABLE_PEER_ACCESS
    assert refusal(one.call, one.uvm, call, gpuuuida=one.uuid, gpuuuidb=one.uuid) == S.NV_ERR_INVALID_DEVICE
    assert refusal(one.call, one.uvm, call, gpuuuida=one.uuid, gpuuuidb=7) == S.NV_ERR_INVALID_DEVICE
    off = {"gpuuuida": one.uuid, "gpuuuidb": other.uuid}
    assert refusal(one.call, one.uvm, abi.UVM_DISABLE_PEER_ACCESS, **off) == S.NV_ERR_INVALID_DEVICE
    enable_peers(one, other)
    one.call(one.uvm, abi.UVM_DISABLE_PEER_ACCESS, **off)


def test_a_fault_on_one_gpu_leaves_the_other_alone(pair: tuple[Raw, Raw]):
    one, other = pair
    memory = other.memory(4096)
    one.enter(0x40_0000_0000, 4)
    assert "PCI:0000:01:00" in one.fault()[1]
    other.push(release(memory.va, 1))
    other.until(lambda: memory.array()[0] == 1)
    other.enter(0x40_0000_0000, 4)
    assert "PCI:0000:02:00" in other.fault()[1]


def test_an_unregistered_gpu_stops_its_channels_and_loses_its_mappings(pair: tuple[Raw, Raw]):
    one, other = pair
    memory = one.memory(4096)
    for_both(one, other, memory)
    one.call(one.uvm, abi.UVM_UNREGISTER_GPU_VASPACE, gpuuuid=other.uuid)
    assert int(other.notifier.array()[2]) == 45
    other.enter(other.ring.va, 4)
    assert int(one.notifier.array()[2]) == 0
    one.push(release(memory.va, 1))
    one.until(lambda: memory.array()[0] == 1)


@pytest.mark.parametrize(
    "part,arch,sms",
    [
        ("a100", "sm_80", 108),
        ("rtx4090", "sm_89", 128),
        ("h100", "sm_90", 132),
        ("h200", "sm_90", 132),
        ("b200", "sm_100", 148),
        ("rtx5090", "sm_120", 170),
    ],
)
def test_a_part_that_is_sold_has_its_sms_and_each_has_local_memory(part: str, arch: str, sms: int):
    with emulating(f"nv:{part}"):
        device = hcq.open("NV")
        assert (device.arch, device.gpu.sm_count) == (arch, sms)
        x = np.arange(64, dtype=np.float32)
        program = device.load(compiled_for(arch), "spilled")
        out = device.alloc(4 * 64)
        device.run(program, [out], grid=(2, 1, 1), block=(32, 1, 1))
        assert np.array_equal(np.frombuffer(out.read(), np.float32), x)


def compiled_for(arch: str) -> bytes:
    """A kernel whose threads keep a number in local memory."""
    return f""".version 8.8
.target {arch}
.address_size 64
.visible .entry spilled(.param .u64 O) {{
  .local .align 4 .b8 kept[256]; .reg .b64 %o, %w; .reg .b32 %i, %b, %l; .reg .f32 %x;
  ld.param.u64 %o, [O]; mov.u32 %i, %tid.x; mov.u32 %b, %ctaid.x; mad.lo.u32 %i, %b, 32, %i;
  cvt.rn.f32.u32 %x, %i; mov.u32 %l, kept; st.local.f32 [%l+16], %x; ld.local.f32 %x, [%l+16];
  mul.wide.u32 %w, %i, 4; add.u64 %o, %o, %w; st.global.f32 [%o], %x; ret;
}}""".encode()
