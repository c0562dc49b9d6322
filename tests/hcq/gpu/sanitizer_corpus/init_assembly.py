"""Uses of what nobody wrote in AMD's assembly: through parts of registers and other lanes.

In       nothing
Out      `ROWS`
Next     row.py, languages.py (v0 is the thread; v1 four times it; s[0:1] the arguments)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

POINTER = """
        s_load_dwordx2 s[2:3], s[0:1], 0x0
        s_waitcnt lgkmcnt(0)"""
STORE = """
        global_store_dword v1, v7, s[2:3]"""
HALF = """
        ds_write_b16 v1, v0
        ds_read_b32 v5, v1
        s_waitcnt lgkmcnt(0)"""
TEXTS = {
    "a mask that was never set": f"""{POINTER}
        + s_mov_b64 s[8:9], -1
        s_and_saveexec_b64 s[10:11], s[8:9]
        global_store_dword v1, v0, s[2:3]
        s_mov_b64 exec, s[10:11]""",
    "bytes of a register that was never set": f"""{POINTER}
        v_mov_b32 v6, 0x05040100
        - v_perm_b32 v7, v5, v0, v6
        + v_perm_b32 v7, v0, v5, v6
        + v_mov_b32 v7, v0{STORE}""",
    "the half that was not written": f"""{POINTER}{HALF}
        - v_mov_b32_sdwa v7, v5 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1
        + v_mov_b32_sdwa v7, v5 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0{STORE}""",
    "a sum of the half that was not written": f"""{POINTER}{HALF}
        - v_add_u32_sdwa v7, v0, v5 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1
        + v_add_u32_sdwa v7, v0, v5 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_0{STORE}""",
    "a field of the half that was not written": f"""{POINTER}{HALF}
        - v_bfe_u32 v7, v5, 16, 8
        + v_bfe_u32 v7, v5, 8, 8{STORE}""",
    "the neighbour of a register that was never set": f"""{POINTER}
        + v_mov_b32 v5, 0
        s_nop 1
        v_mov_b32_dpp v7, v5 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0{STORE}""",
    "a sum with a neighbour that was never set": f"""{POINTER}
        + v_mov_b32 v5, 0
        s_nop 1
        v_add_u32_dpp v7, v5, v0 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0{STORE}""",
    "a pair of halves": f"""{POINTER}
        + v_mov_b32 v5, 0
        v_pk_add_u16 v7, v5, v0{STORE}""",
    "a lane of a register that was never set": f"""{POINTER}
        + v_mov_b32 v5, 0
        s_nop 3
        v_readlane_b32 s5, v5, 3
        s_nop 3
        v_mov_b32 v7, s5{STORE}""",
    "all lanes but one": f"""{POINTER}
        - v_writelane_b32 v7, s2, 3
        + v_mov_b32 v7, s2{STORE}""",
    "lanes that are sent elsewhere": f"""{POINTER}
        + v_mov_b32 v5, 0
        ds_permute_b32 v7, v1, v5
        s_waitcnt lgkmcnt(0){STORE}""",
    "chosen by bits that were never set": f"""{POINTER}
        + v_mov_b32 v5, 0
        v_bfi_b32 v7, v5, v0, v1{STORE}""",
}
ROWS = tuple(Row(name, "amdgcn", "init", "uninitialised-read", text) for name, text in TEXTS.items())
