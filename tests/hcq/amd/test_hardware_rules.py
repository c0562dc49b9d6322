"""What kernel and firmware do that a driver may not expect: work that breaks a rule fails as on hardware.

Each test makes our driver behave as one that does not know the rule, and sees what it would see on a GPU. The rules,
with what is known of each, are in docs/emulated-kernel.md.
"""

from __future__ import annotations

import dataclasses
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hcq.amd.abi import kfd, pm4, sdma
from hcq.amd.chip import CHIPS
from hcq.amd.device import AmdDevice
from hcq.amd.ioctl import call
from hcq.amd.launch import Scratch
from hcq.amd.process import KfdProcess
from hcq.amd.rings import AqlRing, Pm4Ring
from hcq.errors import DeviceFault, DriverError, UsageError, WaitTimeout
from hcq.system.port import FaultyPort
from tests.hcq.amd.conftest import fresh_port
from tests.hcq.amd.kernels import compile_ir, image
from tests.hcq.gpu.kernels import works

Open = Callable[..., AmdDevice]
MINUTE = 50_000

AWAIT = """
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @await(ptr addrspace(1) %flag) {
  %started = getelementptr i32, ptr addrspace(1) %flag, i32 1
  store volatile i32 1, ptr addrspace(1) %started
  br label %loop
loop:
  %v = load volatile i32, ptr addrspace(1) %flag
  %set = icmp ne i32 %v, 0
  br i1 %set, label %end, label %loop
end:
  ret void
}
"""


def emulated(device: AmdDevice) -> Any:
    """The GPU behind a device, as its process has it."""
    (process,) = device.port.kernels[0].processes.values()
    return process.gpus[device.node.gpu_id]


# ------------------------------------------------------------ PM4 rings


def fill_ring(device: AmdDevice, packets: int) -> None:
    """So many NOPs of 64 words, one after the other, as there is room."""
    nop = pm4.Nop(ignored=[0] * 62).to_bytes()
    assert len(nop) == 256
    ring = device.rings["compute"]
    for _ in range(packets):
        ring.write(nop, device._wait_for_room)
        ring.commit()


def test_the_read_pointer_of_pm4_is_a_place_in_the_ring(open_amd: Open, small_rings: None) -> None:
    amd = open_amd(queue="pm4")
    ring = amd.rings["compute"]
    fill_ring(amd, 3 * ring.size // 64)
    works(amd)
    assert ring.put > 3 * ring.size > ring._rptr[0]
    assert ring.get == ring.put


def test_a_driver_that_takes_it_for_a_count_waits_for_room_for_ever(
    open_amd: Open, small_rings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pm4Ring, "get", property(lambda self: self._rptr[0]))
    amd = open_amd(queue="pm4", timeout_ms=200)
    with pytest.raises(WaitTimeout, match="for room"):
        fill_ring(amd, 2 * amd.rings["compute"].size // 64)


def test_a_pm4_ring_that_is_filled_completely_looks_empty(
    open_amd: Open, small_rings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pm4Ring, "capacity", Pm4Ring.size)
    amd = open_amd(queue="pm4", timeout_ms=200)
    ring = amd.rings["compute"]
    words = pm4.Nop(ignored=[0] * (ring.size - 2)).to_bytes()
    ring.write(words, amd._wait_for_room)
    ring.commit()
    with pytest.raises(WaitTimeout):
        amd.queue().barrier().submit().wait(timeout_ms=100)
    assert ring._rptr[0] == 0
    amd.reset()


# ------------------------------------------------------------ what a queue is created with


class WithoutEop(FaultyPort):
    """Creates AQL queues without an end-of-pipe buffer."""

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        if request == kfd.CREATE_QUEUE.request:
            at = kfd.CreateQueueArgs.eop_buffer_address.byte_offset
            if argument[kfd.CreateQueueArgs.queue_type.byte_offset] == kfd.QueueType.COMPUTE_AQL:
                argument[at : at + 16] = bytes(16)
        return super().ioctl(fd, request, argument)


def test_release_mem_without_an_end_of_pipe_buffer_is_a_page_fault_at_0(open_amd: Open) -> None:
    amd = open_amd(port=WithoutEop(fresh_port("amd:gfx942"), {}), queue="aql")
    with pytest.raises(DeviceFault, match="page fault: the page at 0x0 is not mapped"):
        amd.queue().barrier().submit().wait(timeout_ms=MINUTE)


def test_each_xcc_has_scratch_memory_of_the_size_that_the_queue_says(
    open_amd: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(amd: AmdDevice) -> None:
        out = amd.alloc(256)
        amd.run(amd.load(image(amd.arch), "scratch"), [out, 3], block=(64, 1, 1))

    launch(open_amd("gfx942", queue="aql"))
    real = AqlRing.set_scratch

    def with_the_total(self: AqlRing, scratch: Scratch, unit: int) -> None:
        real(self, scratch._replace(size_bytes=scratch.size_bytes * self.node.xccs), unit)

    monkeypatch.setattr(AqlRing, "set_scratch", with_the_total)
    with pytest.raises(DeviceFault, match="page fault"):
        launch(open_amd("gfx942", queue="aql"))


def test_the_descriptor_of_scratch_memory_is_what_rocr_writes(open_amd: Open) -> None:
    for arch, queue, words in (
        ("gfx942", "aql", (0x80000000, 0x00EA4FAC)),
        ("gfx1100", "aql", (0x40000000, 0x20814FAC)),
    ):
        amd = open_amd(arch, queue=queue)
        amd.load(image(amd.arch), "scratch")
        ring = amd.rings["compute"]
        at = 0x90
        low, high, size, kind = struct.unpack_from("<4I", ring._page, at)
        assert amd.scratch is not None and (high & ~0xFFFF, kind) == words
        assert (high & 0xFFFF) << 32 | low == amd.scratch.va and size == amd.scratch.size_bytes


# ------------------------------------------------------------ events and faults


def test_only_signals_are_reset(open_amd: Open) -> None:
    amd = open_amd()
    for event in (amd.process.memory_event, amd.process.hardware_event, 77):
        with pytest.raises(DriverError, match=r"RESET_EVENT\(event_id=.*EINVAL"):
            call(amd.port, amd.kfd_fd, kfd.RESET_EVENT, event_id=event)
    call(amd.port, amd.kfd_fd, kfd.RESET_EVENT, event_id=amd.event_id)


def page_fault(amd: AmdDevice) -> str:
    """What is said of a store to an address that is not mapped."""
    with pytest.raises(DeviceFault) as error:
        amd.run(amd.load(image(amd.arch), "store_at"), [amd.alloc(64), (1 << 36) + 40])
    return str(error.value)


def test_a_store_to_what_is_not_mapped_is_said_to_be_both_and_its_page_is_told(open_amd: Open) -> None:
    amd = open_amd()
    text = page_fault(amd)
    memory = amd.process.faults[amd.node.gpu_id].memory
    assert memory is not None and (memory.NotPresent, memory.ReadOnly, memory.va % 4096) == (1, 1, 0)
    assert f"the page at {memory.va:#x} is not mapped" in text


def test_an_evicted_process_stays_evicted_and_its_new_queues_never_run(
    open_amd: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KfdProcess, "check_not_evicted", lambda self, *args: None)
    amd = open_amd()
    page_fault(amd)
    monkeypatch.setattr(AmdDevice, "has_event", lambda self: False)
    monkeypatch.setattr(AmdDevice, "stopped_on", lambda self: "")
    with pytest.raises(WaitTimeout):  # the queues were made again, and nothing reads them
        amd.queue().barrier().submit().wait(timeout_ms=100)
    amd.reset()


def test_after_a_page_fault_the_device_is_lost_and_its_buffers_can_be_read(open_amd: Open) -> None:
    amd = open_amd()
    kept = amd.alloc(1 << 20, "kept")
    kept.write(b"\5" * (1 << 20))
    page_fault(amd)
    with pytest.raises(
        UsageError, match=r"runs no queue of this process on GPU 0x\w+ any more. Restart the process"
    ):
        amd.queue()
    assert kept.read() == b"\5" * (1 << 20)
    with pytest.raises(UsageError):
        kept.write(b"\6")


def test_a_second_device_on_the_gpu_is_lost_with_the_first_and_another_gpu_is_not(open_amd: Open) -> None:
    one = open_amd(port=fresh_port("amd:gfx1100", "amd:gfx942"))
    same, other = open_amd(port=one.port), open_amd(port=one.port, name="AMD:1")
    page_fault(one)
    with pytest.raises(DeviceFault, match="page fault"):
        same.queue().barrier().submit().wait(timeout_ms=MINUTE)
    assert same.is_lost
    works(other)


def test_a_hardware_exception_without_a_gpu_is_of_every_gpu(open_amd: Open) -> None:
    amd = open_amd()
    emulated(amd).events.hw_exception(0, memory_lost=False)
    gate = amd.signal("gate")
    with pytest.raises(DeviceFault, match="the GPU hung and was reset"):
        amd.queue().wait(gate, 1).submit().wait(timeout_ms=MINUTE)


# ------------------------------------------------------------ waves and caches


def run_while_a_queue_is_made(amd: AmdDevice) -> None:
    """A kernel runs until the host says so; meanwhile another device makes its queues."""
    gpu = emulated(amd).gpu
    flag = amd.alloc(64)
    flag.write(bytes(64))
    words = flag.host.cast("I")
    done = amd.queue().dispatch(amd.load(compile_ir(AWAIT, amd.arch), "await"), [flag]).submit()
    wait_until(lambda: words[1] == 1)
    before = gpu.preemptions
    other = threading.Thread(target=lambda: AmdDevice("AMD", amd.port, amd.config).close())
    other.start()
    wait_until(lambda: gpu.preemptions > before)
    words[0] = 1
    other.join()
    done.wait(timeout_ms=1000)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Let other threads work until something is so."""
    end = time.monotonic() + MINUTE / 1000
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("is_privileged", [True, False])
def test_waves_of_gfx11_survive_preemption_only_if_they_are_privileged(
    open_amd: Open, is_privileged: bool
) -> None:
    amd = open_amd("gfx1100", queue="pm4")
    if is_privileged:
        run_while_a_queue_is_made(amd)
        return
    amd.chip = dataclasses.replace(amd.chip, needs_privilege=False)
    with pytest.raises(WaitTimeout):
        run_while_a_queue_is_made(amd)
    amd.reset()


def test_an_sdma_7_fence_that_is_not_uncached_stays_in_a_cache(
    open_amd: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(amd: AmdDevice) -> None:
        a = amd.alloc(64)
        a.write(bytes(64))
        amd.queue().copy(amd.alloc(64), a).submit().wait(timeout_ms=300)

    copy(open_amd("gfx1201", options=":caches"))
    real = sdma.FenceV7.__init__
    monkeypatch.setattr(sdma.FenceV7, "__init__", lambda self, **values: real(self, **{**values, "mtype": 0}))
    amd = open_amd("gfx1201", options=":caches")
    with pytest.raises(WaitTimeout):
        copy(amd)
    amd.reset()


# ------------------------------------------------------------ kernel drivers and parts


def with_chip(monkeypatch: pytest.MonkeyPatch, arch: str, **fields: Any) -> None:
    """The driver takes the GPUs of an architecture for such as differ in these fields."""
    changed = dataclasses.replace(CHIPS[arch], **fields)
    monkeypatch.setattr("hcq.amd.device.chip_of", lambda version: changed)


def test_a_save_area_of_another_size_is_tried_where_older_kernel_drivers_expect_it(
    monkeypatch: pytest.MonkeyPatch, open_amd: Open
):
    """gfx1151: its registers are in kfd_get_vgpr_size_per_cu of later kernels alone; before, its area is EINVAL."""
    with_chip(monkeypatch, "gfx1100", vgpr_bytes=0x40000)
    with pytest.raises(DriverError, match="CREATE_QUEUE"):
        open_amd("gfx1100")
    with_chip(monkeypatch, "gfx1100", vgpr_bytes=0x40000, vgpr_bytes_once=0x60000)
    device = open_amd("gfx1100")
    works(device)
    assert len(device.rings["compute"].allocations) == 4  # what was for the first try is given back


def test_gfx1151_is_the_part_whose_registers_kernels_learnt_late():
    assert {arch: chip.vgpr_bytes_once for arch, chip in CHIPS.items() if chip.vgpr_bytes_once} == {
        "gfx1151": 0x40000
    }


def test_of_gfx10_3_the_host_never_reads_the_gpus_memory_itself(
    monkeypatch: pytest.MonkeyPatch, open_amd: Open
):
    """What it reads there over PCIe may be old: amdgpu invalidates the host data path's cache first, and we cannot."""
    assert {chip.family for chip in CHIPS.values() if chip.reads_old} == {10}
    with_chip(monkeypatch, "gfx1100", reads_old=True)
    device = open_amd("gfx1100")
    works(device)
    assert device.facts()["memory"] == "mixed"
    assert "may be old" in device.facts()["why_host_memory"]
    large = device.alloc(8 << 20)
    large.write(b"\1" * (8 << 20))
    device.queue().fill(large, 7, 4, 4096, value_bytes=4).submit().wait()
    assert large.read(4092, 12) == b"\1\1\1\1\7\0\0\0\1\1\1\1"
    with pytest.raises(UsageError, match="Use read and write"):
        len(large.host)


@pytest.mark.parametrize("queue", ["aql", "pm4"])
def test_a_whole_mi300x_has_eight_dies_with_a_part_of_scratch_memory_each(open_amd: Open, queue: str):
    device = open_amd("gfx942", queue=queue, options=":mi300x")
    assert (device.node.xccs, device.node.compute_units) == (8, 304)
    area = next(one for one in device.rings["compute"].allocations if one.size_bytes > 100 << 20)
    assert round(area.size_bytes / (1 << 20)) == 177
    works(device)
    scratch = device.scratch_for(256, 64)
    assert scratch is not None
    (region,) = [one for one in device.gpu_memory.live.values() if one.va == scratch.va]
    assert region.size_bytes == 8 * scratch.size_bytes


def test_other_parts_are_no_mi300x():
    with pytest.raises(UsageError, match="an MI300X is a gfx942, no gfx1100"):
        fresh_port("amd:gfx1100:mi300x")
