"""Answers: what the system calls of a program return that concern emulated hardware. All others are the kernel's.

In       notifications: calls with a path, fstat, ioctls of GPUs' types
Out      results, errnos, descriptors; or "let it run"
Changes  memory and descriptors of the program; the emulated drivers
Next     machine.py (what is at a path), hcq/emu/kernel.py (the drivers), listener.py (how answers get there)
Source   open(2), stat(2), statx(2), access(2), readlink(2), ioctl(2), proc(5)

A descriptor of an emulated device is one of the anonymous file in which the device's memory lies: mapping it is the
kernel's own affair. Which file of the driver it stands for is its position, which nobody uses for anything else.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import struct
import threading
import traceback
from collections.abc import Callable
from typing import NamedTuple

from hcq.emu.kernel import DeviceNode, File, Refusal
from hcq.emu.machine import Machine, Place
from hcq.emu.stat import Stat, of_copy, of_node, struct_stat, struct_statx
from hcq.emu.supervisor.bpf import Abi
from hcq.emu.supervisor.listener import Listener, Notification
from hcq.emu.supervisor.processes import ForeignProcess, Processes, Reach
from hcq.errors import DriverError

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = 0x100, 0x1000
O_CLOEXEC = os.O_CLOEXEC
FIRST_POSITION = 1 << 40
NOT_OURS = None

Result = int | None  # what the call returns, or NOT_OURS


class OpenFile(NamedTuple):
    """An open file of an emulated driver, and who opened it."""

    node: DeviceNode
    file: File
    process: ForeignProcess


class Lost(NamedTuple):
    """An ioctl that was done, and whose answer found nobody: a signal came in between. The thread asks once more.

    call    descriptor and request; the address of the argument may be another one, on the caller's stack
    """

    process: ForeignProcess
    call: tuple[int, int]
    before: bytes
    after: bytes
    result: int


class Answers:
    """Answers calls, from any number of threads at once. `failures` is what went wrong here, as text."""

    def __init__(self, machine: Machine, listener: Listener, abi: Abi) -> None:
        self.machine, self.listener, self.abi = machine, listener, abi
        self.reach = Reach(abi)
        self.processes = Processes(self._new_process, self._lose)
        self.failures: list[str] = []
        memories = (os.fstat(node.memory.fd) for node in machine.nodes.values())
        self._inodes = {(found.st_dev, found.st_ino) for found in memories}
        self._files: dict[int, OpenFile] = {}  # by position
        self._positions = itertools.count(FIRST_POSITION)
        self._current = threading.local()
        self._lost: dict[int, Lost] = {}  # by thread, as what follows
        self._doing: dict[int, threading.Event] = {}
        self._methods: dict[int, Callable[..., Result]] = {
            number: getattr(self, f"_{name}") for number, name in abi.calls.items()
        }

    def may_block(self, call: Notification) -> bool:
        """Whether answering it may take a while: drivers' calls do, files do not."""
        return self.abi.calls.get(call.number) == "ioctl"

    def answer(self, call: Notification) -> None:
        """Answer one call."""
        self._current.call = call
        self._current.is_answered = False
        try:
            result = self._methods[call.number](*call.arguments)
        except Refusal as refusal:
            result = -refusal.number
        except (OSError, DriverError) as error:
            result = -(error.errno or errno.EIO)
        except Exception:
            self.failures.append(traceback.format_exc())
            result = -errno.EIO
        if self._current.is_answered:
            return
        if result is NOT_OURS:
            self.listener.let_it_run(call.id)
        else:
            self.listener.answer(call.id, result)

    # ------------------------------------------------------------ processes

    def _new_process(self, pid: int) -> ForeignProcess:
        return ForeignProcess(pid, self.reach, self._file_of, self._is_interrupted)

    def _lose(self, process: ForeignProcess) -> None:
        for position, one in list(self._files.items()):
            if one.process is process:
                del self._files[position]
        for kernel in self.machine.kernels:
            try:
                kernel.exit(process)
            except Exception:
                self.failures.append(traceback.format_exc())

    def _is_interrupted(self) -> bool:
        call = getattr(self._current, "call", None)
        return call is not None and not self.listener.is_valid(call.id)

    def _file_of(self, pid: int, fd: int) -> File | None:
        found = self._open_file(pid, fd)
        return found.file if found else None

    def _is_ours(self, pid: int, fd: int) -> bool:
        """Whether a descriptor is one of an emulated device."""
        if fd < 0:
            return False
        try:
            found = os.stat(f"/proc/{pid}/fd/{fd}")
        except OSError:
            return False
        return (found.st_dev, found.st_ino) in self._inodes

    def _open_file(self, pid: int, fd: int) -> OpenFile | None:
        """The open file behind a descriptor: several nodes may share one memory, so its position says which."""
        if not self._is_ours(pid, fd):
            return None
        try:
            with open(f"/proc/{pid}/fdinfo/{fd}", "rb") as file:
                return self._files.get(int(file.readline().split()[1]))  # "pos:	N"
        except OSError:
            return None

    def _node_of(self, pid: int, fd: int) -> DeviceNode | None:
        """The emulated device behind a descriptor."""
        found = self._open_file(pid, fd)
        return found.node if found else None

    # ------------------------------------------------------------ paths

    @property
    def _thread(self) -> int:
        call: Notification = self._current.call
        return call.thread

    def _text(self, va: int) -> str | None:
        """The path at an address; None when the kernel shall say what is wrong with it."""
        try:
            return self.reach.text(self._thread, va)
        except Refusal:
            return None

    def _find(self, folder: int, path: str | None, follow: bool = True) -> Place | None:
        """What is at a path that starts at a descriptor, or at the current folder."""
        if not path:
            return None
        if not path.startswith("/"):
            start = _signed(folder)
            at = f"/proc/{self._thread}/" + ("cwd" if start == AT_FDCWD else f"fd/{start}")
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
        (flags,) = struct.unpack("<Q", self.reach.read(self._thread, how, 8))
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
            self._give(fd, flags)
        finally:
            os.close(fd)
        return 0

    def _open_node(self, node: DeviceNode, flags: int) -> Result:
        if flags & os.O_DIRECTORY:
            return -errno.ENOTDIR
        if flags & os.O_CREAT and flags & os.O_EXCL:
            return -errno.EEXIST
        process = self.processes.of_thread(self._thread)
        file = self.machine.kernel_of[node.path].open(node.path, process)
        if file is None:
            return -errno.ENXIO
        position = next(self._positions)
        # opened anew: a file of its own, with a position of its own, in the same memory
        fd = os.open(f"/proc/self/fd/{node.memory.fd}", flags & os.O_ACCMODE | O_CLOEXEC)
        try:
            os.lseek(fd, position, os.SEEK_SET)
            self._files[position] = OpenFile(node, file, process)
            if not self._give(fd, flags):
                del self._files[position]
                file.close()
        finally:
            os.close(fd)
        return 0

    def _give(self, fd: int, flags: int) -> bool:
        self._current.is_answered = True
        return self.listener.answer_descriptor(self._current.call.id, fd, flags & O_CLOEXEC)

    # ------------------------------------------------------------ stat

    def _stat(self, path: int, buffer: int, *_: int) -> Result:
        return self._newfstatat(AT_FDCWD, path, buffer, 0)

    def _lstat(self, path: int, buffer: int, *_: int) -> Result:
        return self._newfstatat(AT_FDCWD, path, buffer, AT_SYMLINK_NOFOLLOW)

    def _fstat(self, fd: int, buffer: int, *_: int) -> Result:
        node = self._node_of(self._thread, _signed(fd))
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
            node = self._node_of(self._thread, _signed(folder))
            return NOT_OURS if node is None else of_node(node)
        place = self._find(folder, text, not flags & AT_SYMLINK_NOFOLLOW)
        if place is None:
            return NOT_OURS
        if place.node is not None:
            return of_node(place.node)
        return of_copy(os.lstat(place.copy)) if place.copy else -errno.ENOENT

    def _put(self, va: int, data: bytes) -> int:
        self.reach.write(self._thread, va, data)
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
        text = os.fsencode(os.readlink(place.copy))[: max(_signed(size), 0)]
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

    # ------------------------------------------------------------ exec

    def _execve(self, *_: int) -> Result:
        self.processes.executes(self._thread)
        return NOT_OURS

    def _execveat(self, *_: int) -> Result:
        return self._execve()

    # ------------------------------------------------------------ ioctl

    def _ioctl(self, fd: int, request: int, va: int, *_: int) -> Result:
        thread, request = self._thread, request & 0xFFFFFFFF
        opened = self._open_file(thread, _signed(fd))
        if opened is None:
            return -errno.EBADF if self._is_ours(thread, _signed(fd)) else NOT_OURS
        process = self.processes.of_thread(thread)
        given_up = self._doing.get(thread)
        done = self._doing[thread] = threading.Event()
        if (
            given_up is not None
        ):  # a signal came: the thread asks again while its last call is still being answered
            given_up.wait()
        try:
            return self._do_ioctl(opened.file, process, thread, (fd, request), va)
        finally:
            done.set()
            if self._doing.get(thread) is done:
                del self._doing[thread]

    def _do_ioctl(
        self, file: File, process: ForeignProcess, thread: int, call: tuple[int, int], va: int
    ) -> Result:
        request = call[1]
        size = file.argument_bytes(request)
        before = process.read(va, size) if size else b""
        if not self.listener.is_valid(self._current.call.id):
            return -errno.EINTR  # given up before it has begun: what was read may be anything
        lost = self._lost.pop(thread, None)
        if lost and (lost.process, lost.call) == (process, call) and before in (lost.before, lost.after):
            result, argument = lost.result, bytearray(lost.after)
        else:
            argument = bytearray(before)
            try:
                result = file.ioctl(request, argument, process)
            except Refusal as refusal:
                result = -refusal.number
        self._current.is_answered = True
        id = self._current.call.id
        # a thread that has given up uses this memory for something else by now
        is_heard = self.listener.is_valid(id)
        if is_heard and argument != before:
            process.write(va, argument)
        if not (is_heard and self.listener.answer(id, result)) and result >= 0 and not process.is_gone:
            self._lost[thread] = Lost(process, call, before, bytes(argument), result)
        return result


def _signed(number: int) -> int:
    """A register's low half as a C int."""
    return (number & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
