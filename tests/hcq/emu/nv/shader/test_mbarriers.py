"""mbarriers: a model of the manual's rules beside them, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.emu.nv.shader.errors import KernelFault
from tests.hcq.emu.nv.shader.running import run_ptx

HEAD = """.version 8.3\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 A) { .shared .align 8 .b64 bar; .reg .b64 %a, %v; .reg .b32 %m, %x; .reg .pred %p;
ld.param.u64 %a, [A]; mov.u32 %m, bar;
"""


class Model:
    """One mbarrier, by the manual's words: a phase is over when no arrival and no byte is missing."""

    def __init__(self, count: int) -> None:
        self.phase, self.expected, self.pending, self.bytes = 0, count, count, 0

    def change(self, arrivals: int, told: int, drops: int = 0) -> None:
        self.bytes += told
        self.pending -= arrivals
        self.expected -= drops
        if not self.pending and not self.bytes:
            self.phase ^= 1
            self.pending = self.expected


STEPS = {
    "mbarrier.arrive.shared::cta.b64 %v, [%m];": (1, 0, 0),
    "mbarrier.arrive.release.cta.shared::cta.b64 %v, [%m], 2;": (2, 0, 0),
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], 48;": (1, 48, 0),
    "mbarrier.arrive.shared::cluster.b64 _, [%m];": (1, 0, 0),
    "mbarrier.arrive_drop.shared::cta.b64 %v, [%m];": (1, 0, 1),
    "mbarrier.arrive_drop.expect_tx.shared::cta.b64 %v, [%m], 16;": (1, 16, 1),
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%m], 32;": (0, 32, 0),
    "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%m], 16;": (0, -16, 0),
    "mbarrier.complete_tx.shared::cta.b64 [%m], 48;": (0, -48, 0),
}
ASK = """mbarrier.test_wait.parity.shared::cta.b64 %p, [%m], {0}; selp.u32 %x, 1, 0, %p; st.global.u32 [%a+{1}], %x;"""


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=14))
def test_phases_end_as_the_manual_says(count, steps):
    model = Model(count)
    lines, wanted = [f"mbarrier.init.shared::cta.b64 [%m], {count};"], []
    for step in steps:
        arrivals, told, drops = STEPS[step]
        if arrivals > model.pending:  # refused: another test
            continue
        model.change(arrivals, told, drops)
        lines += [step, ASK.format(0, 8 * (len(wanted) // 2)), ASK.format(1, 8 * (len(wanted) // 2) + 4)]
        wanted += [int(model.phase != 0), int(model.phase != 1)]
        if not model.expected:
            break
    found = np.zeros(max(len(wanted), 1), np.uint32)
    run_ptx(HEAD + " ".join(lines) + " ret; }", "k", 1, 1, found)
    assert found[: len(wanted)].tolist() == wanted


def test_a_token_says_which_phase_to_wait_for_and_how_many_were_pending():
    lines = """mbarrier.init.shared::cta.b64 [%m], 2; mbarrier.arrive.shared::cta.b64 %v, [%m];
    mbarrier.pending_count.b64 %x, %v; st.global.u32 [%a], %x;
    mbarrier.test_wait.shared::cta.b64 %p, [%m], %v; selp.u32 %x, 1, 0, %p; st.global.u32 [%a+4], %x;
    mbarrier.arrive.shared::cta.b64 _, [%m];
    mbarrier.try_wait.acquire.cta.shared::cta.b64 %p, [%m], %v, 1000; selp.u32 %x, 1, 0, %p;
    st.global.u32 [%a+8], %x;"""
    found = np.zeros(3, np.uint32)
    run_ptx(HEAD + lines + " ret; }", "k", 1, 1, found)
    assert found.tolist() == [2, 0, 1]


def test_all_threads_of_a_block_are_counted():
    lines = """.reg .pred %first; .reg .b32 %i; mov.u32 %i, %tid.x; setp.eq.u32 %first, %i, 0;
    @%first mbarrier.init.shared::cta.b64 [%m], 96; bar.sync 0; mbarrier.arrive.shared::cta.b64 %v, [%m];
    W: mbarrier.try_wait.shared::cta.b64 %p, [%m], %v; @%p bra D; bra W; D: mul.wide.u32 %v, %i, 4; add.u64 %a, %a, %v;
    st.global.u32 [%a], 1;"""
    found = np.zeros(96, np.uint32)
    run_ptx(HEAD + lines + " ret; }", "k", 1, 96, found)
    assert found.all()


@pytest.mark.parametrize(
    "lines, why",
    [
        ("mbarrier.init.shared::cta.b64 [%m], 0;", "the count is not from 1 to 1048575"),
        ("mbarrier.init.shared::cta.b64 [%m], 1048576;", "the count is not from 1 to 1048575"),
        ("mbarrier.arrive.shared::cta.b64 %v, [%m];", "it was not initialised"),
        (
            "mbarrier.init.shared::cta.b64 [%m], 1; mbarrier.inval.shared::cta.b64 [%m]; mbarrier.arrive.b64 _, [%m];",
            "it was not initialised",
        ),
        (
            "mbarrier.init.shared::cta.b64 [%m], 1; mbarrier.arrive.shared::cta.b64 %v, [%m], 2;",
            "more threads arrive than it expects in this phase",
        ),
        (
            "mbarrier.init.b64 [%m], 1; mbarrier.arrive.expect_tx.b64 _, [%m], 16; mbarrier.arrive.b64 %v, [%m];",
            "more threads arrive than it expects in this phase",
        ),
    ],
)
def test_what_would_damage_an_mbarrier_is_refused(lines, why):
    with pytest.raises(KernelFault, match=why):
        run_ptx(HEAD + lines + " ret; }", "k", 1, 1, np.zeros(4, np.uint32))
