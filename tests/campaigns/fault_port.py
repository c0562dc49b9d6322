"""A port that does what a plan says: calls are refused, cut short, or go through; and it keeps books of them.

In       any Port; a Plan, which is asked at every call
Out      the calls' results, or the refusal that the plan names
Changes  the process's mappings and files, through the port inside
Next     faults.py (the plans), hcq/system/port.py (what a Port is), hcq/emu/port.py (the usual one inside)
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hcq.amd.abi.kfd import KFD_IOCTLS
from hcq.emu.nv.spec import DEFAULT_VERSION
from hcq.errors import DriverError
from hcq.layout import Ioctl
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.status import name_of as status_name
from hcq.system.port import MAP_FIXED, PROT_NONE, AroundPort, Port, refused

NV_CALLS: dict[int, Ioctl] = {each.request: each for each in vars(abi).values() if isinstance(each, Ioctl)}
# calls that give something back: what they refuse to take stays where it is, and that is no leak of ours
RELEASES = ("close", "munmap", "FREE", "DESTROY", "UNMAP", "UNREGISTER")


@dataclass
class Fault:
    """What happens to a call.

    errno   refused with this
    status  answered, with this status of the resource manager instead of a result
    keep    what share of a file's bytes is read
    times   how often a doorbell is rung instead of once
    act     done to the device beside or instead of what happens; `what` says it in words
    stalls  the device may wait for ever after it
    """

    errno: int = 0
    status: int = 0
    keep: float = 1.0
    times: int = 1
    act: Callable[[Any], None] | None = None
    what: str = ""
    stalls: bool = False

    def __str__(self) -> str:
        if self.errno:
            return errno.errorcode[self.errno]
        if self.status:
            return status_name(self.status)
        return self.what or (f"{self.times} times" if self.times != 1 else f"{self.keep:.0%} of the file")


@dataclass
class Injector:
    """Counts what happens by name, and asks `plan` what is to become of it; what was done is in `fired`.

    plan   (name, how often it has happened, how often anything has) -> a Fault, or None
    """

    plan: Callable[[str, int, int], Any] = lambda name, count, index: None
    is_armed: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)
    on_stall: Callable[[], None] = lambda: None

    def at(self, name: str) -> Any:
        """Something happens; what is to become of it, or None."""
        if not self.is_armed:
            return None
        count = self.counts[name] = self.counts.get(name, 0) + 1
        self.events.append(name)
        fault = self.plan(name, count, len(self.events))
        if fault is not None:
            self.fired.append(f"{name} #{count}: {fault}")
            if fault.stalls:
                self.on_stall()
        return fault


class FaultPort(AroundPort):
    """A Port around another. `maps` and `files` are what was mapped and opened through it and is still there."""

    def __init__(self, inner: Port, injector: Injector) -> None:
        super().__init__(inner)
        self.injector = injector
        self.maps: dict[int, int] = {}  # start -> end, of what is more than reserved
        self.files: dict[int, str] = {}
        self.is_over = False  # the process has ended: its memory is somebody else's now

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        self._check("open " + path)
        fd = self.inner.open(path, flags)
        self.files[fd] = path
        return fd

    def close(self, fd: int) -> None:
        self._check("close")
        self.inner.close(fd)
        self.files.pop(fd, None)

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        name = name_of(request, argument)
        fault = self.injector.at(name)
        if fault is None:
            return self.inner.ioctl(fd, request, argument)
        if fault.errno:
            raise refused(f"ioctl(fd={fd}, request={request:#x})", fault.errno)
        if fault.status and request in NV_CALLS:
            layout = _release().of(NV_CALLS[request])
            field = layout.fields.get("rmstatus") or layout.fields.get("status")
            if field is not None:
                argument[field.byte_offset : field.byte_offset + 4] = fault.status.to_bytes(4, "little")
                return 0
        return self.inner.ioctl(fd, request, argument)

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, fd: int = -1, offset: int = 0) -> int:
        self._check("mmap")
        got = self.inner.mmap(va, size_bytes, prot, flags, fd, offset)
        end = got + -(-size_bytes // 4096) * 4096
        self._forget(got, end)
        if prot != PROT_NONE or not flags & MAP_FIXED:
            self.maps[got] = end
        return got

    def munmap(self, va: int, size_bytes: int) -> None:
        self._check("munmap")
        if self.is_over:
            return
        self.inner.munmap(va, size_bytes)
        self._forget(va, va + -(-size_bytes // 4096) * 4096)

    def mprotect(self, va: int, size_bytes: int, prot: int) -> None:
        self._check("mprotect")
        self.inner.mprotect(va, size_bytes, prot)

    def madvise(self, va: int, size_bytes: int, advice: int) -> None:
        self._check("madvise")
        self.inner.madvise(va, size_bytes, advice)

    def read_file(self, path: str) -> bytes:
        fault = self._check("read " + path)
        found = self.inner.read_file(path)
        return found if fault is None else found[: int(len(found) * fault.keep)]

    def sweep(self) -> None:
        """The process ends here, as far as this port knows: all that was mapped and opened is given back."""
        self.is_over = True
        for start, end in list(self.maps.items()):
            self.inner.munmap(start, end - start)
        for fd in list(self.files):
            self.inner.close(fd)
        self.maps.clear()
        self.files.clear()

    @property
    def mapped_bytes(self) -> int:
        return sum(end - start for start, end in self.maps.items())

    def _check(self, name: str) -> Any:
        fault = self.injector.at(name)
        if fault is not None and fault.errno:
            raise refused(f"{name}()", fault.errno)
        return fault

    def _forget(self, start: int, end: int) -> None:
        for known, its_end in list(self.maps.items()):
            if known < end and start < its_end:
                del self.maps[known]
                if known < start:
                    self.maps[known] = start
                if end < its_end:
                    self.maps[end] = its_end


@functools.cache
def _release() -> abi.Abi:
    return abi.abi_for(DEFAULT_VERSION)


def name_of(request: int, argument: bytearray) -> str:
    """An ioctl in words: its name, and for the resource manager also the class or the control."""
    number, kind = request & 0xFF, request >> 8 & 0xFF
    if kind == ord("K") and number in KFD_IOCTLS:
        return KFD_IOCTLS[number].name
    call = NV_CALLS.get(request)
    if call is None:
        return f"ioctl {request:#x}"
    if call is abi.RM_ALLOC:
        return (
            f"{call.name} {_called(ClassId, abi.rm.RmAllocArgs.from_bytes(bytes(argument)).values['hclass'])}"
        )
    if call is abi.RM_CONTROL:
        return f"{call.name} {_called(ControlId, abi.rm.RmControlArgs.from_bytes(bytes(argument)).values['cmd'])}"
    return call.name


def _called(names: Any, number: int) -> str:
    known: Mapping[int, Any] = names._value2member_map_
    return str(known[number].name) if number in known else f"{number:#x}"


def is_release(name: str) -> bool:
    """Whether a call of this name gives something back."""
    return any(word in name for word in RELEASES)


def refuse(what: str, number: int = errno.ENOMEM) -> DriverError:
    """A refusal of something that is no call of the port: an allocation, a thread."""
    return refused(f"{what}()", number)
