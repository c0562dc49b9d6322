"""tinygrad's door to the operating system, on an EmulatedPort.

In       an EmulatedPort
Out      tinygrad's FileIOInterface, opening, mapping and listing what the emulated kernel drivers have
Changes  tinygrad's modules in this process; before any of its drivers is imported
Next     amd.py, nv.py (what is beside the files), hcq/emu/port.py (who answers)
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any

from hcq.emu.port import EmulatedPort


def listing(port: EmulatedPort, folder: str) -> list[str]:
    """The names in a folder that an emulated driver shows."""
    below = folder.rstrip("/") + "/"
    names = {
        path[len(below) :].split("/")[0]
        for kernel in port.kernels
        for path in kernel.files()
        if path.startswith(below)
    }
    return sorted(names)


def install(port: EmulatedPort) -> None:
    """Make this port what tinygrad's drivers open their files through."""
    import tinygrad.runtime.support.hcq as door

    class File(door.FileIOInterface):  # type: ignore[misc]
        """An open file: of the emulated drivers, or of the real system where none of them knows it."""

        def __init__(self, path: str = "", flags: int = os.O_RDONLY, fd: int | None = None) -> None:
            self.path = path
            self.is_shown = fd is None and (File._shown(path) is not None or bool(listing(port, path)))
            if not self.is_shown:
                self.fd = fd or port.open(path, flags)

        def __del__(self) -> None:
            if "fd" in self.__dict__:
                port.close(self.fd)

        @staticmethod
        def _shown(path: str) -> bytes | None:
            found = next((kernel.files()[path] for kernel in port.kernels if path in kernel.files()), None)
            return found if isinstance(found, bytes) else None  # text says where a symbolic link leads

        @staticmethod
        def exists(path: str) -> bool:
            nodes = (node.path for kernel in port.kernels for node in kernel.nodes())
            return path in nodes or bool(listing(port, path)) or os.path.exists(path)

        def read(self, size: int | None = None, binary: bool = False, offset: int | None = None) -> Any:
            if not self.is_shown:
                return super().read(size, binary, offset)
            data = File._shown(self.path)
            if data is None:
                raise IsADirectoryError(errno.EISDIR, self.path)
            data = data[offset or 0 :][:size]
            return data if binary else data.decode()

        def listdir(self) -> list[str]:
            return listing(port, self.path) or super().listdir()

        def ioctl(self, request: int, argument: Any) -> int:
            size = ctypes.sizeof(argument)
            memory = bytearray(ctypes.string_at(ctypes.addressof(argument), size))
            answer = port.ioctl(self.fd, request, memory)
            ctypes.memmove(ctypes.addressof(argument), bytes(memory), size)
            return answer

        def mmap(self, start: int, size: int, prot: int, flags: int, offset: int) -> int:
            return port.mmap(start or 0, size, prot, flags, self.fd, offset)

    door.FileIOInterface = File
