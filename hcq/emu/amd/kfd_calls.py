"""Answers of the emulated KFD about the process, its GPUs, queues and events: every ioctl but those on memory.

In       a process and the arguments of a call
Out      the same structure filled in, or the errno of the first thing that is wrong
Changes  address spaces acquired, queues, events
Next     kfd_memory.py (calls on memory), kfd_queues.py (what a queue needs), kfd_events.py, kfd_process.py
Source   kfd_chardev.c: the function named in each answer
"""

from __future__ import annotations

import errno
import time

from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import CachePolicy, EventType, MmapType
from hcq.emu.amd.kfd_answers import Answers, changed
from hcq.emu.amd.kfd_process import KfdProcess
from hcq.emu.amd.kfd_queues import create_queue as checked_queue
from hcq.emu.amd.kfd_topology import VRAM_BYTES
from hcq.emu.amd.render_node import GB_ADDR_CONFIG_VALUE, RenderNode
from hcq.emu.amd.sdma_processor import SdmaQueue
from hcq.emu.kernel import Refusal
from hcq.layout import Packet

MAX_CU_MASK = 1024  # bits; the kernel looks at no more
WAVE_STATE_BYTES = 16  # of a save area's header: the four words that the kernel writes
ANSWERS = Answers()
answers = ANSWERS.to


@answers(kfd.GET_VERSION)
def get_version(process: KfdProcess, args: kfd.GetVersionArgs) -> Packet:
    """kfd_ioctl_get_version."""
    return changed(args, major_version=kfd.MAJOR_VERSION, minor_version=process.minor)


@answers(kfd.ACQUIRE_VM)
def acquire_vm(process: KfdProcess, args: kfd.AcquireVmArgs) -> Packet:
    """kfd_ioctl_acquire_vm: from now on the open render node's address space is this process's on the GPU.

    The file counts, not its descriptor: a duplicate is the same file, and another file of the same node is not.
    """
    gpu = process.gpu(args.gpu_id)
    file = process.process.file(args.drm_fd)
    if not isinstance(file, RenderNode) or file.node is not gpu.node:
        raise Refusal(errno.EINVAL)
    if gpu.drm_file not in (None, file):
        raise Refusal(errno.EBUSY)
    if file.owner not in (None, process):
        raise Refusal(errno.EINVAL)  # amdgpu_amdkfd_gpuvm_acquire_process_vm: it is another context's
    gpu.drm_file = file
    file.owner = file.process = process
    return args


@answers(kfd.CREATE_PROCESS)
def create_process(process: KfdProcess, args: kfd.CreateProcessArgs) -> Packet:
    """kfd_ioctl_create_process: the open file has done it."""
    return args


@answers(kfd.GET_PROCESS_APERTURES_NEW)
def get_apertures(process: KfdProcess, args: kfd.GetProcessAperturesNewArgs) -> Packet:
    """kfd_ioctl_get_process_apertures_new: how many GPUs, or where LDS and scratch are on each."""
    if args.num_of_nodes:
        if args.num_of_nodes > len(process.gpus) + 1:  # nodes of the topology: the CPU is one
            raise Refusal(errno.EINVAL)
        if not args.kfd_process_device_apertures_ptr:
            raise Refusal(errno.EFAULT)
        for index, gpu in enumerate(list(process.gpus.values())[: args.num_of_nodes]):
            entry = gpu.apertures.to_bytes()
            process.process.write(args.kfd_process_device_apertures_ptr + index * len(entry), entry)
    return changed(args, num_of_nodes=min(args.num_of_nodes or len(process.gpus), len(process.gpus)))


@answers(kfd.GET_CLOCK_COUNTERS)
def get_clock_counters(process: KfdProcess, args: kfd.GetClockCountersArgs) -> Packet:
    """kfd_ioctl_get_clock_counters: the GPU's clock beside the host's; without an error 0 of a GPU there is not."""
    gpu = process.gpus.get(args.gpu_id)
    return changed(
        args,
        gpu_clock_counter=gpu.clock() if gpu is not None else 0,
        cpu_clock_counter=time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW),
        system_clock_counter=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        system_clock_freq=1_000_000_000,
    )


@answers(kfd.AVAILABLE_MEMORY)
def available_memory(process: KfdProcess, args: kfd.GetAvailableMemoryArgs) -> Packet:
    """kfd_ioctl_get_available_memory: bytes of the GPU's memory that no process has."""
    return changed(args, available=VRAM_BYTES - process.gpu(args.gpu_id).gpu.vram_used)


@answers(kfd.SET_MEMORY_POLICY)
def set_memory_policy(process: KfdProcess, args: kfd.SetMemoryPolicyArgs) -> Packet:
    """kfd_ioctl_set_memory_policy: checked, and without an effect on GPUs since gfx9."""
    if max(args.default_policy, args.alternate_policy) > CachePolicy.NONCOHERENT:
        raise Refusal(errno.EINVAL)
    process.bound_gpu(args.gpu_id, errno.ESRCH)
    return args


@answers(kfd.SET_SCRATCH_BACKING_VA)
def set_scratch_backing_va(process: KfdProcess, args: kfd.SetScratchBackingVaArgs) -> Packet:
    """kfd_ioctl_set_scratch_backing_va: where scratch is, for GPUs without a hardware scheduler's own."""
    process.bound_gpu(args.gpu_id, errno.ESRCH)
    return args


@answers(kfd.GET_TILE_CONFIG)
def get_tile_config(process: KfdProcess, args: kfd.GetTileConfigArgs) -> Packet:
    """kfd_ioctl_get_tile_config: GB_ADDR_CONFIG; there are no tile modes since gfx9."""
    process.gpu(args.gpu_id)
    return changed(
        args,
        gb_addr_config=GB_ADDR_CONFIG_VALUE,
        num_banks=0,
        num_ranks=0,
        num_tile_configs=0,
        num_macro_tile_configs=0,
    )


@answers(kfd.SET_TRAP_HANDLER)
def set_trap_handler(process: KfdProcess, args: kfd.SetTrapHandlerArgs) -> Packet:
    """kfd_ioctl_set_trap_handler: the code that waves run on a trap. It is not run: see ProcessGpu."""
    gpu = process.bound_gpu(args.gpu_id, errno.ESRCH)
    gpu.has_trap_handler = bool(args.tba_addr)
    return args


@answers(kfd.SET_XNACK_MODE)
def set_xnack_mode(process: KfdProcess, args: kfd.SetXnackModeArgs) -> Packet:
    """kfd_ioctl_set_xnack_mode: none of these GPUs retries page faults, so a process cannot ask for it."""
    if args.xnack_enabled >> 31:  # negative: what is the mode?
        return changed(args, xnack_enabled=0)
    if args.xnack_enabled:
        raise Refusal(errno.EPERM)
    if any(gpu.queues for gpu in process.gpus.values()):
        raise Refusal(errno.EBUSY)
    return args


@answers(kfd.RUNTIME_ENABLE)
def runtime_enable(process: KfdProcess, args: kfd.RuntimeEnableArgs) -> Packet:
    """kfd_ioctl_runtime_enable: exceptions of a queue are told through the header of its context save area."""
    if not args.mode_mask & 1:
        process.events.is_runtime_enabled = False
        return args
    if process.events.is_runtime_enabled:
        raise Refusal(errno.EBUSY)
    if any(gpu.queues for gpu in process.gpus.values()):
        raise Refusal(errno.EEXIST)
    process.events.is_runtime_enabled = True
    return args


# ------------------------------------------------------------ queues


@answers(kfd.CREATE_QUEUE)
def create_queue(process: KfdProcess, args: kfd.CreateQueueArgs) -> Packet:
    """kfd_ioctl_create_queue: every size and address is checked."""
    gpu = process.gpu(args.gpu_id)
    with process.lock:
        number = process.next_queue
        queue = checked_queue(gpu, number, args)
        process.next_queue += 1
        gpu.add(queue)  # still under the lock: its doorbell is taken only now
    page = process.mmap_offset(MmapType.DOORBELL, gpu.gpu_id, gpu.doorbells)
    return changed(args, queue_id=number, doorbell_offset=page + 8 * queue.doorbell_index)


@answers(kfd.DESTROY_QUEUE)
def destroy_queue(process: KfdProcess, args: kfd.DestroyQueueArgs) -> Packet:
    """kfd_ioctl_destroy_queue."""
    with process.lock:
        gpu = process.gpu_of_queue(args.queue_id)
        if gpu is None:
            raise Refusal(errno.EINVAL)
        gpu.remove(args.queue_id)
    return args


@answers(kfd.UPDATE_QUEUE)
def update_queue(process: KfdProcess, args: kfd.UpdateQueueArgs) -> Packet:
    """kfd_ioctl_update_queue: a queue of 0 percent, or without a ring, stands still. A ring elsewhere is refused."""
    if args.queue_percentage & 0xFF > 100 or args.queue_priority > 15 or args.ring_size & args.ring_size - 1:
        raise Refusal(errno.EINVAL)
    gpu = process.gpu_of_queue(args.queue_id)
    if gpu is None:
        raise Refusal(errno.EFAULT)
    queue = gpu.queues[args.queue_id]
    if args.ring_base_address not in (0, queue.ring):
        raise Refusal(errno.EINVAL)
    if args.queue_percentage & 0xFF and args.ring_base_address and args.ring_size:
        queue.is_suspended = False
    else:
        gpu.take_off(queue)
    gpu.gpu.kick()
    return args


@answers(kfd.SET_CU_MASK)
def set_cu_mask(process: KfdProcess, args: kfd.SetCuMaskArgs) -> Packet:
    """kfd_ioctl_set_cu_mask, pqm_update_mqd: checked, and without an effect: waves here are nowhere in particular."""
    if args.num_cu_mask % 32 or not args.num_cu_mask:
        raise Refusal(errno.EINVAL)
    if not args.cu_mask_ptr:
        raise Refusal(errno.EFAULT)
    words = min(args.num_cu_mask, MAX_CU_MASK) // 32
    mask = int.from_bytes(process.process.read(args.cu_mask_ptr, 4 * words), "little")
    gpu = process.gpu_of_queue(args.queue_id)
    if gpu is None:
        raise Refusal(errno.EFAULT)
    every_other = int.from_bytes(b"\x55" * 4 * words, "little")
    if gpu.chip.family >= 10 and (mask ^ mask >> 1) & every_other:
        raise Refusal(errno.EINVAL)  # two compute units of a workgroup processor: both or none
    return args


@answers(kfd.GET_QUEUE_WAVE_STATE)
def get_queue_wave_state(process: KfdProcess, args: kfd.GetQueueWaveStateArgs) -> Packet:
    """pqm_get_wave_state, get_wave_state of the queue manager: for a compute queue that is not active.

    The waves are in its save area since it was taken off. Where they are goes into each XCC's header.
    """
    gpu = process.gpu_of_queue(args.queue_id)
    if gpu is None:
        raise Refusal(errno.EFAULT)
    queue = gpu.queues[args.queue_id]
    if isinstance(queue, SdmaQueue) or not (queue.is_suspended or queue.is_evicted):
        raise Refusal(errno.EINVAL)
    if not args.ctl_stack_address:
        raise Refusal(errno.EFAULT)
    stack = queue.ctl_stack_bytes
    for xcc, saved in enumerate(queue.saved):
        header = kfd.ContextSaveAreaHeader(
            control_stack_offset=stack - saved.stack_bytes,
            control_stack_size=saved.stack_bytes,
            wave_state_offset=stack + saved.wave_bytes,
            wave_state_size=saved.wave_bytes,
        ).to_bytes()
        process.process.write(args.ctl_stack_address + xcc * queue.save_bytes, header[:WAVE_STATE_BYTES])
    used = queue.saved[0]  # get_wave_state_v9_4_3 tells those of the first XCC
    return changed(args, ctl_stack_used_size=used.stack_bytes, save_area_used_size=used.wave_bytes)


@answers(kfd.ALLOC_QUEUE_GWS)
def alloc_queue_gws(process: KfdProcess, args: kfd.AllocQueueGwsArgs) -> Packet:
    """kfd_ioctl_alloc_queue_gws: global wave sync for a queue, whatever the number of it."""
    gpu = process.gpu_of_queue(args.queue_id)
    if gpu is None:
        raise Refusal(errno.EINVAL)
    gpu.queues[args.queue_id].has_global_sync = bool(args.num_gws)
    return changed(args, first_gws=0)


# ------------------------------------------------------------ events


@answers(kfd.CREATE_EVENT)
def create_event(process: KfdProcess, args: kfd.CreateEventArgs) -> Packet:
    """kfd_ioctl_create_event; the first may give the page of signals. For a signal its mapping's offset comes back."""
    page = process.object(args.event_page_offset) if args.event_page_offset else None
    number, slot = process.events.create(args, page)
    has_slot = args.event_type in (EventType.SIGNAL, EventType.DEBUG_EVENT)
    own, offset = process.events.own_page, MmapType.EVENTS << kfd.MMAP_TYPE_SHIFT
    if own is not None:
        offset = process.mmap_offset(
            MmapType.EVENTS, 0, own
        )  # never 0: pages of GPUs' registers lie before it
    return changed(
        args,
        event_id=number,
        event_trigger_data=number,
        event_slot_index=slot if has_slot else args.event_slot_index,
        event_page_offset=offset if has_slot else 0,
    )


@answers(kfd.DESTROY_EVENT)
def destroy_event(process: KfdProcess, args: kfd.DestroyEventArgs) -> Packet:
    """kfd_ioctl_destroy_event."""
    process.events.destroy(args.event_id)
    return args


@answers(kfd.SET_EVENT)
def set_event(process: KfdProcess, args: kfd.SetEventArgs) -> Packet:
    """kfd_ioctl_set_event: wake who waits for it."""
    process.events.set(args.event_id)
    return args


@answers(kfd.RESET_EVENT)
def reset_event(process: KfdProcess, args: kfd.ResetEventArgs) -> Packet:
    """kfd_ioctl_reset_event."""
    process.events.reset(args.event_id)
    return args


@answers(kfd.WAIT_EVENTS)
def wait_events(process: KfdProcess, args: kfd.WaitEventsArgs) -> Packet:
    """kfd_ioctl_wait_events: until one of them, or all, or the deadline."""
    return changed(args, wait_result=process.events.wait(args, process.process))
