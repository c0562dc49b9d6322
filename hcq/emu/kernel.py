"""What an emulated kernel driver is: files that it opens, answers or refusals, a log.

In       nothing
Out      Kernel, File: the protocols that a driver here fulfils; Refusal, which becomes the errno of a call
Changes  nothing
Next     port.py (who asks the drivers), amd/kfd.py and nv/rm.py (the drivers)
"""

from __future__ import annotations

import errno
from typing import Protocol


class Refusal(Exception):
    """What an emulated kernel driver answers when it refuses: an errno."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode.get(number, str(number)))
        self.number = number


class File(Protocol):
    """An open file of an emulated driver. Its calls raise Refusal where the real one returns an errno."""

    def ioctl(self, request: int, argument: bytearray) -> int:
        """Answer an ioctl: the argument is read and written in place. Returns what the call returns."""
        ...

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        """Map what the file shows at this offset; the address."""
        ...

    def close(self) -> None:
        """The last descriptor of the file is closed."""
        ...


class Kernel(Protocol):
    """An emulated kernel driver. It raises Refusal where the real one returns an errno."""

    def open(self, path: str, fd: int) -> File | None:
        """An open file, or None when the path is not this driver's."""
        ...

    def read_file(self, path: str) -> bytes | None:
        """The contents of a file in sysfs, or None when the path is not this driver's."""
        ...

    def log(self) -> list[str]:
        """What this driver has written to the kernel's log."""
        ...
