"""A report of RADV's about a hang: its parts by name, each read by who knows it.

In       the text of a report, of a folder that was joined, or of one of its files
Out      a Report; whether a text is one
Next     commands.py (trace.log), pipeline_text.py (pipeline.log), trap_handler.py (trap_handler.log), memory.py
         (vm_fault.log), ../umr/ (umr_*.log), ../kernel_log/ (dmesg.log), show.py (who prints it), ../folder.py (who
         joins a folder)
Source   Mesa: src/amd/vulkan/radv_debug.c (radv_check_gpu_hangs), docs/drivers/amd/hang-debugging.rst
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hcq.errors import UsageError
from hcq.tools.trace import folder, kernel_log, umr
from hcq.tools.trace.kernel_log.event import Event
from hcq.tools.trace.kernel_log.log_lines import clean
from hcq.tools.trace.radv import commands, memory, pipeline_text, trap_handler
from hcq.tools.trace.umr.wave_text import arch_of
from hcq.tools.trace.waves import Wave

MOST_PARTS = 1000
MOST_REGISTERS = 500
HEAD_BYTES = 1 << 20  # of a text, in which it is looked for what it is
_TRACE = (
    rb"(?:^|\n)Trace ID: [0-9a-f]+\s|last trace point that was reached by the CP"
    rb"|!!!!! This trace point was |-{5,} main IB end - \w{2,20} -{5,}"
)
_STATUS = (
    rb"(?:\x1b\[[0-9;]*m)?(?:GRBM_STATUS\w{0,4}|CP_STAT|CP_STALLED_STAT\d|CP_CP[CF]_\w{4,16}|SDMA\d_STATUS_REG)"
    rb"(?:\x1b\[[0-9;]*m)? <- "
)
# Which file a text is, by what only that file has.
_FORMS = (
    ("trace", _TRACE),
    (
        "pipeline",
        rb"The number of active waves = \d|- annotated disassembly:|(?:^|\n)Pipeline hash: [0-9a-f]+",
    ),
    ("registers", rb"(?:^|\n)Memory-mapped registers:|(?:^|\n)[> ]*" + _STATUS),
    ("trap_handler", rb"!!! Faulty instruction below !!!|(?:^|\n)[> ]*Faulty shader found VA=\[0x"),
    ("vm_fault", rb"(?:^|\n)VM fault report\.|Failing VM page: 0x"),
    ("bo_history", rb"timestamp=\d+, VA=[0-9a-f]{16}-"),
    ("bo_ranges", rb"(?:^|\n) *VA=[0-9a-f]{16}-[0-9a-f]{16}, handle="),
    ("gpu_info", rb"(?:^|\n)Device name: .{1,200}\(DRM \d"),
    ("app_info", rb"(?:^|\n)Application name: .{0,200}\nApplication version: "),
)
_TEXT_FORMS = tuple((name, re.compile(form)) for name, form in _FORMS)
_REPORT = re.compile(
    rb"={5,} RADV GPU hang report ={5,}|(?:^|\n)={5,} (?:trace|pipeline|umr_waves|vm_fault)(?:\.log)? ={5,}"
)
_TITLE = re.compile(r"={5,} (.{1,200}?) ={5,}$")
_REGISTER = re.compile(r"(\w{3,60}) <- (.*)$")
_FIELD = re.compile(r"(\w{1,60}) = (.{0,80})$")
_CHIP = re.compile(r"\b(NAVI\d\d|VEGA\d\d|RENOIR|RAVEN2?|VANGOGH|REMBRANDT|GFX1\d{3}|gfx\d{3,4}[a-f]?)\b")
BUSY = ("BUSY", "ACTIVE", "STALLED", "STALL", "_PENDING")


@dataclass
class RegisterText:
    """A register with the fields that are printed; the value where it has none."""

    name: str
    fields: dict[str, str] = field(default_factory=dict)
    value: str = ""


@dataclass
class Report:
    """All parts of a report; what a part is not there for is empty. parts: names and how many lines each has."""

    name: str = ""
    parts: dict[str, int] = field(default_factory=dict)
    arch: str = ""
    gpu: str = ""
    application: str = ""
    trace: commands.Trace | None = None
    pipelines: pipeline_text.Pipelines | None = None
    registers: list[RegisterText] = field(default_factory=list)
    fault: memory.Fault | None = None
    trap: Wave | None = None  # the one that RADV's trap handler stopped
    umr_waves: umr.Dump | None = None
    umr_ring: umr.Dump | None = None
    events: list[Event] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)  # parts that are none of these

    def waves(self) -> list[Wave]:
        """The waves: those of umr have registers, those of pipeline.log the names of shaders."""
        known = self.pipelines.waves if self.pipelines is not None else []
        full = self.umr_waves.waves if self.umr_waves is not None else []
        trapped = [self.trap] if self.trap is not None else []
        if not full or not known:
            return [*trapped, *(full or known)]
        names = {wave.pc: wave for wave in known if wave.pc is not None}
        for wave in full:
            if wave.pc is not None and (same := names.get(wave.pc)) is not None:
                wave.kernel = wave.kernel or same.kernel
                wave.instruction = wave.instruction or same.instruction
                wave.code = wave.code or same.code
        return [*trapped, *full]


def recognises(content: bytes) -> bool:
    """Whether a text is a report, a joined folder, or a file of a report."""
    head = content[:HEAD_BYTES]
    return content.startswith(folder.HEAD) or _REPORT.search(head) is not None or _form(head) != ""


def _form(content: bytes) -> str:
    return next((name for name, form in _TEXT_FORMS if form.search(content)), "")


def read(content: bytes) -> Report:
    """The report that a text is. Raises nothing; parts that nobody knows are kept as text."""
    report = Report()
    parts = _parts(content.decode("utf-8", "replace"), report)
    if not parts:
        parts = [(_form(content), content.decode("utf-8", "replace").split("\n"))]
    by_name: dict[str, list[str]] = {}
    for name, lines in parts[:MOST_PARTS]:
        report.parts[name] = len(lines)
        by_name.setdefault(_bare(name, lines), []).extend(lines)
    _about(report, by_name)
    _read_parts(report, by_name)
    return report


def _parts(text: str, report: Report) -> list[tuple[str, list[str]]]:
    """The parts below their titles."""
    found: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        title = _TITLE.match(clean(line[:300])) if "=====" in line[:300] else None
        if title is None:
            if found:
                found[-1][1].append(line)
        elif title[1].startswith("folder "):
            report.name = title[1].removeprefix("folder ")
        elif title[1] == "RADV GPU hang report":
            report.name = report.name or title[1]
        else:
            found.append((title[1], []))
    return found


def _bare(name: str, lines: Sequence[str]) -> str:
    """The name of a part without its folder and .log; of a file of another name, what its content is."""
    bare = name.rsplit("/", 1)[-1].removesuffix(".log").lower()
    known = (*(form for form, _ in _FORMS), "umr_waves", "umr_ring", "dmesg", "addr_binding_report")
    if bare in known:
        return bare
    content = "\n".join(lines[:5000]).encode("utf-8", "replace")
    return name if umr.recognises(content) else _form(content) or name


def _about(report: Report, parts: dict[str, list[str]]) -> None:
    """The GPU and the application."""
    for line in map(clean, (line[:300] for line in parts.get("gpu_info", ())[:400])):
        if line.startswith("Device name:"):
            report.gpu = line.partition(":")[2].strip()
        chip = _CHIP.search(line) if not report.arch else None
        if chip:
            report.arch = arch_of(chip[1])
    for line in map(clean, (line[:300] for line in parts.get("app_info", ())[:50])):
        if line.startswith(("Application name:", "Engine name:")):
            value = line.partition(":")[2].strip()
            report.application = f"{report.application}, {value}".strip(", ")


def _read_parts(report: Report, parts: dict[str, list[str]]) -> None:
    if "trace" in parts:
        report.trace = commands.read(parts.pop("trace"))
    if "pipeline" in parts:
        report.pipelines = pipeline_text.read(parts.pop("pipeline"), report.arch)
    if "trap_handler" in parts:
        report.trap = trap_handler.read(parts.pop("trap_handler"), report.arch)
    if "registers" in parts:
        report.registers = registers(parts.pop("registers"))
    if "umr_waves" in parts:
        report.umr_waves = umr.read(parts.pop("umr_waves"))
    if "umr_ring" in parts:
        report.umr_ring = umr.read(parts.pop("umr_ring"))
    if "dmesg" in parts:
        report.events = kernel_log.events(parts.pop("dmesg"))
    lists = [
        (name, parts.pop(name))
        for name in ("bo_ranges", "bo_history", "addr_binding_report")
        if name in parts
    ]
    if "vm_fault" in parts:
        report.fault = memory.fault(parts.pop("vm_fault"))
        if report.fault is not None:
            report.fault.buffers = memory.find_buffers(lists, report.fault.page)
    for name in ("gpu_info", "app_info"):
        parts.pop(name, None)
    report.others = {name: "\n".join(lines) for name, lines in parts.items() if "".join(lines).strip()}


def registers(lines: Iterable[str]) -> list[RegisterText]:
    """Registers as ac_dump_reg prints them: a name, then its fields, one a line."""
    found: list[RegisterText] = []
    for raw in lines:
        line = clean(raw[:500])
        if named := _REGISTER.match(line):
            if len(found) >= MOST_REGISTERS:
                break
            found.append(RegisterText(named[1]))
            line = named[2]
            if not _FIELD.match(line):
                found[-1].value = line[:80]
        if (part := _FIELD.match(line)) and found and len(found[-1].fields) < 64:
            found[-1].fields[part[1]] = part[2].strip()
    return found


def busy(found: Iterable[RegisterText]) -> dict[str, list[str]]:
    """What is busy or stalled, by register."""
    said: dict[str, list[str]] = {}
    for register in found:
        names = [
            name
            for name, value in register.fields.items()
            if value not in ("0", "") and any(mark in name for mark in BUSY)
        ]
        if names:
            said[register.name] = names
    return said


def chip_name(report: Report, named: str) -> str:
    """The GPU that packets are read as. Raises UsageError for a name that is not known."""
    from hcq.tools.trace.amd_words import chip_named

    if named:
        return chip_named(named).arch
    try:
        return chip_named(report.arch).arch if report.arch else "gfx1100"
    except UsageError:
        return "gfx1100"
