"""How fast lanes run: an endless supply of fused multiply-adds over 64 waves, on one core."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.hcq.emu.amd.kernels import ISAS, Loaded

# 64 trips of 16 multiply-adds on four chains, as a matrix product's inner loop has them
CHAINS, STEPS, TRIPS = 4, 4, 64
FLOOR = 20e6  # lane-instructions a second


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


def measure(arch: str, waves: int = 64) -> float:
    """Lane-instructions a second, the best of three runs."""
    loaded = Loaded(fma_loop(), arch)
    lanes = 64 if arch.startswith("gfx9") else 32
    items = waves * lanes
    x = np.random.default_rng(0).random(items, np.float32)
    out = np.zeros_like(x)
    best = 0.0
    for _ in range(3):
        start = time.perf_counter()
        loaded.run("fma", [out, x, np.uint32(TRIPS)], grid=(items // 64, 1, 1), block=(64, 1, 1))
        best = max(best, loaded.report.lane_instructions / (time.perf_counter() - start))
    assert loaded.report.waves == waves
    return best


@pytest.mark.slow
@pytest.mark.parametrize("arch", ISAS)
def test_an_fma_loop_over_64_waves_runs_twenty_million_lane_instructions_a_second(arch: str) -> None:
    rate = measure(arch)
    print(f"\n{arch}: {rate / 1e6:.0f} million lane-instructions a second")
    assert rate >= FLOOR
