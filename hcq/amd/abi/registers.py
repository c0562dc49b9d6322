"""Compute registers: what SET_SH_REG writes before a dispatch, and the fields inside them.

In       nothing
Out      register numbers (relative to 0x2c00) and their names, layouts of those with fields
Next     pm4.py (SetShReg), launch.py (who writes them), hcq/emu/amd/dispatch.py (who reads them)
Source   gc_11_0_0_offset.h, gc_9_4_3_offset.h and their sh_mask files; RSRC layouts as in LLVM's AMDGPUUsage
"""

from __future__ import annotations

from enum import IntEnum

from hcq.layout import SparsePacket, bits

FIRST, LAST = 0x200, 0x27F
USER_DATA_WORDS = 16


class Register(IntEnum):
    """Compute registers by the vendor's names."""

    COMPUTE_DISPATCH_INITIATOR = 0x200
    COMPUTE_DIM_X = 0x201
    COMPUTE_DIM_Y = 0x202
    COMPUTE_DIM_Z = 0x203
    COMPUTE_START_X = 0x204
    COMPUTE_START_Y = 0x205
    COMPUTE_START_Z = 0x206
    COMPUTE_NUM_THREAD_X = 0x207
    COMPUTE_NUM_THREAD_Y = 0x208
    COMPUTE_NUM_THREAD_Z = 0x209
    COMPUTE_PIPELINESTAT_ENABLE = 0x20A
    COMPUTE_PERFCOUNT_ENABLE = 0x20B
    COMPUTE_PGM_LO = 0x20C  # and HI: address of the code >> 8
    COMPUTE_PGM_HI = 0x20D
    COMPUTE_DISPATCH_PKT_ADDR_LO = 0x20E
    COMPUTE_DISPATCH_PKT_ADDR_HI = 0x20F
    # and HI: address of scratch memory >> 8; gfx942, gfx11 and later
    COMPUTE_DISPATCH_SCRATCH_BASE_LO = 0x210
    COMPUTE_DISPATCH_SCRATCH_BASE_HI = 0x211
    COMPUTE_PGM_RSRC1 = 0x212
    COMPUTE_PGM_RSRC2 = 0x213
    COMPUTE_RESOURCE_LIMITS = 0x215
    COMPUTE_STATIC_THREAD_MGMT_SE0 = 0x216  # which compute units may be used
    COMPUTE_STATIC_THREAD_MGMT_SE1 = 0x217
    COMPUTE_TMPRING_SIZE = 0x218
    COMPUTE_STATIC_THREAD_MGMT_SE2 = 0x219
    COMPUTE_STATIC_THREAD_MGMT_SE3 = 0x21A
    COMPUTE_RESTART_X = 0x21B
    COMPUTE_RESTART_Y = 0x21C
    COMPUTE_RESTART_Z = 0x21D
    COMPUTE_DISPATCH_ID = 0x220
    COMPUTE_THREADGROUP_ID = 0x221
    COMPUTE_REQ_CTRL = 0x222  # gfx10 and later
    COMPUTE_PGM_RSRC3 = 0x228
    COMPUTE_PGM_RSRC3_GFX9 = 0x22D
    COMPUTE_USER_DATA_0 = 0x240  # sixteen of them: the first scalar registers of every wave
    COMPUTE_USER_DATA_1 = 0x241
    COMPUTE_USER_DATA_2 = 0x242
    COMPUTE_USER_DATA_3 = 0x243
    COMPUTE_USER_DATA_4 = 0x244
    COMPUTE_USER_DATA_5 = 0x245
    COMPUTE_USER_DATA_6 = 0x246
    COMPUTE_USER_DATA_7 = 0x247
    COMPUTE_USER_DATA_8 = 0x248
    COMPUTE_USER_DATA_9 = 0x249
    COMPUTE_USER_DATA_10 = 0x24A
    COMPUTE_USER_DATA_11 = 0x24B
    COMPUTE_USER_DATA_12 = 0x24C
    COMPUTE_USER_DATA_13 = 0x24D
    COMPUTE_USER_DATA_14 = 0x24E
    COMPUTE_USER_DATA_15 = 0x24F
    COMPUTE_DISPATCH_END = 0x27E


class UconfigRegister(IntEnum):
    """Registers that are no part of a context, relative to 0xc000: those by which a part of the GPU is chosen."""

    GRBM_GFX_INDEX = 0x200


def name_of(number: int) -> str:
    """The vendor's name of a compute register."""
    try:
        return Register(number).name
    except ValueError:
        return f"register {number:#x}"


class Rsrc1(SparsePacket, words=1):
    """COMPUTE_PGM_RSRC1, as the compiler wrote it into the kernel descriptor."""

    granulated_vgpr_count = bits(5, 0)
    granulated_sgpr_count = bits(9, 6)
    priority = bits(11, 10)
    float_round_mode_32 = bits(13, 12)
    float_round_mode_16_64 = bits(15, 14)
    float_denorm_mode_32 = bits(17, 16)
    float_denorm_mode_16_64 = bits(19, 18)
    priv = bits(20)
    dx10_clamp = bits(21)
    debug_mode = bits(22)
    ieee_mode = bits(23)
    bulky = bits(24)
    cdbg_user = bits(25)
    fp16_ovfl = bits(26)
    wgp_mode = bits(29)
    mem_ordered = bits(30)
    fwd_progress = bits(31)


class Rsrc2(SparsePacket, words=1):
    """COMPUTE_PGM_RSRC2; lds_size is the launcher's to fill, the descriptor holds zero there."""

    scratch_en = bits(0)
    user_sgpr = bits(5, 1)
    trap_present = bits(6)
    tgid_x_en = bits(7)
    tgid_y_en = bits(8)
    tgid_z_en = bits(9)
    tg_size_en = bits(10)
    tidig_comp_cnt = bits(12, 11)  # 0: work-item ids in x; 1: x and y; 2: x, y and z
    excp_en_msb = bits(14, 13)
    lds_size = bits(23, 15, unit=512)  # bytes
    excp_en = bits(30, 24)


class Rsrc3(SparsePacket, words=1):
    """COMPUTE_PGM_RSRC3 of gfx10 and later; on gfx11 inst_pref_size ends at bit 9, before two bits for debuggers."""

    shared_vgpr_count = bits(3, 0)
    inst_pref_size = bits(11, 4, unit=128)  # bytes
    image_op = bits(31)


class Rsrc3Gfx9(SparsePacket, words=1):
    """COMPUTE_PGM_RSRC3 of gfx90a and gfx942."""

    accum_offset = bits(5, 0)  # where the accumulation registers begin, in units of 4, minus one
    tg_split = bits(16)


class ResourceLimits(SparsePacket, words=1):
    """COMPUTE_RESOURCE_LIMITS."""

    waves_per_sh = bits(9, 0)
    tg_per_cu = bits(15, 12)
    lock_threshold = bits(21, 16)
    simd_dest_cntl = bits(22)
    force_simd_dist = bits(23)
    cu_group_count = bits(26, 24)


class TmpringSize(SparsePacket, words=1):
    """COMPUTE_TMPRING_SIZE: how much scratch memory there is. wavesize counts 1 KiB on gfx9, 256 bytes later."""

    waves = bits(11, 0)
    wavesize = bits(29, 12)


class AnyScratchResource(SparsePacket, words=4):
    """The buffer descriptor through which kernels of gfx90a reach scratch memory: V# of swizzled words.

    On other parts the AQL processor reads it, and waves find scratch memory by themselves.
    """

    base_address = bits(47, 0)
    stride = bits(61, 48)
    num_records = bits(95, 64)  # bytes
    dst_sel_x = bits(98, 96, default=4)
    dst_sel_y = bits(101, 99, default=5)
    dst_sel_z = bits(104, 102, default=6)
    dst_sel_w = bits(107, 105, default=7)
    add_tid_enable = bits(119, default=1)
    type = bits(127, 126)

    @classmethod
    def of(cls, va: int, size_bytes: int) -> AnyScratchResource:
        """For an area of scratch memory, of one XCC; a wave adds the offset of its own part to the base."""
        return cls(base_address=va, num_records=min(size_bytes, 0xFFFFFFFF))


class ScratchResource(AnyScratchResource):
    """gfx9. Source of all: InitScratchSRD of ROCr."""

    cache_swizzle = bits(62)
    swizzle_enable = bits(63, default=1)
    num_format = bits(110, 108, default=4)  # unsigned integers
    data_format = bits(114, 111, default=4)  # of 32 bits
    element_size = bits(116, 115, default=1)  # 4 bytes
    index_stride = bits(118, 117, default=3)  # 64 lanes


class ScratchResourceGfx10(AnyScratchResource):
    """gfx10. Index stride: the AQL processor fills it in; launches by registers do."""

    cache_swizzle = bits(62)
    swizzle_enable = bits(63, default=1)
    format = bits(114, 108, default=0x14)  # unsigned integers of 32 bits
    index_stride = bits(118, 117)  # 2: 32 lanes, 3: 64
    resource_level = bits(120, default=1)
    oob_select = bits(125, 124, default=2)  # swizzled: no check of bounds


class ScratchResourceGfx11(AnyScratchResource):
    """gfx11 and gfx12."""

    swizzle_enable = bits(63, 62, default=1)
    format = bits(113, 108, default=0x14)  # unsigned integers of 32 bits
    index_stride = bits(118, 117)  # the processor fills it in
    oob_select = bits(125, 124, default=2)  # swizzled: no check of bounds


class NumThread(SparsePacket, words=1):
    """COMPUTE_NUM_THREAD_X, Y, Z."""

    num_thread_full = bits(15, 0)
    num_thread_partial = bits(31, 16)


class GrbmGfxIndex(SparsePacket, words=1):
    """GRBM_GFX_INDEX: which part of the GPU later register writes are for."""

    instance_index = bits(7, 0)
    sa_index = bits(15, 8)
    se_index = bits(23, 16)
    sa_broadcast_writes = bits(29)
    instance_broadcast_writes = bits(30)
    se_broadcast_writes = bits(31)


# the registers that have fields
LAYOUTS: dict[int, type[SparsePacket]] = {
    Register.COMPUTE_NUM_THREAD_X: NumThread,
    Register.COMPUTE_NUM_THREAD_Y: NumThread,
    Register.COMPUTE_NUM_THREAD_Z: NumThread,
    Register.COMPUTE_PGM_RSRC1: Rsrc1,
    Register.COMPUTE_PGM_RSRC2: Rsrc2,
    Register.COMPUTE_RESOURCE_LIMITS: ResourceLimits,
    Register.COMPUTE_TMPRING_SIZE: TmpringSize,
    Register.COMPUTE_PGM_RSRC3: Rsrc3,
    Register.COMPUTE_PGM_RSRC3_GFX9: Rsrc3Gfx9,
}
UCONFIG_LAYOUTS: dict[int, type[SparsePacket]] = {UconfigRegister.GRBM_GFX_INDEX: GrbmGfxIndex}
