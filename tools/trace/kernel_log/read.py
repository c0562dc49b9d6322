"""A kernel log as events: each line to who knows it, and what nobody knows as unknown.

In       lines of text
Out      Events in order
Next     amd_faults.py, patterns.py, nvidia.py (who know lines), show.py (who prints events)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hcq.tools.trace.kernel_log import amd_faults, nvidia, patterns
from hcq.tools.trace.kernel_log.amd_faults import AmdFaults
from hcq.tools.trace.kernel_log.event import Event
from hcq.tools.trace.kernel_log.log_lines import LogLine, is_newest_first, read

SPAN = 3  # lines within which a job's process stands behind its timeout
TROUBLE = re.compile(
    r"\*ERROR\*|error|fail|timeout|timed out|hang|hung|fault|assert|lost|corrupt|invalid|illegal|unable|BUG|reset",
    re.IGNORECASE,
)


def events(lines: Sequence[str]) -> list[Event]:
    """What a log tells, each thing once, the oldest first; nothing raises, whatever the text is."""
    if not is_newest_first(lines):
        return _events(lines)
    found = _events(lines[::-1])
    for event in found:
        event.line = len(lines) + 1 - event.line
        event.lines = [len(lines) + 1 - number for number in event.lines]
        event.copies = [len(lines) + 1 - number for number in event.copies]
    return found


def _events(lines: Sequence[str]) -> list[Event]:
    faults = AmdFaults()
    found: list[Event] = []
    # a line that stands twice, with its time, is told once
    first: dict[tuple[str, str, str], Event | None] = {}
    last: Event | None = None
    for line in read(lines):
        if line.when and line.is_marked:
            key = (line.when, line.device, line.message)
            if key in first:
                if (told := first[key]) is not None:
                    told.copies.append(line.number)
                continue
        else:
            key = None
        count = len(faults.found)
        if faults.take(line):
            event = faults.found[-1] if len(faults.found) > count else None
        else:
            event = nvidia.event_of(line, last) or patterns.event_of(line)
            if event is None and line.is_marked:
                event = unknown(line)
            if event is not None and event is not last and not _joins(event, last):
                found.append(event)
                last = event
        if key is not None:
            first[key] = event
    for event in faults.found:
        amd_faults.finish(event)
    return sorted((*found, *faults.found), key=lambda event: event.line)


def _joins(event: Event, last: Event | None) -> bool:
    """Whether an event is only who the job of the timeout before it was of."""
    if event.kind != "job's process" or last is None or last.kind not in ("ring timeout", "soft recovery"):
        return False
    if event.line - last.lines[-1] > SPAN or "pid" in last.fields:
        return False
    last.fields.update(event.fields)
    last.sentence += f"; {event.sentence}"
    last.lines.append(event.line)
    return True


def unknown(line: LogLine) -> Event:
    """A driver's line that is not known. One that tells of trouble is a thing to look at."""
    is_trouble = TROUBLE.search(line.message) is not None
    return Event(
        "unknown" if is_trouble else "other",
        line.number,
        "unknown",
        line.message or line.text,
        line.when,
        line.device,
        lines=[line.number],
    )
