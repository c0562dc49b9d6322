"""Calls: what the system calls of a program return that concern the files of emulated hardware.

In       paths, descriptors, addresses of a caller; a subclass knows how to reach its memory and descriptors
Out      results, errnos; or NOT_OURS: the real system's
Changes  memory and descriptors of the caller
Next     machine.py (what is at a path), supervisor/answers.py (callers in other processes), attached.py (in this one)
Source   open(2), stat(2), statx(2), access(2), readlink(2), proc(5)

A descriptor of an emulated device is one of the anonymous file in which the device's memory lies: mapping it is the
kernel's own affair. Which file of the driver it stands for is its position, which nobody uses for anything else. Where
a driver's calls decide what a descriptor maps (NVIDIA's), it becomes one of another anonymous file: `show`.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import struct
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from hcq.emu.backing import NODE_BYTES, DeviceMemory, sealed_file
from hcq.emu.file_stat import Stat, of_copy, of_node, struct_stat, struct_statx
from hcq.emu.kernel import DeviceNode, File, Process, Refusal
from hcq.emu.machine import Machine, Place
from hcq.errors import DriverError

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = 0x100, 0x1000
O_CLOEXEC = os.O_CLOEXEC
FIRST_POSITION = NODE_BYTES  # behind the file: what a program writes there is refused (EPERM)
NOT_OURS = None
MOST_FAILURES = 50  # that are kept, of ours

Result = int | None  # what the call returns, or NOT_OURS


class OpenFile(NamedTuple):
    """An open file of an emulated driver, and who opened it. node: None of a file that a driver's call has made."""

    node: DeviceNode | None
    file: File
    process: Process


def outcome(call: Callable[[], Result], failures: deque[str]) -> Result:
    """What a call returns: its answer, or -errno for what a driver or the system refuses.

    failures   gets the traceback of anything else, which the caller sees as EIO
    """
    try:
        return call()
    except Refusal as refusal:
        return -refusal.number
    except (OSError, DriverError) as error:
        return -(error.errno or errno.EIO)
    except Exception:
        failures.append(traceback.format_exc())
        return -errno.EIO


class Calls(ABC):
    """Answers by the names of system calls: `_openat(folder, path, flags)` takes what registers hold."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        memories = (os.fstat(node.memory.fd) for node in machine.nodes.values())
        self._inodes = {(found.st_dev, found.st_ino) for found in memories}
        self._files: dict[int, OpenFile] = {}  # by position
        self._made: dict[tuple[int, int], OpenFile] = {}  # by inode: what calls have made
        self._positions = itertools.count(FIRST_POSITION)

    # ------------------------------------------------------------ the caller

    @abstractmethod
    def process(self) -> Process:
        """Whose call this is. Raises Refusal (ESRCH) when it has died meanwhile."""

    @abstractmethod
    def proc(self) -> str:
        """Its folder in /proc."""

    @abstractmethod
    def read(self, va: int, size_bytes: int) -> bytes:
        """Its memory. Raises Refusal (EFAULT)."""

    @abstractmethod
    def write(self, va: int, data: bytes) -> None:
        """Change its memory. Raises Refusal (EFAULT)."""

    @abstractmethod
    def text(self, va: int) -> str:
        """Zero-terminated text in it. Raises Refusal (EFAULT)."""

    @abstractmethod
    def give(self, fd: int, flags: int) -> int:
        """Give it a descriptor of an open file of ours. Returns its number there, or -errno. flags: O_CLOEXEC or 0."""

    @abstractmethod
    def replace(self, fd: int, by: int, flags: int) -> None:
        """A descriptor of it is one of our open file `by` from now on. Raises Refusal. flags: O_CLOEXEC or 0."""

    # ------------------------------------------------------------ descriptors

    def is_ours(self, proc: str, fd: int) -> bool:
        """Whether a descriptor is one of an emulated device."""
        inode = self._inode(proc, fd)
        return inode in self._inodes or inode in self._made

    def _inode(self, proc: str, fd: int) -> tuple[int, int] | None:
        if fd < 0:
            return None
        try:
            found = os.stat(f"{proc}/fd/{fd}")
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def open_file(self, proc: str, fd: int) -> OpenFile | None:
        """The open file behind a descriptor: several nodes may share one memory, so its position says which."""
        inode = self._inode(proc, fd)
        if inode is None or inode not in self._inodes:
            return None if inode is None else self._made.get(inode)
        try:
            with open(f"{proc}/fdinfo/{fd}", "rb") as file:
                return self._files.get(int(file.readline().split()[1]))  # "pos:	N"
        except OSError:
            return None

    def make(self, file: File, process: Process, size_bytes: int, give: Callable[[int], int]) -> int:
        """A descriptor for a file that a driver's call has made: `give` puts ours into the caller, and is returned.

        It is of an anonymous file of its own, which has the size and nothing in it, so the inode says which file it
        stands for. It is not open for reading: the kernel refuses to map it (EACCES).
        """
        made = sealed_file("made by a call", size_bytes, is_written=False)
        try:
            fd = os.open(f"/proc/self/fd/{made}", os.O_WRONLY | O_CLOEXEC)
        finally:
            os.close(made)
        try:
            found = os.fstat(fd)
            inode = found.st_dev, found.st_ino
            self._made[inode] = OpenFile(None, file, process)
            try:
                return give(fd)
            except BaseException:
                del self._made[inode]
                raise
        finally:
            os.close(fd)

    def show(self, proc: str, fd: int, memory: DeviceMemory) -> None:
        """A descriptor of an emulated device maps this memory from now on. Only the one: its duplicates do not.

        Raises  Refusal (EBADF)
        """
        try:
            with open(f"{proc}/fdinfo/{fd}", "rb") as file:
                position, flags = (
                    line.split()[1] for line in file.readlines()[:2]
                )  # "pos:", "flags:" in octal
        except OSError:
            raise Refusal(errno.EBADF) from None
        mode = int(flags, 8)
        shown = os.open(f"/proc/self/fd/{memory.fd}", mode & os.O_ACCMODE | O_CLOEXEC)
        try:
            os.lseek(shown, int(position), os.SEEK_SET)
            found = os.fstat(shown)
            self._inodes.add((found.st_dev, found.st_ino))
            self.replace(fd, shown, mode & O_CLOEXEC)
        finally:
            os.close(shown)

    def _node_of(self, proc: str, fd: int) -> DeviceNode | None:
        """The emulated device behind a descriptor."""
        found = self.open_file(proc, fd)
        return found.node if found else None

    # ------------------------------------------------------------ paths

    def _text(self, va: int) -> str | None:
        """The path at an address; None when the kernel shall say what is wrong with it."""
        try:
            return self.text(va)
        except Refusal:
            return None

    def _find(self, folder: int, path: str | None, follow: bool = True) -> Place | None:
        """What is at a path that starts at a descriptor, or at the current folder."""
        if not path:
            return None
        if not path.startswith("/"):
            start = signed(folder)
            at = f"{self.proc()}/" + ("cwd" if start == AT_FDCWD else f"fd/{start}")
            try:
                path = f"{os.readlink(at)}/{path}"
            except OSError:
                return None
        if path.startswith(self.machine.folder):  # from a descriptor of one of our folders
            path = path[len(self.machine.folder) :] or "/"
        return self.machine.find(path, follow)

    # ------------------------------------------------------------ open

    def _openat(self, folder: int, path: int, flags: int, *_: int) -> Result:
        return self._open_path(folder, self._text(path), flags & 0xFFFFFFFF)

    def _open(self, path: int, flags: int, *_: int) -> Result:
        return self._open_path(AT_FDCWD, self._text(path), flags & 0xFFFFFFFF)

    def _openat2(self, folder: int, path: int, how: int, *_: int) -> Result:
        text = self._text(path)
        if self._find(folder, text) is None:
            return NOT_OURS
        (flags,) = struct.unpack("<Q", self.read(how, 8))
        return self._open_path(folder, text, flags)

    def _open_path(self, folder: int, path: str | None, flags: int) -> Result:
        place = self._find(folder, path, not flags & os.O_NOFOLLOW)
        if place is None:
            return NOT_OURS
        if place.node is not None:
            return self._open_node(place.node, flags)
        if not place.copy:
            return -errno.ENOENT
        if flags & os.O_ACCMODE != os.O_RDONLY:
            return -errno.EACCES
        kept = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(place.copy, flags & kept | os.O_RDONLY | O_CLOEXEC)
        try:
            return self.give(fd, flags & O_CLOEXEC)
        finally:
            os.close(fd)

    def _open_node(self, node: DeviceNode, flags: int) -> Result:
        if flags & os.O_DIRECTORY:
            return -errno.ENOTDIR
        if flags & os.O_CREAT and flags & os.O_EXCL:
            return -errno.EEXIST
        process = self.process()
        file = self.machine.kernel_of[node.path].open(node.path, process)
        if file is None:
            return -errno.ENXIO
        position = next(self._positions)
        # opened anew: a file of its own, with a position of its own, in the same memory
        fd = os.open(f"/proc/self/fd/{node.memory.fd}", flags & os.O_ACCMODE | O_CLOEXEC)
        try:
            os.lseek(fd, position, os.SEEK_SET)
            self._files[position] = OpenFile(node, file, process)
            result = self.give(fd, flags & O_CLOEXEC)
            if result < 0:
                del self._files[position]
                file.close()
            return result
        finally:
            os.close(fd)

    def _fallocate(self, fd: int, *_: int) -> Result:
        """Of a character device there is nothing to allocate."""
        return -errno.ENODEV if self.is_ours(self.proc(), signed(fd)) else NOT_OURS

    # ------------------------------------------------------------ stat

    def _stat(self, path: int, buffer: int, *_: int) -> Result:
        return self._newfstatat(AT_FDCWD, path, buffer, 0)

    def _lstat(self, path: int, buffer: int, *_: int) -> Result:
        return self._newfstatat(AT_FDCWD, path, buffer, AT_SYMLINK_NOFOLLOW)

    def _fstat(self, fd: int, buffer: int, *_: int) -> Result:
        node = self._node_of(self.proc(), signed(fd))
        return NOT_OURS if node is None else self._put(buffer, struct_stat(of_node(node)))

    def _newfstatat(self, folder: int, path: int, buffer: int, flags: int, *_: int) -> Result:
        found = self._stat_of(folder, path, flags)
        return self._put(buffer, struct_stat(found)) if isinstance(found, Stat) else found

    def _statx(self, folder: int, path: int, flags: int, mask: int, buffer: int, *_: int) -> Result:
        found = self._stat_of(folder, path, flags)
        return self._put(buffer, struct_statx(found)) if isinstance(found, Stat) else found

    def _stat_of(self, folder: int, path: int, flags: int) -> Stat | int | None:
        text = self._text(path) if path else ""
        if not text:
            if text is None or not flags & AT_EMPTY_PATH:
                return NOT_OURS
            node = self._node_of(self.proc(), signed(folder))
            return NOT_OURS if node is None else of_node(node)
        place = self._find(folder, text, not flags & AT_SYMLINK_NOFOLLOW)
        if place is None:
            return NOT_OURS
        if place.node is not None:
            return of_node(place.node)
        return of_copy(os.lstat(place.copy)) if place.copy else -errno.ENOENT

    def _put(self, va: int, data: bytes) -> int:
        self.write(va, data)
        return 0

    # ------------------------------------------------------------ access, readlink

    def _access(self, path: int, mode: int, *_: int) -> Result:
        return self._faccessat2(AT_FDCWD, path, mode, 0)

    def _faccessat(self, folder: int, path: int, mode: int, *_: int) -> Result:
        return self._faccessat2(folder, path, mode, 0)

    def _faccessat2(self, folder: int, path: int, mode: int, flags: int, *_: int) -> Result:
        place = self._find(folder, self._text(path), not flags & AT_SYMLINK_NOFOLLOW)
        if place is None:
            return NOT_OURS
        if place.node is not None:
            return -errno.EACCES if mode & os.X_OK else 0
        if not place.copy:
            return -errno.ENOENT
        is_refused = mode & os.W_OK or (mode & os.X_OK and not os.path.isdir(place.copy))
        return -errno.EACCES if is_refused else 0

    def _readlink(self, path: int, buffer: int, size: int, *_: int) -> Result:
        return self._readlinkat(AT_FDCWD, path, buffer, size)

    def _readlinkat(self, folder: int, path: int, buffer: int, size: int, *_: int) -> Result:
        place = self._find(folder, self._text(path), follow=False)
        if place is None:
            return NOT_OURS
        if not place.copy:
            return -errno.ENOENT if place.node is None else -errno.EINVAL
        if not stat.S_ISLNK(os.lstat(place.copy).st_mode):
            return -errno.EINVAL
        text = os.fsencode(os.readlink(place.copy))[: max(signed(size), 0)]
        self._put(buffer, text)
        return len(text)

    # ------------------------------------------------------------ extended attributes: there are none

    def _getxattr(self, path: int, *_: int) -> Result:
        return self._without_attributes(path, True, -errno.ENODATA)

    def _lgetxattr(self, path: int, *_: int) -> Result:
        return self._without_attributes(path, False, -errno.ENODATA)

    def _listxattr(self, path: int, *_: int) -> Result:
        return self._without_attributes(path, True, 0)

    def _llistxattr(self, path: int, *_: int) -> Result:
        return self._without_attributes(path, False, 0)

    def _without_attributes(self, path: int, follow: bool, result: int) -> Result:
        place = self._find(AT_FDCWD, self._text(path), follow)
        if place is None:
            return NOT_OURS
        return result if place.node or place.copy else -errno.ENOENT


def signed(number: int) -> int:
    """A register's low half as a C int."""
    return (number & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
