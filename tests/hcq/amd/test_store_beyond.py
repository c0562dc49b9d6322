"""Stores behind the end of a buffer are told of by an emulated GPU; correct work says nothing."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from hcq.amd.device import AmdDevice
from hcq.observe.validator import Validator
from tests.hcq.amd.kernels import compile_ir, image

Open = Callable[..., AmdDevice]
pytestmark = pytest.mark.fires_rules
ADD = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @add(ptr addrspace(1) %out) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %t
  %old = atomicrmw add ptr addrspace(1) %p, i32 6 syncscope("agent") monotonic
  ret void
}
"""


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_a_store_behind_a_buffer_names_it_the_kernel_and_the_instruction(open_amd: Open, arch: str) -> None:
    amd = open_amd(arch)
    before = len(Validator.warnings)
    amd.run(amd.load(image(arch), "increment"), [amd.alloc(36, f"short {arch}")], block=(64, 1, 1))
    (found,) = Validator.warnings[before:]
    assert found.rule == "store-beyond-buffer"
    assert found.buffer == f"short {arch}"
    assert found.kernel.startswith("increment at 0x")
    assert f"stores 4 bytes at short {arch}+36, which has 36 bytes, and 6 more there" in found.what
    assert "_store_" in found.what


def test_an_atomic_counts_as_a_store(open_amd: Open) -> None:
    amd = open_amd("gfx1100")
    before = len(Validator.warnings)
    out = amd.alloc(200, "counters")
    out.write(bytes(200))
    add = amd.load(compile_ir(ADD, "gfx1100"), "add")
    amd.run(add, [out], block=(50, 1, 1))
    assert len(Validator.warnings) == before
    amd.run(add, [out], block=(51, 1, 1))
    (found,) = Validator.warnings[before:]
    assert "atomic_add" in found.what
    assert found.buffer == "counters"
    assert struct.unpack("<50I", out.read()) == (12,) * 50


def test_work_in_flight_keeps_the_memory_that_it_was_given(open_amd: Open) -> None:
    """A buffer that is dropped while a launch still stores to it: a smaller one may have its memory by then.

    Seed 2 hands out such memory while launches wait.
    """
    amd, draw = open_amd("gfx1100"), random.Random(2)
    increment = amd.load(image("gfx1100"), "increment")
    before, again = len(Validator.warnings), 0
    for _ in range(40):
        first = amd.alloc(256)
        at = first.address
        queue = amd.queue()
        for _ in range(draw.randrange(1, 4)):
            queue.dispatch(increment, [first], block=(64, 1, 1))
        done = queue.submit()
        del queue, first
        second = amd.alloc(draw.choice([196, 200, 252]))
        again += second.address == at
        done.wait()
        del second
    assert again > 10
    assert len(Validator.warnings) == before
