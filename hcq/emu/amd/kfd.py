"""The emulated KFD: /dev/kfd, render nodes and sysfs, answering as the kernel driver does.

In       opens, ioctls and mappings of one process; GPUs parsed from HCQ_EMULATE
Out      the same structures, or the same errno
Changes  buffer objects, page tables, events, queues; GPUs run while there is a queue
Next     memory.py, kfd_events.py, kfd_queues.py (what is behind the ioctls), gpu.py (who does the work)
Source   kfd_chardev.c, kfd_events.c, kfd_queue.c, amdgpu_amdkfd_gpuvm.c

Answers are hung on the driver's own declarations: `@answers(CREATE_QUEUE)`.
"""

from __future__ import annotations

import errno
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hcq.amd.abi import drm, kfd
from hcq.amd.abi.kfd import AllocFlags, Ioctl, MmapType
from hcq.emu.amd.gpu import CLOCK_HZ, EmulatedGpu
from hcq.emu.amd.kfd_events import Events
from hcq.emu.amd.kfd_queues import create_queue
from hcq.emu.amd.kfd_topology import VRAM_BYTES, files, make_nodes
from hcq.emu.amd.memory import PAGE, BufferObject
from hcq.emu.amd.spec import Spec, parse
from hcq.emu.backing import Backing, DeviceMemory
from hcq.emu.kernel import DeviceNode, File, Kernel, Process, Refusal
from hcq.layout import Packet

MINOR_VERSION = 17
PLACES = AllocFlags.VRAM | AllocFlags.GTT | AllocFlags.USERPTR | AllocFlags.DOORBELL | AllocFlags.MMIO_REMAP
LOWEST_VA = 0x10000
KFD_MAJOR, DRM_MAJOR = 511, 226  # the KFD's is given out when it is loaded, from the highest down
Answer = Callable[["EmulatedKfd", Any, Process], Packet]

ANSWERS: dict[int, tuple[Ioctl[Any], Answer]] = {}


def answers(call: Ioctl[Any]) -> Callable[[Answer], Answer]:
    """Make a method the answer to an ioctl."""

    def note(answer: Answer) -> Answer:
        ANSWERS[call.number] = call, answer
        return answer

    return note


def changed(args: Packet, **fields: int) -> Packet:
    """The structure with some fields filled in."""
    return type(args)(**{**args.values, **fields})


class RenderNode(File):
    """An open /dev/dri/renderD*: buffer objects are mapped through it."""

    def __init__(self, driver: EmulatedKfd, gpu: EmulatedGpu) -> None:
        self.driver, self.gpu = driver, gpu

    def ioctl(self, request: int, argument: bytearray, process: Process) -> int:
        if request != drm.INFO_REQUEST:
            raise Refusal(errno.ENOTTY)
        what = drm.Info.decode(memoryview(bytes(argument)).cast("I"))
        if what.query != drm.DEV_INFO or not what.return_pointer:
            raise Refusal(errno.EINVAL)
        answer = bytearray(drm.INFO_DEVICE_BYTES)
        struct.pack_into("<I", answer, drm.GPU_COUNTER_FREQ_AT, CLOCK_HZ // 1000)
        process.write(what.return_pointer, answer[: what.return_size])
        return 0

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        of_gpu = (bo for bo in self.driver.objects.values() if bo.gpu_id == self.gpu.gpu_id)
        bo = next((bo for bo in of_gpu if bo.backing.offset == offset), None)
        if bo is None:
            raise Refusal(errno.EINVAL)
        if bo.flags & AllocFlags.VRAM and not bo.flags & AllocFlags.PUBLIC:
            raise Refusal(errno.EPERM)
        if size_bytes > bo.size_bytes:
            raise Refusal(errno.EINVAL)
        return bo.backing.map_host(va, size_bytes, prot, flags)

    def close(self) -> None:
        """The address space stays acquired: it belongs to the process."""


class KfdFile(File):
    """An open /dev/kfd."""

    def __init__(self, driver: EmulatedKfd) -> None:
        self.driver = driver

    def ioctl(self, request: int, argument: bytearray, process: Process) -> int:
        return self.driver.ioctl(request, argument, process)

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        gpu = self.driver.gpus.get(offset >> kfd.MMAP_GPU_SHIFT & 0xFFFF)
        if gpu is None:
            raise Refusal(errno.EINVAL)
        kind = MmapType(offset >> kfd.MMAP_TYPE_SHIFT)
        if kind == MmapType.DOORBELL and size_bytes == kfd.DOORBELL_SLICE_BYTES:
            return gpu.doorbells.map_host(va, size_bytes, prot, flags)
        if kind == MmapType.MMIO and size_bytes == PAGE:
            return gpu.mmio.map_host(va, size_bytes, prot, flags)
        raise Refusal(errno.EINVAL)

    def close(self) -> None:
        """Queues and memory belong to the process, not to this file."""


def emulate(words: Sequence[str]) -> EmulatedKfd:
    """The driver of the GPUs that these words of HCQ_EMULATE describe."""
    return EmulatedKfd([parse(word) for word in words])


class EmulatedKfd(Kernel):
    """The driver, and what it knows of the one process that uses it."""

    folders = ("/sys/devices/virtual/kfd/",)

    def __init__(self, specs: list[Spec]) -> None:
        self.topology = make_nodes(specs)
        self.memory = DeviceMemory("kfd")
        self.lock = threading.RLock()
        self.lines: list[str] = []
        self.events = Events(self.kick)
        self._files = files(self.topology)
        self.gpus = {
            node.gpu_id: EmulatedGpu(node, self.events, self.lines.append, self.memory)
            for node in self.topology
        }
        self.objects: dict[int, BufferObject] = {}  # by the low half of the handle
        self.next_object = 1
        self.next_queue = 0

    def kick(self) -> None:
        """Let every GPU look at its doorbells."""
        for gpu in self.gpus.values():
            gpu.kick()

    def log(self) -> list[str]:
        return list(self.lines)

    # ------------------------------------------------------------ files

    def open(self, path: str, process: Process) -> KfdFile | RenderNode | None:
        if path == "/dev/kfd":
            return KfdFile(self)
        for node in self.topology:
            if path == f"/dev/dri/renderD{node.render_minor}":
                return RenderNode(self, self.gpus[node.gpu_id])
        return None

    def nodes(self) -> list[DeviceNode]:
        return [DeviceNode("/dev/kfd", KFD_MAJOR, 0, self.memory)] + [
            DeviceNode(f"/dev/dri/renderD{minor}", DRM_MAJOR, minor, self.gpus[node.gpu_id].memory)
            for node in self.topology
            for minor in (node.render_minor,)
        ]

    def files(self) -> Mapping[str, bytes]:
        return self._files

    def exit(self, process: Process) -> None:
        """The one process there is keeps what it has until the emulation is dropped."""

    def ioctl(self, request: int, argument: bytearray, process: Process) -> int:
        """Dispatch on the number alone; the size is the caller's, shorter structures are filled up with zeroes."""
        number, kind, size = request & 0xFF, request >> 8 & 0xFF, request >> 16 & 0x3FFF
        if kind != ord("K") or number not in ANSWERS:
            raise Refusal(errno.ENOTTY)
        if len(argument) < size:
            raise Refusal(errno.EFAULT)
        call, answer = ANSWERS[number]
        whole = bytes(argument[:size]).ljust(call.size_bytes, b"\0")[: call.size_bytes]
        args = call.layout.decode(memoryview(whole).cast("I"))
        result = answer(self, args, process).to_bytes()
        if call.direction & kfd.READ:
            argument[: min(size, len(result))] = result[:size]
        return 0

    def gpu(self, gpu_id: int) -> EmulatedGpu:
        """The GPU of this id. Raises Refusal (EINVAL) when there is none."""
        if gpu_id not in self.gpus:
            raise Refusal(errno.EINVAL)
        return self.gpus[gpu_id]

    # ------------------------------------------------------------ answers

    @answers(kfd.GET_VERSION)
    def get_version(self, args: kfd.GetVersionArgs, process: Process) -> Packet:
        """AMDKFD_IOC_GET_VERSION."""
        return changed(args, major_version=kfd.MAJOR_VERSION, minor_version=MINOR_VERSION)

    @answers(kfd.ACQUIRE_VM)
    def acquire_vm(self, args: kfd.AcquireVmArgs, process: Process) -> Packet:
        """AMDKFD_IOC_ACQUIRE_VM: from now on the render node's address space is this process's on the GPU."""
        gpu = self.gpu(args.gpu_id)
        file = process.file(args.drm_fd)
        if not isinstance(file, RenderNode) or file.gpu is not gpu:
            raise Refusal(errno.EINVAL)
        if gpu.vm_file not in (None, file):
            raise Refusal(errno.EBUSY)
        gpu.vm_file = file
        return args

    @answers(kfd.GET_PROCESS_APERTURES_NEW)
    def get_apertures(self, args: kfd.GetProcessAperturesNewArgs, process: Process) -> Packet:
        """AMDKFD_IOC_GET_PROCESS_APERTURES_NEW: how many GPUs, or where LDS and scratch are on each."""
        if args.num_of_nodes:
            if not args.kfd_process_device_apertures_ptr:
                raise Refusal(errno.EFAULT)
            for index, gpu in enumerate(list(self.gpus.values())[: args.num_of_nodes]):
                entry = gpu.apertures.to_bytes()
                process.write(args.kfd_process_device_apertures_ptr + index * len(entry), entry)
        return changed(args, num_of_nodes=len(self.gpus))

    @answers(kfd.GET_CLOCK_COUNTERS)
    def get_clock_counters(self, args: kfd.GetClockCountersArgs, process: Process) -> Packet:
        """AMDKFD_IOC_GET_CLOCK_COUNTERS: the GPU's clock beside the host's."""
        ticks = self.gpu(args.gpu_id).clock()
        now = time.monotonic_ns()
        return changed(
            args,
            gpu_clock_counter=ticks,
            cpu_clock_counter=now,
            system_clock_counter=now,
            system_clock_freq=1_000_000_000,
        )

    @answers(kfd.AVAILABLE_MEMORY)
    def available_memory(self, args: kfd.GetAvailableMemoryArgs, process: Process) -> Packet:
        """AMDKFD_IOC_AVAILABLE_MEMORY: bytes of the GPU's memory that nothing has."""
        return changed(args, available=VRAM_BYTES - self._vram_used(self.gpu(args.gpu_id).gpu_id))

    @answers(kfd.ALLOC_MEMORY_OF_GPU)
    def alloc_memory(self, args: kfd.AllocMemoryOfGpuArgs, process: Process) -> Packet:
        """AMDKFD_IOC_ALLOC_MEMORY_OF_GPU: a buffer object at an address, not mapped yet."""
        gpu = self.gpu(args.gpu_id)
        flags = AllocFlags(args.flags)
        place = flags & PLACES
        if gpu.vm_file is None:
            raise Refusal(errno.ENODEV)
        if not args.size or bin(place).count("1") != 1 or args.va_addr % PAGE or args.va_addr < LOWEST_VA:
            raise Refusal(errno.EINVAL)
        if flags & AllocFlags.PUBLIC and not gpu.node.spec.is_vram_public:
            raise Refusal(errno.EINVAL)
        if place == AllocFlags.DOORBELL and args.size != kfd.DOORBELL_SLICE_BYTES:
            raise Refusal(errno.EINVAL)
        if place == AllocFlags.MMIO_REMAP and args.size != PAGE:
            raise Refusal(errno.EINVAL)
        if place == AllocFlags.USERPTR:
            raise Refusal(errno.EINVAL)  # host pages as GPU memory: this emulator has no way to share them
        size = -(-args.size // PAGE) * PAGE
        if place == AllocFlags.VRAM and size > VRAM_BYTES - self._vram_used(gpu.gpu_id):
            raise Refusal(errno.ENOMEM)
        with self.lock:
            number = self.next_object
            self.next_object += 1
            handle = gpu.gpu_id << 32 | number
            if place == AllocFlags.DOORBELL:
                backing = gpu.doorbells
            elif place == AllocFlags.MMIO_REMAP:
                backing = gpu.mmio
            else:
                backing = Backing(size, gpu.memory)
            bo = BufferObject(handle, gpu.gpu_id, args.va_addr, size, flags, backing)
            self.objects[number] = bo
        offset = backing.offset
        if place == AllocFlags.MMIO_REMAP:
            offset = MmapType.MMIO << kfd.MMAP_TYPE_SHIFT | gpu.gpu_id << kfd.MMAP_GPU_SHIFT
        return changed(args, handle=handle, mmap_offset=offset)

    @answers(kfd.FREE_MEMORY_OF_GPU)
    def free_memory(self, args: kfd.FreeMemoryOfGpuArgs, process: Process) -> Packet:
        """AMDKFD_IOC_FREE_MEMORY_OF_GPU: refused while it is mapped or pinned."""
        bo = self._object(args.handle)
        if bo.is_pinned:
            raise Refusal(errno.EPERM)
        if bo.mapped:
            raise Refusal(errno.EBUSY)
        del self.objects[args.handle & 0xFFFFFFFF]
        return args

    @answers(kfd.MAP_MEMORY_TO_GPU)
    def map_memory(self, args: kfd.MapMemoryToGpuArgs, process: Process) -> Packet:
        """AMDKFD_IOC_MAP_MEMORY_TO_GPU: into the page tables of the GPUs listed."""
        bo, gpus = self._map_arguments(args, process)
        for gpu in gpus[args.n_success :]:
            if gpu.gpu_id not in bo.mapped:
                if gpu.vm.overlaps(bo.va, bo.size_bytes):
                    raise Refusal(errno.EINVAL)
                gpu.vm.map_object(bo)
                bo.mapped.add(gpu.gpu_id)
        return changed(args, n_success=args.n_devices)

    @answers(kfd.UNMAP_MEMORY_FROM_GPU)
    def unmap_memory(self, args: kfd.UnmapMemoryFromGpuArgs, process: Process) -> Packet:
        """AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU: refused while a queue uses it."""
        bo, gpus = self._map_arguments(args, process)
        if any(queue.uses(bo) for gpu in gpus for queue in gpu.queues.values()):
            raise Refusal(errno.EBUSY)
        for gpu in gpus[args.n_success :]:
            if gpu.gpu_id in bo.mapped:
                with gpu.visit():  # not between a check and the access it allowed
                    gpu.vm.unmap(bo.va)
                bo.mapped.discard(gpu.gpu_id)
        return changed(args, n_success=args.n_devices)

    @answers(kfd.CREATE_QUEUE)
    def create_queue(self, args: kfd.CreateQueueArgs, process: Process) -> Packet:
        """AMDKFD_IOC_CREATE_QUEUE: every size and address is checked."""
        gpu = self.gpu(args.gpu_id)
        with self.lock:
            number = self.next_queue
            queue = create_queue(gpu, number, args)
            self.next_queue += 1
            gpu.add(queue)  # still under the lock: its doorbell is taken only now
        offset = (
            MmapType.DOORBELL << kfd.MMAP_TYPE_SHIFT
            | gpu.gpu_id << kfd.MMAP_GPU_SHIFT
            | 8 * queue.doorbell_index
        )
        return changed(args, queue_id=number, doorbell_offset=offset)

    @answers(kfd.DESTROY_QUEUE)
    def destroy_queue(self, args: kfd.DestroyQueueArgs, process: Process) -> Packet:
        """AMDKFD_IOC_DESTROY_QUEUE."""
        for gpu in self.gpus.values():
            if args.queue_id in gpu.queues:
                gpu.remove(args.queue_id)
                return args
        raise Refusal(errno.EINVAL)

    @answers(kfd.UPDATE_QUEUE)
    def update_queue(self, args: kfd.UpdateQueueArgs, process: Process) -> Packet:
        """AMDKFD_IOC_UPDATE_QUEUE: a queue of 0 percent stands still."""
        if args.queue_percentage > 100 or args.queue_priority > 15:
            raise Refusal(errno.EINVAL)
        for gpu in self.gpus.values():
            if args.queue_id in gpu.queues:
                gpu.queues[args.queue_id].is_suspended = not args.queue_percentage
                gpu.kick()
                return args
        raise Refusal(errno.EFAULT)

    @answers(kfd.CREATE_EVENT)
    def create_event(self, args: kfd.CreateEventArgs, process: Process) -> Packet:
        """AMDKFD_IOC_CREATE_EVENT; the first one gives the page of signals."""
        page = self._object(args.event_page_offset) if args.event_page_offset else None
        number, slot = self.events.create(args, page)
        return changed(args, event_id=number, event_slot_index=slot, event_trigger_data=number)

    @answers(kfd.DESTROY_EVENT)
    def destroy_event(self, args: kfd.DestroyEventArgs, process: Process) -> Packet:
        """AMDKFD_IOC_DESTROY_EVENT."""
        self.events.destroy(args.event_id)
        return args

    @answers(kfd.SET_EVENT)
    def set_event(self, args: kfd.SetEventArgs, process: Process) -> Packet:
        """AMDKFD_IOC_SET_EVENT: wake who waits for it."""
        self.events.set(args.event_id)
        return args

    @answers(kfd.RESET_EVENT)
    def reset_event(self, args: kfd.ResetEventArgs, process: Process) -> Packet:
        """AMDKFD_IOC_RESET_EVENT."""
        self.events.reset(args.event_id)
        return args

    @answers(kfd.WAIT_EVENTS)
    def wait_events(self, args: kfd.WaitEventsArgs, process: Process) -> Packet:
        """AMDKFD_IOC_WAIT_EVENTS: until one of them, or all, or the deadline."""
        return changed(args, wait_result=self.events.wait(args, process))

    # ------------------------------------------------------------ helpers

    def _object(self, handle: int) -> BufferObject:
        bo = self.objects.get(handle & 0xFFFFFFFF)
        if bo is None or bo.handle != handle:
            raise Refusal(errno.EINVAL)
        return bo

    def _map_arguments(self, args: Any, process: Process) -> tuple[BufferObject, list[EmulatedGpu]]:
        if not args.n_devices or args.n_success > args.n_devices:
            raise Refusal(errno.EINVAL)
        if not args.device_ids_array_ptr:
            raise Refusal(errno.EFAULT)
        ids = struct.unpack(
            f"<{args.n_devices}I", process.read(args.device_ids_array_ptr, 4 * args.n_devices)
        )
        bo = self._object(args.handle)
        gpus = [self.gpu(gpu_id) for gpu_id in ids]
        if any(gpu.vm_file is None for gpu in gpus):
            raise Refusal(errno.ENODEV)
        return bo, gpus

    def _vram_used(self, gpu_id: int) -> int:
        with self.lock:
            return sum(
                bo.size_bytes
                for bo in self.objects.values()
                if bo.gpu_id == gpu_id and bo.flags & AllocFlags.VRAM
            )
