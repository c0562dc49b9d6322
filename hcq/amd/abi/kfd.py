"""The KFD's ioctls: every argument structure and number of /dev/kfd that this driver calls.

In       fields by name
Out      the structures, made of data/kfd.tsv when first asked for, and the calls; KFD_IOCTLS, all of them by number
Changes  nothing; the file is read once
Next     hcq/amd/ioctl.py (makes the calls), hcq/emu/amd/kfd.py (answers them when there is no GPU)
Source   linux/kfd_ioctl.h, interface 1.17; a structure that has grown since keeps its old fields in front

The kernel takes the size of the structure from the request number: a shorter one is filled up with zeroes.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, IntFlag
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hcq.errors import UsageError
from hcq.layout import Ioctl as BaseIoctl
from hcq.layout import Packet, SparsePacket
from hcq.system.abi_atlas import fields_of, rows
from hcq.system.ioctl_numbers import READ as READ
from hcq.system.ioctl_numbers import WRITE as WRITE
from hcq.system.ioctl_numbers import ioctl_number

A = TypeVar("A", bound=Packet)

FILE = Path(__file__).parent / "data" / "kfd.tsv"
MAJOR_VERSION, MINOR_VERSION = 1, 17  # the interface that this driver is written to
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


class Args(SparsePacket):
    """A structure in memory."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int:
            """A field's value: which there are is data, which type checkers do not read."""


# fields whose numbers have names, and what some are where a call does not say
NAMED: dict[str, type[IntEnum]] = {
    "CreateQueueArgs.queue_type": QueueType,
    "CreateEventArgs.event_type": EventType,
    "WaitEventsArgs.wait_result": WaitResult,
    "SetMemoryPolicyArgs.default_policy": CachePolicy,
    "SetMemoryPolicyArgs.alternate_policy": CachePolicy,
}
DEFAULTS = {
    "CreateQueueArgs.queue_percentage": 100,  # 0 suspends; bits 15:8 choose the XCC of a PM4 queue
    "CreateQueueArgs.queue_priority": 7,  # 0..15
}


@cache
def structure(name: str) -> type[Args]:
    """A structure in the layout of MINOR_VERSION. Raises UsageError for one that the file has not.

    >>> structure("FreeMemoryOfGpuArgs")(handle=7)
    FreeMemoryOfGpuArgs(handle=0x7)
    """
    held = [cells for cells in rows(FILE, "structure") if cells[1] == name and int(cells[0]) <= MINOR_VERSION]
    if not held:
        raise UsageError(f"{name!r}: {FILE.name} has no such structure of 1.{MINOR_VERSION}.")
    _, _, header_name, size, fields, *remark = held[-1]
    body: dict[str, Any] = {"__doc__": ": ".join([header_name, *remark]), "__module__": __name__}
    for field in fields_of(fields, int(size), f"{FILE.name}: {name}"):
        place = f"{name}.{field.name}"
        body.update(field.bits(NAMED.get(place), DEFAULTS.get(place, 0)))
    return type(name, (Args,), body, words=int(size) // 4)


def __getattr__(name: str) -> Any:
    """A structure by its name, made when it is first asked for."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        found = globals()[name] = structure(name)
    except UsageError as error:
        raise AttributeError(str(error)) from None
    return found


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
GET_VERSION = Ioctl(
    1, "GET_VERSION", structure("GetVersionArgs"), READ, (), "Update the amdgpu kernel driver."
)
# set_queue_properties_from_user: percentage and priority (EINVAL), addresses of the process (EFAULT), ring size a
# power of two (EINVAL), type (524). kfd_ioctl_create_queue: GPU (EINVAL), address space acquired (ESRCH).
# kfd_queue_acquire_buffers, since Linux 6.12: pointers, ring, save area and end-of-pipe buffer are mappings of their
# own of the right size (EINVAL). pqm_create_queue, allocate_sdma_queue: free slots, doorbells and SDMA queues
# (ENOMEM, EBUSY).
CREATE_QUEUE = Ioctl(
    2,
    "CREATE_QUEUE",
    structure("CreateQueueArgs"),
    READ | WRITE,
    ("queue_type", "gpu_id", "ring_size"),
    "Close other programs that hold queues on this GPU; if there are none, this kernel wants other buffer sizes.",
)
# pqm_destroy_queue: the queue (EINVAL). wait_on_destroy_queue waits while a debugger keeps it (EBUSY).
DESTROY_QUEUE = Ioctl(3, "DESTROY_QUEUE", structure("DestroyQueueArgs"), READ | WRITE, ("queue_id",))
# kfd_ioctl_set_memory_policy: both policies, the GPU (EINVAL), its address space (ESRCH). ROCr calls it.
SET_MEMORY_POLICY = Ioctl(
    4, "SET_MEMORY_POLICY", structure("SetMemoryPolicyArgs"), WRITE, ("gpu_id", "default_policy")
)
# kfd_ioctl_get_clock_counters: nothing; a GPU that is not there has the counter 0.
GET_CLOCK_COUNTERS = Ioctl(
    5,
    "GET_CLOCK_COUNTERS",
    structure("GetClockCountersArgs"),
    READ | WRITE,
    ("gpu_id",),
    "The GPU does not answer: see dmesg.",
)
# kfd_ioctl_update_queue: as for a new queue. pqm_update_queue_properties: the queue (EFAULT).
UPDATE_QUEUE = Ioctl(7, "UPDATE_QUEUE", structure("UpdateQueueArgs"), WRITE, ("queue_id",))
# kfd_kmap_event_page: one page for a process, in GTT, of an acquired GPU, with room for 4096 slots (EINVAL).
# create_signal_event: a free slot (ENOSPC). Other types than SIGNAL and DEBUG are taken as they are.
CREATE_EVENT = Ioctl(
    8,
    "CREATE_EVENT",
    structure("CreateEventArgs"),
    READ | WRITE,
    ("event_type", "event_page_offset"),
    "Another user of the KFD in this process has made the event page: open this device before it.",
)
# kfd_event_destroy: the event (EINVAL). Who waits for it gets EIO.
DESTROY_EVENT = Ioctl(9, "DESTROY_EVENT", structure("DestroyEventArgs"), WRITE, ("event_id",))
# kfd_set_event: the event, a SIGNAL (EINVAL).
SET_EVENT = Ioctl(10, "SET_EVENT", structure("SetEventArgs"), WRITE, ("event_id",))
# kfd_reset_event: the event, a SIGNAL (EINVAL). Our driver makes no use of it: its events reset themselves.
RESET_EVENT = Ioctl(11, "RESET_EVENT", structure("ResetEventArgs"), WRITE, ("event_id",))
# kfd_wait_on_events: the array (EFAULT), each event (EINVAL), none destroyed meanwhile (EIO). A signal that comes
# ends it with ERESTARTSYS, and what had fired is set again.
WAIT_EVENTS = Ioctl(12, "WAIT_EVENTS", structure("WaitEventsArgs"), READ | WRITE, ("num_events", "timeout"))
# kfd_ioctl_set_scratch_backing_va: the GPU (EINVAL), its address space (ESRCH). ROCr calls it.
SET_SCRATCH_BACKING_VA = Ioctl(
    17, "SET_SCRATCH_BACKING_VA", structure("SetScratchBackingVaArgs"), READ | WRITE, ("gpu_id", "va_addr")
)
# kfd_ioctl_get_tile_config: the GPU (EINVAL), the arrays (EFAULT). ROCr's image library calls it.
GET_TILE_CONFIG = Ioctl(18, "GET_TILE_CONFIG", structure("GetTileConfigArgs"), READ | WRITE, ("gpu_id",))
# kfd_ioctl_set_trap_handler: the GPU (EINVAL), its address space (ESRCH); not the addresses.
SET_TRAP_HANDLER = Ioctl(
    19, "SET_TRAP_HANDLER", structure("SetTrapHandlerArgs"), WRITE, ("gpu_id", "tba_addr", "tma_addr")
)
# kfd_ioctl_get_process_apertures_new: not more entries than nodes (EINVAL), the array (EFAULT).
GET_PROCESS_APERTURES_NEW = Ioctl(
    20,
    "GET_PROCESS_APERTURES_NEW",
    structure("GetProcessAperturesNewArgs"),
    READ | WRITE,
    ("num_of_nodes",),
    "Update the amdgpu kernel driver.",
)
# kfd_ioctl_acquire_vm: the file and the GPU (EINVAL), no other file before it (EBUSY).
# amdgpu_amdkfd_gpuvm_acquire_process_vm: a file whose address space is nobody's yet (EINVAL).
ACQUIRE_VM = Ioctl(
    21,
    "ACQUIRE_VM",
    structure("AcquireVmArgs"),
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
    structure("AllocMemoryOfGpuArgs"),
    READ | WRITE,
    ("va_addr", "size", "gpu_id", "flags"),
    "Free memory on the GPU, or ask for less.",
)
# kfd_ioctl_free_memory_of_gpu: not the event page (EPERM), the handle (EINVAL), mapped nowhere (EBUSY).
FREE_MEMORY_OF_GPU = Ioctl(23, "FREE_MEMORY_OF_GPU", structure("FreeMemoryOfGpuArgs"), WRITE, ("handle",))
# kfd_ioctl_map_memory_to_gpu: counts and GPUs (EINVAL), the array (EFAULT), their address spaces (ENODEV), the handle
# (ENOMEM). amdgpu_vm_bo_map: aligned, and over no other mapping (EINVAL).
MAP_MEMORY_TO_GPU = Ioctl(
    24,
    "MAP_MEMORY_TO_GPU",
    structure("MapMemoryToGpuArgs"),
    READ | WRITE,
    ("handle", "n_devices"),
    "GPUs that cannot reach each other's memory copy through the host.",
)
# kfd_ioctl_unmap_memory_from_gpu: as for mapping. amdgpu_amdkfd_gpuvm_unmap_memory_from_gpu: no queue uses it
# (EBUSY), since Linux 6.12.
UNMAP_MEMORY_FROM_GPU = Ioctl(
    25, "UNMAP_MEMORY_FROM_GPU", structure("UnmapMemoryFromGpuArgs"), READ | WRITE, ("handle", "n_devices")
)
# kfd_ioctl_set_cu_mask: whole words, at least one (EINVAL). pqm_update_mqd: the queue (EFAULT); from gfx10 on compute
# units in pairs (EINVAL). ROCr calls it for a stream with a mask.
SET_CU_MASK = Ioctl(26, "SET_CU_MASK", structure("SetCuMaskArgs"), WRITE, ("queue_id", "num_cu_mask"))
# pqm_get_wave_state: the queue (EFAULT). get_wave_state: a compute queue that stands still (EINVAL). Debuggers call it.
GET_QUEUE_WAVE_STATE = Ioctl(
    27, "GET_QUEUE_WAVE_STATE", structure("GetQueueWaveStateArgs"), READ | WRITE, ("queue_id",)
)
# amdgpu_amdkfd_get_dmabuf_info: a dma-buf (EBADF, EINVAL) of amdgpu's (EINVAL).
GET_DMABUF_INFO = Ioctl(28, "GET_DMABUF_INFO", structure("GetDmabufInfoArgs"), READ | WRITE, ("dmabuf_fd",))
# kfd_ioctl_import_dmabuf: the GPU (EINVAL), acquired (ENODEV); the dma-buf as above.
IMPORT_DMABUF = Ioctl(
    29, "IMPORT_DMABUF", structure("ImportDmabufArgs"), READ | WRITE, ("gpu_id", "dmabuf_fd")
)
# kfd_ioctl_alloc_queue_gws: the queue (EINVAL), hardware with global wave sync (ENODEV). ROCr calls it.
ALLOC_QUEUE_GWS = Ioctl(
    30, "ALLOC_QUEUE_GWS", structure("AllocQueueGwsArgs"), READ | WRITE, ("queue_id", "num_gws")
)
# kfd_ioctl_set_xnack_mode: no queues (EBUSY), parts that retry page faults (EPERM). ROCr asks with -1.
SET_XNACK_MODE = Ioctl(33, "SET_XNACK_MODE", structure("SetXnackModeArgs"), READ | WRITE, ("xnack_enabled",))
# kfd_ioctl_get_available_memory: the GPU (EINVAL).
AVAILABLE_MEMORY = Ioctl(
    35, "AVAILABLE_MEMORY", structure("GetAvailableMemoryArgs"), READ | WRITE, ("gpu_id",)
)
# kfd_ioctl_export_dmabuf: the handle (EINVAL). amdgpu_gem_prime_export: no pages of the process (EPERM).
EXPORT_DMABUF = Ioctl(36, "EXPORT_DMABUF", structure("ExportDmabufArgs"), READ | WRITE, ("handle",))
# runtime_enable: not enabled before (EBUSY), no queues yet (EEXIST).
RUNTIME_ENABLE = Ioctl(37, "RUNTIME_ENABLE", structure("RuntimeEnableArgs"), READ | WRITE, ("mode_mask",))
# kfd_ioctl_create_process, since interface 1.19: a file that has made no second context yet (EINVAL). Read in the
# kernel's development tree, and in no release.
CREATE_PROCESS = Ioctl(39, "CREATE_PROCESS", CreateProcessArgs, 0)

KFD_IOCTLS: dict[int, Ioctl[Any]] = {
    call.number: call for call in tuple(globals().values()) if isinstance(call, Ioctl)
}


# structures that arguments point to, or that stand in memory
BEHIND = (
    "EventData SignalEventData MemoryExceptionData HwExceptionData ProcessDeviceApertures ContextSaveAreaHeader"
).split()


def declared_layouts() -> Iterator[type[Packet]]:
    """The structures of these calls, and those behind them; the file has others, too."""
    yield from (call.layout for call in KFD_IOCTLS.values() if call.size_bytes)
    yield from map(structure, BEHIND)


def signed_offset(offset: int) -> int:
    """An mmap offset as off_t: those of doorbells and events have the highest bit set."""
    return offset - (1 << 64) if offset >> 63 else offset
