"""Races in LDS in AMD's assembly.

In       nothing
Out      `ROWS`
Next     row.py, languages.py (v0 is the thread; v1 four times it; s[0:1] the arguments)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

TEXTS = {
    "a tile of LDS is read too early": """
        ds_write_b32 v1, v0
        s_waitcnt lgkmcnt(0)
        + s_barrier
        v_xor_b32 v2, 0x200, v1
        ds_read_b32 v3, v2
        s_waitcnt lgkmcnt(0)""",
    "waiting for the counter is not waiting for others": """
        v_lshlrev_b32 v1, 1, v1
        ds_write2_b32 v1, v0, v0 offset0:0 offset1:1
        - s_waitcnt vmcnt(0) lgkmcnt(0)
        + s_waitcnt vmcnt(0) lgkmcnt(0)
        + s_barrier
        v_xor_b32 v2, 0x400, v1
        ds_read2_b32 v[2:3], v2 offset0:0 offset1:1
        s_waitcnt lgkmcnt(0)
        s_barrier""",
    "a counter in LDS that is not atomic": """
        v_mov_b32 v2, 0
        v_mov_b32 v4, 1
        - ds_read_b32 v3, v2
        - s_waitcnt lgkmcnt(0)
        - v_add_u32 v3, v3, v4
        - ds_write_b32 v2, v3
        + ds_add_u32 v2, v4
        s_waitcnt lgkmcnt(0)""",
    "halves of a word, swapped by another wave": """
        v_lshrrev_b32 v2, 1, v1
        ds_write_b16 v2, v0
        s_waitcnt lgkmcnt(0)
        - v_xor_b32 v2, 0x80, v2
        ds_read_u16 v3, v2
        s_waitcnt lgkmcnt(0)""",
}
ROWS = tuple(Row(name, "amdgcn", "race", "shared-race", text) for name, text in TEXTS.items())
