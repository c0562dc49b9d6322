"""Trace contents: what was in memory before work ran and after it, for replaying a trace (HCQ_TRACE=FILE,data).

In       submissions with the buffers they were handed, what the host writes and reads
Out      DATA records (bytes before a buffer's first use, what the host wrote and read) and RESULT records (a digest of
         every buffer that a submission was handed, taken once it is done)
Changes  the trace; it keeps a buffer that nobody needs any more until its digest is taken
Next     trace.py (who calls this), tools/trace/replay.py (who compares)

Nothing here waits for work that the program would not wait for, but for what still uses memory that is handed out anew,
and for a moment where a submission is about to write over the results of one that still runs.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hcq.command import Command, Signal, Timestamp, flat
from hcq.device import Device
from hcq.memory import Buffer
from hcq.observe.trace_writer import TraceWriter
from hcq.trace.records import Data, Kind, Result, Why, digest, pack_record

_DATA = Data.struct()[0].pack
_RESULT = Result.struct()[0].pack
GRACE_NS = 100_000_000
STAMP_BYTES, CELL_BYTES = 8, 16  # what a Timestamp and a Signal write


class TraceContents:
    """What one device adds to the file about bytes.

    unread  va -> a buffer whose contents after a submission are not in the file yet, and that submission. The buffer
            is kept until they are: the memory of a dropped one is soon used again
    """

    def __init__(self, writer: TraceWriter, device: Device, number: int) -> None:
        self.writer = writer
        self.device = device
        self.number = number
        self.unread: dict[int, tuple[Buffer, int]] = {}
        self._known: dict[int, int] = {}  # buffers whose contents are in the file: va -> checksum
        self._exposed: set[int] = set()  # the host may write to their memory at any time
        self._stamped: set[int] = set()  # they hold times, which are never the same again

    # ------------------------------------------------------------ what happens to buffers

    def alloc(self, va: int) -> None:
        """Memory has a new owner."""
        self._known.pop(va, None)
        self._exposed.discard(va)
        self._stamped.discard(va)

    def free(self, va: int) -> None:
        """A buffer was freed by hand: this is the last moment, if its work is done at all."""
        if va in self.unread:
            self._result(va)
            self.unread.pop(va, None)

    def wrote(self, va: int, data: Any) -> None:
        """The host wrote to a buffer."""
        self._bytes(Why.HOST_WROTE, va, bytes(data))

    def saw(self, va: int, data: Any) -> None:
        """The host read from a buffer."""
        self._bytes(Why.HOST_READ, va, bytes(data))

    def expose(self, va: int) -> None:
        """The host has a view of a buffer: look at its contents before every submission that uses it."""
        self._exposed.add(va)

    def submit(self, held: Iterable[Any], commands: Sequence[Command], value: int) -> None:
        """Work is about to be submitted with these buffers."""
        wholes: dict[int, Buffer] = {}
        for buffer in _buffers(held):
            whole = buffer.parent or buffer
            if whole.va is not None:
                wholes[whole.va] = whole
        self._results()
        self._wait_for_results(wholes)
        self._before_use(wholes)
        times = [(what.address, STAMP_BYTES) for what in flat(commands) if type(what) is Timestamp]
        times += [(what.signal, CELL_BYTES) for what in flat(commands) if type(what) is Signal]
        for va, whole in wholes.items():
            if any(va < at + size and at < va + whole.size_bytes for at, size in times):
                self._stamped.add(va)
            if whole.device is self.device and va not in self._stamped and va not in self._exposed:
                self.unread[va] = whole, value

    def seen(self) -> None:
        """The host saw a signal: what is done by now is in the file even if the process is killed next."""
        if self.unread:
            self._results()
            self.writer.flush()

    def closed(self) -> None:
        """The device is about to close; its work is done, or never will be."""
        self._results()
        self.unread.clear()
        if not self.device.failures:
            for buffer in self.device.memory.owners():
                if buffer.va in self._known:
                    self._bytes(
                        Why.AT_CLOSE, buffer.va, self.device.peek_memory(buffer.va, buffer.size_bytes)
                    )

    # ------------------------------------------------------------ records

    def _before_use(self, wholes: dict[int, Buffer]) -> None:
        for va, whole in wholes.items():
            if va in self._known and va not in self._exposed:
                continue
            owner = whole.device
            last = owner.timeline.submitted if whole.is_recorded else max(whole.last, whole.fence)
            if last > owner.timeline.value:
                owner.drain(last)
            data = owner.peek_memory(va, whole.size_bytes)
            checksum = zlib.crc32(data)
            if self._known.get(va) != checksum:
                self._bytes(Why.HOST_WROTE if va in self._known else Why.BEFORE_USE, va, data)
            self._known[va] = checksum

    def _wait_for_results(self, wholes: Iterable[int]) -> None:
        """Their buffers are about to be used again. Work that waits for something later is about to be abandoned."""
        last = max((self.unread[va][1] for va in wholes if va in self.unread), default=0)
        if last and self.device.signal_wait(self.device.timeline.va, last, GRACE_NS) >= last:
            self._results()

    def _results(self) -> None:
        """Write down what submissions that are done left in their buffers."""
        for va in list(self.unread):
            if self._result(va):
                self.unread.pop(va, None)

    def _result(self, va: int) -> bool:
        """The same for one buffer; False when its submission is still running."""
        entry = self.unread.get(va)
        if entry is None:
            return True
        buffer, value = entry
        if self.device.timeline.value < value:
            return False
        failed = any(first <= value <= last for first, last, _ in self.device.failures)
        if not failed and va not in self._exposed:
            found = struct.unpack("<QQ", digest(buffer.device.peek_memory(va, buffer.size_bytes)))
            data = _RESULT(self.number, 0, va, buffer.size_bytes, value, *found)
            self._tell(Kind.RESULT, data)
        return True

    def _bytes(self, why: Why, va: int, data: bytes) -> None:
        self._tell(Kind.DATA, _DATA(self.number, why, va, len(data)) + data)

    def _tell(self, kind: Kind, data: bytes) -> None:
        self.writer.later(pack_record(kind, self.writer.process, time.monotonic_ns(), b"", data))


def _buffers(held: Iterable[Any]) -> Iterator[Buffer]:
    for thing in held:
        if isinstance(thing, Buffer):
            yield thing
        elif isinstance(thing, (list, tuple)):
            yield from _buffers(thing)
