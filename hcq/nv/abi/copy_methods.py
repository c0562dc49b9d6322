"""Methods of the copy engines, Ampere to Blackwell: addresses, sizes, fills through remapping, and the launch itself.

In       fields by name
Out      Method packets; one tuple for each class, which starts from Hopper's and says what differs
Changes  nothing
Next     methods.py (classes and pushbuffers)
Source   clc8b5.h; clc6b5.h, clc7b5.h, clc9b5.h and clcab5.h where they differ (classes end in their number)
"""

from __future__ import annotations

from enum import IntEnum

from hcq.layout import bits, declared_in
from hcq.nv.abi.compute_methods import Height, SetRenderEnableCMode, Width
from hcq.nv.abi.method import Method, changed


class SetMonitoredFenceTypeType(IntEnum):
    MONITORED_FENCE = 0
    MONITORED_FENCE_EXT = 1


class Target(IntEnum):
    LOCAL_FB = 0
    COHERENT_SYSMEM = 1
    NONCOHERENT_SYSMEM = 2
    PEERMEM = 3


class DataTransferType(IntEnum):
    NONE = 0
    PIPELINED = 1
    NON_PIPELINED = 2


class SemaphoreType(IntEnum):
    NONE = 0
    RELEASE_SEMAPHORE_NO_TIMESTAMP = 1
    RELEASE_ONE_WORD_SEMAPHORE = 1
    RELEASE_SEMAPHORE_WITH_TIMESTAMP = 2
    RELEASE_FOUR_WORD_SEMAPHORE = 2
    RELEASE_CONDITIONAL_INTR_SEMAPHORE = 3


class InterruptType(IntEnum):
    NONE = 0
    BLOCKING = 1
    NON_BLOCKING = 2


class SrcMemoryLayout(IntEnum):
    BLOCKLINEAR = 0
    PITCH = 1


class SrcType(IntEnum):
    VIRTUAL = 0
    PHYSICAL = 1


class SemaphoreReduction(IntEnum):
    IMIN = 0
    IMAX = 1
    IXOR = 2
    IAND = 3
    IOR = 4
    IADD = 5
    INC = 6
    DEC = 7
    INVALIDA = 8
    INVALIDB = 9
    FADD = 10
    FMIN = 11
    FMAX = 12
    INVALIDC = 13
    INVALIDD = 14
    INVALIDE = 15


class SemaphoreReductionSign(IntEnum):
    SIGNED = 0
    UNSIGNED = 1


class CopyType(IntEnum):
    PROT2PROT = 0
    DEFAULT = 0
    SECURE = 1
    NONPROT2NONPROT = 2
    RESERVED = 3


class Vprmode(IntEnum):
    VPR_NONE = 0
    VPR_VID2VID = 1


class FlushType(IntEnum):
    SYS = 0
    GL = 1


class SemaphorePayloadSize(IntEnum):
    ONE_WORD = 0
    TWO_WORD = 1


class DstX(IntEnum):
    SRC_X = 0
    SRC_Y = 1
    SRC_Z = 2
    SRC_W = 3
    CONST_A = 4
    CONST_B = 5
    NO_WRITE = 6


class ComponentSize(IntEnum):
    ONE = 0
    TWO = 1
    THREE = 2
    FOUR = 3


class GobHeight(IntEnum):
    GOB_HEIGHT_FERMI_8 = 1


class LaunchDmaSemaphoreType(IntEnum):
    NONE = 0
    RELEASE_ONE_WORD_SEMAPHORE = 1
    RELEASE_FOUR_WORD_SEMAPHORE = 2
    RELEASE_CONDITIONAL_INTR_SEMAPHORE = 3


class LaunchDmaSemaphoreReduction(IntEnum):
    IMIN = 0
    IMAX = 1
    IXOR = 2
    IAND = 3
    IOR = 4
    IADD = 5
    INC = 6
    DEC = 7
    FADD = 10


class LaunchDmaDataTransferType(IntEnum):
    NONE = 0
    PIPELINED = 1
    NON_PIPELINED = 2
    PREFETCH = 3


class KindBpp(IntEnum):
    BL_32 = 0
    BL_8 = 1
    BL_16 = 2
    BL_24 = 3


class Nop(Method, at=0x0100, vendor="NOP"):
    parameter = bits(31, 0)


class PmTrigger(Method, at=0x0140, vendor="PM_TRIGGER"):
    v = bits(31, 0)


class SetMonitoredFenceType(Method, at=0x021C, vendor="SET_MONITORED_FENCE_TYPE"):
    type = bits(0, enum=SetMonitoredFenceTypeType)


class SetSemaphoreA(Method, at=0x0240, vendor="SET_SEMAPHORE_A"):
    upper = bits(24, 0)


class SetSemaphoreB(Method, at=0x0244, vendor="SET_SEMAPHORE_B"):
    lower = bits(31, 0)


class SetSemaphorePayload(Method, at=0x0248, vendor="SET_SEMAPHORE_PAYLOAD"):
    payload = bits(31, 0)


class SetSemaphorePayloadUpper(Method, at=0x024C, vendor="SET_SEMAPHORE_PAYLOAD_UPPER"):
    payload = bits(31, 0)


class SetRenderEnableA(Method, at=0x0254, vendor="SET_RENDER_ENABLE_A"):
    upper = bits(24, 0)


class SetRenderEnableB(Method, at=0x0258, vendor="SET_RENDER_ENABLE_B"):
    lower = bits(31, 0)


class SetRenderEnableC(Method, at=0x025C, vendor="SET_RENDER_ENABLE_C"):
    mode = bits(2, 0, enum=SetRenderEnableCMode)


class SetSrcPhysMode(Method, at=0x0260, vendor="SET_SRC_PHYS_MODE"):
    target = bits(1, 0, enum=Target)
    basic_kind = bits(5, 2)
    peer_id = bits(8, 6)
    fla = bits(9)


class SetDstPhysMode(Method, at=0x0264, vendor="SET_DST_PHYS_MODE"):
    target = bits(1, 0, enum=Target)
    basic_kind = bits(5, 2)
    peer_id = bits(8, 6)
    fla = bits(9)


class LaunchDma(Method, at=0x0300, vendor="LAUNCH_DMA"):
    """The copy, the flush and the semaphore release, any of them."""

    data_transfer_type = bits(1, 0, enum=DataTransferType)
    flush_enable = bits(2)
    semaphore_type = bits(4, 3, enum=SemaphoreType)
    interrupt_type = bits(6, 5, enum=InterruptType)
    src_memory_layout = bits(7, enum=SrcMemoryLayout)
    dst_memory_layout = bits(8, enum=SrcMemoryLayout)
    multi_line_enable = bits(9)
    remap_enable = bits(10)
    force_rmwdisable = bits(11)
    src_type = bits(12, enum=SrcType)
    dst_type = bits(13, enum=SrcType)
    semaphore_reduction = bits(17, 14, enum=SemaphoreReduction)
    semaphore_reduction_sign = bits(18, enum=SemaphoreReductionSign)
    semaphore_reduction_enable = bits(19)
    copy_type = bits(21, 20, enum=CopyType)
    vprmode = bits(22, enum=Vprmode)
    memory_scrub_enable = bits(23)
    reserved_start_of_copy = bits(24)
    flush_type = bits(25, enum=FlushType)
    disable_plc = bits(26)
    semaphore_payload_size = bits(27, enum=SemaphorePayloadSize)
    reserved_err_code = bits(31, 28)


class OffsetInUpper(Method, at=0x0400, vendor="OFFSET_IN_UPPER"):
    upper = bits(24, 0)


class OffsetInLower(Method, at=0x0404, vendor="OFFSET_IN_LOWER"):
    value = bits(31, 0)


class OffsetOutUpper(Method, at=0x0408, vendor="OFFSET_OUT_UPPER"):
    upper = bits(24, 0)


class OffsetOutLower(Method, at=0x040C, vendor="OFFSET_OUT_LOWER"):
    value = bits(31, 0)


class PitchIn(Method, at=0x0410, vendor="PITCH_IN"):
    value = bits(31, 0)


class PitchOut(Method, at=0x0414, vendor="PITCH_OUT"):
    value = bits(31, 0)


class LineLengthIn(Method, at=0x0418, vendor="LINE_LENGTH_IN"):
    value = bits(31, 0)


class LineCount(Method, at=0x041C, vendor="LINE_COUNT"):
    value = bits(31, 0)


class SetMemoryScrubParameters(Method, at=0x06FC, vendor="SET_MEMORY_SCRUB_PARAMETERS"):
    discardable = bits(0)


class SetRemapConstA(Method, at=0x0700, vendor="SET_REMAP_CONST_A"):
    v = bits(31, 0)


class SetRemapConstB(Method, at=0x0704, vendor="SET_REMAP_CONST_B"):
    v = bits(31, 0)


class SetRemapComponents(Method, at=0x0708, vendor="SET_REMAP_COMPONENTS"):
    dst_x = bits(2, 0, enum=DstX)
    dst_y = bits(6, 4, enum=DstX)
    dst_z = bits(10, 8, enum=DstX)
    dst_w = bits(14, 12, enum=DstX)
    component_size = bits(17, 16, enum=ComponentSize)
    num_src_components = bits(21, 20, enum=ComponentSize)
    num_dst_components = bits(25, 24, enum=ComponentSize)


class SetDstBlockSize(Method, at=0x070C, vendor="SET_DST_BLOCK_SIZE"):
    width = bits(3, 0, enum=Width)
    height = bits(7, 4, enum=Height)
    depth = bits(11, 8, enum=Height)
    gob_height = bits(15, 12, enum=GobHeight)


class SetDstWidth(Method, at=0x0710, vendor="SET_DST_WIDTH"):
    v = bits(31, 0)


class SetDstHeight(Method, at=0x0714, vendor="SET_DST_HEIGHT"):
    v = bits(31, 0)


class SetDstDepth(Method, at=0x0718, vendor="SET_DST_DEPTH"):
    v = bits(31, 0)


class SetDstLayer(Method, at=0x071C, vendor="SET_DST_LAYER"):
    v = bits(31, 0)


class SetDstOrigin(Method, at=0x0720, vendor="SET_DST_ORIGIN"):
    x = bits(15, 0)
    y = bits(31, 16)


class SetSrcBlockSize(Method, at=0x0728, vendor="SET_SRC_BLOCK_SIZE"):
    width = bits(3, 0, enum=Width)
    height = bits(7, 4, enum=Height)
    depth = bits(11, 8, enum=Height)
    gob_height = bits(15, 12, enum=GobHeight)


class SetSrcWidth(Method, at=0x072C, vendor="SET_SRC_WIDTH"):
    v = bits(31, 0)


class SetSrcHeight(Method, at=0x0730, vendor="SET_SRC_HEIGHT"):
    v = bits(31, 0)


class SetSrcDepth(Method, at=0x0734, vendor="SET_SRC_DEPTH"):
    v = bits(31, 0)


class SetSrcLayer(Method, at=0x0738, vendor="SET_SRC_LAYER"):
    v = bits(31, 0)


class SetSrcOrigin(Method, at=0x073C, vendor="SET_SRC_ORIGIN"):
    x = bits(15, 0)
    y = bits(31, 16)


class SrcOriginX(Method, at=0x0744, vendor="SRC_ORIGIN_X"):
    value = bits(31, 0)


class SrcOriginY(Method, at=0x0748, vendor="SRC_ORIGIN_Y"):
    value = bits(31, 0)


class DstOriginX(Method, at=0x074C, vendor="DST_ORIGIN_X"):
    value = bits(31, 0)


class DstOriginY(Method, at=0x0750, vendor="DST_ORIGIN_Y"):
    value = bits(31, 0)


class PmTriggerEnd(Method, at=0x1114, vendor="PM_TRIGGER_END"):
    v = bits(31, 0)


HOPPER_DMA_COPY_A = tuple(declared_in(globals(), Method))

# ------------------------------------------------------------ what differs on Ampere and Blackwell


class SetSemaphoreAC6b5(SetSemaphoreA):
    upper = bits(16, 0)


class SetRenderEnableAC6b5(SetRenderEnableA):
    upper = bits(7, 0)


class OffsetInUpperC6b5(OffsetInUpper):
    upper = bits(16, 0)


class OffsetOutUpperC6b5(OffsetOutUpper):
    upper = bits(16, 0)


class LaunchDmaC7b5(LaunchDma, without=("copy_type", "memory_scrub_enable")):
    """Of AMPERE_DMA_COPY_B."""

    vprmode = bits(23, 22, enum=Vprmode)


class LaunchDmaC6b5(LaunchDmaC7b5, without=("semaphore_payload_size",)):
    """Of AMPERE_DMA_COPY_A."""

    semaphore_type = bits(4, 3, enum=LaunchDmaSemaphoreType)
    semaphore_reduction = bits(17, 14, enum=LaunchDmaSemaphoreReduction)


class LaunchDmaC9b5(LaunchDma, without=("force_rmwdisable",)):
    """Of BLACKWELL_DMA_COPY_A."""


class LaunchDmaCab5(LaunchDmaC9b5):
    """Of BLACKWELL_DMA_COPY_B."""

    data_transfer_type = bits(1, 0, enum=LaunchDmaDataTransferType)


class SetDstBlockSizeCab5(SetDstBlockSize):
    kind_bpp = bits(17, 16, enum=KindBpp)


class SetSrcBlockSizeCab5(SetSrcBlockSize):
    kind_bpp = bits(17, 16, enum=KindBpp)


AMPERE_DMA_COPY_B = changed(
    HOPPER_DMA_COPY_A,
    SetSemaphoreAC6b5,
    SetRenderEnableAC6b5,
    LaunchDmaC7b5,
    OffsetInUpperC6b5,
    OffsetOutUpperC6b5,
    absent={SetMemoryScrubParameters},
)
AMPERE_DMA_COPY_A = changed(
    AMPERE_DMA_COPY_B, LaunchDmaC6b5, absent={SetMonitoredFenceType, SetSemaphorePayloadUpper}
)
BLACKWELL_DMA_COPY_A = changed(HOPPER_DMA_COPY_A, LaunchDmaC9b5)
BLACKWELL_DMA_COPY_B = changed(HOPPER_DMA_COPY_A, LaunchDmaCab5, SetDstBlockSizeCab5, SetSrcBlockSizeCab5)
