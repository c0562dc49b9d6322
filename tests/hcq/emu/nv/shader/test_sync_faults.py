"""HCQ_SANITIZE=sync on NVIDIA: each planted fault is found, and its right twin has no finding."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from hcq.emu.nv.shader.checks import additions_of
from hcq.emu.nv.shader.errors import Deadlock
from hcq.emu.nv.shader.run import Kernel
from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault
from tests.hcq.emu.nv.shader.running import HEADER, Launch

HEAD = f"""{HEADER}
.visible .entry k(.param .u64 out) {{
.reg .b32 %i, %x, %y, %m;
.reg .pred %p, %q;
.shared .align 8 .b64 bar;
mov.u32 %i, %tid.x;
mov.u32 %m, bar;
and.b32 %x, %i, 1;
setp.eq.u32 %p, %x, 0;
setp.lt.u32 %q, %i, 32;
"""


def found_in(lines: str, threads: int = 64) -> list[KernelFault]:
    """What is found in a launch of three blocks, also if it hangs."""
    checks, launch = Checks(frozenset({"sync"})), Launch()
    kernel = Kernel(HEAD + lines.replace("; ", ";\n") + "\nret; }", "k", additions=additions_of(checks))
    with contextlib.suppress(Deadlock):
        launch.run(kernel, 3, threads, np.zeros(4, np.uint32), checks=checks)
    return list(checks.found.values())


EVERY = "0xffffffff"


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("bar.sync 0; bar.sync 0;", "@%p bra A; bar.sync 0; bra B; A: bar.sync 0; B:", "barrier-divergent"),
        ("barrier.sync 0; @%p bra A; barrier.sync 0; bra B; A: barrier.sync 0; B:",
         "@%p bra A; barrier.sync.aligned 0; bra B; A: barrier.sync.aligned 0; B:", "barrier-divergent"),
        ("@%q bra A; bar.sync 0; bra B; A: bar.sync 0; B:",
         "@%p bra A; bar.sync 0; A: bar.sync 0;", "barrier-divergent"),
        ("bar.sync 1, 64;", "bar.sync 1, 60;", "barrier-count"),
        ("bar.sync 1, 64;", "@%q bra A; bar.arrive 1, 64; bra B; A: bar.sync 1, 32; B:", "barrier-count"),
        ("@%q bra A; bar.sync 1, 64; bra B; A: bar.arrive 1, 64; B:", "bar.sync 1, 96;", "barrier-count"),
        ("@%q bra A; bar.sync 1, 32; A:", "@%q bra A; bar.sync 1, 64; A:", "barrier-not-reached"),
        (f"shfl.sync.idx.b32 %y, %x, 0, 31, {EVERY};", "shfl.sync.idx.b32 %y, %x, 0, 31, 0xffff;", "mask-names-absent"),
        (f"vote.sync.any.pred %q, %p, {EVERY};", "vote.sync.any.pred %q, %p, 0xfffffffe;", "mask-names-absent"),
        ("@!%p bra A; bar.warp.sync 0x55555555; A:", "@!%p bra A; bar.warp.sync 0xaaaaaaaa; A:", "mask-names-absent"),
        ("selp.b32 %x, 0x55555555, 0xaaaaaaaa, %p; shfl.sync.bfly.b32 %y, %i, 2, 31, %x;",
         "selp.b32 %x, 0x55555557, 0xaaaaaaaa, %p; shfl.sync.bfly.b32 %y, %i, 2, 31, %x;", "mask-names-absent"),
    ],
)  # fmt: skip
def test_each_planted_fault_is_found_and_its_twin_is_right(right: str, wrong: str, rule: str) -> None:
    assert found_in(right) == []
    found = found_in(wrong)
    assert rule in {fault.rule for fault in found}
    assert all(fault.sites and fault.sites[0].who.startswith("thread (") for fault in found)


def test_threads_that_have_ended_are_not_waited_for() -> None:
    early = "setp.lt.u32 %p, %i, 40; @!%p bra E; bar.sync 0; vote.sync.any.pred %q, %p, 0xffffffff; E:"
    assert found_in(early) == []
    assert found_in("shfl.sync.idx.b32 %y, %x, 0, 31, 0xffffffff; bar.sync 0;", threads=40) == []


def test_a_mask_whose_threads_never_come_is_named_when_nothing_can_go_on() -> None:
    lines = "@!%p bra A; bar.warp.sync 0xffffffff; bra B; A: shfl.sync.idx.b32 %y, %x, 0, 31, 0xffffffff; B:"
    (fault,) = found_in(lines)
    assert fault.rule == "mask-names-absent" and len(fault.sites) >= 2
    assert "no thread can go on" in fault.why


def test_an_mbarrier_to_which_too_few_arrive_is_found() -> None:
    wait = "W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%m], 0; @%p bra D; bra W; D:"
    (fault,) = found_in(f"mbarrier.init.shared::cta.b64 [%m], 2; {wait}", threads=1)
    assert fault.rule == "barrier-not-reached" and "expects 2 more arrivals" in fault.why
