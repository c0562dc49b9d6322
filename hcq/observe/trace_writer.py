"""The file of a trace while it grows: records of several devices, handed to the kernel whole.

In       records, strings and call sites
Out      a file that hcq/trace/file.py reads
Changes  the file
Next     trace.py (what one device adds), hcq/trace/records.py (every byte of it), docs/trace-format.md

What only explains submissions waits for the next of them, which goes to the kernel in one write before the doorbell: a
process that is killed, or that its own kernel brings down, leaves it in the file.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from hcq.errors import DriverError
from hcq.events import ranks
from hcq.events.ranks import Place
from hcq.observe.trace_paths import path_of
from hcq.system.call_site import Site, where
from hcq.trace.frames import first_fields
from hcq.trace.records import MAGIC, Kind, pack_record

FLUSH_BYTES = 1 << 16  # explaining records wait for the next submission, up to this much
_clock = time.monotonic_ns


class TraceWriter:
    """Appends records to a file. One file may take records of several devices and processes.

    process, about  whose records they are, and what is known of it; without them, this process's
    """

    def __init__(self, path: str, process: int | None = None, about: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.process = os.getpid() if process is None else process
        self.devices = 0
        self.users = 0  # devices that are open
        self._is_resting = False
        self._lock = threading.RLock()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._strings: dict[str, int] = {}
        self._sites: dict[tuple[int, int], tuple[Any, int]] = {}
        self._fd = _opened(path)
        is_ours = about is None
        if about is None:
            about = {"argv": sys.argv, "python": sys.version.split()[0]}
        machine = {"host": ranks.host_name(), "clock": ranks.clock_name()}
        clocks = {"monotonic_ns": _clock(), "unix_ns": time.time_ns()}
        self.record(Kind.PROCESS, {"pid": self.process, **about, **machine, **clocks})
        if is_ours and (place := ranks.here()) is not None:
            self.place(place)
        self._begin()

    def _begin(self) -> None:
        """The first records, after the line that a file begins with: one process at a time looks for that."""
        try:
            with _alone(self._fd):
                if not _beginning(self._fd, self.path):
                    self._pending.insert(0, MAGIC)
                self.flush()
        except DriverError:
            self.close()
            raise

    @staticmethod
    def check(path: str) -> None:
        """Whether a trace could be written there. Raises DriverError; leaves no file that was not there."""
        was_there = os.path.exists(path)
        fd = _opened(path)
        try:
            _beginning(fd, path)
        finally:
            os.close(fd)
            if not was_there:
                os.unlink(path)

    @staticmethod
    def of(path: str) -> TraceWriter:
        """The writer for a file, shared by all devices of the process. The path is a pattern of trace_paths.py."""
        writer = _writers.get(path)
        if writer is None or writer.process != os.getpid() or writer.is_gone:
            writer = _writers[path] = TraceWriter(path_of(path))
        return writer

    def record(self, kind: Kind, fields: Mapping[str, Any], data: bytes = b"") -> None:
        """A record with text."""
        text = json.dumps(fields, default=str, separators=(",", ":")).encode()
        self.later(pack_record(kind, self.process, _clock(), text, data))

    def later(self, record: bytes) -> None:
        """Keep a whole record until the next flush. Safe in destructors: it takes no lock."""
        self._pending.append(record)
        self._pending_bytes += len(record)
        if self._pending_bytes > FLUSH_BYTES and self._lock.acquire(blocking=False):
            try:
                self.flush()
            finally:
                self._lock.release()

    def flush(self, last: bytes = b"") -> None:
        """Hand everything kept, and then `last`, to the kernel in one write.

        A full disk ends the trace, not the program.
        """
        pending = self._pending
        if pending:
            with self._lock:
                count = len(pending)
                last = b"".join((*pending[:count], last))
                del pending[:count]
                self._pending_bytes = 0
        if self._is_resting:
            self._wake()
        if self._fd < 0:
            return
        try:
            at = os.write(self._fd, last)
            while at < len(last):
                at += os.write(self._fd, last[at:])
        except OSError as error:
            with self._lock:
                if self._fd >= 0:
                    why = f"ends here ({error.strerror}); the program goes on without it"
                    print(f"hcq: trace {self.path} {why}", file=sys.stderr)
                    os.close(self._fd)
                    self._fd = -1

    def place(self, place: Place) -> None:
        """Which rank the process is from now on."""
        self.record(Kind.PLACE, place._asdict())

    @property
    def is_gone(self) -> bool:
        """Whether nobody writes here, and the file was removed since."""
        return self._is_resting and not os.path.exists(self.path)

    def rest(self) -> None:
        """No device writes here now: the file is closed until there is something to write."""
        self.flush()
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd, self._is_resting = -1, True

    def _wake(self) -> None:
        with self._lock:
            if self._is_resting:
                self._is_resting = False
                with suppress(OSError):  # it was removed: what comes late is lost with it
                    self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)

    def close(self) -> None:
        """Write nothing more, and nothing of what is kept."""
        self._is_resting = False
        self._lock = threading.RLock()
        self._pending.clear()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def intern(self, text: str) -> int:
        """The number of a string, introduced to the file when it is new."""
        number = self._strings.get(text)
        if number is None:
            with self._lock:
                number = self._strings.get(text)
                if number is None:
                    number = self._strings[text] = len(self._strings) + 1
                    data = number.to_bytes(4, "little") + text.encode("utf-8", "replace")
                    self.later(pack_record(Kind.STRING, self.process, _clock(), b"", data))
        return number

    def site(self, at: Site) -> int:
        """The string number of a line of the program; 0 for none."""
        if at is None:
            return 0
        # hashing a code object is slow, so its id is the key, and the code is kept alive
        key = (id(at[0]), at[1])
        known = self._sites.get(key)
        if known is None:
            known = self._sites[key] = at[0], self.intern(where(at))
        return known[1]


_writers: dict[str, TraceWriter] = {}


def _after_fork() -> None:
    """In the child: what was not flushed yet is the parent's to write, and its writers are of no use here."""
    for writer in _writers.values():
        writer.close()
    _writers.clear()


def _placed(place: Place) -> None:
    for writer in _writers.values():
        writer.place(place)
        writer.flush()


os.register_at_fork(after_in_child=_after_fork)
ranks.on_set(_placed)


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DriverError(
            f"HCQ_TRACE={path}: cannot be written ({error.strerror}). Name another file."
        ) from None


@contextmanager
def _alone(fd: int) -> Iterator[None]:
    """No other process begins to write meanwhile. Some network file systems have no locks: there each rank needs
    a file of its own anyway."""
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)


def _beginning(fd: int, path: str) -> bytes:
    """How the file begins: with nothing, or as a trace that this process may add to. Raises DriverError."""
    try:
        start = os.pread(fd, 1 << 16, 0)
    except OSError as error:
        raise DriverError(
            f"HCQ_TRACE={path}: cannot be read back ({error.strerror}). Name another file."
        ) from None
    if start[: len(MAGIC)] not in (b"", MAGIC):
        raise DriverError(
            f"HCQ_TRACE={path}: holds something else than a trace of this version. Name another file, or remove it."
        )
    fields = first_fields(start)
    ours, theirs = ranks.clock_name(), fields.get("clock")
    if ours is not None and theirs is not None and ours != theirs:
        raise DriverError(
            f"HCQ_TRACE={path}: holds a trace of {fields.get('host')} with another clock: of another machine, or of"
            " before it was started again. Name a file for each, as in HCQ_TRACE=run-%h-%r.hcqtrace, or remove it."
        )
    return start
