"""What goes wrong is told in words, never hangs beyond its deadline, and leaves a device that works."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hcq.amd.abi import kfd
from hcq.amd.device import AmdDevice
from hcq.errors import DeviceFault, DriverError, HcqError, UsageError, WaitTimeout
from hcq.system.port import FaultyPort, refused
from tests.hcq.amd import conftest
from tests.hcq.amd.conftest import settings_with, the_process
from tests.hcq.amd.kernels import image
from tests.hcq.gpu.kernels import works

Open = Callable[..., AmdDevice]
_systems: list[Any] = []


def fresh_port(*words: str) -> Any:
    """An emulated operating system, whose process ends with the test."""
    _systems.append(conftest.fresh_port(*words))
    return _systems[-1]


@pytest.fixture(autouse=True)
def processes_end() -> Iterator[None]:
    """A queue that could not be destroyed belongs to its process until that ends."""
    yield
    while _systems:
        for kernel in _systems.pop().kernels:
            for process in list(kernel.processes):
                kernel.exit(process)


# ------------------------------------------------------------ opening


class KeepsQueues(FaultyPort):
    """Refuses to end queues, `left` times."""

    left = 0

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        if request == kfd.DESTROY_QUEUE.request and self.left:
            self.left -= 1
            raise refused(f"ioctl(fd={fd}, request={request:#x})", errno.EBUSY)
        return super().ioctl(fd, request, argument)


def test_no_queue_is_made_beside_one_that_could_not_be_ended():
    port = KeepsQueues(fresh_port("amd:gfx1100"), {})
    device = AmdDevice("AMD", port, settings_with())
    late = device.queue().wait(device.signal("nobody's"), 1).submit()
    port.left = 1
    with pytest.raises(DriverError, match=r"AMDKFD_IOC_DESTROY_QUEUE.*EBUSY"):
        device.reset()
    with pytest.raises(DeviceFault, match="abandoned"):
        late.wait()
    works(device)
    (gpu,) = the_process(port.inner.kernels[0]).gpus.values()
    assert set(gpu.queues) == {ring.queue_id for ring in device.rings.values()}
    device.close()


def test_a_queue_that_stays_costs_the_device_and_not_the_next_one(open_amd: Open):
    port = KeepsQueues(fresh_port("amd:gfx1100"), {})
    device = AmdDevice("AMD", port, settings_with())
    device.queue().wait(device.signal("nobody's"), 1).submit()
    port.left = 1 << 30
    with pytest.raises(DriverError, match="AMDKFD_IOC_DESTROY_QUEUE"):
        device.reset()
    with pytest.raises(HcqError, match=r"could not be rebuilt after a fault.*DESTROY_QUEUE"):
        works(device)
    works(open_amd(port=port.inner))
    port.left = 0
    device.close()


def test_an_ioctl_names_its_arguments_and_the_fix(open_amd: Open):
    inner = fresh_port("amd:gfx1100")
    open_amd(port=inner)
    with pytest.raises(
        DriverError, match=r"AMDKFD_IOC_ALLOC_MEMORY_OF_GPU\(va_addr=0x\w+, size=.*ENOMEM.*ask for less"
    ):
        AmdDevice("AMD", FaultyPort(inner, {"ioctl": (5, errno.ENOMEM)}), settings_with())


# ------------------------------------------------------------ running


def test_a_kernel_that_wants_more_lds_than_there_is_is_refused_when_it_is_loaded(amd: AmdDevice):
    from hcq.amd.link import Linked

    linked = Linked(image(amd.arch), amd.chip, "reverse")
    section = next(s for s in linked.object.sections if s.name == ".rodata")
    symbol = next(s for s in linked._symbols if s.name == "reverse.kd")
    damaged = bytearray(image(amd.arch))
    struct.pack_into("<I", damaged, section.offset + symbol.value, 70_000)
    with pytest.raises(UsageError, match=r"kernel 'reverse' needs 70000 bytes of LDS; a workgroup has 65536"):
        amd.load(bytes(damaged), "reverse")


def test_words_that_are_no_packet_stop_the_queue_and_a_reset_starts_it_again(open_amd: Open):
    amd = open_amd()
    ring = amd.rings["compute"]
    ring.write(struct.pack("<2I", 0xC000_FF00, 1), amd._wait_for_room)
    with pytest.raises(WaitTimeout):
        amd.queue().barrier().submit().wait(timeout_ms=50)
    amd.reset()
    works(amd)


def test_without_the_flush_register_buffers_are_host_memory_and_the_facts_say_why(open_amd: Open):
    inner = fresh_port("amd:gfx1100")

    class NoRegister(FaultyPort):
        def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
            from hcq.amd.abi import kfd
            from hcq.system.port import refused

            if request == kfd.ALLOC_MEMORY_OF_GPU.request and argument[36] & kfd.AllocFlags.MMIO_REMAP:
                raise refused("ioctl", errno.ENOMEM)
            return super().ioctl(fd, request, argument)

    amd = open_amd(port=NoRegister(inner, {}))
    assert amd.facts()["memory"] == "mixed"
    assert "ENOMEM" in amd.facts()["why_host_memory"]
    works(amd)
