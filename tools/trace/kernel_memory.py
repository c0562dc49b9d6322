"""The memory of a program after each of its kernels, as two machines left it, and where they differ.

In       two files that tools/second_opinion/watch_hip.c wrote, of the same program on two machines
Out      Differences, in the order of the launches; none means the same bytes. Addresses never count
Next     diff.py (two traces), ../../docs/second-opinion.md (how the files are made)

The file: the line "hcq kernel memory 1", then records, each with four letters, the size of what follows (u64) and that.
All numbers are little-endian.

    MADE  allocation (u64: 0, 1, ... in the order of the calls), address (u64), size in bytes (u64)
    HELD  allocation, offset (u64), bytes: what it held when it was made, as far as that is not zero
    RUNS  grid (3 u32, in workgroups), block (3 u32), bytes of dynamic shared memory (u32), hipError_t (i32), name
    DATA  allocation, offset, bytes: changed since the launch before. By a kernel, a copy or the host
    GONE  allocation
    ENDS  count of launches (u64). Without it the program did not come to its end
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcq.errors import UsageError
from hcq.tools.trace.color import Color, counted

MAGIC = b"hcq kernel memory 1\n"
RECORD = struct.Struct("<4sQ")
PLACE = struct.Struct("<QQ")
MADE = struct.Struct("<QQQ")
RUN = struct.Struct("<7Ii")
COUNT = struct.Struct("<Q")
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Allocation:
    """One allocation: its address and size in bytes."""

    address: int
    size_bytes: int


@dataclass
class Launch:
    """A launch of a kernel, and what had changed in memory when it was over."""

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    error: int
    live: frozenset[int]
    changes: list[tuple[int, int, bytes]] = field(default_factory=list)  # allocation, offset, bytes

    @property
    def what(self) -> str:
        """The launch without its memory: the same in both files, if they are of one program."""
        sizes = "x".join(map(str, self.grid)), "x".join(map(str, self.block))
        shared = f", {self.shared_bytes} bytes of shared memory" if self.shared_bytes else ""
        return f"{self.name} grid {sizes[0]} block {sizes[1]}{shared}"


@dataclass
class Record:
    """A file of one run."""

    path: Path
    allocations: list[Allocation] = field(default_factory=list)
    held: list[tuple[int, int, bytes]] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    is_whole: bool = False


def is_one(path: Path) -> bool:
    """Whether a file is a record of kernel memory, by its first line."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read(path: Path) -> Record:
    """A record. One that breaks off, as that of a killed program does, is read up to there.

    Raises  UsageError: it cannot be read, is no such record, or a record in it is not what the layout allows
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if not data.startswith(MAGIC):
        raise UsageError(f"{path} is no record of kernel memory: it does not begin with {MAGIC!r}")
    record, live, at = Record(path), set[int](), len(MAGIC)
    while at + RECORD.size <= len(data):
        kind, size = RECORD.unpack_from(data, at)
        begin, at = at + RECORD.size, at + RECORD.size + size
        if at > len(data):
            break
        try:
            _add(record, live, kind, data[begin:at])
        except (struct.error, ValueError, KeyError) as error:
            raise UsageError(f"{path}: the record {kind!r} at byte {begin} is broken: {error}") from None
    return record


def _add(record: Record, live: set[int], kind: bytes, body: bytes) -> None:
    if kind == b"MADE":
        number, address, size = MADE.unpack(body)
        if number != len(record.allocations):
            raise ValueError(f"allocation {number} follows {len(record.allocations) - 1}")
        record.allocations.append(Allocation(address, size))
        live.add(number)
    elif kind in (b"HELD", b"DATA"):
        number, offset = PLACE.unpack_from(body)
        content = body[PLACE.size :]
        if number not in live:
            raise ValueError(f"allocation {number} is not live")
        if offset + len(content) > record.allocations[number].size_bytes:
            raise ValueError(f"byte {offset + len(content)} of allocation {number}, which is shorter")
        if kind == b"HELD":
            record.held.append((number, offset, content))
        elif not record.launches:
            raise ValueError("there was no launch before it")
        else:
            record.launches[-1].changes.append((number, offset, content))
    elif kind == b"RUNS":
        numbers = RUN.unpack_from(body)
        name = body[RUN.size :].decode(errors="replace")
        launch = Launch(name, numbers[:3], numbers[3:6], numbers[6], numbers[7], frozenset(live))
        record.launches.append(launch)
    elif kind == b"GONE":
        live.remove(*COUNT.unpack(body))
    elif kind == b"ENDS":
        record.is_whole = COUNT.unpack(body)[0] == len(record.launches)
    else:
        raise ValueError("there is no such record")


# ------------------------------------------------------------------------------------------------------- the comparison


@dataclass(frozen=True)
class Difference:
    """One launch that left different bytes in one allocation, or was not the same launch."""

    launch: int
    kernel: str
    what: str
    allocation: int | None = None
    offset: int | None = None
    words: int = 0


@dataclass
class Result:
    """What was compared, and what differs."""

    launches: int = 0
    words: int = 0
    near: int = 0
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """Whether there is no difference."""
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        """What `hcq-trace diff --json` prints."""
        found = [vars(one) for one in self.differences]
        return {"same": self.is_same, **vars(self), "differences": found}


class _Memory:
    """The memory of one side as the launches change it."""

    def __init__(self, record: Record) -> None:
        self.allocations = record.allocations
        self.content = [np.zeros(_whole_words(one.size_bytes), np.uint8) for one in record.allocations]
        self.is_written = [np.zeros(len(one), bool) for one in self.content]
        self.change(record.held)
        for written in self.is_written:
            written[:] = False  # what was there before the program wrote is no result

    def change(self, changes: Sequence[tuple[int, int, bytes]]) -> dict[int, Bytes]:
        """Put in the bytes. Returns the masks of what they changed, by allocation."""
        masks: dict[int, Bytes] = {}
        for number, offset, content in changes:
            new = np.frombuffer(content, np.uint8)
            old = self.content[number][offset : offset + len(new)]
            differs = old != new
            mask = masks.setdefault(number, np.zeros(len(self.content[number]), np.uint8))
            mask[offset : offset + len(new)] |= differs
            self.is_written[number][offset : offset + len(new)] |= differs
            old[:] = new
        return masks

    def places(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Words of 8 bytes as places: (allocation + 1) << 40 | offset, or 0 of what is no address in an allocation."""
        found = np.zeros(len(words), np.int64)
        for number, one in enumerate(self.allocations):
            inside = (words >= one.address) & (words <= one.address + one.size_bytes)
            found[inside] = ((number + 1) << 40) + (words[inside] - one.address).astype(np.int64)
        return found


def compare(a: Record, b: Record, ulps: int = 0) -> Result:
    """Compare the memory after each launch, in words of 4 bytes.

    ulps    words that differ by no more than this many units in the last place, read as float32, are counted as near
    """
    result = Result()
    for record in (a, b):
        if not record.is_whole:
            result.notes.append(f"{record.path}: the program did not come to its end")
    sides = _Memory(a), _Memory(b)
    for index, (one, other) in enumerate(zip(a.launches, b.launches)):
        if one.what != other.what:
            what = f"the second launches {other.what}; what follows is not compared"
            result.differences.append(Difference(index, one.what, what))
            return result
        if one.error or other.error:
            what = f"it ends with hipError_t {one.error} and {other.error}; what follows is not compared"
            result.differences.append(Difference(index, one.what, what))
            return result
        result.launches += 1
        changed = sides[0].change(one.changes), sides[1].change(other.changes)
        for number in sorted({*changed[0], *changed[1]}):
            if number in one.live & other.live:
                _compare_allocation(index, one, number, sides, changed, ulps, result)
    if len(a.launches) != len(b.launches):
        first = min(len(a.launches), len(b.launches))
        left, where = (a, "first") if len(a.launches) > first else (b, "second")
        more = counted(len(left.launches) - first, "kernel")
        what = f"only in the {where}, which has {more} more"
        result.differences.append(Difference(first, left.launches[first].what, what))
    return result


def _compare_allocation(
    index: int, launch: Launch, number: int, sides: tuple[_Memory, _Memory],
    changed: tuple[Mapping[int, Bytes], Mapping[int, Bytes]], ulps: int, result: Result,
) -> None:  # fmt: skip
    sizes = [side.allocations[number].size_bytes for side in sides]
    if sizes[0] != sizes[1]:
        what = f"allocation {number} has {sizes[0]} bytes and {sizes[1]}"
        result.differences.append(Difference(index, launch.what, what, number))
        return
    contents = [side.content[number] for side in sides]
    touched = np.zeros(len(contents[0]), bool)
    for masks in changed:
        if number in masks:
            touched |= masks[number].astype(bool)
    result.words += int(np.count_nonzero(touched.reshape(-1, 4).any(axis=1)))
    differs = touched & (contents[0] != contents[1])
    differs &= ~_same_addresses(sides, number)
    where = np.flatnonzero(differs.reshape(-1, 4).any(axis=1))
    words = [content.view("<u4")[where] for content in contents]
    apart = _ulps_apart(*words)
    is_near = apart <= ulps
    result.near += int(np.count_nonzero(is_near))
    where, words, apart = where[~is_near], [one[~is_near] for one in words], apart[~is_near]
    if len(where):
        text = _text(where, words, apart)
        what = f"allocation {number} ({sizes[0]} bytes): {text}"
        offset = int(where[0]) * 4
        result.differences.append(Difference(index, launch.what, what, number, offset, len(where)))


def _same_addresses(sides: tuple[_Memory, _Memory], number: int) -> NDArray[np.bool_]:
    """Bytes of words of 8 that are, on both sides, the same place of the same allocation."""
    words = [side.content[number].view("<u8") for side in sides]
    places = [side.places(one) for side, one in zip(sides, words)]
    return np.repeat((places[0] != 0) & (places[0] == places[1]), 8)


def _whole_words(size_bytes: int) -> int:
    return -(-size_bytes // 8) * 8


def _ulps_apart(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> NDArray[np.int64]:
    """How many float32 lie between two: their bits as numbers in the order of the values. NaN and infinity: far."""
    ordered = []
    far = np.zeros(len(a), bool)
    for words in (a, b):
        signed = words.view(np.int32).astype(np.int64)
        ordered.append(np.where(signed < 0, -(signed & 0x7FFFFFFF), signed))
        far |= (words & 0x7F800000) == 0x7F800000
    return np.where(far, np.int64(2**62), np.abs(ordered[0] - ordered[1]))


def _text(where: NDArray[np.int64], words: Sequence[NDArray[np.uint32]], apart: NDArray[np.int64]) -> str:
    first = [one[:1] for one in words]
    floats = [float(one.view(np.float32)[0]) for one in first]
    bits = " and ".join(f"{int(one[0]):#010x}" for one in first)
    far = int(apart.max())
    distance = f", at most {far} ulp apart as float32" if far < 2**20 else ""
    return (
        f"{counted(len(where), 'word')} of 4 bytes, the first at +{int(where[0]) * 4:#x}: {bits}"
        f" ({floats[0]!r} and {floats[1]!r} as float32){distance}"
    )


def lines(result: Result, color: Color, limit: int) -> Iterator[str]:
    """The result as text."""
    for note in result.notes:
        yield color(note, "note")
    work = f"{counted(result.launches, 'kernel')}, {counted(result.words, 'changed word')}"
    if result.near:
        work += f", {result.near} of them near"
    if result.is_same:
        yield f"{color('same memory', 'more')}: {work}"
        return
    for one in result.differences[:limit]:
        yield f"{color(f'launch {one.launch}', 'heading')} {one.kernel}: {color(one.what, 'wrong')}"
    if len(result.differences) > limit:
        yield f"... and {len(result.differences) - limit} more; --limit shows them"
    yield f"{color(counted(len(result.differences), 'difference'), 'wrong')} in {work}"
