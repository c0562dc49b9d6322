"""Global wave sync: workgroups of a dispatch wait for each other, as cooperative launches do."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.amd.shader.errors import OutOfBudget
from hcq.emu.shader.checks import Checks
from tests.hcq.emu.amd.shader.test_machine import load, u32

# each workgroup's first work-item stores its number, all wait, and then it reads what the next workgroup stored
KERNELS = """
declare void @llvm.amdgcn.ds.gws.init(i32, i32)
declare void @llvm.amdgcn.ds.gws.barrier(i32, i32)

define amdgpu_kernel void @init(i32 %waves) {
  call void @llvm.amdgcn.ds.gws.init(i32 %waves, i32 0)
  ret void
}

define amdgpu_kernel void @ring(ptr addrspace(1) %out, ptr addrspace(1) %held, i32 %groups) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = icmp eq i32 %t, 0
  br i1 %first, label %one, label %end
one:
  %own = getelementptr i32, ptr addrspace(1) %held, i32 %g
  %mark = add i32 %g, 100
  store i32 %mark, ptr addrspace(1) %own
  %last = sub i32 %groups, 1
  call void @llvm.amdgcn.ds.gws.barrier(i32 %last, i32 0)
  %after = add i32 %g, 1
  %next = urem i32 %after, %groups
  %there = getelementptr i32, ptr addrspace(1) %held, i32 %next
  %seen = load volatile i32, ptr addrspace(1) %there
  call void @llvm.amdgcn.ds.gws.barrier(i32 %last, i32 0)
  store i32 0, ptr addrspace(1) %own
  %place = getelementptr i32, ptr addrspace(1) %out, i32 %g
  store i32 %seen, ptr addrspace(1) %place
  br label %end
end:
  ret void
}
"""


@pytest.mark.parametrize("arch", ["gfx1100", "gfx90a", "gfx942"])
def test_workgroups_wait_for_each_other_however_many_there_are(arch: str) -> None:
    groups = 33  # of 512: more than otherwise run at once
    out, held = u32(groups), u32(groups)
    loaded = load(arch, KERNELS)
    loaded.run("init", [np.uint32(groups - 1)], block=(64, 1, 1))
    for _ in range(2):  # the counter stands again where it stood
        loaded.run("ring", [out, held, np.uint32(groups)], (groups, 1, 1), (512, 1, 1), is_cooperative=True)
        assert out.tolist() == [100 + (g + 1) % groups for g in range(groups)]
        assert not held.any()
        out[:] = 0


def test_a_workgroup_that_never_comes_is_waited_for() -> None:
    loaded = load("gfx1100", KERNELS)
    loaded.run("init", [np.uint32(2)], block=(64, 1, 1))  # of three
    with pytest.raises(OutOfBudget, match="ds_gws_barrier"):
        loaded.run("ring", [u32(2), u32(2), np.uint32(2)], (2, 1, 1), (64, 1, 1), budget=10_000)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx90a", "gfx942"])
@pytest.mark.parametrize("fences", [("release", "acquire"), ("", "acquire"), ("release", "")])
def test_with_fences_the_barrier_orders_what_workgroups_do_around_it(
    arch: str, fences: tuple[str, str]
) -> None:
    release, acquire = (f'fence syncscope("agent") {one}' if one else "" for one in fences)
    barrier = "call void @llvm.amdgcn.ds.gws.barrier(i32 %last, i32 0)"
    text = KERNELS.replace("load volatile", "load").replace(barrier, f"{release}\n  {barrier}\n  {acquire}")
    loaded, groups, checks = load(arch, text), 5, Checks(frozenset({"race"}))
    loaded.run("init", [np.uint32(groups - 1)], block=(64, 1, 1))
    arguments = [u32(groups), u32(groups), np.uint32(groups)]
    loaded.run("ring", arguments, (groups, 1, 1), (64, 1, 1), is_cooperative=True, checks=checks)
    assert {one.rule for one in checks.found.values()} == (set() if all(fences) else {"global-race"})


@pytest.mark.parametrize(("groups", "found"), [(8, set()), (700, {"grid-not-resident"})])
def test_more_workgroups_than_a_real_gpu_holds_are_found_where_they_wait_for_each_other(
    groups: int, found: set[str]
) -> None:
    loaded, checks = load("gfx90a", KERNELS), Checks(frozenset({"sync"}))
    loaded.run("init", [np.uint32(groups - 1)], block=(64, 1, 1))
    arguments = [u32(groups), u32(groups), np.uint32(groups)]
    loaded.run("ring", arguments, (groups, 1, 1), (512, 1, 1), is_cooperative=True, checks=checks)
    assert {one.rule for one in checks.found.values()} == found
