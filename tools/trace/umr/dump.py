"""What umr prints, as data: rings and buffers word by word, decoded streams, waves, registers.

In       lines of text
Out      a Dump; whether a text has anything of umr's
Next     wave_text.py (waves), show.py (who prints a Dump), ../ring_window.py (packets around the read pointer)
Source   umr: src/app/ring_read.c, ib_read.c, ring_stream_read.c, and the examples of its documentation (--ring,
         --ring-stream, --dump-ib, --user-queue); https://umr.readthedocs.io

Words are taken from the line, not from umr's own decoding beside them; that is kept where we know no layout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hcq.tools.trace.kernel_log.log_lines import clean
from hcq.tools.trace.umr.wave_text import WaveText
from hcq.tools.trace.waves import MOST_WAVES, Wave

MAX_LINE = 4000  # characters; a row of vector registers has 600
MOST_WORDS = 1 << 20  # of all rings and buffers of a text
MOST_KEPT = 2000  # registers
MOST_UNKNOWN = 100_000  # numbers of lines of no form that is known
MOST_CODE = 100_000  # lines of disassembly

HEAD_BYTES = 4 << 20  # of a text, in which it is looked for what it is
# Plain words first: every text that somebody gives is searched for them.
_WORDS = (
    b".ring[",
    b"ing IB at ",
    b"SIMD WAVE# ",
    b".simd",
    b"IB[",
    b"No active waves!",
    b"@0x",
    b" == 0x",
    b"PQ BASE 0x",
)
_C = rb"(?:\x1b\[[0-9;]{0,20}m)?"  # a colour, which umr puts around numbers
_MARKS = re.compile(
    rb"\.ring\[" + _C + rb" *\d+" + _C + rb"\] == |Decoding IB at |Dumping IB at |SIMD WAVE# |"
    rb"\bse\d{1,3}\.s[ah]\d{1,3}\.(?:cu|wgp)\d{1,3}\.simd\d|IB\[[^\]\n]{1,60}\] = |No active waves!|"
    rb"\[0x" + _C + rb"[0-9a-f]{1,8}" + _C + rb"@0x[^\]\n]{1,60}\][ \t]{1,20}\[|"
    rb"\bpgm\[|PQ BASE 0x[0-9a-f]{1,16} {1,4}RPTR 0x|\b\w{1,40}\.\w{1,40}\.(?:reg|mm|ix)[A-Z]\w{1,80} (?:==|=>) 0x"
)


@dataclass
class Word:
    """One word: its place in words, what umr says of it, the marks r, w and D of pointers, the number of the line."""

    at: int
    value: int
    said: str
    marks: str
    line: int


@dataclass
class Ring:
    """A ring (or a buffer, which has an address and no pointers) as a list of words."""

    name: str
    asic: str
    line: int
    pointers: dict[str, int] = field(default_factory=dict)
    words: list[Word] = field(default_factory=list)


@dataclass
class StreamPacket:
    """A packet as umr's stream decoder prints it. bytes_at: what is known of it, by offset from its header."""

    at: int
    name: str
    header: int
    line: int
    bytes_at: dict[int, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


@dataclass
class Stream:
    """A ring or buffer that umr has decoded: where it is, and its packets."""

    vmid: str
    va: int
    line: int
    packets: list[StreamPacket] = field(default_factory=list)
    at_read_pointer: bool = False


@dataclass
class Register:
    """A register by its full name: asic.block.name."""

    name: str
    value: int
    line: int
    fields: dict[str, int] = field(default_factory=dict)


@dataclass
class Queue:
    """A queue that --cpc lists. me: the engine, -1 where the text ends before it is told."""

    pipe: int
    queue: int
    vmid: int
    line: int
    me: int = -1
    values: dict[str, int] = field(default_factory=dict)


@dataclass
class Dump:
    """All that a text of umr's says. unknown: numbers of lines that are none of these."""

    rings: list[Ring] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    waves: list[Wave] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    unknown_text: str = ""  # the first of them
    has_no_waves: bool = False
    is_full: bool = False  # there was more than is kept
    asic: str = ""


def recognises(content: bytes) -> bool:
    """Whether a text has anything that umr prints."""
    head = content[:HEAD_BYTES]
    return any(word in head for word in _WORDS) and _MARKS.search(head) is not None


def read(lines: Iterable[str]) -> Dump:
    """Everything of umr's in a text; nothing raises, and what is kept is bounded."""
    text = _Text()
    for number, line in enumerate(lines, 1):
        text.take(number, clean(line[:MAX_LINE]))
    return text.done()


_RING = re.compile(
    r"([\w-]{1,40})\.([\w.-]{1,40})\.ring\[ *(\d{1,10})\] == 0x([0-9a-fA-F]{1,8})(?:\s+([r.][w.][D.]))?\s*(.*)"
)
_POINTER = re.compile(r"([\w-]{1,40})\.([\w.-]{1,40})\.(rptr|wptr|drv_wptr) == (\d{1,10})\b")
_BUFFER = re.compile(r"Dumping IB at (?:\((\w+)\) ?)?VMID:(\w+) 0x([0-9a-fA-F]{1,16}) of (\d+) words(.*)")
_BUFFER_WORD = re.compile(
    r"IB\[(?:\w+@0x[0-9a-fA-F]+ \+ 0x([0-9a-fA-F]{1,8})| *(\d{1,10})) *\] ={1,2} 0x([0-9a-fA-F]{1,8})"
    r"(?:\s+\.\.\.)?\s*(.*)"
)
_STREAM = re.compile(r"Decoding IB at 0x([0-9a-fA-F]+)@0x([0-9a-fA-F]{1,16})(.*)")
_FIELD = re.compile(
    r"\[0x([0-9a-fA-F]{1,8})@0x([0-9a-fA-F]{1,16}) \+ 0x([0-9a-fA-F]{1,8})\]\s*\[ *0x([0-9a-fA-F]{1,16})\]\s*(.*)"
)
_PACKET = re.compile(r"Opcode 0x[0-9a-fA-F]+(?:/0x[0-9a-fA-F]+)? \[([^\]]{1,80})\]")
_COMMAND = re.compile(r"(?:-RS|--ring-stream)\s+\S+\[\.\]")
_REGISTER = re.compile(r"([\w-]{1,40}\.\w{1,40}\.\w{1,80}) (?:==|=>) 0x([0-9a-fA-F]{1,8})$")
_REGISTER_FIELD = re.compile(r"\.?(\w{1,80})\[(\d+):(\d+)\] +== +(?:0x([0-9a-fA-F]{1,8})|(\d{1,10}))")
_QUEUE = re.compile(r"Pipe (\d{1,3}) +Queue (\d{1,3}) +VMID (\d{1,3})$")
_QUEUE_VALUES = re.compile(r"(PQ|EOP|MQD|SAVE) ")
_PAIR = re.compile(r"([A-Z][A-Z_]{1,20}(?: OFFSET)?) 0x([0-9a-fA-F]{1,16})")
_ENGINE = re.compile(r"ME (\d{1,3}) Pipe (\d{1,3}): INSTR_PTR 0x")
_NOTE = re.compile(r"\[(WARNING|ERROR|BUG)\]:? *(.*)")
_SILENT = re.compile(
    r"[-=_ ]*$|End of IB|Done decoding IB|UMR GFX (?:ring|waves):|Shader registers|Shader program:"
    r"|Found DISPATCH_KERNEL|.{0,8}\$ |sudo umr|umr |KERNEL_DISPATCH kernarg|End of kernarg"
)


class _Text:
    """What was read so far. Each form of a line has a method that takes it, and says whether it was one."""

    def __init__(self) -> None:
        self.dump = Dump()
        self.wave_text = WaveText(MOST_CODE)
        self.rings: dict[tuple[str, str], Ring] = {}
        self.streams: dict[tuple[str, int], Stream] = {}
        self.buffer: Ring | None = None
        self.packet: tuple[Stream, StreamPacket] | None = None
        self.left = MOST_WORDS
        self.starts_at_read_pointer = False
        self.forms: tuple[tuple[re.Pattern[str], Callable[[int, re.Match[str]], None]], ...] = (
            (_RING, self._ring),
            (_FIELD, self._field),
            (_BUFFER_WORD, self._buffer_word),
            (_POINTER, self._pointer),
            (_BUFFER, self._buffer),
            (_STREAM, self._stream),
            (_QUEUE, self._queue),
            (_QUEUE_VALUES, self._queue_values),
            (_ENGINE, self._engine),
        )

    def take(self, number: int, line: str) -> None:
        if not line:
            return
        if _COMMAND.search(line):
            self.starts_at_read_pointer = True
        for form, method in self.forms:
            found = form.match(line)
            if found:
                method(number, found)
                return
        if self.wave_text.take(number, line):
            return
        if found := _REGISTER.match(line):
            if len(self.dump.registers) < MOST_KEPT:
                self.dump.registers.append(Register(found[1], int(found[2], 16), number))
        elif (found := _REGISTER_FIELD.match(line)) and self.dump.registers:
            value = int(found[4], 16) if found[4] else int(found[5])
            if len(self.dump.registers[-1].fields) < 64:
                self.dump.registers[-1].fields[found[1]] = value
        elif line.startswith("No active waves!"):
            self.dump.has_no_waves = True
        elif found := _NOTE.match(line):
            if found[2] and len(self.dump.notes) < 20 and found[2] not in self.dump.notes:
                self.dump.notes.append(found[2])
        elif not _SILENT.match(line):
            self.dump.unknown_text = self.dump.unknown_text or f"line {number}: {line[:120]}"
            if len(self.dump.unknown) < MOST_UNKNOWN:
                self.dump.unknown.append(number)

    def done(self) -> Dump:
        dump = self.dump
        dump.waves = self.wave_text.waves
        dump.asic = dump.asic or next((one.name.split(".")[0] for one in dump.registers), "")
        dump.asic = dump.asic or self.wave_text.asic
        dump.is_full = dump.is_full or len(dump.waves) >= MOST_WAVES
        dump.streams = [one for one in dump.streams if one.packets]
        dump.rings = [one for one in dump.rings if one.words or one.pointers]
        if dump.streams and self.starts_at_read_pointer:
            dump.streams[0].at_read_pointer = True
        self.wave_text.finish(dump.asic)
        return dump

    # -------------------------------------------------------- rings

    def _ring_of(self, asic: str, name: str, number: int) -> Ring:
        ring = self.rings.get((asic, name))
        if ring is None:
            self.dump.asic = self.dump.asic or asic
            ring = self.rings[asic, name] = Ring(name, asic, number)
            if len(self.dump.rings) < MOST_KEPT:
                self.dump.rings.append(ring)
        return ring

    def _add(self, ring: Ring, word: Word) -> None:
        if self.left > 0:
            self.left -= 1
            ring.words.append(word)
        else:
            self.dump.is_full = True

    def _ring(self, number: int, found: re.Match[str]) -> None:
        ring = self._ring_of(found[1], found[2], number)
        self._add(ring, Word(int(found[3]), int(found[4], 16), found[6], found[5] or "", number))

    def _pointer(self, number: int, found: re.Match[str]) -> None:
        ring = self._ring_of(found[1], found[2], number)
        if found[3] in ring.pointers and ring.words:  # the same ring a second time
            del self.rings[found[1], found[2]]
            ring = self._ring_of(found[1], found[2], number)
        ring.pointers[found[3]] = int(found[4])

    def _buffer(self, number: int, found: re.Match[str]) -> None:
        name = f"{found[2]}@0x{found[3]}"
        self.buffer = Ring(f"{name}{found[5][:60]}", "", number)
        if len(self.dump.rings) < MOST_KEPT:
            self.dump.rings.append(self.buffer)

    def _buffer_word(self, number: int, found: re.Match[str]) -> None:
        if self.buffer is None:
            self.buffer = Ring("of a cut text", "", number)
            self.dump.rings.append(self.buffer)
        at = int(found[1], 16) // 4 if found[1] else int(found[2])
        self._add(self.buffer, Word(at, int(found[3], 16), found[4], "", number))

    # -------------------------------------------------------- queues

    def _queue(self, number: int, found: re.Match[str]) -> None:
        if len(self.dump.queues) < MOST_KEPT:
            self.dump.queues.append(Queue(int(found[1]), int(found[2]), int(found[3]), number))

    def _queue_values(self, number: int, found: re.Match[str]) -> None:
        if not self.dump.queues:
            return
        values = self.dump.queues[-1].values
        for name, value in _PAIR.findall(found.string)[:16]:
            if len(values) < 64:
                values.setdefault(name if name == found[1] else f"{found[1]} {name}", int(value, 16))

    def _engine(self, number: int, found: re.Match[str]) -> None:
        for queue in self.dump.queues:
            if queue.me < 0 and queue.pipe == int(found[2]):
                queue.me = int(found[1])

    # -------------------------------------------------------- streams

    def _stream_of(self, vmid: str, va: int, number: int) -> Stream:
        stream = self.streams.get((vmid, va))
        if stream is None:
            stream = self.streams[vmid, va] = Stream(vmid, va, number)
            if len(self.dump.streams) < MOST_KEPT:
                self.dump.streams.append(stream)
        return stream

    def _stream(self, number: int, found: re.Match[str]) -> None:
        self._stream_of(found[1], int(found[2], 16), number)
        self.packet = None

    def _field(self, number: int, found: re.Match[str]) -> None:
        if self.left <= 0:
            self.dump.is_full = True
            return
        self.left -= 1
        stream = self._stream_of(found[1], int(found[2], 16), number)
        at, text = int(found[3], 16), found[5]
        value = int(found[4], 16)
        if header := _PACKET.search(text):
            self.packet = (stream, StreamPacket(at, header[1], value & 0xFFFFFFFF, number))
            stream.packets.append(self.packet[1])
        elif self.packet is None or self.packet[0] is not stream:
            self.packet = (stream, StreamPacket(at, "", 0, number))
            stream.packets.append(self.packet[1])
        packet = self.packet[1]
        if not header:
            packet.said.append(text.removeprefix("|---> ")[:200])
        size = {4: 2, 16: 8}.get(len(found[4]), 4)
        if at >= packet.at:
            for index, byte in enumerate(value.to_bytes(8, "little")[:size]):
                packet.bytes_at[at - packet.at + index] = byte
