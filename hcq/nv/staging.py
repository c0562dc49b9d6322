"""Staging: what the GPU's memory holds comes to the host through the copy engine, and not by loads through the BAR.

In       addresses of device memory that is settled
Out      its bytes
Changes  a buffer of host memory, made when the first large read comes
Next     device.py (who asks), hcq/memory.py (Buffer.read)

Loads through BAR1 are not cached and wait for each other. Stores are combined and fast, so writing needs no detour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq import command, native
from hcq.memory import Buffer

if TYPE_CHECKING:
    from hcq.nv.device import NvDevice

STAGE_BYTES = 4 << 20
WORTH_BYTES = 16 << 10  # shorter reads are done before a copy has started


class Stage:
    """Host memory that the copy engine writes and the host reads. The caller holds the device's lock."""

    def __init__(self, device: NvDevice, area_va: int) -> None:
        self.device = device
        self.buffer = Buffer(device, area_va, STAGE_BYTES, STAGE_BYTES, 0, "staging")
        self.buffer.parent = self.buffer  # it is the driver's: dropping it gives nothing to the pool
        if device.trace is not None:
            device.trace.alloc(self.buffer)
        if device.validator is not None:
            device.validator.alloc(self.buffer)

    def fetch(self, va: int, target: Any, size_bytes: int) -> None:
        """Copy bytes of device memory into a contiguous writable buffer of the host."""
        place = memoryview(target).cast("B")
        source = self.buffer.address
        for at in range(0, size_bytes, STAGE_BYTES):
            size = min(STAGE_BYTES, size_bytes - at)
            what = command.Copy(source, va + at, size)
            self.device.submit([self.device.encode(what)], [what]).wait()
            native.read_into(source, place[at : at + size], size)
