"""What an emulated kernel driver is: device nodes and files, open files that answer or refuse, and who makes a call.

In       nothing
Out      Kernel, File: what a driver here fulfils; Process: who calls it, and OwnProcess, which is this one;
         Refusal, which becomes the errno of a call
Changes  nothing; OwnProcess reads and writes the memory that a call points to
Next     port.py (calls of our own drivers), amd/kfd.py and nv/rm.py (the emulated drivers), backing.py (memory)

A driver reads and writes what a caller's pointers point to through its Process, and finds the files behind descriptors
in its structures there: a process of ours, and one that only the supervisor sees, are served by the same code.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

from hcq.errors import DriverError
from hcq.events.kernel_observer import KernelObserver
from hcq.system import native

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hcq.emu.backing import DeviceMemory


LOG_LINES = 4096  # of a driver's log: like a kernel's it is a ring, as programs can make it write without end


class Refusal(Exception):
    """What an emulated kernel driver answers when it refuses: an errno."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode.get(number, str(number)))
        self.number = number


class UserMemory(Protocol):
    """Pages of a process that a GPU is given (USERPTR). `data` is what the GPU reads and writes.

    is_copy   not in this process, where `data` is the pages themselves, and the calls below do nothing
    """

    data: NDArray[np.uint8]
    is_copy: bool

    def again(self) -> UserMemory:
        """The same pages with a copy of their own, where it is one: of two GPUs that change them, neither loses any."""
        ...

    def fetch(self, at: int, size_bytes: int) -> None:
        """Before the GPU reads: what the process has stored there is in `data`."""
        ...

    def store(self, at: int, size_bytes: int) -> None:
        """After the GPU has written: this part of `data` is in the process."""
        ...


class Process(Protocol):
    """Who makes a call on an emulated driver. One object for each process, as long as it lives: it can be a key.

    maps_by_itself   mmap of its descriptors is the real system's: offsets are those in the memory of device nodes, or
                     in what `show` has put there
    """

    maps_by_itself: ClassVar[bool] = True

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def read(self, va: int, size_bytes: int) -> bytes:
        """Bytes of its memory. Raises Refusal (EFAULT) where nothing is mapped."""
        ...

    def write(self, va: int, data: bytes | bytearray) -> None:
        """Change bytes of its memory. Raises Refusal (EFAULT) where nothing is mapped that may be written."""
        ...

    def memory(self, va: int, size_bytes: int) -> UserMemory:
        """Pages of it for a GPU. Raises Refusal (EFAULT) where nothing is mapped."""
        ...

    def file(self, fd: int) -> File | None:
        """The open file behind one of its descriptors, if that is a file of an emulated driver."""
        ...

    def show(self, fd: int, memory: DeviceMemory) -> None:
        """From now on mmap of this descriptor maps this memory, from its beginning; it is the same open file otherwise.

        Only for a process that maps by itself. Raises Refusal (EBADF) when the descriptor is gone.
        """
        ...

    def install(self, file: File, size_bytes: int, flags: int) -> int:
        """A new descriptor of it for an open file that a call of this thread has made; the number.

        size_bytes   how far it seeks. A process that maps by itself cannot map it.
        flags        O_CLOEXEC or 0
        Raises       Refusal, such as EMFILE
        """
        ...

    def is_interrupted(self) -> bool:
        """Whether the call that this thread answers is given up: a signal came, or the process died.

        A driver that blocks asks a few times a second, and raises Refusal (EINTR).
        """
        ...


class File(Protocol):
    """An open file of an emulated driver. Its calls raise Refusal where the real one returns an errno."""

    def ioctl(self, request: int, argument: bytearray, process: Process) -> int:
        """Answer an ioctl: the argument is read and written in place. Returns what the call returns.

        process   who calls: not always the one that opened the file, which a child of fork inherits
        """
        ...

    def argument_bytes(self, request: int) -> int:
        """How much the argument of an ioctl points to: what its number says, unless a driver numbers otherwise."""
        return request >> 16 & 0x3FFF

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        """Map into this process what the file shows at this offset; the address."""
        ...

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """What is there; a file that is for ioctls alone refuses it."""
        raise Refusal(errno.EINVAL)

    def close(self) -> None:
        """The last descriptor of the file is closed."""
        ...


@dataclass(frozen=True)
class DeviceNode:
    """A character device of an emulated driver.

    memory   what other processes map through it: the file that their descriptors are; offsets are those in it
    """

    path: str
    major: int
    minor: int
    memory: DeviceMemory


class Kernel(Protocol):
    """An emulated kernel driver. It raises Refusal where the real one returns an errno.

    folders       what lies below these is this driver's alone: a path there that is not in files() does not exist
    environment   variables with which the vendor's libraries run well on it
    apart         those with which a library asks for each piece of memory by itself (HCQ_SANITIZE=memory)
    logged        those with which it logs its calls to a file below {folder} (memory, race)
    libraries     of the system, which it is in place of
    """

    folders: tuple[str, ...]
    environment: ClassVar[Mapping[str, str]]
    apart: ClassVar[Mapping[str, str]] = {}
    logged: ClassVar[Mapping[str, str]] = {}
    libraries: ClassVar[tuple[str, ...]] = ()

    def open(self, path: str, process: Process) -> File | None:
        """An open file, or None when the path is no device node of this driver's."""
        ...

    def nodes(self) -> list[DeviceNode]:
        """Its device nodes."""
        ...

    def files(self) -> Mapping[str, bytes | str]:
        """What it shows in sysfs and procfs: path -> contents, or where a symbolic link leads."""
        ...

    def live(self) -> Mapping[str, Callable[[], bytes]]:
        """Files that change: path -> what says their contents now."""
        return {}

    def describe(self) -> list[str]:
        """Its GPUs, one line each, as people read them."""
        ...

    def exit(self, process: Process) -> None:
        """A process is gone, or executes another program: its queues, memory and events go, too."""
        ...

    def observe(self, observer: KernelObserver) -> None:
        """Tell an observer of what processes do from now on; a driver whose calls nobody reads tells nothing."""
        return

    def log(self) -> list[str]:
        """What this driver has written to the kernel's log."""
        ...

    def invoke(self, library: str, function: str, encoding: str, *arguments: Any) -> Any:
        """Call a function of one of its libraries; what it answers, as Port.invoke says."""
        return _no_library(library, function)


def _no_library(library: str, function: str) -> NoReturn:
    raise DriverError(f"{function} of {library}: the emulated driver is in place of no library.")


class _OwnPages:
    """Pages of this process: they must stay mapped for as long as the GPU may touch them."""

    is_copy = False

    def __init__(self, va: int, size_bytes: int) -> None:
        import numpy as np  # calls of a driver need none

        self.data: NDArray[np.uint8] = np.frombuffer(native.view(va, size_bytes), np.uint8)

    def again(self) -> UserMemory:
        return self

    def fetch(self, at: int, size_bytes: int) -> None:
        """The GPU reads the pages themselves."""

    def store(self, at: int, size_bytes: int) -> None:
        """The GPU has written to the pages themselves."""


class OwnProcess(Process):
    """This process: its memory is read as it is, so a pointer that is wrong ends it. files: by descriptor."""

    FIRST_FD = 1 << 20  # far above any real file descriptor

    maps_by_itself: ClassVar[bool] = False

    def __init__(self, pid: int, files: dict[int, File]) -> None:
        self._pid, self._files = pid, files
        self._numbers = itertools.count(self.FIRST_FD)

    @property
    def pid(self) -> int:
        return self._pid

    def read(self, va: int, size_bytes: int) -> bytes:
        return native.read(va, size_bytes)

    def write(self, va: int, data: bytes | bytearray) -> None:
        native.write(va, data, len(data))

    def memory(self, va: int, size_bytes: int) -> UserMemory:
        return _OwnPages(va, size_bytes)

    def file(self, fd: int) -> File | None:
        return self._files.get(fd)

    def show(self, fd: int, memory: DeviceMemory) -> None:
        """Its mappings ask the file itself."""

    def install(self, file: File, size_bytes: int, flags: int) -> int:
        number = next(self._numbers)
        self._files[number] = file
        return number

    def is_interrupted(self) -> bool:
        return False
