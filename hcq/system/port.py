"""Port: the interface to the operating system: files, ioctls, mappings, the clock. Drivers use no other way.

In       calls a device makes while it opens, maps memory, and waits
Out      their results; a call that fails is a DriverError that names the call, its arguments and the errno
Changes  the process's mappings and open files
Next     hcq/memory.py and cpu/device.py (callers), observe/trace.py (where a RecordingPort writes)

Ports compose: RecordingPort(FaultyPort(LinuxPort(), {...}), sink). A device takes its port as an argument, so tests and
users run the same code and nothing is patched.
"""

from __future__ import annotations

import errno as errno_names
import functools
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from hcq.errors import DriverError
from hcq.system import native

if TYPE_CHECKING:
    from hcq.system.ioctl_pointers import Declared

T = TypeVar("T")

PROT_NONE, PROT_READ, PROT_WRITE, PROT_EXEC = 0, 1, 2, 4
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS = 0x01, 0x02, 0x10, 0x20
MAP_32BIT, MAP_NORESERVE = 0x40, 0x4000
MADV_HUGEPAGE = 14
PAGE_BYTES = 4096


@runtime_checkable
class Port(Protocol):
    """What a device may ask of the operating system. Every call that is refused raises DriverError with the errno.

    runs_ptx  NVIDIA GPUs there run PTX, not machine code
    """

    @property
    def runs_ptx(self) -> bool:
        """Whether NVIDIA GPUs there run PTX instead of machine code; only emulated ones do."""
        ...

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        """open(2): a file descriptor, which a child of exec does not inherit."""
        ...

    def close(self, fd: int) -> None:
        """close(2)."""
        ...

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        """ioctl(2): the argument is read and written in place. Returns what the call returns."""
        ...

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, fd: int = -1, offset: int = 0) -> int:
        """mmap(2): the address of the mapping.

        va     where, or 0 for anywhere; binding only with MAP_FIXED
        prot   PROT_* bits
        flags  MAP_* bits
        """
        ...

    def munmap(self, va: int, size_bytes: int) -> None:
        """munmap(2)."""
        ...

    def mprotect(self, va: int, size_bytes: int, prot: int) -> None:
        """mprotect(2)."""
        ...

    def madvise(self, va: int, size_bytes: int, advice: int) -> None:
        """madvise(2). Advice only: a refusal is not an error."""
        ...

    def invoke(self, library: str, function: str, encoding: str, *arguments: Any) -> Any:
        """Call a function of a library of the system.

        library    by path or name
        encoding   the types of its result and its arguments, as Objective-C writes them: "@@:Q"
        arguments  numbers, tuples for structures passed by value; for pointers an address, or bytes that are read and a
                   bytearray that is written
        Returns    a number; addresses are numbers, too
        """
        ...

    def pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
        """pread(2) of a driver's file: as many bytes as it gives."""
        ...

    def read_file(self, path: str) -> bytes:
        """The contents of a file, such as one in sysfs."""
        ...

    def clock_ns(self) -> int:
        """The time in nanoseconds on the clock of time.monotonic_ns."""
        ...

    def kernel_log(self) -> list[str]:
        """What kernel drivers have logged, where that is ours to read: the real kernel's log is not."""
        ...


class LinuxPort(Port):
    """The operating system itself."""

    @property
    def runs_ptx(self) -> bool:
        """It may be one that shows emulated GPUs to all its programs (`python -m hcq emulate`), and they say so."""
        try:
            return b"(emulated)" in self.read_file("/proc/driver/nvidia/version")
        except DriverError:
            return False

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        try:
            return os.open(path, flags | os.O_CLOEXEC)
        except OSError as error:
            raise refused(f"open({path})", error.errno or 0) from None

    def close(self, fd: int) -> None:
        os.close(fd)

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        import fcntl  # only devices behind a kernel driver need it

        try:
            return int(fcntl.ioctl(fd, request, argument, True))
        except OSError as error:
            raise refused(f"ioctl(fd={fd}, request={request:#x})", error.errno or 0) from None

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, fd: int = -1, offset: int = 0) -> int:
        got = native.address(native.libc().mmap(native.pointer(va), size_bytes, prot, flags, fd, offset))
        if got == 2**64 - 1:
            raise refused(
                f"mmap(size_bytes={size_bytes}, prot={prot:#x}, flags={flags:#x}, fd={fd})", native.errno()
            )
        return got

    def munmap(self, va: int, size_bytes: int) -> None:
        if native.libc().munmap(native.pointer(va), size_bytes):
            raise refused(f"munmap({va:#x}, {size_bytes})", native.errno())

    def mprotect(self, va: int, size_bytes: int, prot: int) -> None:
        if native.libc().mprotect(native.pointer(va), size_bytes, prot):
            raise refused(f"mprotect({va:#x}, {size_bytes}, prot={prot:#x})", native.errno())

    def madvise(self, va: int, size_bytes: int, advice: int) -> None:
        # advice only: a refusal changes nothing
        native.libc().madvise(native.pointer(va), size_bytes, advice)

    def invoke(self, library: str, function: str, encoding: str, *arguments: Any) -> Any:
        return _function(library, function, encoding)(*arguments)

    def pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
        try:
            return os.pread(fd, size_bytes, offset)
        except OSError as error:
            raise refused(
                f"pread(fd={fd}, size_bytes={size_bytes}, offset={offset:#x})", error.errno or 0
            ) from None

    def read_file(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise refused(f"read({path})", error.errno or 0) from None

    def clock_ns(self) -> int:
        return time.monotonic_ns()

    def kernel_log(self) -> list[str]:
        """Nothing: the kernel's log is not ours to read."""
        return []


class AroundPort(Port):
    """A port around another: each call goes through `through`, which a subclass may look at, refuse or note."""

    def __init__(self, inner: Port) -> None:
        self.inner = inner

    def through(self, call: str, *arguments: Any) -> Any:
        """Answer a call, by its name and arguments; here the port inside does."""
        return getattr(self.inner, call)(*arguments)

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        return int(self.through("open", path, flags))

    def close(self, fd: int) -> None:
        self.through("close", fd)

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        return int(self.through("ioctl", fd, request, argument))

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, fd: int = -1, offset: int = 0) -> int:
        return int(self.through("mmap", va, size_bytes, prot, flags, fd, offset))

    def munmap(self, va: int, size_bytes: int) -> None:
        self.through("munmap", va, size_bytes)

    def mprotect(self, va: int, size_bytes: int, prot: int) -> None:
        self.through("mprotect", va, size_bytes, prot)

    def madvise(self, va: int, size_bytes: int, advice: int) -> None:
        self.through("madvise", va, size_bytes, advice)

    def invoke(self, library: str, function: str, encoding: str, *arguments: Any) -> Any:
        return self.through("invoke", library, function, encoding, *arguments)

    def pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
        return bytes(self.through("pread", fd, size_bytes, offset))

    def read_file(self, path: str) -> bytes:
        return bytes(self.through("read_file", path))

    def clock_ns(self) -> int:
        return self.inner.clock_ns()

    @property
    def runs_ptx(self) -> bool:
        return self.inner.runs_ptx

    def kernel_log(self) -> list[str]:
        return self.inner.kernel_log()


class RecordingPort(AroundPort):
    """Passes every call on and then calls `sink(call, arguments, result)`; the result of a failure is its
    exception. An ioctl's arguments are the file, the request, the argument as it came back and as it was given, and the
    memory that it points to.

    pointers  what the argument of an ioctl points to, as its vendor declares it; without, nothing is followed

    >>> heard = []
    >>> port = hcq.system.port.RecordingPort(hcq.system.port.LinuxPort(), lambda *what: heard.append(what))
    >>> port.read_file("/dev/null"), heard
    (b'', [('read_file', ('/dev/null',), b'')])
    """

    def __init__(
        self,
        inner: Port,
        sink: Callable[[str, tuple[object, ...], object], None],
        pointers: Declared = lambda request, argument: (),
    ) -> None:
        super().__init__(inner)
        self.sink = sink
        self.pointers = pointers

    def through(self, call: str, *arguments: Any) -> Any:
        return self._ioctl(*arguments) if call == "ioctl" else self._noted(call, arguments, lambda: arguments)

    def _ioctl(self, fd: int, request: int, argument: bytearray) -> Any:
        from hcq.system.ioctl_pointers import noted  # only recorded calls are followed

        before = bytes(argument)
        nested = noted(self.pointers(request, before), before, native.peek)
        return self._noted(
            "ioctl", (fd, request, argument), lambda: (fd, request, argument, before, nested())
        )

    def _noted(self, call: str, arguments: tuple[Any, ...], shown: Callable[[], tuple[object, ...]]) -> Any:
        try:
            result = super().through(call, *arguments)
        except Exception as error:
            self.sink(call, shown(), error)
            raise
        self.sink(call, shown(), result)
        return result


class FaultyPort(AroundPort):
    """Passes calls on until its plan says fail: {"mmap": (3, ENOMEM)} lets three mmaps through and refuses the rest.

    calls  how often each was made, by name
    """

    def __init__(self, inner: Port, plan: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(inner)
        self.plan = dict(plan)
        self.calls: dict[str, int] = {}

    def through(self, call: str, *arguments: Any) -> Any:
        count = self.calls[call] = self.calls.get(call, 0) + 1
        allowed, number = self.plan.get(call, (count, 0))
        if count > allowed:
            raise refused(f"{call}{arguments[:2] if call == 'ioctl' else arguments}", number)
        return super().through(call, *arguments)


@functools.cache
def _function(library: str, function: str, encoding: str) -> Callable[..., Any]:
    """A function of a library, as it is called with arguments of these types."""
    handle = native.library(library)
    if not handle:
        raise DriverError(f"dlopen({library!r}): there is no such library here. {_OF_MACS}")
    found = native.library_symbol(handle, function)
    if not found:
        raise DriverError(f"dlsym({library!r}, {function!r}): the library has no such function. {_OF_MACS}")
    made: Callable[..., Any] = native.encoded_function(found, encoding)
    return made


_OF_MACS = "Metal's are part of macOS; elsewhere it is emulated: HCQ_EMULATE=metal:m3."


def root_of(port: Port) -> Any:
    """The operating system behind a port."""
    root: Any = port
    while hasattr(root, "inner"):
        root = root.inner
    return root


def of_process(port: Port, make: Callable[[], T]) -> T:
    """What a driver keeps for this process, as the operating system behind a port sees it: made when first asked for.

    A child of fork starts anew. What belongs to an emulated operating system goes with it.
    """
    root = root_of(port)
    kept = _of_process if isinstance(root, LinuxPort) else vars(root).setdefault("of_process", {})
    key = os.getpid(), make
    found: T | None = kept.get(key)
    # of two threads that are here at once, the first one's is kept
    return kept.setdefault(key, make()) if found is None else found


_of_process: dict[Any, Any] = {}  # of the real operating system


def refused(call: str, number: int) -> DriverError:
    """The DriverError for a call that came back with an errno, with the fix where there is a usual one."""
    name = errno_names.errorcode.get(number, str(number))
    fix = _FIXES.get(number, "")
    error = DriverError(f"{call} -> {name} ({os.strerror(number)}).{fix}")
    error.errno = number
    return error


_FIXES = {
    errno_names.EACCES: " Add the user to the group that owns the file (usually render or video).",
    errno_names.EPERM: " This process may not do that; a container or a security policy forbids it.",
    errno_names.ENOENT: " The kernel driver that makes this file is not loaded.",
    errno_names.ENOMEM: " Free memory, or raise the limit (ulimit -v, cgroup memory.max).",
    errno_names.EMFILE: " This process has too many files open. Close some, or raise the limit (ulimit -n).",
    errno_names.ENFILE: " The system has too many files open. Raise its limit (sysctl fs.file-max).",
}
