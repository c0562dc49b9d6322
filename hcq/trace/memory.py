"""Trace memory: what was where at one moment, and what a recorded block held when a submission ran it.

In       ranges and block records, put in order by file.py
Out      MemoryHistory: a MemoryMap at any moment, whose `find` says what an address is; BlockHistory: words
         and commands of a block at any moment
Changes  nothing outside itself
Next     file.py (who fills these)
"""

from __future__ import annotations

import bisect
import math
import struct
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Place:
    """What lies at an address: `state` is live, freed, mapped (no buffer there), unmapped, or unknown."""

    state: str
    name: str
    start: int
    size_bytes: int
    offset: int

    def __str__(self) -> str:
        text = self.name if not self.offset else f"{self.name}+{self.offset:#x}"
        return text if self.state in ("live", "mapped") else f"{text} ({self.state})"


@dataclass(frozen=True)
class Range:
    """A buffer, a mapping or a block: [start, start + size_bytes)."""

    start: int
    size_bytes: int
    name: str
    state: str
    since: int  # record index
    device: str  # TraceDevice.key


class MemoryMap:
    """What was where at one moment, in one process. `ranges` are its buffers, `find` says what an address is."""

    def __init__(
        self, process: int, live: dict[int, Range], freed: dict[int, Range], mapped: dict[int, Range]
    ) -> None:
        self.process = process
        self.live = live
        self.freed = freed
        self.mapped = mapped
        self._sorted: list[tuple[list[int], dict[int, Range]]] | None = None

    @property
    def ranges(self) -> list[Range]:
        """Every live buffer, by address."""
        return [self.live[start] for start in sorted(self.live)]

    def find(self, va: int) -> Place:
        """A live buffer first, then a mapping that holds a freed one, then what was unmapped."""
        if self._sorted is None:
            self._sorted = [(sorted(table), table) for table in (self.live, self.freed, self.mapped)]
        for starts, table in self._sorted:
            at = bisect.bisect_right(starts, va) - 1
            if at >= 0:
                found = table[starts[at]]
                if va < found.start + max(found.size_bytes, 1):
                    return Place(found.state, found.name, found.start, found.size_bytes, va - found.start)
        return Place("unknown", f"{va:#x}", va, 0, 0)

    def neighbours(self, va: int) -> tuple[Range | None, Range | None]:
        """The live buffers that end before and begin after an address."""
        starts = sorted(self.live)
        at = bisect.bisect_right(starts, va)
        before = self.live[starts[at - 1]] if at else None
        after = self.live[starts[at]] if at < len(starts) else None
        return before, after


class MemoryHistory:
    """The buffers and mappings of one process over time. Asking for moments in order is cheap."""

    def __init__(self, process: int) -> None:
        self.process = process
        self._events: list[tuple[int, str, Range]] = []  # record, what happened, to which range
        self._last_alloc: dict[tuple[str, int], int] = {}  # device and address -> place in `_events`
        self._moment = 0  # how many of the events `_live`, `_freed` and `_mapped` have seen
        self._now: MemoryMap | None = None
        self._live: dict[int, Range] = {}
        self._freed: dict[int, Range] = {}
        self._mapped: dict[int, Range] = {}

    def add(self, what: str, span: Range) -> None:
        """An event ("alloc", "free", "map", "unmap") of the record `span.since`, which comes after all before it."""
        if what == "alloc":
            self._last_alloc[span.device, span.start] = len(self._events)
        self._events.append((span.since, what, span))

    def rename(self, device: str, va: int, name: str) -> int | None:
        """The buffer that was handed out there last is called something else for all of its life; its record."""
        at = self._last_alloc.get((device, va))
        if at is None:
            return None
        index, what, span = self._events[at]
        self._events[at] = index, what, replace(span, name=name)
        return index

    def before(self, record: int) -> MemoryMap:
        """What was where when a record was written."""
        wanted = bisect.bisect_left(self._events, record, key=lambda event: event[0])
        if wanted < self._moment:
            self._reset()
        if wanted > self._moment:
            for _, what, span in self._events[self._moment : wanted]:
                self._happen(what, span)
            self._moment = wanted
            self._now = None
        if self._now is None:
            self._now = MemoryMap(self.process, dict(self._live), dict(self._freed), dict(self._mapped))
        return self._now

    def _reset(self) -> None:
        self._moment, self._now = 0, None
        self._live, self._freed, self._mapped = {}, {}, {}

    def _happen(self, what: str, span: Range) -> None:
        if what == "alloc":
            self._live[span.start] = span
            self._freed.pop(span.start, None)
        elif what == "free":
            old = self._live.pop(span.start, None)
            if old is not None:
                self._freed[span.start] = replace(old, state="freed", since=span.since)
        elif what == "map":
            self._mapped[span.start] = span
        else:
            old = self._mapped.pop(span.start, None)
            if old is not None:
                self._mapped[span.start] = replace(old, state="unmapped", since=span.since)


@dataclass(frozen=True)
class BlockImage:
    """A block as it was when a submission ran it."""

    va: int
    label: str
    words: tuple[int, ...] = field(repr=False)
    commands: list[dict[str, Any]]


class BlockHistory:
    """One block's words and commands over time: a base, and the patches after it. The cursor mostly moves forward."""

    def __init__(self, record: int, label: str, words: bytes, commands: list[dict[str, Any]]) -> None:
        self.record = record
        self.label = label
        self.base = words
        self.base_commands = commands
        self.patches: list[tuple[int, list[tuple[int, ...]]]] = []  # record, entries
        self._at = 0
        self._words = bytearray(words)
        self._args: dict[tuple[int, int], tuple[int, int]] = {}

    def image(self, va: int, record: int) -> BlockImage:
        """The block as it was at the time of a record."""
        wanted = bisect.bisect_left(self.patches, record, key=lambda patch: patch[0])
        if wanted < self._at:
            self._at, self._words, self._args = 0, bytearray(self.base), {}
        for _, entries in self.patches[self._at : wanted]:
            for byte_offset, command, argument, letter, size_bytes, value in entries:
                data = _in_block(chr(letter & 0x7F), size_bytes or 8, value)
                if byte_offset + len(data) <= len(self._words):
                    self._words[byte_offset : byte_offset + len(data)] = data
                self._args[command, argument] = (letter, value)
        self._at = wanted
        commands = [dict(command) for command in self.base_commands]
        for (command, argument), (letter, value) in self._args.items():
            if command < len(commands) and argument < len(commands[command].get("args", ())):
                args = list(commands[command]["args"])
                args[argument] = _argument(chr(letter & 0x7F), value)
                commands[command]["args"] = args
        words = struct.unpack(f"<{len(self._words) // 4}I", bytes(self._words[: len(self._words) // 4 * 4]))
        return BlockImage(va, self.label, words, commands)


def _in_block(letter: str, size_bytes: int, value: int) -> bytes:
    """What a replay wrote into its block for an argument."""
    if letter == "f" and size_bytes in (2, 4):
        (number,) = struct.unpack("<d", struct.pack("<Q", value))
        try:
            return struct.pack("<f" if size_bytes == 4 else "<e", number)
        except OverflowError:
            return struct.pack("<f" if size_bytes == 4 else "<e", math.copysign(math.inf, number))
    return (value & (1 << 64) - 1).to_bytes(8, "little")[: min(size_bytes, 8)]


def _argument(letter: str, value: int) -> dict[str, Any]:
    if letter == "f":
        return {"kind": "float", "value": struct.unpack("<d", struct.pack("<Q", value))[0]}
    if letter == "b":
        return {"kind": "buffer", "value": value}
    return {"kind": "int", "value": value - 2**64 if value >= 2**63 else value}
