"""What a kernel log tells, for a person and for a program.

In       events
Out      lines: an event, then what it means, its usual causes and what to try, said once for each kind; data for JSON
Next     read.py (the events)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from hcq.tools.trace.color import Color, clean, counted
from hcq.tools.trace.kernel_log.event import Event

STYLES = {"fault": "wrong", "consequence": "less", "outcome": "kernel", "notice": "note", "unknown": "note"}
MOST_LINES = 8  # numbers of lines that are listed one by one
MOST_WORDS = 300  # characters of a line of others
QUIET_FIELDS = frozenset(
    {"message", "process", "pid", "thread", "tid", "page", "address", "name", "generation"}
)


def json(found: Sequence[Event]) -> list[dict[str, Any]]:
    """Every event, with those that are not known."""
    return [event.as_json() for event in found]


def lines(found: Sequence[Event], color: Color) -> Iterator[str]:
    """Every event that tells something, alike ones together, and a summary."""
    told = [event for event in found if event.kind != "other"]
    explained: dict[tuple[str, str, str], int] = {}
    for group in _groups(told):
        yield from _block(group, color, explained)
        yield ""
    yield from _summary(found, told)


def _groups(told: list[Event]) -> Iterator[list[Event]]:
    """Events that follow each other and differ only in numbers."""
    group: list[Event] = []
    key: tuple[str, ...] = ()
    for event in told:
        alike = (
            event.kind,
            event.device,
            event.role,
            re.sub(r"(?:0x)?[0-9a-fA-F]*\d[0-9a-fA-F]*", "#", event.sentence),
        )
        if group and alike != key:
            yield group
            group = []
        key = alike
        group.append(event)
    if group:
        yield group


def _block(group: list[Event], color: Color, explained: dict[tuple[str, str, str], int]) -> Iterator[str]:
    event = group[0]
    where = " ".join(part for part in (event.when and f"[{event.when}]", event.device) if part)
    role = "" if event.role in ("fault", "unknown") else f"{event.role}: "
    said = f"{role}{'unknown: ' if event.role == 'unknown' else ''}{event.sentence[:MOST_WORDS]}"
    yield f"line {_numbers(event.lines)}{f'  {clean(where)}' if where else ''}"
    yield f"  {color(said, STYLES[event.role])}"
    helps = (event.meaning, event.causes, event.advice)
    if any(helps) and helps in explained:
        yield f"    as in line {explained[helps]}: see there for what it means and what to try"
    elif any(helps):
        explained[helps] = event.line
        for label, text in zip(("means", "causes", "try"), helps):
            if text:
                yield f"    {label:7} {clean(text)}"
    for note in event.notes:
        yield f"    {'note':7} {clean(note)}"
    shown = {
        key: value
        for key, value in event.fields.items()
        if key not in QUIET_FIELDS and value not in ("", None)
    }
    shown = {key: value for key, value in shown.items() if not key.startswith("printed_")}
    if shown:
        yield f"    {'fields':7} {clean(', '.join(f'{key}={_value(key, value)}' for key, value in shown.items()))}"
    if event.copies:
        yield f"    {'again':7} the same lines stand at {_numbers(event.copies)}, too; they are counted once"
    if len(group) > 1:
        more = _numbers([one.line for one in group[1:]])
        yield f"    {'more':7} {len(group) - 1} like it, which differ in numbers: line {more}"


def _summary(found: Sequence[Event], told: list[Event]) -> Iterator[str]:
    counts = Counter(event.kind for event in told if event.role in ("fault", "consequence", "outcome"))
    if counts:
        yield f"{counted(sum(counts.values()), 'event')}: " + ", ".join(
            f"{count} {clean(kind)}" for kind, count in counts.most_common()
        )
        start = next((event for event in told if event.role == "fault"), None)
        if start is not None:
            yield f"  the first that is no consequence of another: line {start.line}, {clean(start.kind)}"
    else:
        yield "no fault, hang or reset in this log"
    strange = [event.line for event in told if event.role == "unknown"]
    if strange:
        of = counted(len(strange), "line")
        yield f"  {of} that may tell of trouble and that decode does not know: {_numbers(strange)}"
    other = [event.line for event in found if event.kind == "other"]
    if other:
        yield f"  {counted(len(other), 'other line')} of GPU drivers that decode does not know: {_numbers(other)}"


def _numbers(lines: Sequence[int]) -> str:
    """Numbers of lines, runs as first-last, and how many are left out."""
    runs: list[list[int]] = []
    for number in lines:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    said = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs[:MOST_LINES])
    left = sum(b - a + 1 for a, b in runs[MOST_LINES:])
    return f"{said} and {left} more" if left else said


def _value(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}:{part}" for name, part in value.items())
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    is_hex = key in (
        "status",
        "channel",
        "intr",
        "cid",
        "class",
        "offset",
        "data",
        "code",
        "permission_faults",
    )
    return f"{value:#x}" if is_hex else str(value)
