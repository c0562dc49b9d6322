"""Trace: writes what happens between a program and its devices to a file, while it happens (HCQ_TRACE=FILE[,data]).

In       calls from devices, memory, queues and ports, each behind one branch that is not taken when nothing is traced
Out      a file of records that file.py reads
Changes  the file; adds two Timestamp packets around every submission, which the recorded words leave out
Next     contents.py (what was in memory), records.py (every byte of it), file.py (the reader),
         docs/trace-format.md

Submissions go to the kernel in one write before the doorbell, so a process that is killed, or that its own kernel
brings down, leaves them in the file. What only explains them (allocations, names, completion times) goes with them.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hcq import native, recorder
from hcq.command import Command, Indirect
from hcq.errors import DriverError
from hcq.layout import Packet
from hcq.memory import Buffer
from hcq.trace.contents import TraceContents
from hcq.trace.records import (
    MAGIC,
    Alloc,
    Block,
    Frame,
    Free,
    Kind,
    Patch,
    PatchEntry,
    SignalSeen,
    Stamps,
    Submit,
    Times,
    pack_commands,
    pack_record,
)

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.graph import PatchPoint
    from hcq.program import Program

CELLS = 1024  # submissions in flight whose times can be taken
HARVEST = 64  # submissions that have ended are written down so many at a time
FLUSH_BYTES = 1 << 16  # explaining records wait for the next submission, up to this much


def _packer(head: type[Packet]) -> Callable[..., bytes]:
    """Packs a record without text, its frame (but for the checksum) and its head, in one go."""
    return struct.Struct(Frame.struct()[0].format.replace("I", "", 1) + head.struct()[0].format[1:]).pack


_ALLOC, _ALLOC_BYTES = _packer(Alloc), 4 * Alloc.length_words
_FREE, _FREE_BYTES = _packer(Free), 4 * Free.length_words
_SIGNAL, _SIGNAL_BYTES = _packer(SignalSeen), 4 * SignalSeen.length_words
_SUBMIT, _SUBMIT_BYTES = _packer(Submit), 4 * Submit.length_words
_pack_checksum = struct.Struct("<I").pack
_crc32 = zlib.crc32
_TIMES = Times.struct()[0].pack
_BLOCK = Block.struct()[0].pack
_PATCH = Patch.struct()[0].pack
_PATCH_ENTRY = PatchEntry.struct()[0].pack
_STAMPS = Stamps.struct()[0].pack
_clock = time.monotonic_ns
_ident = threading.get_ident


class TraceWriter:
    """Appends records to a file. One file may take records of several devices and processes."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            start = os.pread(self._fd, len(MAGIC), 0)
        except OSError as error:
            raise DriverError(
                f"HCQ_TRACE={path}: cannot be written ({error.strerror}). Name another file."
            ) from None
        if start not in (b"", MAGIC):
            os.close(self._fd)
            raise DriverError(
                f"HCQ_TRACE={path}: holds something else than a trace of this version. Name another file, or remove it."
            )
        self.path = path
        self.process = os.getpid()
        self.devices = 0
        self._lock = threading.RLock()
        self._pending: list[bytes] = [] if start else [MAGIC]
        self._pending_bytes = 0
        self._strings: dict[str, int] = {}
        self._sites: dict[tuple[int, int], tuple[Any, int]] = {}
        about = {
            "pid": self.process,
            "argv": sys.argv,
            "python": sys.version.split()[0],
            "monotonic_ns": _clock(),
            "unix_ns": time.time_ns(),
        }
        self.tell(Kind.PROCESS, about)
        self.flush()

    @staticmethod
    def of(path: str) -> TraceWriter:
        """The writer for a file, shared by all devices of the process."""
        writer = _writers.get(path)
        if writer is None or writer.process != os.getpid():
            writer = _writers[path] = TraceWriter(path)
        return writer

    def tell(self, kind: Kind, fields: Mapping[str, Any], data: bytes = b"") -> None:
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

    def close(self) -> None:
        """Write nothing more, and nothing of what is kept."""
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

    def site(self, at: recorder.Site) -> int:
        """The string number of a line of the program; 0 for none."""
        if at is None:
            return 0
        key = (
            id(at[0]),
            at[1],
        )  # hashing a code object is slow, so its id is the key, and the code is kept alive
        known = self._sites.get(key)
        if known is None:
            known = self._sites[key] = at[0], self.intern(recorder.where(at))
        return known[1]


class DeviceTrace:
    """What one device tells the file."""

    def __init__(self, writer: TraceWriter, device: Device, with_data: bool) -> None:
        self.writer = writer
        self.device = device
        self.number = writer.devices
        writer.devices += 1
        self._lock = threading.RLock()
        self._thread = 0  # who submitted last, and the strings for it
        self._thread_name = 0
        self._queue = 0
        self._cells: Any = None  # start and end of submissions in flight, 64 bits each
        self._cells_va = 0
        self._free: list[int] = []
        self._stamps: dict[int, tuple[bytes, bytes]] = {}
        self._running: deque[tuple[int, int]] = deque()  # timeline value, cell
        self._blocks: dict[int, dict[Any, int | float]] = {}  # va -> what was last written into it
        self.contents = TraceContents(writer, device, self.number) if with_data else None

    # ------------------------------------------------------------ the device

    def opened(self) -> None:
        device = self.device
        facts = {"device": self.number, "name": device.name, "arch": device.arch, "facts": device.facts()}
        self.writer.tell(Kind.DEVICE, facts)
        self._allocated(device.timeline.va, 16, 16, "timeline")
        self.writer.flush()

    def closed(self) -> None:
        self.harvest()
        if self.contents is not None:
            self.contents.closed()
        fields = {"device": self.number, "submitted": self.device.timeline.submitted}
        self.writer.tell(Kind.CLOSE, fields)
        self.writer.flush()
        self._cells = None

    def call(self, call: str, arguments: tuple[object, ...], result: object) -> None:
        """The sink of a RecordingPort."""
        fields: dict[str, Any] = {"device": self.number, "call": call}
        data = b""
        if call == "ioctl":
            fd, request, after, before = arguments
            assert isinstance(before, bytes) and isinstance(after, bytearray)
            fields.update(arguments=[fd, request], argument_bytes=len(before))
            data = before + bytes(after)
        else:
            fields["arguments"] = arguments
        if isinstance(result, BaseException):
            fields["error"] = str(result)
            fields["errno"] = getattr(result, "errno", None)
        elif isinstance(result, bytes):
            fields["result_bytes"] = len(result)
        else:
            fields["result"] = result
        self.writer.tell(Kind.PORT, fields, data)

    def fault(self, what: str, why: str, **facts: Any) -> None:
        """The device stopped ("fault"), a wait reached its deadline ("timeout"), or work was dropped ("reset")."""
        self.writer.tell(Kind.FAULT, {"device": self.number, "what": what, "why": why, **facts})
        self.writer.flush()

    # ------------------------------------------------------------ memory and code

    def map(self, va: int, size_bytes: int, name: str | None) -> None:
        fields = {"device": self.number, "va": va, "size_bytes": size_bytes, "name": name}
        self.writer.tell(Kind.MAP, fields)

    def unmap(self, va: int, size_bytes: int) -> None:
        self.writer.tell(Kind.UNMAP, {"device": self.number, "va": va, "size_bytes": size_bytes})

    def alloc(self, buffer: Buffer) -> None:
        va = buffer.address
        if self.contents is not None:
            self.contents.alloc(va)
        self._blocks.pop(va, None)
        self._allocated(va, buffer.size_bytes, buffer.capacity, buffer.name)

    def name(self, buffer: Buffer) -> None:
        """A buffer is called something else from now on, and was before."""
        self.writer.tell(Kind.NAME, {"device": self.number, "va": buffer.va, "name": buffer.name})

    def cell(self, va: int, name: str) -> None:
        """A signal was made; where signals have memory of their own, nothing else says so."""
        if not any(start <= va < start + size for start, size in self.device.memory.regions.items()):
            self._allocated(va, 16, 16, name)

    def _allocated(self, va: int, size_bytes: int, capacity: int, name: str | None) -> None:
        writer = self.writer
        text = writer.intern(name) if name else 0
        body = _ALLOC(
            10, 0, 0, _ALLOC_BYTES, writer.process, _clock(), self.number, text, va, size_bytes, capacity
        )
        writer.later(_pack_checksum(_crc32(body)) + body)

    def free(self, va: int, capacity: int) -> None:
        writer = self.writer
        if self.contents is not None:
            self.contents.free(va)
        body = _FREE(11, 0, 0, _FREE_BYTES, writer.process, _clock(), self.number, 0, va, capacity)
        writer.later(_pack_checksum(_crc32(body)) + body)

    def code(
        self, program: Program, entry: str, image: bytes, texts: Mapping[str, str] | None = None
    ) -> None:
        access = {} if program.access is None else {"access": program.access}
        fields = {
            "device": self.number,
            "name": program.name,
            "entry": entry,
            "va": program.entry,
            "args": program.args,
            "scratch_bytes": program.scratch_bytes,
            "facts": {**(texts or {}), **access},
        }
        self.writer.tell(Kind.CODE, fields, image)

    def unload(self, va: int) -> None:
        self.writer.tell(Kind.UNLOAD, {"device": self.number, "va": va})

    # ------------------------------------------------------------ submissions

    def submit(
        self,
        words: list[bytes],
        commands: Sequence[Command],
        value: int,
        held: Iterable[Any],
        at: recorder.Site,
    ) -> list[bytes]:
        """Record a submission. Returns the words to send: the same, with a timestamp before and after them."""
        writer = self.writer
        try:
            _, site = writer._sites[id(at[0]), at[1]]  # type: ignore[index]
        except (KeyError, TypeError):
            site = writer.site(at)
        if self.contents is not None:
            self.contents.submit(held, commands, value)
        for what in commands:
            if type(what) is Indirect and what.address not in self._blocks:
                self.block(what.address, what.label, what.commands, what.size_words)
        blob = self.device.ring_words(words, value)
        thread = _ident()
        if thread != self._thread:
            self._thread = thread
            self._thread_name = writer.intern(threading.current_thread().name)
            self._queue = writer.intern(self.device.queue_name)
        packed = pack_commands(commands, writer.intern)
        body = (
            _SUBMIT(
                12, 0, 0, _SUBMIT_BYTES + len(blob) + len(packed), writer.process, _clock(),
                self.number, self._queue, value, site, self._thread_name, len(blob) >> 2, len(commands), 0,
            )
            + blob
            + packed
        )  # fmt: skip
        writer.flush(_pack_checksum(_crc32(body)) + body)
        # timestamps before and after it, unless all cells are in flight
        free = self._free
        if not free:
            self._more_cells()
            if not free:
                return words
        cell = free.pop()
        self._running.append((value, cell))
        try:
            before, after = self._stamps[cell]
        except KeyError:
            va = self._cells_va + 16 * cell
            before, after = self._stamps[cell] = self.device.stamp(va), self.device.stamp(va + 8)
        return [before, *words, after]

    def dropped(self, value: int, why: str) -> None:
        """The submission recorded last did not reach the device."""
        self.writer.tell(Kind.DROPPED, {"device": self.number, "value": value, "why": why})
        self.writer.flush()

    def block(self, va: int, label: str, commands: Sequence[Command], size_words: int) -> None:
        """Memory that submissions run or read indirectly, as it is now."""
        writer = self.writer
        packed = pack_commands(commands, writer.intern)
        head = _BLOCK(self.number, writer.intern(label), va, len(commands), size_words)
        data = b"".join((head, packed, native.read(va, 4 * size_words)))
        writer.later(pack_record(Kind.BLOCK, writer.process, _clock(), b"", data))
        self._blocks[va] = {}

    def patch(
        self,
        what: Indirect,
        written: Mapping[Any, int | float],
        points: Mapping[Any, Sequence[PatchPoint]],
    ) -> None:
        """A graph is about to replay: note the words that changed since its block was last written down."""
        va = what.address
        if va not in self._blocks:
            self.block(va, what.label, what.commands, what.size_words)
        if not written:
            return
        known = self._blocks[va]
        entries = []
        for key, number in written.items():
            if known.get(key) != number:
                known[key] = number
                entries += [
                    _PATCH_ENTRY(
                        point.byte_offset,
                        point.command_index,
                        point.argument_index,
                        ord(point.kind[0]),
                        point.size_bytes,
                        _bits(number),
                    )
                    for point in points[key]
                ]
        if entries:
            writer = self.writer
            data = b"".join((_PATCH(self.number, len(entries), va), *entries))
            writer.later(pack_record(Kind.PATCH, writer.process, _clock(), b"", data))

    def signal(self, va: int, value: int, timestamp_ns: int, is_set: bool = False) -> None:
        """The host saw a signal after a wait, or set it."""
        writer = self.writer
        now, number = _clock(), self.number
        body = _SIGNAL(14, 0, 0, _SIGNAL_BYTES, writer.process, now, number, is_set, va, value, timestamp_ns)
        writer.later(_pack_checksum(_crc32(body)) + body)
        if len(self._running) >= HARVEST:
            self.harvest()
        if self.contents is not None:
            self.contents.seen()

    def stamps(self, entries: Sequence[tuple[int, int]]) -> None:
        """What timestamp packets stored: address and nanoseconds."""
        if entries:
            writer = self.writer
            flat = [number for va, ticks in entries for number in (va, self.device.moment_ns(ticks))]
            data = _STAMPS(self.number, len(entries)) + struct.pack(f"<{len(flat)}Q", *flat)
            writer.later(pack_record(Kind.STAMPS, writer.process, _clock(), b"", data))

    # ------------------------------------------------------------ when the device ran what

    def _more_cells(self) -> None:
        """Make the cells at the first submission; later, take back those of submissions that have ended."""
        if self._cells is not None:
            self.harvest()
            return
        buffer = self.device.memory.alloc(16 * CELLS, "trace times")
        self._cells_va = buffer.address
        self._cells = native.view(buffer.address, 16 * CELLS, buffer).cast("Q")
        self._free.extend(range(CELLS))

    def harvest(self) -> None:
        """Write down the times of all submissions that have ended since the last time."""
        with self._lock:
            running = self._running
            if not running:
                return
            done = self.device.timeline.value
            cells, moment, failures = self._cells, self.device.moment_ns, self.device.failures
            found: list[int] = []
            while running and running[0][0] <= done:
                value, cell = running.popleft()
                if not failures or not any(first <= value <= last for first, last, _ in failures):
                    found += (value, moment(cells[2 * cell]), moment(cells[2 * cell + 1]))
                self._free.append(cell)
        if found:
            writer = self.writer
            data = _TIMES(self.number, len(found) // 3) + struct.pack(f"<{len(found)}Q", *found)
            writer.later(pack_record(Kind.TIMES, writer.process, _clock(), b"", data))

    # ------------------------------------------------------------ contents (HCQ_TRACE=file,data)

    def wrote(self, va: int, data: Any) -> None:
        """The host wrote to a buffer."""
        if self.contents is not None:
            self.contents.wrote(va, data)

    def saw(self, va: int, data: Any) -> None:
        """The host read from a buffer."""
        if self.contents is not None:
            self.contents.saw(va, data)

    def expose(self, va: int) -> None:
        """The host has a view of a buffer."""
        if self.contents is not None:
            self.contents.expose(va)


def _bits(number: int | float) -> int:
    """A patched argument as 64 bits."""
    if isinstance(number, float):
        return int.from_bytes(struct.pack("<d", number), "little")
    return number & (1 << 64) - 1


_writers: dict[str, TraceWriter] = {}


def _after_fork() -> None:
    """In the child: what was not flushed yet is the parent's to write, and its writers are of no use here."""
    for writer in _writers.values():
        writer.close()
    _writers.clear()


os.register_at_fork(after_in_child=_after_fork)
