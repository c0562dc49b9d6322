"""The heap of an emulated GPU, of which kernels take memory by malloc, and which later kernels find as it was left.

In       sizes
Out      addresses
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
    """Bytes, and which of them are taken: first fit."""

    def __init__(self) -> None:
        self.host: Lanes = np.zeros(SIZE_BYTES, np.uint8)
        self._taken: dict[int, int] = {}  # start -> end, offsets

    def allocate(self, size_bytes: int) -> int:
        """An address, or 0 where there is no room."""
        size = max(-(-size_bytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
        at = 0
        for start, end in sorted(self._taken.items()):
            if start - at >= size:
                break
            at = end
        if at + size > SIZE_BYTES:
            return 0
        self._taken[at] = at + size
        return START + at

    def give_back(self, va: int) -> bool:
        """Free an allocation; False where none begins there."""
        return self._taken.pop(va - START, None) is not None
