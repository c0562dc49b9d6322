"""External memory: a device's buffer over memory that other code owns, such as an array of another library.

In       an address that the device can access, and a function that releases the memory
Out      a Buffer at this address
Changes  `Pool.owners` lists the buffer, so that faults and reports can name it
Next     memory.py (buffers that the device allocates), hcq.frontend's io/dlpack.py (arrays of other libraries)

A destructor may drop the buffer while submitted work uses it, and a destructor does not wait. So the memory is released
at the first garbage collection after the work is done. After a reset that abandoned work which may still write there,
it is never released.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable

from hcq.base import Base
from hcq.memory import Buffer

Release = Callable[[], object]

# dropped while work used them: the device, its last submission that did, whom to tell
_waiting: deque[tuple[Base, int, Release]] = deque()


class Lender(Buffer):
    """The whole of such memory; it keeps the notes of the buffers that are views of it."""

    __slots__ = ("release",)
    release: Release

    def __del__(self) -> None:
        device, address = self.device, self.address
        device.memory.disown(self)
        for observer in device.observers:
            observer.free(address, self.capacity)
        if address in device.memory.quarantined:
            return
        last = device.timeline.submitted if self.is_recorded else max(self.last, self.fence)
        if _is_done(device, last):
            self.release()
        else:
            _waiting.append((device, last, self.release))


def lend(device: Base, address: int, size_bytes: int, name: str, release: Release) -> Buffer:
    """A buffer in memory of the host that stays somebody else's; `release` is called once nothing uses it any more.

    Memory that lies in a buffer already is a view of that one, so that work on both keeps its order.
    """
    end = address + size_bytes
    known: Buffer
    for known in device.memory.owners():
        if known.address <= address and end <= known.address + known.size_bytes:
            release()  # that buffer keeps it
            return known.view(address - known.address, size_bytes)
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)
    lender = Lender(device, address, size_bytes, size_bytes, 0, name)
    lender.release = release
    device.memory.adopt(lender)
    for observer in device.observers:
        observer.alloc(address, size_bytes, size_bytes, name)
        observer.exposed(address)
    return lender.view(0, size_bytes)


def _is_done(device: Base, value: int) -> bool:
    return bool(device.dead) or device.timeline.has_reached(value)


def _collected(phase: str, _: object) -> None:
    """After a garbage collection: tell those whose memory is used no more."""
    if phase != "stop" or not _waiting:
        return
    for _ in range(len(_waiting)):
        try:
            device, value, release = _waiting.popleft()
        except IndexError:
            return
        if _is_done(device, value):
            release()
        else:
            _waiting.append((device, value, release))
