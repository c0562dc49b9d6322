"""Edit and assemble: a trace as text that a person can change, and back to the same bytes.

In       a file's bytes; or the text
Out      the text; or the bytes. What was not changed comes back bit for bit, whatever it is
Next     hcq/trace/records.py (the layouts named here), text.py (how one layout is spelled)

A record begins at the margin: its kind, then what its frame holds. Indented lines are its text and its data:

    SUBMIT process=71 time_ns=1000
      Submit device=1 queue=2 value=3 ...     the head: a layout of trace/records.py
      words:                                  what the device reads, packet by packet, by its own layouts
      Fill opcode=FILL length=8 dst=0x1000 pattern=0x0 size_bytes=0x40
      commands:                               what the packets stand for
      hex 00ff...                             bytes that nobody declares;  zeros 64  is 64 of them

Lengths, counts and checksums are worked out by `assemble` where the text leaves them out, and `edit` leaves out those
that are right. Every record that would not come back as it was is written as hex, so the law holds for any file.
"""

from __future__ import annotations

import contextlib
import functools
import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from hcq import backends, checks
from hcq.errors import HcqError, UsageError
from hcq.layout import Packet
from hcq.tools.trace import text as spelling
from hcq.trace.file import Record, TraceDevice, read_records
from hcq.trace.records import HEADS, MAGIC, Frame, Kind, PackedCommand, PackedDispatch, PackedOther, Verb

_FRAME = Frame.struct()[0]
_COUNTED = {  # heads with counts that can be worked out: section -> field, and how much of the section is one
    Kind.SUBMIT: (("words", "size_words"), ("commands", "commands")),
    Kind.BLOCK: (("commands", "commands"), ("words", "size_words")),
}
_HEADS: dict[int | None, type[Packet]] = {int(kind): head for kind, head in HEADS.items()}
HEX_PER_LINE = 48
ZEROS_FROM = 32


# ------------------------------------------------------------ to text


def edit(content: bytes) -> Iterator[str]:
    """The lines of a file's text. Raises UsageError when it is no trace."""
    if not content.startswith(MAGIC):
        read_records(content)  # says what is wrong with it
    names = _Names()
    at = len(MAGIC)
    yield "# A trace as text: change it, then `hcq-trace assemble` it. docs/trace.md explains; # begins a comment."
    while (record := _frame(content, at)) is not None:
        at += len(record.raw)
        names.take(record)
        try:
            written = list(_record(record, names))
        except UnicodeDecodeError:
            written = []
        if not _is_same(written, record.raw, names):
            written = list(_as_hex(record))
        yield from written
    if at < len(content):
        yield "REST  # what follows is no whole record: cut off, or damaged"
        yield from _bytes(content[at:])


def _frame(content: bytes, at: int) -> Record | None:
    """The record at a place, whether it can mean anything or not; None when its frame or its checksum is not whole."""
    if at + _FRAME.size > len(content):
        return None
    checksum, kind, _, text_bytes, data_bytes, process, time_ns = _FRAME.unpack_from(content, at)
    raw = content[at : at + _FRAME.size + text_bytes + data_bytes]
    if len(raw) < _FRAME.size + text_bytes + data_bytes or zlib.crc32(raw[4:]) != checksum:
        return None
    data = raw[_FRAME.size + text_bytes :]
    fields: dict[str, Any] = {}
    layout = _HEADS.get(kind)
    if layout is not None and len(data) >= 4 * layout.length_words:
        words = struct.unpack_from(f"<{layout.length_words}I", data)
        fields = dict(layout.decode(words).values)
        data = data[4 * layout.length_words :]
    elif layout is None and text_bytes:
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(raw[_FRAME.size : _FRAME.size + text_bytes])
            fields = found if isinstance(found, dict) else {}
    known = Kind(kind) if kind in Kind._value2member_map_ else kind
    return Record(0, known, process, time_ns, fields, data, at, raw)


@functools.cache
def _layouts(kind: str) -> dict[str, type[Packet]]:
    """The packets of a kind by name; a name that two modules have is `module.Name` for the second."""
    found: dict[str, type[Packet]] = {}
    backend = backends.find(kind)
    for layout in () if backend is None else backend.packets():
        module = layout.__module__.rpartition(".")[2]
        found[f"{module}.{layout.__name__}" if layout.__name__ in found else layout.__name__] = layout
    return found


class _Names:
    """What earlier records introduced: texts by number, kinds of devices, in each process."""

    def __init__(self) -> None:
        self.strings: dict[tuple[int, int], str] = {}
        self.kinds: dict[tuple[int, int], str] = {}
        self.archs: dict[tuple[int, int], str] = {}

    def take(self, record: Record) -> None:
        if record.kind == Kind.STRING and len(record.data) >= 4:
            number = int.from_bytes(record.data[:4], "little")
            self.strings[record.process, number] = record.data[4:].decode("utf-8", "replace")
        elif record.kind == Kind.DEVICE and isinstance(record.fields.get("device"), int):
            kind = str(record.fields.get("name")).partition(":")[0].upper()
            self.kinds[record.process, record.fields["device"]] = kind
            self.archs[record.process, record.fields["device"]] = str(record.fields.get("arch"))

    def string(self, process: int, number: int) -> str:
        return self.strings.get((process, number), "")

    def layouts(self, process: int, device: object) -> dict[str, type[Packet]]:
        """The packets of a device by name; none for a kind that this version does not know."""
        return _layouts(self.kinds.get((process, device), "") if isinstance(device, int) else "")

    def decode(self, process: int, device: int, words: Sequence[int]) -> list[Packet]:
        name, arch = self.kinds.get((process, device)), self.archs.get((process, device))
        if name is None or arch is None:
            return []
        try:
            return TraceDevice(name, name, name, arch, process, device, {}, 0).decode(words)
        except HcqError:
            return []


def _record(record: Record, names: _Names) -> Iterator[str]:
    yield _title(record)
    text = _text_bytes(record)
    if text:
        yield f"  text {text.decode()}"
    head = _HEADS.get(record.kind)
    if record.kind == Kind.STRING:
        number = int.from_bytes(record.data[:4], "little")
        yield f"  string {number} {json.dumps(record.data[4:].decode('utf-8', 'replace'))}"
        return
    if head is None or not record.fields:
        yield from _bytes(record.data)
        return
    layout = head.decode([])
    layout.values.update(record.fields)
    leave_out = {field for _, field in _COUNTED.get(Kind(record.kind), ())}
    notes = _notes(record, names)
    yield f"  {spelling.line(layout, leave_out)}{notes}"
    if record.kind == Kind.SUBMIT:
        size = 4 * record.fields["size_words"]
        yield "  words:"
        yield from _words(record, names, record.data[:size])
        yield "  commands:"
        yield from _commands(record.data[size:], record, names)
    elif record.kind == Kind.BLOCK:
        size = len(record.data) - 4 * record.fields["size_words"]
        yield "  commands:"
        yield from _commands(record.data[: max(size, 0)], record, names)
        yield "  words:"
        yield from _words(record, names, record.data[max(size, 0) :])
    else:
        yield from _bytes(record.data)


def _title(record: Record) -> str:
    reserved = _FRAME.unpack_from(record.raw)[2]
    extra = f" reserved={reserved}" if reserved else ""
    return f"{record.name} process={record.process} time_ns={record.time_ns}{extra}"


def _text_bytes(record: Record) -> bytes:
    length = _FRAME.unpack_from(record.raw)[3]
    return record.raw[_FRAME.size : _FRAME.size + length]


def _notes(record: Record, names: _Names) -> str:
    """What the numbers of a head mean, as a comment."""
    found = []
    for field in ("queue", "site", "thread", "name", "label"):
        number = record.fields.get(field)
        if number:
            found.append(f"{field}: {names.string(record.process, number)}")
    return f"  # {spelling.comment(', '.join(found))}" if found else ""


def _words(record: Record, names: _Names, data: bytes) -> Iterator[str]:
    words = struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])
    known = names.layouts(record.process, record.fields["device"])
    names_of = {layout: name for name, layout in known.items()}
    at = 0
    for packet in names.decode(record.process, record.fields["device"], words):
        own = words[at : at + len(packet.words)]
        name = names_of.get(type(packet), "")
        shown = f"{name} {spelling.line(packet).partition(' ')[2]}"
        if name and spelling.parse(shown, known).words == own:
            yield f"  {shown}"
        else:
            yield from _bytes(struct.pack(f"<{len(own)}I", *own))
        at += len(own)
    yield from _bytes(data[4 * at :])


def _commands(data: bytes, record: Record, names: _Names) -> Iterator[str]:
    at = 0
    while at + 4 <= len(data):
        head = PackedCommand.decode([int.from_bytes(data[at : at + 4], "little")])
        size = 4 * head.size_words
        own = data[at : at + size]
        layout = PackedDispatch if head.verb == Verb.DISPATCH else PackedOther
        if size < 4 * layout.length_words or len(own) < size:
            break
        words = struct.unpack(f"<{size // 4}I", own)
        packet = layout.decode(words[: layout.length_words])
        slots = struct.unpack(f"<{(size - 4 * layout.length_words) // 8}Q", own[4 * layout.length_words :])
        tail = f" args=[{' '.join(f'{slot:#x}' for slot in slots)}]" if slots else ""
        note = names.string(record.process, packet.values.get("letters", 0) or packet.values.get("label", 0))
        yield f"  {spelling.line(packet, {'size_words'})}{tail}" + (
            f"  # {spelling.comment(note)}" if note else ""
        )
        at += size
    yield from _bytes(data[at:])


def _as_hex(record: Record) -> Iterator[str]:
    """A record that does not come back from its layouts: frame as fields, everything else as bytes."""
    yield _title(record)
    text = _text_bytes(record)
    if text:
        yield "  text:"
        yield from _bytes(text)
        yield "  data:"
    yield from _bytes(record.raw[_FRAME.size + len(text) :])


def _bytes(data: bytes) -> Iterator[str]:
    at = 0
    while at < len(data):
        rest = data[at:] if data[at] == 0 else b""
        zeros = len(rest) - len(rest.lstrip(b"\0"))
        if zeros >= ZEROS_FROM:
            yield f"  zeros {zeros}"
            at += zeros
            continue
        yield f"  hex {data[at : at + HEX_PER_LINE].hex()}"
        at += HEX_PER_LINE


def _is_same(lines: list[str], raw: bytes, names: _Names) -> bool:
    try:
        builder = _Builder(names)
        for number, line in enumerate("\n".join(lines).split("\n"), 1):  # as it will be read
            builder.line(number, line)
        return builder.finish() == raw
    except (HcqError, ValueError, UnicodeError):
        return False


# ------------------------------------------------------------ and back


def assemble(text: str) -> bytes:
    """The file that a text describes. Raises UsageError naming the line that cannot be read."""
    names = _Names()
    builder = _Builder(names)
    for number, line in enumerate(text.split("\n"), 1):
        builder.line(number, line)
    return MAGIC + builder.finish()


class _Builder:
    """Takes lines, gives records. A record ends where the next begins."""

    def __init__(self, names: _Names) -> None:
        self.names = names
        self.out: list[bytes] = []
        self.number = 0
        self._clear()

    def _clear(self) -> None:
        self.kind: int | None = None
        self.is_rest = False
        self.frame: dict[str, int] = {}
        self.text = b""
        self.head: tuple[str, dict[str, Any]] | None = None
        self.section = "data"
        self.parts: dict[str, list[bytes]] = {}
        self.order: list[str] = []

    def line(self, number: int, line: str) -> None:
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            return
        self.number = number
        try:
            if not line[0].isspace():
                self._begin(spelling.without_comment(stripped))
            elif self.kind is None and not self.is_rest:
                raise UsageError(
                    "a record begins at the margin, with its kind, as in: SUBMIT process=1 time_ns=2"
                )
            elif stripped.startswith("text "):
                self.text = line.split("text ", 1)[1].encode()
            elif stripped.startswith("string "):
                self._data(stripped)
            else:
                self._data(spelling.without_comment(stripped))
        except (UsageError, ValueError, struct.error, OverflowError) as error:
            raise UsageError(f"line {number}: {error}") from None

    def finish(self) -> bytes:
        try:
            self._close()
        except (UsageError, ValueError, struct.error, OverflowError) as error:
            raise UsageError(f"the record that ends at line {self.number}: {error}") from None
        return b"".join(self.out)

    def _begin(self, line: str) -> None:
        self._close()
        name, _, rest = line.partition(" ")
        if name == "REST":
            self.is_rest = True
            return
        if name.startswith("KIND_") and checks.is_decimal(name[5:]):
            self.kind = int(name[5:])
        elif name in Kind.__members__:
            self.kind = Kind[name]
        else:
            raise UsageError(f"{name!r} is no kind of record. Kinds: {', '.join(Kind.__members__)}, KIND_99.")
        self.frame = {key: spelling.number(value) for key, value in spelling.pairs(rest)}
        unknown = set(self.frame) - {"process", "time_ns", "reserved"}
        if unknown:
            raise UsageError(
                f"{name} has no {sorted(unknown)[0]!r}; a frame takes process, time_ns, reserved."
            )

    def _data(self, line: str) -> None:
        if line.endswith(":") and " " not in line:
            self.section = line[:-1]
            if self.section not in ("text", "data", "words", "commands"):
                raise UsageError(f"{line!r} is no section. Sections: text:, data:, words:, commands:.")
            self._add(b"")
            return
        word, _, rest = line.partition(" ")
        if word == "string":
            number, _, quoted = rest.partition(" ")
            self._add(spelling.number(number).to_bytes(4, "little") + str(json.loads(quoted)).encode())
        elif word == "hex":
            self._add(bytes.fromhex(rest))
        elif word == "zeros":
            self._add(bytes(spelling.count(rest)))
        elif self.section == "commands":
            self._add(_command(line))
        elif self.section == "words":
            known = self.names.layouts(
                self.frame.get("process", 0), self.head[1].get("device") if self.head else 0
            )
            self._add(spelling.parse(line, known).to_bytes())
        else:
            self._take_head(line)

    def _take_head(self, line: str) -> None:
        layout = _HEADS.get(self.kind)
        if layout is None or self.head is not None:
            raise UsageError(f"{line.partition(' ')[0]!r} is neither hex, zeros, nor a head of this record.")
        name, values, tail = spelling.values(line, {layout.__name__: layout})
        if tail:
            raise UsageError(f"{name} has no words after its fields; write them as hex.")
        self.head = (name, values)

    def _add(self, data: bytes) -> None:
        if self.section not in self.parts:
            self.parts[self.section] = []
            self.order.append(self.section)
        self.parts[self.section].append(data)

    def _close(self) -> None:
        if self.is_rest:
            self.out.append(b"".join(part for parts in self.parts.values() for part in parts))
        elif self.kind is not None:
            self.out.append(self._record())
        self._clear()

    def _record(self) -> bytes:
        assert self.kind is not None
        parts = {name: b"".join(found) for name, found in self.parts.items()}
        text = self.text + parts.pop("text", b"")
        data = b"".join(parts[name] for name in self.order if name in parts)
        if self.head is not None:
            layout = _HEADS[self.kind]
            values = dict(self.head[1])
            for section, field in _COUNTED.get(Kind(self.kind), ()):
                size = len(parts.get(section, b""))
                count = size // 4 if section == "words" else _count_commands(parts.get(section, b""))
                values.setdefault(field, count)
            data = layout(**values).to_bytes() + data
        rest = _FRAME.pack(
            0, self.kind, self.frame.get("reserved", 0), len(text), len(data),
            self.frame.get("process", 0), self.frame.get("time_ns", 0),
        )[4:] + text + data  # fmt: skip
        raw = zlib.crc32(rest).to_bytes(4, "little") + rest
        self._remember(text, data)
        return raw

    def _remember(self, text: bytes, data: bytes) -> None:
        """What later lines refer to. A device that does not say what it is has no packets by name."""
        fields: dict[str, Any] = {}
        if self.kind == Kind.DEVICE:
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(text)
                fields = found if isinstance(found, dict) else {}
        self.names.take(Record(0, self.kind or 0, self.frame.get("process", 0), 0, fields, data, 0, b""))


def _command(line: str) -> bytes:
    line, _, tail = line.partition(" args=")
    known: dict[str, type[Packet]] = {"PackedDispatch": PackedDispatch, "PackedOther": PackedOther}
    name, values, words = spelling.values(line, known)
    if words:
        raise UsageError(f"{name}: arguments are 64-bit numbers, as in args=[0x1000 5].")
    slots = [spelling.number(word) for word in tail.strip().strip("[]").split()]
    packed = struct.pack(f"<{len(slots)}Q", *(slot % 2**64 for slot in slots))
    layout = known[name]
    values.setdefault("size_words", layout.length_words + 2 * len(slots))
    return layout(**values).to_bytes() + packed


def _count_commands(data: bytes) -> int:
    count = at = 0
    while at + 4 <= len(data):
        size = PackedCommand.decode([int.from_bytes(data[at : at + 4], "little")]).size_words
        count, at = count + 1, at + 4 * max(size, 1)
    return count
