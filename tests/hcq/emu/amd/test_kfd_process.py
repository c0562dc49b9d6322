"""What the emulated KFD keeps is a process's: another one sees nothing of it, and its end gives everything back."""

from __future__ import annotations

import array
import errno
from typing import Any

import pytest

from hcq.amd.abi import kfd, sdma
from hcq.amd.abi.kfd import AllocFlags, EventType
from hcq.amd.memory import KfdMemory, Place
from hcq.amd.topology import read_nodes
from hcq.emu.amd.kfd import emulate
from hcq.emu.amd.kfd_topology import VRAM_BYTES
from hcq.emu.port import EmulatedPort
from hcq.errors import DriverError
from hcq.system import native
from hcq.system.port import MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE
from tests.hcq.amd.conftest import the_process
from tests.hcq.emu.amd import test_kfd

VA = test_kfd.VA


class Process(test_kfd.Process):
    """A process beside others: each has a port of its own on the same emulated driver."""

    def __init__(self, kernel: Any) -> None:
        self.port = EmulatedPort([kernel])
        self.fd = self.port.open("/dev/kfd")
        self.node = read_nodes(self.port)[0]
        self.drm_fd = self.port.open(f"/dev/dri/renderD{self.node.render_minor}")
        self.memory = KfdMemory(self.port, self.fd, self.drm_fd, self.node.gpu_id)
        self.call(kfd.ACQUIRE_VM, drm_fd=self.drm_fd, gpu_id=self.node.gpu_id)

    def queue(self) -> Any:
        return self.call(kfd.CREATE_QUEUE, **test_kfd.queue_fields(self))

    def available(self) -> int:
        return int(self.call(kfd.AVAILABLE_MEMORY, gpu_id=self.node.gpu_id).available)


@pytest.fixture
def kernel() -> Any:
    return emulate(["amd:gfx1100"])


def test_two_processes_use_the_same_address_handle_and_queue_number(kernel: Any):
    one, other = Process(kernel), Process(kernel)
    assert one.alloc().handle == other.alloc().handle
    one.map(one.alloc(va_addr=VA + 4096).handle)
    other.map(other.alloc(va_addr=VA + 4096).handle)
    assert one.queue().queue_id == other.queue().queue_id == 0


def test_a_process_finds_nothing_of_another(kernel: Any):
    one, other = Process(kernel), Process(kernel)
    handle = one.alloc().handle
    queue = one.queue().queue_id
    page = one.memory.alloc(kfd.EVENT_PAGE_BYTES, Place.SHARED)
    event = one.call(kfd.CREATE_EVENT, event_type=EventType.SIGNAL, event_page_offset=page.handle).event_id
    other.refuses(errno.EINVAL, kfd.FREE_MEMORY_OF_GPU, handle=handle)
    other.refuses(errno.EINVAL, kfd.DESTROY_QUEUE, queue_id=queue)
    other.refuses(errno.EINVAL, kfd.SET_EVENT, event_id=event)


def test_the_gpus_memory_is_shared_by_all_and_free_again_when_a_process_ends(kernel: Any):
    one, other = Process(kernel), Process(kernel)
    one.alloc(size=VRAM_BYTES - (1 << 20))
    assert other.available() == 1 << 20
    with pytest.raises(DriverError) as error:
        other.alloc(size=2 << 20)
    assert error.value.errno == errno.ENOMEM
    kernel.exit(one.port.process)
    assert other.available() == VRAM_BYTES


def test_the_end_of_a_process_ends_its_queues_and_not_those_of_others(kernel: Any):
    one, other = Process(kernel), Process(kernel)
    one.queue()
    other.queue()
    (gpu,) = kernel.gpus.values()
    assert len(gpu.queues) == 2
    kernel.exit(one.port.process)
    assert len(gpu.queues) == 1
    assert the_process(kernel).process is other.port.process
    kernel.exit(other.port.process)
    assert not gpu.queues


def test_an_open_file_serves_the_process_that_opened_it(kernel: Any):
    """A child of fork inherits the descriptor; the kernel compares the process's leader: EBADF."""
    one, child = Process(kernel), Process(kernel)
    child.port.files[child.fd] = one.port.files[one.fd]
    child.refuses(errno.EBADF, kfd.GET_VERSION)


def test_the_address_space_is_the_files_and_a_duplicate_is_the_same_file(kernel: Any):
    """libdrm duplicates the descriptor, and AMD's library closes its own."""
    one = Process(kernel)
    duplicate = one.drm_fd + 100
    one.port.files[duplicate] = one.port.files.pop(one.drm_fd)
    one.call(kfd.ACQUIRE_VM, drm_fd=duplicate, gpu_id=one.node.gpu_id)


def test_pages_of_the_process_are_memory_of_the_gpu(kernel: Any):
    one = Process(kernel)
    flags = MAP_PRIVATE | MAP_ANONYMOUS
    pages = one.port.mmap(0, 16384, PROT_READ | PROT_WRITE, flags)
    native.write(pages, b"found", 5)
    user = AllocFlags.USERPTR | AllocFlags.WRITABLE
    made = one.alloc(flags=user, size=16384, mmap_offset=pages)
    assert made.mmap_offset == pages  # where they are stays where they are
    one.map(made.handle)
    fields = test_kfd.queue_fields(one)
    queue = one.call(kfd.CREATE_QUEUE, **fields)
    doorbells = one.port.mmap(
        0,
        kfd.DOORBELL_SLICE_BYTES,
        PROT_READ | PROT_WRITE,
        1,
        one.fd,
        kfd.signed_offset(queue.doorbell_offset & -kfd.DOORBELL_SLICE_BYTES),
    )
    words = [*sdma.CopyLinear(src_addr=VA, dst_addr=VA + 8192, count=4).words, *sdma.Nop().words]
    data = array.array("I", words).tobytes()
    native.write(fields["ring_base_address"], data, len(data))
    native.write(fields["write_pointer_address"], len(data).to_bytes(8, "little"), 8)
    at = doorbells + queue.doorbell_offset % kfd.DOORBELL_SLICE_BYTES
    native.write(at, len(data).to_bytes(8, "little"), 8)
    (gpu,) = kernel.gpus.values()
    gpu.kick()
    while int.from_bytes(native.read(fields["read_pointer_address"], 8), "little") != len(data):
        pass
    assert native.read(pages + 8192, 5) == b"found"
    kernel.exit(one.port.process)


@pytest.mark.parametrize("where", [0, 0x12345])
def test_pages_of_the_process_must_be_whole_ones(kernel: Any, where: int):
    one = Process(kernel)
    with pytest.raises(DriverError) as error:
        one.alloc(flags=AllocFlags.USERPTR | AllocFlags.WRITABLE, mmap_offset=where)
    assert error.value.errno == errno.EINVAL


# ------------------------------------------------------------ what AMD's libraries ask for


def test_the_clock_of_no_gpu_is_0_and_no_error(kernel: Any):
    one = Process(kernel)
    found = one.call(kfd.GET_CLOCK_COUNTERS, gpu_id=0)
    assert found.gpu_clock_counter == 0
    assert found.system_clock_counter > 0
    assert found.system_clock_freq == 1_000_000_000


def test_memory_policies_are_checked(kernel: Any):
    one = Process(kernel)
    fields = {"gpu_id": one.node.gpu_id, "default_policy": 1, "alternate_aperture_size": 1 << 40}
    one.call(kfd.SET_MEMORY_POLICY, **fields)
    one.refuses(errno.EINVAL, kfd.SET_MEMORY_POLICY, **{**fields, "default_policy": 2})
    one.refuses(errno.EINVAL, kfd.SET_MEMORY_POLICY, **{**fields, "gpu_id": 1})


def test_scratch_and_trap_handlers_need_the_address_space(kernel: Any):
    one = Process(kernel)
    late = test_kfd.Process(acquire=False)
    for call in (kfd.SET_SCRATCH_BACKING_VA, kfd.SET_TRAP_HANDLER):
        one.call(call, gpu_id=one.node.gpu_id)
        late.refuses(errno.ESRCH, call, gpu_id=late.node.gpu_id)


def test_page_faults_are_not_retried_and_a_process_cannot_change_that(kernel: Any):
    one = Process(kernel)
    assert one.call(kfd.SET_XNACK_MODE, xnack_enabled=2**32 - 1).xnack_enabled == 0
    one.call(kfd.SET_XNACK_MODE, xnack_enabled=0)
    one.refuses(errno.EPERM, kfd.SET_XNACK_MODE, xnack_enabled=1)


def test_the_runtime_is_enabled_once_and_before_there_are_queues(kernel: Any):
    one = Process(kernel)
    one.call(kfd.RUNTIME_ENABLE, mode_mask=1)
    one.refuses(errno.EBUSY, kfd.RUNTIME_ENABLE, mode_mask=1)
    one.call(kfd.RUNTIME_ENABLE, mode_mask=0)
    one.queue()
    one.refuses(errno.EEXIST, kfd.RUNTIME_ENABLE, mode_mask=1)
    kernel.exit(one.port.process)


def test_global_wave_sync_is_a_queues(kernel: Any):
    one = Process(kernel)
    one.refuses(errno.EINVAL, kfd.ALLOC_QUEUE_GWS, queue_id=0, num_gws=64)
    assert one.call(kfd.ALLOC_QUEUE_GWS, queue_id=one.queue().queue_id, num_gws=64).first_gws == 0
    kernel.exit(one.port.process)


def test_the_image_librarys_register_has_pipes_of_256_bytes(kernel: Any):
    one = Process(kernel)
    found = one.call(kfd.GET_TILE_CONFIG, gpu_id=one.node.gpu_id, num_tile_configs=40)
    assert found.gb_addr_config >> 3 & 7 == 0
    assert found.num_tile_configs == 0
