"""Trace frames: the bytes of a trace file as records, each checked.

In       the content of a file, whole or cut off
Out      `read_records`: the whole records, and what is left after the last one
Next     records.py (every byte), file.py (what the records mean together)
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

from hcq.errors import UsageError
from hcq.trace.records import HEADS, MAGIC, VERSION, Frame, Kind

_FRAME = Frame.struct()[0]
_HEADS = {kind: head.struct() for kind, head in HEADS.items()}


@dataclass(frozen=True)
class Record:
    """One record. `fields` is its text, or the fields of its head; `data` is what follows the head.

    kind    of Kind; a number when it is of a kind that this version does not know
    at      where it starts in the file, in bytes; `raw` is all of it
    """

    index: int
    kind: int
    process: int
    time_ns: int
    fields: dict[str, Any]
    data: bytes
    at: int
    raw: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """The kind in words; KIND_n for one that this version does not know."""
        return self.kind.name if isinstance(self.kind, Kind) else f"KIND_{self.kind}"


def read_records(content: bytes) -> tuple[list[Record], int, str]:
    """The whole records of a file, the bytes that are left after the last one, and why they are no record.

    Raises UsageError when the content is no trace, or of another version.
    """
    if not content.startswith(MAGIC):
        raise UsageError(_no_trace(content))
    found: list[Record] = []
    at = len(MAGIC)
    why = ""
    while at < len(content):
        if at + _FRAME.size > len(content):
            why = "cut off in the middle of a record"
            break
        checksum, _, _, text_bytes, data_bytes, _, _ = _FRAME.unpack_from(content, at)
        end = at + _FRAME.size + text_bytes + data_bytes
        if end > len(content):
            why = "cut off in the middle of a record, or its length is damaged"
            break
        raw = content[at:end]
        if zlib.crc32(raw[4:]) != checksum:
            why = "damaged: a record's checksum is wrong"
            break
        found.append(record_of(len(found), raw, at))
        at = end
    if not found and at < len(content):
        raise UsageError(f"no trace: it begins like one, but its first record is {why}.")
    return found, len(content) - at, why


def record_of(index: int, raw: bytes, at: int) -> Record:
    """A whole record whose checksum is right. Raises UsageError when its bytes contradict each other."""
    _, kind, _, text_bytes, _, process, time_ns = _FRAME.unpack_from(raw)
    data = raw[_FRAME.size + text_bytes :]
    fields: dict[str, Any] = {}
    try:
        if text_bytes:
            fields = json.loads(raw[_FRAME.size : _FRAME.size + text_bytes])
            if not isinstance(fields, dict):
                raise ValueError("its text is no table")
        known: int = Kind(kind) if kind in Kind._value2member_map_ else kind
        if known in _HEADS:
            head, names = _HEADS[Kind(known)]
            fields = dict(zip(names, head.unpack_from(data)))
            data = data[head.size :]
    except (ValueError, struct.error, RecursionError) as error:
        raise UsageError(f"record {index} (at byte {at}) cannot mean anything: {error}.") from None
    return Record(index, known, process, time_ns, fields, data, at, raw)


def first_fields(start: bytes) -> dict[str, Any]:
    """The text of the first record of a trace that begins like this; empty when it is not whole, or there is none."""
    rest = start[len(MAGIC) :]
    if len(rest) < _FRAME.size:
        return {}
    _, _, _, text_bytes, data_bytes, _, _ = _FRAME.unpack_from(rest)
    raw = rest[: _FRAME.size + text_bytes + data_bytes]
    try:
        return record_of(0, raw, len(MAGIC)).fields
    except UsageError:
        return {}


def _no_trace(content: bytes) -> str:
    start = MAGIC.split()[0] + b" "
    if content.startswith(start):
        version = content[len(start) :].split(b"\n")[0][:20].decode("ascii", "replace")
        return f"a trace of version {version}, and this program reads version {VERSION}. Record it again."
    return f"not a trace; it does not start with {MAGIC.decode().strip()!r}."
