"""Creating queues in the emulated KFD: every size and address is checked, as newer kernels do.

In       CREATE_QUEUE's arguments and the GPU
Out      a queue that the GPU's packet processors can run, or the errno of the first thing that is wrong
Changes  nothing
Next     gpu.py (who runs it), hcq/amd/sizing.py (the sizes, computed by the same rules)
Source   kfd_chardev.c set_queue_properties_from_user; kfd_queue.c kfd_queue_acquire_buffers
"""

from __future__ import annotations

import errno

from hcq.amd.abi.kfd import CreateQueueArgs, QueueType
from hcq.amd.sizing import EOP_BYTES, queue_sizes
from hcq.emu.amd.aql_processor import AqlQueue
from hcq.emu.amd.gpu import EmulatedGpu, EmulatedQueue
from hcq.emu.amd.pm4_processor import Pm4Queue
from hcq.emu.amd.sdma_processor import SdmaQueue
from hcq.emu.kernel import Refusal

PAGE = 4096
MIN_RING_BYTES = 1024
MAX_PRIORITY = 15
PROCESSORS: dict[int, type[EmulatedQueue]] = {
    QueueType.COMPUTE: Pm4Queue,
    QueueType.COMPUTE_AQL: AqlQueue,
    QueueType.SDMA: SdmaQueue,
}


def create_queue(gpu: EmulatedGpu, number: int, args: CreateQueueArgs) -> EmulatedQueue:
    """Check the arguments and make the queue. Raises Refusal."""
    if gpu.vm_fd is None:
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


def _check_compute_buffers(gpu: EmulatedGpu, args: CreateQueueArgs) -> None:
    sizes = queue_sizes(gpu.topology_node, gpu.chip)
    if args.eop_buffer_address and not (
        args.eop_buffer_size == EOP_BYTES and gpu.vm.is_exactly(args.eop_buffer_address, EOP_BYTES)
    ):
        raise Refusal(errno.EINVAL)
    if args.ctl_stack_size != sizes.ctl_stack_bytes or args.ctx_save_restore_size != sizes.save_bytes:
        raise Refusal(errno.EINVAL)
    if not gpu.vm.is_exactly(args.ctx_save_restore_address, sizes.area_bytes):
        raise Refusal(errno.EINVAL)
