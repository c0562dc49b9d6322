"""Addresses: where memory of NVIDIA GPUs lies, the same for host and GPUs, reserved so that nobody else takes it.

In       sizes
Out      POOL: address ranges that are mapped as nothing; whoever maps memory there uses MAP_FIXED
Changes  the process's mappings: regions of 4 GiB, reserved when the first address of one is needed
Next     memory.py (what is mapped there), channel.py (the window for context buffers)
Source   clc6c0.h: pushbuffers, QMDs and semaphores have 40-bit addresses; SET_SHADER_LOCAL_MEMORY_WINDOW

    0x00_ff00_0000   16 MiB   local memory window: kernels reach their own stack there
    0x04_0000_0000    4 GiB   shared memory window, of which kernels reach a part through generic addresses
    0x06_0000_0000            buffers, up to 2**40

After each range a page stays mapped as nothing, for host and GPUs: what runs over the end of an allocation faults, and
does not write into the next one.

Nothing may lie in the two windows: an access there would not go to memory. The shared one is reserved, too, so that
no mapping of the process gets in; the local one lies where the kernel puts no mapping that it was not asked for.
"""

from __future__ import annotations

import os
import threading

from hcq.errors import DriverError
from hcq.gpu.memory import GUARD_BYTES, HUGE_BYTES
from hcq.system.port import MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PAGE_BYTES, PROT_NONE, Port

LOCAL_WINDOW, LOCAL_WINDOW_BYTES = 0xFF000000, 16 << 20
SHARED_WINDOW, SHARED_WINDOW_BYTES = 0x4_0000_0000, 4 << 30
POOL_START, POOL_END = 0x6_0000_0000, 1 << 40
REGION_BYTES = 4 << 30
MAP_FIXED_NOREPLACE = 0x100000
_FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE


class AddressPool:
    """Ranges of the process, first fit. `free` lists (start, end) of what is reserved and unused, by address."""

    def __init__(self) -> None:
        self.free: list[tuple[int, int]] = []
        self.next = POOL_START
        self.is_window_reserved = False
        self._lock = threading.RLock()  # a call that was interrupted while it had it may come again

    def take(self, port: Port, size_bytes: int, alignment: int = 0) -> int:
        """A range of whole pages, aligned so that large pages can be used. Raises DriverError when there is none."""
        size = _with_guard(size_bytes)
        step = alignment or (HUGE_BYTES if size_bytes >= HUGE_BYTES else PAGE_BYTES)
        with self._lock:
            while True:
                for index, (start, end) in enumerate(self.free):
                    at = -(-start // step) * step
                    if at + size <= end:
                        self.free[index : index + 1] = [
                            piece for piece in ((start, at), (at + size, end)) if piece[0] < piece[1]
                        ]
                        return at
                self._grow(port, size)

    def give_back(self, port: Port, va: int, size_bytes: int) -> None:
        """The range is unused again; whatever was mapped there is gone."""
        size = _with_guard(size_bytes)
        port.mmap(va, size, PROT_NONE, _FLAGS | MAP_FIXED)
        with self._lock:
            joined: list[tuple[int, int]] = []
            for start, end in sorted([*self.free, (va, va + size)]):
                if joined and joined[-1][1] == start:
                    joined[-1] = joined[-1][0], end
                else:
                    joined.append((start, end))
            self.free = joined

    def after_fork(self) -> None:
        """In the child: another thread of the parent may have had the lock."""
        self._lock = threading.RLock()

    def _grow(self, port: Port, size: int) -> None:
        """Reserve one more region; places where something else already lies are passed over."""
        if not self.is_window_reserved:
            _reserve(port, SHARED_WINDOW, SHARED_WINDOW_BYTES)
            self.is_window_reserved = True
        wanted = -(-size // REGION_BYTES) * REGION_BYTES
        while self.next + wanted <= POOL_END:
            at = self.next
            self.next += wanted
            try:
                _reserve(port, at, wanted)
            except DriverError:
                continue
            if self.free and self.free[-1][1] == at:
                self.free[-1] = self.free[-1][0], at + wanted
            else:
                self.free.append((at, at + wanted))
            return
        raise DriverError(
            f"alloc({size}): no addresses are left between {POOL_START:#x} and {POOL_END:#x}. Free some buffers."
        )


POOL = AddressPool()  # addresses are the process's, however many operating systems are emulated in it
os.register_at_fork(after_in_child=POOL.after_fork)


def _with_guard(size_bytes: int) -> int:
    """The range in whole pages, and GUARD_BYTES behind it."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES + GUARD_BYTES


def _reserve(port: Port, va: int, size: int) -> None:
    """Map nothing at exactly this place. Raises DriverError when something is there."""
    got = port.mmap(va, size, PROT_NONE, _FLAGS | MAP_FIXED_NOREPLACE)
    if got != va:  # kernels before 4.17 take the address as a hint
        port.munmap(got, size)
        raise DriverError(f"mmap({va:#x}, {size}): something else of this process is there.")
