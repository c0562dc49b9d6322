"""What a process has copied to GPU memory that nobody here can read: mostly the code of its kernels.

In       copies as they are about to be submitted; a way to read memory, which has holes
Out      the same with some of the holes filled
Changes  what it remembers: the latest copies, not without limit
Next     reader.py (who asks), hcq/tools/trace/tracer/rm.py (who reads only what the process has mapped)

A copy's source is read when the ring shows the copy. What the GPU itself puts there before it copies is not seen.
"""

from __future__ import annotations

from hcq.command import Copy
from hcq.events.kernel_observer import Read

MAX_PIECE_BYTES = 8 << 20  # code objects are smaller; data is of no use here
MAX_BYTES = 64 << 20
MAX_PIECES = 512


class CopiedMemory:
    """Of one GPU. pieces: address -> what was copied there, the oldest first; a later one covers an earlier one."""

    def __init__(self) -> None:
        self.pieces: dict[int, bytes] = {}
        self.size_bytes = 0

    def over(self, read: Read) -> Read:
        """Read memory, and what was copied where it cannot be read."""
        return lambda va, size_bytes: read(va, size_bytes) or self.read(va, size_bytes)

    def note(self, copy: Copy, read: Read) -> None:
        """A copy is about to be made."""
        if copy.size_bytes > MAX_PIECE_BYTES or read(copy.dst, 1):
            return
        data = self.over(read)(copy.src, copy.size_bytes)
        if data:
            self._drop(copy.dst)
            self.pieces[copy.dst] = data
            self.size_bytes += len(data)
        while self.size_bytes > MAX_BYTES or len(self.pieces) > MAX_PIECES:
            self._drop(next(iter(self.pieces)))

    def forget(self, start: int, end: int) -> None:
        """What begins there is another's from now on."""
        for va in [va for va in self.pieces if start <= va < end]:
            self._drop(va)

    def read(self, va: int, size_bytes: int) -> bytes:
        """Bytes, if all of them were copied."""
        found, missing = bytearray(size_bytes), bytearray(b"\1" * size_bytes)
        for at, data in self.pieces.items():
            low, high = max(va, at), min(va + size_bytes, at + len(data))
            if low < high:
                found[low - va : high - va] = data[low - at : high - at]
                missing[low - va : high - va] = bytes(high - low)
        return b"" if any(missing) else bytes(found)

    def _drop(self, va: int) -> None:
        self.size_bytes -= len(self.pieces.pop(va, b""))
