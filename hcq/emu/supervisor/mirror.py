"""Mirror: pages of another process that a GPU was given (USERPTR), as a copy that is brought up to date.

In       addresses of a process
Out      `data`: what an emulated GPU reads and writes; fetch before it reads, write_back after it has written
Changes  the pages of the process, where the GPU changed something
Next     hcq/emu/kernel.py (UserMemory), processes.py

What the process stores while the GPU works is seen at the next fetch, and what neither side changed is touched by
neither: without a page that both have mapped this is as near as it gets. Vendors' libraries use such pages for locked
host memory; rings, signals and arguments are memory of the driver, which is shared.
"""

from __future__ import annotations

import errno
import threading

import numpy as np
from numpy.typing import NDArray

from hcq.emu.kernel import Process, Refusal, UserMemory

PIECE_BYTES = 1 << 20
GONE = (errno.EFAULT, errno.ESRCH)  # the process has unmapped it, or died: the GPU sees what was there


class Mirror(UserMemory):
    """A copy of pages, and what they were when they were last compared. Words of 4 bytes are written whole."""

    def __init__(self, process: Process, va: int, size_bytes: int) -> None:
        self.process, self.va = process, va
        process.read(va, 1)  # raises where nothing is mapped
        process.read(va + size_bytes - 1, 1)
        whole = -(-size_bytes // 4)
        self._words = np.zeros(whole, np.uint32)
        self._known = np.zeros(whole, np.uint32)
        self.data: NDArray[np.uint8] = self._words.view(np.uint8)[:size_bytes]
        self._lock = threading.Lock()
        self.fetch()

    def fetch(self) -> None:
        seen = self._known.view(np.uint8)[: self.data.size]
        with self._lock:
            for at in range(0, self.data.size, PIECE_BYTES):
                known, data = seen[at : at + PIECE_BYTES], self.data[at : at + PIECE_BYTES]
                try:
                    now = np.frombuffer(self.process.read(self.va + at, known.size), np.uint8)
                except Refusal as refusal:
                    if refusal.number in GONE:
                        return
                    raise
                if not np.array_equal(now, known):
                    np.copyto(data, now, where=now != known)
                    known[:] = now

    def write_back(self) -> None:
        with self._lock:
            where = np.flatnonzero(self._known != self._words)
            if not where.size:
                return
            breaks = np.flatnonzero(np.diff(where) > 1)
            starts = where[np.concatenate(([0], breaks + 1))]
            ends = where[np.concatenate((breaks, [where.size - 1]))]
            for start, end in zip((4 * starts).tolist(), (4 * ends + 4).tolist(), strict=True):
                try:
                    self.process.write(self.va + start, self.data[start:end].tobytes())
                except Refusal as refusal:
                    if refusal.number in GONE:
                        return
                    raise
            self._known[where] = self._words[where]
