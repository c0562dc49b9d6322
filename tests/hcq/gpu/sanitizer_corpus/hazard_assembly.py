"""Instructions of AMD GPUs that follow each other too soon: matrix products, scalar registers of gfx12, and others.

In       nothing
Out      `ROWS`
Next     row.py, languages.py (v0 is the thread; s[2:3] the buffer), wait_assembly.py (those of gfx90a alone)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

OLD, NEW, NEWER, RDNA3, RDNA4 = (
    ("amd:gfx90a",),
    ("amd:gfx942",),
    ("amd:gfx950",),
    ("amd:gfx1100",),
    ("amd:gfx1201",),
)
TEXTS: dict[str, tuple[tuple[str, ...], str]] = {
    "a factor that was written just now": (
        NEW,
        """
        v_mov_b32 v20, v0
        + s_nop 1
        v_mfma_f32_16x16x4_f32 v[4:7], v20, v0, 0""",
    ),
    "a sum that was written just now": (
        OLD,
        """
        v_mov_b32 v7, v0
        s_nop 0
        + s_nop 0
        v_mfma_f32_16x16x4f32 v[4:7], v20, v0, v[4:7]""",
    ),
    "a product that is stored before it is there": (
        NEW,
        """
        v_lshlrev_b32 v30, 2, v0
        v_mfma_f32_16x16x16_f16 v[4:7], v[20:21], v[22:23], 0
        - s_nop 5
        + s_nop 6
        global_store_dword v30, v4 saddr=2""",
    ),
    "a large product that is added to something": (
        NEW,
        """
        v_mfma_f32_32x32x8_f16 v[4:19], v[20:21], v[22:23], 0
        - s_nop 9
        + s_nop 10
        v_add_f32 v30, v19, v19""",
    ),
    "a product of gfx950 that is read a state too soon": (
        NEWER,
        """
        v_mfma_f32_16x16x32_f16 v[4:7], v[20:23], v[24:27], 0
        - s_nop 6
        + s_nop 7
        v_mov_b32 v30, v5""",
    ),
    "a product that the next one multiplies": (
        OLD,
        """
        v_mfma_f32_16x16x16f16 v[4:7], v[20:21], v[22:23], 0
        - s_nop 7
        + s_nop 7
        + s_nop 2
        v_mfma_f32_16x16x16f16 v[8:11], v[4:5], v[22:23], 0""",
    ),
    "a part of a product that the next one adds to": (
        NEW,
        """
        v_mfma_f32_16x16x16_f16 v[4:7], v[20:21], v[22:23], 0
        - s_nop 3
        + s_nop 4
        v_mfma_f32_16x16x16_f16 v[8:11], v[20:21], v[22:23], v[6:9]""",
    ),
    "what a product still adds to is overwritten": (
        NEW,
        """
        v_mfma_f32_16x16x16_f16 v[4:7], v[20:21], v[22:23], v[8:11]
        - s_nop 1
        + s_nop 2
        v_mov_b32 v8, 0""",
    ),
    "a product of doubles that is stored": (
        OLD,
        """
        v_lshlrev_b32 v30, 3, v0
        v_mfma_f64_4x4x4f64 v[4:5], v[20:21], v[22:23], 0
        - s_nop 5
        + s_nop 7
        + s_nop 0
        global_store_dwordx2 v30, v[4:5] saddr=2""",
    ),
    "a product behind a compare that turns lanes off": (
        NEW,
        """
        v_cmpx_gt_u32 64, v0
        s_nop 2
        + s_nop 0
        v_mfma_f32_16x16x16_f16 v[4:7], v[20:21], v[22:23], 0""",
    ),
    "a product of short vectors": (
        OLD,
        """
        v_dot2_f32_f16 v4, v20, v21, v22
        s_nop 1
        + s_nop 0
        v_add_f32 v5, v4, v4""",
    ),
    "a load to LDS behind a write to M0": (
        NEW,
        """
        v_lshlrev_b32 v30, 2, v0
        s_mov_b32 m0, 0
        + s_nop 0
        global_load_lds_dword v30 saddr=2""",
    ),
    "a half that was written just now": (
        NEW,
        """
        v_cvt_pk_fp8_f32 v4, v0, v0 opsel=8
        + s_nop 0
        v_mov_b32 v5, v4""",
    ),
    "rows that are swapped behind a write": (
        NEWER,
        """
        v_mov_b32 v4, v0
        s_nop 0
        + s_nop 0
        v_permlane32_swap_b32 v4, v5""",
    ),
    "a product that the next one multiplies, on RDNA3": (
        RDNA3,
        """
        v_wmma_f32_16x16x16_f16 v[4:11], v[20:27], v[28:35], v[4:11]
        s_nop 7
        + v_nop
        v_wmma_f32_16x16x16_f16 v[12:19], v[4:11], v[28:35], v[12:19]""",
    ),
    "a product that the next one multiplies, on RDNA4": (
        RDNA4,
        """
        v_wmma_f32_16x16x16_f16 v[4:11], v[20:23], v[24:27], v[4:11]
        s_nop 7
        + v_nop
        v_wmma_f32_16x16x16_f16 v[12:19], v[4:7], v[24:27], v[12:19]""",
    ),
    "a root that is read at once": (
        RDNA3,
        """
        v_sqrt_f32 v4, v0
        + s_waitcnt_depctr 0xfff
        v_add_f32 v5, v4, v4""",
    ),
    "a scalar that is written again and read": (
        RDNA4,
        """
        s_mov_b32 s4, 1
        v_add_nc_u32 v4, s4, v0
        s_mov_b32 s4, 2
        + s_wait_alu 0xfffe
        v_add_nc_u32 v5, s4, v0""",
    ),
    "a scalar that the wait is not for": (
        RDNA4,
        """
        s_mov_b32 s4, 1
        v_add_nc_u32 v4, s4, v0
        s_mov_b32 s4, 2
        - s_wait_alu 0xf1ff
        + s_wait_alu 0xfffe
        s_add_co_i32 s5, s4, 1""",
    ),
    "a mask that is compared again": (
        RDNA4,
        """
        v_cmp_gt_u32 7, v0
        v_cndmask_b32 v4, v0, v0
        v_cmp_gt_u32 5, v0
        + s_wait_alu 0xfffd
        v_cndmask_b32 v5, v0, v0""",
    ),
    "a lane's number of the round before": (
        RDNA4,
        """
        s_mov_b32 s6, 0
    .Lround:
        v_readfirstlane_b32 s4, v0
        + s_wait_alu 0xf1ff
        v_add_nc_u32 v4, s4, v0
        s_add_co_i32 s6, s6, 1
        s_cmp_lt_u32 s6, 3
        s_cbranch_scc1 .Lround""",
    ),
}
ROWS = tuple(
    Row(name, "by hand", "wait", "hazard", text, block=64, only=only) for name, (only, text) in TEXTS.items()
)
