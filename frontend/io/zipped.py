"""Zipped: the members of a zip file, as views of the mapped file where they are stored as they are.

In       a mapped zip file
Out      `Member`: name, size, and its bytes when they are asked for
Next     arrays.py (.npz), torch_file.py (.pt)
Source   PKWARE's APPNOTE.TXT 6.3: 4.3.7 (local headers), 4.3.12 (the directory), 4.3.14 to 16 (its ends), 4.5.3 (ZIP64)

A member that is compressed is unpacked to the size it declares and no further. Deflate reaches 1032 to 1, so that a
declaration beyond that is refused at once.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

from hcq.checks import shown
from hcq.frontend.io.mapped import Mapped

LOCAL_HEADER = 30  # bytes before the name
LOCAL_MAGIC = b"PK\x03\x04"
MOST = 1032  # bytes that deflate makes of one
# signature, two versions, flags, method, time, date, checksum, packed, size, lengths of name, extra fields and comment,
# disk, two attributes, and where the local header is
ENTRY = struct.Struct("<4s6H3I5H2I")
ENTRY_MAGIC = b"PK\x01\x02"
NAME_LENGTH = 10  # its place in an entry
# signature, two disks, entries here and in all, size, begin, length of the comment
END = struct.Struct("<4s4H2IH")
END_MAGIC = b"PK\x05\x06"
MAX_COMMENT = 0xFFFF
LOCATOR = struct.Struct("<4sIQI")  # signature, disk, where the record of 64 bits is, how many disks
LOCATOR_MAGIC = b"PK\x06\x07"
# signature, size, two versions, two disks, entries here and in all, size, begin
END_64 = struct.Struct("<4sQ2H2I4Q")
END_64_MAGIC = b"PK\x06\x06"
MAX_16, MAX_32 = 0xFFFF, 0xFFFFFFFF  # say that the number stands elsewhere
ZIP64 = 1  # the kind of that extra field
IS_ENCRYPTED, NAMES_ARE_UTF8 = 1, 1 << 11
STORED, DEFLATED = 0, 8
BYTES_OF_A_MEMBER = 300


class Member(NamedTuple):
    """One file of an archive. begin, packed: where its bytes are in the zip file; size: of what they unpack to."""

    file: Mapped
    name: str
    begin: int
    packed: int
    size: int
    is_stored: bool

    def read(self, most: int | None = None) -> Any:
        """Its bytes, or the first `most` of them: a view where they are stored as they are."""
        wanted = self.size if most is None else min(most, self.size)
        if self.is_stored:
            return self.file.view(self.begin, self.begin + wanted)
        try:
            found = zlib.decompressobj(-15).decompress(
                self.file.view(self.begin, self.begin + self.packed), wanted or 1
            )
        except zlib.error as error:
            raise self.file.damaged(f"its member {self.name!r} does not unpack: {error}") from None
        if len(found) != wanted:
            raise self.file.damaged(f"its member {self.name!r} has {len(found)} bytes and says {self.size}")
        return found


def members(file: Mapped) -> list[Member]:
    """All members. Raises DamagedFile for a file that is no zip, and for members that are elsewhere or encrypted.

    The directory is read here and not by zipfile, which makes an object of every entry before anything can be said of
    it: entries may all name one member, and take many times the memory that the file does.
    """
    begin, end, count = _directory(file)
    found = []
    for _ in range(count):
        if begin + ENTRY.size > end or bytes(file.view(begin, begin + 4)) != ENTRY_MAGIC:
            raise _no_zip(file, f"it has fewer than the {count} members that it counts")
        entry = ENTRY.unpack(file.view(begin, begin + ENTRY.size))
        last = begin + ENTRY.size + sum(entry[NAME_LENGTH : NAME_LENGTH + 3])
        if last > end:
            raise _no_zip(file, "an entry of its directory ends behind it")
        member = _member(file, entry, file.view(begin + ENTRY.size, last))
        file.charge(BYTES_OF_A_MEMBER)
        begin = last
        if not member.name.endswith("/"):
            found.append(member)
    places = sorted((member.begin, member.begin + member.packed, member.name) for member in found)
    for (_, behind, one), (at, _, other) in zip(places, places[1:]):
        if at < behind + LOCAL_HEADER:
            raise file.damaged(f"its members {shown(one)} and {shown(other)} are in one place")
    return found


def _no_zip(file: Mapped, why: str) -> Exception:
    return file.damaged(f"it is no whole zip file: {why}")


def _directory(file: Mapped) -> tuple[int, int, int]:
    """Where the entries are, and how many. The last record stands at the end, behind it a comment at most."""
    tail = bytes(file.view(max(0, file.size - END.size - MAX_COMMENT), file.size))
    at = len(tail) - END.size
    while at >= 0:
        at = tail.rfind(END_MAGIC, 0, at + 4)
        if at >= 0 and at + END.size + END.unpack_from(tail, at)[-1] == len(tail):
            break
        at -= 1
    if at < 0:
        raise _no_zip(file, "it has no directory at its end")
    *_, count, size, begin, _ = END.unpack_from(tail, at)
    at += file.size - len(tail)
    if MAX_32 in (size, begin) or count == MAX_16:
        record = at - LOCATOR.size
        if record >= 0 and bytes(file.view(record, record + 4)) == LOCATOR_MAGIC:
            at = LOCATOR.unpack(file.view(record, record + LOCATOR.size))[2]
            if at + END_64.size > record or bytes(file.view(at, at + 4)) != END_64_MAGIC:
                raise _no_zip(file, "its directory of 64 bits is not where it should be")
            *_, count, size, begin = END_64.unpack(file.view(at, at + END_64.size))
    if begin + size > at or count * ENTRY.size > size:
        raise _no_zip(file, f"its directory of {count} members and {size} bytes does not fit")
    return begin, begin + size, count


def _member(file: Mapped, entry: tuple[int, ...], rest: memoryview) -> Member:
    """What an entry says: its fixed fields, and then name, extra fields and comment."""
    _, _, _, flags, method, _, _, _, packed, size, length, extra, _, disk, _, _, at = entry
    try:
        name = str(rest[:length], "utf-8" if flags & NAMES_ARE_UTF8 else "cp437")
    except UnicodeDecodeError:
        raise file.damaged(f"the name of a member is no text: {shown(bytes(rest[:length]))}") from None
    size, packed, at, disk = _wide(file, name, rest[length : length + extra], size, packed, at, disk)
    if disk or at + LOCAL_HEADER > file.size or bytes(file.view(at, at + 4)) != LOCAL_MAGIC:
        raise file.damaged(f"its member {shown(name)} does not begin where it should")
    if flags & IS_ENCRYPTED or method not in (STORED, DEFLATED):
        raise file.damaged(f"its member {shown(name)} is encrypted, or packed in a way that is not read")
    lengths = file.view(at + 26, at + LOCAL_HEADER)
    begin = at + LOCAL_HEADER + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    if begin + packed > file.size:
        raise file.damaged(f"its member {shown(name)} ends at byte {begin + packed} of {file.size}")
    if size > (packed if method == STORED else MOST * packed + MOST):
        raise file.damaged(f"its member {shown(name)} of {packed} bytes says that it unpacks to {size}")
    return Member(file, name, begin, packed, size, method == STORED)


def _wide(file: Mapped, name: str, extra: memoryview, *numbers: int) -> list[int]:
    """Sizes and place; those that are all ones stand in an extra field, in 8 bytes each (the last one, in 4)."""
    found = list(numbers)
    missing = [i for i, most in enumerate((MAX_32, MAX_32, MAX_32, MAX_16)) if found[i] == most]
    while missing and len(extra) >= 4:
        kind, length = int.from_bytes(extra[:2], "little"), int.from_bytes(extra[2:4], "little")
        field, extra = extra[4 : 4 + length], extra[4 + length :]
        if kind != ZIP64:
            continue
        for i in missing:
            width = 4 if i == 3 else 8
            if len(field) < width:
                raise file.damaged(f"its member {shown(name)} has no size of 64 bits")
            found[i], field = int.from_bytes(field[:width], "little"), field[width:]
        break
    return found
