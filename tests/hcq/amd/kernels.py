"""Kernels for the tests of AMD devices: LLVM IR, compiled to objects for each architecture by llvmlite.

In       the text of amdgpu_kernel functions
Out      relocatable ELF objects, as anyone's LLVM writes them
Next     conftest.py (devices), test_device.py and its sisters (who run these)
"""

from __future__ import annotations

import functools

IR = r"""
target triple = "amdgcn-amd-amdhsa"

declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
declare void @llvm.amdgcn.s.barrier()

@tile = internal addrspace(3) global [256 x i32] poison
@table = internal addrspace(1) constant [4 x i32] [i32 10, i32 20, i32 30, i32 40]
@large = internal addrspace(3) global [@LARGE@ x i32] poison

; out[i] = a[i] * factor + add, for i < n
define amdgpu_kernel void @scale(ptr addrspace(1) %out, ptr addrspace(1) %a, i32 %n, float %factor, double %add) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = mul i32 %g, 64
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

; each group of 256 reverses its part through LDS
define amdgpu_kernel void @reverse(ptr addrspace(1) %out, ptr addrspace(1) %a) "amdgpu-flat-work-group-size"="256,256" {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = mul i32 %g, 256
  %i = add i32 %base, %t
  %ap = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %v = load i32, ptr addrspace(1) %ap
  %lp = getelementptr [256 x i32], ptr addrspace(3) @tile, i32 0, i32 %t
  store i32 %v, ptr addrspace(3) %lp
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %other = sub i32 255, %t
  %rp = getelementptr [256 x i32], ptr addrspace(3) @tile, i32 0, i32 %other
  %w = load i32, ptr addrspace(3) %rp
  %op = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store i32 %w, ptr addrspace(1) %op
  ret void
}

; a divergent loop, 64-bit arithmetic and an atomic: sum += i*(i+1)/2 for every work-item
define amdgpu_kernel void @triangle(ptr addrspace(1) %sum) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
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
  %old = atomicrmw add ptr addrspace(1) %sum, i64 %more syncscope("agent") monotonic
  ret void
}

; an array on the stack that is indexed at run time: scratch memory
define amdgpu_kernel void @scratch(ptr addrspace(1) %out, i32 %k) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %array = alloca [64 x i32], addrspace(5)
  br label %loop
loop:
  %i = phi i32 [ 0, %0 ], [ %next, %loop ]
  %p = getelementptr [64 x i32], ptr addrspace(5) %array, i32 0, i32 %i
  %x = mul i32 %i, %t
  store volatile i32 %x, ptr addrspace(5) %p
  %next = add i32 %i, 1
  %again = icmp ult i32 %next, 64
  br i1 %again, label %loop, label %done
done:
  %at = and i32 %k, 63
  %q = getelementptr [64 x i32], ptr addrspace(5) %array, i32 0, i32 %at
  %v = load volatile i32, ptr addrspace(5) %q
  %op = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %op
  ret void
}

; what the hidden arguments and the dispatch packet say
define amdgpu_kernel void @sizes(ptr addrspace(1) %out) {
  %hidden = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %count = load i32, ptr addrspace(4) %hidden
  store i32 %count, ptr addrspace(1) %out
  %sp = getelementptr i8, ptr addrspace(4) %hidden, i32 12
  %size = load i16, ptr addrspace(4) %sp
  %wide = zext i16 %size to i32
  %o1 = getelementptr i32, ptr addrspace(1) %out, i32 1
  store i32 %wide, ptr addrspace(1) %o1
  %packet = call ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
  %gp = getelementptr i8, ptr addrspace(4) %packet, i32 12
  %grid = load i32, ptr addrspace(4) %gp
  %o2 = getelementptr i32, ptr addrspace(1) %out, i32 2
  store i32 %grid, ptr addrspace(1) %o2
  ret void
}

define amdgpu_kernel void @lookup(ptr addrspace(1) %out, i32 %i) {
  %p = getelementptr [4 x i32], ptr addrspace(1) @table, i32 0, i32 %i
  %v = load i32, ptr addrspace(1) %p
  store i32 %v, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @store_at(ptr addrspace(1) %out, i64 %offset) {
  %p = getelementptr i8, ptr addrspace(1) %out, i64 %offset
  store i32 7, ptr addrspace(1) %p
  ret void
}

define amdgpu_kernel void @forever(ptr addrspace(1) %out) {
  br label %loop
loop:
  %v = load volatile i32, ptr addrspace(1) %out
  %more = add i32 %v, 1
  store volatile i32 %more, ptr addrspace(1) %out
  br label %loop
}

define amdgpu_kernel void @hungry(ptr addrspace(1) %out, i32 %i) {
  %p = getelementptr [@LARGE@ x i32], ptr addrspace(3) @large, i32 0, i32 %i
  store volatile i32 1, ptr addrspace(3) %p
  %v = load volatile i32, ptr addrspace(3) %p
  store i32 %v, ptr addrspace(1) %out
  ret void
}

; out[i] += 1, for 64 work-items
define amdgpu_kernel void @increment(ptr addrspace(1) %out) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %t
  %v = load i32, ptr addrspace(1) %p
  %r = add i32 %v, 1
  store i32 %r, ptr addrspace(1) %p
  ret void
}
"""


@functools.cache
def image(arch: str) -> bytes:
    """All of the above as one object."""
    return compile_ir(IR.replace("@LARGE@", "16000"), arch)


@functools.cache
def compile_ir(text: str, arch: str, optimisation: int = 2) -> bytes:
    """LLVM IR as a relocatable object for an architecture."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("amdgcn-amd-amdhsa")
    machine = target.create_target_machine(cpu=arch, opt=optimisation)
    module = llvm.parse_assembly(text)
    module.verify()
    return machine.emit_object(module)
