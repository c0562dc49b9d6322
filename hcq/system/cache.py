"""Disk cache: results that are expensive to compute, such as compiled kernels, in files named by a hash of their key.

In       a kind (a folder), a key (anything; its hash names the file), bytes
Out      the bytes again, or None
Changes  files under HCQ_CACHE_DIR, readable by their owner alone; above a limit the least recently used are deleted
Next     private_files.py (which files are trusted), hcq/config.py (where the folder is), docs/security.md

The cache never raises an error to its caller. Each file holds a hash over kind, key and bytes. A damaged or exchanged
file counts as a miss and is written again. With a read-only home or a full disk hcq works without a cache, and
HCQ_DEBUG prints that once. A folder that other users can write to is not used, and a warning says so once. Reading a
file executes nothing, but its bytes are code that will run: anyone who can write these files can run code as this user.

The size of the cache is not counted at every write. Each write appends one byte per 4 KiB to a tally file. The process
that finds the tally at an eighth of the limit looks at all files, deletes the oldest, and empties the tally.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from hcq import config
from hcq.system import private_files

LIMIT_BYTES = 1 << 30  # of all files together
MAX_ENTRY_BYTES = 256 << 20
_MAGIC = b"HCQCACHE2\n"  # the encoding's version: files of others are misses
_HEADER_BYTES = len(_MAGIC) + 32
_UNIT_BYTES = 4096  # what a byte of the tally stands for
_TALLY = "tally"
_TOUCH_S = 6 * 3600  # a file read again is marked as used when it was not for so long
_SHARD = re.compile("[0-9a-f]{2}")
_FILE = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.\d+\.[0-9a-f]{8}")

_printed: set[str] = set()  # what this process has said already


class _Kept(NamedTuple):
    """A file of the cache, as trimming sees it."""

    used: float
    size_bytes: int
    shard: str
    name: str


class DiskCache:
    """A folder of checked files. `root` defaults to the configuration's; `write` is how bytes reach a file."""

    def __init__(
        self,
        root: Path | None = None,
        write: Callable[[BinaryIO, bytes], int] | None = None,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self.root = config.current().cache_dir if root is None else root
        self.write = write or _write
        self.limit_bytes = limit_bytes

    def get(self, kind: str, key: bytes | str) -> bytes | None:
        """What was put under this key, or None: also when the file is damaged."""
        name = _name(key)
        try:
            folder = self._folder(kind, name)
            try:
                content = private_files.read(folder, name, MAX_ENTRY_BYTES)
                self._mark_used(folder, name)
            finally:
                os.close(folder)
        except private_files.Unsafe as problem:
            self._refuse(problem)
            return None
        except OSError:
            return None
        data = content[_HEADER_BYTES:]
        if content[:_HEADER_BYTES] != _header(kind, key, data):
            return None
        return data

    def put(self, kind: str, key: bytes | str, data: bytes) -> None:
        """Keep bytes under a key. Never raises: where nothing can be written, nothing is kept."""
        if len(data) > MAX_ENTRY_BYTES - _HEADER_BYTES:
            return
        name = _name(key)
        content = _header(kind, key, data) + data
        try:
            folder = self._folder(kind, name, make=True)
            try:
                private_files.remove_left_over(folder)
                private_files.write(folder, name, lambda file: self.write(file, content))
            finally:
                os.close(folder)
            self._count(len(content))
        except private_files.Unsafe as problem:
            self._refuse(problem)
        except OSError as error:
            self._work_without(error)

    def path(self, kind: str, key: bytes | str) -> Path:
        """Where a file is, for those who look at it."""
        name = _name(key)
        return self.root / kind / name[:2] / name

    def trim(self, keep_bytes: int) -> int:
        """Remove files, the least recently used first, until at most so many bytes are left; returns how many are."""
        files = sorted(self._files())
        left = sum(found.size_bytes for found in files)
        for found in files:
            if left <= keep_bytes:
                break
            private_files.remove(self.root / found.shard / found.name)
            left -= found.size_bytes
        return left

    # ------------------------------------------------------------ folders

    def _folder(self, kind: str, name: str, make: bool = False) -> int:
        """The folder of a file, as a descriptor: root, kind, the first digits of its name."""
        root = private_files.open_folder(self.root, make)
        try:
            above = private_files.open_inner(root, kind, make)
        finally:
            os.close(root)
        try:
            return private_files.open_inner(above, name[:2], make)
        finally:
            os.close(above)

    def _files(self) -> Iterator[_Kept]:
        """Every file that the cache wrote: KIND/2 digits/64 digits. What else lies in its folder is not its own."""
        for kind in _names(self.root):
            for shard in _names(self.root / kind):
                if not _SHARD.fullmatch(shard):
                    continue
                try:
                    with os.scandir(self.root / kind / shard) as found:
                        for entry in found:
                            if _FILE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                                about = entry.stat(follow_symlinks=False)
                                size = -(-about.st_size // _UNIT_BYTES) * _UNIT_BYTES
                                yield _Kept(about.st_mtime, size, f"{kind}/{shard}", entry.name)
                except OSError:
                    continue  # removed meanwhile

    # ------------------------------------------------------------ size and age

    def _mark_used(self, folder: int, name: str) -> None:
        """Its time of change is when it was last used, to some hours."""
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if time.time() - about.st_mtime > _TOUCH_S:
                os.utime(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            pass  # a folder that we can only read

    def _count(self, size_bytes: int) -> None:
        """Note that the cache has grown; look after it when that was much."""
        root = private_files.open_folder(self.root)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            tally = os.open(_TALLY, flags, private_files.FILE_MODE, dir_fd=root)
            try:
                os.write(tally, b"." * -(-size_bytes // _UNIT_BYTES))
                is_due = os.fstat(tally).st_size * _UNIT_BYTES > self.limit_bytes // 8
                if is_due:
                    os.ftruncate(tally, 0)  # first, so that no other process looks as well
            finally:
                os.close(tally)
        finally:
            os.close(root)
        if is_due:
            self.trim(self.limit_bytes * 3 // 4)

    # ------------------------------------------------------------ what is said

    def _refuse(self, problem: private_files.Unsafe) -> None:
        _tell(f"hcq: warning: the cache in {self.root} is not used: {problem}")

    def _work_without(self, error: OSError) -> None:
        if config.current().debug:
            _tell(f"hcq cache: {self.root} cannot be written ({error.strerror}); working without it")


def _tell(text: str) -> None:
    if text not in _printed and len(_printed) < 64:
        _printed.add(text)
        with contextlib.suppress(OSError, ValueError):  # nobody listens: a full disk, a closed file
            print(text, file=sys.stderr)


def _header(kind: str, key: bytes | str, data: bytes) -> bytes:
    """What makes a file the answer to its key: every part with its length, so that none can pass for another."""
    import hashlib

    digest = hashlib.sha256()
    for part in (kind.encode(), _bytes(key), data):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return _MAGIC + digest.digest()


def _name(key: bytes | str) -> str:
    import hashlib  # and OpenSSL with it: not before something is looked up

    return hashlib.sha256(_bytes(key)).hexdigest()


def _bytes(key: bytes | str) -> bytes:
    return key.encode() if isinstance(key, str) else key


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _write(file: BinaryIO, content: bytes) -> int:
    return file.write(content)
