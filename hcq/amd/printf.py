"""printf: the text of a message that a kernel has sent, as C's printf makes it.

In       64-bit words: what stream, a format, arguments
Out      the stream and the text
Next     hostcall.py (who collects messages)
Source   ROCm Device Libraries: ockl, services (a message's form); C11, 7.21.6.1

Strings, the format among them, end with a zero and fill whole words; every other argument is one word.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence

IS_STDERR = 1  # of the first word
MAX_WIDTH = 4096
_SPEC = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L|v\d+\w*)?([a-zA-Z%])")
_BITS = {"hh": 8, "h": 16, "": 32}  # others 64


class _Words:
    """The words of a message, from the first on; behind the last there are zeros."""

    def __init__(self, words: Sequence[int]) -> None:
        self.data = struct.pack(f"<{len(words)}Q", *words)
        self.at = 0

    def number(self) -> int:
        piece = self.data[self.at : self.at + 8]
        self.at += 8
        return int.from_bytes(piece, "little")

    def text(self) -> str:
        end = self.data.find(b"\0", self.at)
        end = len(self.data) if end < 0 else end
        found = self.data[self.at : end]
        self.at = (end // 8 + 1) * 8
        return found.decode("utf-8", "replace")


def text_of(words: Sequence[int]) -> tuple[bool, str]:
    """(whether it is for stderr, the text) of a whole message."""
    message = _Words(words)
    is_error = bool(message.number() & IS_STDERR)
    form = message.text()
    return is_error, _SPEC.sub(lambda found: _converted(found, message), form)


def _converted(found: re.Match[str], message: _Words) -> str:
    flags, wide, fine, length, kind = found[1], found[2], found[3], found[4] or "", found[5]
    if kind == "%":
        return "%"
    width = _signed(message.number(), 32) if wide == "*" else int((wide or "0")[:9])
    if width < 0:
        flags, width = flags + "-", -width
    precision = (
        None if fine is None else _signed(message.number(), 32) if fine == "*" else int((fine or "0")[:9])
    )
    if precision is not None and precision < 0:
        precision = None
    width, precision = min(width, MAX_WIDTH), None if precision is None else min(precision, MAX_WIDTH)
    if kind == "s":
        text = message.text()
        return _padded(text if precision is None else text[:precision], flags, width)
    if kind == "c":
        return _padded(chr(message.number() & 0xFF), flags, width)
    if kind == "n":
        message.number()
        return ""
    if kind in "diuoxX":
        return _integer(message.number(), flags, width, precision, _BITS.get(length, 64), kind)
    if kind == "p":
        number = message.number()
        return _padded(f"{number:#x}" if number else "(nil)", flags, width)
    if kind in "eEfFgGaA":
        (value,) = struct.unpack("<d", struct.pack("<Q", message.number()))
        return _float(value, flags, width, precision, kind)
    return found[0]


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> bits - 1 else number


def _padded(text: str, flags: str, width: int) -> str:
    return text.ljust(width) if "-" in flags else text.rjust(width)


def _sign(flags: str) -> str:
    return "+" if "+" in flags else " " if " " in flags else ""


def _integer(number: int, flags: str, width: int, precision: int | None, bits: int, kind: str) -> str:
    is_signed = kind in "di"
    value = _signed(number, bits) if is_signed else number & (1 << bits) - 1
    digits = format(abs(value), {"o": "o", "x": "x", "X": "X"}.get(kind, "d"))
    if precision is not None:
        digits = "" if value == 0 and precision == 0 else digits.rjust(precision, "0")
    before = "-" if value < 0 else _sign(flags) if is_signed else ""
    if "#" in flags and value and kind in "xX":
        before = f"0{kind}"
    if "#" in flags and kind == "o" and not digits.startswith("0"):
        digits = "0" + digits
    if "0" in flags and "-" not in flags and precision is None:
        digits = digits.rjust(width - len(before), "0")
    return _padded(before + digits, flags, width)


def _float(value: float, flags: str, width: int, precision: int | None, kind: str) -> str:
    before = "-" if math.copysign(1, value) < 0 else _sign(flags)
    size = abs(value)
    if not math.isfinite(value):
        text = "nan" if math.isnan(value) else "inf"
        return _padded(before + (text.upper() if kind.isupper() else text), flags, width)
    if kind in "aA":
        digits = _hexadecimal(size, precision)
        if "#" in flags and "." not in digits:
            digits = digits.replace("p", ".p")
        digits = digits.upper() if kind == "A" else digits
        before, digits = before + digits[:2], digits[2:]
    else:
        alternative = "#" if "#" in flags else ""
        digits = format(size, f"{alternative}.{6 if precision is None else precision}{kind}")
    if "0" in flags and "-" not in flags:
        digits = digits.rjust(width - len(before), "0")
    return _padded(before + digits, flags, width)


def _hexadecimal(value: float, precision: int | None) -> str:
    """%a of a finite number that is not negative."""
    if not value:
        return "0x0" + ("." + "0" * precision if precision else "") + "p+0"
    exponent = max(math.frexp(value)[1] - 1, -1022)
    scaled = int(math.ldexp(value, 52 - exponent))  # 52 bits behind the point
    places = 13 if precision is None else min(precision, 13)
    drop = 52 - 4 * places
    half = 1 << drop >> 1
    rest = scaled & (1 << drop) - 1
    scaled >>= drop
    if drop and (rest > half or (rest == half and scaled & 1)):
        scaled += 1
    fraction = format(scaled & (1 << 4 * places) - 1, f"0{places}x") if places else ""
    if precision is None:
        fraction = fraction.rstrip("0")
    else:
        fraction = fraction.ljust(precision, "0")
    return f"0x{scaled >> 4 * places:x}{'.' if fraction else ''}{fraction}p{exponent:+d}"
