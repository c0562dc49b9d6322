"""Stats: where the time went: kernels, copies and fills, how busy each queue was, and the gaps in between.

In       a Trace
Out      plain data; text
Next     export.py --perfetto (the same on a time axis), show.py (one submission in full)

Device times are those that the trace has: of every submission, and of a kernel when it was alone in its submission or
stood between two timestamps (HCQ_PROFILE=1). A kernel that only ever ran beside others has a count and no time.
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Iterator
from typing import Any

from hcq.performance.counters import Counters
from hcq.tools.trace.color import Color, clean, counted
from hcq.trace.file import Submission, Trace

GAPS_SHOWN = 3


def collect(trace: Trace) -> dict[str, Any]:
    """Everything `stats` prints, as plain data. Times are seconds; None is unknown."""
    return {
        "submissions": len(trace.submissions),
        "devices": [_queue(trace, key) for key in _queues(trace)],
        "work": sorted(_work(trace), key=lambda row: (-(row["total_s"] or 0), -row["count"], row["name"])),
        "buffers": _buffers(trace),
    }


def _queues(trace: Trace) -> list[tuple[str, str]]:
    return list(dict.fromkeys((s.device.key, s.queue) for s in trace.submissions))


def _queue(trace: Trace, key: tuple[str, str]) -> dict[str, Any]:
    own = [s for s in trace.submissions if (s.device.key, s.queue) == key and not s.dropped]
    timed = [
        (s.started_ns, s.finished_ns, s)
        for s in own
        if s.started_ns is not None and s.finished_ns is not None
    ]
    timed.sort(key=lambda entry: entry[:2])
    found: dict[str, Any] = {
        "device": key[0],
        "queue": key[1],
        "submissions": len(own),
        "words": sum(len(s.words) for s in own),
        "commands": sum(len(s.all_commands()) for s in own),
        "timed": len(timed),
        "span_s": None,
        "busy_s": None,
        "occupancy": None,
        "start_latency_s": None,
        "gaps": [],
        "clock": None,
    }
    if key[0] in trace.clocks:
        clock = trace.clocks[key[0]]
        found["clock"] = {
            "drift_ppm": clock.drift_ppm,
            "error_s": clock.error_ns / 1e9,
            "is_corrected": clock.correction is not None,
        }
    if timed:
        _occupy(found, timed)
    return found


def _occupy(found: dict[str, Any], timed: list[tuple[int, int, Submission]]) -> None:
    """Busy time is the union of the submissions' times; what is left between them are gaps."""
    gaps: list[tuple[int, Submission, Submission]] = []
    begin, until, before = timed[0]
    busy = 0
    for start, end, submission in timed:
        if start > until:
            gaps.append((start - until, before, submission))
            busy += until - begin
            begin = start
        if end >= until:
            until, before = end, submission
    busy += until - begin
    span = until - timed[0][0]
    found["span_s"], found["busy_s"] = span / 1e9, busy / 1e9
    found["occupancy"] = busy / span if span else 1.0
    latency = statistics.median(start - s.time_ns for start, _, s in timed)
    if latency >= 0:  # otherwise the device's clock is not the host's
        found["start_latency_s"] = latency / 1e9
    found["gaps"] = [
        {"seconds": gap / 1e9, "after": a.value, "before": b.value}
        for gap, a, b in sorted(gaps, key=lambda entry: -entry[0])[:GAPS_SHOWN]
    ]
    found["gap_count"] = len(gaps)
    found["gap_median_s"] = statistics.median(gap for gap, _, _ in gaps) / 1e9 if gaps else None


def _work(trace: Trace) -> Iterator[dict[str, Any]]:
    """A row for each kernel, and one for copies and one for fills."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    sums: dict[str, Counters] = {}
    for _, made in trace.counters:
        sums.setdefault(made.kernel, Counters(launches=0)).add(made)
    stamps = stamps_of(trace)
    for submission in trace.submissions:
        if submission.dropped:
            continue
        memory = submission.memory()
        commands = submission.all_commands()
        times = command_times(submission, commands, stamps)
        for index, command in enumerate(commands):
            verb = command["verb"]
            if verb not in ("dispatch", "copy", "fill"):
                continue
            name = command.get("kernel", verb)
            row = rows.setdefault(
                (verb, name), {"verb": verb, "name": name, "count": 0, "times": [], "bytes": 0}
            )
            row["count"] += 1
            if index in times:
                start, end = times[index]
                row["times"].append(end - start)
            row["bytes"] += _bytes(command, memory)
    for row in rows.values():
        times = row.pop("times")
        yield {
            **row,
            "timed": len(times),
            "total_s": sum(times) / 1e9 if times else None,
            "median_s": statistics.median(times) / 1e9 if times else None,
            "min_s": min(times) / 1e9 if times else None,
            "counters": sums[row["name"]].as_fields() if row["name"] in sums else None,
        }


def _bytes(command: dict[str, Any], memory: Any) -> int:
    """What a copy or fill moves; for a kernel, the sizes of its buffers: what it touches when it reads once."""
    if command["verb"] != "dispatch":
        return int(command["size_bytes"]) * (2 if command["verb"] == "copy" else 1)
    places = (memory.find(arg["value"]) for arg in command["args"] if arg["kind"] == "buffer")
    return sum({place.start: place.size_bytes for place in places if place.state == "live"}.values())


Stamps = dict[tuple[str, int], list[tuple[int, int]]]


def stamps_of(trace: Trace) -> Stamps:
    """What timestamp packets stored: (device, address) -> (record, nanoseconds), in order."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for record, device, va, ns in trace.stamps:
        found.setdefault((device.key, va), []).append((record, ns))
    return found


def command_times(
    submission: Submission, commands: list[dict[str, Any]], stamps: Stamps
) -> dict[int, tuple[int, int]]:
    """Start and end (ns) of the commands whose time is known, by their place in the submission."""
    found = {}
    for index in range(1, len(commands) - 1):
        before, after = commands[index - 1], commands[index + 1]
        if before["verb"] == after["verb"] == "timestamp":
            start = _stamp(stamps, submission, before["address"])
            end = _stamp(stamps, submission, after["address"])
            if start is not None and end is not None and end >= start:
                found[index] = start, end
    work = [i for i, command in enumerate(commands) if command["verb"] in ("dispatch", "copy", "fill")]
    waits = any(command["verb"] == "wait" for command in commands)
    if (
        len(work) == 1
        and not waits
        and submission.started_ns is not None
        and submission.finished_ns is not None
    ):
        found.setdefault(work[0], (submission.started_ns, submission.finished_ns))
    return found


def _stamp(stamps: Stamps, submission: Submission, va: int) -> int | None:
    stored = stamps.get((submission.device.key, va), [])
    at = bisect.bisect_right(stored, submission.record, key=lambda stamp: stamp[0])
    return stored[at][1] if at < len(stored) else None


def _buffers(trace: Trace) -> dict[str, int]:
    """How much memory was in use at most, counted at submissions."""
    most = count = 0
    for submission in trace.submissions:
        live = submission.memory().live
        held = sum(span.size_bytes for span in live.values())
        if held > most:
            most, count = held, len(live)
    return {"peak_bytes": most, "peak_count": count}


def lines(found: dict[str, Any], color: Color) -> Iterator[str]:
    """The same as text."""
    for queue in found["devices"]:
        work = ", ".join(counted(queue[f"{what}s"], what) for what in ("submission", "command", "word"))
        yield f"{color(queue['device'], 'heading')} {clean(queue['queue'])}: {work}"
        if queue["busy_s"] is None:
            yield "  device times: none in this trace"
            continue
        latency = duration(queue["start_latency_s"])
        yield (
            f"  busy {duration(queue['busy_s'])} of {duration(queue['span_s'])} ({queue['occupancy']:.0%})"
            + ("" if latency == "-" else f"; a submission starts {latency} after its record (median)")
        )
        if queue["clock"] is not None:
            clock = queue["clock"]
            done = "; times are corrected, give or take" if clock["is_corrected"] else "; they agree within"
            yield (
                f"  its clock against the host's: {clock['drift_ppm']:+.1f} ppm{done} "
                f"{duration(clock['error_s'])}"
            )
        if queue["gap_count"]:
            yield (
                f"  {queue['gap_count']} gaps, median {duration(queue['gap_median_s'])}; the longest: "
                + ", ".join(f"{duration(gap['seconds'])} before #{gap['before']}" for gap in queue["gaps"])
            )
    peak = found["buffers"]
    yield f"memory: at most {peak['peak_bytes']} bytes in {peak['peak_count']} buffers"
    width = max([len(row["name"]) for row in found["work"]] + [6])
    has_counters = any(row["counters"] for row in found["work"])
    yield color(
        f"{'what':<{width}}  {'count':>7}  {'total':>10}  {'median':>10}  {'least':>10}  {'GB/s':>7}"
        + (f"  {COUNTED}" if has_counters else ""),
        "heading",
    )
    for row in found["work"]:
        rate = row["bytes"] / row["count"] / row["median_s"] / 1e9 if row["median_s"] else None
        cells = [duration(row[key]) for key in ("total_s", "median_s", "min_s")]
        speed = "" if rate is None else f"{rate:7.2f}"
        last = f"{speed:>7}  {_counted(row['counters'])}" if row["counters"] else speed
        yield (
            f"{color(row['name'].ljust(width), 'kernel')}  {row['count']:>7}  "
            + ("  ".join(f"{cell:>10}" for cell in cells) + f"  {last}").rstrip()
        )
    if has_counters:
        yield color(
            "What was counted is of emulated GPUs, all launches; L2 and DRAM are a model's. See roofline.",
            "note",
        )
    if any(row["timed"] < row["count"] for row in found["work"]):
        yield color(
            "A kernel that shares its submission has no time of its own; HCQ_PROFILE=1 times every kernel.",
            "note",
        )


COUNTED = f"{'warp instr':>10}  {'sectors':>9}  {'/ ideal':>7}  {'conflicts':>9}  {'DRAM KB':>9}"


def _counted(fields: dict[str, Any]) -> str:
    """The cells of COUNTED."""
    one = Counters.from_fields(fields)
    return (
        f"{one.warp_instructions:10d}  {one.sectors:9d}  {one.sector_ratio:7.2f}  {one.bank_conflicts:9d}  "
        f"{one.dram_bytes / 1024:9.0f}"
    )


def duration(seconds: float | None) -> str:
    """A time as a person says it."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
