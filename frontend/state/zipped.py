"""Zipped: the members of a zip file, as views of the mapped file where they are stored as they are.

In       a mapped zip file
Out      `Member`: name, size, and its bytes when they are asked for
Changes  nothing
Next     arrays.py (.npz), torch_file.py (.pt)
Source   PKWARE's APPNOTE: the local file header

A member that is compressed is unpacked to the size it declares and no further. Deflate reaches 1032 to 1, so that a
declaration beyond that is refused at once.
"""

from __future__ import annotations

import zipfile
import zlib
from typing import Any, NamedTuple

from hcq.checks import shown
from hcq.frontend.state.mapped import Mapped

LOCAL_HEADER = 30  # bytes before the name
LOCAL_MAGIC = b"PK\x03\x04"
MOST = 1032  # bytes that deflate makes of one


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
    """All members. Raises DamagedFile for a file that is no zip, and for members that are elsewhere or encrypted."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OverflowError) as error:
        raise file.damaged(f"it is no whole zip file: {shown(str(error))}") from None
    return [_member(file, info) for info in infos if not info.filename.endswith("/")]


def _member(file: Mapped, info: zipfile.ZipInfo) -> Member:
    name, at = info.filename, info.header_offset
    if at < 0 or at + LOCAL_HEADER > file.size or bytes(file.view(at, at + 4)) != LOCAL_MAGIC:
        raise file.damaged(f"its member {shown(name)} does not begin where it should")
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise file.damaged(f"its member {shown(name)} is encrypted, or packed in a way that is not read")
    lengths = file.view(at + 26, at + LOCAL_HEADER)
    begin = at + LOCAL_HEADER + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    is_stored = info.compress_type == zipfile.ZIP_STORED
    if begin + info.compress_size > file.size:
        raise file.damaged(
            f"its member {shown(name)} ends at byte {begin + info.compress_size} of {file.size}"
        )
    if info.file_size > (info.compress_size if is_stored else MOST * info.compress_size + MOST):
        raise file.damaged(
            f"its member {shown(name)} of {info.compress_size} bytes says that it unpacks to {info.file_size}"
        )
    return Member(file, name, begin, info.compress_size, info.file_size, is_stored)
