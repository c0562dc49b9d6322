"""Where the time went: each queue's time from the first work to the last, as work by kind, and idle time by its reason.

In       a Trace; what its timestamps stored and who waits for whom, where the caller knows them already
Out      Went: for each queue parts that add up to the whole span, for each kernel its share, what the host compiled
Next     stats.py (the same work as text), page_data.py (who shows it), overlap.py (arithmetic with stretches of time)

A moment of a queue has one part. Work comes first: a kernel's own time where it is known, or else all of its
submission. A submission that did several things that the trace cannot tell apart is "together". The rest is idle, and
the reason is the first of these that holds:

    waiting    a submission stood at a wait for another queue or device; "host" when the host was to end it
    late       a submission was handed over, and the device had not begun it
    unknown    a submission was handed over, and the trace has no times of it
    compiling  nothing was handed over, and the host made a program ready that it loaded then
    host       nothing was handed over

A trace does not say when a compiler ran. The host counts as compiling from the last thing that it wrote down before a
program got its memory, to the moment when the program was loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hcq.tools.trace.color import Color, clean
from hcq.tools.trace.graph import HOST, Graph, Wait
from hcq.tools.trace.labels import KINDS_OF_WORK, label_of
from hcq.tools.trace.overlap import Interval, common, length, union
from hcq.tools.trace.stats import Stamps, command_times, duration, stamps_of
from hcq.trace.file import Submission, Trace
from hcq.trace.records import Kind

WORK = ("kernel", "copy", "fill", "packets", "together", "signals")
IDLE = ("compiling", "host", "waiting", "late", "unknown")
KINDS = {"dispatch": "kernel", "indirect": "kernel", "copy": "copy", "fill": "fill", "packets": "packets"}
LOOKS = {"indirect": "graph"}
SAID = {
    "kernel": "kernels",
    "copy": "copies",
    "fill": "fills",
    "packets": "own packets",
    "together": "several kinds, not told apart",
    "signals": "waits and signals alone",
    "compiling": "compiling",
    "host": "host: nothing submitted",
    "waiting": "waiting for another queue",
    "late": "submitted, not begun yet",
    "unknown": "nothing known, no times",
}
LOADING = (
    Kind.STRING,
    Kind.SIGNAL,
    Kind.PORT,
    Kind.MAP,
    Kind.DATA,
)  # may stand between a program's memory and itself


@dataclass
class Queue:
    """One queue. `parts` has every name of WORK and IDLE; their nanoseconds add up to `span_ns`."""

    device: str
    queue: str
    span_ns: int
    parts: dict[str, int]

    @property
    def busy_ns(self) -> int:
        """How long it was at work, in nanoseconds."""
        return sum(self.parts[name] for name in WORK)


@dataclass
class Row:
    """All that was done under one name. `total_ns` is of the `timed` ones of `count`.

    kind  a name of WORK: "together" is of submissions that are timed as a whole, by what they are called
    look  what it is drawn as: a name of labels.KINDS_OF_WORK
    """

    kind: str
    name: str
    look: str
    count: int = 0
    timed: int = 0
    total_ns: int = 0
    size_bytes: int = 0
    first: int = 0  # the first submission that does it
    entry: int = 0  # of a kernel


@dataclass
class Compile:
    """A stretch of time in which a process made a program ready."""

    process: int
    started_ns: int
    ended_ns: int
    name: str


@dataclass
class Went:
    """Everything. `before_ns` went by between the opening of the first device and the first work."""

    started_ns: int
    ended_ns: int
    queues: list[Queue] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    compiles: list[Compile] = field(default_factory=list)
    before_ns: int = 0
    before_compiling_ns: int = 0

    @property
    def busy_ns(self) -> int:
        """How long all queues together were at work, in nanoseconds."""
        return sum(queue.busy_ns for queue in self.queues)


def where(trace: Trace, stamps: Stamps | None = None, waits: Sequence[Wait] | None = None) -> Went:
    """What every queue did from the first work of the whole trace to the last."""
    stamps = stamps_of(trace) if stamps is None else stamps
    if waits is None:
        has_waits = any(c["verb"] == "wait" for made in trace.submissions for c in made.all_commands())
        waits = Graph(trace).waits if has_waits else ()
    own: dict[tuple[str, str], list[Submission]] = {}
    for made in trace.submissions:
        if not made.dropped:
            own.setdefault((made.device.key, made.queue), []).append(made)
    bars = [one for made in trace.submissions if (one := _bar(made)) is not None]
    bars += [(seen.span.started_ns, seen.span.ended_ns) for seen in trace.spans]
    found = Went(min((a for a, _ in bars), default=0), max((b for _, b in bars), default=0))
    found.compiles = list(compiles(trace))
    released = _released(trace, waits)
    rows: dict[tuple[str, str], Row] = {}
    for (device, queue), submissions in own.items():
        window = [(found.started_ns, found.ended_ns)]
        parts = _parts(submissions, window, stamps, released, found.compiles, rows)
        found.queues.append(Queue(device, queue, length(union(window)), parts))
    found.rows = sorted(rows.values(), key=lambda row: (-row.total_ns, -row.count, row.name))
    opened = [trace.records[device.opened].time_ns for device in trace.devices]
    if bars and opened and min(opened) < found.started_ns:
        before = [(min(opened), found.started_ns)]
        found.before_ns = length(before)
        found.before_compiling_ns = length(common(before, _union_of(found.compiles)))
    return found


def compiles(trace: Trace) -> Iterator[Compile]:
    """When programs were made ready, as far as the order of the records says so."""
    records: dict[int, list[Any]] = {}
    for record in trace.records:
        own = records.setdefault(record.process, [])
        if record.kind == Kind.CODE:
            at, had_memory = len(own) - 1, False
            while at >= 0:
                kind = own[at].kind
                is_its_memory = kind == Kind.ALLOC and own[at].fields["va"] == record.fields["va"]
                if not is_its_memory and kind != Kind.STRING and (had_memory or kind not in LOADING):
                    break
                had_memory = had_memory or is_its_memory
                at -= 1
            if not had_memory:  # its memory is not written down: only what stands right before it is known
                at = next((i for i in range(len(own) - 1, -1, -1) if own[i].kind != Kind.STRING), -1)
            if at >= 0 and own[at].time_ns < record.time_ns:
                yield Compile(record.process, own[at].time_ns, record.time_ns, str(record.fields["name"]))
            own.clear()
        own.append(record)


def _bar(made: Submission) -> Interval | None:
    if made.dropped or made.started_ns is None or made.finished_ns is None:
        return None
    return made.started_ns, max(made.started_ns, made.finished_ns)


def _released(trace: Trace, waits: Sequence[Wait]) -> dict[int, tuple[int, bool]]:
    """For submissions that begin with waits: when the last of these was over, and whether it was for the host."""
    sets = [seen for seen in trace.signals if seen.is_set] if any(w.by == HOST for w in waits) else []
    found: dict[int, tuple[int, bool]] = {}
    for wait in waits:
        made, by = wait.submission, wait.by
        at: int | None = None
        if isinstance(by, Submission):
            if (by.device.key, by.queue) != (made.device.key, made.queue):
                at = by.finished_ns
        elif by == HOST:
            at = next((s.time_ns for s in sets if s.va == wait.cell.va and s.value >= wait.value), None)
        if at is not None and _begins_with_wait(made):
            found[made.number] = max(found.get(made.number, (0, False)), (at, by == HOST))
    return found


def _begins_with_wait(made: Submission) -> bool:
    return next((c["verb"] for c in made.commands if c["verb"] not in ("timestamp", "barrier")), "") == "wait"


def _parts(
    submissions: Sequence[Submission],
    window: list[Interval],
    stamps: Stamps,
    released: dict[int, tuple[int, bool]],
    ready: Sequence[Compile],
    rows: dict[tuple[str, str], Row],
) -> dict[str, int]:
    """The parts of one queue's window; what it did is added to the rows."""
    work: dict[str, list[Interval]] = {name: [] for name in WORK}
    idle: dict[str, list[Interval]] = {name: [] for name in IDLE}
    no_times: list[int] = []
    for made in submissions:
        bar = _bar(made)
        commands = made.all_commands()
        if bar is None:
            no_times.append(made.time_ns)
            _count(rows, made, commands, {})
            continue
        start, end = bar
        if made.number in released:
            until, is_host = released[made.number]
            until = min(until, end)
            idle["host" if is_host else "waiting"].append((made.time_ns, until))
            start = max(start, until)
        idle["late"].append((made.time_ns, bar[0]))
        idle["unknown"] += [(since, bar[0]) for since in no_times]  # a queue is done with them by then
        no_times.clear()
        times = command_times(made, commands, stamps)
        told = _count(rows, made, commands, times)
        for index, stretch in told.items():
            work[KINDS[commands[index]["verb"]]].append(stretch)
        left = {KINDS[c["verb"]] for i, c in enumerate(commands) if c["verb"] in KINDS and i not in told}
        rest = without([(start, end)], union(told.values()))
        kind = "together" if len(left) > 1 else next(iter(left), "signals")
        if kind == "signals" and told:
            kind = KINDS[commands[min(told)]["verb"]]  # what stands between its kernels goes with them
        work[kind] += rest
        if left and not told and len({_name(c) for c in commands if c["verb"] in KINDS}) == 1:
            _share(rows, commands, length(rest))
        elif left:
            _whole(rows, made, length(rest))
    idle["unknown"] += [(since, window[0][1]) for since in no_times]
    idle["compiling"] = [(one.started_ns, one.ended_ns) for one in ready
                         if one.process == submissions[0].device.process]  # fmt: skip
    left_over, parts = union(window), {}
    host = idle.pop("host")
    order = [*work.items(), *((name, idle[name]) for name in ("waiting",)), ("host", host)]
    order += [(name, idle[name]) for name in ("late", "unknown", "compiling")]
    for name, stretches in order:
        own = common(left_over, union(stretches))
        parts[name] = length(own)
        left_over = without(left_over, own)
    parts["host"] += length(left_over)
    return {name: parts[name] for name in (*WORK, *IDLE)}


def _count(
    rows: dict[tuple[str, str], Row],
    made: Submission,
    commands: Sequence[dict[str, Any]],
    times: dict[int, Interval],
) -> dict[int, Interval]:
    """Add what a submission does to the rows; returns the times of what counts as work."""
    for index, command in enumerate(commands):
        verb = command["verb"]
        if verb not in KINDS:
            continue
        row = rows.setdefault(
            (KINDS[verb], _name(command)),
            Row(KINDS[verb], _name(command), LOOKS.get(verb, KINDS[verb]), first=made.number),
        )
        row.count += 1
        row.entry = row.entry or int(command.get("entry", 0))
        row.size_bytes += int(command["size_bytes"]) if verb in ("copy", "fill") else 0
        if index in times:
            row.timed += 1
            row.total_ns += times[index][1] - times[index][0]
    return {index: one for index, one in times.items() if commands[index]["verb"] in KINDS}


def _share(rows: dict[tuple[str, str], Row], commands: Sequence[dict[str, Any]], ns: int) -> None:
    """A submission that does one thing several times: its time is theirs together."""
    same = [command for command in commands if command["verb"] in KINDS]
    row = rows[KINDS[same[0]["verb"]], _name(same[0])]
    row.timed += len(same)
    row.total_ns += ns


def _whole(rows: dict[tuple[str, str], Row], made: Submission, ns: int) -> None:
    """A submission whose parts have no times: a row for what such submissions are called."""
    work, text = label_of(made)
    row = rows.setdefault(("together", text), Row("together", text, KINDS_OF_WORK[work], first=made.number))
    row.count += 1
    row.timed += 1
    row.total_ns += ns


def _name(command: dict[str, Any]) -> str:
    verb = str(command["verb"])
    if verb in ("packets", "indirect"):  # a block that the trace knows is its commands instead
        return str(command.get("label") or verb)
    return str(command.get("kernel", verb))


def _union_of(ready: Iterable[Compile]) -> list[Interval]:
    return union((one.started_ns, one.ended_ns) for one in ready)


def without(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """What the first union has and the second has not."""
    found, at = [], 0
    for start, end in one:
        while at < len(other) and other[at][1] <= start:
            at += 1
        place = at
        while place < len(other) and other[place][0] < end:
            if other[place][0] > start:
                found.append((start, other[place][0]))
            start = max(start, other[place][1])
            place += 1
        if start < end:
            found.append((start, end))
    return found


def as_json(went: Went) -> dict[str, Any]:
    """The queues' parts as plain data, in seconds."""
    return {
        "span_s": (went.ended_ns - went.started_ns) / 1e9,
        "before_s": went.before_ns / 1e9,
        "before_compiling_s": went.before_compiling_ns / 1e9,
        "queues": [
            {
                "device": queue.device,
                "queue": queue.queue,
                "parts_s": {name: ns / 1e9 for name, ns in queue.parts.items()},
            }
            for queue in went.queues
        ],
    }


def lines(went: Went, color: Color) -> Iterator[str]:
    """The same as text: a line for what came before, a line for each queue, a line for each of its parts."""
    span = went.ended_ns - went.started_ns
    if not span:
        return
    yield f"where the time went, from the first work to the last ({duration(span / 1e9)}):"
    if went.before_ns:
        yield (
            f"  before that: {duration(went.before_ns / 1e9)} since the first device opened, "
            f"{duration(went.before_compiling_ns / 1e9)} of it compiling"
        )
    for queue in went.queues:
        yield f"  {color(clean(queue.device), 'heading')} {clean(queue.queue)}"
        for name, ns in queue.parts.items():
            if ns:
                what = f"{'' if name in WORK else 'idle: '}{SAID[name]}"
                yield f"    {ns / span:6.1%}  {duration(ns / 1e9):>10}  {what}"
