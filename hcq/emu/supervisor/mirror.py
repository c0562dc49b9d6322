"""Mirror: pages of another process that a GPU was given (USERPTR), as a copy that is brought up to date.

In       addresses of a process
Out      `data`: what an emulated GPU reads and writes; parts are fetched before it reads, stored after it has written
Changes  the pages of the process, as far as they are stored
Next     hcq/emu/kernel.py (UserMemory), hcq/emu/user_pages.py (which parts), processes.py

Without a page that both have mapped this is as near as it gets. Vendors' libraries use such pages for locked host
memory; rings, signals and arguments are memory of the driver, which is shared.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcq.emu.kernel import Refusal, UserMemory
from hcq.emu.pages import zeros

GONE = (errno.EFAULT, errno.ESRCH)  # the process has unmapped it, or died: the GPU sees what was there
Move = Callable[[int, Any], None]  # an address of the process, and contiguous bytes of ours


class Mirror(UserMemory):
    """A copy of pages; it takes memory where it is touched.

    read, write   from and to the process's memory. Raise Refusal (EFAULT) where it is not mapped
    """

    is_copy = True

    def __init__(self, va: int, size_bytes: int, read: Move, write: Move) -> None:
        self.va, self._read, self._write = va, read, write
        self.data: NDArray[np.uint8] = zeros(size_bytes)

    def again(self) -> UserMemory:
        return Mirror(self.va, len(self.data), self._read, self._write)

    def fetch(self, at: int, size_bytes: int) -> None:
        self._move(self._read, at, size_bytes)

    def store(self, at: int, size_bytes: int) -> None:
        self._move(self._write, at, size_bytes)

    def _move(self, move: Move, at: int, size_bytes: int) -> None:
        try:
            move(self.va + at, self.data[at : at + size_bytes])
        except Refusal as refusal:
            if refusal.number not in GONE:
                raise
