"""Races in AMD's assembly: in LDS, of typed buffers and scalar memory, and around a barrier that is in two halves.

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
DESCRIPTOR = """
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        s_mov_b32 s6, 8192
        s_lshl_b32 s9, s2, 10
        - s_mov_b32 s9, 0
        s_waitcnt lgkmcnt(0)"""
FORMAT = "format:[BUF_DATA_FORMAT_32,BUF_NUM_FORMAT_UINT]"
ONE = """
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        v_mov_b32 v2, 0
        s_mov_b32 s8, 1
        s_waitcnt lgkmcnt(0)
        s_cmp_eq_u32 s2, 0
        s_cbranch_scc0 OTHER
        {}
        s_branch DONE
        OTHER:
        - global_load_dword v3, v2, s[4:5]
        + global_load_dword v3, v2, s[4:5] offset:64
        DONE:
        s_waitcnt vmcnt(0) lgkmcnt(0)"""
MEMORY = {
    "workgroups store to one place by a typed buffer": f"""{DESCRIPTOR}
        s_mov_b32 s7, 0x27000
        s_nop 4
        tbuffer_store_format_x v0, v1, s[4:7], s9 {FORMAT} offen""",
    "workgroups store to one place in their descriptor's format": f"""{DESCRIPTOR}
        s_mov_b32 s7, 0x27fac
        s_nop 4
        buffer_store_format_x v0, v1, s[4:7], s9 offen""",
    "a scalar atomic operation beside a load": ONE.format("s_atomic_add s8, s[4:5], 0x0"),
    "a scalar store beside a load": ONE.format("s_store_dword s8, s[4:5], 0x0"),
}
# gfx12: a wave arrives, and waits later
HALVES = """
@words = internal addrspace(3) global [64 x i32] undef
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier.signal(i32)
declare void @llvm.amdgcn.s.barrier.wait(i16)
define amdgpu_kernel void @kernel(ptr addrspace(1) %out) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %other = xor i32 %t, 32
  %mine = getelementptr i32, ptr addrspace(3) @words, i32 %t
  %theirs = getelementptr i32, ptr addrspace(3) @words, i32 %other
  store i32 %t, ptr addrspace(3) %mine
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier.signal(i32 -1)
  - %found = load volatile i32, ptr addrspace(3) %theirs
  call void @llvm.amdgcn.s.barrier.wait(i16 -1)
  fence syncscope("workgroup") acquire
  + %found = load volatile i32, ptr addrspace(3) %theirs
  %place = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %found, ptr addrspace(1) %place
  ret void
}
"""
ROWS = (
    *(Row(name, "amdgcn", "race", "shared-race", text) for name, text in TEXTS.items()),
    *(
        Row(name, "amdgcn", "race", "global-race", text, block=64, grid=2, buffers=(8192,))
        for name, text in MEMORY.items()
    ),
    Row(
        "read between the two halves of a barrier",
        "whole llvm",
        "race",
        "shared-race",
        HALVES,
        block=64,
        only=("amd:gfx1201",),
    ),
)
