"""How the host reaches the memory of an NVIDIA GPU: directly where BAR1 shows it, otherwise through the copy engine.

In       sizes of buffers; bytes to write and read
Out      HostAccess, the part of a device that places memory and moves bytes
Changes  allocations; a staging buffer
Next     hcq/gpu/staging.py (copies), memory.py (allocations), device.py (the rest of the device)

Where BAR1 shows all of the GPU's memory, buffers are there. Where it does not (no Resizable BAR, some virtual
machines), small buffers are in the host's memory, and large ones are in the GPU's, where the host does not see them:
what it writes and reads there is copied. A trace with data looks into every buffer, so then all are the host's.
"""

from __future__ import annotations

import bisect
from typing import Any

from hcq import native
from hcq.errors import UsageError
from hcq.gpu.device import GpuDevice
from hcq.memory import SLAB_BYTES, Buffer
from hcq.nv.gpu import Gpu
from hcq.nv.memory import NvMemory, Place

HIDDEN_BYTES = SLAB_BYTES  # larger buffers may be where the host does not see them


class HostAccess(GpuDevice):
    """A device whose memory the host may see in part. `place`: of the driver's own memory and of small buffers."""

    stage_place = Place.SYSTEM
    spin_ns = 50_000
    gpu: Gpu
    gpu_memory: NvMemory
    place: Place
    why_host_memory = ""

    @property
    def peer_id(self) -> bytes:
        return self.gpu.uuid

    @property
    def is_slow_to_read(self) -> bool:
        return self.place == Place.VIDEO

    def _choose_place(self) -> None:
        """Before anything is allocated: what does the host see?"""
        self._begin_owning()
        self._hidden: list[int] = []  # where memory starts that the host does not see, in order
        if self.gpu.bar1_bytes >= self.gpu.ram_bytes > 0:
            self.place = Place.VIDEO
            return
        self.place = Place.SYSTEM
        large = "in the host's too" if self.config.trace_data else "copied when the host writes or reads them"
        self.why_host_memory = (
            f"the host sees {self.gpu.bar1_bytes >> 20} of {self.gpu.ram_bytes >> 20} MiB of the GPU's memory: small "
            f"buffers are in the host's, large ones are {large}; turn on Resizable BAR to change that"
        )

    def map_memory(self, size_bytes: int) -> int:
        if self.place == Place.VIDEO or size_bytes <= HIDDEN_BYTES or self.config.trace_data:
            return self.gpu_memory.alloc(size_bytes, self.place).va
        va = self.gpu_memory.alloc(size_bytes, Place.PRIVATE).va
        with self.lock:
            bisect.insort(self._hidden, va)
        return va

    def visible(self, size_bytes: int, name: str) -> Buffer:
        """A buffer that the host sees, whatever its size: what the driver itself writes to."""
        if self.place == Place.VIDEO or size_bytes <= HIDDEN_BYTES:
            return self.alloc(size_bytes, name)
        area = self._own_region(size_bytes, Place.SYSTEM)
        made = Buffer(self, area.va, size_bytes, area.size_bytes, 0, name)
        made.parent = made  # it is the driver's: dropping it gives nothing to the pool
        for observer in self.observers:
            observer.alloc(area.va, size_bytes, area.size_bytes, name)
        return made

    def unmap_memory(self, va: int, size_bytes: int) -> None:
        what = self.gpu_memory.live[va]
        self.gpu_memory.free(what)
        if what.place == Place.PRIVATE:
            with self.lock:
                self._hidden.remove(va)

    def _is_hidden(self, va: int) -> bool:
        """Whether an address is in memory that the host does not see."""
        if not self._hidden:
            return False
        at = bisect.bisect_right(self._hidden, va) - 1
        what = self.gpu_memory.live.get(self._hidden[at]) if at >= 0 else None
        return what is not None and va < what.va + what.size_bytes

    def view_memory(self, va: int, size_bytes: int, owner: object) -> memoryview:
        """Device memory as the host sees it. Raises UsageError where it does not."""
        if self._is_hidden(va):
            raise UsageError(
                f"{owner!r}.host: the host does not see this memory ({self.why_host_memory}). Use read and write."
            )
        return native.view(va, size_bytes, owner)

    def write_memory(self, va: int, data: Any, size_bytes: int) -> None:
        """Bytes of the host into device memory; through the copy engine where the host does not see it."""
        if not self._is_hidden(va):
            native.write(va, data, size_bytes)
            return
        with self.lock:
            self._staging().send(va, data, size_bytes)

    def _is_staged(self, va: int, size_bytes: int) -> bool:
        return super()._is_staged(va, size_bytes) or self._is_hidden(va)
