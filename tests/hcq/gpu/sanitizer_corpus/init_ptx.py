"""Uses of registers and of a thread's own memory that nobody wrote, in PTX.

In       nothing
Out      `ROWS`
Next     row.py, languages.py (%r1 is the thread, %r2 where `words` begins, %d1 the buffer; %r6 is stored at the end)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

TEXTS = {
    "a register is stored that was never set": """
        - mov.u32 %r6, %r20;
        + mov.u32 %r6, %r1;""",
    "an address is made of a register that was never set": """
        + mov.u32 %r20, 4;
        and.b32 %r21, %r20, 252;
        cvt.u64.u32 %d3, %r21;
        add.u64 %d4, %d1, %d3;
        ld.global.u32 %r6, [%d4];""",
    "a branch by a register that was never set": """
        + mov.u32 %r20, 4;
        setp.gt.u32 %p1, %r20, 3;
        @%p1 bra MORE;
        mov.u32 %r6, 1;
MORE:""",
    "a register that only some threads set": """
        setp.lt.u32 %p1, %r1, 100;
        - @%p1 mov.u32 %r20, %r1;
        + mov.u32 %r20, %r1;
        mov.u32 %r6, %r20;""",
    "a predicate that no barrier brought": """
        setp.gt.u32 %p1, %r1, 300;
        + bar.red.or.pred %p2, 0, %p1;
        @%p2 bra MORE;
        mov.u32 %r6, 1;
MORE:""",
    "half of a word of shared memory": """
        mad.lo.u32 %r3, %r1, 4, %r2;
        cvt.u16.u32 %h1, %r1;
        st.shared.u16 [%r3], %h1;
        + st.shared.u16 [%r3+2], %h1;
        ld.shared.u32 %r6, [%r3];""",
    "a predicate that was never set": """
        + setp.eq.u32 %p2, %r1, 0;
        @%p2 st.global.u32 [%d1], %r1;""",
    "a choice of a register that was never set": """
        setp.gt.u32 %p1, %r1, 5;
        + mov.u32 %r20, 3;
        selp.b32 %r6, %r1, %r20, %p1;""",
    "bytes of a register that was never set": """
        - prmt.b32 %r6, %r1, %r20, 0x5410;
        + prmt.b32 %r6, %r1, %r20, 0x3210;""",
    "a field of bytes that nobody wrote": """
        mad.lo.u32 %r3, %r1, 4, %r2;
        st.shared.u8 [%r3], %r1;
        ld.shared.u32 %r4, [%r3];
        - bfe.u32 %r6, %r4, 8, 8;
        + bfe.u32 %r6, %r4, 0, 8;""",
    "a function of three words": """
        - lop3.b32 %r6, %r2, %r20, %r1, 0xf8;
        + lop3.b32 %r6, %r2, %r20, %r1, 0xf0;""",
}
ROWS = tuple(Row(name, "ptx", "init", "uninitialised-read", text) for name, text in TEXTS.items())
