"""Trace file: what a program submitted, read back: records, devices, submissions, code, and what memory was when.

In       a file written with HCQ_TRACE=FILE, whole or cut off
Out      Trace: `submissions` with decoded packets and commands as data, `code`, `signals`, `faults`, `memory_at`
Next     submission.py (a doorbell), seen.py (what else there was), frames.py (bytes to records),
         join.py (several files), memory.py (addresses and blocks over time), tools/hcq_trace.py (shows it)

Reading is two passes: `read_records` checks frames and checksums and stops at the first that is cut off or damaged;
Trace goes through the records once and keeps what later records refer to. Packets are decoded when asked for.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from hcq.errors import UsageError
from hcq.events import ranks
from hcq.events.named_spans import Span, Work
from hcq.performance.counters import Counters
from hcq.trace.calls import ioctl_of
from hcq.trace.clocks import DeviceClock, device_clock
from hcq.trace.frames import Record as Record
from hcq.trace.frames import read_records as read_records
from hcq.trace.join import join, source_of
from hcq.trace.memory import BlockHistory, MemoryHistory
from hcq.trace.memory import BlockImage as BlockImage
from hcq.trace.memory import MemoryMap as MemoryMap
from hcq.trace.memory import Place as Place
from hcq.trace.memory import Range as Range
from hcq.trace.records import Kind, PatchEntry, Why, unpack_commands
from hcq.trace.seen import Code as Code
from hcq.trace.seen import Contents as Contents
from hcq.trace.seen import PlaceSeen, SpanSeen, span_of, work_of
from hcq.trace.seen import ResultSeen as ResultSeen
from hcq.trace.seen import SignalSeen as SignalSeen
from hcq.trace.seen import TraceDevice as TraceDevice
from hcq.trace.submission import Submission as Submission
from hcq.trace.submission import addresses as addresses

_PATCH_ENTRY = PatchEntry.struct()[0]


class Trace:
    """A trace file in memory.

    records      every whole record, in order
    processes    what each process said of itself when it began to write
    devices, submissions, code, signals, faults, contents, results, calls, places, spans   in order
    counters     (device, Counters) of launches that an emulated GPU counted, in order
    found        what emulated GPUs found wrong in kernels: hcq/observe/kernel_findings.py has the fields
    clocks       device key -> how its clock stood to the host's, where that was written down; times are corrected by it
    joined       of a trace made of several files, what was done with their clocks: `text` is a sentence
    renamed      what buffers were called later than when they were made, by the record of that
    cut_bytes    what is left after the last whole record: 0 unless the file is cut off or damaged; cut_why says which
    """

    def __init__(self, records: Sequence[Record], cut_bytes: int = 0, cut_why: str = "") -> None:
        self.path = ""
        self.records = records
        self.cut_bytes = cut_bytes
        self.cut_why = cut_why
        self.processes: list[Record] = []
        self.devices: list[TraceDevice] = []
        self.submissions: list[Submission] = []
        self.code: list[Code] = []
        self.signals: list[SignalSeen] = []
        self.faults: list[Record] = []
        self.contents: list[Contents] = []
        self.results: list[ResultSeen] = []
        self.calls: list[Record] = []
        self.stamps: list[tuple[int, TraceDevice, int, int]] = []  # record, device, address, nanoseconds
        self.counters: list[tuple[TraceDevice, Counters]] = []  # of launches on emulated GPUs, in order
        self.found: list[tuple[int, TraceDevice, dict[str, Any]]] = []  # record, device, what is wrong
        self.places: list[PlaceSeen] = []
        self.spans: list[SpanSeen] = []
        self._works: list[tuple[int, TraceDevice, Work]] = []
        self.joined: list[Record] = []
        self.clocks: dict[str, DeviceClock] = {}
        self._compared: dict[str, list[tuple[int, int, int]]] = {}
        self._strings: dict[int, dict[int, str]] = {}
        self._device: dict[tuple[int, int], TraceDevice] = {}
        self._by_value: dict[tuple[str, int], Submission] = {}
        self._blocks: dict[tuple[str, int], list[BlockHistory]] = {}
        self._code_at: dict[tuple[str, int], Code] = {}
        self.renamed: dict[int, str] = {}  # record of an allocation -> what the buffer was called later
        self._memory: dict[int, MemoryHistory] = {}  # of each process
        self._ranks = {r.process: r.fields.get("rank") for r in records if r.kind == Kind.PLACE}
        self._is_of_many = len({r.process for r in records if r.kind == Kind.PROCESS}) > 1
        for record in records:
            try:
                self._take(record)
            except (
                ValueError,
                KeyError,
                TypeError,
                IndexError,
                AttributeError,
                OverflowError,
                struct.error,
            ) as error:
                if isinstance(error, UsageError):
                    raise
                raise UsageError(
                    f"record {record.index} ({record.name}, at byte {record.at}) cannot mean anything: {error!r}. "
                    "The file was made by another program, or changed."
                ) from None

        self._correct()
        self._time_works()

    @staticmethod
    def read(path: str) -> Trace:
        """Read a file. Raises UsageError, one sentence, when it cannot be read or is no trace."""
        content = _content(path)
        try:
            trace = Trace.parse(content)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        trace.path = path
        return trace

    @staticmethod
    def parse(content: bytes) -> Trace:
        """The same from bytes."""
        collects = gc.isenabled()
        gc.disable()  # all that is made here stays: looking through it again and again took most of the time
        try:
            records, cut_bytes, why = read_records(content)
            return Trace(records, cut_bytes, why)
        finally:
            if collects:
                gc.enable()

    @staticmethod
    def read_all(paths: Sequence[str], offsets: Mapping[str, int] | None = None) -> Trace:
        """Several files as one trace, on one clock (join.py). Raises UsageError naming the file that is at fault.

        offsets  file -> nanoseconds to add to its times, whatever was recorded
        """
        if len(paths) == 1 and not offsets:
            return Trace.read(paths[0])
        joined = join([source_of(path, _content(path)) for path in paths], offsets)
        trace = Trace(joined.records, joined.cut_bytes, joined.cut_why)
        trace.path = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        return trace

    def process_order(self, process: int) -> tuple[int, int]:
        """What processes are put in order by for people: ranks by their number, then others as they come."""
        rank = self._ranks.get(process)
        first = next((at for at, device in enumerate(self.devices) if device.process == process), -1)
        return (1, first) if rank is None else (0, int(rank))

    def process_name(self, process: int) -> str:
        """A process as people call it: its rank and host, or its number."""
        return self._names_of_processes.get(process) or f"process {process}"

    @cached_property
    def _names_of_processes(self) -> dict[int, str]:
        fields = {record.process: record.fields for record in self.processes}
        hosts = {said.get("host") for said in fields.values()}
        found = {}
        for process, said in fields.items():
            host = f" on {said['host']}" if len(hosts) > 1 and said.get("host") else ""
            found[process] = f"process {said.get('pid', process)}{host}"
        ranks_said = {seen.process: seen.place for seen in self.places}
        called = {process: f"rank {place.rank} on {place.host}" for process, place in ranks_said.items()}
        for process, name in called.items():
            is_twin = sum(other == name for other in called.values()) > 1
            found[process] = f"{name}, {found[process]}" if is_twin and process in found else name
        for record in self.joined:
            for process in () if record.fields.get("aligned") else record.fields["processes"]:
                found[process] = f"{found.get(process, f'process {process}')}, not aligned"
        return found

    def string(self, process: int, number: int) -> str:
        """The text that a process called `number`; "" for 0. Raises ValueError for a number it never introduced."""
        if number == 0:
            return ""
        try:
            return self._strings[process][number]
        except KeyError:
            raise ValueError(f"string {number} was never introduced") from None

    def device(self, key: str) -> TraceDevice:
        """The device of a key, or of a name when that is unique. Raises UsageError listing the devices."""
        found = [device for device in self.devices if key in (device.key, device.name)]
        if len(found) != 1:
            known = ", ".join(device.key for device in self.devices) or "none"
            raise UsageError(f"{self.path or 'trace'}: no one device {key!r}. Its devices: {known}.")
        return found[0]

    def code_at(self, device: TraceDevice, va: int, record: int | None = None) -> Code | None:
        """The program whose entry was at an address when a record was written; by default, the last one there."""
        if record is None:
            return self._code_at.get((device.key, va))
        for code in reversed(self.code):
            if code.device is device and code.va == va and code.loaded <= record:
                return code
        return None

    def code_named(self, name: str) -> list[Code]:
        """The programs of a name, or of an entry."""
        return [code for code in self.code if name in (code.name, code.entry)]

    def submission(self, device: TraceDevice, value: int) -> Submission | None:
        """The submission that sets a device's timeline to `value`."""
        return self._by_value.get((device.key, value))

    def has_block(self, device: TraceDevice, va: int) -> bool:
        """Whether a graph of the device has a block at this address."""
        return (device.key, va) in self._blocks

    def block(self, device: TraceDevice, va: int, record: int) -> BlockImage:
        """A block as it was at a record. Raises UsageError when the trace never saw it."""
        found = [block for block in self._blocks.get((device.key, va), ()) if block.record <= record]
        if not found:
            raise UsageError(f"{device.key}: no block at {va:#x} was written down before record {record}.")
        return found[-1].image(va, record)

    def memory_at(self, when: Submission | Record | int, after: bool = False) -> MemoryMap:
        """What was where in a process when it submitted something or wrote a record, or after that."""
        if isinstance(when, Submission):
            index, process = when.record, when.device.process
        else:
            record = self.records[when] if isinstance(when, int) else when
            index, process = record.index, record.process
        return self._history(process).before(index + after)

    def _history(self, process: int) -> MemoryHistory:
        return self._memory.get(process) or self._memory.setdefault(process, MemoryHistory(process))

    # ------------------------------------------------------------ what records mean

    def name_kernel(self, command: dict[str, Any], device: TraceDevice) -> None:
        """Give a dispatch the name of the program at its entry, and its untyped arguments their kinds."""
        if command["verb"] == "dispatch":
            code = self._code_at.get((device.key, command["entry"]))
            command["kernel"] = f"code@{command['entry']:#x}" if code is None else code.name

    def _of(self, record: Record) -> TraceDevice:
        return self._device[record.process, record.fields["device"]]

    def _take(self, record: Record) -> None:
        fields, kind = record.fields, record.kind
        if kind == Kind.STRING:
            (number,) = struct.unpack_from("<I", record.data)
            text = record.data[4:].decode("utf-8", "replace")
            self._strings.setdefault(record.process, {})[number] = text
        elif kind == Kind.PROCESS:
            self.processes.append(record)
            self._strings[record.process] = {}
        elif kind == Kind.DEVICE:
            self._take_device(record)
        elif kind == Kind.CLOSE:
            self._of(record).closed = record.index
        elif kind == Kind.PORT:
            ioctl_of(record)  # so that a record that makes no sense is refused here and not where it is shown
            self.calls.append(record)
        elif kind in (Kind.MAP, Kind.UNMAP, Kind.ALLOC, Kind.FREE):
            self._take_memory(record)
        elif kind == Kind.NAME:
            self._rename(self._of(record), int(fields["va"]), str(fields["name"]))
        elif kind == Kind.CODE:
            self._take_code(record)
        elif kind == Kind.UNLOAD:
            code = self._code_at.pop((self._of(record).key, int(fields["va"])), None)
            if code is not None:
                code.unloaded = record.index
        elif kind == Kind.SUBMIT:
            device = self._of(record)
            made = Submission(self, len(self.submissions), record, device, fields)
            self.submissions.append(made)
            self._by_value[device.key, made.value] = made
        elif kind == Kind.DROPPED:
            dropped = self._by_value.pop((self._of(record).key, int(fields["value"])), None)
            if dropped is not None:
                dropped.dropped = True
        elif kind == Kind.TIMES:
            for value, start, end in _entries(record, "<3Q"):
                timed = self._by_value.get((self._of(record).key, value))
                if timed is not None:
                    timed.started_ns, timed.finished_ns = start, end
        elif kind == Kind.SIGNAL:
            self.signals.append(
                SignalSeen(
                    record.index,
                    self._of(record),
                    record.time_ns,
                    fields["va"],
                    fields["value"],
                    fields["timestamp_ns"],
                    bool(fields["is_set"]),
                )
            )
        elif kind in (Kind.BLOCK, Kind.PATCH):
            self._take_block(record)
        elif kind == Kind.DATA:
            if fields["size_bytes"] != len(record.data):
                raise ValueError("its bytes are not as many as it says")
            why = Why(fields["why"])
            self.contents.append(Contents(record.index, self._of(record), why, fields["va"], record.data))
        elif kind == Kind.RESULT:
            found = struct.pack("<QQ", fields["digest_low"], fields["digest_high"])
            place = fields["va"], fields["size_bytes"], fields["value"]
            self.results.append(ResultSeen(record.index, self._of(record), *place, found))
        elif kind == Kind.STAMPS:
            self.stamps += [(record.index, self._of(record), va, ns) for va, ns in _entries(record, "<2Q")]
        elif kind == Kind.COUNTERS:
            self.counters.append((self._of(record), Counters.from_fields(fields["counters"])))
        elif kind == Kind.PLACE:
            rank, count, offset, error = (int(fields[n]) for n in ("rank", "ranks", "offset_ns", "error_ns"))
            said = ranks.Place(rank, count, str(fields["host"]), offset, error)
            self.places.append(PlaceSeen(record.index, record.process, record.time_ns, said))
        elif kind == Kind.SPAN and "first" in fields:
            self._works.append((record.index, self._of(record), work_of(fields)))
        elif kind == Kind.SPAN:
            self.spans.append(SpanSeen(record.index, self._of(record), span_of(fields)))
        elif kind == Kind.CLOCK:
            numbers = int(fields["device_ns"]), int(fields["host_ns"]), int(fields["error_ns"])
            self._compared.setdefault(self._of(record).key, []).append(numbers)
        elif kind == Kind.JOINED:
            str(fields["text"]), [int(process) for process in fields["processes"]]
            self.joined.append(record)
        elif kind == Kind.FINDING:
            finding = dict(fields["finding"])
            str(finding["rule"]), str(finding["what"])
            self.found.append((record.index, self._of(record), finding))
        elif kind == Kind.FAULT:
            self._of(record)
            self.faults.append(record)

    def _correct(self) -> None:
        """Move the times of devices whose clocks drift to the host's clock."""
        for key, compared in self._compared.items():
            clock = device_clock(compared)
            if clock is not None:
                self.clocks[key] = clock
        moves = {key: clock.correction for key, clock in self.clocks.items() if clock.correction is not None}
        if not moves:
            return
        for made in self.submissions:
            move = moves.get(made.device.key)
            if move is not None and made.started_ns is not None and made.finished_ns is not None:
                made.started_ns, made.finished_ns = move(made.started_ns), move(made.finished_ns)
        self.stamps = [
            (index, device, va, moves[device.key](ns) if ns and device.key in moves else ns)
            for index, device, va, ns in self.stamps
        ]

    def _time_works(self) -> None:
        """Spans of submissions last from the start of the first to the end of the last whose times are known."""
        for index, device, work in self._works:
            made = [self._by_value.get((device.key, value)) for value in range(work.first, work.last + 1)]
            starts = [one.started_ns for one in made if one is not None and one.started_ns is not None]
            ends = [one.finished_ns for one in made if one is not None and one.finished_ns is not None]
            if starts and ends and max(ends) >= min(starts):
                span = Span(work.name, min(starts), max(ends), work.size_bytes, work.peers, work.lane)
                self.spans.append(SpanSeen(index, device, span, (work.first, work.last)))
        if self._works:
            self.spans.sort(key=lambda seen: seen.record)

    def _take_device(self, record: Record) -> None:
        fields = record.fields
        name, number = str(fields["name"]), int(fields["device"])
        rank = self._ranks.get(record.process)
        if rank is not None and self._is_of_many:
            key = f"{name}@rank{rank}"
        else:
            known = sum(device.name == name for device in self.devices)
            key = name if not known else f"{name}@{record.process}"
        twins = sum(device.name == name and device.process == record.process for device in self.devices)
        if twins:  # opened again, or a second channel to the same hardware
            key = f"{key if self._is_of_many else name}@{twins + 1}"
        while any(device.key == key for device in self.devices):
            key += "'"
        facts = fields["facts"]
        if not isinstance(facts, dict):
            raise ValueError("its facts are no table")
        device = TraceDevice(
            key,
            name,
            name.partition(":")[0],
            str(fields["arch"]),
            record.process,
            number,
            facts,
            record.index,
        )
        self.devices.append(device)
        self._device[record.process, number] = device

    def _take_memory(self, record: Record) -> None:
        fields, device = record.fields, self._of(record)
        start = int(fields["va"])
        if record.kind == Kind.ALLOC:
            name = self.string(record.process, fields["name"]) or f"buffer@{start:x}"
            span = Range(start, fields["size_bytes"], name, "live", record.index, device.key)
        elif record.kind == Kind.FREE:
            span = Range(start, 0, "", "freed", record.index, device.key)
        else:
            name = str(fields.get("name") or f"mapping@{start:x}")
            span = Range(start, int(fields["size_bytes"]), name, "mapped", record.index, device.key)
        self._history(record.process).add(record.name.lower(), span)

    def _rename(self, device: TraceDevice, va: int, name: str) -> None:
        index = self._history(device.process).rename(device.key, va, name)
        if index is not None:
            self.renamed[index] = name

    def _take_code(self, record: Record) -> None:
        fields, device = record.fields, self._of(record)
        args = fields["args"]
        code = Code(
            device,
            str(fields["name"]),
            str(fields["entry"]),
            int(fields["va"]),
            None if args is None else tuple(str(arg) for arg in args),
            int(fields["scratch_bytes"]),
            record.data,
            record.index,
            facts=dict(fields.get("facts") or {}),
        )
        self.code.append(code)
        self._code_at[device.key, code.va] = code

    def _take_block(self, record: Record) -> None:
        fields, device = record.fields, self._of(record)
        blocks = self._blocks.setdefault((device.key, fields["va"]), [])
        if record.kind == Kind.PATCH:
            if not blocks:
                raise ValueError("it patches a block that was never written down")
            count = len(record.data) // _PATCH_ENTRY.size
            entries = [_PATCH_ENTRY.unpack_from(record.data, i * _PATCH_ENTRY.size) for i in range(count)]
            blocks[-1].patches.append((record.index, entries))
            return
        commands, used = unpack_commands(
            record.data, fields["commands"], lambda number: self.string(record.process, number)
        )
        for command in commands:
            self.name_kernel(command, device)
        words = record.data[used:]
        if len(words) != 4 * fields["size_words"]:
            raise ValueError("its words are not as many as it says")
        label = self.string(record.process, fields["label"])
        blocks.append(BlockHistory(record.index, label, words, commands))

    def __repr__(self) -> str:
        return f"Trace({self.path!r}, {len(self.devices)} devices, {len(self.submissions)} submissions)"


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None


def _entries(record: Record, layout: str) -> Iterator[tuple[int, ...]]:
    size = struct.calcsize(layout)
    return struct.iter_unpack(layout, record.data[: len(record.data) // size * size])
