"""Areas: memory that has no address, at addresses of our own, and what the host does with it.

In       sizes; addresses; bytes
Out      `Areas`: which buffer of WebGPU's an address is in, and where there
Changes  buffers of WebGPU's; what is in them
Next     device.py (map_memory, read_memory and write_memory of a device), commands.py (who binds and copies them)
Source   WebGPU (W3C): GPUQueue.writeBuffer and copies take whole words of 4 bytes

WebGPU has handles where hcq has addresses, so every area gets a range of numbers that are nobody's memory in this
process: above what a processor's user space can be, and given once. The host never sees an area. It reads and writes
by the queue, which does both behind all that was submitted before.
"""

from __future__ import annotations

import bisect
import threading
from typing import Any, NamedTuple

from hcq_webgpu.api import Gpu

FIRST_ADDRESS = 1 << 56  # x86-64 and AArch64 end at 2**57 and 2**56 at most, and give half of it to processes
WORD = 4

_lock = threading.Lock()
_next = FIRST_ADDRESS  # in all devices of the process: rules and traces know memory by its address


def _take(size_bytes: int) -> int:
    global _next
    with _lock:
        va = _next
        _next += (size_bytes + 8191) // 4096 * 4096  # and a page between
    return va


class Area(NamedTuple):
    """One buffer of WebGPU's."""

    va: int
    size_bytes: int
    buffer: Any


class Areas:
    """The areas of one device.

    changes  how many were given back: who keeps bind groups of them looks here
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.changes = 0
        self._lock = threading.Lock()
        self._areas: dict[int, Area] = {}
        self._starts: list[int] = []

    def map(self, size_bytes: int) -> int:
        """A new area's address, page aligned. Raises DriverError."""
        size = (size_bytes + 63) // 64 * 64
        made = Area(_take(size), size, self.gpu.make_buffer(size, self.gpu.storage))
        with self._lock:
            self._areas[made.va] = made
            bisect.insort(self._starts, made.va)
        return made.va

    def unmap(self, va: int) -> None:
        """Give an area back; no work uses it."""
        with self._lock:
            gone = self._areas.pop(va)
            self._starts.remove(va)
            self.changes += 1
        gone.buffer.destroy()

    def all(self) -> list[int]:
        """The addresses of all areas."""
        return list(self._areas)

    def find(self, va: int) -> Area | None:
        """The area that an address is in."""
        with self._lock:
            at = bisect.bisect_right(self._starts, va) - 1
            area = self._areas[self._starts[at]] if at >= 0 else None
        return area if area is not None and va < area.va + area.size_bytes else None

    def read(self, area: Area, va: int, size_bytes: int) -> bytes:
        """What is there, behind all that was submitted."""
        offset = va - area.va
        first, end = offset // WORD * WORD, (offset + size_bytes + WORD - 1) // WORD * WORD
        if first == end:
            return b""
        found = self.gpu.queue.read_buffer(area.buffer, first, end - first)
        return bytes(found[offset - first : offset - first + size_bytes])

    def write(self, area: Area, va: int, data: bytes | memoryview) -> None:
        """Put bytes there, behind all that was submitted. The words at the ends keep their other bytes."""
        offset, size = va - area.va, len(data)
        if offset % WORD or size % WORD:
            first, end = offset // WORD * WORD, (offset + size + WORD - 1) // WORD * WORD
            before = self.read(area, area.va + first, offset - first)
            after = self.read(area, va + size, end - offset - size)
            offset, data = first, b"".join((before, data, after))
        if data:
            self.gpu.queue.write_buffer(area.buffer, offset, data)
