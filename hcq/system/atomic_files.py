"""Atomic files: write a file so that readers see the whole new file or the old one, never a part.

In       a path
Out      a temporary file beside it to write to
Changes  the file at the path, by one rename, once everything is on disk
Next     artefact/writing.py, hcq.frontend's io/ and search/store.py (writers), private_files.py (files of the cache)
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends.

    A process that is killed, an error, or a disk that is full leave what was there before.
    """
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _usual_mode(target))
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _usual_mode(target: Path) -> int:
    """The permissions of the file that is replaced, or those that the umask gives to a new one."""
    try:
        return target.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask
