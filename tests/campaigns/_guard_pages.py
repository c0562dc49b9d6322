"""Guard pages: buffers of the CPU device that begin and end where memory may not be touched.

In       an open CPU device
Out      a pool that gives each buffer pages of its own, with no access to the page before and the page after
Changes  the device's pool while `guarded` lasts
Next     movement.py (runs programs twice: buffers flush with the page behind, then with the page before)

Kernels assume of an address no more than the alignment of an element, so a buffer can lie flush with its guard: one
element too far ends the process. What of the pages a buffer leaves over holds a pattern that is looked at later.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hcq.memory import Buffer, Pool
from hcq.system import native
from hcq.system.port import MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE

if TYPE_CHECKING:
    from hcq.device import Device

PAGE = 4096
PATTERN = b"\xff"  # also what a new buffer holds: NaN in every float format


class GuardedPool(Pool):
    """Each buffer in a mapping of its own; freed ones are unmapped by `sweep`, so that late uses end the process, too.

    at_end   whether new buffers end at a guard page, or begin at one
    """

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.at_end = True
        self.others = device.memory
        self.blocks: dict[
            int, tuple[int, int, int]
        ] = {}  # va -> first page, bytes of pages, bytes of the buffer
        self.gone: deque[int] = deque()

    def alloc(self, size_bytes: int, name: str | None = None) -> Buffer:
        pages = -(-max(size_bytes, 1) // PAGE) * PAGE
        port = self.device.port
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        start = port.mmap(0, pages + 2 * PAGE, PROT_NONE, flags) + PAGE
        port.mprotect(start, pages, PROT_READ | PROT_WRITE)
        native.view(start, pages)[:] = PATTERN * pages
        va = start + pages - size_bytes if self.at_end else start
        self.blocks[va] = start, pages, size_bytes
        self.regions[start] = pages
        buffer = Buffer(self.device, va, size_bytes, size_bytes, 0, name)
        self._live[va] = weakref.ref(buffer)
        self._tell(buffer)
        return buffer

    def take_back(self, va: int, capacity: int, name: str | None = None, fence: int = 0) -> None:
        if va in self.blocks:
            self.gone.append(va)
            for observer in self.device.observers:
                observer.free(va, capacity)
        else:
            self.others.take_back(va, capacity, name, fence)

    def sweep(self) -> None:
        """Wait for the device, look at what buffers leave of their pages, unmap those that were freed."""
        self.device.synchronize()
        for va, (start, pages, size) in self.blocks.items():
            for first, length in ((start, va - start), (va + size, start + pages - va - size)):
                rest = bytes(native.view(first, length)) if length else b""
                if rest.count(PATTERN) != length:
                    raise AssertionError(f"a kernel wrote outside of a buffer of {size} bytes")
        while self.gone:
            va = self.gone.popleft()
            start, pages, size = self.blocks.pop(va)
            self.device.port.munmap(start - PAGE, pages + 2 * PAGE)
            self._live.pop(va, None)
            del self.regions[start]
            for observer in self.device.observers:
                observer.unmapped(va, size)


@contextmanager
def guarded(device: Device) -> Iterator[GuardedPool]:
    """The device's buffers between guard pages, from here to the end of the `with`."""
    pool = GuardedPool(device)
    before, device.memory = device.memory, pool
    try:
        yield pool
        gc.collect()
        pool.sweep()
        if pool.blocks:
            raise AssertionError(f"{len(pool.blocks)} buffers outlive their program: {pool.owners()}")
    finally:
        device.memory = before
