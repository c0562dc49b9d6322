"""Waits for copies that are missing in PTX.

In       nothing
Out      `ROWS`
Next     row.py, languages.py (%r1 is the thread, %r2 where `words` begins, %d1 the buffer; %r6 is stored at the end)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

COPY = """
        mad.lo.u32 %r3, %r1, 4, %r2;
        mul.wide.u32 %d3, %r1, 4;
        add.u64 %d4, %d1, %d3;
        cp.async.ca.shared.global [%r3], [%d4], 4;"""
TEXTS = {
    "a copy is read with no wait at all": f"""{COPY}
        + cp.async.wait_all;
        ld.shared.u32 %r6, [%r3];""",
    "the group of a copy is not waited for": f"""{COPY}
        cp.async.commit_group;
        + cp.async.wait_group 0;
        ld.shared.u32 %r6, [%r3];""",
    "the wait leaves one group under way": f"""{COPY}
        cp.async.commit_group;
        - cp.async.wait_group 1;
        + cp.async.wait_group 0;
        ld.shared.u32 %r6, [%r3];""",
    "the copy is in no group yet": f"""{COPY}
        + cp.async.commit_group;
        cp.async.wait_group 0;
        ld.shared.u32 %r6, [%r3];
        cp.async.wait_all;""",
    "of two groups the newer one is read": f"""{COPY}
        cp.async.commit_group;
        cp.async.ca.shared.global [%r3+1024], [%d4], 4;
        cp.async.commit_group;
        - cp.async.wait_group 1;
        + cp.async.wait_group 0;
        ld.shared.u32 %r6, [%r3+1024];
        cp.async.wait_all;""",
    "a barrier in the place of a wait": f"""{COPY}
        cp.async.commit_group;
        + cp.async.wait_group 0;
        bar.sync 0;
        xor.b32 %r4, %r1, 128;
        mad.lo.u32 %r5, %r4, 4, %r2;
        ld.shared.u32 %r6, [%r5];
        cp.async.wait_all;""",
}
ROWS = tuple(Row(name, "ptx", "wait", "async-copy-not-waited", text) for name, text in TEXTS.items())
