"""Memory of an AMD GPU: allocations through the KFD, each mapped for the GPU and, where it must be, for the host.

In       a size and a Place
Out      an Allocation: one address, the same for host and GPU
Changes  the process's mappings and the GPU's page table
Next     abi/kfd.py (the ioctls), hcq/memory.py (the pool that cuts small buffers from these)
Source   amdgpu_amdkfd_gpuvm.c; libhsakmt fmm.c for the flags

What a queue is created with (its ring, its pointers, its context save area) must each be an allocation of its own:
newer kernels compare addresses and sizes to the byte.
"""

from __future__ import annotations

import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import AllocFlags
from hcq.amd.ioctl import call
from hcq.errors import DriverError
from hcq.gpu.memory import GUARD_BYTES, HUGE_BYTES, MADV_DONTFORK, GpuMemory
from hcq.gpu.release import quietly
from hcq.system.port import (
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_NORESERVE,
    MAP_PRIVATE,
    MAP_SHARED,
    PAGE_BYTES,
    PROT_NONE,
    PROT_READ,
    PROT_WRITE,
    Port,
)

_USUAL = AllocFlags.WRITABLE | AllocFlags.EXECUTABLE | AllocFlags.NO_SUBSTITUTE


class Place(Enum):
    """Where memory is and who sees it: the flags of ALLOC_MEMORY_OF_GPU."""

    # host memory; rings, signals, arguments
    SHARED = AllocFlags.GTT | AllocFlags.COHERENT | AllocFlags.UNCACHED | _USUAL
    STAGING = AllocFlags.GTT | AllocFlags.COHERENT | _USUAL  # host memory; data
    # the GPU's memory, seen by the host through a large BAR
    PUBLIC = AllocFlags.VRAM | AllocFlags.PUBLIC | _USUAL
    PRIVATE = AllocFlags.VRAM | _USUAL  # the GPU's memory, which the host does not see
    # the page of flush registers
    MMIO = AllocFlags.MMIO_REMAP | AllocFlags.WRITABLE | AllocFlags.NO_SUBSTITUTE

    @property
    def flags(self) -> AllocFlags:
        """The KFD's flags for an allocation there."""
        return self.value

    @property
    def is_host_visible(self) -> bool:
        """Whether the host has an address for it."""
        return self != Place.PRIVATE


@dataclass(frozen=True)
class Allocation:
    """Memory at one address for host and GPU. `gpu_ids`: whose page tables have it."""

    va: int
    size_bytes: int
    handle: int
    place: Place
    gpu_ids: tuple[int, ...]


class KfdMemory(GpuMemory[Allocation]):
    """Allocates for one GPU. kfd_fd and drm_fd are open for as long as this is used."""

    def __init__(self, port: Port, kfd_fd: int, drm_fd: int, gpu_id: int) -> None:
        self.port, self.kfd_fd, self.drm_fd, self.gpu_id = port, kfd_fd, drm_fd, gpu_id
        self.live: dict[int, Allocation] = {}

    def alloc(self, size_bytes: int, place: Place, also: Sequence[int] = ()) -> Allocation:
        """New memory; `also`: ids of further GPUs that shall see it."""
        size = -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
        va = self._reserve(size)
        handle = 0
        gpu_ids = (self.gpu_id, *also)
        try:
            made = call(
                self.port,
                self.kfd_fd,
                kfd.ALLOC_MEMORY_OF_GPU,
                va_addr=va,
                size=size,
                gpu_id=self.gpu_id,
                flags=place.flags,
            )
            handle = made.handle
            if place.is_host_visible:
                fd = self.kfd_fd if place == Place.MMIO else self.drm_fd
                self.port.mmap(
                    va,
                    size,
                    PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED,
                    fd,
                    kfd.signed_offset(made.mmap_offset),
                )
                self.port.madvise(va, size, MADV_DONTFORK)
            self._map(handle, gpu_ids)
        except BaseException:
            quietly(lambda: self._give_up(va, size, handle, gpu_ids))
            raise
        found = Allocation(va, size, handle, place, gpu_ids)
        self.live[va] = found
        return found

    def free(self, what: Allocation) -> None:
        self._unmap(what.handle, what.gpu_ids)
        call(self.port, self.kfd_fd, kfd.FREE_MEMORY_OF_GPU, handle=what.handle)
        self.live.pop(what.va, None)
        self.port.munmap(what.va, what.size_bytes + GUARD_BYTES)

    def map_for(self, what: Allocation, gpu_id: int) -> Allocation:
        if gpu_id in what.gpu_ids:
            return what
        self._map(what.handle, (gpu_id,))
        found = Allocation(what.va, what.size_bytes, what.handle, what.place, (*what.gpu_ids, gpu_id))
        self.live[what.va] = found
        return found

    def _reserve(self, size: int) -> int:
        """An address range that host and GPU will share, aligned so that large pages can be used, and its guard."""
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        if size < HUGE_BYTES:
            return self.port.mmap(0, size + GUARD_BYTES, PROT_NONE, flags)
        va = self.port.mmap(0, size + HUGE_BYTES, PROT_NONE, flags)
        start = -(-va // HUGE_BYTES) * HUGE_BYTES
        try:
            if start > va:
                self.port.munmap(va, start - va)
            if rest := va + HUGE_BYTES - start - GUARD_BYTES:
                self.port.munmap(start + size + GUARD_BYTES, rest)
        except BaseException:
            quietly(lambda: self.port.munmap(va, size + HUGE_BYTES))
            raise
        return start

    def _map(self, handle: int, gpu_ids: Sequence[int]) -> None:
        ids = array.array("I", gpu_ids)
        done = call(
            self.port,
            self.kfd_fd,
            kfd.MAP_MEMORY_TO_GPU,
            handle=handle,
            device_ids_array_ptr=ids.buffer_info()[0],
            n_devices=len(ids),
        )
        if done.n_success != len(ids):
            raise DriverError(
                f"AMDKFD_IOC_MAP_MEMORY_TO_GPU(handle={handle:#x}): mapped on {done.n_success} of {len(ids)} GPUs. "
                "See dmesg for the one that refused."
            )

    def _unmap(self, handle: int, gpu_ids: Sequence[int]) -> None:
        ids = array.array("I", gpu_ids)
        call(
            self.port,
            self.kfd_fd,
            kfd.UNMAP_MEMORY_FROM_GPU,
            handle=handle,
            device_ids_array_ptr=ids.buffer_info()[0],
            n_devices=len(ids),
        )

    def _give_up(self, va: int, size: int, handle: int, gpu_ids: Sequence[int]) -> None:
        """Undo half an allocation. Addresses that the driver still has are not given out again."""
        if handle:
            self._unmap(handle, gpu_ids)
            call(self.port, self.kfd_fd, kfd.FREE_MEMORY_OF_GPU, handle=handle)
        self.port.munmap(va, size + GUARD_BYTES)
