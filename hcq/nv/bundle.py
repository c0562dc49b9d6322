"""Bundle: a kernel's machine code and the PTX it was made from, in one image.

In       a cubin, PTX text, both as the toolchain made them, or what somebody else compiled
Out      `Bundle`: cubin and PTX, either of which may be missing; `pack()` gives the image that caches keep
Next     toolchain/images.py (who makes them), program.py (who loads them), abi/image.py (what is placed before the
         code)
Source   our own; a cubin is an ELF file, PTX is text that has a .version line

A GPU runs the cubin; a port that runs PTX, and people who read a trace, want the PTX of the same kernel beside it.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import NamedTuple

from hcq.errors import UsageError
from hcq.layout import SparsePacket, bits

MAGIC = int.from_bytes(b"HCQNV\0\0\1", "little")
HEADER_BYTES = 32
_VERSION_LINE = re.compile(rb"^[ \t]*\.version[ \t]+\d", re.MULTILINE)


class BundleHeader(SparsePacket, words=HEADER_BYTES // 4):
    """What follows: the PTX, then the cubin, both without padding."""

    magic = bits(63, 0, default=MAGIC)
    ptx_bytes = bits(127, 64)
    cubin_bytes = bits(191, 128)
    crc32 = bits(223, 192, doc="of all that follows the header")
    reserved = bits(255, 224, doc="zero")


class Bundle(NamedTuple):
    """One compiled module in its two forms; an empty one is missing."""

    cubin: bytes
    ptx: bytes

    def pack(self) -> bytes:
        """The image of both: the same bytes for the same contents. A single form is its own image."""
        if not self.cubin or not self.ptx:
            return self.cubin or self.ptx
        body = self.ptx + self.cubin
        header = BundleHeader(ptx_bytes=len(self.ptx), cubin_bytes=len(self.cubin), crc32=zlib.crc32(body))
        return header.to_bytes() + body

    @classmethod
    def of(cls, image: bytes | bytearray | memoryview) -> Bundle:
        """What an image holds: a packed bundle, a cubin, or PTX text.

        Raises   UsageError for anything else, and for a bundle that is damaged
        """
        data = bytes(image)
        if data[:4] == b"\x7fELF":
            return cls(data, b"")
        if data[:8] == MAGIC.to_bytes(8, "little"):
            return cls._unpack(data)
        text = data.rstrip(b"\0\n ")  # nvrtc's callers often pass the C string with its NUL
        if b"\0" not in text and _VERSION_LINE.search(text):
            return cls(b"", text + b"\n")
        start = data[:16].hex(" ") or "nothing"
        raise UsageError(
            f"this image of {len(data)} bytes is no code for an NVIDIA GPU: it starts with {start}."
            " Give a cubin (an ELF file), PTX text (with its .version line), or what the toolchain made."
        )

    @classmethod
    def _unpack(cls, data: bytes) -> Bundle:
        if len(data) < HEADER_BYTES:
            raise UsageError(
                f"this bundle ends after {len(data)} bytes, inside its header. Compile it again."
            )
        header = BundleHeader.decode(struct.unpack(f"<{HEADER_BYTES // 4}I", data[:HEADER_BYTES]))
        body = data[HEADER_BYTES:]
        is_whole = header.ptx_bytes + header.cubin_bytes == len(body) and not header.reserved
        if not is_whole or zlib.crc32(body) != header.crc32:
            raise UsageError(
                f"this bundle is damaged: its header says {header.ptx_bytes} bytes of PTX and {header.cubin_bytes}"
                f" of machine code, and {len(body)} bytes follow with another checksum. Compile it again."
            )
        return cls(cubin=body[header.ptx_bytes :], ptx=body[: header.ptx_bytes])
