"""Host: what tensors hold, as arrays of the host that MPI can send, and back.

In       buffers of any device
Out      `Reader`, `Writer`: a buffer's bytes piece by piece as arrays
Changes  staging buffers in the host's memory, two for each direction of a device that needs them
Next     collectives.py (who uses it), hcq/gpu/staging.py (the same for single reads), hcq/work/peers.py (second
         channels)

Memory that the host has itself, as the CPU device's, is one piece and is not copied. Of any other the device copies
pieces to or from memory of the host, on a second channel beside its kernels where it has one: while one piece is on
the network the next is being copied. The host waits before the first copy and after the last one, so that the
device's own work and these copies need no other order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hcq.lifetime import open_devices
from hcq.work.peers import PeerQueue, companion

PIECE_BYTES = 4 << 20
SLOTS = 2

Array = Any

_stages: dict[int, dict[str, list[_Slot]]] = {}  # by id of a device
open_devices.listeners.append(lambda device: _stages.pop(id(device), None))


class _Slot:
    """A buffer of the host that the device can copy from and to, and the copy that used it last."""

    def __init__(self, device: Any, name: str) -> None:
        self.device = device
        self.buffer = device.host_memory(PIECE_BYTES, f"staging of {name}")
        self.array = np.frombuffer(self.buffer.host, np.uint8)
        self.last: Any = None

    def copy(self, to: Any, source: Any, size_bytes: int) -> None:
        """Let the device begin to copy."""
        self.last = PeerQueue(companion(self.device)).copy(to, source, size_bytes).submit()

    def settle(self) -> None:
        """The last copy is done."""
        if self.last is not None:
            self.last.wait()
            self.last = None


def pieces(size_bytes: int, device: Any, unit_bytes: int = 1) -> Iterator[tuple[int, int]]:
    """Where the pieces of a buffer begin and how long they are: multiples of a unit, one piece for host memory."""
    step = size_bytes if device.is_host_memory else max(unit_bytes, PIECE_BYTES // unit_bytes * unit_bytes)
    for at in range(0, size_bytes, max(1, step)):
        yield at, min(step, size_bytes - at)


class Reader:
    """A buffer's bytes, piece by piece; the next piece is being copied while one is used."""

    def __init__(self, buffer: Any) -> None:
        self.buffer, self.device = buffer, buffer.device
        self.is_direct = self.device.is_host_memory
        self.begun: dict[int, _Slot] = {}
        self.turn = 0
        buffer.wait()
        if self.is_direct:
            self.whole = np.frombuffer(buffer.host, np.uint8)

    def begin(self, at: int, size_bytes: int) -> None:
        """Let the device begin to copy a piece."""
        if self.is_direct or at in self.begun or not size_bytes:
            return
        self.turn += 1
        slot = _slots(self.device, "reads")[self.turn % SLOTS]
        slot.settle()
        slot.copy(slot.buffer, self.buffer.view(at, size_bytes), size_bytes)
        self.begun[at] = slot

    def get(self, at: int, size_bytes: int) -> Array:
        """A piece; it is good until the piece after the next has been begun. Waits for it."""
        if self.is_direct:
            return self.whole[at : at + size_bytes]
        self.begin(at, size_bytes)
        slot = self.begun.pop(at)
        slot.settle()
        return slot.array[:size_bytes]


class Writer:
    """Puts pieces of bytes into a buffer; the copy of one goes on while the next is made. Ends with `finish`."""

    def __init__(self, buffer: Any) -> None:
        self.buffer, self.device = buffer, buffer.device
        self.is_direct = self.device.is_host_memory
        self.turn = 0
        buffer.wait()
        if self.is_direct:
            self.whole = np.frombuffer(buffer.host, np.uint8)

    def place(self, at: int, size_bytes: int) -> Array:
        """An array for a piece to be made in: the buffer itself, or a staging buffer. Then call `put`."""
        if self.is_direct:
            return self.whole[at : at + size_bytes]
        self.turn += 1
        slot = _slots(self.device, "writes")[self.turn % SLOTS]
        slot.settle()
        return slot.array[:size_bytes]

    def put(self, at: int, size_bytes: int) -> None:
        """The piece is in its place: let the device copy it."""
        if self.is_direct or not size_bytes:
            return
        slot = _slots(self.device, "writes")[self.turn % SLOTS]
        slot.copy(self.buffer.view(at, size_bytes), slot.buffer, size_bytes)

    def copy(self, at: int, array: Array) -> None:
        """Put bytes of another array."""
        step = max(1, array.size if self.is_direct else PIECE_BYTES)
        for start in range(0, array.size, step):
            part = array[start : start + step]
            self.place(at + start, part.size)[:] = part
            self.put(at + start, part.size)

    def finish(self) -> None:
        """Everything that was put is in the buffer: work of the device that is submitted from now on finds it."""
        if not self.is_direct:
            for slot in _slots(self.device, "writes"):
                slot.settle()


def _slots(device: Any, name: str) -> list[_Slot]:
    stages = _stages.setdefault(id(device), {})
    if name not in stages:
        stages[name] = [_Slot(device, name) for _ in range(SLOTS)]
    return stages[name]
