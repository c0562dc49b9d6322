"""Creating queues in the emulated KFD: every size and address is checked, as the kernel of that version does.

In       CREATE_QUEUE's arguments and the GPU
Out      a queue that the GPU's packet processors can run, or the errno of the first thing that is wrong
Next     gpu.py (who runs it), kfd_topology.py (the figures that sizes follow from)
Source   kfd_chardev.c: kfd_ioctl_create_queue, set_queue_properties_from_user; kfd_queue.c: kfd_queue_acquire_buffers,
         kfd_queue_ctx_save_restore_size, kfd_get_vgpr_size_per_cu; of Linux 6.1 and 6.12

A driver has to come to the same sizes by itself. Its own rules are in hcq/amd/sizing.py; none of them is used here.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import NamedTuple

from hcq.amd.abi.kfd import CreateQueueArgs, QueueType
from hcq.emu.amd.aql_processor import AqlQueue
from hcq.emu.amd.pm4_processor import Pm4Queue
from hcq.emu.amd.process_gpu import EmulatedQueue, ProcessGpu
from hcq.emu.amd.sdma_processor import SdmaQueue
from hcq.emu.amd.spec import LDS_BYTES
from hcq.emu.kernel import Refusal

PAGE = 4096
MIN_RING_BYTES = 1024
MAX_PRIORITY = 15
EOP_BYTES = 4096
AREA_HEADER_BYTES = 40
GFX950, GFX10_STACK_BYTES = 90500, 0x7000
GFX10_1 = 100100  # from this gfx_target_version on a compute unit has 32 waves
SCALAR_BYTES, HARDWARE_BYTES = 16 << 10, 4 << 10  # registers of one compute unit
VECTOR_BYTES = {  # gfx_target_version -> vector registers of one compute unit, where they are not 256 KiB
    **dict.fromkeys((90010, 90402, 90500), 512 << 10),
    **dict.fromkeys((110000, 110001, 110501, 120000, 120001), 384 << 10),
}
PROCESSORS: dict[int, type[EmulatedQueue]] = {
    QueueType.COMPUTE: Pm4Queue,
    QueueType.COMPUTE_AQL: AqlQueue,
    QueueType.SDMA: SdmaQueue,
    QueueType.SDMA_XGMI: SdmaQueue,
    QueueType.SDMA_BY_ENG_ID: SdmaQueue,
}
SDMA_ENGINES, SDMA_QUEUES = 2, 8  # as the topology says; queues of an engine
ENOTSUPP = 524  # the kernel's own number, which no libc names
HIGHEST_VA = 2**47 - 1  # of a process: access_ok
# minor versions of the interface. Buffers are checked since Linux 6.12, which brought 1.17; that larger ones are taken
# came soon after it, without a version of its own: so 1.17 here refuses them, and what passes there passes on all
CHECKS_BUFFERS, TAKES_LARGER = 17, 18


def create_queue(gpu: ProcessGpu, number: int, args: CreateQueueArgs) -> EmulatedQueue:
    """Check the arguments, in the kernel's order, and make the queue. Raises Refusal."""
    minor = gpu.node.spec.kfd_minor
    ring_bytes = _check_properties(args, minor)
    if gpu.drm_file is None:
        raise Refusal(errno.ESRCH)
    if args.queue_type == QueueType.SDMA_BY_ENG_ID and args.sdma_engine_id >= SDMA_ENGINES:
        raise Refusal(errno.EINVAL)
    if minor >= CHECKS_BUFFERS:
        _check_buffers(gpu, args, ring_bytes)
    elif gpu.chip.family >= 11:  # the hardware scheduler reads the write pointer through a mapping of its own
        mapped = gpu.vm.find(args.write_pointer_address)
        if mapped is None or mapped.end - mapped.start > PAGE:
            raise Refusal(errno.EINVAL)
    _check_free(gpu, args)
    index = gpu.free_doorbell()
    if index is None:
        raise Refusal(errno.ENOMEM)
    if ring_bytes != args.ring_size:
        args = CreateQueueArgs(**{**args.values, "ring_size": ring_bytes})
    return PROCESSORS[args.queue_type](gpu, number, index, args)


def _check_properties(args: CreateQueueArgs, minor: int) -> int:
    """set_queue_properties_from_user. Returns the ring's size: a small one is made larger."""
    percentage = args.queue_percentage if minor < 13 else args.queue_percentage & 0xFF
    if percentage > 100 or args.queue_priority > MAX_PRIORITY:
        raise Refusal(errno.EINVAL)
    pointers = (
        args.ring_base_address,
        args.read_pointer_address,
        args.write_pointer_address,
        args.eop_buffer_address,
        args.ctx_save_restore_address,
    )
    if args.ring_base_address > HIGHEST_VA:
        raise Refusal(errno.EFAULT)
    if args.ring_size & args.ring_size - 1:
        raise Refusal(errno.EINVAL)
    if max(pointers) > HIGHEST_VA:
        raise Refusal(errno.EFAULT)
    if args.queue_type not in PROCESSORS or (
        args.queue_type == QueueType.SDMA_BY_ENG_ID and minor < CHECKS_BUFFERS
    ):
        raise Refusal(ENOTSUPP)
    return max(args.ring_size, MIN_RING_BYTES)


def _check_buffers(gpu: ProcessGpu, args: CreateQueueArgs, ring_bytes: int) -> None:
    """kfd_queue_acquire_buffers: each is a mapping of its own, of exactly this size."""
    for address in (args.write_pointer_address, args.read_pointer_address):
        _check_buffer(gpu, address, PAGE)
    _check_buffer(gpu, args.ring_base_address, ring_bytes)
    if args.queue_type not in (QueueType.COMPUTE, QueueType.COMPUTE_AQL):
        return
    is_lenient = gpu.node.spec.kfd_minor >= TAKES_LARGER
    if args.eop_buffer_address:
        is_large = is_lenient and args.eop_buffer_size > EOP_BYTES
        if args.eop_buffer_size != EOP_BYTES and not is_large:
            raise Refusal(errno.EINVAL)
        _check_buffer(gpu, args.eop_buffer_address, _pages(args.eop_buffer_size))
    area = save_area(gpu.node.properties())
    if args.ctl_stack_size != area.ctl_stack_bytes:
        raise Refusal(errno.EINVAL)
    if args.ctx_save_restore_size != area.save_bytes and not (
        is_lenient and args.ctx_save_restore_size > area.save_bytes
    ):
        raise Refusal(errno.EINVAL)
    area = area._replace(save_bytes=args.ctx_save_restore_size)
    _check_buffer(gpu, args.ctx_save_restore_address, area.bytes_of(gpu.chip.xccs))


def _check_buffer(gpu: ProcessGpu, address: int, size_bytes: int) -> None:
    """kfd_queue_buffer_get: its page starts a mapping; less than a page is not compared with the mapping's end."""
    start = address & -PAGE
    one = gpu.vm.find(start)
    pages = size_bytes // PAGE
    if one is None or one.start != start or (pages and one.end != start + pages * PAGE):
        raise Refusal(errno.EINVAL)


def _check_free(gpu: ProcessGpu, args: CreateQueueArgs) -> None:
    """allocate_sdma_queue: a copy engine has so many queues for all processes, and those of gfx11 keep two."""
    if args.queue_type == QueueType.SDMA_XGMI:
        raise Refusal(errno.ENOMEM)  # there are no such engines here
    if args.queue_type in (QueueType.SDMA, QueueType.SDMA_BY_ENG_ID):
        used = sum(isinstance(queue, SdmaQueue) for queue in gpu.gpu.queues)
        if used >= SDMA_ENGINES * (SDMA_QUEUES - (2 if gpu.chip.family >= 11 else 0)):
            raise Refusal(errno.ENOMEM)


class SaveArea(NamedTuple):
    """Where the waves of a compute queue are saved when it is interrupted. Bytes, of each XCC."""

    ctl_stack_bytes: int
    save_bytes: int  # the control stack and the state of all compute units
    debug_bytes: int

    def bytes_of(self, xccs: int) -> int:
        """How much memory a queue over so many XCCs must give, in whole pages."""
        return _pages((self.save_bytes + self.debug_bytes) * xccs)


def save_area(properties: Mapping[str, int]) -> SaveArea:
    """The sizes that kfd_queue_ctx_save_restore_size works out from a node's properties."""
    version = properties["gfx_target_version"]
    units = properties["simd_count"] // properties["simd_per_cu"] // properties["num_xcc"]
    waves = units * 32
    if version < GFX10_1:
        # sysfs shows array_count of all XCCs (node_show), the kernel works with that of one
        engines = properties["array_count"] // properties["num_xcc"] // properties["simd_arrays_per_engine"]
        waves = min(units * 40, engines * 512)
    lds_bytes = properties["lds_size_in_kb"] << 10 if version == GFX950 else LDS_BYTES
    unit_bytes = VECTOR_BYTES.get(version, 256 << 10) + SCALAR_BYTES + lds_bytes + HARDWARE_BYTES
    stack = _pages(AREA_HEADER_BYTES + waves * (12 if version >= GFX10_1 else 8) + 8)
    if version // 10000 == 10:
        stack = min(stack, GFX10_STACK_BYTES)
    return SaveArea(stack, stack + _pages(units * unit_bytes), -(-waves * 32 // 64) * 64)


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE) * PAGE
