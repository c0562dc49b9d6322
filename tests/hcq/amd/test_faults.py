"""What goes wrong is told in words, never hangs beyond its deadline, and leaves a device that works."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hcq.amd.abi import kfd
from hcq.amd.device import AmdDevice
from hcq.errors import DeviceFault, DriverError, HcqError, UsageError, WaitTimeout
from hcq.port import FaultyPort, refused
from tests.hcq.amd import conftest
from tests.hcq.amd.conftest import settings_with
from tests.hcq.amd.kernels import image

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
            for gpu in kernel.gpus.values():
                for number in list(gpu.queues):
                    gpu.remove(number)


def works(amd: AmdDevice) -> None:
    """The device computes and copies."""
    a, b = amd.alloc(256), amd.alloc(256)
    a.write(bytes(256))
    program = amd.load(image(amd.arch), "increment")
    amd.queue().dispatch(program, [a], block=(64, 1, 1)).copy(b, a).submit().wait(timeout_ms=50_000)
    assert struct.unpack("<64I", b.read()) == (1,) * 64


# ------------------------------------------------------------ opening


def calls_of_opening(kind: str, queue: str) -> int:
    port = FaultyPort(fresh_port("amd:gfx1100"), {})
    device = AmdDevice("AMD", port, settings_with(amd_queue=queue))
    count = port.calls[kind]
    device.close()
    return count


@pytest.mark.parametrize("queue", ["pm4", "aql"])
@pytest.mark.parametrize("kind", ["open", "ioctl", "mmap", "read_file"])
def test_each_call_that_fails_while_opening_names_its_step_and_what_to_do(
    kind: str, queue: str, open_amd: Open
):
    steps = set()
    for allowed in range(calls_of_opening(kind, queue)):
        inner = fresh_port("amd:gfx1100")
        settings = settings_with(amd_queue=queue)
        try:
            AmdDevice("AMD", FaultyPort(inner, {kind: (allowed, errno.EIO)}), settings).close()
        except HcqError as error:
            text = str(error)
            assert text.startswith("open amd device: step "), text
            assert "EIO" in text
            assert "failed: " in text
            if kind == "ioctl":
                assert "AMDKFD_IOC_" in text or "DRM_IOCTL_AMDGPU_INFO" in text
            steps.add(text.split('"')[1])
        works(open_amd(port=inner))  # what was left behind does not stand in the way
    assert steps


class OneFault(FaultyPort):
    """Refuses one ioctl: the one with this number, counted from `arm`."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, {})
        self.count, self.refused = 0, -1

    def arm(self, number: int) -> None:
        self.count, self.refused = 0, number

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        self.count += 1
        if self.count - 1 == self.refused:
            raise refused(f"ioctl(fd={fd}, request={request:#x})", errno.EIO)
        return super().ioctl(fd, request, argument)


def busy_day(amd: AmdDevice) -> None:
    """Whatever makes a device call its kernel driver: memory, scratch memory, events, long reads."""
    a, b = amd.alloc(3 << 20, "a"), amd.alloc(3 << 20, "b")
    a.write(bytes(3 << 20))
    scratch = amd.load(image(amd.arch), "scratch")
    amd.run(scratch, [a, 3], block=(64, 1, 1))
    amd.queue().copy(b, a).submit().wait(timeout_ms=50_000)
    assert b.read() == a.read()
    ready = amd.signal("ready")
    done = amd.queue().wait(ready, 1).submit()
    ready.set(1)
    done.wait(timeout_ms=50_000)
    a.free()
    b.free()
    amd.memory.trim(0)


@pytest.mark.parametrize("queue", ["pm4", "aql"])
def test_each_ioctl_that_fails_while_a_device_works_is_named_and_it_can_be_opened_again(
    queue: str, open_amd: Open
):
    port = OneFault(fresh_port("amd:gfx1100"))
    device = AmdDevice("AMD", port, settings_with(amd_queue=queue))
    port.arm(-1)
    busy_day(device)
    device.close()
    count = port.count
    told = 0
    for number in range(count):
        port = OneFault(fresh_port("amd:gfx1100"))
        device = AmdDevice("AMD", port, settings_with(amd_queue=queue))
        port.arm(number)
        try:
            busy_day(device)
        except HcqError as error:
            told += 1
            assert "EIO" in str(error) and "AMDKFD_IOC_" in str(error), str(error)
        device.close(timeout_ms=1000)
        # how often the driver looks for events differs from run to run: this one may not have come so far
        port.arm(-1)
        again = open_amd(port=port, queue=queue)
        works(again)
        again.close()
    assert told > 5


def test_a_close_that_fails_is_told_and_does_not_stand_in_the_way(
    open_amd: Open, capsys: pytest.CaptureFixture[str]
):
    inner = fresh_port("amd:gfx1100")
    port = FaultyPort(inner, {})
    device = AmdDevice("AMD", port, settings_with())
    port.plan = {"ioctl": (port.calls["ioctl"], errno.EIO)}
    device.close()
    assert "closing AMD: AMDKFD_IOC_DESTROY_QUEUE(queue_id=0) -> EIO" in capsys.readouterr().err
    works(open_amd(port=inner))


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
    (gpu,) = port.inner.kernels[0].gpus.values()
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


def test_an_ioctl_names_its_arguments_and_the_fix(open_amd: Open):
    inner = fresh_port("amd:gfx1100")
    open_amd(port=inner)
    with pytest.raises(
        DriverError, match=r"AMDKFD_IOC_ALLOC_MEMORY_OF_GPU\(va_addr=0x\w+, size=.*ENOMEM.*ask for less"
    ):
        AmdDevice("AMD", FaultyPort(inner, {"ioctl": (5, errno.ENOMEM)}), settings_with())


def test_without_the_kernel_driver_the_error_says_so():
    class NoDriver:
        def __getattr__(self, name: str) -> Any:
            return getattr(fresh, name)

    fresh = FaultyPort(fresh_port("amd:gfx1100"), {"open": (0, errno.ENOENT)})
    with pytest.raises(
        DriverError, match=r'step 1/10 "open the kernel driver" failed: open.*/dev/kfd.*ENOENT.*not loaded'
    ):
        AmdDevice("AMD", NoDriver())


def test_a_gpu_that_is_not_there_is_named(open_amd: Open):
    with pytest.raises(UsageError, match=r"AMD:3: the kernel driver shows 1 GPUs \(gfx1100\)"):
        open_amd(name="AMD:3")


# ------------------------------------------------------------ running


def test_a_store_beyond_a_buffer_names_address_buffer_and_kernel(amd: AmdDevice):
    out = amd.alloc(1 << 20, "result")
    bad = amd.load(image(amd.arch), "store_at")
    size = 1 << 20
    with pytest.raises(DeviceFault) as error:
        amd.run(bad, [out, size + 32])
    text = str(error.value)
    assert "page fault" in text
    assert f"32 bytes after the end of buffer 'result' at {out.address:#x}" in text
    assert "store_at" in text
    assert "work-item (0, 0, 0)" in text  # what the emulated GPU adds
    with pytest.raises(DeviceFault, match="holds no result"):
        out.read()
    works(amd)


def test_a_kernel_that_never_ends_is_a_timeout_and_a_reset_ends_it(amd: AmdDevice):
    out = amd.alloc(64, "counter")
    program = amd.load(image(amd.arch), "forever")
    with pytest.raises(
        WaitTimeout, match=r"waited 200 ms .*dispatch forever\(.*ring: the GPU has read up to"
    ):
        amd.queue().dispatch(program, [out]).submit().wait(timeout_ms=200)
    amd.reset()
    works(amd)


@pytest.mark.parametrize("ring_name", ["compute", "copy"])
def test_a_lost_doorbell_is_a_timeout_that_shows_how_far_the_gpu_has_read(amd: AmdDevice, ring_name: str):
    works(amd)
    ring = amd.rings[ring_name]
    ring._doorbell = memoryview(bytearray(8)).cast("Q")  # stores go nowhere
    target = amd.alloc(4096, "target")
    with pytest.raises(WaitTimeout) as error:
        amd.queue().barrier().fill(target, 1).submit().wait(timeout_ms=50)
    assert re.search(rf"{ring.kind} ring: the GPU has read up to \d+ of \d+", str(error.value))
    assert "barrier; fill 4096 bytes" in str(error.value).lower()
    amd.reset()
    works(amd)


@pytest.mark.usefixtures("small_rings")
@pytest.mark.parametrize("queue", ["pm4", "aql"])
def test_a_full_ring_is_a_timeout_that_names_it(open_amd: Open, queue: str):
    amd = open_amd(queue=queue, timeout_ms=300)
    never = amd.signal("never")
    amd.queue().wait(never, 1).submit()
    q = amd.queue()
    for _ in range(200):
        q.barrier()
    with pytest.raises(
        WaitTimeout, match=rf"waited 300 ms for room. {queue.upper()} ring: the GPU has read up to"
    ):
        q.submit()
    amd.reset()
    works(amd)


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
            from hcq.port import refused

            if request == kfd.ALLOC_MEMORY_OF_GPU.request and argument[36] & kfd.AllocFlags.MMIO_REMAP:
                raise refused("ioctl", errno.ENOMEM)
            return super().ioctl(fd, request, argument)

    amd = open_amd(port=NoRegister(inner, {}))
    assert amd.facts()["memory"] == "staging"
    assert "ENOMEM" in amd.facts()["why_host_memory"]
    works(amd)


def test_running_out_of_memory_names_the_owners(open_amd: Open):
    amd = open_amd()
    held = [amd.alloc(3 << 30, f"weights {i}") for i in range(5)]
    with pytest.raises(
        DriverError, match=r"alloc\(3221225472\) on AMD: out of memory. .*weights 0 3221225472 bytes"
    ):
        amd.alloc(3 << 30)
    del held
    works(amd)


def test_many_threads_open_use_and_close_devices(open_amd: Open):
    from concurrent.futures import ThreadPoolExecutor

    port = fresh_port("amd:gfx1100")

    def session(number: int) -> None:
        device = AmdDevice("AMD", port, settings_with())
        try:
            works(device)
        finally:
            device.close()

    image("gfx1100")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(session, range(12)))
