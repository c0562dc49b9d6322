"""GPFIFO: the ring of pushbuffer segments, the words by which host and channel meet, and the doorbell page.

In       fields by name
Out      GpEntry, GpControl; offsets in USERD and in the usermode window
Next     methods.py (what a segment holds)
Source   clc56f.h: GP_ENTRY0, GP_ENTRY1, Nvc56fControl; clc361.h, clc661.h: NOTIFY_CHANNEL_PENDING, TIME_0
"""

from __future__ import annotations

from enum import IntEnum

from hcq.layout import SparsePacket, bits

GP_ENTRY_BYTES = 8
USERD_BYTES = 512  # and its alignment
USERD_GP_GET, USERD_GP_PUT = 0x88, 0x8C  # GP_GET is written back late: completion is a semaphore's business
USERMODE_BYTES = 0x10000
USERMODE_TIME_0, USERMODE_TIME_1 = 0x80, 0x84  # nanoseconds, low and high word
USERMODE_DOORBELL = 0x90  # takes the channel's work submit token


class Fetch(IntEnum):
    UNCONDITIONAL = 0
    CONDITIONAL = 1


class Level(IntEnum):
    MAIN = 0
    SUBROUTINE = 1


class Sync(IntEnum):
    PROCEED = 0
    WAIT = 1


class GpOpcode(IntEnum):
    NOP = 0
    ILLEGAL = 1
    GP_CRC = 2
    PB_CRC = 3
    SET_PB_SEGMENT_EXTENDED_BASE = 4  # Hopper and later


class GpEntry(SparsePacket, words=2):
    """One slot: where a pushbuffer segment starts and how long it is. A length of 0 makes it a GpControl."""

    fetch = bits(0, enum=Fetch)
    get = bits(39, 2, unit=4)  # address in bytes, below 2**40
    level = bits(41, enum=Level)  # MAIN for all of ours: inferred from what CUDA's driver was seen to write
    length = bits(62, 42)  # words
    sync = bits(63, enum=Sync)


class GpControl(SparsePacket, words=2):
    """A slot whose length is 0: an operation of the front end itself."""

    operand = bits(31, 0)
    opcode = bits(39, 32, enum=GpOpcode)
    length = bits(62, 42)  # 0


def decode_entry(low: int, high: int) -> GpEntry | GpControl:
    """A slot of the ring by its two words. Never raises."""
    entry = GpEntry.decode([low, high])
    return entry if entry.length else GpControl.decode([low, high])
