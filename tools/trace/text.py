"""Text: one packet as a line that a person can change, and back.

In       a Packet; or a line
Out      "Fill opcode=FILL length=8 dst=0x1000"; or the packet
Next     edit.py (whole files), hcq/layout.py (what a packet is)
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any

from hcq.errors import UsageError
from hcq.layout import Packet

_PAIR = re.compile(r"(\w+)=(\[[^\]]*\]|\S+)")
MAX_ZEROS = 1 << 32


def line(packet: Packet, leave_out: Container[str] = ()) -> str:
    """A packet with its fields, reserved ones only when set; enum values by name, words after the fields as hex."""
    parts = [type(packet).__name__]
    for name, value in packet.values.items():
        if name not in leave_out and (value or not name.startswith("reserved")):
            parts.append(f"{name}={packet.fields[name].show(value)}")
    if packet.tail is not None and packet.tail_words:
        parts.append(f"{packet.tail}=[{' '.join(f'{word:08x}' for word in packet.tail_words)}]")
    for index, value in packet.unclaimed.items():
        parts.append(f"unclaimed_word_{index}={value:#x}")
    return " ".join(parts)


def parse(text: str, known: Mapping[str, type[Packet]]) -> Packet:
    """The packet of a line. Raises UsageError saying what cannot be read."""
    name, found, tail = values(text, known)
    layout = known[name]
    unclaimed = {
        int(key[15:]): found.pop(key) for key in [*found] if re.fullmatch(r"unclaimed_word_\d+", key)
    }
    if layout.tail is not None:
        found[layout.tail] = tail
    packet = layout(**found)
    for index, value in unclaimed.items():
        if index >= layout.length_words or not 0 <= value < 2**32:
            raise UsageError(
                f"{name}: unclaimed_word_{index}={value:#x} is beyond its {layout.length_words} words."
            )
    packet.unclaimed = unclaimed
    return packet


def values(text: str, known: Mapping[str, type[Packet]]) -> tuple[str, dict[str, Any], tuple[int, ...]]:
    """Name, fields and words after the fields of a line."""
    name, _, rest = text.partition(" ")
    if name not in known:
        raise UsageError(f"there is no layout {name!r} here. Known: {', '.join(known) or 'none'}.")
    layout = known[name]
    found: dict[str, Any] = {}
    tail: tuple[int, ...] = ()
    for key, value in pairs(rest):
        field = layout.fields.get(key)
        if field is not None and field.enum is not None and value in field.enum.__members__:
            found[key] = field.enum[value]
        elif field is None and key == layout.tail:
            tail = tuple(int(word, 16) for word in value.strip("[]").split())
        elif field is None and not key.startswith("unclaimed_word_"):
            raise UsageError(f"{name} has no field {key!r}. Its fields: {', '.join(layout.fields)}.")
        else:
            found[key] = number(value)
    return name, found, tail


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Every key=value of a line. Raises UsageError at what is neither."""
    at = 0
    for match in _PAIR.finditer(text):
        if text[at : match.start()].strip():
            break
        yield match[1], match[2]
        at = match.end()
    if text[at:].strip():
        raise UsageError(f"{text[at:].strip()[:40]!r} is not key=value.")


def number(text: str) -> int:
    """A number, decimal or 0x."""
    try:
        return int(text, 0)
    except ValueError:
        raise UsageError(f"{text!r} is no number. Write 18 or 0x12.") from None


def count(text: str) -> int:
    """A number of bytes that a machine can hold."""
    found = number(text)
    if not 0 <= found < MAX_ZEROS:
        raise UsageError(f"zeros {text}: takes 0 to {MAX_ZEROS - 1} bytes.")
    return found


def comment(text: str) -> str:
    """Text that stays on its line."""
    return " ".join(text.split())


def without_comment(text: str) -> str:
    """A line without what follows " #"."""
    return text.partition(" #")[0].strip()
