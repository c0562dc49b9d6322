"""Races in shared memory in PTX: what CUDA C does not say so directly.

In       nothing
Out      `ROWS`
Next     row.py, languages.py (%r1 is the thread, %r2 where `words` begins, %d1 the buffer)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

TEXTS = {
    "a named barrier of too few warps": """
        mad.lo.u32 %r3, %r1, 4, %r2;
        st.shared.u32 [%r3], %r1;
        shr.u32 %r4, %r1, 6;
        bar.sync %r4, 64;
        - xor.b32 %r5, %r1, 64;
        + xor.b32 %r5, %r1, 32;
        mad.lo.u32 %r3, %r5, 4, %r2;
        ld.shared.u32 %r6, [%r3];""",
    "who has arrived writes on": """
        setp.lt.u32 %p1, %r1, 64;
        mad.lo.u32 %r3, %r1, 4, %r2;
        + st.shared.u32 [%r3], %r1;
        @%p1 bar.arrive 1, 256;
        @!%p1 bar.sync 1, 256;
        - st.shared.u32 [%r3], %r1;
        xor.b32 %r4, %r1, 64;
        mad.lo.u32 %r3, %r4, 4, %r2;
        @!%p1 ld.shared.u32 %r6, [%r3];""",
    "a vector over words of another warp": """
        shl.b32 %r3, %r1, 4;
        add.u32 %r3, %r3, %r2;
        st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};
        xor.b32 %r4, %r1, 128;
        shl.b32 %r4, %r4, 4;
        add.u32 %r4, %r4, %r2;
        + bar.sync 0;
        ld.shared.v2.u32 {%r6, %r7}, [%r4+8];""",
    "a reduction by red beside a plain store": """
        setp.eq.u32 %p1, %r1, 0;
        @%p1 st.shared.u32 [%r2], 0;
        + bar.sync 0;
        red.shared.add.u32 [%r2], 1;""",
    "an exchange beside a plain load": """
        atom.shared.exch.b32 %r4, [%r2], %r1;
        + bar.sync 0;
        ld.shared.u32 %r6, [%r2];""",
    "half words of one word": """
        - xor.b32 %r3, %r1, 64;
        + mov.u32 %r3, %r1;
        mad.lo.u32 %r3, %r3, 2, %r2;
        cvt.u16.u32 %h1, %r1;
        mad.lo.u32 %r4, %r1, 2, %r2;
        st.shared.u16 [%r4], %h1;
        ld.shared.u16 %h2, [%r3];
        cvt.u32.u16 %r6, %h2;""",
    "through a generic address": """
        cvta.shared.u32 %r8, %r2;
        cvt.u64.u32 %d3, %r2;
        cvta.shared.u64 %d4, %d3;
        mul.wide.u32 %d5, %r1, 4;
        add.u64 %d6, %d4, %d5;
        st.u32 [%d6], %r1;
        xor.b32 %r4, %r1, 128;
        mad.lo.u32 %r5, %r4, 4, %r2;
        + bar.sync 0;
        ld.shared.u32 %r6, [%r5];""",
    "a barrier that votes, one access too late": """
        setp.lt.u32 %p1, %r1, 7;
        mad.lo.u32 %r3, %r1, 4, %r2;
        - barrier.cta.red.popc.u32 %r4, 0, %p1;
        st.shared.u32 [%r3], %r1;
        + barrier.cta.red.popc.u32 %r4, 0, %p1;
        xor.b32 %r5, %r1, 32;
        mad.lo.u32 %r5, %r5, 4, %r2;
        ld.shared.u32 %r6, [%r5];""",
}
ROWS = tuple(Row(name, "ptx", "race", "shared-race", text) for name, text in TEXTS.items())
