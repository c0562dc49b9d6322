"""PM4: the packets of AMD compute queues, gfx9 to gfx12, as this driver uses them.

In       fields by name
Out      packets as words and back; `decode` splits a stream; `table(family)` is opcode -> layout
Next     opcodes.py (names), registers.py (what SET_SH_REG writes), encode.py (commands to these),
         hcq/emu/amd/pm4_processor.py
Source   AMD's PM4 packet definitions for MEC (gfx10, gfx11, gfx12); Linux soc15d.h and nvd.h

Every packet is of type 3: a header with an opcode and a count, the number of words that follow it minus one. Cache
control sits at different bits in ACQUIRE_MEM and RELEASE_MEM, and gfx9 names caches differently from gfx10 and later.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar

from hcq.amd.abi.opcodes import Opcode as Opcode
from hcq.amd.abi.registers import LAYOUTS, UCONFIG_LAYOUTS, Register, UconfigRegister
from hcq.layout import Bits, Packet, SparsePacket, bits


class Event(IntEnum):
    CACHE_FLUSH_TS = 4
    CS_PARTIAL_FLUSH = 7
    CACHE_FLUSH_AND_INV_TS_EVENT = 0x14
    BOTTOM_OF_PIPE_TS = 0x28
    CS_DONE = 0x2F


class EventIndex(IntEnum):
    OTHER = 0
    CS_PARTIAL_FLUSH = 4
    END_OF_PIPE = 5
    SHADER_DONE = 6


class DataSel(IntEnum):
    NONE = 0
    SEND_32_BIT_LOW = 1
    SEND_64_BIT_DATA = 2
    SEND_GPU_CLOCK_COUNTER = 3
    SEND_SYSTEM_CLOCK_COUNTER = 4


class IntSel(IntEnum):
    NONE = 0
    SEND_INTERRUPT_ONLY = 1
    SEND_INTERRUPT_AFTER_WRITE_CONFIRM = 2
    SEND_DATA_AND_WRITE_CONFIRM = 3


class Function(IntEnum):
    """How WAIT_REG_MEM compares; SDMA's POLL_REGMEM counts the same way."""

    ALWAYS_PASS = 0
    LESS_THAN = 1
    LESS_THAN_OR_EQUAL = 2
    EQUAL = 3
    NOT_EQUAL = 4
    GREATER_THAN_OR_EQUAL = 5
    GREATER_THAN = 6


class MemSpace(IntEnum):
    REGISTER = 0
    MEMORY = 1


class WaitOperation(IntEnum):
    WAIT_REG_MEM = 0
    WR_WAIT_WR_REG = 1


class NbioRegister(IntEnum):
    """Registers of the bus interface, by words. Source: nbio_4_3_0, nbio_7_9_0 and nbif_6_3_1 offset headers, alike."""

    GPU_HDP_FLUSH_REQ = 0xE26
    GPU_HDP_FLUSH_DONE = 0xE27


class GliInv(IntEnum):
    NOP = 0
    ALL = 1
    RANGE = 2
    FIRST_LAST = 3


class Seq(IntEnum):
    PARALLEL = 0
    FORWARD = 1
    REVERSE = 2


class WriteDst(IntEnum):
    MEM_MAPPED_REGISTER = 0
    TC_L2 = 2
    GDS = 3
    MEMORY = 5


class CopySrc(IntEnum):
    MEM_MAPPED_REGISTER = 0
    TC_L2 = 2
    IMMEDIATE_DATA = 5
    GPU_CLOCK_COUNT = 9
    SYSTEM_CLOCK_COUNT = 10


class CopyDst(IntEnum):
    MEM_MAPPED_REGISTER = 0
    TC_L2 = 2
    MEM = 5


class DmaSrc(IntEnum):
    MEMORY = 0
    GDS = 1
    DATA = 2
    TC_L2 = 3


class DmaDst(IntEnum):
    MEMORY = 0
    GDS = 1
    NOWHERE = 2
    TC_L2 = 3


class Header(SparsePacket, words=1):
    """First word of every packet; it stands alone in a trace when its packet is not one we know."""

    predicate = bits(0)
    shader_type = bits(1)  # ignored by the compute engine
    opcode = bits(15, 8, enum=Opcode)
    count = bits(29, 16)  # words after the header, minus one
    type = bits(31, 30)


class Pm4(SparsePacket, words=1):
    """Base of the packets: `opcode` and `count` have their values from the class."""

    hidden_fields = frozenset(("type", "opcode", "count"))
    opcode: Bits
    count: Bits
    predicate = bits(0)
    shader_type = bits(1)
    type = bits(31, 30, default=3)

    def __init_subclass__(cls, opcode: Opcode | None = None, words: int | None = None, **kwargs: Any) -> None:
        if opcode is not None:
            size = cls.length_words if words is None else words
            cls.opcode = bits(15, 8, enum=Opcode, default=opcode)
            cls.count = bits(29, 16, default=max(size - 2, 0))
        super().__init_subclass__(words=words, **kwargs)

    def __init__(self, **values: Any) -> None:
        if self.tail is not None and "count" not in values:
            values["count"] = self.length_words + len(values.get(self.tail, ())) - 2
        super().__init__(**values)


class Nop(Pm4, opcode=Opcode.NOP, words=2, tail="ignored"):
    """Skipped, with everything in it."""

    first_ignored = bits(63, 32)


class NopWord(Pm4, opcode=Opcode.NOP, words=1):
    """A filler of one word: the count 0x3fff stands for a header that nothing follows."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**{"count": 0x3FFF, **values})


class IndirectBuffer(Pm4, opcode=Opcode.INDIRECT_BUFFER, words=4):
    """Run the packets of a block of executable memory, then go on here."""

    ib_base = bits(95, 34, unit=4)
    ib_size = bits(115, 96)  # words
    chain = bits(116)
    offload_polling = bits(117)
    valid = bits(119, default=1)
    vmid = bits(123, 120)
    cache_policy = bits(125, 124)


class _SetRegisters(Pm4, words=2, tail="registers"):
    hidden_fields = Pm4.hidden_fields | {"reg_offset"}
    layouts: ClassVar[dict[int, type[SparsePacket]]] = {}  # of the registers that have fields

    reg_offset = bits(47, 32, enum=Register)
    vmid_shift = bits(59, 55)
    index = bits(63, 60)

    def tail_texts(self) -> list[str]:
        """Every register by name: with its fields where it has some, else with its value."""
        if not self.tail_words:
            return [f"reg_offset={self._register_name(self.reg_offset)}"]
        return [self._register_text(self.reg_offset + i, word) for i, word in enumerate(self.tail_words)]

    def _register_text(self, number: int, word: int) -> str:
        name, layout = self._register_name(number), self.layouts.get(number)
        return (
            f"{name}={word:#x}" if layout is None else f"{name}({', '.join(layout.decode([word]).texts())})"
        )

    def _register_name(self, number: int) -> str:
        register = self.fields["reg_offset"].named(number)
        if isinstance(register, IntEnum):
            return register.name
        layout = self.layouts.get(number)  # one that somebody else has declared
        return f"register_{number:#x}" if layout is None else layout.__name__

    @property
    def description(self) -> str:
        """The registers that it sets, as text."""
        return ", ".join(self.texts())


class SetShReg(_SetRegisters, opcode=Opcode.SET_SH_REG):
    """Write consecutive compute registers; reg_offset counts words from 0x2c00."""

    layouts = LAYOUTS


class SetShRegIndex(SetShReg, opcode=Opcode.SET_SH_REG_INDEX):
    """The same, with an index that says what to do with the value: 3 applies the kernel driver's mask of CUs."""


class SetUconfigReg(_SetRegisters, opcode=Opcode.SET_UCONFIG_REG):
    """Write consecutive registers that belong to no context; reg_offset counts words from 0xc000."""

    layouts = UCONFIG_LAYOUTS
    reg_offset = bits(47, 32, enum=UconfigRegister)


class DispatchDirect(Pm4, opcode=Opcode.DISPATCH_DIRECT, words=5):
    """Launch a grid of dim_x * dim_y * dim_z workgroups with the registers as they are."""

    dim_x = bits(63, 32)
    dim_y = bits(95, 64)
    dim_z = bits(127, 96)
    # COMPUTE_DISPATCH_INITIATOR
    compute_shader_en = bits(128, default=1)
    partial_tg_en = bits(129)
    force_start_at_000 = bits(130, default=1)
    ordered_append_enbl = bits(131)
    ordered_append_mode = bits(132)
    use_thread_dimensions = bits(133)
    order_mode = bits(134)
    scalar_l1_inv_vol = bits(138)
    vector_l1_inv_vol = bits(139)
    restore = bits(142)
    cs_w32_en = bits(143)  # gfx10 and later: waves of 32 lanes


class EventWrite(Pm4, opcode=Opcode.EVENT_WRITE, words=2):
    """CS_PARTIAL_FLUSH waits until all launched waves have ended."""

    event_type = bits(37, 32, enum=Event)
    event_index = bits(43, 40, enum=EventIndex)


class _ReleaseMem(Pm4, opcode=Opcode.RELEASE_MEM, words=8):
    event_type = bits(37, 32, enum=Event, default=Event.CACHE_FLUSH_AND_INV_TS_EVENT)
    event_index = bits(43, 40, enum=EventIndex, default=EventIndex.END_OF_PIPE)
    cache_policy = bits(58, 57)
    pq_exe_status = bits(60)
    dst_sel = bits(81, 80)  # 0: memory, through the memory controller
    int_sel = bits(90, 88, enum=IntSel)
    data_sel = bits(95, 93, enum=DataSel)
    address = bits(159, 98, unit=4)
    data = bits(223, 160)
    int_ctxid = bits(255, 224)


class ReleaseMem(_ReleaseMem):
    """Once earlier work is done: clean caches, then write data or raise an interrupt, or both. gfx11 and gfx12."""

    wait_sync = bits(39)
    glm_wb = bits(44)
    glm_inv = bits(45)
    glv_inv = bits(46)
    gl1_inv = bits(47)
    gl2_us = bits(48)
    gl2_range = bits(50, 49)
    gl2_discard = bits(51)
    gl2_inv = bits(52)
    gl2_wb = bits(53)
    seq = bits(55, 54, enum=Seq)
    glk_wb = bits(56)
    glk_inv = bits(62)
    mes_intr_pipe = bits(85, 84)
    mes_action_id = bits(87, 86)


class ReleaseMemGfx9(_ReleaseMem):
    """The same with gfx9's caches: TCL1 and TC are the vector L1 and the L2."""

    tcl1_vol_action_ena = bits(44)
    tc_vol_action_ena = bits(45)
    tc_wb_action_ena = bits(47)
    tcl1_action_ena = bits(48)
    tc_action_ena = bits(49)
    tc_nc_action_ena = bits(51)
    tc_wc_action_ena = bits(52)
    tc_md_action_ena = bits(53)


class _AcquireMem(Pm4, opcode=Opcode.ACQUIRE_MEM, words=7):
    coher_size = bits(103, 64, unit=256)
    coher_size_rest = bits(127, 104)  # counts for nothing: amdgpu fills the lower 16 bits, peers all of them
    coher_base = bits(183, 128, unit=256)
    poll_interval = bits(207, 192)


class AcquireMem(_AcquireMem, opcode=Opcode.ACQUIRE_MEM, words=8):
    """Invalidate and clean caches before later packets. gfx10 and later; gfx12 has no GLM and GL1 and ignores them."""

    gli_inv = bits(225, 224, enum=GliInv)  # instruction cache
    gl1_range = bits(227, 226)
    glm_wb = bits(228)
    glm_inv = bits(229)
    glk_wb = bits(230)
    glk_inv = bits(231)  # scalar data cache
    glv_inv = bits(232)  # vector L0
    gl1_inv = bits(233)
    gl2_us = bits(234)
    gl2_range = bits(236, 235)
    gl2_discard = bits(237)
    gl2_inv = bits(238)
    gl2_wb = bits(239)
    seq = bits(241, 240, enum=Seq)
    range_is_pa = bits(242)


class AcquireMemGfx9(_AcquireMem):
    """The same on gfx9: one word shorter, and the caches are named in COHER_CNTL."""

    tc_nc_action_ena = bits(35)
    tc_wc_action_ena = bits(36)
    tc_inv_metadata_action_ena = bits(37)
    tcl1_vol_action_ena = bits(47)
    tc_wb_action_ena = bits(50)
    tcl1_action_ena = bits(54)  # vector L1
    tc_action_ena = bits(55)  # L2
    cb_action_ena = bits(57)
    db_action_ena = bits(58)
    sh_kcache_action_ena = bits(59)  # scalar data cache
    sh_kcache_vol_action_ena = bits(60)
    sh_icache_action_ena = bits(61)
    sh_kcache_wb_action_ena = bits(62)
    engine = bits(63)


class _WaitRegMem(Pm4, words=2):
    function = bits(34, 32, enum=Function)
    mem_space = bits(37, 36, enum=MemSpace)
    operation = bits(39, 38, enum=WaitOperation)
    mes_intr_pipe = bits(55, 54)
    mes_action = bits(56)
    cache_policy = bits(58, 57)


class WaitRegMem(_WaitRegMem, opcode=Opcode.WAIT_REG_MEM, words=7):
    """Stall until (memory & mask) compares with the reference; 32 bits."""

    address = bits(127, 66, unit=4)
    reference = bits(159, 128)
    mask = bits(191, 160)
    poll_interval = bits(207, 192)
    optimize_ace_offload_mode = bits(223)


class WaitRegister(_WaitRegMem, opcode=Opcode.WAIT_REG_MEM, words=7):
    """Write the reference to a register and stall until (another & mask) compares with it: mem_space REGISTER."""

    register = bits(81, 64, enum=NbioRegister)
    second_register = bits(113, 96, enum=NbioRegister)  # WR_WAIT_WR: the one that is waited for
    reference = bits(159, 128)
    mask = bits(191, 160)
    poll_interval = bits(207, 192)
    optimize_ace_offload_mode = bits(223)


class WaitRegMem64(_WaitRegMem, opcode=Opcode.WAIT_REG_MEM64, words=9):
    """Stall until (memory & mask) compares with the reference; 64 bits. gfx10 and later."""

    address = bits(127, 67, unit=8)
    reference = bits(191, 128)
    mask = bits(255, 192)
    poll_interval = bits(271, 256)
    optimize_ace_offload_mode = bits(287)


class WriteData(Pm4, opcode=Opcode.WRITE_DATA, words=4, tail="data"):
    """Write words to memory."""

    dst_sel = bits(43, 40, enum=WriteDst, default=WriteDst.MEMORY)
    addr_incr = bits(48)  # 1: do not increment
    wr_confirm = bits(52)
    cache_policy = bits(58, 57)
    address = bits(127, 66, unit=4)


class CopyData(Pm4, opcode=Opcode.COPY_DATA, words=6):
    """Move 32 or 64 bits between memory, an immediate and the clock."""

    src_sel = bits(35, 32, enum=CopySrc)
    dst_sel = bits(43, 40, enum=CopyDst)
    src_cache_policy = bits(46, 45)
    count_sel = bits(48)  # 1: 64 bits
    wr_confirm = bits(52)
    dst_cache_policy = bits(58, 57)
    pq_exe_status = bits(61)
    source = bits(127, 64)
    destination = bits(191, 128)


class DmaData(Pm4, opcode=Opcode.DMA_DATA, words=7):
    """Copy bytes, or fill with the word that source then is. Source: PACKET3_DMA_DATA in soc15d.h and nvd.h."""

    src_cache_policy = bits(46, 45)
    dst_sel = bits(53, 52, enum=DmaDst)
    dst_cache_policy = bits(58, 57)
    src_sel = bits(62, 61, enum=DmaSrc)
    cp_sync = bits(63)
    source = bits(127, 64)
    destination = bits(191, 128)
    byte_count = bits(217, 192)
    sas = bits(218)  # 1: registers, not memory
    das = bits(219)
    saic = bits(220)  # 1: the source's address does not rise
    daic = bits(221)
    raw_wait = bits(222)
    dis_wc = bits(223)


class PredExec(Pm4, opcode=Opcode.PRED_EXEC, words=2):
    """Multi-XCC parts, inside indirect buffers only: the next exec_count words run on the XCCs of the mask alone."""

    exec_count = bits(45, 32)
    virtual_xcc_select = bits(63, 56)


_COMMON: dict[int, type[Pm4]] = {
    Opcode.NOP: Nop,
    Opcode.DISPATCH_DIRECT: DispatchDirect,
    Opcode.WRITE_DATA: WriteData,
    Opcode.WAIT_REG_MEM: WaitRegMem,
    Opcode.INDIRECT_BUFFER: IndirectBuffer,
    Opcode.COPY_DATA: CopyData,
    Opcode.DMA_DATA: DmaData,
    Opcode.EVENT_WRITE: EventWrite,
    Opcode.SET_SH_REG: SetShReg,
    Opcode.SET_SH_REG_INDEX: SetShRegIndex,
    Opcode.SET_UCONFIG_REG: SetUconfigReg,
}
GFX9: dict[int, type[Pm4]] = {
    **_COMMON,
    Opcode.RELEASE_MEM: ReleaseMemGfx9,
    Opcode.ACQUIRE_MEM: AcquireMemGfx9,
    Opcode.PRED_EXEC: PredExec,
}
GFX11: dict[int, type[Pm4]] = {
    **_COMMON,
    Opcode.RELEASE_MEM: ReleaseMem,
    Opcode.ACQUIRE_MEM: AcquireMem,
    Opcode.WAIT_REG_MEM64: WaitRegMem64,
}


def is_header(word: int) -> bool:
    """Whether a word can start a PM4 packet; SDMA's sub-operations are below 16, PM4's opcodes are not."""
    return word >> 30 == 3 and word >> 8 & 0xFF >= 0x10


def length_words(header: int) -> int:
    """The length of the packet that this header starts."""
    count = header >> 16 & 0x3FFF
    return 1 if count == 0x3FFF and header >> 8 & 0xFF == Opcode.NOP else count + 2


def decode_one(words: Sequence[int], packets: dict[int, type[Pm4]]) -> Packet:
    """The packet at the start of these words; its header alone when it is none we know, or is cut off."""
    header = words[0]
    size = length_words(header)
    if size == 1 and is_header(header):
        return NopWord.decode(words[:1])
    layout = packets.get(header >> 8 & 0xFF)
    if layout is WaitRegMem and len(words) > 1 and words[1] >> 4 & 3 == MemSpace.REGISTER:
        layout = WaitRegister
    fits = layout is not None and (
        layout.length_words == size or (layout.tail and size > layout.length_words)
    )
    if layout is None or not is_header(header) or not fits or size > len(words):
        return Header.decode(words[:1])
    return layout.decode(words[:size])


def decode(words: Sequence[int], packets: dict[int, type[Pm4]]) -> list[Packet]:
    """Packets as a trace shows them. Never raises: it ends with the header that makes no sense."""
    found: list[Packet] = []
    at = 0
    while at < len(words):
        packet = decode_one(words[at:], packets)
        found.append(packet)
        if isinstance(packet, Header):
            break
        at += len(packet.words)
    return found
