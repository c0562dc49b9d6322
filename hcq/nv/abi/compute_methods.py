"""Methods of Hopper's compute class: windows, caches, local memory, small uploads, and the launch itself.

In       fields by name
Out      Method packets; HOPPER_COMPUTE_A, all of them
Changes  nothing
Next     compute_classes.py (what differs on the others), methods.py (pushbuffers), qmd.py (what SEND_PCAS_A launches)
Source   clcbc0.h
"""

from __future__ import annotations

from enum import IntEnum

from hcq.layout import bits, declared_in
from hcq.nv.abi.method import Method


class NotifyType(IntEnum):
    WRITE_ONLY = 0
    WRITE_THEN_AWAKEN = 1


class ReportSemaphoreExecuteOperation(IntEnum):
    RELEASE = 0
    ACQUIRE = 1
    REPORT_ONLY = 2
    TRAP = 3


class StructureSize(IntEnum):
    SEMAPHORE_FOUR_WORDS = 0
    SEMAPHORE_ONE_WORD = 1
    SEMAPHORE_TWO_WORDS = 2


class ReductionOp(IntEnum):
    RED_ADD = 0
    RED_MIN = 1
    RED_MAX = 2
    RED_INC = 3
    RED_DEC = 4
    RED_AND = 5
    RED_OR = 6
    RED_XOR = 7


class ReductionFormat(IntEnum):
    UNSIGNED = 0
    SIGNED = 1


class TrapType(IntEnum):
    TRAP_NONE = 0
    TRAP_UNCONDITIONAL = 1
    TRAP_CONDITIONAL = 2
    TRAP_CONDITIONAL_EXT = 3


class Width(IntEnum):
    ONE_GOB = 0


class Height(IntEnum):
    ONE_GOB = 0
    TWO_GOBS = 1
    FOUR_GOBS = 2
    EIGHT_GOBS = 3
    SIXTEEN_GOBS = 4
    THIRTYTWO_GOBS = 5


class DstMemoryLayout(IntEnum):
    BLOCKLINEAR = 0
    PITCH = 1


class LaunchDmaReductionFormat(IntEnum):
    UNSIGNED_32 = 0
    SIGNED_32 = 1


class CompletionType(IntEnum):
    FLUSH_DISABLE = 0
    FLUSH_ONLY = 1
    RELEASE_SEMAPHORE = 2


class InterruptType(IntEnum):
    NONE = 0
    INTERRUPT = 1


class SemaphoreStructSize(IntEnum):
    FOUR_WORDS = 0
    ONE_WORD = 1


class Lines(IntEnum):
    ALL = 0
    ONE = 1


class PcasAction(IntEnum):
    NOP = 0
    INVALIDATE = 1
    SCHEDULE = 2
    INVALIDATE_COPY_SCHEDULE = 3
    INCREMENT_PUT = 6
    DECREMENT_DEPENDENCE = 7
    PREFETCH = 8
    PREFETCH_SCHEDULE = 9
    INVALIDATE_PREFETCH_COPY_SCHEDULE = 10
    INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING = 11
    INCREMENT_DEPENDENCE = 12
    INCREMENT_CWD_REF_COUNTER = 13


class InlineSize(IntEnum):
    INLINE_256 = 0
    INLINE_384 = 1


class SetRenderEnableCMode(IntEnum):
    FALSE = 0
    TRUE = 1
    CONDITIONAL = 2
    RENDER_IF_EQUAL = 3
    RENDER_IF_NOT_EQUAL = 4


class SetRenderEnableOverrideMode(IntEnum):
    USE_RENDER_ENABLE = 0
    ALWAYS_RENDER = 1
    NEVER_RENDER = 2


class SetReportSemaphoreDOperation(IntEnum):
    RELEASE = 0
    TRAP = 3


class NoOperation(Method, at=0x0100, vendor="NO_OPERATION"):
    v = bits(31, 0)


class SetNotifyA(Method, at=0x0104, vendor="SET_NOTIFY_A"):
    address_upper = bits(24, 0)


class SetNotifyB(Method, at=0x0108, vendor="SET_NOTIFY_B"):
    address_lower = bits(31, 0)


class Notify(Method, at=0x010C, vendor="NOTIFY"):
    type = bits(31, 0, enum=NotifyType)


class WaitForIdle(Method, at=0x0110, vendor="WAIT_FOR_IDLE"):
    v = bits(31, 0)


class SendGoIdle(Method, at=0x013C, vendor="SEND_GO_IDLE"):
    v = bits(31, 0)


class PmTrigger(Method, at=0x0140, vendor="PM_TRIGGER"):
    v = bits(31, 0)


class PmTriggerWfi(Method, at=0x0144, vendor="PM_TRIGGER_WFI"):
    v = bits(31, 0)


class FeAtomicSequenceBegin(Method, at=0x0148, vendor="FE_ATOMIC_SEQUENCE_BEGIN"):
    v = bits(31, 0)


class FeAtomicSequenceEnd(Method, at=0x014C, vendor="FE_ATOMIC_SEQUENCE_END"):
    v = bits(31, 0)


class SetInstrumentationMethodHeader(Method, at=0x0150, vendor="SET_INSTRUMENTATION_METHOD_HEADER"):
    v = bits(31, 0)


class SetReportSemaphorePayloadLower(Method, at=0x0158, vendor="SET_REPORT_SEMAPHORE_PAYLOAD_LOWER"):
    payload_lower = bits(31, 0)


class SetReportSemaphorePayloadUpper(Method, at=0x015C, vendor="SET_REPORT_SEMAPHORE_PAYLOAD_UPPER"):
    payload_upper = bits(31, 0)


class SetReportSemaphoreAddressLower(Method, at=0x0160, vendor="SET_REPORT_SEMAPHORE_ADDRESS_LOWER"):
    lower = bits(31, 0)


class SetReportSemaphoreAddressUpper(Method, at=0x0164, vendor="SET_REPORT_SEMAPHORE_ADDRESS_UPPER"):
    upper = bits(24, 0)


class ReportSemaphoreExecute(Method, at=0x0168, vendor="REPORT_SEMAPHORE_EXECUTE"):
    operation = bits(1, 0, enum=ReportSemaphoreExecuteOperation)
    awaken_enable = bits(2)
    structure_size = bits(4, 3, enum=StructureSize)
    flush_disable = bits(5)
    reduction_enable = bits(6)
    reduction_op = bits(9, 7, enum=ReductionOp)
    reduction_format = bits(11, 10, enum=ReductionFormat)
    payload_size64 = bits(12)
    trap_type = bits(14, 13, enum=TrapType)


class LineLengthIn(Method, at=0x0180, vendor="LINE_LENGTH_IN"):
    value = bits(31, 0)


class LineCount(Method, at=0x0184, vendor="LINE_COUNT"):
    value = bits(31, 0)


class OffsetOutUpper(Method, at=0x0188, vendor="OFFSET_OUT_UPPER"):
    value = bits(24, 0)


class OffsetOut(Method, at=0x018C, vendor="OFFSET_OUT"):
    value = bits(31, 0)


class PitchOut(Method, at=0x0190, vendor="PITCH_OUT"):
    value = bits(31, 0)


class SetDstBlockSize(Method, at=0x0194, vendor="SET_DST_BLOCK_SIZE"):
    width = bits(3, 0, enum=Width)
    height = bits(7, 4, enum=Height)
    depth = bits(11, 8, enum=Height)


class SetDstWidth(Method, at=0x0198, vendor="SET_DST_WIDTH"):
    v = bits(31, 0)


class SetDstHeight(Method, at=0x019C, vendor="SET_DST_HEIGHT"):
    v = bits(31, 0)


class SetDstDepth(Method, at=0x01A0, vendor="SET_DST_DEPTH"):
    v = bits(31, 0)


class SetDstLayer(Method, at=0x01A4, vendor="SET_DST_LAYER"):
    v = bits(31, 0)


class SetDstOriginBytesX(Method, at=0x01A8, vendor="SET_DST_ORIGIN_BYTES_X"):
    v = bits(20, 0)


class SetDstOriginSamplesY(Method, at=0x01AC, vendor="SET_DST_ORIGIN_SAMPLES_Y"):
    v = bits(16, 0)


class LaunchDma(Method, at=0x01B0, vendor="LAUNCH_DMA"):
    dst_memory_layout = bits(0, enum=DstMemoryLayout)
    reduction_enable = bits(1)
    reduction_format = bits(3, 2, enum=LaunchDmaReductionFormat)
    completion_type = bits(5, 4, enum=CompletionType)
    sysmembar_disable = bits(6)
    interrupt_type = bits(9, 8, enum=InterruptType)
    semaphore_struct_size = bits(12, enum=SemaphoreStructSize)
    reduction_op = bits(15, 13, enum=ReductionOp)


class LoadInlineData(Method, at=0x01B4, vendor="LOAD_INLINE_DATA"):
    v = bits(31, 0)


class SetI2mSemaphoreA(Method, at=0x01DC, vendor="SET_I2M_SEMAPHORE_A"):
    offset_upper = bits(24, 0)


class SetI2mSemaphoreB(Method, at=0x01E0, vendor="SET_I2M_SEMAPHORE_B"):
    offset_lower = bits(31, 0)


class SetI2mSemaphoreC(Method, at=0x01E4, vendor="SET_I2M_SEMAPHORE_C"):
    payload = bits(31, 0)


class SetSmScgControl(Method, at=0x01E8, vendor="SET_SM_SCG_CONTROL"):
    compute_in_graphics = bits(0)


class SetI2mSpareNoop00(Method, at=0x01F0, vendor="SET_I2M_SPARE_NOOP00"):
    v = bits(31, 0)


class SetValidSpanOverflowAreaA(Method, at=0x0200, vendor="SET_VALID_SPAN_OVERFLOW_AREA_A"):
    address_upper = bits(7, 0)


class SetValidSpanOverflowAreaB(Method, at=0x0204, vendor="SET_VALID_SPAN_OVERFLOW_AREA_B"):
    address_lower = bits(31, 0)


class SetValidSpanOverflowAreaC(Method, at=0x0208, vendor="SET_VALID_SPAN_OVERFLOW_AREA_C"):
    size = bits(31, 0)


class PerfmonTransfer(Method, at=0x0210, vendor="PERFMON_TRANSFER"):
    v = bits(31, 0)


class InvalidateShaderCaches(Method, at=0x021C, vendor="INVALIDATE_SHADER_CACHES"):
    instruction = bits(0)
    locks = bits(1)
    flush_data = bits(2)
    data = bits(4)
    constant = bits(12)


class InvalidateTextureHeaderCacheNoWfi(Method, at=0x0244, vendor="INVALIDATE_TEXTURE_HEADER_CACHE_NO_WFI"):
    lines = bits(0, enum=Lines)
    tag = bits(25, 4)


class SetCwdRefCounter(Method, at=0x0248, vendor="SET_CWD_REF_COUNTER"):
    select = bits(5, 0)
    value = bits(23, 8)


class SetQmdVersion(Method, at=0x0288, vendor="SET_QMD_VERSION"):
    current = bits(15, 0)
    oldest_supported = bits(31, 16)


class InvalidateSkedCaches(Method, at=0x0298, vendor="INVALIDATE_SKED_CACHES"):
    v = bits(0)


class SetQmdVirtualizationControl(Method, at=0x029C, vendor="SET_QMD_VIRTUALIZATION_CONTROL"):
    constant_buffer_mask = bits(7, 0)
    i2m_addr_enable = bits(8)
    i2m_dependent_enable = bits(9)
    iq2m_dependent_enable = bits(10)
    i2m_constant_buffer_enable = bits(12)
    iq2m_addr_enable = bits(16)
    iq2m_constant_buffer_enable = bits(20)
    send_pcas_enable = bits(24)


class SetShaderSharedMemoryWindowA(Method, at=0x02A0, vendor="SET_SHADER_SHARED_MEMORY_WINDOW_A"):
    base_address_upper = bits(16, 0)


class SetShaderSharedMemoryWindowB(Method, at=0x02A4, vendor="SET_SHADER_SHARED_MEMORY_WINDOW_B"):
    base_address = bits(31, 0)


class SetCwdSlotCount(Method, at=0x02B0, vendor="SET_CWD_SLOT_COUNT"):
    v = bits(7, 0)


class SendPcasA(Method, at=0x02B4, vendor="SEND_PCAS_A"):
    """The QMD to launch: its address in units of 256 bytes."""

    qmd_address_shifted8 = bits(31, 0, unit=256)


class SendPcasB(Method, at=0x02B8, vendor="SEND_PCAS_B"):
    from_ = bits(23, 0)
    delta = bits(31, 24)


class SendSignalingPcasB(Method, at=0x02BC, vendor="SEND_SIGNALING_PCAS_B"):
    invalidate = bits(0)
    schedule = bits(1)


class SendSignalingPcas2B(Method, at=0x02C0, vendor="SEND_SIGNALING_PCAS2_B"):
    pcas_action = bits(3, 0, enum=PcasAction)
    select = bits(13, 8)
    offset_minus_one = bits(23, 14)


class SetSkedCacheControl(Method, at=0x02CC, vendor="SET_SKED_CACHE_CONTROL"):
    ignore_veid = bits(0)


class SetShaderLocalMemoryNonThrottledA(Method, at=0x02E4, vendor="SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A"):
    size_upper = bits(7, 0)


class SetShaderLocalMemoryNonThrottledB(Method, at=0x02E8, vendor="SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B"):
    size_lower = bits(31, 0)


class SetShaderLocalMemoryNonThrottledC(Method, at=0x02EC, vendor="SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C"):
    max_sm_count = bits(8, 0)
    max_plural_tpc_gpc_count = bits(23, 16)
    max_singleton_tpc_gpc_count = bits(31, 24)


class SetSpaVersion(Method, at=0x0310, vendor="SET_SPA_VERSION"):
    minor = bits(7, 0)
    major = bits(15, 8)


class SetInlineQmdAddressA(Method, at=0x0318, vendor="SET_INLINE_QMD_ADDRESS_A"):
    qmd_address_shifted8_upper = bits(8, 0)
    inline_size = bits(30, enum=InlineSize)


class SetInlineQmdAddressB(Method, at=0x031C, vendor="SET_INLINE_QMD_ADDRESS_B"):
    qmd_address_shifted8_lower = bits(31, 0)


class LoadInlineQmdData(Method, at=0x0320, vendor="LOAD_INLINE_QMD_DATA", entries=96):
    """Word n of a QMD that travels in the pushbuffer."""

    v = bits(31, 0)


class SetFalcon00(Method, at=0x0500, vendor="SET_FALCON00"):
    v = bits(31, 0)


class SetFalcon04(Method, at=0x0510, vendor="SET_FALCON04"):
    v = bits(31, 0)


class SetShaderLocalMemoryA(Method, at=0x0790, vendor="SET_SHADER_LOCAL_MEMORY_A"):
    address_upper = bits(24, 0)


class SetShaderLocalMemoryB(Method, at=0x0794, vendor="SET_SHADER_LOCAL_MEMORY_B"):
    address_lower = bits(31, 0)


class SetTextureHeaderVersion(Method, at=0x07AC, vendor="SET_TEXTURE_HEADER_VERSION"):
    major = bits(7, 0)


class SetShaderLocalMemoryWindowA(Method, at=0x07B0, vendor="SET_SHADER_LOCAL_MEMORY_WINDOW_A"):
    base_address_upper = bits(16, 0)


class SetShaderLocalMemoryWindowB(Method, at=0x07B4, vendor="SET_SHADER_LOCAL_MEMORY_WINDOW_B"):
    base_address = bits(31, 0)


class SetShaderCacheControl(Method, at=0x0D94, vendor="SET_SHADER_CACHE_CONTROL"):
    icache_prefetch_enable = bits(0)


class SetSmTimeoutInterval(Method, at=0x0DE4, vendor="SET_SM_TIMEOUT_INTERVAL"):
    counter_bit = bits(5, 0)


class InvalidateTextureDataCacheNoWfi(Method, at=0x1288, vendor="INVALIDATE_TEXTURE_DATA_CACHE_NO_WFI"):
    lines = bits(0, enum=Lines)
    tag = bits(25, 4)


class InvalidateSamplerCache(Method, at=0x1330, vendor="INVALIDATE_SAMPLER_CACHE"):
    lines = bits(0, enum=Lines)
    tag = bits(25, 4)


class InvalidateTextureHeaderCache(Method, at=0x1334, vendor="INVALIDATE_TEXTURE_HEADER_CACHE"):
    lines = bits(0, enum=Lines)
    tag = bits(25, 4)


class InvalidateTextureDataCache(Method, at=0x1338, vendor="INVALIDATE_TEXTURE_DATA_CACHE"):
    lines = bits(0, enum=Lines)
    tag = bits(25, 4)


class InvalidateSamplerCacheNoWfi(Method, at=0x1424, vendor="INVALIDATE_SAMPLER_CACHE_NO_WFI"):
    lines = bits(0, enum=Lines)
    tag = bits(25, 4)


class SetShaderExceptions(Method, at=0x1528, vendor="SET_SHADER_EXCEPTIONS"):
    enable = bits(0)


class SetRenderEnableA(Method, at=0x1550, vendor="SET_RENDER_ENABLE_A"):
    offset_upper = bits(7, 0)


class SetRenderEnableB(Method, at=0x1554, vendor="SET_RENDER_ENABLE_B"):
    offset_lower = bits(31, 0)


class SetRenderEnableC(Method, at=0x1558, vendor="SET_RENDER_ENABLE_C"):
    mode = bits(2, 0, enum=SetRenderEnableCMode)


class SetTexSamplerPoolA(Method, at=0x155C, vendor="SET_TEX_SAMPLER_POOL_A"):
    offset_upper = bits(24, 0)


class SetTexSamplerPoolB(Method, at=0x1560, vendor="SET_TEX_SAMPLER_POOL_B"):
    offset_lower = bits(31, 0)


class SetTexSamplerPoolC(Method, at=0x1564, vendor="SET_TEX_SAMPLER_POOL_C"):
    maximum_index = bits(19, 0)


class SetTexHeaderPoolA(Method, at=0x1574, vendor="SET_TEX_HEADER_POOL_A"):
    offset_upper = bits(24, 0)


class SetTexHeaderPoolB(Method, at=0x1578, vendor="SET_TEX_HEADER_POOL_B"):
    offset_lower = bits(31, 0)


class SetTexHeaderPoolC(Method, at=0x157C, vendor="SET_TEX_HEADER_POOL_C"):
    maximum_index = bits(21, 0)


class InvalidateShaderCachesNoWfi(Method, at=0x1698, vendor="INVALIDATE_SHADER_CACHES_NO_WFI"):
    """After code or constants were written; without it the old ones may run."""

    instruction = bits(0)
    global_data = bits(4)
    constant = bits(12)


class SetRenderEnableOverride(Method, at=0x1944, vendor="SET_RENDER_ENABLE_OVERRIDE"):
    mode = bits(1, 0, enum=SetRenderEnableOverrideMode)


class PipeNop(Method, at=0x1A2C, vendor="PIPE_NOP"):
    v = bits(31, 0)


class SetSpare00(Method, at=0x1A30, vendor="SET_SPARE00"):
    v = bits(31, 0)


class SetReportSemaphoreA(Method, at=0x1B00, vendor="SET_REPORT_SEMAPHORE_A"):
    offset_upper = bits(24, 0)


class SetReportSemaphoreB(Method, at=0x1B04, vendor="SET_REPORT_SEMAPHORE_B"):
    offset_lower = bits(31, 0)


class SetReportSemaphoreC(Method, at=0x1B08, vendor="SET_REPORT_SEMAPHORE_C"):
    payload = bits(31, 0)


class SetReportSemaphoreD(Method, at=0x1B0C, vendor="SET_REPORT_SEMAPHORE_D"):
    operation = bits(1, 0, enum=SetReportSemaphoreDOperation)
    flush_disable = bits(2)
    reduction_enable = bits(3)
    reduction_op = bits(11, 9, enum=ReductionOp)
    reduction_format = bits(18, 17, enum=LaunchDmaReductionFormat)
    conditional_trap = bits(19)
    awaken_enable = bits(20)
    structure_size = bits(28, enum=SemaphoreStructSize)


class SetTrapHandlerA(Method, at=0x25F8, vendor="SET_TRAP_HANDLER_A"):
    address_upper = bits(24, 0)


class SetTrapHandlerB(Method, at=0x25FC, vendor="SET_TRAP_HANDLER_B"):
    address_lower = bits(31, 0)


class SetBindlessTexture(Method, at=0x2608, vendor="SET_BINDLESS_TEXTURE"):
    constant_buffer_slot_select = bits(2, 0)


class SetMmeShadowScratch(Method, at=0x3400, vendor="SET_MME_SHADOW_SCRATCH", entries=256):
    v = bits(31, 0)


HOPPER_COMPUTE_A = tuple(declared_in(globals(), Method))
