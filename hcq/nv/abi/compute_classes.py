"""Compute classes other than Hopper's: what differs on Ampere, Ada and Blackwell. Names end in the class's number.

In       fields by name
Out      Method packets; a tuple of all methods for each class, made from HOPPER_COMPUTE_A and what differs
Changes  nothing
Next     methods.py (which class has which tuple)
Source   clc6c0.h, clc7c0.h, clc9c0.h, clcdc0.h, clcec0.h
"""

from __future__ import annotations

from enum import IntEnum

from hcq.layout import bits
from hcq.nv.abi.compute_methods import (
    HOPPER_COMPUTE_A,
    ReportSemaphoreExecute,
    SetDstBlockSize,
    SetDstDepth,
    SetDstHeight,
    SetDstLayer,
    SetDstOriginBytesX,
    SetDstOriginSamplesY,
    SetDstWidth,
    SetQmdVirtualizationControl,
    SetReportSemaphoreAddressLower,
    SetReportSemaphoreAddressUpper,
    SetReportSemaphorePayloadLower,
    SetReportSemaphorePayloadUpper,
    SetTextureHeaderVersion,
)
from hcq.nv.abi.method import Method


class PcasActionC6c0(IntEnum):
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


class SetNotifyAC6c0(Method, at=0x0104, vendor="SET_NOTIFY_A"):
    address_upper = bits(7, 0)


class OffsetOutUpperC6c0(Method, at=0x0188, vendor="OFFSET_OUT_UPPER"):
    value = bits(16, 0)


class SetI2mSemaphoreAC6c0(Method, at=0x01DC, vendor="SET_I2M_SEMAPHORE_A"):
    offset_upper = bits(7, 0)


class CheckQmdVersion(Method, at=0x0290, vendor="CHECK_QMD_VERSION"):
    current = bits(15, 0)
    oldest_supported = bits(31, 16)


class SetQmdVirtualizationControlC6c0(Method, at=0x029C, vendor="SET_QMD_VIRTUALIZATION_CONTROL"):
    constant_buffer_mask = bits(7, 0)
    i2m_addr_enable = bits(8)
    i2m_constant_buffer_enable = bits(12)
    iq2m_addr_enable = bits(16)
    iq2m_constant_buffer_enable = bits(20)
    send_pcas_enable = bits(24)


class SendSignalingPcas2BC6c0(Method, at=0x02C0, vendor="SEND_SIGNALING_PCAS2_B"):
    pcas_action = bits(3, 0, enum=PcasActionC6c0)


class SetShaderLocalMemoryNonThrottledCC6c0(
    Method, at=0x02EC, vendor="SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C"
):
    max_sm_count = bits(8, 0)


class SetInlineQmdAddressAC6c0(Method, at=0x0318, vendor="SET_INLINE_QMD_ADDRESS_A"):
    qmd_address_shifted8_upper = bits(31, 0)


class SetShaderLocalMemoryAC6c0(Method, at=0x0790, vendor="SET_SHADER_LOCAL_MEMORY_A"):
    address_upper = bits(16, 0)


class SetTexSamplerPoolAC6c0(Method, at=0x155C, vendor="SET_TEX_SAMPLER_POOL_A"):
    offset_upper = bits(16, 0)


class SetTexHeaderPoolAC6c0(Method, at=0x1574, vendor="SET_TEX_HEADER_POOL_A"):
    offset_upper = bits(16, 0)


class SetReportSemaphoreAC6c0(Method, at=0x1B00, vendor="SET_REPORT_SEMAPHORE_A"):
    offset_upper = bits(7, 0)


class SetTrapHandlerAC6c0(Method, at=0x25F8, vendor="SET_TRAP_HANDLER_A"):
    address_upper = bits(16, 0)


class SetReportSemaphoreAddressUpperC7c0(Method, at=0x0164, vendor="SET_REPORT_SEMAPHORE_ADDRESS_UPPER"):
    upper = bits(7, 0)


class InvalidateSkedCachesCdc0(Method, at=0x0298, vendor="INVALIDATE_SKED_CACHES"):
    force_ignore_veid = bits(0)


class SetTexSamplerPoolCCdc0(Method, at=0x1564, vendor="SET_TEX_SAMPLER_POOL_C"):
    maximum_index = bits(31, 0)


class SetTexHeaderPoolCCdc0(Method, at=0x157C, vendor="SET_TEX_HEADER_POOL_C"):
    maximum_index = bits(31, 0)


_AMPERE_COMPUTE_A_DIFFERENT: tuple[type[Method], ...] = (
    SetNotifyAC6c0,
    OffsetOutUpperC6c0,
    SetI2mSemaphoreAC6c0,
    CheckQmdVersion,
    SetQmdVirtualizationControlC6c0,
    SendSignalingPcas2BC6c0,
    SetShaderLocalMemoryNonThrottledCC6c0,
    SetInlineQmdAddressAC6c0,
    SetShaderLocalMemoryAC6c0,
    SetTexSamplerPoolAC6c0,
    SetTexHeaderPoolAC6c0,
    SetReportSemaphoreAC6c0,
    SetTrapHandlerAC6c0,
)
_AMPERE_COMPUTE_A_ABSENT: frozenset[type[Method]] = frozenset(
    {
        SetReportSemaphorePayloadLower,
        SetReportSemaphorePayloadUpper,
        SetReportSemaphoreAddressLower,
        SetReportSemaphoreAddressUpper,
        ReportSemaphoreExecute,
        SetTextureHeaderVersion,
    }
)
AMPERE_COMPUTE_A: tuple[type[Method], ...] = (
    *(method for method in HOPPER_COMPUTE_A if method not in _AMPERE_COMPUTE_A_ABSENT),
    *_AMPERE_COMPUTE_A_DIFFERENT,
)

_AMPERE_COMPUTE_B_DIFFERENT: tuple[type[Method], ...] = (
    SetNotifyAC6c0,
    SetReportSemaphoreAddressUpperC7c0,
    OffsetOutUpperC6c0,
    SetI2mSemaphoreAC6c0,
    CheckQmdVersion,
    SetShaderLocalMemoryNonThrottledCC6c0,
    SetInlineQmdAddressAC6c0,
    SetShaderLocalMemoryAC6c0,
    SetTexSamplerPoolAC6c0,
    SetTexHeaderPoolAC6c0,
    SetReportSemaphoreAC6c0,
    SetTrapHandlerAC6c0,
)
_AMPERE_COMPUTE_B_ABSENT: frozenset[type[Method]] = frozenset({SetTextureHeaderVersion})
AMPERE_COMPUTE_B: tuple[type[Method], ...] = (
    *(method for method in HOPPER_COMPUTE_A if method not in _AMPERE_COMPUTE_B_ABSENT),
    *_AMPERE_COMPUTE_B_DIFFERENT,
)

_ADA_COMPUTE_A_DIFFERENT: tuple[type[Method], ...] = (
    SetNotifyAC6c0,
    SetReportSemaphoreAddressUpperC7c0,
    OffsetOutUpperC6c0,
    SetI2mSemaphoreAC6c0,
    CheckQmdVersion,
    SetShaderLocalMemoryNonThrottledCC6c0,
    SetInlineQmdAddressAC6c0,
    SetShaderLocalMemoryAC6c0,
    SetTexSamplerPoolAC6c0,
    SetTexHeaderPoolAC6c0,
    SetReportSemaphoreAC6c0,
    SetTrapHandlerAC6c0,
)
_ADA_COMPUTE_A_ABSENT: frozenset[type[Method]] = frozenset({SetTextureHeaderVersion})
ADA_COMPUTE_A: tuple[type[Method], ...] = (
    *(method for method in HOPPER_COMPUTE_A if method not in _ADA_COMPUTE_A_ABSENT),
    *_ADA_COMPUTE_A_DIFFERENT,
)

_BLACKWELL_COMPUTE_A_DIFFERENT: tuple[type[Method], ...] = (
    InvalidateSkedCachesCdc0,
    SetTexSamplerPoolCCdc0,
    SetTexHeaderPoolCCdc0,
)
_BLACKWELL_COMPUTE_A_ABSENT: frozenset[type[Method]] = frozenset(
    {
        SetDstBlockSize,
        SetDstWidth,
        SetDstHeight,
        SetDstDepth,
        SetDstLayer,
        SetDstOriginBytesX,
        SetDstOriginSamplesY,
        SetQmdVirtualizationControl,
    }
)
BLACKWELL_COMPUTE_A: tuple[type[Method], ...] = (
    *(method for method in HOPPER_COMPUTE_A if method not in _BLACKWELL_COMPUTE_A_ABSENT),
    *_BLACKWELL_COMPUTE_A_DIFFERENT,
)

_BLACKWELL_COMPUTE_B_DIFFERENT: tuple[type[Method], ...] = (
    InvalidateSkedCachesCdc0,
    SetTexSamplerPoolCCdc0,
    SetTexHeaderPoolCCdc0,
)
_BLACKWELL_COMPUTE_B_ABSENT: frozenset[type[Method]] = frozenset(
    {
        SetDstBlockSize,
        SetDstWidth,
        SetDstHeight,
        SetDstDepth,
        SetDstLayer,
        SetDstOriginBytesX,
        SetDstOriginSamplesY,
        SetQmdVirtualizationControl,
    }
)
BLACKWELL_COMPUTE_B: tuple[type[Method], ...] = (
    *(method for method in HOPPER_COMPUTE_A if method not in _BLACKWELL_COMPUTE_B_ABSENT),
    *_BLACKWELL_COMPUTE_B_DIFFERENT,
)
