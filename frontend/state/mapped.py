"""Mapped files: the bytes of a file as memory that the system reads when it is touched.

In       a path
Out      `Mapped`, views of its bytes, each checked against the size; `Reader`, which goes through them in order
Changes  address space, until nobody holds a view
Next     weights.py (who puts views on devices), gguf.py and torch_file.py (who read)

A view of a file that another program makes shorter is gone, and touching it would end this process: `Mapped.view` asks
for the size again each time, which leaves a short moment. Replace a file (as `hcq.save` does) instead of cutting it.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

from hcq.frontend.errors import DamagedFile


class Mapped:
    """A file's bytes. `call` and `kind` are what messages name: [load] and "GGUF"."""

    def __init__(self, path: str | os.PathLike[str], kind: str, call: str = "load"):
        self.path = Path(path)
        self.kind = kind
        self.call = call
        self._file = open(path, "rb")
        self.size = os.fstat(self._file.fileno()).st_size
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
