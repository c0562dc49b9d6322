"""Caches of an emulated GPU (amd:gfx1100:caches): what was read stays old, and what was written stays hidden.

In       what agents read and write; acquires and releases from packets
Out      memory as each agent sees it: vector, scalar and instruction caches over an L2, and the copy engines' own
Changes  the memory below, when a cache is written back
Next     memory.py (the address space), pm4_processor.py, aql_processor.py and sdma_processor.py (acquires, releases)
Source   gmc_v9_0_get_coherence_flags; gmc_v10_0_get_vm_pte, and those of v11 and v12: what is uncached

Worse than any hardware, so that a missing packet shows at once: nothing ever leaves a cache by itself, a line is a
whole page, and an invalidation drops what was not written back. Within a kernel its own accesses are coherent; after
it, the vector cache shows what it held before the kernel wrote, as another compute unit's would. Host, packet processor
and fences see memory itself.

What page tables say is uncached (MTYPE_UC) passes the L2 and the copy engines' cache by. The caches of compute units
hold it all the same: a kernel that waits for the host reads it anew after an invalidation of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcq.amd.abi.kfd import AllocFlags
from hcq.emu.amd.memory import GpuVm
from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.memory import AddressSpace, Range, aligned_words
from hcq.emu.amd.spec import Chip
from hcq.emu.pages import zeros

LINE = 4096


def is_uncached(chip: Chip, flags: AllocFlags) -> bool:
    """Whether an allocation with these flags is mapped as MTYPE_UC."""
    is_vram = bool(flags & AllocFlags.VRAM)
    if flags & AllocFlags.UNCACHED or (chip.arch in ("gfx942", "gfx950") and not is_vram):
        return True
    if chip.family == 12 or (chip.family == 9 and is_vram):
        return False  # left to the scopes of instructions; MTYPE_CC or MTYPE_RW
    return bool(flags & (AllocFlags.COHERENT | AllocFlags.EXT_COHERENT))


@dataclass(frozen=True)
class Shadow(Range):
    """What a cache holds of a range: its bytes, which lines are there, which bytes are newer than the source's."""

    source: Range
    valid: Array
    dirty: Array


class CachedMemory(GpuVm):
    """An address space that looks at the one below once for each line. Subclasses say what a write does."""

    def __init__(self, below: GpuVm) -> None:
        super().__init__()
        self.below = below
        self.followed: Any = None  # the mappings of the space below that the shadows are of
        self.shadows: dict[int, Shadow] = {}  # by the identity of their source

    def follow(self) -> None:
        """Mappings below may have come and gone; the kernel driver drops what caches hold of those that went."""
        if isinstance(self.below, CachedMemory):
            self.below.follow()
        if self.followed is self.below.index:
            return
        self.followed = self.below.index
        sources = self.followed[1]
        self.shadows = {
            id(source): self.shadows.get(id(source)) or shadow_of(source)
            for source in sources
            if source.start not in self.below.uncached
        }
        self.publish(tuple(self.shadows.get(id(source), source) for source in sources))

    def fetch(self, one: Range, first: int, last: int) -> None:
        """Make the lines from `first` to `last` be there."""
        if not isinstance(one, Shadow):
            return
        missing = np.nonzero(~one.valid[first : last + 1])[0]
        for line in (missing + first).tolist():
            at, end = line * LINE, min((line + 1) * LINE, len(one.data))
            if isinstance(self.below, CachedMemory):
                self.below.fetch(one.source, line, line)
            one.source.reach(at, end - at, is_write=False)
            one.data[at:end] = one.source.data[at:end]
            one.valid[line] = True

    def groups(self, addresses: Array, size_bytes: int, kind: str) -> list[tuple[Range, Array | None, Array]]:
        self.follow()
        found = super().groups(addresses, size_bytes, kind)
        for one, _, offsets in found:
            if not isinstance(one, Shadow):
                low, high = int(offsets.min()), int(offsets.max())
                one.reach(low, high + size_bytes - low, is_write=kind != "read")
                continue
            lines = np.unique(np.concatenate((offsets // LINE, (offsets + (size_bytes - 1)) // LINE)))
            for line in lines.tolist():
                self.fetch(one, line, line)
            if kind != "read":
                self.touch(one, lines.tolist())
        return found

    def find(self, address: int) -> Range | None:
        self.follow()
        return super().find(address)

    def read(self, address: int, size_bytes: int) -> bytes:
        return self.bytes_at(address, size_bytes, "read").tobytes()

    def range_at(self, va: int, size_bytes: int, kind: str) -> Range:
        one = super().range_at(va, size_bytes, kind)
        self.reach(va, size_bytes, kind)
        return one

    def pieces(self, va: int, size_bytes: int, kind: str) -> list[Any]:
        views = super().pieces(va, size_bytes, kind)
        at = va
        for view in views:
            self.reach(at, len(view), kind)
            at += len(view)
        return views

    def reach(self, va: int, size_bytes: int, kind: str) -> None:
        """Bring the lines of an access into the cache, from below, where they are not there yet."""
        one = self.find(va)
        if not isinstance(one, Shadow):
            return
        first, last = (va - one.start) // LINE, (va - one.start + max(size_bytes, 1) - 1) // LINE
        self.fetch(one, first, last)
        if kind != "read":
            self.touch(one, range(first, last + 1))
            self.written(one, slice(va - one.start, va - one.start + size_bytes))

    def touch(self, one: Range, lines: Any) -> None:
        """These lines are about to be written."""

    def written(self, one: Range, where: Any) -> None:
        """These bytes of a range have been, or are about to be, written."""

    def invalidate(self) -> None:
        """Forget everything."""
        for shadow in self.shadows.values():
            shadow.valid[:] = False


def shadow_of(source: Range) -> Shadow:
    """An empty copy of a range, to be filled line by line."""
    size = len(source.data)
    data = zeros(size)
    return Shadow(
        data,
        aligned_words(source.start, data),
        source.start,
        source.end,
        source.writable,
        source.name,
        source,
        np.zeros(-(-size // LINE), np.bool_),
        zeros(size).view(np.bool_),
    )


class WriteBack(CachedMemory):
    """Writes stay here until they are written back."""

    def __init__(self, below: GpuVm) -> None:
        super().__init__(below)
        # lines with dirty bytes, by the identity of their range's source
        self.changed: dict[int, set[int]] = {}
        self.held: dict[int, int] = {}  # words of uncached memory that a packet made it hold all the same

    def touch(self, one: Range, lines: Any) -> None:
        assert isinstance(one, Shadow)
        self.changed.setdefault(id(one.source), set()).update(lines)

    def written(self, one: Range, where: Any) -> None:
        assert isinstance(one, Shadow)
        one.dirty[where] = True

    def scatter(self, addresses: Array, data: Array) -> None:
        super().scatter(addresses, data)
        self._mark(addresses, 4 * len(data))

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        super().scatter_bytes(addresses, data, size_bytes)
        self._mark(addresses, size_bytes)

    def update(self, addresses: Array, dtype: Any, change: Callable[[Array], Array]) -> Array:
        old = super().update(addresses, dtype, change)
        self._mark(addresses, np.dtype(dtype).itemsize)
        return old

    def _mark(self, addresses: Array, size_bytes: int) -> None:
        for one, _, offsets in AddressSpace.groups(self, addresses, size_bytes, "write"):
            for index in range(size_bytes if isinstance(one, Shadow) else 0):
                self.written(one, offsets + index)

    def hold(self, va: int, value: int) -> None:
        """Write a word as a packet that says itself what is cached: it counts, and not the page table."""
        if isinstance(self.find(va), Shadow):
            self.store32(va, value)
        else:
            self.bytes_at(va, 4, "write")  # a page fault, where there is nothing
            self.held[va] = value

    def write_back(self) -> None:
        """Dirty bytes go to the memory below; the lines stay."""
        for va, value in self.held.items():
            if self.below.find(va) is not None:
                self.below.store32(va, value)
        self.held.clear()
        for identity, lines in self.changed.items():
            shadow = self.shadows.get(identity)
            if shadow is None:
                continue  # no longer mapped
            for line in lines:
                at, end = line * LINE, min((line + 1) * LINE, len(shadow.data))
                newer = shadow.dirty[at:end]
                shadow.source.reach(at, end - at, is_write=True)
                shadow.source.data[at:end][newer] = shadow.data[at:end][newer]
                newer[:] = False
        self.changed.clear()

    def invalidate(self) -> None:
        super().invalidate()
        self.held.clear()
        for identity, lines in self.changed.items():
            shadow = self.shadows.get(identity)
            for line in lines if shadow is not None else ():
                assert shadow is not None
                shadow.dirty[line * LINE : (line + 1) * LINE] = False
        self.changed.clear()


class WriteThrough(CachedMemory):
    """Writes go below at once; after the kernel, this cache holds what it held before them."""

    def __init__(self, below: GpuVm) -> None:
        super().__init__(below)
        self.before: dict[tuple[int, int], tuple[Shadow, Array]] = {}

    def touch(self, one: Range, lines: Any) -> None:
        assert isinstance(one, Shadow)
        for line in lines:
            key = id(one.source), line
            if key not in self.before:
                self.before[key] = one, one.data[line * LINE : (line + 1) * LINE].copy()

    def scatter(self, addresses: Array, data: Array) -> None:
        super().scatter(addresses, data)
        self.below.scatter(addresses, data)

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        super().scatter_bytes(addresses, data, size_bytes)
        self.below.scatter_bytes(addresses, data, size_bytes)

    def update(self, addresses: Array, dtype: Any, change: Callable[[Array], Array]) -> Array:
        """Atomics happen below; what this cache holds of the place follows."""
        size = np.dtype(dtype).itemsize
        parts = self.groups(addresses, size, "atomic")
        old = self.below.update(addresses, dtype, change)
        for one, _, offsets in parts:
            assert isinstance(one, Shadow)
            for index in range(size):
                one.data[offsets + index] = one.source.data[offsets + index]
        return old

    def acquire(self) -> None:
        """A kernel's own invalidation: it reads anew. Other compute units go on holding what they held."""
        for shadow in self.shadows.values():
            lines = np.flatnonzero(shadow.valid).tolist()
            self.touch(shadow, lines)
            shadow.valid[lines] = False

    def end_kernel(self) -> None:
        """What was cached before the kernel is as it was then; what the kernel wrote is below."""
        for (_, line), (shadow, held) in self.before.items():
            shadow.data[line * LINE : (line + 1) * LINE] = held
            shadow.valid[line] = True
        self.before.clear()


class Caches:
    """All caches of one GPU. `copies` is what its copy engines see."""

    def __init__(self, vm: GpuVm, copies_are_cached: bool) -> None:
        self.l2 = WriteBack(vm)
        self.vector, self.scalar, self.code = (WriteThrough(self.l2) for _ in range(3))
        self.copies: GpuVm = WriteBack(vm) if copies_are_cached else vm

    def acquire(self, *, code: bool, scalar: bool, vector: bool, l2: bool, l2_write_back: bool) -> None:
        """What was read before may be old. The L2 is written back first, where that is asked for."""
        if l2_write_back:
            self.l2.write_back()
        if l2:
            self.l2.invalidate()
        for cache, is_meant in ((self.code, code), (self.scalar, scalar), (self.vector, vector)):
            if is_meant:
                cache.invalidate()

    def acquire_copies(self, write_back: bool, invalidate: bool) -> None:
        """The same for the copy engines, where they have a cache."""
        if isinstance(self.copies, WriteBack):
            if write_back:
                self.copies.write_back()
            if invalidate:
                self.copies.invalidate()
