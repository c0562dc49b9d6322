"""printf: a format and its arguments as text, as C's printf makes it, for kernels that print.

In       a format, something that hands out arguments one by one
Out      the text
Next     hcq/amd/printf.py (a message of HIP), hcq/emu/nv/shader/device_runtime.py (vprintf of CUDA)
Source   C11, 7.21.6.1
"""

from __future__ import annotations

import math
import re
import struct
from typing import Protocol

MAX_WIDTH = 4096
_SPEC = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L|v\d+\w*)?([a-zA-Z%])")
_BITS = {"hh": 8, "h": 16, "": 32}  # others 64


class Arguments(Protocol):
    """The arguments behind a format, from the first on."""

    def number(self, size_bytes: int) -> int:
        """The bits of the next one, which has 4 or 8 bytes where it is passed as C passes it."""

    def text(self) -> str:
        """The next one, a string."""


def formatted(form: str, values: Arguments) -> str:
    """The text of a format."""
    return _SPEC.sub(lambda found: _converted(found, values), form)


def _converted(found: re.Match[str], values: Arguments) -> str:
    flags, wide, fine, length, kind = found[1], found[2], found[3], found[4] or "", found[5]
    if kind == "%":
        return "%"
    width = _signed(values.number(4), 32) if wide == "*" else int((wide or "0")[:9])
    if width < 0:
        flags, width = flags + "-", -width
    precision = (
        None if fine is None else _signed(values.number(4), 32) if fine == "*" else int((fine or "0")[:9])
    )
    if precision is not None and precision < 0:
        precision = None
    width, precision = min(width, MAX_WIDTH), None if precision is None else min(precision, MAX_WIDTH)
    if kind == "s":
        text = values.text()
        return _padded(text if precision is None else text[:precision], flags, width)
    if kind == "c":
        return _padded(chr(values.number(4) & 0xFF), flags, width)
    if kind == "n":
        values.number(8)
        return ""
    if kind in "diuoxX":
        bits = _BITS.get(length, 64)
        return _integer(values.number(max(bits // 8, 4)), flags, width, precision, bits, kind)
    if kind == "p":
        number = values.number(8)
        return _padded(f"{number:#x}" if number else "(nil)", flags, width)
    if kind in "eEfFgGaA":
        (value,) = struct.unpack("<d", struct.pack("<Q", values.number(8)))
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
