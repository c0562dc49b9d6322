"""A seed changes the order of waves, is the same for the same seed, and shows races that only some orders have."""

from __future__ import annotations

import os
import struct

import pytest

from hcq import Device
from hcq.amd.device import AmdDevice
from hcq.config import Config
from hcq.emu.machine import kernels_for
from hcq.emu.port import EmulatedPort
from hcq.nv.device import NvDevice
from hcq.observe.sanitizer import Sanitizer

pytestmark = pytest.mark.own_devices
THREADS, BLOCKS = 256, 6
SEEDS = range(1, 9)

# each warp's first thread draws a ticket from a counter in global memory, and stores it
TICKETS_PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    .reg .pred %p<2>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    ld.param.u64 %d1, [out];
    mad.lo.u32 %r4, %r2, %r3, %r1;
    and.b32 %r5, %r1, 31;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra DONE;
    atom.global.add.u32 %r6, [%d1], 1;
    shr.u32 %r4, %r4, 5;
    mul.wide.u32 %d2, %r4, 4;
    add.u64 %d3, %d1, %d2;
    st.global.u32 [%d3+4], %r6;
DONE:
    ret;
}
"""
TICKETS_LLVM = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
define amdgpu_kernel void @kernel(ptr addrspace(1) %out) "amdgpu-flat-work-group-size"="256,256" {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %a = mul i32 %g, 256
  %i = add i32 %a, %t
  %l = and i32 %t, 31
  %z = icmp eq i32 %l, 0
  br i1 %z, label %draw, label %done
draw:
  %n = atomicrmw volatile add ptr addrspace(1) %out, i32 1 monotonic
  %w = lshr i32 %i, 5
  %v = add i32 %w, 1
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %v
  store i32 %n, ptr addrspace(1) %p
  br label %done
done:
  ret void
}
"""

# the warp that comes first fills a table in shared memory; the first warp reads it without waiting: a race in all
# orders but those where the first warp itself came first
FIRST_COMES_PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    .reg .pred %p<3>;
    .shared .align 4 .b8 table[256];
    mov.u32 %r1, %tid.x;
    and.b32 %r5, %r1, 31;
    mov.u32 %r2, table;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra DONE;
    atom.shared.add.u32 %r6, [%r2+128], 1;
    setp.ne.u32 %p2, %r6, 0;
    @%p2 bra READ;
    st.shared.u32 [%r2], 7;
READ:
    setp.ge.u32 %p2, %r1, 32;
    @%p2 bra DONE;
    ld.shared.u32 %r7, [%r2];
    ld.param.u64 %d1, [out];
    st.global.u32 [%d1], %r7;
DONE:
    ret;
}
"""
FIRST_COMES_LLVM = """
target triple = "amdgcn-amd-amdhsa"
@table = internal addrspace(3) global [64 x i32] poison, align 4
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @kernel(ptr addrspace(1) %out) "amdgpu-flat-work-group-size"="256,256" {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %l = and i32 %t, 31
  %z = icmp eq i32 %l, 0
  br i1 %z, label %come, label %done
come:
  %c = getelementptr i32, ptr addrspace(3) @table, i32 32
  %n = atomicrmw volatile add ptr addrspace(3) %c, i32 1 syncscope("workgroup") monotonic
  %f = icmp eq i32 %n, 0
  br i1 %f, label %fill, label %read
fill:
  store volatile i32 7, ptr addrspace(3) @table
  br label %read
read:
  %w = icmp ult i32 %t, 32
  br i1 %w, label %use, label %done
use:
  %v = load volatile i32, ptr addrspace(3) @table
  store i32 %v, ptr addrspace(1) %out
  br label %done
done:
  ret void
}
"""


def opened(word: str, sanitize: str = "") -> Device:
    """An emulated GPU that nobody has used before."""
    kind = AmdDevice if word.startswith("amd") else NvDevice
    settings = Config.read({**os.environ, "HCQ_SANITIZE": sanitize})
    return kind(word.partition(":")[0].upper(), EmulatedPort(kernels_for([word])), settings)


def image(gpu: Device, ptx: str, ir: str) -> bytes:
    if not gpu.arch.startswith("gfx"):
        return ptx.encode()
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=gpu.arch)
    made: bytes = target.emit_object(llvm.parse_assembly(ir))
    return made


def tickets(word: str) -> list[int]:
    """The ticket that each warp of a launch draws, and of a second one."""
    gpu = opened(word)
    found = drawn(gpu)
    gpu.close()
    return found


def drawn(gpu: Device) -> list[int]:
    """The same of an open GPU."""
    kernel = gpu.load(image(gpu, TICKETS_PTX, TICKETS_LLVM), "kernel")
    warps = BLOCKS * THREADS // 32
    found: list[int] = []
    for _ in range(2):
        out = gpu.alloc(4 * (warps + 1))
        out.write(bytes(4 * (warps + 1)))
        gpu.run(kernel, [out], grid=(BLOCKS, 1, 1), block=(THREADS, 1, 1))
        words = struct.unpack(f"<{warps + 1}I", out.read())
        assert words[0] == warps and sorted(words[1:]) == list(range(warps))
        found += words[1:]
    return found


@pytest.mark.parametrize("vendor", ["amd:gfx1100", "nv:sm_90"])
def test_a_seed_decides_in_which_order_waves_and_workgroups_come_and_decides_it_again(vendor: str) -> None:
    inorder = tickets(vendor)
    orders = [tickets(f"{vendor}:seed={seed}") for seed in SEEDS]
    assert [tickets(f"{vendor}:seed={seed}") for seed in SEEDS[:2]] == orders[:2]
    assert len({tuple(order) for order in orders}) == len(SEEDS) and inorder not in orders
    half = len(inorder) // 2
    first = [order[:half] for order in orders]
    assert any(order[:half] != order[half:] for order in orders)  # another launch, another order
    warps = THREADS // 32
    assert any(order.index(0) % warps != 0 for order in first)  # within a workgroup
    assert any(order.index(0) >= warps for order in first)  # and of workgroups
    assert inorder.index(0) == 0


@pytest.mark.parametrize("vendor", ["amd:gfx1100", "nv:sm_90"])
def test_a_race_that_only_some_orders_have_is_found_with_seeds_and_again_with_the_same_seed(
    vendor: str,
) -> None:
    def rules(word: str) -> list[str]:
        gpu = opened(word, "race")
        before = len(Sanitizer.findings)
        gpu.run(
            gpu.load(image(gpu, FIRST_COMES_PTX, FIRST_COMES_LLVM), "kernel"),
            [gpu.alloc(64)],
            block=(THREADS, 1, 1),
        )
        gpu.close()
        return [finding.rule for finding in Sanitizer.findings[before:]]

    assert rules(vendor) == []
    found = [seed for seed in SEEDS if rules(f"{vendor}:seed={seed}")]
    assert found
    assert rules(f"{vendor}:seed={found[0]}") == ["shared-race"]
