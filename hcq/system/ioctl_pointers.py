"""Ioctl pointers: declares which memory the argument of an ioctl points to, so that recorded calls include it.

In       the bytes of an argument; the offsets of addresses in it, and type and number of the targets
Out      Blocks of memory, each with the path of its field: "params", "params.grinfolist"
Next     hcq/amd/abi/pointers.py, hcq/nv/abi/pointers.py (the declarations), port.py (RecordingPort follows them),
         hcq/trace/calls.py (reads back what was recorded)

Offsets are in bytes and do not refer to our own structures. A program under observation makes calls that our drivers
never make, and of their structures only the pointers matter here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from hcq.layout import Packet

MAX_BLOCK_BYTES = 1 << 20  # of one block; an argument that claims more is cut there
MAX_BLOCKS = 256  # of one call

# (address, bytes) -> what is there; b"" or less than asked where nothing is
Read = Callable[[int, int], bytes]


class Pointer(NamedTuple):
    """An address in an argument, or in memory that another address leads to.

    name         of its field, as the header has it
    at           where the address stands: bytes from the start; it has 64 bits
    entry_bytes  of one entry of what is there
    count_at     where the number of entries stands, 32 bits; None: there is one
    per          that number counts so many to an entry: bits of a mask of words
    inside       addresses in each entry
    layout       what an entry is, where it is declared and the same in every release of the driver
    """

    name: str
    at: int
    entry_bytes: int
    count_at: int | None = None
    per: int = 1
    inside: tuple[Pointer, ...] = ()
    layout: type[Packet] | None = None


class Block(NamedTuple):
    """Memory behind an address of a call: the path of the field that holds the address, where it is, how much."""

    name: str
    va: int
    size_bytes: int


class Nested(NamedTuple):
    """A block's bytes before the call and after it; empty where the memory could not be read."""

    name: str
    va: int
    before: bytes
    after: bytes


# what a vendor declares: (request, argument) -> the pointers in it
Declared = Callable[[int, bytes], Sequence[Pointer]]


def follow(pointers: Sequence[Pointer], argument: bytes, read: Read) -> list[Block]:
    """The memory that an argument points to, outer blocks first. Never raises: a null or wild pointer leads nowhere.

    >>> words = Pointer("words", at=8, entry_bytes=4, count_at=0)
    >>> follow([words], bytes([2, *[0] * 7, 0x40, *[0] * 7]), lambda va, size: bytes(size))
    [Block(name='words', va=64, size_bytes=8)]
    """
    found: list[Block] = []
    _follow(pointers, argument, "", read, found)
    return found


def noted(pointers: Sequence[Pointer], argument: bytes, read: Read) -> Callable[[], list[Nested]]:
    """What an argument points to, read now; once the call has returned, the function reads it again and gives both."""
    blocks = follow(pointers, argument, read)
    given = [read(block.va, block.size_bytes) for block in blocks]

    def nested() -> list[Nested]:
        return [
            Nested(block.name, block.va, data, read(block.va, len(data)))
            for block, data in zip(blocks, given)
        ]

    return nested


def named(pointers: Sequence[Pointer], path: str) -> Pointer | None:
    """The declaration of a block that `follow` found, by its path; None where nothing is declared there."""
    found: Pointer | None = None
    for name in re.sub(r"\[\d+\]", "", path).split("."):
        found = next((pointer for pointer in pointers if pointer.name == name), None)
        if found is None:
            return None
        pointers = found.inside
    return found


def _follow(pointers: Sequence[Pointer], data: bytes, path: str, read: Read, found: list[Block]) -> None:
    for pointer in pointers:
        va = _number(data, pointer.at, 8)
        count = 1 if pointer.count_at is None else _number(data, pointer.count_at, 4) // pointer.per
        size = min(count * pointer.entry_bytes, MAX_BLOCK_BYTES)
        if not va or not size or len(found) >= MAX_BLOCKS:
            continue
        name = f"{path}{pointer.name}"
        found.append(Block(name, va, size))
        if not pointer.inside:
            continue
        for index, entry in enumerate(_entries(read(va, size), pointer.entry_bytes)):
            place = f"{name}." if pointer.count_at is None or count == 1 else f"{name}[{index}]."
            _follow(pointer.inside, entry, place, read, found)


def _entries(data: bytes, size_bytes: int) -> Iterator[bytes]:
    return (data[at : at + size_bytes] for at in range(0, len(data), size_bytes))


def _number(data: bytes, at: int, size_bytes: int) -> int:
    """What is beyond the end counts as zero."""
    return int.from_bytes(data[at : at + size_bytes], "little")
