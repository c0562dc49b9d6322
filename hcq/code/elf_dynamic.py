"""The dynamic segment of a linked object: its symbols and relocations, as a loader finds them without a section table.

In       an Object that a linker made
Out      Dynamic: the symbols, and every relocation that is left to do, whichever form its table has
Next     elf.py (the rest of an object), amd/link.py (who applies them)
Source   System V ABI, chapter 5, "Dynamic Section", "Hash Table"; "Relative Relocation Table" (SHT_RELR) of the
         gABI; the GNU hash section as glibc and lld have it

Addresses in it are those of the linker, and lead to bytes of the file by the segments that are loaded.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from hcq.code.elf import PT_LOAD, Object, Symbol

PT_DYNAMIC = 2
DT_NULL, DT_PLTRELSZ, DT_HASH, DT_STRTAB, DT_SYMTAB = 0, 2, 4, 5, 6
DT_RELA, DT_RELASZ, DT_RELAENT, DT_STRSZ, DT_SYMENT = 7, 8, 9, 10, 11
DT_REL, DT_RELSZ, DT_RELENT, DT_PLTREL, DT_JMPREL = 17, 18, 19, 20, 23
DT_RELRSZ, DT_RELR, DT_RELRENT = 35, 36, 37
DT_GNU_HASH = 0x6FFFFEF5
# what we know is there and cannot read
OTHERS = {
    38: "DT_CREL",
    0x6000000F: "DT_ANDROID_REL",
    0x60000011: "DT_ANDROID_RELA",
    0x6FFFE000: "DT_ANDROID_RELR",
}
MAX_SYMBOLS = 1 << 20
MAX_RELOCATIONS = 1 << 22
_ENTRY = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA, _REL = struct.Struct("<QQq"), struct.Struct("<QQ")


class Pending(NamedTuple):
    """A word that a loader computes. addend: None where it stands in the word itself; symbol 0 is nobody."""

    va: int
    type: int
    symbol: int
    addend: int | None


class Dynamic:
    """What PT_DYNAMIC leads to. Raises UsageError for one that is damaged, or has what we cannot read.

    relative   the type of a relocation that adds where the object was loaded: of this machine, for a RELR table
    """

    def __init__(self, image: Object, relative: int) -> None:
        self.object = image
        self.tags = self._tags()
        for tag, name in OTHERS.items():
            if tag in self.tags:
                raise image.refuse(
                    f"it has relocations of the form {name}, which are not read", "Link it with -z rela"
                )
        self.symbols = self._symbols()
        self.relocations = self._relocations(relative)
        for one in self.relocations:
            if one.symbol >= max(len(self.symbols), 1):
                raise image.refuse(f"a relocation names symbol {one.symbol} of {len(self.symbols)}")

    def _tags(self) -> dict[int, int]:
        segment = next((one for one in self.object.segments if one.type == PT_DYNAMIC), None)
        if segment is None:
            raise self.object.refuse(
                "it has no dynamic segment, by which a linked object's symbols are found"
            )
        data = self.object.slice(segment.offset, segment.file_bytes, "the dynamic segment")
        found: dict[int, int] = {}
        for tag, value in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]):
            if tag == DT_NULL:
                break
            found.setdefault(tag, value)
        return found

    def _bytes(self, va: int, size: int, what: str) -> bytes:
        """What the linker put at an address: all of it lies in the file, in one segment."""
        for segment in self.object.segments:
            if segment.type == PT_LOAD and segment.va <= va and va + size <= segment.va + segment.file_bytes:
                start = segment.offset + va - segment.va
                return self.object.image[start : start + size]
        raise self.object.refuse(f"{what} ({size} bytes at {va:#x}) lie in none of its segments")

    # ------------------------------------------------------------ symbols

    def _symbols(self) -> list[Symbol]:
        if DT_SYMTAB not in self.tags or DT_STRTAB not in self.tags:
            return []
        size = self.tags.get(DT_SYMENT, _SYMBOL.size)
        if size != _SYMBOL.size:
            raise self.object.refuse(f"its dynamic symbols have {size} bytes each, not {_SYMBOL.size}")
        count = self._symbol_count()
        if count > MAX_SYMBOLS:
            raise self.object.refuse(f"its hash table counts {count} dynamic symbols; {MAX_SYMBOLS} at most")
        names = self._bytes(self.tags[DT_STRTAB], self.tags.get(DT_STRSZ, 0), "its dynamic names")
        data = self._bytes(self.tags[DT_SYMTAB], count * _SYMBOL.size, "its dynamic symbols")
        found = []
        for name, info, other, section, value, length in _SYMBOL.iter_unpack(data):
            text = self.object.text_at(names, name, "symbol name")
            found.append(Symbol(text, info >> 4, info & 15, section, value, length, other))
        return found

    def _symbol_count(self) -> int:
        """Only the hash tables say it."""
        if DT_HASH in self.tags:
            return int(struct.unpack("<II", self._bytes(self.tags[DT_HASH], 8, "its hash table"))[1])
        if DT_GNU_HASH not in self.tags:
            raise self.object.refuse("its dynamic segment has no hash table, which counts the symbols")
        at = self.tags[DT_GNU_HASH]
        buckets, first, bloom, _ = struct.unpack("<IIII", self._bytes(at, 16, "its hash table"))
        at += 16 + 8 * bloom
        last = max(struct.unpack(f"<{buckets}I", self._bytes(at, 4 * buckets, "its hash buckets")), default=0)
        if last < first:
            return int(first)
        chain = at + 4 * buckets
        for index in range(last, MAX_SYMBOLS):  # the chain of the last bucket ends with an odd hash
            (value,) = struct.unpack("<I", self._bytes(chain + 4 * (index - first), 4, "its hash chain"))
            if value & 1:
                return index + 1
        return MAX_SYMBOLS + 1

    # ------------------------------------------------------------ relocations

    def _relocations(self, relative: int) -> list[Pending]:
        has_addends = self.tags.get(DT_PLTREL, DT_RELA) == DT_RELA
        found = self._with_addends(DT_RELA, DT_RELASZ, "its RELA table")
        found += self._without(DT_REL, DT_RELSZ, "its REL table")
        read = self._with_addends if has_addends else self._without
        found += read(DT_JMPREL, DT_PLTRELSZ, "its relocations of calls")
        return found + [Pending(va, relative, 0, None) for va in self._packed()]

    def _table(self, tag: int, size_tag: int, entry: int, what: str) -> bytes:
        size = self.tags.get(size_tag, 0) if tag in self.tags else 0
        if size % entry or size // entry > MAX_RELOCATIONS:
            raise self.object.refuse(f"{what} has {size} bytes, in entries of {entry}")
        return self._bytes(self.tags[tag], size, what) if size else b""

    def _with_addends(self, tag: int, size_tag: int, what: str) -> list[Pending]:
        table = self._table(tag, size_tag, _RELA.size, what)
        return [
            Pending(va, info & 0xFFFFFFFF, info >> 32, addend)
            for va, info, addend in _RELA.iter_unpack(table)
        ]

    def _without(self, tag: int, size_tag: int, what: str) -> list[Pending]:
        table = self._table(tag, size_tag, _REL.size, what)
        return [Pending(va, info & 0xFFFFFFFF, info >> 32, None) for va, info in _REL.iter_unpack(table)]

    def _packed(self) -> list[int]:
        """Addresses of a RELR table: an even word is one; an odd one has a bit for each of the 63 words behind it."""
        found: list[int] = []
        at = 0
        for (word,) in struct.iter_unpack("<Q", self._table(DT_RELR, DT_RELRSZ, 8, "its RELR table")):
            if word & 1 == 0:
                found.append(word)
                at = word + 8
                continue
            found += [at + 8 * bit for bit in range(63) if word >> bit + 1 & 1]
            at += 63 * 8
            if len(found) > MAX_RELOCATIONS:
                raise self.object.refuse(f"its RELR table names more than {MAX_RELOCATIONS} words")
        return found
