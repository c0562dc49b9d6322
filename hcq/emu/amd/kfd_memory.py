"""Answers of the emulated KFD on memory: buffer objects allocated, mapped for GPUs, unmapped, freed.

In       a process and the arguments of a call
Out      handles, offsets to map; or the errno of the first thing that is wrong
Changes  the process's buffer objects, page tables of its GPUs
Next     memory.py (BufferObject, page tables), render_node.py (the host's mappings), kfd_calls.py (all other calls)
Source   kfd_chardev.c: the function named in each answer; amdgpu_amdkfd_gpuvm.c
"""

from __future__ import annotations

import errno
import struct
from typing import Any

from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import AllocFlags, MmapType
from hcq.emu.amd.caches import is_uncached
from hcq.emu.amd.kfd_answers import Answers, changed
from hcq.emu.amd.kfd_process import OF_HOST, KfdProcess
from hcq.emu.amd.memory import PAGE, BufferObject
from hcq.emu.amd.process_gpu import ProcessGpu
from hcq.emu.backing import Backing
from hcq.emu.kernel import Refusal, UserMemory
from hcq.layout import Packet

PLACES = AllocFlags.VRAM | AllocFlags.GTT | AllocFlags.USERPTR | AllocFlags.DOORBELL | AllocFlags.MMIO_REMAP
ANSWERS = Answers()
answers = ANSWERS.to


@answers(kfd.ALLOC_MEMORY_OF_GPU)
def alloc_memory(process: KfdProcess, args: kfd.AllocMemoryOfGpuArgs) -> Packet:
    """kfd_ioctl_alloc_memory_of_gpu: a buffer object at an address, not mapped yet.

    USERPTR takes pages of the process instead of new ones; `mmap_offset` says where they are. An object at address 0
    has no address: it cannot be mapped. No more than there is, of the GPU's or the host's.
    (amdgpu_amdkfd_reserve_mem_limit)
    """
    gpu = process.gpu(args.gpu_id)
    flags = AllocFlags(args.flags)
    place = flags & PLACES
    if gpu.drm_file is None:
        raise Refusal(errno.ENODEV)
    if not args.size or bin(place).count("1") != 1 or args.va_addr % PAGE:
        raise Refusal(errno.EINVAL)
    if place == AllocFlags.VRAM and flags & AllocFlags.PUBLIC and not gpu.node.spec.is_vram_public:
        raise Refusal(errno.EINVAL)
    if place == AllocFlags.DOORBELL and args.size != kfd.DOORBELL_SLICE_BYTES:
        raise Refusal(errno.EINVAL)
    if place == AllocFlags.MMIO_REMAP and args.size != PAGE:
        raise Refusal(errno.EINVAL)
    if place == AllocFlags.USERPTR and (not args.mmap_offset or args.mmap_offset % PAGE):
        raise Refusal(errno.EINVAL)
    size = -(-args.size // PAGE) * PAGE
    if place == AllocFlags.VRAM:
        take, give = gpu.gpu.take_vram, gpu.gpu.give_vram
    else:
        take, give = gpu.gpu.take_host, gpu.gpu.give_host
    is_counted = bool(place & (AllocFlags.VRAM | OF_HOST))
    if is_counted and not take(size):
        raise Refusal(errno.ENOMEM)
    try:
        backing, user = _bytes_behind(process, gpu, place, size, args.mmap_offset)
    except BaseException:
        if is_counted:
            give(size)
        raise
    offset = args.mmap_offset
    if place == AllocFlags.DOORBELL:
        offset = process.mmap_offset(MmapType.DOORBELL, gpu.gpu_id, backing)
    elif place == AllocFlags.MMIO_REMAP:
        offset = process.mmap_offset(MmapType.MMIO, gpu.gpu_id, backing)
    elif place != AllocFlags.USERPTR:
        offset = backing.offset
    bo = process.keep(
        gpu.gpu_id,
        lambda handle: BufferObject(handle, gpu.gpu_id, args.va_addr, size, flags, backing, offset, user),
    )
    return changed(args, handle=bo.handle, mmap_offset=offset)


def _bytes_behind(
    process: KfdProcess, gpu: ProcessGpu, place: AllocFlags, size: int, user_va: int
) -> tuple[Backing, UserMemory | None]:
    if place == AllocFlags.DOORBELL:
        return gpu.doorbells, None
    if place == AllocFlags.MMIO_REMAP:
        return gpu.gpu.mmio, None
    if place == AllocFlags.USERPTR:
        return gpu.gpu.mmio, process.process.memory(user_va, size)
    return Backing(size, gpu.gpu.memory), None


@answers(kfd.FREE_MEMORY_OF_GPU)
def free_memory(process: KfdProcess, args: kfd.FreeMemoryOfGpuArgs) -> Packet:
    """kfd_ioctl_free_memory_of_gpu: refused while it is mapped or pinned."""
    bo = process.object(args.handle)
    if bo.is_pinned:
        raise Refusal(errno.EPERM)
    if bo.mapped:
        raise Refusal(errno.EBUSY)
    process.drop(bo)
    return args


@answers(kfd.MAP_MEMORY_TO_GPU)
def map_memory(process: KfdProcess, args: kfd.MapMemoryToGpuArgs) -> Packet:
    """kfd_ioctl_map_memory_to_gpu: into the page tables of the GPUs listed. add_bo_to_vm: not at address 0."""
    bo, gpus = _map_arguments(process, args)
    if not bo.va or bo.va % PAGE:
        raise Refusal(errno.EINVAL)
    for gpu in gpus[args.n_success :]:
        if gpu.gpu_id not in bo.mapped:
            if gpu.vm.overlaps(bo.va, bo.size_bytes):
                raise Refusal(errno.EINVAL)
            gpu.vm.map_object(bo, is_uncached(gpu.chip, bo.flags))
            bo.mapped.add(gpu.gpu_id)
    return changed(args, n_success=args.n_devices)


@answers(kfd.UNMAP_MEMORY_FROM_GPU)
def unmap_memory(process: KfdProcess, args: kfd.UnmapMemoryFromGpuArgs) -> Packet:
    """kfd_ioctl_unmap_memory_from_gpu: refused while a queue uses it."""
    bo, gpus = _map_arguments(process, args)
    if any(queue.uses(bo) for gpu in gpus for queue in list(gpu.queues.values())):
        raise Refusal(errno.EBUSY)
    for gpu in gpus[args.n_success :]:
        if gpu.gpu_id in bo.mapped:
            with gpu.gpu.visit():  # not between a check and the access it allowed
                gpu.vm.unmap(bo.va)
            bo.mapped.discard(gpu.gpu_id)
    return changed(args, n_success=args.n_devices)


def _map_arguments(process: KfdProcess, args: Any) -> tuple[BufferObject, list[ProcessGpu]]:
    if not args.n_devices or args.n_success > args.n_devices:
        raise Refusal(errno.EINVAL)
    if not args.device_ids_array_ptr:
        raise Refusal(errno.EFAULT)
    if args.n_devices > len(process.gpus):
        raise Refusal(errno.EINVAL)  # each id once, and there are no more
    ids = struct.unpack(
        f"<{args.n_devices}I", process.process.read(args.device_ids_array_ptr, 4 * args.n_devices)
    )
    process.gpu(args.handle >> 32)
    bo = process.objects.get(args.handle & 0xFFFFFFFF)
    if bo is None or bo.handle != args.handle:
        raise Refusal(errno.ENOMEM)
    gpus = [process.gpu(gpu_id) for gpu_id in ids]
    if any(gpu.drm_file is None for gpu in gpus):
        raise Refusal(errno.ENODEV)
    return bo, gpus
