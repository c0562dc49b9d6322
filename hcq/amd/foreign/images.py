"""Images: a code object put together again from memory, where a loader has laid out its segments.

In       memory, and where an ELF header lies in it
Out      the object's bytes, with a table of sections made from what the dynamic segment says
Next     code_objects.py (who looks for headers), hcq/code/elf.py and hcq/amd/metadata.py (who read the result)
Source   ROCr's loader, observed: segments lie in one allocation at their own distances, the ELF header, the notes and
         the dynamic symbols among them, for LLVM's linker puts all of them into the first loaded segment

What is not loaded is lost: section names, the table of all symbols, debug information.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from hcq.amd.link import MAX_IMAGE_BYTES
from hcq.code import elf_search
from hcq.code.elf import EM_AMDGPU, ET_DYN, SHF_ALLOC, SHF_EXECINSTR, SHT_DYNSYM, SHT_PROGBITS, SHT_STRTAB
from hcq.code.elf_search import HEADER, SECTION, SEGMENT, Wanted
from hcq.events.kernel_observer import Read

SIGNATURE = b"\x7fELF\x02\x01\x01\x40"  # 64-bit, little-endian, version 1, OS ABI amdhsa
WANTED = Wanted(SIGNATURE, EM_AMDGPU)
PT_LOAD, PT_DYNAMIC, PT_NOTE, PF_X = 1, 2, 4, 1
SHT_NOTE = 7
DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_GNU_HASH = 4, 5, 6, 10, 0x6FFFFEF5
SYMBOL_BYTES = 24
MAX_SYMBOLS = 1 << 20
NAMES = b"\0.note\0.dynsym\0.dynstr\0.text\0.data\0.shstrtab\0"

Segments = list[tuple[int, ...]]


def size_of(data: bytes, at: int) -> int:
    """How long the object is that begins at an offset of some bytes; 0 where it is none, or is cut off."""
    return elf_search.size_of(data, at, WANTED)


def from_memory(read: Read, base: int) -> bytes:
    """The code object whose first segment lies at `base`; empty where there is none that makes sense."""
    header = read(base, HEADER.size)
    if len(header) != HEADER.size or not header.startswith(SIGNATURE):
        return b""
    fields = list(HEADER.unpack(header))
    if fields[1] != ET_DYN or fields[2] != EM_AMDGPU or fields[9] != SEGMENT.size:
        return b""
    table = read(base + fields[5], fields[10] * SEGMENT.size)
    if not table:
        return b""
    segments: Segments = list(SEGMENT.iter_unpack(table))
    loads = [one for one in segments if one[0] == PT_LOAD]
    end = max((one[2] + one[5] for one in loads), default=0)
    if not 0 < end <= MAX_IMAGE_BYTES or any(one[3] + one[6] > MAX_IMAGE_BYTES for one in loads):
        return b""
    image = bytearray(end)
    for _, _, offset, va, _, file_bytes, _, _ in loads:
        image[offset : offset + file_bytes] = read(base + va, file_bytes).ljust(file_bytes, b"\0")
    return _with_sections(image, fields, segments)


def _with_sections(image: bytearray, header: list[int], segments: Segments) -> bytes:
    rows: list[tuple[int, ...]] = [(0,) * 10]
    name = {text: NAMES.index(text + b"\0") for text in NAMES.split(b"\0") if text}
    for kind, flags, offset, va, _, file_bytes, _, _ in segments:
        if kind == PT_NOTE:
            rows.append((name[b".note"], SHT_NOTE, SHF_ALLOC, va, offset, file_bytes, 0, 0, 4, 0))
        elif kind == PT_LOAD and flags & PF_X:
            executable = SHF_ALLOC | SHF_EXECINSTR
            rows.append((name[b".text"], SHT_PROGBITS, executable, va, offset, file_bytes, 0, 0, 256, 0))
        elif kind == PT_LOAD:
            rows.append((name[b".data"], SHT_PROGBITS, SHF_ALLOC, va, offset, file_bytes, 0, 0, 64, 0))
    rows += _symbol_sections(image, segments, name, len(rows))
    names_at = len(image)
    rows.append((name[b".shstrtab"], SHT_STRTAB, 0, 0, names_at, len(NAMES), 0, 0, 1, 0))
    table_at = -(-(names_at + len(NAMES)) // 8) * 8
    image += NAMES.ljust(table_at - names_at, b"\0")
    image += b"".join(SECTION.pack(*row) for row in rows)
    header[6], header[11], header[12], header[13] = table_at, SECTION.size, len(rows), len(rows) - 1
    image[: HEADER.size] = HEADER.pack(*header)
    return bytes(image)


def _symbol_sections(
    image: bytearray, segments: Segments, name: dict[bytes, int], first: int
) -> list[tuple[int, ...]]:
    dynamic = next((one for one in segments if one[0] == PT_DYNAMIC), None)
    if dynamic is None:
        return []
    entries = bytes(image[dynamic[2] : dynamic[2] + dynamic[5]])
    tags = dict(struct.iter_unpack("<QQ", entries[: len(entries) & ~15]))
    names, symbols = (_offset(segments, tags.get(tag, 0)) for tag in (DT_STRTAB, DT_SYMTAB))
    size = tags.get(DT_STRSZ, 0)
    count = min(_symbols(image, segments, tags), MAX_SYMBOLS)
    if names is None or symbols is None or not count or symbols + count * SYMBOL_BYTES > len(image):
        return []
    # symbols name the sections of the whole object: those are gone, and every symbol that has one is in the code
    sections = {one[0]: index for index, one in enumerate(segments)}
    for at in range(symbols, symbols + count * SYMBOL_BYTES, SYMBOL_BYTES):
        if struct.unpack_from("<H", image, at + 6)[0] not in (0, 0xFFF1):
            struct.pack_into("<H", image, at + 6, 1 if sections else 0)
    return [
        (name[b".dynstr"], SHT_STRTAB, SHF_ALLOC, tags[DT_STRTAB], names, size, 0, 0, 1, 0),
        (
            name[b".dynsym"], SHT_DYNSYM, SHF_ALLOC, tags[DT_SYMTAB], symbols,
            count * SYMBOL_BYTES, first, 1, 8, SYMBOL_BYTES,
        ),
    ]  # fmt: skip


def _offset(segments: Segments, va: int) -> int | None:
    """Where the byte of an address is in the file."""
    for kind, _, offset, start, _, file_bytes, _, _ in segments:
        if kind == PT_LOAD and start <= va < start + file_bytes:
            return int(offset + va - start)
    return None


def _symbols(image: bytearray, segments: Segments, tags: dict[int, int]) -> int:
    """How many dynamic symbols there are: only the hash tables say so."""
    at = _offset(segments, tags[DT_HASH]) if DT_HASH in tags else None
    if at is not None and at + 8 <= len(image):
        return int(struct.unpack_from("<I", image, at + 4)[0])
    at = _offset(segments, tags[DT_GNU_HASH]) if DT_GNU_HASH in tags else None
    if at is None or at + 16 > len(image):
        return 0
    buckets, first, bloom, _ = struct.unpack_from("<4I", image, at)
    buckets_at = at + 16 + 8 * bloom
    last = max(_words(image, buckets_at, buckets), default=0)
    chain = buckets_at + 4 * buckets + 4 * (last - first)
    while last >= first and chain + 4 <= len(image):
        last += 1
        if struct.unpack_from("<I", image, chain)[0] & 1:
            return last
        chain += 4
    return int(first)


def _words(image: bytearray, at: int, count: int) -> Iterator[int]:
    for index in range(min(count, (len(image) - at) // 4)):
        yield struct.unpack_from("<I", image, at + 4 * index)[0]
