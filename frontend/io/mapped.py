"""Mapped files: the bytes of a file as memory that the system reads when it is touched.

In       a path
Out      `opened`: the file, where it is one; `Mapped`: views of its bytes, each checked against the size, and a budget
         of memory; `Reader`, which goes through them in order
Changes  address space, until nobody holds a view
Next     weights.py (who puts views on devices), gguf.py and torch_file.py (who read)

A view of a file that another program makes shorter is gone, and touching it would end this process: `Mapped.view` asks
for the size again each time, which leaves a short moment. Replace a file (as `hcq.save` does) instead of cutting it.
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from hcq.frontend.core.errors import DamagedFile, MissingFile, UsageError

SMALL_BYTES = 16 << 20  # that what is in any file may take
BYTES_OF_A_TENSOR = 1500  # its entry, by which it is found


def opened(path: str | os.PathLike[str], call: str) -> BinaryIO:
    """A file, open to be read. Raises UsageError for what is none, without waiting: a FIFO may have no writer."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise MissingFile(
            f"[{call}] {os.fspath(path)}: No such file. Give the path of one that is there."
        ) from None
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        word = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
        what = word.get(stat.S_IFMT(kind), "a device")
        raise UsageError(
            f"[{call}] {os.fspath(path)} is {what}: give a file, which can be mapped into memory."
        )
    return open(descriptor, "rb")


class Mapped:
    """A file's bytes. `call` and `kind` are what messages name: [load] and "GGUF".

    left  bytes of memory that what is read of it may take from here on: at first twice its size, and a little
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, call: str = "load"):
        self.path = Path(path)
        self.kind = kind
        self.call = call
        self._file = opened(path, call)
        self.size = os.fstat(self._file.fileno()).st_size
        self.left = 2 * self.size + SMALL_BYTES
        self._bytes: Any = b""
        if self.size:
            self._bytes = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._view = memoryview(self._bytes)

    def view(self, begin: int, end: int) -> memoryview:
        """The bytes from `begin` to before `end`. Raises DamagedFile when the file has not as many."""
        if not 0 <= begin <= end <= self.size:
            raise self.damaged(f"bytes {begin} to {end} are asked for, and it has {self.size}")
        if os.fstat(self._file.fileno()).st_size < end:
            raise self.damaged("it became shorter while it was read")
        return self._view[begin:end]

    def charge(self, size_bytes: int) -> None:
        """Memory is about to be taken. Raises DamagedFile when it is more than what a file of this size needs."""
        self.left -= size_bytes
        if self.left < 0:
            raise self.damaged("what is in it takes several times as much memory as the file is large")

    def damaged(self, why: str) -> DamagedFile:
        """The one sentence for a file that is not what it should be."""
        return DamagedFile(f"[{self.call}] {self.path}: {why}. It is damaged, or not a {self.kind} file.")


class Reader:
    """A file from one place on, to another or its end, number by number. at: the place of the next byte."""

    def __init__(self, file: Mapped, at: int = 0, end: int | None = None):
        self.file = file
        self.at = at
        self.end = file.size if end is None else end
        self._whole = file.view(0, self.end)

    @property
    def left(self) -> int:
        """Bytes that follow."""
        return self.end - self.at

    def take(self, count: int) -> memoryview:
        """The next bytes. Raises DamagedFile when there are fewer."""
        begin = self.at
        if not 0 <= count <= self.end - begin:
            raise self.file.damaged(f"{count} bytes are missing behind byte {begin}")
        self.at = begin + count
        return self._whole[begin : self.at]

    def whole(self, size: int, signed: bool = False) -> int:
        """The next little-endian whole number of that many bytes."""
        return int.from_bytes(self.take(size), "little", signed=signed)
