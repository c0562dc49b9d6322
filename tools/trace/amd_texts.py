"""A text of umr's, of ROCm's and of the kernel's at once, as people paste them: each line by who knows it.

In       the bytes of a text
Out      what each reader found; lines for a person, data for JSON
Next     umr/, rocm/, kernel_log/ (who read), readers.py (who asks)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hcq.tools.trace import kernel_log, rocm, umr
from hcq.tools.trace.color import Color
from hcq.tools.trace.kernel_log.event import Event


class AmdText(NamedTuple):
    """What the readers found; None for one that knows nothing in this text. One of the first two is there."""

    umr: umr.Dump | None
    rocm: rocm.Dump | None
    events: list[Event]


def read(content: bytes) -> AmdText:
    """Everything; a line is unknown when none of them knows it. Nothing raises."""
    text = content.decode("utf-8", "replace").split("\n")
    of_umr = umr.read(text) if umr.recognises(content) else None
    of_rocm = rocm.read(text) if rocm.recognises(content) else None
    events = kernel_log.events(text) if kernel_log.recognises(content) else []
    known = {number for event in events for number in (*event.lines, *event.copies)}
    dumps = [dump for dump in (of_umr, of_rocm) if dump is not None]
    unknown = set.intersection(*(set(dump.unknown) for dump in dumps)) - known if dumps else set()
    if of_rocm is not None:  # said once
        of_rocm.unknown = set() if of_umr is not None else unknown
    if of_umr is not None:
        of_umr.unknown = sorted(unknown)
        first = min(unknown, default=0)
        of_umr.unknown_text = f"line {first}: {kernel_log.clean(text[first - 1])[:120]}" if first else ""
    return AmdText(of_umr, of_rocm, events)


def lines(found: AmdText, color: Color, named: str) -> Iterator[str]:
    """umr's, then ROCm's, then the kernel's. Raises UsageError for a name of no GPU."""
    if found.umr is not None:
        yield from umr.lines(found.umr, color, named)
    if found.rocm is not None:
        if found.umr is not None:
            yield from ("", color("ROCm", "heading"))
        yield from rocm.lines(found.rocm, color)
    if found.events:
        yield from ("", color("kernel log", "heading"))
        yield from kernel_log.lines(found.events, color)


def as_json(found: AmdText, named: str) -> Any:
    """A list where all is ROCm's and the kernel's; with umr's an object. Raises UsageError for a name of no GPU."""
    log = kernel_log.json(found.events)
    of_rocm = rocm.as_json(found.rocm) if found.rocm is not None else []
    if found.umr is None:
        return [*of_rocm, *log]
    whole = umr.as_json(found.umr, named)
    return whole | ({"rocm": of_rocm} if of_rocm else {}) | ({"kernel_log": log} if log else {})
