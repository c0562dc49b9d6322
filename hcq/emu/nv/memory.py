"""Memory of the emulated driver: what stands behind an allocation, and the page tables through which a GPU sees it.

In       allocations of the resource manager, mappings of UVM
Out      HostPages; PageTable, which channels, engines and kernels read and write
Changes  nothing of its own
Next     hcq/emu/backing.py (what holds an allocation's bytes), hcq/emu/user_pages.py (pages of another process),
         rm_objects.py (allocations), uvm.py (mappings), pbdma.py and the processors (accesses)

A GPU's view never depends on the host's mappings: what an engine touches is found in the page table, or is a fault.
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hcq.emu.backing import Backing
from hcq.emu.kernel import UserMemory
from hcq.emu.nv.errors import Access, FaultType, MmuFault
from hcq.emu.nv.shader.device_heap import START, Heap
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.memory import AddressSpace, Mapping
from hcq.emu.nv.shader.types import Lanes, Scalar
from hcq.emu.user_pages import UserPages
from hcq.events import known_memory

PAGE = 4096
Bytes = NDArray[np.uint8]
_NUMBERS = itertools.count()


class HostPages(Backing):
    """Pages of the process that were registered: they must stay mapped for as long as the GPU may touch them."""

    def __init__(self, pages: UserMemory) -> None:
        self.size_bytes = pages.data.size
        self.data = pages.data
        self.memory = None
        self.pages = pages


class UserMapping(Mapping):
    """A mapping of pages of another process, or of a part of them that begins at `at`."""

    def __init__(
        self, va: int, pages: UserPages, at: int, size_bytes: int, is_writable: bool, name: str
    ) -> None:
        super().__init__(va, pages.data[at : at + size_bytes], is_writable, name)
        self.pages, self.at = pages, at

    def reach(self, at: int, size_bytes: int, is_write: bool) -> None:
        self.pages.reach(self.at + at, size_bytes, is_write)

    def part(self, start: int, end: int) -> UserMapping:
        at = self.at + start - self.start
        return UserMapping(start, self.pages, at, end - start, self.is_writable, self.name)


def mapping_of(
    va: int, backing: Backing, offset: int, size_bytes: int, is_writable: bool, name: str
) -> Mapping:
    """A part of an allocation at an address."""
    if isinstance(backing, HostPages) and backing.pages.is_copy:
        return UserMapping(va, UserPages(backing.pages), offset, size_bytes, is_writable, name)
    return Mapping(va, backing.data[offset : offset + size_bytes], is_writable, name)


class PageTable:
    """What one GPU sees in one address space. Mappings change under a lock; an engine works with a snapshot.

    A snapshot is what the GPU's TLB is: a mapping that is taken away while a kernel runs is gone after the kernel.
    """

    def __init__(self) -> None:
        self.number = next(_NUMBERS)  # what caches know it by
        self.lock = threading.Lock()
        self.mappings: dict[int, Mapping] = {}
        self.users: tuple[UserMapping, ...] = ()  # those of them that are pages of another process
        self._view: View | None = None
        self.heap: Heap | None = None

    def map(self, mapping: Mapping) -> None:
        """Add a mapping. The caller has made sure that nothing is there."""
        with self.lock:
            self.mappings[mapping.start] = mapping
            self._changed()

    def unmap(self, va: int, size_bytes: int) -> None:
        """Take away what lies in [va, va + size_bytes); a mapping that reaches beyond keeps the rest."""
        with self.lock:
            for one in list(self.mappings.values()):
                if one.start < va + size_bytes and va < one.end:
                    if isinstance(one, UserMapping):
                        one.pages.settle()
                    del self.mappings[one.start]
                    for start, end in ((one.start, va), (va + size_bytes, one.end)):
                        if start < end:
                            self.mappings[start] = one.part(start, end)
            self._changed()

    def _changed(self) -> None:
        self._view = None
        self.users = tuple(one for one in self.mappings.values() if isinstance(one, UserMapping))

    def settle(self) -> None:
        """What was changed of another process's pages is there: before the next access, and after a step."""
        for one in self.users:
            if one.pages.is_touched:
                one.pages.settle()

    def overlaps(self, va: int, size_bytes: int) -> bool:
        """Whether anything is mapped in a range."""
        with self.lock:
            return any(one.start < va + size_bytes and va < one.end for one in self.mappings.values())

    @property
    def view(self) -> View:
        """The page table as it is now."""
        with self.lock:
            if self._view is None:
                kind = UserView if self.users else View
                self._view = kind(self, sorted(self.mappings.values(), key=lambda one: one.start))
            return self._view


class View(AddressSpace):
    """A snapshot of a page table: kernels use it as a Memory, engines through the methods below.

    Raises MmuFault, which names the unit that made the access.
    """

    def __init__(self, table: PageTable, mappings: list[Mapping]) -> None:
        super().__init__()
        self.table = table
        self.publish(mappings)
        self.missed: tuple[int, Access] | None = None  # the access of a kernel that was refused

    def load(self, addresses: Lanes, scalar: Scalar, count: int) -> Lanes:
        try:
            return super().load(addresses, scalar, count)
        except BadAccess as bad:
            self.missed = bad.address, Access.READ
            raise

    def store(self, addresses: Lanes, values: Lanes) -> None:
        try:
            super().store(addresses, values)
        except BadAccess as bad:
            self.missed = bad.address, Access.WRITE
            raise

    def new_heap(self) -> Heap:
        if self.table.heap is None:
            made = self.table.heap = Heap()
            self.table.map(Mapping(START, made.host, True, "the heap of malloc"))
        if self.find(START) is None:  # this view is older than the heap
            self.insert(Mapping(START, self.table.heap.host, True, "the heap of malloc"))
        return self.table.heap

    def take_missed(self) -> tuple[int, Access] | None:
        """The access that was refused since the last question: its address and kind."""
        missed, self.missed = self.missed, None
        return missed

    def overlaps(self, va: int, size_bytes: int) -> Mapping | None:
        """A mapping that reaches into a range."""
        return self.within(va, va + size_bytes)

    def spans(self, va: int, size_bytes: int, access: Access, unit: str) -> Iterator[Bytes]:
        """The host memory of a range, piece by piece: neighbouring mappings are one range to the GPU."""
        if access is not Access.READ:
            known_memory.written(va, size_bytes)
        self.table.settle()
        while size_bytes:
            one = self.find(va)
            if one is None:
                raise MmuFault(va, access, unit, f"nothing is mapped there; {self.near(va)}")
            if access is not Access.READ and not one.is_writable:
                raise MmuFault(va, access, unit, f"{one.name} is read-only", FaultType.RO_VIOLATION)
            count = min(size_bytes, one.end - va)
            one.reach(va - one.start, count, access is not Access.READ)
            yield one.host[va - one.start : va - one.start + count]
            va += count
            size_bytes -= count

    def read(self, va: int, size_bytes: int, unit: str) -> bytes:
        """Bytes, as an engine reads them. Raises MmuFault."""
        one = self.find(va) if self.is_plain else None
        if one is not None and va + size_bytes <= one.end:  # most often they are in one piece
            return one.host[va - one.start : va - one.start + size_bytes].tobytes()
        return b"".join(piece.tobytes() for piece in self.spans(va, size_bytes, Access.READ, unit))

    def write(self, va: int, data: bytes, unit: str) -> None:
        """Write all of it, or none of it when a part cannot be written."""
        at = 0
        for piece in list(self.spans(va, len(data), Access.WRITE, unit)):
            piece[:] = np.frombuffer(data, np.uint8, len(piece), at)
            at += len(piece)

    def words(self, va: int, count: int, unit: str) -> list[int]:
        """32-bit words, as an engine reads them. Raises MmuFault."""
        return list(struct.unpack(f"<{count}I", self.read(va, 4 * count, unit)))

    def store_number(self, va: int, value: int, size_bytes: int, unit: str) -> None:
        """One store of 4 or 8 bytes that no reader sees half of; the address is a multiple of its size."""
        (piece,) = self.spans(va, size_bytes, Access.WRITE, unit)
        piece.view(f"<u{size_bytes}")[0] = value

    def load_number(self, va: int, size_bytes: int, unit: str) -> int:
        """One aligned number, as an engine reads it. Raises MmuFault."""
        (piece,) = self.spans(va, size_bytes, Access.READ, unit)
        return int(piece.view(f"<u{size_bytes}")[0])


class UserView(View):
    """A snapshot with pages of other processes: what kernels touch of them is brought up to date before."""

    is_plain = False

    def load(self, addresses: Lanes, scalar: Scalar, count: int) -> Lanes:
        self._reach(addresses, np.dtype(scalar).itemsize * count, is_write=False)
        return super().load(addresses, scalar, count)

    def store(self, addresses: Lanes, values: Lanes) -> None:
        size = values.dtype.itemsize * (1 if values.ndim == 1 else values.shape[1])
        self._reach(addresses, size, is_write=True)
        super().store(addresses, values)

    def _reach(self, addresses: Lanes, size_bytes: int, is_write: bool) -> None:
        self.table.settle()
        for one in self.table.users:
            inside = addresses[(addresses >= np.uint64(one.start)) & (addresses < np.uint64(one.end))]
            if len(inside):
                offsets = (inside - np.uint64(one.start)).view(np.int64) + one.at
                one.pages.reach_each(offsets, size_bytes, is_write)
