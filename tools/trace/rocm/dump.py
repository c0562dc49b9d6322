"""A text of ROCm's: faults, waves of the debug agent and of rocgdb, what it lists of GPUs, queues and dispatches.

In       lines of text
Out      a Dump; whether a text has anything of ROCm's
Next     faults.py (lines that tell of faults), dispatch.py (a queue's packet), show.py (who prints a Dump),
         ../waves.py (waves that are alike)
Source   rocr_debug_agent: debug_agent.cpp, code_object.cpp, its README; ROCgdb's documentation of `info threads`,
         `info lanes`, `info agents`, `info queues`, `info dispatches`; AMD_LOG_LEVEL of HIP
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hcq.tools.trace.kernel_log.event import Event
from hcq.tools.trace.kernel_log.log_lines import clean
from hcq.tools.trace.rocm import dispatch, faults
from hcq.tools.trace.waves import MOST_WAVES, Wave, code_around, finish

MAX_LINE = 1500
MOST_EVENTS = 5000
MOST_CODE = 100_000
MOST_VALUES = 1 << 20
MOST_ROWS = 2000  # of a table
MOST_UNKNOWN = 100_000  # numbers of lines of no form that is known
WRAPPED = 3  # lines of a row of a table

HEAD_BYTES = 4 << 20  # of a text, in which it is looked for what it is
# Plain words first: every text that somebody gives is searched for them.
_WORDS = (
    b"emory access fault by GPU",
    b"HW Exception by GPU node",
    b"Memory critical error by agent",
    b"HSA_STATUS_ERROR",
    b"System event (HSA_",
    b"Disassembly for function ",
    b"Device-side assertion",
    b"HIP error",
    b"HIP runtime error",
    b"Triton Error [HIP]",
    dispatch.MARK,
    b"GPU core dump created: ",
    *(f"AMDGPU {what} ".encode() for what in ("Wave", "Agent", "Queue", "Dispatch", "Lane")),
)
_MARKS = re.compile(rb"\bwave_\d{1,9}: {1,9}pc=|(?:^|\n):[0-4]:\w{1,60}\.[ch]pp {0,60}:\d{1,6} {0,9}:")


@dataclass
class Dump:
    """What a text says. agents, queues, dispatches: rows of rocgdb's tables; launched: the last kernel of a log."""

    events: list[Event] = field(default_factory=list)
    waves: list[Wave] = field(default_factory=list)
    agents: list[dict[str, Any]] = field(default_factory=list)
    queues: list[dict[str, Any]] = field(default_factory=list)
    dispatches: list[dict[str, Any]] = field(default_factory=list)
    code_objects: list[str] = field(default_factory=list)
    launches: int = 0
    launched: str = ""
    unknown: set[int] = field(default_factory=set)  # numbers of lines of no form that is known
    is_full: bool = False


def recognises(content: bytes) -> bool:
    """Whether a text has anything of ROCm's runtime, debug agent or debugger."""
    head = content[:HEAD_BYTES]
    return any(word in head for word in _WORDS) or _MARKS.search(head) is not None


def read(lines: Iterable[str]) -> Dump:
    """Everything of ROCm's in a text; nothing raises, and what is kept is bounded."""
    text = _Text()
    for number, line in enumerate(lines, 1):
        text.take(number, clean(line[:MAX_LINE]))
    return text.done()


_WAVE = re.compile(
    r"wave_(\d{1,9}): +pc=(0x[0-9a-fA-F]{1,16}|[a-z ]{1,20})(.*?)(?:\((stopped, reasons?: ?([\w|, ]*)|running)\))?$"
)
_ENTRY = re.compile(r"kernel_code_entry=0x[0-9a-fA-F]+ <(.*?)>(?=[,)]|$)")
_CELL = re.compile(r"([a-z]\w{0,30}): +([0-9a-fA-F]{8}(?:[0-9a-fA-F]{8})?)(?= |$)")
_VECTOR = re.compile(r"([va])(\d{1,3}): +(\[\d.*)")
_LANE = re.compile(r"\[(\d{1,3})\] ([0-9a-fA-F]{8})")
_SECTION = re.compile(r"(?:system|scalar|vector|general|accumulation) registers:$|Local memory content:$")
_LDS = re.compile(r"0x[0-9a-fA-F]{4,6}:(?: [0-9a-fA-F]{8})+$")
_FUNCTION = re.compile(r"Disassembly for function (.*?):?$")
_OBJECT = re.compile(r"code object: (.*)")
_PLACE = re.compile(r"loaded at: \[0x([0-9a-fA-F]{1,16})")
_CODE = re.compile(
    r"(=>)? *0x([0-9a-fA-F]{8,16})(?: <(.*)>)?:\s+((?:[0-9a-fA-F]{2} ){3,15}[0-9a-fA-F]{2}\s+)?([a-z_].*|\.long .*)$"
)
_FILE = re.compile(r"(\S{1,300}\.\w{1,5}):$")
_SOURCE = re.compile(r"(\d{1,7})\s+\S")
_END = re.compile(r"End of disassembly|\.\.\.$|[-=]*$")

_GDB_WAVE = re.compile(
    r"(\*)? *(\d{1,9}) +AMDGPU Wave ([\d?]+:[\d?]+:[\d?]+:[\d?]+) \(([^)]{1,60})\)/([\d?]+)\s*(.*)"
)
_GDB_FRAME = re.compile(r'(?:"[^"]*"\s*)?(?:0x([0-9a-fA-F]{1,16}) in )?([^\s"(][^"(]*)\(')
_GDB_PLACE = re.compile(r" at (\S{1,300}:\d{1,7})$")
_GDB_LANE = re.compile(r"(\*)? *(\d{1,4}) +([AIU]) +AMDGPU Lane ([\d:]+)/(\d{1,2}) ")
_GDB_SWITCH = re.compile(
    r"\[Switching to (?:thread|Thread) .*?AMDGPU (?:Wave|Lane) ([\d?]+:[\d?]+:[\d?]+:[\d?]+)"
)
_GDB_AGENT = re.compile(
    r"\*? *(\d+) +(?:[AU?] +)?AMDGPU Agent \(GPUID (\d+)\) +(\w+) +(\S+(?: \S+)*?)"
    r"(?: +(\d+) +(\d+) +([0-9a-fA-F:.]+))?$"
)
_GDB_QUEUE = re.compile(
    r"\*? *(\d+) +AMDGPU Queue ([\d:]+) \(QID (\d+)\) +(\S+(?: \S+)*?) +(\d+) +(\d+) +(\d+) +(0x[0-9a-fA-F]{1,16})"
)
_GDB_DISPATCH = re.compile(
    r"\*? *(\d+) +AMDGPU Dispatch ([\d:]+) \(PKID (\d+)\) +\[([\d,]+)\] +\[([\d,]+)\] +(\S+) +(.*)"
)
_GDB_REGISTER = re.compile(r"([a-z]\w{1,20}) {2,}(?:0x([0-9a-fA-F]{1,16})\b|\{([^}]{1,3000})\}?)")
_GDB_SILENT = re.compile(
    r"\*? *\d+ +(?:Thread|LWP) |\(gdb\)|Id +(?:State +)?Target|#\d|\[(?:New|Switching|AMDGPU)"
)
_GDB_ROW = re.compile(r"\*? *\d+ +(?:Thread|AMDGPU|LWP)|\(gdb\)|\[|Id +(?:State +)?Target|#\d")
_LAUNCH = re.compile(r"ShaderName ?: ?(\S.*)")


class _Text:
    """What was read so far."""

    def __init__(self) -> None:
        self.dump = Dump()
        self.wave: Wave | None = None  # whose registers come now
        self.by_id: dict[str, Wave] = {}  # of rocgdb
        self.reasons: dict[str, str] = {}
        self.signal = ""
        self.frame_of: str = ""  # the wave whose place the next line tells
        self.row: tuple[Wave, str, int] | None = None  # a row that may go on
        self.code: dict[int, tuple[str, str, str]] = {}  # address -> function, text, source
        self.addresses: list[int] = []
        self.function = self.file = self.source = ""
        self.packets = dispatch.Dispatches()
        self.vector: list[int] | None = None
        self.left = MOST_VALUES
        self.forms: tuple[tuple[re.Pattern[str], Callable[[int, re.Match[str]], None]], ...] = (
            (_WAVE, self._agent_wave),
            (_GDB_WAVE, self._gdb_wave),
            (_GDB_LANE, self._gdb_lane),
            (_GDB_SWITCH, self._switch),
            (_FUNCTION, self._function),
            (_CODE, self._code),
            (_GDB_AGENT, self._agent),
            (_GDB_QUEUE, self._queue),
            (_GDB_DISPATCH, self._dispatch),
        )

    def take(self, number: int, line: str) -> None:
        if not line:
            self._end_row()
            return
        logged = faults.log_message(line)
        if logged is not None and logged[0] >= 3 and (found := _LAUNCH.search(line)):
            self.dump.launches += 1
            self.dump.launched = found[1][:300]
            return
        if self.row is not None and not _GDB_ROW.match(line) and self.row[2] < WRAPPED:
            self.row = (self.row[0], f"{self.row[1]} {line}", self.row[2] + 1)
            return
        self._end_row()
        for form, method in self.forms:
            if found := form.match(line):
                method(number, found)
                return
        if self._event(number, line, logged) or self._of_wave(line) or self._of_code(line):
            return
        is_packet, event = self.packets.take(number, line)
        if event is not None:
            self._keep(event)
        if is_packet:
            return
        if not _GDB_SILENT.match(line) and len(self.dump.unknown) < MOST_UNKNOWN:
            self.dump.unknown.add(number)

    def done(self) -> Dump:
        self._end_row()
        dump = self.dump
        for event in dump.events:
            if event.kind == "packet":
                dispatch.finish(event)
        arch = next((str(row["arch"]) for row in dump.agents), "")
        self.addresses = sorted(self.code)
        kernels = {str(row["dispatch"]): str(row["kernel"]) for row in dump.dispatches}
        for name, reason in self.reasons.items():
            wave = self.by_id.get(name) or self._add(Wave(name, 1), name)
            wave.reason = wave.reason or reason
        for wave in dump.waves:
            self._conclude(wave, kernels)
            finish(wave, arch)
        return dump

    def _conclude(self, wave: Wave, kernels: dict[str, str]) -> None:
        dispatch = wave.place.split(" ")[0].rpartition(":")[0]
        wave.kernel = wave.kernel or kernels.get(dispatch, "")
        if wave.pc is None or wave.pc not in self.code:
            return
        function, wave.instruction, source = self.code[wave.pc]
        wave.kernel = wave.kernel or function
        wave.source = wave.source or source
        wave.code = code_around(wave.pc, self.addresses, lambda at: self.code[at][1])

    def _add(self, wave: Wave, name: str = "") -> Wave:
        if len(self.dump.waves) < MOST_WAVES:
            self.dump.waves.append(wave)
        else:
            self.dump.is_full = True
        if name:
            self.by_id[name] = wave
        return wave

    # -------------------------------------------------------- events

    def _event(self, number: int, line: str, logged: tuple[int, str] | None) -> bool:
        events = self.dump.events
        last = events[-1] if events else None
        if line.startswith("Faulting page:") and last is not None and last.kind == "memory fault":
            last.fields["address"] = line.split(":", 1)[1].strip()[:20]
            last.sentence += f", page {last.fields['address']}"
            last.lines.append(number)
            return True
        if last is not None and last.kind == "memory fault" and faults.add_reason(last, line, number):
            return True
        if last is not None and last.sentence.endswith("its status is in the next line"):
            named = faults.event_of(line, number)
            if named is not None and named.kind == "queue error":
                last.sentence = f"queue {last.fields['queue']} stopped: {named.fields['status']}"
                last.meaning, last.advice = named.meaning, named.advice
                last.fields["status"], last.fields["code"] = named.fields["status"], named.fields["code"]
                last.lines.append(number)
                return True
        event = faults.event_of(line, number)
        if event is None and logged is not None and logged[0] <= 1:
            event = Event("runtime's error", number, "unknown", logged[1][:300] or line[:300], lines=[number])
        if event is None:
            return logged is not None
        if event.kind == "signal":
            self.signal = str(event.fields["signal"])
        self._keep(event)
        return True

    def _keep(self, event: Event) -> None:
        if len(self.dump.events) < MOST_EVENTS:
            self.dump.events.append(event)
        else:
            self.dump.is_full = True

    # -------------------------------------------------------- the debug agent

    def _agent_wave(self, number: int, found: re.Match[str]) -> None:
        pc = int(found[2], 16) if found[2].startswith("0x") else None
        entry = _ENTRY.search(found[3])
        wave = Wave(f"wave_{found[1]}", number, pc, kernel=entry[1][:300] if entry else "")
        wave.reason = (found[5] or "").strip() if found[4] != "running" else ""
        if found[4] == "running":
            wave.state = ["running"]
        self.wave, self.vector = self._add(wave), None

    def _of_wave(self, line: str) -> bool:
        if _SECTION.match(line) or _LDS.match(line):
            return True
        wave = self.wave
        if wave is None:
            return False
        if found := _VECTOR.match(line):
            self.vector = wave.vectors.setdefault(int(found[2]), []) if found[1] == "v" else []
            line = found[3]
        if self.vector is not None and (lanes := _LANE.findall(line)):
            if self.left >= len(lanes) and len(self.vector) + len(lanes) <= 64:
                self.left -= len(lanes)
                self.vector.extend(int(value, 16) for _, value in lanes)
            return True
        cells = _CELL.findall(line)
        for name, value in cells:
            self._register(wave, name, int(value, 16), len(value))
        if not cells and (register := _GDB_REGISTER.match(line)):
            name = register[1]
            if register[2]:
                self._register(wave, name, int(register[2], 16), len(register[2]))
            elif re.fullmatch(r"v\d{1,3}", name) and self.left > 64:
                self.left -= 64
                values = re.findall(r"0x([0-9a-fA-F]{1,8})\b", register[3])[:64]
                wave.vectors[int(name[1:])] = [int(value, 16) for value in values]
            return True
        return bool(cells)

    def _register(self, wave: Wave, name: str, value: int, digits: int) -> None:
        if re.fullmatch(r"s\d{1,3}", name):
            wave.scalars[int(name[1:])] = value
        elif name == "exec":
            wave.exec, wave.lanes = value, 32 if digits <= 8 else 64
        elif name == "pc":
            wave.pc = value if wave.pc is None else wave.pc
        elif len(wave.registers) < 200:
            wave.registers[name] = value

    # -------------------------------------------------------- code

    def _function(self, number: int, found: re.Match[str]) -> None:
        self.function, self.file, self.source = found[1][:300], "", ""
        self.vector = None

    def _code(self, number: int, found: re.Match[str]) -> None:
        if len(self.code) >= MOST_CODE:
            self.dump.is_full = True
            return
        symbol = re.sub(r"[+-]\d+$", "", found[3] or "")
        text = " ".join(found[5].split("#")[0].split())[:200]
        self.code[int(found[2], 16)] = (symbol or self.function, text, self.source)
        if found[1] and not self.function and self.wave is not None and self.wave.pc is None:
            self.wave.pc = int(found[2], 16)

    def _of_code(self, line: str) -> bool:
        if found := _OBJECT.match(line):
            if found[1] not in self.dump.code_objects and len(self.dump.code_objects) < MOST_ROWS:
                self.dump.code_objects.append(found[1][:500])
            return True
        if _PLACE.match(line) or _END.match(line):
            return True
        if found := _FILE.match(line):
            self.file = found[1]
            return bool(self.function)
        if self.function and (found := _SOURCE.match(line)):
            self.source = f"{self.file.rsplit('/', 1)[-1]}:{found[1]}" if self.file else f"line {found[1]}"
            return True
        return False

    # -------------------------------------------------------- rocgdb

    def _gdb_wave(self, number: int, found: re.Match[str]) -> None:
        name = found[3]
        place = f"{name} ({found[4]})/{found[5]}"
        wave = self.by_id.get(name)
        if wave is None:
            wave = self._add(Wave(place, number), name)
        wave.place = place
        if found[1]:
            self.wave, self.vector = wave, None
        self.row = (wave, found[6], 0)

    def _end_row(self) -> None:
        if self.row is None:
            return
        wave, text, _ = self.row
        self.row = None
        if found := _GDB_FRAME.match(text.strip()):
            wave.pc = int(found[1], 16) if found[1] and wave.pc is None else wave.pc
            wave.kernel = wave.kernel or found[2].strip()[:300]
        elif text.rstrip().endswith("(running)"):
            wave.state = ["running"]
        if place := _GDB_PLACE.search(text.strip()):
            wave.source = place[1].rsplit("/", 1)[-1]

    def _switch(self, number: int, found: re.Match[str]) -> None:
        name = found[1]
        if self.signal:
            self.reasons[name], self.signal = self.signal, ""
        wave = self.by_id.get(name) or self._add(Wave(name, number), name)
        self.wave, self.vector = wave, None
        self.row = (wave, "", 0)

    def _gdb_lane(self, number: int, found: re.Match[str]) -> None:
        wave = self.by_id.get(found[4]) or self._add(Wave(found[4], number), found[4])
        lane = int(found[5])
        if lane < 64:
            wave.exec = (wave.exec or 0) | (1 << lane if found[3] == "A" else 0)
            wave.lanes = max(wave.lanes, 32 if lane < 32 else 64)

    def _agent(self, number: int, found: re.Match[str]) -> None:
        row = {
            "id": int(found[1]),
            "gpu": int(found[2]),
            "arch": found[3],
            "name": found[4],
            "at": found[7] or "",
        }
        self._row(self.dump.agents, row)

    def _queue(self, number: int, found: re.Match[str]) -> None:
        read, write = int(found[5]), int(found[6])
        row = {"queue": found[2], "type": found[4], "read": read, "write": write, "pending": write - read}
        self._row(self.dump.queues, row | {"size_bytes": int(found[7]), "va": int(found[8], 16)})

    def _dispatch(self, number: int, found: re.Match[str]) -> None:
        row = {"dispatch": found[2], "packet": int(found[3]), "grid": found[4], "block": found[5]}
        self._row(self.dump.dispatches, row | {"kernel": found[7].strip()[:300]})

    def _row(self, table: list[dict[str, Any]], row: dict[str, Any]) -> None:
        if len(table) < MOST_ROWS:
            table.append(row)
