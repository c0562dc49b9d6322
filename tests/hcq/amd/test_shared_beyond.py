"""LDS beyond what a launch has: reads give 0, stores are dropped, and validation says which instruction it was."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from hcq.amd.device import AmdDevice
from hcq.observe.validator import Validator
from tests.hcq.amd.kernels import compile_ir

Open = Callable[..., AmdDevice]
pytestmark = pytest.mark.fires_rules

TYPES = ("i8", "i16", "i32", "i64", "<3 x i32>", "<4 x i32>")
ATOMICS = ("add", "sub", "xchg", "umax", "umin", "and", "or", "xor")
HEAD = """
target triple = "amdgcn-amd-amdhsa"
@shared = external addrspace(3) global [0 x i8], align 16
declare i32 @llvm.amdgcn.workitem.id.x()
"""


def access(kind: str) -> str:
    """A kernel whose lanes each store, load or change a value, 16 bytes apart, and say what they found."""
    text = (
        HEAD
        + """
define amdgpu_kernel void @k(ptr addrspace(1) %out) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %at = mul i32 %t, 16
  %flat = addrspacecast ptr addrspace(3) @shared to ptr
  %f = getelementptr i8, ptr %flat, i32 %at
  %p = getelementptr i8, ptr addrspace(3) @shared, i32 %at
"""
    )
    if kind.startswith(("flat ", "lds ")):
        space, operation = kind.split()
        pointer = "ptr %f" if space == "flat" else "ptr addrspace(3) %p"
        text += f"  store volatile i32 5, {pointer}\n"
        text += f'  %old = atomicrmw {operation} {pointer}, i32 6 syncscope("workgroup") monotonic\n'
        text += f"  %v = load volatile i32, {pointer}\n  %z = add i32 %old, %v\n"
    else:
        text += (
            f"  store volatile {kind} splat (i32 -1), ptr addrspace(3) %p\n"
            if "<" in kind
            else (f"  store volatile {kind} -1, ptr addrspace(3) %p\n")
        )
        text += f"  %v = load volatile {kind}, ptr addrspace(3) %p\n"
        if "<" in kind:
            text += f"  %z = extractelement {kind} %v, i32 2\n"
        else:
            text += (
                f"  %z = {'trunc' if kind == 'i64' else 'zext'} {kind} %v to i32\n"
                if kind != "i32"
                else ("  %z = add i32 %v, 0\n")
            )
    return (
        text
        + """
  %g = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %z, ptr addrspace(1) %g
  ret void
}
"""
    )


EXPECTED = {"add": (5, 11), "sub": (5, 0xFFFFFFFF), "xchg": (5, 6), "umax": (5, 6), "umin": (5, 5), "and": (5, 4),
            "or": (5, 7), "xor": (5, 3)}  # fmt: skip


def expected_of(kind: str) -> int:
    if " " in kind and "<" not in kind:
        return sum(EXPECTED[kind.split()[1]]) & 0xFFFFFFFF
    return {"i8": 0xFF, "i16": 0xFFFF}.get(kind, 0xFFFFFFFF)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.parametrize(
    "kind", [*TYPES, *(f"lds {one}" for one in ATOMICS), "flat add", "flat xchg", "flat umax"]
)
def test_beyond_the_end_reads_give_zero_and_stores_are_dropped(open_amd: Open, arch: str, kind: str) -> None:
    """A workgroup's neighbours have theirs behind its own: nothing may end up there."""
    amd = open_amd(arch, queue="aql")
    program = amd.load(compile_ir(access(kind), arch), "k")
    out = amd.alloc(4 * 64)
    for inside in (0, 1, 17, 64):
        program.dynamic_shared_bytes = 16 * inside  # type: ignore[attr-defined]
        out.write(b"\xaa" * 256)
        before = len(Validator.warnings)
        amd.run(program, [out], grid=(3, 1, 1), block=(64, 1, 1))
        found = np.frombuffer(out.read(), np.uint32)
        assert found.tolist() == [expected_of(kind)] * inside + [0] * (64 - inside)
        rules = {finding.rule for finding in Validator.warnings[before:]}
        assert rules <= ({"shared-beyond"} if inside < 64 else set())


def test_a_finding_names_the_kernel_the_instruction_and_the_first_thread(open_amd: Open) -> None:
    amd = open_amd("gfx1100", queue="aql")
    program = amd.load(compile_ir(access("i32"), "gfx1100"), "k", name="goes too far")
    program.dynamic_shared_bytes = 16 * 40  # type: ignore[attr-defined]
    before = len(Validator.warnings)
    for _ in range(2):  # said once
        amd.run(program, [amd.alloc(256)], grid=(2, 1, 1), block=(64, 1, 1))
    stored, read = Validator.warnings[before:]
    assert stored.kernel.startswith("goes too far at 0x")
    assert "ds_store_b32" in stored.what
    assert "ds_load_b32" in read.what
    assert (
        "bytes 640 to 643 of 640 of shared memory, in workgroup (0, 0, 0), work-item (40, 0, 0), and 47 more"
        in stored.what
    )
    assert "program.dynamic_shared_bytes" in str(stored)


def test_flat_atomics_reach_the_shared_memory_of_their_own_workgroup(open_amd: Open) -> None:
    text = (
        HEAD
        + """
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
define amdgpu_kernel void @k(ptr addrspace(1) %out) {
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %flat = addrspacecast ptr addrspace(3) @shared to ptr
  store volatile i32 %g, ptr %flat
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %old = atomicrmw add ptr %flat, i32 1 syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %v = load volatile i32, ptr %flat
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %g
  store i32 %v, ptr addrspace(1) %p
  ret void
}
"""
    )
    for arch in ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"):
        amd = open_amd(arch)
        program = amd.load(compile_ir(text, arch), "k")
        program.dynamic_shared_bytes = 64  # type: ignore[attr-defined]
        out = amd.alloc(16)
        amd.run(program, [out], grid=(4, 1, 1), block=(32, 1, 1))
        assert struct.unpack("<4I", out.read()) == (32, 33, 34, 35)
