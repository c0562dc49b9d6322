"""Kernels for the tests of NVIDIA devices: LLVM IR, compiled to PTX for each architecture by llvmlite.

In       the text of ptx_kernel functions
Out      PTX, as anyone's LLVM writes it
Next     conftest.py (devices), test_device.py and its sisters (who run these)
"""

from __future__ import annotations

import functools

IR = r"""
target triple = "nvptx64-nvidia-cuda"

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.y()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)

@tile = internal addrspace(3) global [256 x i32] undef, align 4
@dynamic = external addrspace(3) global [0 x i32], align 4

; out[i] = a[i] * factor + add, for i < n
define ptx_kernel void @scale(ptr addrspace(1) %out, ptr addrspace(1) %a, i32 %n, float %factor, double %add) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %g = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %size = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %base = mul i32 %g, %size
  %i = add i32 %base, %t
  %in = icmp slt i32 %i, %n
  br i1 %in, label %body, label %end
body:
  %ap = getelementptr float, ptr addrspace(1) %a, i32 %i
  %v = load float, ptr addrspace(1) %ap
  %m = fmul float %v, %factor
  %f = fptrunc double %add to float
  %r = fadd float %m, %f
  %op = getelementptr float, ptr addrspace(1) %out, i32 %i
  store float %r, ptr addrspace(1) %op
  br label %end
end:
  ret void
}

; each block of 256 reverses its part through shared memory
define ptx_kernel void @reverse(ptr addrspace(1) %out, ptr addrspace(1) %a) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %g = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %base = mul i32 %g, 256
  %i = add i32 %base, %t
  %ap = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %v = load i32, ptr addrspace(1) %ap
  %lp = getelementptr [256 x i32], ptr addrspace(3) @tile, i32 0, i32 %t
  store i32 %v, ptr addrspace(3) %lp
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %other = sub i32 255, %t
  %rp = getelementptr [256 x i32], ptr addrspace(3) @tile, i32 0, i32 %other
  %w = load i32, ptr addrspace(3) %rp
  %op = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store i32 %w, ptr addrspace(1) %op
  ret void
}

; the same through shared memory that the launch asks for
define ptx_kernel void @reverse_dynamic(ptr addrspace(1) %out, ptr addrspace(1) %a) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %size = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %ap = getelementptr i32, ptr addrspace(1) %a, i32 %t
  %v = load i32, ptr addrspace(1) %ap
  %lp = getelementptr i32, ptr addrspace(3) @dynamic, i32 %t
  store i32 %v, ptr addrspace(3) %lp
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %last = sub i32 %size, 1
  %other = sub i32 %last, %t
  %rp = getelementptr i32, ptr addrspace(3) @dynamic, i32 %other
  %w = load i32, ptr addrspace(3) %rp
  %op = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %w, ptr addrspace(1) %op
  ret void
}

; a divergent loop, 64-bit arithmetic and an atomic: sum += i*(i+1)/2 for every thread
define ptx_kernel void @triangle(ptr addrspace(1) %sum) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  br label %loop
loop:
  %i = phi i32 [ 0, %0 ], [ %next, %loop ]
  %acc = phi i64 [ 0, %0 ], [ %more, %loop ]
  %wide = zext i32 %i to i64
  %more = add i64 %acc, %wide
  %next = add i32 %i, 1
  %again = icmp ule i32 %next, %t
  br i1 %again, label %loop, label %done
done:
  %old = atomicrmw add ptr addrspace(1) %sum, i64 %more monotonic
  ret void
}

; an array on the stack that is indexed at run time: local memory
define ptx_kernel void @local(ptr addrspace(1) %out, i32 %k) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %array = alloca [64 x i32], align 4
  br label %loop
loop:
  %i = phi i32 [ 0, %0 ], [ %next, %loop ]
  %p = getelementptr [64 x i32], ptr %array, i32 0, i32 %i
  %x = mul i32 %i, %t
  store volatile i32 %x, ptr %p
  %next = add i32 %i, 1
  %again = icmp ult i32 %next, 64
  br i1 %again, label %loop, label %done
done:
  %at = and i32 %k, 63
  %q = getelementptr [64 x i32], ptr %array, i32 0, i32 %at
  %v = load volatile i32, ptr %q
  %op = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %op
  ret void
}

; what the launch says of itself
define ptx_kernel void @sizes(ptr addrspace(1) %out) {
  %x = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  store i32 %x, ptr addrspace(1) %out
  %y = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.y()
  %o1 = getelementptr i32, ptr addrspace(1) %out, i32 1
  store i32 %y, ptr addrspace(1) %o1
  %size = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %o2 = getelementptr i32, ptr addrspace(1) %out, i32 2
  store i32 %size, ptr addrspace(1) %o2
  ret void
}

define ptx_kernel void @store_at(ptr addrspace(1) %out, i64 %offset) {
  %p = getelementptr i8, ptr addrspace(1) %out, i64 %offset
  store i32 7, ptr addrspace(1) %p
  ret void
}

define ptx_kernel void @forever(ptr addrspace(1) %out) {
  br label %loop
loop:
  %v = load volatile i32, ptr addrspace(1) %out
  %more = add i32 %v, 1
  store volatile i32 %more, ptr addrspace(1) %out
  br label %loop
}

; out[i] += 1, for every thread of the block
define ptx_kernel void @increment(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %t
  %v = load i32, ptr addrspace(1) %p
  %r = add i32 %v, 1
  store i32 %r, ptr addrspace(1) %p
  ret void
}
"""


@functools.cache
def image(arch: str) -> bytes:
    """All of the above as one text."""
    return compile_ir(IR, arch)


@functools.cache
def compile_ir(text: str, arch: str) -> bytes:
    """LLVM IR as PTX for an architecture."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    machine = target.create_target_machine(cpu=arch, opt=2)
    module = llvm.parse_assembly(text)
    module.verify()
    return machine.emit_assembly(module).encode()
