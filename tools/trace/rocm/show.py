"""A text of ROCm's in our words: faults with what they mean, waves that are alike, queues and dispatches.

In       a Dump
Out      lines for a person; a list of objects for JSON
Next     dump.py (what was read), ../kernel_log/show.py (events), ../waves.py (waves)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hcq.tools.trace import kernel_log
from hcq.tools.trace import waves as wave_views
from hcq.tools.trace.color import Color, clean, counted
from hcq.tools.trace.rocm.dump import MOST_UNKNOWN, Dump

SHOWN_ROWS = 20
PRECISE = (
    "a wave goes on after an access that will fault: the instruction that did it is at or before the one shown"
    " (ROCM_DEBUG_AGENT_OPTIONS=-p, or `set amdgpu precise-memory on`, make it exact)"
)
MEMORY = ("MEMORY_VIOLATION", "SIGSEGV", "SIGBUS", "ADDRESS_ERROR")


def lines(dump: Dump, color: Color) -> Iterator[str]:
    """Faults, then waves, then tables."""
    if dump.events:
        yield from kernel_log.lines(dump.events, color)
    if dump.launched:
        of = "only launch" if dump.launches == 1 else f"last of {dump.launches} launches"
        yield f"the {of} in the log: {color(dump.launched, 'kernel')}"
    if dump.waves:
        yield ""
        yield color(f"{counted(len(dump.waves), 'wave')} of ROCm's text", "heading")
        yield from wave_views.lines(dump.waves, color)
        if any(mark in wave.reason for wave in dump.waves for mark in MEMORY):
            yield f"  {PRECISE}"
    yield from _tables(dump, color)
    if dump.code_objects:
        yield f"code of {', '.join(clean(one)[:200] for one in dump.code_objects[:4])}"
    if dump.unknown:
        more = "or more " if len(dump.unknown) >= MOST_UNKNOWN else ""
        yield f"{counted(len(dump.unknown), 'line')} {more}of no form that is known"
    if dump.is_full:
        yield "there is more in this text than is kept"


def _tables(dump: Dump, color: Color) -> Iterator[str]:
    for row in dump.agents[:SHOWN_ROWS]:
        yield f"GPU {row['id']}: {color(row['arch'], 'kernel')} {clean(row['name'])} {clean(row['at'])}".rstrip()
    for row in dump.queues[:SHOWN_ROWS]:
        waiting = f"{counted(row['pending'], 'packet')} not read" if row["pending"] > 0 else "empty"
        yield (
            f"queue {row['queue']}: {clean(row['type'])}, {waiting} (read {row['read']}, write {row['write']},"
            f" {row['size_bytes']} bytes at {row['va']:#x})"
        )
    for row in dump.dispatches[:SHOWN_ROWS]:
        kernel = color(row["kernel"], "kernel")
        yield f"dispatch {row['dispatch']}: {kernel}, grid [{row['grid']}], workgroup [{row['block']}]"


def as_json(dump: Dump) -> list[dict[str, Any]]:
    """One object for each event, wave and row of a table; `kind` says which; the last has what was left out."""
    found = kernel_log.json(dump.events)
    found += [wave.as_json() for wave in dump.waves]
    for kind, rows in (("GPU", dump.agents), ("queue", dump.queues), ("dispatch", dump.dispatches)):
        found += [{"kind": kind, **row} for row in rows]
    rest = {
        "groups": wave_views.as_json(dump.waves)["groups"],
        "code_objects": dump.code_objects,
        "launches": dump.launches,
        "launched": dump.launched,
        "unknown_lines": len(dump.unknown),
        "is_cut": dump.is_full,
    }
    return [*found, {"kind": "text", **rest}]
