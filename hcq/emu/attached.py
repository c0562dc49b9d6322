"""Emulated GPUs for all code in this process, where no supervisor may be: hcq.emu.attach("amd:gfx1100").

In       words of HCQ_EMULATE
Out      nothing: libraries in this process (AMD's through ctypes, or ours) find the GPUs' files and devices
Changes  functions of the C library, until `detach` or the process's end
Next     function_patches.py (how), calls.py (what the functions return), supervisor/ (the way for whole programs)

What a supervisor answers from outside is answered here from inside: open, stat, access, readlink, opendir, ioctl and
similar calls. Mapping, closing and duplicating descriptors is the kernel's own affair. Programs that it starts see the
real system; a child of fork has GPUs of its own. Only code that calls the C library is reached.
"""

from __future__ import annotations

import _thread
import atexit
import errno
import fcntl
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from hcq.emu.backing import DeviceMemory
from hcq.emu.calls import (
    AT_FDCWD,
    AT_SYMLINK_NOFOLLOW,
    MOST_FAILURES,
    NOT_OURS,
    Calls,
    Result,
    outcome,
    signed,
)
from hcq.emu.function_patches import Patches, Replacement
from hcq.emu.kernel import File, OwnProcess, Process, Refusal
from hcq.emu.machine import Machine, kernels_for
from hcq.emu.supervisor.bpf import abi
from hcq.emu.supervisor.processes import Reach
from hcq.errors import UsageError
from hcq.system import native

NO_PROCESS_VM = (errno.EPERM, errno.ENOSYS)


class AttachedProcess(OwnProcess):
    """This process. A pointer to nothing is EFAULT where the system lets us ask, and its end elsewhere."""

    maps_by_itself: ClassVar[bool] = True

    def __init__(self, reach: Reach, calls: Callable[[], Calls]) -> None:
        super().__init__(os.getpid(), {})
        self._reach, self._calls = reach, calls

    def read(self, va: int, size_bytes: int) -> bytes:
        try:
            data = self._reach.read(self.pid, va, size_bytes)
        except Refusal as refusal:
            if refusal.number in NO_PROCESS_VM:
                return super().read(va, size_bytes)
            raise
        if len(data) != size_bytes:
            raise Refusal(errno.EFAULT)
        return data

    def write(self, va: int, data: bytes | bytearray) -> None:
        try:
            self._reach.write(self.pid, va, data)
        except Refusal as refusal:
            if refusal.number not in NO_PROCESS_VM:
                raise
            super().write(va, data)

    def file(self, fd: int) -> File | None:
        found = self._calls().open_file("/proc/self", fd)
        return found.file if found else None

    def show(self, fd: int, memory: DeviceMemory) -> None:
        self._calls().show("/proc/self", fd, memory)

    def install(self, file: File, size_bytes: int, flags: int) -> int:
        calls = self._calls()
        return calls.make(file, self, size_bytes, lambda fd: calls.give(fd, flags & os.O_CLOEXEC))


class OwnCalls(Calls):
    """Calls of this process."""

    def __init__(self, machine: Machine, reach: Reach) -> None:
        super().__init__(machine)
        self._process = AttachedProcess(reach, lambda: self)

    def process(self) -> Process:
        return self._process

    def proc(self) -> str:
        return "/proc/self"

    def read(self, va: int, size_bytes: int) -> bytes:
        return self._process.read(va, size_bytes)

    def write(self, va: int, data: bytes) -> None:
        self._process.write(va, data)

    def text(self, va: int) -> str:
        return os.fsdecode(native.text_bytes(va))

    def give(self, fd: int, flags: int) -> int:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC if flags else fcntl.F_DUPFD, 0)

    def replace(self, fd: int, by: int, flags: int) -> None:
        os.dup2(by, fd, inheritable=not flags)

    def ioctl(self, fd: int, request: int, va: int) -> Result:
        """An ioctl: the emulated driver's answer, or NOT_OURS."""
        opened = self.open_file("/proc/self", signed(fd))
        if opened is None:
            return -errno.EBADF if self.is_ours("/proc/self", signed(fd)) else NOT_OURS
        request &= 0xFFFFFFFF
        size = opened.file.argument_bytes(request)
        before = self.read(va, size) if size else b""
        argument = bytearray(before)
        try:
            result = opened.file.ioctl(request, argument, self._process)
        except Refusal as refusal:
            result = -refusal.number
        if argument != before:
            self.write(va, bytes(argument))
        return result


class Attachment:
    """The patches of this process, and the emulated drivers behind them."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.failures: deque[str] = deque(maxlen=MOST_FAILURES)
        self._numbers = {name: number for number, name in abi().calls.items()}
        self._reach = Reach(abi())
        self._inside = threading.local()
        self._calls: OwnCalls | None = None
        self._pid = 0
        self._lock = threading.RLock()
        self._is_interrupted = False  # the main thread, and it has not been told
        self.calls()  # words that make no sense are refused before anything is changed
        self.patches = Patches(self._replacements(), self._not_now)

    def calls(self) -> OwnCalls:
        """The emulated drivers of this process: a child of fork has others than its parent."""
        if self._calls is None or self._pid != os.getpid():
            with self._lock:
                if self._calls is None or self._pid != os.getpid():
                    kernels = kernels_for(self.words)
                    self._calls, self._pid = OwnCalls(Machine(kernels), self._reach), os.getpid()
        return self._calls

    def forked(self) -> None:
        """In the child: the drivers are the parent's, as are their files."""
        self._calls, self._lock, self._is_interrupted = None, threading.RLock(), False

    def close(self) -> None:
        """The C library is as it was, and the emulated files are gone."""
        self.patches.undo()
        if self._calls is not None and self._pid == os.getpid():
            for kernel in self._calls.machine.kernels:
                kernel.exit(self._calls.process())
            self._calls.machine.close()

    def log(self) -> list[str]:
        """What the emulated drivers have logged, and what failed here."""
        return [line for kernel in self.calls().machine.kernels for line in kernel.log()] + list(
            self.failures
        )

    # ------------------------------------------------------------ Ctrl-C

    def _not_now(self, kind: type[BaseException], raised: BaseException, trace: object) -> int:
        """What a signal's handler raised inside, where nobody can catch it: Ctrl-C is raised anew outside."""
        if kind is KeyboardInterrupt:
            self._is_interrupted = True
            _thread.start_new_thread(self._interrupt, ())  # Thread.start() would wait for it, here inside
        else:
            self.failures.append("".join(traceback.format_exception(raised)))
        native.set_errno(errno.EINTR)
        return -1

    def _interrupt(self) -> None:
        while self._is_main_inside():
            time.sleep(0.001)
        self._is_interrupted = False
        _thread.interrupt_main()

    def _is_main_inside(self) -> bool:
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        while frame is not None:
            if frame.f_code.co_filename == __file__:
                return True
            frame = frame.f_back
        return False

    # ------------------------------------------------------------ functions of the C library

    def _replacements(self) -> dict[str, Replacement]:
        """What stands in for each function, by its registers; on both machines all arguments come in them."""
        openat, stat, lstat, fstat, fstatat = (
            lambda folder, path, flags, mode, _: self._openat(folder, path, flags, mode),
            lambda path, to, *_: self._fstatat(AT_FDCWD, path, to, 0),
            lambda path, to, *_: self._fstatat(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW),
            lambda fd, to, *_: self._answer("fstat", lambda it: it._fstat(fd, to), fd, to),
            lambda folder, path, to, flags, _: self._fstatat(folder, path, to, flags),
        )

        def opened(path: int, flags: int, mode: int, *_: int) -> int:
            return self._openat(AT_FDCWD, path, flags, mode)

        def after_version(function: Replacement) -> Replacement:
            return lambda version, a, b, c, d: function(a, b, c, d, 0)  # before glibc 2.33

        found: dict[str, Replacement] = {
            "access": lambda path, mode, *_: self._faccessat(AT_FDCWD, path, mode, 0),
            "faccessat": lambda folder, path, mode, flags, _: self._faccessat(folder, path, mode, flags),
            "readlink": lambda path, to, size, *_: self._readlinkat(AT_FDCWD, path, to, size),
            "readlinkat": lambda folder, path, to, size, _: self._readlinkat(folder, path, to, size),
            "statx": lambda *all: self._answer("statx", lambda it: it._statx(*all), *all),
            "ioctl": lambda fd, request, va, *_: self._answer(
                "ioctl", lambda it: it.ioctl(fd, request, va), fd, request, va
            ),
            "opendir": lambda path, *_: self._opendir(path),
        }
        for end in ("", "64"):
            found |= {f"open{end}": opened, f"openat{end}": openat, f"fstatat{end}": fstatat}
            found |= {f"stat{end}": stat, f"lstat{end}": lstat, f"fstat{end}": fstat}
            found |= {f"__xstat{end}": after_version(stat), f"__lxstat{end}": after_version(lstat)}
            found |= {f"__fxstat{end}": after_version(fstat), f"__fxstatat{end}": after_version(fstatat)}
        return found

    def _openat(self, folder: int, path: int, flags: int, mode: int) -> int:
        given = folder, path, flags, mode
        return self._answer("openat", lambda it: it._openat(*given), *given)

    def _fstatat(self, folder: int, path: int, to: int, flags: int) -> int:
        given = folder, path, to, flags
        return self._answer("newfstatat", lambda it: it._newfstatat(*given), *given)

    def _faccessat(self, folder: int, path: int, mode: int, flags: int) -> int:
        given = folder, path, mode, flags
        return self._answer("faccessat2", lambda it: it._faccessat2(*given), *given)

    def _readlinkat(self, folder: int, path: int, to: int, size: int) -> int:
        given = folder, path, to, size
        return self._answer("readlinkat", lambda it: it._readlinkat(*given), *given)

    def _opendir(self, path: int) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC
        fd = self._openat(AT_FDCWD, path, flags, 0)
        return 0 if fd < 0 else native.address(native.libc().fdopendir(fd))

    def _answer(self, name: str, ours: Callable[[OwnCalls], Result], *arguments: int) -> int:
        """The emulated drivers' answer, or the kernel's. Returns -1 with errno where the call is refused."""
        result = NOT_OURS
        if self._is_interrupted and threading.current_thread() is threading.main_thread():
            native.set_errno(errno.EINTR)  # who tries again comes here until it has heard
            return -1
        if not getattr(self._inside, "it", False):  # our own code calls these functions, too
            self._inside.it = True
            try:
                result = outcome(lambda: ours(self.calls()), self.failures)
            finally:
                self._inside.it = False
        if result is NOT_OURS:
            result = native.system_call(self._numbers[name], *arguments)
        if result >= 0:
            return result
        native.set_errno(-result)
        return -1


_attached: Attachment | None = None


def attach(*words: str) -> None:
    """Show emulated GPUs to all code in this process that uses the C library, such as AMD's runtime through ctypes.

    Call it before a library looks for GPUs, and before other threads use files.

    words   as "amd:gfx1100", one for each GPU, or several with commas between them
    Raises  UsageError when GPUs are attached already or a word is wrong, DriverError where code cannot be changed
    """
    global _attached
    if _attached is not None:
        raise UsageError("[attach] emulated GPUs are attached already. Call hcq.emu.detach() first.")
    found = [word.strip() for text in words for word in text.split(",") if word.strip()]
    if not found:
        raise UsageError("[attach] no GPU is named. Say for example hcq.emu.attach('amd:gfx1100').")
    made = Attachment(found)
    made.patches.put()
    _attached = made


def detach() -> None:
    """Undo `attach`: the real files are seen again. Who still uses an emulated GPU finds that nobody answers."""
    global _attached
    if _attached is not None:
        gone, _attached = _attached, None
        gone.close()


def _forked() -> None:
    if _attached is not None:
        _attached.forked()


os.register_at_fork(after_in_child=_forked)
atexit.register(detach)
