"""Perfetto: a trace for https://ui.perfetto.dev and its trace processor, as the protobuf that they read.

In       a Trace
Out      bytes of a perfetto.protos.Trace
Next     export.py (who writes them to a file), stats.py (the same as numbers)
Source   protos/perfetto/trace/trace_packet.proto, track_event/*.proto of Perfetto; protobuf's wire format

Tracks: for each process (a rank, perhaps on another host) its threads (a submission is an instant), its spans, and for
each device its queues (a submission is a slice, with its kernels in it when they have times of their own) and the bytes
of live buffers as a counter. Arrows go from a submission on the host to its slice, from a signal to the wait that it
ends, on another device perhaps, and through the ranks that have a collective together.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from hcq.events.named_spans import Span
from hcq.tools.trace.graph import Graph
from hcq.tools.trace.overlap import copies_between_devices, rows_of
from hcq.tools.trace.stats import Stamps, command_times, stamps_of
from hcq.tools.trace.views import argument_text, command_view
from hcq.trace.file import Submission, Trace

MONOTONIC, BOOTTIME = 3, 6  # BUILTIN_CLOCK_...
SEQUENCE = 1
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4  # TrackEvent.Type


def encode(trace: Trace) -> bytes:
    """The whole file."""
    packets = [_clocks(trace), *_tracks(trace), *_events(trace)]
    return b"".join(_message(1, packet) for packet in packets)


# ------------------------------------------------------------ protobuf


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= 2**64 - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _fixed64(field: int, value: int) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<Q", value & 2**64 - 1)


def _message(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode("utf-8", "replace"))


# ------------------------------------------------------------ packets


def _clocks(trace: Trace) -> bytes:
    """Our clock is CLOCK_MONOTONIC; the snapshot makes it the trace's clock."""
    now = trace.records[0].time_ns if trace.records else 0
    clocks = b"".join(_message(1, _number(1, clock) + _number(2, now)) for clock in (MONOTONIC, BOOTTIME))
    return _number(10, SEQUENCE) + _number(13, 1) + _message(6, clocks + _number(2, MONOTONIC))


def _tracks(trace: Trace) -> Iterator[bytes]:
    for process in dict.fromkeys(device.process for device in trace.devices):
        name = trace.process_name(process)
        head = _number(1, process) + _text(6, name)
        yield _descriptor(_uuid("process", process), name, 0, _message(3, head))
    several = {one.process for one in trace.devices if one.key != _first_of(trace, one.process)}
    for device in trace.devices:
        parent = _uuid("process", device.process)
        if device.process in several:
            yield _descriptor(_uuid("device", device.key), f"{device.name}, {device.arch}", parent)
            parent = _uuid("device", device.key)
        yield _descriptor(_uuid("memory", device.key), f"{device.name} live bytes", parent, _message(8, b""))
    queues = dict.fromkeys((s.device.key, s.queue, s.device) for s in trace.submissions)
    for key, queue, device in queues:
        is_one_of_several = device.process in several
        parent = _uuid("device", key) if is_one_of_several else _uuid("process", device.process)
        yield _descriptor(_uuid("queue", key, queue), f"{device.name} {queue}", parent)
    for track, lane, process in dict.fromkeys((one.track, one.lane, one.process) for one in _placed(trace)):
        yield _descriptor(track, lane, _uuid("process", process))
    for process, thread in dict.fromkeys((s.device.process, s.thread) for s in trace.submissions):
        yield _descriptor(_uuid("host", process, thread), f"host {thread}", _uuid("process", process))


def _first_of(trace: Trace, process: int) -> str:
    return next(device.key for device in trace.devices if device.process == process)


class _Placed(NamedTuple):
    """A span on the track where it is drawn, with the flow through the same collective on other ranks; 0 for none."""

    track: int
    lane: str
    process: int
    span: Span
    flow: int


def _placed(trace: Trace) -> list[_Placed]:
    """Every span. Those of one lane that overlap go into rows; the nth of a name on each rank belong together."""
    lanes: dict[tuple[int, str], list[Span]] = {}
    for seen in trace.spans:
        lanes.setdefault((seen.device.process, seen.span.lane), []).append(seen.span)
    counts: dict[tuple[int, str, str], int] = {}
    flows: dict[tuple[int, str, int], int] = {}
    found = []
    for (process, lane), spans in lanes.items():
        spans.sort(key=lambda span: (span.started_ns, -span.ended_ns))
        for span, row in zip(spans, rows_of([(span.started_ns, span.ended_ns) for span in spans])):
            nth = counts[process, lane, span.name] = counts.get((process, lane, span.name), 0) + 1
            is_of_ranks = any(isinstance(peer, int) for peer in span.peers)
            who = -1 if is_of_ranks else process  # ranks have it together, or devices of one process
            flow = flows.setdefault((who, span.name, nth), (3 << 32) + len(flows)) if span.peers else 0
            found.append(_Placed(_uuid("spans", process, lane, row), lane, process, span, flow))
    shared = Counter(one.flow for one in found)
    return [one if shared[one.flow] > 1 else one._replace(flow=0) for one in found]


def _spans(trace: Trace) -> Iterator[bytes]:
    for one in _placed(trace):
        span = one.span
        body = _text(23, span.name) + _text(22, "communication" if span.peers else "span")
        if span.size_bytes:
            body += _note("bytes", span.size_bytes)
        if span.peers:
            body += _note("peers", ", ".join(map(str, span.peers)))
        if one.flow:
            body += _fixed64(47, one.flow)
        yield _event(span.started_ns, BEGIN, one.track, body)
        yield _event(span.ended_ns, END, one.track)


def _descriptor(uuid: int, name: str, parent: int, extra: bytes = b"") -> bytes:
    body = _number(1, uuid) + _text(2, name) + (_number(5, parent) if parent else b"") + extra
    return _number(10, SEQUENCE) + _message(60, body)


def _uuid(*what: object) -> int:
    """A number for a track: the same for the same thing, never 0."""
    text = "/".join(map(str, what)).encode()
    return (zlib.crc32(text) << 32 | zlib.crc32(text[::-1])) or 1


def _event(time_ns: int, kind: int, track: int, body: bytes = b"") -> bytes:
    event = _number(9, kind) + _number(11, track) + body
    return _number(8, time_ns) + _number(58, MONOTONIC) + _number(10, SEQUENCE) + _message(11, event)


def _note(name: str, value: int | str) -> bytes:
    """A debug annotation: a name and a value in the panel of a slice."""
    spelled = _number(4, value) if isinstance(value, int) else _text(6, value)
    return _message(4, _text(10, name) + spelled)


def _events(trace: Trace) -> Iterator[bytes]:
    flows: dict[int, list[int]] = {}  # submission -> flows that end in it
    begun: dict[int, list[int]] = {}  # submission -> flows that begin in it
    for number, wait in enumerate(Graph(trace).waits):
        if isinstance(wait.by, Submission):
            flow = (2 << 32) + number
            begun.setdefault(wait.by.number, []).append(flow)
            flows.setdefault(wait.submission.number, []).append(flow)
    yield from _spans(trace)
    stamps = stamps_of(trace)
    live_before: dict[str, int] = {}
    for submission in trace.submissions:
        if not submission.dropped:
            yield from _submission(submission, begun, flows, stamps)
        device = submission.device.key
        live = sum(span.size_bytes for span in submission.memory().live.values() if span.device == device)
        if live_before.get(device) != live:
            live_before[device] = live
            yield _event(submission.time_ns, COUNTER, _uuid("memory", device), _number(30, live))


def _submission(
    submission: Submission, begun: dict[int, list[int]], flows: dict[int, list[int]], stamps: Stamps
) -> Iterator[bytes]:
    memory = submission.memory()
    commands = submission.all_commands()
    kernels = [command["kernel"] for command in commands if command["verb"] == "dispatch"]
    work = kernels or [command["verb"] for command in commands] or ["nothing"]
    name = work[0] if len(work) == 1 else f"{work[0]} and {len(work) - 1} more"
    if between := copies_between_devices(submission):
        sources, targets = {source for source, _, _ in between}, {target for _, target, _ in between}
        name = f"copy {', '.join(sorted(sources))} -> {', '.join(sorted(targets))}"
    notes = [_note("submission", submission.value), _note("words", len(submission.words))]
    notes += [_note("site", submission.site)] if submission.site else []
    for index, command in enumerate(commands[:16]):
        notes.append(
            _note(
                f"command {index}", f"{command['verb']} {command_view(submission, memory, command)['text']}"
            )
        )
        if command["verb"] == "dispatch" and len(commands) == 1:
            for place, argument in enumerate(command["args"]):
                notes.append(_note(f"argument {place}", argument_text(submission.trace, memory, argument)))
    flow = (1 << 32) + submission.number
    host = _uuid("host", submission.device.process, submission.thread)
    title = _text(23, f"submit #{submission.value}")
    yield _event(submission.time_ns, INSTANT, host, title + b"".join(notes[:3]) + _fixed64(47, flow))
    if submission.started_ns is None or submission.finished_ns is None:
        return
    queue = _uuid("queue", submission.device.key, submission.queue)
    arrows = _fixed64(48, flow)
    arrows += b"".join(_fixed64(47, one) for one in begun.get(submission.number, ()))
    arrows += b"".join(_fixed64(48, one) for one in flows.get(submission.number, ()))
    yield _event(
        submission.started_ns, BEGIN, queue, _text(23, name) + _text(22, "device") + b"".join(notes) + arrows
    )
    if len(commands) > 1:
        for index, (start, end) in command_times(submission, commands, stamps).items():
            one = commands[index]
            title = _text(23, one.get("kernel", one["verb"])) + _text(22, one["verb"])
            yield _event(start, BEGIN, queue, title)
            yield _event(end, END, queue)
    yield _event(submission.finished_ns, END, queue)
