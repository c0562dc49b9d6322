"""Backing: what stands behind an allocation of an emulated kernel driver.

In       sizes
Out      Backing: the bytes as an array, and as a mapping wherever the host asks for one
Changes  an anonymous file in which many of them lie: an allocation costs no descriptor
Next     amd/memory.py, nv/memory.py (what maps them for GPUs), pages.py (memory that the host never maps)

What other processes map, too, lies in the file of the device node that they map it through: its descriptor is what they
were given for the node, and the offset of their mmap is the offset there. All the rest shares one file of the process.
Such a file has its whole size from the beginning and is sealed: whoever has the descriptor can make it neither shorter
nor longer, so the emulator's own mappings stay what they are. Pages that nobody has touched take no memory.

Places in a file are used again, and their pages go back to the system when nobody reads them any more. A child of
fork makes a file of its own: this one is its parent's, and the child neither writes to it nor gives back any of it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import weakref

import numpy as np
from numpy.typing import NDArray

from hcq.system import native
from hcq.system.port import MAP_SHARED, PAGE_BYTES, PROT_READ, PROT_WRITE, LinuxPort, refused

MADV_REMOVE = 9  # the file has a hole there from now on
NODE_BYTES = 1 << 46  # of a device node's file: room for all that processes ever have at once
F_ADD_SEALS, SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_WRITE = 1033, 1, 2, 4, 8  # linux/fcntl.h


class DeviceMemory:
    """An anonymous file, and which parts of it are unused: size -> offsets. It takes a descriptor when first used.

    name           what /proc/PID/maps shows
    sealed_bytes   of a file that others get a descriptor of: its size for good. None: it grows, and nobody gets one
    """

    def __init__(self, name: str = "emulated GPU memory", sealed_bytes: int | None = None) -> None:
        self.name, self.sealed_bytes = name, sealed_bytes
        self.process = os.getpid()
        self.size_bytes = 0
        self.unused: dict[int, list[int]] = {}
        self.lock = threading.Lock()
        self._fd = -1
        _all.add(self)

    @property
    def fd(self) -> int:
        """Its descriptor."""
        with self.lock:
            return self._open()

    def _open(self) -> int:
        if self._fd < 0:
            try:
                self._fd = sealed_file(self.name, self.sealed_bytes)
            except OSError as error:
                raise refused(f"memfd_create({self.name!r})", error.errno or 0) from None
            weakref.finalize(self, _close, self.process, self._fd).atexit = False
        return self._fd

    def take(self, size_bytes: int, multiple_of: int = PAGE_BYTES) -> int:
        """The offset of a part that is all zeros: used before, or else at a multiple of so many bytes."""
        with self.lock:
            known = self.unused.get(size_bytes, [])
            at = next((at for at in reversed(known) if at % multiple_of == 0), -1)
            if at >= 0:
                known.remove(at)
                return at
            at = -(-self.size_bytes // multiple_of) * multiple_of
            if self.sealed_bytes is not None and at + size_bytes > self.sealed_bytes:
                raise refused(f"{self.name!r}: {size_bytes} more bytes", errno.ENOMEM)
            try:
                fd = self._open()
                if self.sealed_bytes is None:
                    os.ftruncate(fd, at + size_bytes)
            except OSError as error:
                raise refused(f"memfd of {at + size_bytes} bytes", error.errno or 0) from None
            self.size_bytes = at + size_bytes
            return at

    def give_back(self, at: int, size_bytes: int) -> None:
        """Safe in destructors, which may run inside `take`: it takes no lock."""
        self.unused.setdefault(size_bytes, []).append(at)


def sealed_file(name: str, size_bytes: int | None, is_written: bool = True) -> int:
    """An anonymous file whose descriptor others may have: nobody changes its size. Raises OSError.

    size_bytes   None: an empty file that may grow, for nobody else
    is_written   whether it can be written and mapped for writing
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    if size_bytes is None:
        return fd
    try:
        os.ftruncate(fd, size_bytes)
        seals = SEAL_SHRINK | SEAL_GROW | (0 if is_written and size_bytes else SEAL_WRITE)
        fcntl.fcntl(fd, F_ADD_SEALS, seals | SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _close(process: int, fd: int) -> None:
    if process == os.getpid():  # a child of fork has closed its copy
        os.close(fd)


_all: weakref.WeakSet[DeviceMemory] = weakref.WeakSet()
_memory = DeviceMemory()
_port = LinuxPort()


class _Mapped:
    """The emulator's own mapping of a part: gone with the last array that reads it."""

    def __init__(self, file: DeviceMemory, size_bytes: int, multiple_of: int) -> None:
        self.file = file
        self.at = file.take(size_bytes, multiple_of)
        try:
            self.va = _port.mmap(0, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, self.file.fd, self.at)
        except BaseException:
            self.file.give_back(self.at, size_bytes)
            raise
        weakref.finalize(self, _give_back, self.file, self.va, self.at, size_bytes).atexit = False


def _give_back(file: DeviceMemory, va: int, at: int, size_bytes: int) -> None:
    if file.process == os.getpid():  # else this is a child's copy of what its parent uses
        _port.madvise(va, size_bytes, MADV_REMOVE)
        file.give_back(at, size_bytes)
    _port.munmap(va, size_bytes)


class Backing:
    """Shared memory, zeroed: `data` here, and a mapping wherever the host wants one.

    memory        the file in which it lies: a device node's, or else the one that is shared
    multiple_of   what its offset there is a multiple of
    offset        that offset
    """

    def __init__(
        self, size_bytes: int, memory: DeviceMemory | None = None, multiple_of: int = PAGE_BYTES
    ) -> None:
        self.size_bytes = size_bytes
        whole = -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
        self._mapped = mapped = _Mapped(memory or _memory, whole, multiple_of)
        self.offset = mapped.at
        self.memory = memory
        self.data: NDArray[np.uint8] = np.frombuffer(native.view(mapped.va, size_bytes, mapped), np.uint8)

    def map_host(self, va: int, size_bytes: int, prot: int, flags: int, offset: int = 0) -> int:
        """Map a part of it, page-aligned, into the process; MAP_FIXED is honoured."""
        mapped = self._mapped
        seen = prot & (PROT_READ | PROT_WRITE)
        return _port.mmap(va, size_bytes, seen, flags | MAP_SHARED, mapped.file.fd, mapped.at + offset)


def _after_fork() -> None:
    global _memory
    for memory in list(_all):
        if memory._fd >= 0:
            os.close(memory._fd)  # the child's copy of the descriptor
            memory._fd = -1
    _memory = DeviceMemory()


os.register_at_fork(after_in_child=_after_fork)
