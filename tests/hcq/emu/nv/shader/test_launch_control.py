"""clusterlaunchcontrol: each cluster's work is done once, by itself or by one that took it over; and st.bulk."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import KernelFault, MisalignedAccess
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, run_ptx

HEAD = """.version 8.6
.target sm_100
.address_size 64
.visible .entry k(.param .u64 A, .param .u64 B) {
.shared .align 16 .b8 answer[16]; .shared .align 8 .b64 bar; .shared .align 8 .b8 tile[256];
.reg .b64 %a, %b, %at; .reg .b32 %x, %y, %z, %n, %m, %t, %i, %w, %phase, %rank, %took; .reg .b128 %r;
.reg .pred %p, %first; ld.param.u64 %a, [A]; ld.param.u64 %b, [B]; mov.u32 %m, bar; mov.u32 %t, answer;
mov.u32 %i, %tid.x; mov.u32 %x, %ctaid.x; mov.u32 %y, %ctaid.y; mov.u32 %z, %ctaid.z; mov.u32 %took, 0;
"""
ASK = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{all}.b128 [%t], [%m];"
LOOP = """mov.u32 %phase, 0; mov.u32 %rank, %cluster_ctarank; setp.eq.u32 %first, %i, 0;
@%first mbarrier.init.shared::cta.b64 [%m], 1; mov.u32 %w, 0; SYNC
AGAIN: mad.lo.u32 %n, %y, 6, %x; mad.wide.u32 %at, %n, 4, %b; @%first atom.global.add.u32 %n, [%at], 1;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], 16; SYNC
setp.eq.u32 %p, %rank, 0; and.pred %p, %p, %first; @!%p bra ASKED; ASK ASKED:
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [%m], %phase; @!%p bra WAIT; xor.b32 %phase, %phase, 1;
ld.shared.b128 %r, [%t]; SYNC
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p, %r; @!%p bra END;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%x, %y, %z, _}, %r;
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %n, %r; add.u32 %x, %n, %rank; add.u32 %took, %took, 1;
bra AGAIN; END: @%first atom.global.add.u32 %n, [%a], %took;
"""


@pytest.mark.parametrize("cluster, width", [((1, 1, 1), 1), ((1, 1, 1), 64), ((2, 1, 1), 1), ((2, 1, 1), 96)])
def test_every_block_is_computed_once_by_whoever_takes_it(cluster, width):
    sync = "barrier.cluster.arrive; barrier.cluster.wait;"
    text = LOOP.replace("ASKED", "DONE").replace("ASK", ASK).replace("SYNC", sync)
    text = text.replace("{all}", ".multicast::cluster::all" if cluster[0] > 1 else "")
    taken, counts = np.zeros(1, np.uint32), np.zeros((4, 6), np.uint32)
    run_ptx(f"{HEAD} {text} ret; }}", "k", (6, 4), 32, taken, counts, cluster=cluster, batch_lanes=32 * width)
    assert (counts == 1).all()
    begun = max(width, cluster[0])
    assert taken[0] == max(24 - begun // cluster[0] * cluster[0], 0)


def test_zeros_are_stored_in_bulk():
    lines = """mov.u32 %t, tile; mad.lo.u32 %w, %i, 4, %t; st.shared.u32 [%w], 7; bar.sync 0; setp.eq.u32 %p, %i, 0;
    @%p st.bulk.weak.shared::cta [%t+8], 24, 0; bar.sync 0; ld.shared.u32 %x, [%w]; mad.wide.u32 %b, %i, 4, %b;
    st.global.u32 [%b], %x;"""
    out = np.zeros(32, np.uint32)
    run_ptx(f"{HEAD} {lines} ret; }}", "k", 1, 32, np.zeros(1, np.uint32), out)
    assert (out == np.where((np.arange(32) >= 2) & (np.arange(32) < 8), 0, 7)).all()
    for old, new, error, why in (
        ("24, 0", "20, 0", KernelFault, "20 bytes, no multiple of 8"),
        ("+8]", "+4]", MisalignedAccess, "not a multiple of 8"),
    ):
        with pytest.raises(error, match=why):
            run_ptx(f"{HEAD} {lines.replace(old, new)} ret; }}", "k", 1, 32, np.zeros(1, np.uint32), out)


@needs_nvjitlink
def test_the_vendors_assembler_takes_the_text_of_these_tests():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    text = (
        LOOP.replace("ASKED", "DONE").replace("ASK", ASK).replace("SYNC", "bar.sync 0;").replace("{all}", "")
    )
    more = "mov.u32 %t, tile; st.bulk.weak.shared::cta [%t+8], 24, 0;"
    assert link_ptx(f"{HEAD} {text} {more} ret; }}", "sm_100")
