"""Seen: what records of a trace mean apart from submissions: devices, code, signals, contents, spans.

In       the fields of records
Out      an object for each, with the number of the record that it is from
Next     file.py (who makes them), submission.py (what was submitted), records.py (the bytes)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hcq import backends
from hcq.errors import UsageError
from hcq.events import ranks
from hcq.events.named_spans import Span, Work
from hcq.layout import Packet
from hcq.trace.records import Why

MAX_WORK = 1 << 20  # submissions of one span: more is a number that no program meant


@dataclass(eq=False)
class TraceDevice:
    """A device of a process of the trace. `key` names it among all devices of the file."""

    key: str
    name: str  # "CPU", as the program opened it
    kind: str  # "CPU", the part before the colon
    arch: str
    process: int
    number: int
    facts: dict[str, Any]
    opened: int  # record indices
    closed: int | None = None

    def decode(self, words: Sequence[int], queue: str = "") -> list[Packet]:
        """Words as the packets of this device. Never raises for words; UsageError for a kind that is unknown here.

        queue  whose words they are, where that says what packets they may be
        """
        backend = backends.find(self.kind)
        if backend is None:
            raise UsageError(
                f"{self.name}: this version decodes {', '.join(backends.names())}, not {self.kind}. "
                f"Read the trace with a newer one, or where the package with the {self.kind} device is installed."
            )
        return backend.decode(words, self.arch, queue)

    def __repr__(self) -> str:
        return f"TraceDevice({self.key}, {self.arch})"


@dataclass(eq=False)
class Code:
    """A loaded program: its object, where its entry was, and from which record to which."""

    device: TraceDevice
    name: str
    entry: str
    va: int
    args: tuple[str, ...] | None
    scratch_bytes: int
    image: bytes = field(repr=False)
    loaded: int
    unloaded: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SignalSeen:
    """The host saw a signal's value after a wait, or set it. Times are nanoseconds of time.monotonic_ns."""

    record: int
    device: TraceDevice
    time_ns: int
    va: int
    value: int
    timestamp_ns: int
    is_set: bool


@dataclass(frozen=True)
class Contents:
    """Bytes of memory, written down before a use, after the host wrote, or as the host read them."""

    record: int
    device: TraceDevice
    why: Why
    va: int
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class ResultSeen:
    """A digest of what submission `value` left in a buffer."""

    record: int
    device: TraceDevice
    va: int
    size_bytes: int
    value: int
    digest: bytes


@dataclass(frozen=True)
class PlaceSeen:
    """Which rank a process was from this moment on, and how its clock stood to rank 0's."""

    record: int
    process: int
    time_ns: int
    place: ranks.Place


@dataclass(frozen=True)
class SpanSeen:
    """A stretch of time that the program gave a name, reported to the observers of a device.

    work  the first and the last of the submissions that it is as long as, where it is
    """

    record: int
    device: TraceDevice
    span: Span
    work: tuple[int, int] | None = None


def work_of(fields: dict[str, Any]) -> Work:
    """A span as long as submissions. Raises ValueError where these are in no order."""
    first, last = int(fields["first"]), int(fields["last"])
    if not 0 <= last - first < MAX_WORK:
        raise ValueError("its submissions are in no order")
    size = int(fields["size_bytes"])
    return Work(str(fields["name"]), first, last, size, _peers(fields), str(fields["lane"]))


def _peers(fields: dict[str, Any]) -> tuple[int | str, ...]:
    return tuple(peer if isinstance(peer, int) else str(peer) for peer in fields["peers"])


def span_of(fields: dict[str, Any]) -> Span:
    """A span of times. Raises ValueError where it ends before it starts."""
    peers = _peers(fields)
    times = int(fields["started_ns"]), int(fields["ended_ns"])
    if times[1] < times[0]:
        raise ValueError("it ends before it starts")
    return Span(str(fields["name"]), *times, int(fields["size_bytes"]), peers, str(fields["lane"]))
