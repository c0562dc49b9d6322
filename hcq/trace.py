"""Trace: a file that records what was submitted, for all devices, framed so that a cut-off file reads up to the cut.

In       device facts, mappings, code objects, submissions with their raw words, signals awaited
Out      a file of records; `read_trace` gives them back
Changes  the file HCQ_TRACE names: one write per record, straight to the kernel, so a killed process loses nothing
Next     tools/hcq_trace.py (shows it)

File: the line "HCQTRACE 1", then records. A record: length of text, length of data (two 32-bit numbers), the text
(JSON, with "kind" and "time_ns"), the data (raw packet words or a code object).
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple

from hcq import native
from hcq.command import Command, Dispatch, Indirect
from hcq.errors import DriverError, UsageError
from hcq.memory import Buffer
from hcq.signal import CELL_BYTES, Signal

MAGIC = b"HCQTRACE 1\n"
_FRAME = struct.Struct("<II")


class Record(NamedTuple):
    """One line of a trace: what it says, and the bytes that go with it."""

    fields: dict[str, Any]
    data: bytes


class TraceWriter:
    """Appends records to a file. One file may take records of several devices and processes."""

    def __init__(self, path: str) -> None:
        import json

        self._dumps = json.dumps
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DriverError(
                f"HCQ_TRACE={path}: cannot be written ({error.strerror}). Name another file."
            ) from None
        self.path = path
        if os.fstat(self._fd).st_size == 0:
            os.write(self._fd, MAGIC)

    @staticmethod
    def of(path: str | None) -> TraceWriter | None:
        """The writer for a file, shared by all devices of the process; None when there is no file."""
        if path is None:
            return None
        if path not in _writers:
            _writers[path] = TraceWriter(path)
        return _writers[path]

    def device(self, device: str, arch: str, facts: dict[str, Any]) -> None:
        self._write({"kind": "device", "device": device, "arch": arch, "pid": os.getpid(), "facts": facts})

    def map(self, device: str, va: int, size_bytes: int, name: str | None) -> None:
        self._write({"kind": "map", "device": device, "va": va, "size_bytes": size_bytes, "name": name})

    def unmap(self, device: str, va: int, size_bytes: int) -> None:
        self._write({"kind": "unmap", "device": device, "va": va, "size_bytes": size_bytes})

    def code(self, device: str, name: str, entry: str, va: int, image: bytes) -> None:
        self._write({"kind": "code", "device": device, "name": name, "entry": entry, "va": va}, image)

    def submit(
        self, device: str, value: int, words: bytes, commands: Sequence[Command], held: Iterable[Any]
    ) -> None:
        """A submission: its words, then the words of each block it runs indirectly, and the buffers it may touch."""
        blocks = [what for what in commands if isinstance(what, Indirect)]
        fields = {
            "kind": "submit",
            "device": device,
            "value": value,
            "size_words": len(words) // 4,
            "blocks": [[what.address, what.size_words, what.label] for what in blocks],
            "argument_kinds": argument_kinds(commands),
            "commands": [str(what) for what in commands],
            "buffers": named_ranges(held),
        }
        self._write(
            fields, words + b"".join(native.read(what.address, 4 * what.size_words) for what in blocks)
        )

    def signal(self, device: str, va: int, value: int, timestamp_ns: int) -> None:
        self._write(
            {"kind": "signal", "device": device, "va": va, "value": value, "timestamp_ns": timestamp_ns}
        )

    def _write(self, fields: dict[str, Any], data: bytes = b"") -> None:
        text = self._dumps({"time_ns": time.monotonic_ns(), **fields}).encode()
        os.write(self._fd, _FRAME.pack(len(text), len(data)) + text + data)


_writers: dict[str, TraceWriter] = {}


def argument_kinds(commands: Iterable[Command]) -> list[str]:
    """For every dispatch, in the order of its packet, one letter an argument: b buffer, i integer, f float.

    Registers hold 64 bits and do not say what they mean; with this a reader finds the arguments in a packet's slots.
    """
    found = []
    for what in commands:
        if isinstance(what, Indirect):
            found += argument_kinds(what.commands)
        elif isinstance(what, Dispatch):
            kinds = what.program.args
            if kinds is None:
                kinds = tuple("float" if isinstance(arg, float) else "int" for arg in what.args)
            found.append("".join(kind[0] for kind in kinds))
    return found


def named_ranges(held: Iterable[Any]) -> list[list[Any]]:
    """[va, size_bytes, name] of every live buffer in nested lists of arguments."""
    found: dict[int, list[Any]] = {}
    for thing in held:
        if isinstance(thing, Buffer):
            if thing.va is not None:
                found[thing.va] = [thing.va, thing.size_bytes, thing.name]
        elif isinstance(thing, Signal):
            found[thing.va] = [thing.va, CELL_BYTES, f"signal {thing.name}"]
        elif isinstance(thing, (list, tuple)):
            found.update((entry[0], entry) for entry in named_ranges(thing))
    return list(found.values())


def read_trace(path: str) -> Generator[Record, None, int]:
    """The whole records of a file, up to the first that is cut off or damaged.

    Returns (as a generator does) the bytes that are left after the last whole record: 0 unless the file is cut off.
    Raises UsageError when the file cannot be read or is no trace.
    """
    import json

    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None
    if not content.startswith(MAGIC):
        raise UsageError(f"{path}: not a trace; it does not start with {MAGIC.decode().strip()!r}.")
    at = len(MAGIC)
    while at + _FRAME.size <= len(content):
        text_bytes, data_bytes = _FRAME.unpack_from(content, at)
        start = at + _FRAME.size
        end = start + text_bytes + data_bytes
        if end > len(content):
            return len(content) - at
        try:
            fields = json.loads(content[start : start + text_bytes])
        except ValueError:
            return len(content) - at
        yield Record(fields, content[start + text_bytes : end])
        at = end
    return len(content) - at
