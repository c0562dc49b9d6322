"""Where UVM maps allocations of the resource manager for a process's GPUs, as its calls say.

In       ioctls of /dev/nvidia-uvm as they return
Out      Mapped, Unmapped
Changes  which ranges of addresses the process has made
Next     reader.py (buffers of a device), hcq/tools/trace/tracer/rm.py (where to read a ring)
Source   uvm_ioctl.h; hcq/nv/abi/uvm_structs.py. UVM_FREE names a range by its beginning, from 590 on by nothing else
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hcq.events.kernel_observer import Call
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.uvm_structs import (
    UvmCreateExternalRange,
    UvmFree,
    UvmFree550,
    UvmMapExternalAllocation,
    UvmUnmapExternal,
)

UUID_BYTES = 16
ATTRIBUTES_AT, ATTRIBUTE_BYTES = 24, 36  # of one GPU in UVM_MAP_EXTERNAL_ALLOCATION
MAX_GPUS = 256


class Mapped(NamedTuple):
    """An allocation, by its client and handle, is at this address of these GPUs (UUIDs)."""

    base: int
    size_bytes: int
    memory: tuple[int, int]
    offset: int
    gpus: tuple[bytes, ...]


class Unmapped(NamedTuple):
    """Nothing is left there, of one GPU or (None) of all."""

    base: int
    end: int
    gpu: bytes | None


class Ranges:
    """The ranges that one process has made for allocations: where each begins and how long it is."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._calls: dict[int, Callable[[bytes], Mapped | Unmapped | None]] = {
            abi.UVM_CREATE_EXTERNAL_RANGE.request: self._created,
            abi.UVM_MAP_EXTERNAL_ALLOCATION.request: self._mapped,
            abi.UVM_UNMAP_EXTERNAL.request: self._unmapped,
            abi.UVM_FREE.request: self._freed,
        }

    def change(self, call: Call) -> Mapped | Unmapped | None:
        """What a call changed, if it did and was not refused."""
        act = self._calls.get(call.request)
        return None if act is None or call.error else act(call.after)

    def _created(self, raw: bytes) -> None:
        made = UvmCreateExternalRange.from_bytes(raw)
        if not made.rmstatus:
            self._sizes[made.base] = made.length

    def _mapped(self, raw: bytes) -> Mapped | None:
        made = UvmMapExternalAllocation.from_bytes(raw)
        if made.rmstatus:
            return None
        starts = range(ATTRIBUTES_AT, len(raw), ATTRIBUTE_BYTES)[: min(made.gpuattributescount, MAX_GPUS)]
        gpus = tuple(raw[at : at + UUID_BYTES] for at in starts)
        return Mapped(made.base, made.length, (made.hclient, made.hmemory), made.offset, gpus)

    def _unmapped(self, raw: bytes) -> Unmapped | None:
        gone = UvmUnmapExternal.from_bytes(raw)
        gpu = gone.gpuuuid.to_bytes(UUID_BYTES, "little")
        return None if gone.rmstatus else Unmapped(gone.base, gone.base + gone.length, gpu)

    def _freed(self, raw: bytes) -> Unmapped | None:
        layout = UvmFree550 if len(raw) >= UvmFree550.size_bytes else UvmFree
        gone = layout.from_bytes(raw)
        if gone.rmstatus:
            return None
        return Unmapped(gone.base, gone.base + self._sizes.pop(gone.base, 1), None)
