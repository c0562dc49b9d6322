"""Private files: reads and writes only files that no user but this one, or root, can have written.

In       a folder's path, names below it, bytes
Out      descriptors of folders, contents of files; an Unsafe that says how to secure a writable folder
Changes  makes folders with mode 0700 and files with mode 0600. A file is written aside and renamed, so a
         reader sees the whole file or none
Next     cache.py (compiled objects), observe/report.py (reports), docs/security.md (what this defends against)

All checks are made on the open descriptor, never on a path that could be exchanged in between. So the parent folders
do not matter: a rename there can only lead to another folder, which is checked in the same way.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from hcq.errors import UsageError

FOLDER_MODE = 0o700
FILE_MODE = 0o600
LEFT_OVER_S = 3600  # nobody writes a file for so long
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Unsafe(UsageError):
    """A folder, or what is in its place, could have been written by other users."""


def open_folder(path: Path, make: bool = False) -> int:
    """A descriptor of a folder that only we or root can write. With `make`, it and those above are made, mode 0700.

    Raises   OSError when there is none; Unsafe when it is not ours alone
    """
    if make:
        _make_folders(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if about.st_uid not in (os.geteuid(), 0):
            raise Unsafe(f"{path} belongs to another user (uid {about.st_uid}). Choose a folder of your own.")
        if about.st_mode & _OTHERS_WRITE:
            raise Unsafe(f"other users can write to {path}. If it is for you alone: chmod go-w {path}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_inner(folder: int, name: str, make: bool = False) -> int:
    """A descriptor of a folder in a private folder; one of ours with laxer rights is made private.

    Raises   OSError when there is none, or it is a link; Unsafe when it is another user's
    """
    if make:
        try:
            os.mkdir(name, FOLDER_MODE, dir_fd=folder)
        except FileExistsError:
            pass
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        about = os.fstat(descriptor)
        if about.st_uid not in (os.geteuid(), 0):
            raise Unsafe(f"the folder {name} in it belongs to another user (uid {about.st_uid}). Remove it.")
        if stat.S_IMODE(about.st_mode) & 0o077 and about.st_uid == os.geteuid():
            os.fchmod(descriptor, FOLDER_MODE)
        elif about.st_mode & _OTHERS_WRITE:
            raise Unsafe(f"other users can write to the folder {name} in it. Remove it.")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read(folder: int, name: str, max_bytes: int) -> bytes:
    """A file's contents. Raises OSError when there is none: no plain file, or one that others could write, is none."""
    # O_NONBLOCK: opening a pipe must not wait for a writer
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        about = os.fstat(descriptor)
        is_ours = about.st_uid in (os.geteuid(), 0) and not about.st_mode & _OTHERS_WRITE
        if not stat.S_ISREG(about.st_mode) or not is_ours or about.st_size > max_bytes:
            raise PermissionError(errno.EPERM, "not a file of ours", name)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(about.st_size)
    finally:
        os.close(descriptor)


def write(folder: int, name: str, fill: Callable[[BinaryIO], object]) -> None:
    """Make or replace a file, whole or not at all. `fill` writes it. Raises OSError when that cannot be."""
    temporary = f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, FILE_MODE, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            fill(file)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        remove(temporary, folder)
        raise


def remove(name: str | Path, folder: int | None = None) -> None:
    """Remove a file, if it is there and we may."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        pass  # another process did it, or we may only read here


def remove_left_over(folder: int) -> None:
    """Remove what processes that were killed while they wrote have left behind."""
    for name in os.listdir(folder):
        if name.startswith("."):
            try:
                if time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime > LEFT_OVER_S:
                    os.unlink(name, dir_fd=folder)
            except OSError:
                continue


def _make_folders(path: Path) -> None:
    """Like `mkdir -p`, every new folder private: Path.mkdir gives its mode to the last one alone."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        pass
    except FileNotFoundError:
        if path.parent == path:
            raise
        _make_folders(path.parent)
        try:
            os.mkdir(path, FOLDER_MODE)
        except FileExistsError:  # another process was quicker
            pass
