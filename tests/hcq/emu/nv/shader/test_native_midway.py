"""A kernel that becomes machine code while it runs, wherever its threads are, leaves the interpreter's bits."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from hcq import config
from hcq.emu.nv.shader.run import Kernel
from tests.hcq.emu.nv.shader import random_copies, random_ptx
from tests.hcq.emu.nv.shader.midway import midway
from tests.hcq.emu.nv.shader.running import Launch
from tests.hcq.emu.nv.shader.test_native import LOOP, Ran, kernel

# threads of a block add into shared memory, and meet at a barrier in each round; those of a warp part before it
ROUNDS = """.shared .align 4 .b8 tile[256]; mov.u32 %r5, 0; mov.u32 %r6, 0; shl.b32 %r9, %r0, 2; mov.u32 %r10, tile;
 add.u32 %r9, %r9, %r10; xor.b32 %r11, %r9, 4;
L: and.b32 %r7, %r0, 3; setp.gt.u32 %p1, %r7, %r5; @%p1 bra SKIP; mad.lo.u32 %r6, %r6, 3, %r0;
SKIP: add.u32 %r6, %r6, 1; st.shared.u32 [%r9], %r6; bar.sync 0; ld.shared.u32 %r8, [%r11]; bar.sync 0;
 add.u32 %r6, %r6, %r8; add.u32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, %r1; @%p0 bra L;
 cvt.rn.f32.u32 %f1, %r6; st.global.f32 [%d4], %f1; ret;"""


@pytest.mark.parametrize("seed", range(12))
def test_threads_that_have_parted_go_on_as_machine_code(seed: int) -> None:
    text, results = random_ptx.branches(seed)
    expected = random_ptx.run(text, seed, "0", len(results))
    for instructions in random.Random(seed).sample(range(1, 300), 4):
        with midway(instructions):
            found = random_ptx.run(text, seed, "1", len(results))
        assert not random_ptx.differences(expected, found, results, set()), instructions


@pytest.mark.parametrize("instructions", [2, 9, 17, 18, 23, 40, 90])
def test_threads_that_wait_at_a_barrier_are_met_by_those_that_go_on(instructions: int) -> None:
    before = config.current()
    config.use(dataclasses.replace(before, emu_compiled="0"))
    expected = Ran(ROUNDS, count=8)
    config.use(before)
    with midway(instructions):
        found = Ran(ROUNDS, count=8)
    assert found.is_compiled and not expected.is_compiled
    assert (found.out == expected.out).all()


def test_a_loop_that_takes_long_is_compiled_within_its_only_launch() -> None:
    before = config.current()
    launch, out = Launch(), np.zeros(128, np.uint32)
    one: Kernel = launch.load(kernel(LOOP), "k")
    numbers = np.linspace(-1, 1, 128, dtype=np.float32)
    try:
        config.use(dataclasses.replace(before, emu_compiled="1"))
        for count, is_compiled in ((5, False), (200_000, True)):
            launch.run(one, 2, 64, numbers, out, np.uint32(count).tobytes())
            assert any(one.program.entry.native.values()) == is_compiled
    finally:
        config.use(before)


@pytest.mark.parametrize("make", [random_copies.product, random_copies.copies])
@pytest.mark.parametrize("seed", range(4))
def test_copies_that_are_under_way_are_waited_for(make: object, seed: int) -> None:
    one = make(seed)  # type: ignore[operator]
    expected = random_copies.run(one, "0")
    for instructions in (3, 8, 15, 30):
        with midway(instructions):
            launch, arrays = Launch(), [array.copy() for array in one.arrays]
            launch.run(launch.load(one.text, "k"), 1, random_copies.THREADS, *arrays)
        assert not random_copies.differ(one, expected.out, arrays[-1])
