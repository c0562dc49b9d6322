"""Barriers and masks that are wrong in PTX.

In       nothing
Out      `ROWS`
Changes  nothing
Next     row.py, languages.py (%r1 is the thread, %r2 where `words` begins, %d1 the buffer; %r6 is stored at the end)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

TEXTS = {
    "a count that is no number of warps": (
        "barrier-count",
        """
        setp.lt.u32 %p1, %r1, 64;
        - @%p1 bar.sync 1, 48;
        + @%p1 bar.sync 1, 64;""",
    ),
    "fewer come than are counted": (
        "barrier-not-reached",
        """
        setp.lt.u32 %p1, %r1, 64;
        - @%p1 bar.sync 1, 128;
        + @%p1 bar.sync 1, 64;""",
    ),
    "a barrier in divergent code": (
        "barrier-divergent",
        """
        setp.lt.u32 %p1, %r1, 16;
        - @%p1 bra FEW;
        bar.sync 0;
        - bra DONE;
        - FEW:
        - bar.sync 0;
        - DONE:""",
    ),
    "a mask that leaves out who executes": (
        "mask-names-absent",
        """
        - bar.warp.sync 65535;
        + bar.warp.sync -1;""",
    ),
    "a vote whose mask leaves out who votes": (
        "mask-names-absent",
        """
        setp.gt.u32 %p1, %r1, 7;
        - vote.sync.ballot.b32 %r6, %p1, 255;
        + vote.sync.ballot.b32 %r6, %p1, -1;""",
    ),
}
ROWS = tuple(Row(name, "ptx", "sync", rule, text) for name, (rule, text) in TEXTS.items())
