"""The context save area, end to end: what the emulated kernel driver stores is read as what the shader core says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hcq.amd import saved_waves
from hcq.amd.abi import kfd
from hcq.amd.ioctl import call
from hcq.amd.saved_waves import SavedWave
from hcq.errors import DeviceFault, DriverError
from hcq.events import waves
from hcq.system import native
from tests.hcq.amd import kernels
from tests.hcq.amd.conftest import open_amd as open_amd
from tests.hcq.amd.conftest import the_process

pytestmark = pytest.mark.own_devices

IR = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
@shared = internal addrspace(3) global [200 x i32] undef

define amdgpu_kernel void @half(ptr addrspace(1) %flag) "amdgpu-flat-work-group-size"="128,128" {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %at = getelementptr i32, ptr addrspace(3) @shared, i32 %t
  %mark = mul i32 %g, 1000
  %value = add i32 %mark, %t
  store i32 %value, ptr addrspace(3) %at
  %in = icmp slt i32 %t, 40
  br i1 %in, label %again, label %meet
again:
  %v = load atomic i32, ptr addrspace(1) %flag syncscope("agent") monotonic, align 4
  %c = icmp eq i32 %v, 0
  br i1 %c, label %again, label %meet
meet:
  call void @llvm.amdgcn.s.barrier()
  %back = load i32, ptr addrspace(3) %at
  %out = getelementptr i32, ptr addrspace(1) %flag, i32 %value
  %past = getelementptr i32, ptr addrspace(1) %out, i32 16
  store i32 %back, ptr addrspace(1) %past
  ret void
}

define amdgpu_kernel void @far(ptr addrspace(1) %out, i64 %n) {
  %p = getelementptr i8, ptr addrspace(1) %out, i64 %n
  store i32 1, ptr addrspace(1) %p
  ret void
}
"""
GROUPS = 3
ARCHITECTURES = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]


def wave_state(device: Any) -> Any:
    """GET_QUEUE_WAVE_STATE of the compute ring."""
    ring = device.rings["compute"]
    area = ring.save_area
    return call(
        device.port,
        device.kfd_fd,
        kfd.GET_QUEUE_WAVE_STATE,
        queue_id=ring.queue_id,
        ctl_stack_address=area.va,
    )


def suspend(device: Any, percentage: int) -> None:
    ring = device.rings["compute"]
    fields = {"ring_base_address": ring.ring.va, "ring_size": 1 << 20, "queue_percentage": percentage}
    call(device.port, device.kfd_fd, kfd.UPDATE_QUEUE, queue_id=ring.queue_id, queue_priority=7, **fields)


def slices(device: Any) -> Iterator[memoryview]:
    """The save area of each XCC."""
    ring = device.rings["compute"]
    size = ring.save_bytes
    for xcc in range(device.node.xccs):
        yield native.view(ring.save_area.va + xcc * size, size)


def read(device: Any) -> list[SavedWave]:
    return [wave for area in slices(device) for wave in saved_waves.waves_of(area, device.arch)]


@contextmanager
def hung(device: Any) -> Iterator[Any]:
    """A kernel whose first 40 items wait for a flag, and the others at a barrier; then it ends after all."""
    program = device.load(kernels.compile_ir(IR, device.arch), "half", args=("buffer",), name="half")
    flag = device.alloc(64 << 10, "flag")
    flag.write(bytes(64 << 10))
    done = device.queue().dispatch(program, [flag], grid=(GROUPS, 1, 1), block=(128, 1, 1)).submit()
    end = time.monotonic() + 50
    while not waves._running and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.2)
    yield flag
    native.view(flag.va, 4).cast("I")[0] = 1
    done.wait(50_000)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_save_area_holds_the_waves_that_the_shader_core_has(
    arch: str, open_amd: Callable[..., Any]
) -> None:
    device = open_amd(arch, queue="pm4", timeout_ms=50_000, validate=False)
    with hung(device) as flag:
        suspend(device, 0)
        told = wave_state(device)
        found = read(device)
        gpu = the_process(device.port.kernels[0]).gpus[device.node.gpu_id]
        machine = gpu.queues[device.rings["compute"].queue_id].machine
        residents = machine.residents
        assert len(found) == len(residents.group_of)
        assert told.ctl_stack_used_size and told.save_area_used_size
        batches = [b for b in (machine.stepping, *machine.ready, *machine.waiting) if b is not None]
        by_place = {
            (int(residents.group_ids[i]), int(residents.place_in_group[i])): (b, at)
            for b in batches
            for at, i in enumerate(b.ids)
        }
        for wave in found:
            b, at = by_place[wave.group[0] if wave.group else GROUPS, wave.place] if wave.group else (None, 0)
            if b is None:
                continue
            assert wave.pc == b.pc - (4 if b in machine.waiting else 0)
            lanes = np.packbits(b.lanes[at], bitorder="little").tobytes()
            assert wave.exec == int.from_bytes(lanes, "little")
            assert wave.scalars[:100] == tuple(b.s[at, :100].tolist())
            assert wave.vcc & 0xFFFFFFFF == int(b.s[at, 106])
            rows = wave.shape.vgprs + wave.shape.accs
            assert rows == len(b.u32)
            for row in {0, 1, rows - 1}:
                assert wave.vector(row) == tuple(b.u32[row, at].tolist())
            if device.chip.family < 12:
                assert wave.is_at_barrier == (b in machine.waiting)
            assert not wave.is_halted and wave.stopped_by == ""
        firsts = [wave for wave in found if wave.is_first]
        assert len(firsts) == GROUPS == sum(wave.is_last for wave in found)
        held = sorted(np.frombuffer(wave.lds[:512], np.uint32).tolist() for wave in firsts)
        assert held == [[1000 * group + item for item in range(128)] for group in range(GROUPS)]
        assert all(not wave.lds for wave in found if not wave.is_first)
        suspend(device, 100)
    back = np.frombuffer(flag.read(), np.uint32)[16:]
    assert back[1000 : 1000 + 128].tolist() == list(range(1000, 1128))  # it went on where it was


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_a_wave_that_took_a_page_fault_says_so_in_the_area(arch: str, open_amd: Callable[..., Any]) -> None:
    device = open_amd(arch, queue="pm4", timeout_ms=50_000, validate=False)
    seen: list[list[SavedWave]] = []
    recover = device.recover
    device.recover = lambda: (wave_state(device), seen.append(read(device)), recover())[-1]
    program = device.load(kernels.compile_ir(IR, arch), "far", args=("buffer", "int"), name="far")
    with pytest.raises(DeviceFault):
        device.queue().dispatch(program, [device.alloc(16), 1 << 31]).submit().wait(50_000)
    (wave,) = seen[0]
    assert wave.is_halted and wave.stopped_by == "memory violation"
    assert program.code_va < wave.pc < program.code_va + 256
    assert wave.exec == 1


def test_a_queue_without_a_kernel_has_no_waves(open_amd: Callable[..., Any]) -> None:
    device = open_amd(queue="pm4")
    suspend(device, 0)
    assert wave_state(device).save_area_used_size == 0
    assert read(device) == []
    suspend(device, 100)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100", "gfx1201"])
def test_a_damaged_area_is_refused_or_read_within_its_bounds(arch: str, open_amd: Callable[..., Any]) -> None:
    device = open_amd(arch, queue="pm4", timeout_ms=50_000, validate=False)
    with hung(device):
        suspend(device, 0)
        wave_state(device)
        whole = bytes(next(slices(device)))
        suspend(device, 100)
    header = kfd.ContextSaveAreaHeader.decode(np.frombuffer(whole[:40], np.uint32).tolist())
    start = header.control_stack_offset
    end = header.wave_state_offset
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(200):
        data = bytearray(whole[: end + 64])
        where = int(rng.integers(0, 16)) if rng.random() < 0.5 else int(rng.integers(start, start + 64))
        data[where] ^= 1 << int(rng.integers(0, 8))
        try:
            for wave in saved_waves.waves_of(memoryview(data)[: int(rng.integers(30, len(data)))], arch):
                wave.vector(0), wave.lds
        except DriverError as error:
            assert "save area" in str(error)
            refused += 1
    assert refused > 100


def test_architectures_whose_layout_is_not_public_are_refused() -> None:
    for arch in ("gfx1250", "gfx950", "gfx", "nonsense"):
        with pytest.raises(DriverError, match="not public"):
            list(saved_waves.waves_of(memoryview(bytes(64)), arch))
