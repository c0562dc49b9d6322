"""The pushbuffer: memory for methods and for what launches point to, handed out in a circle.

In       pieces of submissions
Out      where they lie, with the addresses in them filled in; a place is used again only when its submission is done
Changes  nothing but its own notes
Next     encode.py (pieces), device.py (who writes, and puts the segments into the GPFIFO)

One submission with one launch, as the GPU finds it in memory:

    GPFIFO (rings.py)     pushbuffer
    +----------+          +---------------------------------------+
    | ...      |          | NO_OPERATION with n words: a header   |      4 bytes before a multiple of 256
    | get, len |---+      | QMD, 256 or 384 bytes                 |<--+
    | ...      |   |      |   program_address                     |---|---> the kernel's code (link.py)
    +----------+   |      |   constant_buffer_addr_0 -----+       |   |
    | USERD    |   |      | bank 0: the driver's part  <--+       |   |
    |   GP_GET |   |      |   param_address, param_end ---+       |   |
    |   GP_PUT |   |      |   parameters  <---------------+       |---|---> buffers
    +----------+   |      | ... launch data of other launches     |   |
                   |      +---------------------------------------+   |
    doorbell:      +----->| SEND_PCAS_A(the QMD's address / 256)  |---+
    the channel's         | SEND_SIGNALING_PCAS2_B, WFI           |
    token                 | ... methods of other pieces           |
                          | SEM_ADDR, SEM_PAYLOAD, SEM_EXECUTE    |-------> the timeline's cell: value, time
                          +---------------------------------------+

A graph's blocks are segments of their own: the methods are cut there, and each part has its entry in the ring.
Launch data are 256-byte aligned. The GPU reads them when a launch names their address; the front end never does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hcq import native
from hcq.errors import UsageError
from hcq.nv.abi.qmd_fields import ALIGNMENT_BYTES
from hcq.nv.encode import Piece

PUSHBUFFER_BYTES = 4 << 20


class Placed(NamedTuple):
    """Pieces as memory at one address.

    data      for each piece where its launch data start, from the address on; 0 where it has none
    runs      (offset, words) of methods without a break, and before which piece each ends
    """

    image: bytearray
    data: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]


class Plan(NamedTuple):
    """How pieces will lie."""

    size_bytes: int
    data: tuple[int, ...]
    methods: int


def plan(pieces: Sequence[Piece]) -> Plan:
    """Sizes and places, before there is an address."""
    at = 0
    data = []
    size = 0
    for what in pieces:
        if what.data_bytes:
            at = -(-(at + 4) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES  # the header lies right before the data
            data.append(at)
            at += what.data_bytes - 4
        else:
            data.append(0)
        size += 0 if what.entries else len(what) - what.data_bytes
    return Plan(at + size, tuple(data), at)


def place(pieces: Sequence[Piece], how: Plan, va: int) -> Placed:
    """The memory image for an address, a multiple of 256."""
    image = bytearray(how.size_bytes)
    runs: list[tuple[int, int]] = []
    at = start = how.methods
    for what, data_at in zip(pieces, how.data):
        if what.entries:
            runs.append((start, (at - start) // 4))
            start = at
            continue
        end = what.data_bytes
        if end:
            image[data_at - 4 : data_at + end - 4] = what[:end]
            image[at : at + len(what) - end] = what[end:]
            for patch, shift, form in what.patches:
                to = data_at - 4 + patch if patch < end else at + patch - end
                (value,) = form.unpack_from(image, to)
                form.pack_into(image, to, value + (va + data_at >> shift))
            at += len(what) - end
        else:
            image[at : at + len(what)] = what
            at += len(what)
    runs.append((start, (at - start) // 4))
    return Placed(image, how.data, tuple(runs))


class Pushbuffer:
    """`head` and `tail` count bytes and never wrap; what lies between them belongs to submissions in flight."""

    def __init__(self, va: int, size_bytes: int = PUSHBUFFER_BYTES) -> None:
        self.va, self.size_bytes = va, size_bytes
        self.bytes = native.view(va, size_bytes)
        self.head = self.tail = 0
        self.taken: deque[tuple[int, int]] = deque()  # (head after it, timeline value)

    def take(self, size_bytes: int, value: int, done: int, wait: Callable[[int], int]) -> int:
        """Room for so many bytes: its offset.

        value  the submission that uses it; done: the last one that is finished
        wait   wait(value) returns once that submission is done, with the last one that is
        """
        size = -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
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
            f"submit: the launches and methods of one submission do not fit {self.size_bytes} bytes. "
            "Submit less at a time."
        )

    def _reap(self, done: int) -> None:
        while self.taken and self.taken[0][1] <= done:
            self.tail = self.taken.popleft()[0]
        if not self.taken:
            self.tail = self.head
