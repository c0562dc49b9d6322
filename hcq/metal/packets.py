"""Metal's packets: the words of our queues, which become messages to command buffers and encoders.

In       nothing
Out      layouts, by the name of the message that a packet becomes
Next     encode.py (makes and reads them), commands.py (sends the messages), validate.py (what they do, for the rules)

Metal has no ring that a program sees: a command buffer is an object, and what it holds is Metal's own. So these words
are ours. A submission is one command buffer, more where it asks for the time. Packets that one encoder can take share
it, and a packet of another kind ends it; events stand between encoders.
"""

from __future__ import annotations

from enum import IntEnum

from hcq.layout import Packet, bits


class Opcode(IntEnum):
    """What a packet becomes."""

    DISPATCH_THREADGROUPS = 1
    COPY_FROM_BUFFER = 2
    FILL_BUFFER = 3
    ENCODE_WAIT_FOR_EVENT = 4
    ENCODE_SIGNAL_EVENT = 5
    BARRIER = 6
    RUN = 7
    GPU_END_TIME = 8


class Header(Packet, words=1):
    """First word of every packet."""

    opcode = bits(7, 0, enum=Opcode)
    length = bits(31, 8, doc="words, this one included")


class DispatchThreadgroups(Packet, words=9, tail="arguments"):
    """A pipeline, its arguments and a launch, in a compute encoder. Arguments are packed as program.py says."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.DISPATCH_THREADGROUPS)
    length = bits(31, 8)
    pipeline = bits(95, 32, doc="the MTLComputePipelineState")
    grid_x = bits(127, 96)
    grid_y = bits(159, 128)
    grid_z = bits(191, 160)
    block_x = bits(223, 192)
    block_y = bits(255, 224)
    block_z = bits(287, 256)


class CopyFromBuffer(Packet, words=7):
    """A copy in a blit encoder, or by a kernel where Metal's alignment does not hold. The ranges may overlap."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.COPY_FROM_BUFFER)
    length = bits(31, 8, default=7)
    dst = bits(95, 32)
    src = bits(159, 96)
    size_bytes = bits(223, 160)


class FillBuffer(Packet, words=7):
    """Repeat 8 bytes: in a blit encoder where all are the same and the range is aligned, else by a kernel."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.FILL_BUFFER)
    length = bits(31, 8, default=7)
    dst = bits(95, 32)
    pattern = bits(159, 96)
    size_bytes = bits(223, 160)


class EncodeWaitForEvent(Packet, words=5):
    """Go on once the shared event of a signal has at least `value`."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.ENCODE_WAIT_FOR_EVENT)
    length = bits(31, 8, default=5)
    signal = bits(95, 32, doc="the address that names the signal")
    value = bits(159, 96)


class EncodeSignalEvent(Packet, words=5):
    """Set the shared event of a signal once all before it is done."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.ENCODE_SIGNAL_EVENT)
    length = bits(31, 8, default=5)
    signal = bits(95, 32, doc="the address that names the signal")
    value = bits(159, 96)


class Barrier(Packet, words=1):
    """No message: encoders are serial, and their resources are tracked."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.BARRIER)
    length = bits(31, 8, default=1)


class Run(Packet, words=5):
    """Encode the packets of another block of memory, then go on: how a graph is replayed."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.RUN)
    length = bits(31, 8, default=5)
    address = bits(95, 32)
    size_words = bits(159, 96)


class GpuEndTime(Packet, words=3):
    """End the command buffer, store its GPUEndTime in nanoseconds, and go on in another one."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.GPU_END_TIME)
    length = bits(31, 8, default=3)
    address = bits(95, 32)


PACKETS: dict[int, type[Packet]] = {
    layout.fields["opcode"].default: layout
    for layout in (
        DispatchThreadgroups,
        CopyFromBuffer,
        FillBuffer,
        EncodeWaitForEvent,
        EncodeSignalEvent,
        Barrier,
        Run,
        GpuEndTime,
    )
}
