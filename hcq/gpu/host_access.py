"""Host access to a GPU's memory: directly through the PCIe BAR where it covers it, otherwise by the copy engine.

In       what the host sees; sizes of buffers; bytes to write and read
Out      HostAccess, the part of a device that places memory and moves bytes
Changes  allocations; a staging buffer
Next     staging.py (copies), memory.py (allocations), hcq/amd/device.py and hcq/nv/device.py (the rest of the device)

Where the host sees all of the GPU's memory, buffers are there. Where it does not (no Resizable BAR, some virtual
machines), small buffers are in the host's memory, and large ones are in the GPU's, where the host does not see them:
what it writes and reads there is copied. A trace with data looks into every buffer, so then all are the host's.
"""

from __future__ import annotations

import bisect
from typing import Any, ClassVar

from hcq.errors import UsageError
from hcq.gpu.device import GpuDevice
from hcq.memory import SLAB_BYTES, Buffer
from hcq.system import native

HIDDEN_BYTES = SLAB_BYTES  # larger buffers may be where the host does not see them


class HostAccess(GpuDevice):
    """A device whose memory the host may see in part.

    seen_place    the GPU's memory, where the host sees it; hidden_place: where it does not
    stage_place   the host's memory
    place         of the driver's own memory and of small buffers: seen_place or stage_place
    """

    seen_place: ClassVar[Any]
    hidden_place: ClassVar[Any]
    place: Any
    why_host_memory = ""

    def _begin_access(self, why: str = "", fix: str = "turn on Resizable BAR to change that") -> None:
        """Before buffers are allocated. `why` the host does not see all of the GPU's memory, "" when it does."""
        self._hidden: list[int] = []  # where memory starts that the host does not see, in order
        self.place = self.stage_place if why else self.seen_place
        if why:
            large = (
                "in the host's too" if self.config.trace_data else "copied when the host writes or reads them"
            )
            self.why_host_memory = f"{why}: small buffers are in the host's, large ones are {large}; {fix}"

    @property
    def is_slow_to_read(self) -> bool:
        return bool(self.place == self.seen_place)

    def memory_facts(self) -> dict[str, str]:
        """Where buffers are, for `facts()`: one place or "mixed", and why."""
        is_one = self.place == self.seen_place or self.config.trace_data
        why = {"why_host_memory": self.why_host_memory} if self.why_host_memory else {}
        return {"memory": self.place.name.lower() if is_one else "mixed", **why}

    def map_memory(self, size_bytes: int) -> int:
        if self.place == self.seen_place or size_bytes <= HIDDEN_BYTES or self.config.trace_data:
            return int(self.gpu_memory.alloc(size_bytes, self.place).va)
        va = int(self.gpu_memory.alloc(size_bytes, self.hidden_place).va)
        with self.lock:
            bisect.insort(self._hidden, va)
        return va

    def visible(self, size_bytes: int, name: str) -> Buffer:
        """A buffer that the host sees, whatever its size: what the driver itself writes to."""
        if self.place == self.seen_place or size_bytes <= HIDDEN_BYTES:
            return self.alloc(size_bytes, name)
        return self.host_memory(size_bytes, name)

    def unmap_memory(self, va: int, size_bytes: int) -> None:
        what = self.gpu_memory.live[va]
        self.gpu_memory.free(what)
        if what.place == self.hidden_place:
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
