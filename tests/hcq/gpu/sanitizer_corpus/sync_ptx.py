"""Barriers and masks that are wrong in PTX.

In       nothing
Out      `ROWS`
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

CLUSTER = """
.version 8.3
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 p0) .explicitcluster .reqnctapercluster 2, 1, 1 {
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    .shared .align 8 .b8 words[256];
    ld.param.u64 %d1, [p0];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, words;
    mad.lo.u32 %r2, %r1, 4, %r2;
    st.shared.u32 [%r2], %r1;
    mov.u32 %r3, %cluster_ctarank;
    xor.b32 %r3, %r3, 1;
    mapa.shared::cluster.u32 %r4, %r2, %r3;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ld.shared::cluster.u32 %r5, [%r4];
    + barrier.cluster.arrive.aligned;
    + barrier.cluster.wait.aligned;
    mad.wide.u32 %d2, %r1, 4, %d1;
    red.global.add.u32 [%d2], %r5;
    ret;
}
"""
LEFT = Row("a block leaves its cluster early", "whole ptx", "sync", "cluster-left", CLUSTER, block=64, grid=4)
ROWS = (*(Row(name, "ptx", "sync", rule, text) for name, (rule, text) in TEXTS.items()), LEFT)
