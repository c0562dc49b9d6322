"""Whole kernels, compiled by LLVM: workgroups, LDS, barriers, atomics, scratch, calls, divergence, and faults."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from hcq.emu.amd.shader import program
from hcq.emu.amd.shader.errors import IllegalOperation, OutOfBudget, PageFault, ShaderFault
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.amd.shader.run import ShaderCore, run_dispatch
from hcq.emu.amd.shader.wave_start import Launch
from hcq.errors import UsageError
from tests.hcq.emu.amd.shader.assembler import assemble
from tests.hcq.emu.amd.shader.bench import GFX9, ISAS
from tests.hcq.emu.amd.shader.kernels import Loaded

ARCHES = [
    "gfx1030",
    "gfx1030-wave64",
    "gfx1100",
    "gfx1201",
    "gfx90a",
    "gfx942",
    "gfx1100-wave64",
    "gfx1201-wave64",
]

HEAD = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workitem.id.y()
declare i32 @llvm.amdgcn.workitem.id.z()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare i32 @llvm.amdgcn.workgroup.id.z()
declare void @llvm.amdgcn.s.barrier()
declare void @llvm.trap()
"""
IDS = """
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = mul i32 %g, {block}
  %n = add i32 %base, %t
  %i = zext i32 %n to i64
"""


def load(arch: str, ir: str, block: int = 64) -> Loaded:
    features = "+wavefrontsize64" if arch.endswith("wave64") else ""
    return Loaded(HEAD + ir.replace("IDS", IDS.format(block=block)), arch.split("-")[0], features)


def u32(count: int) -> np.ndarray[Any, Any]:
    return np.zeros(count, np.uint32)


REVERSE = """
@tile = internal addrspace(3) global [256 x i32] poison
define amdgpu_kernel void @reverse(ptr addrspace(1) %out, ptr addrspace(1) %in) {
IDS
  %p = getelementptr i32, ptr addrspace(1) %in, i64 %i
  %x = load i32, ptr addrspace(1) %p
  %s = getelementptr [256 x i32], ptr addrspace(3) @tile, i32 0, i32 %t
  store i32 %x, ptr addrspace(3) %s
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %r = sub i32 255, %t
  %l = getelementptr [256 x i32], ptr addrspace(3) @tile, i32 0, i32 %r
  %y = load i32, ptr addrspace(3) %l
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %y, ptr addrspace(1) %q
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_a_workgroup_reverses_its_numbers_through_lds(arch: str) -> None:
    x = np.arange(256 * 3, dtype=np.uint32)
    out = u32(len(x))
    load(arch, REVERSE, 256).run("reverse", [out, x], grid=(3, 1, 1), block=(256, 1, 1))
    assert (out == x.reshape(3, 256)[:, ::-1].reshape(-1)).all()


# half of the waves of a group take a long way to the first barrier, then the others to the second
UNEVEN = """
@sum = internal addrspace(3) global [64 x i32] poison
define amdgpu_kernel void @uneven(ptr addrspace(1) %out, i32 %rounds) {
entry:
IDS
  %wave = lshr i32 %t, 6
  %odd = and i32 %wave, 1
  br label %round
round:
  %r = phi i32 [ 0, %entry ], [ %r1, %meet ]
  %total = phi i32 [ 0, %entry ], [ %total1, %meet ]
  %turn = and i32 %r, 1
  %slow = icmp eq i32 %turn, %odd
  br i1 %slow, label %work, label %meet0
work:
  %k = phi i32 [ 0, %round ], [ %k1, %work ]
  %k1 = add i32 %k, 1
  %again = icmp ult i32 %k1, %rounds
  br i1 %again, label %work, label %meet0
meet0:
  %cost = phi i32 [ 0, %round ], [ %k1, %work ]
  %mine = getelementptr [64 x i32], ptr addrspace(3) @sum, i32 0, i32 %wave
  store i32 %cost, ptr addrspace(3) %mine
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %other = xor i32 %wave, 1
  %theirs = getelementptr [64 x i32], ptr addrspace(3) @sum, i32 0, i32 %other
  %v = load i32, ptr addrspace(3) %theirs
  %total1 = add i32 %total, %v
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  br label %meet
meet:
  %r1 = add i32 %r, 1
  %more = icmp ult i32 %r1, 6
  br i1 %more, label %round, label %end
end:
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %total1, ptr addrspace(1) %q
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_waves_that_come_late_to_a_barrier_are_waited_for(arch: str) -> None:
    out = u32(256 * 4)
    load(arch, UNEVEN, 256).run("uneven", [out, np.uint32(5)], grid=(4, 1, 1), block=(256, 1, 1))
    assert (out == 15).all()


COLLATZ = """
define amdgpu_kernel void @collatz(ptr addrspace(1) %out, ptr addrspace(1) %in) {
entry:
IDS
  %p = getelementptr i32, ptr addrspace(1) %in, i64 %i
  %x0 = load i32, ptr addrspace(1) %p
  br label %loop
loop:
  %x = phi i32 [ %x0, %entry ], [ %x1, %next ]
  %c = phi i32 [ 0, %entry ], [ %c1, %next ]
  %one = icmp ule i32 %x, 1
  br i1 %one, label %end, label %step
step:
  %bit = and i32 %x, 1
  %odd = icmp eq i32 %bit, 1
  br i1 %odd, label %up, label %down
up:
  %m = mul i32 %x, 3
  %u = add i32 %m, 1
  br label %next
down:
  %h = lshr i32 %x, 1
  br label %next
next:
  %x1 = phi i32 [ %u, %up ], [ %h, %down ]
  %c1 = add i32 %c, 1
  br label %loop
end:
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %c, ptr addrspace(1) %q
  ret void
}
"""


def collatz(x: int) -> int:
    count = 0
    while x > 1:
        x, count = (3 * x + 1 if x & 1 else x >> 1), count + 1
    return count


@pytest.mark.parametrize("arch", ARCHES)
def test_every_lane_leaves_a_loop_when_its_own_condition_says(arch: str) -> None:
    x = np.arange(1, 513, dtype=np.uint32)
    out = u32(512)
    load(arch, COLLATZ).run("collatz", [out, x], grid=(8, 1, 1))
    assert out.tolist() == [collatz(n) for n in x.tolist()]


ATOMICS = """
define amdgpu_kernel void @atomics(ptr addrspace(1) %c, ptr addrspace(1) %old, ptr addrspace(1) %f) {
IDS
  %a = atomicrmw add ptr addrspace(1) %c, i32 3 syncscope("agent") monotonic
  %q = getelementptr i32, ptr addrspace(1) %old, i64 %i
  store i32 %a, ptr addrspace(1) %q
  %c1 = getelementptr i32, ptr addrspace(1) %c, i64 1
  %b = atomicrmw umax ptr addrspace(1) %c1, i32 %n syncscope("agent") monotonic
  %c2 = getelementptr i32, ptr addrspace(1) %c, i64 2
  %x = atomicrmw xor ptr addrspace(1) %c2, i32 %n syncscope("agent") monotonic
  %c3 = getelementptr i32, ptr addrspace(1) %c, i64 4
  %n64 = zext i32 %n to i64
  %d = atomicrmw add ptr addrspace(1) %c3, i64 %n64 syncscope("agent") monotonic
  %slot = and i64 %i, 3
  %fp = getelementptr float, ptr addrspace(1) %f, i64 %slot
  %e = atomicrmw fadd ptr addrspace(1) %fp, float 0.5 syncscope("agent") monotonic
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_atomics_act_one_after_another(arch: str) -> None:
    count, old, floats = u32(8), u32(256), np.zeros(4, np.float32)
    load(arch, ATOMICS).run("atomics", [count, old, floats], grid=(4, 1, 1))
    assert count[0] == 3 * 256 and sorted(old) == list(range(0, 768, 3))
    assert (count[1], count[2]) == (255, np.bitwise_xor.reduce(np.arange(256)))
    assert count[4:6].view(np.uint64)[0] == sum(range(256))
    assert floats.tolist() == [32.0] * 4


LOCK = """
define amdgpu_kernel void @locked(ptr addrspace(1) %cell) {
entry:
  br label %try
try:
  %seen = load atomic i32, ptr addrspace(1) %cell syncscope("agent") monotonic, align 4
  %next = mul i32 %seen, 3
  %plus = add i32 %next, 1
  %pair = cmpxchg ptr addrspace(1) %cell, i32 %seen, i32 %plus syncscope("agent") monotonic monotonic
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %end, label %try
end:
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_a_compare_and_swap_loop_ends_with_every_lane_having_won_once(arch: str) -> None:
    cell = u32(1)
    load(arch, LOCK).run("locked", [cell], grid=(2, 1, 1))
    expected = 0
    for _ in range(128):
        expected = (3 * expected + 1) & 0xFFFFFFFF
    assert cell[0] == expected


LDS_ATOMICS = """
@bins = internal addrspace(3) global [8 x i32] poison
define amdgpu_kernel void @histogram(ptr addrspace(1) %out, ptr addrspace(1) %in) {
entry:
IDS
  %first = icmp ult i32 %t, 8
  %mine = getelementptr [8 x i32], ptr addrspace(3) @bins, i32 0, i32 %t
  br i1 %first, label %clear, label %go
clear:
  store i32 0, ptr addrspace(3) %mine
  br label %go
go:
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %p = getelementptr i32, ptr addrspace(1) %in, i64 %i
  %x = load i32, ptr addrspace(1) %p
  %b = and i32 %x, 7
  %s = getelementptr [8 x i32], ptr addrspace(3) @bins, i32 0, i32 %b
  %o = atomicrmw add ptr addrspace(3) %s, i32 1 syncscope("workgroup") monotonic
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  br i1 %first, label %store, label %end
store:
  %v = load i32, ptr addrspace(3) %mine
  %gb = mul i32 %g, 8
  %at = add i32 %gb, %t
  %q = getelementptr i32, ptr addrspace(1) %out, i32 %at
  store i32 %v, ptr addrspace(1) %q
  br label %end
end:
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_a_histogram_is_counted_in_lds(arch: str) -> None:
    x = np.random.default_rng(0).integers(0, 2**32, 512, dtype=np.uint32)
    out = u32(16)
    load(arch, LDS_ATOMICS, 256).run("histogram", [out, x], grid=(2, 1, 1), block=(256, 1, 1))
    assert out.reshape(2, 8).tolist() == [
        np.bincount(half & 7, minlength=8).tolist() for half in x.reshape(2, 256)
    ]


SCRATCH = """
define amdgpu_kernel void @private(ptr addrspace(1) %out, ptr addrspace(1) %in) {
entry:
IDS
  %a = alloca [16 x i32], align 4, addrspace(5)
  br label %fill
fill:
  %k = phi i32 [ 0, %entry ], [ %k1, %fill ]
  %v = mul i32 %k, %n
  %e = getelementptr [16 x i32], ptr addrspace(5) %a, i32 0, i32 %k
  store volatile i32 %v, ptr addrspace(5) %e
  %k1 = add i32 %k, 1
  %more = icmp ult i32 %k1, 16
  br i1 %more, label %fill, label %read
read:
  %p = getelementptr i32, ptr addrspace(1) %in, i64 %i
  %x = load i32, ptr addrspace(1) %p
  %w = and i32 %x, 15
  %r = getelementptr [16 x i32], ptr addrspace(5) %a, i32 0, i32 %w
  %y = load volatile i32, ptr addrspace(5) %r
  %bp = getelementptr i8, ptr addrspace(5) %r, i32 1
  %z = load volatile i8, ptr addrspace(5) %bp
  %z32 = zext i8 %z to i32
  %flat = addrspacecast ptr addrspace(5) %r to ptr
  %f = load volatile i32, ptr %flat
  %s1 = add i32 %y, %z32
  %s2 = add i32 %s1, %f
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %s2, ptr addrspace(1) %q
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_private_arrays_hold_each_work_items_own_numbers_also_by_flat_address(arch: str) -> None:
    x = np.random.default_rng(1).integers(0, 2**32, 256, dtype=np.uint32)
    out = u32(256)
    load(arch, SCRATCH).run("private", [out, x], grid=(4, 1, 1))
    y = (x & 15) * np.arange(256)
    assert (out == 2 * y + (y >> 8 & 255)).all()


CALLS = """
define internal i32 @square(i32 %x) noinline {
  %y = mul i32 %x, %x
  ret i32 %y
}
define internal i32 @twice(i32 %x) noinline {
  %y = call i32 @square(i32 %x)
  %z = add i32 %y, %y
  ret i32 %z
}
@table = internal addrspace(4) constant [2 x ptr] [ptr @square, ptr @twice]
define amdgpu_kernel void @calls(ptr addrspace(1) %out) {
IDS
  %a = call i32 @twice(i32 %n)
  %w = and i32 %n, 1
  %slot = getelementptr [2 x ptr], ptr addrspace(4) @table, i32 0, i32 %w
  %f = load ptr, ptr addrspace(4) %slot
  %b = call i32 %f(i32 %n)
  %c = add i32 %a, %b
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %c, ptr addrspace(1) %q
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_functions_are_called_directly_and_through_pointers_that_differ_by_lane(arch: str) -> None:
    out = u32(128)
    load(arch, CALLS).run("calls", [out], grid=(2, 1, 1))
    n = np.arange(128)
    assert (out == np.where(n & 1, 4, 3) * n * n).all()


IDENTITY = """
define amdgpu_kernel void @ids(ptr addrspace(1) %out, i32 %sx, i32 %sy) {
  %tx = call i32 @llvm.amdgcn.workitem.id.x()
  %ty = call i32 @llvm.amdgcn.workitem.id.y()
  %tz = call i32 @llvm.amdgcn.workitem.id.z()
  %gx = call i32 @llvm.amdgcn.workgroup.id.x()
  %gy = call i32 @llvm.amdgcn.workgroup.id.y()
  %gz = call i32 @llvm.amdgcn.workgroup.id.z()
  %x0 = mul i32 %gx, 5
  %x = add i32 %x0, %tx
  %y0 = mul i32 %gy, 4
  %y = add i32 %y0, %ty
  %z0 = mul i32 %gz, 3
  %z = add i32 %z0, %tz
  %a = mul i32 %z, %sy
  %b = add i32 %a, %y
  %c = mul i32 %b, %sx
  %d = add i32 %c, %x
  %i = zext i32 %d to i64
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  %r = add i32 %d, 1
  store i32 %r, ptr addrspace(1) %q
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_work_items_know_their_three_coordinates(arch: str) -> None:
    out = u32(10 * 12 * 6)
    load(arch, IDENTITY).run("ids", [out, np.uint32(10), np.uint32(12)], grid=(2, 3, 2), block=(5, 4, 3))
    assert (out == np.arange(1, len(out) + 1)).all()


@pytest.mark.parametrize("arch", ARCHES)
def test_partial_workgroups_run_only_the_work_items_there_are(arch: str) -> None:
    out = u32(8 * 9 * 4)
    load(arch, IDENTITY).run(
        "ids", [out, np.uint32(8), np.uint32(9)], grid=(2, 3, 2), block=(5, 4, 3), items=(8, 9, 4)
    )
    assert (out == np.arange(1, len(out) + 1)).all()


SPIN = """
define amdgpu_kernel void @handover(ptr addrspace(1) %cells) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %lead = icmp eq i32 %t, 0
  br i1 %lead, label %wait, label %end
wait:
  %seen = load atomic i32, ptr addrspace(1) %cells syncscope("agent") monotonic, align 4
  %mine = sub i32 3, %g
  %go = icmp eq i32 %seen, %mine
  br i1 %go, label %pass, label %wait
pass:
  %next = add i32 %seen, 1
  store atomic i32 %next, ptr addrspace(1) %cells syncscope("agent") monotonic, align 4
  br label %end
end:
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_a_wave_that_spins_on_another_is_released_by_it(arch: str) -> None:
    cells = u32(1)
    load(arch, SPIN).run("handover", [cells], grid=(4, 1, 1), budget=10_000_000)
    assert cells[0] == 4


STORE = """
define amdgpu_kernel void @store(ptr addrspace(1) %out, i32 %stride) {
IDS
  %m = mul i32 %n, %stride
  %o = zext i32 %m to i64
  %q = getelementptr i8, ptr addrspace(1) %out, i64 %o
  store i32 %n, ptr addrspace(1) %q
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_a_store_beyond_a_buffer_is_a_page_fault_that_names_the_work_item(arch: str) -> None:
    kernel = load(arch, STORE)
    out = u32(100)
    with pytest.raises(
        PageFault, match=r"write of 4 bytes at 0x7f0000000190 at pc .*workgroup \(1, 0, 0\).*36"
    ) as info:
        kernel.run("store", [out, np.uint32(4)], grid=(2, 1, 1))
    assert info.value.address == 0x7F00_0000_0000 + 400 and info.value.pc
    assert "nearest mapping below is argument 0" in str(info.value)


@pytest.mark.parametrize("arch", ARCHES)
def test_unaligned_stores_reach_every_byte(arch: str) -> None:
    out = np.zeros(64 * 5 + 4, np.uint8)
    load(arch, STORE).run("store", [out, np.uint32(5)])
    assert (out[: 64 * 5].reshape(64, 5)[:, 0] == np.arange(64)).all()


FOREVER = """
define amdgpu_kernel void @forever(ptr addrspace(1) %out) {
entry:
  br label %loop
loop:
  store volatile i32 1, ptr addrspace(1) %out
  br label %loop
}
"""


def test_an_endless_loop_is_a_report_with_the_instruction_it_runs_at() -> None:
    with pytest.raises(OutOfBudget, match=r"budget of 1000 instructions is spent .* Look for a loop"):
        load("gfx1100", FOREVER).run("forever", [u32(1)], budget=1000)


def test_a_deadline_and_an_interruption_end_a_dispatch() -> None:
    with pytest.raises(OutOfBudget, match="the deadline passed"):
        load("gfx1100", FOREVER).run("forever", [u32(1)], deadline_s=0.2)
    with pytest.raises(OutOfBudget, match="was interrupted"):
        load("gfx942", FOREVER).run("forever", [u32(1)], interrupted=lambda: True)


def test_a_wave_that_ran_into_megabytes_of_zeros_is_interrupted_before_they_are_all_decoded() -> None:
    core = ShaderCore(ISAS["gfx942"], AddressSpace())
    core.memory.map(0x1000, u32(1 << 20), name="zeros")  # v_cndmask_b32, a million times
    with pytest.raises(OutOfBudget, match="was interrupted"):
        run_dispatch(
            core, Launch(0x1000, 64, vgprs=8), (1, 1, 1), (64, 1, 1), budget=10**6, interrupted=lambda: True
        )
    (runaway,) = core.programs.values()
    assert len(runaway.instructions) <= 2 * program.MAX_AHEAD


@pytest.mark.parametrize("arch", ["gfx1100", "gfx90a"])
def test_code_that_is_followed_a_few_instructions_at_a_time_does_the_same(
    arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "MAX_AHEAD", 3)
    test_a_workgroup_reverses_its_numbers_through_lds(arch)
    test_every_lane_leaves_a_loop_when_its_own_condition_says(arch)
    test_a_compare_and_swap_loop_ends_with_every_lane_having_won_once(arch)
    test_functions_are_called_directly_and_through_pointers_that_differ_by_lane(arch)
    test_private_arrays_hold_each_work_items_own_numbers_also_by_flat_address(arch)


TRAP = """
define amdgpu_kernel void @trap(ptr addrspace(1) %out) {
  call void @llvm.trap()
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_a_trap_ends_the_dispatch_with_a_sentence(arch: str) -> None:
    with pytest.raises((IllegalOperation, OutOfBudget)):
        load(arch, TRAP).run("trap", [u32(1)], budget=10_000)


PRELOADED = """
define amdgpu_kernel void @preloaded(ptr addrspace(1) inreg %out, i32 inreg %v) {
IDS
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %v, ptr addrspace(1) %q
  ret void
}
"""


def test_arguments_may_come_in_registers_on_gfx942() -> None:
    out = u32(128)
    load("gfx942", PRELOADED).run("preloaded", [out, np.uint32(42)], grid=(2, 1, 1))
    assert (out == 42).all()


def test_a_jump_to_nowhere_is_a_page_fault_of_the_fetch() -> None:
    isa, memory = ISAS["gfx1100"], AddressSpace()
    words = [*assemble(isa, "s_mov_b64", ("s[4:5]", 0)), *assemble(isa, "s_setpc_b64", ("s[4:5]",))]
    memory.map(0x1000, np.array(words, np.uint32), name="code")
    with pytest.raises(PageFault, match=r"read of 4 bytes at 0x0 \(instruction fetch\): not mapped"):
        run_dispatch(ShaderCore(isa, memory), Launch(0x1000, 32, vgprs=8), (1, 1, 1), (32, 1, 1))


def test_launches_that_no_chip_could_take_are_refused() -> None:
    kernel = load("gfx1100", STORE)
    with pytest.raises(UsageError, match="70000 bytes of LDS; gfx1100 has 65536"):
        kernel.run("store", [u32(64), np.uint32(4)], dynamic_lds_bytes=70000)
    with pytest.raises(UsageError, match="at most 1024 work-items"):
        kernel.run("store", [u32(64), np.uint32(4)], block=(2048, 1, 1))


@pytest.mark.parametrize("arch", ISAS)
def test_a_register_that_the_descriptor_did_not_ask_for_is_refused(arch: str) -> None:
    isa = ISAS[arch]
    memory = AddressSpace()
    words = [*assemble(isa, "v_mov_b32", ("v99", 1)), *isa.encode("s_endpgm")]
    memory.map(0x1000, np.array(words, np.uint32), name="code")
    launch = Launch(0x1000, 64 if arch in GFX9 else 32, vgprs=8)
    with pytest.raises(IllegalOperation, match=r"'v_mov_b32 v99, 1' names a register .* asks for 8 vector"):
        run_dispatch(ShaderCore(isa, memory), launch, (1, 1, 1), (32, 1, 1))


@pytest.mark.parametrize("arch", ISAS)
def test_random_words_run_or_stop_with_a_sentence(arch: str) -> None:
    rng, isa, ends = random.Random(1), ISAS[arch], 0
    for _ in range(1500):
        words = [rng.getrandbits(32) for _ in range(4)]
        memory = AddressSpace()
        memory.map(0x1000, np.array([*words, *isa.encode("s_endpgm")], np.uint32), name="code")
        launch = Launch(0x1000, 64 if arch in GFX9 else 32, vgprs=256, lds_bytes=64, scratch_bytes=16)
        try:
            run_dispatch(ShaderCore(isa, memory), launch, (1, 1, 1), (40, 1, 1), budget=1000)
        except ShaderFault as fault:
            assert len(str(fault)) > 20
        else:
            ends += 1
    assert ends > 10


def test_code_that_changed_in_memory_is_decoded_again() -> None:
    kernel = load("gfx1100", STORE)
    out = u32(64)
    kernel.run("store", [out, np.uint32(4)])
    first = kernel.core.programs.copy()
    kernel.run("store", [out, np.uint32(4)])
    assert kernel.core.programs == first
    code = kernel.memory.find(kernel.symbols["store"])
    assert code is not None
    kernel.memory.unmap(code.start)
    changed = code.data.copy()
    # s_endpgm
    changed[kernel.symbols["store"] - code.start :][:4] = np.frombuffer(b"\x00\x00\xb0\xbf", np.uint8)
    kernel.memory.map(code.start, changed, writable=False, name="code")
    out[:] = 7
    kernel.run("store", [out, np.uint32(4)])
    assert (out == 7).all()
