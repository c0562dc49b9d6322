"""Kernels whose loads come by every queue, as LLVM compiles them: for tests of missing waits.

In       nothing
Out      KERNELS: IR by name; `arguments`, which all of them take
Next     test_register_waits.py (who uses them), random_kernels.py (others)
"""

from __future__ import annotations

from typing import Any

import numpy as np

DECLARED = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.readfirstlane(i32)
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare void @llvm.amdgcn.s.barrier()
@tile = internal addrspace(3) global [256 x i32] poison, align 16
@other = internal addrspace(3) global [256 x i32] poison, align 16
"""
HEAD = """
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out, ptr addrspace(1) %table, i32 %n) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %in, i32 %t
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  %mine = getelementptr i32, ptr addrspace(3) @tile, i32 %t
  %n2 = sub i32 127, %t
  %other = getelementptr i32, ptr addrspace(3) @tile, i32 %n2
"""
BODIES = {
    "memory": """
  %a = load i32, ptr addrspace(1) %p
  %q = getelementptr i32, ptr addrspace(1) %p, i32 64
  %b = load i32, ptr addrspace(1) %q
  %r = getelementptr i32, ptr addrspace(1) %p, i32 128
  %c = load <4 x i32>, ptr addrspace(1) %r
  %d = extractelement <4 x i32> %c, i32 3
  %s = mul i32 %a, %b
  %x = add i32 %s, %d
  store i32 %x, ptr addrspace(1) %o
  ret void
}""",
    "a chain of addresses": """
  %a = load i32, ptr addrspace(1) %p
  %a6 = and i32 %a, 63
  %q = getelementptr i32, ptr addrspace(1) %in, i32 %a6
  %b = load i32, ptr addrspace(1) %q
  %b6 = and i32 %b, 63
  %r = getelementptr i32, ptr addrspace(1) %in, i32 %b6
  %c = load i32, ptr addrspace(1) %r
  store i32 %c, ptr addrspace(1) %o
  ret void
}""",
    "a loop of scalar loads": """
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%j, %loop]
  %sum = phi i32 [0, %entry], [%next, %loop]
  %q = getelementptr i32, ptr addrspace(4) %constant, i32 %i
  %v = load i32, ptr addrspace(4) %q
  %next = add i32 %sum, %v
  %j = add i32 %i, 1
  %more = icmp slt i32 %j, %n
  br i1 %more, label %loop, label %end
end:
  store i32 %next, ptr addrspace(1) %o
  ret void
}""",
    "a tile": """
  %a = load i32, ptr addrspace(1) %p
  store i32 %a, ptr addrspace(3) %mine
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %b = load i32, ptr addrspace(3) %other
  %c = load i32, ptr addrspace(3) %mine
  %x = mul i32 %b, %c
  store i32 %x, ptr addrspace(1) %o
  ret void
}""",
    "memory or shared memory": """
  %tag = load i32, ptr addrspace(1) %p
  store i32 %tag, ptr addrspace(3) %mine
  %odd = and i32 %t, 1
  %is = icmp eq i32 %odd, 0
  %fs = addrspacecast ptr addrspace(3) %mine to ptr
  %fg = addrspacecast ptr addrspace(1) %p to ptr
  %f = select i1 %is, ptr %fs, ptr %fg
  %v = load i32, ptr %f
  %w = mul i32 %v, 3
  store i32 %w, ptr addrspace(1) %o
  ret void
}""",
    "atomics that return": """
  %a = atomicrmw add ptr addrspace(1) %o, i32 3 monotonic
  %s = atomicrmw add ptr addrspace(3) @other, i32 %a monotonic
  %x = cmpxchg ptr addrspace(1) %o, i32 %a, i32 %s monotonic monotonic
  %v = extractvalue {i32, i1} %x, 0
  %q = getelementptr i32, ptr addrspace(1) %o, i32 64
  store i32 %v, ptr addrspace(1) %q
  ret void
}""",
    "between lanes": """
  %a = load i32, ptr addrspace(1) %p
  %f = call i32 @llvm.amdgcn.readfirstlane(i32 %a)
  %at = mul i32 %n2, 4
  %b = call i32 @llvm.amdgcn.ds.bpermute(i32 %at, i32 %a)
  %x = add i32 %f, %b
  store i32 %x, ptr addrspace(1) %o
  ret void
}""",
    "some of the lanes": """
  %is = icmp ult i32 %t, 40
  br i1 %is, label %first, label %end
first:
  %a = load i32, ptr addrspace(1) %p
  %m = mul i32 %a, 5
  br label %end
end:
  %v = phi i32 [7, %entry], [%m, %first]
  store i32 %v, ptr addrspace(1) %o
  ret void
}""",
    "a stack": """
  %room = alloca [16 x i32], addrspace(5)
  %a = load i32, ptr addrspace(1) %p
  %i = and i32 %a, 15
  %at = getelementptr i32, ptr addrspace(5) %room, i32 %i
  store volatile i32 %t, ptr addrspace(5) %at
  %b = load volatile i32, ptr addrspace(5) %at
  %c = mul i32 %a, %b
  store i32 %c, ptr addrspace(1) %o
  ret void
}""",
}
KERNELS = {
    name: DECLARED
    + HEAD.replace(
        "entry:\n", "entry:\n  %constant = addrspacecast ptr addrspace(1) %table to ptr addrspace(4)\n"
    )
    + body
    for name, body in BODIES.items()
}


def arguments() -> list[Any]:
    """In, out, table, and how much of it."""
    numbers = np.arange(1024, dtype=np.uint32)
    return [numbers, np.zeros(1024, np.uint32), numbers * 3, np.int32(5)]
