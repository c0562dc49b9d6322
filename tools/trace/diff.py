"""Diff: whether two traces did the same work, and where they really differ.

In       two Traces, or two records of kernel memory (kernel_memory.py)
Out      Differences, in order; none means the same work. Addresses, handles and times never count
Next     views.py (names of buffers), stats.py (how long it took)

Submissions are aligned device by device: kernels by the hash of their code and their grids, arguments by kind, buffers
by size. Then the aligned pairs are walked with one rule for identities: a buffer of A is one buffer of B, from its
allocation to its end. What breaks that rule (another buffer, another offset) is a difference, and so is every other
number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from hcq.tools.trace import kernel_memory
from hcq.tools.trace.color import Color, counted
from hcq.tools.trace.views import argument_text, code_hash, code_of, command_view, timelines
from hcq.trace.file import MemoryMap, Submission, Trace

MAX_LISTED = 3  # submissions in a row that only one trace has
MAX_ALIGNED = 20_000  # beyond this many submissions in the part that differs, they are paired in order


@dataclass(frozen=True)
class Difference:
    """One difference. `a` and `b` are submissions' timeline values, None where there is none."""

    device: str
    what: str
    a: int | None = None
    b: int | None = None


@dataclass
class Result:
    """What was compared, and what differs."""

    submissions: int = 0
    commands: int = 0
    kernels: set[str] = field(default_factory=set)
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """Whether there is no difference."""
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        """What `hcq-trace diff --json` prints."""
        return {
            "same": self.is_same,
            "submissions": self.submissions,
            "commands": self.commands,
            "kernels": len(self.kernels),
            "differences": [vars(one) for one in self.differences],
            "notes": self.notes,
        }


Lines = Callable[[Color, int], Iterator[str]]


def of_files(a: str, b: str, ulps: int) -> tuple[Result | kernel_memory.Result, Lines]:
    """Compare two files of either kind. Returns the result, and what writes it as lines.

    Raises  UsageError: one of them is no such file, or they are of two kinds
    """
    if kernel_memory.is_one(Path(a)) or kernel_memory.is_one(Path(b)):
        memory = kernel_memory.compare(kernel_memory.read(Path(a)), kernel_memory.read(Path(b)), ulps)
        return memory, lambda color, limit: kernel_memory.lines(memory, color, limit)
    work = compare(Trace.read(a), Trace.read(b))
    return work, lambda color, limit: lines(work, color, limit)


def compare(a: Trace, b: Trace) -> Result:
    """Compare all submissions of two traces."""
    result = Result()
    devices_a, devices_b = _streams(a), _streams(b)
    stamped = [_has_stamps(a), _has_stamps(b)]
    if stamped[0] != stamped[1]:
        result.notes.append(
            f"only the {'first' if stamped[0] else 'second'} has timestamps; they were left out"
        )
    for key in dict.fromkeys([*devices_a, *devices_b]):
        _Stream(key, _Side(a, all(stamped)), _Side(b, all(stamped)), result).compare(
            devices_a.get(key, []), devices_b.get(key, [])
        )
    return result


def lines(result: Result, color: Color, limit: int) -> Iterator[str]:
    """The result as text."""
    for note in result.notes:
        yield color(note, "note")
    work = ", ".join(
        (
            counted(result.submissions, "submission"),
            counted(result.commands, "command"),
            counted(len(result.kernels), "kernel"),
        )
    )
    if result.is_same:
        yield f"{color('same work', 'more')}: {work}"
        return
    for one in result.differences[:limit]:
        style = "less" if one.b is None and one.a is not None else "more" if one.a is None else "wrong"
        places = " / ".join("-" if value is None else f"#{value}" for value in (one.a, one.b))
        yield f"{color(one.device, 'heading')} {places}: {color(one.what, style)}"
    if len(result.differences) > limit:
        yield f"... and {len(result.differences) - limit} more; --limit shows them"
    count = "1 difference" if len(result.differences) == 1 else f"{len(result.differences)} differences"
    yield f"{color(count, 'wrong')} in {work}"


def _has_stamps(trace: Trace) -> bool:
    """Whether commands take times, as HCQ_PROFILE=1 makes them."""
    return any(
        one["verb"] == "timestamp" for submission in trace.submissions for one in submission.all_commands()
    )


def _streams(trace: Trace) -> dict[str, list[Submission]]:
    """Submissions by device and queue. Processes are told apart by order, not by number."""
    found: dict[str, list[Submission]] = {}
    seen: dict[str, int] = {}
    names: dict[str, str] = {}
    for device in trace.devices:
        seen[device.name] = seen.get(device.name, 0) + 1
        times = seen[device.name]
        names[device.key] = device.name if times == 1 else f"{device.name} ({times})"
    for submission in trace.submissions:
        if not submission.dropped:
            name = names[submission.device.key]
            found.setdefault(f"{name} {submission.queue}".strip(), []).append(submission)
    return found


class _Side:
    """One trace, with hashes of its code kept."""

    def __init__(self, trace: Trace, with_stamps: bool) -> None:
        self.trace = trace
        self.with_stamps = with_stamps
        self._hashes: dict[int, str] = {}

    def code(self, submission: Submission, command: dict[str, Any]) -> str:
        code = code_of(self.trace, submission, command)
        if code is None:
            return "unknown code"
        if id(code) not in self._hashes:
            self._hashes[id(code)] = f"{code_hash(code.image)}:{code.entry}"
        return self._hashes[id(code)]

    def place(self, memory: MemoryMap, va: int) -> tuple[object, int, int, str]:
        """Identity, offset, size and state of what an address is in."""
        owner = timelines(self.trace, memory.process).get(va)
        if owner is not None:
            return f"timeline {owner.name}", 0, 16, "live"
        place = memory.find(va)
        span = memory.live.get(place.start)
        if span is None:
            return (place.state, place.start), place.offset, place.size_bytes, place.state
        return span.since, place.offset, span.size_bytes, "live"

    def shape(self, submission: Submission) -> tuple[Any, ...]:
        """What a submission is, without identities: the key by which two are aligned."""
        memory = submission.memory()
        return tuple(self.command_shape(submission, memory, one) for one in self.commands(submission))

    def commands(self, submission: Submission) -> list[dict[str, Any]]:
        """The commands that are compared."""
        found = submission.all_commands()
        return found if self.with_stamps else [one for one in found if one["verb"] != "timestamp"]

    def command_shape(
        self, submission: Submission, memory: MemoryMap, one: dict[str, Any]
    ) -> tuple[Any, ...]:
        if one["verb"] != "dispatch":
            places = tuple(self.place(memory, one[key])[2] for key in ADDRESSES if key in one)
            return one["verb"], places, one.get("size_bytes"), one.get("pattern")
        args = tuple(
            (arg["kind"], self.place(memory, arg["value"])[2]) if _is_address(memory, arg) else (arg["kind"],)
            for arg in one["args"]
        )
        return "dispatch", self.code(submission, one), tuple(one["grid"]), tuple(one["block"]), args


ADDRESSES = ("dst", "src", "signal", "address")


def _is_address(memory: MemoryMap, argument: dict[str, Any]) -> bool:
    if argument["kind"] == "buffer":
        return True
    value = argument["value"]
    return (
        argument["kind"] == "unknown"
        and isinstance(value, int)
        and value > 0xFFFF
        and memory.find(value).state == "live"
    )


class _Stream:
    """One queue of both traces."""

    def __init__(self, key: str, a: _Side, b: _Side, result: Result) -> None:
        self.key, self.a, self.b, self.result = key, a, b, result
        self.to_b: dict[object, object] = {}
        self.to_a: dict[object, object] = {}

    def compare(self, a: Sequence[Submission], b: Sequence[Submission]) -> None:
        shapes_a = [self.a.shape(one) for one in a]
        shapes_b = [self.b.shape(one) for one in b]
        for first_a, last_a, first_b, last_b, is_same in _align(shapes_a, shapes_b):
            if is_same:
                for one, other in zip(a[first_a:last_a], b[first_b:last_b]):
                    self._pair(one, other)
            else:
                self._replaced(a[first_a:last_a], b[first_b:last_b])

    def _replaced(self, a: Sequence[Submission], b: Sequence[Submission]) -> None:
        if (
            [s for one in a for s in self.a.shape(one)] == [s for one in b for s in self.b.shape(one)]
            and a
            and b
        ):
            what = f"the same commands, in {len(a)} submissions here and {len(b)} there"
            self._differ(what, a[0].value, b[0].value)
            return
        for one, other in zip(a, b):
            self._pair(one, other)
        self._only("first", a[len(b) :])
        self._only("second", b[len(a) :])

    def _only(self, where: str, left: Sequence[Submission]) -> None:
        if len(left) > MAX_LISTED:
            what = f"only in the {where}: {len(left)} submissions, to #{left[-1].value}; the first of them: "
            left, works = left[:1], [what + _work(left[0])]
        else:
            works = [f"only in the {where}: {_work(one)}" for one in left]
        for one, what in zip(left, works):
            self._differ(
                what, one.value if where == "first" else None, one.value if where == "second" else None
            )

    def _pair(self, a: Submission, b: Submission) -> None:
        """Two submissions that should do the same."""
        self.result.submissions += 1
        own, other = self.a.commands(a), self.b.commands(b)
        memory_a, memory_b = a.memory(), b.memory()
        shapes_a = [self.a.command_shape(a, memory_a, one) for one in own]
        shapes_b = [self.b.command_shape(b, memory_b, one) for one in other]
        for first_a, last_a, first_b, last_b, _ in _align(shapes_a, shapes_b):
            pairs = list(zip(range(first_a, last_a), range(first_b, last_b)))
            while pairs and _name(own[pairs[-1][0]]) != _name(other[pairs[-1][1]]):
                pairs.pop()  # other work, not the same work done otherwise
            for at_a, at_b in pairs:
                self.result.commands += 1
                if own[at_a]["verb"] == "dispatch":
                    self.result.kernels.add(self.a.code(a, own[at_a]))
                for what in self._command(a, b, memory_a, memory_b, own[at_a], other[at_b]):
                    self._differ(f"command {at_a}, {_name(own[at_a])}: {what}", a.value, b.value)
            for left in own[first_a + len(pairs) : last_a]:
                self._differ(f"only in the first: {_text(a, memory_a, left)}", a.value, b.value)
            for left in other[first_b + len(pairs) : last_b]:
                self._differ(f"only in the second: {_text(b, memory_b, left)}", a.value, b.value)

    def _command(
        self, a: Submission, b: Submission, memory_a: MemoryMap, memory_b: MemoryMap,
        one: dict[str, Any], other: dict[str, Any],
    ) -> Iterator[str]:  # fmt: skip
        if one["verb"] != other["verb"] or _name(one) != _name(other):
            yield f"the second has {_name(other)}"
            return
        if one["verb"] == "dispatch":
            if self.a.code(a, one) != self.b.code(b, other):
                yield f"its code differs: {self.a.code(a, one)} and {self.b.code(b, other)}"
            for key in ("grid", "block", "groups_per_claim", "dynamic_shared_bytes"):
                if one[key] != other[key]:
                    yield f"{key} {_tuple(one[key])} and {_tuple(other[key])}"
            if len(one["args"]) != len(other["args"]):
                yield f"{len(one['args'])} and {len(other['args'])} arguments"
            for index, (left, right) in enumerate(zip(one["args"], other["args"])):
                if not self._same_argument(memory_a, memory_b, left, right):
                    texts = (
                        argument_text(self.a.trace, memory_a, left),
                        argument_text(self.b.trace, memory_b, right),
                    )
                    yield f"argument {index} is {_both(*texts, self._sizes(memory_a, memory_b, left, right))}"
            return
        for key in one:
            if key in ADDRESSES:
                if not self._same_place(memory_a, memory_b, one[key], other[key]):
                    places = memory_a.find(one[key]), memory_b.find(other[key])
                    sizes = places[0].size_bytes, places[1].size_bytes
                    yield f"{key} is {_both(str(places[0]), str(places[1]), sizes)}"
            elif key != "label" and one[key] != other.get(key):
                yield f"{key} is {one[key]} and {other.get(key)}"

    def _sizes(
        self, memory_a: MemoryMap, memory_b: MemoryMap, left: dict[str, Any], right: dict[str, Any]
    ) -> tuple[int, int]:
        if not (_is_address(memory_a, left) and _is_address(memory_b, right)):
            return 0, 0
        return memory_a.find(left["value"]).size_bytes, memory_b.find(right["value"]).size_bytes

    def _same_argument(
        self, memory_a: MemoryMap, memory_b: MemoryMap, left: dict[str, Any], right: dict[str, Any]
    ) -> bool:
        if _is_address(memory_a, left) and _is_address(memory_b, right):
            return self._same_place(memory_a, memory_b, left["value"], right["value"])
        return left["kind"] == right["kind"] and _bits(left["value"]) == _bits(right["value"])

    def _same_place(self, memory_a: MemoryMap, memory_b: MemoryMap, va_a: int, va_b: int) -> bool:
        one, offset_a, size_a, state_a = self.a.place(memory_a, va_a)
        other, offset_b, size_b, state_b = self.b.place(memory_b, va_b)
        if (offset_a, size_a, state_a) != (offset_b, size_b, state_b):
            return False
        if one not in self.to_b and other not in self.to_a:
            self.to_b[one], self.to_a[other] = other, one
        is_same = self.to_b.get(one) == other and self.to_a.get(other) == one
        self.to_b[one], self.to_a[other] = other, one  # reported once; what follows from it is not
        return is_same

    def _differ(self, what: str, a: int | None, b: int | None) -> None:
        self.result.differences.append(Difference(self.key, what, a, b))


def _align(a: Sequence[Any], b: Sequence[Any]) -> Iterator[tuple[int, int, int, int, bool]]:
    """Ranges of both sides that belong together, in order, and whether their shapes are the same."""
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    if start:
        yield 0, start, 0, start, True
    middle_a, middle_b = a[start : len(a) - end], b[start : len(b) - end]
    if middle_a or middle_b:
        if len(middle_a) + len(middle_b) > MAX_ALIGNED:
            yield start, start + len(middle_a), start, start + len(middle_b), False
        else:
            matcher = SequenceMatcher(None, middle_a, middle_b, autojunk=False)
            for tag, a0, a1, b0, b1 in matcher.get_opcodes():
                yield start + a0, start + a1, start + b0, start + b1, tag == "equal"
    if end:
        yield len(a) - end, len(a), len(b) - end, len(b), True


def _bits(value: object) -> object:
    """A float by its bits, so that NaN is itself and zeros differ."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def _name(command: dict[str, Any]) -> str:
    return str(command.get("kernel", command["verb"]))


def _text(submission: Submission, memory: MemoryMap, command: dict[str, Any]) -> str:
    return f"{command['verb']} {command_view(submission, memory, command)['text']}"


def _both(a: str, b: str, sizes: tuple[int, int]) -> str:
    if a != b:
        return f"{a} and {b}"
    if sizes[0] != sizes[1]:
        return f"{a} in both, of {sizes[0]} and {sizes[1]} bytes"
    return f"{a} in both, but not the same buffer as before"


def _tuple(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else str(value)


def _work(submission: Submission) -> str:
    names = [_name(command) for command in submission.all_commands()]
    return (
        ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        if names
        else "nothing"
    )
