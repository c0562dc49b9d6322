"""The heap of an emulated GPU, of which kernels take memory by malloc, and which later kernels find as it was left.

In       sizes
Out      addresses; which accesses leave what was given out
Changes  itself
Next     device_runtime.py (who calls malloc and free), memory.py, hcq/emu/nv/memory.py (who has a heap)
Source   CUDA C++ Programming Guide, "Dynamic Global Memory Allocation and Operations": 8 MiB, multiples of 16 bytes
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader.types import Lanes

START = 0x4000_0000_0000  # where no driver maps anything
SIZE_BYTES = 8 << 20
ALIGNMENT = 16


class Heap:
    """Bytes, and which of them are taken.

    What was given back is taken again only where nothing else is left, and behind each piece some bytes are nobody's:
    so accesses to either are seen.
    """

    def __init__(self) -> None:
        self.host: Lanes = np.zeros(SIZE_BYTES, np.uint8)
        self._taken: dict[int, int] = {}  # start -> end, offsets
        self._top = 0  # behind it nothing was ever taken
        self._freed: dict[int, int] = {}
        self._pieces: tuple[Lanes, Lanes] | None = None  # starts and ends in order, once somebody asks

    def allocate(self, size_bytes: int) -> int:
        """An address, or 0 where there is no room."""
        size = max(-(-size_bytes // ALIGNMENT), 1) * ALIGNMENT
        at = self._top
        if at + size > SIZE_BYTES:
            at = self._gap(size)
        if at < 0:
            return 0
        self._top = max(self._top, at + size + ALIGNMENT)
        self._freed = {start: end for start, end in self._freed.items() if end <= at or at + size <= start}
        self._taken[at] = at + size_bytes
        self._pieces = None
        return START + at

    def give_back(self, va: int) -> bool:
        """Free an allocation; False where none begins there."""
        end = self._taken.pop(va - START, None)
        if end is None:
            return False
        self._freed[va - START] = end
        self._pieces = None
        return True

    def has_freed(self, va: int) -> bool:
        """Whether an address is in a piece that was given back."""
        return any(start <= va - START < end for start, end in self._freed.items())

    def outside(self, addresses: Lanes, size_bytes: int) -> Lanes:
        """Which of these are in the heap, and from there so many bytes are not within one piece that was given out."""
        if self._pieces is None:
            ordered = sorted(self._taken.items())
            starts, ends = (np.array([one[side] for one in ordered], np.int64) for side in (0, 1))
            self._pieces = starts, ends
        starts, ends = self._pieces
        at = addresses.astype(np.int64) - START
        inside = np.zeros(len(at), bool)
        if len(starts):
            piece = np.searchsorted(starts, at, "right") - 1
            inside = (piece >= 0) & (at + size_bytes <= ends[piece])
        found: Lanes = (at >= 0) & (at < SIZE_BYTES) & ~inside
        return found

    def _gap(self, size: int) -> int:
        """Where so many bytes are free; -1 where they are nowhere."""
        at = 0
        for start, end in sorted(self._taken.items()):
            if start - at >= size + ALIGNMENT:
                return at
            at = -(-end // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        return at if at + size <= SIZE_BYTES else -1
