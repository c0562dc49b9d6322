"""Unwritten memory: which bytes of new buffers nobody has written, kept by a process, and read and changed by its GPUs.

In       buffers that are handed out; ranges that somebody writes; addresses of kernels
Out      shadows: bytes with all bits set where nobody wrote
Changes  itself
Next     observe/memory_map.py (who hands out), known_memory.py (how an emulated GPU finds it),
         emu/shader/shadow_bits.py (what becomes of shadows)

What is not kept here was written: memory of others, buffers that are too large, and those that the host may write to at
any time.
"""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MOST_BYTES = 256 << 20  # of all shadows together
UNWRITTEN = 0xFF


class UnwrittenMemory:
    """That of one device. Threads of the host and of the GPU use it; each step replaces one entry or sets bytes."""

    def __init__(self) -> None:
        self._blocks: dict[int, Array] = {}
        self._starts: list[int] = []  # in order, made anew when it is asked for
        self._held = 0

    def fresh(self, va: int, size_bytes: int) -> None:
        """Nobody has written these bytes."""
        self.drop(va)
        if size_bytes and self._held + size_bytes <= MOST_BYTES:
            self._blocks[va] = np.full(size_bytes, UNWRITTEN, np.uint8)
            self._held += size_bytes
            self._starts = sorted(self._blocks)

    def drop(self, va: int) -> None:
        """All of a buffer counts as written, now and later."""
        known = self._blocks.pop(va, None)
        if known is not None:
            self._held -= len(known)
            self._starts = sorted(self._blocks)

    def written(self, start: int, size_bytes: int) -> None:
        """Somebody writes these bytes."""
        for va, block in self._between(start, start + size_bytes):
            block[max(0, start - va) : max(0, start + size_bytes - va)] = 0

    def has(self, va: int) -> bool:
        """Whether anything is known of memory that begins there."""
        return va in self._blocks

    def again(self, start: int, size_bytes: int) -> None:
        """These bytes are handed out once more: what was there is nothing that anybody wrote."""
        for va, block in self._between(start, start + size_bytes):
            block[max(0, start - va) : max(0, start + size_bytes - va)] = UNWRITTEN

    def load(self, addresses: Array, size_bytes: int) -> Array | None:
        """(n, size) shadows of so many bytes from each address on; None where all of it was written."""
        blocks = self._around(addresses, size_bytes)
        found: Array | None = None
        for va, block in blocks:
            offsets, inside = _offsets(addresses, va, len(block), size_bytes)
            if not len(inside):
                continue
            found = np.zeros((len(addresses), size_bytes), np.uint8) if found is None else found
            places = offsets[:, None] + np.arange(size_bytes)
            is_there = (places >= 0) & (places < len(block))
            found[inside] |= np.where(is_there, block[np.clip(places, 0, len(block) - 1)], 0).astype(np.uint8)
        return found

    def store(self, addresses: Array, shadows: Array | None, size_bytes: int) -> None:
        """So many bytes are stored at each address. shadows: (n, size); None: of something that was written."""
        for va, block in self._around(addresses, size_bytes):
            offsets, inside = _offsets(addresses, va, len(block), size_bytes)
            if not len(inside):
                continue
            for byte in range(size_bytes):
                places = offsets + byte
                is_there = (places >= 0) & (places < len(block))
                block[places[is_there]] = 0 if shadows is None else shadows[inside[is_there], byte]

    def _around(self, addresses: Array, size_bytes: int) -> list[tuple[int, Array]]:
        if not len(addresses) or not self._blocks:
            return []
        return self._between(int(addresses.min()), int(addresses.max()) + size_bytes)

    def _between(self, start: int, end: int) -> list[tuple[int, Array]]:
        """The buffers that have some of these bytes."""
        starts = self._starts
        first = max(bisect.bisect_right(starts, start) - 1, 0)
        found = []
        for va in starts[first : bisect.bisect_left(starts, end)]:
            block = self._blocks.get(va)
            if block is not None and va + len(block) > start:
                found.append((va, block))
        return found


def _offsets(addresses: Array, va: int, size: int, size_bytes: int) -> tuple[Array, Array]:
    """(offsets in a buffer of those addresses that touch it, which these are)."""
    offsets = (addresses - np.uint64(va)).view(np.int64)
    inside = np.flatnonzero((offsets > -size_bytes) & (offsets < size))
    return offsets[inside], inside
