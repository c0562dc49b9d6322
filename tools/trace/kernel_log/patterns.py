"""Lines that stand for one event each: a table of them, and the words for numbers in them.

In       LogLines; data/patterns.tsv
Out      Events
Next     data/patterns.tsv (every line that is known), read.py (who asks)
Source   at the top of the table; amdgpu_reset.h: AMDGPU_RESET_SRC_*; kfd_int_process_v11.c: SQ_INTERRUPT_ERROR_TYPE_*
"""

from __future__ import annotations

import errno
import os
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hcq.tools.trace.kernel_log.event import Event
from hcq.tools.trace.kernel_log.log_lines import LogLine

TABLE = Path(__file__).parent / "data" / "patterns.tsv"
RESET_SOURCES = {
    0: "nobody says why",
    1: "because a job hung",
    2: "because of a memory error (RAS)",
    3: "because the scheduler firmware (MES) does not answer",
    4: "because the compute driver's scheduler asked for it",
    5: "because a user asked for it",
    6: "because a user queue hung",
}
WAVE_ERRORS = {
    0: "an uncorrectable error in its registers or memory",
    1: "an illegal instruction",
    2: "a memory violation",
    3: "a corrupted fetch",
}


class Pattern(NamedTuple):
    """A row of the table."""

    kind: str
    role: str
    key: str
    regex: re.Pattern[str] | None
    sentence: str
    meaning: str
    causes: str
    advice: str


@cache
def patterns() -> tuple[Pattern, ...]:
    """The table."""
    found = []
    for row in TABLE.read_text(encoding="utf-8").splitlines():
        if not row.startswith("#"):
            kind, role, key, regex, *words = row.split("\t")
            found.append(Pattern(kind, role, key, re.compile(regex) if regex else None, *words))
    return tuple(found)


def event_of(line: LogLine) -> Event | None:
    """What a line says; None for a line that the table has not."""
    for pattern in patterns():
        if pattern.key not in line.text:
            continue
        found = pattern.regex.search(line.message) if pattern.regex else None
        if pattern.regex and found is None:
            found = pattern.regex.search(line.text)
            if found is None:
                continue
        named = {name: value for name, value in found.groupdict().items() if value} if found else {}
        return Event(
            pattern.kind,
            line.number,
            pattern.role,
            pattern.sentence.format_map(_Words(named)),
            line.when,
            line.device,
            pattern.meaning,
            pattern.causes,
            pattern.advice,
            {name: _number(value) for name, value in named.items()},
            lines=[line.number],
        )
    return None


class _Words(dict[str, str]):
    """What a sentence is filled with; what the line has not is "unknown", and words for numbers are "" then."""

    def __missing__(self, name: str) -> str:
        if name == "errno_words":
            return describe_errno(self.get("ret", ""))
        if name == "source_words":
            source = self.get("source")
            return f", {RESET_SOURCES.get(int(source), f'source {source}')}" if source else ""
        if name == "type_words":
            return WAVE_ERRORS.get(int(self["type"]), f"an error of unknown type {self['type']}")
        if name == "wave_words":
            units = [
                f"{unit} {self[unit]}" for unit in ("se", "sh", "cu", "wgp", "simd", "wave") if unit in self
            ]
            return f" ({', '.join(units)})" if units else ""
        return "" if name == "engine" else "unknown"


def describe_errno(text: str) -> str:
    """ " (ETIME, Timer expired)" of -62; "" of 0 and of what is no error."""
    try:
        number = -int(text)
    except ValueError:
        return ""
    known = errno.errorcode.get(number)
    return f" ({known}, {os.strerror(number)})" if known else ""


def _number(text: str) -> str | int:
    if len(text) > 20:
        return text
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", text) else text
