"""PTX text to words, each with its line.

In       PTX text
Out      Word(text, line, place) in order; comments are gone
Next     parser.py
Source   PTX ISA, "Lexical elements", "Numeric Constants"
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from hcq.emu.nv.shader.errors import PtxError
from hcq.emu.nv.shader.syntax import Immediate
from hcq.emu.nv.shader.types import Type

_WORDS = re.compile(
    r"""
    (?P<newline>\n)
  | (?P<space>[ \t\r\f\v\0]+)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<word>
        "(?:[^"\\\n]|\\.)*"                                     # a string
      | 0[fF][0-9a-fA-F]{8}(?![0-9a-zA-Z_]) | 0[dD][0-9a-fA-F]{16}(?![0-9a-zA-Z_])
      | \d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+             # decimal floats
      | (?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?(?![0-9a-zA-Z_])
      | \.[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*                     # .directive, .modifier, .shared::cta
      | [A-Za-z_$%][A-Za-z0-9_$%]*
      | <<|>>|[{}()\[\],;:@!|<>=+\-*/~&]
    )
    """,
    re.VERBOSE | re.DOTALL,
)


class Word(NamedTuple):
    """A token of PTX, with the line it stands in."""

    text: str
    line: int
    at: int  # where in the file it starts


def words(text: str) -> list[Word]:
    """All words of a PTX file. Raises PtxError at a character that begins none."""
    found: list[Word] = []
    line, at = 1, 0
    while at < len(text):
        match = _WORDS.match(text, at)
        if match is None:
            raise PtxError(line, f"the character {text[at]!r} begins no word of PTX. Is this PTX text?")
        at = match.end()
        if match.lastgroup == "word":
            found.append(Word(match.group(), line, match.start()))
        elif match.lastgroup != "space":
            line += match.group().count("\n")
    return found


MAX_DIGITS = 400  # of a number: a float written out


def number(text: str) -> Immediate | None:
    """The value of a numeric word, or None when it is not one. Floats come as their bits. Raises ValueError."""
    if not text[:1].isdigit():
        return None
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    if text[:2] in ("0f", "0F"):
        return Immediate(int(text[2:], 16), 4)
    if text[:2] in ("0d", "0D"):
        return Immediate(int(text[2:], 16), 8)
    if "." in text or ("e" in text.lower() and text[:2] not in ("0x", "0X")):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 8)
    digits = text.rstrip("U")
    if digits[:2] in ("0x", "0X"):
        return Immediate(int(digits, 16))
    if digits[:2] in ("0b", "0B"):
        return Immediate(int(digits, 2))
    if len(digits) > 1 and digits[0] == "0":
        return Immediate(int(digits, 8))
    return Immediate(int(digits))


def negated(value: Immediate) -> Immediate:
    """The number with a minus before it."""
    if value.float_bytes:
        return Immediate(value.value ^ 1 << (8 * value.float_bytes - 1), value.float_bytes)
    return Immediate(-value.value)


def low_zeros(value: int) -> int:
    """How many of the lowest bits are 0."""
    return (value & -value).bit_length() - 1


def pack(value: Immediate, type_: Type) -> bytes:
    """The bytes of one initial value in a variable of this type."""
    if value.float_bytes and type_.name in ("f32", "f64"):
        number: float
        if value.float_bytes == 4:
            number = struct.unpack("<f", value.value.to_bytes(4, "little"))[0]
        else:
            number = struct.unpack("<d", value.value.to_bytes(8, "little"))[0]
        return struct.pack("<f" if type_.size_bytes == 4 else "<d", number)
    return (value.value % (1 << type_.width)).to_bytes(type_.size_bytes, "little")
