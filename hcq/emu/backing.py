"""Backing: what stands behind an allocation of an emulated kernel driver.

In       sizes
Out      Backing: the bytes as an array, and as a mapping wherever the host asks for one
Changes  one anonymous file of the process, in which all of them lie: an allocation costs no descriptor
Next     amd/memory.py, nv/memory.py (what maps them for GPUs), pages.py (memory that the host never maps)

Places in the file are used again, and their pages go back to the system when nobody reads them any more. A child of
fork makes a file of its own: this one is its parent's, and the child neither writes to it nor gives back any of it.
"""

from __future__ import annotations

import os
import threading
import weakref

import numpy as np
from numpy.typing import NDArray

from hcq import native
from hcq.port import MAP_SHARED, PAGE_BYTES, PROT_READ, PROT_WRITE, LinuxPort, refused

MADV_REMOVE = 9  # the file has a hole there from now on


class _File:
    """The anonymous file, and which parts of it are unused: size -> offsets."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.fd = -1
        self.size_bytes = 0
        self.unused: dict[int, list[int]] = {}
        self.lock = threading.Lock()

    def take(self, size_bytes: int) -> int:
        """The offset of a part that is all zeros."""
        with self.lock:
            known = self.unused.get(size_bytes)
            if known:
                return known.pop()
            try:
                if self.fd < 0:
                    self.fd = os.memfd_create("emulated GPU memory", os.MFD_CLOEXEC)
                os.ftruncate(self.fd, self.size_bytes + size_bytes)
            except OSError as error:
                raise refused(f"memfd of {self.size_bytes + size_bytes} bytes", error.errno or 0) from None
            at = self.size_bytes
            self.size_bytes += size_bytes
            return at

    def give_back(self, at: int, size_bytes: int) -> None:
        """Safe in destructors, which may run inside `take`: it takes no lock."""
        self.unused.setdefault(size_bytes, []).append(at)


_file = _File()
_port = LinuxPort()


class _Mapped:
    """The emulator's own mapping of a part: gone with the last array that reads it."""

    def __init__(self, size_bytes: int) -> None:
        self.file = _file
        self.at = self.file.take(size_bytes)
        try:
            self.va = _port.mmap(0, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, self.file.fd, self.at)
        except BaseException:
            self.file.give_back(self.at, size_bytes)
            raise
        weakref.finalize(self, _give_back, self.file, self.va, self.at, size_bytes).atexit = False


def _give_back(file: _File, va: int, at: int, size_bytes: int) -> None:
    if file.process == os.getpid():  # else this is a child's copy of what its parent uses
        _port.madvise(va, size_bytes, MADV_REMOVE)
        file.give_back(at, size_bytes)
    _port.munmap(va, size_bytes)


class Backing:
    """Shared memory, zeroed: `data` here, and a mapping wherever the host wants one."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._mapped = mapped = _Mapped(-(-size_bytes // PAGE_BYTES) * PAGE_BYTES)
        self.data: NDArray[np.uint8] = np.frombuffer(native.view(mapped.va, size_bytes, mapped), np.uint8)

    def map_host(self, va: int, size_bytes: int, prot: int, flags: int, offset: int = 0) -> int:
        """Map a part of it, page-aligned, into the process; MAP_FIXED is honoured."""
        mapped = self._mapped
        seen = prot & (PROT_READ | PROT_WRITE)
        return _port.mmap(va, size_bytes, seen, flags | MAP_SHARED, mapped.file.fd, mapped.at + offset)


def _after_fork() -> None:
    global _file
    if _file.fd >= 0:
        os.close(_file.fd)  # the child's copy of the descriptor
    _file = _File()


os.register_at_fork(after_in_child=_after_fork)
