"""trace.log: the buffer of packets that hung, with the last trace point that the command processor came to.

In       lines of text
Out      Trace: packets in order, what Mesa says of each, and which is the last that is known to be reached
Next     report.py (who asks), ../amd_words.py (words to packets)
Source   Mesa: src/amd/common/ac_debug.c (ac_parse_ib), src/amd/vulkan/radv_debug.c (radv_dump_trace)

A line begins with its word; older files have names and registers alone. A trace point is a NOP with one word, 0xcafe in
its upper half and its number in the lower.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from hcq.amd.abi import pm4
from hcq.amd.chip import Chip
from hcq.tools.trace.amd_words import Piece, pieces
from hcq.tools.trace.kernel_log.log_lines import clean

MAX_LINE = 2000
MOST_PACKETS = 1 << 18
MOST_SAID = 64  # lines of a packet
TRACE_POINT = 0xCAFE

_WORD = re.compile(r"([0-9a-f]{8})(?:\s+(.*))?$")
_NAME = re.compile(r"((?:[A-Z][A-Z0-9_]{2,60})|UNKNOWN\(0x[0-9A-Fa-f]{1,2}\))((?:\(\w[\w=]*\))*):$")
_BUFFER = re.compile(r"-{5,} ?(.{0,80}?) (begin|end)(?: - (\w+))? ?-{5,}")
_ID = re.compile(r"Trace ID: ([0-9a-f]{1,8})$")
_POINT = re.compile(r"Trace point ID: (\d{1,10})")
REACHED = "This trace point was reached"
LAST = "This is the last trace point that was reached"
NOT_REACHED = ("This is the first trace point that was NOT", "This trace point was NOT reached")


@dataclass
class Command:
    """A packet: its name as Mesa has it, its words where the text has them, and the lines below it."""

    name: str
    line: int
    buffer: str = ""
    words: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    point: int | None = None  # of a trace point

    def piece(self, chip: Chip) -> Piece | None:
        """The packet by our structures; None where its words are not in the text."""
        found = pieces(self.words, "pm4", chip) if self.words else []
        return found[0] if len(found) == 1 and found[0].is_packet else None


@dataclass
class Trace:
    """All packets of a trace.log. last: the number of the last one that was reached; None where nothing says it."""

    trace_id: int | None = None
    commands: list[Command] = field(default_factory=list)
    last: int | None = None
    first_not: int | None = None
    is_full: bool = False


def read(lines: Iterable[str]) -> Trace:
    """The packets of a trace.log; nothing raises, and what is kept is bounded."""
    trace = Trace()
    buffers: list[str] = []
    one: Command | None = None
    for number, raw in enumerate(lines, 1):
        line = clean(raw[:MAX_LINE])
        if not line:
            continue
        if found := _ID.match(line):
            trace.trace_id = int(found[1], 16)
            continue
        if found := _BUFFER.match(line):
            if found[2] == "begin" and len(buffers) < 64:
                buffers.append(f"{found[1]} {found[3] or ''}".strip())
            elif found[2] == "end" and buffers:
                buffers.pop()
            one = None
            continue
        word = _WORD.match(line)
        text = (word[2] or "") if word else line
        if named := _NAME.match(text):
            if len(trace.commands) >= MOST_PACKETS:
                trace.is_full = True
                break
            one = Command(named[1], number, buffers[-1] if buffers else "")
            trace.commands.append(one)
        elif one is not None and text and len(one.said) < MOST_SAID:
            one.said.append(text[:200])
        if one is None:
            continue
        if word and len(one.words) < 1 << 14:
            one.words.append(int(word[1], 16))
        _mark(trace, one, text)
    _points(trace)
    return trace


def _mark(trace: Trace, one: Command, text: str) -> None:
    number = len(trace.commands) - 1
    if found := _POINT.search(text):
        one.point = int(found[1])
    elif LAST in text:
        trace.last = number
    elif any(said in text for said in NOT_REACHED) and trace.first_not is None:
        trace.first_not = number


def _points(trace: Trace) -> None:
    """Trace points by their words, where Mesa's lines about them are missing, and which the last one is."""
    for number, one in enumerate(trace.commands):
        words = one.words
        if one.point is None and len(words) >= 2 and words[0] == pm4_nop() and words[1] >> 16 == TRACE_POINT:
            one.point = words[1] & 0xFFFF
        if one.point is None or trace.trace_id is None:
            continue
        if one.point == trace.trace_id and trace.last is None:
            trace.last = number
        if one.point > trace.trace_id and trace.first_not is None:
            trace.first_not = number


def pm4_nop() -> int:
    """The header of a NOP with one word."""
    return 3 << 30 | int(pm4.Opcode.NOP) << 8


def suspects(trace: Trace) -> list[Command]:
    """The packets behind the last trace point that was reached, up to the next one: one of them hangs."""
    if trace.last is None:
        return []
    found: list[Command] = []
    for one in trace.commands[trace.last + 1 :]:
        if one.point is not None:
            break
        found.append(one)
    return found


def is_work(one: Command) -> bool:
    """Whether a packet starts waves, or waits: what a GPU hangs in."""
    return any(part in one.name for part in ("DRAW", "DISPATCH", "WAIT_REG_MEM", "DMA_DATA", "TASKMESH"))
