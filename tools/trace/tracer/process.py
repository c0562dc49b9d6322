"""One traced process: which of its files are a GPU's, what it asks of them, and its doorbells.

In       system calls as they begin and return; doorbells that are about to be written
Out      the events of hcq/events/kernel_observer.py
Changes  nothing but its doorbells' mappings
Next     tracer.py (who stops the threads), doorbells.py, kfd.py and rm.py (what each driver's queues are)

Rings are read when a doorbell is about to be written: the GPU has seen nothing of that yet. How far it has come is read
then, too, so a submission's end is known no better than by the next call or doorbell of the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ClassVar

from hcq import backends
from hcq.events.kernel_observer import Call, Client, KernelObserver
from hcq.system.ioctl_pointers import Nested, noted
from hcq.tools.trace.tracer import doorbells
from hcq.tools.trace.tracer.doorbells import Doorbells

MAP_SHARED = 1


class TracedProcess(Client):
    """A process with its memory, and nothing known of any driver; `close` when it is gone.

    kind      of GPU, as hcq/backends.py names it
    devices   how the paths of its files begin
    """

    kind: ClassVar[str] = ""
    devices: ClassVar[tuple[str, ...]] = ("/dev/no GPU's",)

    def __init__(self, pid: int, observer: KernelObserver) -> None:
        self._pid, self.observer = pid, observer
        self.files: dict[tuple[int, int], str] = {}  # device files that it opened, by what they are
        self.doorbells: list[Doorbells] = []
        self.call_at = 0  # behind some instruction that makes system calls
        self._memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def pid(self) -> int:
        return self._pid

    def read(self, va: int, size_bytes: int) -> bytes:
        """Its memory; nothing where some of it cannot be read."""
        try:
            data = os.pread(self._memory, size_bytes, va)
        except (OSError, OverflowError):
            return b""
        return data if len(data) == size_bytes else b""

    def close(self) -> None:
        """It is gone, or executes another program."""
        os.close(self._memory)
        self.observer.exited(self)

    # ------------------------------------------------------------ files

    def opened(self, path: str, fd: int) -> None:
        """An open returned."""
        if path.startswith(self.devices) and (what := self._what(fd)):
            self.files[what] = path

    def path_of(self, fd: int) -> str:
        """The device file behind a descriptor, however it came by it; "" for any other."""
        what = self._what(fd)
        if what is None:
            return ""
        if what not in self.files:
            try:
                self.files[what] = os.readlink(f"/proc/{self.pid}/fd/{fd}")
            except OSError:
                return ""
        path = self.files[what]
        return path if path.startswith(self.devices) else ""

    def _what(self, fd: int) -> tuple[int, int] | None:
        try:
            found = os.stat(f"/proc/{self.pid}/fd/{fd}")
        except OSError:
            return None
        return found.st_dev, found.st_ino

    # ------------------------------------------------------------ calls

    def calls(self, fd: int, request: int, va: int) -> Callable[[int], None] | None:
        """An ioctl begins. Returns what is to be done once it has returned; None for one that is no GPU's."""
        path = self.path_of(fd)
        if not path:
            return None
        size = self.argument_bytes(request)
        before = self.read(va, size)
        nested = noted(backends.pointers_of(self.kind)(request, before), before, self.read)
        return lambda result: self._returned(path, fd, request, va, before, nested, result)

    def _returned(
        self,
        path: str,
        fd: int,
        request: int,
        va: int,
        before: bytes,
        nested: Callable[[], list[Nested]],
        result: int,
    ) -> None:
        after = self.read(va, len(before))
        error = -result if result < 0 else 0
        call = Call(path, request, before, after, error, nested(), fd)
        self.observer.called(self, call)
        if not error:
            self.returned(call)
        self.look_done()

    # ------------------------------------------------------------ what a driver's own process knows

    def argument_bytes(self, request: int) -> int:
        """How long the argument of an ioctl is."""
        return request >> 16 & 0x3FFF

    def returned(self, call: Call) -> None:
        """An ioctl returned, and was not refused."""

    def mapped(self, thread: int, start: int, size_bytes: int, fd: int, offset: int) -> None:
        """A shared mapping of a file was made by this thread, which is stopped at its end."""

    def look(self) -> None:
        """Tell what rings hold that was not told yet: a doorbell is about to be written."""

    def look_done(self) -> None:
        """Tell how far the GPU has come."""

    # ------------------------------------------------------------ doorbells

    def withhold(self, thread: int, start: int, size_bytes: int, fd: int, offset: int) -> None:
        """Close a mapping of doorbells that was just made."""
        page = doorbells.withhold(thread, start, size_bytes, fd, offset)
        if page is not None:
            self.doorbells = [one for one in self.doorbells if one.start != start] + [page]

    def rung(self, va: int) -> Doorbells | None:
        """A store to this address is about to be made; if it is a doorbell, the rings have been read."""
        page = next((one for one in self.doorbells if one.holds(va)), None)
        if page is not None:
            self.look()
            self.look_done()
        return page
