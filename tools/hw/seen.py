"""What was seen: calls of a vendor's runtime to its kernel driver, as a trace that hcq-trace reads.

In       ioctl and mmap as the runtime calls them, with the functions that do them
Out      a trace file of PORT records; the calls in order, and the mappings, for whoever walks the rings
Changes  the file
Next     interpose.py (how the calls come here), watch.py (who starts it), hcq/trace/calls.py (the records)
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hcq import backends
from hcq.observe.trace_writer import TraceWriter
from hcq.system import native
from hcq.system.ioctl_pointers import Nested, follow
from hcq.trace import calls
from hcq.trace.records import Kind

WATCHED = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")
EMULATED = re.compile(r"/memfd:(kfd|renderD\d+)\b")
PLAIN_BYTES = 128  # of an argument whose size neither its request nor a declaration says
IOCTL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, use_errno=True)
MMAP = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    use_errno=True,
)  # fmt: skip


class SeenCall(NamedTuple):
    """An ioctl that was seen. phase: what the runtime was asked for at the time."""

    phase: str
    path: str
    call: calls.Call
    result: int


class Mapping(NamedTuple):
    """Memory of a watched file that was mapped."""

    path: str
    fd: int
    va: int
    size_bytes: int
    offset: int


class Seen:
    """Collects calls. `phase` is set by whoever drives the runtime."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind = kind
        self.writer = TraceWriter(str(path))
        self.calls: list[SeenCall] = []
        self.mappings: list[Mapping] = []
        self.phase = "load"
        self.pointers = backends.pointers_of(kind)
        self._lock = threading.RLock()
        self._declared = backends.of(kind).calls()

    def describe(self, arch: str, facts: dict[str, Any]) -> None:
        """What the trace says of the device."""
        fields = {"device": 0, "name": self.kind, "arch": arch, "facts": facts}
        self.writer.record(Kind.DEVICE, fields)
        self.writer.flush()

    def hooks(self) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
        """For an Interposer."""
        mmap = MMAP, lambda original: lambda *given: self.mmap(original, *given)
        return {
            "ioctl": (IOCTL, lambda original: lambda *given: self.ioctl(original, *given)),
            "mmap": mmap,
            "mmap64": mmap,
        }

    def ioctl(self, original: Callable[..., int], fd: int, request: int, at: int | None) -> int:
        """An ioctl: done, and noted if it goes to a GPU's driver."""
        path = path_of(fd)
        if not path.startswith(WATCHED):
            return original(fd, request, at)
        request &= 0xFFFFFFFF
        size = self._size(request)
        before = native.peek(at, size) if at else b""
        blocks = follow(self.pointers(request, before), before, native.peek)
        given = [native.peek(block.va, block.size_bytes) for block in blocks]
        result = original(fd, request, at)
        number = ctypes.get_errno()
        try:
            after = native.peek(at, len(before)) if at else b""
            nested = tuple(
                Nested(block.name, block.va, data, native.peek(block.va, len(data)))
                for block, data in zip(blocks, given)
            )
            self._note(path, calls.Call(fd, request, before, after, nested), result, number)
        finally:
            ctypes.set_errno(number)
        return result

    def _note(self, path: str, call: calls.Call, result: int, number: int) -> None:
        fields: dict[str, Any] = {
            "device": 0,
            "call": "ioctl",
            "arguments": [call.fd, call.request],
            "path": path,
            "phase": self.phase,
            "argument_bytes": len(call.before),
            "result": result,
        }
        if result < 0:
            fields.update(error=f"{os.strerror(number)} ({number})", errno=number)
        data = calls.pack(fields, call.before, call.after, call.nested)
        with self._lock:
            self.calls.append(SeenCall(self.phase, path, call, result))
            self.writer.record(Kind.PORT, fields, data)
            self.writer.flush()

    def mmap(self, original: Callable[..., int | None], at: int | None, *given: int) -> int | None:
        """A mapping: done, and noted if it shows memory of a GPU's driver."""
        found = original(at, *given)
        number = ctypes.get_errno()
        size, prot, flags, fd, offset = given
        path = path_of(fd) if fd >= 0 else ""
        if path.startswith(WATCHED) and found not in (None, 2**64 - 1):
            with self._lock:
                self.mappings.append(Mapping(path, fd, int(found or 0), size, offset))
                self.writer.record(
                    Kind.PORT,
                    {"device": 0, "call": "mmap", "arguments": [at or 0, size, prot, flags, fd, offset],
                     "path": path, "phase": self.phase, "result": found},
                )  # fmt: skip
        ctypes.set_errno(number)
        return found

    def _size(self, request: int) -> int:
        """Of an argument: in the request, or, of UVM's plain numbers, as it is declared."""
        if request >> 16 & 0x3FFF:
            return request >> 16 & 0x3FFF
        declared = self._declared.get(request)
        layout = declared.layout if declared is not None else None
        return int(getattr(layout, "size_bytes", 0)) or PLAIN_BYTES


def path_of(fd: int) -> str:
    """What a descriptor is of. Under `python -m hcq emulate` a device node is a file in memory of its name."""
    try:
        path = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""
    emulated = EMULATED.match(path)
    return (
        f"/dev/{'dri/' if emulated[1].startswith('renderD') else ''}{emulated[1]}"
        if emulated is not None
        else path
    )
