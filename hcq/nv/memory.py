"""Memory of an NVIDIA GPU: RM objects, each mapped for the GPU through UVM and, where it must be, for the host.

In       a size and a Place
Out      an Allocation: one address, the same for host and GPUs
Changes  the process's mappings and the GPU's page tables
Next     address.py (which addresses), rm.py (the calls), hcq/memory.py (the pool that cuts small buffers from these)
Source   nvos.h: NVOS32_ATTR_*, NVOS32_ALLOC_FLAGS_*; uvm_ioctl.h; values as CUDA's driver was seen to give them
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from hcq.errors import HcqError
from hcq.gpu.memory import HUGE_BYTES, MADV_DONTFORK, GpuMemory
from hcq.gpu.release import do_all, quietly
from hcq.layout import Ioctl
from hcq.nv.abi import ioctls as calls
from hcq.nv.abi.classes import ClassId
from hcq.nv.address import POOL
from hcq.nv.ioctl import call
from hcq.nv.process import CTL_NODE, NvProcess
from hcq.nv.rm import Rm
from hcq.system.port import PAGE_BYTES, Port

BIG_BYTES = 64 << 10
READ_WRITE_ATOMIC = 1  # UvmGpuMappingTypeReadWriteAtomic
# NVOS32_ATTR: LOCATION=PCI, PHYSICALITY=ALLOW_NONCONTIGUOUS, COHERENCY=CACHED; and without location for video memory
SYSTEM_ATTR, VIDEO_ATTR = 0x3A000000, 0x18000000
BIG_PAGES = 2 << 23  # NVOS32_ATTR_PAGE_SIZE: 64 KiB; by itself video memory comes in pages of 2 MiB
# flags and type are those that CUDA's driver was seen to give; that others would do as well is not known
SYSTEM_TYPE, SYSTEM_FLAGS = 0xD, 0xC001
# IGNORE_BANK_PLACEMENT, ALIGNMENT_FORCE, MEMORY_HANDLE_PROVIDED, MAP_NOT_REQUIRED, PERSISTENT
VIDEO_FLAGS = 0x1C101


class Place(Enum):
    """Where memory is, and who sees it."""

    SYSTEM = "system"  # host memory, cached, which the GPU reaches through PCIe; signals
    VIDEO = "video"  # the GPU's memory, seen by the host through BAR1, write-combined
    PRIVATE = "private"  # the GPU's memory, which the host does not see

    @property
    def is_host_visible(self) -> bool:
        """Whether the host has an address for it."""
        return self != Place.PRIVATE


def page_bytes(size_bytes: int, place: Place) -> int:
    """The page size for an allocation: large ones cost the GPU fewer look-ups, and waste what does not fill them."""
    if place == Place.SYSTEM:
        return PAGE_BYTES
    waste = -size_bytes % HUGE_BYTES
    return HUGE_BYTES if 8 * waste <= size_bytes else BIG_BYTES


@dataclass(frozen=True)
class Allocation:
    """Memory at one address for host and GPUs. `uuids`: whose page tables have it."""

    va: int
    size_bytes: int
    handle: int
    place: Place
    uuids: tuple[bytes, ...]
    mapping: int = 0  # what RM calls the host's mapping


class NvMemory(GpuMemory[Allocation]):
    """Allocates for one GPU. device: its RM device; path: its node; uuid: its name for UVM."""

    def __init__(
        self, port: Port, process: NvProcess, rm: Rm, device: int, path: str, uuid: bytes, uvm_fd: int
    ) -> None:
        self.port, self.process, self.rm = port, process, rm
        self.device, self.path, self.uuid, self.uvm_fd = device, path, uuid, uvm_fd
        self.live: dict[int, Allocation] = {}
        self.mapped_bytes = 0

    def alloc(self, size_bytes: int, place: Place) -> Allocation:
        page = page_bytes(size_bytes, place)
        size = -(-max(size_bytes, 1) // page) * page
        va = POOL.take(self.port, size, page)
        handle = mapping = 0
        is_range = False
        try:
            handle = self._make(size, place, page)
            if place.is_host_visible:
                path = CTL_NODE if place == Place.SYSTEM else self.path
                _, mapping = self.rm.map(self.device, handle, size, path, va)
                self.port.madvise(va, size, MADV_DONTFORK)
            is_range = True  # from here on it may be one, whoever is interrupted
            try:
                self._uvm(calls.UVM_CREATE_EXTERNAL_RANGE, base=va, length=size)
            except HcqError:
                is_range = False
                raise
            self._map(va, size, handle, self.uuid)
        except BaseException:
            quietly(lambda: self._give_up(va, size, handle, is_range))
            raise
        found = Allocation(va, size, handle, place, (self.uuid,), mapping)
        self.live[va] = found
        self.mapped_bytes += size
        return found

    def free(self, what: Allocation) -> None:
        do_all(
            (
                lambda: self._free_range(what.va, what.size_bytes),
                lambda: self._end_mapping(what),
                lambda: self.rm.free(what.handle, self.device),
            )
        )
        self.live.pop(what.va, None)
        self.mapped_bytes -= what.size_bytes
        POOL.give_back(self.port, what.va, what.size_bytes)

    def map_for(self, what: Allocation, uuid: bytes) -> Allocation:
        if uuid in what.uuids:
            return what
        if what.place != Place.SYSTEM:
            self.process.enable_peers(self.port, self.uuid, uuid)
        self._map(what.va, what.size_bytes, what.handle, uuid)
        found = replace(what, uuids=(*what.uuids, uuid))
        self.live[what.va] = found
        return found

    def _make(self, size: int, place: Place, page: int) -> int:
        if place == Place.SYSTEM:
            return self.rm.alloc(
                self.device,
                ClassId.NV01_MEMORY_SYSTEM,
                owner=self.rm.client,
                type=SYSTEM_TYPE,
                flags=SYSTEM_FLAGS,
                attr=SYSTEM_ATTR,
                size=size,
                alignment=PAGE_BYTES,
            )
        return self.rm.alloc(
            self.device,
            ClassId.NV01_MEMORY_LOCAL_USER,
            owner=self.rm.client,
            flags=VIDEO_FLAGS,
            attr=VIDEO_ATTR | (BIG_PAGES if page == BIG_BYTES else 0),
            size=size,
            alignment=page,
        )

    def _map(self, va: int, size: int, handle: int, uuid: bytes) -> None:
        self._uvm(
            calls.UVM_MAP_EXTERNAL_ALLOCATION,
            base=va,
            length=size,
            pergpuattributes_0_gpuuuid=int.from_bytes(uuid, "little"),
            pergpuattributes_0_gpumappingtype=READ_WRITE_ATOMIC,
            gpuattributescount=1,
            rmctrlfd=self.rm.ctl_fd,
            hclient=self.rm.client,
            hmemory=handle,
        )

    def _end_mapping(self, what: Allocation) -> None:
        if what.place.is_host_visible:
            self.rm.unmap(self.device, what.handle, what.mapping)

    def _free_range(self, va: int, size: int) -> None:
        layout = self.rm.abi.layout("UvmFree")
        length = {"length": size} if "length" in layout.fields else {}
        self._uvm(calls.UVM_FREE, base=va, **length)

    def _uvm(self, ioctl: Ioctl, **fields: int) -> None:
        call(self.rm.abi, self.port, self.uvm_fd, ioctl, **fields)

    def _give_up(self, va: int, size: int, handle: int, is_range: bool) -> None:
        """Undo half an allocation. Addresses that the driver still has are not given out again."""
        do_all(
            (
                lambda: self._free_range(va, size) if is_range else None,
                lambda: self.rm.free(handle, self.device) if handle else None,
            )
        )
        POOL.give_back(self.port, va, size)
