"""Disk cache: what was expensive to make, kept in files named by their content's key.

In       a kind (a folder), a key (anything; its hash names the file), bytes
Out      the bytes again, or None
Changes  files under HCQ_CACHE_DIR: written aside and renamed, so a reader sees a whole file or none; mode 0700
Next     config.py (where the folder is), cpu/device.py (keeps the command processor here)

A cache never fails its caller. A damaged file is a miss and is written anew; a read-only home or a full disk means
working without one, which HCQ_DEBUG says once. Files hold a checksum and plain bytes, nothing that executes on reading.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from hcq import config

_MAGIC = b"HCQCACHE1\n"
_HEADER_BYTES = len(_MAGIC) + 32


class DiskCache:
    """A folder of checked files. `root` defaults to the configuration's; `write` is how bytes reach a file."""

    def __init__(
        self, root: Path | None = None, write: Callable[[BinaryIO, bytes], int] | None = None
    ) -> None:
        self.root = config.current().cache_dir if root is None else root
        self.write = write or _write
        self.is_broken = False

    def get(self, kind: str, key: bytes | str) -> bytes | None:
        """What was put under this key, or None."""
        try:
            with open(self.path(kind, key), "rb") as file:
                content = file.read()
        except OSError:
            return None
        data = content[_HEADER_BYTES:]
        if content[:_HEADER_BYTES] != _MAGIC + hashlib.sha256(data).digest():
            return None
        return data

    def put(self, kind: str, key: bytes | str, data: bytes) -> None:
        """Keep bytes under a key, or do without."""
        path = self.path(kind, key)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with open(descriptor, "wb") as file:
                    self.write(file, _MAGIC + hashlib.sha256(data).digest() + data)
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            self._work_without(error)

    def path(self, kind: str, key: bytes | str) -> Path:
        digest = hashlib.sha256(key.encode() if isinstance(key, str) else key).hexdigest()
        return self.root / kind / digest[:2] / digest

    def _work_without(self, error: OSError) -> None:
        if not self.is_broken and config.current().debug:
            print(
                f"hcq cache: {self.root} cannot be written ({error.strerror}); working without it",
                file=sys.stderr,
            )
        self.is_broken = True


def _write(file: BinaryIO, content: bytes) -> int:
    return file.write(content)
