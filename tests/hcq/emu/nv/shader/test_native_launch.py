"""Launches like those before leave what the first of them would have left, and stop where it would have stopped.

In       kernels that are launched again, with other parameters and in other memory
Out      results, counts and faults that are alike
Changes  nothing outside of its own arrays
Next     hcq/emu/nv/shader/native_launch.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hcq import config
from hcq.emu.compiled import assemble
from hcq.emu.nv.shader.errors import Interrupted, PageFault, StepLimit
from hcq.emu.nv.shader.native_launch import MOST_KEPT, Kept
from hcq.emu.nv.shader.run import Kernel, Report
from hcq.events.waves import Running
from tests.hcq.emu.nv.shader.running import HEADER, Launch

pytestmark = pytest.mark.skipif(assemble.tools() is None, reason="needs LLVM: pip install 'hcq[tensor]'")

# a thread takes what its opposite has put into shared memory, which is zero before, `count` times
SWAPS = f"""{HEADER}.visible .entry k(.param .u64 out, .param .u32 count) {{
 .reg .b32 %r<12>; .reg .b64 %d<4>; .reg .pred %p<4>; .shared .align 4 .b8 tile[256];
 ld.param.u64 %d0, [out]; ld.param.u32 %r1, [count];
 mov.u32 %r0, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r0;
 mul.wide.u32 %d1, %r4, 4; add.u64 %d1, %d0, %d1; mov.u32 %r8, tile; shl.b32 %r9, %r0, 2; add.u32 %r9, %r8, %r9;
 sub.u32 %r10, 63, %r0; shl.b32 %r10, %r10, 2; add.u32 %r10, %r8, %r10; ld.shared.u32 %r6, [%r9]; mov.u32 %r5, 0;
L: add.u32 %r6, %r6, %r4; st.shared.u32 [%r9], %r6; bar.sync 0; ld.shared.u32 %r7, [%r10]; bar.sync 0;
 mad.lo.u32 %r6, %r7, 3, %r6; add.u32 %r5, %r5, 1; setp.ne.u32 %p0, %r5, %r1; @%p0 bra L;
 st.global.u32 [%d1], %r6; ret;
}}
"""


@pytest.fixture(autouse=True)
def always() -> Iterator[None]:
    """Kernels are compiled from the first launch on."""
    before = config.current()
    config.use(dataclasses.replace(before, emu_compiled="always"))
    yield
    config.use(before)


def swaps(kernel: Kernel, count: int, size: int = 256, blocks: int = 4, **options: Any) -> tuple[Any, Report]:
    """What a launch leaves in memory of its own, and its report."""
    out = np.zeros(size, np.uint32)
    return out, Launch().run(kernel, blocks, 64, out, count, **options)


def interpreted(count: int, **options: Any) -> tuple[Any, Report]:
    """The same by the interpreter."""
    before = config.current()
    config.use(dataclasses.replace(before, emu_compiled="0"))
    try:
        return swaps(Launch().load(SWAPS, "k"), count, **options)
    finally:
        config.use(before)


def test_launches_with_other_parameters_in_other_memory_leave_what_the_interpreter_leaves() -> None:
    kernel = Launch().load(SWAPS, "k")
    for count in (3, 5, 1, 5):
        assert (swaps(kernel, count)[0] == interpreted(count)[0]).all()


def test_a_batch_is_used_again_for_the_same_shape_alone() -> None:
    kernel = Launch().load(SWAPS, "k")
    for blocks in (4, 2, 4, 1):
        found, report = swaps(kernel, 2, blocks=blocks)
        assert report.blocks == blocks
        assert (found == interpreted(2, blocks=blocks)[0]).all()
    assert len(_found(kernel.kept)) == 3


def test_all_batches_of_a_launch_leave_what_the_interpreter_leaves() -> None:
    kernel, size = Launch().load(SWAPS, "k"), 64 * 300  # more than one batch, the last of which is smaller
    wanted, _ = interpreted(2, blocks=300, size=size)
    for _ in range(2):
        found, report = swaps(kernel, 2, blocks=300, size=size)
        assert report.batches == 2
        assert (found == wanted).all()
    with pytest.raises(PageFault, match=r"block \(2[0-9][0-9], 0, 0\)"):
        swaps(kernel, 2, blocks=300, size=size - 64)


def test_only_some_batches_are_kept_and_none_of_them_keeps_memory() -> None:
    kernel = Launch().load(SWAPS, "k")
    for blocks in range(1, MOST_KEPT + 3):
        swaps(kernel, 1, blocks=blocks, size=64 * blocks)
    kept = _found(kernel.kept)
    assert len(kept) == MOST_KEPT
    assert all(one.machine.batch.memory is None and one.native.memory is None for one in kept)


def test_a_fault_in_a_later_launch_is_that_of_the_first() -> None:
    texts = []
    for before in (0, 2):
        kernel = Launch().load(SWAPS, "k")
        for _ in range(before):
            swaps(kernel, 1)
        with pytest.raises(PageFault) as info:
            swaps(kernel, 1, size=100)
        assert info.value.waves
        texts.append((str(info.value), info.value.line, [wave.instruction for wave in info.value.waves]))
    assert texts[0] == texts[1]


def test_a_launch_after_a_fault_leaves_what_it_would_have_left() -> None:
    kernel = Launch().load(SWAPS, "k")
    swaps(kernel, 1)
    with pytest.raises(PageFault):
        swaps(kernel, 1, size=100)
    assert (swaps(kernel, 2)[0] == interpreted(2)[0]).all()


def test_an_endless_later_launch_is_stopped_by_its_limit_and_by_who_waits() -> None:
    kernel = Launch().load(SWAPS, "k")
    swaps(kernel, 1)
    with pytest.raises(StepLimit):
        swaps(kernel, 0, step_limit=5000)
    with pytest.raises(Interrupted):
        swaps(kernel, 0, interrupted=lambda: True)


def test_the_limit_is_that_of_all_batches_together() -> None:
    kernel = Launch().load(SWAPS, "k")
    with pytest.raises(StepLimit, match="20 instructions were not enough"):
        swaps(kernel, 2, blocks=64 * 300, size=64 * 64 * 300, step_limit=20)


def test_who_asks_where_warps_are_is_answered_by_the_next_batch() -> None:
    kernel, running = Launch().load(SWAPS, "k"), Running(0, 0, "k")

    def interrupted() -> bool:
        running.is_asked = running.is_asked or not running.waves
        return False

    swaps(kernel, 1, blocks=600, size=64 * 600, running=running, interrupted=interrupted)
    assert running.waves and not running.is_asked


def test_what_is_switched_off_is_interpreted_also_for_a_kernel_that_was_compiled() -> None:
    kernel = Launch().load(SWAPS, "k")
    first, report = swaps(kernel, 3)
    config.use(dataclasses.replace(config.current(), emu_compiled="0"))
    again, steps = swaps(kernel, 3)
    assert (first == again).all()
    assert steps.steps > report.steps  # each instruction counts there


def _found(kept: Kept) -> list[Any]:
    return list(kept._found.values())
