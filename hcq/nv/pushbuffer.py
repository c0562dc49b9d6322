"""The pushbuffer: how the methods of a submission, and what its launches point to, lie in memory.

In       pieces of submissions
Out      where they lie, with the addresses in them filled in
Next     encode.py (pieces), hcq/gpu/uploads.py (which memory), device.py (who writes, and fills the GPFIFO)

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

from collections.abc import Sequence
from typing import NamedTuple

from hcq.nv.abi.qmd import ALIGNMENT_BYTES
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
