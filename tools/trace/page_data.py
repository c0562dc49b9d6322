"""Page data: what the local page asks for, as plain data: the timeline once, everything else when it is looked at.

In       a Trace (hcq/trace/file.py)
Out      dictionaries for JSON. Long tables are columns, so that a hundred thousand submissions are a few megabytes
Changes  nothing; what was worked out once is kept
Next     serve.py (hands it out), page/page.js (draws it), views.py (one submission as data)

Times are nanoseconds since the first record; None where nobody knows. A submission is called by its number in the file.
"""

from __future__ import annotations

import bisect
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from hcq import backends
from hcq.errors import HcqError, UsageError
from hcq.events.named_spans import Span
from hcq.tools.trace import counters_view, disasm, lint, overlap, repeats, where_time_went
from hcq.tools.trace.graph import Graph
from hcq.tools.trace.labels import KINDS_OF_WORK, SPEAKING, label_of
from hcq.tools.trace.page_memory import PageMemory, columns
from hcq.tools.trace.stats import Stamps, command_times, stamps_of
from hcq.tools.trace.views import all_packets, code_hash, code_of, device_of, start_ns, submission_view
from hcq.trace.file import Code, SignalSeen, Submission, Trace
from hcq.trace.records import Kind

Json = dict[str, Any]
MAX_STEPS = 200_000  # kernels with times of their own on the timeline
MAX_FOUND = 20  # of each sort, in one search
MAX_FINDINGS = 200
TEXTS = ("source", "ir")  # facts of a program that are pages of text
_HOSTILE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
EXACT = 2**53  # a browser counts exactly up to here


class PageData:
    """Everything the page can ask of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._start = start_ns(trace)
        self._labels: dict[str, int] = {}
        self._entries_of: dict[tuple[str, int, int], list[int]] = {}

    # ------------------------------------------------------------ the timeline

    @cached_property
    def timeline(self) -> Json:
        """Lanes, submissions, spans, what the host saw, arrows from signal to wait, faults, how clocks stand."""
        trace = self.trace
        queues = sorted({(s.device.opened, s.device.key, s.queue) for s in trace.submissions})
        known = {key for _, key, _ in queues}
        queues += [(d.opened, d.key, "main") for d in trace.devices if d.key not in known]
        devices = {device.key: device for device in trace.devices}
        order = {process: trace.process_order(process) for process in {d.process for d in trace.devices}}
        queues.sort(key=lambda queue: order[devices[queue[1]].process])
        lane_of = {(key, queue): number for number, (_, key, queue) in enumerate(queues)}
        idle = {(one.device, one.queue): one for one in overlap.idle(trace)}
        lanes = [
            {
                "device": key,
                "name": key.replace(f"@rank{order[devices[key].process][1]}", ""),
                "queue": queue,
                "arch": devices[key].arch,
                "process": devices[key].process,
                "busy": idle[key, queue].busy_ns if (key, queue) in idle else 0,
                "idle": idle[key, queue].share if (key, queue) in idle else None,
            }
            for _, key, queue in queues
        ]
        span_lanes, spans = self._spans()
        first_lane = {key: number for (key, _), number in reversed(lane_of.items())}
        rows = [self._row(s, lane_of[s.device.key, s.queue]) for s in trace.submissions]
        seen = [
            [first_lane[s.device.key], self._ns(s.time_ns), s.value, int(s.is_set), self._reached(s)]
            for s in trace.signals
        ]
        return {
            "file": trace.path,
            "cut": f"{trace.cut_bytes} bytes at the end are no record: {trace.cut_why}"
            if trace.cut_bytes
            else "",
            "end": self._end,
            "processes": [
                {
                    "process": record.process,
                    "name": trace.process_name(record.process),
                    **{key: record.fields.get(key) for key in ("pid", "argv", "python", "unix_ns", "host")},
                }
                for record in sorted(trace.processes, key=lambda one: trace.process_order(one.process))
            ],
            "clocks": [
                {"text": str(record.fields["text"]), "aligned": bool(record.fields.get("aligned"))}
                for record in trace.joined
            ],
            "talks": [
                {
                    "process": one.process,
                    "name": one.name,
                    "spans": one.spans,
                    "copies": one.copies,
                    "size_bytes": one.size_bytes,
                    "busy": one.busy_ns,
                    "hidden": one.share,
                }
                for one in overlap.talks(trace, self._stamps, self.graph)
            ],
            "span_lanes": span_lanes,
            "spans": columns(("lane", "from", "until", "label", "size", "peers", "talks"), spans),
            "devices": [
                {"key": d.key, "arch": d.arch, "process": d.process, "facts": d.facts} for d in trace.devices
            ],
            "lanes": lanes,
            "work": KINDS_OF_WORK,
            "submissions": columns(
                ("lane", "value", "submitted", "started", "finished", "work", "label", "commands", "dropped"),
                rows,
            ),
            "seen": columns(("lane", "time", "value", "is_set", "by"), seen),
            "arrows": columns(("from", "to", "value"), self._arrows()),
            "steps": columns(("of", "from", "until", "work", "label"), self._steps()),
            "stuck": [
                {
                    "number": stuck.wait.submission.number,
                    "text": f"{stuck.wait.submission.device.key} #{stuck.wait.submission.value} waits for "
                    f"{stuck.wait.name} >= {stuck.wait.value}: {stuck.why}.",
                }
                for stuck in (self.graph.stuck if self.graph else ())
            ],
            "faults": [
                {
                    "time": self._ns(record.time_ns),
                    "device": device.key if (device := device_of(trace, record)) else "",
                    "what": str(record.fields.get("what", "fault")),
                    "why": str(record.fields.get("why", "")),
                }
                for record in trace.faults
            ],
            "compiles": columns(
                ("process", "from", "until", "label"),
                [
                    [one.process, self._ns(one.started_ns), self._ns(one.ended_ns), self._label(one.name)]
                    for one in where_time_went.compiles(trace)
                ],
            ),
            "groups": columns(("lane", "first", "period", "count"), self._groups(rows)),
            "labels": list(self._labels),
        }

    def _row(self, submission: Submission, lane: int) -> list[Any]:
        label = label_of(submission)
        return [
            lane,
            submission.value,
            self._ns(submission.time_ns),
            self._ns(submission.started_ns),
            self._ns(submission.finished_ns),
            label.work,
            self._label(label.text),
            len(submission.commands),
            int(submission.dropped),
        ]

    def _spans(self) -> tuple[list[Json], list[list[Any]]]:
        """Lanes of what processes report as spans, and the spans by their starts. Those that overlap are in rows."""
        groups: dict[tuple[int, str], list[Span]] = {}
        for seen in self.trace.spans:
            groups.setdefault((seen.device.process, seen.span.lane), []).append(seen.span)
        lanes: list[Json] = []
        found: list[list[Any]] = []
        for (process, name), spans in groups.items():
            spans.sort(key=lambda span: (span.started_ns, -span.ended_ns))
            rows = overlap.rows_of([(span.started_ns, span.ended_ns) for span in spans])
            found += [
                [len(lanes) + row, self._ns(span.started_ns), self._ns(span.ended_ns), self._label(span.name),
                 span.size_bytes, ", ".join(map(str, span.peers)), int(bool(span.peers))]
                for span, row in zip(spans, rows)
            ]  # fmt: skip
            lanes += [{"process": process, "name": name} for _ in range(max(rows) + 1)]
        return lanes, found

    def _groups(self, rows: Sequence[Sequence[Any]]) -> Iterator[list[int]]:
        """What repeats, lane by lane: the first of a group's submissions among those of its lane, and how often."""
        work: dict[tuple[Any, ...], int] = {}
        lanes: dict[int, list[int]] = {}
        for made, row in zip(self.trace.submissions, rows):
            does = tuple((c["verb"], c.get("entry", c.get("label"))) for c in made.commands)
            lanes.setdefault(row[0], []).append(work.setdefault((row[6], made.dropped, does), len(work)))
        for lane, own in lanes.items():
            for group in repeats.groups(own):
                yield [lane, *group]

    def _label(self, text: str) -> int:
        return self._labels.setdefault(text, len(self._labels))

    def _reached(self, seen: SignalSeen) -> int | None:
        """The submission whose end the host saw, when the signal is its device's timeline."""
        if seen.is_set or seen.device.facts.get("timeline") != seen.va:
            return None
        made = self.trace.submission(seen.device, seen.value)
        return None if made is None else made.number

    @cached_property
    def graph(self) -> Graph | None:
        """Who waits for whom; None when nothing waits, which is known sooner than the graph."""
        commands = [command for made in self.trace.submissions for command in made.commands]
        commands += [c for made in self._block_users for c in made.all_commands()]
        return Graph(self.trace) if any(command["verb"] == "wait" for command in commands) else None

    def _arrows(self) -> Iterator[list[int]]:
        """From the submission that brings a signal to a value, to the submission that waits for it."""
        for wait in self.graph.waits if self.graph else ():
            if isinstance(wait.by, Submission) and wait.by is not wait.submission:
                yield [wait.by.number, wait.submission.number, wait.value]

    def _steps(self) -> Iterator[list[int]]:
        """Commands whose own time is known: kernels between timestamps. Too many are left to the packet view."""
        if len(self.trace.stamps) > 2 * MAX_STEPS:
            return
        for made in self.trace.submissions:
            if not any(command["verb"] in ("timestamp", "indirect") for command in made.commands):
                continue  # then its bar says all there is to say
            commands = made.all_commands()
            for index, (start, end) in command_times(made, commands, self._stamps).items():
                verb = commands[index]["verb"]
                if verb not in SPEAKING:
                    continue
                yield [
                    made.number,
                    self._ns(start) or 0,
                    self._ns(end) or 0,
                    SPEAKING.index(verb),
                    self._label(str(commands[index].get("kernel", verb))),
                ]

    @cached_property
    def _stamps(self) -> Stamps:
        return stamps_of(self.trace)

    @cached_property
    def where_time_went(self) -> Json:
        """Each queue's time by what it went to, and the work by name. Shares are of all time that queues worked."""
        went = where_time_went.where(self.trace, self._stamps, self.graph.waits if self.graph else ())
        lanes = {(lane["device"], lane["queue"]): at for at, lane in enumerate(self.timeline["lanes"])}
        codes = {code.va: number for number, code in enumerate(self.trace.code)}

        def much(number: int) -> int:  # as far as a browser counts: no clock can have said more
            return min(number, EXACT - 1)

        return {
            "span": much(went.ended_ns - went.started_ns),
            "busy": much(went.busy_ns),
            "before": much(went.before_ns),
            "before_compiling": much(went.before_compiling_ns),
            "said": where_time_went.SAID,
            "work": where_time_went.WORK,
            "queues": [
                {
                    "lane": lanes[queue.device, queue.queue],
                    "span": much(queue.span_ns),
                    "parts": {name: much(ns) for name, ns in queue.parts.items()},
                }
                for queue in went.queues
            ],
            "rows": [
                {
                    "kind": row.kind,
                    "look": row.look,
                    "name": row.name,
                    "count": row.count,
                    "timed": row.timed,
                    "total": much(row.total_ns) if row.timed else None,
                    "bytes": much(row.size_bytes),
                    "first": row.first,
                    "code": codes.get(row.entry) if row.kind == "kernel" else None,
                }
                for row in went.rows
            ],
        }

    # ------------------------------------------------------------ one submission

    def submission(self, number: int) -> Json:
        """Packets, commands and buffers of one submission, and what stands beside it in order."""
        made = self._submission(number)
        view = submission_view(made)
        view["submitted"] = self._ns(made.time_ns)
        view["started_ns"] = self._ns(made.started_ns)
        view["finished_ns"] = self._ns(made.finished_ns)
        view["buffers"] = [
            {
                "start": place.start,
                "size_bytes": place.size_bytes,
                "name": place.name,
                "state": place.state,
                "span": self.buffers.span_at(made, place.start),
            }
            for place in made.buffers()
        ]
        waits = [wait for wait in (self.graph.waits if self.graph else ()) if wait.submission is made]
        view["waits_for"] = [
            {
                "text": f"{wait.name} >= {wait.value}",
                "by": wait.by if isinstance(wait.by, str) else "",
                "number": wait.by.number if isinstance(wait.by, Submission) else None,
            }
            for wait in waits
        ]
        self._time_packets(made, view)
        view["layouts"] = self._layouts(made.device.kind, view)
        numbers = {id(code): index for index, code in enumerate(self.trace.code)}
        codes = [code_of(self.trace, made, c) for c in made.all_commands() if c["verb"] == "dispatch"]
        view["code"] = {code.name: numbers[id(code)] for code in codes if code is not None}
        return view

    def _submission(self, number: int) -> Submission:
        if not 0 <= number < len(self.trace.submissions):
            raise UsageError(
                f"submission {number}: the trace holds {len(self.trace.submissions)}, from 0 on."
            )
        return self.trace.submissions[number]

    def _time_packets(self, made: Submission, view: Json) -> None:
        """Give each packet how long its command took, where the trace says so."""
        times = command_times(made, made.all_commands(), self._stamps)
        sizes = {block.va: len(block.commands) for block in made.blocks}
        outer = _by_command(view["packets"])
        at = 0
        for index, command in enumerate(view["commands"]):
            inside = sizes.get(command["address"]) if command["verb"] == "indirect" else None
            packets = outer if inside is None else _by_command(outer.get(index, {}).get("packets", ()))
            for place in [index] if inside is None else range(inside):
                if at in times and place in packets:
                    packets[place]["ns"] = times[at][1] - times[at][0]
                at += 1

    def _layouts(self, kind: str, view: Json) -> Json:
        """The declarations of the packets in a view: where each field's bits are, and what they mean."""
        backend = backends.find(kind)
        if backend is None:
            return {}
        wanted = {packet["packet"] for packet in all_packets(view)}
        return {
            layout.__name__: {
                "doc": (layout.__doc__ or "").strip(),
                "tail": layout.tail,
                "length_words": layout.length_words,
                "fields": {name: [field.high, field.low, field.doc] for name, field in layout.fields.items()},
            }
            for layout in backend.packets()
            if layout.__name__ in wanted
        }

    # ------------------------------------------------------------ kernels

    @cached_property
    def _launches(self) -> dict[int, list[int]]:
        """Code number -> the submissions that launch it, in order."""
        numbers = {id(code): index for index, code in enumerate(self.trace.code)}
        found: dict[int, list[int]] = {index: [] for index in numbers.values()}
        for made in self.trace.submissions:
            for entry in dict.fromkeys(self._entries(made)):
                code = self.trace.code_at(made.device, entry, made.record)
                if code is not None:
                    found[numbers[id(code)]].append(made.number)
        return found

    def _entries(self, made: Submission) -> Iterator[int]:
        for command in made.commands:
            if command["verb"] == "dispatch":
                yield command["entry"]
            elif command["verb"] == "indirect":
                yield from self._block_entries(made, command["address"])

    def _block_entries(self, made: Submission, va: int) -> Sequence[int]:
        """Entries of the kernels that a block launches. Replays change its arguments, never its entries."""
        records = self._blocks.get((made.device.process, made.device.number, va), [])
        at = bisect.bisect_left(records, made.record) - 1
        if at < 0:
            return ()
        key = (made.device.key, va, records[at])
        if key not in self._entries_of:
            commands = self.trace.block(made.device, va, made.record).commands
            self._entries_of[key] = [c["entry"] for c in commands if c["verb"] == "dispatch"]
        return self._entries_of[key]

    @cached_property
    def _block_users(self) -> list[Submission]:
        """For every block, the first submission that runs it."""
        found: dict[tuple[str, int, int], Submission] = {}
        for made in self.trace.submissions:
            for command in made.commands:
                if command["verb"] == "indirect":
                    key = (made.device.process, made.device.number, command["address"])
                    at = bisect.bisect_left(self._blocks.get(key, ()), made.record)
                    found.setdefault((made.device.key, command["address"], at), made)
        return list(found.values())

    @cached_property
    def _blocks(self) -> dict[tuple[int, int, int], list[int]]:
        found: dict[tuple[int, int, int], list[int]] = {}
        for record in self.trace.records:
            if record.kind == Kind.BLOCK:
                key = (record.process, record.fields["device"], record.fields["va"])
                found.setdefault(key, []).append(record.index)
        return found

    @cached_property
    def kernels(self) -> Json:
        """Every program that was loaded, and how many submissions launch it."""
        rows = [
            {**self._kernel_row(number), "submissions": len(launches)}
            for number, launches in self._launches.items()
        ]
        return {"kernels": rows}

    @cached_property
    def _times(self) -> dict[int, list[int]]:
        """Code number -> how long its launches took, those whose time the trace can tell."""
        numbers = {id(code): index for index, code in enumerate(self.trace.code)}
        found: dict[int, list[int]] = {}
        for made in self.trace.submissions:
            if not self.trace.stamps and len(made.commands) > 1:
                continue  # its commands share one time
            commands = made.all_commands()
            for index, (start, end) in command_times(made, commands, self._stamps).items():
                if commands[index]["verb"] == "dispatch":
                    code = code_of(self.trace, made, commands[index])
                    if code is not None:
                        found.setdefault(numbers[id(code)], []).append(end - start)
        return found

    def _kernel_row(self, number: int) -> Json:
        code, times = self.trace.code[number], self._times.get(number, [])
        return {
            "number": number,
            "name": code.name,
            "device": code.device.key,
            "arch": code.device.arch,
            "size_bytes": len(code.image),
            "timed": len(times),
            "total_ns": sum(times) if times else None,
            "shortest_ns": min(times, default=None),
        }

    def kernel(self, number: int) -> Json:
        """One program: its facts, its text where the trace holds it, its machine code, who launches it."""
        if not 0 <= number < len(self.trace.code):
            raise UsageError(f"kernel {number}: the trace holds {len(self.trace.code)}, from 0 on.")
        code = self.trace.code[number]
        return {
            **self._kernel_row(number),
            "entry": code.entry,
            "va": code.va,
            "hash": code_hash(code.image),
            "arguments": list(code.args) if code.args is not None else None,
            "scratch_bytes": code.scratch_bytes,
            "facts": {key: value for key, value in code.facts.items() if key not in TEXTS},
            "texts": {key: str(code.facts[key]) for key in TEXTS if code.facts.get(key)},
            "submissions": self._launches[number],
            **_machine_code(code),
        }

    def counters(self, number: int, chip: str = "") -> Json:
        """What a program did on an emulated GPU, and what follows for its time on a chip."""
        if not 0 <= number < len(self.trace.code):
            raise UsageError(f"kernel {number}: the trace holds {len(self.trace.code)}, from 0 on.")
        return counters_view.view(self.trace, self.trace.code[number], chip)

    # ------------------------------------------------------------ rules

    @cached_property
    def findings(self) -> Json:
        """What the validation rules say of the trace; the first of them, each with the submission it is about."""
        numbers = {(made.device.key, made.value): made.number for made in self.trace.submissions}
        found = lint.findings(self.trace)
        rows = []
        for one in sorted(found, key=lambda one: one.level != "error")[:MAX_FINDINGS]:
            rows.append({**one._asdict(), "number": numbers.get((one.device, one.submission))})
        counts = Counter((one.level, one.rule) for one in found)
        order = sorted(counts, key=lambda key: (key[0] != "error", -counts[key], key[1]))
        rules = [{"level": level, "rule": rule, "count": counts[level, rule]} for level, rule in order]
        return {"findings": rows, "count": len(found), "rules": rules}

    # ------------------------------------------------------------ memory

    @cached_property
    def buffers(self) -> PageMemory:
        """What is known of buffers: where they lie, who uses them."""
        return PageMemory(self.trace, self._ns)

    @property
    def memory(self) -> Json:
        """Every buffer and mapping: where, how large, from when to when. The page's memory map and list."""
        return self.buffers.spans

    # ------------------------------------------------------------ search

    def search(self, text: str) -> Json:
        """Submissions by value, kernels, buffers and source lines that contain a text; addresses by what holds them."""
        wanted = text.strip().lower()
        found: list[Json] = []
        if not wanted:
            return {"found": found}
        digits = wanted.removeprefix("#")
        if digits.isdecimal() and digits.isascii() and len(digits) < 20:
            for made in (s for s in self.trace.submissions if s.value == int(digits)):
                found.append(
                    {"sort": "submission", "number": made.number, "text": f"{made.device.key} #{made.value}"}
                )
        found = found[:MAX_FOUND]
        names = [(number, code) for number, code in enumerate(self.trace.code) if wanted in code.name.lower()]
        for number, code in names[:MAX_FOUND]:
            count = len(self._launches[number])
            note = f"{code.device.key}, {count} submission{'s' * (count != 1)}"
            found.append({"sort": "kernel", "number": number, "text": code.name, "note": note})
        found += self.buffers.found(wanted)
        for site, first in self._sites.items():
            if wanted in site.lower():
                made = self.trace.submissions[first[0]]
                note = f"{len(first)} submissions from #{made.value}"
                found.append(
                    {"sort": "line", "number": first[0], "submissions": first, "text": site, "note": note}
                )
                if sum(one["sort"] == "line" for one in found) >= MAX_FOUND:
                    break
        return {"found": found}

    @cached_property
    def _sites(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for made in self.trace.submissions:
            if made.site:
                found.setdefault(made.site, []).append(made.number)
        return found

    # ------------------------------------------------------------ time

    @cached_property
    def _end(self) -> int:
        last = [record.time_ns for record in self.trace.records[-1:]]
        last += [s.finished_ns for s in self.trace.submissions if s.finished_ns is not None]
        last += [seen.span.ended_ns for seen in self.trace.spans]
        return max((self._ns(time) or 0 for time in last), default=0)

    def _ns(self, time_ns: int | None) -> int | None:
        """A time of the file as the page counts it; what no clock can have said is moved to the edge."""
        return None if time_ns is None else max(-EXACT, min(EXACT, time_ns - self._start))


def _by_command(packets: Sequence[Json]) -> dict[int, Json]:
    return {packet["command"]: packet for packet in packets if "command" in packet}


def _machine_code(code: Code) -> Json:
    try:
        found = disasm.disassemble(code)
    except HcqError as error:
        return {"lines": [], "unread": str(error)}
    return {"lines": [[x.offset, x.raw.hex(" "), x.text, x.label, x.target, x.source] for x in found]}


def plain(thing: Any) -> Any:
    """Data that a browser reads without loss: numbers it cannot count to become text, as do characters that hide or
    turn round what stands beside them."""
    if isinstance(thing, dict):
        return {plain(str(key)): plain(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [plain(value) for value in thing]
    if isinstance(thing, bool) or thing is None:
        return thing
    if isinstance(thing, int):
        return int(thing) if -EXACT < thing < EXACT else hex(thing)
    if isinstance(thing, float):
        return thing if math.isfinite(thing) else str(thing)
    return _HOSTILE.sub(lambda found: f"\\u{ord(found[0]):04x}", str(thing))
