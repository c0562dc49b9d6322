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
    InvalidateSkedCaches,
    OffsetOutUpper,
    ReportSemaphoreExecute,
    SendSignalingPcas2B,
    SetDstBlockSize,
    SetDstDepth,
    SetDstHeight,
    SetDstLayer,
    SetDstOriginBytesX,
    SetDstOriginSamplesY,
    SetDstWidth,
    SetI2mSemaphoreA,
    SetInlineQmdAddressA,
    SetNotifyA,
    SetQmdVirtualizationControl,
    SetReportSemaphoreA,
    SetReportSemaphoreAddressLower,
    SetReportSemaphoreAddressUpper,
    SetReportSemaphorePayloadLower,
    SetReportSemaphorePayloadUpper,
    SetShaderLocalMemoryA,
    SetShaderLocalMemoryNonThrottledC,
    SetTexHeaderPoolA,
    SetTexHeaderPoolC,
    SetTexSamplerPoolA,
    SetTexSamplerPoolC,
    SetTextureHeaderVersion,
    SetTrapHandlerA,
)
from hcq.nv.abi.method import Method, changed


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


class SetNotifyAC6c0(SetNotifyA):
    address_upper = bits(7, 0)


class OffsetOutUpperC6c0(OffsetOutUpper):
    value = bits(16, 0)


class SetI2mSemaphoreAC6c0(SetI2mSemaphoreA):
    offset_upper = bits(7, 0)


class CheckQmdVersion(Method, at=0x0290, vendor="CHECK_QMD_VERSION"):
    current = bits(15, 0)
    oldest_supported = bits(31, 16)


class SetQmdVirtualizationControlC6c0(
    SetQmdVirtualizationControl, without=("i2m_dependent_enable", "iq2m_dependent_enable")
):
    """Of AMPERE_COMPUTE_A."""


class SendSignalingPcas2BC6c0(SendSignalingPcas2B, without=("select", "offset_minus_one")):
    pcas_action = bits(3, 0, enum=PcasActionC6c0)


class SetShaderLocalMemoryNonThrottledCC6c0(
    SetShaderLocalMemoryNonThrottledC, without=("max_plural_tpc_gpc_count", "max_singleton_tpc_gpc_count")
):
    """Of all Ampere and Ada classes."""


class SetInlineQmdAddressAC6c0(SetInlineQmdAddressA, without=("inline_size",)):
    qmd_address_shifted8_upper = bits(31, 0)


class SetShaderLocalMemoryAC6c0(SetShaderLocalMemoryA):
    address_upper = bits(16, 0)


class SetTexSamplerPoolAC6c0(SetTexSamplerPoolA):
    offset_upper = bits(16, 0)


class SetTexHeaderPoolAC6c0(SetTexHeaderPoolA):
    offset_upper = bits(16, 0)


class SetReportSemaphoreAC6c0(SetReportSemaphoreA):
    offset_upper = bits(7, 0)


class SetTrapHandlerAC6c0(SetTrapHandlerA):
    address_upper = bits(16, 0)


class SetReportSemaphoreAddressUpperC7c0(SetReportSemaphoreAddressUpper):
    upper = bits(7, 0)


class InvalidateSkedCachesCdc0(InvalidateSkedCaches, without=("v",)):
    force_ignore_veid = bits(0)


class SetTexSamplerPoolCCdc0(SetTexSamplerPoolC):
    maximum_index = bits(31, 0)


class SetTexHeaderPoolCCdc0(SetTexHeaderPoolC):
    maximum_index = bits(31, 0)


AMPERE_COMPUTE_B = changed(
    HOPPER_COMPUTE_A,
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
    absent={SetTextureHeaderVersion},
)
AMPERE_COMPUTE_A = changed(
    AMPERE_COMPUTE_B,
    SetQmdVirtualizationControlC6c0,
    SendSignalingPcas2BC6c0,
    absent={
        SetReportSemaphorePayloadLower,
        SetReportSemaphorePayloadUpper,
        SetReportSemaphoreAddressLower,
        SetReportSemaphoreAddressUpperC7c0,
        ReportSemaphoreExecute,
    },
)
ADA_COMPUTE_A = AMPERE_COMPUTE_B

BLACKWELL_COMPUTE_A = changed(
    HOPPER_COMPUTE_A,
    InvalidateSkedCachesCdc0,
    SetTexSamplerPoolCCdc0,
    SetTexHeaderPoolCCdc0,
    absent={
        SetDstBlockSize,
        SetDstWidth,
        SetDstHeight,
        SetDstDepth,
        SetDstLayer,
        SetDstOriginBytesX,
        SetDstOriginSamplesY,
        SetQmdVirtualizationControl,
    },
)
BLACKWELL_COMPUTE_B = BLACKWELL_COMPUTE_A
