"""Unpack: a file that was packed with gzip, of as many parts as it has, within bounds.

In       the bytes of a file
Out      what was packed; the bytes themselves of a file that is not packed
Next     readers.py (who reads it)
Source   RFC 1952; nvidia-bug-report.sh appends one part after the other to its file
"""

from __future__ import annotations

import zlib

MAX_BYTES = 64 << 20  # of what is unpacked; what is behind it is left out
MAGIC = b"\x1f\x8b\x08"


def unpacked(content: bytes) -> bytes:
    """The contents of all parts, as far as they can be read; nothing raises, and a bomb stops at MAX_BYTES."""
    if not content.startswith(MAGIC):
        return content
    whole = bytearray()
    rest = content
    while rest.startswith(MAGIC) and len(whole) < MAX_BYTES:
        part = zlib.decompressobj(31)
        try:
            while rest and not part.eof and len(whole) < MAX_BYTES:
                whole += part.decompress(rest, min(MAX_BYTES - len(whole), 1 << 20))
                rest = part.unconsumed_tail
        except zlib.error:
            break
        if not part.eof:
            break
        rest = part.unused_data
    return bytes(whole) or content
