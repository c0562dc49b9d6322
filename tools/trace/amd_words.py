"""Words of AMD's rings, indirect buffers and code objects, from anybody: PM4, SDMA, AQL, kernel descriptors.

In       32-bit words; the language; a GPU's name, for its generation
Out      `Piece`s in order: where, the packet's name, its fields, its words, and what is wrong with it
Next     hex_text.py (words out of text), readers.py (who asks), hcq/amd/abi/ (every structure)
Source   those of hcq/amd/abi/pm4.py, sdma.py, aql.py, descriptor.py and other_packets.py

Strangers' words are damaged, cut off, and hold packets that this driver never sends. A packet that is known by name
alone is shown with its words, one that nobody knows as unknown; behind nonsense the next header is looked for. Nothing
raises, and the work is in proportion to the words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from hcq.amd.abi import aql, other_packets, pm4, sdma
from hcq.amd.abi.descriptor import KernelDescriptor, user_sgprs
from hcq.amd.abi.registers import Rsrc1, Rsrc3, Rsrc3Gfx9
from hcq.amd.chip import CHIPS, Chip
from hcq.errors import UsageError
from hcq.layout import Packet

FORMS = ("pm4", "sdma", "aql", "descriptor")
GUESSED_CHIPS = ("gfx1100", "gfx942", "gfx1201")  # one of each family of packets
CUT = "cut off"
SHOWN_WORDS = 16  # of a piece on a line
TYPE_2 = 0x80000000  # PM4: a filler of one word
SLOT_WORDS = 16  # AQL packets and kernel descriptors


class Piece(NamedTuple):
    """Some words, and what they are. `is_known` is false for what has no structure here, or does not fit it."""

    at: int
    words: list[int]
    name: str
    texts: list[str]
    fields: dict[str, Any]
    note: str = ""
    is_known: bool = True
    times: int = 1  # so many alike, one behind the other

    @property
    def is_packet(self) -> bool:
        """Whether it is a packet that the decoder knows, and no filler between packets."""
        return self.is_known and self.name not in _FILLERS

    def line(self) -> str:
        """One line of text, without where it stands."""
        text = f"{self.name}({', '.join(self.texts)})" if self.texts or self.is_packet else self.name
        if self.times > 1:
            text += f" x {self.times}"
        if not self.is_known and self.words:
            shown = " ".join(f"{word:08x}" for word in self.words[:SHOWN_WORDS])
            more = len(self.words) - SHOWN_WORDS
            text += f": {shown}" + (f" and {more} more words" if more > 0 else "")
        return f"{text}  [{self.note}]" if self.note else text

    def as_json(self) -> dict[str, Any]:
        """The same as data."""
        return {
            "at": self.at,
            "packet": self.name,
            "fields": self.fields,
            "words": list(self.words),
            "times": self.times,
            "known": self.is_known,
            "note": self.note,
        }


def chip_named(name: str) -> Chip:
    """A GPU by its name, or by its family's: gfx1100, gfx11. Raises UsageError listing the known ones."""
    if name in CHIPS:
        return CHIPS[name]
    found = re.fullmatch(r"gfx(9|10|11|12)[0-9a-f]{0,2}(?:-.*)?", name)
    if found is None:
        raise UsageError(
            f"--chip {name}: not a GPU whose packets are known. Give a generation (gfx9, gfx10, gfx11, gfx12)"
            f" or one of: {', '.join(CHIPS)}."
        )
    return next(chip for chip in CHIPS.values() if chip.family == int(found[1]))


def pieces(words: Sequence[int], form: str, chip: Chip) -> list[Piece]:
    """Everything that these words hold, in order; fillers and nonsense in a row are one piece."""
    walks: dict[str, Callable[[list[int], Chip], Iterator[Piece]]] = {
        "pm4": _pm4,
        "sdma": _sdma,
        "aql": _aql,
        "descriptor": _descriptors,
    }
    return _together(walks[form](list(words), chip))


# ------------------------------------------------------------ PM4


def _pm4(words: list[int], chip: Chip) -> Iterator[Piece]:
    at, end = 0, len(words)
    while at < end:
        header = words[at]
        if not pm4.is_header(header):
            times = _run(words, at)
            if header in (0, TYPE_2):
                yield _filler(at, header, times)
            else:
                yield _unknown(at, [header] * times, "no packet")
            at += times
            continue
        size = pm4.length_words(header)
        own = words[at : at + size]
        piece = _pm4_packet(at, own, size, chip)
        if not piece.is_known and len(own) == size and not _can_follow(words, at + size):
            # a damaged header, mostly: its length leads to what is no packet
            piece = piece._replace(words=own[:1], note=f"{piece.note}; {size} words lead to no header")
            size = 1
        yield piece
        at += size


def _can_follow(words: Sequence[int], at: int) -> bool:
    return at == len(words) or pm4.is_header(words[at]) or words[at] in (0, TYPE_2)


def _pm4_packet(at: int, own: list[int], size: int, chip: Chip) -> Piece:
    opcode = own[0] >> 8 & 0xFF
    name = _member(pm4.Opcode, opcode)
    declared = [
        one for one in (chip.packets.get(opcode), *other_packets.PM4.get(opcode, ())) if one is not None
    ]
    if len(own) < size:
        note = f"{CUT}: {len(own)} of {size} words"
        fitting = [one for one in declared if one.length_words == size or one.tail]
        if fitting and len(own) > 1:
            return _piece(at, own, fitting[0].decode(own), note)._replace(is_known=False)
        return Piece(at, own, name or f"unknown opcode {opcode:#x}", [], {}, note, is_known=False)
    packet = pm4.decode_one(own, chip.packets)
    if not isinstance(packet, pm4.Header):
        return _piece(at, own, packet)
    for layout in declared:
        if layout.length_words == size or (layout.tail and size > layout.length_words):
            return _piece(at, own, layout.decode(own))
    if declared:
        lengths = " or ".join(str(one.length_words) for one in declared)
        note = f"{size} words; it has {lengths} on {chip.arch}"
    else:
        note = f"{size} words, no layout here" if name else f"{size} words"
    return Piece(at, own, name or f"unknown opcode {opcode:#x}", [], {}, note, is_known=False)


# ------------------------------------------------------------ SDMA


def _sdma(words: list[int], chip: Chip) -> Iterator[Piece]:
    at, end = 0, len(words)
    while at < end:
        header = words[at]
        if not header:
            times = _run(words, at)
            yield _filler(at, header, times)
            at += times
            continue
        other = other_packets.sdma_layout(header)
        size = other.length_words if other else sdma.length_words(words[at : at + 4], chip.copies)
        if not size or header >> 8 & 0xFF >= 0x10:
            name = _member(sdma.Op, header & 0xFF)
            yield Piece(
                at, [header], name or "unknown", [], {}, "no layout here" if name else "no packet", False
            )
            at += 1
            continue
        own = words[at : at + size]
        layout = other or chip.copies.packets.get(header & 0xFFFF) or chip.copies.packets[header & 0xFF]
        note = f"{CUT}: {len(own)} of {size} words" if len(own) < size else ""
        yield _piece(at, own, layout.decode(own), note)._replace(is_known=not note)
        at += size


# ------------------------------------------------------------ AQL and kernel descriptors


def _aql(words: list[int], chip: Chip) -> Iterator[Piece]:
    for at in range(0, len(words), SLOT_WORDS):
        own = words[at : at + SLOT_WORDS]
        if len(own) < SLOT_WORDS:
            note = f"{CUT}: {4 * len(own)} of 64 bytes"
            yield _piece(at, own, aql.decode_one(own), note)._replace(is_known=False)
            continue
        packet = aql.decode_one(own)
        if not isinstance(packet, aql.Header):
            yield _piece(at, own, packet)
        elif own[0] & 0xFF == aql.PacketType.INVALID:
            yield Piece(at, own, "Invalid", [], {}, "a free slot, or a packet that was read")
        elif name := _member(aql.PacketType, own[0] & 0xFF):
            yield Piece(at, own, name, packet.texts()[:4], {}, "no layout here", is_known=False)
        else:
            yield _unknown(at, own, f"no packet: type {own[0] & 0xFF}")


def _descriptors(words: list[int], chip: Chip) -> Iterator[Piece]:
    for at in range(0, len(words), SLOT_WORDS):
        own = words[at : at + SLOT_WORDS]
        found = KernelDescriptor.decode(own)
        third = Rsrc3Gfx9 if chip.family == 9 else Rsrc3
        registers = {
            "compute_pgm_rsrc1": Rsrc1.decode([found.compute_pgm_rsrc1]),
            "compute_pgm_rsrc2": found.rsrc2,
            "compute_pgm_rsrc3": third.decode([found.compute_pgm_rsrc3]),
        }
        piece = _piece(at, own, found, "" if len(own) == SLOT_WORDS else f"{CUT}: {4 * len(own)} of 64 bytes")
        shown = [name for name in found.values if name not in (*registers, ENTRY)]  # all of them, zeros too
        texts = [f"{ENTRY}={_signed(found.entry_offset)}"]
        texts += [f"{name}={found.fields[name].show(found.values[name])}" for name in shown]
        texts += [text for text in piece.texts if text.startswith("unclaimed")]
        texts += [f"{name}({', '.join(packet.texts())})" for name, packet in registers.items()]
        items = user_sgprs(found)
        texts.append("user_sgprs(" + ", ".join(f"{name}=s{start}" for name, start in items.items()) + ")")
        fields = {**piece.fields, ENTRY: found.entry_offset, "user_sgprs": items}
        fields |= {name: _fields(packet) for name, packet in registers.items()}
        yield piece._replace(texts=texts, fields=fields, is_known=not piece.note)


ENTRY = "kernel_code_entry_byte_offset"


# ------------------------------------------------------------ which language


class Guess(NamedTuple):
    """A language that explains the words, on a chip, and how much of them."""

    form: str
    chip: Chip
    known: int  # words


def guess(words: Sequence[int], chip: Chip | None = None) -> list[Guess]:
    """The languages that these words can be in, the likeliest first. Each explains nine words of ten."""
    chips = [chip] if chip else [CHIPS[name] for name in GUESSED_CHIPS]
    found = [
        Guess(form, one, known)
        for form in FORMS
        for one in (chips if form != "aql" else chips[:1])
        if (known := _explained(words, form, one)) * 10 >= len(words) * 9 and known
    ]
    best: dict[str, Guess] = {}
    for one in found:
        if one.form not in best or one.known > best[one.form].known:
            best[one.form] = one
    return sorted(best.values(), key=lambda one: -one.known)


def best_chip(words: Sequence[int], form: str) -> Chip:
    """The generation whose packets explain most of the words; the first of equals."""
    return max((CHIPS[name] for name in GUESSED_CHIPS), key=lambda chip: _explained(words, form, chip))


def _explained(words: Sequence[int], form: str, chip: Chip) -> int:
    """How many words are packets of this language; 0 where the first already is none, or says nothing."""
    found = pieces(words, form, chip)
    first = next((one for one in found if one.name not in _FILLERS), None)
    if first is None or not first.is_known or not _is_likely(first, form):
        return 0
    known = sum(len(one.words) * one.times for one in found if one.is_known and _is_likely(one, form))
    last = found[-1]
    # the text may end in the middle of a packet
    is_cut = last.note.startswith(CUT) and not last.name.startswith("unknown") and len(last.words) <= known
    return known + len(last.words) * is_cut


def _is_likely(piece: Piece, form: str) -> bool:
    """Whether nobody would take other words for this: bits that no field claims are zero."""
    if piece.name in _FILLERS:
        return True
    is_plain = not any("unclaimed" in name for name in piece.fields)
    if form == "descriptor":
        entry = piece.fields.get(ENTRY, 0)
        return is_plain and entry != 0 and entry % 64 == 0 and abs(entry) < 1 << 31 and bool(piece.words[12])
    return is_plain or form == "pm4"


# ------------------------------------------------------------ pieces

_FILLERS = ("zeros", "filler", "NopWord", "Invalid")


def _piece(at: int, own: list[int], packet: Packet, note: str = "") -> Piece:
    return Piece(at, own, type(packet).__name__, packet.texts(), _fields(packet), note)


def _filler(at: int, word: int, times: int) -> Piece:
    return Piece(at, [word], "filler" if word else "zeros", [], {}, times=times)


def _run(words: list[int], at: int) -> int:
    """How many words from here on are the same."""
    end = at + 1
    while end < len(words) and words[end] == words[at]:
        end += 1
    return end - at


def _unknown(at: int, own: list[int], note: str) -> Piece:
    return Piece(at, own, "unknown", [], {}, note, is_known=False)


def _fields(packet: Packet) -> dict[str, Any]:
    """Values by name, those of enums as their names; what no field claims, and the words behind the fields."""
    hidden: frozenset[str] = getattr(packet, "hidden_fields", frozenset())
    found: dict[str, Any] = {
        name: value.name if isinstance(value, IntEnum) else int(value)
        for name, value in packet.values.items()
        if name not in hidden
    }
    if packet.tail is not None and packet.tail_words:
        found[packet.tail] = packet.tail_texts() if packet.tail == "registers" else list(packet.tail_words)
    return found | {f"unclaimed_word_{index}": word for index, word in packet.unclaimed.items()}


def _member(names: type[IntEnum], number: int) -> str:
    return names(number).name if number in names._value2member_map_ else ""


def _signed(number: int) -> str:
    return f"{'-' if number < 0 else ''}{abs(number):#x}"


def _together(found: Iterator[Piece]) -> list[Piece]:
    """Fillers of one word that are alike, and nonsense, in a row become one piece each."""
    together: list[Piece] = []
    for one in found:
        last = together[-1] if together else None
        if last is None or last.name != one.name:
            together.append(one)
        elif one.name in _FILLERS and last.words == one.words:
            together[-1] = last._replace(times=last.times + one.times)
        elif one.name == "unknown" and one.note == last.note == "no packet":
            last.words.extend(one.words)
        else:
            together.append(one)
    return together
