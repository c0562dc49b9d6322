"""Kernels that use what nobody wrote, each beside a twin that does not, for emulated GPUs of two vendors.

In       nothing
Out      `CASES`: what is used, and for what; the text of the kernel and of its twin, for each vendor
Next     test_sanitizer_init.py (runs them), straying_kernels.py (whose frame they have)

64 threads run a kernel; `words` are 1,024 bytes of shared memory, `mine` 64 bytes of each thread's own.
"""

from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    """A kernel, wrong and right."""

    wrong: str
    right: str


class Case(NamedTuple):
    """use: how the finding says that it is used. amd: None where the vendor has no such kernel."""

    use: str
    nv: Text
    amd: Text | None


STORE, BRANCH, ADDRESS, MATRIX = "is stored", "a branch", "an address", "a product"
NV_OWN = "mov.u32 %r6, words; mad.lo.s32 %r7, %r1, 4, %r6; "
NV_BRANCH = "setp.lt.s32 %p1, %r2, 10; @%p1 bra DONE; st.global.u32 [%a], %r1; DONE: "
NV_ADDRESS = "and.b32 %r3, %r2, 60; cvt.u64.u32 %d4, %r3; add.u64 %d5, %d1, %d4; st.global.u32 [%d5], %r1"
LANE = "%s = getelementptr i32, ptr addrspace(3) @words, i32 %t\n  "
READ = "%v = load volatile i32, ptr addrspace(3) %s\n  "
WRITE = "store volatile i32 %t, ptr addrspace(3) %s\n  "
OWN = "%m = alloca [16 x i32], addrspace(5)\n  %s = getelementptr i8, ptr addrspace(5) %m, i64 %n\n  "
OWN_READ = "%v = load volatile i32, ptr addrspace(5) %s\n  "
OWN_WRITE = "store volatile i32 %t, ptr addrspace(5) %s\n  "
TO_A = "store i32 %v, ptr addrspace(1) %pa"
BRANCHES = (
    "%w = add i32 %v, 1\n  %c = icmp slt i32 %w, 10\n  br i1 %c, label %x, label %y\nx:\n"
    "  store i32 %t, ptr addrspace(1) %pa\n  br label %y\ny:"
)
INDEXES = (
    "%k = and i32 %v, 15\n  %q = getelementptr i32, ptr addrspace(1) %a, i32 %k\n"
    "  store volatile i32 %t, ptr addrspace(1) %q"
)
HALF = (
    "%c = icmp ult i32 %t, 32\n  br i1 %c, label %x, label %y\nx:\n  store volatile i32 %t, ptr addrspace(3) %s\n"
    "  br label %y\ny:\n  "
)
CASES = {
    "a register that was never set is stored": Case(
        STORE, Text("st.global.u32 [%a], %r2", "mov.u32 %r2, 7; st.global.u32 [%a], %r2"), None
    ),
    "a register that some threads set is stored": Case(
        STORE,
        Text(
            "setp.lt.u32 %p1, %r1, 9; @%p1 mov.u32 %r2, 7; st.global.u32 [%a], %r2",
            "setp.lt.u32 %p1, %r1, 9; @%p1 mov.u32 %r2, 7; @!%p1 mov.u32 %r2, 8; st.global.u32 [%a], %r2",
        ),
        None,
    ),
    "shared memory is stored": Case(
        STORE,
        Text(
            NV_OWN + "ld.shared.u32 %r2, [%r7]; st.global.u32 [%a], %r2",
            NV_OWN + "st.shared.u32 [%r7], %r1; ld.shared.u32 %r2, [%r7]; st.global.u32 [%a], %r2",
        ),
        Text(LANE + READ + TO_A, LANE + WRITE + READ + TO_A),
    ),
    "half of a tile was written": Case(
        STORE,
        Text(
            NV_OWN + "setp.lt.u32 %p1, %r1, 32; @%p1 st.shared.u32 [%r7], %r1;"
            " ld.shared.u32 %r2, [%r7]; st.global.u32 [%a], %r2",
            NV_OWN + "setp.lt.u32 %p1, %r1, 32; @%p1 st.shared.u32 [%r7], %r1;"
            " @%p1 ld.shared.u32 %r2, [%r7]; @%p1 st.global.u32 [%a], %r2",
        ),
        Text(
            LANE + HALF + READ + TO_A,
            LANE + HALF + "br i1 %c, label %z, label %e\nz:\n  " + READ + TO_A + "\n  br label %e\ne:",
        ),
    ),
    "one element too far": Case(
        STORE,
        Text(
            NV_OWN
            + "st.shared.u32 [%r7], %r1; bar.sync 0; ld.shared.u32 %r2, [%r7+4]; st.global.u32 [%a], %r2",
            NV_OWN + "st.shared.u32 [%r7], %r1; st.shared.u32 [words+256], %r1; bar.sync 0;"
            " ld.shared.u32 %r2, [%r7+4]; st.global.u32 [%a], %r2",
        ),
        Text(
            LANE + WRITE + "call void @llvm.amdgcn.s.barrier()\n"
            "  %s1 = getelementptr i32, ptr addrspace(3) %s, i32 1\n  %v = load volatile i32, ptr addrspace(3) %s1\n  "
            + TO_A,
            LANE + WRITE + "call void @llvm.amdgcn.s.barrier()\n"
            "  %s1 = getelementptr i32, ptr addrspace(3) %s, i32 0\n  %v = load volatile i32, ptr addrspace(3) %s1\n  "
            + TO_A,
        ),
    ),
    "a byte of a word was written": Case(
        STORE,
        Text(
            NV_OWN + "st.shared.u8 [%r7], %r1; ld.shared.u32 %r2, [%r7]; st.global.u32 [%a], %r2",
            NV_OWN
            + "st.shared.u8 [%r7], %r1; ld.shared.u32 %r2, [%r7]; and.b32 %r2, %r2, 255; st.global.u32 [%a], %r2",
        ),
        Text(
            LANE + "store volatile i8 1, ptr addrspace(3) %s\n  " + READ + TO_A,
            LANE + "store volatile i8 1, ptr addrspace(3) %s\n  %u = load volatile i32, ptr addrspace(3) %s\n"
            "  %v = and i32 %u, 255\n  " + TO_A,
        ),
    ),
    "a branch on shared memory": Case(
        BRANCH,
        Text(
            NV_OWN + "ld.shared.u32 %r2, [%r7]; add.s32 %r2, %r2, 1; " + NV_BRANCH,
            NV_OWN + "st.shared.u32 [%r7], %r1; ld.shared.u32 %r2, [%r7]; add.s32 %r2, %r2, 1; " + NV_BRANCH,
        ),
        Text(LANE + READ + BRANCHES, LANE + WRITE + READ + BRANCHES),
    ),
    "a branch of all threads on one word": Case(
        BRANCH,
        Text(
            "ld.shared.u32 %r2, [words]; " + NV_BRANCH,
            "st.shared.u32 [words], 3; bar.sync 0; ld.shared.u32 %r2, [words]; " + NV_BRANCH,
        ),
        Text(
            "%o = load volatile i32, ptr addrspace(3) @words\n"
            "  %v = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %o)\n  " + BRANCHES,
            "store volatile i32 3, ptr addrspace(3) @words\n  %o = load volatile i32, ptr addrspace(3) @words\n"
            "  %v = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %o)\n  " + BRANCHES,
        ),
    ),
    "an address of shared memory's contents": Case(
        ADDRESS,
        Text(
            NV_OWN + "ld.shared.u32 %r2, [%r7]; " + NV_ADDRESS,
            NV_OWN + "st.shared.u32 [%r7], %r1; ld.shared.u32 %r2, [%r7]; " + NV_ADDRESS,
        ),
        Text(LANE + READ + INDEXES, LANE + WRITE + READ + INDEXES),
    ),
    "an address of a thread's own memory": Case(
        ADDRESS,
        Text(
            "ld.local.u32 %r2, [mine+8]; " + NV_ADDRESS,
            "st.local.u32 [mine+8], %r1; ld.local.u32 %r2, [mine+8]; " + NV_ADDRESS,
        ),
        Text(OWN + OWN_READ + INDEXES, OWN + OWN_WRITE + OWN_READ + INDEXES),
    ),
    "a thread's own memory is stored": Case(
        STORE,
        Text(
            "ld.local.u32 %r2, [mine+8]; st.global.u32 [%a], %r2",
            "st.local.u32 [mine+8], %r1; ld.local.u32 %r2, [mine+8]; st.global.u32 [%a], %r2",
        ),
        Text(OWN + OWN_READ + TO_A, OWN + OWN_WRITE + OWN_READ + TO_A),
    ),
    "a choice by shared memory": Case(
        STORE,
        Text(
            NV_OWN
            + "ld.shared.u32 %r2, [%r7]; setp.eq.u32 %p1, %r2, 3; selp.b32 %r3, 1, 2, %p1; st.global.u32 [%a], %r3",
            NV_OWN
            + "ld.shared.u32 %r2, [%r7]; setp.eq.u32 %p1, %r2, 3; selp.b32 %r3, 1, 1, %p1; st.global.u32 [%a], %r3",
        ),
        Text(
            LANE
            + READ
            + "%c = icmp eq i32 %v, 3\n  %w = select i1 %c, i32 1, i32 2\n  store i32 %w, ptr addrspace(1) %pa",
            LANE + WRITE + READ + "%c = icmp eq i32 %v, 3\n  %w = select i1 %c, i32 1, i32 2\n"
            "  store i32 %w, ptr addrspace(1) %pa",
        ),
    ),
    "a sum of floats": Case(
        STORE,
        Text(
            NV_OWN + "ld.shared.f32 %r2, [%r7]; add.f32 %r3, %r2, %r2; st.global.b32 [%a], %r3",
            NV_OWN
            + "st.shared.b32 [%r7], %r1; ld.shared.f32 %r2, [%r7]; add.f32 %r3, %r2, %r2; st.global.b32 [%a], %r3",
        ),
        Text(
            LANE
            + READ
            + "%f = bitcast i32 %v to float\n  %g = fadd float %f, 1.0\n  store float %g, ptr addrspace(1) %pa",
            LANE + WRITE + READ + "%f = bitcast i32 %v to float\n  %g = fadd float %f, 1.0\n"
            "  store float %g, ptr addrspace(1) %pa",
        ),
    ),
    "a matrix of what nobody set": Case(
        MATRIX,
        Text(
            "mov.b32 %r2, 0; mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r4, %r5}, {%r3}, {%r2}, {%r2, %r2};"
            " st.global.u32 [%a], %r1",
            "mov.b32 %r2, 0; mov.b32 %r3, 0;"
            " mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r4, %r5}, {%r3}, {%r2}, {%r2, %r2};"
            " st.global.u32 [%a], %r4",
        ),
        None,
    ),
}
