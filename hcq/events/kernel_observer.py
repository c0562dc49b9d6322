"""Kernel observers: events of a kernel driver, emulated or traced, about all processes that use it.

In       ioctls as they return; packets as they are taken from rings; how far rings are read; faults
Out      `KernelObserver`, with a method for every kind of event; `Client`, the process an event is about
Next     emu/amd/watch.py, emu/nv/watch.py and emu/watched_call.py (the sources), foreign_devices.py (the consumer),
         observer.py (the same for our devices)

Our own devices report events themselves (observer.py). Another program does not: it is observed at its border to the
kernel, where only calls, memory and doorbells are visible.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hcq import backends
from hcq.system.ioctl_pointers import Nested

# (address, size in bytes) -> so many bytes, or none where some cannot be read
Read = Callable[[int, int], bytes]


class Client(Protocol):
    """A process that uses a kernel driver."""

    @property
    def pid(self) -> int:
        """Its number, as /proc names it."""
        ...

    def read(self, va: int, size_bytes: int) -> bytes:
        """Bytes of its memory. Raises Refusal or OSError where it has none."""
        ...


def queue_number(gpu: int, number: int) -> int:
    """What `taken` calls a queue where a driver counts them for each GPU anew."""
    return gpu << 32 | number


@dataclass(frozen=True)
class GpuFault:
    """A GPU stopped in the middle of something.

    queue    the queue whose packet did it, as `taken` calls it; None when nobody knows
    what     "page fault", "illegal instruction", ...: what kind
    why      the whole story in the driver's words
    address  that the access was to; None when it was none
    pc       the instruction's address; 0 when it was not a kernel's, or is not known
    kernel   where the kernel begins, where that is known and `pc` is not
    """

    gpu_id: int
    queue: int | None
    what: str
    why: str
    address: int | None = None
    size_bytes: int = 0
    access: str = ""
    pc: int = 0
    work_item: str = ""
    instruction: str = ""
    kernel: int = 0


@dataclass(frozen=True)
class Call:
    """An ioctl that returned.

    path           the file that it went to
    before, after  its argument
    error          the errno; 0 when it was not refused
    nested         the memory that its argument pointed to
    fd             the caller's descriptor; -1 where nobody knows it
    """

    path: str
    request: int
    before: bytes
    after: bytes
    error: int = 0
    nested: Sequence[Nested] = ()
    fd: int = -1


def watcher() -> KernelObserver | None:
    """An observer for programs of others, as HCQ_TRACE, HCQ_VALIDATE, HCQ_SANITIZE and HCQ_REPORT ask for; None: for
    nothing.

    One for each kernel driver. It is imported only now.
    """
    made: KernelObserver | None = importlib.import_module(f"{backends.DIAGNOSTICS}.foreign").session()
    return made


class KernelObserver:
    """Hears of what processes do with one kernel driver; each method does nothing here.

    Threads of several processes and GPUs may call at once. What an observer does takes the program's time.
    """

    def offers(self, kind: str, gpus: Mapping[int, str]) -> None:
        """The driver of a kind ("AMD") has these GPUs: how calls name them -> architecture. Called first."""

    def called(self, client: Client, call: Call) -> None:
        """An ioctl returned."""

    def taken(self, client: Client, queue: int, at: int, words: bytes, read: Read) -> None:
        """The GPU is about to read these packets: all that doorbells have shown it since the last time.

        queue  as the kernel numbers it
        at     where they begin, in bytes since the queue was made; nothing was left out before
        read   the GPU's memory
        """

    def done(self, client: Client, queue: int, at: int) -> None:
        """The GPU has finished with all packets before `at`."""

    def faulted(self, client: Client, fault: GpuFault, read: Read) -> None:
        """A GPU stopped."""

    def exited(self, client: Client) -> None:
        """The process is gone."""

    def found(self) -> Sequence[Mapping[str, Any]]:
        """What was found wrong in kernels so far (HCQ_SANITIZE), as hcq/observe/kernel_findings.py says it."""
        return ()

    def summary(self, is_verbose: bool) -> Sequence[str]:
        """What is to be said when all programs have ended."""
        return ()

    def close(self) -> None:
        """Nothing more comes."""
