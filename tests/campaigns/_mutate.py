"""Mutations of files: what damages a length, an offset, a count or a table, and leaves the rest as it was.

In       a valid file; for binary formats, where its numbers are; random numbers
Out      the same file damaged, or nested a little otherwise
Next     readers.py (which files, and who reads them)
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    63,
    64,
    255,
    256,
    4095,
    4096,
    65535,
    1 << 20,
    1 << 31,
    (1 << 32) - 1,
    1 << 47,
    1 << 63,
)
MOST_BYTES = 1 << 20  # a file does not grow beyond


class Place(NamedTuple):
    """A number in a file."""

    offset: int
    size_bytes: int


def of_bytes(data: bytes, places: Sequence[Place], rng: random.Random) -> bytes:
    """One to four damages; most of them to numbers that say where something is, or how much of it."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        what = rng.randrange(10)
        if places and what < 6:
            _number(found, rng.choice(places), places, rng)
        elif found:
            _anything(found, rng)
    return bytes(found[:MOST_BYTES])


def _number(data: bytearray, place: Place, places: Sequence[Place], rng: random.Random) -> None:
    """Another number: an odd one, a neighbour, one near the file's size, or that of another field."""
    at, size = place
    if at + size > len(data):
        return
    limit = 1 << 8 * size
    old = int.from_bytes(data[at : at + size], "little")
    other = rng.choice(places)
    taken = int.from_bytes(data[other.offset : other.offset + size], "little")
    new = rng.choice(
        (rng.choice(NUMBERS), -rng.choice(NUMBERS), old + rng.choice((-8, -1, 1, 8)), old * 2, taken)
        + (
            len(data) + rng.randrange(-9, 9),
            len(data) - old,
            rng.randrange(limit),
            old ^ 1 << rng.randrange(8 * size),
        )
    )
    data[at : at + size] = (new % limit).to_bytes(size, "little")


def _anything(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    length = min(rng.choice((1, 2, 4, 8, 16, 64, 256)), len(data) - at)
    what = rng.randrange(7)
    if what == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif what == 1:
        del data[at:]
    elif what == 2:
        del data[at : at + length]
    elif what == 3:
        data[at:at] = rng.randbytes(length)
    elif what == 4:
        data[at : at + length] = rng.randbytes(length)
    elif what == 5:
        start = rng.randrange(len(data))
        data[at : at + length] = data[start : start + length]
    else:
        data += data[at : at + length] * rng.choice((1, 3))


def elf_places(image: bytes) -> list[Place]:
    """The numbers of an ELF file: its header, its tables of sections and segments, symbols, relocations, notes."""
    places = [Place(16, 2), Place(18, 2), Place(20, 4), *(Place(at, 8) for at in (24, 32, 40))]
    places += [Place(48, 4), *(Place(at, 2) for at in range(52, 64, 2))]
    segments, sections = struct.unpack_from("<QQ", image, 32)
    _, segment_count, _, section_count, _ = struct.unpack_from("<5H", image, 54)
    for number in range(segment_count):
        at = segments + 56 * number
        places += [Place(at, 4), Place(at + 4, 4), *(Place(at + 8 * n, 8) for n in range(1, 7))]
    for number in range(section_count):
        at = sections + 64 * number
        places += [Place(at, 4), Place(at + 4, 4), *(Place(at + 8 * n, 8) for n in (1, 2, 3, 4))]
        places += [Place(at + 40, 4), Place(at + 44, 4), Place(at + 48, 8), Place(at + 56, 8)]
        kind, start, size = (
            struct.unpack_from("<I", image, at + 4)[0],
            *struct.unpack_from("<QQ", image, at + 24),
        )
        if kind in (2, 11):  # symbols
            for entry in range(start, start + size, 24):
                places += [
                    Place(entry, 4),
                    Place(entry + 4, 1),
                    Place(entry + 6, 2),
                    Place(entry + 8, 8),
                    Place(entry + 16, 8),
                ]
        elif kind == 4:  # relocations
            for entry in range(start, start + size, 24):
                places += [Place(entry, 8), Place(entry + 8, 4), Place(entry + 12, 4), Place(entry + 16, 8)]
        elif kind in (7, 0x70000000, 0x70000001):  # notes, and what a cubin says of its kernels
            places += [Place(entry, size_) for entry in range(start, start + size, 4) for size_ in (1, 2, 4)]
    return places


def of_json(value: Any, rng: random.Random) -> Any:
    """A table with one value, name or nesting changed."""
    hostile: tuple[Any, ...] = (
        None,
        True,
        -1,
        0,
        1 << 63,
        10**40,
        1.5,
        "",
        "x",
        [],
        {},
        [[]],
        [1, -1],
        float("inf"),
        "F32",
    )
    if isinstance(value, dict) and value and rng.random() < 0.8:
        made, name = dict(value), rng.choice(list(value))
        what = rng.randrange(5)
        if what == 0:
            del made[name]
        elif what == 1:
            made[rng.choice(("", "x", "__metadata__", name + "2"))] = made[name]
        elif what == 2:
            made[name] = made[rng.choice(list(value))]
        else:
            made[name] = of_json(made[name], rng)
        return made
    if isinstance(value, list) and value and rng.random() < 0.8:
        listed, place = list(value), rng.randrange(len(value))
        what = rng.randrange(4)
        if what == 0:
            del listed[place]
        elif what == 1:
            listed.insert(place, rng.choice(hostile))
        else:
            listed[place] = of_json(listed[place], rng)
        return listed
    if type(value) is int and rng.random() < 0.6:
        return rng.choice((value + 1, value - 1, value * 2, -value, value + 8, 1 << 62))
    return rng.choice(hostile)


def of_text(text: str, rng: random.Random) -> str:
    """Lines and words left out, doubled, exchanged; numbers that are odd, long or no numbers; brackets too many."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        pieces = re.split(r"(\W)", text)
        lines = text.split("\n")
        what = rng.randrange(9)
        if what == 0:
            del lines[rng.randrange(len(lines))]
            text = "\n".join(lines)
        elif what == 1:
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
            text = "\n".join(lines)
        elif what == 2:
            text = text[: rng.randrange(len(text) + 1)]
        elif what < 6:
            numbers = [
                place for place, piece in enumerate(pieces) if re.fullmatch(r"(0x)?[0-9a-fA-F]+", piece)
            ]
            if numbers:
                odd = (
                    "0",
                    "00003",
                    "-1",
                    str(1 << 64),
                    "9" * 30,
                    "9" * 5000,
                    "0x",
                    "1.5e400",
                    "\u0661",
                    "",
                    "08",
                )
                pieces[rng.choice(numbers)] = rng.choice((*odd, pieces[rng.choice(numbers)]))
                text = "".join(pieces)
        elif what == 6:
            pieces[rng.randrange(len(pieces))] = rng.choice(
                ("{", "}", "(", ")", "[", ";", ",", '"', "'", "\0", "\n", "%", ".")
            )
            text = "".join(pieces)
        elif what == 7:
            pieces[rng.randrange(len(pieces))] = rng.choice(pieces)
            text = "".join(pieces)
        else:
            text = text.replace(
                *rng.choice((("{", "{" * 500), ("(", "((((("), ("\n", "\r"), (" ", "\t"), ("0", "\0"))), 3
            )
        text = text[:MOST_BYTES]
    return text


def of_safetensors(data: bytes, rng: random.Random) -> bytes:
    """Half the time the header as a table, else as bytes."""
    length = int.from_bytes(data[:8], "little")
    if rng.random() < 0.4:
        return of_bytes(data, [Place(0, 8)], rng)
    header = of_json(json.loads(data[8 : 8 + length]), rng)
    words = json.dumps(header).encode()
    if rng.random() < 0.2:
        words = of_text(words.decode(), rng).encode("utf-8", "surrogatepass")
    return len(words).to_bytes(8, "little") + words + data[8 + length :]
