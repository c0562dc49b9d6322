"""Registers of AMD GPUs: status words and hardware queues, which are never read while the engine may sleep."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from hcq.amd import debugfs_registers, inspection
from hcq.amd.abi import gpu_registers, mqd
from hcq.amd.device import AmdDevice
from hcq.config import Config
from hcq.emu.machine import kernels_for
from hcq.emu.port import EmulatedPort
from hcq.errors import DriverError
from hcq.inspect import text
from hcq.system.ioctl_numbers import READ, WRITE, ioctl_number
from hcq.system.port import AroundPort

DRI = "/sys/kernel/debug/dri/0"
REGS2 = f"{DRI}/amdgpu_regs2"


class Seen(AroundPort):
    """Notes the calls that reach the kernel."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def through(self, call: str, *arguments: Any) -> Any:
        self.calls.append((call, arguments))
        return super().through(call, *arguments)


def opened(word: str, queue: str = "pm4") -> tuple[AmdDevice, Seen]:
    port = Seen(EmulatedPort(kernels_for([word])))
    return AmdDevice("AMD", port, Config.read({"HCQ_AMD_QUEUE": queue})), port


@pytest.fixture
def gfx1100() -> Iterator[tuple[AmdDevice, Seen]]:
    device, port = opened("amd:gfx1100")
    yield device, port
    device.close()


@pytest.mark.parametrize(
    "arch, queue", [("gfx1100", "pm4"), ("gfx1100", "aql"), ("gfx90a", "pm4"), ("gfx942", "aql")]
)
def test_the_hardware_queue_says_where_the_ring_of_the_device_is(arch: str, queue: str) -> None:
    device, _ = opened(f"amd:{arch}", queue)
    try:
        buffer = device.alloc(64, "buffer")
        device.queue().fill(buffer, 1).submit().wait()
        found, _ = inspection.registers(device)
        ring = device.rings["compute"]
        queues = found["hardware_queues"]
        assert [one["xcc"] for one in queues] == list(range(device.node.xccs))
        for one in queues:
            assert one["fields"]["cp_hqd_pq_base"] == ring.ring.va
            assert one["fields"]["cp_hqd_pq_wptr"] == ring.put * (16 if queue == "aql" else 1)
            assert one["fields"]["cp_hqd_vmid"] == 8
        page = "\n".join(text.registers(found))
        assert f"at {ring.ring.va:#x}" in page and "GRBM_STATUS (0x2004)" in page
    finally:
        device.close()


def test_registers_of_a_hardware_queue_are_the_words_of_its_mqd() -> None:
    """The first and the last number are those of gc_11_0_0_offset.h and gc_9_4_3_offset.h."""
    for family, last in ((9, 0x127C), (11, 0x1FE0), (12, 0x1FE0)):
        assert gpu_registers.NUMBERS[family].queues + gpu_registers.COUNT - 1 == last
    layout = mqd.ComputeMqd11
    active = layout.fields["cp_hqd_active"].low // 32 - gpu_registers.FIRST_WORD
    assert gpu_registers.NUMBERS[11].queues + active == 0x1FAB


def test_a_gpu_that_works_says_so() -> None:
    device, _ = opened("amd:gfx1100")
    try:
        signal = device.signal()
        device.queue().wait(signal, 1).submit()
        found, _ = inspection.registers(device)
        status = {one["name"]: one for one in found["registers"]}
        assert "GUI_ACTIVE" in status["GRBM_STATUS"]["set"]
        signal.set(1)
        device.synchronize()
        found, _ = inspection.registers(device)
        status = {one["name"]: one for one in found["registers"]}
        assert status["GRBM_STATUS"]["set"] == []
    finally:
        device.close()


def test_while_gfxoff_is_allowed_no_register_is_read_through_debugfs() -> None:
    device, port = opened("amd:gfx1201")
    try:
        port.calls.clear()
        found, notes = inspection.registers(device)
        assert found["hardware_queues"] == []
        assert any("GFXOFF is allowed" in note and "amdgpu_gfxoff" in note for note in notes)
        assert [one["name"] for one in found["registers"]] == ["GRBM_STATUS", "GRBM_STATUS2", "CP_STAT"]
        read = [arguments[1] for call, arguments in port.calls if call == "pread"]
        assert read == [4], "amdgpu_gfxoff alone was read"
    finally:
        device.close()


def test_gfxoff_is_asked_for_before_each_queue(gfx1100: tuple[AmdDevice, Seen]) -> None:
    device, port = gfx1100
    port.calls.clear()
    inspection.registers(device)
    sizes = [arguments[1] for call, arguments in port.calls if call == "pread"]
    assert sizes == [4, 4 * gpu_registers.COUNT] * 16


def test_an_engine_that_went_to_sleep_meanwhile_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    port = EmulatedPort(kernels_for(["amd:gfx1201"]))
    monkeypatch.setattr(debugfs_registers, "gfxoff", lambda port, folder: "")
    found, notes = debugfs_registers.hardware_queues(port, DRI, {0: 0x1260}, 12)
    assert found == []
    assert notes == ["registers read as all ones: the GPU is off the bus, or asleep"]


def test_a_selection_belongs_to_the_file_that_made_it(gfx1100: tuple[AmdDevice, Seen]) -> None:
    _, port = gfx1100
    first, second = port.open(REGS2, os.O_RDWR), port.open(REGS2, os.O_RDWR)
    state = gpu_registers.Regs2State(use_srbm=1, me=1, pipe=0, queue=0)
    port.ioctl(first, gpu_registers.SET_STATE_V2, bytearray(state.to_bytes()))
    active = 4 * (0x1260 + 0x1FAB)
    assert port.pread(first, 4, active) == struct.pack("<I", 1)
    assert port.pread(second, 4, active) == bytes(4)
    port.close(first)
    port.close(second)


def test_what_the_kernel_refuses_the_emulated_file_refuses(gfx1100: tuple[AmdDevice, Seen]) -> None:
    _, port = gfx1100
    fd = port.open(REGS2, os.O_RDWR)
    for size, offset in ((3, 0), (4, 2)):
        with pytest.raises(DriverError, match="EINVAL"):
            port.pread(fd, size, offset)
    with pytest.raises(DriverError, match="EINVAL"):
        port.ioctl(fd, ioctl_number(READ | WRITE, 0x20, 7, 44), bytearray(44))
    far = gpu_registers.Regs2State(use_grbm=1, se=99, sh=0xFFFFFFFF, instance=0xFFFFFFFF)
    port.ioctl(fd, gpu_registers.SET_STATE_V2, bytearray(far.to_bytes()))
    with pytest.raises(DriverError, match="EINVAL"):
        port.pread(fd, 4, 0)
    port.close(fd)


def test_the_request_has_the_number_of_the_kernels_header() -> None:
    assert gpu_registers.SET_STATE_V2 == 0xC02C2001


def test_a_register_that_may_not_be_read_is_refused(gfx1100: tuple[AmdDevice, Seen]) -> None:
    device, port = gfx1100
    numbers = gpu_registers.NUMBERS[11]
    found, notes = debugfs_registers.status(port, f"/dev/dri/renderD{device.node.render_minor}", 0x9999, 11)
    assert found == [] and len(notes) == len(numbers.status)
    assert all("EFAULT" in note for note in notes)
