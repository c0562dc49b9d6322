"""Pages: zeroed memory that is allocated when it is first touched and freed when it is dropped.

In       a size
Out      a NumPy array of bytes
Changes  the process's mappings, for large ones
Next     amd/caches.py and nv/caches.py (which keep a copy of everything a GPU can see)

NumPy's own arrays come from the C library, which keeps what is freed, and clears byte by byte what it hands out again.
"""

from __future__ import annotations

import mmap
import os

import numpy as np
from numpy.typing import NDArray

MAPPED_BYTES = 256 << 10  # from here on a mapping of its own
HOST_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf(
    "SC_PAGE_SIZE"
)  # no driver gives out more of the host's memory


def zeros(size_bytes: int) -> NDArray[np.uint8]:
    """That many bytes, all 0, writable."""
    if size_bytes < MAPPED_BYTES:
        return np.zeros(size_bytes, np.uint8)
    return np.frombuffer(mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
