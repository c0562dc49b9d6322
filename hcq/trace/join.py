"""Join: the traces of several processes as one, on one clock.

In       the contents of trace files, and how their clocks stand to each other, where nobody recorded it
Out      records in the order of time, as one trace has them, with a JOINED record for each clock of each file
Changes  nothing; `content_of` makes them the bytes of a file
Next     file.py (reads them), clocks.py (how far a moment is moved), hcq/events/ranks.py (Place, clock_name)

Processes with the same clock (one boot of one machine) are not moved against each other. Of the others, a Place says
how a clock stands to rank 0's; between two Places of a process it goes straight. A clock that nothing is known of is
not guessed at: its records begin where the whole begins, and its JOINED record says so.

The same process in two files is one process: what both files have of it is there once. The order of the files does not
matter, for they are put in an order of their own.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from hcq.errors import UsageError
from hcq.trace.clocks import Clock, Move, clocks_of
from hcq.trace.frames import Record, read_records, record_of
from hcq.trace.records import HEADS, MAGIC, Kind, pack_record

SHARED = (Kind.PROCESS, Kind.STRING, Kind.PLACE)  # what a process says once, and two files may both have
NEXT_PROCESS = 1 << 22  # Linux numbers processes below this: added to a number that two processes have
NUMBERS: dict[int, tuple[str, ...]] = {
    Kind.PLACE: ("rank", "ranks", "offset_ns", "error_ns"),
    Kind.SPAN: ("started_ns", "ended_ns"),
    Kind.CLOCK: ("device_ns", "host_ns", "error_ns"),
}
_TIMES, _STAMPS = struct.Struct("<3Q"), struct.Struct("<2Q")


@dataclass
class Source:
    """One file. `cut` says why it ends early; empty when it does not."""

    name: str
    records: Sequence[Record]
    digest: bytes
    cut_bytes: int = 0
    cut: str = ""
    numbers: dict[int, int] = field(default_factory=dict)  # process -> its number among all files


@dataclass
class Joined:
    """The records of all files, and what is left over of files that end early."""

    records: list[Record]
    cut_bytes: int
    cut_why: str


def source_of(name: str, content: bytes) -> Source:
    """A file as join takes it. Raises UsageError, naming it, when it is no trace."""
    try:
        records, cut_bytes, why = read_records(content)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    for record in records:
        try:
            _check(record)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise UsageError(
                f"{name}: record {record.index} ({record.name}, at byte {record.at}) cannot mean anything: {error!r}. "
                "The file was made by another program, or changed."
            ) from None
    digest = blake2b(content, digest_size=16).digest()
    return Source(name, records, digest, cut_bytes, why)


def _check(record: Record) -> None:
    """Whether it has the fields that joining reads, with numbers that a clock can have."""
    fields = record.fields
    is_work = record.kind == Kind.SPAN and "first" in fields
    for key in () if is_work else NUMBERS.get(record.kind, ()):
        if abs(int(fields[key])) >= 1 << 63:
            raise ValueError(f"{key} is no time")
    if record.time_ns >= 1 << 63:
        raise ValueError("its time is none")
    if record.kind == Kind.PROCESS:
        for key in ("monotonic_ns", "unix_ns"):
            if not isinstance(fields.get(key, 0), int) or abs(fields.get(key, 0)) >= 1 << 63:
                raise ValueError(f"{key} is no time")
        if not isinstance(fields.get("clock"), str | None):
            raise ValueError("its clock has no name")
    elif record.kind == Kind.JOINED and not all(isinstance(one, int) for one in fields["processes"]):
        raise ValueError("its processes are no numbers")


def join(sources: Sequence[Source], offsets: Mapping[str, int] | None = None) -> Joined:
    """All records on one clock, in the order of time.

    offsets   file -> nanoseconds to add to its times, whatever was recorded
    Raises    UsageError for an offset of a file that is not there, or one that leads before the beginning of time
    """
    offsets = dict(offsets or {})
    for name in offsets:
        if all(source.name != name for source in sources):
            known = ", ".join(source.name for source in sources)
            raise UsageError(f"--offset {name}=...: no such file is read here. Files: {known}.")
    ordered = sorted(sources, key=lambda source: (_begin(source), source.digest))
    ordered = [one for at, one in enumerate(ordered) if one.digest != ordered[at - 1].digest or at == 0]
    clocks = clocks_of([(source.name, source.records) for source in ordered], offsets)
    _number(ordered)
    seen: set[bytes] = set()
    streams = [list(_moved(source, clocks[source.name], seen)) for source in ordered]
    merged = list(heapq.merge(*(_keyed(at, stream) for at, stream in enumerate(streams))))
    begin = merged[0][0] if merged else 0
    raws = [_said(source, clock, begin) for source in ordered for clock in clocks[source.name]]
    raws += [raw for _, _, _, raw in merged]
    records: list[Record] = []
    at = len(MAGIC)
    for raw in raws:
        records.append(record_of(len(records), raw, at))
        at += len(raw)
    cut = [f"{source.name}: {source.cut}" for source in ordered if source.cut_bytes]
    return Joined(records, sum(source.cut_bytes for source in ordered), "; ".join(cut))


def content_of(joined: Joined) -> bytes:
    """The same as a file."""
    return MAGIC + b"".join(record.raw for record in joined.records)


def _begin(source: Source) -> tuple[int, int]:
    """What files are put in order by: the rank, and when the first record was written."""
    ranks = [int(r.fields.get("rank", 0)) for r in source.records if r.kind == Kind.PLACE]
    return (ranks[0] if ranks else -1), source.records[0].time_ns if source.records else 0


def _identity(source: Source, record: Record) -> tuple[Any, ...]:
    """What makes a process the same process in another file."""
    fields = record.fields
    if fields.get("clock") is None:
        return (record.raw,) if "monotonic_ns" in fields else (source.name, record.process)
    return fields["clock"], record.process, fields.get("monotonic_ns")


def _number(sources: Sequence[Source]) -> None:
    """Give every process a number that no other has, its own where that is free."""
    known: dict[tuple[Any, ...], int] = {}
    taken: set[int] = set()
    for source in sources:
        said = {r.process: _identity(source, r) for r in reversed(source.records) if r.kind == Kind.PROCESS}
        for process in dict.fromkeys(record.process for record in source.records):
            identity = said.get(process, (source.name, process))
            if identity not in known:
                number = process
                while number in taken:
                    number += NEXT_PROCESS
                if number >= 1 << 32:
                    raise UsageError(
                        f"{source.name}: more than 1000 files have a process {process}. Join fewer."
                    )
                known[identity] = number
                taken.add(number)
            source.numbers[process] = known[identity]


def _moved(source: Source, clocks: Sequence[Clock], seen: set[bytes]) -> Iterator[tuple[int, bytes]]:
    """Each record with its moment, moved to the common clock; what another file said already is left out."""
    clock_of = {process: clock for clock in clocks for process in clock.processes}
    for record in source.records:
        clock = clock_of[record.process]
        number = source.numbers[record.process]
        if clock.move.is_none and number == record.process and record.kind != Kind.JOINED:
            time_ns, raw = record.time_ns, record.raw
        else:
            time_ns = clock.move(record.time_ns)
            raw = _repacked(record, clock, source, time_ns)
        if record.kind in SHARED:
            if raw in seen:
                continue
            seen.add(raw)
        yield time_ns, raw


def _keyed(at: int, stream: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, int, int, bytes]]:
    """A file's own order counts for more than its clock: threads write what they timed a moment before."""
    latest = 0
    for place, (time_ns, raw) in enumerate(stream):
        latest = max(latest, time_ns)
        yield latest, at, place, raw


def _repacked(record: Record, clock: Clock, source: Source, time_ns: int) -> bytes:
    """The record of another process number and at another moment, with every moment in it moved."""
    move, number = clock.move, source.numbers[record.process]
    if not 0 <= time_ns < 1 << 64:
        raise UsageError(
            f"{source.name}: record {record.index} would be at {time_ns} ns, where no clock can be. "
            "Give another --offset."
        )
    if record.kind in HEADS:
        fields, data = dict(record.fields), record.data
        if record.kind == Kind.SIGNAL:
            fields["timestamp_ns"] = _at(move, fields["timestamp_ns"])
        elif record.kind == Kind.TIMES:
            data = b"".join(
                _TIMES.pack(value, _at(move, start), _at(move, end))
                for value, start, end in _TIMES.iter_unpack(_whole(data, _TIMES))
            )
        elif record.kind == Kind.STAMPS:
            data = b"".join(
                _STAMPS.pack(va, _at(move, ns)) for va, ns in _STAMPS.iter_unpack(_whole(data, _STAMPS))
            )
        head, names = HEADS[Kind(record.kind)].struct()
        return pack_record(record.kind, number, time_ns, b"", head.pack(*(fields[n] for n in names)) + data)
    fields = dict(record.fields)
    if record.kind == Kind.PROCESS:
        fields["clock"] = clock.joined_name
        if isinstance(fields.get("monotonic_ns"), int):
            fields["monotonic_ns"] = _at(move, fields["monotonic_ns"])
    elif record.kind == Kind.PLACE and clock.is_aligned:
        fields["offset_ns"] = 0
    elif record.kind == Kind.SPAN and "first" not in fields:
        for key in ("started_ns", "ended_ns"):
            fields[key] = _at(move, int(fields[key]))
    elif record.kind == Kind.CLOCK:
        for key in ("device_ns", "host_ns"):
            fields[key] = _at(move, int(fields[key]))
    elif record.kind == Kind.JOINED:
        fields["processes"] = [source.numbers.get(process, process) for process in fields["processes"]]
    if not fields:
        return pack_record(record.kind, number, time_ns, b"", record.data)
    text = json.dumps(fields, separators=(",", ":")).encode()
    return pack_record(record.kind, number, time_ns, text, record.data)


def _at(move: Move, time_ns: int) -> int:
    """A moment in a record; 0 is one that nobody knows."""
    return min(max(move(time_ns), 0), (1 << 64) - 1) if time_ns else 0


def _whole(data: bytes, entry: struct.Struct) -> bytes:
    return data[: len(data) // entry.size * entry.size]


def _said(source: Source, clock: Clock, begin: int) -> bytes:
    """What was done with a file's clock, for whoever reads the result."""
    processes = [source.numbers[process] for process in clock.processes]
    first = min(record.time_ns for record in source.records if record.process in clock.processes)
    fields = {"file": source.name, "processes": processes, **clock.said(source.name, first)}
    text = json.dumps(fields, separators=(",", ":")).encode()
    return pack_record(Kind.JOINED, processes[0], begin, text)
