"""Lines of a kernel log, whatever stands around them: stamps of dmesg and journalctl, quotes, colours.

In       lines of text
Out      those about GPUs as LogLines: number, stamp, device, message; whether a text has any at all
Next     read.py (who asks what they mean)
Source   what dmesg (-T, -x, --time-format iso), journalctl (-k, -o short-iso), /dev/kmsg and syslog print
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAX_LINE = 2000  # characters; the kernel's own limit is 1024
MAX_HEAD = 120  # characters in which a stamp is looked for
FAULT_SPAN = 12  # lines after a fault that are looked at though they name no driver
WRAPPED = 3  # lines that one may have been broken into

# A line with one of these is about a GPU. Plain words, because every line of every text is searched for them.
MARKS = (
    "NVRM: ",
    "Xid (",
    "amdgpu: ",
    "amdgpu 0",
    "amdgpu]",
    "[drm:amdgpu_",  # a driver that is built into the kernel has no name of a module behind its functions
    "[drm:gfx_v",
    "[drm:sdma_v",
    "[drm:mes_v",
    "page fault (src_id",
    "L2_PROTECTION_FAULT_STATUS:0x",
    "UTCL2 client ID",
    "in page starting at address",
    "kfd kfd:",
    "sq_intr:",
    "Graphics SM Warp Exception on (",  # Windows has the messages alone
    "Graphics SM Global Exception on (",
    "Graphics Exception: ESR 0x",
)
# fields of a fault, in either order
NEWEST_FIRST, OLDEST_FIRST = (("RW", "MAPPING_ERROR"), ("MAPPING_ERROR", "RW"))
ALSO = ("AER: ", "[drm] device wedged", "callbacks suppressed")  # marks only beside those

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]|</?(?:code|pre|p|br ?/?)>")
_ODD = str.maketrans(
    {"\u00a0": " ", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\ufeff": ""}
)
_STAMP = re.compile(
    r"\[ *(\d{1,10}\.\d{1,9})\]"
    r"|\[([A-Z][a-z]{2} +[A-Z][a-z]{2} +\d{1,2} +\d\d:\d\d:\d\d +\d{4})\]"
    r"|(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,0-9]{0,10}(?:Z|[+-]\d\d:?\d\d)?)"
    r"|(?:^|[\s>|+])(\w{3,10}\.? {1,2}\d{1,2} \d\d:\d\d:\d\d)\b"
    r"|^\d{1,3},\d{1,12},(\d{1,16}),"
    r"|^(\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)\s"
)
_DEVICE = re.compile(r"\b([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?(?![0-9a-fA-F:])")
_MESSAGE = re.compile(
    r"(?:NVRM: |(?:amdgpu|kfd kfd|drmn\d+)(?: [0-9a-fA-F:.]{1,16})?: (?:amdgpu: )?|\[drm[^\]]{0,80}\]*\]? )(.*)$"
)


class LogLine(NamedTuple):
    """A line about a GPU. text: the line, cleaned; message: what is left of it behind the driver's name."""

    number: int
    text: str
    when: str
    device: str
    message: str
    is_marked: bool  # it names a driver itself


def recognises(content: bytes) -> bool:
    """Whether a text has lines of a GPU's kernel driver."""
    return any(mark.encode() in content for mark in MARKS)


def read(lines: Sequence[str]) -> Iterator[LogLine]:
    """Lines about GPUs, and those shortly after them; a line that was broken in two comes whole."""
    marks = (*MARKS, *ALSO)
    near = 0
    at = 0
    while at < len(lines):
        line = lines[at][:MAX_LINE]
        number = at + 1
        at += 1
        is_marked = any(mark in line for mark in marks)
        if is_marked:
            near = FAULT_SPAN
        elif near:
            near -= 1
        else:
            continue
        text = clean(line)
        for _ in range(WRAPPED):
            if not (is_marked and at < len(lines) and is_cut(text)):
                break
            more = clean(lines[at][:MAX_LINE])
            if not more or any(mark in more for mark in marks) or _STAMP.search(more[:MAX_HEAD]):
                break
            text = f"{text} {more}"
            at += 1
        if text:
            yield _line(number, text, is_marked)


def is_newest_first(lines: Sequence[str]) -> bool:
    """Whether a log was printed backwards (journalctl -r): faults tell, whose fields have an order."""
    counts = {NEWEST_FIRST: 0, OLDEST_FIRST: 0}
    before = ""
    for line in lines:
        field = (
            ""
            if ": 0x" not in line
            else "RW"
            if " RW: 0x" in line
            else "MAPPING_ERROR"
            if "MAPPING_ERROR: 0x" in line
            else ""
        )
        if (before, field) in counts:
            counts[before, field] += 1
        before = field
    return counts[NEWEST_FIRST] > counts[OLDEST_FIRST]


def clean(line: str) -> str:
    """Without colours, marks of pages, odd spaces and quotes."""
    if "\x1b" in line or "<" in line:
        line = _COLOUR.sub("", line)
    return line.translate(_ODD).replace("\0", "").strip(" \t\r\n>|+")


def is_cut(text: str) -> bool:
    """Whether a line ends before what belongs to it: in a parenthesis, or in the middle of a report."""
    if "page fault (src_id" in text:
        return text.count("(") > text.count(")")
    if "MMU Fault" in text or ": 31, " in text:
        return "Xid (" in text and "ACCESS_TYPE_" not in text
    return "Xid (" in text and text.endswith((",", ":"))


def _line(number: int, text: str, is_marked: bool) -> LogLine:
    stamp = _STAMP.search(text[:MAX_HEAD])
    when = next((part for part in stamp.groups() if part), "") if stamp else ""
    device = _DEVICE.search(text)
    message = _MESSAGE.search(text)
    said = message[1] if message else text[stamp.end() if stamp else 0 :]
    return LogLine(number, text, when, device[1].lower() if device else "", said.strip(), is_marked)
