"""A bug report, or text of nvidia-smi, as one Report: GPUs, driver, parameters, what went wrong.

In       text
Out      Report
Next     sections.py (its parts), smi.py (GPUs), states.py (what is bad), show.py (who prints it),
         kernel_log/ (its events)
Source   /proc/driver/nvidia of NVIDIA's driver: version, params, gpus/*/information; lspci -nn, -v and -vvv
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hcq.nv.abi.names import table
from hcq.tools.trace import kernel_log
from hcq.tools.trace.kernel_log.event import Event
from hcq.tools.trace.nvidia_report import smi
from hcq.tools.trace.nvidia_report.sections import UNKNOWN, Section, sections
from hcq.tools.trace.nvidia_report.smi import Gpu, Machine, bus_of
from hcq.tools.trace.nvidia_report.states import SENTENCES, STATES

MARKS = (
    b"Start of NVIDIA bug report log file",
    b"NVSMI LOG",
    b"| NVIDIA-SMI ",
    b"nvidia-bug-report.sh Version",
)
SMI_ERRORS = (
    b"NVIDIA-SMI has failed",
    b"Failed to initialize NVML",
    b"Unable to determine the device handle for GPU",
)
MAX_LINE = 2000  # characters
MAX_PARAMETERS = 500

_QUERY = re.compile(rb"^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]\s*$", re.MULTILINE)
_PCI = re.compile(
    r"^(?P<bus>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]) "
    r"(?:(?:VGA compatible|3D|Display) controller)[^:]{0,12}: NVIDIA Corporation (?P<name>.{0,100}?)"
    r"(?: \[?(?P<id>10de:[0-9a-fA-F]{4})\]?)?(?: \(rev (?P<rev>[0-9a-fA-F]{2})\))?\s*(?:\(prog-if.*)?$"
)
_LINK = re.compile(r"LnkSta:.*Width x(\d{1,2}) \(downgraded\)")
_MODULE = re.compile(r"NVRM version: NVIDIA UNIX .{0,60}?Module\s+(?:for \w+\s+)?(\d{3}\.[\d.]{1,12})")
_PARAMETER = re.compile(r"^\s*([A-Za-z]\w{1,60})\s*[:=]\s*(.{0,300}?)\s*$")


@dataclass
class Report:
    """What a text tells. findings: states of GPUs that are bad; events: of the kernel's log, each counted once."""

    machine: Machine = field(default_factory=Machine)
    module: str = ""
    written: str = ""
    system: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    registry: dict[str, str] = field(default_factory=dict)
    findings: list[Event] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    has_log: bool = False
    read: list[str] = field(default_factory=list)  # headings of sections that were read
    passed: list[str] = field(default_factory=list)  # of those that hold nothing that is read
    absent: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def gpus(self) -> list[Gpu]:
        """The GPUs, by bus."""
        return [self.machine.gpus[bus] for bus in sorted(self.machine.gpus)]


def recognises(content: bytes) -> bool:
    """Whether this is a bug report, or text of nvidia-smi."""
    if any(mark in content for mark in (*MARKS, *SMI_ERRORS)):
        return True
    return bool(_QUERY.search(content)) and b"    Product Name" in content


def read(lines: Sequence[str]) -> Report:
    """Everything that a text tells; nothing raises, whatever it is."""
    report = Report()
    lines = [line[:MAX_LINE] for line in lines]
    logs: list[Section] = []
    for section in sections(lines):
        _section(report, section, logs)
    report.events = _events(lines, logs)
    report.has_log = bool(logs)
    for event in report.events:
        if event.kind == "Xid" and event.device:
            report.machine.gpu(event.device).xids[event.fields["xid"]] += 1
    for gpu in report.gpus:
        report.findings += _states(gpu)
    _releases(report)
    report.findings.sort(key=lambda event: event.line)
    return report


# ------------------------------------------------------------ sections


def _section(report: Report, section: Section, logs: list[Section]) -> None:
    kind, is_read = section.kind, True
    text = section.lines
    if kind == "head":
        _head(report, text)
    elif kind == "absent":
        report.absent.append(section.heading)
        return
    elif kind == "version":
        for line in text:
            if found := _MODULE.search(line):
                report.module = report.module or found[1]
    elif kind in ("params", "registry"):
        into = report.parameters if kind == "params" else report.registry
        for line in text:
            if (found := _PARAMETER.match(line)) and len(into) < MAX_PARAMETERS:
                into[found[1]] = found[2].strip('"')
    elif kind == "information":
        _information(report, text)
    elif kind == "lspci":
        _lspci(report, section)
    elif kind == "kernel log":
        logs.append(section)
    else:
        is_read = False
    if smi.is_query(text):
        smi.read_query(text, section.line, report.machine)
        is_read = True
    elif any("NVIDIA-SMI" in line for line in text):
        smi.read_table(text, report.machine)
        is_read = True
    if kind in ("nvidia-smi", "lspci", UNKNOWN) or not section.heading:
        found_here = _sentences(section)
        report.findings += found_here
        is_read = is_read or bool(found_here)
    if kind != "kernel log" and kind != "lspci" and _has_log(text):
        logs.append(section)
        is_read = True
    if not section.heading:
        return
    into_list = report.read if is_read else report.unknown if kind == UNKNOWN else report.passed
    into_list.append(section.heading)


def _has_log(text: Iterable[str]) -> bool:
    return kernel_log.recognises("\n".join(text).encode("utf-8", "replace"))


def _head(report: Report, text: Iterable[str]) -> None:
    for line in text:
        if line.startswith("Date: "):
            report.written = line[6:].strip()
        elif line.startswith("uname: "):
            report.system = line[7:].strip()


def _information(report: Report, text: Iterable[str]) -> None:
    values = {
        found[1].strip(): found[2].strip()
        for line in text
        if (found := re.match(r"^\s*([^:]{1,40}):\s*(.*)$", line))
    }
    bus = values.get("Bus Location", "")
    if not re.fullmatch(r"[0-9a-fA-F:.]{7,16}", bus):
        return
    gpu = report.machine.gpu(bus)
    gpu.name = gpu.name or values.get("Model", "")
    for key in ("GPU UUID", "Video BIOS", "GPU Firmware", "GPU Excluded"):
        if key in values:
            gpu.state.setdefault(key, values[key])


def _lspci(report: Report, section: Section) -> None:
    gpu: Gpu | None = None
    for number, line in enumerate(section.lines, section.line):
        if found := _PCI.match(line):
            gpu = report.machine.gpu(found["bus"])
            gpu.name = gpu.name or found["name"]
            gpu.pci_id = gpu.pci_id or (found["id"] or "").lower()
        elif line[:1].strip():
            gpu = None
        elif gpu is not None and (link := _LINK.search(line)):
            report.findings.append(
                Event(
                    "narrow link",
                    number,
                    "notice",
                    f"the PCIe link runs with x{link[1]}, fewer lanes than the GPU has",
                    device=gpu.bus,
                    meaning="copies to and from the host are slower than they could be",
                    causes="the slot, a riser, or a bad contact",
                    advice="compare with the slot's width; seat the card again",
                    lines=[number],
                )
            )


def _sentences(section: Section) -> list[Event]:
    found: list[Event] = []
    seen: Counter[str] = Counter()
    for number, line in enumerate(section.lines, section.line):
        for one in SENTENCES:
            match = one.pattern.search(line)
            if match is None:
                continue
            parts = {key: value or "" for key, value in match.groupdict().items()}
            seen[one.kind] += 1
            if seen[one.kind] <= 16:
                device = bus_of(parts["bus"]) if parts.get("bus") else ""
                said = one.sentence.format(what=parts.get("what", "").strip(" .:") or "it gives no reason")
                found.append(
                    Event(
                        one.kind,
                        number,
                        "fault",
                        said,
                        device=device,
                        meaning=one.meaning,
                        advice=one.advice,
                        lines=[number],
                    )
                )
            break
    return found


# ------------------------------------------------------------ what is wrong


def _states(gpu: Gpu) -> list[Event]:
    found = []
    for state in STATES:
        for path, said in gpu.values.items():
            if (path == state.path or path.endswith("/" + state.path)) and state.bad.search(said):
                at = gpu.lines.get(path, 1)
                text = state.sentence.format(value=said)
                found.append(
                    Event(
                        state.kind,
                        at,
                        state.role,
                        text,
                        device=gpu.bus,
                        meaning=state.meaning,
                        advice=state.advice,
                        fields={"path": path, "value": said},
                        lines=[at],
                    )
                )
    wrong = {path: count for path, count in gpu.ecc.items() if count and _is_uncorrectable(path)}
    if wrong:
        now = any(path.startswith("Volatile") for path in wrong)
        at = min((gpu.lines.get(f"ECC Errors/{path}", 1) for path in wrong), default=1)
        said = ", ".join(f"{path} {count}" for path, count in wrong.items())
        found.append(
            Event(
                "ECC errors",
                at,
                "fault" if now else "notice",
                f"uncorrectable memory errors {'since' if now else 'before'} the driver was loaded: {said}",
                device=gpu.bus,
                meaning="data was lost in memory or caches; the process that used it was ended",
                causes="a bad cell, heat, or chance; Xids 48, 63, 64, 94, 95 tell of single ones",
                advice="a reset remaps the row; a GPU that has them again and again should be replaced",
                fields={"counts": wrong},
                lines=[at],
            )
        )
    return found


def _is_uncorrectable(path: str) -> bool:
    lower = path.lower()
    return "uncorrect" in lower or "double bit" in lower


def _releases(report: Report) -> None:
    library = report.machine.releases.get("Driver Version", "")
    if library and report.module and library != report.module:
        report.findings.append(
            Event(
                "releases differ",
                1,
                "fault",
                f"nvidia-smi is of release {library}, and the kernel module of {report.module}",
                meaning="libraries and kernel module work together only when they are of one release",
                causes="an update without a reboot",
                advice="reboot, or load the new module",
                lines=[1],
            )
        )


def _events(lines: Sequence[str], logs: Sequence[Section]) -> list[Event]:
    """Events of all kernel logs of a report: what dmesg and the journal both have is counted once."""
    found: list[Event] = []
    told: dict[tuple[str, str, str], list[Event]] = {}
    for section in logs:
        here: Counter[tuple[str, str, str]] = Counter()
        for event in kernel_log.events(section.lines):
            _move(event, section.line - 1)
            key = event.kind, event.device, event.sentence
            before = told.setdefault(key, [])
            here[key] += 1
            if here[key] <= len(before):
                before[here[key] - 1].copies.append(event.line)
            else:
                before.append(event)
                found.append(event)
    return sorted(found, key=lambda event: event.line)


def _move(event: Event, by: int) -> None:
    event.line += by
    event.lines = [number + by for number in event.lines]
    event.copies = [number + by for number in event.copies]


def xid_words(number: int) -> str:
    """ "79 (ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS)"; the number alone when it has no name."""
    name = table("xids").get(number, ("", ""))[0].strip("-")
    return f"{number} ({name.removeprefix('ROBUST_CHANNEL_')})" if name else str(number)
