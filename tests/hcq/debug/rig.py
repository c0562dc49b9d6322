"""Kernels to debug: a product of matrices with one store too many, for each vendor, and a scripted face."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from hcq.debug.commands import Commands
from hcq.debug.plans import CONTINUE
from hcq.debug.session import Go, Order, Session
from hcq.emu.metal.shader.parser import parse as parse_msl
from hcq.emu.metal.shader.program import Program
from hcq.emu.nv.shader.memory import AddressSpace as NvSpace
from hcq.emu.nv.shader.run import Kernel
from hcq.errors import HcqError
from hcq.system import native
from tests.hcq.emu.amd.shader.kernels import ARGUMENT_BASE, DATA_BASE, Loaded

SIZE = 32  # of the matrices
WRONG = 5  # the element of the first row that the planted store overwrites
PLANTED = 42.0
STRIDE = 0x10000  # between the matrices in memory

# c = a @ b, a row for each block, whose threads share the row of a; thread 7 of block 3 stores where it should not
AMD = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
@tile = internal addrspace(3) global [32 x float] undef
define amdgpu_kernel void @matmul(ptr addrspace(1) %c, ptr addrspace(1) %a, ptr addrspace(1) %b) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %row = mul i32 %g, 32
  %own = add i32 %row, %t
  %ap = getelementptr float, ptr addrspace(1) %a, i32 %own
  %av = load float, ptr addrspace(1) %ap
  %tp = getelementptr [32 x float], ptr addrspace(3) @tile, i32 0, i32 %t
  store float %av, ptr addrspace(3) %tp
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  br label %loop
loop:
  %k = phi i32 [0, %entry], [%kn, %loop]
  %s = phi float [0.0, %entry], [%sn, %loop]
  %kp = getelementptr [32 x float], ptr addrspace(3) @tile, i32 0, i32 %k
  %x = load float, ptr addrspace(3) %kp
  %bi = mul i32 %k, 32
  %bi2 = add i32 %bi, %t
  %bp = getelementptr float, ptr addrspace(1) %b, i32 %bi2
  %y = load float, ptr addrspace(1) %bp
  %p = fmul float %x, %y
  %sn = fadd float %s, %p
  %kn = add i32 %k, 1
  %more = icmp slt i32 %kn, 32
  br i1 %more, label %loop, label %done
done:
  %cp = getelementptr float, ptr addrspace(1) %c, i32 %own
  store float %sn, ptr addrspace(1) %cp
  %is7 = icmp eq i32 %t, 7
  %is3 = icmp eq i32 %g, 3
  %bad = and i1 %is7, %is3
  br i1 %bad, label %plant, label %end
plant:
  %wp = getelementptr float, ptr addrspace(1) %c, i32 5
  store float 42.0, ptr addrspace(1) %wp
  br label %end
end:
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="32,32" }
"""

PTX = """.version 8.3
.target sm_90
.address_size 64
.visible .entry matmul(.param .u64 pc, .param .u64 pa, .param .u64 pb)
{
  .reg .pred %p<4>;
  .reg .b32 %r<20>;
  .reg .b64 %rd<20>;
  .reg .f32 %f<8>;
  .shared .align 4 .b8 tile[128];
  ld.param.u64 %rd1, [pc];
  ld.param.u64 %rd2, [pa];
  ld.param.u64 %rd3, [pb];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  shl.b32 %r3, %r2, 5;
  mov.f32 %f1, 0f00000000;
  mov.u32 %r4, 0;
  // row of A into shared memory
  add.u32 %r5, %r3, %r1;
  mul.wide.u32 %rd4, %r5, 4;
  add.u64 %rd5, %rd2, %rd4;
  ld.global.f32 %f2, [%rd5];
  mov.u32 %r6, tile;
  shl.b32 %r7, %r1, 2;
  add.u32 %r8, %r6, %r7;
  st.shared.f32 [%r8], %f2;
  bar.sync 0;
LOOP:
  shl.b32 %r9, %r4, 2;
  add.u32 %r10, %r6, %r9;
  ld.shared.f32 %f3, [%r10];
  shl.b32 %r11, %r4, 5;
  add.u32 %r12, %r11, %r1;
  mul.wide.u32 %rd6, %r12, 4;
  add.u64 %rd7, %rd3, %rd6;
  ld.global.f32 %f4, [%rd7];
  fma.rn.f32 %f1, %f3, %f4, %f1;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, 32;
  @%p1 bra LOOP;
  add.u64 %rd8, %rd1, %rd4;
  st.global.f32 [%rd8], %f1;
  setp.ne.u32 %p2, %r1, 7;
  @%p2 bra END;
  setp.ne.u32 %p3, %r2, 3;
  @!%p3 st.global.u32 [%rd1+20], 1109917696;
END:
  ret;
}
"""


MSL = """#include <metal_stdlib>
using namespace metal;
kernel void matmul(device float* c [[buffer(0)]], device const float* a [[buffer(1)]],
                   device const float* b [[buffer(2)]], uint t [[thread_index_in_threadgroup]],
                   uint3 g [[threadgroup_position_in_grid]]) {
  threadgroup float tile[32];
  uint row = g.x * 32u;
  tile[t] = a[row + t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float acc = 0.0f;
  for (uint k = 0u; k < 32u; ++k) {
    acc = acc + tile[k] * b[k * 32u + t];
  }
  c[row + t] = acc;
  if (t == 7u && g.x == 3u) {
    c[5u] = 42.0f;
  }
}
"""


class Scripted:
    """A face that says these lines. `said`: what was printed; `stops`: reason and place of each stop."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)[::-1]
        self.said: list[str] = []
        self.stops: list[tuple[str, tuple[int, int]]] = []
        self.session: Session | None = None

    def tell(self, text: str) -> None:
        self.said.append(text)

    def ask(self, session: Session) -> Order:
        commands = Commands(session, self.tell)
        self.stops.append((session.stop.reason, tuple(session.stop.place)))
        commands.stopped()
        while self.lines:
            line = self.lines.pop()
            self.said.append(f"> {line}")
            order = commands.run(line)
            if order is not None:
                return order
        return Go(CONTINUE)

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    def after(self, line: str) -> str:
        """What was printed after a line, up to the next one."""
        at = self.said.index(f"> {line}") + 1
        end = next((n for n in range(at, len(self.said)) if self.said[n].startswith("> ")), len(self.said))
        return "\n".join(self.said[at:end])


class Bench:
    """A session with the matrices in memory: `a`, `b`, `c` are arrays, at addresses `at`. Their names are A, B, C."""

    def __init__(self, vendor: str, lines: Sequence[str], arch: str = "gfx1100") -> None:
        self.vendor, self.face = vendor, Scripted(lines)
        self.session = Session(self.face)
        random = np.random.default_rng(1)
        self.a, self.b = (random.random((SIZE, SIZE), np.float32) for _ in range(2))
        self.c = np.zeros((SIZE, SIZE), np.float32)
        self.loaded = Loaded(AMD, arch) if vendor == "amd" else None
        self.space: Any = self.loaded.memory if self.loaded is not None else NvSpace()
        arrays = self.c, self.a, self.b
        self.at = {name: DATA_BASE + STRIDE * n for n, name in enumerate("CAB")}
        if vendor == "metal":
            self.at = {name: native.address_of(array) for name, array in zip("CAB", arrays)}
        for name, array in zip("CAB", arrays):
            if vendor != "metal":
                self.space.map(self.at[name], array, name=name)
            self.session.names.allocated(self.at[name], array.nbytes, name)
        self.arguments = struct.pack("<3Q", *self.at.values())
        if self.loaded is not None:
            self.space.map(ARGUMENT_BASE, bytearray(self.arguments.ljust(512, b"\0")), name="kernarg")
            self.start = self.loaded.launch("matmul", ARGUMENT_BASE)
        elif vendor == "nv":
            self.kernel = Kernel(PTX, "matmul")
        else:
            source = parse_msl(MSL)
            self.program = Program(source, source.kernels["matmul"])

    def launch(self, session: Any = None) -> HcqError | None:
        """Run it under the session; returns the fault that ended it."""
        try:
            if self.loaded is not None:
                self.session.run_amd(self.loaded.core, self.start, (SIZE, 1, 1), (SIZE, 1, 1))
            elif self.vendor == "metal":
                self.session.run_metal(self.program, (SIZE, 1, 1), (SIZE, 1, 1), self._bindings(), 0)
            else:
                grid = (SIZE, 1, 1)
                self.session.run_nv(self.kernel, 0, self.space, grid, grid, self.space, self.arguments)
        except HcqError as fault:
            return fault
        return None

    def _bindings(self) -> dict[int, Any]:
        return {n: array.reshape(-1).view(np.uint8) for n, array in enumerate((self.c, self.a, self.b))}

    def plain(self) -> np.ndarray[Any, Any]:
        """What it computes when nobody looks."""
        from hcq.emu.amd.shader.run import run_dispatch

        grid = (SIZE, 1, 1)
        if self.loaded is not None:
            run_dispatch(self.loaded.core, self.start, grid, grid)
        elif self.vendor == "metal":
            self.program.interpret(grid, grid, self._bindings())
        else:
            self.kernel.run(grid, grid, self.space, self.arguments)
        return self.c.copy()
