"""Safetensors: the header of a file of tensors, read without trusting a number in it.

In       an open file of the safetensors format
Out      its tensors' names, formats, shapes and places, all checked against the file's size; its further words
Next     frontend/io/safetensors.py (tensors to and from such files), artefact/file.py (weights beside a program)
Source   the safetensors format, huggingface.co/docs/safetensors

    8 bytes   length of the header, little endian
    header    JSON: name -> {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, perhaps "__metadata__"
    data      row-major, little endian, back to back; offsets count from its start
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from typing import Any, BinaryIO, NamedTuple

from hcq.errors import UsageError

# the format's word for a number format -> our name, and bytes
FORMATS: dict[str, tuple[str, int]] = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E4M3": ("fp8e4m3", 1),
    "F8_E5M2": ("fp8e5m2", 1),
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "F32": ("float32", 4),
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F64": ("float64", 8),
}
MAX_HEADER_BYTES = 100_000_000  # the format's own limit
# JSON takes some twenty times its bytes in memory: so the header of a large file is a small part of it
SHARE = 16
SMALL_BYTES = 1 << 20
METADATA = "__metadata__"


class Entry(NamedTuple):
    """One tensor of a file. dtype is our name; begin and end are bytes from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """What a file says of itself."""

    entries: list[Entry]
    metadata: dict[str, str]


def read_header(file: BinaryIO, path: str, call: str) -> Header:
    """The tensors of a file, which is open at its start, and its further words.

    path, call  what messages name
    Raises      UsageError, one sentence, for a file that is damaged or not of this format
    """
    try:
        return _header(file)
    except _Damaged as why:
        raise UsageError(f"[{call}] {path}: {why}. It is damaged, or not a safetensors file.") from None


class _Damaged(Exception):
    """Why the file cannot be what it should be."""


def _header(file: BinaryIO) -> Header:
    found, start, size = _parse(file)
    metadata = found.pop(METADATA, {})
    if not are_strings(metadata):
        raise _Damaged(f"{METADATA} holds something else than strings")
    entries = [_entry(name, fields, start) for name, fields in found.items()]
    at = start
    for entry in sorted(entries, key=lambda e: (e.begin, e.end)):
        if entry.begin != at:
            raise _Damaged(
                f"{entry.name!r} begins at byte {entry.begin - start} of the data, "
                f"the one before it ends at {at - start}"
            )
        at = entry.end
    if at != start + size:
        raise _Damaged(f"{size} bytes of data, and the tensors take {at - start}")
    return Header(entries, dict(metadata))


def _parse(file: BinaryIO) -> tuple[dict[str, Any], int, int]:
    """The header, where the data starts, and how many bytes of it the file has."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
        raise _Damaged(f"{size} bytes, and a header of {length if size >= 8 else '?'} does not fit in them")
    if length > size // SHARE + SMALL_BYTES:
        raise _Damaged(
            f"{size} bytes, and {length} of them are the header, more than tensors of this size need"
        )
    try:
        header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _Damaged(f"the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise _Damaged(f"the header is a JSON {type(header).__name__}, not an object")
    return header, 8 + length, size - 8 - length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _entry(name: str, fields: Any, start: int) -> Entry:
    """One tensor's facts, all checked but for where its neighbours are."""
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise _Damaged(f"{name!r} does not say dtype, shape and data_offsets")
    word, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(word, str) or word not in FORMATS:
        raise _Damaged(f"{name!r} is of dtype {word!r}; known: {', '.join(FORMATS)}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise _Damaged(f"{name!r} has shape {shape} and offsets {offsets}")
    dtype, itemsize = FORMATS[word]
    begin, end = offsets
    if end - begin != prod(shape) * itemsize:
        raise _Damaged(f"{name!r}, {word} of shape {shape}, has {end - begin} bytes")
    return Entry(name, dtype, tuple(shape), start + begin, start + end)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def are_strings(metadata: Any) -> bool:
    """Whether these are strings under strings, as further words have to be."""
    return isinstance(metadata, Mapping) and all(
        isinstance(key, str) and isinstance(value, str) for key, value in metadata.items()
    )
