"""What goes wrong on a GPU is told, and the device, the process and its neighbours go on."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from hcq.errors import DeviceFault, DriverError, HcqError, UsageError, WaitTimeout
from hcq.gpu.device import GpuDevice
from hcq.gpu.memory import GUARD_BYTES
from hcq.system.port import FaultyPort, refused
from tests.hcq.gpu.conftest import Open
from tests.hcq.gpu.kernels import image, works
from tests.hcq.gpu.vendors import AMD, NV, Vendor, vendor_of
from tests.turns import seeds

QUEUES = [(AMD, "pm4"), (AMD, "aql"), (NV, "")]


def on(*queues: Any) -> Any:
    """A test for each of these queues."""
    return pytest.mark.parametrize(
        ("vendor", "queue"), queues, ids=lambda one: one.name if isinstance(one, Vendor) else one
    )


each_queue = on(*QUEUES)
SHARES = 4  # of the ioctls of a busy day, every fourth in each


@pytest.fixture
def system() -> Iterator[Callable[[Vendor], Any]]:
    """system(vendor): an emulated operating system, whose process ends with the test."""
    made: list[tuple[Vendor, Any]] = []

    def fresh(vendor: Vendor) -> Any:
        made.append((vendor, vendor.fresh_port()))
        return made[-1][1]

    yield fresh
    for vendor, port in made:
        vendor.end_process(port)


# ------------------------------------------------------------ opening


def calls_of_opening(vendor: Vendor, port: Any, kind: str, queue: str) -> int:
    counting = FaultyPort(port, {})
    device = vendor.open(counting, amd_queue=queue)
    count = counting.calls[kind]
    device.close()
    return count


@pytest.mark.sampled(6)
@each_queue
@pytest.mark.parametrize("kind", ["open", "ioctl", "mmap", "read_file"])
def test_each_call_that_fails_while_opening_names_its_step_and_what_to_do(
    kind: str, vendor: Vendor, queue: str, system: Callable[[Vendor], Any], open_gpu: Open
):
    steps = set()
    for allowed in range(calls_of_opening(vendor, system(vendor), kind, queue)):
        inner = system(vendor)
        try:
            vendor.open(FaultyPort(inner, {kind: (allowed, errno.EIO)}), amd_queue=queue).close()
        except HcqError as error:
            text = str(error)
            assert text.startswith(f"{vendor.title}: step "), text
            assert "EIO" in text
            assert "failed: " in text
            if kind == "ioctl":
                assert re.search(vendor.calls, text)
            steps.add(text.split('"')[1])
        works(open_gpu(port=inner))  # what was left behind does not stand in the way
    # without that file, NVIDIA's release is asked of the control node
    assert steps or (vendor.name, kind) == ("NV", "read_file")


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


def goes_on_or_says_why_not(gpu: GpuDevice) -> None:
    """After a page fault. AMD's kernel driver keeps the process's queues off the GPU from then on."""
    if vendor_of(gpu).survives_faults:
        works(gpu)
        return
    with pytest.raises(
        UsageError, match=r"cannot be used: .*kernel driver runs no queue.*Restart the process"
    ):
        works(gpu)
    with pytest.raises(
        DriverError, match=r"after a page fault the kernel driver runs no queue.*Restart the process"
    ):
        vendor_of(gpu).open(gpu.port)


def busy_day(gpu: GpuDevice) -> None:
    """Whatever makes a device call its kernel driver: memory, memory of threads, events, long reads, a reset, a fault
    and what follows it."""
    a, b = gpu.alloc(3 << 20, "a"), gpu.alloc(3 << 20, "b")
    a.write(bytes(3 << 20))
    gpu.run(gpu.load(image(gpu), vendor_of(gpu).own_memory), [a, 3], block=(64, 1, 1))
    gpu.queue().copy(b, a).submit().wait(timeout_ms=50_000)
    assert b.read() == a.read()
    ready = gpu.signal("ready")
    done = gpu.queue().wait(ready, 1).submit()
    ready.set(1)
    done.wait(timeout_ms=50_000)
    a.free()
    b.free()
    gpu.memory.trim(0)
    gpu.queue().wait(gpu.signal("never"), 1).submit()
    gpu.reset()
    gpu.queue().barrier().submit().wait(timeout_ms=50_000)
    if not vendor_of(gpu).survives_faults:
        return
    # the address, or where RM does not say it the number
    with pytest.raises(DeviceFault, match=r"page fault|MMU fault"):
        gpu.run(gpu.load(image(gpu), "store_at"), [gpu.alloc(64), 1 << 36])
    gpu.queue().barrier().submit().wait(timeout_ms=50_000)


@on(QUEUES[0], pytest.param(*QUEUES[1], marks=pytest.mark.thorough), QUEUES[2])
@pytest.mark.parametrize("share", seeds(1, SHARES))
def test_each_ioctl_that_fails_while_a_device_works_is_named_and_it_can_be_opened_again(
    share: int, vendor: Vendor, queue: str, system: Callable[[Vendor], Any], open_gpu: Open
):
    port = OneFault(system(vendor))
    device = vendor.open(port, amd_queue=queue)
    port.arm(-1)
    busy_day(device)
    device.close()
    count = port.count
    told = 0
    for number in range(share, count, SHARES):
        port = OneFault(system(vendor))
        device = vendor.open(port, amd_queue=queue)
        port.arm(number)
        try:
            busy_day(device)
        except HcqError as error:
            told += 1
            assert "EIO" in str(error), str(error)
            assert re.search(vendor.calls, str(error)), str(error)
        device.close(timeout_ms=1000)
        # how often a driver looks for events differs from run to run: this one may not have come so far
        port.arm(-1)
        again = vendor.open(port, amd_queue=queue)
        works(again)
        again.close()
    assert told > 1


def test_a_close_that_fails_is_told_and_does_not_stand_in_the_way(
    vendor: Vendor, system: Callable[[Vendor], Any], open_gpu: Open, capsys: pytest.CaptureFixture[str]
):
    inner = system(vendor)
    port = FaultyPort(inner, {})
    device = vendor.open(port)
    port.plan = {"ioctl": (port.calls["ioctl"], errno.EIO)}
    device.close()
    ending = {
        "AMD": "AMDKFD_IOC_DESTROY_QUEUE(queue_id=0) -> EIO",
        "NV": "UVM_UNREGISTER_CHANNEL(hchannel=0x",
    }
    assert f"closing {vendor.name}: {ending[vendor.name]}" in capsys.readouterr().err
    works(open_gpu(port=inner))


def test_without_the_kernel_driver_the_error_says_so(vendor: Vendor):
    missing, says = {
        "AMD": ("open", r'step 1/9 "open the kernel driver" failed: open.*/dev/kfd.*ENOENT.*not loaded'),
        "NV": (
            "read_file",
            r"step 1/14 \"read the driver's version\" failed: .*/dev/nvidiactl.*ENOENT.*not loaded",
        ),
    }[vendor.name]
    plan = dict.fromkeys((missing, "open"), (0, errno.ENOENT))
    with pytest.raises(DriverError, match=says):
        vendor.open(FaultyPort(vendor.fresh_port(), plan))


def test_a_gpu_that_is_not_there_is_named(vendor: Vendor, open_gpu: Open):
    says = {
        "AMD": r"AMD:3: the kernel driver shows 1 GPU \(gfx1100\)",
        "NV": r"NV:3: the driver shows 1 GPU \(0x100\)",
    }[vendor.name]
    with pytest.raises(UsageError, match=says):
        open_gpu(name=f"{vendor.name}:3")


# ------------------------------------------------------------ running


def test_a_store_beyond_a_buffer_names_address_buffer_and_kernel(gpu: GpuDevice):
    out = gpu.alloc(1 << 20, "result")
    bad = gpu.load(image(gpu), "store_at")
    size = 1 << 20
    with pytest.raises(DeviceFault) as error:
        gpu.run(bad, [out, size + 32])
    text = str(error.value)
    assert "the GPU took a page fault:" in text
    # AMD's kernel driver tells the page alone
    assert re.search(rf"(32|\b0) bytes after the end of buffer 'result' at {out.address:#x}", text)
    assert "store_at" in text
    assert vendor_of(gpu).first_thread in text  # what the emulated GPU adds
    with pytest.raises(DeviceFault, match="holds no result"):
        out.read()
    goes_on_or_says_why_not(gpu)


def test_between_two_allocations_is_a_page_that_nobody_has_mapped(gpu: GpuDevice):
    held = [gpu.alloc(size) for size in (1 << 20, 3 << 20, 1 << 20, 2 << 20, 1 << 20)]
    del held[1], held[2]  # holes, into which the next ones go
    held += [gpu.alloc(1 << 20), gpu.alloc(2 << 20)]
    ranges = sorted((one.va, one.va + one.size_bytes) for one in gpu.gpu_memory.live.values())
    assert all(end + GUARD_BYTES <= start for (_, end), (start, _) in pairwise(ranges))


def test_a_kernel_that_never_ends_is_a_timeout_and_a_reset_ends_it(gpu: GpuDevice):
    out = gpu.alloc(64, "counter")
    program = gpu.load(image(gpu), "forever")
    with pytest.raises(
        WaitTimeout, match=r"waited 200 ms .*dispatch forever\(.*(ring|GPFIFO): the GPU has read up to"
    ):
        gpu.queue().dispatch(program, [out]).submit().wait(timeout_ms=200)
    gpu.reset()
    works(gpu)


@pytest.mark.parametrize("ring_name", ["compute", "copy"])
def test_a_lost_doorbell_is_a_timeout_that_shows_how_far_the_gpu_has_read(gpu: GpuDevice, ring_name: str):
    works(gpu)
    ring = vendor_of(gpu).lose_doorbell(gpu, ring_name)  # stores go nowhere
    target = gpu.alloc(4096, "target")
    with pytest.raises(WaitTimeout) as error:
        gpu.queue().barrier().fill(target, 1).submit().wait(timeout_ms=50)
    assert re.search(rf"{ring}: the GPU has read up to \d+ of \d+", str(error.value))
    assert "barrier; fill 4096 bytes" in str(error.value).lower()
    gpu.reset()
    works(gpu)


@each_queue
def test_a_full_ring_is_a_timeout_that_names_it(
    vendor: Vendor, queue: str, open_gpu: Open, small_rings: None
):
    gpu = open_gpu(timeout_ms=300, **({"queue": queue} if queue else {}))
    never = gpu.signal("never")
    gpu.queue().wait(never, 1).submit()
    ring = f"{queue.upper()} ring" if queue else "GPFIFO"
    with pytest.raises(WaitTimeout, match=rf"waited 300 ms for room. {ring}: the GPU has read up to"):
        for _ in range(200):
            gpu.queue().barrier().barrier().barrier().barrier().submit()
    gpu.reset()
    works(gpu)


def test_running_out_of_memory_names_the_owners(vendor: Vendor, open_gpu: Open):
    gpu = open_gpu()
    held = [gpu.alloc(3 << 30, f"weights {i}") for i in range(5)]
    with pytest.raises(
        DriverError,
        match=rf"alloc\(3221225472\) on {vendor.name}: out of memory. .*weights 0 3221225472 bytes",
    ):
        gpu.alloc(3 << 30)
    del held
    works(gpu)


def test_many_threads_open_use_and_close_devices(vendor: Vendor):
    port = vendor.fresh_port()
    first = vendor.open(port)
    image(first)
    first.close()

    def session(number: int) -> None:
        device = vendor.open(port)
        try:
            works(device)
        finally:
            device.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(session, range(12)))


def test_work_submitted_before_a_fault_keeps_its_results_and_work_after_it_fails(gpu: GpuDevice):
    good, bad = gpu.load(image(gpu), "increment"), gpu.load(image(gpu), "store_at")
    a, b, c = gpu.alloc(256), gpu.alloc(256), gpu.alloc(256)
    for buffer in (a, b, c):
        buffer.write(bytes(256))
    first = gpu.queue().dispatch(good, [a], block=(64, 1, 1)).submit()
    second = gpu.queue().dispatch(bad, [b, 1 << 40]).submit()
    third = gpu.queue().dispatch(good, [c], block=(64, 1, 1)).submit()
    first.wait()
    for done in (second, third):
        with pytest.raises(DeviceFault, match="store_at"):
            done.wait(timeout_ms=50_000)
    assert struct.unpack("<64I", a.read()) == (1,) * 64
    goes_on_or_says_why_not(gpu)


def test_a_wait_that_nobody_signals_is_a_timeout_and_a_reset_ends_it(gpu: GpuDevice):
    never = gpu.signal("never")
    with pytest.raises(WaitTimeout, match="wait signal@"):
        gpu.queue().wait(never, 1).submit().wait(timeout_ms=50)
    gpu.reset()
    works(gpu)


def test_freeing_memory_that_a_kernel_still_uses_is_a_page_fault_and_not_a_crash(open_gpu: Open):
    gpu = open_gpu(validate=False)
    out = gpu.alloc(1 << 20, "gone")
    va = out.address
    program = gpu.load(image(gpu), "store_at")
    q = gpu.queue().dispatch(program, [out, 0])
    out.free()
    del q._held[:]
    gpu.memory.trim(0)
    assert va not in gpu.memory.regions
    with pytest.raises(DeviceFault, match="page fault"):
        q.submit().wait(timeout_ms=50_000)
    goes_on_or_says_why_not(gpu)


def test_closing_while_a_kernel_runs_on_ends_it(open_gpu: Open, capsys: pytest.CaptureFixture[str]):
    gpu = open_gpu()
    port = gpu.port
    gpu.queue().dispatch(gpu.load(image(gpu), "forever"), [gpu.alloc(64)]).submit()
    gpu.close(timeout_ms=100)
    assert "dispatch forever" in capsys.readouterr().err
    works(open_gpu(port=port))


def test_a_launch_with_a_freed_buffer_is_refused_before_the_doorbell(gpu: GpuDevice):
    program = gpu.load(image(gpu), "increment")
    a = gpu.alloc(1 << 20, "gone")
    q = gpu.queue().dispatch(program, [a], block=(64, 1, 1))
    a.free()
    with pytest.raises(UsageError, match=r"gone.*freed"):
        q.submit()
    works(gpu)


def test_closing_one_device_does_not_disturb_another_on_the_same_gpu(open_gpu: Open):
    one = open_gpu()
    two = open_gpu(port=one.port)
    out = one.alloc(256)
    out.write(bytes(256))
    go = one.signal("go")
    program = one.load(image(one), "increment")
    done = one.queue().wait(go, 1).dispatch(program, [out], block=(64, 1, 1)).submit()
    works(two)
    two.close()
    go.set(1)
    done.wait(timeout_ms=50_000)
    assert struct.unpack("<64I", out.read()) == (1,) * 64
