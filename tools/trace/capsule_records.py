"""Records of a capsule: what capsules of every kind of GPU write, and the ranges of memory that their packets name.

In       strings, allocations, submissions; effects of packets
Out      Capsule; CapsuleRecords, whose `content` is the trace; ranges of whole pages
Next     capsule.py, nv_capsule.py (who write capsules), hcq/trace/records.py (every byte)
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hcq.amd.abi.page_fault import PAGE_BYTES
from hcq.command import Command
from hcq.rules import effects
from hcq.tools.trace.color import counted
from hcq.trace.records import MAGIC, Alloc, Kind, Submit, pack_commands, pack_record

UNKNOWN = "unknown memory"
CELL_BYTES = 16
MAX_ALLOCATIONS = 1 << 12
HIGHEST = 1 << 48


class Capsule(NamedTuple):
    """A trace, and what to say of it."""

    content: bytes
    lines: list[str]


class CapsuleRecords:
    """Writes records, one after the other. `missing` is what to say of what is not there."""

    def __init__(self, process: int) -> None:
        self.parts = [MAGIC]
        self.now = 0
        self.process = process
        self.strings: dict[str, int] = {}
        self.missing: list[str] = []

    @property
    def content(self) -> bytes:
        """The trace."""
        return b"".join(self.parts)

    def raw(self, kind: Kind, text: bytes = b"", data: bytes = b"") -> None:
        """A record of any kind."""
        self.now += 1
        self.parts.append(pack_record(kind, self.process, self.now, text, data))

    def text(self, kind: Kind, fields: dict[str, Any]) -> None:
        """A record of fields by name."""
        self.raw(kind, json.dumps(fields, separators=(",", ":")).encode())

    def string(self, text: str) -> int:
        """The number of a text, which is written when it is first asked for."""
        if text not in self.strings:
            number = self.strings[text] = len(self.strings) + 1
            self.raw(Kind.STRING, b"", number.to_bytes(4, "little") + text.encode("utf-8", "replace"))
        return self.strings[text]

    def alloc(self, va: int, size_bytes: int, name: str) -> None:
        """Memory that is there."""
        head = Alloc(
            device=0, name=self.string(name), va=va, size_bytes=size_bytes, capacity_bytes=size_bytes
        )
        self.raw(Kind.ALLOC, b"", head.to_bytes())

    def submit(self, value: int, queue: str, words: Sequence[int], commands: Sequence[Command] = ()) -> None:
        """The words of one ring."""
        packed = pack_commands(commands, self.string)
        head = Submit(
            device=0,
            queue=self.string(queue),
            value=value,
            site=0,
            thread=0,
            size_words=len(words),
            commands=len(commands),
        )
        self.raw(Kind.SUBMIT, b"", head.to_bytes() + struct.pack(f"<{len(words)}I", *words) + packed)

    def cut(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """As many ranges as a capsule has at most; what is left out is noted."""
        if len(ranges) > MAX_ALLOCATIONS:
            self.missing.append(
                f"{len(ranges) - MAX_ALLOCATIONS} more ranges of memory are named, and left out"
            )
        return ranges[:MAX_ALLOCATIONS]

    def note_unknown(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Say that nothing is known of memory."""
        if ranges:
            size = sum(end - start for start, end in ranges)
            self.missing.append(
                f"memory that packets name: {counted(len(ranges), 'range')}, {size} bytes, contents unknown"
            )


# ------------------------------------------------------------ ranges of memory


def spans_of(one: effects.Effect) -> list[tuple[int, int]]:
    """Where a packet reads or writes, from an address to before another."""
    if isinstance(one, effects.Copy):
        return [(one.dst, one.dst + one.size_bytes), (one.src, one.src + one.size_bytes)]
    if isinstance(one, effects.Fill):
        return [(one.dst, one.dst + one.size_bytes)]
    if isinstance(one, (effects.Wait, effects.Signal)):
        return [(one.cell, one.cell + CELL_BYTES)]
    if isinstance(one, effects.Access):
        return [(one.va, one.va + max(one.size_bytes, 1))]
    return []


def pages_of(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Whole pages, in order, ranges that touch as one. What no address space has is left out."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((one & -PAGE_BYTES, -(-end // PAGE_BYTES) * PAGE_BYTES) for one, end in spans):
        if start < PAGE_BYTES or end > HIGHEST or end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def without(spans: Sequence[tuple[int, int]], known: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What is left of ranges."""
    for start, end in spans:
        at = start
        for low, high in sorted(known):
            if high <= at or low >= end:
                continue
            if low > at:
                yield at, low
            at = high
        if at < end:
            yield at, end
