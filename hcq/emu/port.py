"""EmulatedPort: an operating system with emulated kernel drivers beside the real one.

In       words of HCQ_EMULATE such as "amd:gfx1100"; then the calls of a Port
Out      what the real driver would answer, refusals with the same errno included
Changes  the emulated drivers and their GPUs; everything that is not theirs goes to the real operating system
Next     kernel.py (what an emulated driver is), amd/kfd.py (the emulated KFD), nv/rm.py (NVIDIA's resource
         manager), hcq/system/port.py (what a Port is)

    amd:gfx1100             one GPU of that architecture; the same word twice makes two
    nv:sm_90:seed=7         the GPU works asynchronously: random delays, and queues and unordered work in random order
    amd:gfx1100:private     the host sees none of the GPU's memory (no large BAR)
    amd:gfx1100:caches      what is not acquired is old, what is not released is hidden
    amd:gfx1100:cu=8        an AMD GPU with so many compute units in each XCC, and not as many as such a GPU has
    nv:sm_90:drift=50       its clock gains 50 ns in a millisecond of the host's
    amd:gfx1100:kfd=1.14    its kernel driver's interface has this version

A driver runs on this port with the very code that runs on hardware: doorbells are stores to mapped memory.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from hcq.emu.kernel import File, Kernel, OwnProcess, Refusal
from hcq.emu.machine import kernels_for, resolved
from hcq.system.port import LinuxPort, Port, refused


class EmulatedPort(Port):
    r"""A Port. `kernels` are asked in order; the real operating system gets what none of them knows.

    >>> from hcq.amd.device import AmdDevice
    >>> gpu = AmdDevice("AMD", port_for(["amd:gfx1100"]))
    >>> data = gpu.alloc(4, "data")
    >>> gpu.queue().fill(data, 7).submit().wait()
    >>> data.read()
    b'\x07\x07\x07\x07'
    >>> gpu.close()
    """

    runs_ptx = True  # machine code of NVIDIA's is not emulated

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.kernels = list(kernels)
        self.real = LinuxPort()
        self.files: dict[int, File] = {}
        self.process = OwnProcess(os.getpid(), self.files)
        weakref.finalize(self, _end_process, self.kernels, self.process).atexit = False

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        for kernel in self.kernels:
            try:
                file = kernel.open(path, self.process)
            except Refusal as refusal:
                raise refused(f"open({path})", refusal.number) from None
            if file is not None:
                return self.process.install(file, 0, 0)
        return self.real.open(path, flags)

    def close(self, fd: int) -> None:
        file = self.files.pop(fd, None)
        if file is None:
            self.real.close(fd)
        else:
            file.close()

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        file = self.files.get(fd)
        if file is None:
            return self.real.ioctl(fd, request, argument)
        call = f"ioctl(fd={fd}, request={request:#x})"
        if os.getpid() != self.process.pid:  # a driver's files belong to the process that opened them
            raise refused(call, errno.EBADF)
        try:
            return file.ioctl(request, argument, self.process)
        except Refusal as refusal:
            raise refused(call, refusal.number) from None

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, fd: int = -1, offset: int = 0) -> int:
        file = self.files.get(fd)
        if file is None:
            return self.real.mmap(va, size_bytes, prot, flags, fd, offset)
        try:
            return file.mmap(va, size_bytes, prot, flags, offset & 2**64 - 1)
        except Refusal as refusal:
            call = f"mmap(size_bytes={size_bytes}, prot={prot:#x}, flags={flags:#x}, fd={fd})"
            raise refused(call, refusal.number) from None

    def munmap(self, va: int, size_bytes: int) -> None:
        self.real.munmap(va, size_bytes)

    def mprotect(self, va: int, size_bytes: int, prot: int) -> None:
        self.real.mprotect(va, size_bytes, prot)

    def madvise(self, va: int, size_bytes: int, advice: int) -> None:
        self.real.madvise(va, size_bytes, advice)

    def invoke(self, library: str, function: str, encoding: str, *arguments: Any) -> Any:
        for kernel in self.kernels:
            if library in kernel.libraries:
                return kernel.invoke(library, function, encoding, *arguments)
        return self.real.invoke(library, function, encoding, *arguments)

    def pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
        file = self.files.get(fd)
        if file is None:
            return self.real.pread(fd, size_bytes, offset)
        try:
            return file.pread(size_bytes, offset)
        except Refusal as refusal:
            call = f"pread(fd={fd}, size_bytes={size_bytes}, offset={offset:#x})"
            raise refused(call, refusal.number) from None

    def read_file(self, path: str) -> bytes:
        for kernel in self.kernels:
            files = kernel.files()
            at = resolved(path, {name: what for name, what in files.items() if isinstance(what, str)})[0]
            found = files.get(at)
            if isinstance(found, bytes):
                return found
            if now := kernel.live().get(at):
                return now()
            if at.startswith(kernel.folders):
                raise refused(f"read({path})", errno.ENOENT)
        return self.real.read_file(path)

    def clock_ns(self) -> int:
        return self.real.clock_ns()

    def kernel_log(self) -> list[str]:
        """What the emulated drivers have logged: page faults, hangs, packets that make no sense."""
        return [line for kernel in self.kernels for line in kernel.log()]


def _end_process(kernels: Sequence[Kernel], process: OwnProcess) -> None:
    """Nobody has the system any more: to its drivers the process has ended, and so do its queues and their threads.

    In a thread: destructors run at any moment, while a driver holds its locks, too.
    """

    def end() -> None:
        for kernel in kernels:
            kernel.exit(process)

    if process.pid == os.getpid() and not sys.is_finalizing():
        threading.Thread(target=end, name="end of an emulated system", daemon=True).start()


def port_for(words: Sequence[str]) -> EmulatedPort:
    """The port of these words of HCQ_EMULATE, one for all devices of the process.

    words   such as "amd:gfx1100", one for each GPU
    Raises  UsageError naming what is wrong with a word
    """
    key = tuple(words), os.getpid()
    port = _ports.get(key)
    if port is None:
        port = _ports.setdefault(
            key, EmulatedPort(kernels_for(words))
        )  # of threads that ask at once, all get one
    return port


_ports: dict[tuple[tuple[str, ...], int], EmulatedPort] = {}
