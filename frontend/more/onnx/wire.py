"""The wire format of protocol buffers: fields out of bytes, without trusting a length in them.

In       a view of bytes
Out      (field number, value) one after another: an int, or a view of the bytes
Next     proto.py (which field of ONNX is what)
Source   protobuf.dev/programming-guides/encoding

Nothing is copied: what a field holds is a view of the file. A field is a varint (wire type 0), eight bytes (1), a
length and as many bytes (2), or four bytes (5); groups (3, 4) are older than ONNX and refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5


class Damaged(Exception):
    """Why bytes cannot be a model: the rest of one sentence."""


def fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Every field of a message, in the order of the file. Raises Damaged."""
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value: Any
            value, at = varint(data, at)
        elif kind == BYTES:
            size, at = varint(data, at)
            if size > end - at:
                raise Damaged(f"field {tag >> 3} says {size} bytes where {end - at} are left")
            value, at = data[at : at + size], at + size
        elif kind in (EIGHT, FOUR):
            size = 8 if kind == EIGHT else 4
            if size > end - at:
                raise Damaged(f"field {tag >> 3} ends before its {size} bytes do")
            value, at = data[at : at + size], at + size
        else:
            raise Damaged(f"field {tag >> 3} has wire type {kind}")
        yield tag >> 3, value


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the least ones first, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Damaged("a number does not end")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7


def signed(value: Any) -> int:
    """A varint as the int64 whose two's complement it is."""
    if not isinstance(value, int):
        raise Damaged("bytes stand where a number belongs")
    return value - (1 << 64) if value >> 63 else value


def view(value: Any) -> memoryview:
    """The bytes of a field. Raises Damaged for a number."""
    if not isinstance(value, memoryview):
        raise Damaged("a number stands where bytes belong")
    return value


def text(value: Any) -> str:
    """A string."""
    try:
        return str(view(value), "utf-8")
    except UnicodeDecodeError:
        raise Damaged("a name is not UTF-8") from None


def float32(value: Any) -> float:
    """Four bytes as a number."""
    raw = view(value)
    if len(raw) != 4:
        raise Damaged(f"{len(raw)} bytes are no float32")
    return float(struct.unpack("<f", raw)[0])


def packed_varints(pieces: list[Any], count: int, what: str) -> np.ndarray[Any, Any]:
    """`count` numbers of a repeated field, each alone or many in a piece, as uint64 in two's complement."""
    import numpy as np

    packed = [piece for piece in pieces if isinstance(piece, memoryview)]
    found = sum(int(np.count_nonzero(np.frombuffer(piece, np.uint8) < 128)) for piece in packed)
    found += len(pieces) - len(packed)
    if found != count:
        raise Damaged(f"{what} has {found} numbers where its shape says {count}")
    values = np.zeros(count, np.uint64)
    at = 0
    for piece in pieces:
        if isinstance(piece, int):
            values[at] = piece
            at += 1
            continue
        for begin, end in _pieces(piece):
            some = _unpacked(np.frombuffer(piece[begin:end], np.uint8), what)
            values[at : at + len(some)] = some
            at += len(some)
    return values


def _pieces(data: memoryview, size: int = 1 << 16) -> Iterator[tuple[int, int]]:
    """Places to cut at, each after the end of a number, so that what is unpacked at a time stays small."""
    begin = 0
    while begin < len(data):
        end = min(len(data), begin + size)
        while end < len(data) and data[end - 1] >= 128:
            end += 1
        yield begin, end
        begin = end


def _unpacked(raw: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    import numpy as np

    ends = np.flatnonzero(raw < 128)
    if len(raw) and (not len(ends) or ends[-1] != len(raw) - 1):
        raise Damaged(f"{what}: a number does not end")
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    lengths = ends - starts + 1
    if len(lengths) and lengths.max() > 10:
        raise Damaged(f"{what}: a number has more than 10 bytes")
    values = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max()) if len(lengths) else 0):
        has = lengths > place
        values[has] |= (raw[starts[has] + place] & 127).astype(np.uint64) << np.uint64(7 * place)
    return values
