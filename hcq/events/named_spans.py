"""Named spans: periods of time with a name, such as a collective operation, which traces show beside device work.

In       a device, and something that takes time on the host or on several devices
Out      `Span`; `during(device, ...)` around a piece of code; `report(device, span)` afterwards;
         `submitted(device, work)` for work that the device does by itself
Changes  nothing; observers of the device are notified. Without observers it costs one test
Next     observer.py (Observer.span), observe/trace.py (writes them down), ranks.py, docs/trace.md (how they are shown)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

_clock = time.monotonic_ns


class Span(NamedTuple):
    """What was done between two moments of time.monotonic_ns. Whatever has peers is communication.

    name         what it is, such as "all_reduce"; the same work has the same name on every rank
    size_bytes   of the data that this side has, whatever the algorithm moves
    peers        with whom: the numbers of ranks, or names of devices; its own may be among them
    lane         spans that may overlap each other go into lanes of different names
    """

    name: str
    started_ns: int
    ended_ns: int
    size_bytes: int = 0
    peers: tuple[int | str, ...] = ()
    lane: str = "communication"


class Work(NamedTuple):
    """A span that lasts as long as certain submissions of a device do, which nobody has to wait for.

    first, last  timeline values: from when the device begins the first until it has done the last
    others       as of Span; with peers, these submissions are communication, whatever they run
    """

    name: str
    first: int
    last: int
    size_bytes: int = 0
    peers: tuple[int | str, ...] = ()
    lane: str = "communication"


class Hears(Protocol):
    """What an observer does with a span."""

    def span(self, span: Span) -> None:
        """It is over."""

    def span_of_work(self, work: Work) -> None:
        """It is submitted."""


class Watched(Protocol):
    """What a device has to do with spans."""

    @property
    def observers(self) -> Sequence[Hears]:
        """Who is told."""


def report(device: Watched, span: Span) -> None:
    """Tell the observers of a device of a span that is over."""
    for each in device.observers:
        each.span(span)


def submitted(device: Watched, work: Work) -> None:
    """Tell the observers of a device what submissions of it are together."""
    for each in device.observers:
        each.span_of_work(work)


@contextmanager
def during(
    device: Watched,
    name: str,
    size_bytes: int = 0,
    peers: Sequence[int | str] = (),
    lane: str = "communication",
) -> Iterator[None]:
    """Report the body of a `with` as a span of a device; also when it ends by an error."""
    if not device.observers:
        yield
        return
    started = _clock()
    try:
        yield
    finally:
        report(device, Span(name, started, _clock(), size_bytes, tuple(peers), lane))
