"""Tables that AMD's tools print of a whole GPU: ECC counts of amd-smi and rocm-smi, MQDs of the KFD.

In       the bytes of a text, in which a kernel log may stand, too
Out      Events of what counts against a GPU; queues with their notes; lines for people, data for JSON
Next     kernel_log/show.py (who prints events), hcq/amd/debugfs.py (MQDs and runlists), readers.py (who asks)
Source   amdsmi: its changelog and manual; rocm_smi.py: printTableLog, showRasInfo; kfd_process_queue_manager.c:
         pqm_debugfs_mqds. Samples are of our own making
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from hcq.amd import debugfs
from hcq.tools.trace import kernel_log
from hcq.tools.trace.color import Color, clean, counted
from hcq.tools.trace.kernel_log.event import Event

MOST_EVENTS, MAX_LINE, MOST_BYTES = 500, 300, 1 << 24
MEANING = {
    "uncorrectable": "data was lost in memory or caches; the program that used it was ended",
    "correctable": "errors that were corrected: nothing was lost",
    "deferred": "data that is known to be wrong, and that nobody has used yet",
}
ADVICE = "amd-smi bad-pages and the kernel log (RAS) say where; reset the GPU, and replace the board when it comes back"

_GPU = re.compile(r"GPU ?(?:: ?|\[)(?P<gpu>\d{1,4})\]?")
_COUNT = re.compile(r"(?:TOTAL_)?(?P<kind>UNCORRECTABLE|CORRECTABLE|DEFERRED)_COUNT: *(?P<count>\d{1,12})")
_BLOCK = re.compile(r"(?P<block>[A-Z][A-Z0-9_]{1,20}): *$")
_ROW = re.compile(
    r" *(?P<block>[A-Z][A-Z0-9_]{1,20}) +(?:ENABLED|DISABLED) +(?P<correctable>\d{1,12}) +(?P<uncorrectable>\d{1,12})"
)
_FACT = re.compile(
    r"(?P<key>MARKET_NAME|TARGET_GRAPHICS_VERSION|DRIVER VERSION|Driver version|GFX Version):? *:? *"
    r"(?P<value>\S.{0,80})"
)
_MARKS = (
    re.compile(rb"^[> ]*GPU: \d+\s*\r?\n[> ]+[A-Z_]{2,30}:", re.M),
    re.compile(rb"ROCm System Management Interface|End of ROCm SMI Log"),
)
_MQDS = re.compile(
    rb"^[> ]*Process \d+ PASID (?:0x)?[0-9a-fA-F]+:\s*\r?\n[> ]*  (?:SDMA|Compute) queue on ", re.M
)


class Tables(NamedTuple):
    """What a text has."""

    facts: list[str]
    events: list[Event]
    queues: list[dict[str, Any]]
    gpus: int


def recognises(content: bytes) -> bool:
    """Whether a text has such tables."""
    return any(mark.search(content) for mark in _MARKS) or _MQDS.search(content) is not None


def read(content: bytes) -> Tables:
    """Everything; nothing raises."""
    text = content[:MOST_BYTES].decode("utf-8", "replace").replace("\r\n", "\n")
    rows = [line.removeprefix("> ") for line in text.split("\n")]
    events, facts, gpus = _counts(rows)
    if kernel_log.recognises(content):
        events = sorted([*events, *kernel_log.events(rows)], key=lambda event: event.line)
    queues = debugfs.mqds("\n".join(rows), {}) if _MQDS.search(content) else []
    return Tables(facts, events, queues, gpus)


def _counts(rows: list[str]) -> tuple[list[Event], list[str], int]:
    events: list[Event] = []
    facts: list[str] = []
    gpu, block, seen = "", "", set()
    for number, raw in enumerate(rows, 1):
        line = clean(raw[:MAX_LINE])
        if (named := _GPU.match(line.strip())) is not None:
            gpu = named["gpu"]
            seen.add(gpu)
        if fact := _FACT.search(line):
            facts.append(f"GPU {gpu or '?'}: {fact['key']} {fact['value'].strip()}")
        if count := _COUNT.search(line):
            _add(events, number, gpu, block, count["kind"].lower(), int(count["count"]))
        elif row := _ROW.match(line):
            for kind in ("correctable", "uncorrectable"):
                _add(events, number, gpu, row["block"], kind, int(row[kind]))
        elif head := _BLOCK.match(line.strip()):
            block = "" if head["block"] in ("ECC", "GPU") else head["block"]
    return events[:MOST_EVENTS], facts[:MOST_EVENTS], len(seen)


def _add(events: list[Event], line: int, gpu: str, block: str, kind: str, count: int) -> None:
    if not count or len(events) >= MOST_EVENTS:
        return
    where = f" in block {block}" if block else ""
    events.append(
        Event(
            "memory errors",
            line,
            "notice" if kind == "correctable" else "fault",
            f"GPU {gpu or '?'}: {counted(count, f'{kind} error')}{where}",
            meaning=MEANING[kind],
            advice="" if kind == "correctable" else ADVICE,
            fields={"gpu": gpu, "block": block, "kind": kind, "count": count},
            lines=[line],
        )
    )


def lines(found: Tables, color: Color) -> Iterator[str]:
    """Facts, errors, queues."""
    yield from found.facts
    if found.events:
        yield from kernel_log.lines(found.events, color)
    elif found.gpus:
        yield f"{counted(found.gpus, 'GPU')}, and no error is counted in this text"
    for queue in found.queues:
        yield color(queue["name"], "heading")
        yield from (f"  {note}" for note in queue["notes"])
        values = ", ".join(f"{name}={value:#x}" for name, value in list(queue["fields"].items())[:24])
        if values:
            yield f"  {values}"


def as_json(found: Tables) -> dict[str, Any]:
    """The same as data."""
    return {
        "kind": "tables",
        "facts": found.facts,
        "events": kernel_log.json(found.events),
        "queues": found.queues,
    }
