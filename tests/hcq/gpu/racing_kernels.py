"""Kernels with a race in shared memory, each beside a twin that has none, for emulated GPUs of two vendors.

In       nothing
Out      `CASES`: what a kernel does, with the race and without; `ptx` and `llvm_ir`, which write such a kernel
Next     test_sanitizer.py (runs them)

A kernel is a row of steps, which all 128 threads of a block do in order. Shared memory has 1,024 bytes.
"""

from __future__ import annotations

from typing import NamedTuple

THREADS = 128


class Step(NamedTuple):
    """store, load, add (atomic) or barrier.

    of     the place: factor * thread + start, in elements; only the threads below `count` go there, the others to a
           place of their own behind the first 512 bytes
    bytes  of an element: 1 or 4
    """

    kind: str
    factor: int = 0
    start: int = 0
    bytes: int = 4
    count: int = THREADS


class Case(NamedTuple):
    """What is wrong, and what is right."""

    wrong: tuple[Step, ...]
    right: tuple[Step, ...]


MINE, OTHERS = (1, 0), (-1, THREADS - 1)  # a thread's own element; that of a thread of another warp
BARRIER = Step("barrier")
WRITE, READ_OTHERS = Step("store", *MINE), Step("load", *OTHERS)
ONE_WRITES, ALL_READ_IT = Step("store", count=1), Step("load")
ALL_WRITE_IT, ALL_ADD = Step("store"), Step("add")

CASES = {
    "no barrier between writing a tile and reading it": Case(
        (WRITE, READ_OTHERS), (WRITE, BARRIER, READ_OTHERS)
    ),
    "no barrier before a tile is written again": Case(
        (WRITE, BARRIER, READ_OTHERS, WRITE), (WRITE, BARRIER, READ_OTHERS, BARRIER, WRITE)
    ),
    "one thread writes what all read": Case((ONE_WRITES, ALL_READ_IT), (ONE_WRITES, BARRIER, ALL_READ_IT)),
    "all write one place": Case((ALL_WRITE_IT,), (ALL_ADD,)),
    "a counter without an atomic": Case((ALL_READ_IT, ALL_WRITE_IT), (ALL_ADD, ALL_ADD)),
    "zeroed by one thread while others count": Case((ONE_WRITES, ALL_ADD), (ONE_WRITES, BARRIER, ALL_ADD)),
    "read while others count": Case((ALL_ADD, ALL_READ_IT), (ALL_ADD, BARRIER, ALL_READ_IT)),
    "bytes of another warp": Case(
        (Step("store", *MINE, bytes=1), Step("load", *OTHERS, bytes=1)),
        (Step("store", *MINE, bytes=1), BARRIER, Step("load", *OTHERS, bytes=1)),
    ),
    "a word over the bytes of others": Case(
        (Step("store", *MINE, bytes=1), Step("load", 0, 24)),
        (Step("store", *MINE, bytes=1), Step("load", *MINE, bytes=1)),
    ),
    "one warp writes the next one's": Case(
        (Step("store", 1, 32), Step("load", *MINE)), (Step("store", 1, 32), Step("load", 1, 32))
    ),
    "the barrier comes too early": Case(
        (WRITE, BARRIER, WRITE, READ_OTHERS), (WRITE, WRITE, BARRIER, READ_OTHERS)
    ),
    "a second tile without a barrier of its own": Case(
        (WRITE, BARRIER, READ_OTHERS, Step("store", 1, 128), Step("load", -1, 255)),
        (WRITE, Step("store", 1, 128), BARRIER, READ_OTHERS, Step("load", -1, 255)),
    ),
}


def ptx(steps: tuple[Step, ...]) -> bytes:
    """It in PTX, as the entry `kernel`; its one argument is where a word of each thread is stored."""
    lines = []
    for step in steps:
        if step.kind == "barrier":
            lines.append("bar.sync 0;")
            continue
        lines += [
            f"mad.lo.s32 %r3, %r1, {step.factor * step.bytes}, {step.start * step.bytes};",
            "mad.lo.s32 %r4, %r1, 4, 512;",
            f"setp.lt.u32 %p1, %r1, {step.count};",
            "selp.b32 %r3, %r3, %r4, %p1;",
            "add.u32 %r3, %r3, %r2;",
        ]
        size = 8 * step.bytes
        lines.append(
            {
                "store": f"st.shared.u{size} [%r3], %r1;",
                "load": f"ld.shared.u{size} %r5, [%r3];",
                "add": "atom.shared.add.u32 %r5, [%r3], 1;",
            }[step.kind]
        )
    body = "\n    ".join(lines)
    return f"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out)
{{
    .reg .b32 %r<6>;
    .reg .b64 %d<4>;
    .reg .pred %p<2>;
    .shared .align 16 .b8 words[1024];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, words;
    mov.u32 %r5, 0;
    {body}
    ld.param.u64 %d1, [out];
    mov.u32 %r2, %ctaid.x;
    mad.lo.s32 %r1, %r2, 128, %r1;
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r5;
    ret;
}}
""".encode()


def llvm_ir(steps: tuple[Step, ...]) -> str:
    """It in LLVM's language for AMD GPUs, as the kernel `kernel`."""
    lines, last = [], "0"
    for number, step in enumerate(steps):
        if step.kind == "barrier":
            lines += [
                'fence syncscope("workgroup") release',
                "call void @llvm.amdgcn.s.barrier()",
                'fence syncscope("workgroup") acquire',
            ]
            continue
        n, size = number, 8 * step.bytes
        lines += [
            f"%a{n} = mul i32 %t, {step.factor * step.bytes}",
            f"%b{n} = add i32 %a{n}, {step.start * step.bytes}",
            f"%c{n} = shl i32 %t, 2",
            f"%d{n} = add i32 %c{n}, 512",
            f"%e{n} = icmp ult i32 %t, {step.count}",
            f"%f{n} = select i1 %e{n}, i32 %b{n}, i32 %d{n}",
            f"%p{n} = getelementptr i8, ptr addrspace(3) @words, i32 %f{n}",
        ]
        if step.kind == "store":
            lines.append(f"%v{n} = trunc i32 %t to i{size}" if size < 32 else f"%v{n} = or i32 %t, 0")
            lines.append(f"store volatile i{size} %v{n}, ptr addrspace(3) %p{n}")
        elif step.kind == "load":
            lines.append(f"%v{n} = load volatile i{size}, ptr addrspace(3) %p{n}")
        else:
            lines.append(
                f'%v{n} = atomicrmw add ptr addrspace(3) %p{n}, i32 1 syncscope("workgroup") monotonic'
            )
        if step.kind != "store":
            lines.append(f"%w{n} = zext i8 %v{n} to i32" if size < 32 else f"%w{n} = or i32 %v{n}, 0")
            last = f"%w{n}"
    body = "\n  ".join(lines)
    return f"""
target triple = "amdgcn-amd-amdhsa"
@words = internal addrspace(3) global [1024 x i8] poison, align 16
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
define amdgpu_kernel void @kernel(ptr addrspace(1) %out) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  {body}
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = mul i32 %group, 128
  %place = add i32 %first, %t
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %place
  store i32 {last}, ptr addrspace(1) %o
  ret void
}}
"""
