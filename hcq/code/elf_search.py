"""Objects in the memory of another process: where ELF files lie there, mapped or read, whole.

In       a process, and what kind of object is looked for
Out      each such object with its bytes
Next     elf.py (what is in one), used_pages.py (where it is worth looking), amd/foreign/code_objects.py and
         nv/foreign/cubins.py (who look for kernels)
Source   elf(5); proc(5): maps, mem, pagemap
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import FileIO
from typing import NamedTuple

from hcq.code.used_pages import used

HEADER, SEGMENT, SECTION = (
    struct.Struct("<16sHHIQQQIHHHHHH"),
    struct.Struct("<IIQQQQQQ"),
    struct.Struct("<IIQQQQIIQQ"),
)
SHT_NOBITS = 8
CHUNK_BYTES = 8 << 20  # of the memory of a process
SMALL_BYTES = 16 << 20  # a mapped file up to here is read whole
MAX_OBJECT_BYTES = 1 << 28
# objects lie at multiples of four: it is looked for as a word
ELF_WORD = int.from_bytes(b"\x7fELF", "little")


class Wanted(NamedTuple):
    """Objects that begin with these bytes, four at least, for this machine."""

    signature: bytes
    machine: int


def size_of(data: bytes, at: int, wanted: Wanted) -> int:
    """How long the object is that begins at an offset of some bytes; 0 where it is none, or is cut off."""
    if len(data) < at + HEADER.size or not data.startswith(wanted.signature, at):
        return 0
    _, _, machine, _, _, phoff, shoff, _, _, _, phnum, shentsize, shnum, _ = HEADER.unpack_from(data, at)
    if machine != wanted.machine or shentsize != SECTION.size or not shnum or not shoff:
        return 0
    end = int(shoff + shnum * SECTION.size)
    if end > MAX_OBJECT_BYTES or at + end > len(data):
        return 0
    for fields in SECTION.iter_unpack(data[at + shoff : at + end]):
        if fields[1] != SHT_NOBITS:
            end = max(end, fields[4] + fields[5])
    end = max(end, phoff + phnum * SEGMENT.size)  # last in NVIDIA's
    return end if end <= MAX_OBJECT_BYTES and at + end <= len(data) else 0


def objects_in(pid: int, wanted: Wanted) -> Iterator[tuple[bytes, int]]:
    """Every such object in readable memory, whole: its bytes, and where in them it begins."""
    try:
        memory = open(f"/proc/{pid}/mem", "rb", buffering=0)
    except OSError:
        return
    with memory, open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pages:
        # nobody has loaded a code object from any other page: a library may have gigabytes of objects for GPUs that are
        # not there. Of a file the pages that the kernel has taken back count as not used, so small files are read whole
        for low, high, is_file in _mappings(pid):
            is_whole = is_file and high - low <= SMALL_BYTES
            for start, end in [(low, high)] if is_whole else used(pages, low, high):
                for at in range(start, end, CHUNK_BYTES):
                    yield from _objects_between(memory, at, min(at + CHUNK_BYTES, end), high, wanted)


def _objects_between(
    memory: FileIO, start: int, end: int, limit: int, wanted: Wanted
) -> Iterator[tuple[bytes, int]]:
    """Those that begin in a piece of memory; they may reach as far as its mapping does."""
    import numpy as np

    data = _peek(memory, start, end - start)
    words = np.frombuffer(data[: len(data) & ~3], np.uint32)
    for place in 4 * np.flatnonzero(words == ELF_WORD):
        at = int(place)
        header = _peek(memory, start + at, HEADER.size)
        if not header.startswith(wanted.signature):
            continue
        if size_of(data, at, wanted):
            yield data, at
            continue
        whole = _peek(memory, start + at, min(_announced(header), limit - start - at))
        if size_of(whole, 0, wanted):
            yield whole, 0


def _announced(header: bytes) -> int:
    """How long an object is by its header: linkers write the tables of sections or segments last."""
    if len(header) < HEADER.size:
        return 0
    fields = HEADER.unpack(header)
    end = int(max(fields[5] + fields[9] * fields[10], fields[6] + fields[11] * fields[12]))
    return end if end <= MAX_OBJECT_BYTES else 0


def _peek(memory: FileIO, va: int, size_bytes: int) -> bytes:
    """Memory of a process; what is gone meanwhile, or a device's, is nothing."""
    try:
        memory.seek(va)
        return memory.read(size_bytes) or b""
    except (OSError, OverflowError, ValueError):
        return b""


def _mappings(pid: int) -> list[tuple[int, int, bool]]:
    """Readable memory that may hold an object, and whether it is a file's: not that of devices, nor GPU memory."""
    found = []
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                span, access, _, _, _, *path = line.split(maxsplit=5)
                name = path[0].strip() if path else ""
                if access[0] == "r" and not name.startswith(("/dev/", "/memfd:", "[v")):
                    low, high = (int(text, 16) for text in span.split("-"))
                    found.append((low, high, name.startswith("/")))
    except (OSError, ValueError):
        return []
    return found
