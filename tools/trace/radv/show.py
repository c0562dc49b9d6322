"""A report of RADV's in our words: first what hangs where, then each part.

In       a Report; a GPU's name, where the command line says it
Out      lines for a person; the same as data for JSON
Next     report.py (what was read), ../waves.py, ../umr/show.py, ../kernel_log/show.py (parts of it)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from hcq.amd.chip import CHIPS, Chip
from hcq.tools.trace import kernel_log, umr
from hcq.tools.trace import waves as wave_views
from hcq.tools.trace.color import Color, clean, counted
from hcq.tools.trace.radv import commands
from hcq.tools.trace.radv.commands import Command, Trace
from hcq.tools.trace.radv.report import Report, busy, chip_name

SHOWN_BEFORE, SHOWN_AFTER = 4, 24  # packets around the last trace point that was reached
SHOWN_REGISTERS = 30
SHOWN_GROUPS = 5
SHOWN_SAID = 4
LONGEST = 240
MOST_OTHERS = 50


class Part(Protocol):
    """What another reader makes of a part."""

    @property
    def lines(self) -> Callable[[Color], Iterator[str]]:
        """For a person."""

    @property
    def as_json(self) -> Callable[[], Any]:
        """For a program."""


ReadPart = Callable[[bytes], Part | None]


def no_part(content: bytes) -> Part | None:
    """Of a report whose other parts nobody reads."""
    return None


def lines(report: Report, color: Color, named: str = "", read_part: ReadPart = no_part) -> Iterator[str]:
    """The summary, then every part; read_part reads those of others. Raises UsageError for a name of no GPU."""
    chip = CHIPS[chip_name(report, named)]
    yield from _summary(report, chip, color)
    if report.trace is not None:
        yield from _trace(report.trace, chip, color)
    if waves := report.waves():
        yield ""
        yield color("waves", "heading")
        yield from wave_views.lines(waves, color)
    if report.registers:
        yield from _registers(report, color)
    for dump in (report.umr_ring, report.umr_waves):
        if dump is not None and (dump.rings or dump.streams):
            yield ""
            without = replace(dump, waves=[])  # these are shown above
            yield from umr.lines(without, color, named or (chip.arch if report.arch else ""))
    if report.events:
        yield ""
        yield color("kernel log", "heading")
        yield from kernel_log.lines(report.events, color)
    yield from _others(report, color, read_part)


def _summary(report: Report, chip: Chip, color: Color) -> Iterator[str]:
    about = ", ".join(part for part in (report.gpu, report.application) if part)
    if len(report.parts) == len(report.others):
        yield color(f"folder {clean(report.name)}: {counted(len(report.parts), 'file')}"[:LONGEST], "heading")
        return
    yield color(f"RADV: a hang{f' of {about}' if about else ''}"[:LONGEST], "heading")
    if report.fault is not None:
        yield f"  fault     {color(report.fault.sentence(), 'wrong')}"
        for said in (*report.fault.said, *report.fault.buffers):
            yield f"            {clean(said)}"
    if report.trace is not None:
        yield f"  packets   {where(report.trace, chip)}"
    rings = [one for dump in (report.umr_ring, report.umr_waves) if dump for one in umr.places(dump, chip)]
    for where_it_stands in rings[:SHOWN_GROUPS]:
        yield f"  ring      {clean(where_it_stands)[:LONGEST]}"
    if (found := report.pipelines) is not None:
        said = f"pipeline {found.hash or 'without a hash'} was bound"
        said += f" ({found.queue.lower()})" if found.queue else ""
        said += f"; waves in {', '.join(found.stages)}" if found.stages else ""
        said += f"; {counted(found.active, 'wave')} active" if found.active is not None else ""
        yield f"  pipeline  {clean(said)[:LONGEST]}"
    for group in wave_views.groups(report.waves())[:SHOWN_GROUPS]:
        yield f"  waves     {wave_views.sentence(group)}"
    for name, fields in list(busy(report.registers).items())[:SHOWN_GROUPS]:
        yield f"  busy      {name}: {', '.join(fields)}"[:LONGEST]
    faults = [event for event in report.events if event.role == "fault"]
    for event in faults[:3]:
        yield f"  kernel    {clean(event.sentence)[:LONGEST]}"
    if not any(
        (report.fault, report.trace, rings, report.pipelines, report.waves(), report.registers, faults)
    ):
        yield "  nothing here says what hangs"


def where(trace: Trace, chip: Chip) -> str:
    """In one sentence: the last trace point that was reached, and the packets after it that can hang."""
    points = sum(one.point is not None for one in trace.commands)
    if trace.last is None:
        reached = (
            "no trace point of it was reached"
            if trace.first_not is not None
            else "none is marked as the last"
        )
        return f"{counted(len(trace.commands), 'packet')}, {counted(points, 'trace point')}; {reached}"
    found = commands.suspects(trace)
    work = [one for one in found if commands.is_work(one)]
    last = trace.commands[trace.last].point
    said = f"trace point {last} of {points} was the last that was reached; "
    if not found:
        return f"{said}no packet is between it and the next"
    if not work:
        return f"{said}{counted(len(found), 'packet')} after it, none of which draws, dispatches or waits"
    return f"{said}after it: {'; '.join(_text(one, chip) for one in work[:3])}"[:LONGEST]


def _text(one: Command, chip: Chip) -> str:
    if one.point is not None:
        return one.name
    piece = one.piece(chip)
    return clean(piece.line() if piece is not None else one.name)[:LONGEST]


def _trace(trace: Trace, chip: Chip, color: Color) -> Iterator[str]:
    yield ""
    yield f"{color('packets', 'heading')}  {counted(len(trace.commands), 'packet')} in the trace"
    stands = trace.last if trace.last is not None else max(0, (trace.first_not or 0) - 1)
    first = max(0, stands - SHOWN_BEFORE)
    shown = trace.commands[first : stands + 1 + SHOWN_AFTER]
    hangs = {id(one) for one in commands.suspects(trace) if commands.is_work(one)}
    if first:
        yield f"     ({counted(first, 'packet')} before)"
    for number, one in enumerate(shown, first):
        is_last = number == trace.last
        mark = "=>" if is_last else " ?" if id(one) in hangs else "  "
        said = f"  trace point {one.point}" if one.point is not None else ""
        said += (
            ": the last that was reached" if is_last else ": not reached" if number == trace.first_not else ""
        )
        piece = one.piece(chip)
        style = (
            "wrong"
            if id(one) in hangs
            else "note"
            if trace.last is not None and number <= trace.last
            else "buffer"
        )
        yield f"{mark}{one.line:7}  {color(_text(one, chip), style)}{said}"
        if piece is None and one.point is None:
            for text in one.said[:SHOWN_SAID]:
                yield f"           {color(text[:LONGEST], 'note')}"
    left = len(trace.commands) - first - len(shown)
    if left > 0:
        yield f"     (and {counted(left, 'packet')} more)"
    if trace.is_full:
        yield "     there is more in this text than is kept"


def _registers(report: Report, color: Color) -> Iterator[str]:
    yield ""
    yield color("registers", "heading")
    for register in report.registers[:SHOWN_REGISTERS]:
        fields = ", ".join(f"{name}={value}" for name, value in register.fields.items() if value != "0")
        yield f"  {clean(register.name)}  {clean(fields or register.value or 'all fields are 0')}"[:LONGEST]
    if len(report.registers) > SHOWN_REGISTERS:
        yield f"  and {len(report.registers) - SHOWN_REGISTERS} more"


def _others(report: Report, color: Color, read_part: ReadPart) -> Iterator[str]:
    """Parts that are none of RADV's: each by the reader that knows it."""
    for name, text in list(report.others.items())[:MOST_OTHERS]:
        yield ""
        known = read_part(text.encode("utf-8", "replace"))
        if known is None:
            many = counted(text.count("\n") + 1, "line")
            said = f"{many} of no form that is known: {clean(' '.join(text[:400].split()))[:80]}"
            yield f"{color(name[:200], 'heading')}  {said}"
            continue
        yield color(name[:200], "heading")
        yield from known.lines(color)


# ------------------------------------------------------------ for a program


def as_json(report: Report, named: str = "", read_part: ReadPart = no_part) -> dict[str, Any]:
    """Everything, as data. Raises UsageError for a name of no GPU."""
    chip = CHIPS[chip_name(report, named)]
    found: dict[str, Any] = {
        "form": "RADV hang report",
        "name": report.name,
        "parts": report.parts,
        "chip": chip.arch,
        "gpu": report.gpu,
        "application": report.application,
        **wave_views.as_json(report.waves()),
        "registers": [vars(one) for one in report.registers],
        "busy": busy(report.registers),
        "kernel_log": kernel_log.json(report.events),
    }
    if report.fault is not None:
        found["fault"] = vars(report.fault) | {"sentence": report.fault.sentence()}
    if report.trace is not None:
        found["trace"] = _trace_json(report.trace, chip)
    if (pipelines := report.pipelines) is not None:
        found["pipeline"] = {
            "hash": pipelines.hash,
            "queue": pipelines.queue,
            "active": pipelines.active,
            "stages": pipelines.stages,
            "spirv": pipelines.spirv,
        }
    for key, dump in (("umr_ring", report.umr_ring), ("umr_waves", report.umr_waves)):
        if dump is not None:
            found[key] = umr.as_json(dump, named)
    others: dict[str, Any] = {}
    for name, text in list(report.others.items())[:MOST_OTHERS]:
        known = read_part(text.encode("utf-8", "replace"))
        others[name] = known.as_json() if known is not None else None
    return found | {"others": others}


def _trace_json(trace: Trace, chip: Chip) -> dict[str, Any]:
    hangs = {id(one) for one in commands.suspects(trace) if commands.is_work(one)}
    packets = []
    for one in trace.commands:
        piece = one.piece(chip)
        packets.append(
            {
                "line": one.line,
                "name": one.name,
                "buffer": one.buffer,
                "packet": piece.name if piece is not None else "",
                "fields": piece.fields if piece is not None else {},
                "said": one.said,
                "trace_point": one.point,
                "may_hang": id(one) in hangs,
            }
        )
    return {"id": trace.trace_id, "last": trace.last, "first_not": trace.first_not, "packets": packets}
