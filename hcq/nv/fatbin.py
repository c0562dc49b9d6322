"""Fat binaries: machine code and PTX for several architectures in one file, as nvcc -fatbin writes it.

In       the bytes of one; or of a container that holds one
Out      what it holds; the Bundle for an architecture
Next     bundle.py (the two forms of a kernel), hcq/code/containers.py (other containers), hcq/code/lz4.py
Source   files of nvcc 13.0 with and without compression, beside cuobjdump's listing of them
"""

from __future__ import annotations

import functools
import struct

from hcq.code import containers, lz4
from hcq.code.containers import FATBIN, MAX_MEMBERS, Member
from hcq.errors import UsageError
from hcq.nv import ptx
from hcq.nv.bundle import Bundle
from hcq.nv.cubin import Cubin

_HEADER, _ENTRY = struct.Struct("<IHHQ"), struct.Struct("<HHIQIIHHIIIQQQ")
PTX, ELF = 1, 2
LZ4, ZSTD = 0x2000, 0x8000  # flags
NAMES = {PTX: "PTX", ELF: "machine code"}


def members(image: bytes, label: str) -> list[Member]:
    """What a fat binary holds, decompressed."""
    found: list[Member] = []
    at = 0
    while image.startswith(FATBIN, at):
        _, _, header_bytes, size = _HEADER.unpack(
            containers.part(image, label, at, _HEADER.size, "its header")
        )
        end = at + header_bytes + size
        containers.part(image, label, at, end - at, "its contents")
        if header_bytes < _HEADER.size:
            raise containers.damaged(image, label, f"its header has {header_bytes} bytes")
        at += header_bytes
        while at < end:
            fields = _ENTRY.unpack(containers.part(image, label, at, _ENTRY.size, "an entry"))
            kind, _, entry_bytes, size, packed, _, _, _, arch, _, _, flags, _, whole = fields
            if entry_bytes < _ENTRY.size:
                raise containers.damaged(image, label, f"an entry's header has {entry_bytes} bytes")
            data = containers.part(image, label, at + entry_bytes, size, "an entry")
            at += entry_bytes + size
            name = f"{NAMES.get(kind, f'something of kind {kind}')} for sm_{arch}"
            if flags & ZSTD and not containers.has_zstd():
                found.append(Member(f"{name}, compressed by zstd ({containers.NO_ZSTD})", b""))
            else:
                found.append(Member(name, _decompressed(image, label, data, flags, packed, whole)))
            if len(found) > MAX_MEMBERS:
                raise containers.damaged(image, label, f"it holds more than {MAX_MEMBERS} entries")
    return found


def _decompressed(image: bytes, label: str, data: bytes, flags: int, packed: int, whole: int) -> bytes:
    if not flags & (LZ4 | ZSTD):
        return data
    block = containers.part(data, label, 0, packed, "a compressed entry")
    if flags & ZSTD:
        return containers.inflated(image, label, block, whole, "zstd")
    if whole > containers.MAX_BYTES:
        raise containers.damaged(image, label, f"an entry would have {whole} bytes")
    return lz4.decompress(block, whole, label)


def opened(image: bytes, arch: str, label: str, entry: str | None) -> bytes:
    """What an sm_... loads of these bytes: machine code and PTX of a container in one image; or the bytes themselves.

    Raises  UsageError that names the container when there is neither in it
    """
    if containers.kind_of(image) is None:
        return image
    forms: list[bytes] = []
    refused: UsageError | None = None
    for fits in (_code_fits, _ptx_fits):
        how_well = functools.partial(fits, int(arch.removeprefix("sm_")))
        try:
            forms.append(containers.taken_out(image, label, arch, how_well, entry, {FATBIN: members}))
        except UsageError as error:
            refused = refused or error
            forms.append(b"")
    code, text = forms
    if refused is not None and not code and not text:
        raise refused
    return Bundle(code, text.rstrip(b"\0\n ") + b"\n" if text else b"").pack()


def _code_fits(mine: int, data: bytes) -> int:
    """How well a cubin fits an architecture: the later the better, of those that run there."""
    try:
        made = Cubin(data).sm if data.startswith(b"\x7fELF") else 0
    except UsageError:
        return 0
    return made if made <= mine and made // 10 == mine // 10 else 0


def _ptx_fits(mine: int, data: bytes) -> int:
    """The same of PTX. What uses features of one architecture alone (sm_90a) runs on no other."""
    try:
        text = b"" if data.startswith(b"\x7fELF") else Bundle.of(data).ptx
        target = ptx.read_module(text.decode("utf-8", "replace")).target if text else "0"
    except UsageError:
        return 0
    made = int("".join(letter for letter in target if letter.isdigit()))
    return made if made <= mine and (target[-1].isdigit() or made == mine) else 0
