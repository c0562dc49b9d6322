"""Packets that emulated processors do, in order: a log to look at, and what points at packets stop at.

In       packets, before they are done
Out      PacketLog: the latest ones; whether a point names one
Changes  itself
Next     session.py (who has one), points.py (Point), hcq/layout.py (Packet)
"""

from __future__ import annotations

import difflib
import fnmatch
import operator
import re
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from hcq import backends
from hcq.debug.arguments import number_of
from hcq.debug.points import Point
from hcq.errors import UsageError

COMPARISON = re.compile(r"(\w+)(==|!=|<=|>=|=|<|>)(\w+)")
OPERATORS = {"=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
             ">": operator.gt, ">=": operator.ge}  # fmt: skip

KEPT = 4096


class Logged(NamedTuple):
    """One packet. launch: the number of the launch that it began; 0: none."""

    number: int
    vendor: str
    text: str
    launch: int


class FieldTest(NamedTuple):
    """A comparison of a packet's field with a number, or with the name of a value."""

    field: str
    operator: str
    value: int | str

    @classmethod
    def read(cls, text: str) -> FieldTest:
        """From text such as `dim_x>4` or `operation=RELEASE`. Raises UsageError."""
        found = COMPARISON.fullmatch(text)
        if found is None:
            raise UsageError(
                f"{text!r} compares no field. Say FIELD=VALUE; also !=, <, <=, >, >=, without blanks: dim_x>=4."
            )
        value = found[3] if found[3][0].isalpha() else number_of(found[3])
        if isinstance(value, str) and found[2] not in ("=", "==", "!="):
            raise UsageError(f"{text!r}: a name is compared by = or != alone.")
        return cls(found[1], found[2], value)

    def holds(self, packet: Any) -> bool:
        """Of a packet; of one that has no such field nothing holds."""
        value = getattr(packet, self.field, None)
        if value is None:
            return False
        if isinstance(self.value, str):
            name = getattr(value, "name", value)
            return bool(OPERATORS[self.operator](str(name).lower(), self.value.lower()))
        return bool(OPERATORS[self.operator](value, self.value))


class PacketLog:
    """The latest packets, numbered from 1."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting = "", ""
        self.latest: deque[Logged] = deque(maxlen=KEPT)

    def add(self, vendor: str, packet: Any) -> int:
        """One that is about to be done. Returns its number; 0 for one that waits, and was here before."""
        text = repr(packet)
        if vendor == "sdma" and (vendor, text) == self._waiting:
            return 0
        self._waiting = vendor, text
        self.count += 1
        self.latest.append(Logged(self.count, vendor, text, 0))
        return self.count

    def launched(self, number: int) -> None:
        """The latest packet began a launch."""
        if self.latest:
            self.latest.append(self.latest.pop()._replace(launch=number))

    def of_launch(self, number: int) -> str:
        """The packet that began a launch, in words; "" where that is not known."""
        return next(
            (f"packet {one.number}: {one.text}" for one in reversed(self.latest) if one.launch == number), ""
        )

    def stops(self, point: Point, packet: Any) -> bool:
        """Whether a point names this packet, which was added last."""
        return _is_called(type(packet), point.what.split()[0]) and all(
            one.holds(packet) for one in point.fields
        )


def _names(kind: type) -> list[str]:
    """What a type of packet is called: in Python, and as its vendor spells it."""
    return list(dict.fromkeys([getattr(kind, "vendor", kind.__name__), kind.__name__]))


def _is_called(kind: type, pattern: str) -> bool:
    return any(fnmatch.fnmatch(name.lower(), pattern.lower()) for name in _names(kind))


def checked(pattern: str, fields: Iterable[FieldTest], emulated: Iterable[str]) -> None:
    """Raises UsageError where no packet of the emulated GPUs (words of HCQ_EMULATE) has such a type, or such fields."""
    devices = sorted({word.partition(":")[0].upper() for word in emulated})
    known = [one for device in devices for one in backends.of(device).packets()]
    named = [one for one in known if _is_called(one, pattern)]
    if known and not named:
        letters = re.sub(r"\W|_", "", pattern.lower())
        near = [_names(one)[0] for one in known if letters in one.__name__.lower()][:6]
        near = near or difflib.get_close_matches(pattern, [_names(one)[0] for one in known], 6)
        hint = f" Is it {' or '.join(near)}?" if near else " `packets` lists the latest ones."
        raise UsageError(f"no packet of {', '.join(devices)} is called {pattern!r}.{hint}")
    for one in fields if known else ():
        if not any(one.field in packet.fields or not packet.fields or packet.tail for packet in named):
            has = sorted({field for packet in named for field in packet.fields})
            raise UsageError(f"no packet {pattern} has a field {one.field!r}. Fields: {', '.join(has)}.")
