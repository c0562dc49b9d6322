"""Hostcalls: the structures by which waves ask the host for something while they run.

In       memory that kernels find by their hidden argument hidden_hostcall_buffer
Out      HostcallBuffer, HostcallHeader; where a packet's payload is; what a message's descriptor says
Next     hcq/amd/hostcall.py (who serves them)
Source   ROCm Device Libraries: ockl, hostcall and services (the layouts as their bitcode has them)

A wave takes a packet from a list of free ones, fills in a row of eight words for each of its lanes, puts the packet on
the list of those that are ready, and polls its `control` until the host has answered in the first two words of each
row. Heads of lists name a packet by its index in their low bits, and above them count how often it was used.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from hcq.layout import SparsePacket, bits

LANES, WORDS = 64, 8  # of a payload
PAYLOAD_BYTES = 8 * LANES * WORDS
IS_READY = 1  # of a header's control: the host has not answered yet


class Service(IntEnum):
    """What a wave asks for."""

    FUNCTION_CALL = 1
    PRINTF = 2
    DEVMEM = 3
    SANITIZER = 4


class HostcallBuffer(SparsePacket, words=12):
    """What the hidden argument points at."""

    headers = bits(63, 0)
    payloads = bits(127, 64)
    doorbell = bits(191, 128)  # an amd_signal_t
    free_stack = bits(255, 192)
    ready_stack = bits(319, 256)
    index_mask = bits(383, 320)


class HostcallHeader(SparsePacket, words=6):
    """One packet."""

    next = bits(63, 0)
    activemask = bits(127, 64)
    service = bits(159, 128)
    control = bits(191, 160)


class Descriptor(NamedTuple):
    """The first word of a row of a message: one of several rows that make a text."""

    is_first: bool
    is_last: bool
    words: int  # how many of the seven behind it belong to the message
    message: int

    @classmethod
    def of(cls, word: int) -> Descriptor:
        """As its bits say."""
        return cls(bool(word & 1), bool(word & 2), word >> 5 & 7, word >> 8)

    @staticmethod
    def of_message(message: int) -> int:
        """What the host answers to the first row, and the lane puts into the following ones."""
        return message << 8
