"""SDMA: the packets of AMD copy engines, versions 4 (gfx9), 6 (gfx10.3, gfx11) and 7 (gfx12), as this driver uses them.

In       fields by name
Out      packets as words and back; `VERSIONS` holds one table for each generation; `decode` splits a stream
Next     encode.py (commands to these), hcq/emu/amd/sdma_processor.py (executes them)
Source   Linux vega10_sdma_pkt_open.h, sdma_v6_0_0_pkt_open.h; AMD PAL for version 7

A generation's packet is the one before it and what is new; where much is gone, all start from what they share.
Counts are bytes minus one. A packet never crosses the end of the ring: NOPs, words of zero, fill the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from hcq.amd.abi.pm4 import Function
from hcq.layout import Bits, Packet, SparsePacket, bits


class Op(IntEnum):
    NOP = 0
    COPY = 1
    WRITE = 2
    INDIRECT = 4
    FENCE = 5
    TRAP = 6
    SEMAPHORE = 7
    POLL_REGMEM = 8
    COND_EXE = 9
    ATOMIC = 10
    CONST_FILL = 11
    PTEPDE = 12
    TIMESTAMP = 13
    SRBM_WRITE = 14
    PRE_EXE = 15
    GPUVM_INV = 16
    GCR_REQ = 17


class TimestampOp(IntEnum):
    SET = 0
    GET = 1
    GET_GLOBAL = 2


class FillSize(IntEnum):
    BYTE = 0
    HALF = 1
    WORD = 2


RETRY_FOREVER = 0xFFF
COPY_WINDOW = 4  # sub_op of COPY: a box out of an array
# POLL_REGMEM of no memory and no register, here: what the host wrote becomes visible
HDP_FLUSH_ADDRESS = 1 << 63
MTYPE_UC = 3  # uncached


class Sdma(SparsePacket, words=1):
    """Base of the packets: `op` has its value from the class."""

    hidden_fields = frozenset(("op", "mem_poll"))
    op: Bits
    sub_op = bits(15, 8)

    def __init_subclass__(cls, op: Op | None = None, **kwargs: Any) -> None:
        if op is not None:
            cls.op = bits(7, 0, enum=Op, default=op)
        super().__init_subclass__(**kwargs)


class Header(SparsePacket, words=1):
    """First word of every packet."""

    op = bits(7, 0, enum=Op)
    sub_op = bits(15, 8)


class Nop(Sdma, op=Op.NOP, tail="ignored"):
    """Nothing, for count words after the header."""

    count = bits(29, 16)


class _CopyLinear(Sdma, op=Op.COPY, words=7):
    tmz = bits(18)
    count = bits(61, 32)  # bytes minus one
    src_addr = bits(159, 96)
    dst_addr = bits(223, 160)


class CopyLinearV4(_CopyLinear):
    """Copy count bytes; any alignment. Version 4; on gfx942 the count has 22 bits."""

    encrypt = bits(16)
    broadcast = bits(27)
    dst_sw = bits(81, 80)
    src_sw = bits(89, 88)


class CopyLinear(CopyLinearV4):
    """The same. Version 6."""

    cpv = bits(19)
    backwards = bits(25)
    dst_cache_policy = bits(84, 82)
    src_cache_policy = bits(92, 90)


class CopyLinearV7(_CopyLinear):
    """The same. Version 7; with dcc set it would have an eighth word, which we never ask for."""

    dcc = bits(19)
    backwards = bits(25)
    dst_mall_policy = bits(85, 84)
    src_mall_policy = bits(93, 92)


class _CopyWindow(Sdma, op=Op.COPY, words=13):
    """Copy a box out of one array of elements into another; sizes and pitches are in elements, minus one."""

    sub_op = bits(15, 8, default=COPY_WINDOW)
    elementsize = bits(31, 29)  # log2 of bytes
    src_addr = bits(95, 32)
    src_x = bits(109, 96)
    src_y = bits(125, 112)
    dst_addr = bits(255, 192)
    dst_x = bits(269, 256)
    dst_y = bits(285, 272)
    rect_x = bits(365, 352)
    rect_y = bits(381, 368)


class CopyWindow(_CopyWindow):
    """The same. Versions 4 and 6."""

    src_z = bits(138, 128)
    src_pitch = bits(159, 141)
    src_slice_pitch = bits(187, 160)
    dst_z = bits(298, 288)
    dst_pitch = bits(319, 301)
    dst_slice_pitch = bits(347, 320)
    rect_z = bits(394, 384)
    dst_sw = bits(401, 400)
    src_sw = bits(409, 408)


class CopyWindowV7(_CopyWindow):
    """The same. Version 7."""

    src_x = bits(111, 96)
    src_y = bits(127, 112)
    src_z = bits(141, 128)
    src_pitch = bits(159, 144)
    src_slice_pitch = bits(191, 160)
    dst_x = bits(271, 256)
    dst_y = bits(287, 272)
    dst_z = bits(301, 288)
    dst_pitch = bits(319, 304)
    dst_slice_pitch = bits(351, 320)
    rect_x = bits(367, 352)
    rect_y = bits(383, 368)
    rect_z = bits(397, 384)
    dst_cache_policy = bits(406, 404)
    src_cache_policy = bits(414, 412)


class AtomicOp(IntEnum):
    """Atomic operations of the memory that AMD's runtime asks a copy engine for."""

    ADD64 = 0x2F


class Atomic(Sdma, op=Op.ATOMIC, words=8):
    """Change a number in memory, once earlier packets are done."""

    loop = bits(16)
    tmz = bits(18)
    atomic_op = bits(31, 25, enum=AtomicOp)
    address = bits(95, 32)
    src_data = bits(159, 96)
    cmp_data = bits(223, 160)
    loop_interval = bits(236, 224)


class _ConstFill(Sdma, op=Op.CONST_FILL, words=5):
    fillsize = bits(31, 30, enum=FillSize)
    dst_addr = bits(95, 32)
    src_data = bits(127, 96)
    count = bits(157, 128)  # bytes minus one; for words the two lowest bits are ignored


class ConstFillV4(_ConstFill):
    """Fill with a byte, a half word or a word. Version 4."""

    sw = bits(17, 16)
    count = bits(149, 128)


class ConstFill(_ConstFill):
    """The same. Version 6."""

    sw = bits(17, 16)
    cache_policy = bits(26, 24)
    cpv = bits(28)


class ConstFillV7(_ConstFill):
    """The same. Version 7."""

    nopte_comp = bits(16)
    sys = bits(20)
    snp = bits(22)
    gpa = bits(23)
    mall_policy = bits(27, 26)


class _WriteLinear(Sdma, op=Op.WRITE, words=4, tail="data"):
    tmz = bits(18)
    dst_addr = bits(95, 32)
    count = bits(115, 96)  # words minus one


class WriteLinearV4(_WriteLinear):
    """Write words to memory. Version 4."""

    encrypt = bits(16)
    sw = bits(121, 120)


class WriteLinear(WriteLinearV4):
    """The same. Version 6."""

    cpv = bits(28)
    cache_policy = bits(124, 122)


class WriteLinearV7(_WriteLinear):
    """The same. Version 7."""

    nopte_comp = bits(16)
    sys = bits(116)
    snp = bits(118)
    gpa = bits(119)
    dst_mall_policy = bits(125, 124)


class FenceV4(Sdma, op=Op.FENCE, words=4):
    """Write 32 bits once earlier packets are done. Version 4."""

    address = bits(95, 32)
    data = bits(127, 96)


class Fence(FenceV4):
    """The same. Version 6."""

    mtype = bits(18, 16, default=MTYPE_UC)
    gcc = bits(19)
    sys = bits(20)
    snp = bits(22)
    gpa = bits(23)
    l2_policy = bits(25, 24)
    llc_policy = bits(26)
    cpv = bits(28)


class FenceV7(FenceV4):
    """The same. Version 7; the address is a multiple of 4.

    mtype stands where version 6 has it; ROCr writes it for both, no definition of version 7 that we know has it.
    """

    mtype = bits(18, 16, default=MTYPE_UC)
    sys = bits(20)
    snp = bits(22)
    gpa = bits(23)
    mall_policy = bits(27, 26)
    address = bits(95, 34, unit=4)


class Trap(Sdma, op=Op.TRAP, words=2):
    """Raise an interrupt with this context: a KFD event id."""

    int_context = bits(59, 32)


class _PollRegmem(Sdma, op=Op.POLL_REGMEM, words=6):
    func = bits(30, 28, enum=Function)
    mem_poll = bits(31, default=1)
    address = bits(95, 32)
    value = bits(127, 96)
    mask = bits(159, 128)
    interval = bits(175, 160)
    retry_count = bits(187, 176)


class PollRegmemV4(_PollRegmem):
    """Stall until (memory & mask) compares with the value; 32 bits. Version 4."""

    hdp_flush = bits(26)


class PollRegmem(PollRegmemV4):
    """The same. Version 6."""

    cache_policy = bits(22, 20)
    cpv = bits(24)


class PollRegmemV7(_PollRegmem):
    """The same. Version 7; the address is a multiple of 4."""

    virtual_die_id = bits(17, 16)
    domain = bits(18)
    bridge = bits(19)
    mall_policy = bits(23, 22)
    mode = bits(27, 26)
    address = bits(95, 34, unit=4)


class Timestamp(Sdma, op=Op.TIMESTAMP, words=3):
    """Store the 64-bit global counter; the address is a multiple of 8."""

    sub_op = bits(15, 8, enum=TimestampOp, default=TimestampOp.GET_GLOBAL)
    l2_policy = bits(25, 24)
    llc_policy = bits(26)
    cpv = bits(28)
    address = bits(95, 35, unit=8)


class Indirect(Sdma, op=Op.INDIRECT, words=6):
    """Run a block of packets; the base is a multiple of 32 bytes, and this packet ends at a multiple of 8 words."""

    vmid = bits(19, 16)
    priv = bits(31)
    ib_base = bits(95, 37, unit=32)
    ib_size = bits(115, 96)  # words
    csa_addr = bits(191, 128)


class GcrReq(Sdma, op=Op.GCR_REQ, words=5):
    """Cache control for the engine's own accesses; the bits are those of PM4's ACQUIRE_MEM. Versions 5 and later."""

    sub_op = bits(15, 8, default=1)
    base_va = bits(79, 39, unit=128)
    gli_inv = bits(81, 80)
    gl1_range = bits(83, 82)
    glm_wb = bits(84)
    glm_inv = bits(85)
    glk_wb = bits(86)
    glk_inv = bits(87)
    glv_inv = bits(88)
    gl1_inv = bits(89)
    gl2_us = bits(90)
    gl2_range = bits(92, 91)
    gl2_discard = bits(93)
    gl2_inv = bits(94)
    gl2_wb = bits(95)
    seq = bits(97, 96)
    range_is_pa = bits(98)
    limit_va = bits(143, 103, unit=128)
    vmid = bits(155, 152)


class Version(NamedTuple):
    """The packets of one generation of the engine, by op, and where several have it also by sub_op << 8 | op."""

    copy: type[Packet]
    fill: type[Packet]
    write: type[Packet]
    fence: type[Packet]
    poll: type[Packet]
    has_gcr: bool
    packets: dict[int, type[Packet]]


def _version(copy: Any, fill: Any, write: Any, fence: Any, poll: Any, has_gcr: bool) -> Version:
    packets: dict[int, type[Packet]] = {
        Op.NOP: Nop,
        Op.COPY: copy,
        Op.CONST_FILL: fill,
        Op.WRITE: write,
        Op.FENCE: fence,
        Op.POLL_REGMEM: poll,
        Op.TRAP: Trap,
        Op.TIMESTAMP: Timestamp,
        Op.INDIRECT: Indirect,
        Op.ATOMIC: Atomic,
        Op.COPY | COPY_WINDOW << 8: CopyWindowV7 if copy is CopyLinearV7 else CopyWindow,
    }
    if has_gcr:
        packets[Op.GCR_REQ] = GcrReq
    return Version(copy, fill, write, fence, poll, has_gcr, packets)


V4 = _version(CopyLinearV4, ConstFillV4, WriteLinearV4, FenceV4, PollRegmemV4, has_gcr=False)
V6 = _version(CopyLinear, ConstFill, WriteLinear, Fence, PollRegmem, has_gcr=True)
V7 = _version(CopyLinearV7, ConstFillV7, WriteLinearV7, FenceV7, PollRegmemV7, has_gcr=True)


def length_words(words: Sequence[int], version: Version) -> int:
    """The length of the packet at the start of these words; 0 when it is none we know."""
    layout = _layout(words[0], version)
    if layout is None:
        return 0
    if layout is Nop:
        return 1 + (words[0] >> 16 & 0x3FFF)
    if layout is version.write:
        return layout.length_words + (words[3] & 0xFFFFF) + 1 if len(words) > 3 else 4
    return layout.length_words


def _layout(header: int, version: Version) -> type[Packet] | None:
    return version.packets.get(header & 0xFFFF) or version.packets.get(header & 0xFF)


def decode_one(words: Sequence[int], version: Version) -> Packet:
    """The packet at the start of these words; its header alone when it is none we know, or is cut off."""
    size = length_words(words, version)
    if not size or size > len(words):
        return Header.decode(words[:1])
    layout = _layout(words[0], version)
    assert layout is not None
    return layout.decode(words[:size])


def decode(words: Sequence[int], version: Version) -> list[Packet]:
    """Packets as a trace shows them. Never raises: it ends with the header that makes no sense."""
    found: list[Packet] = []
    at = 0
    while at < len(words):
        packet = decode_one(words[at:], version)
        found.append(packet)
        if isinstance(packet, Header):
            break
        at += len(packet.words)
    return found
