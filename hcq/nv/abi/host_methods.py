"""Host methods: what the front end of a channel does itself, on any subchannel: semaphores, waiting, memory operations.

In       fields by name
Out      Method packets; HOST (Hopper and later) and HOST_C56F (Ampere, Ada), all of them
Changes  nothing
Next     methods.py (pushbuffers of them), compute_methods.py and copy_methods.py (the engines)
Source   clc56f.h, clc86f.h
"""

from __future__ import annotations

from enum import IntEnum

from hcq.layout import bits, declared_in
from hcq.nv.abi.method import Method, changed


class Engine(IntEnum):
    SW = 31


class SemaphoredOperation(IntEnum):
    ACQUIRE = 1
    RELEASE = 2
    ACQ_GEQ = 4
    ACQ_AND = 8
    REDUCTION = 16


class AcquireSwitch(IntEnum):
    DISABLED = 0
    ENABLED = 1


class ReleaseWfi(IntEnum):
    EN = 0
    DIS = 1


class ReleaseSize(IntEnum):
    SIZE_16BYTE = 0
    SIZE_4BYTE = 1


class Reduction(IntEnum):
    MIN = 0
    MAX = 1
    XOR = 2
    AND = 3
    OR = 4
    ADD = 5
    INC = 6
    DEC = 7


class Format(IntEnum):
    SIGNED = 0
    UNSIGNED = 1


class TlbInvalidateInvalScope(IntEnum):
    ALL_TLBS = 0
    LINK_TLBS = 1
    NON_LINK_TLBS = 2
    RSVRVD = 3


class TlbInvalidateSysmembar(IntEnum):
    DIS = 0
    EN = 1


class TlbInvalidatePdb(IntEnum):
    ONE = 0
    ALL = 1


class TlbInvalidateGpc(IntEnum):
    ENABLE = 0
    DISABLE = 1


class TlbInvalidateReplay(IntEnum):
    NONE = 0
    START = 1
    START_ACK_ALL = 2
    CANCEL_TARGETED = 3
    CANCEL_GLOBAL = 4
    CANCEL_VA_GLOBAL = 5


class TlbInvalidateAckType(IntEnum):
    NONE = 0
    GLOBALLY = 1
    INTRANODE = 2


class TlbInvalidatePageTableLevel(IntEnum):
    ALL = 0
    PTE_ONLY = 1
    UP_TO_PDE0 = 2
    UP_TO_PDE1 = 3
    UP_TO_PDE2 = 4
    UP_TO_PDE3 = 5
    UP_TO_PDE4 = 6
    UP_TO_PDE5 = 7


class TlbInvalidatePdbAperture(IntEnum):
    VID_MEM = 0
    SYS_MEM_COHERENT = 2
    SYS_MEM_NONCOHERENT = 3


class MembarType(IntEnum):
    SYS_MEMBAR = 0
    MEMBAR = 1


class MemOpDOperation(IntEnum):
    MEMBAR = 5
    MMU_TLB_INVALIDATE = 9
    MMU_TLB_INVALIDATE_TARGETED = 10
    MMU_OPERATION = 11
    L2_PEERMEM_INVALIDATE = 13
    L2_SYSMEM_INVALIDATE = 14


class SemExecuteOperation(IntEnum):
    ACQUIRE = 0
    RELEASE = 1
    ACQ_STRICT_GEQ = 2
    ACQ_CIRC_GEQ = 3
    ACQ_AND = 4
    ACQ_NOR = 5
    REDUCTION = 6


class PayloadSize(IntEnum):
    SIZE_32BIT = 0
    SIZE_64BIT = 1


class SemExecuteReduction(IntEnum):
    IMIN = 0
    IMAX = 1
    IXOR = 2
    IAND = 3
    IOR = 4
    IADD = 5
    INC = 6
    DEC = 7


class Scope(IntEnum):
    CURRENT_SCG_TYPE = 0
    CURRENT_VEID = 0
    ALL = 1


class YieldOp(IntEnum):
    NOP = 0
    TSG = 3


class ClearFaultedType(IntEnum):
    PBDMA_FAULTED = 0
    ENG_FAULTED = 1


class SetObject(Method, at=0x0000, vendor="SET_OBJECT"):
    nvclass = bits(15, 0)
    engine = bits(20, 16, enum=Engine)


class Illegal(Method, at=0x0004, vendor="ILLEGAL"):
    handle = bits(31, 0)


class Nop(Method, at=0x0008, vendor="NOP"):
    handle = bits(31, 0)


class Semaphorea(Method, at=0x0010, vendor="SEMAPHOREA"):
    offset_upper = bits(7, 0)


class Semaphoreb(Method, at=0x0014, vendor="SEMAPHOREB"):
    offset_lower = bits(31, 2, unit=4)


class Semaphorec(Method, at=0x0018, vendor="SEMAPHOREC"):
    payload = bits(31, 0)


class Semaphored(Method, at=0x001C, vendor="SEMAPHORED"):
    operation = bits(4, 0, enum=SemaphoredOperation)
    acquire_switch = bits(12, enum=AcquireSwitch)
    release_wfi = bits(20, enum=ReleaseWfi)
    release_size = bits(24, enum=ReleaseSize)
    reduction = bits(30, 27, enum=Reduction)
    format = bits(31, enum=Format)


class NonStallInterrupt(Method, at=0x0020, vendor="NON_STALL_INTERRUPT"):
    handle = bits(31, 0)


class FbFlush(Method, at=0x0024, vendor="FB_FLUSH"):
    handle = bits(31, 0)


class MemOpA(Method, at=0x0028, vendor="MEM_OP_A"):
    tlb_invalidate_invalidation_size = bits(5, 0)
    tlb_invalidate_inval_scope = bits(7, 6, enum=TlbInvalidateInvalScope)
    tlb_invalidate_sysmembar = bits(11, enum=TlbInvalidateSysmembar)
    tlb_invalidate_target_addr_lo = bits(31, 12, unit=4096)


class MemOpB(Method, at=0x002C, vendor="MEM_OP_B"):
    tlb_invalidate_target_addr_hi = bits(31, 0)


class MemOpC(Method, at=0x0030, vendor="MEM_OP_C"):
    """Read as a TLB invalidation; MemOpCMembar is the same word for MEM_OP_D.operation=MEMBAR."""

    tlb_invalidate_pdb = bits(0, enum=TlbInvalidatePdb)
    tlb_invalidate_gpc = bits(1, enum=TlbInvalidateGpc)
    tlb_invalidate_replay = bits(4, 2, enum=TlbInvalidateReplay)
    tlb_invalidate_ack_type = bits(6, 5, enum=TlbInvalidateAckType)
    tlb_invalidate_page_table_level = bits(9, 7, enum=TlbInvalidatePageTableLevel)
    tlb_invalidate_pdb_aperture = bits(11, 10, enum=TlbInvalidatePdbAperture)
    tlb_invalidate_pdb_addr_lo = bits(31, 12, unit=4096)


class MemOpCMembar(Method, at=0x0030, vendor="MEM_OP_C"):
    """What MEM_OP_C means before MEM_OP_D.operation=MEMBAR."""

    membar_type = bits(2, 0, enum=MembarType)


class MemOpD(Method, at=0x0034, vendor="MEM_OP_D"):
    tlb_invalidate_pdb_addr_hi = bits(26, 0)
    operation = bits(31, 27, enum=MemOpDOperation)


class SetReference(Method, at=0x0050, vendor="SET_REFERENCE"):
    count = bits(31, 0)


class SemAddrLo(Method, at=0x005C, vendor="SEM_ADDR_LO"):
    offset = bits(31, 2, unit=4)


class SemAddrHi(Method, at=0x0060, vendor="SEM_ADDR_HI"):
    """57-bit addresses; SemAddrHiC56f has the 40 bits of Ampere and Ada."""

    offset = bits(24, 0)


class SemPayloadLo(Method, at=0x0064, vendor="SEM_PAYLOAD_LO"):
    payload = bits(31, 0)


class SemPayloadHi(Method, at=0x0068, vendor="SEM_PAYLOAD_HI"):
    payload = bits(31, 0)


class SemExecute(Method, at=0x006C, vendor="SEM_EXECUTE"):
    """The release or the acquire itself: the four methods before it say where and what."""

    operation = bits(2, 0, enum=SemExecuteOperation)
    acquire_switch_tsg = bits(12, enum=TlbInvalidateSysmembar)
    release_wfi = bits(20, enum=TlbInvalidateSysmembar)
    payload_size = bits(24, enum=PayloadSize)
    release_timestamp = bits(25, enum=TlbInvalidateSysmembar)
    reduction = bits(30, 27, enum=SemExecuteReduction)
    reduction_format = bits(31, enum=Format)


class Wfi(Method, at=0x0078, vendor="WFI"):
    scope = bits(0, enum=Scope)


class Yield(Method, at=0x0080, vendor="YIELD"):
    op = bits(1, 0, enum=YieldOp)


class ClearFaulted(Method, at=0x0084, vendor="CLEAR_FAULTED"):
    handle = bits(30, 0)
    type = bits(31, enum=ClearFaultedType)


HOST = changed(tuple(declared_in(globals(), Method)), absent={MemOpCMembar})


class SemAddrHiC56f(SemAddrHi):
    offset = bits(7, 0)


HOST_C56F = changed(HOST, SemAddrHiC56f)
