"""Memory of the emulated KFD: buffer objects, and the page tables through which an emulated GPU sees them.

In       allocation, mapping and freeing, as ioctls ask for them
Out      BufferObject; GpuVm, which packet processors and kernels read and write
Changes  host memory: an object's bytes are mapped once for the GPU and again wherever the host asks
Next     hcq/emu/backing.py (what holds the bytes), kfd.py (the ioctls), shader/memory.py (addresses), gpu.py

The GPU's view never depends on the host's mappings: a driver that unmaps memory the GPU still uses is not a crash here,
and one that frees it gets a page fault with an address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hcq.amd.abi.kfd import AllocFlags
from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.memory import AddressSpace, Range, SharedRange, aligned_words
from hcq.emu.backing import Backing
from hcq.emu.kernel import UserMemory
from hcq.emu.shader.compare_exchange import add
from hcq.emu.user_pages import UserPages
from hcq.events import known_memory

PAGE = 4096


class BufferObject:
    """One allocation. `data` is what the GPU sees; it lives until the last reference is gone."""

    def __init__(
        self,
        handle: int,
        gpu_id: int,
        va: int,
        size_bytes: int,
        flags: AllocFlags,
        backing: Backing,
        mmap_offset: int,
        user: UserMemory | None = None,
    ) -> None:
        self.handle, self.gpu_id, self.va, self.size_bytes, self.flags = handle, gpu_id, va, size_bytes, flags
        self.mapped: set[int] = set()  # ids of the GPUs whose page tables have it
        self.is_pinned = False  # the event page: it cannot be freed
        self.is_imported = False  # memory that another allocation has taken
        self.backing, self.mmap_offset = backing, mmap_offset
        self.user = user  # pages of the process, in the place of the backing (USERPTR)

    def is_mapped_by(self, gpu_id: int) -> bool:
        """Whether the host maps it through the render node of this GPU."""
        return self.gpu_id == gpu_id and bool(self.flags & (AllocFlags.VRAM | AllocFlags.GTT))

    @property
    def data(self) -> Any:
        """The bytes behind it."""
        return self.backing.data if self.user is None else self.user.data


@dataclass(frozen=True)
class UserRange(Range):
    """A mapping of pages of another process."""

    pages: UserPages

    @classmethod
    def of(cls, va: int, memory: UserMemory, writable: bool, name: str) -> UserRange:
        """The pages at an address."""
        pages = UserPages(memory)
        data = pages.data
        return cls(data, aligned_words(va, data), va, va + len(data), writable, name, pages)

    def reach(self, at: int, size_bytes: int, *, is_write: bool) -> None:
        self.pages.reach(at, size_bytes, is_write)


class GpuVm(AddressSpace):
    """One GPU's page table for the process. Raises PageFault for addresses that are not mapped there."""

    def __init__(self) -> None:
        super().__init__()
        self.users: dict[
            int, UserRange
        ] = {}  # by address: mappings that are copies of pages of another process
        self.uncached: set[int] = set()  # addresses of mappings that the L2 does not hold

    def map_object(self, bo: BufferObject, is_uncached: bool = False) -> None:
        """Map an allocation at its address."""
        if is_uncached:
            self.uncached.add(bo.va)
        writable, name = bool(bo.flags & AllocFlags.WRITABLE), f"handle {bo.handle:#x}"
        if bo.user is None or not bo.user.is_copy:
            kind = (
                Range if bo.flags & AllocFlags.VRAM else SharedRange
            )  # over PCIe the host's atomics are not atomic
            words = aligned_words(bo.va, bo.data)
            self.insert(kind(bo.data, words, bo.va, bo.va + len(bo.data), writable, name))
            return
        one = UserRange.of(bo.va, bo.user, writable, name)
        self.insert(one)
        self.users[one.start] = one

    def unmap(self, address: int) -> None:
        user = self.users.pop(address, None)
        if user is not None:
            user.pages.settle()
        super().unmap(address)
        self.uncached.discard(address)

    def settle(self) -> None:
        """What was changed of another process's pages is there: before the next access, and after a queue's step."""
        for one in list(self.users.values()) if self.users else ():
            if one.pages.is_touched:
                one.pages.settle()

    def groups(self, addresses: Array, size_bytes: int, kind: str) -> list[tuple[Range, Array | None, Array]]:
        found = super().groups(addresses, size_bytes, kind)
        if self.users:
            self.settle()
            for one, _, offsets in found:
                if isinstance(one, UserRange):
                    one.pages.reach_each(offsets, size_bytes, kind != "read")
        return found

    def read(self, address: int, size_bytes: int) -> bytes:
        return bytes(self.bytes_at(address, size_bytes, "read").tobytes())

    def overlaps(self, va: int, size_bytes: int) -> bool:
        """Whether anything is mapped in a range."""
        return self.within(va, va + size_bytes) is not None

    def is_exactly(self, va: int, size_bytes: int) -> bool:
        """Whether a mapping starts there and has that many pages."""
        one = self.find(va)
        return one is not None and one.start == va and one.end == va + -(-size_bytes // PAGE) * PAGE

    def bytes_at(self, va: int, size_bytes: int, kind: str) -> Any:
        """A view of the bytes of a range. kind, "read" or "write", is what a fault says."""
        one = self.range_at(va, size_bytes, kind)
        return one.data[va - one.start : va - one.start + size_bytes]

    def range_at(self, va: int, size_bytes: int, kind: str) -> Range:
        """The mapping that has these bytes, which are about to be touched."""
        one = self.find(va)
        if one is None or va + size_bytes > one.end or (kind == "write" and not one.writable):
            raise self.fault(np.array([va], np.uint64), size_bytes, kind)
        self.settle()
        one.reach(va - one.start, size_bytes, is_write=kind == "write")
        if kind == "write":
            known_memory.written(va, size_bytes)
        return one

    def load_words(self, va: int, count: int) -> list[int]:
        """32-bit words. Raises PageFault."""
        one = self.range_at(va, 4 * count, "read")
        at = va - one.start
        if one.singles is not None and not at & 3:
            return one.singles[at >> 2 : (at >> 2) + count].tolist()
        words: list[int] = np.frombuffer(one.data[at : at + 4 * count].tobytes(), np.uint32).tolist()
        return words

    def load32(self, va: int) -> int:
        """A word of 32 bits. Raises PageFault."""
        return int(self.bytes_at(va, 4, "read").view(np.uint32)[0])

    def load64(self, va: int) -> int:
        """A word of 64 bits. Raises PageFault."""
        one = self.range_at(va, 8, "read")
        at = va - one.start
        if one.doubles is not None and not at & 7:
            return int(one.doubles[at >> 3])
        return int(one.data[at : at + 8].view(np.uint64)[0])

    def store32(self, va: int, value: int) -> None:
        """Write the low 32 bits of a value. Raises PageFault."""
        one = self.range_at(va, 4, "write")
        at = va - one.start
        if one.singles is not None and not at & 3:
            one.singles[at >> 2] = value & 0xFFFFFFFF
        else:
            one.data[at : at + 4].view(np.uint32)[0] = value & 0xFFFFFFFF

    def store64(self, va: int, value: int) -> None:
        """Write the low 64 bits of a value. Raises PageFault."""
        self.bytes_at(va, 8, "write").view(np.uint64)[0] = value & 2**64 - 1

    def add64(self, va: int, addend: int) -> None:
        """Add to a word of 64 bits: one operation, in memory of the host also for the host. Raises PageFault.

        Not so where the word is a copy of another process's page: the process has what comes of it after the step.
        """
        word = self.bytes_at(va, 8, "write").view(np.uint64)
        if va % 8 == 0 and isinstance(self.find(va), SharedRange):
            add(word.ctypes.data, addend)
        else:
            word[0] = int(word[0]) + addend & 2**64 - 1

    def pieces(self, va: int, size_bytes: int, kind: str) -> list[Any]:
        """Views that cover a range, which may cross from one mapping into the next; "write": all of it is replaced."""
        found = []
        if kind == "write":
            known_memory.written(va, size_bytes)
        while size_bytes > 0:
            one = self.find(va)
            if one is None or (kind == "write" and not one.writable):
                raise self.fault(np.array([va], np.uint64), 1, kind)
            size = min(size_bytes, one.end - va)
            if kind == "write" and isinstance(one, UserRange):
                one.pages.replace(va - one.start, size)
            else:
                one.reach(va - one.start, size, is_write=kind == "write")
            found.append(one.data[va - one.start : va - one.start + size])
            va, size_bytes = va + size, size_bytes - size
        return found

    def copy(self, dst: int, src: int, size_bytes: int) -> None:
        """Copy as an engine does that reads ahead: all of the source first. Both ranges are checked before."""
        self.settle()
        targets = self.pieces(dst, size_bytes, "write")
        sources = self.pieces(src, size_bytes, "read")
        if len(targets) == len(sources) == 1:
            np.copyto(targets[0], sources[0])
            return
        data = np.concatenate(sources)
        at = 0
        for target in targets:
            target[:] = data[at : at + len(target)]
            at += len(target)

    def fill(self, dst: int, pattern: bytes, size_bytes: int) -> None:
        """Repeat a pattern over a range. Raises PageFault."""
        self.settle()
        targets = self.pieces(dst, size_bytes, "write")  # before memory is taken for what is to be there
        whole = np.frombuffer(pattern * -(-size_bytes // len(pattern)), np.uint8)[:size_bytes]
        at = 0
        for target in targets:
            target[:] = whole[at : at + len(target)]
            at += len(target)
