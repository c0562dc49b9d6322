"""Races in global memory in C, for CUDA and for HIP alike.

In       nothing
Out      `ROWS`
Next     row.py, languages.py (B is the block)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

TEXTS = {
    "blocks write one place": """
        - if (T == 0) out[0] = B;
        + if (T == 0) out[B * 64] = B;""",
    "blocks count without an atomic": """
        - if (T == 0) out[0] = out[0] + 1;
        + if (T == 0) ADD(&out[0], 1);""",
    "a block reads what another writes": """
        out[B * 256 + T] = T;
        KEEP();
        - int other = out[(1 - B) * 256 + T];
        + int other = out[B * 256 + T];
        out[512 + B * 256 + T] = other;""",
    "threads of a block meet in global memory with no barrier": """
        int *mine = out + B * 256;
        mine[T] = T;
        KEEP();
        + BARRIER();
        int other = mine[n - 1 - T];
        out[512 + B * 256 + T] = other;""",
    "a stencil in place": """
        int i = B * 256 + T;
        int left = i > 0 ? out[i - 1] : 0;
        KEEP();
        - out[i] = left + 1;
        + out[512 + i] = left + 1;""",
    "a maximum over blocks is compared and stored": """
        int mine = (T * 7 + B) % n;
        - if (mine > out[0]) out[0] = mine;
        + MAX(&out[0], mine);""",
    "the edges of two blocks overlap": """
        - int first = B * 248;
        + int first = B * 256;
        out[first + T] = B;""",
    "a flag that says nothing is ordered": """
        - if (B == 0) out[T] = T; else out[512 + T] = out[T];
        + if (B == 0) out[T] = T; else out[512 + T] = T;""",
}
# with atomic operations, fences and scopes, each in its vendor's words
LAST = """
        SHARED int last;
        out[B * 256 + T] = T + B;
        - KEEP();
        + {release};
        BARRIER();
        if (T == 0) last = {count} == n / 64 - 1;
        BARRIER();
        if (last) {{
            + {acquire};
            int sum = 0;
            for (int b = 0; b < n / 64; b++) sum += out[b * 256 + T];
            out[1536 + T] = sum;
        }}"""
THIRD = """
        // blocks 1 to 3 read a word, and say so; block 0 writes it. It is let go by all, or not by block 2
        if (T == 0 && B > 0) {{
            out[64 + B] = out[0];
            {fence};
            - if (B != 2) ADD(&out[32], 1);
            + ADD(&out[32], 1);
        }}
        if (T == 0 && B == 0) {{
            - while (ADD(&out[32], 0) != 2) ;
            + while (ADD(&out[32], 0) != 3) ;
            {fence};
            out[0] = 7;
        }}"""
CUDA = {
    "a third reader that the writer does not wait for": THIRD.format(fence="__threadfence()"),
    "the last block sums up": LAST.format(
        release="__threadfence()", acquire="__threadfence()", count="atomicAdd(&out[1500], 1)"
    ),
    "a lock that is opened by a plain store": """
        if (T == 0) {
            while (atomicCAS(&out[0], 0, 1) != 0) ;
            __threadfence();
            out[1] = out[1] + 1;
            + __threadfence();
            - out[0] = 0;
            + atomicExch(&out[0], 0);
        }""",
    "a look back without an acquire": """
        if (T == 0) {
            int flag = 1, mine = B + 1;
            int *flags = out + 64;
            if (B > 0) {
                do {
                    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(flag) : "l"(flags + B - 1) : "memory");
                } while (!flag);
                + asm volatile("fence.acq_rel.gpu;" ::: "memory");
                mine += out[B - 1];
            }
            out[B] = mine;
            asm volatile("fence.acq_rel.gpu;" ::: "memory");
            asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" :: "l"(flags + B), "r"(flag) : "memory");
        }""",
    "a count that is read without an atomic": """
        ADD(&out[(T * 13 + B) & 31], 1);
        - if (T == 0) out[256 + B] = out[5];
        + if (T == 0) out[256 + B] = ADD(&out[5], 0);""",
}
HIP = {
    "a third reader that the writer does not wait for": THIRD.format(
        fence='__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent")'
    ),
    "the last block sums up": LAST.format(
        release='__builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent")',
        acquire='__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent")',
        count="ADD(&out[1500], 1)",
    ),
    "a lock that is opened without a release": """
        if (T == 0) {
            int closed;
            do closed = 0;
            while (!__hip_atomic_compare_exchange_strong(&out[0], &closed, 1, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED,
                                                         __HIP_MEMORY_SCOPE_AGENT));
            out[1] = out[1] + 1;
            - __hip_atomic_store(&out[0], 0, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
            + __hip_atomic_store(&out[0], 0, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
        }""",
}
ROWS = tuple(
    Row(name, language, "race", "global-race", text, grid=grid, buffers=(8192,), numbers=(256,))
    for languages, grid, texts in ((("cuda", "hip"), 2, TEXTS), (("cuda",), 4, CUDA), (("hip",), 4, HIP))
    for name, text in texts.items()
    for language in languages
)
