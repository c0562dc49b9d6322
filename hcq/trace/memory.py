"""Trace memory: what was where at one moment, and what a recorded block held when a submission ran it.

In       ranges and block records, put in order by file.py
Out      MemoryMap: `find` says what an address is; BlockHistory: words and commands of a block at any moment
Changes  nothing outside itself
Next     file.py (who fills these)
"""

from __future__ import annotations

import bisect
import math
import struct
from dataclasses import dataclass, field
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
    """What was where at one moment. `ranges` are buffers and mappings, `find` says what an address is."""

    def __init__(self, live: dict[int, Range], freed: dict[int, Range], mapped: dict[int, Range]) -> None:
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
