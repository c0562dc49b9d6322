"""Compiled PTX of warpgroups and of copies: the interpreter's bits, its reports, and who runs what.

In       random kernels of random_copies.py; kernels that wait for mbarriers
Out      memory, faults and lists of instructions that are alike
Changes  nothing outside of its own arrays
Next     test_native.py (all other instructions), test_warpgroup_ops.py (what a product is)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from hcq import config
from hcq.emu.compiled import assemble
from hcq.emu.nv.shader.errors import KernelFault, StepLimit
from hcq.emu.nv.shader.run import Kernel
from tests.hcq.emu.nv.shader import random_copies
from tests.hcq.emu.nv.shader.running import HEADER, Launch
from tests.hcq.emu.nv.shader.test_warpgroup_ops import Layout, arrays, plain_kernel

pytestmark = pytest.mark.skipif(assemble.tools() is None, reason="needs LLVM: pip install 'hcq[tensor]'")
WAYS = ("0", "always")


@pytest.mark.parametrize("seed", range(24))
def test_products_of_warpgroups_leave_the_same_bits(seed: int) -> None:
    one = random_copies.product(seed)
    interpreted, compiled = (random_copies.run(one, way) for way in WAYS)
    assert not random_copies.differ(one, interpreted.out, compiled.out)
    assert not compiled.why_not and (interpreted.out != one.arrays[-1]).any()


@pytest.mark.parametrize("seed", range(24))
def test_copies_under_way_leave_the_same_bits(seed: int) -> None:
    one = random_copies.copies(seed)
    interpreted, compiled = (random_copies.run(one, way) for way in WAYS)
    assert not random_copies.differ(one, interpreted.out, compiled.out)
    assert set(compiled.why_not) <= {"add.rm.f64"}


def _by_both(text: str, threads: int, args: Any, **options: Any) -> list[tuple[Kernel, Any]]:
    """The kernel and what was raised, or what it left in the last of its arrays: interpreted, then compiled."""
    before, found = config.current(), []
    try:
        for way in WAYS:
            config.use(dataclasses.replace(before, emu_compiled=way))
            launch, mine = Launch(), [array.copy() for array in args]
            loaded = launch.load(text, "k")
            try:
                launch.run(loaded, 1, threads, *mine, **options)
                found.append((loaded, mine[-1]))
            except KernelFault as fault:
                found.append((loaded, fault))
    finally:
        config.use(before)
    assert not found[0][0].program.entry.native and any(found[1][0].program.entry.native.values())
    return found


@pytest.mark.parametrize(
    "before, threads, descriptor",
    [
        ("setp.ge.u32 %q, %i, 96; @%q exit;", 128, None),  # a warp has ended
        ("", 96, None),  # there are three warps
        ("", 128, 1 << 62 | 0x3000),  # outside of shared memory
        ("", 128, 1 << 62 | 1 << 49),  # a base that is not emulated
        ("setp.eq.u32 %q, %i, 70; @%q add.u64 %p4, %p4, 1;", 128, None),  # one thread names another matrix
    ],
)
def test_products_that_the_interpreter_refuses_are_refused_alike(
    before: str, threads: int, descriptor: int | None
) -> None:
    options = {} if descriptor is None else {"descriptor": descriptor}
    text = plain_kernel(**options).replace("wgmma.mma_async", f"{before} wgmma.mma_async", 1)
    faults = [fault for _, fault in _by_both(text, threads, arrays())]
    assert all(isinstance(one, KernelFault) for one in faults)
    assert str(faults[0]) == str(faults[1]) and faults[0].waves == faults[1].waves


def test_warps_that_come_to_a_product_at_different_times_are_awaited_in_compiled_code() -> None:
    layout = Layout(64, "f16", "k", "128B")
    image = layout.image(np.arange(1024, dtype=np.float16).reshape(64, 16) / 64)
    b = Layout(8, "f16", "k", "128B").image(np.ones((8, 16), np.float16))
    late = "mul.lo.u32 %at, %i, 50; W: setp.lt.u32 %q, %at, 32; @%q bra G; sub.u32 %at, %at, 1; bra W; G: wgmma.fence"
    text = plain_kernel().replace("wgmma.fence", late, 1)
    (_, interpreted), (kernel, compiled) = _by_both(text, 128, (image, b, np.zeros((128, 4), np.float32)))
    assert interpreted.any() and (interpreted == compiled).all()
    (native,) = kernel.program.entry.native.values()
    assert native is not None and not native.facts.why_not


PIPELINE = f"""{HEADER}.visible .entry k(.param .u64 in, .param .u64 out) {{
 .shared .align 16 .b8 tile[512]; .shared .align 8 .b64 full; .reg .b32 %i, %t, %x, %b, %n, %phase, %at;
 .reg .b64 %in, %out, %w, %state; .reg .pred %first, %done, %again;
 ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %i, %tid.x; mov.u32 %t, tile; mov.u32 %b, full;
 setp.eq.u32 %first, %i, 0; @%first mbarrier.init.shared.b64 [%b], 1; bar.sync 0; mov.u32 %n, 0; mov.u32 %x, 0;
 shl.b32 %at, %i, 2; add.u32 %at, %at, %t;
L: and.b32 %phase, %n, 1; @!%first bra W;
 mbarrier.arrive.expect_tx.shared.b64 %state, [%b], 512;
 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%t], [%in], 512, [%b]; add.u64 %in, %in, 512;
W: mbarrier.try_wait.parity.shared.b64 %done, [%b], %phase; @!%done bra W;
 ld.shared.u32 %phase, [%at]; mad.lo.u32 %x, %x, 31, %phase; bar.sync 0;
 add.u32 %n, %n, 1; setp.lt.u32 %again, %n, 6; @%again bra L;
 mul.wide.u32 %w, %i, 4; add.u64 %out, %out, %w; st.global.u32 [%out], %x; ret; }}"""


def test_kernels_that_wait_for_bulk_copies_are_compiled_around_their_waits() -> None:
    given = np.random.default_rng(0).integers(0, 1 << 32, (6, 128), np.uint64).astype(np.uint32)
    (_, interpreted), (kernel, compiled) = _by_both(PIPELINE, 128, (given, np.zeros(128, np.uint32)))
    expected = np.zeros(128, np.uint32)
    for row in given:
        expected = expected * np.uint32(31) + row
    assert (interpreted == expected).all() and (compiled == expected).all()
    (native,) = kernel.program.entry.native.values()
    assert native is not None and {name.partition(".")[0] for name in native.facts.why_not} <= {
        "mbarrier", "cp"
    }  # fmt: skip


@pytest.mark.parametrize("loop", ["@!%done bra W;", "@!%done bra.uni M; bra.uni E; M: bra.uni W; E:"])
def test_a_wait_that_nobody_ends_is_told_as_the_interpreter_tells_it(loop: str) -> None:
    more = "expect_tx.shared.b64 %state, [%b], 528"  # than is copied
    text = PIPELINE.replace("@!%done bra W;", loop).replace(more.replace("528", "512"), more)
    given = np.zeros((6, 128), np.uint32)
    faults = [fault for _, fault in _by_both(text, 128, (given, np.zeros(128, np.uint32)))]
    assert "waits" in str(faults[0]) or "phase" in str(faults[0])
    assert str(faults[0]) == str(faults[1]) and not isinstance(faults[1], StepLimit)
