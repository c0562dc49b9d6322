"""Calls: what a PORT record says of an ioctl, with the memory that its argument pointed to.

In       a record of kind PORT; for the writer, an argument and its Nested memory
Out      Call; the record's data and the keys of its text that describe it
Next     records.py (the frame), hcq/system/ioctl_pointers.py (what is followed), docs/trace-format.md (the same for
         people)

The data is the argument before the call and after it, then each nested block before and after; `nested` in the text
names them and says how long each is. A record without `nested` is of a version that did not follow pointers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hcq.system.ioctl_pointers import Nested
from hcq.trace.frames import Record


class Call(NamedTuple):
    """An ioctl. nested: the memory behind the addresses in its argument, outer blocks first."""

    fd: int
    request: int
    before: bytes
    after: bytes
    nested: tuple[Nested, ...]


def pack(fields: dict[str, Any], before: bytes, after: bytes, nested: Sequence[Nested]) -> bytes:
    """The data of a record; `fields`, its text, is told what stands where."""
    if nested:
        fields["nested"] = [
            {
                "name": block.name,
                "va": block.va,
                "before_bytes": len(block.before),
                "after_bytes": len(block.after),
            }
            for block in nested
        ]
    return b"".join((before, after, *(part for block in nested for part in (block.before, block.after))))


def ioctl_of(record: Record) -> Call | None:
    """The ioctl that a record is of; None for every other call. Raises ValueError where its parts do not fit it."""
    fields = record.fields
    given, size = fields.get("arguments"), fields.get("argument_bytes")
    if fields.get("call") != "ioctl" or not isinstance(given, list) or len(given) != 2:
        return None
    if not isinstance(size, int):
        return None
    data, at = record.data, 2 * size
    nested = []
    for block in fields.get("nested", ()):
        sizes = int(block["before_bytes"]), int(block["after_bytes"])
        if min(sizes) < 0:
            raise ValueError("what an ioctl pointed to has less than no bytes")
        middle = at + sizes[0]
        end = middle + sizes[1]
        nested.append(Nested(str(block["name"]), int(block["va"]), data[at:middle], data[middle:end]))
        at = end
    if at > len(data) or size < 0:
        raise ValueError("what an ioctl pointed to reaches beyond its record")
    return Call(int(given[0]), int(given[1]), data[:size], data[size : 2 * size], tuple(nested))
