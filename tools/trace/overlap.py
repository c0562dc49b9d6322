"""Overlap: how much of what processes told each other was hidden behind kernels, and how idle each queue was.

In       a Trace, of one process or of several on one clock
Out      for each process its communication, and how much of that went on while its kernels ran; for each queue how idle
         it was
Next     stats.py and page_data.py (who show it), hcq/events/named_spans.py (what a span is), docs/trace-page.md

Communication is every span that has peers, and every submission that does nothing but copies of which one leads from
one device's memory to another's; what such a submission waited for first does not count. Kernels are the submissions
that launch some, or, where kernels have times of their own, those; but not the submissions of a span with peers, which
add up what was received.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hcq.tools.trace.color import Color, clean, counted
from hcq.tools.trace.graph import Graph, Wait
from hcq.tools.trace.stats import Stamps, command_times, duration, stamps_of
from hcq.trace.file import Submission, Trace

Interval = tuple[int, int]
SILENT = ("wait", "signal", "barrier", "timestamp")  # beside copies, a submission still only copies


@dataclass
class Talk:
    """What one process told others. `hidden_ns` of `busy_ns` went on while one of its kernels ran."""

    process: int
    name: str
    spans: int = 0
    copies: int = 0
    size_bytes: int = 0
    busy_ns: int = 0
    hidden_ns: int = 0
    intervals: list[Interval] = field(default_factory=list, repr=False)

    @property
    def share(self) -> float:
        """What is hidden of all of it."""
        return self.hidden_ns / self.busy_ns if self.busy_ns else 0.0


@dataclass(frozen=True)
class Idle:
    """One queue. `share` is of the time from the first work of the whole trace to the last."""

    device: str
    queue: str
    busy_ns: int
    share: float


def talks(trace: Trace, stamps: Stamps | None = None, graph: Graph | None = None) -> list[Talk]:
    """The processes that communicated, by rank."""
    stamps = stamps_of(trace) if stamps is None else stamps
    told = {  # submissions that a span says are communication
        (seen.device.key, value)
        for seen in trace.spans
        if seen.span.peers and seen.work is not None
        for value in range(seen.work[0], seen.work[1] + 1)
    }
    sizes = {
        made.number: sum(size for _, _, size in between)
        for made in trace.submissions
        if (made.device.key, made.value) not in told and (between := copies_between_devices(made))
    }
    has_waits = any(
        command["verb"] == "wait" for number in sizes for command in trace.submissions[number].commands
    )
    began = _began((graph or Graph(trace)).waits) if has_waits else {}
    found: dict[int, Talk] = {}
    kernels: dict[int, list[Interval]] = {}

    def talk(process: int) -> Talk:
        return found.setdefault(process, Talk(process, trace.process_name(process)))

    for seen in trace.spans:
        if seen.span.peers:
            one = talk(seen.device.process)
            one.spans += 1
            one.size_bytes += seen.span.size_bytes
            one.intervals.append((seen.span.started_ns, seen.span.ended_ns))
    for made in trace.submissions:
        if made.dropped or made.started_ns is None or made.finished_ns is None:
            continue
        if (made.device.key, made.value) in told:
            continue
        kernels.setdefault(made.device.process, []).extend(_kernels(made, stamps))
        if size := sizes.get(made.number, 0):
            one = talk(made.device.process)
            one.copies += 1
            one.size_bytes += size
            start = max(made.started_ns, min(began.get(made.number, 0), made.finished_ns))
            one.intervals.append((start, made.finished_ns))
    for process, one in found.items():
        busy = union(one.intervals)
        one.busy_ns = length(busy)
        one.hidden_ns = length(common(busy, union(kernels.get(process, []))))
    return sorted(found.values(), key=lambda one: trace.process_order(one.process))


def idle(trace: Trace) -> list[Idle]:
    """Every queue that had work whose time is known, in the order in which they come in the trace."""
    work: dict[tuple[str, str], list[Interval]] = {}
    for made in trace.submissions:
        if not made.dropped and made.started_ns is not None and made.finished_ns is not None:
            work.setdefault((made.device.key, made.queue), []).append((made.started_ns, made.finished_ns))
    every = [interval for own in work.values() for interval in own]
    every += [(seen.span.started_ns, seen.span.ended_ns) for seen in trace.spans]
    whole = max((end for _, end in every), default=0) - min((start for start, _ in every), default=0)
    found = []
    for (device, queue), own in work.items():
        busy = length(union(own))
        found.append(Idle(device, queue, busy, 1 - busy / whole if whole > 0 else 0.0))
    return found


def copies_between_devices(made: Submission) -> list[tuple[str, str, int]]:
    """From which device to which, and how many bytes; nothing when it does anything but copy."""
    commands = made.commands
    if not any(command["verb"] == "copy" for command in commands):
        return []
    if any(command["verb"] not in (*SILENT, "copy") for command in commands):
        return []
    memory = made.memory()
    found = []
    for command in commands:
        if command["verb"] == "copy":
            src, dst = (memory.live.get(memory.find(command[end]).start) for end in ("src", "dst"))
            if src is not None and dst is not None and src.device != dst.device:
                found.append((src.device, dst.device, int(command["size_bytes"])))
    return found


def rows_of(intervals: Sequence[Interval]) -> list[int]:
    """For each of these, in the order of their starts, a row in which no two overlap."""
    ends: list[int] = []
    found = []
    for start, end in intervals:
        row = next((row for row, until in enumerate(ends) if until <= start), len(ends))
        ends[row:] = [end, *ends[row + 1 :]]
        found.append(row)
    return found


def _kernels(made: Submission, stamps: Stamps) -> Iterator[Interval]:
    """When it ran kernels: each by itself where that is known, or else all of it."""
    if made.started_ns is None or made.finished_ns is None:
        return
    verbs = {command["verb"] for command in made.commands}
    if not verbs & {"dispatch", "indirect"}:
        return
    if "timestamp" in verbs or "indirect" in verbs:
        commands = made.all_commands()
        times = command_times(made, commands, stamps)
        launches = [index for index, command in enumerate(commands) if command["verb"] == "dispatch"]
        if launches and all(index in times for index in launches):
            yield from (times[index] for index in launches)
            return
    yield made.started_ns, made.finished_ns


def _began(waits: Iterable[Wait]) -> dict[int, int]:
    """When what a submission waited for had happened, as far as submissions did it."""
    found: dict[int, int] = {}
    for wait in waits:
        if isinstance(wait.by, Submission) and wait.by.finished_ns is not None:
            number = wait.submission.number
            found[number] = max(found.get(number, 0), wait.by.finished_ns)
    return found


# ------------------------------------------------------------ intervals


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments, in order, none twice."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif end > start:
            found.append((start, end))
    return found


def common(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """What two unions have in common."""
    found, a, b = [], 0, 0
    while a < len(one) and b < len(other):
        start, end = max(one[a][0], other[b][0]), min(one[a][1], other[b][1])
        if start < end:
            found.append((start, end))
        if one[a][1] < other[b][1]:
            a += 1
        else:
            b += 1
    return found


def length(intervals: Iterable[Interval]) -> int:
    """How long they are together."""
    return sum(end - start for start, end in intervals)


def as_json(found: Sequence[Talk]) -> list[dict[str, Any]]:
    """The same as plain data, in seconds."""
    return [
        {
            "process": one.process,
            "name": one.name,
            "spans": one.spans,
            "copies": one.copies,
            "size_bytes": one.size_bytes,
            "busy_s": one.busy_ns / 1e9,
            "hidden_s": one.hidden_ns / 1e9,
            "hidden": one.share,
        }
        for one in found
    ]


def lines(found: Sequence[Talk], color: Color) -> Iterator[str]:
    """The same as text."""
    for one in found:
        parts = [(one.spans, "span"), (one.copies, "copy")]
        what = " and ".join(counted(count, name) for count, name in parts if count)
        yield (
            f"{color(clean(one.name), 'heading')}: {what} to others, {one.size_bytes} bytes in "
            f"{duration(one.busy_ns / 1e9)}, {one.share:.0%} of it hidden behind kernels"
        )
