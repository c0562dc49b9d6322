"""The emulated KFD refuses what the kernel refuses, with the same errno."""

from __future__ import annotations

import array
import errno
import struct
from typing import Any

import pytest

from hcq.amd import ioctl
from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import AllocFlags, EventType, QueueType
from hcq.amd.memory import KfdMemory, Place
from hcq.amd.topology import read_nodes
from hcq.emu.amd.kfd_queues import save_area
from hcq.errors import DriverError
from hcq.system import native
from hcq.system.port import MAP_SHARED, PROT_NONE, PROT_READ, PROT_WRITE
from tests.hcq.amd.conftest import fresh_port, the_process

VRAM = AllocFlags.VRAM | AllocFlags.WRITABLE
VA = 0x7E0000000000


ENOTSUPP = 524  # a number of the kernel's own


class Process:
    """A process that has opened one GPU and acquired its address space."""

    def __init__(self, word: str = "amd:gfx1100", acquire: bool = True) -> None:
        self.port = fresh_port(word)
        self.fd = self.port.open("/dev/kfd")
        self.node = read_nodes(self.port)[0]
        self.drm_fd = self.port.open(f"/dev/dri/renderD{self.node.render_minor}")
        self.memory = KfdMemory(self.port, self.fd, self.drm_fd, self.node.gpu_id)
        if acquire:
            self.call(kfd.ACQUIRE_VM, drm_fd=self.drm_fd, gpu_id=self.node.gpu_id)

    def call(self, call: kfd.Ioctl[Any], **fields: Any) -> Any:
        return ioctl.call(self.port, self.fd, call, **fields)

    def refuses(self, number: int, call: kfd.Ioctl[Any], **fields: Any) -> None:
        with pytest.raises(DriverError) as error:
            self.call(call, **fields)
        assert error.value.errno == number, error.value

    def alloc(self, **fields: Any) -> Any:
        return self.call(
            kfd.ALLOC_MEMORY_OF_GPU,
            **{"va_addr": VA, "size": 4096, "gpu_id": self.node.gpu_id, "flags": VRAM, **fields},
        )

    def map(self, handle: int, *gpu_ids: int) -> Any:
        ids = array.array("I", gpu_ids or (self.node.gpu_id,))
        where = ids.buffer_info()[0]
        return self.call(kfd.MAP_MEMORY_TO_GPU, handle=handle, device_ids_array_ptr=where, n_devices=len(ids))


def test_numbers_it_does_not_know_are_enotty():
    one = Process()
    for request in (0xC0104BFF, 0x5401, 0xC0184B80, 0xC0184B81):
        with pytest.raises(DriverError) as error:
            one.port.ioctl(one.fd, request, bytearray(16))
        assert error.value.errno == errno.ENOTTY


def test_a_shorter_structure_is_filled_up_with_zeroes_and_only_its_size_comes_back():
    one = Process()
    argument = bytearray(b"\xff" * 16)
    request = kfd.READ << 30 | 4 << 16 | ord("K") << 8 | kfd.GET_VERSION.number
    one.port.ioctl(one.fd, request, argument)
    assert argument == b"\x01\0\0\0" + b"\xff" * 12


def test_an_argument_shorter_than_the_request_says_is_efault():
    one = Process()
    with pytest.raises(DriverError) as error:
        one.port.ioctl(one.fd, kfd.GET_VERSION.request, bytearray(4))
    assert error.value.errno == errno.EFAULT


def test_an_address_space_belongs_to_one_render_file():
    one = Process()
    one.call(kfd.ACQUIRE_VM, drm_fd=one.drm_fd, gpu_id=one.node.gpu_id)  # again, with the same
    other = one.port.open(f"/dev/dri/renderD{one.node.render_minor}")
    one.refuses(errno.EBUSY, kfd.ACQUIRE_VM, drm_fd=other, gpu_id=one.node.gpu_id)
    one.refuses(errno.EINVAL, kfd.ACQUIRE_VM, drm_fd=3, gpu_id=one.node.gpu_id)
    one.refuses(errno.EINVAL, kfd.ACQUIRE_VM, drm_fd=one.drm_fd, gpu_id=1)


def test_nothing_is_allocated_before_the_address_space_is_acquired():
    one = Process(acquire=False)
    fields = {"va_addr": VA, "size": 4096, "gpu_id": one.node.gpu_id, "flags": VRAM}
    one.refuses(errno.ENODEV, kfd.ALLOC_MEMORY_OF_GPU, **fields)


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ({"size": 0}, errno.EINVAL),
        ({"flags": AllocFlags.WRITABLE}, errno.EINVAL),
        ({"flags": VRAM | AllocFlags.GTT}, errno.EINVAL),
        ({"va_addr": VA + 5}, errno.EINVAL),
        ({"gpu_id": 7}, errno.EINVAL),
        ({"size": 1 << 40}, errno.ENOMEM),
        ({"flags": AllocFlags.DOORBELL}, errno.EINVAL),
        ({"flags": AllocFlags.MMIO_REMAP, "size": 8192}, errno.EINVAL),
    ],
)
def test_an_allocation_that_cannot_be_is_refused(fields: dict[str, int], number: int):
    one = Process()
    with pytest.raises(DriverError) as error:
        one.alloc(**fields)
    assert error.value.errno == number


def test_public_memory_needs_a_large_bar():
    one = Process("amd:gfx1100:private")
    with pytest.raises(DriverError) as error:
        one.alloc(flags=VRAM | AllocFlags.PUBLIC)
    assert error.value.errno == errno.EINVAL


def test_what_is_no_vram_may_be_public_without_a_large_bar():
    one = Process("amd:gfx1100:private")
    assert one.alloc(flags=AllocFlags.GTT | AllocFlags.PUBLIC | AllocFlags.WRITABLE).handle


def test_memory_without_an_address_is_allocated_and_not_mapped():
    one = Process()
    made = one.alloc(va_addr=0)
    with pytest.raises(DriverError) as error:
        one.map(made.handle)
    assert error.value.errno == errno.EINVAL
    one.call(kfd.FREE_MEMORY_OF_GPU, handle=made.handle)


def test_memory_that_is_not_public_is_mapped_too():
    one = Process()
    made = one.alloc()
    assert one.port.mmap(0, 4096, PROT_NONE, MAP_SHARED, one.drm_fd, made.mmap_offset)


def test_mapped_memory_is_busy_until_it_is_unmapped():
    one = Process()
    handle = one.alloc().handle
    assert one.map(handle).n_success == 1
    assert one.map(handle).n_success == 1  # again is harmless
    one.refuses(errno.EBUSY, kfd.FREE_MEMORY_OF_GPU, handle=handle)
    ids = array.array("I", (one.node.gpu_id,))
    one.call(kfd.UNMAP_MEMORY_FROM_GPU, handle=handle, device_ids_array_ptr=ids.buffer_info()[0], n_devices=1)
    one.call(kfd.FREE_MEMORY_OF_GPU, handle=handle)
    one.refuses(errno.EINVAL, kfd.FREE_MEMORY_OF_GPU, handle=handle)


def test_two_objects_cannot_be_mapped_at_one_address():
    one = Process()
    one.map(one.alloc().handle)
    second = one.alloc().handle
    with pytest.raises(DriverError) as error:
        one.map(second)
    assert error.value.errno == errno.EINVAL


def test_mapping_wants_gpus_it_knows():
    one = Process()
    handle = one.alloc().handle
    one.refuses(errno.EINVAL, kfd.MAP_MEMORY_TO_GPU, handle=handle, device_ids_array_ptr=1, n_devices=0)
    one.refuses(errno.EFAULT, kfd.MAP_MEMORY_TO_GPU, handle=handle, device_ids_array_ptr=0, n_devices=1)
    with pytest.raises(DriverError) as error:
        one.map(handle, 99)
    assert error.value.errno == errno.EINVAL


def queue_fields(one: Process, **changes: int) -> dict[str, int]:
    ring = one.memory.alloc(8192, Place.SHARED)
    pointers = one.memory.alloc(4096, Place.SHARED)
    return {
        "ring_base_address": ring.va,
        "ring_size": 8192,
        "write_pointer_address": pointers.va,
        "read_pointer_address": pointers.va + 64,
        "gpu_id": one.node.gpu_id,
        "queue_type": QueueType.SDMA,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"ring_size": 8191}, errno.EINVAL),
        ({"ring_size": 4096}, errno.EINVAL),
        ({"ring_base_address": 0}, errno.EINVAL),
        ({"queue_percentage": 101}, errno.EINVAL),
        ({"queue_priority": 16}, errno.EINVAL),
        ({"queue_type": 9}, ENOTSUPP),
        ({"queue_type": QueueType.SDMA_XGMI}, errno.ENOMEM),
        ({"queue_type": QueueType.SDMA_BY_ENG_ID, "sdma_engine_id": 2}, errno.EINVAL),
        ({"read_pointer_address": 0}, errno.EINVAL),
        ({"read_pointer_address": 1 << 47}, errno.EFAULT),
        ({"write_pointer_address": VA}, errno.EINVAL),
        ({"gpu_id": 1}, errno.EINVAL),
        ({"queue_type": QueueType.COMPUTE}, errno.EINVAL),  # without a context save area
    ],
)
def test_a_queue_with_a_wrong_buffer_or_number_is_refused(changes: dict[str, int], number: int):
    one = Process()
    one.refuses(number, kfd.CREATE_QUEUE, **queue_fields(one, **changes))


def test_a_ring_must_start_a_mapping_of_its_own():
    one = Process()
    large = one.memory.alloc(65536, Place.SHARED)
    fields = queue_fields(one, ring_base_address=large.va)
    one.refuses(errno.EINVAL, kfd.CREATE_QUEUE, **fields)


def test_a_queues_buffers_stay_mapped_while_it_lives():
    one = Process()
    fields = queue_fields(one)
    made = one.call(kfd.CREATE_QUEUE, **fields)
    ring = one.memory.live[fields["ring_base_address"]]
    ids = array.array("I", (one.node.gpu_id,))
    unmap = {"handle": ring.handle, "device_ids_array_ptr": ids.buffer_info()[0], "n_devices": 1}
    one.refuses(errno.EBUSY, kfd.UNMAP_MEMORY_FROM_GPU, **unmap)
    one.call(kfd.DESTROY_QUEUE, queue_id=made.queue_id)
    one.refuses(errno.EINVAL, kfd.DESTROY_QUEUE, queue_id=made.queue_id)
    one.call(kfd.UNMAP_MEMORY_FROM_GPU, **unmap)


def test_an_update_without_a_ring_or_a_percentage_makes_a_queue_stand_still():
    one = Process()
    fields = queue_fields(one)
    made = one.call(kfd.CREATE_QUEUE, **fields)
    (queue,) = the_process(one.port.kernels[0]).gpus[one.node.gpu_id].queues.values()
    ring = {"ring_base_address": fields["ring_base_address"], "ring_size": fields["ring_size"]}
    runs = {"queue_id": made.queue_id, "queue_percentage": 100, "queue_priority": 7, **ring}
    for without in ("ring_base_address", "ring_size", "queue_percentage"):
        one.call(kfd.UPDATE_QUEUE, **{**runs, without: 0})
        assert not queue.can_run
        one.call(kfd.UPDATE_QUEUE, **runs)
        assert queue.can_run
    one.call(kfd.DESTROY_QUEUE, queue_id=made.queue_id)


def compute_queue(one: Process) -> int:
    """The number of a queue of PM4."""
    gpu = the_process(one.port.kernels[0]).gpus[one.node.gpu_id]
    area = save_area(gpu.node.properties())
    memory = one.memory.alloc(area.bytes_of(gpu.chip.xccs), Place.SHARED)
    changes = {
        "queue_type": QueueType.COMPUTE,
        "ctx_save_restore_address": memory.va,
        "ctx_save_restore_size": area.save_bytes,
        "ctl_stack_size": area.ctl_stack_bytes,
    }
    number: int = one.call(kfd.CREATE_QUEUE, **queue_fields(one, **changes)).queue_id
    return number


@pytest.mark.parametrize(
    ("bits", "mask", "arch", "number"),
    [
        (48, 3, "gfx1100", errno.EINVAL),  # not whole words
        (0, 3, "gfx1100", errno.EINVAL),
        (64, 2**64 - 1, "gfx1100", 0),
        (64, 3 << 40, "gfx1100", 0),
        (64, 1 << 40, "gfx1100", errno.EINVAL),  # half a workgroup processor
        (64, 6 << 40, "gfx1100", errno.EINVAL),  # halves of two
        (64, 1 << 40, "gfx90a", 0),
        (4096, 1 << 1024, "gfx1100", 0),  # bits beyond 1024 are not looked at
    ],
)
def test_a_mask_of_compute_units_is_whole_words_and_whole_workgroup_processors(
    bits: int, mask: int, arch: str, number: int
):
    one = Process(f"amd:{arch}")
    words = bytearray(mask.to_bytes(512, "little"))
    fields = {"num_cu_mask": bits, "cu_mask_ptr": native.address_of(words), "queue_id": compute_queue(one)}
    if number:
        one.refuses(number, kfd.SET_CU_MASK, **fields)
    else:
        one.call(kfd.SET_CU_MASK, **fields)
        one.refuses(errno.EFAULT, kfd.SET_CU_MASK, **{**fields, "queue_id": 77})
        one.refuses(errno.EFAULT, kfd.SET_CU_MASK, **{**fields, "cu_mask_ptr": 0})


@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_the_state_of_waves_is_told_of_a_compute_queue_that_stands_still(arch: str):
    one = Process(f"amd:{arch}")
    number = compute_queue(one)
    gpu = the_process(one.port.kernels[0]).gpus[one.node.gpu_id]
    queue = gpu.queues[number]
    where = {"queue_id": number, "ctl_stack_address": queue.save_area}
    one.refuses(errno.EINVAL, kfd.GET_QUEUE_WAVE_STATE, **where)  # it is active
    one.call(kfd.UPDATE_QUEUE, queue_id=number, queue_percentage=0)
    told = one.call(kfd.GET_QUEUE_WAVE_STATE, **where)
    assert (told.ctl_stack_used_size, told.save_area_used_size) == (0, 0)
    for xcc in range(gpu.chip.xccs):
        header = struct.unpack("<4I", native.read(queue.save_area + xcc * queue.save_bytes, 16))
        assert header == (queue.ctl_stack_bytes, 0, queue.ctl_stack_bytes, 0)
    one.refuses(errno.EFAULT, kfd.GET_QUEUE_WAVE_STATE, queue_id=77)
    one.refuses(errno.EFAULT, kfd.GET_QUEUE_WAVE_STATE, queue_id=number)  # nowhere to put it
    copies = one.call(kfd.CREATE_QUEUE, **queue_fields(one, queue_percentage=0)).queue_id
    one.refuses(errno.EINVAL, kfd.GET_QUEUE_WAVE_STATE, **{**where, "queue_id": copies})


def test_a_doorbell_mapping_has_the_slices_length():
    one = Process()
    offset = kfd.signed_offset(3 << kfd.MMAP_TYPE_SHIFT | one.node.gpu_id << kfd.MMAP_GPU_SHIFT)
    with pytest.raises(DriverError):
        one.port.mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, one.fd, offset)
    with pytest.raises(DriverError) as error:
        of_no_gpu = kfd.signed_offset(3 << kfd.MMAP_TYPE_SHIFT)
        one.port.mmap(0, kfd.DOORBELL_SLICE_BYTES, PROT_READ, MAP_SHARED, one.fd, of_no_gpu)
    assert error.value.errno == errno.ENODEV
    assert one.port.mmap(0, kfd.DOORBELL_SLICE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, one.fd, offset)


def test_a_process_has_one_event_page():
    one = Process()
    page = one.memory.alloc(kfd.EVENT_PAGE_BYTES, Place.SHARED)
    first = one.call(kfd.CREATE_EVENT, event_type=EventType.SIGNAL, event_page_offset=page.handle)
    assert first.event_id == first.event_slot_index == 1
    assert native.read(page.va, 16) == b"\xff" * 16
    second = one.memory.alloc(kfd.EVENT_PAGE_BYTES, Place.SHARED)
    one.refuses(errno.EINVAL, kfd.CREATE_EVENT, event_type=EventType.SIGNAL, event_page_offset=second.handle)
    with pytest.raises(DriverError) as error:
        one.memory.free(page)
    assert error.value.errno == errno.EPERM


def test_a_wait_tells_the_age_of_an_event_to_those_who_gave_one():
    one = Process()
    page = one.memory.alloc(kfd.EVENT_PAGE_BYTES, Place.SHARED)
    made = one.call(kfd.CREATE_EVENT, event_type=EventType.SIGNAL, event_page_offset=page.handle)
    one.call(kfd.SET_EVENT, event_id=made.event_id)
    for age, told in ((0, 0), (1, 2), (2, 2)):
        data = bytearray(kfd.EventData(event_id=made.event_id, payload_low=age).to_bytes())
        wait = {"events_ptr": native.address_of(data), "num_events": 1, "timeout": 1}
        assert one.call(kfd.WAIT_EVENTS, **wait).wait_result == kfd.WaitResult.COMPLETE
        assert int.from_bytes(data[:8], "little") == told


def test_a_wait_for_an_event_ends_when_it_is_set_or_time_is_out():
    one = Process()
    page = one.memory.alloc(kfd.EVENT_PAGE_BYTES, Place.SHARED)
    made = one.call(
        kfd.CREATE_EVENT, event_type=EventType.SIGNAL, event_page_offset=page.handle, auto_reset=1
    )
    data = bytearray(kfd.EventData(event_id=made.event_id).to_bytes())
    where = native.address_of(data)
    wait = {"events_ptr": where, "num_events": 1, "timeout": 1}
    assert one.call(kfd.WAIT_EVENTS, **wait).wait_result == kfd.WaitResult.TIMEOUT
    one.call(kfd.SET_EVENT, event_id=made.event_id)
    assert one.call(kfd.WAIT_EVENTS, **wait).wait_result == kfd.WaitResult.COMPLETE
    assert one.call(kfd.WAIT_EVENTS, **wait).wait_result == kfd.WaitResult.TIMEOUT  # the first wait took it
    one.refuses(errno.EFAULT, kfd.WAIT_EVENTS, events_ptr=0, num_events=1)
    one.call(kfd.DESTROY_EVENT, event_id=made.event_id)
    one.refuses(errno.EINVAL, kfd.WAIT_EVENTS, **wait)


def test_clocks_and_apertures_are_given():
    one = Process()
    first = one.call(kfd.GET_CLOCK_COUNTERS, gpu_id=one.node.gpu_id)
    second = one.call(kfd.GET_CLOCK_COUNTERS, gpu_id=one.node.gpu_id)
    assert 0 < first.gpu_clock_counter <= second.gpu_clock_counter
    assert one.call(kfd.GET_PROCESS_APERTURES_NEW).num_of_nodes == 1


def test_the_topology_is_what_a_driver_reads():
    node = Process("amd:gfx942").node
    assert node.gfx_target_version == 90402
    assert (node.xccs, node.compute_units, node.is_vram_public) == (4, 4 * 38, True)
    assert not Process("amd:gfx1100:private").node.is_vram_public
