"""The packets: commands of a queue as words, and back. WebGPU has none that a program sees, so these are ours.

In       a Command; words
Out      bytes of whole packets; packets
Next     processor.py (who reads them), rules.py (what they do), hcq/layout.py (what a Packet is)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from hcq import command
from hcq.errors import UsageError
from hcq.layout import Packet, bits

# what kernels may compute with, beside WGSL's own; whether a loop may be long, see codegen.py
SHORT = "llvmpipe"
ARCHS = ("wgsl-int64", "wgsl-int64-float64", f"wgsl-int64-{SHORT}", f"wgsl-int64-float64-{SHORT}")


class Opcode(IntEnum):
    DISPATCH = 0x10
    COPY = 0x20
    FILL = 0x21
    AWAIT = 0x30
    STORE = 0x31
    TIME = 0x32
    BARRIER = 0x40
    EXECUTE = 0x50


class Head(Packet, words=1):
    """First word of every packet."""

    length = bits(15, 0, doc="words, this one included")
    opcode = bits(23, 16, enum=Opcode)


class Dispatch(Packet, words=8, tail="arguments"):
    """dispatchWorkgroups. Each argument has 64 bits: an address, or a number in the lowest 32 of them."""

    length = bits(15, 0)
    opcode = bits(23, 16, enum=Opcode, default=Opcode.DISPATCH)
    kernel = bits(63, 32, doc="what it was loaded as")
    grid_x = bits(95, 64)
    grid_y = bits(127, 96)
    grid_z = bits(159, 128)
    block_x = bits(191, 160, doc="invocations, as the kernel's @workgroup_size says")
    block_y = bits(223, 192)
    block_z = bits(255, 224)


class Copy(Packet, words=7):
    """copyBufferToBuffer, or a kernel where words do not lie on words. The ranges may overlap."""

    length = bits(15, 0, default=7)
    opcode = bits(23, 16, enum=Opcode, default=Opcode.COPY)
    dst = bits(95, 32)
    src = bits(159, 96)
    size_bytes = bits(223, 160)


class Fill(Packet, words=7):
    """A kernel that repeats 8 bytes."""

    length = bits(15, 0, default=7)
    opcode = bits(23, 16, enum=Opcode, default=Opcode.FILL)
    dst = bits(95, 32)
    pattern = bits(159, 96)
    size_bytes = bits(223, 160)


class Await(Packet, words=5):
    """The processor goes on once the cell holds at least `value`."""

    length = bits(15, 0, default=5)
    opcode = bits(23, 16, enum=Opcode, default=Opcode.AWAIT)
    cell = bits(95, 32)
    value = bits(159, 96)


class Store(Packet, words=5):
    """The processor stores `value` and the time in the cell, once all before is done."""

    length = bits(15, 0, default=5)
    opcode = bits(23, 16, enum=Opcode, default=Opcode.STORE)
    cell = bits(95, 32)
    value = bits(159, 96)


class Time(Packet, words=3):
    """The processor stores the time, once all before is done."""

    length = bits(15, 0, default=3)
    opcode = bits(23, 16, enum=Opcode, default=Opcode.TIME)
    address = bits(95, 32)


class Barrier(Packet, words=1):
    """Nothing: WebGPU does each command as if all before were done."""

    length = bits(15, 0, default=1)
    opcode = bits(23, 16, enum=Opcode, default=Opcode.BARRIER)


class Execute(Packet, words=5):
    """The processor reads the packets of a block of the host's memory, then goes on: how a graph is replayed."""

    length = bits(15, 0, default=5)
    opcode = bits(23, 16, enum=Opcode, default=Opcode.EXECUTE)
    address = bits(95, 32)
    size_words = bits(159, 96)


PACKETS: dict[int, type[Packet]] = {
    layout.fields["opcode"].default: layout
    for layout in (Dispatch, Copy, Fill, Await, Store, Time, Barrier, Execute)
}


def encode(what: command.Command) -> bytes:
    """One command as packet bytes; launches are packed where their arguments are known (device.py)."""
    match what:
        case command.Copy(dst, src, size_bytes):
            return Copy(dst=dst, src=src, size_bytes=size_bytes).to_bytes()
        case command.Fill(dst, pattern, size_bytes):
            return Fill(dst=dst, pattern=pattern, size_bytes=size_bytes).to_bytes()
        case command.Wait(signal, value):
            return Await(cell=signal, value=value).to_bytes()
        case command.Signal(signal, value):
            return Store(cell=signal, value=value).to_bytes()
        case command.Timestamp(address):
            return Time(address=address).to_bytes()
        case command.Barrier():
            return Barrier().to_bytes()
        case command.Indirect(address, size_words):
            return Execute(address=address, size_words=size_words).to_bytes()
    raise UsageError(f"WebGPU's processor has no packet for {what}.")


def decoder(arch: str) -> Callable[[Sequence[int]], list[Packet]]:
    """The decoder of one architecture. Raises UsageError for another than ours."""
    if arch not in ARCHS:
        raise UsageError(f"{arch}: not a WebGPU device that is known. Known: {', '.join(ARCHS)}.")
    return decode


def decode(words: Sequence[int]) -> list[Packet]:
    """Words as packets. Never raises: what makes no sense ends as the head that said so."""
    found: list[Packet] = []
    at = 0
    while at < len(words):
        head = Head.decode(words[at : at + 1])
        layout = PACKETS.get(head.opcode)
        if layout is None or not layout.length_words <= head.length <= len(words) - at:
            return [*found, head]
        found.append(layout.decode(words[at : at + head.length]))
        at += head.length
    return found
