"""The KFD's ioctls: every argument structure and number of /dev/kfd that this driver calls, declared once.

In       fields by name
Out      the structures, the calls; KFD_IOCTLS, all of them by number
Changes  nothing
Next     hcq/amd/ioctl.py (makes the calls), hcq/emu/amd/kfd.py (answers them when there is no GPU)
Source   linux/kfd_ioctl.h, interface 1.17; a structure that has grown since keeps its old fields in front

The kernel takes the size of the structure from the request number: a shorter one is filled up with zeroes.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any, Generic, TypeVar

from hcq.layout import Ioctl as BaseIoctl
from hcq.layout import Packet, SparsePacket, bits

A = TypeVar("A", bound=Packet)

READ, WRITE = 2, 1  # directions as the caller sees them: it reads what the kernel wrote
MAJOR_VERSION = 1
DOORBELL_SLICE_BYTES = 0x2000  # each process has two pages of doorbells on each GPU
EVENT_PAGE_BYTES = 0x8000  # 4096 slots of 8 bytes
UNSIGNALLED = 2**64 - 1  # what an event's slot holds until the GPU writes to it
FOREVER_MS = 0xFFFFFFFF
MMAP_TYPE_SHIFT, MMAP_GPU_SHIFT = 62, 46  # offset of a mapping of /dev/kfd


class AllocFlags(IntFlag):
    """ALLOC_MEMORY_OF_GPU: where the memory is, and how it may be used."""

    VRAM = 1 << 0
    GTT = 1 << 1
    USERPTR = 1 << 2
    DOORBELL = 1 << 3
    MMIO_REMAP = 1 << 4
    CONTIGUOUS_BEST_EFFORT = 1 << 23
    EXT_COHERENT = 1 << 24
    UNCACHED = 1 << 25
    COHERENT = 1 << 26
    AQL_QUEUE_MEM = 1 << 27
    NO_SUBSTITUTE = 1 << 28
    PUBLIC = 1 << 29
    EXECUTABLE = 1 << 30
    WRITABLE = 1 << 31


class QueueType(IntEnum):
    COMPUTE = 0
    SDMA = 1
    COMPUTE_AQL = 2
    SDMA_XGMI = 3
    SDMA_BY_ENG_ID = 4


class EventType(IntEnum):
    SIGNAL = 0
    NODECHANGE = 1
    DEVICESTATECHANGE = 2
    HW_EXCEPTION = 3
    SYSTEM_EVENT = 4
    DEBUG_EVENT = 5
    PROFILE_EVENT = 6
    QUEUE_EVENT = 7
    MEMORY = 8


class WaitResult(IntEnum):
    COMPLETE = 0
    TIMEOUT = 1
    FAIL = 2


class CachePolicy(IntEnum):
    COHERENT = 0
    NONCOHERENT = 1


class MmapType(IntEnum):
    """What a mapping of /dev/kfd shows: the two highest bits of its offset."""

    MMIO = 0
    RESERVED_MEM = 1
    EVENTS = 2
    DOORBELL = 3


class GetVersionArgs(SparsePacket, words=2):
    """kfd_ioctl_get_version_args"""

    major_version = bits(31, 0)
    minor_version = bits(63, 32)


class CreateQueueArgs(SparsePacket, words=24):
    """kfd_ioctl_create_queue_args"""

    ring_base_address = bits(63, 0)
    write_pointer_address = bits(127, 64)
    read_pointer_address = bits(191, 128)
    doorbell_offset = bits(255, 192)  # from the kernel: an offset for mmap of /dev/kfd
    ring_size = bits(287, 256)  # bytes
    gpu_id = bits(319, 288)
    queue_type = bits(351, 320, enum=QueueType)
    queue_percentage = bits(383, 352, default=100)  # 0 suspends; bits 15:8 choose the XCC of a PM4 queue
    queue_priority = bits(415, 384, default=7)  # 0..15
    queue_id = bits(447, 416)  # from the kernel
    eop_buffer_address = bits(511, 448)
    eop_buffer_size = bits(575, 512)
    ctx_save_restore_address = bits(639, 576)
    ctx_save_restore_size = bits(671, 640)
    ctl_stack_size = bits(703, 672)
    sdma_engine_id = bits(735, 704)
    pad = bits(767, 736)


class DestroyQueueArgs(SparsePacket, words=2):
    """kfd_ioctl_destroy_queue_args"""

    queue_id = bits(31, 0)
    pad = bits(63, 32)


class UpdateQueueArgs(SparsePacket, words=6):
    """kfd_ioctl_update_queue_args"""

    ring_base_address = bits(63, 0)
    queue_id = bits(95, 64)
    ring_size = bits(127, 96)
    queue_percentage = bits(159, 128)
    queue_priority = bits(191, 160)


class GetClockCountersArgs(SparsePacket, words=10):
    """kfd_ioctl_get_clock_counters_args"""

    gpu_clock_counter = bits(63, 0)
    cpu_clock_counter = bits(127, 64)  # nanoseconds, CLOCK_MONOTONIC_RAW
    system_clock_counter = bits(191, 128)  # nanoseconds, CLOCK_BOOTTIME
    system_clock_freq = bits(255, 192)
    gpu_id = bits(287, 256)
    pad = bits(319, 288)


class CreateEventArgs(SparsePacket, words=8):
    """kfd_ioctl_create_event_args"""

    event_page_offset = bits(63, 0)  # handle of the event page, in the process's first call
    event_trigger_data = bits(95, 64)
    event_type = bits(127, 96, enum=EventType)
    auto_reset = bits(159, 128)
    node_id = bits(191, 160)
    event_id = bits(223, 192)
    event_slot_index = bits(255, 224)


class DestroyEventArgs(SparsePacket, words=2):
    """kfd_ioctl_destroy_event_args"""

    event_id = bits(31, 0)
    pad = bits(63, 32)


class SetEventArgs(SparsePacket, words=2):
    """kfd_ioctl_set_event_args"""

    event_id = bits(31, 0)
    pad = bits(63, 32)


class ResetEventArgs(SparsePacket, words=2):
    """kfd_ioctl_reset_event_args"""

    event_id = bits(31, 0)
    pad = bits(63, 32)


class WaitEventsArgs(SparsePacket, words=6):
    """kfd_ioctl_wait_events_args"""

    events_ptr = bits(63, 0)
    num_events = bits(95, 64)
    wait_for_all = bits(127, 96)
    timeout = bits(159, 128)  # milliseconds
    wait_result = bits(191, 160, enum=WaitResult)


class EventData(SparsePacket, words=12):
    """kfd_event_data: one entry of the array that WAIT_EVENTS reads and fills; the first 32 bytes as raw words."""

    payload_low = bits(63, 0)
    payload_high = bits(127, 64)
    payload_va = bits(191, 128)
    payload_last = bits(255, 192)
    kfd_event_data_ext = bits(319, 256)
    event_id = bits(351, 320)
    pad = bits(383, 352)


class SignalEventData(SparsePacket, words=2):
    """kfd_hsa_signal_event_data: the first 8 bytes of an EventData whose event is of type SIGNAL (interface 1.14).

    An event's age is 1 when it is made, and rises with every set. A wait returns at once when it is not the one given;
    0 stands for any.
    """

    last_event_age = bits(63, 0)


class MemoryExceptionData(SparsePacket, words=8):
    """kfd_hsa_memory_exception_data: the first 32 bytes of an EventData whose event is of type MEMORY."""

    NotPresent = bits(31, 0)
    ReadOnly = bits(63, 32)
    NoExecute = bits(95, 64)
    imprecise = bits(127, 96)
    va = bits(191, 128)
    gpu_id = bits(223, 192)
    ErrorType = bits(255, 224)


class HwExceptionData(SparsePacket, words=4):
    """kfd_hsa_hw_exception_data: the first 16 bytes of an EventData whose event is of type HW_EXCEPTION."""

    reset_type = bits(31, 0)
    reset_cause = bits(63, 32)
    memory_lost = bits(95, 64)
    gpu_id = bits(127, 96)


class ProcessDeviceApertures(SparsePacket, words=14):
    """kfd_process_device_apertures"""

    lds_base = bits(63, 0)
    lds_limit = bits(127, 64)
    scratch_base = bits(191, 128)
    scratch_limit = bits(255, 192)
    gpuvm_base = bits(319, 256)
    gpuvm_limit = bits(383, 320)
    gpu_id = bits(415, 384)
    pad = bits(447, 416)


class GetProcessAperturesNewArgs(SparsePacket, words=4):
    """kfd_ioctl_get_process_apertures_new_args"""

    kfd_process_device_apertures_ptr = bits(63, 0)
    # in: room in the array; out: entries filled, or how many there are when 0 was given
    num_of_nodes = bits(95, 64)
    pad = bits(127, 96)


class AcquireVmArgs(SparsePacket, words=2):
    """kfd_ioctl_acquire_vm_args"""

    drm_fd = bits(31, 0)
    gpu_id = bits(63, 32)


class AllocMemoryOfGpuArgs(SparsePacket, words=10):
    """kfd_ioctl_alloc_memory_of_gpu_args"""

    va_addr = bits(63, 0)
    size = bits(127, 64)
    handle = bits(191, 128)
    mmap_offset = bits(255, 192)  # for mmap of the render node
    gpu_id = bits(287, 256)
    flags = bits(319, 288)


class FreeMemoryOfGpuArgs(SparsePacket, words=2):
    """kfd_ioctl_free_memory_of_gpu_args"""

    handle = bits(63, 0)


class MapMemoryToGpuArgs(SparsePacket, words=6):
    """kfd_ioctl_map_memory_to_gpu_args"""

    handle = bits(63, 0)
    device_ids_array_ptr = bits(127, 64)
    n_devices = bits(159, 128)
    n_success = bits(191, 160)


class UnmapMemoryFromGpuArgs(MapMemoryToGpuArgs):
    """kfd_ioctl_unmap_memory_from_gpu_args"""


class GetAvailableMemoryArgs(SparsePacket, words=4):
    """kfd_ioctl_get_available_memory_args"""

    available = bits(63, 0)
    gpu_id = bits(95, 64)
    pad = bits(127, 96)


class SetMemoryPolicyArgs(SparsePacket, words=8):
    """kfd_ioctl_set_memory_policy_args"""

    alternate_aperture_base = bits(63, 0)
    alternate_aperture_size = bits(127, 64)
    gpu_id = bits(159, 128)
    default_policy = bits(191, 160, enum=CachePolicy)
    alternate_policy = bits(223, 192, enum=CachePolicy)
    pad = bits(255, 224)


class SetScratchBackingVaArgs(SparsePacket, words=4):
    """kfd_ioctl_set_scratch_backing_va_args"""

    va_addr = bits(63, 0)
    gpu_id = bits(95, 64)
    pad = bits(127, 96)


class GetTileConfigArgs(SparsePacket, words=10):
    """kfd_ioctl_get_tile_config_args"""

    tile_config_ptr = bits(63, 0)
    macro_tile_config_ptr = bits(127, 64)
    num_tile_configs = bits(159, 128)  # in: room in the array; out: entries filled
    num_macro_tile_configs = bits(191, 160)
    gpu_id = bits(223, 192)
    gb_addr_config = bits(255, 224)
    num_banks = bits(287, 256)
    num_ranks = bits(319, 288)


class SetTrapHandlerArgs(SparsePacket, words=6):
    """kfd_ioctl_set_trap_handler_args"""

    tba_addr = bits(63, 0)
    tma_addr = bits(127, 64)
    gpu_id = bits(159, 128)
    pad = bits(191, 160)


class AllocQueueGwsArgs(SparsePacket, words=4):
    """kfd_ioctl_alloc_queue_gws_args: global wave sync, with which the workgroups of a queue wait for each other."""

    queue_id = bits(31, 0)
    num_gws = bits(63, 32)
    first_gws = bits(95, 64)
    pad = bits(127, 96)


class SetXnackModeArgs(SparsePacket, words=1):
    """kfd_ioctl_set_xnack_mode_args: negative asks for the mode, which comes back in its place."""

    xnack_enabled = bits(31, 0)


class RuntimeEnableArgs(SparsePacket, words=4):
    """kfd_ioctl_runtime_enable_args (interface 1.13)"""

    r_debug = bits(63, 0)
    mode_mask = bits(95, 64)  # bit 0: enable; bit 1: save trap temporaries
    capabilities_mask = bits(127, 96)  # from the kernel: the interface version of debugging


class ContextSaveAreaHeader(SparsePacket, words=10):
    """kfd_context_save_area_header: what starts each XCC's slice of a queue's context save area."""

    control_stack_offset = bits(31, 0)
    control_stack_size = bits(63, 32)
    wave_state_offset = bits(95, 64)
    wave_state_size = bits(127, 96)
    debug_offset = bits(159, 128)
    debug_size = bits(191, 160)
    err_payload_addr = bits(255, 192)
    err_event_id = bits(287, 256)
    reserved1 = bits(319, 288)


class Ioctl(BaseIoctl, Generic[A]):
    """One call of /dev/kfd. `fix` is what usually helps when it is refused."""

    layout: type[A]

    def __init__(
        self,
        number: int,
        name: str,
        layout: type[A],
        direction: int,
        show: tuple[str, ...] = (),
        fix: str = "",
    ) -> None:
        size = 4 * layout.length_words
        super().__init__(direction << 30 | size << 16 | ord("K") << 8 | number, name, layout, show)
        self.number, self.direction, self.size_bytes, self.fix = number, direction, size, fix


GET_VERSION = Ioctl(1, "GET_VERSION", GetVersionArgs, READ, (), "Update the amdgpu kernel driver.")
CREATE_QUEUE = Ioctl(
    2,
    "CREATE_QUEUE",
    CreateQueueArgs,
    READ | WRITE,
    ("queue_type", "gpu_id", "ring_size"),
    "Close other programs that hold queues on this GPU; if there are none, this kernel wants other buffer sizes.",
)
DESTROY_QUEUE = Ioctl(3, "DESTROY_QUEUE", DestroyQueueArgs, READ | WRITE, ("queue_id",))
SET_MEMORY_POLICY = Ioctl(4, "SET_MEMORY_POLICY", SetMemoryPolicyArgs, WRITE, ("gpu_id", "default_policy"))
GET_CLOCK_COUNTERS = Ioctl(
    5,
    "GET_CLOCK_COUNTERS",
    GetClockCountersArgs,
    READ | WRITE,
    ("gpu_id",),
    "The GPU does not answer: see dmesg.",
)
UPDATE_QUEUE = Ioctl(7, "UPDATE_QUEUE", UpdateQueueArgs, WRITE, ("queue_id",))
CREATE_EVENT = Ioctl(
    8,
    "CREATE_EVENT",
    CreateEventArgs,
    READ | WRITE,
    ("event_type", "event_page_offset"),
    "Another user of the KFD in this process has made the event page: open this device before it.",
)
DESTROY_EVENT = Ioctl(9, "DESTROY_EVENT", DestroyEventArgs, WRITE, ("event_id",))
SET_EVENT = Ioctl(10, "SET_EVENT", SetEventArgs, WRITE, ("event_id",))
RESET_EVENT = Ioctl(11, "RESET_EVENT", ResetEventArgs, WRITE, ("event_id",))
WAIT_EVENTS = Ioctl(12, "WAIT_EVENTS", WaitEventsArgs, READ | WRITE, ("num_events", "timeout"))
SET_SCRATCH_BACKING_VA = Ioctl(
    17, "SET_SCRATCH_BACKING_VA", SetScratchBackingVaArgs, READ | WRITE, ("gpu_id", "va_addr")
)
GET_TILE_CONFIG = Ioctl(18, "GET_TILE_CONFIG", GetTileConfigArgs, READ | WRITE, ("gpu_id",))
SET_TRAP_HANDLER = Ioctl(
    19, "SET_TRAP_HANDLER", SetTrapHandlerArgs, WRITE, ("gpu_id", "tba_addr", "tma_addr")
)
GET_PROCESS_APERTURES_NEW = Ioctl(
    20,
    "GET_PROCESS_APERTURES_NEW",
    GetProcessAperturesNewArgs,
    READ | WRITE,
    ("num_of_nodes",),
    "Update the amdgpu kernel driver.",
)
ACQUIRE_VM = Ioctl(
    21,
    "ACQUIRE_VM",
    AcquireVmArgs,
    WRITE,
    ("drm_fd", "gpu_id"),
    "Only one user of the KFD may hold a GPU's address space in a process: close the other one (ROCm, another port).",
)
ALLOC_MEMORY_OF_GPU = Ioctl(
    22,
    "ALLOC_MEMORY_OF_GPU",
    AllocMemoryOfGpuArgs,
    READ | WRITE,
    ("va_addr", "size", "gpu_id", "flags"),
    "Free memory on the GPU, or ask for less.",
)
FREE_MEMORY_OF_GPU = Ioctl(23, "FREE_MEMORY_OF_GPU", FreeMemoryOfGpuArgs, WRITE, ("handle",))
MAP_MEMORY_TO_GPU = Ioctl(
    24,
    "MAP_MEMORY_TO_GPU",
    MapMemoryToGpuArgs,
    READ | WRITE,
    ("handle", "n_devices"),
    "GPUs that cannot reach each other's memory copy through the host.",
)
UNMAP_MEMORY_FROM_GPU = Ioctl(
    25, "UNMAP_MEMORY_FROM_GPU", UnmapMemoryFromGpuArgs, READ | WRITE, ("handle", "n_devices")
)
ALLOC_QUEUE_GWS = Ioctl(30, "ALLOC_QUEUE_GWS", AllocQueueGwsArgs, READ | WRITE, ("queue_id", "num_gws"))
SET_XNACK_MODE = Ioctl(33, "SET_XNACK_MODE", SetXnackModeArgs, READ | WRITE, ("xnack_enabled",))
AVAILABLE_MEMORY = Ioctl(35, "AVAILABLE_MEMORY", GetAvailableMemoryArgs, READ | WRITE, ("gpu_id",))
RUNTIME_ENABLE = Ioctl(37, "RUNTIME_ENABLE", RuntimeEnableArgs, READ | WRITE, ("mode_mask",))

KFD_IOCTLS: dict[int, Ioctl[Any]] = {
    call.number: call for call in tuple(globals().values()) if isinstance(call, Ioctl)
}


def signed_offset(offset: int) -> int:
    """An mmap offset as off_t: those of doorbells and events have the highest bit set."""
    return offset - (1 << 64) if offset >> 63 else offset
