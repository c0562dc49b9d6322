"""Graph: who waits for whom: signals and waits between submissions, the host and devices, and the deadlocks among them.

In       a Trace
Out      Waits with who satisfies each; Stuck waits with the reason; text, or Graphviz dot
Next     show.py (what the submissions hold), lint.py (the same danger as a rule, before the doorbell)

A queue runs in order, so it stands at its first wait that nobody satisfied. All queues are advanced together until none
moves: whatever still stands then can never go on. A signal counts as reached once anybody set it that high.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hcq.tools.trace.color import Color, clean, counted
from hcq.tools.trace.views import name_of, timelines
from hcq.trace.file import Submission, Trace

HOST = "the host"
MAX_KERNELS = 3


@dataclass(frozen=True)
class Cell:
    """A signal: the address, and which allocation it lies in, since addresses are used again."""

    device: str
    since: int
    va: int


@dataclass(frozen=True)
class Wait:
    """A command that waits, and who sets its signal high enough: a submission, the host, or nobody (None)."""

    submission: Submission
    cell: Cell
    name: str
    value: int
    by: Submission | str | None


@dataclass(frozen=True)
class Stuck:
    """A wait that can never end. `cycle` lists the waits that stand for each other; empty when nobody signals."""

    wait: Wait
    why: str
    cycle: tuple[Wait, ...] = ()


@dataclass
class _Step:
    """One wait or set of a queue, in the order in which it runs."""

    submission: Submission
    cell: Cell
    value: int
    is_wait: bool
    name: str


class Graph:
    """Every wait and signal of a trace. `waits` in the order of the file, `stuck` those that never end."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._streams: dict[tuple[str, str], list[_Step]] = {}
        self._sets: dict[Cell, list[tuple[int, Submission | str]]] = {}
        for submission in trace.submissions:
            if not submission.dropped:
                self._take(submission)
        for seen in trace.signals:
            if seen.is_set:
                cell = self._cell(trace.memory_at(seen.record), seen.device.key, seen.va)
                self._sets.setdefault(cell, []).append((seen.value, HOST))
        for sets in self._sets.values():
            sets.sort(key=lambda entry: entry[0])
        self.waits = [self._wait(step) for steps in self._streams.values() for step in steps if step.is_wait]
        self.waits.sort(key=lambda wait: wait.submission.number)
        self.stuck = self._find_stuck()

    def _take(self, submission: Submission) -> None:
        memory = submission.memory()
        steps = self._streams.setdefault((submission.device.key, submission.queue), [])
        before = len(steps)
        for command in submission.all_commands():
            if command["verb"] in ("wait", "signal"):
                steps.append(self._step(submission, memory, command))
        timeline = submission.device.facts.get("timeline")
        if isinstance(timeline, int):
            cell = self._cell(memory, submission.device.key, timeline)
            steps.append(_Step(submission, cell, submission.value, False, "timeline"))
        for step in steps[before:]:
            if not step.is_wait:
                self._sets.setdefault(step.cell, []).append((step.value, submission))

    def _step(self, submission: Submission, memory: Any, command: dict[str, Any]) -> _Step:
        cell = self._cell(memory, submission.device.key, command["signal"])
        name = name_of(self.trace, memory, command["signal"])
        return _Step(submission, cell, command["value"], command["verb"] == "wait", name)

    def _cell(self, memory: Any, device: str, va: int) -> Cell:
        owner = timelines(self.trace, memory.process).get(va)
        if owner is not None:
            return Cell(owner.key, -1, va)
        place = memory.find(va)
        found = memory.live.get(place.start)
        return Cell(found.device if found else device, found.since if found else -1, va)

    def _wait(self, step: _Step) -> Wait:
        """The lowest value that is enough is the one meant; among equals the first."""
        sets = self._sets.get(step.cell, [])
        at = bisect.bisect_left(sets, step.value, key=lambda entry: entry[0])
        by = sets[at][1] if at < len(sets) else None
        return Wait(step.submission, step.cell, step.name, step.value, by)

    def _find_stuck(self) -> list[Stuck]:
        reached: dict[Cell, int] = {}
        for cell, sets in self._sets.items():
            reached[cell] = max((value for value, by in sets if by == HOST), default=0)
        at = dict.fromkeys(self._streams, 0)
        moved = True
        while moved:
            moved = False
            for key, steps in self._streams.items():
                while at[key] < len(steps):
                    step = steps[at[key]]
                    if step.is_wait and reached.get(step.cell, 0) < step.value:
                        break
                    if not step.is_wait:
                        reached[step.cell] = max(reached.get(step.cell, 0), step.value)
                    at[key] += 1
                    moved = True
        standing = {key: steps[at[key]] for key, steps in self._streams.items() if at[key] < len(steps)}
        return [self._explain(key, standing, at) for key in standing]

    def _explain(
        self, key: tuple[str, str], standing: dict[tuple[str, str], _Step], at: dict[tuple[str, str], int]
    ) -> Stuck:
        """Follow from a queue that stands to the queue that would signal it, until one comes twice."""
        path: list[tuple[str, str]] = []
        here: tuple[str, str] | None = key
        while here is not None and here not in path:
            path.append(here)
            step = standing[here]
            here = next((other for other in standing if self._would_signal(other, at[other], step)), None)
        wait = self._wait(standing[key])
        last = standing[path[-1]]
        if here is None:
            highest = max((value for value, _ in self._sets.get(last.cell, ())), default=0)
            why = f"nobody sets {last.name} to {last.value} or more; the highest it gets is {highest}"
            if path[-1] != key:
                why = f"it waits for #{last.submission.value} on {last.submission.device.key}, and {why}"
            return Stuck(wait, why)
        cycle = tuple(self._wait(standing[one]) for one in path[path.index(here) :])
        if len(cycle) == 1:
            return Stuck(wait, "what would signal it comes after it in its own queue", cycle)
        return Stuck(wait, "each of these waits for the next one", cycle)

    def _would_signal(self, queue: tuple[str, str], at: int, step: _Step) -> bool:
        return any(
            not later.is_wait and later.cell == step.cell and later.value >= step.value
            for later in self._streams[queue][at:]
        )


def as_json(graph: Graph) -> dict[str, Any]:
    """The graph as plain data."""
    return {
        "submissions": len(graph.trace.submissions),
        "waits": [_wait_json(wait) for wait in graph.waits],
        "stuck": [
            {"wait": _wait_json(stuck.wait), "why": stuck.why, "cycle": [_wait_json(w) for w in stuck.cycle]}
            for stuck in graph.stuck
        ],
    }


def _wait_json(wait: Wait) -> dict[str, Any]:
    by = wait.by
    return {
        "device": wait.submission.device.key,
        "submission": wait.submission.value,
        "signal": wait.name,
        "value": wait.value,
        "by": "host" if by == HOST else None,
    } | ({"by_device": by.device.key, "by_submission": by.value} if isinstance(by, Submission) else {})


def lines(graph: Graph, color: Color) -> Iterator[str]:
    """The graph as text: submissions that wait or are waited for; the others are counted."""
    waits: dict[int, list[Wait]] = {}
    wanted: dict[int, list[Wait]] = {}
    for wait in graph.waits:
        waits.setdefault(wait.submission.number, []).append(wait)
        if isinstance(wait.by, Submission):
            wanted.setdefault(wait.by.number, []).append(wait)
    for device in graph.trace.devices:
        own = [s for s in graph.trace.submissions if s.device is device and not s.dropped]
        yield f"{color(device.key, 'heading')}: {counted(len(own), 'submission')}"
        quiet: list[Submission] = []
        for submission in own:
            if submission.number not in waits and submission.number not in wanted:
                quiet.append(submission)
                continue
            yield from _quiet(quiet)
            quiet = []
            yield f"  #{submission.value} {color(_work(submission), 'kernel')}"
            for wait in waits.get(submission.number, ()):
                yield clean(f"      waits for {wait.name} >= {wait.value}  <- {_by(wait)}")
            for wait in wanted.get(submission.number, ()):
                yield clean(
                    f"      sets {wait.name} for #{wait.submission.value} on {wait.submission.device.key}"
                )
        yield from _quiet(quiet)
    if not graph.waits:
        yield "No submission waits: each device runs its queue in order, and the host waits for timelines."
    reported: set[frozenset[int]] = set()
    for stuck in graph.stuck:
        wait = stuck.wait
        circle = frozenset(id(one) for one in stuck.cycle)
        if len(circle) > 1 and circle in reported:
            continue  # the same circle, entered at another place
        reported.add(circle)
        yield color("DEADLOCK", "wrong") + clean(
            f" {wait.submission.device.key} #{wait.submission.value} waits for {wait.name} >= {wait.value}: "
            f"{stuck.why}."
        )
        for one in stuck.cycle if len(stuck.cycle) > 1 else ():
            place = f"#{one.submission.value} on {one.submission.device.key}"
            yield clean(f"    {place} waits for {one.name} >= {one.value} <- {_by(one)}")
    if graph.waits and not graph.stuck:
        yield color("No deadlock: every wait is satisfied.", "more")


def _quiet(submissions: list[Submission]) -> Iterator[str]:
    if len(submissions) == 1:
        yield clean(f"  #{submissions[0].value} {_work(submissions[0])}")
    elif submissions:
        yield f"  #{submissions[0].value}..#{submissions[-1].value} {len(submissions)} submissions in order"


def _by(wait: Wait) -> str:
    if wait.by is None:
        return "NOBODY"
    if isinstance(wait.by, str):
        return wait.by
    return f"#{wait.by.value} on {wait.by.device.key}"


def _work(submission: Submission) -> str:
    commands = submission.all_commands()
    kernels = [command["kernel"] for command in commands if command["verb"] == "dispatch"]
    others = [command["verb"] for command in commands if command["verb"] != "dispatch"]
    more = f" and {len(kernels) - MAX_KERNELS} more" if len(kernels) > MAX_KERNELS else ""
    shown = ", ".join(kernels[:MAX_KERNELS]) + more
    counted = ", ".join(f"{others.count(verb)} {verb}" for verb in dict.fromkeys(others))
    return ", ".join(part for part in (shown, counted) if part) or "nothing but its signal"


def dot(graph: Graph) -> Iterator[str]:
    """The graph for Graphviz: `hcq-trace graph FILE --dot | dot -Tsvg`."""
    yield "digraph trace {"
    yield '  rankdir=LR; node [shape=box, fontname="monospace", fontsize=10];'
    for place, device in enumerate(graph.trace.devices):
        own = [s for s in graph.trace.submissions if s.device is device and not s.dropped]
        yield f"  subgraph cluster_{place} {{"
        yield f"    label={_quoted(device.key)};"
        for submission in own:
            yield f"    s{submission.number} [label={_quoted(f'#{submission.value}', _work(submission))}];"
        for first, then in zip(own, own[1:]):
            yield f"    s{first.number} -> s{then.number} [color=gray];"
        yield "  }"
    stuck = {stuck.wait for stuck in graph.stuck}
    for number, wait in enumerate(graph.waits):
        label = _quoted(f"{wait.name} >= {wait.value}")
        if isinstance(wait.by, Submission):
            source = f"s{wait.by.number}"
        else:
            source = f"w{number}"
            yield f"  {source} [label={_quoted(_by(wait))}, shape=ellipse];"
        shade = "red" if wait in stuck or wait.by is None else "blue"
        yield f"  {source} -> s{wait.submission.number} [label={label}, color={shade}];"
    yield "}"


def _quoted(*lines: str) -> str:
    """A DOT string: only quotes and backslashes mean anything in it."""
    escaped = ("".join(" " if ord(c) < 32 else c for c in line) for line in lines)
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in escaped) + '"'
