"""LZ4 blocks, decompressed: no more than a size that is known before.

In       a block, and how long its contents are
Out      the contents
Next     nv/fatbin.py (whose machine code is compressed so)
Source   the LZ4 block format
"""

from __future__ import annotations

from hcq.errors import UsageError

LEAST_MATCH = 4


def decompress(block: bytes, size_bytes: int, label: str) -> bytes:
    """The contents of a block. Raises UsageError when it is damaged or does not make exactly so many bytes."""
    made = bytearray()
    at, end = 0, len(block)
    try:
        while at < end:
            token = block[at]
            count, at = _length(block, at + 1, token >> 4)
            if at + count > end or len(made) + count > size_bytes:
                raise IndexError
            made += block[at : at + count]
            at += count
            if at == end:
                break  # the last piece has no match
            distance = block[at] | block[at + 1] << 8
            count, at = _length(block, at + 2, token & 15)
            count += LEAST_MATCH
            start = len(made) - distance
            if not distance or start < 0 or len(made) + count > size_bytes:
                raise IndexError
            piece = made[start : start + count]
            made += (piece * -(-count // len(piece)))[:count]  # a match may reach into what it makes
    except IndexError:
        raise UsageError(f"load({label!r}): a compressed part of it is damaged. Compile it again.") from None
    if len(made) != size_bytes:
        raise UsageError(
            f"load({label!r}): a compressed part of it has {len(made)} bytes, not the {size_bytes} that it says. "
            "Compile it again."
        )
    return bytes(made)


def _length(block: bytes, at: int, count: int) -> tuple[int, int]:
    """A length whose first part is in a token: bytes follow while they are 255."""
    if count == 15:
        while True:
            more = block[at]
            at += 1
            count += more
            if more != 255:
                break
    return count, at
