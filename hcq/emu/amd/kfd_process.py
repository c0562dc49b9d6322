"""A process that uses the emulated KFD: its GPUs, buffer objects, events and queues.

In       the process, as the emulated kernel knows one; the driver's GPUs
Out      KfdProcess: what the answers to ioctls look up and change
Changes  nothing by itself; `release` gives back all there is when the process is gone
Next     process_gpu.py (one GPU of it), kfd_calls.py and kfd_memory.py (the answers), kfd.py (who has the processes)
Source   kfd_process.c: kfd_create_process, kfd_process_notifier_release; one kfd_process_device for each GPU
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping

from hcq.amd.abi.kfd import MMAP_GPU_SHIFT, MMAP_TYPE_SHIFT, AllocFlags, MmapType
from hcq.emu.amd.gpu import EmulatedGpu
from hcq.emu.amd.kfd_events import Events
from hcq.emu.amd.memory import BufferObject
from hcq.emu.amd.process_gpu import ProcessGpu
from hcq.emu.amd.watch import GpuWatch
from hcq.emu.backing import Backing, DeviceMemory
from hcq.emu.kernel import Process, Refusal
from hcq.events.kernel_observer import KernelObserver

OF_HOST = AllocFlags.GTT | AllocFlags.USERPTR  # memory of the host


class KfdProcess:
    """All that the driver keeps for one process. `gpus` are by the id that names a GPU in ioctls."""

    def __init__(
        self, process: Process, gpus: Mapping[int, EmulatedGpu], kfd_memory: DeviceMemory, minor: int
    ) -> None:
        self.process = process
        self.minor = minor  # version of the driver's interface
        self.lock = threading.RLock()  # held by every call but a wait, as the driver's mutex of a process
        self.events = Events(self.kick, minor >= 14, kfd_memory, process.maps_by_itself)
        self.gpus = {
            gpu_id: ProcessGpu(gpu, self.events, kfd_memory, process.pid) for gpu_id, gpu in gpus.items()
        }
        self.objects: dict[int, BufferObject] = {}  # by the low half of the handle
        self.next_object = 1
        self.next_queue = 0
        self.observers: list[KernelObserver] = []

    def watch(self, observers: list[KernelObserver]) -> None:
        """Tell these of everything from now on."""
        self.observers = observers
        for gpu in self.gpus.values():
            gpu.watch = GpuWatch(observers, self.process, gpu)

    def kick(self) -> None:
        """Let every GPU look at its doorbells."""
        for gpu in self.gpus.values():
            gpu.gpu.kick()

    def gpu(self, gpu_id: int) -> ProcessGpu:
        """The GPU of this id. Raises Refusal (EINVAL) when there is none."""
        if gpu_id not in self.gpus:
            raise Refusal(errno.EINVAL)
        return self.gpus[gpu_id]

    def bound_gpu(self, gpu_id: int, unbound: int) -> ProcessGpu:
        """The GPU of this id, whose address space the process has. Raises Refusal (EINVAL, or `unbound`)."""
        gpu = self.gpu(gpu_id)
        if gpu.drm_file is None:
            raise Refusal(unbound)
        return gpu

    def mmap_offset(self, kind: MmapType, gpu_id: int, backing: Backing) -> int:
        """Where a mapping of /dev/kfd shows these bytes: kind and GPU, as the kernel writes them.

        What another process maps, it maps without us: the offset is then the place in the file that it was given.
        """
        if self.process.maps_by_itself:
            return backing.offset
        return kind << MMAP_TYPE_SHIFT | gpu_id << MMAP_GPU_SHIFT

    def gpu_of_queue(self, number: int) -> ProcessGpu | None:
        """The GPU that has a queue of this number."""
        return next((gpu for gpu in self.gpus.values() if number in gpu.queues), None)

    def object(self, handle: int) -> BufferObject:
        """The buffer object of this handle. Raises Refusal (EINVAL) when there is none."""
        found = self.objects.get(handle & 0xFFFFFFFF)
        if found is None or found.handle != handle:
            raise Refusal(errno.EINVAL)
        return found

    def object_at(self, gpu_id: int, offset: int) -> BufferObject | None:
        """The buffer object that a render node shows at this offset, if it is mapped by that GPU."""
        with self.lock:
            for bo in self.objects.values():
                if bo.mmap_offset == offset and bo.is_mapped_by(gpu_id):
                    return bo
        return None

    def keep(self, gpu_id: int, make: Callable[[int], BufferObject]) -> BufferObject:
        """A new buffer object of a GPU: `make` gets its handle."""
        with self.lock:
            bo = self.objects[self.next_object] = make(gpu_id << 32 | self.next_object)
            self.next_object += 1
        return bo

    def drop(self, bo: BufferObject) -> None:
        """Forget a buffer object."""
        with self.lock:
            del self.objects[bo.handle & 0xFFFFFFFF]
        if bo.is_imported:
            return
        if bo.flags & AllocFlags.VRAM:
            self.gpus[bo.gpu_id].gpu.give_vram(bo.size_bytes)
        elif bo.flags & OF_HOST:
            self.gpus[bo.gpu_id].gpu.give_host(bo.size_bytes)

    def release(self) -> None:
        """The process is gone: queues end, in the middle of a kernel if need be, and memory is given back."""
        for gpu in self.gpus.values():
            for number in list(gpu.queues):
                gpu.remove(number)
        self.events.release()
        for gpu in self.gpus.values():
            with gpu.gpu.visit():
                gpu.vm.publish(())
        for bo in list(self.objects.values()):
            self.drop(bo)
