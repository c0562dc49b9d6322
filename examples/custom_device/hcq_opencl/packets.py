"""The packets: commands of a queue as words, and back. OpenCL prescribes none, so these are ours.

In       a Command; words
Out      bytes of whole packets; packets
Next     processor.py (who reads them), rules.py (what they do), hcq/layout.py (what a Packet is)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from hcq import command
from hcq.errors import UsageError
from hcq.layout import Packet, bits, decode_stream

ARCH = "opencl-c-1.2"


class Opcode(IntEnum):
    LAUNCH = 1
    COPY = 2
    FILL = 3
    WAIT = 4
    SIGNAL = 5
    STAMP = 6
    BARRIER = 7
    RUN = 8


class Header(Packet, words=1):
    """First word of every packet."""

    opcode = bits(7, 0, enum=Opcode)
    length = bits(31, 8, doc="words, this one included")


class Launch(Packet, words=9, tail="arguments"):
    """clEnqueueNDRangeKernel. Each argument has 64 bits, and begins in the lowest; a kernel takes what it declares."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.LAUNCH)
    length = bits(31, 8)
    entry = bits(95, 32)
    grid_x = bits(127, 96)
    grid_y = bits(159, 128)
    grid_z = bits(191, 160)
    block_x = bits(223, 192)
    block_y = bits(255, 224)
    block_z = bits(287, 256)


class Copy(Packet, words=7):
    """clEnqueueSVMMemcpy. The two ranges may overlap."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.COPY)
    length = bits(31, 8, default=7)
    dst = bits(95, 32)
    src = bits(159, 96)
    size_bytes = bits(223, 160)


class Fill(Packet, words=7):
    """clEnqueueSVMMemFill with 8 bytes."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.FILL)
    length = bits(31, 8, default=7)
    dst = bits(95, 32)
    pattern = bits(159, 96)
    size_bytes = bits(223, 160)


class Wait(Packet, words=5):
    """Go on once the cell holds at least `value`."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.WAIT)
    length = bits(31, 8, default=5)
    cell = bits(95, 32)
    value = bits(159, 96)


class Signal(Packet, words=5):
    """Store `value` and the time in the cell, once all before is done."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.SIGNAL)
    length = bits(31, 8, default=5)
    cell = bits(95, 32)
    value = bits(159, 96)


class Stamp(Packet, words=3):
    """Store the time, once all before is done."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.STAMP)
    length = bits(31, 8, default=3)
    address = bits(95, 32)


class Barrier(Packet, words=1):
    """Nothing: an in-order queue finishes each command before the next."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.BARRIER)
    length = bits(31, 8, default=1)


class Run(Packet, words=5):
    """Run the packets of another block of memory, then go on: how a graph is replayed."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.RUN)
    length = bits(31, 8, default=5)
    address = bits(95, 32)
    size_words = bits(159, 96)


PACKETS: dict[int, type[Packet]] = {
    layout.fields["opcode"].default: layout
    for layout in (Launch, Copy, Fill, Wait, Signal, Stamp, Barrier, Run)
}


def encode(what: command.Command) -> bytes:
    """One command as packet bytes; launches are packed where their arguments are known (device.py)."""
    match what:
        case command.Copy(dst, src, size_bytes):
            made: Packet = Copy(dst=dst, src=src, size_bytes=size_bytes)
        case command.Fill(dst, pattern, size_bytes):
            made = Fill(dst=dst, pattern=pattern, size_bytes=size_bytes)
        case command.Wait(signal, value):
            made = Wait(cell=signal, value=value)
        case command.Signal(signal, value):
            made = Signal(cell=signal, value=value)
        case command.Timestamp(address):
            made = Stamp(address=address)
        case command.Barrier():
            made = Barrier()
        case command.Indirect(address, size_words):
            made = Run(address=address, size_words=size_words)
        case _:
            raise UsageError(f"OpenCL has no packet for {what}.")
    return made.to_bytes()


def decoder(arch: str) -> Callable[[Sequence[int]], list[Packet]]:
    """The decoder of one architecture. Raises UsageError for another than ours."""
    if arch != ARCH:
        raise UsageError(f"{arch}: not an OpenCL device that is known. Known: {ARCH}.")
    return decode


def decode(words: Sequence[int]) -> list[Packet]:
    """Words as packets. Never raises: what makes no sense ends as the header that said so."""
    return decode_stream(words, Header, PACKETS)
