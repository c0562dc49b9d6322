"""Trace: writes what happens between a program and its devices to a file, while it happens (HCQ_TRACE=FILE[,data]).

In       what a device notifies its observers of; the calls of its port
Out      records
Changes  the file; adds two Timestamp packets around every submission, which the recorded words leave out
Next     trace_writer.py (the file), contents.py (what was in memory), hcq/trace/ (every byte of it, and the reader)

Submissions go to the kernel in one write before the doorbell, so a process that is killed, or that its own kernel
brings down, leaves them in the file. What only explains them (allocations, names, completion times) goes with them.
"""

from __future__ import annotations

import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hcq import backends
from hcq.command import Command, Indirect, PatchPoint
from hcq.device import Device
from hcq.errors import HcqError
from hcq.events.named_spans import Span, Work
from hcq.events.observer import Observer
from hcq.layout import Packet
from hcq.observe.contents import TraceContents
from hcq.observe.trace_writer import TraceWriter
from hcq.performance.counters import Counters
from hcq.program import Program
from hcq.system import native
from hcq.system.call_site import Site
from hcq.system.port import RecordingPort
from hcq.trace import calls
from hcq.trace.records import (
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

CELLS = 1024  # submissions in flight whose times can be taken
COMPARE_NS = 1_000_000_000  # the device's clock is compared with the host's so often
HARVEST = 64  # submissions that have ended are written down so many at a time


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


class Trace(Observer):
    """What one device adds to the file; it stands between the device and its port, too."""

    is_awaited = True
    packets_after = 1

    def __init__(self, device: Device, path: str, with_data: bool) -> None:
        self.writer = writer = TraceWriter.of(path)
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
        self._compared_ns = _clock()
        self._running: deque[tuple[int, int]] = deque()  # timeline value, cell
        self._blocks: dict[int, dict[Any, int | float]] = {}  # va -> what was last written into it
        self.contents = TraceContents(writer, device, self.number) if with_data else None
        device.port = RecordingPort(device.port, self.call, backends.pointers_of(device.name))

    # ------------------------------------------------------------ the device

    def opened(self) -> None:
        device = self.device
        facts = {"device": self.number, "name": device.name, "arch": device.arch, "facts": device.facts()}
        self.writer.record(Kind.DEVICE, facts)
        self.writer.users += 1
        self._allocated(device.timeline.va, 16, 16, "timeline")
        self._compare_clocks()
        self.writer.flush()

    def closing(self) -> bool:
        self.harvest()
        if not self.device.is_lost:
            self._compare_clocks()
        if self.contents is not None:
            self.contents.closed()
        fields = {"device": self.number, "submitted": self.device.timeline.submitted}
        self.writer.record(Kind.CLOSE, fields)
        self.writer.flush()
        self.writer.users -= 1
        if not self.writer.users:
            self.writer.rest()
        self._cells = None
        return False

    def call(self, call: str, arguments: tuple[object, ...], result: object) -> None:
        """The sink of a RecordingPort."""
        fields: dict[str, Any] = {"device": self.number, "call": call}
        data = b""
        if call == "ioctl":
            fd, request, after, before, nested = arguments
            assert isinstance(before, bytes) and isinstance(after, bytearray) and isinstance(nested, list)
            fields.update(arguments=[fd, request], argument_bytes=len(before))
            data = calls.pack(fields, before, bytes(after), nested)
        else:
            fields["arguments"] = arguments
        if isinstance(result, BaseException):
            fields["error"] = str(result)
            fields["errno"] = getattr(result, "errno", None)
        elif isinstance(result, bytes):
            fields["result_bytes"] = len(result)
        else:
            fields["result"] = result
        self.writer.record(Kind.PORT, fields, data)

    def fault(self, first: int, last: int, why: str) -> None:
        self._failed("fault", why, first=first, last=last)

    def timeout(self, va: int, value: int, why: str) -> None:
        self._failed("timeout", why, va=va, value=value)

    def _failed(self, what: str, why: str, **facts: int) -> None:
        self.writer.record(Kind.FAULT, {"device": self.number, "what": what, "why": why, **facts})
        self.writer.flush()

    # ------------------------------------------------------------ memory and code

    def mapped(self, va: int, size_bytes: int, name: str | None) -> None:
        fields = {"device": self.number, "va": va, "size_bytes": size_bytes, "name": name}
        self.writer.record(Kind.MAP, fields)

    def unmapped(self, va: int, size_bytes: int) -> None:
        self.writer.record(Kind.UNMAP, {"device": self.number, "va": va, "size_bytes": size_bytes})

    def alloc(self, va: int, size_bytes: int, capacity: int, name: str | None) -> None:
        if self.contents is not None:
            self.contents.alloc(va)
        self._blocks.pop(va, None)
        self._allocated(va, size_bytes, capacity, name)

    def renamed(self, va: int, name: str) -> None:
        self.writer.record(Kind.NAME, {"device": self.number, "va": va, "name": name})

    def cell(self, va: int, name: str) -> None:
        """Where signals have memory of their own, nothing else says so."""
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

    def load(self, program: Program, entry: str, image: bytes, sources: Mapping[str, str] | None) -> None:
        access: dict[str, Any] = {} if program.access is None else {"access": program.access}
        if program.extents is not None:
            access["extents"] = program.extents
        fields = {
            "device": self.number,
            "name": program.name,
            "entry": entry,
            "va": program.entry,
            "args": program.args,
            "scratch_bytes": program.scratch_bytes,
            "facts": {**(sources or {}), **access},
        }
        self.writer.record(Kind.CODE, fields, image)

    def unload(self, entry: int) -> None:
        self.writer.record(Kind.UNLOAD, {"device": self.number, "va": entry})

    # ------------------------------------------------------------ submissions

    def submitting(
        self, value: int, words: list[bytes], commands: Sequence[Command], held: Sequence[Any], at: Site
    ) -> list[bytes]:
        """Into the file, and a timestamp before and after the words that are sent."""
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
        self.writer.record(Kind.DROPPED, {"device": self.number, "value": value, "why": why})
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
        self, what: Indirect, written: Mapping[Any, int | float], points: Mapping[Any, Sequence[PatchPoint]]
    ) -> None:
        """The words that changed since the block was last written down."""
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

    def host_set(self, va: int, value: int, timestamp_ns: int) -> None:
        self._signal(va, value, timestamp_ns, is_set=True)

    def waited(self, va: int, name: str, value: int, timestamp_ns: int, waited_ns: int) -> None:
        self._signal(va, value, timestamp_ns, is_set=False)

    def _signal(self, va: int, value: int, timestamp_ns: int, is_set: bool) -> None:
        writer = self.writer
        now, number = _clock(), self.number
        body = _SIGNAL(14, 0, 0, _SIGNAL_BYTES, writer.process, now, number, is_set, va, value, timestamp_ns)
        writer.later(_pack_checksum(_crc32(body)) + body)
        if len(self._running) >= HARVEST:
            self.harvest()
        if self.contents is not None:
            self.contents.seen()

    def stamped(self, entries: Sequence[tuple[int, int]]) -> None:
        writer = self.writer
        flat = [number for va, ticks in entries for number in (va, self.device.moment_ns(ticks))]
        data = _STAMPS(self.number, len(entries)) + struct.pack(f"<{len(flat)}Q", *flat)
        writer.later(pack_record(Kind.STAMPS, writer.process, _clock(), b"", data))

    def counted(self, made: Counters) -> None:
        self.writer.record(Kind.COUNTERS, {"device": self.number, "counters": made.as_fields()})

    def found(self, fields: Mapping[str, Any]) -> None:
        self.writer.record(Kind.FINDING, {"device": self.number, "finding": fields})
        self.writer.flush()

    def span(self, span: Span) -> None:
        self.writer.record(Kind.SPAN, {"device": self.number, **span._asdict()})

    def span_of_work(self, work: Work) -> None:
        self.writer.record(Kind.SPAN, {"device": self.number, **work._asdict()})

    # ------------------------------------------------------------ when the device ran what

    def _more_cells(self) -> None:
        """Make the cells at the first submission; later, take back those of submissions that have ended."""
        if self._cells is not None:
            self.harvest()
            return
        buffer = self.device.visible(16 * CELLS, "trace times")
        self._cells_va = buffer.address
        self._cells = native.view(buffer.address, 16 * CELLS, buffer).cast("Q")
        self._free.extend(range(CELLS))

    def _compare_clocks(self) -> None:
        """Write down how the device's clock stands to the host's: a reader goes straight from one time to the next."""
        self._compared_ns = _clock()
        try:
            found = self.device.compare_clocks()
        except HcqError:
            return  # the device has other troubles, which it reports itself
        if found is not None:
            self.writer.record(Kind.CLOCK, {"device": self.number, **found._asdict()})

    def harvest(self) -> None:
        """Write down the times of all submissions that have ended since the last time."""
        if _clock() - self._compared_ns > COMPARE_NS:
            self._compare_clocks()
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

    def wrote(self, va: int, data: Any = None) -> None:
        if self.contents is not None and data is not None and data.nbytes:
            self.contents.wrote(va, data)

    def saw(self, va: int, data: Any) -> None:
        if self.contents is not None:
            self.contents.saw(va, data)

    def exposed(self, va: int) -> None:
        if self.contents is not None:
            self.contents.expose(va)


def _bits(number: int | float) -> int:
    """A patched argument as 64 bits."""
    if isinstance(number, float):
        return int.from_bytes(struct.pack("<d", number), "little")
    return number & (1 << 64) - 1
