"""AQL: the 64-byte packets of HSA queues, and the structures in memory that go with them.

In       fields by name
Out      packets and structures as words and back; `decode` splits a stream
Next     encode.py (commands to these), rings.py (the queue in memory), hcq/emu/amd/aql_processor.py (executes them)
Source   hsa.h, amd_hsa_queue.h, amd_hsa_signal.h; the PM4 packet is the runtime's vendor format 1

A packet is made ready by storing its first word last: until then its type is INVALID, and the processor sets it back to
INVALID when it has read the packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from hcq.layout import Packet, SparsePacket, bits

PACKET_BYTES = 64


class PacketType(IntEnum):
    VENDOR_SPECIFIC = 0
    INVALID = 1
    KERNEL_DISPATCH = 2
    BARRIER_AND = 3
    AGENT_DISPATCH = 4
    BARRIER_OR = 5


class FenceScope(IntEnum):
    NONE = 0
    AGENT = 1
    SYSTEM = 2


class Header(SparsePacket, words=16):
    """What all packets share; it stands for a packet that is none we know."""

    type = bits(7, 0, enum=PacketType)
    barrier = bits(8)
    acquire_fence_scope = bits(10, 9, enum=FenceScope)
    release_fence_scope = bits(12, 11, enum=FenceScope)


class KernelDispatch(SparsePacket, words=16):
    """Launch a grid; sizes are in work-items. It is self-contained: caches are acquired before and released after."""

    type = bits(7, 0, enum=PacketType, default=PacketType.KERNEL_DISPATCH)
    barrier = bits(8, default=1)  # wait for all packets before this one
    acquire_fence_scope = bits(10, 9, enum=FenceScope, default=FenceScope.SYSTEM)
    release_fence_scope = bits(12, 11, enum=FenceScope, default=FenceScope.SYSTEM)
    dimensions = bits(17, 16, default=3)
    workgroup_size_x = bits(47, 32)
    workgroup_size_y = bits(63, 48)
    workgroup_size_z = bits(79, 64)
    grid_size_x = bits(127, 96)
    grid_size_y = bits(159, 128)
    grid_size_z = bits(191, 160)
    private_segment_size = bits(223, 192)  # bytes for each work-item
    group_segment_size = bits(255, 224)  # bytes of LDS, static and dynamic
    kernel_object = bits(319, 256)  # of the kernel descriptor, not of the code
    kernarg_address = bits(383, 320)
    completion_signal = bits(511, 448)


class BarrierAnd(SparsePacket, words=16):
    """Wait until all these signals are zero."""

    type = bits(7, 0, enum=PacketType, default=PacketType.BARRIER_AND)
    barrier = bits(8, default=1)
    acquire_fence_scope = bits(10, 9, enum=FenceScope)
    release_fence_scope = bits(12, 11, enum=FenceScope)
    dep_signal_0 = bits(127, 64)
    dep_signal_1 = bits(191, 128)
    dep_signal_2 = bits(255, 192)
    dep_signal_3 = bits(319, 256)
    dep_signal_4 = bits(383, 320)
    completion_signal = bits(511, 448)


class BarrierOr(BarrierAnd):
    """Wait until one of these signals is zero."""

    type = bits(7, 0, enum=PacketType, default=PacketType.BARRIER_OR)


class Condition(IntEnum):
    """How BarrierValue compares (signal & mask) with its value; both are signed."""

    EQ = 0
    NE = 1
    LT = 2
    GTE = 3


class BarrierValue(SparsePacket, words=16):
    """Vendor packet: wait until a signal's value compares with another. The runtime leaves garbage in other words."""

    type = bits(7, 0, enum=PacketType, default=PacketType.VENDOR_SPECIFIC)
    barrier = bits(8, default=1)
    acquire_fence_scope = bits(10, 9, enum=FenceScope)
    release_fence_scope = bits(12, 11, enum=FenceScope)
    ven_hdr = bits(23, 16, default=2)  # the vendor format: a barrier on a value
    # reserved words are named because HIP leaves garbage in them: the packet processor cannot look at them
    reserved0 = bits(63, 32)
    signal = bits(127, 64)
    value = bits(191, 128)
    mask = bits(255, 192)
    cond = bits(287, 256, enum=Condition)
    reserved1 = bits(319, 288)
    reserved2 = bits(383, 320)
    reserved3 = bits(447, 384)
    completion_signal = bits(511, 448)


class Pm4Ib(SparsePacket, words=16):
    """Vendor packet: run a block of PM4. On a part with several XCCs it runs on every one of them."""

    type = bits(7, 0, enum=PacketType, default=PacketType.VENDOR_SPECIFIC)
    barrier = bits(8, default=1)
    acquire_fence_scope = bits(10, 9, enum=FenceScope, default=FenceScope.SYSTEM)
    release_fence_scope = bits(12, 11, enum=FenceScope, default=FenceScope.SYSTEM)
    ven_hdr = bits(31, 16, default=1)  # the vendor format: a PM4 block
    # an INDIRECT_BUFFER packet: its header, then its three words
    ib_header = bits(63, 32, default=0xC0023F00)
    ib_base = bits(127, 66, unit=4)
    ib_size = bits(147, 128)
    ib_chain = bits(148)
    ib_offload_polling = bits(149)
    ib_valid = bits(151, default=1)
    ib_vmid = bits(155, 152)
    ib_cache_policy = bits(157, 156)
    dw_cnt_remain = bits(191, 160, default=10)
    completion_signal = bits(511, 448)


class AmdQueue(SparsePacket, words=64):
    """amd_queue_t: what the packet processor knows of an AQL queue. It finds this from the read pointer."""

    type = bits(31, 0)
    features = bits(63, 32, default=1)  # kernel dispatch
    base_address = bits(127, 64)
    doorbell_signal = bits(191, 128)
    size = bits(223, 192)  # packets
    id = bits(319, 256)
    caps = bits(351, 320)
    write_dispatch_id = bits(511, 448)
    group_segment_aperture_base_hi = bits(543, 512)
    private_segment_aperture_base_hi = bits(575, 544)
    max_cu_id = bits(607, 576)
    max_wave_id = bits(639, 608)
    max_legacy_doorbell_dispatch_id_plus_1 = bits(703, 640)
    legacy_doorbell_lock = bits(735, 704)
    read_dispatch_id = bits(1087, 1024)
    read_dispatch_id_field_base_byte_offset = bits(1119, 1088)
    compute_tmpring_size = bits(1151, 1120)
    scratch_resource_descriptor_0 = bits(1183, 1152)
    scratch_resource_descriptor_1 = bits(1215, 1184)
    scratch_resource_descriptor_2 = bits(1247, 1216)
    scratch_resource_descriptor_3 = bits(1279, 1248)
    scratch_backing_memory_location = bits(1343, 1280)
    scratch_backing_memory_byte_size = bits(1407, 1344)
    scratch_wave64_lane_byte_size = bits(1439, 1408)
    enable_trap_handler = bits(1440)
    is_ptr64 = bits(1441, default=1)
    enable_trap_handler_debug_sgprs = bits(1442)
    enable_profiling = bits(1443)
    use_scratch_once = bits(1444)
    queue_inactive_signal = bits(1599, 1536)


class AmdSignal(SparsePacket, words=16):
    """amd_signal_t: a signal of the HSA runtime, which the packet processor decrements or stores an error in."""

    kind = bits(63, 0, default=1)
    value = bits(127, 64)
    event_mailbox_ptr = bits(191, 128)
    event_id = bits(223, 192)
    start_ts = bits(319, 256)
    end_ts = bits(383, 320)
    queue_ptr = bits(447, 384)


# queue_inactive_signal: why the packet processor stopped a queue
INACTIVE = {
    0x1: "not enough scratch memory for a wave of 64",
    0x2: "an invalid dispatch dimension",
    0x4: "more group memory (LDS) than the chip has",
    0x8: "no valid code object at the address of the kernel descriptor",
    0x20: "an invalid or unsupported packet",
    0x40: "a workgroup that is too large",
    0x80: "too many vector registers",
    0x100: "an unsupported vendor packet",
    0x400: "not enough scratch memory for a wave of 32",
    0x20000000: "a memory aperture violation",
    0x40000000: "an illegal instruction",
    0x80000000: "a trap",
}

_LAYOUTS: dict[int, type[Packet]] = {
    PacketType.KERNEL_DISPATCH: KernelDispatch,
    PacketType.BARRIER_AND: BarrierAnd,
    PacketType.BARRIER_OR: BarrierOr,
}
_VENDOR_LAYOUTS: dict[int, type[Packet]] = {1: Pm4Ib, 2: BarrierValue}


def decode_one(words: Sequence[int]) -> Packet:
    """The packet in one slot of 16 words."""
    layout = _LAYOUTS.get(words[0] & 0xFF, Header)
    if words[0] & 0xFF == PacketType.VENDOR_SPECIFIC:
        layout = _VENDOR_LAYOUTS.get(words[0] >> 16 & 0xFF, Header)
    return layout.decode(words[:16])


def decode(words: Sequence[int]) -> list[Packet]:
    """Packets as a trace shows them. Never raises."""
    return [decode_one(words[at : at + 16]) for at in range(0, len(words), 16)]
