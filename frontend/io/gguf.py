"""GGUF: the files of llama.cpp: metadata and tensors, many of them quantised.

In       a path; of a model in several files, the first
Out      `Weights`: metadata by name, and tensors; a quantised one is a lazy tensor over its bytes on the device
Changes  device memory, for each tensor that is asked for
Next     blocks.py (formats), quantised.py (what a quantised tensor is), gguf_writer.py, more/llm/ (models from it)
Source   the GGUF specification, github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3

    magic    "GGUF", version, number of tensors, number of metadata entries
    entries  key, type, value; a value may be an array of numbers or strings
    tensors  name, number of axes, sizes (the innermost first), format, offset
    data     at the next multiple of general.alignment
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, NoReturn, overload

from hcq.frontend.core.errors import MissingFile, UsageError
from hcq.frontend.io import blocks
from hcq.frontend.io.blocks import Format
from hcq.frontend.io.mapped import BYTES_OF_A_TENSOR, Mapped, Reader
from hcq.frontend.io.quantised import placed
from hcq.frontend.io.weights import Entry, Weights, plain_entry
from hcq.ir.dtype import dtypes

MAGIC = b"GGUF"
# of numbers: struct's letter and bytes, by the type's number
NUMBERS = {
    0: ("B", 1),
    1: ("b", 1),
    2: ("H", 2),
    3: ("h", 2),
    4: ("I", 4),
    5: ("i", 4),
    6: ("f", 4),
    7: ("?", 1),
    10: ("Q", 8),
    11: ("q", 8),
    12: ("d", 8),
}
STRING, ARRAY = 8, 9
MAX_ENTRIES = 1 << 16  # of metadata; the largest known models have below a hundred
MAX_TENSORS = 1 << 16  # the largest known models have some thousands
MAX_AXES = 4
MAX_TEXT_BYTES = 1 << 24  # of one string: chat templates have some ten thousand


class Texts(Sequence[str]):
    """Strings of a file, decoded when they are asked for: a vocabulary has a hundred thousand."""

    def __init__(self, data: memoryview, places: array[int]):
        self._data = data
        self._places = places  # where each begins; its length stands before it

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        begin = self._places[place]
        size = int.from_bytes(self._data[begin - 8 : begin], "little")
        return str(self._data[begin : begin + size], "utf-8", "replace")

    def __repr__(self) -> str:
        return f"Texts({len(self)}: {', '.join(map(repr, self[:3]))}{', ...' if len(self) > 3 else ''})"


class Flags(Sequence[bool]):
    """Bools of a file, a byte each."""

    def __init__(self, data: memoryview):
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    @overload
    def __getitem__(self, place: int) -> bool: ...
    @overload
    def __getitem__(self, place: slice) -> list[bool]: ...
    def __getitem__(self, place: int | slice) -> bool | list[bool]:
        found = self._data[place]
        return list(map(bool, found)) if isinstance(found, memoryview) else bool(found)

    def __repr__(self) -> str:
        return f"Flags({len(self)}: {', '.join(map(repr, self[:3]))}{', ...' if len(self) > 3 else ''})"


def read(path: str | os.PathLike[str], device: str | None = None, call: str = "load") -> Weights:
    """What is in a file, and in the others of the same model, whose tensors are read when they are asked for.

    A tensor whose format of numbers is not known is refused when it is asked for; the others are read.

    Raises  UsageError, one sentence, for a file that is damaged or not of this format
    """
    metadata, entries = _read_one(path, call)
    count = metadata.get("split.count", 1)
    if type(count) is int and count > 1:
        for other in _others(Path(path), count, metadata.get("split.no"), call):
            _, more = _read_one(other, call)
            entries += more
        names = {entry.name for entry in entries}
        if len(names) < len(entries):
            raise UsageError(f"[{call}] {path}: a tensor stands in two of its {count} files. Get them again.")
    return Weights(path, "GGUF", entries, metadata, device)


def _others(path: Path, count: int, number: Any, call: str) -> list[Path]:
    """The paths of the files after the first: name-00001-of-00003.gguf."""
    end = f"-00001-of-{count:05d}.gguf"
    if number != 0 or not path.name.endswith(end):
        raise UsageError(
            f"[{call}] {path} is one of {count} files of a model, and not the first. Give the one that ends in {end}."
        )
    stem = path.name[: -len(end)]
    others = [path.with_name(f"{stem}-{i:05d}-of-{count:05d}.gguf") for i in range(2, min(count, 99999) + 1)]
    missing = next((other for other in others if not other.is_file()), None)
    if missing is not None:
        raise MissingFile(f"[{call}] {path} has its tensors in {count} files, and {missing} is missing.")
    return others


def _read_one(path: str | os.PathLike[str], call: str) -> tuple[dict[str, Any], list[Entry]]:
    file = Mapped(path, "GGUF", call)
    reader = Reader(file)
    if bytes(reader.take(4)) != MAGIC:
        raise file.damaged("it does not begin with GGUF")
    version = reader.whole(4)
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        what = "is big-endian" if swapped in (2, 3) else f"is of version {version}"
        raise UsageError(
            f"[{call}] {path} {what}; versions 2 and 3, little-endian, are read. Convert it again."
        )
    tensors, values = reader.whole(8), reader.whole(8)
    if tensors > MAX_TENSORS or values > MAX_ENTRIES:
        raise file.damaged(f"it says that it has {tensors} tensors and {values} entries of metadata")
    metadata: dict[str, Any] = {}
    for _ in range(values):
        key = _text(reader)
        if key in metadata:
            raise file.damaged(f"{key!r} stands there twice")
        metadata[key] = _value(reader, reader.whole(4), key)
    infos = [_info(reader) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20:
        raise file.damaged(f"its alignment is {alignment!r}")
    start = -(-reader.at // alignment) * alignment
    entries: list[Entry] = []
    seen: set[str] = set()
    file.charge(BYTES_OF_A_TENSOR * tensors)
    ends = sorted({start + offset for _, _, _, offset in infos})
    for name, shape, number, offset in infos:
        if name in seen:
            raise file.damaged(f"the tensor {name!r} stands there twice")
        seen.add(name)
        if number in blocks.BY_NUMBER:
            entries.append(_entry(file, name, shape, blocks.BY_NUMBER[number], start + offset))
        else:
            next_begin = bisect_right(ends, start + offset)
            end = min(ends[next_begin] if next_begin < len(ends) else file.size, file.size)
            entries.append(_unknown_entry(file, name, shape, number, max(0, end - start - offset)))
    return metadata, entries


def _text(reader: Reader) -> str:
    size = reader.whole(8)
    if size > MAX_TEXT_BYTES:
        raise reader.file.damaged(f"a string of {size} bytes at byte {reader.at}")
    raw = reader.take(size)
    found = str(raw, "utf-8", "replace")
    reader.file.charge(size + sys.getsizeof(found))  # one wide letter, and each takes four bytes
    return found


def _value(reader: Reader, kind: int, key: str) -> Any:
    """One value of metadata."""
    if kind in NUMBERS:
        letter, size = NUMBERS[kind]
        return struct.unpack(f"<{letter}", reader.take(size))[0]
    if kind == STRING:
        return _text(reader)
    if kind != ARRAY:
        raise reader.file.damaged(f"{key!r} is of type {kind}, which there is not")
    kind, count = reader.whole(4), reader.whole(8)
    if kind in NUMBERS:
        letter, size = NUMBERS[kind]
        raw = reader.take(count * size)
        if letter == "?":
            return list(map(bool, raw)) if count <= 16 else Flags(raw)
        numbers = array(letter)
        numbers.frombytes(raw)
        return numbers
    if kind != STRING:
        raise reader.file.damaged(
            f"{key!r} is an array of type {kind}; of numbers and strings there are arrays"
        )
    if count > reader.left // 8:
        raise reader.file.damaged(f"{key!r} has {count} strings, for which there is no room")
    places = array("Q", bytes(8 * count))
    begin = reader.at
    for i in range(count):
        size = reader.whole(8)
        places[i] = reader.at - begin
        reader.take(size)
    return Texts(reader.file.view(begin, reader.at), places)


def _info(reader: Reader) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, format and offset of a tensor."""
    name = _text(reader)
    axes = reader.whole(4)
    if axes > MAX_AXES:
        raise reader.file.damaged(f"the tensor {name!r} has {axes} axes")
    sizes = [reader.whole(8) for _ in range(axes)]
    return name, tuple(reversed(sizes)), reader.whole(4), reader.whole(8)


def _unknown_entry(file: Mapped, name: str, shape: tuple[int, ...], number: int, size_bytes: int) -> Entry:
    """A tensor of which nobody here knows what its bytes mean. size_bytes: up to the next tensor."""

    def refuse(_: str = "") -> NoReturn:
        known = ", ".join(one.name for one in blocks.FORMATS)
        raise UsageError(
            f"[{file.call}] {file.path}: the tensor {name!r} has format number {number}; known are {known}. "
            "Convert it with one of these."
        )

    return Entry(name, f"number {number}", dtypes.float32, shape, size_bytes, refuse, refuse)


def _entry(file: Mapped, name: str, shape: tuple[int, ...], form: Format, begin: int) -> Entry:
    if form.elements > 1 and (not shape or shape[-1] % form.elements):
        raise file.damaged(f"the tensor {name!r} of shape {shape} has no whole blocks of {form.name}")
    size = prod(shape) // form.elements * form.size_bytes
    end = begin + size
    if end > file.size:
        raise file.damaged(f"the tensor {name!r} ends at byte {end}, and it has {file.size}")

    def raw() -> memoryview:
        return file.view(begin, end)

    if form.dtype is not None:
        return plain_entry(name, form.name, form.dtype, shape, raw)
    return Entry(
        name,
        form.name,
        dtypes.float32,
        shape,
        size,
        lambda where: placed(raw(), where, form, shape, name),
        raw,
    )
