"""The CPU device's packets, registers and structures: every word that the host and the command processor share.

In       nothing
Out      layouts: packets of the ring, the control block (the queue's registers), the group structure kernels see
Next     encode.py (commands to these packets), processor.py (native code that reads them at these offsets)
Source   our own design; docs/cpu-device.md says it in prose

Every packet starts with the same header word and is an even number of words long, so that 64-bit fields are aligned.
"""

from __future__ import annotations

from enum import IntEnum

from hcq.layout import Packet, bits


class Opcode(IntEnum):
    """What a packet is: the low byte of its first word."""

    NOP = 0
    DISPATCH = 1
    COPY = 2
    FILL = 3
    WAIT = 4
    SIGNAL = 5
    TIMESTAMP = 6
    BARRIER = 7
    INDIRECT = 8


class Fault(IntEnum):
    """Why the command processor stopped. It stops before the packet changes anything."""

    NONE = 0
    UNKNOWN_OPCODE = 1
    BAD_LENGTH = 2
    BAD_DISPATCH = 3
    ABANDONED_WAIT = 4  # the host gave up on a WAIT that nobody signalled


class Header(Packet, words=1):
    """First word of every packet."""

    opcode = bits(7, 0, enum=Opcode)
    flags = bits(15, 8)
    length = bits(31, 16, doc="words, this one included; even")


class Nop(Packet, words=2, tail="ignored"):
    """Nothing, for `length` words. Fills the end of the ring when the next packet does not fit there."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.NOP)
    length = bits(31, 16, default=2)


class Dispatch(Packet, words=12, tail="arguments"):
    """Call a kernel for every group of a grid; finished before the next packet starts.

    The arguments are 64-bit slots in the order in which the host's calling convention takes them: all integer registers
    (6 on x86-64, 8 on aarch64), then, when has_floats, 8 floating-point registers, then stack_slots stack slots.
    """

    opcode = bits(7, 0, enum=Opcode, default=Opcode.DISPATCH)
    has_floats = bits(15, 8)
    length = bits(31, 16)
    stack_slots = bits(47, 32)
    group_slot = bits(63, 48, doc="the slot that takes the address of this call's Group")
    entry = bits(127, 64)
    groups = bits(191, 128, doc="grid_x * grid_y * grid_z")
    grid_x = bits(223, 192)
    grid_y = bits(255, 224)
    grid_z = bits(287, 256)
    groups_per_claim = bits(319, 288, doc="0: the command processor chooses")
    scratch_bytes = bits(383, 320)


class Copy(Packet, words=8):
    """memmove: the two ranges may overlap."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.COPY)
    length = bits(31, 16, default=8)
    dst = bits(127, 64)
    src = bits(191, 128)
    size_bytes = bits(255, 192)


class Fill(Packet, words=8):
    """Repeat an 8-byte pattern from dst on; what is left at the end takes the pattern's first bytes."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.FILL)
    length = bits(31, 16, default=8)
    dst = bits(127, 64)
    pattern = bits(191, 128)
    size_bytes = bits(255, 192)


class Wait(Packet, words=6):
    """Go on once the signal's value is at least `value`, compared unsigned."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.WAIT)
    length = bits(31, 16, default=6)
    signal = bits(127, 64)
    value = bits(191, 128)


class Signal(Packet, words=6):
    """Store the time, then the value, then wake those that wait. Everything before it is visible by then."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.SIGNAL)
    length = bits(31, 16, default=6)
    signal = bits(127, 64)
    value = bits(191, 128)


class Timestamp(Packet, words=4):
    """Store CLOCK_MONOTONIC nanoseconds at an address."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.TIMESTAMP)
    length = bits(31, 16, default=4)
    address = bits(127, 64)


class Barrier(Packet, words=2):
    """Order all memory before it before all memory after it."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.BARRIER)
    length = bits(31, 16, default=2)


class Indirect(Packet, words=6):
    """Run the packets of another block of memory, then go on here. How a graph replays."""

    opcode = bits(7, 0, enum=Opcode, default=Opcode.INDIRECT)
    length = bits(31, 16, default=6)
    address = bits(127, 64)
    size_words = bits(191, 128)


PACKETS: dict[int, type[Packet]] = {
    Opcode.NOP: Nop,
    Opcode.DISPATCH: Dispatch,
    Opcode.COPY: Copy,
    Opcode.FILL: Fill,
    Opcode.WAIT: Wait,
    Opcode.SIGNAL: Signal,
    Opcode.TIMESTAMP: Timestamp,
    Opcode.BARRIER: Barrier,
    Opcode.INDIRECT: Indirect,
}


class Group(Packet, words=18):
    """What a kernel's last argument points at: `const struct hcq_group *`. A plain C function does not look at it.

    A call covers the groups first <= g < last of the grid, numbered x fastest: g = x + grid_x * (y + grid_y * z).
    """

    first = bits(63, 0)
    last = bits(127, 64)
    grid_x = bits(191, 128)
    grid_y = bits(255, 192)
    grid_z = bits(319, 256)
    scratch = bits(383, 320)
    scratch_bytes = bits(447, 384)
    worker = bits(511, 448, doc="0 is the command processor itself")


class Control(Packet, words=144):
    """The queue's registers, one cache line (16 words) for each of those who write them."""

    # written by the host
    put = bits(63, 0, doc="words ever written; the ring index is put modulo the ring's size")
    doorbell = bits(95, 64, doc="futex word; changes whenever put has")
    # written by the command processor
    get = bits(575, 512, doc="words ever executed")
    asleep = bits(607, 576, doc="1: it sleeps on the doorbell")
    fault = bits(639, 608, enum=Fault, doc="futex word; the host clears it to go on")
    packets = bits(703, 640, doc="packets ever executed")
    fault_address = bits(767, 704)
    dispatches = bits(831, 768, doc="dispatches ever executed")
    packet = bits(895, 832, doc="address of the current packet, in the ring or in a block")
    # set before the threads start
    ring = bits(1087, 1024)
    ring_words = bits(1151, 1088, doc="a power of two")
    processor_spin_ns = bits(1215, 1152)
    worker_spin_ns = bits(1279, 1216)
    threads = bits(1343, 1280, doc="the command processor included")
    timeline = bits(1407, 1344, doc="woken at a fault")
    processor_long_spin_ns = bits(
        1471, 1408, doc="instead of processor_spin_ns, after a shorter gap than this"
    )
    # everybody
    stop = bits(1567, 1536)
    running = bits(1599, 1568, doc="threads that have not ended")
    abandon = bits(1631, 1600, doc="1: the current WAIT packet gives up, as a fault")
    # the current job: workers take claims from ticket, which counts down, so an old ticket can never be a claim
    ticket = bits(2111, 2048)
    posted = bits(2591, 2560, doc="futex word; changes whenever there is a new job")
    sleepers = bits(2623, 2592)
    done = bits(3103, 3072, doc="claims finished; futex word")
    done_awaited = bits(3135, 3104, doc="1: the command processor sleeps on done")
    job_packet = bits(3647, 3584)
    job_claims = bits(3711, 3648)
    job_claim_groups = bits(3775, 3712)
    # grown by the host while the queue is idle
    scratch = bits(4159, 4096)
    scratch_stride = bits(4223, 4160)


class WorkerStart(Packet, words=4):
    """What a worker thread is started with."""

    control = bits(63, 0)
    index = bits(127, 64)


class SignalCell(Packet, words=4):
    """A signal as host and device see it."""

    value = bits(63, 0)
    timestamp_ns = bits(127, 64)
