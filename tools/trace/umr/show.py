"""A text of umr's in our words: rings around their read pointers, buffers packet by packet, waves, registers.

In       a Dump; a GPU's name, where the command line says it
Out      lines for a person; the same as data for JSON
Next     dump.py (what was read), ../ring_window.py, ../waves.py (what is shown)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hcq.amd.abi import pm4
from hcq.amd.abi.registers import Register as ShRegister
from hcq.amd.abi.registers import UconfigRegister
from hcq.amd.chip import Chip
from hcq.tools.trace import waves as wave_views
from hcq.tools.trace.amd_words import Piece, best_chip, chip_named, pieces
from hcq.tools.trace.color import Color, clean, counted
from hcq.tools.trace.devcoredump.place import language
from hcq.tools.trace.ring_window import Window, around
from hcq.tools.trace.umr.dump import MOST_UNKNOWN, Dump, Ring, Stream, StreamPacket, Word
from hcq.tools.trace.umr.wave_text import arch_of

SHOWN_BEFORE, SHOWN_AFTER = 6, 24  # packets around the read pointer
SHOWN_BUFFER = 40  # packets of a buffer
SHOWN_FIELDS = 6  # of umr's own words, of a packet that has no layout here
SHOWN_REGISTERS = 60
SHOWN_UNKNOWN = 2000  # numbers of lines, as data
LONGEST = 240
_UMRS_NAME = re.compile(r"OPCODE:[0-9a-fA-F]+\[(\w+)\]|^(\w+)$")
_SET = {"SET_SH_REG": ShRegister, "SET_UCONFIG_REG": UconfigRegister}


class Part(NamedTuple):
    """Words of a ring that stand one behind the other, as packets. form: "" for a language that is not known here."""

    words: list[Word]
    window: Window
    form: str

    @property
    def at(self) -> int:
        """Where its first word is."""
        return self.words[0].at


class Told(NamedTuple):
    """A packet of umr's stream decoder, and what our own makes of its words; None where a word is missing."""

    packet: StreamPacket
    piece: Piece | None


def chip_of(dump: Dump, named: str) -> tuple[Chip, str]:
    """The GPU, and what to say where it is a guess. Raises UsageError for a name that is not known."""
    if named:
        return chip_named(named), ""
    arch = arch_of(dump.asic)
    if re.match(r"gfx(9|1[0-2])", arch):
        return chip_named(arch), ""
    words = [word.value for ring in dump.rings for word in ring.words[:4096]]
    chip = best_chip(words, "pm4")
    if not words and not dump.streams:
        return chip, ""
    said = f"{dump.asic} has packets that are not known" if dump.asic else "the text does not name the GPU"
    return chip, f"{said}: packets are read as those of {chip.arch}; --chip overrules"


# ------------------------------------------------------------ rings and buffers


def parts(ring: Ring, chip: Chip) -> list[Part]:
    """A ring's words as packets; behind a hole a new part begins."""
    read = read_pointer(ring)
    form = language(ring.name) if ring.asic else "pm4"
    found: list[Part] = []
    run: list[Word] = []
    for word in [*ring.words, None]:
        if run and (word is None or word.at not in (run[-1].at + 1, 0)):
            values = [one.value for one in run]
            at = next((index for index, one in enumerate(run) if one.at == read), None)
            window = around(values, at, form, chip) if form else Window([])
            found.append(Part(run, window, form))
            run = []
        if word is not None:
            run.append(word)
    return found


def read_pointer(ring: Ring) -> int | None:
    """Where the GPU reads: by the mark of a word, else by the pointer above the words."""
    marked = next((word.at for word in ring.words if word.marks.startswith("r")), None)
    return marked if marked is not None else ring.pointers.get("rptr")


def _umrs(words: Sequence[Word], piece: Piece) -> str:
    """The name that umr gives a packet."""
    found = _UMRS_NAME.search(words[piece.at].said.strip())
    return (found[1] or found[2]) if found else ""


def _ring_lines(ring: Ring, chip: Chip, color: Color) -> Iterator[str]:
    read, write = read_pointer(ring), ring.pointers.get("wptr")
    said = [f"{name} {value}" for name, value in ring.pointers.items()]
    if read is not None and read == write:
        said.append("idle: everything was read")
    kind = f"ring {ring.name} of {ring.asic}" if ring.asic else f"buffer {ring.name}"
    yield ""
    yield f"{color(kind, 'heading')}  {', '.join(said)}".rstrip()
    if not ring.words:
        yield "  none of its words is in the text"
    for part in parts(ring, chip):
        if not part.form:
            yield f"  {counted(len(part.words), 'word')} of a language that is not known here:"
            for word in part.words[:SHOWN_BUFFER]:
                yield f"{word.at:8}  {word.value:08x}  {color(word.said[:LONGEST], 'note')}"
            continue
        yield from _part_lines(part, color, is_ring=bool(ring.asic))


def places(dump: Dump, chip: Chip) -> Iterator[str]:
    """Of each ring with work: its name, and the packet at its read pointer."""
    for ring in dump.rings:
        read = read_pointer(ring)
        if not ring.asic or read is None or read == ring.pointers.get("wptr"):
            continue
        for part in parts(ring, chip):
            if part.window.stands is not None:
                yield f"{ring.name} at {read}: {_text(part.window.pieces[part.window.stands])}"


def _part_lines(part: Part, color: Color, is_ring: bool) -> Iterator[str]:
    found, stands = part.window.pieces, part.window.stands
    first = 0 if stands is None else max(0, stands - SHOWN_BEFORE)
    shown = found[first : first + (SHOWN_BUFFER if stands is None else SHOWN_BEFORE + SHOWN_AFTER)]
    if first:
        yield f"     ({counted(first, 'packet')} before)"
    for number, piece in enumerate(shown, first):
        words = part.words[piece.at : piece.at + len(piece.words) * piece.times]
        is_done = stands is not None and number < stands
        style = (
            "wrong"
            if number == stands or not piece.is_known
            else "note"
            if is_done or not is_ring
            else "buffer"
        )
        mark = "=>" if number == stands else "  "
        name = _umrs(part.words, piece)
        beside = f"  {color(f'umr: {name}', 'note')}" if name else ""
        yield f"{mark}{part.words[piece.at].at:6}  {color(_text(piece), style)}{beside}"
        if number == stands and part.window.note:
            yield f"          {part.window.note}"
        if not piece.is_known:
            for word in [one for one in words[1:] if one.said][:SHOWN_FIELDS]:
                yield f"          umr: {color(word.said[:LONGEST], 'note')}"
    left = len(found) - first - len(shown)
    if left:
        yield f"     (and {counted(left, 'packet')} more)"


# ------------------------------------------------------------ streams


def told(stream: Stream, chip: Chip) -> list[Told]:
    """The packets of a stream, decoded by us where all their words are there or can be concluded."""
    found = []
    for packet in stream.packets:
        words = _words(packet)
        form = _form(packet)
        piece = None
        if words is not None and form:
            decoded = pieces(words, form, chip)
            piece = decoded[0] if len(decoded) == 1 else None
        found.append(Told(packet, piece))
    return found


def _form(packet: StreamPacket) -> str:
    name = packet.name
    if name.startswith("PKT3") or (not name and pm4.is_header(packet.header)):
        return "pm4"
    if name.startswith("HSA"):
        return "aql"
    return "" if name.startswith(("MES", "VCN", "VPE", "UMSCH")) or not name else "sdma"


def _words(packet: StreamPacket) -> list[int] | None:
    """Its words; None where some are missing. umr leaves the word out that says which register SET_*_REG begins at."""
    form = _form(packet)
    if form == "pm4":
        count = pm4.length_words(packet.header)
    else:
        count = 16 if form == "aql" else (max(packet.bytes_at, default=-1) + 4) // 4
    if not 0 < count <= 1 << 14:
        return None
    known = packet.bytes_at
    name = packet.name.removeprefix("PKT3_")
    if 4 not in known and name in _SET and packet.said:
        first = re.search(r"\.(?:reg|mm)(\w+)=", packet.said[0])
        number = _SET[name].__members__.get(first[1]) if first else None
        if number is not None:
            known = {**known, **{4 + at: byte for at, byte in enumerate(int(number).to_bytes(4, "little"))}}
    if any(at not in known for at in range(4 * count)):
        return None
    return [
        int.from_bytes(bytes(known[at] for at in range(4 * n, 4 * n + 4)), "little") for n in range(count)
    ]


def _stream_lines(stream: Stream, chip: Chip, color: Color) -> Iterator[str]:
    yield ""
    what = f"packets at {stream.va:#x} of VMID {stream.vmid}"
    yield f"{color(what, 'heading')}  {counted(len(stream.packets), 'packet')}" + (
        ", from the read pointer on" if stream.at_read_pointer else ""
    )
    found = told(stream, chip)
    for number, one in enumerate(found[:SHOWN_BUFFER]):
        is_marked = number == 0 and stream.at_read_pointer
        mark = "=>" if is_marked else "  "
        name = one.packet.name or "the rest of a packet"
        if one.piece is not None and one.piece.is_known:
            text = f"{color(_text(one.piece), 'wrong' if is_marked else 'buffer')}  {color(f'umr: {name}', 'note')}"
            yield f"{mark}{one.packet.at:#8x}  {text}"
            continue
        yield f"{mark}{one.packet.at:#8x}  {color(name, 'packet')}  {color('in umrs words', 'note')}"
        for said in one.packet.said[:SHOWN_FIELDS]:
            yield f"            {color(said[:LONGEST], 'note')}"
        if len(one.packet.said) > SHOWN_FIELDS:
            yield f"            and {len(one.packet.said) - SHOWN_FIELDS} more fields"
    if len(found) > SHOWN_BUFFER:
        yield f"     (and {counted(len(found) - SHOWN_BUFFER, 'packet')} more)"


# ------------------------------------------------------------ all of it


def lines(dump: Dump, color: Color, named: str = "") -> Iterator[str]:
    """Waves first, then rings and buffers, then registers. Raises UsageError for a name of no GPU."""
    chip, note = chip_of(dump, named)
    what = f" of {dump.asic}" if dump.asic else ""
    yield color(f"umr{what}: {', '.join(_counts(dump)) or 'nothing that is known'}", "heading")
    if note:
        yield f"  {note}"
    for text in dump.notes[:5]:
        yield f"  umr warns: {clean(text[:LONGEST])}"
    if dump.has_no_waves:
        yield "  no wave was active, or the GPU was asleep (umr -go 0 prevents that)"
    if dump.waves:
        yield ""
        yield from wave_views.lines(dump.waves, color)
        if all("halted" in wave.state for wave in dump.waves):
            yield "  every wave is halted: umr -O halt_waves does that itself, to read them"
    for ring in dump.rings:
        yield from _ring_lines(ring, chip, color)
    for stream in dump.streams:
        yield from _stream_lines(stream, chip, color)
    if dump.queues:
        yield from _queues(dump, color)
    if dump.registers:
        yield ""
        yield color("registers", "heading")
        for one in dump.registers[:SHOWN_REGISTERS]:
            fields = ", ".join(f"{name}={value:#x}" for name, value in one.fields.items() if value)
            yield f"  {clean(one.name)} {one.value:#010x}  {clean(fields)[:LONGEST]}".rstrip()
        if len(dump.registers) > SHOWN_REGISTERS:
            yield f"  and {len(dump.registers) - SHOWN_REGISTERS} more: --json has all"
    yield from tail(dump)


def _queues(dump: Dump, color: Color) -> Iterator[str]:
    yield ""
    yield color("compute queues", "heading")
    idle = 0
    for one in dump.queues:
        read, write = one.values.get("PQ RPTR"), one.values.get("PQ WPTR")
        if read is None or write is None or read == write:
            idle += 1
            continue
        kind = "AQL" if one.values.get("MQD AQL_CONTROL") else "PM4"
        place = f"me {one.me if one.me >= 0 else '?'}, pipe {one.pipe}, queue {one.queue}, VMID {one.vmid}"
        said = f"read {read:#x}, write {write:#x}: {write - read:#x} words not read"
        yield f"  {place}: {kind}, {color(said, 'wrong')}, at {one.values.get('PQ BASE', 0):#x}"
    if idle:
        yield f"  {counted(idle, 'queue')} idle"


def tail(dump: Dump) -> Iterator[str]:
    """What was not understood, and what was left out."""
    if dump.unknown:
        yield ""
        more = "or more " if len(dump.unknown) >= MOST_UNKNOWN else ""
        yield f"{counted(len(dump.unknown), 'line')} {more}of no form that is known; {clean(dump.unknown_text)}"
    if dump.is_full:
        yield "there is more in this text than is kept"


def _counts(dump: Dump) -> list[str]:
    rings = sum(bool(ring.asic) for ring in dump.rings)
    counts = (
        (len(dump.waves), "wave"),
        (rings, "ring"),
        (len(dump.rings) - rings + len(dump.streams), "buffer"),
        (len(dump.registers), "register"),
        (len(dump.queues), "queue"),
    )
    return [counted(count, what) for count, what in counts if count]


def _text(piece: Piece) -> str:
    text = clean(piece.line())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


# ------------------------------------------------------------ for a program


def as_json(dump: Dump, named: str = "") -> dict[str, Any]:
    """Everything, as data. Raises UsageError for a name of no GPU."""
    chip, note = chip_of(dump, named)
    return {
        "form": "umr",
        "asic": dump.asic,
        "chip": chip.arch,
        "notes": [text for text in (note, *dump.notes) if text],
        **wave_views.as_json(dump.waves),
        "rings": [_ring_json(ring, chip) for ring in dump.rings],
        "streams": [_stream_json(stream, chip) for stream in dump.streams],
        "registers": [vars(one) for one in dump.registers],
        "queues": [vars(one) for one in dump.queues],
        "unknown_lines": dump.unknown[:SHOWN_UNKNOWN],
        "is_cut": dump.is_full,
    }


def _ring_json(ring: Ring, chip: Chip) -> dict[str, Any]:
    found = []
    for part in parts(ring, chip):
        for number, piece in enumerate(part.window.pieces):
            one = piece.as_json() | {"at": part.words[piece.at].at, "umr": _umrs(part.words, piece)}
            found.append(one | {"is_at_read_pointer": number == part.window.stands})
    return {
        "name": ring.name,
        "asic": ring.asic,
        "line": ring.line,
        "pointers": ring.pointers,
        "read": read_pointer(ring),
        "packets": found,
    }


def _stream_json(stream: Stream, chip: Chip) -> dict[str, Any]:
    packets = [
        {
            "at": one.packet.at,
            "umr": one.packet.name,
            "said": one.packet.said,
            "packet": one.piece.name if one.piece is not None else "",
            "fields": one.piece.fields if one.piece is not None else {},
            "known": one.piece is not None and one.piece.is_known,
            "is_at_read_pointer": number == 0 and stream.at_read_pointer,
        }
        for number, one in enumerate(told(stream, chip))
    ]
    return {"vmid": stream.vmid, "va": stream.va, "line": stream.line, "packets": packets}
