"""What compute-sanitizer, cuda-memcheck and cuda-gdb print, as events: alike ones together, each with what it means.

In       lines of text
Out      Events, as the readers of kernel logs make them
Next     tables.py (the words), kernel_log/show.py (who prints events)
Source   the manuals of compute-sanitizer 2025, cuda-memcheck 11 and cuda-gdb 13; public reports
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hcq.tools.trace import kernel_log, rocm
from hcq.tools.trace.color import counted
from hcq.tools.trace.cuda import tables
from hcq.tools.trace.kernel_log.event import Event
from hcq.tools.trace.kernel_log.log_lines import clean

MARKS = (b"========= COMPUTE-SANITIZER", b"========= CUDA-MEMCHECK", b"========= Invalid ", b"========= Program hit",
         b"CUDA_EXCEPTION_", b"CUDA Exception: ", b"CUDA error: ", b"========= Error: Race", b"========= Uninitialized",
         b"========= Barrier error", b"========= ERROR SUMMARY", b"========= Leaked ",
         b"Switching focus to CUDA kernel", b"CUDA Error", b"CUDA error ",
         b"CUDA runtime error", b"CUDA driver error", b"Triton Error [CUDA]", b"cudaError",
         b"Cuda failure", b"CUDA failure", b"CUDA out of memory")  # fmt: skip
_ASSERTED = re.compile(rb"block: \[[\d,]{5,40}\], thread: \[[\d,]{5,40}\] Assertion")
_TABLES = re.compile(
    rb"Kernel Parent Dev Grid Status|Wp +Active (?:Lanes )?Mask|BlockIdx +ThreadIdx +To BlockIdx"
)
MAX_LINE = 2000
MAX_EVENTS = 5000
SPAN = 8  # lines in which parts of one stop of cuda-gdb follow each other
MOST_FRAMES = 12

_BAR = re.compile(r"^=========\s?(.*)$")
_AT = re.compile(
    r"^\s*at (?:(?P<offset>0x[0-9a-fA-F]{1,16}) in (?P<old>.{1,400}?)|(?P<kernel>.{1,400}?)\+"
    r"(?P<plus>0x[0-9a-fA-F]{1,16})(?: in (?P<file>.{1,200}))?)\s*$"
)
_BY = re.compile(r"by thread \((?P<thread>[\d, ]{5,40})\) in block \((?P<block>[\d, ]{5,40})\)")
_TO = re.compile(r"(?:Address|Access to) (?P<address>0x[0-9a-fA-F]{1,16})\b(?: is (?P<why>.{1,60}?))?\.?$")
_NEAR = re.compile(
    r"and is (?P<by>[\d,]{1,20}) bytes (?P<side>before|after|inside) the nearest allocation at "
    r"(?P<start>0x[0-9a-fA-F]{1,16}) of size (?P<size>[\d,]{1,20}) bytes"
)
_FRAME = re.compile(r"(?P<side>Host|Device) Frame: ?(?P<frame>.{1,300})")
_SUMMARY = re.compile(r"(?P<what>[A-Z]{4,12}) SUMMARY: (?P<said>.{1,200})")
_RACE = re.compile(
    r"(?P<access>Read|Write) access (?:by thread \([\d, ]{1,40}\) )?at (?P<where>.{1,300}?)(?= and |$|\[)"
)

_EXCEPTION = re.compile(r"CUDA_EXCEPTION_(?P<number>\d{1,4})(?:, (?P<title>[\w -]{1,60}))?")
_TITLE = re.compile(r"CUDA Exception: (?P<title>[\w -]{1,60})")
_PC = re.compile(
    r"exception was triggered at PC (?P<pc>0x[0-9a-fA-F]{1,16})(?: +(?:<[^>]{0,200}> *)?\((?P<line>[^)]{1,200})\))?"
)
_FOCUS = re.compile(
    r"Switching focus to CUDA kernel (?P<kernel>\d{1,9}), grid (?P<grid>-?\d{1,20})(?:, cluster"
    r" \([\d,]{1,40}\))?, block "
    r"\((?P<block>[\d,]{1,40})\), thread \((?P<thread>[\d,]{1,40})\)(?:, device (?P<device>\d{1,4}), sm "
    r"(?P<sm>\d{1,5}), "
    r"warp (?P<warp>\d{1,5}), lane (?P<lane>\d{1,3}))?"
)
_FUNCTION = re.compile(
    r"^(?:#\d+ +)?(?:(?P<pc>0x[0-9a-fA-F]{1,16}) in )?(?P<name>[\w:~<>, *&()]{1,300}?) ?<<<\("
    r"(?P<grid>[\d,]{1,40})\), ?\((?P<block>[\d,]{1,40})\)>>>"
    r"(?: \(.{0,400}\))?(?: at (?P<line>\S{1,200}))?"
)
_API = re.compile(
    r"(?:(?:CUDA (?:[Rr]untime |[Dd]river )?[Ee]rror(?: \d{1,4})?|Triton Error \[CUDA\]): *|CUDA (?=out of memory)"
    r"|C(?:UDA|uda) failure(?: \d{1,4}:?)?:? *)[\"']?"
    r"(?P<what>[a-z][^\n.;\"']{3,120})"
)
_API_NAME = re.compile(r"\b(?P<name>cudaError[A-Z]\w{2,50})\b")
_ASSERT = re.compile(
    r"(?P<file>[^\s<>|]{1,300}):(?P<line>\d{1,7}): (?P<function>.{1,300}?): "
    r"block: \[(?P<block>[\d,]{5,40})\], thread: \[(?P<thread>[\d,]{5,40})\] Assertion `(?P<what>.{1,300}?)` failed"
)
_KERNEL_ROW = re.compile(
    r"^[* ] *(?P<kernel>\d{1,9}) +(?P<parent>-|\d{1,9}) +(?P<dev>\d{1,4}) +(?P<grid>-?\d{1,20}) +"
    r"(?P<status>[A-Z]\w{1,20}) +"
    r"(?P<sms>0x[0-9a-fA-F]{1,64}) +\((?P<grid_dim>[\d,]{1,40})\) +(?:\([\d,]{1,40}\) +)?\("
    r"(?P<block_dim>[\d,]{1,40})\) +(?P<name>\S{1,300})"
)
_WARP_ROW = re.compile(
    r"^[* ] *(?P<warp>\d{1,4}) +(?P<active>0x[0-9a-fA-F]{1,8}) +(?P<divergent>0x[0-9a-fA-F]{1,8}) +"
    r"(?P<pc>0x[0-9a-fA-F]{1,16}) +(?P<kernel>\d{1,9}) +"
    r"(?:\([\d,]{1,40}\) +)?\((?P<block>[\d,]{1,40})\)"
)
_SM_ROW = re.compile(r"^Device (?P<device>\d{1,4}) SM (?P<sm>\d{1,5})")
_THREAD_ROW = re.compile(
    r"^[* ] *\((?P<block>[\d,]{1,40})\) *\((?P<thread>[\d,]{1,40})\) +\((?P<to_block>[\d,]{1,40})\) *\("
    r"(?P<to>[\d,]{1,40})\) +(?P<count>\d{1,12}) +"
    r"(?P<pc>0x[0-9a-fA-F]{1,16})(?: +(?P<file>\S{1,200}) +(?P<line>\d{1,7}))?"
)


def recognises(content: bytes) -> bool:
    """Whether a text has something of these tools."""
    if any(mark in content for mark in MARKS) or _TABLES.search(content) is not None:
        return True
    return _ASSERTED.search(content) is not None and not rocm.recognises(content)  # HIP prints the same


def events(lines: Sequence[str]) -> list[Event]:
    """What a text tells, and what the kernel logs between it do; nothing raises, whatever it is."""
    found = _Reader().read([clean_bar(line[:MAX_LINE]) for line in lines])
    if kernel_log.recognises("\n".join(lines).encode("utf-8", "replace")):
        found += kernel_log.events(lines)
    return sorted(found, key=lambda event: event.line)


def clean_bar(line: str) -> str:
    """A line without quotes, colours and stamps before the bar of the sanitizer."""
    at = line.find("=========")
    if 0 <= at < 60:
        return (
            "========= " + clean(line[at + 9 :].removeprefix(" ").replace("\t", "    "))
            if line[at + 9 :].strip("=")
            else ""
        )
    return line.replace("\0", "").rstrip("\r\n").replace("\u00a0", " ").removeprefix("> ")


class _Reader:
    def __init__(self) -> None:
        self.found: list[Event] = []
        self.alike: dict[tuple[str, ...], Event] = {}
        self.report: list[tuple[int, str]] = []  # lines of the sanitizer's report that is being read
        self.stop: Event | None = None  # of cuda-gdb, not yet complete
        self.sm = ""

    def read(self, lines: Sequence[str]) -> list[Event]:
        for number, line in enumerate(lines, 1):
            if len(self.found) >= MAX_EVENTS:
                break
            if bar := _BAR.match(line):
                self.bar(number, bar[1].rstrip())
            else:
                self.end()
                self.plain(number, line)
        self.end()
        for event in self.found:
            _finish(event)
        return self.found

    # ---------------------------------------------------- the sanitizer

    def bar(self, number: int, text: str) -> None:
        if summary := _SUMMARY.search(text):
            self.end()
            said = summary["said"].strip()
            self.add(Event("summary", number, "notice", f"the tool counts: {said}", lines=[number]))
        elif any(one.regex.search(text) for one in tables.reports()) and not _FRAME.search(text):
            self.end()
            self.report = [(number, text)]
        elif self.report and text.strip():
            self.report.append((number, text))
        else:
            self.end()

    def end(self) -> None:
        """Make an event of the report that was read, or add it to one that is alike."""
        if not self.report:
            return
        (first, head), *rest = self.report
        self.report = []
        pattern = next(one for one in tables.reports() if one.regex.search(head))
        match = pattern.regex.search(head)
        named = {key: value for key, value in (match.groupdict() if match else {}).items() if value}
        fields: dict[str, object] = dict(named)
        frames: list[str] = []
        for _, text in rest:
            for regex in (_AT, _BY, _TO, _NEAR):
                if found := regex.search(text):
                    for key, value in found.groupdict().items():
                        if value:
                            fields.setdefault(f"near_{key}" if regex is _NEAR else key, value.strip())
            if (frame := _FRAME.search(text)) and len(frames) < MOST_FRAMES:
                frames.append(frame["frame"].strip())
        if pattern.kind == "Race":
            fields["accesses"] = [
                f"{one['access'].lower()} at {one['where']}"
                for one in _RACE.finditer(" ".join(text for _, text in ((0, head), *rest)))
            ]
        where = _where(fields)
        alike = (pattern.kind, head.strip(), where, str(fields.get("why", "")))
        event = self.alike.get(alike)
        numbers = [first, *(number for number, _ in rest)]
        if event is None:
            event = Event(pattern.kind, first, pattern.role, "", "", "", *pattern[4:])
            event.fields = {
                **fields,
                "where": where,
                "count": 0,
                "frames": frames,
                "template": pattern.sentence,
            }
            self.alike[alike] = event
            self.add(event)
        event.fields["count"] += 1
        if len(event.lines) < 4096:
            event.lines += numbers
        if "address" in fields:
            address = int(str(fields["address"]), 16)
            event.fields["lowest"] = min(event.fields.get("lowest", address), address)
            event.fields["highest"] = max(event.fields.get("highest", address), address)

    # ---------------------------------------------------- cuda-gdb and the rest

    def plain(self, number: int, line: str) -> None:
        stop = self.stop if self.stop is not None and number - self.stop.lines[-1] <= SPAN else None
        if found := _EXCEPTION.search(line):
            self.take(number, int(found["number"]), stop, "number")
        elif found := _TITLE.search(line):
            title = found["title"].strip()
            known = tables.exception_titled(title)
            event = self.take(number, -1 if known is None else known, None, "title")
            event.fields["title"] = title
        elif stop is not None and (found := _PC.search(line)):
            stop.fields["error_pc"] = found["pc"]
            stop.fields["error_line"] = found["line"] or ""
            stop.lines.append(number)
        elif found := _FOCUS.search(line):
            if stop is not None:
                stop.fields.update({key: value for key, value in found.groupdict().items() if value})
                stop.lines.append(number)
        elif stop is not None and "function" not in stop.fields and (found := _FUNCTION.search(line)):
            stop.fields.update(
                function=found["name"].strip(), grid_dim=found["grid"], block_dim=found["block"]
            )
            stop.fields.update({key: found[key] for key in ("pc", "line") if found[key]})
            stop.lines.append(number)
            self.stop = None
        elif found := _SM_ROW.match(line):
            self.sm = found["sm"]
        elif found := _KERNEL_ROW.match(line):
            self.add(Event("kernel", number, "notice",
                           f"kernel {found['kernel']} ({found['status'].lower()}): {found['name']}, "
                           f"({found['grid_dim']}) blocks of ({found['block_dim']}), SMs {found['sms']}",
                           fields=dict(found.groupdict()), lines=[number]))  # fmt: skip
        elif found := _WARP_ROW.match(line):
            self.place(
                number,
                ("warps", found["kernel"], found["pc"]),
                1,
                {"kernel": found["kernel"], "pc": found["pc"], "sm": self.sm, "block": found["block"]},
            )
        elif found := _THREAD_ROW.match(line):
            where = f"{found['file']}:{found['line']}" if found["file"] else ""
            self.place(
                number,
                ("threads", found["pc"], where),
                int(found["count"]),
                {"pc": found["pc"], "line": where, "block": found["block"], "thread": found["thread"]},
            )
        elif found := _ASSERT.search(line):
            self.asserted(number, found)
        elif found := _API.search(line):
            self.api(number, found["what"].strip())
        elif (found := _API_NAME.search(line)) and (what := _said_of(found["name"])):
            self.api(number, what)

    def take(self, number: int, exception: int, stop: Event | None, by: str) -> Event:
        """An exception of cuda-gdb: a new event, or more of the one whose title stood before it."""
        if (
            stop is not None
            and stop.fields["exception"] in (-1, exception)
            and by == "number"
            and "signal" not in stop.fields
        ):
            event = stop
            event.lines.append(number)
        else:
            event = Event("CUDA exception", number, fields={}, lines=[number])
            self.add(event)
        event.fields["exception"] = exception
        if by == "number":
            event.fields["signal"] = f"CUDA_EXCEPTION_{exception}"
        self.stop = event
        return event

    def place(self, number: int, key: tuple[str, ...], count: int, fields: dict[str, str]) -> None:
        """Warps or threads of a table that are at the same place."""
        event = self.alike.get(key)
        if event is None:
            event = self.alike[key] = Event(key[0], number, "notice", fields={**fields, "count": 0})
            self.add(event)
        event.fields["count"] += count
        event.lines.append(number)

    def asserted(self, number: int, found: re.Match[str]) -> None:
        """A failed assert of a kernel: each thread prints a line."""
        key = ("assert", found["file"], found["line"], found["what"])
        event = self.alike.get(key)
        if event is None:
            event = self.alike[key] = Event(
                "assertion",
                number,
                meaning="an assert() of a kernel failed, and the kernel ended",
                causes="mostly an index that is out of range: of labels, of an embedding, of a gather",
                advice="run the same on the CPU, which names the index; print minimum and maximum of the indices",
                fields={name: found[name] for name in ("what", "file", "line", "function", "block", "thread")}
                | {"threads": 0},
            )
            self.add(event)
        event.fields["threads"] += 1
        event.lines.append(number)

    def api(self, number: int, what: str) -> None:
        key = ("API", what)
        event = self.alike.get(key)
        if event is None:
            event = self.alike[key] = Event(
                "API error",
                number,
                "consequence",
                f"a call of CUDA returned: {what}",
                fields={"what": what, "count": 0},
            )
            words = next((one for one in tables.errors().values() if _same(one, what)), None)
            if words is not None:
                event.meaning, event.causes, event.advice = words[1:]
            self.add(event)
        event.fields["count"] += 1
        event.lines.append(number)

    def add(self, event: Event) -> None:
        self.found.append(event)


API_WORDS = {
    "an illegal memory access was encountered": 700, "out of memory": 2, "misaligned address": 716,
    "unspecified launch failure": 719, "the launch timed out and was terminated": 702,
    "device-side assert triggered": 710,
    "an illegal instruction was encountered": 715, "no kernel image is available for execution on the device": 209,
    "uncorrectable ECC error encountered": 214, "too many resources requested for launch": 701, "unknown error": 999,
    "invalid device function": 98, "all CUDA-capable devices are busy or unavailable": 46,
    "operation not supported on global/shared address space": 717, "invalid program counter": 718,
}  # fmt: skip


def _said_of(name: str) -> str:
    """What CUDA says of an error that is named; "" where it is none of those that tell of a kernel or a GPU."""
    number = next((number for number, words in tables.errors().items() if words.title == name), None)
    return next((text for text, known in API_WORDS.items() if known == number), "")


def _same(words: tables.Words, what: str) -> bool:
    number = next((number for text, number in API_WORDS.items() if what.startswith(text)), None)
    return number is not None and tables.errors().get(number) == words


def _where(fields: dict[str, object]) -> str:
    """Where a report says that it was: kernel+offset, and the line of source where it knows it."""
    if "kernel" in fields:
        line = f" in {fields['file']}" if "file" in fields else ""
        return f"{fields['kernel']}+{fields['plus']}{line}"
    return f"{fields['old']}+{fields['offset']}" if "old" in fields else ""


class _Said(dict[str, str]):
    """Words for a sentence; what is not known says so."""

    def __missing__(self, name: str) -> str:
        return "" if name == "hazard_words" else "unknown"


def _finish(event: Event) -> None:
    """The sentence, once all that belongs to an event is there."""
    fields = event.fields
    if event.kind == "CUDA exception":
        _finish_exception(event)
    elif event.kind == "assertion":
        where = f"{fields['file']}:{fields['line']}"
        event.sentence = (
            f"assertion `{fields['what']}` failed at {where} for {counted(fields['threads'], 'thread')}"
        )
        event.sentence += f"; the first is thread ({fields['thread']}) of block ({fields['block']})"
    elif event.kind in ("warps", "threads"):
        kernel = f" of kernel {fields['kernel']}" if "kernel" in fields else ""
        line = f" ({fields['line']})" if fields.get("line") else ""
        count = counted(fields["count"], event.kind.removesuffix("s"))
        event.sentence = f"{count}{kernel} at {fields['pc']}{line}, block ({fields['block']}) first"
    elif "template" in fields:
        said = _Said({key: str(value) for key, value in fields.items()})
        said["count"] = counted(fields["count"], "thread")
        if "hazard" in fields:
            said["hazard_words"] = f" ({fields['hazard']})"
        text = str(fields.pop("template")).format_map(said)
        if event.kind == "API error":
            words = tables.errors().get(int(fields["number"]), tables.Words(""))
            event.meaning, event.causes, event.advice = words[1:]
        if fields["where"]:
            text += f", at {fields['where']}"
        if fields.get("accesses"):
            text += f": {' and '.join(fields['accesses'][:2])}"
        if "thread" in fields:
            text += f"; the first is thread ({fields['thread']}) of block ({fields['block']})"
        if "lowest" in fields:
            low, high = fields["lowest"], fields["highest"]
            text += f"; address {low:#x}{f' to {high:#x}' if high > low else ''}"
            text += f" is {fields['why']}" if "why" in fields else ""
        if "near_start" in fields:
            text += (
                f", {fields['near_by']} bytes {fields['near_side']} the allocation at {fields['near_start']}"
            )
            text += f" of {fields['near_size']} bytes"
        event.sentence = text


def _finish_exception(event: Event) -> None:
    fields = event.fields
    number = fields["exception"]
    words = tables.exceptions().get(number) or tables.Words(
        fields.get("title") or f"exception {number}, which decode does not know"
    )
    event.meaning, event.causes, event.advice = words[1:]
    text = f"CUDA_EXCEPTION_{number} ({words.title})" if number >= 0 else words.title
    if "function" in fields:
        text += f" in {fields['function']}, ({fields['grid_dim']}) blocks of ({fields['block_dim']})"
    if "thread" in fields:
        text += f": thread ({fields['thread']}) of block ({fields['block']})"
    if "sm" in fields:
        text += f", SM {fields['sm']}, warp {fields['warp']}, lane {fields['lane']}"
    if "error_pc" in fields:
        line = f" ({fields['error_line']})" if fields["error_line"] else ""
        text += f"; the instruction is at {fields['error_pc']}{line}"
    elif "pc" in fields:
        text += f"; the PC is {fields['pc']}, which may be past the instruction"
    event.sentence = text
