"""The toy's packets: commands of a queue as words, and back.

In       a Command; words
Out      bytes of whole packets; packets
Next     device.py (who runs them), rules.py (what they do)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from hcq import command
from hcq.errors import UsageError
from hcq.layout import Packet, bits, decode_stream

ARCH = "toy1"


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


class Launch(Packet, words=6, tail="arguments"):
    """Call a function for a grid of groups. Arguments are 64 bits each: addresses, integers, doubles."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.LAUNCH)
    length = bits(31, 8)
    entry = bits(95, 32)
    grid_x = bits(127, 96)
    grid_y = bits(159, 128)
    grid_z = bits(191, 160)


class Copy(Packet, words=7):
    """The two ranges may overlap."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.COPY)
    length = bits(31, 8, default=7)
    dst = bits(95, 32)
    src = bits(159, 96)
    size_bytes = bits(223, 160)


class Fill(Packet, words=7):
    """Repeat 8 bytes."""

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
    """Store `value` and the time in the cell."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.SIGNAL)
    length = bits(31, 8, default=5)
    cell = bits(95, 32)
    value = bits(159, 96)


class Stamp(Packet, words=3):
    """Store the time."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.STAMP)
    length = bits(31, 8, default=3)
    address = bits(95, 32)


class Barrier(Packet, words=1):
    """Nothing: every packet is finished before the next one starts."""

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
            raise UsageError(f"the toy has no packet for {what}.")
    return made.to_bytes()


def decoder(arch: str) -> Callable[[Sequence[int]], list[Packet]]:
    """The decoder of one architecture. Raises UsageError for another than ours."""
    if arch != ARCH:
        raise UsageError(f"{arch}: not a toy that is known. Known: {ARCH}.")
    return decode


def decode(words: Sequence[int]) -> list[Packet]:
    """Words as packets. Never raises: what makes no sense ends as the header that said so."""
    return decode_stream(words, Header, PACKETS)
