"""Checks: argument checks for public calls, with the same error messages on every kind of device.

In       the names of a call and of its argument, and the value that was passed
Out      the value in its plain form; or a UsageError that names call, argument and the values that it accepts
Next     queue.py, memory.py, signal.py, device.py (the callers), frontend/ops/arguments.py (the same for tensors)

Hot paths call these only after a plain type test has failed, so a correct call pays next to nothing.
"""

from __future__ import annotations

import operator
import re
import reprlib
from collections.abc import Sequence
from typing import Any

from hcq.errors import UsageError

SHOWN = 80  # characters of a value in a message
MAX_TIMEOUT_MS = 1 << 40  # 35 years
U64 = 2**64 - 1


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BRIEFLY = reprlib.Repr()  # of lists of lists of lists: one that is in itself many times has no end
_BRIEFLY.maxlevel = 3
_BRIEFLY.maxlist = _BRIEFLY.maxtuple = _BRIEFLY.maxdict = _BRIEFLY.maxset = _BRIEFLY.maxfrozenset = SHOWN // 2
_BRIEFLY.maxstring = _BRIEFLY.maxother = _BRIEFLY.maxlong = 2 * SHOWN


def shown(value: object) -> str:
    """A value as a message shows it: bounded, also in what it costs, and never an error of its own."""
    try:
        text = _BRIEFLY.repr(value) if isinstance(value, (list, tuple, dict, set, frozenset)) else repr(value)
    except Exception:  # a repr of the caller's, or an int of more digits than Python prints
        return f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def printable(text: str) -> str:
    """Text, of many lines perhaps, in which nothing can drive a terminal: names come out of strangers' files."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def is_whole(value: object) -> bool:
    """True for an int and for the integers of other libraries; not for True and False."""
    if isinstance(value, (bool, type)) or hasattr(value, "__len__"):
        return False
    return hasattr(value, "__index__")


def is_null(value: Any) -> bool:
    """Whether a value is a null pointer, as programs write it: None, or an integer that is 0."""
    return value is None or (is_whole(value) and not value.__index__())


def whole(call: str, name: str, value: Any, low: int = 0, high: int = U64) -> int:
    """A whole number in a range, as an int. Raises UsageError, naming call and argument, for anything else."""
    if type(value) is not int:
        if not is_whole(value):
            raise _refuse(call, name, value, low, high)
        value = value.__index__()
    if not low <= value <= high:
        raise _refuse(call, name, value, low, high)
    return int(value)


def _refuse(call: str, name: str, value: object, low: int, high: int) -> UsageError:
    range_ = f"from {low} on" if high == U64 and not low else f"from {low} to {high}"
    return UsageError(f"{call}: {name}={shown(value)}; takes a whole number {range_}.")


def is_decimal(text: str) -> bool:
    """True for a number as people write it: ASCII digits, and no more of them than 64 bits can mean."""
    return text.isascii() and text.isdecimal() and len(text) < 19


def milliseconds(call: str, timeout_ms: Any) -> float:
    """A deadline; infinity is refused, for every wait ends."""
    is_number = hasattr(timeout_ms, "__float__") and not hasattr(timeout_ms, "__len__")
    is_number = is_number and not isinstance(timeout_ms, type)
    if isinstance(timeout_ms, bool) or not is_number or not 0 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise UsageError(
            f"{call}: timeout_ms={shown(timeout_ms)}; takes milliseconds, a number from 0 to {MAX_TIMEOUT_MS}, or None "
            "for HCQ_TIMEOUT_MS."
        )
    return float(timeout_ms)


def text(call: str, name: str, value: Any) -> str:
    """A string. Raises UsageError, naming call and argument, for anything else."""
    if not isinstance(value, str):
        raise UsageError(f"{call}: {name}={shown(value)}; takes a string.")
    return value


def words(call: str, name: str, value: Any) -> tuple[str, ...]:
    """Several strings. Raises UsageError, naming call and argument, for anything else, one string alone included."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise UsageError(f"{call}: {name}={shown(value)}; takes a sequence of strings.")
    return tuple(text(call, name, each) for each in value)


def memory(call: str, data: Any) -> memoryview:
    """What has bytes in contiguous memory, as a memoryview of bytes. Raises UsageError for anything else."""
    try:
        found = memoryview(data)
    except TypeError:
        raise UsageError(
            f"{call}: {shown(data)} has no bytes. Takes bytes, or an object with a buffer, such as an array."
        ) from None
    if not found.c_contiguous:
        raise UsageError(f"{call}: the data is not contiguous. Make a contiguous copy first.")
    return found


def sizes(call: str, name: str, value: Any, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    """Three whole numbers from 1 up to their limits: a grid, or a block. Raises UsageError for anything else."""
    if not isinstance(value, (str, bytes, bytearray, set, frozenset, dict)):
        try:
            x, y, z = map(operator.index, value)
        except (TypeError, ValueError):
            x = y = z = 0
        if 0 < x <= limits[0] and 0 < y <= limits[1] and 0 < z <= limits[2]:
            return x, y, z
    most = str(limits[0]) if len(set(limits)) == 1 else str(limits)
    raise UsageError(f"{call}: {name}={shown(value)}; takes three whole numbers from 1 to {most}.")
