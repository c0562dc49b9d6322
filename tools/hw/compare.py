"""Comparison: what the vendor's runtime asked of the kernel driver and put into its rings, beside what our driver did.

In       watch/vendor.hcqtrace, watch/rings.json; opening.hcqtrace and capture.hcqtrace of this run
Out      watch/differences.txt: calls by class and control, fields that differ in calls that both make, packets by name
Changes  the file
Next     watch.py (who wrote the vendor's side), tools/trace/ioctl_decode.py (fields)

A difference is no defect: it is where to look when something does not work.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hcq import backends
from hcq.doctor.check import Found, Skip
from hcq.layout import Ioctl
from hcq.nv.abi import ioctls as nv
from hcq.nv.abi.names import class_name, control_name, escape_name, uvm_name
from hcq.tools.hw.bench import Bench
from hcq.tools.hw.watch import RINGS, TRACE
from hcq.trace import calls
from hcq.trace.file import Trace

OURS = ("opening.hcqtrace", "capture.hcqtrace")
DIFFERENCES = "watch/differences.txt"
ADDRESSES = 1 << 32  # values from here on are addresses or handles of one process, and never the same


def compare(bench: Bench) -> Found:
    """What the vendor's runtime did and we did not, the other way round, and otherwise."""
    theirs = _trace(bench.folder / TRACE)
    ours = [_trace(bench.folder / name) for name in OURS if (bench.folder / name).is_file()]
    if theirs is None or not any(ours):
        raise Skip("needs both the vendor's run and a recorded opening of ours")
    lines = list(differences(bench.kind, [one for one in ours if one], theirs))
    rings = json.loads((bench.folder / RINGS).read_text()) if (bench.folder / RINGS).is_file() else {}
    lines += list(packets(ours, rings))
    bench.write(DIFFERENCES, "\n".join(lines) + "\n")
    counts = Counter(line.partition(":")[0] for line in lines if not line.startswith(" "))
    return Found(", ".join(f"{count} {what}" for what, count in counts.items()), dict(counts))


def _trace(path: Path) -> Trace | None:
    return Trace.read(str(path)) if path.is_file() and path.stat().st_size else None


def differences(kind: str, ours: list[Trace], theirs: Trace) -> Iterator[str]:
    """Lines: calls of one side alone, and fields that are otherwise in calls of both."""
    mine: dict[str, list[calls.Call]] = defaultdict(list)
    other: dict[str, list[calls.Call]] = defaultdict(list)
    for traces, found in ((ours, mine), ([theirs], other)):
        for trace in traces:
            for call in calls_of(trace):
                found[name_of(kind, call)].append(call)
    for name in sorted(other.keys() - mine.keys()):
        yield f"the vendor alone: {name} ({len(other[name])} times)"
    for name in sorted(mine.keys() - other.keys()):
        yield f"we alone: {name} ({len(mine[name])} times)"
    for name in sorted(mine.keys() & other.keys()):
        lines = list(_otherwise(kind, mine[name], other[name]))
        if lines:
            yield f"otherwise: {name} (we {len(mine[name])} times, the vendor {len(other[name])})"
            yield from lines


def calls_of(trace: Trace) -> list[calls.Call]:
    """The ioctls of a trace."""
    return [call for record in trace.calls if (call := calls.ioctl_of(record)) is not None]


def name_of(kind: str, call: calls.Call) -> str:
    """What a call is, by its request, and for RM by the class or the control."""
    if kind != "NV":
        known = declared_for(kind, call.request)
        return known.name if known is not None else f"request {call.request:#x}"
    if call.request < 1 << 16 or call.request >> 28 == 3:
        if call.request >> 8 & 0xFF != ord("F") or call.request < 1 << 16:
            return uvm_name(call.request)
    number = call.request & 0xFF
    if number == nv.RM_ALLOC.request & 0xFF:
        return f"{escape_name(number)} {class_name(int.from_bytes(call.before[12:16], 'little'))}"
    if number == nv.RM_CONTROL.request & 0xFF:
        return f"{escape_name(number)} {control_name(int.from_bytes(call.before[8:12], 'little'))}"
    return escape_name(number)


def declared_for(kind: str, request: int) -> Ioctl | None:
    """The declaration of a call by its type and number: its structure may have grown since."""
    known = backends.of(kind).calls()
    same = (one for number, one in known.items() if number & 0xFFFF == request & 0xFFFF)
    return known.get(request) or next(same, None)


def _otherwise(kind: str, mine: list[calls.Call], theirs: list[calls.Call]) -> Iterator[str]:
    """Fields of the argument and of what it points to whose values never meet."""
    a, b = _values(kind, mine), _values(kind, theirs)
    for field in sorted(a.keys() | b.keys()):
        ours, others = ({value for value in side.get(field, {0}) if value < ADDRESSES} for side in (a, b))
        if ours and others and not ours & others:
            shown = " ".join(f"{value:#x}" for value in sorted(ours)[:6])
            yield f"    {field}: we {shown}; the vendor {' '.join(f'{value:#x}' for value in sorted(others)[:6])}"


def _values(kind: str, found: list[calls.Call]) -> dict[str, set[int]]:
    values: dict[str, set[int]] = defaultdict(set)
    for call in found:
        declared = declared_for(kind, call.request)
        packet = declared.decode(call.before) if declared is not None else None
        for name, value in packet.values.items() if packet is not None else ():
            values[name].add(int(value))
        for block in call.nested:  # as words: the same offsets mean the same on both sides of one driver
            for at in range(0, min(len(block.before), 512) // 4 * 4, 4):
                values[f"{block.name} +{at:#x}"].add(int.from_bytes(block.before[at : at + 4], "little"))
    return values


def packets(ours: list[Trace | None], rings: dict[str, Any]) -> Iterator[str]:
    """Methods or packets that one side alone submits."""
    mine: Counter[str] = Counter()
    for trace in ours:
        for submission in trace.submissions if trace is not None else ():
            for packet in submission.packets():
                written = [
                    one.method.vendor or f"method {one.address:#06x}"
                    for one in getattr(packet, "methods", ())
                ]
                mine.update(written or [type(packet).__name__])
    theirs: Counter[str] = Counter()
    for phase in rings.values():
        theirs.update(phase.get("methods", {}))
        theirs.update(phase.get("packets", {}))
    for name in sorted(theirs.keys() - mine.keys()):
        yield f"packets of the vendor alone: {name} ({theirs[name]} times)"
    for name in sorted(mine.keys() - theirs.keys()):
        yield f"packets of ours alone: {name} ({mine[name]} times)"
