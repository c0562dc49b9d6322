"""Packets that emulated processors do, in order: a log to look at, and what points at packets stop at.

In       packets, before they are done
Out      PacketLog: the latest ones; whether a point names one
Changes  itself
Next     session.py (who has one), points.py (Point), packet_fields.py (comparisons of fields), hcq/layout.py (Packet)
"""

from __future__ import annotations

import fnmatch
from collections import deque
from typing import Any, NamedTuple

from hcq.debug.points import Point

KEPT = 4096


class Logged(NamedTuple):
    """One packet. launch: the number of the launch that it began; 0: none."""

    number: int
    vendor: str
    text: str
    launch: int


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
        return is_called(type(packet), point.what.split()[0]) and all(
            one.holds(packet) for one in point.fields
        )


def names_of(kind: type) -> list[str]:
    """What a type of packet is called: in Python, and as its vendor spells it."""
    return list(dict.fromkeys([getattr(kind, "vendor", kind.__name__), kind.__name__]))


def is_called(kind: type, pattern: str) -> bool:
    """Whether a pattern, such as `dispatch*`, is the name of a type of packet."""
    return any(fnmatch.fnmatch(name.lower(), pattern.lower()) for name in names_of(kind))
