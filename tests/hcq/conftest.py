"""Objects to load: made from LLVM IR always, and from C where there is a C compiler."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hcq
from hcq import config
from hcq.cpu.device import CpuDevice

IR = r"""
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@count = internal global i64 5
@zeroes = internal global [512 x i64] zeroinitializer

declare float @sinf(float)
declare double @pow(double, double)

define void @add_one(ptr %out, ptr %a, i64 %n) {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %ap = getelementptr float, ptr %a, i64 %i
  %v = load float, ptr %ap
  %r = fadd float %v, 1.0
  %op = getelementptr float, ptr %out, i64 %i
  store float %r, ptr %op
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}

define internal i64 @twice(i64 %x) noinline {
  %r = add i64 %x, %x
  ret i64 %r
}

define void @functions(ptr %out, i64 %x) {
  %a = call i64 @twice(i64 %x)
  %b = call i64 @twice(i64 %a)
  store i64 %b, ptr %out
  ret void
}

define void @constants(ptr %out, i64 %i) {
  %p = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
  %v = load i64, ptr %p
  store i64 %v, ptr %out
  ret void
}

define void @static_data(ptr %out) {
  %v = load i64, ptr @count
  %w = add i64 %v, 1
  store i64 %w, ptr @count
  %zp = getelementptr [512 x i64], ptr @zeroes, i64 0, i64 511
  %z = load i64, ptr %zp
  %z1 = add i64 %z, 100
  store i64 %z1, ptr %zp
  store i64 %v, ptr %out
  %op = getelementptr i64, ptr %out, i64 1
  store i64 %z, ptr %op
  ret void
}

define void @jump(ptr %out, i64 %i) {
entry:
  switch i64 %i, label %other [ i64 0, label %c0
                                i64 1, label %c1
                                i64 2, label %c2
                                i64 3, label %c3
                                i64 4, label %c4
                                i64 5, label %c5 ]
c0:
  call void @functions(ptr %out, i64 1)
  ret void
c1:
  store i64 111, ptr %out
  ret void
c2:
  %p = getelementptr i64, ptr %out, i64 1
  store i64 7, ptr %p
  store i64 222, ptr %out
  ret void
c3:
  %f = uitofp i64 %i to double
  %s = call double @pow(double %f, double 5.0)
  %g = fptosi double %s to i64
  store i64 %g, ptr %out
  ret void
c4:
  call void @constants(ptr %out, i64 2)
  ret void
c5:
  store i64 555, ptr %out
  ret void
other:
  store i64 -1, ptr %out
  ret void
}

define void @math(ptr %out, double %x) {
  %f = fptrunc double %x to float
  %s = call float @sinf(float %f)
  store float %s, ptr %out
  ret void
}

define void @many_ints(ptr %out, i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f, i64 %g, i64 %h, i64 %i) {
  store i64 %a, ptr %out
  %p1 = getelementptr i64, ptr %out, i64 1
  store i64 %e, ptr %p1
  %p2 = getelementptr i64, ptr %out, i64 2
  store i64 %f, ptr %p2
  %p3 = getelementptr i64, ptr %out, i64 3
  store i64 %i, ptr %p3
  ret void
}

define void @many_floats(ptr %out, double %a, double %b, double %c, double %d, double %e, double %f, double %g,
                         double %h, double %i, double %j) {
  store double %a, ptr %out
  %p1 = getelementptr double, ptr %out, i64 1
  store double %h, ptr %p1
  %p2 = getelementptr double, ptr %out, i64 2
  store double %i, ptr %p2
  %p3 = getelementptr double, ptr %out, i64 3
  store double %j, ptr %p3
  ret void
}

define void @mixed(ptr %out, double %a, i64 %b, double %c, i64 %d, i64 %e, i64 %f, i64 %g, i64 %h, double %i,
                   ptr %group) {
  store double %a, ptr %out
  %p1 = getelementptr double, ptr %out, i64 1
  store double %i, ptr %p1
  %p2 = getelementptr i64, ptr %out, i64 2
  store i64 %h, ptr %p2
  %gp = getelementptr i64, ptr %group, i64 1
  %last = load i64, ptr %gp
  %p3 = getelementptr i64, ptr %out, i64 3
  store i64 %last, ptr %p3
  ret void
}

; counts its visits of every group, and notes the worker
define void @cover(ptr %out, ptr %group) {
entry:
  %first = load i64, ptr %group
  %lp = getelementptr i64, ptr %group, i64 1
  %last = load i64, ptr %lp
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
  %p = getelementptr i32, ptr %out, i64 %i
  %old = atomicrmw add ptr %p, i32 1 monotonic
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %loop, label %end
end:
  ret void
}

; the whole hcq_group, as the kernel sees it
define void @group_facts(ptr %out, ptr %group) {
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %group, i64 64, i1 false)
  %sp = getelementptr i64, ptr %group, i64 5
  %scratch = load ptr, ptr %sp
  %null = icmp eq ptr %scratch, null
  br i1 %null, label %end, label %touch
touch:
  store i64 77, ptr %scratch
  br label %end
end:
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; out[0] = out[0] * 3 + k: shows whether dispatches ran in order
define void @step(ptr %out, i64 %k) {
  %v = load i64, ptr %out
  %t = mul i64 %v, 3
  %r = add i64 %t, %k
  store i64 %r, ptr %out
  ret void
}

define void @spin(ptr %word) {
entry:
  br label %look
look:
  %v = load atomic i64, ptr %word seq_cst, align 8
  %go = icmp ne i64 %v, 0
  br i1 %go, label %end, label %look
end:
  ret void
}
"""


@functools.cache
def assemble(ir: str, triple: str = "", reloc: str = "pic") -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(ir)
    module.verify()
    target = llvm.Target.from_triple(triple or llvm.get_process_triple())
    return bytes(target.create_target_machine(opt=2, reloc=reloc, codemodel="small").emit_object(module))


@pytest.fixture(scope="session")
def llvm_object() -> bytes:
    """Every kernel of IR in one relocatable object."""
    return assemble(IR)


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """C source to object, with the compiler's own defaults: compile_c(source, "-c", "-O2")."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler here")

    @functools.cache
    def build(source: str, *flags: str) -> bytes:
        folder = tmp_path_factory.mktemp("c")
        (folder / "kernel.c").write_text(source)
        out = folder / "kernel.o"
        subprocess.run(
            [compiler, *flags, "-o", str(out), str(folder / "kernel.c")], check=True, capture_output=True
        )
        return Path(out).read_bytes()

    return build


@pytest.fixture(scope="session")
def cpu() -> CpuDevice:
    """The process's CPU device."""
    device = hcq.open("CPU")
    assert isinstance(device, CpuDevice)
    return device


@pytest.fixture
def four_threads() -> Iterator[CpuDevice]:
    """A CPU device of its own with four threads, whatever the host has."""
    device = CpuDevice("CPU:four", config=dataclasses.replace(config.current(), threads=4))
    yield device
    device.close()
