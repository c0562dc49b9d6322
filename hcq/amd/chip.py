"""Chips: what differs between generations, as one row of data, chosen once when a device opens.

In       gfx_target_version of the topology, such as 110000
Out      a Chip: its packets, its cache rules, its sizes and limits
Next     encode.py (launches by these), sizing.py (context save areas), link.py (which objects load)
Source   LLVM AMDGPUUsage (targets, LDS granules), kfd_device.c (versions), kfd_queue.c and libhsakmt (queue sizes),
         AMD's PM4 definitions. gfx1153's version and registers are inferred from its neighbours
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from hcq.amd.abi import pm4, sdma
from hcq.amd.abi.registers import (
    AnyScratchResource,
    Register,
    ScratchResource,
    ScratchResourceGfx10,
    ScratchResourceGfx11,
)
from hcq.errors import UsageError
from hcq.layout import Packet

LDS_BYTES = 64 << 10


@dataclass(frozen=True)
class Chip:
    """One architecture.

    mach                EF_AMDGPU_MACH of its objects
    packets             PM4 opcode -> layout
    acquire, release    the packets that make the host's memory visible to kernels, and theirs to the host
    acquire_next        the one that shows a kernel what the kernel before it wrote
    wave_bytes_unit     granule of a wave's scratch memory
    scratch_resource    the descriptor through which kernels, or the AQL processor, know where scratch memory is
    vgpr_bytes_once     what older kernel drivers take for vgpr_bytes, where that is something else
    reads_old           what the host reads of its memory over PCIe may be what was there before: the host data path
                        keeps what it has read, and queues of a process cannot make it forget that (inferred)
    """

    arch: str
    gfx_target_version: int
    mach: int
    family: int  # 9, 10, 11, 12
    packets: dict[int, type[pm4.Pm4]]
    copies: sdma.Version
    copy_bytes: (
        int  # at most this many in one SDMA packet: ROCr's limits (CreateBlitSdma), of gfx10.3 a smaller one
    )
    rsrc3: int  # number of COMPUTE_PGM_RSRC3
    wave_bytes_unit: int
    vgpr_bytes: int  # of one compute unit, for the context save area
    wavefront_sizes: tuple[int, ...]
    has_architected_scratch: bool = True
    scratch_resource: type[AnyScratchResource] = ScratchResource
    needs_privilege: bool = (
        False  # launches by registers: what is saved on preemption is restored by privileged waves
    )
    prefers_aql: bool = False  # parts with several XCCs: a PM4 queue uses one of them alone
    lds_bytes: int = LDS_BYTES
    lds_granule: int = 512  # what RSRC2's field counts
    max_block: int = 1024
    vgpr_bytes_once: int = 0
    reads_old: bool = False

    def acquire(self) -> Packet:
        """Forget what instruction, scalar and vector caches hold; write back and forget the L2's non-coherent lines."""
        return CACHES[self.family].acquire

    def acquire_next(self) -> Packet:
        """Forget what instruction, scalar and vector caches hold. The L2 is shared, and stays."""
        return CACHES[self.family].acquire_next

    def release(self, **fields: Any) -> Packet:
        """RELEASE_MEM that writes the L2 back, so that host and copy engines see what kernels wrote."""
        caches = CACHES[self.family]
        return caches.release_layout(**caches.release, **fields)

    def store(self, **fields: Any) -> Packet:
        """RELEASE_MEM without cache control, for a second write that goes with a first."""
        return CACHES[self.family].release_layout(event_type=pm4.Event.CACHE_FLUSH_AND_INV_TS_EVENT, **fields)


class CacheRules(NamedTuple):
    """What a generation invalidates and writes back, and in which packets."""

    acquire: Packet
    acquire_next: Packet
    release_layout: type[Packet]
    release: dict[str, int]


_ALL_MEMORY = {"coher_size": (2**40 - 1) * 256, "poll_interval": 10}
_NEXT_9 = {"tcl1_action_ena": 1, "sh_kcache_action_ena": 1, "sh_icache_action_ena": 1, **_ALL_MEMORY}
_NEXT_12 = {"gli_inv": pm4.GliInv.ALL, "glk_inv": 1, "glv_inv": 1, **_ALL_MEMORY}
_NEXT_11 = {**_NEXT_12, "gl1_inv": 1}
_L2_12 = {"glk_wb": 1, "gl2_inv": 1, "gl2_wb": 1}
_L2_11 = {**_L2_12, "glm_wb": 1, "glm_inv": 1}
_RELEASE_12 = {"glv_inv": 1, "gl2_inv": 1, "gl2_wb": 1, "seq": pm4.Seq.FORWARD}
CACHES = {
    9: CacheRules(
        pm4.AcquireMemGfx9(tc_wb_action_ena=1, tc_action_ena=1, **_NEXT_9),
        pm4.AcquireMemGfx9(**_NEXT_9),
        pm4.ReleaseMemGfx9,
        {"tc_wb_action_ena": 1, "tc_nc_action_ena": 1},
    ),
    # inferred that gfx10.3 wants what gfx11 does: it has the same caches, and the same fields for them
    **dict.fromkeys(
        (10, 11),
        CacheRules(
            pm4.AcquireMem(**_NEXT_11, **_L2_11),
            pm4.AcquireMem(**_NEXT_11),
            pm4.ReleaseMem,
            {**_RELEASE_12, "glm_wb": 1, "glm_inv": 1, "gl1_inv": 1},
        ),
    ),
    12: CacheRules(
        pm4.AcquireMem(**_NEXT_12, **_L2_12), pm4.AcquireMem(**_NEXT_12), pm4.ReleaseMem, _RELEASE_12
    ),
}


def _gfx9(arch: str, version: int, mach: int, **fields: Any) -> Chip:
    return Chip(
        arch,
        version,
        mach,
        9,
        pm4.GFX9,
        sdma.V4,
        rsrc3=Register.COMPUTE_PGM_RSRC3_GFX9,
        wave_bytes_unit=1024,
        vgpr_bytes=0x80000,
        wavefront_sizes=(64,),
        **fields,
    )


def _gfx10(arch: str, version: int, mach: int) -> Chip:
    """RDNA2. Its SDMA 5.2 reads the packets of version 6, with counts of 22 bits (navi10_sdma_pkt_open.h)."""
    return Chip(
        arch,
        version,
        mach,
        10,
        pm4.GFX11,
        sdma.V6,
        copy_bytes=1 << 22,
        rsrc3=Register.COMPUTE_PGM_RSRC3,
        wave_bytes_unit=1024,
        vgpr_bytes=0x40000,
        wavefront_sizes=(32, 64),
        has_architected_scratch=False,
        scratch_resource=ScratchResourceGfx10,
        reads_old=True,
    )


def _gfx11(
    arch: str, version: int, mach: int, family: int = 11, vgpr_bytes: int = 0x60000, **fields: Any
) -> Chip:
    return Chip(
        arch,
        version,
        mach,
        family,
        pm4.GFX11,
        sdma.V6 if family == 11 else sdma.V7,
        copy_bytes=1 << 30,
        rsrc3=Register.COMPUTE_PGM_RSRC3,
        wave_bytes_unit=256,
        vgpr_bytes=vgpr_bytes,
        wavefront_sizes=(32, 64),
        scratch_resource=ScratchResourceGfx11,
        **fields,
    )


CHIPS: dict[str, Chip] = {
    chip.arch: chip
    for chip in (
        _gfx9("gfx90a", 90010, 0x3F, copy_bytes=1 << 30, has_architected_scratch=False),
        _gfx9("gfx942", 90402, 0x4C, copy_bytes=1 << 22, prefers_aql=True),
        _gfx9(
            "gfx950", 90500, 0x4F, copy_bytes=1 << 22, prefers_aql=True, lds_bytes=160 << 10, lds_granule=1280
        ),
        _gfx10("gfx1030", 100300, 0x36),
        _gfx10("gfx1031", 100301, 0x37),
        _gfx10("gfx1032", 100302, 0x38),
        _gfx10("gfx1033", 100303, 0x39),
        _gfx10("gfx1034", 100304, 0x3E),
        _gfx10("gfx1035", 100305, 0x3D),
        _gfx10("gfx1036", 100306, 0x45),
        _gfx11("gfx1100", 110000, 0x41, needs_privilege=True),
        _gfx11("gfx1101", 110001, 0x46, needs_privilege=True),
        _gfx11("gfx1102", 110002, 0x47, vgpr_bytes=0x40000, needs_privilege=True),
        _gfx11("gfx1103", 110003, 0x44, vgpr_bytes=0x40000, needs_privilege=True),
        _gfx11("gfx1150", 110500, 0x43, vgpr_bytes=0x40000),
        # kfd_get_vgpr_size_per_cu lists it in later kernels only
        _gfx11("gfx1151", 110501, 0x4A, vgpr_bytes_once=0x40000),
        _gfx11("gfx1152", 110502, 0x55, vgpr_bytes=0x40000),
        _gfx11("gfx1153", 110503, 0x58, vgpr_bytes=0x40000),
        _gfx11("gfx1200", 120000, 0x48, family=12),
        _gfx11("gfx1201", 120001, 0x4E, family=12),
    )
}


def arch_of(gfx_target_version: int) -> str:
    """The name of an architecture: 110000 -> gfx1100, 90010 -> gfx90a."""
    major, minor, step = (
        gfx_target_version // 10000,
        gfx_target_version // 100 % 100,
        gfx_target_version % 100,
    )
    return f"gfx{major}{minor:x}{step:x}"


def chip_of(gfx_target_version: int) -> Chip:
    """The row of a GPU. Raises UsageError naming it and the known ones."""
    arch = arch_of(gfx_target_version)
    if arch not in CHIPS:
        raise UsageError(f"{arch} is not a GPU this driver knows. Known: {', '.join(CHIPS)}.")
    return CHIPS[arch]
