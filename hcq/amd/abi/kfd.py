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
from hcq.system.ioctl_numbers import READ as READ
from hcq.system.ioctl_numbers import WRITE as WRITE
from hcq.system.ioctl_numbers import ioctl_number

A = TypeVar("A", bound=Packet)

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


class SetCuMaskArgs(SparsePacket, words=4):
    """kfd_ioctl_set_cu_mask_args"""

    queue_id = bits(31, 0)
    num_cu_mask = bits(63, 32)  # bits of the mask, a multiple of 32
    cu_mask_ptr = bits(127, 64)  # words


class GetQueueWaveStateArgs(SparsePacket, words=6):
    """kfd_ioctl_get_queue_wave_state_args: of a queue that stands still, how much of its save area is used."""

    ctl_stack_address = bits(63, 0)  # what starts a ContextSaveAreaHeader goes there
    ctl_stack_used_size = bits(95, 64)  # from the kernel, as the next
    save_area_used_size = bits(127, 96)
    queue_id = bits(159, 128)
    pad = bits(191, 160)


class GetDmabufInfoArgs(SparsePacket, words=8):
    """kfd_ioctl_get_dmabuf_info_args"""

    size = bits(63, 0)
    metadata_ptr = bits(127, 64)
    metadata_size = bits(159, 128)  # the room there is; from the kernel: how much there was
    gpu_id = bits(191, 160)  # from the kernel, as the next
    flags = bits(223, 192)  # AllocFlags: VRAM or GTT, PUBLIC
    dmabuf_fd = bits(255, 224)


class ImportDmabufArgs(SparsePacket, words=6):
    """kfd_ioctl_import_dmabuf_args"""

    va_addr = bits(63, 0)
    handle = bits(127, 64)  # from the kernel
    gpu_id = bits(159, 128)
    dmabuf_fd = bits(191, 160)


class ExportDmabufArgs(SparsePacket, words=4):
    """kfd_ioctl_export_dmabuf_args (interface 1.12)"""

    handle = bits(63, 0)
    flags = bits(95, 64)  # of the descriptor: O_CLOEXEC
    dmabuf_fd = bits(127, 96)  # from the kernel


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


class CreateProcessArgs(SparsePacket, words=0):
    """None: AMDKFD_IOC_CREATE_PROCESS takes no structure."""


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
        super().__init__(ioctl_number(direction, "K", number, size), name, layout, show)
        self.number, self.direction, self.size_bytes, self.fix = number, direction, size, fix


# Above each call: the function of the kernel that answers it, and what it checks. Linux 6.12.

# kfd_ioctl_get_version: checks nothing.
GET_VERSION = Ioctl(1, "GET_VERSION", GetVersionArgs, READ, (), "Update the amdgpu kernel driver.")
# set_queue_properties_from_user: percentage and priority (EINVAL), addresses of the process (EFAULT), ring size a
# power of two (EINVAL), type (524). kfd_ioctl_create_queue: GPU (EINVAL), address space acquired (ESRCH).
# kfd_queue_acquire_buffers, since Linux 6.12: pointers, ring, save area and end-of-pipe buffer are mappings of their
# own of the right size (EINVAL). pqm_create_queue, allocate_sdma_queue: free slots, doorbells and SDMA queues
# (ENOMEM, EBUSY).
CREATE_QUEUE = Ioctl(
    2,
    "CREATE_QUEUE",
    CreateQueueArgs,
    READ | WRITE,
    ("queue_type", "gpu_id", "ring_size"),
    "Close other programs that hold queues on this GPU; if there are none, this kernel wants other buffer sizes.",
)
# pqm_destroy_queue: the queue (EINVAL). wait_on_destroy_queue waits while a debugger keeps it (EBUSY).
DESTROY_QUEUE = Ioctl(3, "DESTROY_QUEUE", DestroyQueueArgs, READ | WRITE, ("queue_id",))
# kfd_ioctl_set_memory_policy: both policies, the GPU (EINVAL), its address space (ESRCH). ROCr calls it.
SET_MEMORY_POLICY = Ioctl(4, "SET_MEMORY_POLICY", SetMemoryPolicyArgs, WRITE, ("gpu_id", "default_policy"))
# kfd_ioctl_get_clock_counters: nothing; a GPU that is not there has the counter 0.
GET_CLOCK_COUNTERS = Ioctl(
    5,
    "GET_CLOCK_COUNTERS",
    GetClockCountersArgs,
    READ | WRITE,
    ("gpu_id",),
    "The GPU does not answer: see dmesg.",
)
# kfd_ioctl_update_queue: as for a new queue. pqm_update_queue_properties: the queue (EFAULT).
UPDATE_QUEUE = Ioctl(7, "UPDATE_QUEUE", UpdateQueueArgs, WRITE, ("queue_id",))
# kfd_kmap_event_page: one page for a process, in GTT, of an acquired GPU, with room for 4096 slots (EINVAL).
# create_signal_event: a free slot (ENOSPC). Other types than SIGNAL and DEBUG are taken as they are.
CREATE_EVENT = Ioctl(
    8,
    "CREATE_EVENT",
    CreateEventArgs,
    READ | WRITE,
    ("event_type", "event_page_offset"),
    "Another user of the KFD in this process has made the event page: open this device before it.",
)
# kfd_event_destroy: the event (EINVAL). Who waits for it gets EIO.
DESTROY_EVENT = Ioctl(9, "DESTROY_EVENT", DestroyEventArgs, WRITE, ("event_id",))
# kfd_set_event: the event, a SIGNAL (EINVAL).
SET_EVENT = Ioctl(10, "SET_EVENT", SetEventArgs, WRITE, ("event_id",))
# kfd_reset_event: the event, a SIGNAL (EINVAL). Our driver makes no use of it: its events reset themselves.
RESET_EVENT = Ioctl(11, "RESET_EVENT", ResetEventArgs, WRITE, ("event_id",))
# kfd_wait_on_events: the array (EFAULT), each event (EINVAL), none destroyed meanwhile (EIO). A signal that comes
# ends it with ERESTARTSYS, and what had fired is set again.
WAIT_EVENTS = Ioctl(12, "WAIT_EVENTS", WaitEventsArgs, READ | WRITE, ("num_events", "timeout"))
# kfd_ioctl_set_scratch_backing_va: the GPU (EINVAL), its address space (ESRCH). ROCr calls it.
SET_SCRATCH_BACKING_VA = Ioctl(
    17, "SET_SCRATCH_BACKING_VA", SetScratchBackingVaArgs, READ | WRITE, ("gpu_id", "va_addr")
)
# kfd_ioctl_get_tile_config: the GPU (EINVAL), the arrays (EFAULT). ROCr's image library calls it.
GET_TILE_CONFIG = Ioctl(18, "GET_TILE_CONFIG", GetTileConfigArgs, READ | WRITE, ("gpu_id",))
# kfd_ioctl_set_trap_handler: the GPU (EINVAL), its address space (ESRCH); not the addresses.
SET_TRAP_HANDLER = Ioctl(
    19, "SET_TRAP_HANDLER", SetTrapHandlerArgs, WRITE, ("gpu_id", "tba_addr", "tma_addr")
)
# kfd_ioctl_get_process_apertures_new: not more entries than nodes (EINVAL), the array (EFAULT).
GET_PROCESS_APERTURES_NEW = Ioctl(
    20,
    "GET_PROCESS_APERTURES_NEW",
    GetProcessAperturesNewArgs,
    READ | WRITE,
    ("num_of_nodes",),
    "Update the amdgpu kernel driver.",
)
# kfd_ioctl_acquire_vm: the file and the GPU (EINVAL), no other file before it (EBUSY).
# amdgpu_amdkfd_gpuvm_acquire_process_vm: a file whose address space is nobody's yet (EINVAL).
ACQUIRE_VM = Ioctl(
    21,
    "ACQUIRE_VM",
    AcquireVmArgs,
    WRITE,
    ("drm_fd", "gpu_id"),
    "Only one user of the KFD may hold a GPU's address space in a process: close the other one (ROCm, another port).",
)
# kfd_ioctl_alloc_memory_of_gpu: size, GPU, PUBLIC only with a large BAR, sizes of doorbells and registers (EINVAL),
# the flush register where the machine has one (ENOMEM), addresses that SVM has (EADDRINUSE), address space acquired
# (ENODEV). amdgpu_amdkfd_gpuvm_alloc_memory_of_gpu: one place (EINVAL), room (ENOMEM).
ALLOC_MEMORY_OF_GPU = Ioctl(
    22,
    "ALLOC_MEMORY_OF_GPU",
    AllocMemoryOfGpuArgs,
    READ | WRITE,
    ("va_addr", "size", "gpu_id", "flags"),
    "Free memory on the GPU, or ask for less.",
)
# kfd_ioctl_free_memory_of_gpu: not the event page (EPERM), the handle (EINVAL), mapped nowhere (EBUSY).
FREE_MEMORY_OF_GPU = Ioctl(23, "FREE_MEMORY_OF_GPU", FreeMemoryOfGpuArgs, WRITE, ("handle",))
# kfd_ioctl_map_memory_to_gpu: counts and GPUs (EINVAL), the array (EFAULT), their address spaces (ENODEV), the handle
# (ENOMEM). amdgpu_vm_bo_map: aligned, and over no other mapping (EINVAL).
MAP_MEMORY_TO_GPU = Ioctl(
    24,
    "MAP_MEMORY_TO_GPU",
    MapMemoryToGpuArgs,
    READ | WRITE,
    ("handle", "n_devices"),
    "GPUs that cannot reach each other's memory copy through the host.",
)
# kfd_ioctl_unmap_memory_from_gpu: as for mapping. amdgpu_amdkfd_gpuvm_unmap_memory_from_gpu: no queue uses it
# (EBUSY), since Linux 6.12.
UNMAP_MEMORY_FROM_GPU = Ioctl(
    25, "UNMAP_MEMORY_FROM_GPU", UnmapMemoryFromGpuArgs, READ | WRITE, ("handle", "n_devices")
)
# kfd_ioctl_set_cu_mask: whole words, at least one (EINVAL). pqm_update_mqd: the queue (EFAULT); from gfx10 on compute
# units in pairs (EINVAL). ROCr calls it for a stream with a mask.
SET_CU_MASK = Ioctl(26, "SET_CU_MASK", SetCuMaskArgs, WRITE, ("queue_id", "num_cu_mask"))
# pqm_get_wave_state: the queue (EFAULT). get_wave_state: a compute queue that stands still (EINVAL). Debuggers call it.
GET_QUEUE_WAVE_STATE = Ioctl(27, "GET_QUEUE_WAVE_STATE", GetQueueWaveStateArgs, READ | WRITE, ("queue_id",))
# amdgpu_amdkfd_get_dmabuf_info: a dma-buf (EBADF, EINVAL) of amdgpu's (EINVAL).
GET_DMABUF_INFO = Ioctl(28, "GET_DMABUF_INFO", GetDmabufInfoArgs, READ | WRITE, ("dmabuf_fd",))
# kfd_ioctl_import_dmabuf: the GPU (EINVAL), acquired (ENODEV); the dma-buf as above.
IMPORT_DMABUF = Ioctl(29, "IMPORT_DMABUF", ImportDmabufArgs, READ | WRITE, ("gpu_id", "dmabuf_fd"))
# kfd_ioctl_alloc_queue_gws: the queue (EINVAL), hardware with global wave sync (ENODEV). ROCr calls it.
ALLOC_QUEUE_GWS = Ioctl(30, "ALLOC_QUEUE_GWS", AllocQueueGwsArgs, READ | WRITE, ("queue_id", "num_gws"))
# kfd_ioctl_set_xnack_mode: no queues (EBUSY), parts that retry page faults (EPERM). ROCr asks with -1.
SET_XNACK_MODE = Ioctl(33, "SET_XNACK_MODE", SetXnackModeArgs, READ | WRITE, ("xnack_enabled",))
# kfd_ioctl_get_available_memory: the GPU (EINVAL).
AVAILABLE_MEMORY = Ioctl(35, "AVAILABLE_MEMORY", GetAvailableMemoryArgs, READ | WRITE, ("gpu_id",))
# kfd_ioctl_export_dmabuf: the handle (EINVAL). amdgpu_gem_prime_export: no pages of the process (EPERM).
EXPORT_DMABUF = Ioctl(36, "EXPORT_DMABUF", ExportDmabufArgs, READ | WRITE, ("handle",))
# runtime_enable: not enabled before (EBUSY), no queues yet (EEXIST).
RUNTIME_ENABLE = Ioctl(37, "RUNTIME_ENABLE", RuntimeEnableArgs, READ | WRITE, ("mode_mask",))
# kfd_ioctl_create_process, since interface 1.19: a file that has made no second context yet (EINVAL). Read in the
# kernel's development tree, and in no release.
CREATE_PROCESS = Ioctl(39, "CREATE_PROCESS", CreateProcessArgs, 0)

KFD_IOCTLS: dict[int, Ioctl[Any]] = {
    call.number: call for call in tuple(globals().values()) if isinstance(call, Ioctl)
}


def signed_offset(offset: int) -> int:
    """An mmap offset as off_t: those of doorbells and events have the highest bit set."""
    return offset - (1 << 64) if offset >> 63 else offset
