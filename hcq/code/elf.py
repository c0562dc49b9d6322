"""ELF: read a code object's headers, sections, symbols and relocations, trusting no number in it.

In       the bytes of a 64-bit little-endian ELF object, relocatable (ET_REL) or shared (ET_DYN)
Out      Object: plain lists of Section, Segment, Symbol, Relocation; every offset and index checked against the file
Next     cpu/link.py (places an x86-64 or aarch64 object in memory)
Source   System V ABI, chapters 4 and 5; elf.h

We parse the few headers by hand: a generic reader takes milliseconds for an object that loads in a tenth of one.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from hcq.errors import UsageError

ET_REL, ET_DYN = 1, 3
EM_X86_64, EM_AARCH64, EM_CUDA, EM_AMDGPU = 62, 183, 190, 224
MACHINE_NAMES = {EM_X86_64: "x86_64", EM_AARCH64: "aarch64", EM_CUDA: "cuda", EM_AMDGPU: "amdgpu"}

SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_DYNSYM = (
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    11,
)
SHT_INIT_ARRAY, SHT_RELR = 14, 19
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS = 1, 2, 4, 0x400
SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE, STT_TLS, STT_GNU_IFUNC = 0, 1, 2, 3, 4, 6, 10
PT_LOAD, PT_NOTE = 1, 4
PF_X, PF_W, PF_R = 1, 2, 4

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")


class Section(NamedTuple):
    """One row of the section table. `flags` are SHF_* bits, `type` a SHT_* number."""

    name: str
    type: int
    flags: int
    va: int
    offset: int
    size_bytes: int
    link: int
    info: int
    alignment: int
    entry_bytes: int


class Segment(NamedTuple):
    """One row of the program headers: bytes of the file, and where in memory they go."""

    type: int
    flags: int
    offset: int
    va: int
    file_bytes: int
    memory_bytes: int
    alignment: int


class Symbol(NamedTuple):
    """One row of a symbol table."""

    name: str
    binding: int
    type: int
    section: int
    value: int
    size_bytes: int
    other: int = 0  # visibility, and what the architecture adds to it

    @property
    def is_undefined(self) -> bool:
        """Whether another object has it."""
        return self.section == SHN_UNDEF


class Relocation(NamedTuple):
    """A place in a section to be computed when addresses are known."""

    offset: int
    type: int
    symbol: int
    addend: int


class Object:
    """A code object's tables. `label` is how messages call it."""

    def __init__(self, image: bytes, label: str = "object") -> None:
        self.image = image
        self.label = label
        if len(image) < _HEADER.size:
            raise self.refuse(f"{len(image)} bytes are fewer than an ELF header's {_HEADER.size}")
        ident, self.type, self.machine, version, _, phoff, shoff, self.flags, *counts = _HEADER.unpack_from(
            image
        )
        _, phentsize, phnum, shentsize, shnum, shstrndx = counts
        if ident[:4] != b"\x7fELF":
            raise self.refuse(f"it starts with {ident[:4].hex()}, not with 7f454c46 (ELF)")
        if ident[4:7] != b"\x02\x01\x01" or (version != 1 and self.machine != EM_CUDA):
            raise self.refuse("it is not a 64-bit little-endian ELF of version 1")
        if (phnum and phentsize != _SEGMENT.size) or (shnum and shentsize != _SECTION.size):
            raise self.refuse(f"its table entries are {phentsize} and {shentsize} bytes, not 56 and 64")
        self.segments = [
            Segment(*self._segment(fields)) for fields in self._table(_SEGMENT, phoff, phnum, "segments")
        ]
        raw = self._table(_SECTION, shoff, shnum, "sections")
        names = b""
        if raw:
            if shstrndx >= len(raw):
                raise self.refuse(f"its section names are in section {shstrndx} of {len(raw)}")
            names = self.slice(raw[shstrndx][4], raw[shstrndx][5], "section names")
        self.sections = [
            Section(self.text_at(names, fields[0], "section name"), *fields[1:]) for fields in raw
        ]
        for section in self.sections:
            if section.type != SHT_NOBITS:
                self.slice(section.offset, section.size_bytes, f"section {section.name!r}")
            if section.alignment & (section.alignment - 1):
                raise self.refuse(
                    f"section {section.name!r} is aligned to {section.alignment}, not to a power of two"
                )

    @property
    def machine_name(self) -> str:
        """What kind of machine it is for, in words."""
        return MACHINE_NAMES.get(self.machine, f"machine {self.machine}")

    def contents(self, section: Section) -> bytes:
        """A section's bytes; empty for one that occupies no file space."""
        if section.type == SHT_NOBITS:
            return b""
        return self.image[section.offset : section.offset + section.size_bytes]

    def symbols(self, table: Section) -> list[Symbol]:
        """The symbols of a SHT_SYMTAB or SHT_DYNSYM section. Raises UsageError when the table is damaged."""
        names = self.contents(self.section(table.link, f"the names of {table.name!r}"))
        found = []
        for name, info, other, section, value, size in self._table(
            _SYMBOL, table.offset, table.size_bytes // _SYMBOL.size, table.name
        ):
            if SHN_UNDEF < section < SHN_LORESERVE and section >= len(self.sections):
                raise self.refuse(
                    f"a symbol of {table.name!r} is in section {section} of {len(self.sections)}"
                )
            text = self.text_at(names, name, "symbol name")
            found.append(Symbol(text, info >> 4, info & 15, section, value, size, other))
        return found

    def relocations(self, table: Section) -> list[Relocation]:
        """The entries of a SHT_RELA section."""
        entries = self._table(_RELA, table.offset, table.size_bytes // _RELA.size, table.name)
        return [Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend) for offset, info, addend in entries]

    def section(self, index: int, what: str) -> Section:
        """The section of this number. Raises UsageError, saying what asked for it, when there is none."""
        if index >= len(self.sections):
            raise self.refuse(f"{what}: section {index} of {len(self.sections)}")
        return self.sections[index]

    def slice(self, offset: int, size_bytes: int, what: str) -> bytes:
        """Bytes of the file. Raises UsageError, saying what lies there, when they end behind it."""
        if offset + size_bytes > len(self.image):
            end = offset + size_bytes
            raise self.refuse(
                f"{what} would end at byte {end} of {len(self.image)}; it is truncated or damaged"
            )
        return self.image[offset : offset + size_bytes]

    def notes(self) -> list[bytes]:
        """The contents of its notes: by sections, or by segments where its section table was stripped."""
        if self.sections:
            return [self.contents(section) for section in self.sections if section.type == SHT_NOTE]
        return [
            self.slice(segment.offset, segment.file_bytes, "a note")
            for segment in self.segments
            if segment.type == PT_NOTE
        ]

    def refuse(self, why: str, fix: str = "Give a whole ELF object, as a compiler wrote it") -> UsageError:
        """The error for an object that cannot be loaded, and what to do about it."""
        return UsageError(f"load({self.label!r}): {why}. {fix}.")

    def _table(self, layout: struct.Struct, offset: int, count: int, what: str) -> list[tuple[int, ...]]:
        return list(layout.iter_unpack(self.slice(offset, count * layout.size, f"table of {what}")))

    def _segment(self, fields: tuple[int, ...]) -> tuple[int, ...]:
        type_, flags, offset, va, _, file_bytes, memory_bytes, alignment = fields
        if type_ == PT_LOAD:
            self.slice(offset, file_bytes, "a segment")
            if file_bytes > memory_bytes:
                raise self.refuse(
                    f"a segment has {file_bytes} bytes in the file but {memory_bytes} in memory"
                )
        return type_, flags, offset, va, file_bytes, memory_bytes, alignment

    def text_at(self, table: bytes, offset: int, what: str) -> str:
        """A string of a table of names. Raises UsageError, saying what it is, when it does not end there."""
        end = table.find(b"\0", offset)
        if offset >= len(table) or end < 0:
            raise self.refuse(
                f"a {what} starts at byte {offset} of a table of {len(table)} and does not end in it"
            )
        return table[offset:end].decode("utf-8", "replace")
