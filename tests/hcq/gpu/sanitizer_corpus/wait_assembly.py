"""Waits that are missing in AMD's assembly.

In       nothing
Out      `ROWS`
Next     row.py, languages.py (v0 is the thread; v1 four times it; s[0:1] the arguments)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

POINTER = """
        s_load_dwordx2 s[2:3], s[0:1], 0x0
        s_waitcnt lgkmcnt(0)"""
TEXTS = {
    "an argument is used before it is there": """
        s_load_dwordx2 s[2:3], s[0:1], 0x0
        + s_waitcnt lgkmcnt(0)
        global_store_dword v1, v0, s[2:3]""",
    "a load is used before it is there": f"""{POINTER}
        global_load_dword v2, v1, s[2:3]
        + s_waitcnt vmcnt(0)
        v_add_u32 v3, v2, v2
        global_store_dword v1, v3, s[2:3]""",
    "LDS is used before it is there": """
        ds_write_b32 v1, v0
        ds_read_b32 v2, v1
        + s_waitcnt lgkmcnt(0)
        v_add_u32 v3, v2, v2""",
    "one of two loads is waited for, and the other is used": f"""{POINTER}
        global_load_dword v2, v1, s[2:3]
        global_load_dword v3, v1, s[2:3] offset:4
        - s_waitcnt vmcnt(1)
        + s_waitcnt vmcnt(0)
        v_add_u32 v4, v3, v3""",
    "the wait is for another counter": f"""{POINTER}
        global_load_dword v2, v1, s[2:3]
        - s_waitcnt lgkmcnt(0)
        + s_waitcnt vmcnt(0)
        v_add_u32 v3, v2, v2""",
    "a register is written that a load fills later": f"""{POINTER}
        global_load_dword v2, v1, s[2:3]
        + s_waitcnt vmcnt(0)
        v_mov_b32 v2, 7
        s_waitcnt vmcnt(0)
        global_store_dword v1, v2, s[2:3]""",
    "what an atomic returns is used before it is there": f"""{POINTER}
        global_atomic_add v2, v1, v0, s[2:3] glc
        + s_waitcnt vmcnt(0)
        v_add_u32 v3, v2, v2""",
    "the second half of a wide load": f"""{POINTER}
        v_lshlrev_b32 v6, 1, v1
        global_load_dwordx2 v[2:3], v6, s[2:3]
        + s_waitcnt vmcnt(0)
        v_mov_b32 v4, v3""",
    "what a scalar load brings is compared too early": f"""{POINTER}
        s_load_dword s4, s[2:3], 0x0
        + s_waitcnt lgkmcnt(0)
        s_cmp_eq_u32 s4, 0""",
    "a store sends what is not there yet": f"""{POINTER}
        ds_write_b32 v1, v0
        ds_read_b32 v2, v1
        - s_waitcnt vmcnt(0)
        + s_waitcnt lgkmcnt(0)
        global_store_dword v1, v2, s[2:3]""",
    "a load of the round before": f"""{POINTER}
        s_mov_b32 s4, 0
        v_mov_b32 v3, 0
        v_mov_b32 v2, 0
    .Lloop:
        v_add_u32 v3, v3, v2
        global_load_dword v2, v1, s[2:3]
        + s_waitcnt vmcnt(0)
        s_add_u32 s4, s4, 1
        s_cmp_lt_u32 s4, 4
        s_cbranch_scc1 .Lloop
        s_waitcnt vmcnt(0)""",
    "scalar loads come back in any order": f"""{POINTER}
        s_load_dword s5, s[2:3], 0x4
        s_load_dword s6, s[2:3], 0x8
        - s_waitcnt lgkmcnt(1)
        + s_waitcnt lgkmcnt(0)
        s_add_u32 s7, s5, 1""",
}
HAZARDS = {
    "a lane that was chosen just now": """
        v_readfirstlane_b32 s4, v0
        - s_nop 0
        + s_nop 3
        v_readlane_b32 s5, v1, s4""",
    "a neighbour's register that was written just now": """
        v_mov_b32 v2, v0
        + s_nop 1
        v_mov_b32_dpp v3, v2 row_shr:1 row_mask:0xf bank_mask:0xf""",
    "a lane that was chosen before a branch": """
        v_readfirstlane_b32 s4, v0
        s_cmp_eq_u32 s4, 77
        s_cbranch_scc1 .Lthere
        s_nop 0
    .Lthere:
        + s_nop 3
        v_readlane_b32 s5, v1, s4""",
    "a register of the round before": """
        s_mov_b32 s6, 0
        v_mov_b32 v2, v0
        s_nop 4
    .Lround:
        v_mov_b32_dpp v3, v2 row_shr:1 row_mask:0xf bank_mask:0xf
        s_add_u32 s6, s6, 1
        s_cmp_lt_u32 s6, 3
        v_mov_b32 v2, v0
        + s_nop 1
        s_cbranch_scc1 .Lround""",
}
ROWS = (
    *(Row(name, "amdgcn", "wait", "missing-wait", text) for name, text in TEXTS.items()),
    *(Row(name, "amdgcn", "wait", "hazard", text) for name, text in HAZARDS.items()),
)
