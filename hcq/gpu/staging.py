"""Staging: reads and writes of GPU memory through the copy engine and a buffer in host memory.

In       addresses of device memory that is settled; bytes of the host
Out      the memory's bytes; memory that holds the host's
Changes  a buffer of host memory, made when it is first needed
Next     device.py (who asks), hcq/memory.py (Buffer.read)

Loads through the PCIe window are not cached and wait for each other: tens of megabytes a second. Stores are combined
and fast, so writing needs no detour where the window shows the memory.
"""

from __future__ import annotations

from typing import Any

from hcq import command
from hcq.device import Device
from hcq.memory import Buffer
from hcq.system import native

STAGE_BYTES = 4 << 20
WORTH_BYTES = 16 << 10  # shorter reads are done before a copy has started


class Stage:
    """Host memory that the copy engine writes and the host reads. The caller holds the device's lock."""

    def __init__(self, device: Device, area_va: int) -> None:
        self.device = device
        self.buffer = Buffer(device, area_va, STAGE_BYTES, STAGE_BYTES, 0, "staging")
        self.buffer.parent = self.buffer  # it is the driver's: dropping it gives nothing to the pool
        for observer in device.observers:
            observer.alloc(area_va, STAGE_BYTES, STAGE_BYTES, "staging")

    def fetch(self, va: int, target: Any, size_bytes: int) -> None:
        """Copy bytes of device memory into a contiguous writable buffer of the host."""
        place = memoryview(target).cast("B")
        source = self.buffer.address
        for at in range(0, size_bytes, STAGE_BYTES):
            size = min(STAGE_BYTES, size_bytes - at)
            what = command.Copy(source, va + at, size)
            self.device.submit([self.device.encode(what)], [what]).wait()
            native.read_into(source, place[at : at + size], size)

    def send(self, va: int, data: Any, size_bytes: int) -> None:
        """Copy bytes of the host into device memory."""
        source = memoryview(data).cast("B")
        stage = self.buffer.address
        for at in range(0, size_bytes, STAGE_BYTES):
            size = min(STAGE_BYTES, size_bytes - at)
            native.write(stage, source[at : at + size], size)
            for observer in self.device.observers:
                observer.wrote(stage)
            what = command.Copy(va + at, stage, size)
            self.device.submit([self.device.encode(what)], [what]).wait()
