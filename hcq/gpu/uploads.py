"""Uploads: a circular allocator for data that submissions read beside the ring, such as kernel arguments.

In       sizes, and the timeline value of the submission that reads them
Out      offsets; a place is used again only when its submission is done
Changes  nothing but its own notes
Next     amd/device.py (kernel arguments), nv/device.py (the pushbuffer: methods and launch data)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hcq.errors import UsageError
from hcq.system import native


class Uploads:
    """`head` and `tail` count bytes and never wrap; what lies between them belongs to submissions in flight."""

    def __init__(self, va: int, size_bytes: int, alignment: int) -> None:
        self.va, self.size_bytes, self.alignment = va, size_bytes, alignment
        self.bytes = native.view(va, size_bytes)
        self.head = self.tail = 0
        self.taken: deque[tuple[int, int]] = deque()  # (head after it, timeline value)

    def take(self, size_bytes: int, value: int, done: int, wait: Callable[[int], int]) -> int:
        """Room for so many bytes: its offset.

        value   the submission that reads it; done: the last one that is finished
        wait    wait(value) returns once that submission is done, with the last one that is
        Raises  UsageError when one submission needs more than there is
        """
        size = -(-size_bytes // self.alignment) * self.alignment
        if size > self.size_bytes:
            raise self._too_much()
        at = self.head % self.size_bytes
        gap = self.size_bytes - at if at + size > self.size_bytes else 0
        self._reap(done)
        while self.head + gap + size - self.tail > self.size_bytes:
            oldest = self.taken[0][1]
            if oldest >= value:
                raise self._too_much()
            self._reap(wait(oldest))
        self.head += gap + size
        self.taken.append((self.head, value))
        return 0 if gap else at

    def clear(self) -> None:
        """Nothing is in flight any more."""
        self.taken.clear()
        self.tail = self.head

    def _too_much(self) -> UsageError:
        return UsageError(
            f"submit: the launches, packets and arguments of one submission do not fit {self.size_bytes} bytes. "
            "Submit less at a time."
        )

    def _reap(self, done: int) -> None:
        while self.taken and self.taken[0][1] <= done:
            self.tail = self.taken.popleft()[0]
        if not self.taken:
            self.tail = self.head
