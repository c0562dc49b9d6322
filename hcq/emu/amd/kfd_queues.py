"""Creating queues in the emulated KFD: every size and address is checked, as newer kernels do.

In       CREATE_QUEUE's arguments and the GPU
Out      a queue that the GPU's packet processors can run, or the errno of the first thing that is wrong
Changes  nothing
Next     gpu.py (who runs it), kfd_topology.py (the figures that sizes follow from)
Source   kfd_chardev.c: set_queue_properties_from_user; kfd_queue.c: kfd_queue_acquire_buffers,
         kfd_queue_ctx_save_restore_size, kfd_get_vgpr_size_per_cu

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
GFX10_1 = 100100  # from this gfx_target_version on a compute unit has 32 waves
SCALAR_BYTES, HARDWARE_BYTES = 16 << 10, 4 << 10  # registers of one compute unit
VECTOR_BYTES = {  # gfx_target_version -> vector registers of one compute unit, where they are not 256 KiB
    **dict.fromkeys((90010, 90402), 512 << 10),
    **dict.fromkeys((110000, 110001, 120000, 120001), 384 << 10),
}
PROCESSORS: dict[int, type[EmulatedQueue]] = {
    QueueType.COMPUTE: Pm4Queue,
    QueueType.COMPUTE_AQL: AqlQueue,
    QueueType.SDMA: SdmaQueue,
}


def create_queue(gpu: ProcessGpu, number: int, args: CreateQueueArgs) -> EmulatedQueue:
    """Check the arguments and make the queue. Raises Refusal."""
    if gpu.drm_file is None:
        raise Refusal(errno.ENODEV)
    if args.queue_percentage & 0xFF > 100 or args.queue_priority > MAX_PRIORITY:
        raise Refusal(errno.EINVAL)
    if not args.ring_base_address or args.ring_size & args.ring_size - 1 or args.ring_size < MIN_RING_BYTES:
        raise Refusal(errno.EINVAL)
    if not args.read_pointer_address or not args.write_pointer_address:
        raise Refusal(errno.EFAULT)
    if args.queue_type not in PROCESSORS:
        raise Refusal(errno.EINVAL)
    vm = gpu.vm
    is_exact = vm.is_exactly(args.ring_base_address, args.ring_size)
    for address in (args.read_pointer_address, args.write_pointer_address):
        is_exact = is_exact and vm.is_exactly(address & -PAGE, PAGE)
    if not is_exact:
        raise Refusal(errno.EINVAL)
    if args.queue_type != QueueType.SDMA:
        _check_compute_buffers(gpu, args)
    index = gpu.free_doorbell()
    if index is None:
        raise Refusal(errno.ENOMEM)
    return PROCESSORS[args.queue_type](gpu, number, index, args)


def _check_compute_buffers(gpu: ProcessGpu, args: CreateQueueArgs) -> None:
    if args.eop_buffer_address and not (
        args.eop_buffer_size == EOP_BYTES and gpu.vm.is_exactly(args.eop_buffer_address, EOP_BYTES)
    ):
        raise Refusal(errno.EINVAL)
    area = save_area(gpu.node.properties())
    # the kernel took no larger area at first, and does now: what passes here passes on both
    if args.ctl_stack_size != area.ctl_stack_bytes or args.ctx_save_restore_size != area.save_bytes:
        raise Refusal(errno.EINVAL)
    if not gpu.vm.is_exactly(args.ctx_save_restore_address, area.bytes_of(gpu.chip.xccs)):
        raise Refusal(errno.EINVAL)


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
    unit_bytes = VECTOR_BYTES.get(version, 256 << 10) + SCALAR_BYTES + LDS_BYTES + HARDWARE_BYTES
    stack = _pages(AREA_HEADER_BYTES + waves * (12 if version >= GFX10_1 else 8) + 8)
    return SaveArea(stack, stack + _pages(units * unit_bytes), -(-waves * 32 // 64) * 64)


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE) * PAGE
