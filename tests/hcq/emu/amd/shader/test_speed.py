"""How fast lanes are interpreted: an endless supply of fused multiply-adds over 64 waves, on one core."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from hcq import config
from tests.hcq.emu.amd.shader.kernels import ISAS, Loaded

# 64 trips of 16 multiply-adds on four chains, as a matrix product's inner loop has them
CHAINS, STEPS, TRIPS = 4, 4, 64
MOST_CALLS = 30  # of an instruction


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    """Nothing is compiled meanwhile."""
    before = config.current()
    config.use(dataclasses.replace(before, emu_compiled="0"))
    yield
    config.use(before)


def fma_loop() -> str:
    lines = []
    for step in range(STEPS):
        for chain in range(CHAINS):
            old = f"%c{chain}_{step}" if step else f"%p{chain}"
            lines.append(
                f"  %c{chain}_{step + 1} = call float @llvm.fma.f32(float {old}, float %x, float %y)"
            )
    phis = [
        f"  %p{chain} = phi float [ %x, %entry ], [ %c{chain}_{STEPS}, %loop ]" for chain in range(CHAINS)
    ]
    sums = [f"  %s1 = fadd float %c0_{STEPS}, %c1_{STEPS}", f"  %s2 = fadd float %c2_{STEPS}, %c3_{STEPS}"]
    return "\n".join(
        [
            "declare i32 @llvm.amdgcn.workitem.id.x()",
            "declare i32 @llvm.amdgcn.workgroup.id.x()",
            "declare float @llvm.fma.f32(float, float, float)",
            "define amdgpu_kernel void @fma(ptr addrspace(1) %out, ptr addrspace(1) %in, i32 %trips) {",
            "entry:",
            "  %t = call i32 @llvm.amdgcn.workitem.id.x()",
            "  %g = call i32 @llvm.amdgcn.workgroup.id.x()",
            "  %m = mul i32 %g, 64",
            "  %n = add i32 %m, %t",
            "  %gid = zext i32 %n to i64",
            "  %xp = getelementptr float, ptr addrspace(1) %in, i64 %gid",
            "  %x = load float, ptr addrspace(1) %xp",
            "  %y = fmul float %x, 0.5",
            "  br label %loop",
            "loop:",
            "  %i = phi i32 [ 0, %entry ], [ %j, %loop ]",
            *phis,
            *lines,
            "  %j = add i32 %i, 1",
            "  %more = icmp ult i32 %j, %trips",
            "  br i1 %more, label %loop, label %end",
            "end:",
            *sums,
            "  %s = fadd float %s1, %s2",
            "  %op = getelementptr float, ptr addrspace(1) %out, i64 %gid",
            "  store float %s, ptr addrspace(1) %op",
            "  ret void",
            "}",
        ]
    )


def calls(loaded: Loaded, waves: int, trips: int) -> tuple[int, int]:
    """How many functions of Python and NumPy a run calls, and how many instructions each lane executes."""
    items = waves * 64
    x, out = np.zeros(items, np.float32), np.zeros(items, np.float32)
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        loaded.run("fma", [out, x, np.uint32(trips)], grid=(waves, 1, 1), block=(64, 1, 1))
    finally:
        sys.setprofile(None)
    return counted, loaded.report.lane_instructions // items


@pytest.mark.parametrize("arch", ISAS)
def test_an_instruction_costs_the_same_for_all_lanes_together(arch: str) -> None:
    """A speed that no busy machine changes: Python does the same for 32 blocks as for 64, and little for each."""
    loaded = Loaded(fma_loop(), arch)
    calls(loaded, 32, TRIPS)  # makes what the first run makes for all
    few, instructions = calls(loaded, 32, TRIPS)
    many, _ = calls(loaded, 64, TRIPS)
    longer, more = calls(loaded, 32, 2 * TRIPS)
    assert many <= 1.1 * few
    assert longer - few <= MOST_CALLS * (more - instructions)
