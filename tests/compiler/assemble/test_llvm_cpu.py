"""LLVM for the host: what it leaves out for AVX-512 alone stays in what is made for GPUs."""

from __future__ import annotations

import platform
from dataclasses import replace

import pytest

from hcq.compiler.assemble import llvm_cpu
from hcq.compiler.pipeline import build
from hcq.compiler.target import amd_target, cpu_target
from tests.compiler.building import kernel, out, param, reduce


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="strength reduction is left out with AVX-512 alone"
)
def test_kernels_of_gpus_are_the_same_after_kernels_of_the_cpu() -> None:
    total = reduce(param(1, (64, 4096)), (1,))
    sums = kernel((out(0, (64, 1)), total))
    gpu, cpu = amd_target("gfx1100"), replace(cpu_target(), vector_bits=512, cpu="x86-64-v4", key="wide")
    before = build(sums, gpu, "").image
    build(sums, cpu)
    assert build(sums, gpu, "").image == before
    with llvm_cpu._without_strength_reduction(cpu):  # were it left out there as well, they would be others
        assert build(sums, gpu, "").image != before
    with pytest.raises(llvm_cpu.AssembleError):
        llvm_cpu.assemble("nonsense", cpu, "nonsense")
    assert build(sums, gpu, "").image == before
