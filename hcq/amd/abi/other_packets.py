"""Packets that other programs send and this driver never does: graphics, the kernel's own rings, copies to two places.

In       words of somebody else's ring
Out      PM4: opcode -> layouts; SDMA: (op, sub_op) -> layout
Next     pm4.py, sdma.py (what this driver sends), tools/trace/amd_words.py (who reads strangers' rings)
Source   AMD PAL gfx9_plus_merged_f32_{me,mec,pfp}_pm4_packets.h and gfx12_merged_f32_...; Mesa sid.h; Linux soc15d.h,
         nvd.h, vega10_sdma_pkt_open.h, navi10_sdma_pkt_open.h, sdma_v6_0_0_pkt_open.h

No source was found for the SDMA packets here on version 7 (gfx12): they are read as those of version 6.
The emulated GPU refuses these: they are no part of its tables.
"""

from __future__ import annotations

from hcq.amd.abi import sdma
from hcq.amd.abi.opcodes import Opcode
from hcq.amd.abi.pm4 import Event, EventIndex, Pm4, SetShReg, SetUconfigReg
from hcq.layout import Packet, SparsePacket, bits

_WITHOUT_FIELDS: dict[int, type[SparsePacket]] = {}  # registers of graphics: none is declared here
# what reg_offset of SET_CONTEXT_REG and SET_CONFIG_REG counts from
CONTEXT_BASE, CONFIG_BASE = (0xA000, 0x2000)


class ContextControl(Pm4, opcode=Opcode.CONTEXT_CONTROL, words=3):
    """What of the state is loaded from memory, and what is kept in memory, when queues take turns."""

    load_global_config = bits(32)
    load_per_context_state = bits(33)
    load_global_uconfig = bits(47)
    load_gfx_sh_regs = bits(48)
    load_cs_sh_regs = bits(56)
    load_ce_ram = bits(60)
    update_load_enables = bits(63)
    shadow_global_config = bits(64)
    shadow_per_context_state = bits(65)
    shadow_global_uconfig = bits(79)
    shadow_gfx_sh_regs = bits(80)
    shadow_cs_sh_regs = bits(88)
    update_shadow_enables = bits(95)


class ClearState(Pm4, opcode=Opcode.CLEAR_STATE, words=2):
    """Set the registers of the context to what they are after a reset."""

    cmd = bits(35, 32)


class CondExec(Pm4, opcode=Opcode.COND_EXEC, words=5):
    """Skip the next exec_count words when the word at the address is zero."""

    address = bits(95, 34, unit=4)
    cache_policy = bits(122, 121)
    exec_count = bits(141, 128)


class DispatchIndirectGraphics(Pm4, opcode=Opcode.DISPATCH_INDIRECT, words=3):
    """The same on a ring of graphics: the sizes stand at an offset from what SET_BASE has set."""

    data_offset = bits(63, 32)
    dispatch_initiator = bits(95, 64)


class DispatchIndirect(Pm4, opcode=Opcode.DISPATCH_INDIRECT, words=4):
    """Launch a grid whose three sizes are in memory, on a compute ring."""

    address = bits(95, 32)
    dispatch_initiator = bits(127, 96)


class AtomicMem(Pm4, opcode=Opcode.ATOMIC_MEM, words=9):
    """Change a number in memory through the L2; the command says whether it is done again until it compares."""

    atomic = bits(38, 32)
    command = bits(43, 40)
    cache_policy = bits(58, 57)
    engine_sel = bits(63, 62)  # on a ring of graphics
    address = bits(127, 64)
    src_data = bits(191, 128)
    cmp_data = bits(255, 192)
    loop_interval = bits(268, 256)


class PfpSyncMe(Pm4, opcode=Opcode.PFP_SYNC_ME, words=2):
    """Graphics: the prefetcher waits for the engine behind it."""

    dummy = bits(63, 32)


class SwitchBuffer(Pm4, opcode=Opcode.SWITCH_BUFFER, words=2):
    """Graphics of gfx9 and gfx10: the other half of the constant engine's memory."""

    tmz = bits(32)


class FrameControl(Pm4, opcode=Opcode.FRAME_CONTROL, words=2):
    """Graphics of gfx9 and gfx10: begin (0) or end (1) a frame, in trusted memory or not."""

    tmz = bits(32)
    command = bits(63, 60)


class HdpFlush(Pm4, opcode=Opcode.HDP_FLUSH, words=2):
    """What the host wrote through the host data path becomes visible."""

    dummy = bits(63, 32)


class Rewind(Pm4, opcode=Opcode.REWIND, words=2):
    """Stall until the valid bit of this very packet is set in memory."""

    offload_enable = bits(56)
    valid = bits(63)


class InvalidateTlbs(Pm4, opcode=Opcode.INVALIDATE_TLBS, words=2):
    """Forget translations of addresses."""

    invalidate_sel = bits(34, 32)
    mmhub_invalidate_sel = bits(36, 35)
    pasid = bits(52, 37)
    mmhub_flush_type = bits(59, 57)
    gfx_flush_type = bits(63, 61)


class PrimeUtcl2(Pm4, opcode=Opcode.PRIME_UTCL2, words=5):
    """Translate pages before they are needed."""

    cache_perm = bits(34, 32)
    prime_mode = bits(35)  # 1 waits for the answer
    engine_sel = bits(63, 62)  # on a ring of graphics
    address = bits(127, 64)
    requested_pages = bits(141, 128)


class EventWriteAddress(Pm4, opcode=Opcode.EVENT_WRITE, words=4):
    """An event that stores something: samples, statistics."""

    event_type = bits(37, 32, enum=Event)
    event_index = bits(43, 40, enum=EventIndex)
    address = bits(127, 67, unit=8)


class SetContextReg(SetShReg, opcode=Opcode.SET_CONTEXT_REG):
    """Write consecutive registers of the graphics context; reg_offset counts words from 0xa000."""

    layouts = _WITHOUT_FIELDS
    reg_offset = bits(47, 32)


class SetConfigReg(SetShReg, opcode=Opcode.SET_CONFIG_REG):
    """Write consecutive registers of the configuration; reg_offset counts words from 0x2000."""

    layouts = _WITHOUT_FIELDS
    reg_offset = bits(47, 32)


class SetUconfigRegIndex(SetUconfigReg, opcode=Opcode.SET_UCONFIG_REG_INDEX):
    """SET_UCONFIG_REG with an index that says how the value is used."""


PM4: dict[int, tuple[type[Pm4], ...]] = {
    Opcode.CONTEXT_CONTROL: (ContextControl,),
    Opcode.CLEAR_STATE: (ClearState,),
    Opcode.COND_EXEC: (CondExec,),
    Opcode.DISPATCH_INDIRECT: (DispatchIndirectGraphics, DispatchIndirect),
    Opcode.ATOMIC_MEM: (AtomicMem,),
    Opcode.PFP_SYNC_ME: (PfpSyncMe,),
    Opcode.SWITCH_BUFFER: (SwitchBuffer,),
    Opcode.FRAME_CONTROL: (FrameControl,),
    Opcode.HDP_FLUSH: (HdpFlush,),
    Opcode.REWIND: (Rewind,),
    Opcode.INVALIDATE_TLBS: (InvalidateTlbs,),
    Opcode.PRIME_UTCL2: (PrimeUtcl2,),
    Opcode.EVENT_WRITE: (EventWriteAddress,),
    Opcode.SET_CONTEXT_REG: (SetContextReg,),
    Opcode.SET_CONFIG_REG: (SetConfigReg,),
    Opcode.SET_UCONFIG_REG_INDEX: (SetUconfigRegIndex,),
}


class CopyBroadcastLinear(sdma.Sdma, op=sdma.Op.COPY, words=9):
    """Copy from one place to two; a COPY with the broadcast bit."""

    encrypt = bits(16)
    tmz = bits(18)
    cpv = bits(19)
    broadcast = bits(27, default=1)
    count = bits(61, 32)  # bytes minus one; 22 bits before version 6
    policies = bits(95, 64)  # of the three places; each generation has its own bits
    src_addr = bits(159, 96)
    dst_addr = bits(223, 160)
    second_dst_addr = bits(287, 224)


class CondExe(sdma.Sdma, op=sdma.Op.COND_EXE, words=5):
    """Skip the next exec_count words unless the word at the address is the reference."""

    cache_policy = bits(26, 24)  # from version 6 on, as cpv
    cpv = bits(28)
    address = bits(95, 32)
    reference = bits(127, 96)
    exec_count = bits(141, 128)


class Semaphore(sdma.Sdma, op=sdma.Op.SEMAPHORE, words=3):
    """Signal a semaphore in memory, or wait for it."""

    write_one = bits(29)
    signal = bits(30)
    mailbox = bits(31)
    address = bits(95, 32)


BROADCAST_BIT = 1 << 27
SDMA: dict[int, type[Packet]] = {sdma.Op.COND_EXE: CondExe, sdma.Op.SEMAPHORE: Semaphore}


def sdma_layout(header: int) -> type[Packet] | None:
    """The layout of an SDMA packet that this driver never sends; None where there is none."""
    if header & 0xFFFF == sdma.Op.COPY and header & BROADCAST_BIT:
        return CopyBroadcastLinear
    return SDMA.get(header & 0xFF) if header >> 8 & 0xFF == 0 else None
