"""A report for people, what went wrong first, and for programs.

In       a Report
Out      lines; data for JSON
Next     read.py (the Report), kernel_log/show.py (events)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hcq.tools.trace import kernel_log
from hcq.tools.trace.color import Color, clean, counted
from hcq.tools.trace.kernel_log.event import Event
from hcq.tools.trace.nvidia_report import smi
from hcq.tools.trace.nvidia_report.read import Report, xid_words

MOST_WRONG = 6  # things that are named at the top
MOST_LISTED = 12  # headings, parameters
UNSET = ("", "4294967295", "(null)", "N/A")


def wrong(report: Report) -> list[Event]:
    """What went wrong, the first first: faults of the kernel's log, then the states of GPUs, each kind once."""
    faults = [event for event in report.events if event.role == "fault"]
    faults += [event for event in report.findings if event.role == "fault"]
    seen: set[tuple[str, str, object]] = set()
    found = []
    for event in faults:
        key = event.kind, event.device, event.fields.get("xid")
        if key not in seen:
            seen.add(key)
            found.append(event)
    return found


def lines(report: Report, color: Color) -> Iterator[str]:
    """Everything that a report tells, in the order in which one asks."""
    first = wrong(report)
    yield color(
        "what went wrong" if first else "nothing in this text says that something went wrong", "heading"
    )
    for event in first[:MOST_WRONG]:
        where = " ".join(part for part in (event.when and f"[{event.when}]", event.device) if part)
        yield f"  line {event.line}  {clean(where)}{'  ' if where else ''}{color(event.sentence[:300], 'wrong')}"
    if len(first) > MOST_WRONG:
        yield f"  and {len(first) - MOST_WRONG} more, below"
    yield ""
    yield from _machine(report)
    for gpu in report.gpus:
        yield from _gpu(gpu)
    set_to = {name: said for name, said in report.parameters.items() if said not in UNSET}
    if report.parameters:
        shown = ", ".join(f"{name}={said}" for name, said in set_to.items())
        yield f"parameters of the module: {clean(shown) or 'none is set'}"
        yield f"  {len(report.parameters) - len(set_to)} others are not set"
    if registry := {name: said for name, said in report.registry.items() if said not in UNSET}:
        yield f"registry keys: {clean(', '.join(f'{name}={said}' for name, said in registry.items()))}"
    if report.findings:
        yield ""
        yield color("what nvidia-smi and lspci say", "heading")
        yield from kernel_log.lines(report.findings, color)
    if report.has_log:
        yield ""
        yield color("what the kernel's log says", "heading")
        yield from kernel_log.lines(report.events, color)
    if report.read or report.unknown or report.passed:
        yield ""
        yield from _sections(report)


def _machine(report: Report) -> Iterator[str]:
    releases = report.machine.releases
    parts = []
    if report.module:
        parts.append(f"kernel module {report.module}")
    if "Driver Version" in releases:
        parts.append(f"libraries {releases['Driver Version']}")
    if "CUDA Version" in releases:
        parts.append(f"CUDA {releases['CUDA Version']}")
    yield f"driver: {clean(', '.join(parts)) or 'this text does not say which'}"
    if report.written or report.system:
        yield f"  written {clean(report.written)}; {clean(report.system)}"


def _gpu(gpu: smi.Gpu) -> Iterator[str]:
    memory = ""
    if gpu.memory_mib is not None:
        used = f", {gpu.used_mib} used" if gpu.used_mib is not None else ""
        memory = f"{gpu.memory_mib} MiB{used}"
    about = ", ".join(part for part in (gpu.name, gpu.pci_id, memory) if part)
    yield f"GPU {gpu.bus}  {clean(about) or 'known by its bus alone'}"
    if gpu.state:
        yield "  " + clean(", ".join(f"{key.partition('/')[0]}: {said}" for key, said in gpu.state.items()))
    if gpu.ecc:
        counts = {path: count for path, count in gpu.ecc.items() if count}
        said = ", ".join(f"{path} {count}" for path, count in counts.items())
        none = f"none ({counted(len(gpu.ecc), 'counter')} at 0)"
        yield f"  ECC errors: {clean(said) or none}"
    if gpu.xids:
        numbers = ", ".join(f"{count} of {xid_words(number)}" for number, count in sorted(gpu.xids.items()))
        yield f"  Xids: {clean(numbers)}"
    for process in gpu.processes[:MOST_LISTED]:
        yield "  process " + clean(
            " ".join(filter(None, map(process.get, ("Process ID", "Name", "Used GPU Memory"))))
        )
    if len(gpu.processes) > MOST_LISTED:
        yield f"  and {len(gpu.processes) - MOST_LISTED} more processes"


def _sections(report: Report) -> Iterator[str]:
    total = len(report.read) + len(report.passed) + len(report.absent) + len(report.unknown)
    yield (
        f"{counted(total, 'section')}: {len(report.read)} read, {len(report.passed)} hold nothing that decode reads, "
        f"{len(report.absent)} are of what was not there, {len(report.unknown)} are not known"
    )
    if report.unknown:
        counts = Counter(report.unknown)
        named = [f"{name}{f' ({count} times)' if count > 1 else ''}" for name, count in counts.items()]
        more = f" and {len(named) - MOST_LISTED} more" if len(named) > MOST_LISTED else ""
        yield f"  not known: {clean('; '.join(named[:MOST_LISTED]))}{more}"


def as_json(report: Report) -> dict[str, Any]:
    """The same as data."""
    return {
        "wrong": [event.as_json() for event in wrong(report)],
        "driver": {"module": report.module, **report.machine.releases},
        "written": report.written,
        "system": report.system,
        "gpus": [smi.as_json(gpu) for gpu in report.gpus],
        "parameters": report.parameters,
        "registry": report.registry,
        "findings": kernel_log.json(report.findings),
        "events": kernel_log.json(report.events),
        "sections": {
            "read": report.read,
            "passed": report.passed,
            "absent": report.absent,
            "unknown": report.unknown,
        },
    }
