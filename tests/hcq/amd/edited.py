"""Code objects whose metadata says something else than their compiler wrote: what assemblers and damage make of it.

In       a relocatable object, and a function that changes its metadata
Out      `with_metadata`, `without_metadata`: the object anew; `pack`: MessagePack
Next     test_metadata.py, test_arguments.py (who use them)
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from hcq.amd.metadata import NOTE_OWNER, NOTE_TYPE, unpack
from hcq.code.elf import Object

SHT_NOTE = 7
HEADERS_AT, SECTION_BYTES = 40, 64  # where the file header says where section headers begin


def pack(value: Any) -> bytes:
    """The longest form of everything, so that the short forms are checked by hand."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value) if value < 0 else b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode()
        return b"\xdb" + struct.pack(">I", len(text)) + text
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
    return b"\xdf" + struct.pack(">I", len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())


def with_metadata(image: bytes, change: Callable[[dict[str, dict[str, Any]]], None]) -> bytes:
    """The object with other metadata. change: is given the kernels' tables by name."""
    number, content = _note(image)
    top = unpack(content)
    change({kernel[".name"]: kernel for kernel in top["amdhsa.kernels"]})
    made = pack(top)
    note = struct.pack("<III", len(NOTE_OWNER), len(made), NOTE_TYPE) + NOTE_OWNER.ljust(8, b"\0") + made
    out = bytearray(image.ljust(-(-len(image) // 8) * 8, b"\0") + note)
    at = _header(image, number)
    struct.pack_into("<QQ", out, at + 24, len(out) - len(note), len(note))
    return bytes(out)


def without_metadata(image: bytes) -> bytes:
    """The object with a note of another owner in the place of AMD's."""
    at = image.index(NOTE_OWNER, image.index(b"amdhsa.kernels") - 64)
    return image[:at] + b"NOBODY\0" + image[at + len(NOTE_OWNER) :]


def _note(image: bytes) -> tuple[int, bytes]:
    """The number of the note's section, and its message."""
    read = Object(image, "object")
    number, section = next(each for each in enumerate(read.sections) if each[1].type == SHT_NOTE)
    data = read.contents(section)
    owner, size, _ = struct.unpack_from("<III", data)
    start = 12 + (owner + 3 & ~3)
    return number, data[start : start + size]


def _header(image: bytes, number: int) -> int:
    return int(struct.unpack_from("<Q", image, HEADERS_AT)[0]) + SECTION_BYTES * number
