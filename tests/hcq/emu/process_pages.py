"""Pages of a process that is elsewhere, for tests of what GPUs do with their copies of them."""

from __future__ import annotations

import copy

import numpy as np

from hcq.emu.kernel import UserMemory


class Pages(UserMemory):
    """`there` is the process's own memory. fetched, stored: (offset, bytes) of all that was moved, by any copy."""

    is_copy = True

    def __init__(self, size_bytes: int) -> None:
        self.there = np.arange(size_bytes, dtype=np.uint32).astype(np.uint8)
        self.data = np.zeros(size_bytes, np.uint8)
        self.fetched: list[tuple[int, int]] = []
        self.stored: list[tuple[int, int]] = []

    def again(self) -> Pages:
        made = copy.copy(self)
        made.data = np.zeros_like(self.data)
        return made

    def fetch(self, at: int, size_bytes: int) -> None:
        self.fetched.append((at, size_bytes))
        self.data[at : at + size_bytes] = self.there[at : at + size_bytes]

    def store(self, at: int, size_bytes: int) -> None:
        self.stored.append((at, size_bytes))
        self.there[at : at + size_bytes] = self.data[at : at + size_bytes]
