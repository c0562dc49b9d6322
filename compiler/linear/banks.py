"""Banks: where the elements of a tile lie in shared memory, so that no two threads wait for the same bank.

In       the sizes of a tile's rows; or where a wave's threads store at once
Out      a `Swizzle` of places
Next     tiles.py (whose rows these are), collecting.py (whose threads), lower_expr.py (who spells places)
Source   32 banks of 4 bytes: CUDA C++ Programming Guide, "Shared Memory", and AMD's CDNA 3 and RDNA 3 ISA, "LDS". Eight
         rows of 16 bytes at once: PTX ISA, "ldmatrix". Which lanes AMD serves at once: ROCm, "Understanding AMD GPU LDS
         and Bank Conflicts". tests/compiler/shared_memory.py has these rules, and asks them of whole programs

A line is 128 bytes: all banks once. A tile lies row after row, in chunks of 16 bytes, and within its line a chunk's
place is changed by `xor` with the number of its row (or, where a line holds several rows, of its line): eight rows that
are read at one column meet eight different chunks. What is written in order still fills whole lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

BANKS, BANK_BYTES = 32, 4
LINE_BYTES = BANKS * BANK_BYTES
CHUNK_BYTES = 16  # what one thread reads or writes at most
CHUNKS = LINE_BYTES // CHUNK_BYTES


@dataclass(frozen=True)
class Swizzle:
    """place -> place ^ (place >> shift & mask) for each of its (shift, mask), in elements of a tile.

    The mask has bits of chunks in a line only, so that nothing leaves its line, and what is shifted lies above them.
    """

    parts: tuple[tuple[int, int], ...]
    chunk_bytes: ClassVar[int] = CHUNK_BYTES  # neighbours in one stay neighbours

    def __call__(self, place: int) -> int:
        """Where an element lies.

        >>> rows_of_64_bytes = swizzle(32, 16, 2)
        >>> [rows_of_64_bytes(32 * row) // 8 for row in range(8)]
        [0, 4, 9, 13, 18, 22, 27, 31]
        """
        found = place
        for shift, mask in self.parts:
            found ^= place >> shift & mask
        return found

    @property
    def mask(self) -> int:
        """The bits of a place that it changes."""
        found = 0
        for _, mask in self.parts:
            found |= mask
        return found


def swizzle(
    row: int, rows: int, itemsize: int, together: tuple[int, ...] = (0, 1, 2), across: int = 1
) -> Swizzle | None:
    """For `rows` rows of so many elements, powers of two both; None where there is nothing to change.

    together   the bits of a row's number in which rows differ that are read at once
    across     the chunks of each of these rows that are read at once

    >>> swizzle(128, 32, 1, (0, 2, 3)).parts  # rows 0, 1, 4, 5, 8, 9, 12 and 13, of 128 bytes each
    ((3, 16), (4, 96))
    """
    chunk = CHUNK_BYTES // itemsize
    if row & (row - 1) or rows & (rows - 1) or row < 2 * chunk or rows < 2:
        return None
    line = CHUNKS * chunk
    lowest = row.bit_length() - 1  # of a place: the bit that is a row's number's first one
    bits = [lowest + bit for bit in together]
    free = [bit for bit in range((across * chunk).bit_length() - 1, line.bit_length() - 1) if bit not in bits]
    parts: dict[int, int] = {}
    for bit, target in zip([bit for bit in bits if 1 << bit >= line], free):
        parts[bit - target] = parts.get(bit - target, 0) | 1 << target
    return Swizzle(tuple(parts.items()))


def swizzle_of_stores(places: Sequence[int], own: int, itemsize: int) -> Swizzle | None:
    """For elements that each thread stores by so many at once; None where there is nothing to change.

    places  what each bit of a thread's number is worth, the lowest first; powers of two, in elements

    Bits that are worth whole lines change chunks of a line that no other bit of threads served at once does.

    >>> swizzle_of_stores((2, 4, 16, 32, 64), 2, 4).parts  # pairs of 4 bytes, four threads in a row of 16
    ((2, 8),)
    >>> swizzle_of_stores((1, 2, 4, 8, 64, 128), 1, 4).parts  # 16 threads in a row of 64, then the next row
    ((2, 16),)
    """
    chunk, line = CHUNK_BYTES // itemsize, LINE_BYTES // itemsize
    served = LINE_BYTES // max(own * itemsize, BANK_BYTES)  # threads at once
    together = places[: served.bit_length() - 1]
    free = [1 << bit for bit in range(chunk.bit_length() - 1, line.bit_length() - 1)]
    free = [bit for bit in free if bit >= own and bit not in together]
    far = sorted(place for place in together if place >= line)
    parts = [(place.bit_length() - bit.bit_length(), bit) for place, bit in zip(far, free)]
    return Swizzle(tuple(parts)) if parts else None
