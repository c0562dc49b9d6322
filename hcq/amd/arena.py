"""The arena: memory for what packets point at, kernel arguments above all, handed out in a circle.

In       sizes, and the timeline value of the submission that reads them
Out      addresses that host and GPU see; a place is used again only when its submission is done
Changes  nothing but its own notes
Next     device.py (who writes there)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hcq import native
from hcq.errors import UsageError

ARENA_BYTES = 4 << 20
ALIGNMENT = 64  # scalar loads fetch up to 64 bytes


class Arena:
    """`head` and `tail` count bytes and never wrap; what lies between them belongs to submissions in flight."""

    def __init__(self, va: int, size_bytes: int = ARENA_BYTES) -> None:
        self.va, self.size_bytes = va, size_bytes
        self.bytes = native.view(va, size_bytes)
        self.head = self.tail = 0
        self.taken: deque[tuple[int, int]] = deque()  # (head after it, timeline value)

    def put(self, data: bytes, value: int, done: int, wait: Callable[[int], int]) -> int:
        """Copy data in; returns its address.

        value  the submission that reads it; done: the last one that is finished
        wait   wait(value) returns once that submission is done, with the last one that is
        """
        size = -(-len(data) // ALIGNMENT) * ALIGNMENT
        if size > self.size_bytes:
            raise UsageError(
                f"submit: {len(data)} bytes of arguments and packets in one piece; {self.size_bytes} fit. Split them."
            )
        at = self.head % self.size_bytes
        gap = self.size_bytes - at if at + size > self.size_bytes else 0
        self._reap(done)
        while self.head + gap + size - self.tail > self.size_bytes:
            oldest = self.taken[0][1]
            if oldest >= value:
                raise UsageError(
                    f"submit: the arguments and packets of one submission do not fit {self.size_bytes} bytes. "
                    "Submit less at a time."
                )
            self._reap(wait(oldest))
        self.head += gap + size
        self.taken.append((self.head, value))
        at = 0 if gap else at
        self.bytes[at : at + len(data)] = data
        return self.va + at

    def clear(self) -> None:
        """Nothing is in flight any more."""
        self.taken.clear()
        self.tail = self.head

    def _reap(self, done: int) -> None:
        while self.taken and self.taken[0][1] <= done:
            self.tail = self.taken.popleft()[0]
        if not self.taken:
            self.tail = self.head
