"""Clocks: how the times of several trace files stand to each other, and how a moment of one becomes one of all.

In       the records of each file: PROCESS (which clock), PLACE (how it stands to rank 0's); offsets given by hand; of
         a device CLOCK (how it stands to the host's)
Out      for each file its clocks, each with a Move; for a device what its moments are corrected by
Next     join.py (who moves the records), hcq/events/ranks.py (what a clock's name is)
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hcq.trace.frames import Record
from hcq.trace.records import Kind

BEYOND_NS = 3_600_000_000_000


@dataclass(frozen=True)
class Move:
    """How a moment of one clock becomes one of another.

    points   (moment, what to add), in the order of time: straight between two, as at the end beyond the first and last
    """

    points: tuple[tuple[int, int], ...] = ((0, 0),)

    def __call__(self, time_ns: int) -> int:
        points = self.points
        at = bisect.bisect_right(points, time_ns, key=lambda point: point[0])
        if at == 0 or at == len(points):
            return time_ns + points[max(at - 1, 0)][1]
        (left, low), (right, high) = points[at - 1], points[at]
        return time_ns + low + (high - low) * (time_ns - left) // (right - left)

    @property
    def is_none(self) -> bool:
        """Whether it moves nothing."""
        return all(not offset for _, offset in self.points)


@dataclass(frozen=True)
class DeviceClock:
    """How a device's clock stood to the host's while it was open.

    drift_ppm      how much faster it goes, parts per million
    error_ns       how far off a corrected moment may be, to either side
    correction     what to add to a moment; None where the two agree as far as they could be compared
    """

    drift_ppm: float
    error_ns: int
    correction: Move | None


def device_clock(compared: Sequence[tuple[int, int, int]]) -> DeviceClock | None:
    """From moments on the device's clock and the host's, and how far off each may be. None for fewer than two."""
    compared = sorted(
        {device_ns: (device_ns, host_ns, error) for device_ns, host_ns, error in compared}.values()
    )
    if len(compared) < 2:
        return None
    error = max(error for _, _, error in compared)
    points = [(device_ns, host_ns - device_ns) for device_ns, host_ns, _ in compared]
    (first, low), (last, high) = points[0], points[-1]
    elapsed = last + high - first - low
    drift = (last - first) / elapsed - 1 if elapsed else 0.0
    if all(abs(offset) <= error for _, offset in points):
        return DeviceClock(1e6 * drift, error, None)
    (left, before), (right, after) = points[-2:]  # what came after the last time went on as it had gone
    beyond = right + BEYOND_NS
    points.append((beyond, after + (after - before) * BEYOND_NS // (right - left)))
    return DeviceClock(1e6 * drift, error, Move(tuple(points)))


@dataclass
class Clock:
    """One clock of one file.

    processes   that read it
    how         "same" (as the reference), "place", "hand", or "" where nothing is known
    error_ns    how far off a moved moment may be, to either side; None where nothing is known
    """

    processes: list[int]
    joined_name: str | None
    move: Move
    how: str
    error_ns: int | None = 0
    unix_ns: int | None = None  # what the times of day say is to be added

    @property
    def is_aligned(self) -> bool:
        """Whether its moments can be compared with those of the reference."""
        return bool(self.how)

    def said(self, name: str, first: int) -> dict[str, Any]:
        """The same as the fields of a JOINED record. `text` is for people."""
        offset = self.move(first) - first
        return {
            "how": self.how,
            "aligned": self.is_aligned,
            "offset_ns": offset,
            "error_ns": self.error_ns,
            "text": self._text(name, offset),
        }

    def _text(self, name: str, offset: int) -> str:
        if self.how == "same":
            return f"{name}: the same clock, not moved."
        if self.how == "hand":
            return f"{name}: moved by {offset} ns, given by hand."
        if self.how == "place":
            points = self.move.points
            span = points[-1][0] - points[0][0]
            drift = (
                f", and its clock drifts by {1e6 * (points[-1][1] - points[0][1]) / span:.1f} ppm"
                if span
                else ""
            )
            return f"{name}: moved by {offset} ns to the clock of rank 0, give or take {self.error_ns} ns{drift}."
        guess = (
            "" if self.unix_ns is None else f" Their times of day would say --offset {name}={self.unix_ns}."
        )
        return (
            f"{name}: not aligned. It was written on another machine or after another start of it, and no rank said how"
            f" their clocks stand (hcq.events.ranks.Place); it is shown from where the others begin.{guess}"
        )


def clocks_of(
    files: Sequence[tuple[str, Sequence[Record]]], offsets: Mapping[str, int]
) -> dict[str, list[Clock]]:
    """The clocks of each file. The reference is rank 0's, or else that of the first file."""
    names = {name: _names(name, records) for name, records in files}
    known = [names[name][process] for name, _ in files for process in names[name]]
    places = _places(files, names)
    zero = [clock for clock, (rank, _, _) in places.items() if rank == 0]
    reference = zero[0] if zero else None if places else known[0] if known else None
    start = min((_first(records) + offsets.get(name, 0) for name, records in files
                 if name in offsets or reference in names[name].values()), default=None)  # fmt: skip
    if start is None:  # nothing of rank 0: where those begin whose place is known
        start = min((_move(places[clock][2])(_first(records)) for name, records in files
                     for clock in names[name].values() if clock in places), default=0)  # fmt: skip
    wall = next((_wall(records) for name, records in files if reference in names[name].values()), None)
    joined = reference or "rank 0"
    found: dict[str, list[Clock]] = {}
    for name, records in files:
        groups: dict[str, list[int]] = {}
        for process, clock in names[name].items():
            groups.setdefault(clock, []).append(process)
        for clock, processes in groups.items():
            if name in offsets:
                made = Clock(processes, joined, Move(((0, offsets[name]),)), "hand")
            elif clock == reference:
                made = Clock(processes, clock if clock[:1] != "/" else None, Move(), "same")
            elif clock in places:
                _, error, points = places[clock]
                made = Clock(processes, joined, _move(points), "place", error)
            else:
                mine = _wall(records)
                guess = mine - wall if mine is not None and wall is not None else None
                move = Move(((0, start - _first(records)),))
                made = Clock(processes, None, move, "", None, guess)
            found.setdefault(name, []).append(made)
    return found


def _names(name: str, records: Sequence[Record]) -> dict[int, str]:
    """The clock of each process of a file; one that nobody named is the file's own, and begins with a slash."""
    said = {r.process: r.fields.get("clock") for r in records if r.kind == Kind.PROCESS}
    return {
        process: str(said.get(process) or f"/{name}")
        for process in dict.fromkeys(record.process for record in records)
    }


Points = list[tuple[int, int]]


def _places(
    files: Sequence[tuple[str, Sequence[Record]]], names: Mapping[str, Mapping[int, str]]
) -> dict[str, tuple[int, int, Points]]:
    """Clock -> rank, error, and offsets by moment: those of the rank that knows it best; rank 0 before others."""
    found: dict[str, tuple[int, int, Points]] = {}
    for name, records in files:
        own: dict[int, list[Record]] = {}
        for record in records:
            if record.kind == Kind.PLACE:
                own.setdefault(record.process, []).append(record)
        for process, said in own.items():
            points = [(r.time_ns, int(r.fields["offset_ns"])) for r in said]
            error = max(int(r.fields["error_ns"]) for r in said)
            rank = int(said[0].fields["rank"])
            clock = names[name][process]
            before = found.get(clock)
            if before is None or (rank != 0, error, rank) < (before[0] != 0, before[1], before[0]):
                found[clock] = rank, error, points
    return found


def _move(points: Points) -> Move:
    """Through these points; of two at one moment the later."""
    return Move(tuple(sorted(dict(points).items())))


def _first(records: Sequence[Record]) -> int:
    return min((record.time_ns for record in records), default=0)


def _wall(records: Sequence[Record]) -> int | None:
    """What the time of day is ahead of this file's clock."""
    for record in records:
        fields = record.fields
        if (
            record.kind == Kind.PROCESS
            and isinstance(fields.get("unix_ns"), int)
            and "monotonic_ns" in fields
        ):
            return int(fields["unix_ns"]) - int(fields["monotonic_ns"])
    return None
